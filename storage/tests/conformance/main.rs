//! Tables of this crate as other engines see them, and tables of other engines as this crate does.
//!
//! The engines are pypaimon and Paimon's own Java implementation (`tests/java`); `tests/servers/install.sh` installs both. They
//! share no code with this crate. Every state of a table is read by both, by this crate, and compared with a model in
//! memory that knows nothing of files.
//!
//! * `engines` asks them; `texts` are values as all of them say them, `values` which values there are.
//! * `mirror` is a table with its model; `files` reads a version's files, without an engine of any kind.
//! * `encoders`: a table written with this crate's encoders alone; `writer`, `keys`, `histories`, `evolution`, `defaults`, `changelog`, `retention`: by its writer.
//! * `rows`: keys as bytes, and their buckets; `golden`: a table that is neither's.
//! * `foreign`: tables that Java has written to.

#![allow(clippy::disallowed_methods, reason = "tests against real servers and stores are in the time that there is")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod changelog;
mod defaults;
mod encoders;
mod engines;
mod evolution;
mod files;
mod foreign;
mod golden;
mod histories;
mod keys;
mod mirror;
mod retention;
mod rows;
mod texts;
mod values;
mod writer;
