//! Apache Paimon's table format for primary-key tables with deletion vectors, as pure functions over bytes.
//!
//! The rules come from Paimon's own specification (`docs/concepts/spec`) and, where the two differ, from what its
//! readers do. Nothing in here does I/O; every decoder takes the name of the object only to say it in errors.
//!
//! Start with [`schema`] (what a table is; `initial_default` what old rows have in an added column) and [`snapshot`] (one version of it), then [`manifest`] (which files a
//! version has), [`data_file`] (with its digests in `block_digest`) and [`deletion_vector`] (what is in them), [`binary_row`] and [`bucket`] (keys as bytes
//! and where they belong), [`paths`] (where everything lies).

mod avro;
pub mod binary_row;
pub(crate) mod block_digest;
pub mod bucket;
pub mod data_file;
pub mod data_type;
pub mod deletion_vector;
mod initial_default;
mod json_digest;
pub mod manifest;
pub mod paths;
pub mod schema;
pub mod snapshot;

pub use data_type::DataType;
pub use manifest::{
    DataFileMeta, DeletionVectorMeta, FileKind, FileSource, IndexManifestEntry, ManifestEntry, ManifestFileMeta,
    SimpleStats,
};
pub use paths::TablePaths;
pub use schema::{CHANGELOG_INPUT, CHANGELOG_PRODUCER, ColumnPosition, Field, NewField, SchemaChange, TableSchema};
pub use snapshot::{CommitKind, Snapshot};
