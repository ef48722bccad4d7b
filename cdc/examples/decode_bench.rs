//! How many row changes a second one core decodes: synthetic events of an order-like table, from event bytes to record batches.
//!
//! `cargo run --release -p tidegate-cdc --example decode_bench`

#![allow(clippy::disallowed_methods, reason = "a program of its own, in the time that there is")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::mysql::binlog::{Event, EventHeader, RowDecoder, parse_event};
use tidegate_cdc::mysql::types::{MysqlColumn, MysqlTable, MysqlType};
use tidegate_cdc::rows::RowBuffer;
use tidegate_storage::paimon::{Field, TableSchema};

const EVENTS: u64 = 200;
/// About the size of the events that the server writes.
const ROWS_PER_EVENT: u64 = 100;
const ROUNDS: u32 = 60;
/// Rows after which a batch is taken.
const BATCH: usize = 50_000;

const COLUMNS: [(&str, &str); 8] = [
    ("id", "bigint unsigned"),
    ("customer", "int"),
    ("status", "enum('new','paid','shipped')"),
    ("amount", "decimal(10,2)"),
    ("quantity", "smallint"),
    ("note", "varchar(60)"),
    ("created", "datetime(6)"),
    ("updated", "timestamp"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let (table, schema) = table()?;
    let map = table_map();
    let header = |kind| EventHeader { timestamp: 0, kind, server_id: 1, size: 0, log_pos: 0, flags: 0 };
    let Event::TableMap(map) = parse_event(Flavor::Mysql, &header(19), &map)? else {
        return Err("not a table map".into());
    };
    let decoder = RowDecoder::compile(&map, &table, &schema)?;
    for (name, kind) in [("insert", 30), ("update", 31), ("delete", 32)] {
        let events: Vec<Vec<u8>> = (0..EVENTS).map(|n| rows_event(kind, n * ROWS_PER_EVENT)).collect();
        let bytes: usize = events.iter().map(Vec::len).sum();
        let mut buffer = RowBuffer::new(&schema);
        let mut changes = 0;
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            for event in &events {
                let Event::Rows(rows) = parse_event(Flavor::Mysql, &header(kind), event)? else {
                    return Err("not a row event".into());
                };
                changes += decoder.decode(&rows, &mut buffer)?;
                if buffer.len() >= BATCH {
                    black_box(buffer.take()?);
                }
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let megabytes = bytes as f64 * f64::from(ROUNDS) / 1e6;
        println!("{name}: {:.2}M changes/s, {:.0} MB/s", changes as f64 / seconds / 1e6, megabytes / seconds);
    }
    Ok(())
}

fn table() -> Result<(MysqlTable, Arc<TableSchema>), String> {
    let columns = COLUMNS.map(|(name, column_type)| MysqlColumn {
        name: name.to_owned(),
        column_type: MysqlType::parse(column_type, Some("utf8mb4"), Some("utf8mb4_0900_ai_ci")),
        nullable: name != "id",
        comment: String::new(),
        default: None,
        generated: false,
        invisible: false,
    });
    let mut fields = Vec::new();
    for (id, column) in columns.iter().enumerate() {
        fields.push(Field {
            id: i32::try_from(id).map_err(|e| e.to_string())?,
            name: column.name.clone(),
            data_type: column.column_type.data_type()?,
            nullable: column.nullable,
            description: None,
            initial_default: None,
        });
    }
    let schema = TableSchema {
        id: 0,
        fields,
        highest_field_id: 7,
        primary_keys: vec!["id".to_owned()],
        options: Default::default(),
        comment: None,
        time_millis: 0,
    };
    let table = MysqlTable {
        database: "shop".to_owned(),
        name: "orders".to_owned(),
        columns: columns.to_vec(),
        primary_key: vec!["id".to_owned()],
    };
    Ok((table, Arc::new(schema)))
}

fn table_map() -> Vec<u8> {
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0];
    for name in ["shop", "orders"] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    // Types: BIGINT, INT, ENUM, DECIMAL, SMALLINT, VARCHAR, DATETIME2, TIMESTAMP2; then what they need to know.
    let meta = [247, 1, 10, 2, 240, 0, 6, 0];
    body.push(8);
    body.extend_from_slice(&[8, 3, 254, 246, 2, 15, 18, 17]);
    body.push(meta.len() as u8);
    body.extend_from_slice(&meta);
    body.push(0xfe);
    // Signedness: only the first number is unsigned. The charset of text is utf8mb4.
    body.extend_from_slice(&[1, 1, 0x80, 2, 3, 252, 255, 0]);
    let names: Vec<u8> = COLUMNS.iter().flat_map(|(n, _)| std::iter::once(n.len() as u8).chain(n.bytes())).collect();
    body.push(4);
    body.push(names.len() as u8);
    body.extend_from_slice(&names);
    body
}

fn rows_event(kind: u8, first: u64) -> Vec<u8> {
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0xff];
    if kind == 31 {
        body.push(0xff);
    }
    for id in first..first + ROWS_PER_EVENT {
        image(&mut body, id, 1);
        if kind == 31 {
            image(&mut body, id, 2);
        }
    }
    body
}

fn image(body: &mut Vec<u8>, id: u64, status: u8) {
    // The note of every eighth order is NULL.
    let no_note = id.is_multiple_of(8);
    body.push(if no_note { 0x20 } else { 0 });
    body.extend_from_slice(&id.to_le_bytes());
    body.extend_from_slice(&(id as u32 % 10_000).to_le_bytes());
    body.push(status);
    body.extend_from_slice(&[0x80, 0, 0x12, (id % 100) as u8, 50]);
    body.extend_from_slice(&3_u16.to_le_bytes());
    if !no_note {
        let note = "please leave it at the neighbour's";
        body.push(note.len() as u8);
        body.extend_from_slice(note.as_bytes());
    }
    body.extend_from_slice(&[0x99, 0xb2, 0xba, 0xa3, 0x14, 0x01, 0xe2, 0x40]);
    body.extend_from_slice(&(1_700_000_000 + id as u32).to_be_bytes());
}
