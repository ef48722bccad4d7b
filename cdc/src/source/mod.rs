//! What a source is: its definition, the position it has reached, and the examination before it starts.

pub mod definition;
pub mod examine;
pub mod position;
