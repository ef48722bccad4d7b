//! Row events up to their row images.

use std::borrow::Cow;

use super::error::DecodeError;
use super::event::maria_uncompress;
use super::reader::{Cut, Reader};

/// What a row event did to its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsChange {
    /// Each row has an image after the change.
    Insert,
    /// Each row has an image before and one after the change.
    Update,
    /// Each row has an image before the change.
    Delete,
    /// An update whose images after the change may hold differences of JSON documents.
    PartialUpdate,
}

/// Changes of rows of one table.
#[derive(Clone, Debug)]
pub struct RowsEvent<'a> {
    /// The number that a table map before this event gave to the table.
    pub table_id: u64,
    /// Flags of the event.
    pub flags: u16,
    /// The kind of change.
    pub change: RowsChange,
    /// The number of columns.
    pub width: usize,
    /// One bit per column that is in the first image of each row.
    pub(super) present: &'a [u8],
    /// One bit per column that is in the image after an update.
    pub(super) present_after: &'a [u8],
    /// The images.
    pub(super) rows: Cow<'a, [u8]>,
}

impl RowsEvent<'_> {
    /// The table number that stands for no table.
    pub(super) const NO_TABLE: u64 = 0x00ff_ffff;

    /// Whether the statement ends here, and with it the table maps' numbers.
    pub fn ends_statement(&self) -> bool {
        self.flags & 1 != 0
    }

    /// The size of the row images in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.len()
    }
}

pub(super) fn parse(kind: u8, body: &[u8], compressed: bool) -> Result<RowsEvent<'_>, DecodeError> {
    let mut reader = Reader::new(body);
    let table_id = reader.u48()?;
    let flags = reader.u16()?;
    if kind >= 30 {
        // Extra data; its length counts itself.
        let length = usize::from(reader.u16()?);
        reader.bytes(length.checked_sub(2).ok_or(Cut)?)?;
    }
    let width = usize::try_from(reader.length()?).map_err(|_| Cut)?;
    let bitmap = width.div_ceil(8);
    let present = reader.bytes(bitmap)?;
    let change = match kind {
        23 | 30 => RowsChange::Insert,
        24 | 31 => RowsChange::Update,
        25 | 32 => RowsChange::Delete,
        _ => RowsChange::PartialUpdate,
    };
    let present_after = match change {
        RowsChange::Update | RowsChange::PartialUpdate => reader.bytes(bitmap)?,
        RowsChange::Insert | RowsChange::Delete => present,
    };
    let rows = if compressed { maria_uncompress(reader.rest())? } else { Cow::Borrowed(reader.rest()) };
    Ok(RowsEvent { table_id, flags, change, width, present, present_after, rows })
}
