//! `RESYNC SOURCE`: tables are read again beside their old state.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

/// A table that has stopped comes back without its source being created anew, and what it says of itself leads there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_has_stopped_is_read_again() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE DATABASE again",
                "CREATE TABLE again.t (id INT PRIMARY KEY, v INT)",
                "CREATE TABLE again.other (id INT PRIMARY KEY, v INT)",
                "INSERT INTO again.t VALUES (1, 1), (2, 2), (3, 3)",
                "INSERT INTO again.other VALUES (1, 1)",
            ])
            .await;
        let mut gate = Gate::start().await;
        gate.expect_in_log("TG0123");
        gate.mirror("again", &server, "again.*").await;
        let pg = gate.connect().await;
        server.execute(&["SET SESSION binlog_format = STATEMENT", "UPDATE again.t SET v = v + 1"]).await;
        gate.await_in_view("job_tables", &["again.t", "error", "TG0123"]).await;
        let hint = gate.system_view("errors").await;
        assert!(hint.contains("RESYNC SOURCE"), "{hint}");
        server
            .execute(&["ALTER TABLE again.t ADD COLUMN w INT DEFAULT 7", "INSERT INTO again.t VALUES (4, 4, 4)"])
            .await;
        gate.catch_up("again").await;
        assert_eq!(pg.number("SELECT sum(v) FROM again.t").await, 6, "{kind:?}: readers stay on the old state");

        pg.execute("RESYNC SOURCE again TABLE again.t").await;
        pg.execute("WAIT FOR SOURCE again SNAPSHOT TIMEOUT '60 seconds'").await;
        assert_tables_equal(&server, &pg, "again", &["t", "other"]).await;
        server.execute(&["UPDATE again.t SET w = 8 WHERE id < 3", "DELETE FROM again.t WHERE id = 3"]).await;
        gate.catch_up("again").await;
        assert_tables_equal(&server, &pg, "again", &["t", "other"]).await;
        assert_pypaimon_reads_the_same(&gate, &server, "again", &["t", "other"]).await;

        for (wrong, sqlstate) in [
            ("RESYNC SOURCE nothing", "42704"),
            ("RESYNC SOURCE again TABLE again.nothing", "42P01"),
            ("RESYNC SOURCE again TABLE nothing.t", "42P01"),
            ("RESYNC TABLE t", "42601"),
        ] {
            assert_eq!(pg.error(wrong).await.sqlstate, sqlstate, "{wrong}");
        }
        pg.execute("PAUSE SOURCE again").await;
        assert_eq!(pg.error("RESYNC SOURCE again").await.sqlstate, "55000");
    }
}

/// All tables are read again while they are written to, and the process ends in the middle of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_is_read_again_under_load_and_kills() {
    let server = Server::start(Kind::Mysql, &[]).await;
    let plan = Plan { initial_rows: 800, keys: 1_500, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let mut gate = Gate::start().await;
    gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    let writers = Writers::start(&server, &plan).await;
    let mut rng = StdRng::seed_from_u64(plan.seed);
    for _ in 0..4 {
        gate.connect().await.execute("RESYNC SOURCE mix").await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..700))).await;
        gate.kill();
        gate.resume().await;
        let pg = gate.connect().await;
        // Whatever is read again, its old state is there.
        assert!(pg.number(&format!("SELECT count(*) FROM {DATABASE}.k_int")).await > 0);
    }
    let pg = gate.connect().await;
    pg.execute("WAIT FOR SOURCE mix SNAPSHOT TIMEOUT '120 seconds'").await;
    writers.stop().await;
    gate.catch_up("mix").await;
    let tables = workload::table_names();
    assert_tables_equal(&server, &pg, DATABASE, &tables).await;
    assert_pypaimon_reads_the_same(&gate, &server, DATABASE, &tables).await;
}
