//! Rows of the binary protocol, value by value, without a copy.

use mysql_async::Value;
use mysql_async::consts::{ColumnFlags, ColumnType};

/// A value of a row, where it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Int(i64),
    /// A BIGINT UNSIGNED; smaller numbers fit into [`Cell::Int`].
    UInt(u64),
    Float(f32),
    Double(f64),
    /// Everything else, in the server's own spelling.
    Bytes(&'a [u8]),
    /// Year, month, day, hour, minute, second, microseconds.
    Date(u16, u8, u8, u8, u8, u8, u32),
    /// Whether negative, days, hours, minutes, seconds, microseconds.
    Time(bool, u32, u8, u8, u8, u32),
}

impl Cell<'_> {
    /// The value by itself.
    pub(crate) fn to_value(self) -> Value {
        match self {
            Cell::Null => Value::NULL,
            Cell::Int(value) => Value::Int(value),
            Cell::UInt(value) => Value::UInt(value),
            Cell::Float(value) => Value::Float(value),
            Cell::Double(value) => Value::Double(value),
            Cell::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Cell::Date(year, month, day, hour, minute, second, micros) => {
                Value::Date(year, month, day, hour, minute, second, micros)
            }
            Cell::Time(negative, days, hours, minutes, seconds, micros) => {
                Value::Time(negative, days, hours, minutes, seconds, micros)
            }
        }
    }
}

/// How a column's values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the protocol's own names")]
pub enum Form {
    Tiny { unsigned: bool },
    Short { unsigned: bool },
    Long { unsigned: bool },
    LongLong { unsigned: bool },
    Float,
    Double,
    Date,
    Time,
    Bytes,
    Null,
}

impl Form {
    /// Of the columns that a server describes so.
    pub fn of(column_type: ColumnType, flags: ColumnFlags) -> Self {
        let unsigned = flags.contains(ColumnFlags::UNSIGNED_FLAG);
        match column_type {
            ColumnType::MYSQL_TYPE_TINY => Form::Tiny { unsigned },
            ColumnType::MYSQL_TYPE_SHORT | ColumnType::MYSQL_TYPE_YEAR => Form::Short { unsigned },
            ColumnType::MYSQL_TYPE_LONG | ColumnType::MYSQL_TYPE_INT24 => Form::Long { unsigned },
            ColumnType::MYSQL_TYPE_LONGLONG => Form::LongLong { unsigned },
            ColumnType::MYSQL_TYPE_FLOAT => Form::Float,
            ColumnType::MYSQL_TYPE_DOUBLE => Form::Double,
            ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_TIMESTAMP => {
                Form::Date
            }
            ColumnType::MYSQL_TYPE_TIME => Form::Time,
            ColumnType::MYSQL_TYPE_NULL => Form::Null,
            _ => Form::Bytes,
        }
    }
}

/// A row that ends too early, or does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of the server is malformed")]
pub(crate) struct BadRow;

/// The values of one row, in order.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    forms: &'a [Form],
    /// One bit for each column, from the third bit on: set for NULL.
    nulls: &'a [u8],
    rest: &'a [u8],
    index: usize,
}

impl<'a> Cells<'a> {
    /// The row in a packet of the binary protocol.
    pub(crate) fn new(forms: &'a [Form], packet: &'a [u8]) -> Result<Self, BadRow> {
        let Some((0, rest)) = packet.split_first() else { return Err(BadRow) };
        let (nulls, rest) = rest.split_at_checked((forms.len() + 2).div_ceil(8)).ok_or(BadRow)?;
        Ok(Self { forms, nulls, rest, index: 0 })
    }

    /// The next value; an error behind the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Cell<'a>, BadRow> {
        let form = *self.forms.get(self.index).ok_or(BadRow)?;
        let bit = self.index + 2;
        self.index += 1;
        if self.nulls.get(bit / 8).ok_or(BadRow)? & (1 << (bit % 8)) != 0 {
            return Ok(Cell::Null);
        }
        Ok(match form {
            Form::Tiny { unsigned: false } => Cell::Int(i64::from(i8::from_le_bytes(self.take()?))),
            Form::Tiny { unsigned: true } => Cell::Int(i64::from(u8::from_le_bytes(self.take()?))),
            Form::Short { unsigned: false } => Cell::Int(i64::from(i16::from_le_bytes(self.take()?))),
            Form::Short { unsigned: true } => Cell::Int(i64::from(u16::from_le_bytes(self.take()?))),
            Form::Long { unsigned: false } => Cell::Int(i64::from(i32::from_le_bytes(self.take()?))),
            Form::Long { unsigned: true } => Cell::Int(i64::from(u32::from_le_bytes(self.take()?))),
            Form::LongLong { unsigned: false } => Cell::Int(i64::from_le_bytes(self.take()?)),
            Form::LongLong { unsigned: true } => Cell::UInt(u64::from_le_bytes(self.take()?)),
            Form::Float => Cell::Float(f32::from_le_bytes(self.take()?)),
            Form::Double => Cell::Double(f64::from_le_bytes(self.take()?)),
            Form::Date => self.date()?,
            Form::Time => self.time()?,
            Form::Bytes => {
                let len = length(&mut self.rest).ok_or(BadRow)?;
                let (bytes, rest) = self.rest.split_at_checked(len).ok_or(BadRow)?;
                self.rest = rest;
                Cell::Bytes(bytes)
            }
            Form::Null => Cell::Null,
        })
    }

    /// Checks that nothing is left over.
    #[inline]
    pub(crate) fn end(&self) -> Result<(), BadRow> {
        if self.rest.is_empty() && self.index == self.forms.len() { Ok(()) } else { Err(BadRow) }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadRow> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(BadRow)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn date(&mut self) -> Result<Cell<'a>, BadRow> {
        let [len] = self.take()?;
        let (mut date, mut time, mut micros) = ([0; 4], [0; 3], [0; 4]);
        if !matches!(len, 0 | 4 | 7 | 11) {
            return Err(BadRow);
        }
        if len >= 4 {
            date = self.take()?;
        }
        if len >= 7 {
            time = self.take()?;
        }
        if len >= 11 {
            micros = self.take()?;
        }
        let ([low, high, month, day], [hour, minute, second]) = (date, time);
        Ok(Cell::Date(u16::from_le_bytes([low, high]), month, day, hour, minute, second, u32::from_le_bytes(micros)))
    }

    fn time(&mut self) -> Result<Cell<'a>, BadRow> {
        let [len] = self.take()?;
        let (mut sign, mut days, mut time, mut micros) = ([0], [0; 4], [0; 3], [0; 4]);
        if !matches!(len, 0 | 8 | 12) {
            return Err(BadRow);
        }
        if len >= 8 {
            sign = self.take()?;
            days = self.take()?;
            time = self.take()?;
        }
        if len >= 12 {
            micros = self.take()?;
        }
        let [hours, minutes, seconds] = time;
        Ok(Cell::Time(sign != [0], u32::from_le_bytes(days), hours, minutes, seconds, u32::from_le_bytes(micros)))
    }
}

/// A length-encoded number, which is taken off the front.
#[inline]
pub(super) fn length(bytes: &mut &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first()?;
    let (value, rest) = match first {
        0..=0xfa => (u64::from(*first), rest),
        0xfc => {
            let (number, rest) = rest.split_first_chunk::<2>()?;
            (u64::from(u16::from_le_bytes(*number)), rest)
        }
        0xfd => {
            let ([a, b, c], rest) = rest.split_first_chunk::<3>()?;
            (u64::from(u32::from_le_bytes([*a, *b, *c, 0])), rest)
        }
        0xfe => {
            let (number, rest) = rest.split_first_chunk::<8>()?;
            (u64::from_le_bytes(*number), rest)
        }
        _ => return None,
    };
    *bytes = rest;
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(forms: &'a [Form], packet: &'a [u8]) -> Result<Vec<Cell<'a>>, BadRow> {
        let mut cells = Cells::new(forms, packet)?;
        let row = forms.iter().map(|_| cells.next()).collect::<Result<_, _>>()?;
        cells.end()?;
        Ok(row)
    }

    #[test]
    fn values_of_every_form() {
        let forms = [
            Form::Tiny { unsigned: false },
            Form::Tiny { unsigned: true },
            Form::Short { unsigned: true },
            Form::Long { unsigned: false },
            Form::LongLong { unsigned: true },
            Form::Double,
            Form::Bytes,
            Form::Bytes,
            Form::Date,
            Form::Time,
        ];
        let mut packet = vec![0, 0b0000_0000, 0b0000_0010, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff];
        packet.extend_from_slice(&u64::MAX.to_le_bytes());
        packet.extend_from_slice(&1.5_f64.to_le_bytes());
        packet.extend_from_slice(&[3, b'a', b'b', b'c']);
        packet.extend_from_slice(&[7, 0xe8, 0x07, 2, 29, 23, 59, 58]);
        packet.extend_from_slice(&[12, 1, 34, 0, 0, 0, 22, 59, 59, 0x3f, 0x42, 0x0f, 0]);
        let expected = vec![
            Cell::Int(-1),
            Cell::Int(255),
            Cell::Int(65_535),
            Cell::Int(-2),
            Cell::UInt(u64::MAX),
            Cell::Double(1.5),
            Cell::Bytes(b"abc"),
            Cell::Null,
            Cell::Date(2024, 2, 29, 23, 59, 58, 0),
            Cell::Time(true, 34, 22, 59, 59, 999_999),
        ];
        assert_eq!(all(&forms, &packet), Ok(expected));
        for len in 0..packet.len() {
            assert_eq!(all(&forms, &packet[..len]), Err(BadRow), "cut off after {len} bytes");
        }
        packet.push(0);
        assert_eq!(all(&forms, &packet), Err(BadRow), "a byte too many");
    }

    #[test]
    fn lengths_of_every_size() {
        let read = |bytes: &[u8]| length(&mut &*bytes);
        assert_eq!(read(&[250]), Some(250));
        assert_eq!(read(&[0xfc, 1, 2]), Some(513));
        assert_eq!(read(&[0xfd, 1, 2, 3]), Some(197_121));
        assert_eq!(read(&[0xfe, 1, 0, 0, 0, 1, 0, 0, 0]), Some(4_294_967_297));
        assert_eq!(read(&[0xfb]), None, "NULL is no length");
        assert_eq!(read(&[0xfd, 1]), None);
        assert_eq!(read(&[]), None);
    }
}
