//! What operators see of a job: the source of `sys.jobs`, `sys.job_tables`, `sys.snapshot_ranges` and `sys.errors`.

use serde::{Deserialize, Serialize};
use tidegate_storage::checkpoint::Holder;
use tidegate_storage::table::Hold;

use crate::error::Error;
use crate::source::position::{FilePosition, Position};

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JobState {
    /// Taking the lease, recovering, connecting.
    #[default]
    Starting,
    /// At least one table is being read for the first time or again.
    Snapshot,
    /// Every table is complete and the binlog is followed.
    Streaming,
    /// Waiting before the next attempt after a fault that may pass.
    Retrying,
    /// Another server holds the source.
    Standby,
    /// A fault that will not pass by itself.
    Failed,
    Stopped,
}

impl JobState {
    /// The value shown in `sys.jobs`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Snapshot => "snapshot",
            Self::Streaming => "streaming",
            Self::Retrying => "retrying",
            Self::Standby => "standby",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// An error as it is shown and stored: no row values, no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    pub at_ms: i64,
    /// `TG0107` and the like; one page of the book each.
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// `schema.table`, when the error is one table's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

impl ErrorInfo {
    pub(crate) fn new(error: &Error, table: Option<&str>, at_ms: i64) -> Self {
        Self {
            at_ms,
            code: error.code.to_string(),
            message: error.message.clone(),
            detail: error.detail.clone(),
            hint: Some(error.hint().to_owned()),
            table: table.map(str::to_owned),
        }
    }
}

/// Where a table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableProgress {
    Pending,
    Snapshot,
    Streaming,
    Error,
}

impl TableProgress {
    /// The value shown in `sys.job_tables`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Snapshot => "snapshot",
            Self::Streaming => "streaming",
            Self::Error => "error",
        }
    }
}

/// One key range of a running snapshot.
#[derive(Debug, Clone)]
pub struct RangeStatus {
    pub id: u32,
    pub lower: Option<String>,
    pub upper: Option<String>,
    /// Key of the last row handed to the table's writer.
    pub after: Option<String>,
    pub done: bool,
}

/// One captured table.
#[derive(Debug, Clone)]
pub struct TableStatus {
    /// `schema.table` as queried.
    pub name: String,
    /// `database.table` in MySQL.
    pub origin: String,
    pub state: TableProgress,
    pub rows_read: u64,
    pub estimated_rows: u64,
    pub ranges_total: u32,
    pub ranges_done: u32,
    /// Ranges of a running snapshot; empty otherwise.
    pub ranges: Vec<RangeStatus>,
    /// Changes decoded from the binlog since the job started.
    pub changes: u64,
    pub error: Option<ErrorInfo>,
}

/// What is kept of a table's past.
#[derive(Debug, Clone, Default)]
pub struct TableRetention {
    /// `schema.table` as queried.
    pub name: String,
    /// The oldest snapshot there is.
    pub earliest_snapshot: Option<u64>,
    pub latest_snapshot: u64,
    /// Snapshots that have gone since the job started, and objects that went with them.
    pub expired_snapshots: u64,
    pub deleted_objects: u64,
    /// Who needs old snapshots.
    pub holds: Vec<Hold>,
}

/// A job at one moment.
#[derive(Debug, Clone, Default)]
pub struct JobStatus {
    pub state: JobState,
    /// Counts the job's attempts: what was reached in one of them says nothing about the next, which begins at the newest
    /// checkpoint.
    pub session: u32,
    pub tables: Vec<TableStatus>,
    /// Position reached by the stream (not necessarily durable yet).
    pub position: Position,
    /// The end of the server's log when last asked.
    pub server_position: Option<FilePosition>,
    /// Commit time at the source of the last transaction seen.
    pub last_event_at_ms: Option<i64>,
    pub last_checkpoint: u64,
    pub last_checkpoint_at_ms: Option<i64>,
    /// How far the newest checkpoint is behind the source, in time; `Some(0)` when it is level with it.
    pub lag_ms: Option<i64>,
    /// Bytes of binlog between the stream and the server's end, when both are in one file.
    pub lag_bytes: Option<u64>,
    pub changes_total: u64,
    pub snapshot_started_at_ms: Option<i64>,
    pub started_at_ms: i64,
    /// Per table, as of the last time that old snapshots were looked for.
    pub retention: Vec<TableRetention>,
    /// The newest errors, oldest first, at most 100.
    pub errors: Vec<ErrorInfo>,
    /// What is said while the object store leaves a request without an answer.
    pub store_late: Option<ErrorInfo>,
    /// Who owns the source when it is not this job.
    pub holder: Option<Holder>,
}
