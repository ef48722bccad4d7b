use super::super::recorded::{Rows, apply, events, expected, schema_of, unpack};
use super::super::{DecodeError, MariaGtid, MysqlGtid, RowDecoder, RowsChange, RowsEvent};
use super::*;
use crate::rows::RowBuffer;

const MYSQL: (&[u8], &[u8]) =
    (include_bytes!("../testdata/mysql-events.binlog.zst"), include_bytes!("../testdata/mysql-events.tables.zst"));
const MARIADB: (&[u8], &[u8]) =
    (include_bytes!("../testdata/mariadb-events.binlog.zst"), include_bytes!("../testdata/mariadb-events.tables.zst"));

/// The events of a log, those inside of compressed transactions too.
fn flat(log: &[u8]) -> Vec<(EventHeader, Vec<u8>)> {
    let mut flat = Vec::new();
    for (header, body) in events(&unpack(log)) {
        match parse_event(Flavor::Mysql, &header, &body).unwrap() {
            Event::TransactionPayload(payload) => {
                flat.extend(payload.events().unwrap().collect::<Result<Vec<_>, _>>().unwrap());
            }
            _ => flat.push((header, body)),
        }
    }
    flat
}

/// Replays table `t`; returns its rows, the errors of events that are not whole, and a word for each event.
fn replay(flavor: Flavor, (log, tables): (&[u8], &[u8])) -> (Rows, Vec<DecodeError>, Vec<String>) {
    let table = expected(tables).into_iter().find(|e| e.table.name == "t").unwrap().table;
    let schema = schema_of(&table);
    let (mut rows, mut errors, mut story) = (Rows::new(), Vec::new(), Vec::new());
    let mut decoder = None;
    let mut buffer = RowBuffer::new(&schema);
    for (header, body) in flat(log) {
        match parse_event(flavor, &header, &body).unwrap() {
            Event::TableMap(map) => decoder = Some(RowDecoder::compile(&map, &table, &schema).unwrap()),
            Event::Rows(event) => match decoder.as_ref().unwrap().decode(&event, &mut buffer) {
                Ok(changes) => {
                    story.push(format!("{:?} {changes}", event.change));
                    let (batch, kinds) = buffer.take().unwrap();
                    apply(&batch, &kinds, &schema, &mut rows);
                }
                Err(error) => {
                    assert!(buffer.is_empty());
                    errors.push(error);
                }
            },
            Event::Query(query) => story.push(query.sql.into_owned()),
            Event::Gtid(gtid) => story.push(gtid.to_string().split_once(':').unwrap().1.to_owned()),
            Event::MariaGtid { gtid, standalone, ddl, xa, prepares, completes } => {
                story.push(format!("{gtid} {standalone} {ddl} {prepares} {completes}"));
                story.extend(xa.map(|x| format!("{x:?}")));
            }
            Event::XaPrepare { xid, one_phase } => story.push(format!("prepare {xid:?} {one_phase}")),
            Event::Rotate { file, offset } => story.push(format!("{file} {offset}")),
            Event::Xid(_) => story.push("xid".to_owned()),
            Event::Unknown(kind) => panic!("event {kind} is not understood"),
            _ => {}
        }
    }
    (rows, errors, story)
}

fn row(id: u32, v: &str, j: &str) -> Vec<Option<String>> {
    vec![Some(id.to_string()), Some(v.to_owned()), Some(j.to_owned())]
}

#[test]
fn mysql_compressed_tagged_and_xa_transactions() {
    let (rows, errors, story) = replay(Flavor::Mysql, MYSQL);
    assert_eq!(errors, [DecodeError::MinimalImage, DecodeError::PartialJson]);
    assert_eq!(rows.len(), 199);
    assert_eq!(rows[&vec![Some("1".to_owned())]], row(1, "tagged", "{\"a\": 1}"));
    assert_eq!(rows[&vec![Some("2".to_owned())]], row(2, "xa", "{\"a\": 1}"));
    assert_eq!(rows[&vec![Some("200".to_owned())]], row(200, "packedpackedpackedpackedpacked", "{\"a\": 1}"));
    let story = story.join("\n");
    let xid = Xid { format: 7, global: b"global".to_vec(), branch: b"branch".to_vec() };
    assert!(story.contains(&format!("prepare {xid:?} false")), "{story}");
    let one = Xid { format: 1, global: b"one".to_vec(), branch: Vec::new() };
    assert!(story.contains(&format!("prepare {one:?} true")), "{story}");
    assert!(story.contains("nightly:1\nBEGIN\nUpdate 1\nxid"), "{story}");
    // The client said that its text is latin1, and it was not.
    assert!(story.contains("CREATE TABLE \"na\u{c3}\u{af}ve\" (id INT PRIMARY KEY) COMMENT '\u{c3}\u{a9}'"), "{story}");
    assert!(story.ends_with("binlog.000006 4"), "{story}");
}

#[test]
fn mariadb_compressed_and_xa_transactions() {
    let (rows, errors, story) = replay(Flavor::MariaDb, MARIADB);
    assert_eq!(errors, []);
    let theirs = expected(MARIADB.1).into_iter().find(|e| e.table.name == "t").unwrap();
    assert_eq!(rows.len(), 150);
    assert_eq!(rows.into_values().collect::<std::collections::BTreeSet<_>>(), theirs.rows.into_iter().collect());
    let story = story.join("\n");
    assert!(
        story.contains("CREATE TABLE packed_statement (id INT PRIMARY KEY) COMMENT 'a statement that is long"),
        "{story}"
    );
    let xid = Xid { format: 7, global: b"global".to_vec(), branch: b"branch".to_vec() };
    assert!(story.contains(&format!("0-5-26 false false true false\n{xid:?}\nUpdate 1")), "{story}");
    assert!(story.contains(&format!("prepare {xid:?} false")), "{story}");
    assert!(story.contains(&format!("0-5-27 true false false true\n{xid:?}\nXA COMMIT")), "{story}");
    assert!(story.contains("3-5-1 false false false false\nUpdate 1\nxid"), "{story}");
}

#[test]
fn settings_of_a_statement() {
    let log = flat(MYSQL.0);
    let query = log.iter().find_map(|(header, body)| match parse_event(Flavor::Mysql, header, body).unwrap() {
        Event::Query(query) if query.sql.contains("CREATE TABLE \"na") => Some(query),
        _ => None,
    });
    let query = query.unwrap();
    assert_eq!(query.database, "tg");
    // ANSI_QUOTES.
    assert_eq!(query.sql_mode.unwrap() & 4, 4);
    // latin1_swedish_ci.
    assert_eq!(query.collations.unwrap()[0], 8);
    assert_eq!(query.error_code, 0);
}

#[test]
fn the_head_of_a_file() {
    let log = events(&unpack(MYSQL.0));
    let (header, body) = &log[0];
    match parse_event(Flavor::Mysql, header, body).unwrap() {
        Event::FormatDescription(format) => {
            assert_eq!(format, FormatDescription { server_version: "9.7.4-2".to_owned(), checksum: Checksum::Crc32 });
        }
        other => panic!("{other:?}"),
    }
    let log = events(&unpack(MARIADB.0));
    let (header, body) = &log[1];
    match parse_event(Flavor::MariaDb, header, body).unwrap() {
        Event::MariaGtidList(list) => assert_eq!(list, [MariaGtid { domain: 0, server: 5, seq: 18 }]),
        other => panic!("{other:?}"),
    }
}

fn header(kind: u8) -> EventHeader {
    EventHeader { timestamp: 0, kind, server_id: 9, size: 0, log_pos: 0, flags: 0 }
}

#[test]
fn a_checksum_behind_the_first_rotate_is_no_part_of_the_name() {
    let header = EventHeader { flags: EventHeader::ARTIFICIAL, size: 45, ..header(4) };
    let mut body = 4_u64.to_le_bytes().to_vec();
    body.extend_from_slice(b"mb.000004");
    let name = |body: &[u8]| match parse_event(Flavor::MariaDb, &header, body).unwrap() {
        Event::Rotate { file, offset: 4 } => file,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(&body), "mb.000004");
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header.to_bytes());
    crc.update(&body);
    let crc = crc.finalize().to_le_bytes();
    assert_eq!(name(&[&body[..], &crc[..]].concat()), "mb.000004");
    assert_ne!(name(&[&body[..], b"\x01\x02\x03\x04"].concat()), "mb.000004");
}

#[test]
fn heartbeats() {
    match parse_event(Flavor::Mysql, &header(27), b"binlog.000007").unwrap() {
        Event::Heartbeat { file, offset: None } => assert_eq!(file, "binlog.000007"),
        other => panic!("{other:?}"),
    }
    let mut body = vec![1, 13];
    body.extend_from_slice(b"binlog.000007");
    body.extend_from_slice(&[2, 9, 254, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    match parse_event(Flavor::Mysql, &header(41), &body).unwrap() {
        Event::Heartbeat { file, offset } => {
            assert_eq!((file.as_str(), offset), ("binlog.000007", Some(1 << 32)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn gtids() {
    let mut body = vec![0];
    body.extend_from_slice(&[0x36, 0x56, 0xfd, 0x91, 0xec, 0x34, 0x11, 0xf1, 0x98, 0x65, 2, 0xfc, 0, 0, 0, 1]);
    body.extend_from_slice(&43_u64.to_le_bytes());
    let Event::Gtid(MysqlGtid { uuid, tag, gno }) = parse_event(Flavor::Mysql, &header(33), &body).unwrap() else {
        panic!("a GTID")
    };
    assert_eq!((uuid.to_string().as_str(), tag.as_str(), gno), ("3656fd91-ec34-11f1-9865-02fc00000001", "", 43));
}

#[test]
fn what_may_hold_rows_is_never_passed_over() {
    // INCIDENT, the old row events, EXECUTE_LOAD_QUERY, and kinds of the future.
    for kind in [26, 20, 21, 22, 18, 43, 99, 165, 166, 172, 255] {
        assert!(matches!(parse_event(Flavor::Mysql, &header(kind), &[]), Ok(Event::Unknown(k)) if k == kind), "{kind}");
    }
    for kind in [26, 20, 42, 172] {
        assert!(matches!(parse_event(Flavor::MariaDb, &header(kind), &[]), Ok(Event::Unknown(_))), "{kind}");
    }
    let ignorable = EventHeader { flags: EventHeader::IGNORABLE, ..header(99) };
    assert!(matches!(parse_event(Flavor::Mysql, &ignorable, &[]), Ok(Event::Ignorable(99))));
    for kind in [3, 5, 29, 35, 36, 37] {
        assert!(matches!(parse_event(Flavor::Mysql, &header(kind), &[]), Ok(Event::Ignorable(_))), "{kind}");
    }
}

#[test]
fn the_end_of_a_statement_without_a_table() {
    let body = [0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 2, 0, 1, 0xff];
    assert!(matches!(parse_event(Flavor::Mysql, &header(30), &body), Ok(Event::Ignorable(30))));
}

#[test]
fn row_events_of_both_versions() {
    let v1 = [7, 0, 0, 0, 0, 0, 1, 0, 1, 0xff, 0, 5];
    let v2 = [7, 0, 0, 0, 0, 0, 1, 0, 5, 0, 1, 2, 3, 1, 0xff, 0, 5];
    for (kind, body) in [(23, &v1[..]), (30, &v2[..])] {
        let Event::Rows(RowsEvent { table_id, change, width, rows, .. }) =
            parse_event(Flavor::Mysql, &header(kind), body).unwrap()
        else {
            panic!("a row event")
        };
        assert_eq!((table_id, change, width, &rows[..]), (7, RowsChange::Insert, 1, &[0, 5][..]));
    }
    assert!(parse_event(Flavor::Mysql, &header(30), &[7, 0, 0, 0, 0, 0, 1, 0, 1, 0]).is_err());
}

#[test]
fn no_input_makes_the_parser_panic() {
    // Every event of real logs, cut at every length, and with bytes changed here and there.
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for (flavor, log) in [(Flavor::Mysql, MYSQL.0), (Flavor::MariaDb, MARIADB.0)] {
        for (header, body) in flat(log) {
            for length in 0..body.len().min(400) {
                drop(parse_event(flavor, &header, &body[..length]));
            }
            for _ in 0..50 {
                let mut body = body.clone();
                for _ in 0..random() % 4 + 1 {
                    if !body.is_empty() {
                        let at = random() % body.len();
                        body[at] = random() as u8;
                    }
                }
                let header =
                    EventHeader { kind: if random() % 4 == 0 { random() as u8 } else { header.kind }, ..header };
                if let Ok(Event::TransactionPayload(payload)) = parse_event(flavor, &header, &body)
                    && let Ok(events) = payload.events()
                {
                    events.take(10_000).for_each(drop);
                }
            }
        }
    }
}
