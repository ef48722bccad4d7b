//! SQL: from the text of a statement to its result.
//!
//! Statements about sources, secrets and connections are parsed here and run against the catalog (definitions in the object
//! store) and the jobs that capture; everything else is DataFusion's SQL over the mirrored tables as one checkpoint has them.
//! Nothing here speaks a client's protocol or MySQL's: `server` does the one, `tidegate-cdc` the other.
//!
//! To read: [`error`], [`sql`] (text to statement), [`catalog`] (what is defined), [`session`] (what a connection may run,
//! and how), [`jobs`] (the seam to what captures), [`context`] (what a statement is run in), then `table` and `pg_catalog` (what
//! queries see) and [`sys`] (system views).

pub mod catalog;
pub mod context;
pub mod error;
pub mod jobs;
pub mod pg_catalog;
pub mod session;
pub mod sql;
pub mod sys;
pub mod table;

pub use error::SqlError;
pub use jobs::Jobs;
pub use session::{
    Engine, EngineOptions, Notice, Outcome, ParsedStatement, RowsTag, Session, SessionOptions, Severity,
    TransactionStatus,
};
