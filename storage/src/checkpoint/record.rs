//! What a checkpoint says, and its bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::zstd_contexts;

/// The layout this program writes and the newest it reads.
pub const FORMAT: u32 = 1;

/// A table's next snapshot, ready to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedSnapshot {
    /// Number of the snapshot.
    pub id: u64,
    /// The exact content of its file.
    pub json: String,
}

/// A table as of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableCommit {
    /// `schema.table`, as it is queried.
    pub name: String,
    /// The table's directory in the store.
    pub path: String,
    /// Whether the table's initial snapshot is complete, so that it can be queried and is published.
    pub visible: bool,
    /// The table's content; nothing as long as it has none.
    pub snapshot: Option<PreparedSnapshot>,
    /// What capture keeps for the table.
    #[serde(default)]
    pub capture: Value,
}

/// One checkpoint: what changed since the one before, or everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The source.
    pub source: Uuid,
    /// Number of the checkpoint, from 1 and without gaps.
    pub number: u64,
    /// Epoch of the owner's lease.
    pub epoch: u64,
    /// The owner that wrote it.
    pub owner: Uuid,
    /// When it was written.
    pub committed_at_ms: i64,
    /// Whether `tables` are all tables; otherwise they are those that changed.
    pub full: bool,
    /// The source position that the tables are at.
    pub position: Value,
    /// What capture keeps for the source.
    #[serde(default)]
    pub capture: Value,
    /// Tables; each entry replaces the one of the same name as a whole.
    pub tables: Vec<TableCommit>,
    /// Names of tables that are no longer part of the source. Applied before `tables`.
    #[serde(default)]
    pub dropped: Vec<String>,
}

/// A source as of its newest checkpoint: a full record and all behind it, added up.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointState {
    /// Number of the newest checkpoint.
    pub number: u64,
    /// Its owner's epoch.
    pub epoch: u64,
    /// When it was written.
    pub committed_at_ms: i64,
    /// Its source position.
    pub position: Value,
    /// What capture keeps for the source.
    pub capture: Value,
    /// All tables, by name.
    pub tables: BTreeMap<String, TableCommit>,
}

impl CheckpointState {
    /// The state a full record describes.
    pub fn new(record: CheckpointRecord) -> Self {
        let mut state = Self {
            number: 0,
            epoch: 0,
            committed_at_ms: 0,
            position: Value::Null,
            capture: Value::Null,
            tables: BTreeMap::new(),
        };
        state.apply(record);
        state
    }

    /// The texts of the snapshots that the checkpoint holds of the table at `path`, published or not.
    pub fn prepared_snapshots(&self, path: &str) -> Vec<&str> {
        let tables = self.tables.values().filter(|table| table.path == path);
        tables.filter_map(|table| Some(table.snapshot.as_ref()?.json.as_str())).collect()
    }

    /// Adds the next record.
    pub fn apply(&mut self, record: CheckpointRecord) {
        if record.full {
            self.tables.clear();
        }
        for name in &record.dropped {
            self.tables.remove(name);
        }
        for table in record.tables {
            self.tables.insert(table.name.clone(), table);
        }
        self.number = record.number;
        self.epoch = record.epoch;
        self.committed_at_ms = record.committed_at_ms;
        self.position = record.position;
        self.capture = record.capture;
    }
}

/// What a record's file begins with; the version of the framing follows.
const MAGIC: &str = "tidegate-checkpoint 1";
/// Longest header line; anything longer is not one.
const MAX_HEADER: usize = 256;
/// Bodies from this size on are compressed.
const COMPRESS_FROM: usize = 4096;

impl CheckpointRecord {
    /// The bytes of the record's file: a line with the body's digest, and the body.
    pub fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).expect("a record of strings, numbers and JSON values is always JSON");
        let (encoding, body) =
            if json.len() < COMPRESS_FROM { ("json", json) } else { ("json+zstd", zstd_contexts::compress(&json)) };
        let mut file =
            format!("{MAGIC} {encoding} {} sha256:{}\n", body.len(), hex(&Sha256::digest(&body))).into_bytes();
        file.extend_from_slice(&body);
        file
    }

    /// Reads a record's file. `object` is its path.
    pub fn decode(object: &str, file: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(object, format!("as a checkpoint record: {what}"));
        let end = file.iter().take(MAX_HEADER).position(|byte| *byte == b'\n');
        let (header, body) = end
            .and_then(|end| Some((file.get(..end)?, file.get(end + 1..)?)))
            .ok_or_else(|| corrupt("it has no header line"))?;
        let header = std::str::from_utf8(header).map_err(|_| corrupt("its header line is not text"))?;
        let rest = header.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
        let rest = rest.ok_or_else(|| corrupt("its header line does not name the format"))?;
        let [encoding, length, digest] = rest.split(' ').collect::<Vec<_>>()[..] else {
            return Err(corrupt("its header line has not three fields"));
        };
        if length.parse() != Ok(body.len()) {
            return Err(corrupt("its length is not the one in its header"));
        }
        if digest.strip_prefix("sha256:") != Some(hex(&Sha256::digest(body)).as_str()) {
            return Err(corrupt("its digest does not match its content"));
        }
        let json = match encoding {
            "json" => body.to_vec(),
            "json+zstd" => zstd_contexts::decompress(body)
                .map_err(|error| corrupt(&format!("it cannot be decompressed: {error}")))?,
            _ => return Err(corrupt("its encoding is not known")),
        };
        /// Read first, so that a record of a later layout is not called corrupt.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let format: Format = serde_json::from_slice(&json).map_err(|e| corrupt(&e.to_string()))?;
        if format.format > FORMAT {
            return Err(Error::invalid(format!(
                "object {object} is a checkpoint of format {}, newer than this program",
                format.format
            )));
        }
        serde_json::from_slice(&json).map_err(|e| corrupt(&e.to_string()))
    }
}

/// How the content of an object is told from another one: `sha256:` and the digest in hexadecimal.
pub fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(content)))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
