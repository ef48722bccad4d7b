//! Mirrored tables as DataFusion sees them.
//!
//! [`MirrorTable`] is one version of one table. Its scan is DataFusion's own Parquet source over the version's files, with
//! the deletion vectors given as row selections, so that pruning, late materialisation, dynamic filters and spilling are
//! DataFusion's. To read: [`provider`], [`scan`] (how the plan is put together), [`evolution`] (files of an older schema),
//! [`deletions`] (from a bitmap to a row selection), [`key_order`] (sorts by the key become merges of runs), [`statistics`], [`checked`] (faults of files, by name).

mod catalog;
mod checked;
mod deletions;
mod evolution;
mod key_filter;
mod key_order;
mod provider;
mod scan;
mod statistics;
#[cfg(test)]
mod tests;

pub use catalog::MirrorCatalog;
pub(crate) use catalog::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, SEARCH_PATH_SCHEMA, SYS, SessionCatalog, quoted};
pub use checked::FileError;
pub(crate) use key_order::KeyOrder;
pub use provider::MirrorTable;
pub use scan::{STORE_URL, ScanCache};
