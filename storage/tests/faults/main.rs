//! Stores and processes that fail: what was committed stays, whole, whatever happens to whoever wrote it.
//!
//! * [`world`]: a source of several tables that is written by a script, a model of it, and what must hold of its store.
//! * [`crash`]: the process dies at every request that it makes.
//! * [`race`]: two writers race for checkpoints, over a store that answers late, twice or never; [`s3`]: on real servers.

#![allow(clippy::disallowed_methods, reason = "tests against real servers and stores are in the time that there is")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod crash;
#[path = "../../../tests/src/guard.rs"]
#[allow(dead_code, unreachable_pub, reason = "the end-to-end tests ask more of it")]
mod guard;
mod race;
mod s3;
mod world;

/// The allocator of the server. Half of the time of so many short lives would be spent on giving memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
