//! Tidegate is killed at random moments and started again: nothing is lost, doubled or torn.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_tests::{
    bank::BankWatch,
    canonical::assert_tables_equal,
    checkpoints::assert_bank_total_at_every_checkpoint,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

async fn killed_at_random_moments(kind: Kind, kills: u32) {
    let server = Server::start(kind, &[]).await;
    let plan = Plan { initial_rows: 1_500, keys: 2_500, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let mut gate = Gate::start().await;
    gate.create_source(
        "mix",
        &server,
        &format!("{DATABASE}.*"),
        ", 'scan.incremental.snapshot.chunk.size' = '200', 'scan.snapshot.fetch.size' = '20'",
    )
    .await;
    let mut rng = StdRng::seed_from_u64(plan.seed);
    for kill in 0..kills {
        // Short lives hit the snapshot, longer ones the stream; some are ended before the server answers.
        let life =
            Duration::from_millis(if kill % 3 == 0 { rng.random_range(0..400) } else { rng.random_range(200..3_000) });
        tokio::time::sleep(life).await;
        gate.kill();
        if rng.random_ratio(1, 5) {
            gate.launch();
        } else {
            gate.resume().await;
        }
    }
    gate.kill();
    gate.resume().await;
    gate.connect().await.execute("WAIT FOR SOURCE mix SNAPSHOT TIMEOUT '300 seconds'").await;
    let watch = BankWatch::start(&gate);
    tokio::time::sleep(Duration::from_secs(2)).await;
    writers.stop().await;
    gate.catch_up("mix").await;
    assert!(watch.stop().await > 0);

    let pg = gate.connect().await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &pg, DATABASE, &tables).await;
    assert_bank_total_at_every_checkpoint(&gate, "mix").await;
    assert_pypaimon_reads_the_same(&gate, &server, DATABASE, &tables).await;
    // A last start reads the same from the store alone.
    gate.kill();
    gate.resume().await;
    assert_tables_equal(&server, &gate.connect().await, DATABASE, &tables).await;
}

fn kills(fast: u32) -> u32 {
    std::env::var("TIDEGATE_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(fast)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_on_mariadb() {
    killed_at_random_moments(Kind::MariaDb, kills(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_on_mysql() {
    killed_at_random_moments(Kind::Mysql, kills(6)).await;
}

/// The database goes away and comes back: the job retries by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_database_is_followed_again() {
    for kind in Kind::all() {
        let mut server = Server::start(kind, &[]).await;
        let plan = Plan { initial_rows: 50, keys: 100, ..Plan::default() };
        workload::prepare(&server, &plan).await;
        let mut gate = Gate::start().await;
        gate.expect_in_log("TG0");
        gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
        let writers = Writers::start(&server, &plan).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        writers.stop().await;
        server.stop();
        // What is mirrored stays readable meanwhile.
        let pg = gate.connect().await;
        assert!(pg.number("SELECT count(*) FROM mix.k_int").await > 0);
        server.resume().await;
        server.execute(&["REPLACE INTO mix.k_int (id, v) VALUES (-99999, 1)"]).await;
        gate.catch_up("mix").await;
        assert_tables_equal(&server, &pg, DATABASE, &workload::table_names()).await;
    }
}
