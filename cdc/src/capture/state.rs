//! What a checkpoint holds of a capture job beside positions and rows. Everything a restart needs is here or in the
//! position: no other durable state exists.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidegate_storage::checkpoint::{PreparedSnapshot, TableCommit};

use super::status::ErrorInfo;
use crate::mysql::snapshot::{KeyRange, KeyValue};
use crate::mysql::types::MysqlTable;
use crate::source::position::Position;

/// The source's own part of a checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SourceState {
    /// Changes applied since the source was created, for the job's statistics.
    #[serde(default)]
    pub changes_total: u64,
    /// XA transactions that are neither committed nor rolled back and whose rows stopped their tables, as they once did.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub prepared: BTreeSet<String>,
    /// XA transactions that were prepared in the stream and are neither committed nor rolled back, by the name that
    /// statements of the log have for them, in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, HeldTransaction>,
}

/// What a prepared XA transaction changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct HeldTransaction {
    /// Its rows: of each table in the order in which they were changed.
    #[serde(default)]
    pub parts: Vec<HeldPart>,
    /// Tables of which not all rows are held, since they were not captured then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missed: BTreeSet<String>,
}

/// Rows of one table in an object below `prepared` in the source's directory.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct HeldPart {
    /// `schema.table` as queried.
    pub table: String,
    /// Id of the schema that the rows have.
    pub schema: u64,
    /// The object's name.
    pub object: String,
    /// The digest of the object's content.
    pub digest: String,
}

/// One table's part of a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TableState {
    /// The definition that holds at the checkpoint's position: the next event of the table is decoded with it.
    pub mysql: MysqlTable,
    pub phase: TablePhase,
    pub buckets: u32,
    /// Rows the server estimated when the snapshot was planned.
    #[serde(default)]
    pub estimated_rows: u64,
    /// Rows read by snapshot pages so far.
    #[serde(default)]
    pub rows_read: u64,
    /// The last complete state of a table that is being read again, or that stopped with an error: readers stay on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<PreparedSnapshot>,
    /// While it is pending: what its pages have to see, since the stream does not tell it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<XaCommit>,
    /// Somebody wants the table to be read again, which has not begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resync: bool,
}

/// An XA COMMIT of rows that are in no event behind it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct XaCommit {
    /// As statements of the log name it, in lower case.
    pub xid: String,
    /// Behind the XA COMMIT.
    pub position: Position,
}

/// How far a table is.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum TablePhase {
    /// The key ranges have not been planned yet.
    Pending,
    Snapshot {
        ranges: Vec<RangeState>,
    },
    /// The snapshot is complete and the stream alone goes on.
    Streaming,
    /// The table stopped; the others go on.
    Error {
        error: ErrorInfo,
    },
}

/// Durable progress inside one key range.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct RangeState {
    pub range: KeyRange,
    /// Key of the last row that a checkpoint holds; reading goes on behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<KeyValue>>,
    #[serde(default)]
    pub done: bool,
}

impl TableState {
    /// The snapshot that readers may see: the current one once complete, else the frozen one.
    pub(super) fn readable_snapshot<'a>(&'a self, commit: &'a TableCommit) -> Option<&'a PreparedSnapshot> {
        match self.phase {
            TablePhase::Streaming => commit.snapshot.as_ref(),
            _ => self.frozen.as_ref(),
        }
    }
}
