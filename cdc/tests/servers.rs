//! Capture's reading side against real servers: connections, positions, the catalog, pages and the binlog's stream.

mod server;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use mysql_async::prelude::Queryable;
use server::{Kind, Server};
use tidegate_cdc::error::Code;
use tidegate_cdc::mysql::binlog::stream::{EventStream, open_stream};
use tidegate_cdc::mysql::binlog::{Event, RowDecoder, TableMap, parse_event};
use tidegate_cdc::mysql::catalog::{list_tables, load_table};
use tidegate_cdc::mysql::connect::{
    Conn, check_resumable, connect, connect_for_rows, log_end, start_position, wait_visible,
};
use tidegate_cdc::mysql::snapshot::pages::read_page;
use tidegate_cdc::mysql::snapshot::ranges::plan_ranges;
use tidegate_cdc::mysql::snapshot::{KeyRange, KeyValue};
use tidegate_cdc::mysql::types::MysqlTable;
use tidegate_cdc::mysql::wire::{RowConn, TextRow};
use tidegate_cdc::mysql::{Flavor, ServerInfo};
use tidegate_cdc::rows::RowBuffer;
use tidegate_cdc::source::definition::{
    CaptureOptions, ConnectionOptions, SourceDefinition, SslMode, TablePattern, TableRule,
};
use tidegate_cdc::source::examine::{CheckStatus, examine};
use tidegate_cdc::source::position::{GtidSet, Position};
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
            let page = read_page(conn, info, table, schema, &range, after.as_deref(), limit).await.expect("a page");
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
        let page = read_page(&mut for_rows, &info, &table, &schema, &KeyRange::whole(), Some(&after), 10)
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

const EVERY_TYPE: &str = "id INT UNSIGNED PRIMARY KEY, t1 TINYINT, t1u TINYINT UNSIGNED, t2 SMALLINT, t2u SMALLINT UNSIGNED, \
    t3 MEDIUMINT, t3u MEDIUMINT UNSIGNED, t4 INT, t4u INT UNSIGNED, t8 BIGINT, t8u BIGINT UNSIGNED, d1 DECIMAL(12,3), \
    d2 DECIMAL(38,10), d3 DECIMAL(65,30), f FLOAT, g DOUBLE, c CHAR(10), vl VARCHAR(20) CHARACTER SET latin1, v VARCHAR(300), \
    tx MEDIUMTEXT, b BINARY(6), vb VARBINARY(20), bl BLOB, da DATE, ti TIME, ti6 TIME(6), dt DATETIME, dt6 DATETIME(6), \
    ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, y YEAR, e ENUM('one','zwö','it''s'), s SET('a','b','c'), b1 BIT(1), b12 BIT(12), \
    b64 BIT(64), j JSON";

const EVERY_VALUE: [&str; 6] = [
    "(1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808, 18446744073709551615, \
     -999999999.999, 1234567890123456789012345678.0123456789, -12345678901234567890123456789012345.123456789012345678901234567890, \
     0.1, 0.1, 'ä  ', 'ä€', 'plain', 'text', X'0100', X'ff00', X'00ff', '2024-02-29', '-838:59:59', '-00:00:01.5', \
     '2024-02-29 23:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '1970-01-01 00:00:01.5', 2155, 'zwö', 'a,c', \
     b'1', b'100000000001', 18446744073709551615, '{\"b\": [1, 2.50, -0.0, true, null], \"a\": \"\\\\u00e4\\\\n\", \"\": {}}')",
    "(2, 127, 0, 32767, 0, 8388607, 0, 2147483647, 0, 9223372036854775807, 0, 0, 0, 0, 16777216, -1.7976931348623157e308, '', '', \
     '', '', '', '', '', '0001-01-01', '838:59:59', '838:59:58.999999', '1000-01-01 00:00:00', '1000-01-01 00:00:00.000001', \
     '2024-03-31 02:30:00', '2024-03-31 02:30:00.999', 1901, 'it''s', '', b'0', b'0', 0, '[]')",
    "(3, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -0.001, -0.0000000001, 0.1, -1.17549435e-38, 5e-324, 'x', 'x', 'x', 'x', 'abcdef', \
     'x', 'x', '1969-12-31', '00:00:00', '00:00:00', '1969-12-31 23:59:59', '1969-12-31 23:59:59.5', '1970-01-01 00:00:01', \
     '2024-10-27 02:30:00', 0, 'one', 'a,b,c', NULL, b'111111111111', 1, '\"text\"')",
    "(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '0', '0', REPEAT('ü', 300), REPEAT('x', 70000), '0', '0', REPEAT('y', 60000), \
     '0000-00-00', '0:0:0', '0:0:0', '0000-00-00 00:00:00', '2024-00-15 10:00:00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', \
     2000, 99, 64, 1, 1, 9223372036854775808, '{}')",
    "(4294967295, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3.40282347e38, 1e-7, 'z', 'z', 'z', 'z', 'z', 'z', 'z', '2024-06-31', \
     '24:00:00', '24:00:00.1', '2024-06-15 00:00:00', '2024-06-15 00:00:00', '2024-06-15 00:00:00', '2024-06-15 00:00:00', 1999, \
     'one', 'b', b'1', b'1', 7, '{\"k\": 1e100, \"l\": 12345678901234567890, \"m\": -5, \"n\": 0.1}')",
];

/// The next rows of a table in the stream, as the table's columns.
async fn streamed(
    stream: &mut EventStream,
    flavor: Flavor,
    table: &MysqlTable,
    schema: &Arc<TableSchema>,
    rows: usize,
) -> RecordBatch {
    let mut buffer = RowBuffer::new(schema);
    let mut map: Option<TableMap> = None;
    while buffer.len() < rows {
        let raw = stream.next().await.expect("an event");
        match parse_event(flavor, &raw.header, &raw.body).expect("an event that is understood") {
            Event::TableMap(next) => map = Some(next),
            Event::Rows(event) => {
                let Some(map) = map.as_ref().filter(|map| map.table == table.name) else { continue };
                let decoder = RowDecoder::compile(map, table, schema).expect("the table map fits");
                decoder.decode(&event, &mut buffer).expect("rows");
            }
            Event::Unknown(kind) => panic!("event {kind} is not understood"),
            _ => {}
        }
    }
    buffer.take().expect("a batch").0
}

#[tokio::test]
async fn a_page_and_the_binlog_give_the_same_values() {
    for kind in Kind::all() {
        for compressed in [false, true] {
            let options: &[&str] = match (kind, compressed) {
                (_, false) => &[],
                (Kind::Mysql, true) => &["--binlog-transaction-compression=ON"],
                (Kind::MariaDb, true) => &["--log-bin-compress=ON", "--log-bin-compress-min-len=10"],
            };
            let server = Server::start(kind, options).await;
            server.execute(&[&format!("CREATE TABLE shop.types ({EVERY_TYPE}) DEFAULT CHARSET utf8mb4")]).await;
            let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
            let start = start_position(&mut conn, &info).await.expect("a position");
            let insert = format!("INSERT INTO shop.types VALUES {}", EVERY_VALUE.join(", "));
            server.execute(&["SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'", &insert]).await;
            let (table, schema) = table(&mut conn, &info, "types").await;
            let mut for_rows = connect_for_rows(&server.capturer(), &info).await.expect("a connection");
            let page = pages(&mut for_rows, &info, (&table, &schema), &[KeyRange::whole()], 100).await;
            assert_eq!(page.num_rows(), EVERY_VALUE.len());
            let mut stream =
                open_stream(&server.capturer(), &info, &start, 4_711, Duration::from_secs(5)).await.expect("a stream");
            let log = streamed(&mut stream, info.flavor, &table, &schema, EVERY_VALUE.len()).await;
            for (i, field) in schema.fields.iter().enumerate() {
                assert_eq!(page.column(i), log.column(i), "{kind:?} (compressed: {compressed}), column {}", field.name);
            }
            stream.close().await;
            conn.close().await;
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_from_a_position_and_knows_its_place() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server.execute(&["CREATE TABLE shop.t (id INT PRIMARY KEY)"]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let start = start_position(&mut conn, &info).await.expect("a position");
        assert!(start.gtid.is_some(), "{kind:?}");
        wait_visible(&mut conn, &info, &start, Duration::from_secs(10)).await.expect("what is executed is visible");
        server.execute(&["INSERT INTO shop.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO shop.t VALUES (2)"]).await;
        let (table, schema) = table(&mut conn, &info, "t").await;
        let heartbeat = Duration::from_millis(200);
        let by_file = Position { gtid: None, file: start.file.clone(), server_uuid: info.server_uuid.clone() };
        let mut positions = vec![start];
        if by_file.file.is_some() {
            positions.push(by_file);
        }
        for (id, position) in (4_711..).zip(&positions) {
            let mut stream = open_stream(&server.capturer(), &info, position, id, heartbeat).await.expect("a stream");
            let rows = streamed(&mut stream, info.flavor, &table, &schema, 2).await;
            assert_eq!(text_rows(&rows), ["1", "2"], "{kind:?} from {position}");
            // Commit, then heartbeats. The server itself may still write to its log.
            for _ in 0..4 {
                stream.next().await.expect("heartbeats keep the stream alive");
            }
            while stream.position() < log_end(&mut conn, &info).await.ok() {
                stream.next().await.expect("an event");
            }
            assert!(stream.position() <= log_end(&mut conn, &info).await.ok(), "{kind:?} from {position}");
            stream.close().await;
        }
        conn.close().await;
    }
}

#[tokio::test]
async fn a_silent_server_is_noticed() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let start = start_position(&mut conn, &info).await.expect("a position");
        let heartbeat = Duration::from_millis(200);
        let mut stream = open_stream(&server.capturer(), &info, &start, 4_711, heartbeat).await.expect("a stream");
        server.signal("STOP");
        let code = loop {
            if let Err(error) = stream.next().await {
                break error.code;
            }
        };
        assert_eq!(code, Code::ConnectionLost, "{kind:?}");
        server.signal("CONT");
        conn.close().await;
    }
}

#[tokio::test]
async fn positions_that_are_gone_or_foreign_are_told_apart() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server.execute(&["CREATE TABLE shop.t (id INT PRIMARY KEY)"]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let old = start_position(&mut conn, &info).await.expect("a position");
        let old_file = Position {
            gtid: None,
            file: Some(log_end(&mut conn, &info).await.expect("an end")),
            server_uuid: info.server_uuid.clone(),
        };
        server
            .execute(&[
                "INSERT INTO shop.t VALUES (1)",
                "FLUSH BINARY LOGS",
                "INSERT INTO shop.t VALUES (2)",
                "FLUSH BINARY LOGS",
            ])
            .await;
        let newest = log_end(&mut conn, &info).await.expect("an end").file;
        // A file goes only when its transactions are in the engines' own files.
        loop {
            server.execute(&[&format!("PURGE BINARY LOGS TO '{newest}'")]).await;
            let files: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("files");
            if files.len() == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for position in [&old, &old_file] {
            let error = open_stream(&server.capturer(), &info, position, 4_711, Duration::from_secs(1)).await;
            let error = match error {
                Ok(mut stream) => loop {
                    match stream.next().await {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                },
                Err(error) => error,
            };
            assert_eq!(error.code, Code::PositionPurged, "{kind:?} {position}: {:?}", error.detail);
        }

        let foreign = match kind {
            Kind::Mysql => GtidSet::Mysql("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5".parse().expect("a set")),
            Kind::MariaDb => GtidSet::MariaDb("0-9-1000000".parse().expect("a position")),
        };
        let foreign = Position { gtid: Some(foreign), ..Position::default() };
        let error = check_resumable(&mut conn, &info, &foreign).await.expect_err("another server's position");
        assert_eq!(error.code, Code::OtherServer, "{kind:?}");
        conn.close().await;
    }
}

#[tokio::test]
async fn two_streams_with_one_server_id_throw_each_other_out() {
    // MariaDB only closes the connection of the older one.
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let start = start_position(&mut conn, &info).await.expect("a position");
        let heartbeat = Duration::from_millis(300);
        let mut first = open_stream(&server.capturer(), &info, &start, 4_711, heartbeat).await.expect("a stream");
        first.next().await.expect("an event");
        let mut second = open_stream(&server.capturer(), &info, &start, 4_711, heartbeat).await.expect("a stream");
        second.next().await.expect("an event");
        let error = loop {
            if let Err(error) = first.next().await {
                break error;
            }
        };
        let expected: &[Code] = match kind {
            Kind::Mysql => &[Code::ServerIdTaken],
            Kind::MariaDb => &[Code::ServerIdTaken, Code::ConnectionLost],
        };
        assert!(expected.contains(&error.code), "{kind:?}: {error} {:?}", error.detail);
        second.close().await;
        conn.close().await;
    }
}

fn definition(connection: ConnectionOptions, tables: &str) -> SourceDefinition {
    SourceDefinition {
        id: uuid::Uuid::from_u128(7),
        name: "shop".to_owned(),
        connection,
        tables: TablePattern::parse_list(tables).expect("patterns").into_iter().map(TableRule::new).collect(),
        exclude: Vec::new(),
        options: CaptureOptions::default(),
    }
}

#[tokio::test]
async fn the_examination_finds_tables_and_says_why_some_are_left_out() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.orders (id INT, part INT, v VARCHAR(10), PRIMARY KEY (part, id))",
                "CREATE TABLE shop.nokey (id INT, u INT NOT NULL, UNIQUE KEY (u))",
                "CREATE TABLE shop.shape (id INT PRIMARY KEY, g GEOMETRY)",
                "CREATE TABLE shop.prefix (t VARCHAR(300), PRIMARY KEY (t(10)))",
                "CREATE TABLE shop.other (id INT PRIMARY KEY)",
                "CREATE VIEW shop.seen AS SELECT * FROM shop.orders",
                "INSERT INTO shop.orders VALUES (1, 1, 'x'), (2, 1, 'y')",
                "ANALYZE TABLE shop.orders",
            ])
            .await;
        let found = examine(&definition(server.capturer(), "shop.*")).await.expect("an examination");
        assert!(found.failure().is_none(), "{kind:?}: {:?}", found.checks);
        let mut tables: Vec<_> =
            found.tables.iter().map(|t| (t.name.as_str(), t.left_out.clone().unwrap_or_default())).collect();
        tables.sort();
        let names: Vec<_> = tables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["nokey", "orders", "other", "prefix", "shape"], "{kind:?}: no views");
        for (name, word) in [
            ("nokey", "no primary key"),
            ("shape", "column `g`"),
            ("prefix", "beginning"),
            ("orders", ""),
            ("other", ""),
        ] {
            let reason = &tables.iter().find(|(n, _)| *n == name).expect("the table").1;
            assert!(reason.contains(word) && reason.is_empty() == word.is_empty(), "{kind:?} {name}: {reason}");
        }
        let orders = found.tables.iter().find(|t| t.name == "orders").expect("orders");
        assert_eq!(orders.key, Some(vec!["part".to_owned(), "id".to_owned()]));
        assert_eq!(orders.estimated_rows, 2);

        let mut keyed = definition(server.capturer(), "shop.nokey");
        keyed.tables[0].key = Some(vec!["U".to_owned()]);
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let tables = list_tables(&mut conn, &info, &keyed).await.expect("tables");
        assert_eq!(tables[0].key, Some(vec!["u".to_owned()]));
        assert_eq!(tables[0].left_out, None);
        keyed.tables[0].key = Some(vec!["id".to_owned()]);
        let tables = list_tables(&mut conn, &info, &keyed).await.expect("tables");
        assert!(tables[0].left_out.is_some(), "a key that nothing enforces");
        conn.close().await;

        let none = examine(&definition(server.capturer(), "shop.ord")).await.expect("an examination");
        assert_eq!(none.failure().map(|error| error.code), Some(Code::NoTableMatched));
    }
}

#[tokio::test]
async fn missing_rights_and_wrong_settings_are_named() {
    for kind in Kind::all() {
        let server = Server::start(
            kind,
            &["--binlog-row-image=MINIMAL", "--binlog-format=MIXED", "--binlog-row-metadata=MINIMAL"],
        )
        .await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY)",
                "CREATE TABLE shop.secret (id INT PRIMARY KEY, x INT)",
                "CREATE USER weak@'%' IDENTIFIED BY 'weak'",
                "GRANT SELECT ON shop.t TO weak@'%'",
                "GRANT SELECT (id) ON shop.secret TO weak@'%'",
            ])
            .await;
        let weak = ConnectionOptions::new("127.0.0.1", server.port, "weak", "weak");
        let found = examine(&definition(weak, "shop.*")).await.expect("an examination");
        let failed: Vec<_> =
            found.checks.iter().filter(|c| c.status == CheckStatus::Failed).filter_map(|check| check.code).collect();
        for code in [Code::BinlogFormat, Code::RowImage, Code::MissingRight] {
            assert!(failed.contains(&code), "{kind:?}: {code} in {:?}", found.checks);
        }
        let grants: Vec<_> = found.checks.iter().filter_map(|check| check.hint.as_deref()).collect();
        assert!(
            grants.iter().any(|hint| hint.contains("GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%'")),
            "{kind:?}: {grants:?}"
        );
        assert!(
            grants.iter().any(|hint| hint.contains("GRANT REPLICATION CLIENT ON *.* TO 'weak'@'%'")),
            "{kind:?}: {grants:?}"
        );
        assert!(found.checks.iter().any(|check| check.code == Some(Code::RowMetadata)));
        let captured: Vec<_> = found.captured().map(|table| table.name.as_str()).collect();
        assert_eq!(captured, ["t"], "{kind:?}");

        let wrong = ConnectionOptions::new("127.0.0.1", server.port, "weak", "guess");
        assert_eq!(connect(&wrong).await.map_err(|error| error.code).err(), Some(Code::WrongPassword), "{kind:?}");
        let mut nowhere = ConnectionOptions::new("127.0.0.1", 1, "weak", "weak");
        assert_eq!(connect(&nowhere).await.map_err(|error| error.code).err(), Some(Code::Unreachable));
        nowhere.hostname = "no-such-host.invalid".to_owned();
        assert_eq!(connect(&nowhere).await.map_err(|error| error.code).err(), Some(Code::UnknownHost));
    }
}

/// The connection for rows logs in wherever the other one does, and fails for the same reasons.
#[tokio::test]
async fn both_connections_log_in_alike() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let mut users = vec![("native", "secret"), ("nobody_knows", "")];
        match kind {
            Kind::Mysql => {
                users.push(("sha2", "s\u{e9}cret"));
                server
                    .execute(&[
                        "CREATE USER sha2@'%' IDENTIFIED WITH caching_sha2_password BY 's\u{e9}cret'",
                        "CREATE USER native@'%' IDENTIFIED BY 'secret'",
                        "CREATE USER nobody_knows@'%' IDENTIFIED BY ''",
                    ])
                    .await;
            }
            Kind::MariaDb => {
                server
                    .execute(&[
                        "CREATE USER native@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')",
                        "CREATE USER nobody_knows@'%' IDENTIFIED BY ''",
                    ])
                    .await;
            }
        }
        let (conn, info) = connect(&server.capturer()).await.expect("a connection");
        conn.close().await;
        for (user, password) in users {
            for mode in [
                None,
                Some(SslMode::Disabled),
                Some(SslMode::Preferred),
                Some(SslMode::Required),
                Some(SslMode::VerifyIdentity),
            ] {
                for password in [password, "guess"] {
                    let mut options = ConnectionOptions::new("127.0.0.1", server.port, user, password);
                    options.ssl_mode = mode;
                    // The server forgets which passwords it has seen.
                    server.execute(&["FLUSH PRIVILEGES"]).await;
                    let mut cipher = None;
                    let rows = match connect_for_rows(&options, &info).await {
                        Ok(mut conn) => {
                            let answer =
                                conn.query("SELECT CONCAT('\u{e9}', CURRENT_USER())").await.expect("an answer");
                            assert_eq!(answer[0][0].1.as_deref(), Some(format!("\u{e9}{user}@%").as_str()));
                            let shown = conn.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await.expect("an answer");
                            cipher = shown[0][1].1.clone().filter(|cipher| !cipher.is_empty());
                            conn.close().await;
                            None
                        }
                        Err(error) => Some(error.code),
                    };
                    let is_right = password != "guess";
                    match mode {
                        None | Some(SslMode::Disabled) => {
                            assert_eq!(rows, (!is_right).then_some(Code::WrongPassword), "{kind:?}: {user} {mode:?}");
                            assert_eq!(cipher, None, "{kind:?}: {user} {mode:?}");
                        }
                        Some(SslMode::Required) if rows.is_none() => assert!(cipher.is_some(), "{kind:?}: {user}"),
                        _ => {}
                    }
                    server.execute(&["FLUSH PRIVILEGES"]).await;
                    let library = match connect(&options).await {
                        Ok((conn, _)) => {
                            conn.close().await;
                            None
                        }
                        Err(error) => Some(error.code),
                    };
                    assert_eq!(rows, library, "{kind:?}: {user} with {password:?} and {mode:?}");
                }
            }
        }
        let mut elsewhere = info.clone();
        elsewhere.server_id += 1;
        let refused = connect_for_rows(&server.capturer(), &elsewhere).await.map_err(|error| error.code);
        assert_eq!(refused.err(), Some(Code::ConnectionLost), "{kind:?}: another server");
    }
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
                let page =
                    read_page(&mut for_rows, &info, &table, &schema, &KeyRange::whole(), after.as_deref(), 65_536)
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
