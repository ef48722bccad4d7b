//! One column of a batch, ready to be written value by value.

use std::fmt::Write as _;
use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, LargeBinaryArray, LargeStringArray, ListArray, PrimitiveArray, StringArray,
    StringViewArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::{BufMut, BytesMut};
use pgwire::api::Type;
use tidegate_planner::error::{SqlError, sqlstate};

use super::datetime::{
    date_binary, date_text, interval_text, time_text, timestamp_binary, timestamp_text, timestamptz_text,
};
use super::number::{
    decimal_binary, decimal_text, decimal256_binary, decimal256_text, float4_text, float8_text, integer_text,
    unsigned_text,
};
use super::{Format, Style, pg_type};

/// SQLSTATE `array_subscript_error`.
const ARRAY_SUBSCRIPT_ERROR: &str = "2202E";

/// A column and how its values are written.
pub(super) struct Cell {
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Null,
    Bool(BooleanArray),
    Int8(Int8Array),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    UInt8(UInt8Array),
    UInt16(UInt16Array),
    UInt32(UInt32Array),
    UInt64(UInt64Array),
    /// Object ids, of 32 bits on the wire.
    Oid(UInt32Array),
    Float32(Float32Array),
    Float64(Float64Array),
    Decimal128(Decimal128Array, i8),
    Decimal256(Decimal256Array, i8),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    /// The internal one-byte type `"char"`.
    Char(StringArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    FixedBytes(FixedSizeBinaryArray),
    Date(PrimitiveArray<Date32Type>),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampTz(TimestampMicrosecondArray),
    Interval(IntervalMonthDayNanoArray),
    Duration(PrimitiveArray<DurationMicrosecondType>),
    List(ListArray, Box<Cell>, u32),
    Record(Vec<(Cell, u32)>),
    /// Types without a counterpart in PostgreSQL, as Arrow prints them.
    Printed(ArrayRef),
}

impl Cell {
    /// Prepares `array`, announced as `announced`.
    pub(super) fn prepare(array: &ArrayRef, announced: &Type) -> Result<Self, SqlError> {
        let array = common(array)?;
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Bool(array.as_boolean().clone()),
            DataType::Int8 => Values::Int8(array.as_primitive::<Int8Type>().clone()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>().clone()),
            DataType::Int32 if *announced != Type::INT4 => {
                Values::Oid(array.as_primitive::<Int32Type>().unary(|oid| oid as u32))
            }
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>().clone()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().clone()),
            DataType::UInt8 => Values::UInt8(array.as_primitive::<UInt8Type>().clone()),
            DataType::UInt16 => Values::UInt16(array.as_primitive::<UInt16Type>().clone()),
            DataType::UInt32 if *announced != Type::INT8 => Values::Oid(array.as_primitive::<UInt32Type>().clone()),
            DataType::UInt32 => Values::UInt32(array.as_primitive::<UInt32Type>().clone()),
            DataType::UInt64 => Values::UInt64(array.as_primitive::<UInt64Type>().clone()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().clone()),
            DataType::Decimal128(_, scale) => {
                Values::Decimal128(array.as_primitive::<Decimal128Type>().clone(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Values::Decimal256(array.as_primitive::<Decimal256Type>().clone(), *scale)
            }
            DataType::Utf8 if *announced == Type::CHAR => Values::Char(array.as_string::<i32>().clone()),
            DataType::Utf8 => Values::Text(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Values::LargeText(array.as_string::<i64>().clone()),
            DataType::Utf8View => Values::TextView(array.as_string_view().clone()),
            DataType::Binary => Values::Bytes(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Values::LargeBytes(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Values::BytesView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Values::FixedBytes(array.as_fixed_size_binary().clone()),
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>().clone()),
            DataType::Time64(TimeUnit::Microsecond) => {
                Values::Time(array.as_primitive::<Time64MicrosecondType>().clone())
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let values = array.as_primitive::<TimestampMicrosecondType>().clone();
                if zone.is_some() { Values::TimestampTz(values) } else { Values::Timestamp(values) }
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().clone())
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                Values::Duration(array.as_primitive::<DurationMicrosecondType>().clone())
            }
            DataType::List(element) => {
                let list: &ListArray = array.as_list();
                let announced = pg_type(element);
                let child = Cell::prepare(list.values(), &announced)?;
                Values::List(list.clone(), Box::new(child), announced.oid())
            }
            DataType::Struct(fields) => {
                let record: &StructArray = array.as_struct();
                let cells = fields
                    .iter()
                    .zip(record.columns())
                    .map(|(field, column)| {
                        let announced = pg_type(field);
                        Ok((Cell::prepare(column, &announced)?, announced.oid()))
                    })
                    .collect::<Result<_, SqlError>>()?;
                Values::Record(cells)
            }
            _ => Values::Printed(array.clone()),
        };
        Ok(Self { nulls: array.logical_nulls(), values })
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends length and value, or the length -1 of a NULL.
    pub(super) fn write_field(
        &self,
        row: usize,
        format: Format,
        style: Style,
        buf: &mut BytesMut,
    ) -> Result<(), SqlError> {
        if self.is_null(row) {
            buf.put_i32(-1);
            return Ok(());
        }
        let at = buf.len();
        buf.put_u32(0);
        match format {
            Format::Text => self.write_text(row, style, buf)?,
            Format::Binary => self.write_binary(row, style, buf)?,
        }
        let length = i32::try_from(buf.len() - at - 4)
            .map_err(|_| SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a value is too large for one message"))?;
        buf[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn write_text(&self, row: usize, style: Style, buf: &mut BytesMut) -> Result<(), SqlError> {
        match &self.values {
            Values::Null => {}
            Values::Bool(values) => buf.put_u8(if values.value(row) { b't' } else { b'f' }),
            Values::Int8(values) => integer_text(i64::from(values.value(row)), buf),
            Values::Int16(values) => integer_text(i64::from(values.value(row)), buf),
            Values::Int32(values) => integer_text(i64::from(values.value(row)), buf),
            Values::Int64(values) => integer_text(values.value(row), buf),
            Values::UInt8(values) => unsigned_text(u64::from(values.value(row)), buf),
            Values::UInt16(values) => unsigned_text(u64::from(values.value(row)), buf),
            Values::UInt32(values) => unsigned_text(u64::from(values.value(row)), buf),
            Values::UInt64(values) => unsigned_text(values.value(row), buf),
            Values::Oid(values) => unsigned_text(u64::from(values.value(row)), buf),
            Values::Float32(values) => float4_text(values.value(row), buf),
            Values::Float64(values) => float8_text(values.value(row), buf),
            Values::Decimal128(values, scale) => decimal_text(values.value(row), *scale, buf),
            Values::Decimal256(values, scale) => decimal256_text(values.value(row), *scale, buf),
            Values::Text(values) => put_text(values.value(row), buf)?,
            Values::LargeText(values) => put_text(values.value(row), buf)?,
            Values::TextView(values) => put_text(values.value(row), buf)?,
            Values::Char(values) => buf.put_slice(values.value(row).as_bytes().get(..1).unwrap_or_default()),
            Values::Bytes(values) => bytea(values.value(row), style, buf),
            Values::LargeBytes(values) => bytea(values.value(row), style, buf),
            Values::BytesView(values) => bytea(values.value(row), style, buf),
            Values::FixedBytes(values) => bytea(values.value(row), style, buf),
            Values::Date(values) => date_text(i64::from(values.value(row)), buf),
            Values::Time(values) => time_text(values.value(row).unsigned_abs(), buf),
            Values::Timestamp(values) => timestamp_text(values.value(row), buf),
            Values::TimestampTz(values) => timestamptz_text(values.value(row), style.zone, buf),
            Values::Interval(values) => {
                let value = values.value(row);
                interval_text(value.months, value.days, value.nanoseconds / 1_000, buf);
            }
            Values::Duration(values) => interval_text(0, 0, values.value(row), buf),
            Values::List(list, child, _) => {
                let (start, end) = bounds(list, row);
                child.write_array_text(start, end, style, buf)?;
            }
            Values::Record(cells) => {
                buf.put_u8(b'(');
                for (index, (cell, _)) in cells.iter().enumerate() {
                    if index > 0 {
                        buf.put_u8(b',');
                    }
                    if !cell.is_null(row) {
                        let start = buf.len();
                        cell.write_text(row, style, buf)?;
                        quote(buf, start, Quoting::Record);
                    }
                }
                buf.put_u8(b')');
            }
            Values::Printed(array) => print(array, row, buf)?,
        }
        Ok(())
    }

    fn write_binary(&self, row: usize, style: Style, buf: &mut BytesMut) -> Result<(), SqlError> {
        match &self.values {
            Values::Bool(values) => buf.put_u8(u8::from(values.value(row))),
            Values::Int8(values) => buf.put_i16(i16::from(values.value(row))),
            Values::Int16(values) => buf.put_i16(values.value(row)),
            Values::Int32(values) => buf.put_i32(values.value(row)),
            Values::Oid(values) => buf.put_u32(values.value(row)),
            Values::Int64(values) => buf.put_i64(values.value(row)),
            Values::UInt8(values) => buf.put_i16(i16::from(values.value(row))),
            Values::UInt16(values) => buf.put_i32(i32::from(values.value(row))),
            Values::UInt32(values) => buf.put_i64(i64::from(values.value(row))),
            Values::UInt64(values) => decimal_binary(i128::from(values.value(row)), 0, buf),
            Values::Float32(values) => buf.put_f32(values.value(row)),
            Values::Float64(values) => buf.put_f64(values.value(row)),
            Values::Decimal128(values, scale) => decimal_binary(values.value(row), *scale, buf),
            Values::Decimal256(values, scale) => decimal256_binary(values.value(row), *scale, buf),
            Values::Char(values) => buf.put_u8(values.value(row).as_bytes().first().copied().unwrap_or(0)),
            Values::Bytes(values) => buf.put_slice(values.value(row)),
            Values::LargeBytes(values) => buf.put_slice(values.value(row)),
            Values::BytesView(values) => buf.put_slice(values.value(row)),
            Values::FixedBytes(values) => buf.put_slice(values.value(row)),
            Values::Date(values) => buf.put_i32(date_binary(values.value(row))),
            Values::Time(values) => buf.put_i64(values.value(row)),
            Values::Timestamp(values) | Values::TimestampTz(values) => {
                buf.put_i64(
                    timestamp_binary(values.value(row))
                        .ok_or_else(|| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range"))?,
                );
            }
            Values::Interval(values) => {
                let value = values.value(row);
                buf.put_i64(value.nanoseconds / 1_000);
                buf.put_i32(value.days);
                buf.put_i32(value.months);
            }
            Values::Duration(values) => {
                buf.put_i64(values.value(row));
                buf.put_i64(0);
            }
            Values::List(list, child, element) => {
                let (start, end) = bounds(list, row);
                child.write_array_binary(start, end, *element, style, buf)?;
            }
            Values::Record(cells) => {
                buf.put_i32(cells.len() as i32);
                for (cell, oid) in cells {
                    buf.put_u32(*oid);
                    cell.write_field(row, Format::Binary, style, buf)?;
                }
            }
            // The binary format of text is the text.
            Values::Null | Values::Text(_) | Values::LargeText(_) | Values::TextView(_) | Values::Printed(_) => {
                self.write_text(row, style, buf)?;
            }
        }
        Ok(())
    }

    /// `{1,NULL,"a b"}`; arrays inside an array are not quoted.
    fn write_array_text(&self, start: usize, end: usize, style: Style, buf: &mut BytesMut) -> Result<(), SqlError> {
        buf.put_u8(b'{');
        for row in start..end {
            if row > start {
                buf.put_u8(b',');
            }
            if self.is_null(row) {
                buf.put_slice(b"NULL");
            } else {
                let at = buf.len();
                self.write_text(row, style, buf)?;
                if !matches!(self.values, Values::List(..)) {
                    quote(buf, at, Quoting::Array);
                }
            }
        }
        buf.put_u8(b'}');
        Ok(())
    }

    fn write_array_binary(
        &self,
        start: usize,
        end: usize,
        element: u32,
        style: Style,
        buf: &mut BytesMut,
    ) -> Result<(), SqlError> {
        let mut dimensions = vec![end - start];
        let (leaf, element, rows) = self.innermost(start, end, element, &mut dimensions)?;
        if rows.is_empty() {
            dimensions.clear();
        }
        buf.put_i32(dimensions.len() as i32);
        buf.put_i32(i32::from(rows.clone().any(|row| leaf.is_null(row))));
        buf.put_u32(element);
        for length in dimensions {
            buf.put_i32(length as i32);
            buf.put_i32(1);
        }
        for row in rows {
            leaf.write_field(row, Format::Binary, style, buf)?;
        }
        Ok(())
    }

    /// The innermost elements of nested lists, which PostgreSQL wants to form a rectangle.
    fn innermost(
        &self,
        start: usize,
        end: usize,
        element: u32,
        dimensions: &mut Vec<usize>,
    ) -> Result<(&Cell, u32, Range<usize>), SqlError> {
        let Values::List(list, child, inner) = &self.values else {
            return Ok((self, element, start..end));
        };
        let length = |row| if self.is_null(row) { 0 } else { bounds(list, row).1 - bounds(list, row).0 };
        let common = if start < end { length(start) } else { 0 };
        if (start..end).any(|row| length(row) != common) {
            return Err(SqlError::new(
                ARRAY_SUBSCRIPT_ERROR,
                "multidimensional arrays must have sub-arrays with matching dimensions",
            ));
        }
        dimensions.push(common);
        let (first, last) = if common == 0 { (0, 0) } else { (bounds(list, start).0, bounds(list, end - 1).1) };
        child.innermost(first, last, *inner, dimensions)
    }
}

/// Casts what occurs rarely to what is written.
fn common(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let target = match array.data_type() {
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(unit, zone) if *unit != TimeUnit::Microsecond => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Interval(unit) if *unit != IntervalUnit::MonthDayNano => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        DataType::Duration(unit) if *unit != TimeUnit::Microsecond => DataType::Duration(TimeUnit::Microsecond),
        DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => DataType::List(element.clone()),
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::RunEndEncoded(_, value) => value.data_type().clone(),
        _ => return Ok(array.clone()),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(array, &target, &options)
        .map_err(|error| SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, error.to_string()))?;
    common(&cast)
}

fn bounds(list: &ListArray, row: usize) -> (usize, usize) {
    let offsets = list.value_offsets();
    (offsets[row] as usize, offsets[row + 1] as usize)
}

fn put_text(text: &str, buf: &mut BytesMut) -> Result<(), SqlError> {
    if buf.len() + text.len() > i32::MAX as usize {
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a row is too large for one message"));
    }
    buf.put_slice(text.as_bytes());
    Ok(())
}

/// `bytea` in hex form, `\x0aff`, or in the older form, `\012\377`.
fn bytea(bytes: &[u8], style: Style, buf: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    if style.escape_bytes {
        for byte in bytes {
            match byte {
                b'\\' => buf.put_slice(b"\\\\"),
                b' '..=b'~' => buf.put_u8(*byte),
                _ => buf.put_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]),
            }
        }
        return;
    }
    buf.put_slice(b"\\x");
    buf.reserve(bytes.len() * 2);
    for byte in bytes {
        buf.put_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

fn print(array: &ArrayRef, row: usize, buf: &mut BytesMut) -> Result<(), SqlError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options).map_err(|error| SqlError::internal(error.to_string()))?;
    write!(buf, "{}", formatter.value(row)).map_err(|error| SqlError::internal(error.to_string()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Array,
    Record,
}

/// Quotes what was written since `start`, if it would not be read back as the same text.
fn quote(buf: &mut BytesMut, start: usize, quoting: Quoting) {
    let text = &buf[start..];
    let special: &[u8] = match quoting {
        Quoting::Array => b"{},\"\\ \t\n\r\x0b\x0c",
        Quoting::Record => b"(),\"\\ \t\n\r\x0b\x0c",
    };
    let needed = text.is_empty()
        || text.iter().any(|byte| special.contains(byte))
        || (quoting == Quoting::Array && text.eq_ignore_ascii_case(b"null"));
    if !needed {
        return;
    }
    let text = buf.split_off(start);
    buf.put_u8(b'"');
    for byte in text {
        if byte == b'"' || byte == b'\\' {
            buf.put_u8(if quoting == Quoting::Record { byte } else { b'\\' });
        }
        buf.put_u8(byte);
    }
    buf.put_u8(b'"');
}
