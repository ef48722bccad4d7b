//! The binlog: decoding of its events, and the stream they come from.
