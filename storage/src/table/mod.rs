//! One mirrored table: its writer, and the versions its readers see.
//!
//! Rows come in as Arrow batches with one [`RowKind`] each. A flush turns them into sorted runs of Parquet files plus
//! deletion vectors for the rows they replace, so that readers never merge. Nothing refers to what a flush wrote until
//! [`TableWriter::prepare`] describes it in a snapshot, and nothing counts until a checkpoint holds that snapshot.
//!
//! In reading order:
//!
//! * `keys`: keys in a form that compares fast; `key_index`: the sorted keys of the data files, in memory and on the
//!   local disk.
//! * `resolve`: several operations on one key become one outcome.
//! * `levels`: where a run goes and which runs are merged, as a pure function over sizes and key ranges.
//! * `run`: sorted rows become data files; `read`: data files become rows of the newest schema.
//! * `merge`: several sorted inputs become one; `bucket`: the files of one bucket and a flush into it.
//! * `flush`: buffered rows go to their buckets; `compaction`: merges that run beside the writer; `merges`: how many of
//!   them run in the whole process, and what became of them.
//! * `commit`: the difference to the last snapshot as manifests, index files and a snapshot.
//! * `expire`: old snapshots, and objects that nothing leads to, are deleted.
//! * `verify`: every object is read, and damage named.
//! * `version`: what readers get; `point`: where given keys are in it; `layout` and `names`: where objects lie and what they are called.
//! * `writer`: all of it together.

mod bucket;
mod changelog;
mod commit;
mod compaction;
mod expire;
mod flush;
mod key_index;
mod keys;
mod layout;
mod levels;
mod manifests;
mod merge;
mod merges;
mod names;
mod point;
mod read;
mod resolve;
mod run;
mod verify;
mod version;
mod writer;

use std::sync::Arc;

pub use expire::{Expired, Hold, Holder, Orphans, Retention, expire_snapshots, remove_orphans};
pub use key_index::{DEFAULT_KEY_MEMORY, KeyCache};
pub use merges::{Amount, Merge, MergeLog, MergePool, MergeReason, MergeState, Written};
pub use point::Candidate;
pub use verify::{Damage, Verified, tables_of, verify_table};
pub use version::{LiveFile, TableVersion};
pub use writer::TableWriter;

use crate::checkpoint::PreparedSnapshot;
use crate::clock::Clock;
use crate::random::{Random, SystemRandom};
use crate::store::StoreRef;
use crate::workers::Workers;

/// What one row of a batch does to the row with the same key.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// The row replaces whatever the key had.
    Upsert,
    /// The key's row goes away. Only the key columns of the row given are looked at, but for the table's changelog.
    Delete,
    /// A row that a snapshot page read: ignored if the key is in the table, or was deleted since loading began.
    InsertAbsent,
    /// What the row behind it replaces, an [`RowKind::Upsert`] of the same key. It is for the table's changelog, if it has
    /// one, and changes nothing.
    UpdateBefore,
}

/// What a writer needs from around it.
#[derive(Debug, Clone)]
pub struct WriterContext {
    /// Where the table's objects lie.
    pub store: StoreRef,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Paimon's name for this writer; stable over restarts, never shared by two writers.
    pub commit_user: String,
    /// What it shares with the writers of other tables.
    pub resources: Arc<Resources>,
}

/// What the writers of all tables of a process share.
#[derive(Debug)]
pub struct Resources {
    /// Where the keys of their data files are kept.
    pub keys: Arc<KeyCache>,
    /// Where their merges run.
    pub merges: MergePool,
    /// Where they do what takes long.
    pub workers: Workers,
    /// What the names of their objects are drawn from.
    pub random: Arc<dyn Random>,
}

impl Default for Resources {
    /// All keys stay in memory; a merge for each processor.
    fn default() -> Self {
        Self {
            keys: KeyCache::unbounded(),
            merges: MergePool::default(),
            workers: Workers::Threads,
            random: Arc::new(SystemRandom),
        }
    }
}

/// How a table is laid out and how eagerly its files are merged.
#[derive(Debug, Clone, PartialEq)]
pub struct TableOptions {
    /// Number of hash buckets, at least 1. Fixed when the table is created; an opened table keeps its own.
    pub buckets: u32,
    /// Rows after which a data file ends.
    pub rows_per_file: usize,
    /// A merge of at most this many rows is done within the flush that makes it due; larger ones run beside it.
    pub inline_merge_rows: u64,
    /// The share of dead rows from which a file is rewritten while rows come. At rest it is less.
    pub dead_share: f64,
    /// Whether merges run at all.
    pub compaction: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { buckets: 1, rows_per_file: 1_000_000, inline_merge_rows: 100_000, dead_share: 0.2, compaction: true }
    }
}

/// A snapshot whose objects are all written except the snapshot file itself, and the version readers see at it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The exact bytes of the next snapshot file.
    pub snapshot: PreparedSnapshot,
    /// The same state for readers.
    pub version: Arc<TableVersion>,
}

#[cfg(test)]
mod tests;
