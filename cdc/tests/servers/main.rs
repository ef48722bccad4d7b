//! Capture's reading side against real servers: connections, positions, the catalog, pages and the binlog's stream.

#![allow(clippy::disallowed_methods, reason = "tests against real servers and stores are in the time that there is")]

mod examination;
mod log;
#[path = "../server/mod.rs"]
mod server;

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use mysql_async::prelude::Queryable;
use server::{Kind, Server};
use tidegate_cdc::mysql::ServerInfo;
use tidegate_cdc::mysql::catalog::load_table;
use tidegate_cdc::mysql::connect::{Conn, connect, connect_for_rows};
use tidegate_cdc::mysql::snapshot::pages::{PageSize, read_page};
use tidegate_cdc::mysql::snapshot::ranges::plan_ranges;
use tidegate_cdc::mysql::snapshot::{KeyRange, KeyValue};
use tidegate_cdc::mysql::types::MysqlTable;
use tidegate_cdc::mysql::wire::{RowConn, TextRow};
use tidegate_storage::paimon::{Field, TableSchema};

fn schema_of(table: &MysqlTable) -> Arc<TableSchema> {
    let fields: Vec<Field> = table
        .columns
        .iter()
        .zip(0..)
        .map(|(column, id)| Field {
            id,
            name: column.name.clone(),
            data_type: column.column_type.data_type().unwrap_or_else(|why| panic!("{}: {why}", column.name)),
            nullable: !table.primary_key.contains(&column.name),
            description: None,
            initial_default: None,
        })
        .collect();
    Arc::new(TableSchema {
        id: 0,
        highest_field_id: fields.len() as i32 - 1,
        fields,
        primary_keys: table.primary_key.clone(),
        options: Default::default(),
        comment: None,
        time_millis: 0,
    })
}

async fn table(conn: &mut Conn, info: &ServerInfo, name: &str) -> (MysqlTable, Arc<TableSchema>) {
    let table = load_table(conn, info, "shop", name).await.expect("the catalog answers").expect("the table is there");
    let schema = schema_of(&table);
    (table, schema)
}

/// All rows of some ranges, page by page.
async fn pages(
    conn: &mut RowConn,
    info: &ServerInfo,
    (table, schema): (&MysqlTable, &Arc<TableSchema>),
    ranges: &[KeyRange],
    limit: usize,
) -> RecordBatch {
    let mut batches = Vec::new();
    for range in ranges {
        // Bounds go through JSON, as they do between two runs.
        let range: KeyRange = serde_json::from_str(&serde_json::to_string(range).expect("JSON")).expect("JSON");
        let mut after: Option<Vec<KeyValue>> = None;
        loop {
            let page = read_page(conn, info, table, schema, &range, after.as_deref(), PageSize::rows(limit))
                .await
                .expect("a page");
            assert!(page.low <= page.high);
            assert!(page.batch.num_rows() <= limit);
            batches.push(page.batch);
            assert!(batches.len() < 1_000, "paging of {} does not end: {:?}", table.name, page.last_key);
            if page.end_of_range {
                break;
            }
            after = page.last_key;
            assert!(after.is_some());
        }
    }
    concat_batches(&schema.arrow_schema(), &batches).expect("pages have one schema")
}

fn text_rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).expect("a formatter")).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}

/// Tables with each kind of key: name, definition, rows, and the row as text in SQL.
fn key_tables() -> Vec<(&'static str, &'static str, Vec<String>, &'static str)> {
    let numbers = |range: std::ops::Range<i64>, row: fn(i64) -> String| range.map(row).collect::<Vec<_>>();
    let big = |i: u64| format!("({}, 'v{i}')", u64::MAX - i * 3);
    vec![
        (
            "k_int",
            "id INT PRIMARY KEY, v VARCHAR(20)",
            numbers(-20..25, |i| format!("({}, 'v{i}')", i * 7)),
            "CONCAT_WS('|', id, v)",
        ),
        (
            "k_ubig",
            "id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(20)",
            (0..40)
                .map(big)
                .chain([
                    "(0, 'zero')".into(),
                    "(9223372036854775807, 'max')".into(),
                    "(9223372036854775808, 'over')".into(),
                ])
                .collect(),
            "CONCAT_WS('|', id, v)",
        ),
        (
            "k_ci",
            "a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, b DATETIME(3), v INT, PRIMARY KEY (a, b)",
            numbers(0..60, |i| {
                let a = ["A", "b", "Ä", "ß", "Z", "a ", "ż", "_"][(i % 8) as usize];
                format!(
                    "('{a}{}', '2024-0{}-11 00:00:0{}', {i})",
                    ["x", "X y", "'' \\\\"][(i % 3) as usize],
                    i / 8 % 9 + 1,
                    i % 8
                )
            }),
            "CONCAT_WS('|', a, DATE_FORMAT(b, '%Y-%m-%dT%H:%i:%s'), v)",
        ),
        (
            "k_two",
            "a VARCHAR(10), b VARCHAR(10), c INT, PRIMARY KEY (a, b, c)",
            numbers(0..70, |i| format!("('{}', '{}', {i})", ["only", "two"][(i % 2) as usize], i % 3)),
            "CONCAT_WS('|', a, b, c)",
        ),
        (
            "k_varbinary",
            "k VARBINARY(8) PRIMARY KEY, v INT",
            numbers(0..50, |i| format!("(X'{:02x}{}', {i})", 255 - i * 5, ["", "00", "ff", "c3a4"][(i % 4) as usize])),
            "CONCAT_WS('|', LOWER(HEX(k)), v)",
        ),
        (
            "k_binary",
            "k BINARY(4) PRIMARY KEY, v INT",
            numbers(0..50, |i| format!("(X'{:02x}{}', {i})", 255 - i * 5, ["", "00", "ff", "c3a4"][(i % 4) as usize])),
            "CONCAT_WS('|', LOWER(HEX(k)), v)",
        ),
        (
            "k_decimal",
            "k DECIMAL(30,4) PRIMARY KEY, v INT",
            numbers(0..50, |i| {
                format!(
                    "({}{}{:04}.{:04}, {i})",
                    ["-", ""][(i % 2) as usize],
                    "9".repeat((i % 5 * 4) as usize),
                    i,
                    i * 13
                )
            }),
            "CONCAT_WS('|', k, v)",
        ),
        (
            "k_enum",
            "k ENUM('b','a','c','A2','d'), n INT, PRIMARY KEY (k, n)",
            numbers(0..40, |i| format!("('{}', {i})", ["a", "b", "c", "A2", "d"][(i % 5) as usize])),
            "CONCAT_WS('|', k, n)",
        ),
        (
            "k_set",
            "k SET('z','y','x','w','v') PRIMARY KEY, n INT",
            numbers(0..32, |i| format!("({i}, {i})")),
            "CONCAT_WS('|', k, n)",
        ),
        (
            "k_bit",
            "k BIT(64) PRIMARY KEY, n INT",
            numbers(0..40, |i| format!("(18446744073709551615 - {i}, {i})")),
            "CONCAT_WS('|', LOWER(HEX(k)), n)",
        ),
        (
            "k_latin1",
            "k CHAR(10) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY, v INT",
            numbers(0..40, |i| format!("('{}{i}', {i})", ["ä", "z", "Ö", "a", "€"][(i % 5) as usize])),
            "CONCAT_WS('|', k, v)",
        ),
        (
            "k_timestamp",
            "k TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), v INT, PRIMARY KEY (k)",
            numbers(0..40, |i| format!("('2024-10-27 0{}:30:{:02}', {i})", i % 4, i)),
            "CONCAT_WS('|', DATE_FORMAT(k, '%Y-%m-%dT%H:%i:%sZ'), v)",
        ),
        (
            "k_date",
            "k DATE, t TIME(2), y YEAR, PRIMARY KEY (k, t, y)",
            numbers(0..60, |i| {
                format!(
                    "('20{:02}-02-2{}', '{}{:02}:00:0{}', {})",
                    i % 30,
                    i % 9,
                    ["-", "", "8"][(i % 3) as usize],
                    i,
                    i % 9,
                    [0, 1901, 2024, 2155][(i % 4) as usize]
                )
            }),
            "CONCAT_WS('|', k, t, CAST(y AS UNSIGNED))",
        ),
        (
            "k_float",
            "k FLOAT PRIMARY KEY, v INT",
            numbers(0..50, |i| format!("({}e{}, {i})", 16_777_216 + i, i % 7 * 5 - 17)),
            "v",
        ),
        ("k_double", "k DOUBLE PRIMARY KEY, v INT", numbers(0..50, |i| format!("({i} / 7e0, {i})")), "v"),
        (
            "k_utf8mb3",
            "k VARCHAR(20) CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci PRIMARY KEY, v INT",
            numbers(0..40, |i| format!("('{}{i}', {i})", ["ä", "z", "Ö", "a", "€"][(i % 5) as usize])),
            "CONCAT_WS('|', k, v)",
        ),
    ]
}

#[tokio::test]
async fn pages_of_every_kind_of_key_hold_each_row_once_in_the_servers_order() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        for (name, definition, rows, text) in key_tables() {
            server
                .execute(&[
                    &format!("CREATE TABLE shop.{name} ({definition}) DEFAULT CHARSET utf8mb4"),
                    &format!("INSERT IGNORE INTO shop.{name} VALUES {}", rows.join(", ")),
                ])
                .await;
            let (table, schema) = table(&mut conn, &info, name).await;
            let key = table.primary_key.join(", ");
            let expected: Vec<String> = conn
                .query(format!("SELECT {text} FROM shop.{name} ORDER BY {key}"))
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(expected.len() > 25, "{kind:?} {name} has only {} rows", expected.len());
            let mut for_rows = connect_for_rows(&server.capturer(), &info).await.expect("a connection");
            let whole = pages(&mut for_rows, &info, (&table, &schema), &[KeyRange::whole()], 1_000).await;
            assert_eq!(whole.num_rows(), expected.len(), "{kind:?} {name}");
            if text != "v" {
                assert_eq!(text_rows(&whole), expected, "{kind:?} {name}");
            }
            for limit in [1, 3, 7] {
                let read = pages(&mut for_rows, &info, (&table, &schema), &[KeyRange::whole()], limit).await;
                assert_eq!(read, whole, "{kind:?} {name} in pages of {limit}");
            }
            let ranges = plan_ranges(&mut conn, &info, &table, expected.len() as u64, 10).await.expect("ranges");
            assert!(ranges.len() > 1, "{kind:?} {name} was not divided");
            let read = pages(&mut for_rows, &info, (&table, &schema), &ranges, 4).await;
            assert_eq!(read, whole, "{kind:?} {name} in {} ranges", ranges.len());
        }
        conn.close().await;
    }
}

#[tokio::test]
async fn composite_pages_read_a_part_of_the_index_only() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let rows: Vec<String> =
            (0..5_000).map(|i| format!("('{}', 'x', {i})", if i < 2_500 { "a" } else { "b" })).collect();
        server
            .execute(&[
                "CREATE TABLE shop.two (a VARCHAR(10) CHARACTER SET latin1, b VARCHAR(10), c INT, PRIMARY KEY (a, b, c))",
                &format!("INSERT INTO shop.two VALUES {}", rows.join(", ")),
                "ANALYZE TABLE shop.two",
            ])
            .await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let (table, schema) = table(&mut conn, &info, "two").await;
        let text = |text: &str| KeyValue::Text(text.to_owned());
        let after = [text("a"), text("x"), KeyValue::Int(2_000)];
        let mut for_rows = connect_for_rows(&server.capturer(), &info).await.expect("a connection");
        let before = rows_read(&mut for_rows).await;
        let page =
            read_page(&mut for_rows, &info, &table, &schema, &KeyRange::whole(), Some(&after), PageSize::rows(10))
                .await
                .expect("a page");
        assert_eq!(page.batch.num_rows(), 10);
        let read = rows_read(&mut for_rows).await - before;
        assert!(read < 100, "{kind:?}: {read} rows were looked at for a page of 10");
        conn.close().await;
    }
}

/// How many rows the session's statements have looked at.
async fn rows_read(conn: &mut RowConn) -> u64 {
    let counters = conn.query("SHOW SESSION STATUS LIKE 'Handler_read%'").await.expect("counters");
    let counter = |row: &TextRow| Some((row.first()?.1.clone()?, row.get(1)?.1.as_deref()?.parse::<u64>().ok()?));
    counters
        .iter()
        .filter_map(counter)
        .filter(|(name, _)| name.contains("next") || name.contains("prev") || name.contains("rnd"))
        .map(|c| c.1)
        .sum()
}

/// Rows of more than 16 MiB come in several frames, and a page of them ends early.
#[tokio::test]
async fn rows_larger_than_a_frame() {
    for kind in Kind::all() {
        let server = Server::start(kind, &["--max-allowed-packet=256M"]).await;
        let fill = |id: u32, letter: &str, len: usize| {
            format!("INSERT INTO shop.large VALUES ({id}, REPEAT('{letter}', {len}))")
        };
        let sizes = [(1_usize << 24) - 12, 1 << 24, 40 << 20, 3, 30 << 20];
        server.execute(&["CREATE TABLE shop.large (id INT PRIMARY KEY, t LONGTEXT)"]).await;
        for ((id, len), letter) in (1..).zip(sizes).zip(["a", "b", "c", "d", "e"]) {
            server.execute(&[&fill(id, letter, len)]).await;
        }
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let (table, schema) = table(&mut conn, &info, "large").await;
        let mut for_rows = connect_for_rows(&server.capturer(), &info).await.expect("a connection");
        let read = pages(&mut for_rows, &info, (&table, &schema), &[KeyRange::whole()], 1_000).await;
        let texts = read.column(1).as_string::<i32>();
        let seen: Vec<(usize, Option<char>)> = texts
            .iter()
            .flatten()
            .map(|text| {
                let first = text.chars().next();
                (text.len(), first.filter(|first| text.bytes().all(|byte| char::from(byte) == *first)))
            })
            .collect();
        let expected: Vec<_> = sizes.into_iter().zip("abcde".chars().map(Some)).collect();
        assert_eq!(seen, expected, "{kind:?}");
    }
}

/// Hundredths of a second that this process has computed.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum()
}

/// A measurement, not a test: `cargo test -p tidegate-cdc --test servers -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn how_fast_pages_are() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.big (id BIGINT PRIMARY KEY AUTO_INCREMENT, a INT, b DECIMAL(12,2), c VARCHAR(40), d DATETIME, e CHAR(30))",
            ])
            .await;
        let seed: Vec<String> = (0..1_000).map(|i| format!("({i}, {i}.25, 'customer number {i} of many', '2024-02-03 04:05:06', 'thirty characters of text {i}')")).collect();
        server.execute(&[&format!("INSERT INTO shop.big (a, b, c, d, e) VALUES {}", seed.join(", "))]).await;
        for _ in 0..9 {
            server.execute(&["INSERT INTO shop.big (a, b, c, d, e) SELECT a, b, c, d, e FROM shop.big"]).await;
        }
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let (table, schema) = table(&mut conn, &info, "big").await;
        let mut for_rows = connect_for_rows(&server.capturer(), &info).await.expect("a connection");
        for _ in 0..2 {
            let (begun, cpu) = (std::time::Instant::now(), cpu_ticks());
            let (mut rows, mut after) = (0, None);
            loop {
                let page = read_page(
                    &mut for_rows,
                    &info,
                    &table,
                    &schema,
                    &KeyRange::whole(),
                    after.as_deref(),
                    PageSize::rows(65_536),
                )
                .await
                .expect("a page");
                rows += page.batch.num_rows();
                after = page.last_key;
                if page.end_of_range {
                    break;
                }
            }
            println!(
                "{kind:?}: {rows} rows, {:.0} rows/s, {:.2} µs of this process's CPU a row",
                rows as f64 / begun.elapsed().as_secs_f64(),
                (cpu_ticks() - cpu) as f64 * 10_000.0 / rows as f64
            );
        }
        conn.close().await;
    }
}
