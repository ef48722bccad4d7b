//! Capture and storage in a world of one thread, in which everything that happens comes from a seed.
//!
//! The code of `cdc` and `storage` runs here as it is, over a server and a store that are models, with a clock that stands still
//! unless the world moves it. Equal seeds give equal worlds, down to the last request. In this order: [`world`] (time, chance, the
//! trace), [`mysql`] and [`store`] (the models), [`host`] (a process that captures), [`scenario`] (what a seed makes of a world),
//! [`check`] (what must hold), [`run`] (a world from its beginning to its end).

pub mod check;
pub mod host;
pub mod mysql;
pub mod run;
pub mod scenario;
pub mod store;
pub mod world;
