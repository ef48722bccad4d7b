//! Several servers on one store.

use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_names_the_holder_and_takes_over_when_it_dies() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 200, keys: 400, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let mut first = Gate::start().await;
    first.expect_in_log("held").expect_in_log("TG0");
    first.mirror("mix", &server, &format!("{DATABASE}.*")).await;

    let mut second = first.sibling();
    second.expect_in_log("held").expect_in_log("TG0");
    second.resume().await;
    // The second one sees the source, says who has it, and can read what is durable.
    second.await_in_view("sources", &["mix"]).await;
    second.await_in_view("jobs", &["mix", &first.process().id().to_string()]).await;
    assert!(second.connect().await.number("SELECT count(*) FROM mix.k_int").await > 0);
    first.catch_up("mix").await;

    first.kill();
    second.catch_up("mix").await;
    // The one that comes back finds the source held.
    first.resume().await;
    first.await_in_view("jobs", &["mix", &second.process().id().to_string()]).await;
    writers.stop().await;
    second.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &second.connect().await, DATABASE, &tables).await;
}

/// A server that was halted past its lease must not write when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long"]
async fn a_halted_server_is_fenced() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 200, keys: 400, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let mut first = Gate::start().await;
    first.expect_in_log("");
    first.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    let mut second = first.sibling();
    second.expect_in_log("");
    second.resume().await;
    first.process().signal("STOP");
    second.catch_up("mix").await;
    first.process().signal("CONT");
    first.await_in_view("jobs", &["mix", &second.process().id().to_string()]).await;
    writers.stop().await;
    second.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &second.connect().await, DATABASE, &tables).await;
    tidegate_tests::checkpoints::assert_bank_total_at_every_checkpoint(&second, "mix").await;
}
