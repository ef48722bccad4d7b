//! The capture job of one source: binlog stream and snapshot pages in, checkpoints out.
//!
//! Reading order: [`view`] (what readers get), [`status`] (what operators get), [`state`] (what a checkpoint holds of a
//! job), [`table`] (one captured table while the job runs), [`pages`] (the readers of the initial snapshot),
//! [`coordinator`] (the loop that joins stream and pages and cuts checkpoints), [`transaction`] (where transactions begin and end), [`schema_change`] (DDL on captured tables), [`resync`] (tables that somebody wants to be read again), [`applier`] (writers and commits),
//! [`memory`] (what rows take on their way), [`housekeeping`] (what is old goes), [`session`] (recovery and connections), [`held`] (rows of prepared XA transactions), [`early_xa`] (XA transactions at the first position), [`job`] (lease, retries, the handle), [`storage_error`] (storage's errors in
//! capture's codes).

mod applier;
mod coordinator;
mod early_xa;
mod held;
mod housekeeping;
mod job;
mod memory;
mod pages;
mod resync;
mod schema_change;
mod session;
mod state;
mod status;
mod storage_error;
mod table;
mod transaction;
mod view;

pub use job::{CaptureEnv, CaptureHandle, CaptureJob};
pub use memory::MemoryUse;
pub use state::{HeldPart, HeldTransaction, RangeState, SourceState, TablePhase, TableState, XaCommit};
pub use status::{ErrorInfo, JobState, JobStatus, RangeStatus, TableProgress, TableRetention, TableStatus};
pub use view::{SourceView, TableView, load_view};
