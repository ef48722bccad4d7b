//! Parameters of a Bind message as values of the engine.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalUnit, TimeUnit, i256};
use bytes::{Buf, Bytes};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use tidegate_planner::error::{SqlError, sqlstate};

use super::encode::{Format, pg_type};
use super::errors::{CHARACTER_NOT_IN_REPERTOIRE, INVALID_BINARY};

/// Days and microseconds between 1970-01-01 and 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// The type a parameter is announced as: the client's own choice, else the type its place asks for, else text.
pub(crate) fn announced_type(chosen: u32, inferred: Option<&DataType>) -> u32 {
    match (chosen, inferred) {
        (0 | 705, Some(data_type)) => pg_type(&Arc::new(Field::new("", data_type.clone(), true))).oid(),
        (0 | 705, None) => Type::TEXT.oid(),
        (chosen, _) => chosen,
    }
}

/// Reads parameter `number` (from 1) of PostgreSQL type `oid`, for a place that asks for the type `inferred`.
pub(crate) fn decode(
    number: usize,
    oid: u32,
    inferred: Option<&DataType>,
    format: Format,
    bytes: Option<&Bytes>,
    time_zone: &str,
) -> Result<ScalarValue, SqlError> {
    let value = match bytes {
        None => match arrow_type(oid) {
            Some(data_type) => ScalarValue::try_from(&data_type).map_err(|_| unknown_type(number, oid))?,
            None => ScalarValue::Utf8(None),
        },
        Some(bytes) => match format {
            Format::Text => {
                let text = std::str::from_utf8(bytes).map_err(|_| {
                    SqlError::new(
                        CHARACTER_NOT_IN_REPERTOIRE,
                        format!("invalid byte sequence for encoding \"UTF8\" in parameter ${number}"),
                    )
                })?;
                from_text(oid, text, time_zone)?
            }
            Format::Binary => from_binary(number, oid, bytes)?,
        },
    };
    match inferred {
        // Only text and NULL take the type of their place here. Other values keep their own, and meet the place's by the
        // rules for expressions: a cast from 1.005 to numeric(10, 2) would silently ask for something else.
        Some(target) if (value.is_null() || value.data_type() == DataType::Utf8) && *target != value.data_type() => {
            value.cast_to(target).map_err(|error| {
                SqlError::new(
                    sqlstate::INVALID_TEXT_REPRESENTATION,
                    format!("parameter ${number}: {}", error.strip_backtrace()),
                )
            })
        }
        _ => Ok(value),
    }
}

/// The type that a client has chosen for a parameter, if it is one that is known.
pub(crate) fn given_type(oid: u32) -> Option<DataType> {
    if oid == Type::UNKNOWN.oid() { None } else { arrow_type(oid) }
}

/// The arrow type of a scalar PostgreSQL type or an array of one. Numbers without a scale have none.
fn arrow_type(oid: u32) -> Option<DataType> {
    if let Some(element) = element_of(oid) {
        return Some(DataType::List(Arc::new(Field::new_list_field(arrow_type(element)?, true))));
    }
    Some(match Type::from_oid(oid)? {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Microsecond),
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        Type::NUMERIC => DataType::Decimal128(38, 10),
        Type::TEXT
        | Type::VARCHAR
        | Type::BPCHAR
        | Type::NAME
        | Type::CHAR
        | Type::UNKNOWN
        | Type::UUID
        | Type::JSON
        | Type::JSONB
        | Type::REGCLASS
        | Type::REGTYPE
        | Type::REGPROC
        | Type::REGNAMESPACE => DataType::Utf8,
        _ => return None,
    })
}

fn element_of(oid: u32) -> Option<u32> {
    Some(
        match Type::from_oid(oid)? {
            Type::BOOL_ARRAY => Type::BOOL,
            Type::INT2_ARRAY => Type::INT2,
            Type::INT4_ARRAY => Type::INT4,
            Type::INT8_ARRAY => Type::INT8,
            Type::OID_ARRAY => Type::OID,
            Type::FLOAT4_ARRAY => Type::FLOAT4,
            Type::FLOAT8_ARRAY => Type::FLOAT8,
            Type::BYTEA_ARRAY => Type::BYTEA,
            Type::DATE_ARRAY => Type::DATE,
            Type::TIMESTAMP_ARRAY => Type::TIMESTAMP,
            Type::TIMESTAMPTZ_ARRAY => Type::TIMESTAMPTZ,
            Type::NUMERIC_ARRAY => Type::NUMERIC,
            Type::TEXT_ARRAY | Type::VARCHAR_ARRAY | Type::BPCHAR_ARRAY | Type::NAME_ARRAY | Type::CHAR_ARRAY => {
                Type::TEXT
            }
            Type::UUID_ARRAY => Type::UUID,
            _ => return None,
        }
        .oid(),
    )
}

fn unknown_type(number: usize, oid: u32) -> SqlError {
    SqlError::unsupported(format!("parameter ${number} has the type with OID {oid}, which is not supported"))
}

fn invalid_text(kind: &str, text: &str) -> SqlError {
    let sqlstate = match kind {
        "date" | "time" | "timestamp" | "timestamp with time zone" | "interval" => sqlstate::INVALID_DATETIME_FORMAT,
        _ => sqlstate::INVALID_TEXT_REPRESENTATION,
    };
    SqlError::new(sqlstate, format!("invalid input syntax for type {kind}: \"{text}\""))
}

fn from_text(oid: u32, text: &str, time_zone: &str) -> Result<ScalarValue, SqlError> {
    fn number<T: std::str::FromStr>(kind: &str, text: &str) -> Result<Option<T>, SqlError> {
        text.trim().parse().map(Some).map_err(|_| invalid_text(kind, text))
    }
    if let Some(element) = element_of(oid) {
        let data_type = arrow_type(element).unwrap_or(DataType::Utf8);
        let elements = array_elements(text)?
            .into_iter()
            .map(|item| match item {
                Some(item) => from_text(element, &item, time_zone),
                None => Ok(ScalarValue::Null),
            })
            .collect::<Result<Vec<_>, _>>()?;
        return list(elements, data_type);
    }
    let through_cast = |kind: &str, target: DataType| {
        ScalarValue::Utf8(Some(text.trim().to_owned())).cast_to(&target).map_err(|_| invalid_text(kind, text))
    };
    match Type::from_oid(oid) {
        Some(Type::BOOL) => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "on" | "1" => Ok(ScalarValue::Boolean(Some(true))),
            "f" | "false" | "n" | "no" | "off" | "0" => Ok(ScalarValue::Boolean(Some(false))),
            _ => Err(invalid_text("boolean", text)),
        },
        Some(Type::INT2) => Ok(ScalarValue::Int16(number("smallint", text)?)),
        Some(Type::INT4) => Ok(ScalarValue::Int32(number("integer", text)?)),
        Some(Type::INT8 | Type::OID) => Ok(ScalarValue::Int64(number("bigint", text)?)),
        Some(Type::FLOAT4) => Ok(ScalarValue::Float32(number("real", text)?)),
        Some(Type::FLOAT8) => Ok(ScalarValue::Float64(number("double precision", text)?)),
        Some(Type::NUMERIC) => numeric_from_text(text.trim()),
        Some(Type::BYTEA) => bytea_from_text(text),
        Some(Type::DATE) => through_cast("date", DataType::Date32),
        Some(Type::TIME) => through_cast("time", DataType::Time64(TimeUnit::Microsecond)),
        Some(Type::TIMESTAMP) => through_cast("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None)),
        Some(Type::TIMESTAMPTZ) => {
            let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into()));
            let value = through_cast("timestamp with time zone", zoned)?;
            Ok(match value {
                ScalarValue::TimestampMicrosecond(value, _) => {
                    ScalarValue::TimestampMicrosecond(value, Some("UTC".into()))
                }
                other => other,
            })
        }
        Some(Type::INTERVAL) => through_cast("interval", DataType::Interval(IntervalUnit::MonthDayNano)),
        _ => Ok(ScalarValue::Utf8(Some(text.to_owned()))),
    }
}

fn from_binary(number: usize, oid: u32, bytes: &Bytes) -> Result<ScalarValue, SqlError> {
    let wrong = || SqlError::new(INVALID_BINARY, format!("incorrect binary data format in bind parameter {number}"));
    if let Some(element) = element_of(oid) {
        return array_from_binary(number, element, bytes.clone());
    }
    macro_rules! fixed {
        ($kind:ty) => {
            <$kind>::from_be_bytes(bytes.as_ref().try_into().map_err(|_| wrong())?)
        };
    }
    let text = |bytes: &[u8]| {
        std::str::from_utf8(bytes).map(|text| ScalarValue::Utf8(Some(text.to_owned()))).map_err(|_| {
            SqlError::new(
                CHARACTER_NOT_IN_REPERTOIRE,
                format!("invalid byte sequence for encoding \"UTF8\" in parameter ${number}"),
            )
        })
    };
    let out_of_range =
        || SqlError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("parameter ${number} is out of range"));
    Ok(match Type::from_oid(oid) {
        Some(Type::BOOL) => ScalarValue::Boolean(Some(fixed!(u8) != 0)),
        Some(Type::INT2) => ScalarValue::Int16(Some(fixed!(i16))),
        Some(Type::INT4) => ScalarValue::Int32(Some(fixed!(i32))),
        Some(Type::INT8) => ScalarValue::Int64(Some(fixed!(i64))),
        Some(Type::OID) => ScalarValue::Int64(Some(i64::from(fixed!(u32)))),
        Some(Type::FLOAT4) => ScalarValue::Float32(Some(fixed!(f32))),
        Some(Type::FLOAT8) => ScalarValue::Float64(Some(fixed!(f64))),
        Some(Type::NUMERIC) => numeric_from_binary(bytes.clone()).ok_or_else(wrong)??,
        Some(Type::BYTEA) => ScalarValue::Binary(Some(bytes.to_vec())),
        Some(Type::DATE) => ScalarValue::Date32(Some(fixed!(i32).checked_add(EPOCH_DAYS).ok_or_else(out_of_range)?)),
        Some(Type::TIME) => ScalarValue::Time64Microsecond(Some(fixed!(i64))),
        Some(kind @ (Type::TIMESTAMP | Type::TIMESTAMPTZ)) => {
            let micros = fixed!(i64).checked_add(EPOCH_MICROS).ok_or_else(out_of_range)?;
            ScalarValue::TimestampMicrosecond(Some(micros), (kind == Type::TIMESTAMPTZ).then(|| "UTC".into()))
        }
        Some(Type::INTERVAL) => {
            let mut rest = bytes.clone();
            if rest.len() != 16 {
                return Err(wrong());
            }
            let (micros, days, months) = (rest.get_i64(), rest.get_i32(), rest.get_i32());
            let nanoseconds = micros.checked_mul(1_000).ok_or_else(out_of_range)?;
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanoseconds)))
        }
        Some(Type::UUID) => ScalarValue::Utf8(Some(uuid::Uuid::from_slice(bytes).map_err(|_| wrong())?.to_string())),
        Some(Type::JSONB) => match bytes.split_first() {
            Some((1, json)) => text(json)?,
            _ => return Err(wrong()),
        },
        Some(Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR | Type::UNKNOWN | Type::JSON) => {
            text(bytes)?
        }
        None if oid == 0 => text(bytes)?,
        _ => return Err(unknown_type(number, oid)),
    })
}

fn list(elements: Vec<ScalarValue>, data_type: DataType) -> Result<ScalarValue, SqlError> {
    // A list has one type: that of its elements, or for decimals, whose scales differ, the widest of them.
    let scale = |value: &ScalarValue| match value {
        ScalarValue::Decimal128(_, _, scale) => Some(*scale),
        _ => None,
    };
    let data_type = match (&data_type, elements.iter().filter_map(scale).max()) {
        (DataType::Decimal128(..), Some(scale)) => DataType::Decimal128(38, scale),
        _ => data_type,
    };
    let elements = elements
        .into_iter()
        .map(|value| value.cast_to(&data_type))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, error.strip_backtrace()))?;
    Ok(ScalarValue::List(ScalarValue::new_list(&elements, &data_type, true)))
}

/// The elements of a one-dimensional array in text form: `{1,NULL,"a \"b\""}`.
fn array_elements(text: &str) -> Result<Vec<Option<String>>, SqlError> {
    let malformed =
        || SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""));
    let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(malformed)?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Ok(elements);
    }
    let mut chars = inner.chars();
    let (mut item, mut quoted, mut in_quotes) = (String::new(), false, false);
    loop {
        match chars.next() {
            Some('\\') => item.push(chars.next().ok_or_else(malformed)?),
            Some('"') => {
                quoted = true;
                in_quotes = !in_quotes;
            }
            Some('{' | '}') if !in_quotes => {
                return Err(SqlError::unsupported(
                    "parameters with arrays of more than one dimension are not supported",
                ));
            }
            end @ (Some(',') | None) if !in_quotes => {
                let value = if quoted { std::mem::take(&mut item) } else { item.trim().to_owned() };
                if !quoted && value.is_empty() {
                    return Err(malformed());
                }
                elements.push((quoted || !value.eq_ignore_ascii_case("null")).then_some(value));
                item.clear();
                quoted = false;
                if end.is_none() {
                    return Ok(elements);
                }
            }
            None => return Err(malformed()),
            // Blanks around a quoted element are no part of it.
            Some(blank) if quoted && !in_quotes && blank.is_whitespace() => {}
            Some(blank) if !quoted && item.is_empty() && blank.is_whitespace() => {}
            Some(other) => item.push(other),
        }
    }
}

fn array_from_binary(number: usize, element: u32, mut bytes: Bytes) -> Result<ScalarValue, SqlError> {
    let wrong = || SqlError::new(INVALID_BINARY, format!("incorrect binary data format in bind parameter {number}"));
    let data_type = arrow_type(element).unwrap_or(DataType::Utf8);
    if bytes.len() < 12 {
        return Err(wrong());
    }
    let dimensions = bytes.get_i32();
    let _has_nulls = bytes.get_i32();
    let sent_element = bytes.get_u32();
    let mut elements = Vec::new();
    match dimensions {
        0 => {}
        1 => {
            if bytes.len() < 8 {
                return Err(wrong());
            }
            let count = bytes.get_i32();
            let _lower_bound = bytes.get_i32();
            for _ in 0..count {
                if bytes.len() < 4 {
                    return Err(wrong());
                }
                match bytes.get_i32() {
                    -1 => elements.push(ScalarValue::Null),
                    length => {
                        let length = usize::try_from(length).map_err(|_| wrong())?;
                        if bytes.len() < length {
                            return Err(wrong());
                        }
                        elements.push(from_binary(number, sent_element, &bytes.split_to(length))?);
                    }
                }
            }
        }
        _ => return Err(SqlError::unsupported("parameters with arrays of more than one dimension are not supported")),
    }
    if !bytes.is_empty() {
        return Err(wrong());
    }
    list(elements, data_type)
}

/// The exact decimal value of digits, sign, point and exponent.
fn numeric_from_text(text: &str) -> Result<ScalarValue, SqlError> {
    let invalid = || invalid_text("numeric", text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| invalid())?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    decimal(negative, all, i64::try_from(fraction.len()).unwrap_or(i64::MAX) - i64::from(exponent))
}

/// `digits` · 10^-`scale` in the narrowest decimal type that holds it exactly.
fn decimal(negative: bool, digits: String, scale: i64) -> Result<ScalarValue, SqlError> {
    let out_of_range = || {
        SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            "a numeric parameter has more digits than are supported (76)",
        )
    };
    let mut digits = digits.trim_start_matches('0').to_owned();
    let mut scale = scale;
    if digits.is_empty() {
        scale = scale.clamp(0, 38);
    }
    if scale < 0 {
        let zeros = usize::try_from(-scale).ok().filter(|zeros| *zeros <= 76).ok_or_else(out_of_range)?;
        digits.extend(std::iter::repeat_n('0', zeros));
        scale = 0;
    }
    // A fraction longer than the digits that count needs room for its leading zeros.
    let precision = digits.len().max(usize::try_from(scale).map_err(|_| out_of_range())?).max(1);
    let sign = if negative { "-" } else { "" };
    let text = format!("{sign}{}", if digits.is_empty() { "0" } else { &digits });
    let scale = i8::try_from(scale).map_err(|_| out_of_range())?;
    if precision <= 38 {
        let value = text.parse::<i128>().map_err(|_| out_of_range())?;
        Ok(ScalarValue::Decimal128(Some(value), precision as u8, scale))
    } else if precision <= 76 {
        let value = i256::from_string(&text).ok_or_else(out_of_range)?;
        Ok(ScalarValue::Decimal256(Some(value), precision as u8, scale))
    } else {
        Err(out_of_range())
    }
}

/// `None` when the bytes are not a numeric.
fn numeric_from_binary(mut bytes: Bytes) -> Option<Result<ScalarValue, SqlError>> {
    if bytes.len() < 8 {
        return None;
    }
    let count = usize::from(bytes.get_u16());
    let weight = i64::from(bytes.get_i16());
    let sign = bytes.get_u16();
    let display_scale = i64::from(bytes.get_u16());
    if bytes.len() != count * 2 {
        return None;
    }
    let negative = match sign {
        0 => false,
        0x4000 => true,
        _ => {
            return Some(Err(SqlError::new(
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                "a numeric parameter that is NaN or infinite is not supported",
            )));
        }
    };
    let mut digits = String::with_capacity(count * 4);
    for _ in 0..count {
        let group = bytes.get_u16();
        if group > 9999 {
            return None;
        }
        digits.push_str(&format!("{group:04}"));
    }
    // Digits behind the point: all groups below weight 0, four digits each; then to the scale that is displayed.
    let mut scale = (count as i64 - 1 - weight) * 4;
    while scale > display_scale && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    while scale < display_scale && digits.len() < 80 {
        digits.push('0');
        scale += 1;
    }
    Some(decimal(negative, digits, scale))
}

/// `\x0aff`, or the older form with backslash and three octal digits.
fn bytea_from_text(text: &str) -> Result<ScalarValue, SqlError> {
    let invalid = || invalid_text("bytea", text);
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits = digits.as_bytes();
        if digits.len() % 2 != 0 {
            return Err(invalid());
        }
        let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(invalid);
        let bytes = digits
            .chunks_exact(2)
            .map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
            .collect::<Result<Vec<u8>, SqlError>>()?;
        return Ok(ScalarValue::Binary(Some(bytes)));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        match rest {
            [] => return Ok(ScalarValue::Binary(Some(bytes))),
            [b'\\', b'\\', more @ ..] => {
                bytes.push(b'\\');
                rest = more;
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = more;
            }
            [b'\\', ..] => return Err(invalid()),
            [byte, more @ ..] => {
                bytes.push(*byte);
                rest = more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Type, value: &str) -> Result<ScalarValue, &'static str> {
        decode(1, kind.oid(), None, Format::Text, Some(&Bytes::copy_from_slice(value.as_bytes())), "UTC")
            .map_err(|error| error.sqlstate)
    }

    fn binary(kind: Type, value: &[u8]) -> Result<ScalarValue, &'static str> {
        decode(1, kind.oid(), None, Format::Binary, Some(&Bytes::copy_from_slice(value)), "UTC")
            .map_err(|error| error.sqlstate)
    }

    #[test]
    fn numbers() {
        assert_eq!(text(Type::INT4, " -5 "), Ok(ScalarValue::Int32(Some(-5))));
        assert_eq!(text(Type::INT4, "5x"), Err("22P02"));
        assert_eq!(text(Type::INT2, "40000"), Err("22P02"));
        assert_eq!(binary(Type::INT8, &7_i64.to_be_bytes()), Ok(ScalarValue::Int64(Some(7))));
        assert_eq!(binary(Type::INT8, &7_i32.to_be_bytes()), Err("22P03"));
        assert_eq!(text(Type::NUMERIC, "-12.340"), Ok(ScalarValue::Decimal128(Some(-12340), 5, 3)));
        assert_eq!(text(Type::NUMERIC, "1.5e3"), Ok(ScalarValue::Decimal128(Some(1500), 4, 0)));
        assert_eq!(text(Type::NUMERIC, "1e-3"), Ok(ScalarValue::Decimal128(Some(1), 3, 3)));
        assert_eq!(text(Type::NUMERIC, "0"), Ok(ScalarValue::Decimal128(Some(0), 1, 0)));
        assert_eq!(text(Type::NUMERIC, "1e999999999"), Err("22003"));
        assert_eq!(text(Type::NUMERIC, "."), Err("22P02"));
        assert!(matches!(text(Type::NUMERIC, &"9".repeat(50)), Ok(ScalarValue::Decimal256(Some(_), 50, 0))));
    }

    #[test]
    fn binary_numerics() {
        // 1234.50: groups 1234 and 5000, weight 0, scale 2.
        let value = [0, 2, 0, 0, 0, 0, 0, 2, 0x04, 0xd2, 0x13, 0x88];
        assert_eq!(binary(Type::NUMERIC, &value), Ok(ScalarValue::Decimal128(Some(123_450), 6, 2)));
        // 10000: one group of weight 1.
        let value = [0, 1, 0, 1, 0, 0, 0, 0, 0, 1];
        assert_eq!(binary(Type::NUMERIC, &value), Ok(ScalarValue::Decimal128(Some(10_000), 5, 0)));
        let nan = [0, 0, 0, 0, 0xc0, 0, 0, 0];
        assert_eq!(binary(Type::NUMERIC, &nan), Err("22003"));
        assert_eq!(binary(Type::NUMERIC, &value[..7]), Err("22P03"));
    }

    #[test]
    fn times() {
        assert_eq!(
            text(Type::TIMESTAMP, "2026-11-29 10:00:00.5"),
            Ok(ScalarValue::TimestampMicrosecond(Some(1_795_946_400_500_000), None))
        );
        let berlin = decode(
            1,
            Type::TIMESTAMPTZ.oid(),
            None,
            Format::Text,
            Some(&Bytes::from_static(b"2026-11-29 11:00:00")),
            "Europe/Berlin",
        );
        let expected = ScalarValue::TimestampMicrosecond(Some(1_795_946_400_000_000), Some("UTC".into()));
        assert_eq!(berlin, Ok(expected));
        assert_eq!(text(Type::DATE, "never"), Err("22007"));
        assert_eq!(binary(Type::DATE, &0_i32.to_be_bytes()), Ok(ScalarValue::Date32(Some(10_957))));
        assert_eq!(binary(Type::TIMESTAMP, &i64::MAX.to_be_bytes()), Err("22008"));
    }

    #[test]
    fn arrays() {
        let strings = array_elements(r#"{ a, "b \"c\"" ,NULL,"NULL",""}"#);
        let expected = [Some("a"), Some("b \"c\""), None, Some("NULL"), Some("")];
        assert_eq!(strings, Ok(expected.map(|item| item.map(str::to_owned)).to_vec()));
        assert_eq!(array_elements("{}"), Ok(Vec::new()));
        for malformed in ["", "{", "{a", "{\"a}", "{a,}", "{\\"] {
            assert!(array_elements(malformed).is_err(), "{malformed}");
        }
        let integers = [1_i32.to_be_bytes(), 0_i32.to_be_bytes(), 23_i32.to_be_bytes(), 2_i32.to_be_bytes()].concat();
        let items = [1_i32.to_be_bytes(), 4_i32.to_be_bytes(), 7_i32.to_be_bytes(), (-1_i32).to_be_bytes()].concat();
        let expected = list(vec![ScalarValue::Int32(Some(7)), ScalarValue::Null], DataType::Int32);
        assert_eq!(
            binary(Type::INT4_ARRAY, &[integers.clone(), items].concat()),
            expected.map_err(|error| error.sqlstate)
        );
        assert_eq!(binary(Type::INT4_ARRAY, &integers), Err("22P03"));
    }

    #[test]
    fn bytes_and_text() {
        assert_eq!(text(Type::BYTEA, "\\x00fF"), Ok(ScalarValue::Binary(Some(vec![0, 255]))));
        assert_eq!(text(Type::BYTEA, "a\\\\\\001"), Ok(ScalarValue::Binary(Some(vec![b'a', b'\\', 1]))));
        assert_eq!(text(Type::BYTEA, "\\x0"), Err("22P02"));
        assert_eq!(binary(Type::TEXT, b"\xff"), Err("22021"));
        assert_eq!(text(Type::BOOL, "maybe"), Err("22P02"));
    }

    #[test]
    fn the_place_gives_the_type() {
        let value = decode(1, 25, Some(&DataType::Int64), Format::Text, Some(&Bytes::from_static(b"5")), "UTC");
        assert_eq!(value, Ok(ScalarValue::Int64(Some(5))));
        let place = DataType::Decimal128(10, 2);
        let value = decode(1, 1700, Some(&place), Format::Text, Some(&Bytes::from_static(b"1.005")), "UTC");
        assert_eq!(value, Ok(ScalarValue::Decimal128(Some(1005), 4, 3)), "not rounded");
        let null = decode(1, 25, Some(&DataType::Int64), Format::Text, None, "UTC");
        assert_eq!(null, Ok(ScalarValue::Int64(None)));
        assert_eq!(announced_type(0, Some(&DataType::Int64)), Type::INT8.oid());
        assert_eq!(announced_type(0, None), Type::TEXT.oid());
        assert_eq!(announced_type(23, Some(&DataType::Int64)), 23);
    }
}
