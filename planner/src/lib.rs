//! SQL: from the text of a statement to its result.

pub mod context;
pub mod error;
pub mod pg_catalog;
pub mod table;

pub use error::SqlError;
