//! A table that is written to for long does not grow without end, and what a reader is on stays.

use std::time::Duration;

use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

fn entries(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder).expect("the table has snapshots").count()
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

    // Snapshots go as fast as they come: of many that were made few are left, in the view and on the disk.
    let snapshots = std::path::Path::new(gate.store()).join(format!("warehouse/{DATABASE}.db/bank_a/snapshot"));
    for expired in [20, 60] {
        let few = format!(
            "SELECT count(*) FROM sys.table_snapshots \
             WHERE table_name = 'bank_a' AND expired_snapshots > {expired} AND latest_snapshot - earliest_snapshot < 40"
        );
        let mut patience = 200;
        while pg.number(&few).await == 0 || entries(&snapshots) > 60 {
            patience -= 1;
            let view = gate.system_view("table_snapshots").await;
            assert!(patience > 0, "{} files in {}\n{view}", entries(&snapshots), snapshots.display());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    writers.stop().await;
    gate.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b"]);
    assert_tables_equal(&server, &pg, DATABASE, &tables).await;
    assert_pypaimon_reads_the_same(&gate, &server, DATABASE, &tables).await;

    for statement in ["VERIFY STORAGE", "VERIFY STORAGE FOR SOURCE mix"] {
        assert_eq!(pg.rows(statement).await, Vec::<Vec<Option<String>>>::new(), "{statement}");
    }
    pg.execute("PAUSE SOURCE mix").await;
    let table = snapshots.parent().expect("a table");
    let files = std::fs::read_dir(table.join("bucket-0")).expect("a bucket").flatten();
    let file = files.max_by_key(|file| file.metadata().map_or(0, |meta| meta.len())).expect("a data file").path();
    let mut bytes = std::fs::read(&file).expect("a data file");
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).expect("a data file can be written");
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).expect("a name");
    let found = pg.rows("VERIFY STORAGE").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0][1].as_ref().is_some_and(|object| object.ends_with(&name)), "{found:?}");
    assert!(found[0][0].as_deref() == Some("table mix.bank_a"), "{found:?}");
}
