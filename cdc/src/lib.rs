//! Capture: MySQL and MariaDB databases become checkpoints of primary-key tables.
//!
//! A source's tables are read in pages while its binlog is already being followed; what the log says about a key always
//! wins over what a page said. Everything becomes durable, and visible, in checkpoints only (crate `tidegate-storage`).
//!
//! This crate knows MySQL and nothing of SQL text in the gateway: it is handed a [`source::definition::SourceDefinition`]
//! and runs it. Read in this order: [`source`] (what a source is, and where it is), [`mysql`] (connection, catalog, pages
//! of a snapshot, the binlog, schema changes), [`rows`] (columns that both paths append to), `capture` (the job that
//! joins them), [`error`] (what can go wrong, and what happens then).

pub mod capture;
pub mod error;
pub mod mysql;
pub mod rows;
pub mod source;
