//! QUERY events: statements, and the session settings that they were run with.

use std::borrow::Cow;

use super::error::DecodeError;
use super::event::maria_uncompress;
use super::reader::{Cut, Reader};
use crate::mysql::charset;

/// A statement in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The session's database; empty if it had none.
    pub database: String,
    /// The statement's text.
    pub sql: Cow<'a, str>,
    /// The error that the statement ended with, 0 if none.
    pub error_code: u16,
    /// The bits of `sql_mode`.
    pub sql_mode: Option<u64>,
    /// The collation numbers of the client, the connection and the server.
    pub collations: Option<[u16; 3]>,
    /// The number of the database's default collation.
    pub database_collation: Option<u16>,
    /// The number of the default collation of utf8mb4.
    pub utf8mb4_collation: Option<u16>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(body: &'a [u8], compressed: bool) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (_thread, _seconds) = (reader.u32()?, reader.u32()?);
        let database_length = usize::from(reader.u8()?);
        let error_code = reader.u16()?;
        let status_length = usize::from(reader.u16()?);
        let mut status = Status::default();
        // Settings that are not known end the list; the statement does not depend on them.
        let _ = status.read(&mut Reader::new(reader.bytes(status_length)?));
        let database = String::from_utf8_lossy(reader.bytes(database_length)?).into_owned();
        reader.u8()?;
        let text = if compressed { maria_uncompress(reader.rest())? } else { Cow::Borrowed(reader.rest()) };
        let client = status.collations.map(|[client, ..]| client);
        let sql = match text {
            Cow::Borrowed(bytes) => decode(bytes, client),
            Cow::Owned(bytes) => Cow::Owned(decode(&bytes, client).into_owned()),
        };
        Ok(Self {
            database,
            sql,
            error_code,
            sql_mode: status.sql_mode,
            collations: status.collations,
            database_collation: status.database_collation,
            utf8mb4_collation: status.utf8mb4_collation,
        })
    }
}

/// Statements are logged in the client's character set. Text that is invalid there still has to be looked at, so it is not an error.
fn decode(bytes: &[u8], client_collation: Option<u16>) -> Cow<'_, str> {
    let charset = client_collation.and_then(|id| charset::charset_of_collation(u32::from(id)));
    match charset {
        Some(name) if !name.starts_with("utf8") && !bytes.is_ascii() => {
            charset::decode_lossy(name, bytes).map_or_else(|| String::from_utf8_lossy(bytes), Cow::Owned)
        }
        _ => String::from_utf8_lossy(bytes),
    }
}

#[derive(Default)]
struct Status {
    sql_mode: Option<u64>,
    collations: Option<[u16; 3]>,
    database_collation: Option<u16>,
    utf8mb4_collation: Option<u16>,
}

impl Status {
    /// Each setting is a code and a value of a length that the code implies.
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Cut> {
        while !reader.is_empty() {
            match reader.u8()? {
                // Flags, auto-increment, bytes written, default for TIMESTAMP columns and so on.
                0 | 3 | 10 => drop(reader.bytes(4)?),
                1 => self.sql_mode = Some(reader.u64()?),
                2 => {
                    reader.short_bytes()?;
                    reader.u8()?;
                }
                4 => self.collations = Some([reader.u16()?, reader.u16()?, reader.u16()?]),
                5 | 6 => drop(reader.short_bytes()?),
                7 | 130 => drop(reader.bytes(2)?),
                8 => self.database_collation = Some(reader.u16()?),
                9 | 17 | 129 => drop(reader.bytes(8)?),
                11 => {
                    reader.short_bytes()?;
                    reader.short_bytes()?;
                }
                12 => {
                    let databases = reader.u8()?;
                    // 254 stands for too many to list.
                    for _ in 0..if databases == 254 { 0 } else { databases } {
                        while reader.u8()? != 0 {}
                    }
                }
                13 | 128 => drop(reader.bytes(3)?),
                16 | 19 | 20 => drop(reader.u8()?),
                18 => self.utf8mb4_collation = Some(reader.u16()?),
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
