use super::super::recorded::{events, expected, replay, unpack};
use crate::mysql::Flavor;

const MYSQL: (&[u8], &[u8]) =
    (include_bytes!("../testdata/mysql.binlog.zst"), include_bytes!("../testdata/mysql.tables.zst"));
const MARIADB: (&[u8], &[u8]) =
    (include_bytes!("../testdata/mariadb.binlog.zst"), include_bytes!("../testdata/mariadb.tables.zst"));

fn the_log_gives_what_the_server_has(flavor: Flavor, (log, tables): (&[u8], &[u8])) {
    let log = events(&unpack(log));
    let mut wrong = Vec::new();
    for expected in expected(tables) {
        let rows = replay(flavor, &log, &expected.table).unwrap();
        let key: Vec<usize> =
            expected.table.primary_key.iter().map(|k| expected.table.column_index(k).unwrap()).collect();
        assert_eq!(rows.len(), expected.rows.len(), "{}", expected.table.name);
        for row in &expected.rows {
            let Some(mine) = rows.get(&key.iter().map(|k| row[*k].clone()).collect::<Vec<_>>()) else {
                wrong.push(format!("{}: no row {row:?}", expected.table.name));
                continue;
            };
            for ((column, mine), theirs) in expected.table.columns.iter().zip(mine).zip(row) {
                if mine != theirs {
                    wrong.push(format!("{}.{}: {mine:?} should be {theirs:?}", expected.table.name, column.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mysql_values_are_those_of_a_select() {
    the_log_gives_what_the_server_has(Flavor::Mysql, MYSQL);
}

#[test]
fn mariadb_values_are_those_of_a_select() {
    the_log_gives_what_the_server_has(Flavor::MariaDb, MARIADB);
}

mod synthetic {
    use std::sync::Arc;

    use tidegate_storage::paimon::{CHANGELOG_INPUT, CHANGELOG_PRODUCER, DataType, TableSchema};
    use tidegate_storage::table::RowKind;

    use super::super::super::recorded::{cell, schema_of};
    use super::super::super::rows_event::{RowsChange, RowsEvent};
    use super::super::*;
    use crate::mysql::types::MysqlColumn;

    fn column(name: &str, column_type: &str) -> MysqlColumn {
        MysqlColumn {
            name: name.to_owned(),
            column_type: MysqlType::parse(column_type, Some("utf8mb4"), Some("utf8mb4_bin")),
            nullable: name != "id",
            comment: String::new(),
            default: None,
            generated: false,
            invisible: false,
        }
    }

    /// `id INT` and `v`, as a definition says and as a table map does.
    fn table(v: &str) -> (MysqlTable, Arc<TableSchema>) {
        let columns = vec![column("id", "int"), column("v", v)];
        let primary_key = vec!["id".to_owned()];
        let table = MysqlTable { database: "d".to_owned(), name: "t".to_owned(), columns, primary_key };
        let schema = schema_of(&table);
        (table, schema)
    }

    fn map(kind: u8, meta: &[u8], optional: &[u8]) -> TableMap {
        let mut definition = vec![2, 3, kind, meta.len() as u8];
        definition.extend_from_slice(meta);
        definition.push(2);
        definition.extend_from_slice(optional);
        TableMap { table_id: 1, database: "d".to_owned(), table: "t".to_owned(), definition }
    }

    const NAMES: [u8; 7] = [4, 5, 2, b'i', b'd', 1, b'v'];

    fn event(change: RowsChange, rows: &[u8]) -> RowsEvent<'_> {
        RowsEvent { table_id: 1, flags: 0, change, width: 2, present: &[3], present_after: &[3], rows: rows.into() }
    }

    fn compile(v: &str, kind: u8, meta: &[u8], optional: &[u8]) -> Result<RowDecoder, Mismatch> {
        let (table, schema) = table(v);
        RowDecoder::compile(&map(kind, meta, &[&NAMES[..], optional].concat()), &table, &schema)
    }

    #[test]
    fn another_definition_is_a_mismatch() {
        assert!(compile("varchar(10)", 15, &[40, 0], &[]).is_ok());
        assert!(matches!(compile("int", 15, &[40, 0], &[]), Err(Mismatch::Type { .. })));
        assert!(matches!(compile("int unsigned", 3, &[], &[1, 1, 0x00]), Err(Mismatch::Type { .. })));
        assert!(compile("int unsigned", 3, &[], &[1, 1, 0x40]).is_ok());
        assert!(matches!(compile("decimal(10,2)", 246, &[10, 3], &[]), Err(Mismatch::Type { .. })));
        assert!(matches!(compile("datetime(3)", 18, &[0], &[]), Err(Mismatch::Type { .. })));
        assert!(matches!(compile("longtext", 252, &[2], &[]), Err(Mismatch::Type { .. })));
        assert!(compile("binary(4)", 254, &[254, 4], &[]).is_ok());
        assert!(matches!(compile("binary(4)", 254, &[254, 8], &[]), Err(Mismatch::Type { .. })));
        // latin1 in the log, utf8mb4 in the definition.
        assert!(matches!(compile("varchar(10)", 15, &[40, 0], &[2, 1, 8]), Err(Mismatch::Type { .. })));
        // Other labels, and another number of them. The charset of labels is utf8mb4.
        let labels = |labels: &[u8]| compile("enum('a','b')", 254, &[247, 1], &[&[10, 1, 45][..], labels].concat());
        assert!(labels(&[6, 5, 2, 1, b'a', 1, b'b']).is_ok());
        assert!(matches!(labels(&[6, 5, 2, 1, b'b', 1, b'a']), Err(Mismatch::Type { .. })));
        assert!(matches!(labels(&[6, 3, 1, 1, b'a']), Err(Mismatch::Type { .. })));

        let (table, schema) = table("int");
        let without_names = map(3, &[], &[]);
        assert_eq!(RowDecoder::compile(&without_names, &table, &schema).unwrap_err(), Mismatch::NoColumnNames);
        let renamed = map(3, &[], &[4, 5, 2, b'i', b'd', 1, b'w']);
        assert!(matches!(
            RowDecoder::compile(&renamed, &table, &schema).unwrap_err(),
            Mismatch::Name { position: 2, .. }
        ));
        let mut wider = table.clone();
        wider.columns.push(column("z", "int"));
        let fits = map(3, &[], &NAMES);
        assert_eq!(
            RowDecoder::compile(&fits, &wider, &schema_of(&wider)).unwrap_err(),
            Mismatch::ColumnCount { event: 2, table: 3 }
        );
        let mut other = (*schema).clone();
        other.fields[1].data_type = DataType::String;
        assert!(matches!(RowDecoder::compile(&fits, &table, &other).unwrap_err(), Mismatch::Target { .. }));
        other.fields[1].name = "gone".to_owned();
        assert!(matches!(RowDecoder::compile(&fits, &table, &other).unwrap_err(), Mismatch::Target { .. }));
    }

    #[test]
    fn a_charset_that_is_not_known_names_the_column() {
        let (mut table, schema) = table("varchar(10)");
        let MysqlType::Varchar { text, .. } = &mut table.columns[1].column_type else { panic!("a varchar") };
        text.charset = "klingon".to_owned();
        let fits = map(15, &[40, 0], &NAMES);
        let error = RowDecoder::compile(&fits, &table, &schema).unwrap_err();
        assert_eq!(error.to_string(), "column v: character set klingon is not supported");
    }

    #[test]
    fn columns_that_the_mirror_does_not_have_are_passed_over() {
        let (mut table, mut schema) = table("int");
        table.columns[1].column_type = MysqlType::Other("point".to_owned());
        Arc::make_mut(&mut schema).fields.truncate(1);
        let decoder = RowDecoder::compile(&map(255, &[4], &NAMES), &table, &schema).unwrap();
        let mut out = RowBuffer::new(&schema);
        let rows = [0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 9, 2, 2, 0, 0, 0];
        assert_eq!(decoder.decode(&event(RowsChange::Insert, &rows), &mut out), Ok(2));
        assert_eq!(out.take().unwrap().0.num_rows(), 2);
    }

    #[test]
    fn an_update_of_the_key_deletes_the_old_one_first() {
        let (_, schema) = table("int");
        let decoder = compile("int", 3, &[], &[]).unwrap();
        let mut out = RowBuffer::new(&schema);
        let rows =
            [&[0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0][..], &[2, 2, 0, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0]]
                .concat();
        assert_eq!(decoder.decode(&event(RowsChange::Update, &rows), &mut out), Ok(2));
        let (batch, kinds) = out.take().unwrap();
        assert_eq!(kinds, [RowKind::Upsert, RowKind::Delete, RowKind::Upsert]);
        let ids = format!("{:?}", batch.column(0));
        assert!(ids.contains("1,\n  2,\n  3,\n"), "{ids}");
    }

    #[test]
    fn a_changelog_gets_what_an_update_replaces() {
        let (table, mut schema) = table("int");
        let options = &mut Arc::make_mut(&mut schema).options;
        options.insert(CHANGELOG_PRODUCER.to_owned(), CHANGELOG_INPUT.to_owned());
        let decoder = RowDecoder::compile(&map(3, &[], &NAMES), &table, &schema).unwrap();
        let mut out = RowBuffer::new(&schema);
        let rows = [
            &[0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0][..],
            &[0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0],
        ];
        assert_eq!(decoder.decode(&event(RowsChange::Update, &rows.concat()), &mut out), Ok(2));
        let (batch, kinds) = out.take().unwrap();
        assert_eq!(kinds, [RowKind::UpdateBefore, RowKind::Upsert, RowKind::Delete, RowKind::Upsert]);
        let values = format!("{:?}", batch.columns());
        assert!(values.contains("1,\n  1,\n  2,\n  3,\n") && values.contains("5,\n  6,\n  8,\n  8,\n"), "{values}");
    }

    #[test]
    fn images_that_are_not_whole() {
        let (_, schema) = table("int");
        let decoder = compile("int", 3, &[], &[]).unwrap();
        let mut out = RowBuffer::new(&schema);
        let whole = event(RowsChange::Insert, &[]);
        let minimal = RowsEvent { present: &[1], ..whole.clone() };
        assert_eq!(decoder.decode(&minimal, &mut out), Err(DecodeError::MinimalImage));
        let after = RowsEvent { present_after: &[2], change: RowsChange::Update, ..whole.clone() };
        assert_eq!(decoder.decode(&after, &mut out), Err(DecodeError::MinimalImage));
        let partial = RowsEvent { change: RowsChange::PartialUpdate, ..whole.clone() };
        assert_eq!(decoder.decode(&partial, &mut out), Err(DecodeError::PartialJson));
        let wider = RowsEvent { width: 3, ..whole };
        assert!(matches!(decoder.decode(&wider, &mut out), Err(DecodeError::WrongTable(_))));
    }

    #[test]
    fn a_null_key_names_its_column() {
        let (mut table, schema) = table("date");
        table.primary_key = vec!["v".to_owned()];
        let mut schema = (*schema).clone();
        schema.fields[1].nullable = false;
        let schema = Arc::new(schema);
        let decoder = RowDecoder::compile(&map(10, &[], &NAMES), &table, &schema).unwrap();
        let mut out = RowBuffer::new(&schema);
        let zero_date = [0, 1, 0, 0, 0, 0, 0, 0];
        let key = DecodeError::NullKey { column: "v".to_owned() };
        assert_eq!(decoder.decode(&event(RowsChange::Insert, &zero_date), &mut out), Err(key));
        assert!(out.is_empty());
    }

    #[test]
    fn old_forms_of_times() {
        let read = |v: &str, kind, value: &[u8]| {
            let (_, schema) = table(v);
            let decoder = compile(v, kind, &[], &[]).unwrap();
            let mut out = RowBuffer::new(&schema);
            let row = [&[0, 1, 0, 0, 0][..], value].concat();
            decoder.decode(&event(RowsChange::Insert, &row), &mut out).unwrap();
            let (batch, _) = out.take().unwrap();
            cell(batch.column(1), 0)
        };
        assert_eq!(read("time", 11, &(-8_385_959_i32).to_le_bytes()[..3]).unwrap(), "-838:59:59");
        assert_eq!(read("datetime", 12, &20_240_229_123_456_u64.to_le_bytes()).unwrap(), "2024-02-29 12:34:56.000000");
        assert_eq!(read("datetime", 12, &u64::MAX.to_le_bytes()), None);
        assert_eq!(read("datetime", 12, &0_u64.to_le_bytes()), None);
        assert_eq!(read("timestamp", 7, &1_u32.to_le_bytes()).unwrap(), "1970-01-01 00:00:01.000000");
    }
}

mod damage {
    use super::super::super::recorded::schema_of;
    use super::super::super::{Event, parse_event};
    use super::super::*;
    use super::*;

    /// Decodes every row event of real logs with bytes cut off or changed. Whatever comes out, the buffer stays in order.
    #[test]
    fn no_row_image_makes_the_decoder_panic() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut failures = 0;
        for (flavor, (log, tables)) in [(Flavor::Mysql, MYSQL), (Flavor::MariaDb, MARIADB)] {
            let log = events(&unpack(log));
            for expected in expected(tables) {
                let schema = schema_of(&expected.table);
                let mut out = RowBuffer::new(&schema);
                let mut decoder = None;
                for (header, body) in &log {
                    for round in 0..80 {
                        let mut body = body.clone();
                        if round > 0 {
                            for _ in 0..random() % 3 + 1 {
                                let at = random() % body.len().max(1);
                                if let Some(byte) = body.get_mut(at) {
                                    *byte = random() as u8;
                                }
                            }
                            body.truncate(if round % 2 == 0 { body.len() } else { random() % (body.len() + 1) });
                        }
                        match parse_event(flavor, header, &body) {
                            Ok(Event::TableMap(map)) => {
                                let compiled = RowDecoder::compile(&map, &expected.table, &schema);
                                if round == 0 && map.table == expected.table.name {
                                    decoder = Some(compiled.unwrap());
                                }
                            }
                            Ok(Event::Rows(event)) => {
                                if let Some(decoder) = &decoder {
                                    failures += usize::from(decoder.decode(&event, &mut out).is_err());
                                    out.take().unwrap();
                                }
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        assert!(failures > 100, "{failures}");
    }
}
