//! A table that is written to for long does not grow without end, and what a reader is on stays.

use std::time::Duration;

use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

fn objects(folder: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { objects(&entry.path()) } else { 1 })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_snapshots_go_unless_a_reader_is_on_them() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 200, keys: 300, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let writers = Writers::start(&server, &plan).await;
    let gate = Gate::start().await;
    gate.create_source(
        "mix",
        &server,
        &format!("{DATABASE}.*"),
        ", 'checkpoint.interval' = '100ms', 'snapshot.time-retained' = '1s', 'snapshot.num-retained.min' = '1'",
    )
    .await;
    let pg = gate.connect().await;
    pg.execute("WAIT FOR SOURCE mix SNAPSHOT TIMEOUT '300 seconds'").await;

    let reader = gate.connect().await;
    reader.execute("BEGIN").await;
    let total = format!(
        "SELECT (SELECT sum(balance) FROM {DATABASE}.bank_a) AS a, (SELECT count(*) FROM {DATABASE}.bank_a) AS b, \
         (SELECT sum(balance) FROM {DATABASE}.bank_b) AS c, (SELECT count(*) FROM {DATABASE}.bank_b) AS d"
    );
    let before = reader.rows(&total).await;
    gate.await_in_view("snapshot_holds", &["bank_a", "query"]).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(reader.rows(&total).await, before, "an open transaction sees what it saw");
    reader.execute("COMMIT").await;

    let kept = "SELECT count(*) FROM sys.table_retention \
                WHERE table_name = 'bank_a' AND expired_snapshots > 20 AND latest_snapshot - earliest_snapshot < 40";
    let mut patience = 100;
    while pg.number(kept).await == 0 {
        patience -= 1;
        assert!(patience > 0, "{}", gate.system_view("table_retention").await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let table = std::path::Path::new(gate.store()).join(format!("warehouse/{DATABASE}.db/bank_a"));
    let few = objects(&table);
    assert!(few > 0, "there is no table at {}", table.display());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let later = objects(&table);
    assert!(later < few * 3, "{few} objects, and {later} five seconds later");

    writers.stop().await;
    gate.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &pg, DATABASE, &tables).await;
    assert_pypaimon_reads_the_same(&gate, &server, DATABASE, &tables).await;
}
