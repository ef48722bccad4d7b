//! The store is a bucket, not a folder.

use tidegate_tests::{
    bank::BankWatch,
    canonical::assert_tables_equal,
    checkpoints::assert_bank_total_at_every_checkpoint,
    gate::Gate,
    proxy::{Fault, Proxy},
    s3::S3,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

/// The same query once more asks less of the bucket.
async fn reads_are_kept_at_hand(gate: &Gate) {
    let pg = gate.connect().await;
    for _ in 0..2 {
        assert_eq!(pg.number("SELECT sum(length(v))::bigint FROM mix.large").await, 2_000_000);
    }
    let hits = "SELECT sum(hits)::bigint FROM sys.store_caches";
    assert!(pg.number(hits).await > 0, "{}", gate.system_view("store_caches").await);
    assert!(pg.number("SELECT used_bytes FROM sys.store_caches WHERE place = 'disk'").await > 0);
    let asked = "SELECT count(*) FROM sys.store_requests WHERE requests > 0 AND p99_ms <= max_ms AND p50_ms <= p99_ms";
    assert_eq!(pg.number(asked).await, 5, "{}", gate.system_view("store_requests").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_keeps_a_mirror_across_a_kill_and_lets_one_server_capture() {
    let s3 = S3::start().await;
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 300, keys: 500, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    server
        .execute(&[
            "CREATE TABLE mix.large (id INT PRIMARY KEY, v VARCHAR(1000))",
            "INSERT INTO mix.large SELECT seq, HEX(RANDOM_BYTES(500)) FROM mix.seq_1_to_2000",
        ])
        .await;
    let writers = Writers::start(&server, &plan).await;
    let mut gate = Gate::prepare_anywhere();
    gate.store_in_s3(&s3.url(), &s3.options(s3.port));
    gate.resume().await;
    gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    let watch = BankWatch::start(&gate);
    gate.catch_up("mix").await;

    // Another server on the bucket sees the source, says who has it, and reads what is durable.
    let mut second = gate.sibling();
    second.expect_in_log("held");
    second.resume().await;
    second.await_in_view("jobs", &["mix", "standby", &gate.process().id().to_string()]).await;
    assert!(second.connect().await.number("SELECT count(*) FROM mix.k_int").await > 0);
    assert!(watch.stop().await > 0);
    second.stop();

    // What was there before the kill is read from the bucket alone; the changes behind it are captured.
    gate.kill();
    gate.resume().await;
    gate.catch_up("mix").await;
    reads_are_kept_at_hand(&gate).await;
    writers.stop().await;
    gate.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &gate.connect().await, DATABASE, &tables).await;
    assert_bank_total_at_every_checkpoint(&gate, "mix").await;
    // Stopped in order, it gives the source free.
    gate.stop();
    second.resume().await;
    second.catch_up("mix").await;
    assert_tables_equal(&server, &second.connect().await, DATABASE, &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_used_is_refused_with_the_reason() {
    let s3 = S3::start().await;
    let proxy = Proxy::start(s3.port).await;
    let mut gate = Gate::prepare_anywhere();
    gate.store_in_s3(&s3.url(), &s3.options(proxy.port));
    proxy.inject("PUT", "/probe/", Fault::DropCondition, 2);
    let log = gate.refusal().await;
    for word in ["TG0157", "conditional creates", "If-None-Match", "nothing was started"] {
        assert!(log.contains(word), "no {word:?} in {log}");
    }
    assert_eq!(proxy.met(), 2);

    let mut absent = Gate::prepare_anywhere();
    absent.store_in_s3("s3://absent/x", &s3.options(s3.port));
    let log = absent.refusal().await;
    assert!(log.contains("no such bucket") && log.contains("s3://absent/x"), "{log}");

    let mut misspelt = Gate::prepare_anywhere();
    misspelt.store_in_s3(&s3.url(), &[("aws_endpiont".to_owned(), "x".to_owned())]);
    let log = misspelt.refusal().await;
    assert!(log.contains("aws_endpiont"), "{log}");

    // With the condition heeded again the same store is taken.
    gate.resume().await;
    gate.connect().await.execute("SELECT * FROM sys.sources").await;
}
