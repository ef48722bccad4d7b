//! PostgreSQL's protocol, version 3.0.

pub(crate) mod auth;
pub(crate) mod cancel;
pub(crate) mod connection;
mod encode;
mod errors;
mod extended;
mod message;
mod output;
mod params;
mod rows;
mod session;
mod simple;
mod startup;

pub use auth::PasswordFileError;
