//! Capture jobs against real servers, over a store in memory: what a review or a user found to be lost once.

#![allow(clippy::disallowed_methods, reason = "tests against real servers and stores are in the time that there is")]

mod server;

use std::sync::Arc;
use std::time::Duration;

use server::{Kind, Server};
use tidegate_cdc::capture::{CaptureEnv, CaptureHandle, CaptureJob, SourceView, TableProgress};
use tidegate_cdc::mysql::server::NetworkServer;
use tidegate_cdc::source::definition::{CaptureOptions, SourceDefinition, TablePattern, TableRule};
use tidegate_storage::checkpoint::Holder;
use tidegate_storage::clock::{Clock, SystemClock};
use tidegate_storage::store::StoreRef;
use tidegate_storage::table::TableOptions;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

fn start(server: &Server, tables: &str, options: CaptureOptions) -> CaptureHandle {
    let store = tidegate_storage::store::open("memory:", &[]).expect("a store");
    start_on(server, &store, tables, options)
}

fn start_on(server: &Server, store: &StoreRef, tables: &str, options: CaptureOptions) -> CaptureHandle {
    let definition = SourceDefinition {
        id: Uuid::from_u128(11),
        name: "shop".to_owned(),
        connection: server.capturer(),
        tables: TablePattern::parse_list(tables).expect("patterns").into_iter().map(TableRule::new).collect(),
        exclude: Vec::new(),
        options,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let owner = Uuid::from_u128(12);
    let holder = Holder {
        owner,
        host: "test".to_owned(),
        pid: std::process::id(),
        process_start: 0,
        address: String::new(),
        since_ms: clock.now_ms(),
        renewed_at_ms: clock.now_ms(),
    };
    CaptureJob::start(
        definition,
        CaptureEnv {
            store: Arc::clone(store),
            server_of: NetworkServer::of_options(),
            clock,
            resources: Arc::default(),
            layout: TableOptions::default(),
            owner,
            holder,
            holder_is_dead: Arc::new(|_| true),
        },
    )
}

fn rows(view: &SourceView, table: &str) -> Option<u64> {
    let table = view.tables.iter().find(|t| t.table_name == table)?;
    table.version.as_ref().map(|version| version.row_count())
}

/// Waits until a table has so many rows that readers see.
async fn has_rows(job: &CaptureHandle, table: &str, expected: u64) {
    let mut views = job.views();
    let reached = views.wait_for(|view| rows(view, table) == Some(expected));
    let reached = tokio::time::timeout(PATIENCE, reached).await.is_ok_and(|seen| seen.is_ok());
    let status = job.status();
    assert!(reached, "{table} has {:?} rows, not {expected}; {status:?}", rows(&job.view(), table));
}

async fn stops(job: &CaptureHandle, table: &str) -> String {
    let mut statuses = job.statuses();
    let named = format!("shop.{table}");
    let stopped =
        statuses.wait_for(|status| status.tables.iter().any(|t| t.name == named && t.state == TableProgress::Error));
    let status = tokio::time::timeout(PATIENCE, stopped).await.expect("the table stops").expect("a status").clone();
    let table = status.tables.iter().find(|t| t.name == named).expect("the table");
    table.error.as_ref().map(|error| error.code.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_range_that_ends_in_a_page_of_large_rows_is_read_to_its_end() {
    let server = Server::start(Kind::MariaDb, &["--max-allowed-packet=64M"]).await;
    server
        .execute(&[
            "USE shop",
            "CREATE TABLE shop.large (id INT PRIMARY KEY, v LONGBLOB)",
            "INSERT INTO shop.large SELECT seq, REPEAT(CHAR(65 + seq % 26), 1000000) FROM seq_1_to_150",
        ])
        .await;
    let job = start(&server, "shop.large", CaptureOptions::default());
    has_rows(&job, "large", 150).await;
    job.stop().await.expect("the job stops");
}

#[tokio::test]
async fn large_rows_pass_through_a_small_memory() {
    let server = Server::start(Kind::MariaDb, &["--max-allowed-packet=64M"]).await;
    server
        .execute(&[
            "CREATE TABLE shop.a (id INT PRIMARY KEY, v LONGBLOB)",
            "CREATE TABLE shop.b (id INT PRIMARY KEY, v LONGBLOB)",
        ])
        .await;
    let job = start(&server, "shop.*", CaptureOptions { memory_bytes: 16 << 20, ..CaptureOptions::default() });
    has_rows(&job, "a", 0).await;
    // Several transactions and one of both tables, each table with more than half of a share of the memory.
    for id in 1..=4 {
        server
            .execute(&[
                "BEGIN",
                &format!("INSERT INTO shop.a VALUES ({id}, REPEAT('a', 2600000))"),
                &format!("INSERT INTO shop.b VALUES ({id}, REPEAT('b', 2600000))"),
                "COMMIT",
            ])
            .await;
    }
    has_rows(&job, "a", 4).await;
    has_rows(&job, "b", 4).await;
    job.stop().await.expect("the job stops");
}

#[tokio::test]
async fn what_was_prepared_before_the_capture_and_committed_after_is_not_lost() {
    for kind in Kind::all() {
        // Each commit is in the log some time before a SELECT sees it. Syncing both makes the time longer, and one of
        // ten is met by a page now and then.
        let server = Server::start(kind, &["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"]).await;
        server.execute(&["CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)", "INSERT INTO shop.t VALUES (0, 1)"]).await;
        for id in 1..=10 {
            server
                .execute(&[
                    &format!("XA START 'early{id}', 'branch', 7"),
                    &format!("INSERT INTO shop.t VALUES ({id}, 2)"),
                    &format!("XA END 'early{id}', 'branch', 7"),
                    &format!("XA PREPARE 'early{id}', 'branch', 7"),
                ])
                .await;
        }
        let job = start(&server, "shop.t", CaptureOptions::default());
        has_rows(&job, "t", 1).await;
        for id in 1..=10 {
            server.execute(&[&format!("XA COMMIT 'early{id}', 'branch', 7")]).await;
            has_rows(&job, "t", id + 1).await;
        }
        job.stop().await.expect("the job stops");
    }
}

#[tokio::test]
async fn what_is_prepared_for_long_does_not_keep_a_source_from_beginning() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY)",
                "INSERT INTO shop.t VALUES (1)",
                // A name that was used before: committed then, prepared now.
                "XA START 'again'",
                "INSERT INTO shop.t VALUES (2)",
                "XA END 'again'",
                "XA PREPARE 'again'",
                "XA COMMIT 'again'",
                "FLUSH BINARY LOGS",
                "XA START 'again'",
                "INSERT INTO shop.t VALUES (3)",
                "XA END 'again'",
                "XA PREPARE 'again'",
            ])
            .await;
        let job = start(&server, "shop.t", CaptureOptions::default());
        has_rows(&job, "t", 2).await;
        server.execute(&["XA COMMIT 'again'"]).await;
        has_rows(&job, "t", 3).await;
        job.stop().await.expect("the job stops");
    }
}

#[tokio::test]
async fn rows_of_xa_transactions_count_when_they_are_committed() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)",
                "CREATE TABLE shop.u (id INT PRIMARY KEY, v LONGTEXT)",
                "INSERT INTO shop.t VALUES (1, 'kept'), (2, 'deleted'), (3, 'changed')",
            ])
            .await;
        let prepare = async |name: &str, statements: &[&str]| {
            let (start, end) = (format!("XA START '{name}'"), format!("XA END '{name}'"));
            let prepare = format!("XA PREPARE '{name}'");
            server.execute(&[&[start.as_str()], statements, &[&end, &prepare]].concat()).await;
        };
        let store = tidegate_storage::store::open("memory:", &[]).expect("a store");
        let job = start_on(&server, &store, "shop.*", CaptureOptions::default());
        has_rows(&job, "t", 3).await;
        // In the midst of other changes, of two tables, and more than fits into a buffer.
        server.execute(&["INSERT INTO shop.u VALUES (100, 'before')"]).await;
        prepare(
            "ends well",
            &[
                "DELETE FROM shop.t WHERE id = 2",
                "UPDATE shop.t SET v = 'other' WHERE id = 3",
                "INSERT INTO shop.u VALUES (1, REPEAT('x', 3000000)), (2, REPEAT('y', 3000000))",
                "INSERT INTO shop.u VALUES (3, REPEAT('z', 3000000))",
                "INSERT INTO shop.t VALUES (4, 'new')",
            ],
        )
        .await;
        prepare("ends badly", &["INSERT INTO shop.t VALUES (50, 'never')"]).await;
        prepare("ends later", &["INSERT INTO shop.t VALUES (60, 'later')"]).await;
        server.execute(&["INSERT INTO shop.t VALUES (5, 'behind')"]).await;
        has_rows(&job, "t", 4).await;
        has_rows(&job, "u", 1).await;
        server.execute(&["XA COMMIT 'ends well'", "XA ROLLBACK 'ends badly'"]).await;
        has_rows(&job, "u", 4).await;
        has_rows(&job, "t", 4).await;
        job.stop().await.expect("the job stops");
        // Another process commits what this one has held.
        let job = start_on(&server, &store, "shop.*", CaptureOptions::default());
        server.execute(&["INSERT INTO shop.t VALUES (6, 'after')"]).await;
        has_rows(&job, "t", 5).await;
        server.execute(&["XA COMMIT 'ends later'"]).await;
        has_rows(&job, "t", 6).await;
        assert_eq!(job.status().errors.iter().map(|error| &error.message).collect::<Vec<_>>(), Vec::<&String>::new());
        job.checkpoint().await.expect("a checkpoint");
        job.stop().await.expect("the job stops");
    }
}

/// What was prepared while a table stopped is in no event that is held, and the pages that are read next do not see it.
#[tokio::test]
async fn a_table_that_stops_within_an_xa_transaction_has_its_rows_once_it_is_committed() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server.execute(&["CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)", "INSERT INTO shop.t VALUES (1, 1)"]).await;
        let job = start(&server, "shop.t", CaptureOptions::default());
        has_rows(&job, "t", 1).await;
        server
            .execute(&[
                "SET SESSION binlog_row_image = 'MINIMAL'",
                "XA START 'partial'",
                "INSERT INTO shop.t (id) VALUES (2)",
                "XA END 'partial'",
                "XA PREPARE 'partial'",
            ])
            .await;
        stops(&job, "t").await;
        job.resync(vec!["shop.t".to_owned()]).await.expect("the wish is kept");
        server.execute(&["INSERT INTO shop.t VALUES (3, 3)"]).await;
        has_rows(&job, "t", 2).await;
        server.execute(&["XA COMMIT 'partial'"]).await;
        has_rows(&job, "t", 3).await;
        job.stop().await.expect("the job stops");
    }
}

/// MariaDB logs what a ROLLBACK TO has undone, and the statement behind it, when something in the transaction cannot be
/// undone.
#[tokio::test]
async fn what_is_undone_in_the_middle_of_a_transaction_does_not_count() {
    for kind in Kind::all() {
        // With GTIDs, MySQL refuses transactions that cannot be undone as a whole.
        let options: &[&str] =
            if kind == Kind::Mysql { &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"] } else { &[] };
        let server = Server::start(kind, options).await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY)",
                "CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE=MyISAM",
                "INSERT INTO shop.t VALUES (1), (2)",
            ])
            .await;
        let job = start(&server, "shop.*", CaptureOptions::default());
        has_rows(&job, "t", 2).await;
        for statements in [
            "CREATE TEMPORARY TABLE shop.a (id INT); INSERT INTO shop.t VALUES (10); SAVEPOINT `First one`; \
             INSERT INTO shop.t VALUES (11); SAVEPOINT second; DELETE FROM shop.t; ROLLBACK TO second; \
             INSERT INTO shop.t VALUES (12); ROLLBACK TO SAVEPOINT `first one`; INSERT INTO shop.t VALUES (13); COMMIT",
            "INSERT INTO shop.t VALUES (20); SAVEPOINT s; INSERT INTO shop.m VALUES (1); INSERT INTO shop.t VALUES (21); \
             ROLLBACK TO s; INSERT INTO shop.t VALUES (22); COMMIT",
            "SAVEPOINT s; INSERT INTO shop.t VALUES (30); INSERT INTO shop.m VALUES (2); ROLLBACK TO s; \
             INSERT INTO shop.t VALUES (31); COMMIT",
            "INSERT INTO shop.m VALUES (3); INSERT INTO shop.t VALUES (40); ROLLBACK",
            "CREATE TEMPORARY TABLE shop.b (id INT); INSERT INTO shop.t VALUES (50); SAVEPOINT s; DELETE FROM shop.t; \
             RELEASE SAVEPOINT s; ROLLBACK",
            "INSERT INTO shop.t VALUES (60); COMMIT",
        ] {
            let statements: Vec<&str> = std::iter::once("BEGIN").chain(statements.split("; ")).collect();
            server.execute(&statements).await;
        }
        server.execute(&["INSERT INTO shop.m VALUES (4)"]).await;
        has_rows(&job, "m", 4).await;
        has_rows(&job, "t", 8).await;
        let logged = server.log_statements().await;
        let undone = logged.iter().filter(|statement| statement.starts_with("ROLLBACK TO")).count();
        // MySQL 9.7 cuts its log back in each of these cases.
        assert!(undone > 0 || kind == Kind::Mysql, "{kind:?} logs no such thing: {logged:#?}");
        job.stop().await.expect("the job stops");
    }
}

/// Part of what is undone was written before, as transactions may be larger than memory.
#[tokio::test]
async fn what_is_undone_when_it_is_written_does_not_count() {
    for kind in Kind::all() {
        // With GTIDs, MySQL refuses transactions that cannot be undone as a whole.
        let options: &[&str] =
            if kind == Kind::Mysql { &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"] } else { &[] };
        let server = Server::start(kind, options).await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)",
                "CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE=MyISAM",
                "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')",
            ])
            .await;
        let job = start(&server, "shop.*", CaptureOptions::default());
        has_rows(&job, "t", 2).await;
        let large =
            |from: i32| (from..from + 9).map(|id| format!("INSERT INTO shop.t VALUES ({id}, REPEAT('x', 1 << 20))"));
        for (number, (before, behind)) in
            [("INSERT INTO shop.t VALUES (10, 'c'); SAVEPOINT s", "ROLLBACK TO s; COMMIT"), ("SAVEPOINT s", "ROLLBACK")]
                .into_iter()
                .enumerate()
        {
            let other = format!("INSERT INTO shop.m VALUES ({number})");
            let undone: Vec<String> = large(100 * (number as i32 + 1)).collect();
            let statements: Vec<&str> = std::iter::once("BEGIN")
                .chain(before.split("; "))
                .chain([other.as_str()])
                .chain(undone.iter().map(String::as_str))
                .chain(behind.split("; "))
                .collect();
            server.execute(&statements).await;
        }
        server.execute(&["INSERT INTO shop.t VALUES (11, 'd')", "INSERT INTO shop.m VALUES (2)"]).await;
        has_rows(&job, "m", 3).await;
        has_rows(&job, "t", 4).await;
        job.stop().await.expect("the job stops");
    }
}

#[tokio::test]
async fn rows_that_move_without_being_logged_are_read_again() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) \
                 (PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (100))",
                "CREATE TABLE shop.t (id INT PRIMARY KEY)",
                "INSERT INTO shop.p VALUES (1), (2), (3), (50)",
                "INSERT INTO shop.t VALUES (5)",
            ])
            .await;
        let job = start(&server, "shop.*", CaptureOptions::default());
        has_rows(&job, "p", 4).await;
        has_rows(&job, "t", 1).await;
        server.execute(&["ALTER TABLE shop.p EXCHANGE PARTITION low WITH TABLE shop.t"]).await;
        has_rows(&job, "p", 2).await;
        has_rows(&job, "t", 3).await;
        server.execute(&["ALTER TABLE shop.p DROP PARTITION high", "TRUNCATE TABLE shop.t"]).await;
        has_rows(&job, "p", 1).await;
        has_rows(&job, "t", 0).await;
        job.stop().await.expect("the job stops");
    }
}

#[tokio::test]
async fn a_replaced_table_stops_and_keeps_its_rows() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "CREATE TABLE shop.other (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1), (2)",
        ])
        .await;
    let job = start(&server, "shop.*", CaptureOptions::default());
    has_rows(&job, "t", 2).await;
    server.execute(&["CREATE OR REPLACE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.other VALUES (1)"]).await;
    assert_eq!(stops(&job, "t").await, "TG0130");
    has_rows(&job, "other", 1).await;
    assert_eq!(rows(&job.view(), "t"), Some(2));
    job.stop().await.expect("the job stops");
}

/// A table that stopped is read again with the definition that it has by then, and followed from there on.
#[tokio::test]
async fn a_table_that_stopped_is_read_again() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)",
                "CREATE TABLE shop.other (id INT PRIMARY KEY)",
                "INSERT INTO shop.t VALUES (1, 1), (2, 2)",
            ])
            .await;
        let job = start(&server, "shop.*", CaptureOptions::default());
        has_rows(&job, "t", 2).await;
        for round in 0..3 {
            server
                .execute(&[
                    "SET SESSION binlog_format = STATEMENT",
                    &format!("UPDATE shop.t SET v = {round} WHERE id = 1"),
                ])
                .await;
            assert_eq!(stops(&job, "t").await, "TG0123");
            // All of this is in the log before it is asked for, or comes while it is being read.
            let before = 2 + 5 * u64::from(round > 0) * round;
            server
                .execute(&[
                    &format!("ALTER TABLE shop.t ADD COLUMN c{round} INT NOT NULL DEFAULT {round}, DROP PRIMARY KEY, ADD PRIMARY KEY (id, c{round})"),
                    &format!("INSERT INTO shop.t (id, v) VALUES ({0}0, 0), ({0}1, 1), ({0}2, 2)", round + 1),
                ])
                .await;
            assert_eq!(rows(&job.view(), "t"), Some(before), "readers stay on what they saw");
            let again = job.resync(vec!["shop.t".to_owned(), "shop.nothing".to_owned()]);
            let insert = format!("INSERT INTO shop.t (id, v) VALUES ({0}3, 3), ({0}4, 4)", round + 1);
            let writes = [insert.as_str(), "INSERT INTO shop.other VALUES (1)", "DELETE FROM shop.other"];
            let (number, ()) = tokio::join!(again, server.execute(&writes));
            assert!(number.expect("the wish is durable") > 0);
            has_rows(&job, "t", 2 + 5 * (round + 1)).await;
            let view = job.view();
            let table = view.tables.iter().find(|table| table.table_name == "t").expect("the table");
            let version = table.version.as_ref().expect("a version");
            assert_eq!(version.schema.primary_keys, ["id".to_owned(), format!("c{round}")]);
            assert!(table.complete);
        }
        // One that is not on the server any more stays as it is, and the source goes on.
        server.execute(&["DROP TABLE shop.t"]).await;
        assert_eq!(stops(&job, "t").await, "TG0130");
        job.resync(vec!["shop.t".to_owned()]).await.expect("the wish is durable");
        server.execute(&["INSERT INTO shop.other VALUES (7)"]).await;
        has_rows(&job, "other", 1).await;
        assert_eq!(rows(&job.view(), "t"), Some(17));
        job.stop().await.expect("the job stops");
    }
}

#[tokio::test]
async fn a_job_can_be_stopped_while_its_server_is_away() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server.execute(&["CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)"]).await;
    let job = start(&server, "shop.t", CaptureOptions::default());
    has_rows(&job, "t", 1).await;
    drop(server);
    tokio::time::timeout(PATIENCE, job.stop()).await.expect("stop answers").expect("the job stops");
}
