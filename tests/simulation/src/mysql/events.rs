//! Events of a binlog in the bytes that servers write: those of MySQL 9.7 and MariaDB 10.11, as they are compared with real
//! ones in `tests/model.rs`.

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
    pub(crate) const PREVIOUS_GTIDS: u8 = 35;
    pub(crate) const XA_PREPARE: u8 = 38;
    pub(crate) const MARIA_CHECKPOINT: u8 = 161;
    pub(crate) const MARIA_GTID: u8 = 162;
    pub(crate) const MARIA_GTID_LIST: u8 = 163;
}

/// The checksum behind each event.
const CHECKSUM: usize = 4;
/// A flag of the header: the statement does not depend on the current database.
const SUPPRESS_USE: u16 = 0x8;
/// A flag of the header: a server that does not know the event may pass over it.
const IGNORABLE: u16 = 0x80;

/// A kind, flags and a body; the rest of the header depends on where in the file the event comes to lie.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) kind: u8,
    pub(super) flags: u16,
    pub(super) bytes: Vec<u8>,
}

impl Body {
    fn new(kind: u8, bytes: Vec<u8>) -> Self {
        Self { kind, flags: 0, bytes }
    }

    fn flagged(self, flags: u16) -> Self {
        Self { flags, ..self }
    }

    /// The size of the event with header and checksum.
    pub(super) fn size(&self) -> u64 {
        (EventHeader::SIZE + self.bytes.len() + CHECKSUM) as u64
    }

    /// The event whose end lies at `end` in its file; 0 for one that is in no file.
    pub(super) fn event(&self, timestamp: u32, server_id: u32, end: u64, flags: u16) -> Vec<u8> {
        let header = EventHeader {
            timestamp,
            kind: self.kind,
            server_id,
            size: self.size() as u32,
            log_pos: end as u32,
            flags: self.flags | flags,
        };
        let mut event = header.to_bytes().to_vec();
        event.extend_from_slice(&self.bytes);
        event.extend_from_slice(&crc32fast::hash(&event).to_le_bytes());
        event
    }
}

/// The sizes of the fixed parts of the kinds of events, from the first kind on.
const MYSQL_SIZES: [u8; 42] = [
    0, 13, 0, 8, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 99, 0, 4, 26, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 10, 10, 42, 42, 0,
    18, 52, 0, 10, 40, 0, 0,
];
/// Those of MariaDB: MySQL's first, its own last, and nothing in between.
const MARIADB_FIRST_SIZES: [u8; 41] = [
    56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 228, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0, 10, 10, 10, 0, 0, 0,
    0, 0, 0, 10, 10, 10,
];
const MARIADB_LAST_SIZES: [u8; 11] = [4, 19, 4, 0, 13, 8, 8, 8, 10, 10, 10];
const MARIADB_KINDS: usize = 171;

pub(super) fn format_description(flavor: Flavor, version: &str, timestamp: u32) -> Body {
    let mut bytes = vec![4, 0];
    let mut name = version.as_bytes().to_vec();
    name.resize(50, 0);
    bytes.extend_from_slice(&name);
    bytes.extend_from_slice(&timestamp.to_le_bytes());
    bytes.push(EventHeader::SIZE as u8);
    match flavor {
        Flavor::Mysql => bytes.extend_from_slice(&MYSQL_SIZES),
        Flavor::MariaDb => {
            bytes.extend_from_slice(&MARIADB_FIRST_SIZES);
            bytes.resize(bytes.len() + MARIADB_KINDS - MARIADB_FIRST_SIZES.len() - MARIADB_LAST_SIZES.len(), 0);
            bytes.extend_from_slice(&MARIADB_LAST_SIZES);
        }
    }
    // CRC-32.
    bytes.push(1);
    Body::new(kind::FORMAT_DESCRIPTION, bytes)
}

/// What was executed before a file of MySQL: servers with the numbers of their transactions, up to the given one.
pub(super) fn previous_gtids(sets: &[(Uuid, u64)]) -> Body {
    let mut bytes = (sets.len() as u64).to_le_bytes().to_vec();
    for (uuid, last) in sets {
        bytes.extend_from_slice(uuid.as_bytes());
        for number in [1, 1, last + 1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    Body::new(kind::PREVIOUS_GTIDS, bytes).flagged(IGNORABLE)
}

/// The last transaction before a file of MariaDB, if there is one: its server and its sequence number.
pub(super) fn gtid_list(last: Option<(u32, u64)>) -> Body {
    let mut bytes = u32::from(last.is_some()).to_le_bytes().to_vec();
    if let Some((server, sequence)) = last {
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        bytes.extend_from_slice(&server.to_le_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
    } else {
        // MariaDB gives the event a size that other events do not go below.
        bytes.extend_from_slice(&[0, 0]);
    }
    Body::new(kind::MARIA_GTID_LIST, bytes)
}

/// The file from which on a crashed server looks for transactions that its engines have not committed.
pub(super) fn binlog_checkpoint(file: &str) -> Body {
    let mut bytes = (file.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(file.as_bytes());
    Body::new(kind::MARIA_CHECKPOINT, bytes)
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
    pub(super) timestamp: u32,
    /// One event follows, without an end of its own.
    pub(super) standalone: bool,
    pub(super) ddl: bool,
    pub(super) prepares: Option<&'a Xid>,
    pub(super) completes: Option<&'a Xid>,
}

/// The version as events have it.
const MYSQL_VERSION: u32 = 90_704;

/// The event that opens a transaction of `rest`.
pub(super) fn begin(begin: &Begin<'_>, rest: &[Body]) -> Body {
    match begin.flavor {
        Flavor::Mysql => {
            // Whether there may be statements in it rather than rows.
            let mut bytes = vec![u8::from(begin.standalone)];
            bytes.extend_from_slice(if begin.gtid { begin.uuid.as_bytes() } else { &[0; 16] });
            bytes.extend_from_slice(&(if begin.gtid { begin.number } else { 0 }).to_le_bytes());
            // The logical timestamps of parallel replay.
            bytes.push(2);
            bytes.extend_from_slice(&(begin.number - 1).to_le_bytes());
            bytes.extend_from_slice(&begin.number.to_le_bytes());
            // When it was committed, in microseconds: 55 bits.
            bytes.extend_from_slice(&(u64::from(begin.timestamp) * 1_000_000).to_le_bytes()[..7]);
            let others = rest.iter().map(Body::size).sum::<u64>();
            let length =
                |own: u64| (EventHeader::SIZE + bytes.len() + size_of::<u32>() + CHECKSUM) as u64 + own + others;
            let length = match (length(1), length(3)) {
                (short @ ..=250, _) => vec![short as u8],
                (_, long @ ..=0xffff) => [vec![0xfc], (long as u16).to_le_bytes().to_vec()].concat(),
                _ => [vec![0xfd], (length(4) as u32).to_le_bytes()[..3].to_vec()].concat(),
            };
            bytes.extend_from_slice(&length);
            bytes.extend_from_slice(&MYSQL_VERSION.to_le_bytes());
            Body::new(if begin.gtid { kind::GTID } else { kind::ANONYMOUS_GTID }, bytes)
        }
        Flavor::MariaDb => {
            const STANDALONE: u8 = 1;
            const TRANSACTIONAL: u8 = 4;
            const ALLOW_PARALLEL: u8 = 8;
            const DDL: u8 = 32;
            const PREPARED_XA: u8 = 64;
            const COMPLETED_XA: u8 = 128;
            let mut bytes = begin.number.to_le_bytes().to_vec();
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            let bit = |set: bool, bit: u8| if set { bit } else { 0 };
            bytes.push(
                ALLOW_PARALLEL
                    | bit(begin.standalone, STANDALONE)
                    | bit(!begin.ddl, TRANSACTIONAL)
                    | bit(begin.ddl, DDL)
                    | bit(begin.prepares.is_some(), PREPARED_XA)
                    | bit(begin.completes.is_some(), COMPLETED_XA),
            );
            match begin.prepares.or(begin.completes) {
                Some(xid) => {
                    bytes.extend_from_slice(&xid.format.to_le_bytes());
                    bytes.extend_from_slice(&[xid.global.len() as u8, xid.branch.len() as u8]);
                    bytes.extend_from_slice(&xid.global);
                    bytes.extend_from_slice(&xid.branch);
                    if begin.prepares.is_some() {
                        // More flags: several engines, of which nobody knows how many.
                        bytes.extend_from_slice(&[1, 0xff]);
                    }
                }
                None => bytes.extend_from_slice(&[0; 6]),
            }
            Body::new(kind::MARIA_GTID, bytes).flagged(SUPPRESS_USE)
        }
    }
}

/// What kind of statement stands in a query event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    /// BEGIN, SAVEPOINT, the statements of XA.
    Control,
    /// The same, logged on behalf of an UPDATE.
    ControlOfUpdate,
    /// A schema change.
    Schema,
    /// TRUNCATE TABLE.
    Truncate,
}

/// A statement; `number` is that of its transaction.
pub(super) fn query(flavor: Flavor, statement: Statement, database: &str, sql: &str, number: u64) -> Body {
    // The session's options, the modes, the catalog, the character sets.
    let mut status = vec![0];
    status.extend_from_slice(match flavor {
        Flavor::Mysql => &[0, 0, 0, 0, 1, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0],
        Flavor::MariaDb => &[0, 0, 0, 1, 1, 0, 0, 0x20, 0x54, 0, 0, 0, 0],
    });
    status.extend_from_slice(&[6, 3]);
    status.extend_from_slice(b"std");
    status.extend_from_slice(&[4, 45, 0, 45, 0]);
    let server_collation: u16 = if flavor == Flavor::Mysql { 255 } else { 8 };
    status.extend_from_slice(&server_collation.to_le_bytes());
    match (flavor, statement) {
        (Flavor::Mysql, Statement::Control) => status.extend_from_slice(&[18, 255, 0]),
        // Which of its tables it updates.
        (Flavor::Mysql, Statement::ControlOfUpdate) => {
            status.extend_from_slice(&[9, 1, 0, 0, 0, 0, 0, 0, 0, 18, 255, 0]);
        }
        (Flavor::Mysql, Statement::Schema | Statement::Truncate) => {
            // The databases that it changes, its number in the data dictionary, whether tables need a key.
            if statement == Statement::Schema {
                status.extend_from_slice(&[12, 1]);
                status.extend_from_slice(database.as_bytes());
                status.push(0);
            }
            status.push(17);
            status.extend_from_slice(&number.to_le_bytes());
            status.extend_from_slice(&[18, 255, 0]);
            if statement == Statement::Schema {
                status.extend_from_slice(&[19, 0]);
            }
        }
        (Flavor::MariaDb, _) if statement != Statement::Schema => {}
        (Flavor::MariaDb, _) => {
            status.push(129);
            status.extend_from_slice(&number.to_le_bytes());
        }
    }
    let mut bytes = vec![0; 8];
    bytes.push(database.len() as u8);
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&(status.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&status);
    bytes.extend_from_slice(database.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(sql.as_bytes());
    Body::new(kind::QUERY, bytes).flagged(match statement {
        Statement::Control | Statement::ControlOfUpdate => SUPPRESS_USE,
        Statement::Schema | Statement::Truncate => 0,
    })
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

pub(super) fn table_map(flavor: Flavor, table_id: u64, table: &MysqlTable) -> Body {
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
    // Signedness: all numbers are signed. The default charset of text, utf8mb4_general_ci. The names. The key. On MySQL,
    // that all are visible, from the highest bit on.
    let numbers = types.iter().filter(|(number, _)| *number != 15).count();
    bytes.push(1);
    bytes.push(numbers.div_ceil(8) as u8);
    bytes.extend(std::iter::repeat_n(0, numbers.div_ceil(8)));
    if numbers < columns.len() {
        bytes.extend_from_slice(&[2, 1, 45]);
    }
    let names: Vec<u8> = columns
        .iter()
        .flat_map(|column| [vec![column.name.len() as u8], column.name.as_bytes().to_vec()].concat())
        .collect();
    bytes.push(4);
    bytes.push(names.len() as u8);
    bytes.extend_from_slice(&names);
    bytes.extend_from_slice(&[8, 1, 0]);
    if flavor == Flavor::Mysql {
        bytes.push(12);
        bytes.push(columns.len().div_ceil(8) as u8);
        bytes.extend(bitmap(columns.iter().map(|_| true)).into_iter().map(u8::reverse_bits));
    }
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

/// The bits of the last byte of a bitmap that stand for no column.
fn unused(columns: usize) -> u8 {
    if columns.is_multiple_of(8) { 0 } else { 0xff << (columns % 8) }
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
    // The end of the statement, and on MySQL 9 that foreign keys are carried out above the engine.
    let flags = u16::from(ends) | if flavor == Flavor::Mysql { 0x10 } else { 0 };
    bytes.extend_from_slice(&flags.to_le_bytes());
    if flavor == Flavor::Mysql {
        bytes.extend_from_slice(&[2, 0]);
    }
    let width = table.columns.len();
    bytes.push(width as u8);
    // All columns are there. Of the bits without a column MySQL sets those that say so, MariaDB those of NULLs.
    let mut all = vec![0xff; width.div_ceil(8)];
    if let (Flavor::MariaDb, Some(last)) = (flavor, all.last_mut()) {
        *last ^= unused(width);
    }
    bytes.extend_from_slice(&all);
    if number == first + 1 {
        bytes.extend_from_slice(&all);
    }
    for change in changes {
        match change {
            Change::Insert(row) | Change::Delete(row) => image(flavor, &mut bytes, table, row),
            Change::Update(old, new) => {
                image(flavor, &mut bytes, table, old);
                image(flavor, &mut bytes, table, new);
            }
        }
    }
    Body::new(number, bytes)
}

fn image(flavor: Flavor, bytes: &mut Vec<u8>, table: &MysqlTable, row: &Row) {
    let mut nulls = bitmap(row.iter().map(|value| *value == Value::Null));
    if let (Flavor::MariaDb, Some(last)) = (flavor, nulls.last_mut()) {
        *last |= unused(row.len());
    }
    bytes.extend_from_slice(&nulls);
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
