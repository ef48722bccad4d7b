//! The server: command line, PostgreSQL front end, and the supervisor of the capture jobs.
//!
//! It joins the others and holds no knowledge of its own about SQL (`tidegate-planner`), sources (`tidegate-cdc`) or
//! tables (`tidegate-storage`).
//!
//! To read: [`config`] (options), [`server`] (start and stop), `supervisor` (capture jobs), then `pg`, in the order a
//! message takes: `connection` (the socket), `startup` and `auth` (who comes), `message` (the wire format), `session` (what a
//! message does, with `simple` and `extended`), `params` (values sent by clients), `rows`, `encode` and `output` (results),
//! `errors`, `cancel`.

pub mod config;
mod pg;
pub mod server;
mod supervisor;

pub use pg::PasswordFileError;
