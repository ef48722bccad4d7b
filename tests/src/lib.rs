//! What the end-to-end tests and the benchmarks share: real servers, a Tidegate process, writers, readers and comparisons.
//!
//! Read [`servers`] and [`gate`] for the processes under test (kept by [`guard`]), [`pg`] and [`pypaimon`] for what reads, [`workload`] and [`bank`] for what
//! writes, [`s3`] for a store that is not a folder and [`proxy`] for what may happen on the way to it, [`await_state`] for waiting, [`canonical`] for how tables are compared, [`checkpoints`] for reading the store without the server, [`book`] for the
//! pages of the book that are made from the code.

pub mod await_state;
pub mod bank;
pub mod book;
pub mod canonical;
pub mod checkpoints;
pub mod gate;
pub mod guard;
pub mod pg;
pub mod proxy;
pub mod pypaimon;
pub mod s3;
pub mod servers;
pub mod workload;
