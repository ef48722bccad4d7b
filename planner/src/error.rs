//! The error of a statement, in PostgreSQL's form.

use std::fmt;

/// SQLSTATE classes used here (PostgreSQL manual, appendix A).
pub mod sqlstate {
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const NUMERIC_VALUE_OUT_OF_RANGE: &str = "22003";
    pub const DATETIME_FIELD_OVERFLOW: &str = "22008";
    pub const INVALID_DATETIME_FORMAT: &str = "22007";
    pub const DIVISION_BY_ZERO: &str = "22012";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const INVALID_TEXT_REPRESENTATION: &str = "22P02";
    pub const READ_ONLY_TRANSACTION: &str = "25006";
    pub const ACTIVE_TRANSACTION: &str = "25001";
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub const FAILED_TRANSACTION: &str = "25P02";
    pub const INVALID_PASSWORD: &str = "28P01";
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub const DEPENDENT_OBJECTS: &str = "2BP01";
    pub const INVALID_SAVEPOINT: &str = "3B001";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const DUPLICATE_OBJECT: &str = "42710";
    pub const GROUPING_ERROR: &str = "42803";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const AMBIGUOUS_TABLE: &str = "42P09";
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    pub const INVALID_SCHEMA_NAME: &str = "3F000";
    pub const INSUFFICIENT_RESOURCES: &str = "53000";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const DISK_FULL: &str = "53100";
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub const OBJECT_NOT_READY: &str = "55000";
    pub const QUERY_CANCELED: &str = "57014";
    pub const IO_ERROR: &str = "58030";
    pub const INTERNAL_ERROR: &str = "XX000";
    pub const DATA_CORRUPTED: &str = "XX001";
}

/// What a statement answers instead of a result.
///
/// `code` is the stable code of a page of the book (`TG0107`); the front end prints it behind the message in brackets.
/// `position` counts characters from 1 in the text that was sent, as PostgreSQL's `P` field does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    pub sqlstate: &'static str,
    pub code: Option<String>,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    pub position: Option<usize>,
}

impl SqlError {
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, code: None, message: message.into(), detail: None, hint: None, position: None }
    }

    /// A statement that PostgreSQL's grammar or ours does not have.
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(sqlstate::SYNTAX_ERROR, message)
    }

    /// Something that has a meaning, but not here or not yet.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
    }

    /// A fault of this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(sqlstate::INTERNAL_ERROR, message)
    }

    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Points at a character of the text, counted from 1.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.position = Some(position);
        self
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

impl From<tidegate_cdc::error::Error> for SqlError {
    fn from(error: tidegate_cdc::error::Error) -> Self {
        let mut converted = Self::new(error.sqlstate(), error.message.clone()).with_code(error.code.to_string());
        converted.detail.clone_from(&error.detail);
        converted.hint = Some(error.hint().to_owned());
        converted
    }
}
