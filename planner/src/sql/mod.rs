//! From text to statements. Pure: no catalog, no I/O.

mod cursor;
pub mod options;
mod parser;
pub mod statement;
mod tokens;

pub use parser::{Parsed, parse};
pub(crate) use tokens::{Positions, find_word};
