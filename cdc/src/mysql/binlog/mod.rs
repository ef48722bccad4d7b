//! Binlog events from their bytes: pure decoding, no connection and no runtime.
//!
//! [`parse_event`] reads one event. A [`TableMap`] together with the table's definition compiles into a [`RowDecoder`], which decodes the
//! row events that follow straight into a [`RowBuffer`](crate::rows::RowBuffer). Input that cannot be understood is an error; nothing
//! here panics on foreign bytes.

mod decimal;
mod decode;
mod error;
mod event;
mod gtid;
mod json;
mod payload;
mod query;
mod reader;
#[cfg(test)]
mod recorded;
mod rows_event;
mod table_map;

pub mod stream;

pub use decode::RowDecoder;
pub use error::{DecodeError, Mismatch};
pub use event::{Checksum, Event, EventHeader, FormatDescription, Xid, checksum_of_format_description, parse_event};
pub use gtid::{MariaGtid, MysqlGtid};
pub use payload::{PayloadEvents, TransactionPayload};
pub use query::Query;
pub use rows_event::{RowsChange, RowsEvent};
pub use table_map::TableMap;
