//! Reading tables: key ranges for parallelism, pages for progress. No lock is taken, and no order is computed here: the
//! server compares keys.

pub mod pages;
pub mod ranges;

pub(crate) mod key;

pub use key::{KeyColumn, KeyRange, KeyValue};
