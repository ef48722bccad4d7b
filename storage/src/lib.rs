//! Primary-key tables in Apache Paimon's format, and the checkpoints that make them visible.
//!
//! This crate knows how rows become files in an object store, when they count as written, and how they are found
//! again. It knows nothing of MySQL, of SQL, or of who reads the tables.
//!
//! In reading order:
//!
//! * [`error`]: what can go wrong with stored data, and what each kind asks of the caller.
//! * [`paimon`]: the table format as pure functions over bytes: schemas, snapshots, manifests, binary rows, deletion
//!   vectors, Parquet files, paths. No I/O.
//! * [`store`]: opening object stores, creating objects conditionally, and the decorators around a store.
//! * [`table`]: one table: its live files, its key index, its writer.
//! * [`checkpoint`]: the records whose creation is the commit point of a whole source, the publication of table
//!   snapshots, and the lease that keeps one owner per source.
//! * [`clock`]: the time of day, passed in, as is chance ([`random`]). [`workers`]: where long work is done. [`local_disk`]:
//!   files that can be lost.

pub mod checkpoint;
pub mod clock;
pub mod error;
pub mod local_disk;
pub mod paimon;
pub mod random;
pub mod store;
pub mod table;
pub mod workers;
mod zstd_contexts;

pub use error::{Error, ErrorKind, Result};
