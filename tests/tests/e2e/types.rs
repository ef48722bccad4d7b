//! Every type at its boundaries: the copy that the snapshot read, the copy that the binlog brought and MySQL's own value are the same.

use mysql_async::prelude::Queryable;
use tidegate_tests::{
    canonical::{Shape, assert_same},
    gate::Gate,
    pypaimon::assert_pypaimon_reads_the_same,
    servers::{Kind, Server},
};

/// A column type and literals for its values.
type Case = (&'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    ("TINYINT", &["-128", "-1", "0", "127"]),
    ("TINYINT UNSIGNED", &["0", "127", "128", "255"]),
    ("TINYINT(1)", &["0", "1", "2", "-128", "127"]),
    ("SMALLINT", &["-32768", "-1", "0", "32767"]),
    ("SMALLINT UNSIGNED", &["0", "32767", "32768", "65535"]),
    ("MEDIUMINT", &["-8388608", "-1", "0", "8388607"]),
    ("MEDIUMINT UNSIGNED", &["0", "8388607", "8388608", "16777215"]),
    ("INT", &["-2147483648", "-1", "0", "2147483647"]),
    ("INT UNSIGNED", &["0", "2147483647", "2147483648", "4294967295"]),
    ("INT(10) UNSIGNED ZEROFILL", &["0", "42", "4294967295"]),
    ("BIGINT", &["-9223372036854775808", "-1", "0", "9223372036854775807"]),
    (
        "BIGINT UNSIGNED",
        &["0", "9223372036854775807", "9223372036854775808", "15506708318740857342", "18446744073709551615"],
    ),
    ("DECIMAL(1,0)", &["-9", "0", "9"]),
    ("DECIMAL(5,2)", &["-999.99", "-0.01", "0", "0.5", "999.99"]),
    ("DECIMAL(9,9)", &["-0.999999999", "0.000000001", "0.999999999"]),
    ("DECIMAL(10,0) UNSIGNED", &["0", "9999999999"]),
    ("DECIMAL(18,6)", &["-999999999999.999999", "1.5", "999999999999.999999"]),
    ("DECIMAL(20,10)", &["-9999999999.9999999999", "0.0000000001"]),
    ("DECIMAL(38,10)", &["-9999999999999999999999999999.9999999999", "0", "9999999999999999999999999999.9999999999"]),
    ("DECIMAL(38,30)", &["-99999999.999999999999999999999999999999", "0.000000000000000000000000000001"]),
    ("DECIMAL(65,30)", &["-99999999999999999999999999999999999.999999999999999999999999999999", "0.1", "1"]),
    ("FLOAT", &["0", "0.1", "-1.5", "16777216", "81537680", "3.40282e38", "1.17549e-38", "-123456.789"]),
    ("FLOAT(7,3)", &["0.123", "-9999.999"]),
    ("DOUBLE", &["0", "0.1", "-1.5", "1.7976931348623157e308", "2.2250738585072014e-308", "123456789.123456789"]),
    ("CHAR(10)", &["''", "'a'", "'abc  '", "'ünïcödé'", "'\u{1F980}'"]),
    (
        "VARCHAR(60)",
        &[
            "''",
            "' lead'",
            "'trail  '",
            "'NULL'",
            "'日本語'",
            "'a\\0b'",
            "'tab\\tnew\\nline\\\\'",
            "'it''s \"quoted\"'",
        ],
    ),
    ("VARCHAR(60) CHARACTER SET latin1", &["''", "'café €'", "'ÿ'"]),
    ("VARCHAR(60) CHARACTER SET ascii", &["''", "'plain'"]),
    ("VARCHAR(60) CHARACTER SET utf16", &["''", "'日本\u{1F980}'"]),
    ("VARCHAR(60) CHARACTER SET ucs2", &["'日本'"]),
    ("VARCHAR(60) CHARACTER SET gbk", &["''", "'中文字'", "'mixed 中'"]),
    ("VARCHAR(300)", &["REPEAT('x', 255)", "REPEAT('x', 256)", "REPEAT('é', 300)"]),
    ("TINYTEXT", &["''", "REPEAT('t', 255)"]),
    ("TEXT", &["''", "REPEAT('é', 20000)"]),
    ("MEDIUMTEXT", &["''", "REPEAT('m', 70000)"]),
    ("LONGTEXT", &["''", "REPEAT('l', 300000)"]),
    ("BINARY(5)", &["x''", "x'00'", "x'ff00'", "x'0102030405'", "x'2020'"]),
    ("VARBINARY(300)", &["x''", "x'00'", "x'ff00'", "REPEAT(x'80', 300)"]),
    ("TINYBLOB", &["x''", "x'00ff'"]),
    ("BLOB", &["x''", "REPEAT(x'00ff', 30000)"]),
    ("LONGBLOB", &["x''", "REPEAT(x'aa', 200000)"]),
    ("DATE", &["'0000-00-00'", "'1000-01-01'", "'1969-12-31'", "'2024-02-29'", "'2024-00-00'", "'9999-12-31'"]),
    ("TIME", &["'-838:59:59'", "'-00:00:01'", "'00:00:00'", "'23:59:59'", "'838:59:59'"]),
    ("TIME(3)", &["'-838:59:59.000'", "'-00:00:01.500'", "'00:00:00.001'", "'12:34:56.789'"]),
    ("TIME(6)", &["'-507:48:27.123456'", "'-00:00:00.000001'", "'00:00:00.000001'", "'23:59:59.999999'"]),
    ("DATETIME", &["'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'", "'2024-03-31 02:30:00'", "'9999-12-31 23:59:59'"]),
    ("DATETIME(3)", &["'1000-01-01 00:00:00.001'", "'2024-10-27 02:30:00.500'"]),
    ("DATETIME(6)", &["'1000-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'"]),
    ("TIMESTAMP NULL", &["0", "'1970-01-01 00:00:01'", "'2024-03-31 02:30:00'", "'2038-01-19 03:14:07'"]),
    ("TIMESTAMP(6) NULL", &["'1970-01-01 00:00:01.000001'", "'2024-10-27 02:30:00.5'", "'2038-01-19 03:14:07.999999'"]),
    ("YEAR", &["0", "1901", "2155"]),
    ("ENUM('new','paid','größe','it''s')", &["'new'", "'paid'", "'größe'", "'it''s'", "0"]),
    ("ENUM('é','b') CHARACTER SET latin1", &["'é'", "'b'"]),
    ("SET('a','b','ç','d')", &["''", "'a'", "'a,ç'", "'a,b,ç,d'"]),
    ("BIT(1)", &["b'0'", "b'1'"]),
    ("BIT(10)", &["b'0'", "b'1'", "b'1111111111'", "b'1000000001'"]),
    ("BIT(64)", &["b'0'", "0x8000000000000001", "0xffffffffffffffff"]),
    (
        "JSON",
        &[
            "'null'",
            "'true'",
            "'[]'",
            "'{}'",
            "'-1'",
            "'18446744073709551615'",
            "'1.5'",
            "'1e100'",
            "'\"text \\\\u00e9 \\\\\" \\\\n\"'",
            "'{\"b\": [1, 2.5, null, {\"c\": \"d\"}], \"a\": {\"long key with blanks\": false}}'",
            "CONCAT('[\"', REPEAT('x', 70000), '\"]')",
            "CONCAT('[0', REPEAT(',1234567', 9000), ']')",
        ],
    ),
];

async fn values_are_equal_on_every_path(kind: Kind) {
    let server = Server::start(kind, &["--max-allowed-packet=64M"]).await;
    let mut conn = server.connect().await;
    conn.query_drop("CREATE DATABASE types CHARACTER SET utf8mb4").await.expect("a database can be made");
    conn.query_drop("SET SESSION sql_mode = ''").await.expect("a session variable can be set");
    let tables: Vec<(String, Case)> = CASES.iter().enumerate().map(|(i, case)| (format!("t{i:02}"), *case)).collect();
    for (table, (column_type, _)) in &tables {
        let sql = format!("CREATE TABLE types.{table} (id INT PRIMARY KEY, c {column_type}, after_it INT)");
        conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    insert(&mut conn, &tables, 0).await;

    let mut gate = Gate::start().await;
    gate.create_source("types", &server, "types.*", "").await;
    let pg = gate.connect().await;
    pg.execute("WAIT FOR SOURCE types SNAPSHOT TIMEOUT '120 seconds'").await;
    insert(&mut conn, &tables, 1_000).await;
    // Each value also as the after image of an update, and as the row image that a later delete has to match.
    insert(&mut conn, &tables, 2_000).await;
    for (table, _) in &tables {
        conn.query_drop(format!("UPDATE types.{table} SET after_it = -1 WHERE id >= 2000"))
            .await
            .expect("rows can be updated");
        conn.query_drop(format!(
            "INSERT INTO types.{table} SELECT id + 1000, c, 0 FROM types.{table} WHERE id >= 2000"
        ))
        .await
        .expect("rows can be copied");
        conn.query_drop(format!("DELETE FROM types.{table} WHERE id >= 3000")).await.expect("rows can be deleted");
    }
    gate.catch_up("types").await;

    let mut wrong = Vec::new();
    for (table, (column_type, values)) in &tables {
        let shape = Shape::load(&mut conn, "types", table).await;
        let mysql = shape.mysql_rows(&mut conn).await;
        let mirror = match pg.try_rows(&format!("SELECT id, c, after_it FROM types.{table} ORDER BY id")).await {
            Ok(rows) => rows,
            Err(error) => {
                wrong.push(format!("{column_type}: {}", error.text()));
                continue;
            }
        };
        // The very text that a client sees is the same, whichever path a row took.
        for i in 0..=values.len() {
            let copies: Vec<_> = [0, 1_000, 2_000]
                .map(|from| from + i)
                .into_iter()
                .map(|id| {
                    mirror.iter().find(|row| row[0].as_deref() == Some(&id.to_string())).map(|row| row[1].clone())
                })
                .collect();
            if copies.iter().any(|copy| copy != &copies[0] || copy.is_none()) {
                let shown: Vec<_> = copies
                    .iter()
                    .map(|copy| copy.clone().flatten().map(|text| text.chars().take(60).collect::<String>()))
                    .collect();
                wrong.push(format!(
                    "{column_type} {}: snapshot, insert, update give {shown:?}",
                    values.get(i).unwrap_or(&"NULL")
                ));
            }
        }
        let compared = std::panic::catch_unwind(|| {
            let mirror = shape.canonical_rows("Tidegate", mirror);
            assert_same(column_type, ("MySQL", &mysql), ("Tidegate", &mirror));
        });
        if let Err(panic) = compared {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            wrong.push(text.chars().take(600).collect());
        }
    }
    assert!(wrong.is_empty(), "{} of {} types on {kind:?}:\n{}", wrong.len(), tables.len(), wrong.join("\n"));
    let names: Vec<&str> = tables.iter().map(|(table, _)| table.as_str()).collect();
    assert_pypaimon_reads_the_same(&gate, &server, "types", &names).await;

    // A restart rebuilds its state from the files: deletes and updates still find their rows.
    gate.kill();
    gate.resume().await;
    for (table, _) in &tables {
        conn.query_drop(format!("DELETE FROM types.{table} WHERE id < 1000")).await.expect("rows can be deleted");
        conn.query_drop(format!("UPDATE types.{table} SET id = id + 5000 WHERE id < 2000"))
            .await
            .expect("keys can be updated");
    }
    gate.catch_up("types").await;
    let pg = gate.connect().await;
    for (table, (column_type, _)) in &tables {
        let shape = Shape::load(&mut conn, "types", table).await;
        let mysql = shape.mysql_rows(&mut conn).await;
        assert_same(column_type, ("MySQL", &mysql), ("Tidegate", &shape.mirror_rows(&pg).await));
    }
}

async fn insert(conn: &mut mysql_async::Conn, tables: &[(String, Case)], first_id: usize) {
    for (table, (column_type, values)) in tables {
        for (i, value) in values.iter().chain(&["NULL"]).enumerate() {
            let sql = format!("INSERT INTO types.{table} VALUES ({}, {value}, {i})", first_id + i);
            conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{column_type}: {sql}: {error}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_equal_on_every_path_on_mariadb() {
    values_are_equal_on_every_path(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_equal_on_every_path_on_mysql() {
    values_are_equal_on_every_path(Kind::Mysql).await;
}

/// The server's time zone, and the zone of the session that writes, leave no trace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_zones_leave_no_trace() {
    for kind in Kind::all() {
        let server = Server::start(kind, &["--default-time-zone=+08:00"]).await;
        let mut conn = server.connect().await;
        let zones = ["+00:00", "+08:00", "-07:30"];
        conn.query_drop("CREATE DATABASE zones").await.expect("a database can be made");
        conn.query_drop("CREATE TABLE zones.t (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL, dt DATETIME(3))")
            .await
            .expect("a table can be made");
        let mut gate = None;
        for phase in 0..2 {
            for (i, zone) in zones.iter().enumerate() {
                conn.query_drop(format!("SET time_zone = '{zone}'")).await.expect("a session variable can be set");
                let id = phase * 10 + i;
                conn.query_drop(format!(
                    "INSERT INTO zones.t VALUES ({id}, '2024-07-01 12:00:00.250', '2024-07-01 12:00:00.250')"
                ))
                .await
                .expect("a row can be inserted");
            }
            if phase == 0 {
                let started = Gate::start().await;
                started.mirror("zones", &server, "zones.t").await;
                gate = Some(started);
            }
        }
        let gate = gate.expect("it was started");
        gate.catch_up("zones").await;
        let pg = gate.connect().await;
        pg.execute("SET TIME ZONE 'UTC'").await;
        for phase in 0..2 {
            for (i, instant) in ["12:00:00.25", "04:00:00.25", "19:30:00.25"].iter().enumerate() {
                let row = &pg.rows(&format!("SELECT ts, dt FROM zones.t WHERE id = {}", phase * 10 + i)).await[0];
                let (ts, dt) = (row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default());
                assert!(
                    ts.starts_with(&format!("2024-07-01 {instant}")),
                    "TIMESTAMP in phase {phase}, zone {}: {ts}",
                    zones[i]
                );
                assert!(dt.starts_with("2024-07-01 12:00:00.25"), "DATETIME in phase {phase}, zone {}: {dt}", zones[i]);
            }
        }
    }
}
