//! Bad input is answered with a clear error, and nothing is lost.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use mysql_async::prelude::Queryable;
use tidegate_tests::{
    await_state::await_value,
    canonical::assert_tables_equal,
    checkpoints,
    gate::Gate,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

async fn server_with_table(kind: Kind, options: &[&str]) -> Server {
    let server = Server::start(kind, options).await;
    server
        .execute(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO shop.t VALUES (1, 1), (2, 2), (3, 3)",
        ])
        .await;
    server
}

fn options(server: &Server, changed: &[(&str, &str)]) -> String {
    let port = server.port.to_string();
    let mut options = vec![
        ("connector", "mysql-cdc"),
        ("hostname", "127.0.0.1"),
        ("port", port.as_str()),
        ("username", "cdc"),
        ("password", "cdc-secret"),
        ("tables", "shop.*"),
    ];
    for (name, value) in changed {
        options.retain(|(known, _)| known != name);
        options.push((name, value));
    }
    options.iter().map(|(name, value)| format!("'{name}' = '{value}'")).collect::<Vec<_>>().join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_cannot_work_is_refused_with_the_reason() {
    let server = server_with_table(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE USER 'no_replication'@'%' IDENTIFIED BY 'x'",
            "GRANT SELECT ON *.* TO 'no_replication'@'%'",
            "CREATE USER 'no_select'@'%' IDENTIFIED BY 'x'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD, SHOW DATABASES ON *.* TO 'no_select'@'%'",
        ])
        .await;
    let gate = Gate::start().await;
    let pg = gate.connect().await;
    let closed = tidegate_tests::servers::free_port().to_string();
    // Options that differ from a good definition, and what the error must name.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (&[("password", "wrong")], &["TG0", "denied"]),
        (&[("username", "nobody")], &["TG0", "denied"]),
        (&[("port", closed.as_str())], &["TG0", "127.0.0.1"]),
        (&[("hostname", "no-such-host.invalid")], &["TG0", "no-such-host.invalid"]),
        (&[("port", "seventy")], &["port"]),
        (&[("username", "no_replication"), ("password", "x")], &["TG0", "REPLICATION"]),
        (&[("username", "no_select"), ("password", "x")], &["TG0"]),
        (&[("tables", "shop.absent")], &["TG0", "shop.absent"]),
        (&[("tables", "absent.*")], &["TG0", "absent"]),
        (&[("tables", "shop.(")], &["shop.("]),
        (&[("hostnam", "127.0.0.1")], &["hostnam", "hostname"]),
        (&[("scan.snapshot.fetch.sise", "10")], &["scan.snapshot.fetch.size"]),
        (&[("connector", "oracle-cdc")], &["oracle-cdc", "mysql-cdc"]),
        (&[("checkpoint.interval", "soon")], &["checkpoint.interval"]),
    ];
    for (changed, words) in cases {
        let statement = format!("CREATE SOURCE bad WITH ({})", options(&server, changed));
        let error = pg.error(&statement).await;
        assert_eq!(error.sqlstate.len(), 5, "{changed:?}: {error:?}");
        assert_ne!(error.sqlstate, "XX000", "{changed:?}: {error:?}");
        assert!(!error.text().contains("cdc-secret"), "a password is shown: {error:?}");
        for word in *words {
            assert!(
                error.text().to_lowercase().contains(&word.to_lowercase()),
                "{changed:?}: no {word:?} in {error:?}"
            );
        }
    }
    for (statement, words) in [
        ("CREATE SOURCE bad", vec![]),
        ("CREATE SOURCE bad WITH (connector = 'mysql-cdc')", vec!["hostname"]),
        ("DROP SOURCE absent", vec!["absent"]),
        ("PAUSE SOURCE absent", vec!["absent"]),
        ("WAIT FOR SOURCE absent SNAPSHOT", vec!["absent"]),
        ("SHOW CREATE SOURCE absent", vec!["absent"]),
        (
            "CREATE SOURCE bad WITH (connector = 'mysql-cdc', hostname = 'h', username = 'u', password = SECRET absent, tables = 'a.b')",
            vec!["absent"],
        ),
    ] {
        pg.error(statement).await.assert_names(&words);
    }
    // Nothing of all that stays behind, and a good definition is taken.
    assert_eq!(pg.number("SELECT count(*) FROM sys.sources").await, 0);
    gate.mirror("shop", &server, "shop.*").await;
    let twice = format!("CREATE SOURCE shop WITH ({})", options(&server, &[]));
    assert_eq!(pg.error(&twice).await.sqlstate, "42710");
    pg.execute(&twice.replace("CREATE SOURCE", "CREATE SOURCE IF NOT EXISTS")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_log_rows_is_refused() {
    let cases: &[(Kind, &[&str], &[&str])] = &[
        (Kind::MariaDb, &["--skip-log-bin"], &["TG0", "log_bin"]),
        (Kind::Mysql, &["--skip-log-bin"], &["TG0", "log_bin"]),
        (Kind::MariaDb, &["--binlog-format=STATEMENT"], &["TG0", "binlog_format", "ROW"]),
        (Kind::MariaDb, &["--binlog-format=MIXED"], &["TG0", "binlog_format", "ROW"]),
        (Kind::MariaDb, &["--binlog-row-image=MINIMAL"], &["TG0", "binlog_row_image", "FULL"]),
        (Kind::Mysql, &["--binlog-row-image=NOBLOB"], &["TG0", "binlog_row_image", "FULL"]),
    ];
    let gate = Gate::start().await;
    let pg = gate.connect().await;
    for (kind, settings, words) in cases {
        let server = server_with_table(*kind, settings).await;
        let error = pg.error(&format!("CREATE SOURCE bad WITH ({})", options(&server, &[]))).await;
        for word in *words {
            assert!(error.text().contains(word), "{kind:?} {settings:?}: no {word:?} in {error:?}");
        }
        // EXPLAIN lists every check instead of stopping at the first.
        let plan = pg.rows(&format!("EXPLAIN CREATE SOURCE bad WITH ({})", options(&server, &[]))).await;
        let plan: String = plan.iter().flatten().flatten().map(|text| format!("{text}\n")).collect();
        assert!(plan.to_lowercase().contains(&words[1].to_lowercase()), "{kind:?} {settings:?}: {plan}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_a_primary_key_is_left_out_or_given_one() {
    let server = server_with_table(Kind::Mysql, &[]).await;
    server
        .execute(&[
            "CREATE TABLE shop.no_key (a INT NOT NULL UNIQUE, b INT)",
            "INSERT INTO shop.no_key VALUES (1, 1), (2, 2)",
        ])
        .await;
    let gate = Gate::start().await;
    let pg = gate.connect().await;
    pg.execute(&format!("CREATE SOURCE shop WITH ({})", options(&server, &[]))).await;
    let notices = pg.notices().join("\n");
    assert!(notices.contains("left out") && notices.contains("primary key"), "{notices}");
    pg.execute("WAIT FOR SOURCE shop SNAPSHOT TIMEOUT '60 seconds'").await;
    assert_eq!(pg.number("SELECT count(*) FROM shop.t").await, 3);
    assert_eq!(pg.error("SELECT * FROM shop.no_key").await.sqlstate, "42P01");
    pg.execute("DROP SOURCE shop").await;

    let with_key = options(&server, &[]).replace(", 'tables' = 'shop.*'", "");
    pg.execute(&format!("CREATE SOURCE keyed WITH ({with_key}) TABLES (shop.t, shop.no_key KEY (a))")).await;
    pg.execute("WAIT FOR SOURCE keyed SNAPSHOT TIMEOUT '60 seconds'").await;
    server.execute(&["UPDATE shop.no_key SET b = 7 WHERE a = 2", "DELETE FROM shop.no_key WHERE a = 1"]).await;
    gate.catch_up("keyed").await;
    assert_eq!(pg.rows("SELECT a, b FROM shop.no_key").await, [[Some("2".to_owned()), Some("7".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_id_that_is_taken_is_named() {
    let server = server_with_table(Kind::MariaDb, &[]).await;
    let mut gate = Gate::start().await;
    gate.expect_in_log("TG0").expect_in_log("server id").expect_in_log("retry");
    gate.create_source("one", &server, "shop.t", ", 'server-id' = '4242'").await;
    let pg = gate.connect().await;
    pg.execute("WAIT FOR SOURCE one SNAPSHOT TIMEOUT '60 seconds'").await;
    let mut other = Gate::start().await;
    other.expect_in_log("TG0").expect_in_log("server id").expect_in_log("retry");
    other.create_source("two", &server, "shop.t", ", 'server-id' = '4242'").await;
    // The database ends one of the two connections: whoever loses says why.
    let deadline = tidegate_tests::await_state::Deadline::after(Duration::from_secs(60));
    loop {
        let text =
            format!("{}\n{}", gate.system_view("errors").await, other.system_view("errors").await).to_lowercase();
        if text.contains("server id") || text.contains("server-id") || text.contains("server_id") {
            break;
        }
        assert!(!deadline.passed(), "nobody names the server id: {text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(other);
    server.execute(&["INSERT INTO shop.t VALUES (4, 4)"]).await;
    gate.catch_up("one").await;
    assert_tables_equal(&server, &pg, "shop", &["t"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purged_position_is_an_error_and_the_data_stays_readable() {
    for kind in Kind::all() {
        let server = server_with_table(kind, &[]).await;
        let mut gate = Gate::start().await;
        gate.expect_in_log("TG0");
        gate.mirror("shop", &server, "shop.*").await;
        gate.kill();
        let mut conn = server.connect().await;
        conn.query_drop("INSERT INTO shop.t VALUES (4, 4)").await.expect("a row can be inserted");
        conn.query_drop("FLUSH BINARY LOGS").await.expect("logs can be flushed");
        conn.query_drop("FLUSH BINARY LOGS").await.expect("logs can be flushed");
        let (newest, _) = server.log_end().await;
        // A server keeps a file that the connection of the killed process seems to be reading still.
        await_value("the old logs to be purged", Duration::from_secs(60), || async {
            let mut conn = server.connect().await;
            conn.query_drop(format!("PURGE BINARY LOGS TO '{newest}'")).await.expect("logs can be purged");
            let logs: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("logs can be listed");
            if logs.len() == 1 { Ok(()) } else { Err(logs.len()) }
        })
        .await;
        gate.resume().await;
        gate.await_in_view("errors", &["TG0107"]).await;
        gate.await_in_view("jobs", &["shop", "failed"]).await;
        let pg = gate.connect().await;
        assert_eq!(pg.number("SELECT count(*) FROM shop.t").await, 3);
        // Waiting for it ends with the reason instead of a timeout.
        pg.error("WAIT FOR SOURCE shop CURRENT TIMEOUT '30 seconds'").await.assert_names(&["purged"]);
    }
}

/// The files below a folder, the newest last.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    files
}

fn flip_a_byte(path: &Path, from_end: usize) {
    let mut bytes = std::fs::read(path).expect("the file can be read");
    let at = bytes.len().saturating_sub(from_end).min(bytes.len() - 1);
    bytes[at] ^= 0x20;
    std::fs::write(path, bytes).expect("the file can be written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_checkpoint_is_named_and_nothing_is_overwritten() {
    let server = server_with_table(Kind::MariaDb, &[]).await;
    let mut gate = Gate::start().await;
    gate.expect_in_log("TG0").expect_in_log("checkpoint");
    gate.mirror("shop", &server, "shop.*").await;
    gate.kill();
    let checkpoints: Vec<PathBuf> = files_below(Path::new(gate.store()))
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("checkpoint-")))
        .collect();
    let newest = checkpoints
        .iter()
        .max_by_key(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.trim_start_matches("checkpoint-").parse::<u64>().unwrap_or(0)
        })
        .expect("there is a checkpoint");
    let good = std::fs::read(newest).expect("the file can be read");
    flip_a_byte(newest, 30);
    gate.resume().await;
    gate.await_in_view("errors", &["TG0", "checkpoint-"]).await;
    assert_eq!(
        files_below(Path::new(gate.store()))
            .iter()
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("checkpoint-")))
            .count(),
        checkpoints.len(),
        "a checkpoint was written on top of a corrupt one"
    );
    // With the object restored it goes on.
    gate.kill();
    std::fs::write(newest, good).expect("the file can be written");
    server.execute(&["INSERT INTO shop.t VALUES (4, 4)"]).await;
    gate.resume().await;
    gate.catch_up("shop").await;
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_data_file_is_an_error_and_no_wrong_row() {
    let server = server_with_table(Kind::MariaDb, &[]).await;
    let values = (100..3_000).map(|id| format!("({id}, {})", id * 7)).collect::<Vec<_>>().join(",");
    server.execute(&[&format!("INSERT INTO shop.t VALUES {values}")]).await;
    let mut gate = Gate::start().await;
    gate.expect_in_log("");
    gate.mirror("shop", &server, "shop.*").await;
    let state = checkpoints::newest(&gate).await;
    gate.kill();
    let table = Path::new(gate.store()).join(&state.tables.get("shop.t").expect("the table is in the checkpoint").path);
    let largest = files_below(&table)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .max_by_key(|path| path.metadata().map(|meta| meta.len()).unwrap_or(0))
        .expect("there is a data file");
    let good = std::fs::read(&largest).expect("the file can be read");
    let damages: [Damage; 4] = [
        ("cut off", |bytes| bytes.truncate(bytes.len() / 2)),
        ("its end overwritten", |bytes| {
            let end = bytes.len();
            bytes[end - 100..].fill(0xff);
        }),
        ("zeros instead of its pages", |bytes| {
            let end = bytes.len();
            bytes[4..end - end / 4].fill(0);
        }),
        ("empty", Vec::clear),
    ];
    for (damage, apply) in damages {
        let mut bytes = good.clone();
        apply(&mut bytes);
        std::fs::write(&largest, bytes).expect("the file can be written");
        gate.resume().await;
        let pg = gate.connect().await;
        match pg.try_rows("SELECT * FROM shop.t").await {
            Ok(rows) => panic!("a file that is {damage} gives {} rows", rows.len()),
            Err(error) => assert_ne!(error.message, "", "{damage}"),
        }
        assert_eq!(pg.number("SELECT 1").await, 1);
        gate.kill();
    }
    std::fs::write(&largest, good).expect("the file can be written");
    gate.resume().await;
    gate.catch_up("shop").await;
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;
}

/// A kind of damage, and what does it to a file's bytes.
type Damage = (&'static str, fn(&mut Vec<u8>));

/// A small file system of its own.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// None where this user may not mount.
    fn mount(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tidegate-test"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(folder))
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "the file system can be remounted with {options}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_capture_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(6) else {
        eprintln!("skipped: this user may not mount");
        return;
    };
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 100, keys: 300, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    server.execute(&["CREATE TABLE mix.filler (id INT PRIMARY KEY)"]).await;
    let mut gate = Gate::start().await;
    gate.stop();
    gate.store_at(&disk.0.path().join("store").to_string_lossy()).expect_in_log("");
    gate.resume().await;
    gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    let writers = Writers::start(&server, &plan).await;
    server.execute(&["ALTER TABLE mix.filler ADD COLUMN random VARBINARY(200)"]).await;
    // Rows that do not compress.
    let mut conn = server.connect().await;
    let mut id = 1_000_000;
    let deadline = tidegate_tests::await_state::Deadline::after(Duration::from_secs(90));
    loop {
        let rows = (0..400).map(|i| format!("({}, RANDOM_BYTES(200))", id + i)).collect::<Vec<_>>().join(",");
        conn.query_drop(format!("INSERT INTO mix.filler (id, random) VALUES {rows}"))
            .await
            .expect("rows can be inserted");
        id += 400;
        let errors = gate.system_view("errors").await;
        if errors.contains("TG0") {
            break;
        }
        assert!(!deadline.passed(), "the disk does not fill up");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // What is durable can be read all the while.
    assert!(gate.connect().await.number("SELECT count(*) FROM mix.k_int").await > 0);
    disk.remount("size=400m");
    writers.stop().await;
    gate.catch_up("mix").await;
    let mut tables = workload::table_names();
    tables.extend(["bank_a", "bank_b", "filler"]);
    assert_tables_equal(&server, &gate.connect().await, DATABASE, &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_refuses_writes_is_tried_again() {
    let Some(disk) = SmallDisk::mount(100) else {
        eprintln!("skipped: this user may not mount");
        return;
    };
    let server = server_with_table(Kind::MariaDb, &[]).await;
    let mut gate = Gate::start().await;
    gate.stop();
    gate.store_at(&disk.0.path().join("store").to_string_lossy()).expect_in_log("");
    gate.resume().await;
    gate.mirror("shop", &server, "shop.*").await;
    disk.remount("ro");
    server.execute(&["INSERT INTO shop.t VALUES (4, 4)"]).await;
    gate.await_in_view("errors", &["TG0"]).await;
    assert_eq!(gate.connect().await.number("SELECT count(*) FROM shop.t").await, 3);
    disk.remount("rw");
    gate.catch_up("shop").await;
    assert_tables_equal(&server, &gate.connect().await, "shop", &["t"]).await;
}
