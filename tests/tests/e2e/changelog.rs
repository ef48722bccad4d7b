//! Tables that other engines follow.

use std::path::Path;

use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    servers::{Kind, Server},
};

/// Rows in the changelogs of a table's snapshots.
fn changes(table: &Path) -> i64 {
    let snapshots = std::fs::read_dir(table.join("snapshot")).expect("the table has snapshots").flatten();
    let counts = snapshots.filter(|file| file.file_name().to_string_lossy().starts_with("snapshot-")).map(|file| {
        let text = std::fs::read_to_string(file.path()).expect("a snapshot can be read");
        let snapshot: serde_json::Value = serde_json::from_str(&text).expect("a snapshot is JSON");
        let count = snapshot["changelogRecordCount"].as_i64();
        assert_eq!(count.is_some(), snapshot["changelogManifestList"].is_string(), "{text}");
        count.unwrap_or(0)
    });
    counts.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_behind_the_first_snapshot_is_in_the_changelog() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO shop.t SELECT seq, seq FROM shop.seq_1_to_100",
        ])
        .await;
    let mut gate = Gate::start().await;
    gate.create_source("shop", &server, "shop.*", ", 'changelog-producer' = 'input'").await;
    gate.connect().await.execute("WAIT FOR SOURCE shop SNAPSHOT TIMEOUT '60 seconds'").await;
    let pg = gate.connect().await;
    let path = pg.value("SELECT path FROM sys.tables WHERE table_name = 't'").await.expect("the table is listed");
    let table = Path::new(gate.store()).join(path);
    assert_eq!(changes(&table), 0);

    // 10 come, 20 change, 5 go, and one takes another key.
    server
        .execute(&[
            "INSERT INTO shop.t SELECT seq, 0 FROM shop.seq_101_to_110",
            "UPDATE shop.t SET v = v + 1 WHERE id <= 20",
            "DELETE FROM shop.t WHERE id > 105",
            "UPDATE shop.t SET id = 1000 WHERE id = 1",
        ])
        .await;
    gate.catch_up("shop").await;
    let expected = 10 + 2 * 20 + 5 + 2;
    assert_eq!(changes(&table), expected);

    gate.kill();
    gate.resume().await;
    server.execute(&["UPDATE shop.t SET v = v + 1 WHERE id = 7"]).await;
    gate.catch_up("shop").await;
    assert_eq!(changes(&table), expected + 2);
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;
}
