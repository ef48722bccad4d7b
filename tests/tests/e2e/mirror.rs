//! A source is mirrored while it is written to: at the end every table equals MySQL's, and the bank's total holds at every checkpoint.

use std::time::Duration;

use tidegate_tests::{
    bank::BankWatch,
    canonical::assert_tables_equal,
    checkpoints::assert_bank_total_at_every_checkpoint,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

async fn snapshot_under_load(kind: Kind, plan: Plan, after: Duration) {
    let server = Server::start(kind, &[]).await;
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let gate = Gate::start().await;
    // Small pages and ranges, so that many are open while their tables change.
    gate.create_source(
        "mix",
        &server,
        &format!("{DATABASE}.*"),
        ", 'scan.incremental.snapshot.chunk.size' = '100', 'scan.snapshot.fetch.size' = '25'",
    )
    .await;
    gate.connect().await.execute("WAIT FOR SOURCE mix SNAPSHOT TIMEOUT '300 seconds'").await;
    let watch = BankWatch::start(&gate);
    tokio::time::sleep(after).await;
    let written = writers.stop().await;
    gate.catch_up("mix").await;
    let seen = watch.stop().await;
    assert!(written > 0 && seen > 0, "{written} transactions written, the bank was read {seen} times");

    let pg = gate.connect().await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &pg, DATABASE, &tables).await;
    assert_bank_total_at_every_checkpoint(&gate, "mix").await;
    assert_pypaimon_reads_the_same(&gate, &server, DATABASE, &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_under_load_on_mariadb() {
    snapshot_under_load(Kind::MariaDb, Plan::default(), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_under_load_on_mysql() {
    snapshot_under_load(Kind::Mysql, Plan::default(), Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long"]
async fn long_load_on_both_servers() {
    for kind in Kind::all() {
        let plan = Plan { keys: 30_000, initial_rows: 20_000, writers: 4, pause: Duration::ZERO, ..Plan::default() };
        snapshot_under_load(kind, plan, Duration::from_secs(60)).await;
    }
}

/// Without GTIDs the position is a file and an offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_without_gtids_is_mirrored() {
    let server = Server::start(Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]).await;
    let plan = Plan { initial_rows: 100, keys: 200, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let mut gate = Gate::start().await;
    gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    server.execute(&["FLUSH BINARY LOGS"]).await;
    gate.kill();
    gate.resume().await;
    writers.stop().await;
    gate.catch_up("mix").await;
    assert_tables_equal(&server, &gate.connect().await, DATABASE, &workload::table_names()).await;
}

/// A transaction is never split: a large one appears whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_appears_whole() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE DATABASE big",
                "CREATE TABLE big.t (id INT PRIMARY KEY, g INT NOT NULL, pad VARCHAR(200) NOT NULL)",
                "INSERT INTO big.t WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n, 0, REPEAT('x', 150) FROM s",
            ])
            .await;
        let gate = Gate::start().await;
        gate.mirror("big", &server, "big.t").await;
        let pg = gate.connect().await;
        assert_eq!(pg.number("SELECT count(*) FROM big.t").await, 1000);
        let mut conn = server.connect().await;
        let limit = if kind == Kind::Mysql {
            "SET SESSION cte_max_recursion_depth = 1000000"
        } else {
            "SET SESSION max_recursive_iterations = 1000000"
        };
        mysql_async::prelude::Queryable::query_drop(&mut conn, limit).await.expect("a session variable can be set");
        let insert = "INSERT INTO big.t WITH RECURSIVE s(n) AS (SELECT 1001 UNION ALL SELECT n + 1 FROM s WHERE n < 200000) SELECT n, 0, REPEAT('y', 150) FROM s";
        let change = tokio::spawn(async move {
            for statement in [
                "START TRANSACTION",
                insert,
                "UPDATE big.t SET g = g + 1",
                "DELETE FROM big.t WHERE id % 2 = 0",
                "COMMIT",
            ] {
                mysql_async::prelude::Queryable::query_drop(&mut conn, statement).await.expect("the statement runs");
            }
        });
        // Before and after are the only states that a reader may see.
        loop {
            let rows = pg.rows("SELECT count(*), sum(g) FROM big.t").await;
            match (rows[0][0].as_deref(), rows[0][1].as_deref()) {
                (Some("1000"), Some("0")) => {}
                (Some("100000"), Some("100000")) => break,
                other => panic!("a part of a transaction is visible: {other:?}"),
            }
        }
        change.await.expect("the writer ends");
    }
}

/// A mirror that has nothing to do writes no checkpoints for every tick, and its position still moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_source_is_quiet_and_a_checkpoint_can_be_asked_for() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE DATABASE quiet",
            "CREATE TABLE quiet.t (id INT PRIMARY KEY)",
            "INSERT INTO quiet.t VALUES (1)",
        ])
        .await;
    let gate = Gate::start().await;
    gate.mirror("quiet", &server, "quiet.t").await;
    let pg = gate.connect().await;
    let newest = "SELECT max(checkpoint) FROM sys.checkpoints";
    let before = pg.number(newest).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = pg.number(newest).await;
    assert!(after - before <= 1, "{} checkpoints in four idle seconds", after - before);
    server.execute(&["INSERT INTO quiet.t VALUES (2)"]).await;
    gate.catch_up("quiet").await;
    pg.execute("CHECKPOINT SOURCE quiet").await;
    assert_eq!(pg.number("SELECT count(*) FROM quiet.t").await, 2);
    assert!(pg.number(newest).await > before);
}
