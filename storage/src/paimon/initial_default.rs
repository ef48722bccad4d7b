//! The value of an added column in rows that were written before it, as text.
//!
//! A text is exact: reading it gives the value that was written, and each value has one text, so that equal schemas
//! are equal files. The forms, by type:
//!
//! * `BOOLEAN`: `true`, `false`;
//! * integers and `DECIMAL`: digits, with as many behind the point as the type has;
//! * `FLOAT`, `DOUBLE`: the shortest digits that are read as the same bits (`0.1`, `5.0`, `1e300`);
//! * texts: themselves;
//! * bytes: two hexadecimal digits each, small ones;
//! * `DATE`: `2024-02-29`;
//! * `TIMESTAMP`: `2024-02-29 12:30:00.000000`; `WITH LOCAL TIME ZONE` the time in UTC, followed by `Z`.
//!
//! Other spellings of the same value are accepted (`5` for a `DOUBLE`, `1.5` for a `DECIMAL(4, 2)`), and nothing that
//! would have to be rounded, cut off or padded.

use std::fmt::{Debug, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::types::Date32Type;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::kernels::cast_utils::Parser;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::data_type::DataType;
use crate::error::{Error, Result};

/// The value, as an array of length 1 of the type's Arrow type.
pub(super) fn value(data_type: &DataType, text: &str) -> Result<ArrayRef> {
    parse(data_type, text).ok_or_else(|| Error::invalid(format!("{text:?} is not the text of a value of {data_type}")))
}

/// The one text of the value that `text` stands for.
pub(super) fn canonical(data_type: &DataType, text: &str) -> Result<String> {
    print(data_type, &value(data_type, text)?)
}

/// The text of the same value in a type that it is read as from now on: what a stored value becomes when it is read.
pub(super) fn widened(from: &DataType, to: &DataType, text: &str) -> Result<String> {
    let value = value(from, text)?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let wide = cast_with_options(&value, &to.arrow(), &options)
        .map_err(|error| Error::invalid(format!("{text:?} cannot be read as {to}: {error}")))?;
    print(to, &wide)
}

fn parse(data_type: &DataType, text: &str) -> Option<ArrayRef> {
    let characters = |most: u32| text.chars().count() <= most as usize;
    Some(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(vec![bool::from_str(text).ok()?])),
        DataType::TinyInt => Arc::new(Int8Array::from(vec![text.parse::<i8>().ok()?])),
        DataType::SmallInt => Arc::new(Int16Array::from(vec![text.parse::<i16>().ok()?])),
        DataType::Int => Arc::new(Int32Array::from(vec![text.parse::<i32>().ok()?])),
        DataType::BigInt => Arc::new(Int64Array::from(vec![text.parse::<i64>().ok()?])),
        DataType::Float => Arc::new(Float32Array::from(vec![text.parse::<f32>().ok().filter(|v| v.is_finite())?])),
        DataType::Double => Arc::new(Float64Array::from(vec![text.parse::<f64>().ok().filter(|v| v.is_finite())?])),
        DataType::Decimal { precision, scale } => {
            let digits = unscaled(text, *precision, *scale)?;
            Arc::new(Decimal128Array::from(vec![digits]).with_precision_and_scale(*precision, *scale).ok()?)
        }
        DataType::Char(n) | DataType::Varchar(n) if !characters(*n) => return None,
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => Arc::new(StringArray::from(vec![text])),
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            let bytes = bytes(text)?;
            let fits = match data_type {
                DataType::Binary(n) => bytes.len() == *n as usize,
                DataType::Varbinary(n) => bytes.len() <= *n as usize,
                _ => true,
            };
            fits.then(|| Arc::new(BinaryArray::from(vec![bytes.as_slice()])))?
        }
        DataType::Date => Arc::new(Date32Array::from(vec![days(text)?])),
        DataType::Timestamp(digits) | DataType::TimestampLtz(digits) => {
            let local = matches!(data_type, DataType::TimestampLtz(_));
            let micros = micros(if local { text.strip_suffix('Z')? } else { text })?;
            if micros % 10_i64.pow(6_u32.checked_sub(u32::from(*digits))?) != 0 {
                return None;
            }
            let array = TimestampMicrosecondArray::from(vec![micros]);
            Arc::new(if local { array.with_timezone("UTC") } else { array })
        }
    })
}

fn print(data_type: &DataType, value: &ArrayRef) -> Result<String> {
    let shown = |value: &dyn Array| {
        let formatter = ArrayFormatter::try_new(value, &FormatOptions::default()).map_err(unprintable)?;
        formatter.value(0).try_to_string().map_err(unprintable)
    };
    match data_type {
        DataType::Float => Ok(float(value.as_primitive::<Float32Type>().value(0))),
        DataType::Double => Ok(float(value.as_primitive::<Float64Type>().value(0))),
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => Ok(value.as_string::<i32>().value(0).to_owned()),
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            let bytes = value.as_binary::<i32>().value(0);
            Ok(bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }))
        }
        DataType::Timestamp(_) => wall_clock(value.as_primitive()),
        DataType::TimestampLtz(_) => wall_clock(value.as_primitive()).map(|time| time + "Z"),
        _ => shown(value),
    }
}

fn unprintable(error: arrow::error::ArrowError) -> Error {
    Error::invalid(format!("a value has no text: {error}"))
}

/// `Debug` prints the fewest digits that are read as the same bits, and an exponent where there would be many zeros.
fn float(value: impl Debug) -> String {
    format!("{value:?}")
}

fn wall_clock(value: &TimestampMicrosecondArray) -> Result<String> {
    let value = value.clone().with_timezone_opt(None::<String>);
    let options = FormatOptions::default().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.6f"));
    let formatter = ArrayFormatter::try_new(&value, &options).map_err(unprintable)?;
    formatter.value(0).try_to_string().map_err(unprintable)
}

/// Days since 1970 of a date with four digits of the year.
fn days(date: &str) -> Option<i32> {
    let days = Date32Type::parse(date)?;
    // Arrow reads dates in other forms too.
    let shown =
        ArrayFormatter::try_new(&Date32Array::from(vec![days]), &FormatOptions::default()).ok()?.value(0).to_string();
    (shown == date).then_some(days)
}

/// Microseconds since 1970 on the wall clock, of a time with up to six digits of the second. Arrow's parser would go by
/// way of nanoseconds, of which there are not enough for a few centuries.
fn micros(time: &str) -> Option<i64> {
    let (date, time) = time.split_once(' ')?;
    let (time, digits) = time.split_once('.').unwrap_or((time, "0"));
    let number = |text: &str, length: usize, most: i64| {
        let plain = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|value| plain && *value <= most)
    };
    let mut parts = time.split(':');
    let mut part = |most: i64| number(parts.next()?, 2, most);
    let (hours, minutes, seconds) = (part(23)?, part(59)?, part(59)?);
    if parts.next().is_some() || digits.is_empty() || digits.len() > 6 {
        return None;
    }
    let fraction = number(&format!("{digits:0<6}"), 6, 999_999)?;
    let seconds = i64::from(days(date)?) * 86_400 + hours * 3600 + minutes * 60 + seconds;
    Some(seconds * 1_000_000 + fraction)
}

/// The integer that a decimal's digits are at the given scale.
fn unscaled(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let zeros = usize::try_from(scale).ok()?.checked_sub(fraction.len())?;
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let all = format!("{whole}{fraction}{:0<zeros$}", "");
    let value = all.parse::<i128>().ok()?;
    let fits = value < 10_i128.checked_pow(u32::from(precision))?;
    fits.then_some(if negative { -value } else { value })
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    if !hexadecimal.len().is_multiple_of(2) || !hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..hexadecimal.len()).step_by(2).map(|at| u8::from_str_radix(hexadecimal.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests;
