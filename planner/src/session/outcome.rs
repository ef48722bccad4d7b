//! What a statement answers.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

use crate::error::SqlError;

/// PostgreSQL's severities of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    Notice,
    Warning,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// Something the user should know of a statement that went well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    pub sqlstate: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Notice {
    pub fn info(message: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, sqlstate: "00000", message: message.into(), detail: None, hint: None }
    }

    pub fn warning(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, sqlstate, message: message.into(), detail: None, hint: None }
    }

    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// The command tag of a result with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsTag {
    /// `SELECT n`.
    Select,
    /// `SHOW`, `EXPLAIN`.
    Named(&'static str),
}

impl RowsTag {
    /// The tag after `rows` rows.
    pub fn text(self, rows: u64) -> String {
        match self {
            Self::Select => format!("SELECT {rows}"),
            Self::Named(name) => name.to_owned(),
        }
    }
}

/// The result of a statement. An error of the stream holds a [`SqlError`]; [`SqlError::from`] takes it out.
pub enum Outcome {
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream, tag: RowsTag, notices: Vec<Notice> },
    Command { tag: String, notices: Vec<Notice> },
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rows { schema, tag, .. } => {
                f.debug_struct("Rows").field("schema", schema).field("tag", tag).finish_non_exhaustive()
            }
            Self::Command { tag, notices } => {
                f.debug_struct("Command").field("tag", tag).field("notices", notices).finish()
            }
        }
    }
}

impl Outcome {
    pub(super) fn command(tag: impl Into<String>) -> Self {
        Self::Command { tag: tag.into(), notices: Vec::new() }
    }

    pub(super) fn noticed(tag: impl Into<String>, notice: Notice) -> Self {
        Self::Command { tag: tag.into(), notices: vec![notice] }
    }

    /// Rows of text.
    pub(super) fn texts(columns: &[&str], rows: &[Vec<String>], tag: RowsTag) -> Result<Self, SqlError> {
        let schema = text_schema(columns);
        let arrays = (0..columns.len()).map(|column| {
            let values = rows.iter().map(|row| row.get(column).map(String::as_str));
            Arc::new(values.collect::<StringArray>()) as ArrayRef
        });
        let batch = RecordBatch::try_new(schema.clone(), arrays.collect())
            .map_err(|error| SqlError::internal(format!("a result could not be built: {error}")))?;
        let stream = RecordBatchStreamAdapter::new(schema.clone(), futures::stream::iter([Ok(batch)]));
        Ok(Self::Rows { schema, stream: Box::pin(stream), tag, notices: Vec::new() })
    }
}

pub(super) fn text_schema(columns: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect::<Vec<_>>()))
}
