//! A MySQL or MariaDB server in the world: real event bytes, a model of everything else.
//!
//! [`table`]: tables, rows and what is done to them. [`events`]: the log's bytes. [`engine`]: transactions, the log and what of it
//! is visible. [`server`]: the connections that capture makes.

pub mod engine;
mod events;
pub mod server;
pub mod table;
