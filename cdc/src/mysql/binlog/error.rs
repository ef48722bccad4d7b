//! What can be wrong with an event, and with a table map that does not fit the table's definition.

use super::reader::Cut;
use crate::rows::PushError;

/// Why an event was not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The event ends early, or a length in it is wrong.
    #[error("a binlog event is cut short")]
    Truncated,
    /// The event's bytes contradict its format.
    #[error("a binlog event is malformed: {0}")]
    Malformed(String),
    /// A row event without all columns: `binlog_row_image` is not FULL in the session that wrote it.
    #[error("a row event holds only some of the columns (binlog_row_image is not FULL)")]
    MinimalImage,
    /// A row event with JSON differences: `binlog_row_value_options` has PARTIAL_JSON in the session that wrote it.
    #[error(
        "a row event holds changes of JSON documents instead of whole rows (binlog_row_value_options = PARTIAL_JSON)"
    )]
    PartialJson,
    /// A NULL, or a zero date, in a column of the key.
    #[error("column {column}: NULL or a zero date in a key")]
    NullKey {
        /// The column's name.
        column: String,
    },
    /// A value that its column cannot hold.
    #[error("column {column}: {reason}")]
    Value {
        /// The column's name.
        column: String,
        /// What is wrong with the value; never the value itself.
        reason: String,
    },
    /// The row event, or the buffer to decode into, is not the one that the decoder was compiled for.
    #[error("a row event does not fit its table map: {0}")]
    WrongTable(String),
    /// A compressed event that does not unpack.
    #[error("a compressed binlog event cannot be unpacked: {0}")]
    Compression(String),
}

impl From<Cut> for DecodeError {
    fn from(_: Cut) -> Self {
        Self::Truncated
    }
}

/// What is wrong with one value, before its column is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    Cut,
    Push(PushError),
    Bad(String),
}

impl From<Cut> for ValueError {
    fn from(_: Cut) -> Self {
        Self::Cut
    }
}

impl From<PushError> for ValueError {
    fn from(error: PushError) -> Self {
        Self::Push(error)
    }
}

/// Why a table map does not fit a version of the table's definition. Row events under it must not be decoded by that version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The table map itself cannot be read.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// Other numbers of columns.
    #[error("the row event has {event} columns, the table's definition has {table}")]
    ColumnCount {
        /// Columns in the event.
        event: usize,
        /// Columns in the definition.
        table: usize,
    },
    /// The server logs no column names.
    #[error("the row event has no column names (binlog_row_metadata is not FULL)")]
    NoColumnNames,
    /// A column has another name.
    #[error("column {position} is called {event} in the row event and {table} in the table's definition")]
    Name {
        /// Counted from 1.
        position: usize,
        /// In the event.
        event: String,
        /// In the definition.
        table: String,
    },
    /// A column has another type.
    #[error("column {column} is {event} in the row event and {table} in the table's definition")]
    Type {
        /// The column's name.
        column: String,
        /// In the event.
        event: String,
        /// In the definition.
        table: String,
    },
    /// The column's type or charset cannot be decoded.
    #[error("column {column}: {reason}")]
    Unsupported {
        /// The column's name.
        column: String,
        /// Why.
        reason: String,
    },
    /// A column of the mirror is not in the source's table, or has a type that the source's column does not give.
    #[error("column {column} of the mirrored table does not come from the table's definition: {reason}")]
    Target {
        /// The column's name.
        column: String,
        /// Why.
        reason: String,
    },
}
