//! A MySQL or MariaDB server in the world: real event bytes, a model of everything else.
//!
//! [`table`]: tables, rows and what is done to them. `events`: the log's bytes, `log`: its files. [`engine`]: transactions and what
//! of them is visible. [`durable`]: what a capture must not ask for again. `replica`: another server in the place of this one.
//! [`server`]: the connections that capture makes. [`sql`]: the statements that do on a real server what was done here.

pub mod durable;
pub mod engine;
mod events;
mod log;
mod replica;
pub mod server;
pub mod sql;
pub mod table;
