//! The key index: in which row of a data file a key is.
//!
//! Each data file has its sorted keys here, whose positions are those of the rows. They are packed, and kept in
//! segments: those used last in memory up to a bound that holds for all tables together, all of them on the local
//! disk. The local disk is a cache. What is missing there is made from the key columns of the data files, and what is
//! damaged there is noticed, removed and made anew.
//!
//! * `packed`: ascending integers and byte strings in few bits, looked up in place.
//! * `segment`: one piece that is read, written and kept as a whole.
//! * `cache`: which segments are in memory.
//! * `set`: the keys of one data file.

mod cache;
mod packed;
mod segment;
mod set;

pub use cache::{DEFAULT_KEY_MEMORY, KeyCache};
pub(crate) use set::{KeySet, KeySetBuilder};

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::cache::tests::MemoryDisk;
}
