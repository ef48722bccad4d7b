//! The binlog's stream: values, positions, silence, and ids that two claim.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use mysql_async::prelude::Queryable;
use tidegate_cdc::error::Code;
use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::mysql::binlog::stream::{EventStream, open_stream};
use tidegate_cdc::mysql::binlog::{Event, RowDecoder, TableMap, parse_event};
use tidegate_cdc::mysql::connect::{check_resumable, connect, connect_for_rows, log_end, start_position, wait_visible};
use tidegate_cdc::mysql::snapshot::KeyRange;
use tidegate_cdc::mysql::types::MysqlTable;
use tidegate_cdc::rows::RowBuffer;
use tidegate_cdc::source::position::{GtidSet, Position};
use tidegate_storage::paimon::TableSchema;

use super::server::{Kind, Server};
use super::{pages, table, text_rows};

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
            let start = start_position(&mut conn, &info).await.expect("a position").prefix;
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
            drop(stream);
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
        let start = start_position(&mut conn, &info).await.expect("a position").prefix;
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
            drop(stream);
        }
        conn.close().await;
    }
}

#[tokio::test]
async fn a_silent_server_is_noticed() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let start = start_position(&mut conn, &info).await.expect("a position").prefix;
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
        let old = start_position(&mut conn, &info).await.expect("a position").prefix;
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
        let start = start_position(&mut conn, &info).await.expect("a position").prefix;
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
        drop(second);
        conn.close().await;
    }
}

/// A transaction is in the stream before it counts as executed: a capture that has made it durable and ends right then
/// goes on behind it.
#[tokio::test]
async fn a_transaction_that_is_being_committed_is_not_lacked() {
    let server = Server::start(Kind::Mysql, &[]).await;
    let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
    let mut writers = Vec::new();
    let (own, tagged) = ("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa:tag");
    let gtids = [format!("{own}:4"), format!("{own}:5"), format!("{own}:7"), format!("{tagged}:1")];
    for gtid in &gtids {
        let mut writer = server.writer().await.expect("a connection");
        writer.query_drop(format!("SET SESSION gtid_next = '{gtid}'")).await.expect("a GTID is taken");
        writers.push(writer);
    }
    let position = |gtids: &[&str]| Position {
        gtid: Some(GtidSet::Mysql(gtids.join(",").parse().expect("a set"))),
        file: None,
        server_uuid: None,
    };
    let all: Vec<&str> = gtids.iter().map(String::as_str).collect();
    check_resumable(&mut conn, &info, &position(&all)).await.expect("they are under way");
    let lacked = format!("{own}:4-6");
    let error = check_resumable(&mut conn, &info, &position(&[&lacked])).await.expect_err("one is lacked");
    assert_eq!(error.code, Code::OtherServer);
    assert!(error.detail.as_deref().is_some_and(|detail| detail.contains(":6;")), "{error:?}");
    for mut writer in writers {
        writer.query_drop("ROLLBACK; SET SESSION gtid_next = AUTOMATIC").await.expect("a GTID is given back");
    }
    let error = check_resumable(&mut conn, &info, &position(&all)).await.expect_err("all are lacked");
    assert_eq!(error.code, Code::OtherServer);
}
