//! Column buffers that snapshot pages and binlog events are decoded into, a row at a time and without an object per row.
//!
//! A caller pushes one value into every column and then ends the row. A row that fails midway is removed again with
//! [`RowBuffer::truncate`], which also takes back a transaction that was cut off.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::util::bit_util;
use tidegate_storage::paimon::{DataType, TableSchema};
use tidegate_storage::table::RowKind;

#[cfg(test)]
mod tests;

/// Why a value does not fit a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The column holds values of another type.
    #[error("the value's type is not the column's")]
    WrongType,
    /// A number outside of the column's range.
    #[error("the value is out of the column's range")]
    OutOfRange,
    /// NULL, or a zero date, in a column that does not take it.
    #[error("the column takes no NULL")]
    Null,
    /// Text that is not valid in its character set.
    #[error("the value is not valid text")]
    InvalidText,
}

/// Decoded rows of one table that are not in a record batch yet.
#[derive(Debug)]
pub struct RowBuffer {
    arrow_schema: SchemaRef,
    columns: Vec<ColumnBuffer>,
    kinds: Vec<RowKind>,
}

impl RowBuffer {
    /// An empty buffer with the columns of a table, in the schema's order.
    pub fn new(schema: &Arc<TableSchema>) -> Self {
        let columns = schema.fields.iter().map(|f| ColumnBuffer::new(&f.data_type, f.nullable)).collect();
        Self { arrow_schema: schema.arrow_schema(), columns, kinds: Vec::new() }
    }

    /// The number of ended rows.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is no ended row.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The size of the values in bytes.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnBuffer::bytes).sum::<usize>() + self.kinds.len()
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// The buffer of a column.
    ///
    /// # Panics
    /// If there is no such column.
    #[inline]
    pub fn column_mut(&mut self, index: usize) -> &mut ColumnBuffer {
        &mut self.columns[index]
    }

    /// Ends a row, of which every column has been pushed.
    #[inline]
    pub fn end_row(&mut self, kind: RowKind) {
        self.kinds.push(kind);
        debug_assert!(self.columns.iter().all(|c| c.len() == self.kinds.len()), "a row without all of its columns");
    }

    /// The kinds of the rows.
    pub fn kinds(&self) -> &[RowKind] {
        &self.kinds
    }

    /// Keeps the first `len` rows; also removes the values of a row that was not ended.
    pub fn truncate(&mut self, len: usize) {
        let len = len.min(self.kinds.len());
        self.kinds.truncate(len);
        for column in &mut self.columns {
            column.truncate(len);
        }
    }

    /// All rows as a record batch; the buffer is empty afterwards.
    ///
    /// # Errors
    /// When a column of text or bytes is larger than 2 GiB, or the columns differ in length.
    pub fn take(&mut self) -> Result<(RecordBatch, Vec<RowKind>), ArrowError> {
        let kinds = std::mem::take(&mut self.kinds);
        let mut arrays = Vec::with_capacity(self.columns.len());
        let mut failed = None;
        for column in &mut self.columns {
            match column.take() {
                Ok(array) => arrays.push(array),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(kinds.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.arrow_schema), arrays, &options)?;
        Ok((batch, kinds))
    }
}

/// The values of one column.
#[derive(Debug)]
pub struct ColumnBuffer {
    values: Values,
    /// One bit per value, present from the first NULL on.
    valid: Option<BooleanBufferBuilder>,
    nullable: bool,
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal { values: Vec<i128>, precision: u8, scale: i8 },
    Text(Bytes),
    Binary(Bytes),
    Date(Vec<i32>),
    Timestamp { micros: Vec<i64>, utc: bool },
}

/// Values of variable length: value `i` lies between offset `i` and `i + 1`. Offsets are valid while the data is at most
/// `i32::MAX` bytes long, which is checked when the array is made.
#[derive(Debug)]
struct Bytes {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Bytes {
    fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    #[inline]
    fn end_value(&mut self) {
        self.offsets.push(self.data.len() as i32);
    }

    /// Where the last ended value ends.
    fn end(&self) -> usize {
        self.offsets.last().map_or(0, |o| *o as usize)
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.end());
    }

    fn take(&mut self) -> Result<(OffsetBuffer<i32>, Buffer), ArrowError> {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let data = std::mem::take(&mut self.data);
        if i32::try_from(data.len()).is_err() {
            return Err(ArrowError::InvalidArgumentError(format!(
                "{} bytes in one column of a batch; at most 2 GiB fit",
                data.len()
            )));
        }
        Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(data)))
    }
}

impl ColumnBuffer {
    /// An empty column.
    pub fn new(data_type: &DataType, nullable: bool) -> Self {
        let values = match data_type {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::TinyInt => Values::Int8(Vec::new()),
            DataType::SmallInt => Values::Int16(Vec::new()),
            DataType::Int => Values::Int32(Vec::new()),
            DataType::BigInt => Values::Int64(Vec::new()),
            DataType::Float => Values::Float32(Vec::new()),
            DataType::Double => Values::Float64(Vec::new()),
            DataType::Decimal { precision, scale } => {
                Values::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            DataType::Char(_) | DataType::Varchar(_) | DataType::String => Values::Text(Bytes::new()),
            DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => Values::Binary(Bytes::new()),
            DataType::Date => Values::Date(Vec::new()),
            DataType::Timestamp(_) => Values::Timestamp { micros: Vec::new(), utc: false },
            DataType::TimestampLtz(_) => Values::Timestamp { micros: Vec::new(), utc: true },
        };
        Self { values, valid: None, nullable }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        match &self.values {
            Values::Boolean(v) => v.len(),
            Values::Int8(v) => v.len(),
            Values::Int16(v) => v.len(),
            Values::Int32(v) | Values::Date(v) => v.len(),
            Values::Int64(v) | Values::Timestamp { micros: v, .. } => v.len(),
            Values::Float32(v) => v.len(),
            Values::Float64(v) => v.len(),
            Values::Decimal { values, .. } => values.len(),
            Values::Text(b) | Values::Binary(b) => b.len(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bytes(&self) -> usize {
        match &self.values {
            Values::Boolean(v) => v.len() / 8,
            Values::Int8(v) => v.len(),
            Values::Int16(v) => v.len() * 2,
            Values::Int32(v) | Values::Date(v) => v.len() * 4,
            Values::Int64(v) | Values::Timestamp { micros: v, .. } => v.len() * 8,
            Values::Float32(v) => v.len() * 4,
            Values::Float64(v) => v.len() * 8,
            Values::Decimal { values, .. } => values.len() * 16,
            Values::Text(b) | Values::Binary(b) => b.offsets.len() * 4 + b.data.len(),
        }
    }

    fn truncate(&mut self, len: usize) {
        match &mut self.values {
            Values::Boolean(v) => v.truncate(len.min(v.len())),
            Values::Int8(v) => v.truncate(len),
            Values::Int16(v) => v.truncate(len),
            Values::Int32(v) | Values::Date(v) => v.truncate(len),
            Values::Int64(v) | Values::Timestamp { micros: v, .. } => v.truncate(len),
            Values::Float32(v) => v.truncate(len),
            Values::Float64(v) => v.truncate(len),
            Values::Decimal { values, .. } => values.truncate(len),
            Values::Text(b) | Values::Binary(b) => b.truncate(len),
        }
        if let Some(valid) = &mut self.valid {
            valid.truncate(len.min(valid.len()));
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.valid.take().map(|mut v| NullBuffer::new(v.finish()));
        Ok(match &mut self.values {
            Values::Boolean(v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Values::Int8(v) => Arc::new(Int8Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Int16(v) => Arc::new(Int16Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Int32(v) => Arc::new(Int32Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Int64(v) => Arc::new(Int64Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Float32(v) => Arc::new(Float32Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Float64(v) => Arc::new(Float64Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Decimal { values, precision, scale } => Arc::new(
                Decimal128Array::try_new(std::mem::take(values).into(), nulls)?
                    .with_precision_and_scale(*precision, *scale)?,
            ),
            Values::Text(b) => {
                let (offsets, data) = b.take()?;
                Arc::new(StringArray::try_new(offsets, data, nulls)?)
            }
            Values::Binary(b) => {
                let (offsets, data) = b.take()?;
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::Date(v) => Arc::new(Date32Array::try_new(std::mem::take(v).into(), nulls)?),
            Values::Timestamp { micros, utc } => {
                let array = TimestampMicrosecondArray::try_new(std::mem::take(micros).into(), nulls)?;
                Arc::new(if *utc { array.with_timezone("UTC") } else { array })
            }
        })
    }

    #[inline]
    fn mark_valid(&mut self) {
        if let Some(valid) = &mut self.valid {
            valid.append(true);
        }
    }

    /// Pushes NULL.
    pub fn push_null(&mut self) -> Result<(), PushError> {
        if !self.nullable {
            return Err(PushError::Null);
        }
        let before = self.len();
        match &mut self.values {
            Values::Boolean(v) => v.append(false),
            Values::Int8(v) => v.push(0),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Timestamp { micros: v, .. } => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Text(b) | Values::Binary(b) => b.end_value(),
        }
        let valid = self.valid.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(bit_util::round_upto_multiple_of_64(before + 1));
            bits.append_n(before, true);
            bits
        });
        valid.append(false);
        Ok(())
    }

    /// Pushes an integer into a column of any integer or decimal type.
    #[inline]
    pub fn push_i64(&mut self, value: i64) -> Result<(), PushError> {
        match &mut self.values {
            Values::Int64(v) => v.push(value),
            Values::Int32(v) => v.push(i32::try_from(value).map_err(|_| PushError::OutOfRange)?),
            Values::Int16(v) => v.push(i16::try_from(value).map_err(|_| PushError::OutOfRange)?),
            Values::Int8(v) => v.push(i8::try_from(value).map_err(|_| PushError::OutOfRange)?),
            Values::Decimal { .. } => return self.push_integer_as_decimal(i128::from(value)),
            _ => return Err(PushError::WrongType),
        }
        self.mark_valid();
        Ok(())
    }

    /// Pushes an unsigned integer into a column of any integer or decimal type.
    #[inline]
    pub fn push_u64(&mut self, value: u64) -> Result<(), PushError> {
        match i64::try_from(value) {
            Ok(value) => self.push_i64(value),
            Err(_) if matches!(self.values, Values::Decimal { .. }) => self.push_integer_as_decimal(i128::from(value)),
            Err(_) => Err(PushError::OutOfRange),
        }
    }

    fn push_integer_as_decimal(&mut self, value: i128) -> Result<(), PushError> {
        let Values::Decimal { scale, .. } = &self.values else { return Err(PushError::WrongType) };
        let factor = u32::try_from(*scale).ok().and_then(|s| 10_i128.checked_pow(s)).ok_or(PushError::OutOfRange)?;
        self.push_decimal(value.checked_mul(factor).ok_or(PushError::OutOfRange)?)
    }

    /// Pushes a decimal, as the integer that its digits are at the column's scale.
    #[inline]
    pub fn push_decimal(&mut self, value: i128) -> Result<(), PushError> {
        let Values::Decimal { values, precision, .. } = &mut self.values else { return Err(PushError::WrongType) };
        if value.unsigned_abs() >= 10_u128.pow(u32::from((*precision).min(38))) {
            return Err(PushError::OutOfRange);
        }
        values.push(value);
        self.mark_valid();
        Ok(())
    }

    /// Pushes a four byte float.
    #[inline]
    pub fn push_f32(&mut self, value: f32) -> Result<(), PushError> {
        let Values::Float32(v) = &mut self.values else { return Err(PushError::WrongType) };
        v.push(value);
        self.mark_valid();
        Ok(())
    }

    /// Pushes an eight byte float.
    #[inline]
    pub fn push_f64(&mut self, value: f64) -> Result<(), PushError> {
        let Values::Float64(v) = &mut self.values else { return Err(PushError::WrongType) };
        v.push(value);
        self.mark_valid();
        Ok(())
    }

    /// Pushes a truth value.
    #[inline]
    pub fn push_bool(&mut self, value: bool) -> Result<(), PushError> {
        let Values::Boolean(v) = &mut self.values else { return Err(PushError::WrongType) };
        v.append(value);
        self.mark_valid();
        Ok(())
    }

    /// Pushes days since 1970-01-01.
    #[inline]
    pub fn push_date(&mut self, days: i32) -> Result<(), PushError> {
        let Values::Date(v) = &mut self.values else { return Err(PushError::WrongType) };
        v.push(days);
        self.mark_valid();
        Ok(())
    }

    /// Pushes microseconds since 1970-01-01 00:00:00, of the wall clock or of UTC as the column's type says.
    #[inline]
    pub fn push_micros(&mut self, micros: i64) -> Result<(), PushError> {
        let Values::Timestamp { micros: v, .. } = &mut self.values else { return Err(PushError::WrongType) };
        v.push(micros);
        self.mark_valid();
        Ok(())
    }

    /// Pushes text.
    #[inline]
    pub fn push_str(&mut self, value: &str) -> Result<(), PushError> {
        let Values::Text(b) = &mut self.values else { return Err(PushError::WrongType) };
        b.data.extend_from_slice(value.as_bytes());
        b.end_value();
        self.mark_valid();
        Ok(())
    }

    /// Pushes bytes; into a column of text only if they are UTF-8.
    #[inline]
    pub fn push_bytes(&mut self, value: &[u8]) -> Result<(), PushError> {
        let b = match &mut self.values {
            Values::Binary(b) => b,
            Values::Text(b) => {
                if !is_utf8(value) {
                    return Err(PushError::InvalidText);
                }
                b
            }
            _ => return Err(PushError::WrongType),
        };
        b.data.extend_from_slice(value);
        b.end_value();
        self.mark_valid();
        Ok(())
    }

    /// Pushes bytes followed by zero bytes up to a length, as BINARY(n) is stored.
    #[inline]
    pub fn push_padded(&mut self, value: &[u8], length: usize) -> Result<(), PushError> {
        let Values::Binary(b) = &mut self.values else { return Err(PushError::WrongType) };
        let start = b.data.len();
        b.data.extend_from_slice(value);
        if value.len() < length {
            b.data.resize(start + length, 0);
        }
        b.end_value();
        self.mark_valid();
        Ok(())
    }

    /// Pushes text that `write` appends to the column. If it fails, nothing is pushed.
    #[inline]
    pub fn push_text_with<E: From<PushError>>(
        &mut self,
        write: impl FnOnce(&mut TextSink<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Values::Text(b) = &mut self.values else { return Err(PushError::WrongType.into()) };
        if let Err(error) = write(&mut TextSink(&mut b.data)) {
            b.data.truncate(b.end());
            return Err(error);
        }
        b.end_value();
        self.mark_valid();
        Ok(())
    }
}

/// Where [`ColumnBuffer::push_text_with`] writes a value; it takes nothing but text.
#[derive(Debug)]
pub struct TextSink<'a>(&'a mut Vec<u8>);

impl<'a> TextSink<'a> {
    /// Writes to a vector that is known to hold UTF-8.
    pub(crate) fn over(data: &'a mut Vec<u8>) -> Self {
        Self(data)
    }

    /// Appends text.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends a character.
    #[inline]
    pub fn push(&mut self, character: char) {
        if character.is_ascii() {
            self.0.push(character as u8);
        } else {
            self.push_str(character.encode_utf8(&mut [0; 4]));
        }
    }
}

impl std::fmt::Write for TextSink<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// Short ASCII text is the rule, and cheaper to recognise than to validate.
#[inline]
fn is_utf8(value: &[u8]) -> bool {
    value.is_ascii() || std::str::from_utf8(value).is_ok()
}
