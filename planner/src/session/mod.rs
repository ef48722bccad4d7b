//! What runs statements: one [`Engine`] for the process, one [`Session`] for each connection.
//!
//! [`engine`] holds what all sessions share, [`execute`] is where a statement goes, [`transaction`] and [`settings`] are the state of a
//! connection, [`query`] plans what DataFusion runs, [`sources`], [`objects`], [`wait`], [`verify`], [`explain`] and [`show`] run the
//! statements of our own, [`outcome`] and [`names`] are what statements answer, and [`diagnose`] says DataFusion's errors as PostgreSQL would.

mod compact;
mod diagnose;
mod engine;
mod execute;
mod explain;
mod names;
mod objects;
mod outcome;
mod query;
pub mod settings;
mod show;
mod sources;
mod transaction;
mod verify;
mod wait;

pub use engine::{Engine, EngineOptions};
pub use execute::{Description, Session, SessionOptions};
pub use outcome::{Notice, Outcome, RowsTag, Severity};
pub use transaction::TransactionStatus;

pub use crate::sql::Parsed as ParsedStatement;
