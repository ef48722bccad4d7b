//! Binlogs recorded from real servers (`testdata/record.py`), with what the servers themselves say about the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use tidegate_storage::paimon::{DataType, Field, TableSchema};
use tidegate_storage::table::RowKind;

use super::{
    Checksum, DecodeError, Event, EventHeader, RowDecoder, TableMap, checksum_of_format_description, parse_event,
};
use crate::mysql::Flavor;
use crate::mysql::types::{MysqlColumn, MysqlTable, MysqlType};
use crate::rows::RowBuffer;

/// A file of the log, cut into events without their checksums.
pub(super) fn events(log: &[u8]) -> Vec<(EventHeader, Vec<u8>)> {
    let mut rest = log.strip_prefix(b"\xfebin").expect("a binlog begins with its magic number");
    let mut checksum = Checksum::Off;
    let mut events = Vec::new();
    while let Some(head) = rest.first_chunk() {
        let header = EventHeader::parse(head);
        assert_eq!(header.to_bytes(), *head);
        let (event, tail) = rest.split_at(header.size as usize);
        rest = tail;
        let body = &event[EventHeader::SIZE..];
        if header.kind == 15 {
            checksum = checksum_of_format_description(body).unwrap();
        }
        let cut = if header.kind == 15 || checksum == Checksum::Crc32 { 4 } else { 0 };
        events.push((header, body[..body.len() - cut].to_vec()));
    }
    events
}

/// What is under `testdata`.
pub(super) fn unpack(packed: &[u8]) -> Vec<u8> {
    zstd::decode_all(packed).unwrap()
}

/// A table and its rows, as the server gives them.
pub(super) struct Expected {
    pub(super) table: MysqlTable,
    pub(super) rows: Vec<Vec<Option<String>>>,
}

pub(super) fn expected(packed: &[u8]) -> Vec<Expected> {
    let text = String::from_utf8(unpack(packed)).unwrap();
    let mut tables: Vec<Expected> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[0] {
            "table" => {
                let (database, name) = ("tg".to_owned(), fields[1].to_owned());
                let table = MysqlTable { database, name, columns: Vec::new(), primary_key: Vec::new() };
                tables.push(Expected { table, rows: Vec::new() });
            }
            "column" => {
                let table = &mut tables.last_mut().unwrap().table;
                let name = hex(fields[1]);
                let known = |text: &'static str| move |s: &&str| *s != text;
                let charset = Some(fields[3]).filter(known("-"));
                let collation = Some(fields[4]).filter(known("-"));
                if fields[5] == "key" {
                    table.primary_key.push(name.clone());
                }
                table.columns.push(MysqlColumn {
                    column_type: MysqlType::parse(&hex(fields[2]), charset, collation),
                    nullable: fields[5] != "key",
                    name,
                    comment: String::new(),
                    default: None,
                    generated: false,
                    invisible: false,
                });
            }
            _ => {
                let expected = tables.last_mut().unwrap();
                let types = expected.table.columns.iter().map(|c| &c.column_type);
                let row =
                    fields[1..].iter().zip(types).map(|(f, t)| (*f != "-").then(|| canonical(hex(f), t)).flatten());
                expected.rows.push(row.collect());
            }
        }
    }
    tables
}

fn hex(text: &str) -> String {
    let bytes =
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    String::from_utf8(bytes.collect()).unwrap()
}

/// The server's text, in the form that [`cell`] gives.
fn canonical(text: String, column_type: &MysqlType) -> Option<String> {
    Some(match column_type {
        MysqlType::Float { .. } => format!("{:?}", text.parse::<f64>().unwrap() as f32),
        MysqlType::Double { .. } => format!("{:?}", text.parse::<f64>().unwrap()),
        MysqlType::Date | MysqlType::DateTime { .. } | MysqlType::Timestamp { .. }
            if text.starts_with("0000-00-00") || text.contains("-00-") || text.get(7..10) == Some("-00") =>
        {
            return None;
        }
        _ => text,
    })
}

/// The mirror's schema of a table.
pub(super) fn schema_of(table: &MysqlTable) -> Arc<TableSchema> {
    let fields = table.columns.iter().enumerate().map(|(i, column)| Field {
        id: i as i32,
        name: column.name.clone(),
        data_type: column.column_type.data_type().unwrap_or(DataType::String),
        nullable: !table.primary_key.contains(&column.name),
        description: None,
        initial_default: None,
    });
    Arc::new(TableSchema {
        id: 0,
        fields: fields.collect(),
        highest_field_id: table.columns.len() as i32,
        primary_keys: table.primary_key.clone(),
        options: BTreeMap::new(),
        comment: None,
        time_millis: 0,
    })
}

/// A value in the form that the server's answers were recorded in.
pub(super) fn cell(array: &ArrayRef, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        Arrow::Boolean => u8::from(array.as_boolean().value(row)).to_string(),
        Arrow::Int8 => array.as_primitive::<Int8Type>().value(row).to_string(),
        Arrow::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        Arrow::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        Arrow::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        Arrow::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        Arrow::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        Arrow::Decimal128(..) => array.as_primitive::<Decimal128Type>().value_as_string(row),
        Arrow::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        Arrow::Binary => array.as_binary::<i32>().value(row).iter().map(|b| format!("{b:02X}")).collect(),
        Arrow::Date32 => array.as_primitive::<Date32Type>().value_as_date(row).unwrap().format("%Y-%m-%d").to_string(),
        Arrow::Timestamp(..) => {
            let time = array.as_primitive::<TimestampMicrosecondType>().value_as_datetime(row).unwrap();
            time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
        }
        other => panic!("no column has type {other}"),
    })
}

/// Rows by key.
pub(super) type Rows = BTreeMap<Vec<Option<String>>, Vec<Option<String>>>;

/// Applies changes to rows by key.
pub(super) fn apply(batch: &RecordBatch, kinds: &[RowKind], schema: &TableSchema, rows: &mut Rows) {
    let keys: Vec<usize> = schema.primary_keys.iter().map(|k| batch.schema().index_of(k).unwrap()).collect();
    for (row, kind) in kinds.iter().enumerate() {
        let values: Vec<_> = batch.columns().iter().map(|c| cell(c, row)).collect();
        let key = keys.iter().map(|k| values[*k].clone()).collect();
        match kind {
            RowKind::Upsert => drop(rows.insert(key, values)),
            RowKind::Delete => assert!(rows.remove(&key).is_some(), "a deleted row was there"),
            RowKind::InsertAbsent => panic!("the log inserts no row only if it is absent"),
            RowKind::UpdateBefore => assert_eq!(rows.get(&key), Some(&values), "what was replaced was there"),
        }
    }
}

/// What the log makes of one table.
pub(super) fn replay(flavor: Flavor, log: &[(EventHeader, Vec<u8>)], table: &MysqlTable) -> Result<Rows, DecodeError> {
    let schema = schema_of(table);
    let mut buffer = RowBuffer::new(&schema);
    let mut rows = Rows::new();
    let mut current: Option<(TableMap, RowDecoder)> = None;
    for (header, body) in log {
        match parse_event(flavor, header, body)? {
            Event::TableMap(map) if map.database == table.database && map.table == table.name => {
                if current.as_ref().is_none_or(|(last, _)| !map.same_columns(last)) {
                    let decoder = RowDecoder::compile(&map, table, &schema).unwrap();
                    current = Some((map, decoder));
                } else if let Some((last, _)) = &mut current {
                    last.table_id = map.table_id;
                }
            }
            Event::Rows(event) => {
                if let Some((map, decoder)) = &current
                    && map.table_id == event.table_id
                {
                    decoder.decode(&event, &mut buffer)?;
                    let (batch, kinds) = buffer.take().unwrap();
                    apply(&batch, &kinds, &schema, &mut rows);
                }
            }
            Event::Unknown(kind) => panic!("event {kind} is not understood"),
            _ => {}
        }
    }
    Ok(rows)
}
