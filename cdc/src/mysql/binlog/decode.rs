//! From row images to column buffers.

use std::sync::Arc;

use tidegate_storage::paimon::{DataType, TableSchema};
use tidegate_storage::table::RowKind;

use super::decimal::Packed;
use super::error::{DecodeError, Mismatch, ValueError};
use super::json;
use super::reader::{Cut, Reader};
use super::rows_event::{RowsChange, RowsEvent};
use super::table_map::{Kind, MapColumn, TableMap};
use crate::mysql::charset::{self, TextDecoder};
use crate::mysql::types::{MysqlColumn, MysqlTable, MysqlType, same_name};
use crate::mysql::value::{self, DateTimeParts};
use crate::rows::{ColumnBuffer, PushError, RowBuffer};

#[cfg(test)]
mod tests;

/// Decodes the row events of one table at one version of its definition.
#[derive(Clone, Debug)]
pub struct RowDecoder {
    steps: Vec<Step>,
    names: Vec<String>,
    /// The number of columns to decode into.
    width: usize,
    /// Whether the table's changelog is to have what an update replaces.
    changelog: bool,
}

/// How a column of an image is read.
#[derive(Clone, Debug)]
struct Step {
    extent: Extent,
    read: Read,
    /// The column to decode into; none if the mirror does not have it.
    target: Option<usize>,
    key: bool,
}

/// How far a value reaches.
#[derive(Clone, Copy, Debug)]
enum Extent {
    Fixed(usize),
    /// So many bytes of length in front.
    Length1,
    Length2,
    Length3,
    Length4,
}

impl Extent {
    fn with_length(bytes: u8) -> Self {
        match bytes {
            1 => Self::Length1,
            2 => Self::Length2,
            3 => Self::Length3,
            _ => Self::Length4,
        }
    }

    #[inline]
    fn take<'a>(self, reader: &mut Reader<'a>) -> Result<&'a [u8], Cut> {
        let length = match self {
            Self::Fixed(length) => length,
            Self::Length1 => usize::from(reader.u8()?),
            Self::Length2 => usize::from(reader.u16()?),
            Self::Length3 => reader.u24()? as usize,
            Self::Length4 => reader.u32()? as usize,
        };
        reader.bytes(length)
    }
}

/// How a value's bytes are understood.
#[derive(Clone, Debug)]
enum Read {
    Skip,
    I8,
    U8,
    I16,
    U16,
    I24,
    U24,
    I32,
    U32,
    I64,
    U64,
    Decimal(Packed),
    DecimalText(Packed),
    Float,
    Double,
    Utf8,
    Text(TextDecoder),
    /// Bytes with zero bytes added up to a length.
    Padded(usize),
    Bytes,
    Date,
    Time {
        fsp: u8,
    },
    OldTime,
    DateTime {
        fsp: u8,
    },
    OldDateTime,
    Timestamp {
        fsp: u8,
    },
    OldTimestamp,
    Year,
    Enum(Arc<[String]>),
    Set(Arc<[String]>),
    Truth,
    Json,
}

impl RowDecoder {
    /// Prepares the decoding of row events under a table map into a buffer with the columns of `schema`.
    ///
    /// # Errors
    /// When the map's columns are not those of `table`, which then is another version of the table, or when a column that the schema has
    /// cannot be decoded.
    pub fn compile(map: &TableMap, table: &MysqlTable, schema: &TableSchema) -> Result<Self, Mismatch> {
        let columns = map.columns()?;
        if columns.len() != table.columns.len() {
            return Err(Mismatch::ColumnCount { event: columns.len(), table: table.columns.len() });
        }
        for field in &schema.fields {
            if table.column_index(&field.name).is_none() {
                let reason = "there is no column of that name".to_owned();
                return Err(Mismatch::Target { column: field.name.clone(), reason });
            }
        }
        let mut steps = Vec::with_capacity(columns.len());
        for (position, (event, column)) in columns.iter().zip(&table.columns).enumerate() {
            check_name(position, event, column)?;
            check_type(event, column)?;
            let target = schema.fields.iter().position(|f| same_name(&f.name, &column.name));
            let read = match target.and_then(|i| schema.fields.get(i)) {
                Some(field) => {
                    check_target(column, &field.data_type)?;
                    read_of(event, column)?
                }
                None => Read::Skip,
            };
            let key = table.primary_key.iter().any(|k| same_name(k, &column.name))
                || schema.primary_keys.iter().any(|k| same_name(k, &column.name));
            steps.push(Step { extent: extent_of(event.kind), read, target, key });
        }
        let names = table.columns.iter().map(|c| c.name.clone()).collect();
        // A kind of changelog that is not supported is refused by the table's writer.
        let changelog = schema.has_changelog().unwrap_or(false);
        Ok(Self { steps, names, width: schema.fields.len(), changelog })
    }

    /// Appends the changes of an event; returns how many rows of the table it changed. An update of the key appends the deletion of the old
    /// key in front of the new row; if the table has a changelog, another update appends the old row in front of the new one. If it
    /// fails, the buffer is as before.
    pub fn decode(&self, event: &RowsEvent<'_>, out: &mut RowBuffer) -> Result<usize, DecodeError> {
        let before = out.len();
        let result = self.decode_rows(event, out);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn decode_rows(&self, event: &RowsEvent<'_>, out: &mut RowBuffer) -> Result<usize, DecodeError> {
        if event.change == RowsChange::PartialUpdate {
            return Err(DecodeError::PartialJson);
        }
        if event.width != self.steps.len() {
            let what = format!("{} columns instead of {}", event.width, self.steps.len());
            return Err(DecodeError::WrongTable(what));
        }
        if out.width() != self.width {
            return Err(DecodeError::WrongTable(format!(
                "a buffer of {} columns instead of {}",
                out.width(),
                self.width
            )));
        }
        if !all_present(event.present, event.width) || !all_present(event.present_after, event.width) {
            return Err(DecodeError::MinimalImage);
        }
        let mut reader = Reader::new(&event.rows);
        let mut changes = 0;
        let (mut old_key, mut new_key) = (Vec::new(), Vec::new());
        while !reader.is_empty() {
            match event.change {
                RowsChange::Insert => {
                    self.read_row::<false>(&mut reader, out, &mut new_key)?;
                    out.end_row(RowKind::Upsert);
                }
                RowsChange::Delete => {
                    self.read_row::<false>(&mut reader, out, &mut new_key)?;
                    out.end_row(RowKind::Delete);
                }
                RowsChange::Update | RowsChange::PartialUpdate => {
                    let (before, rows) = (reader, out.len());
                    self.skip_row(&mut reader, &mut old_key)?;
                    let after = reader;
                    if self.changelog {
                        let mut old = before;
                        self.read_row::<false>(&mut old, out, &mut new_key)?;
                        out.end_row(RowKind::UpdateBefore);
                    }
                    self.read_row::<true>(&mut reader, out, &mut new_key)?;
                    if old_key != new_key {
                        // Rare, so the row is read again behind the deletion rather than every row through a detour.
                        out.truncate(rows);
                        let mut again = before;
                        self.read_row::<false>(&mut again, out, &mut new_key)?;
                        out.end_row(RowKind::Delete);
                        again = after;
                        self.read_row::<false>(&mut again, out, &mut new_key)?;
                    }
                    out.end_row(RowKind::Upsert);
                }
            }
            changes += 1;
        }
        Ok(changes)
    }

    /// Reads one image. With `KEY` the bytes of the key's values are noted, `None` for NULL.
    #[inline]
    fn read_row<'a, const KEY: bool>(
        &self,
        reader: &mut Reader<'a>,
        out: &mut RowBuffer,
        key: &mut Vec<Option<&'a [u8]>>,
    ) -> Result<(), DecodeError> {
        if KEY {
            key.clear();
        }
        let nulls = reader.bytes(self.steps.len().div_ceil(8))?;
        for (index, step) in self.steps.iter().enumerate() {
            let null = nulls.get(index / 8).is_none_or(|byte| byte & (1 << (index % 8)) != 0);
            let value = if null { None } else { Some(step.extent.take(reader)?) };
            if KEY && step.key {
                key.push(value);
            }
            let Some(target) = step.target else { continue };
            let column = out.column_mut(target);
            let pushed = match value {
                Some(value) => step.read.push(value, column),
                None => column.push_null().map_err(ValueError::Push),
            };
            if let Err(error) = pushed {
                return Err(self.value_error(index, error));
            }
        }
        Ok(())
    }

    /// Passes over an image, noting the bytes of the key's values.
    #[inline]
    fn skip_row<'a>(&self, reader: &mut Reader<'a>, key: &mut Vec<Option<&'a [u8]>>) -> Result<(), DecodeError> {
        key.clear();
        let nulls = reader.bytes(self.steps.len().div_ceil(8))?;
        for (index, step) in self.steps.iter().enumerate() {
            let null = nulls.get(index / 8).is_none_or(|byte| byte & (1 << (index % 8)) != 0);
            let value = if null { None } else { Some(step.extent.take(reader)?) };
            if step.key {
                key.push(value);
            }
        }
        Ok(())
    }

    #[cold]
    fn value_error(&self, index: usize, error: ValueError) -> DecodeError {
        let column = self.names.get(index).cloned().unwrap_or_default();
        match error {
            ValueError::Cut => DecodeError::Value { column, reason: "the value has too few bytes".to_owned() },
            ValueError::Push(PushError::Null) => DecodeError::NullKey { column },
            ValueError::Push(error) => DecodeError::Value { column, reason: error.to_string() },
            ValueError::Bad(reason) => DecodeError::Value { column, reason },
        }
    }
}

/// Whether the bits of all columns are set; those behind the last column mean nothing.
fn all_present(bitmap: &[u8], width: usize) -> bool {
    (0..width).all(|i| bitmap.get(i / 8).is_some_and(|byte| byte & (1 << (i % 8)) != 0))
}

fn check_name(position: usize, event: &MapColumn, column: &MysqlColumn) -> Result<(), Mismatch> {
    let name = event.name.as_ref().ok_or(Mismatch::NoColumnNames)?;
    let name = String::from_utf8_lossy(name);
    if same_name(&name, &column.name) {
        return Ok(());
    }
    Err(Mismatch::Name { position: position + 1, event: name.into_owned(), table: column.name.clone() })
}

/// Whether the log's type is the definition's. A type of the definition that is not known fits any.
fn check_type(event: &MapColumn, column: &MysqlColumn) -> Result<(), Mismatch> {
    use MysqlType as T;
    let fits = match (&column.column_type, event.kind) {
        (T::Other(_), _)
        | (T::TinyInt { .. }, Kind::Tiny)
        | (T::SmallInt { .. }, Kind::Short)
        | (T::MediumInt { .. }, Kind::Int24)
        | (T::Int { .. }, Kind::Long)
        | (T::BigInt { .. }, Kind::LongLong)
        | (T::Float { .. }, Kind::Float)
        | (T::Double { .. }, Kind::Double)
        | (T::Char { .. }, Kind::String { .. })
        | (T::Varchar { .. } | T::Varbinary { .. }, Kind::Varchar { .. })
        | (T::Date, Kind::Date)
        | (T::Time { fsp: 0 }, Kind::OldTime)
        | (T::DateTime { fsp: 0 }, Kind::OldDateTime)
        | (T::Timestamp { fsp: 0 }, Kind::OldTimestamp)
        | (T::Year, Kind::Year)
        | (T::Json, Kind::Json { .. }) => true,
        // Values are padded to the definition's length.
        (T::Binary { length }, Kind::String { bytes }) => *length == u32::from(bytes),
        (T::Decimal { precision, scale, .. }, Kind::Decimal { precision: p, scale: s }) => {
            (*precision, *scale) == (p, s)
        }
        (T::Text { size, .. } | T::Blob { size }, Kind::Blob { length_bytes }) => size.length_bytes() == length_bytes,
        (T::Time { fsp }, Kind::Time { fsp: f })
        | (T::DateTime { fsp }, Kind::DateTime { fsp: f })
        | (T::Timestamp { fsp }, Kind::Timestamp { fsp: f }) => *fsp == f,
        (T::Bit { length }, Kind::Bit { bits }) => u16::from(*length) == bits,
        (T::Enum { labels, .. }, Kind::Enum { bytes }) => bytes == if labels.len() < 256 { 1 } else { 2 },
        (T::Set { labels, .. }, Kind::Set { bytes }) => bytes == set_bytes(labels.len()),
        _ => false,
    };
    let unsigned_fits = match (event.unsigned, column.column_type.is_unsigned()) {
        (Some(event), Some(table)) => event == table,
        _ => true,
    };
    let mismatch = |event: String| {
        let table = column.column_type.to_string();
        Err(Mismatch::Type { column: column.name.clone(), event, table })
    };
    if !fits {
        return mismatch(event.kind.to_string());
    }
    if !unsigned_fits {
        return mismatch(if event.unsigned == Some(true) { "unsigned" } else { "signed" }.to_owned());
    }
    if let (MysqlType::Enum { labels, .. } | MysqlType::Set { labels, .. }, Some(logged)) =
        (&column.column_type, &event.labels)
        && labels.len() != logged.len()
    {
        return mismatch(format!("{} with {} labels", event.kind, logged.len()));
    }
    Ok(())
}

/// SET takes one byte per eight labels; beyond four bytes it takes eight.
fn set_bytes(labels: usize) -> u8 {
    match labels.div_ceil(8) {
        0 | 1 => 1,
        n @ 2..=4 => n as u8,
        _ => 8,
    }
}

fn check_target(column: &MysqlColumn, target: &DataType) -> Result<(), Mismatch> {
    let fail = |reason| Err(Mismatch::Target { column: column.name.clone(), reason });
    match column.column_type.data_type() {
        Err(reason) => fail(reason),
        Ok(given) if given.arrow() != target.arrow() => fail(format!("{given} is mirrored as {target}")),
        Ok(_) => Ok(()),
    }
}

fn extent_of(kind: Kind) -> Extent {
    let fraction = |fsp: u8| usize::from(fsp.div_ceil(2));
    match kind {
        Kind::Tiny | Kind::Year => Extent::Fixed(1),
        Kind::Short => Extent::Fixed(2),
        Kind::Int24 | Kind::Date | Kind::OldTime => Extent::Fixed(3),
        Kind::Long | Kind::Float | Kind::OldTimestamp => Extent::Fixed(4),
        Kind::LongLong | Kind::Double | Kind::OldDateTime => Extent::Fixed(8),
        Kind::Decimal { precision, scale } => Extent::Fixed(Packed::new(precision, scale).size()),
        Kind::Time { fsp } => Extent::Fixed(3 + fraction(fsp)),
        Kind::DateTime { fsp } => Extent::Fixed(5 + fraction(fsp)),
        Kind::Timestamp { fsp } => Extent::Fixed(4 + fraction(fsp)),
        Kind::Bit { bits } => Extent::Fixed(usize::from(bits.div_ceil(8))),
        Kind::Enum { bytes } | Kind::Set { bytes } => Extent::Fixed(usize::from(bytes)),
        Kind::String { bytes } | Kind::Varchar { bytes } | Kind::CompressedVarchar { bytes } => {
            if bytes < 256 {
                Extent::Length1
            } else {
                Extent::Length2
            }
        }
        Kind::Blob { length_bytes }
        | Kind::Json { length_bytes }
        | Kind::Geometry { length_bytes }
        | Kind::Vector { length_bytes }
        | Kind::CompressedBlob { length_bytes } => Extent::with_length(length_bytes),
    }
}

/// How a column's values are read, once its kind is known to fit its type.
fn read_of(event: &MapColumn, column: &MysqlColumn) -> Result<Read, Mismatch> {
    use MysqlType as T;
    Ok(match (&column.column_type, event.kind) {
        (T::TinyInt { unsigned }, _) => {
            if *unsigned {
                Read::U8
            } else {
                Read::I8
            }
        }
        (T::SmallInt { unsigned }, _) => {
            if *unsigned {
                Read::U16
            } else {
                Read::I16
            }
        }
        (T::MediumInt { unsigned }, _) => {
            if *unsigned {
                Read::U24
            } else {
                Read::I24
            }
        }
        (T::Int { unsigned }, _) => {
            if *unsigned {
                Read::U32
            } else {
                Read::I32
            }
        }
        (T::BigInt { unsigned }, _) => {
            if *unsigned {
                Read::U64
            } else {
                Read::I64
            }
        }
        (T::Decimal { precision, scale, .. }, _) => {
            let packed = Packed::new(*precision, *scale);
            if *precision <= 38 { Read::Decimal(packed) } else { Read::DecimalText(packed) }
        }
        (T::Float { .. }, _) => Read::Float,
        (T::Double { .. }, _) => Read::Double,
        (T::Char { text, .. } | T::Varchar { text, .. } | T::Text { text, .. }, _) => {
            match text_decoder(event, column, &text.charset)? {
                TextDecoder::Utf8 => Read::Utf8,
                other => Read::Text(other),
            }
        }
        (T::Binary { length }, _) => Read::Padded(*length as usize),
        (T::Varbinary { .. } | T::Blob { .. }, _) => Read::Bytes,
        (T::Date, _) => Read::Date,
        (T::Time { .. }, Kind::OldTime) => Read::OldTime,
        (T::Time { fsp }, _) => Read::Time { fsp: *fsp },
        (T::DateTime { .. }, Kind::OldDateTime) => Read::OldDateTime,
        (T::DateTime { fsp }, _) => Read::DateTime { fsp: *fsp },
        (T::Timestamp { .. }, Kind::OldTimestamp) => Read::OldTimestamp,
        (T::Timestamp { fsp }, _) => Read::Timestamp { fsp: *fsp },
        (T::Year, _) => Read::Year,
        (T::Enum { labels, .. }, _) => Read::Enum(labels_of(event, column, labels)?),
        (T::Set { labels, .. }, _) => Read::Set(labels_of(event, column, labels)?),
        (T::Bit { length: 1 }, _) => Read::Truth,
        (T::Bit { .. }, _) => Read::Bytes,
        (T::Json, _) => Read::Json,
        (T::Other(_), _) => Read::Skip,
    })
}

/// The decoder of a text column: its charset as the definition says, which the collation in the log must belong to.
fn text_decoder(event: &MapColumn, column: &MysqlColumn, declared: &str) -> Result<TextDecoder, Mismatch> {
    let logged = event.collation.and_then(charset::charset_of_collation);
    let charset = match (logged, declared) {
        (Some(logged), "") => logged,
        (Some(logged), declared) if !charset::same_charset(logged, declared) => {
            return Err(Mismatch::Type {
                column: column.name.clone(),
                event: format!("in character set {logged}"),
                table: format!("in character set {declared}"),
            });
        }
        (_, declared) => declared,
    };
    TextDecoder::for_charset(charset).ok_or_else(|| Mismatch::Unsupported {
        column: column.name.clone(),
        reason: match (charset, event.collation) {
            ("", Some(collation)) => format!("collation number {collation} is not known"),
            ("", None) => "its character set is not known".to_owned(),
            (charset, _) => format!("character set {charset} is not supported"),
        },
    })
}

/// The labels of the definition, compared with the log's as far as those can be read.
fn labels_of(event: &MapColumn, column: &MysqlColumn, labels: &[String]) -> Result<Arc<[String]>, Mismatch> {
    let charset = event.collation.and_then(charset::charset_of_collation);
    if let (Some(logged), Some(charset)) = (&event.labels, charset) {
        for (logged, label) in logged.iter().zip(labels) {
            if let Some(logged) = charset::decode_lossy(charset, logged)
                && logged != *label
            {
                return Err(Mismatch::Type {
                    column: column.name.clone(),
                    event: format!("a type with the label '{logged}'"),
                    table: format!("a type with the label '{label}'"),
                });
            }
        }
    }
    Ok(labels.into())
}

impl Read {
    /// Pushes the value that the bytes are.
    #[inline]
    fn push(&self, bytes: &[u8], column: &mut ColumnBuffer) -> Result<(), ValueError> {
        match self {
            Self::Skip => {}
            Self::I8 => column.push_i64(i64::from(i8::from_le_bytes(array(bytes)?)))?,
            Self::U8 => column.push_i64(i64::from(u8::from_le_bytes(array(bytes)?)))?,
            Self::I16 => column.push_i64(i64::from(i16::from_le_bytes(array(bytes)?)))?,
            Self::U16 => column.push_i64(i64::from(u16::from_le_bytes(array(bytes)?)))?,
            Self::I24 => {
                let [a, b, c] = array(bytes)?;
                column.push_i64(i64::from(i32::from_le_bytes([0, a, b, c]) >> 8))?;
            }
            Self::U24 => {
                let [a, b, c] = array(bytes)?;
                column.push_i64(i64::from(u32::from_le_bytes([a, b, c, 0])))?;
            }
            Self::I32 => column.push_i64(i64::from(i32::from_le_bytes(array(bytes)?)))?,
            Self::U32 => column.push_i64(i64::from(u32::from_le_bytes(array(bytes)?)))?,
            Self::I64 => column.push_i64(i64::from_le_bytes(array(bytes)?))?,
            Self::U64 => column.push_u64(u64::from_le_bytes(array(bytes)?))?,
            Self::Decimal(packed) => column.push_decimal(packed.integer(bytes)?)?,
            Self::DecimalText(packed) => column.push_text_with(|out| packed.text(bytes, out))?,
            Self::Float => column.push_f32(f32::from_le_bytes(array(bytes)?))?,
            Self::Double => column.push_f64(f64::from_le_bytes(array(bytes)?))?,
            Self::Utf8 | Self::Bytes => column.push_bytes(bytes)?,
            Self::Text(decoder) => column.push_text_with(|out| decoder.decode(bytes, out).map_err(ValueError::Push))?,
            Self::Padded(length) => column.push_padded(bytes, *length)?,
            Self::Date => {
                let [a, b, c] = array(bytes)?;
                let date = u32::from_le_bytes([a, b, c, 0]);
                match value::date_days(date >> 9, date >> 5 & 15, date & 31) {
                    Some(days) => column.push_date(days)?,
                    None => column.push_null()?,
                }
            }
            Self::Time { fsp } => push_time(unpack_time(bytes, *fsp)?, *fsp, column)?,
            Self::OldTime => {
                let [a, b, c] = array(bytes)?;
                let digits = i32::from_le_bytes([0, a, b, c]) >> 8;
                let (negative, digits) = (digits < 0, digits.unsigned_abs());
                column.push_text_with(|out| {
                    value::write_time(out, negative, digits / 10_000, digits / 100 % 100, digits % 100, 0, 0);
                    Ok::<(), ValueError>(())
                })?;
            }
            Self::DateTime { fsp } => push_datetime(unpack_datetime(bytes, *fsp)?, column)?,
            Self::OldDateTime => {
                let digits = u64::from_le_bytes(array(bytes)?);
                let part = |divisor: u64, modulus: u64| u32::try_from(digits / divisor % modulus).unwrap_or(u32::MAX);
                push_datetime(
                    DateTimeParts {
                        year: part(10_000_000_000, u64::MAX),
                        month: part(100_000_000, 100),
                        day: part(1_000_000, 100),
                        hour: part(10_000, 100),
                        minute: part(100, 100),
                        second: part(1, 100),
                        micros: 0,
                    },
                    column,
                )?;
            }
            Self::Timestamp { fsp } => {
                let (seconds, fraction) = bytes.split_first_chunk().ok_or(Cut)?;
                push_timestamp(u32::from_be_bytes(*seconds), micros(big_endian(fraction), *fsp)?, column)?;
            }
            Self::OldTimestamp => push_timestamp(u32::from_le_bytes(array(bytes)?), 0, column)?,
            Self::Year => {
                let [year] = array(bytes)?;
                column.push_i64(if year == 0 { 0 } else { 1900 + i64::from(year) })?;
            }
            Self::Enum(labels) => {
                let index = little_endian(bytes)?;
                let label = value::enum_label(labels, index);
                column.push_str(label.ok_or_else(|| ValueError::Bad(format!("there is no label number {index}")))?)?;
            }
            Self::Set(labels) => {
                let bits = little_endian(bytes)?;
                column.push_text_with(|out| match value::write_set(out, labels, bits) {
                    true => Ok(()),
                    false => Err(ValueError::Bad("a bit without a label".to_owned())),
                })?;
            }
            Self::Truth => column.push_bool(bytes.iter().any(|b| *b != 0))?,
            Self::Json => column.push_text_with(|out| json::write(bytes, out))?,
        }
        Ok(())
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Cut> {
    bytes.try_into().map_err(|_| Cut)
}

/// At most eight bytes, the lowest first.
fn little_endian(bytes: &[u8]) -> Result<u64, Cut> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len()).ok_or(Cut)?.copy_from_slice(bytes);
    Ok(u64::from_le_bytes(wide))
}

/// At most eight bytes, the highest first.
#[inline]
fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The microseconds of a fraction, which is stored in units of an even number of digits.
#[inline]
fn micros(fraction: u64, fsp: u8) -> Result<u32, ValueError> {
    let unit = match fsp {
        0 => return Ok(0),
        1 | 2 => 10_000,
        3 | 4 => 100,
        _ => 1,
    };
    match fraction * unit {
        micros @ 0..=999_999 => Ok(micros as u32),
        _ => Err(ValueError::Bad("a fraction of more than a second".to_owned())),
    }
}

/// Hours, minutes, seconds and microseconds of a TIME, and its sign.
struct TimeParts {
    negative: bool,
    hours: u32,
    minutes: u32,
    seconds: u32,
    micros: u32,
}

/// TIME2: a biased integer of 24 bits, and the fraction. Both together are one number of fixed point, which is negated as a whole.
fn unpack_time(bytes: &[u8], fsp: u8) -> Result<TimeParts, ValueError> {
    let fraction_bits = 8 * u32::from(fsp.div_ceil(2));
    let stored = big_endian(bytes) as i64 - (0x80_0000_i64 << fraction_bits);
    let magnitude = stored.unsigned_abs();
    let whole = (magnitude >> fraction_bits) as u32;
    let fraction = magnitude & ((1 << fraction_bits) - 1);
    Ok(TimeParts {
        negative: stored < 0,
        hours: whole >> 12 & 0x3ff,
        minutes: whole >> 6 & 0x3f,
        seconds: whole & 0x3f,
        micros: micros(fraction, fsp)?,
    })
}

fn push_time(time: TimeParts, fsp: u8, column: &mut ColumnBuffer) -> Result<(), ValueError> {
    column.push_text_with(|out| {
        value::write_time(out, time.negative, time.hours, time.minutes, time.seconds, time.micros, fsp);
        Ok(())
    })
}

/// DATETIME2: 40 bits with a sign that is always positive, 17 of year and month, 5 of day, 17 of time; and the fraction.
#[inline]
fn unpack_datetime(bytes: &[u8], fsp: u8) -> Result<DateTimeParts, ValueError> {
    let (whole, fraction) = bytes.split_at_checked(5).ok_or(Cut)?;
    let whole = big_endian(whole) & 0x7f_ffff_ffff;
    let (date, time) = ((whole >> 17) as u32, (whole & 0x1_ffff) as u32);
    let year_month = date >> 5;
    Ok(DateTimeParts {
        year: year_month / 13,
        month: year_month % 13,
        day: date & 31,
        hour: time >> 12,
        minute: time >> 6 & 0x3f,
        second: time & 0x3f,
        micros: micros(big_endian(fraction), fsp)?,
    })
}

#[inline]
fn push_datetime(parts: DateTimeParts, column: &mut ColumnBuffer) -> Result<(), ValueError> {
    match parts.micros_since_epoch() {
        Some(micros) => column.push_micros(micros)?,
        None => column.push_null()?,
    }
    Ok(())
}

/// Second 0 is the zero date.
#[inline]
fn push_timestamp(seconds: u32, micros: u32, column: &mut ColumnBuffer) -> Result<(), ValueError> {
    if seconds == 0 {
        column.push_null()?;
    } else {
        column.push_micros(i64::from(seconds) * 1_000_000 + i64::from(micros))?;
    }
    Ok(())
}
