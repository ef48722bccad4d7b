//! Tables whose files are merged on request, and the local cache directory that can be lost at any time.

use std::path::{Path, PathBuf};

use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    servers::{Kind, Server},
};

/// Rows of `shop.t`, keys 0 to 4,999.
async fn mirrored() -> (Server, Gate) {
    let server = Server::start(Kind::MariaDb, &[]).await;
    let values = (0..5000).map(|id| format!("({id}, {})", id * 7)).collect::<Vec<_>>().join(",");
    server
        .execute(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id BIGINT PRIMARY KEY, v BIGINT)",
            &format!("INSERT INTO shop.t VALUES {values}"),
        ])
        .await;
    let gate = Gate::start().await;
    gate.mirror("shop", &server, "shop.*").await;
    (server, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_table_has_no_dead_rows() {
    let (server, gate) = mirrored().await;
    let pg = gate.connect().await;
    for round in 0..4 {
        server.execute(&[&format!("UPDATE shop.t SET v = v + 1 WHERE id % 5 = {round}")]).await;
        gate.catch_up("shop").await;
    }
    server.execute(&["DELETE FROM shop.t WHERE id < 100"]).await;
    gate.catch_up("shop").await;
    let dead = "SELECT coalesce(sum(dead_rows), 0)::bigint FROM sys.files WHERE table_name = 't'";
    assert!(pg.number(dead).await > 0, "{}", gate.system_view("files").await);

    pg.execute("COMPACT TABLE shop.t").await;
    let notices = pg.notices().join("\n");
    assert!(notices.contains(" 0 dead rows"), "{notices}");
    assert_eq!(pg.number(dead).await, 0);
    assert_eq!(pg.number("SELECT count(DISTINCT level) FROM sys.files WHERE table_name = 't'").await, 1);
    assert_eq!(pg.number("SELECT sum(row_count)::bigint FROM sys.files WHERE table_name = 't'").await, 4900);
    let asked = "SELECT count(*) FROM sys.compactions WHERE reason = 'request' AND state = 'done' AND output_rows > 0";
    assert!(pg.number(asked).await > 0, "{}", gate.system_view("compactions").await);
    // Also of a table that has nothing to merge, and found by the search path.
    pg.execute("SET search_path TO shop").await;
    pg.execute("COMPACT TABLE t").await;
    assert_tables_equal(&server, &pg, "shop", &["t"]).await;

    pg.error("COMPACT TABLE shop.nothing").await.assert_names(&["shop.nothing"]);
    pg.execute("PAUSE SOURCE shop").await;
    pg.error("COMPACT TABLE shop.t").await.assert_names(&["shop"]);
}

fn key_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the cache directory is there").flatten() {
        if entry.path().is_dir() {
            files.extend(key_files(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_index_that_is_damaged_or_gone_is_made_anew() {
    let (server, mut gate) = mirrored().await;
    gate.expect_in_log("TG0158");
    gate.kill();
    let files = key_files(&gate.cache_path());
    assert!(!files.is_empty());
    for file in files {
        let mut bytes = std::fs::read(&file).expect("the file can be read");
        bytes[20] ^= 4;
        std::fs::write(file, bytes).expect("the file can be written");
    }
    gate.resume().await;
    server.execute(&["UPDATE shop.t SET v = v + 1"]).await;
    gate.await_in_view("errors", &["TG0158", "shop.t", ".keys"]).await;
    gate.catch_up("shop").await;
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;

    gate.kill();
    std::fs::remove_dir_all(gate.cache_path()).expect("the cache directory can be removed");
    gate.resume().await;
    server.execute(&["UPDATE shop.t SET v = v + 1", "DELETE FROM shop.t WHERE id % 3 = 0"]).await;
    gate.catch_up("shop").await;
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;
    assert!(!key_files(&gate.cache_path()).is_empty());
}
