//! SQL: from the text of a statement to its result.

pub mod error;

pub use error::SqlError;
