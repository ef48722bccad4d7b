//! Checkpoints: the records whose creation is the commit point of a source.
//!
//! Everything a source's tables consist of is written first, and nothing refers to it. Then one record,
//! `checkpoint-<n>`, is created conditionally: it holds the source's position and, for each table, the exact bytes of
//! its next snapshot. Afterwards the snapshots are published under their own names, again by conditional creates, so
//! that other readers of the tables find them. A record's name is the fence: of two writers only one can create it.
//!
//! * [`record`]: what a checkpoint says, its bytes, and how a full record and those behind it add up.
//! * [`log`]: the records of one source in the store.
//! * [`publish()`]: from a prepared snapshot to a snapshot file.
//! * [`lease`]: one owner per source at a time.
//! * [`retire()`]: the end of a source.

pub mod lease;
pub mod log;
mod publish;
pub mod record;
mod retire;

pub use lease::{Claim, Holder, LEASE_TTL_MS, Lease, LeaseWatch};
pub use log::{CheckpointLog, CommitOutcome, FULL_EVERY, source_directory};
pub use publish::{PublishOutcome, publish};
pub use record::{CheckpointRecord, CheckpointState, PreparedSnapshot, TableCommit, digest};
pub use retire::{is_retired, retire, retired_path};
