//! One event: its header and what its kind holds.

use std::borrow::Cow;
use std::fmt;

use super::error::DecodeError;
use super::gtid::{self, MariaGtid, MysqlGtid};
use super::payload::TransactionPayload;
use super::query::Query;
use super::reader::Reader;
use super::rows_event::{self, RowsEvent};
use super::table_map::TableMap;
use crate::mysql::Flavor;

#[cfg(test)]
mod tests;

/// The bytes in front of every event's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Seconds since 1970 on the server's clock, when the statement began; 0 in artificial events.
    pub timestamp: u32,
    /// The kind of the event.
    pub kind: u8,
    /// The server that wrote the event first.
    pub server_id: u32,
    /// The size of the event with header and checksum.
    pub size: u32,
    /// The offset of the next event in the file, modulo 2^32.
    pub log_pos: u32,
    /// Flags.
    pub flags: u16,
}

impl EventHeader {
    /// The size of a header.
    pub const SIZE: usize = 19;
    /// The event is not in the file; the server made it for this connection.
    pub const ARTIFICIAL: u16 = 0x20;
    /// A reader that does not know the event may pass over it.
    pub const IGNORABLE: u16 = 0x80;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let [t0, t1, t2, t3, kind, s0, s1, s2, s3, z0, z1, z2, z3, p0, p1, p2, p3, f0, f1] = *bytes;
        Self {
            timestamp: u32::from_le_bytes([t0, t1, t2, t3]),
            kind,
            server_id: u32::from_le_bytes([s0, s1, s2, s3]),
            size: u32::from_le_bytes([z0, z1, z2, z3]),
            log_pos: u32::from_le_bytes([p0, p1, p2, p3]),
            flags: u16::from_le_bytes([f0, f1]),
        }
    }

    /// Writes a header.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[4] = self.kind;
        bytes[5..9].copy_from_slice(&self.server_id.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.size.to_le_bytes());
        bytes[13..17].copy_from_slice(&self.log_pos.to_le_bytes());
        bytes[17..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}

/// What an event says.
#[derive(Debug)]
pub enum Event<'a> {
    /// The first event of a file.
    FormatDescription(FormatDescription),
    /// The log goes on in another file; also the first event of a stream.
    Rotate {
        /// The file's name.
        file: String,
        /// Where in it.
        offset: u64,
    },
    /// A transaction of MySQL begins.
    Gtid(MysqlGtid),
    /// A transaction of a MySQL server without GTIDs begins.
    AnonymousGtid,
    /// A transaction of MariaDB begins.
    MariaGtid {
        /// Its identifier.
        gtid: MariaGtid,
        /// A single event follows, with no COMMIT or XID after it.
        standalone: bool,
        /// The event that follows is DDL.
        ddl: bool,
        /// XA: the transaction that this one prepares or completes, as [`Xid`] names it.
        xa: Option<Xid>,
        /// XA: the rows that follow end with an XA PREPARE event.
        prepares: bool,
        /// XA: the event that follows is an XA COMMIT or XA ROLLBACK statement.
        completes: bool,
    },
    /// The last transactions of each domain before this file (MariaDB).
    MariaGtidList(Vec<MariaGtid>),
    /// A statement: BEGIN, COMMIT, DDL, or DML that is not logged as rows.
    Query(Query<'a>),
    /// The transaction is committed.
    Xid(u64),
    /// An XA transaction is prepared, or committed in one phase.
    XaPrepare {
        /// Its name.
        xid: Xid,
        /// Whether this commits it as well.
        one_phase: bool,
    },
    /// Names the table that row events after it are about.
    TableMap(TableMap),
    /// Changes of rows.
    Rows(RowsEvent<'a>),
    /// Nothing happened for a while; the log's end is where the header's `log_pos`, or this event, says.
    Heartbeat {
        /// The file's name.
        file: String,
        /// The offset, where the event has one of 64 bits.
        offset: Option<u64>,
    },
    /// A compressed transaction.
    TransactionPayload(TransactionPayload<'a>),
    /// An event that holds no changes.
    Ignorable(u8),
    /// An event that may hold changes and is not understood. Passing over it could lose rows.
    Unknown(u8),
}

/// The name of an XA transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Xid {
    /// The format identifier, 1 unless the application chose another.
    pub format: u32,
    /// The global part.
    pub global: Vec<u8>,
    /// The branch.
    pub branch: Vec<u8>,
}

/// As statements of the log name it, in lower case.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        write!(f, "x'{}',x'{}',{}", hex(&self.global), hex(&self.branch), self.format)
    }
}

/// The log's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatDescription {
    /// The version of the server that wrote the file.
    pub server_version: String,
    /// The checksum at the end of the file's events.
    pub checksum: Checksum,
}

/// The checksum at the end of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// None.
    Off,
    /// CRC-32 of the header and the body, four bytes.
    Crc32,
}

const CHECKSUM_SIZE: usize = 4;

/// The checksum algorithm that a FORMAT_DESCRIPTION event announces; `body` is all that follows the header, its own four bytes of
/// checksum included, which such an event always has.
pub fn checksum_of_format_description(body: &[u8]) -> Result<Checksum, DecodeError> {
    let end = body.len().checked_sub(CHECKSUM_SIZE + 1).ok_or(DecodeError::Truncated)?;
    checksum(body.get(end).copied().unwrap_or(u8::MAX))
}

fn checksum(algorithm: u8) -> Result<Checksum, DecodeError> {
    match algorithm {
        0 => Ok(Checksum::Off),
        1 => Ok(Checksum::Crc32),
        other => Err(DecodeError::Malformed(format!("checksum algorithm {other}"))),
    }
}

/// Reads an event. `body` is what follows the header, the checksum removed.
pub fn parse_event<'a>(flavor: Flavor, header: &EventHeader, body: &'a [u8]) -> Result<Event<'a>, DecodeError> {
    let mut reader = Reader::new(body);
    Ok(match header.kind {
        2 => Event::Query(Query::parse(body, false)?),
        4 => {
            let offset = reader.u64()?;
            let name = without_stray_checksum(header, body, reader.rest());
            Event::Rotate { file: text(name), offset }
        }
        15 => Event::FormatDescription(format_description(body)?),
        16 => Event::Xid(reader.u64()?),
        19 => Event::TableMap(TableMap::parse(body)?),
        23..=25 | 30..=32 | 39 => rows(rows_event::parse(header.kind, body, false)?, header.kind),
        27 => Event::Heartbeat { file: text(without_stray_checksum(header, body, body)), offset: None },
        33 if flavor == Flavor::Mysql => Event::Gtid(gtid::parse_mysql(body)?),
        34 if flavor == Flavor::Mysql => Event::AnonymousGtid,
        38 => {
            let one_phase = reader.u8()? != 0;
            let (format, global, branch) = (reader.u32()?, reader.u32()?, reader.u32()?);
            Event::XaPrepare { xid: Xid::read(format, global, branch, &mut reader)?, one_phase }
        }
        40 => Event::TransactionPayload(TransactionPayload::parse(body)?),
        41 => heartbeat_v2(body)?,
        42 if flavor == Flavor::Mysql => Event::Gtid(gtid::parse_tagged(body)?),
        162 if flavor == Flavor::MariaDb => gtid::parse_maria(header.server_id, body)?,
        163 if flavor == Flavor::MariaDb => Event::MariaGtidList(gtid::parse_maria_list(body)?),
        165 if flavor == Flavor::MariaDb => Event::Query(Query::parse(body, true)?),
        166..=171 if flavor == Flavor::MariaDb => {
            // The compressed kinds are the plain ones in the same order: three of version 1, three of version 2.
            let plain = if header.kind < 169 { header.kind - 166 + 23 } else { header.kind - 169 + 30 };
            rows(rows_event::parse(plain, body, true)?, header.kind)
        }
        // STOP, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR, BEGIN_LOAD_QUERY (the file of the statement that follows), IGNORABLE,
        // ROWS_QUERY, GTID lists, TRANSACTION_CONTEXT, VIEW_CHANGE.
        3 | 5 | 9 | 11 | 13 | 14 | 17 | 28 | 29 | 33..=37 => Event::Ignorable(header.kind),
        // ANNOTATE_ROWS, BINLOG_CHECKPOINT, START_ENCRYPTION.
        160 | 161 | 164 if flavor == Flavor::MariaDb => Event::Ignorable(header.kind),
        kind if header.flags & EventHeader::IGNORABLE != 0 => Event::Ignorable(kind),
        kind => Event::Unknown(kind),
    })
}

/// A row event of the table number that stands for no table only carries the flag that ends a statement.
fn rows(event: RowsEvent<'_>, kind: u8) -> Event<'_> {
    if event.table_id == RowsEvent::NO_TABLE && event.rows.is_empty() {
        Event::Ignorable(kind)
    } else {
        Event::Rows(event)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first ROTATE of a stream comes before the event that announces checksums. MariaDB puts a checksum behind it nevertheless.
fn without_stray_checksum<'a>(header: &EventHeader, body: &[u8], name: &'a [u8]) -> &'a [u8] {
    let Some((name_only, stray)) = name.split_last_chunk::<CHECKSUM_SIZE>() else { return name };
    let Some(covered) = body.len().checked_sub(CHECKSUM_SIZE).and_then(|n| body.get(..n)) else { return name };
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header.to_bytes());
    crc.update(covered);
    if crc.finalize() == u32::from_le_bytes(*stray) { name_only } else { name }
}

fn format_description(body: &[u8]) -> Result<FormatDescription, DecodeError> {
    let mut reader = Reader::new(body);
    let version = reader.u16()?;
    if version != 4 {
        return Err(DecodeError::Malformed(format!("binlog format version {version}")));
    }
    let server: &[u8] = reader.bytes(50)?;
    let server = server.split(|b| *b == 0).next().unwrap_or_default();
    reader.u32()?;
    let header_size = reader.u8()?;
    if usize::from(header_size) != EventHeader::SIZE {
        return Err(DecodeError::Malformed(format!("event headers of {header_size} bytes")));
    }
    // The sizes of post-headers, one per kind, and the checksum algorithm.
    let checksum = checksum(*reader.rest().last().ok_or(DecodeError::Truncated)?)?;
    Ok(FormatDescription { server_version: text(server), checksum })
}

fn heartbeat_v2(body: &[u8]) -> Result<Event<'static>, DecodeError> {
    let mut reader = Reader::new(body);
    let (mut file, mut offset) = (String::new(), None);
    while !reader.is_empty() {
        let field = reader.length()?;
        if field == 0 {
            break;
        }
        let value = reader.length_bytes()?;
        match field {
            1 => file = text(value),
            2 => offset = Some(Reader::new(value).length()?),
            _ => {}
        }
    }
    Ok(Event::Heartbeat { file, offset })
}

impl Xid {
    pub(super) fn read(format: u32, global: u32, branch: u32, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let size = |n: u32| usize::try_from(n).map_err(|_| DecodeError::Truncated);
        let global = reader.bytes(size(global)?)?.to_vec();
        let branch = reader.bytes(size(branch)?)?.to_vec();
        Ok(Self { format, global, branch })
    }
}

/// Unpacks what MariaDB compresses: a byte with the width of the length, the length with its highest byte first, and a zlib stream.
pub(super) fn maria_uncompress(bytes: &[u8]) -> Result<Cow<'static, [u8]>, DecodeError> {
    use std::io::Read;
    let mut reader = Reader::new(bytes);
    let head = reader.u8()?;
    let (algorithm, width) = ((head & 0x70) >> 4, head & 0x07);
    if head & 0x80 == 0 || algorithm != 0 || !(1..=4).contains(&width) {
        return Err(DecodeError::Compression(format!("unknown compression header {head:#04x}")));
    }
    let mut length = 0_u64;
    for _ in 0..width {
        length = length << 8 | u64::from(reader.u8()?);
    }
    let mut plain = Vec::with_capacity(usize::try_from(length).unwrap_or(0).min(reader.rest().len().saturating_mul(8)));
    // One byte more than announced shows a stream that is too long.
    flate2::read::ZlibDecoder::new(reader.rest())
        .take(length + 1)
        .read_to_end(&mut plain)
        .map_err(|e| DecodeError::Compression(e.to_string()))?;
    if u64::try_from(plain.len()) != Ok(length) {
        return Err(DecodeError::Compression(format!("{} bytes instead of {length}", plain.len())));
    }
    Ok(Cow::Owned(plain))
}
