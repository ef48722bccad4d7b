//! Capture and storage in a world of one thread, in which everything that happens comes from a seed.
//!
//! The code of `cdc` and `storage` runs here as it is, over a server and a store that are models, with a clock that stands still
//! unless the world moves it. Equal seeds give equal worlds, down to the last request. In this order: [`world`] (time, chance, the
//! trace), [`mysql`] and [`store`] (the models), [`host`] (a process that captures), [`scenario`] (what a seed makes of a world),
//! `workload` (what happens in the database), `kept` (others who need old snapshots), [`check`] (what must hold), [`run`] (a world
//! from its beginning to its end), [`shrink`] (a smaller world in which the same is found), [`history`] (the model of a server for
//! itself, to be compared with a real one).

pub mod check;
pub mod history;
pub mod host;
mod kept;
pub mod mysql;
pub mod rows;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod store;
mod workload;
pub mod world;
