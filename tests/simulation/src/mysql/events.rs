//! Events of a binlog in the bytes that servers write.

use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::mysql::binlog::{EventHeader, Xid};
use tidegate_cdc::mysql::types::{MysqlTable, MysqlType};
use uuid::Uuid;

use super::table::{Change, Row, Value};

/// The kinds of events.
pub(super) mod kind {
    pub(crate) const QUERY: u8 = 2;
    pub(crate) const ROTATE: u8 = 4;
    pub(crate) const FORMAT_DESCRIPTION: u8 = 15;
    pub(crate) const XID: u8 = 16;
    pub(crate) const TABLE_MAP: u8 = 19;
    pub(crate) const HEARTBEAT: u8 = 27;
    pub(crate) const GTID: u8 = 33;
    pub(crate) const ANONYMOUS_GTID: u8 = 34;
    pub(crate) const XA_PREPARE: u8 = 38;
    pub(crate) const MARIA_GTID: u8 = 162;
}

/// The checksum behind each event.
const CHECKSUM: usize = 4;

/// A kind and a body; the header depends on where in the file the event comes to lie.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) kind: u8,
    pub(super) bytes: Vec<u8>,
}

impl Body {
    fn new(kind: u8, bytes: Vec<u8>) -> Self {
        Self { kind, bytes }
    }

    /// The size of the event with header and checksum.
    pub(super) fn size(&self) -> u64 {
        (EventHeader::SIZE + self.bytes.len() + CHECKSUM) as u64
    }

    /// The event whose end lies at `end` in its file; 0 for one that is in no file.
    pub(super) fn event(&self, timestamp: u32, server_id: u32, end: u64, flags: u16) -> Vec<u8> {
        let header =
            EventHeader { timestamp, kind: self.kind, server_id, size: self.size() as u32, log_pos: end as u32, flags };
        let mut event = header.to_bytes().to_vec();
        event.extend_from_slice(&self.bytes);
        event.extend_from_slice(&crc32fast::hash(&event).to_le_bytes());
        event
    }
}

pub(super) fn format_description(version: &str) -> Body {
    let mut bytes = vec![4, 0];
    let mut name = version.as_bytes().to_vec();
    name.resize(50, 0);
    bytes.extend_from_slice(&name);
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(EventHeader::SIZE as u8);
    // The sizes of the fixed parts of the kinds of events, as MySQL 8 lists them.
    bytes.extend_from_slice(&[
        0, 13, 0, 8, 0, 0, 0, 4, 0, 4, 0, 0, 0, 98, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0, 10, 10, 10, 42, 42, 0,
        18, 52, 0, 10, 40, 0,
    ]);
    // CRC-32.
    bytes.push(1);
    Body::new(kind::FORMAT_DESCRIPTION, bytes)
}

pub(super) fn rotate(file: &str, offset: u64) -> Body {
    let mut bytes = offset.to_le_bytes().to_vec();
    bytes.extend_from_slice(file.as_bytes());
    Body::new(kind::ROTATE, bytes)
}

pub(super) fn heartbeat(file: &str) -> Body {
    Body::new(kind::HEARTBEAT, file.as_bytes().to_vec())
}

/// How a transaction begins in the log of a server.
#[derive(Debug, Clone)]
pub(super) struct Begin<'a> {
    pub(super) flavor: Flavor,
    pub(super) gtid: bool,
    pub(super) uuid: Uuid,
    pub(super) number: u64,
    /// One event follows, without an end of its own.
    pub(super) standalone: bool,
    pub(super) ddl: bool,
    pub(super) prepares: Option<&'a Xid>,
    pub(super) completes: Option<&'a Xid>,
}

pub(super) fn begin(begin: &Begin<'_>) -> Body {
    match begin.flavor {
        Flavor::Mysql => {
            let mut bytes = vec![1];
            bytes.extend_from_slice(if begin.gtid { begin.uuid.as_bytes() } else { &[0; 16] });
            bytes.extend_from_slice(&(if begin.gtid { begin.number } else { 0 }).to_le_bytes());
            // The logical timestamps of parallel replay.
            bytes.push(2);
            bytes.extend_from_slice(&(begin.number - 1).to_le_bytes());
            bytes.extend_from_slice(&begin.number.to_le_bytes());
            Body::new(if begin.gtid { kind::GTID } else { kind::ANONYMOUS_GTID }, bytes)
        }
        Flavor::MariaDb => {
            let mut bytes = begin.number.to_le_bytes().to_vec();
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            let bit = |set: bool, bit: u8| if set { bit } else { 0 };
            bytes.push(
                bit(begin.standalone, 1)
                    | bit(begin.ddl, 32)
                    | bit(begin.prepares.is_some(), 64)
                    | bit(begin.completes.is_some(), 128),
            );
            match begin.prepares.or(begin.completes) {
                Some(xid) => {
                    bytes.extend_from_slice(&xid.format.to_le_bytes());
                    bytes.extend_from_slice(&[xid.global.len() as u8, xid.branch.len() as u8]);
                    bytes.extend_from_slice(&xid.global);
                    bytes.extend_from_slice(&xid.branch);
                }
                None => bytes.extend_from_slice(&[0; 6]),
            }
            Body::new(kind::MARIA_GTID, bytes)
        }
    }
}

pub(super) fn query(database: &str, sql: &str) -> Body {
    let mut bytes = vec![0; 8];
    bytes.push(database.len() as u8);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(database.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(sql.as_bytes());
    Body::new(kind::QUERY, bytes)
}

pub(super) fn commit(number: u64) -> Body {
    Body::new(kind::XID, number.to_le_bytes().to_vec())
}

pub(super) fn xa_prepare(xid: &Xid) -> Body {
    let mut bytes = vec![0];
    for number in [xid.format, xid.global.len() as u32, xid.branch.len() as u32] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&xid.global);
    bytes.extend_from_slice(&xid.branch);
    Body::new(kind::XA_PREPARE, bytes)
}

/// The number of a column's type in the log, and the metadata of it.
fn logged_type(column_type: &MysqlType) -> (u8, Vec<u8>) {
    match column_type {
        MysqlType::Int { .. } => (3, Vec::new()),
        MysqlType::BigInt { .. } => (8, Vec::new()),
        MysqlType::Varchar { length, .. } => (15, ((length * 4) as u16).to_le_bytes().to_vec()),
        other => unreachable!("the model has no columns of type {other}"),
    }
}

pub(super) fn table_map(table_id: u64, table: &MysqlTable) -> Body {
    let columns = &table.columns;
    let mut bytes = table_id.to_le_bytes()[..6].to_vec();
    bytes.extend_from_slice(&[1, 0]);
    for name in [&table.database, &table.name] {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    let types: Vec<_> = columns.iter().map(|column| logged_type(&column.column_type)).collect();
    bytes.push(columns.len() as u8);
    bytes.extend(types.iter().map(|(number, _)| *number));
    let metadata: Vec<u8> = types.iter().flat_map(|(_, metadata)| metadata.clone()).collect();
    bytes.push(metadata.len() as u8);
    bytes.extend_from_slice(&metadata);
    bytes.extend_from_slice(&bitmap(columns.iter().map(|column| column.nullable)));
    // Signedness: all numbers are signed. The default charset of text, utf8mb4_general_ci. The names.
    let numbers = types.iter().filter(|(number, _)| *number != 15).count();
    bytes.push(1);
    bytes.push(numbers.div_ceil(8) as u8);
    bytes.extend(std::iter::repeat_n(0, numbers.div_ceil(8)));
    bytes.extend_from_slice(&[2, 1, 45]);
    let names: Vec<u8> = columns
        .iter()
        .flat_map(|column| [vec![column.name.len() as u8], column.name.as_bytes().to_vec()].concat())
        .collect();
    bytes.push(4);
    bytes.push(names.len() as u8);
    bytes.extend_from_slice(&names);
    Body::new(kind::TABLE_MAP, bytes)
}

fn bitmap(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, bit) in bits.enumerate() {
        if index % 8 == 0 {
            bytes.push(0);
        }
        if bit && let Some(last) = bytes.last_mut() {
            *last |= 1 << (index % 8);
        }
    }
    bytes
}

/// A row event of changes of one kind.
pub(super) fn rows(flavor: Flavor, table_id: u64, table: &MysqlTable, changes: &[&Change], ends: bool) -> Body {
    // MySQL writes version 2, MariaDB version 1.
    let first = if flavor == Flavor::Mysql { 30 } else { 23 };
    let number = match changes.first() {
        Some(Change::Insert(_)) | None => first,
        Some(Change::Update(..)) => first + 1,
        Some(Change::Delete(_)) => first + 2,
    };
    let mut bytes = table_id.to_le_bytes()[..6].to_vec();
    bytes.extend_from_slice(&u16::from(ends).to_le_bytes());
    if flavor == Flavor::Mysql {
        bytes.extend_from_slice(&[2, 0]);
    }
    let width = table.columns.len();
    bytes.push(width as u8);
    let all = vec![0xff; width.div_ceil(8)];
    bytes.extend_from_slice(&all);
    if number == first + 1 {
        bytes.extend_from_slice(&all);
    }
    for change in changes {
        match change {
            Change::Insert(row) | Change::Delete(row) => image(&mut bytes, table, row),
            Change::Update(old, new) => {
                image(&mut bytes, table, old);
                image(&mut bytes, table, new);
            }
        }
    }
    Body::new(number, bytes)
}

fn image(bytes: &mut Vec<u8>, table: &MysqlTable, row: &Row) {
    bytes.extend_from_slice(&bitmap(row.iter().map(|value| *value == Value::Null)));
    for (value, column) in row.iter().zip(&table.columns) {
        match (value, &column.column_type) {
            (Value::Null, _) => {}
            (Value::Int(value), MysqlType::Int { .. }) => bytes.extend_from_slice(&(*value as i32).to_le_bytes()),
            (Value::Int(value), MysqlType::BigInt { .. }) => bytes.extend_from_slice(&value.to_le_bytes()),
            (Value::Text(text), MysqlType::Varchar { length, .. }) => {
                let size = text.len() as u16;
                let width = if length * 4 < 256 { 1 } else { 2 };
                bytes.extend_from_slice(&size.to_le_bytes()[..width]);
                bytes.extend_from_slice(text.as_bytes());
            }
            (value, column_type) => unreachable!("{value:?} in a column of type {column_type}"),
        }
    }
}
