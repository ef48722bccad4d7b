//! Tables change their shape while they are mirrored.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mysql_async::prelude::Queryable;
use tidegate_tests::{
    canonical::assert_tables_equal,
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
};

/// Each statement is followed by writes, so that rows of every shape are in the log; the mirror must follow in order.
const CHANGES: &[&str] = &[
    "ALTER TABLE ddl.t ADD COLUMN added INT",
    "ALTER TABLE ddl.t ADD COLUMN first_one VARCHAR(20) FIRST, ADD COLUMN after_name BIGINT UNSIGNED AFTER name",
    "ALTER TABLE ddl.t ADD COLUMN with_default INT NOT NULL DEFAULT 11",
    "ALTER TABLE ddl.t ADD COLUMN text_default VARCHAR(20) DEFAULT 'it''s new'",
    "ALTER TABLE ddl.t RENAME COLUMN name TO title",
    "ALTER TABLE ddl.t CHANGE COLUMN note remark VARCHAR(100)",
    "ALTER TABLE ddl.t MODIFY COLUMN small BIGINT",
    "ALTER TABLE ddl.t MODIFY COLUMN title VARCHAR(300)",
    "ALTER TABLE ddl.t MODIFY COLUMN amount DECIMAL(20,2)",
    "ALTER TABLE ddl.t DROP COLUMN added",
    "ALTER TABLE ddl.t ADD COLUMN added VARCHAR(10)",
    "ALTER TABLE ddl.t ADD INDEX by_small (small)",
    "ALTER TABLE ddl.t MODIFY COLUMN small BIGINT AFTER id",
    "ALTER TABLE ddl.t COMMENT = 'a comment'",
    "/* note */ ALTER TABLE `ddl` . `t` DROP COLUMN `after_name`, ADD COLUMN z DATETIME(3) NULL",
];

/// Waits until all schema changes so far are seen, and until the tables that they made unreadable are read again.
async fn settle(gate: &Gate) {
    gate.catch_up("ddl").await;
    gate.connect().await.execute("WAIT FOR SOURCE ddl SNAPSHOT TIMEOUT '120 seconds'").await;
    gate.catch_up("ddl").await;
}

async fn tables_change_in_flight(kind: Kind, during_snapshot: bool) {
    let server = Server::start(kind, &[]).await;
    let mut conn = server.connect().await;
    let rows = if during_snapshot { 3_000 } else { 300 };
    for sql in [
        "CREATE DATABASE ddl CHARACTER SET utf8mb4".to_owned(),
        "CREATE TABLE ddl.t (id INT PRIMARY KEY, name VARCHAR(50), small INT, amount DECIMAL(10,2), note VARCHAR(100))"
            .to_owned(),
        "CREATE TABLE ddl.untouched (id INT PRIMARY KEY, v INT)".to_owned(),
        "INSERT INTO ddl.untouched VALUES (1, 1)".to_owned(),
    ] {
        conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for first in (0..rows).step_by(100) {
        let values = (first..first + 100).map(|id| format!("({id}, 'name {id}', {id}, {id}.25, 'note {id}')"));
        let sql = format!("INSERT INTO ddl.t VALUES {}", values.collect::<Vec<_>>().join(","));
        conn.query_drop(sql).await.expect("rows can be inserted");
    }
    let mut gate = Gate::start().await;
    // MySQL refuses a page whose table was altered since its view was taken; the page is read again.
    gate.expect_in_log("TG0133");
    let slow = ", 'scan.incremental.snapshot.chunk.size' = '200', 'scan.snapshot.fetch.size' = '10'";
    gate.create_source("ddl", &server, "ddl.*", if during_snapshot { slow } else { "" }).await;
    let pg = gate.connect().await;
    if during_snapshot {
        // Once the table's definition is read: `snapshot`, or `streaming` already.
        gate.await_in_view("job_tables", &["ddl.t", "| s"]).await;
    } else {
        pg.execute("WAIT FOR SOURCE ddl SNAPSHOT TIMEOUT '120 seconds'").await;
    }
    for (round, change) in CHANGES.iter().enumerate() {
        let id = 10_000 + round * 10;
        for sql in [
            format!("INSERT INTO ddl.t (id) VALUES ({id}), ({})", id + 1),
            format!("UPDATE ddl.t SET amount = {round} WHERE id BETWEEN {} AND {}", round * 3, round * 3 + 5),
            format!("DELETE FROM ddl.t WHERE id = {}", 100 + round),
            (*change).to_owned(),
            format!("INSERT INTO ddl.t (id, amount) VALUES ({}, 1.5)", id + 2),
            format!("UPDATE ddl.t SET id = {} WHERE id = {}", id + 3, id + 1),
            format!("UPDATE ddl.t SET amount = {round} WHERE id = {id}"),
            format!("UPDATE ddl.untouched SET v = {round}"),
        ] {
            conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        if !during_snapshot && round % 4 == 0 {
            settle(&gate).await;
            assert_tables_equal(&server, &pg, "ddl", &["t", "untouched"]).await;
        }
    }
    settle(&gate).await;
    assert_tables_equal(&server, &pg, "ddl", &["t", "untouched"]).await;
    // The columns stand in MySQL's order, too.
    let order: Vec<String> = conn
        .query("SELECT column_name FROM information_schema.columns WHERE table_schema = 'ddl' AND table_name = 't' ORDER BY ordinal_position")
        .await
        .expect("the columns can be listed");
    let mirrored = pg
        .rows("SELECT column_name FROM information_schema.columns WHERE table_schema = 'ddl' AND table_name = 't' ORDER BY ordinal_position")
        .await;
    let mirrored: Vec<String> = mirrored.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
    assert_eq!(mirrored, order);
    assert_pypaimon_reads_the_same(&gate, &server, "ddl", &["t", "untouched"]).await;
    gate.kill();
    gate.resume().await;
    assert_tables_equal(&server, &gate.connect().await, "ddl", &["t", "untouched"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_change_in_flight_on_mariadb() {
    tables_change_in_flight(Kind::MariaDb, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_change_in_flight_on_mysql() {
    tables_change_in_flight(Kind::Mysql, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_change_while_they_are_read() {
    for kind in Kind::all() {
        tables_change_in_flight(kind, true).await;
    }
}

/// DDL that was executed while nobody was looking is applied at its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_made_while_tidegate_is_down_are_applied() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE DATABASE ddl",
                "CREATE TABLE ddl.t (id INT PRIMARY KEY, a INT)",
                "INSERT INTO ddl.t VALUES (1, 1), (2, 2)",
            ])
            .await;
        let mut gate = Gate::start().await;
        gate.mirror("ddl", &server, "ddl.*").await;
        gate.kill();
        server
            .execute(&[
                "INSERT INTO ddl.t VALUES (3, 3)",
                "ALTER TABLE ddl.t ADD COLUMN b INT",
                "INSERT INTO ddl.t VALUES (4, 4, 4)",
                "ALTER TABLE ddl.t DROP COLUMN a",
                "UPDATE ddl.t SET b = 9 WHERE id < 3",
                "TRUNCATE TABLE ddl.t",
                "INSERT INTO ddl.t VALUES (7, 7)",
            ])
            .await;
        gate.resume().await;
        settle(&gate).await;
        assert_tables_equal(&server, &gate.connect().await, "ddl", &["t"]).await;
    }
}

/// Partitions come and go without row events: the table is read again, and the others go on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_dropped() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE DATABASE ddl",
                "CREATE TABLE ddl.parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
                "CREATE TABLE ddl.other (id INT PRIMARY KEY, v INT)",
                "INSERT INTO ddl.parts VALUES (1, 1), (11, 11)",
                "INSERT INTO ddl.other VALUES (1, 1)",
            ])
            .await;
        let gate = Gate::start().await;
        gate.mirror("ddl", &server, "ddl.*").await;
        server
            .execute(&[
                "ALTER TABLE ddl.parts DROP PARTITION p0",
                "INSERT INTO ddl.other VALUES (2, 2)",
                "INSERT INTO ddl.parts VALUES (12, 12)",
                "ALTER TABLE ddl.parts TRUNCATE PARTITION p1",
                "INSERT INTO ddl.parts VALUES (13, 13)",
            ])
            .await;
        settle(&gate).await;
        let pg = gate.connect().await;
        assert_tables_equal(&server, &pg, "ddl", &["other", "parts"]).await;
    }
}

/// Rows written as statement text are not in the log: the table stops instead of differing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_in_the_log_stops_its_table() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE DATABASE ddl",
                "CREATE TABLE ddl.t (id INT PRIMARY KEY, v INT)",
                "CREATE TABLE ddl.other (id INT PRIMARY KEY)",
            ])
            .await;
        let mut gate = Gate::start().await;
        gate.expect_in_log("TG0");
        gate.mirror("ddl", &server, "ddl.*").await;
        let mut conn = server.connect().await;
        conn.query_drop("SET SESSION binlog_format = STATEMENT").await.expect("a session variable can be set");
        conn.query_drop("INSERT INTO ddl.t VALUES (1, 1)").await.expect("a row can be inserted");
        conn.query_drop("SET SESSION binlog_format = ROW").await.expect("a session variable can be set");
        conn.query_drop("INSERT INTO ddl.other VALUES (1)").await.expect("a row can be inserted");
        gate.await_in_view("errors", &["TG0"]).await;
        // The table says that it is in error: it never passes for complete.
        gate.await_in_view("job_tables", &["ddl.t", "error"]).await;
        let pg = gate.connect().await;
        gate.catch_up("ddl").await;
        assert_tables_equal(&server, &pg, "ddl", &["other"]).await;
    }
}

/// Schema changes while a source is created: each of its tables starts with the definition that it has at the stream's first position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_change_while_their_source_is_created() {
    const TABLES: [&str; 4] = ["a", "b", "c", "d"];
    const ROUNDS: usize = 12;
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server.execute(&["CREATE DATABASE ddl"]).await;
        for table in TABLES {
            server
                .execute(&[
                    &format!("CREATE TABLE ddl.{table} (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"),
                    &format!("INSERT INTO ddl.{table} (v) VALUES (1), (2), (3)"),
                ])
                .await;
        }
        let mut gate = Gate::start().await;
        gate.expect_in_log("TG0133");
        let pg = gate.connect().await;
        for round in 0..ROUNDS {
            let stop = Arc::new(AtomicBool::new(false));
            let mut changes = Vec::new();
            for table in TABLES {
                let conn = server.connect().await;
                changes.push(tokio::spawn(change_all_the_time(conn, table, Arc::clone(&stop))));
            }
            gate.create_source("ddl", &server, "ddl.*", "").await;
            pg.execute("WAIT FOR SOURCE ddl SNAPSHOT TIMEOUT '120 seconds'").await;
            stop.store(true, Ordering::Relaxed);
            for change in changes {
                assert!(change.await.expect("tables can be changed") > 0);
            }
            settle(&gate).await;
            assert_eq!(
                pg.rows("SELECT * FROM sys.job_tables WHERE state = 'error'").await,
                [] as [Vec<_>; 0],
                "{kind:?}, round {round}"
            );
            assert_tables_equal(&server, &pg, "ddl", &TABLES).await;
            pg.execute("DROP SOURCE ddl PURGE DATA").await;
        }
    }
}

/// Adds and drops a column, with rows of both layouts in the log; returns how often. The table is copied each time: the servers limit how often a layout
/// may change without that.
async fn change_all_the_time(mut conn: mysql_async::Conn, table: &str, stop: Arc<AtomicBool>) -> usize {
    let mut changes = 0;
    while !stop.load(Ordering::Relaxed) {
        for sql in [
            format!("ALTER TABLE ddl.{table} ADD COLUMN added VARCHAR(20) FIRST, ALGORITHM=COPY"),
            format!("INSERT INTO ddl.{table} (v, added) VALUES ({changes}, 'with {changes}')"),
            format!("ALTER TABLE ddl.{table} DROP COLUMN added, ALGORITHM=COPY"),
            format!("INSERT INTO ddl.{table} (v) VALUES ({changes})"),
            format!("DELETE FROM ddl.{table} WHERE id % 5 = 0"),
        ] {
            conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        changes += 1;
    }
    changes
}
