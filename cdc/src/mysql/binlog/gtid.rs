//! The identifiers that transactions start with.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::DecodeError;
use super::event::{Event, Xid};
use super::reader::{Cut, Reader};

/// A transaction of MySQL: `uuid:gno`, or `uuid:tag:gno`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MysqlGtid {
    /// The server that committed it first.
    pub uuid: Uuid,
    /// The tag; empty if it has none.
    pub tag: String,
    /// The number, from 1.
    pub gno: u64,
}

impl fmt::Display for MysqlGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tag.is_empty() {
            write!(f, "{}:{}", self.uuid, self.gno)
        } else {
            write!(f, "{}:{}:{}", self.uuid, self.tag, self.gno)
        }
    }
}

/// A transaction of MariaDB: `domain-server-sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MariaGtid {
    /// The replication domain.
    pub domain: u32,
    /// The server that committed it first.
    pub server: u32,
    /// The sequence number in the domain.
    pub seq: u64,
}

impl fmt::Display for MariaGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.seq)
    }
}

/// GTID_EVENT: flags, server UUID, number; what follows concerns parallel replay.
pub(super) fn parse_mysql(body: &[u8]) -> Result<MysqlGtid, DecodeError> {
    let mut reader = Reader::new(body);
    reader.u8()?;
    let uuid = Uuid::from_bytes(reader.array()?);
    let gno = reader.u64()?;
    Ok(MysqlGtid { uuid, tag: String::new(), gno })
}

/// GTID_TAGGED_LOG_EVENT: a message of MySQL's serialisation library (`libs/mysql/serialization`), a list of numbered fields.
pub(super) fn parse_tagged(body: &[u8]) -> Result<MysqlGtid, DecodeError> {
    let mut reader = Reader::new(body);
    let version = varint(&mut reader)?;
    if version != 1 {
        return Err(DecodeError::Malformed(format!("tagged GTID in format version {version}")));
    }
    let _message_size = varint(&mut reader)?;
    let _last_non_ignorable_field = varint(&mut reader)?;
    let (mut uuid, mut gno, mut tag) = (None, None, None);
    // The fields stand in ascending order; those after the tag concern parallel replay.
    while !reader.is_empty() && (uuid.is_none() || gno.is_none() || tag.is_none()) {
        match varint(&mut reader)? {
            0 => {
                varint(&mut reader)?;
            }
            1 => {
                let mut bytes = [0; 16];
                for byte in &mut bytes {
                    *byte = u8::try_from(varint(&mut reader)?).map_err(|_| Cut)?;
                }
                uuid = Some(Uuid::from_bytes(bytes));
            }
            2 => {
                // Signed numbers: the lowest bit is the sign.
                let coded = varint(&mut reader)?;
                if coded & 1 != 0 {
                    return Err(DecodeError::Malformed("a negative transaction number".to_owned()));
                }
                gno = Some(coded >> 1);
            }
            3 => {
                let length = usize::try_from(varint(&mut reader)?).map_err(|_| Cut)?;
                let text = std::str::from_utf8(reader.bytes(length)?)
                    .map_err(|_| DecodeError::Malformed("a GTID tag that is not text".to_owned()))?;
                tag = Some(text.to_owned());
            }
            _ => break,
        }
    }
    match (uuid, gno) {
        (Some(uuid), Some(gno)) => Ok(MysqlGtid { uuid, tag: tag.unwrap_or_default(), gno }),
        _ => Err(DecodeError::Malformed("a tagged GTID without server or number".to_owned())),
    }
}

/// One byte to nine: as many low one bits of the first byte as bytes follow, the value in the bits above and in the bytes after.
fn varint(reader: &mut Reader<'_>) -> Result<u64, Cut> {
    let first = reader.u8()?;
    let more = first.trailing_ones() as usize;
    if more == 8 {
        return reader.u64();
    }
    let mut high = [0; 8];
    high[..more].copy_from_slice(reader.bytes(more)?);
    let low_bits = 7 - more as u32;
    Ok(u64::from(first) >> (more + 1) | u64::from_le_bytes(high) << low_bits)
}

/// There is no COMMIT or XID event after the transaction's only event.
const STANDALONE: u8 = 1;
const GROUP_COMMIT: u8 = 2;
/// The transaction is DDL.
const DDL: u8 = 32;
/// XA PREPARE ends the transaction.
const PREPARED_XA: u8 = 64;
/// XA COMMIT or XA ROLLBACK of a prepared transaction.
const COMPLETED_XA: u8 = 128;

/// MariaDB's GTID_EVENT.
pub(super) fn parse_maria(server: u32, body: &[u8]) -> Result<Event<'static>, DecodeError> {
    let mut reader = Reader::new(body);
    let gtid = MariaGtid { seq: reader.u64()?, domain: reader.u32()?, server };
    let flags = reader.u8()?;
    if flags & GROUP_COMMIT != 0 {
        reader.u64()?;
    }
    let xa = if flags & (PREPARED_XA | COMPLETED_XA) == 0 {
        None
    } else {
        let (format, global, branch) = (reader.u32()?, reader.u8()?, reader.u8()?);
        Some(Xid::read(format, u32::from(global), u32::from(branch), &mut reader)?)
    };
    Ok(Event::MariaGtid {
        gtid,
        standalone: flags & STANDALONE != 0,
        ddl: flags & DDL != 0,
        xa,
        prepares: flags & PREPARED_XA != 0,
        completes: flags & COMPLETED_XA != 0,
    })
}

/// MariaDB's GTID_LIST_EVENT, at the head of each file.
pub(super) fn parse_maria_list(body: &[u8]) -> Result<Vec<MariaGtid>, DecodeError> {
    let mut reader = Reader::new(body);
    // The highest four bits are flags.
    let count = reader.u32()? & 0x0fff_ffff;
    let mut list = Vec::new();
    for _ in 0..count {
        let (domain, server) = (reader.u32()?, reader.u32()?);
        list.push(MariaGtid { domain, server, seq: reader.u64()? });
    }
    Ok(list)
}
