//! Values as text that says every bit, which all engines agree on: numbers in decimal, floating-point numbers and bytes
//! in hex, decimals without their point, dates in days and timestamps in microseconds since 1970.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimeUnit, TimestampMicrosecondType,
};
use tidegate_storage::paimon::{DataType, TableSchema};

/// A row.
pub(crate) type Line = Vec<Option<String>>;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// One value of a column.
pub(crate) fn text(column: &ArrayRef, row: usize) -> Option<String> {
    column.is_valid(row).then(|| match column.data_type() {
        Arrow::Boolean => column.as_boolean().value(row).to_string(),
        Arrow::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        Arrow::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        Arrow::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        Arrow::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        Arrow::Float32 => hex(&column.as_primitive::<Float32Type>().value(row).to_be_bytes()),
        Arrow::Float64 => hex(&column.as_primitive::<Float64Type>().value(row).to_be_bytes()),
        Arrow::Decimal128(..) => column.as_primitive::<Decimal128Type>().value(row).to_string(),
        Arrow::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        Arrow::Binary => hex(column.as_binary::<i32>().value(row)),
        Arrow::Date32 => column.as_primitive::<Date32Type>().value(row).to_string(),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            column.as_primitive::<TimestampMicrosecondType>().value(row).to_string()
        }
        other => panic!("{other}"),
    })
}

/// The rows of a batch.
pub(crate) fn lines(columns: &[ArrayRef]) -> Vec<Line> {
    let rows = columns.first().map_or(0, Array::len);
    (0..rows).map(|row| columns.iter().map(|column| text(column, row)).collect()).collect()
}

/// A column of these values.
pub(crate) fn array<'a>(data_type: &DataType, values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    fn numbers<T: std::str::FromStr>(values: impl Iterator<Item = Option<impl AsRef<str>>>) -> Vec<Option<T>>
    where
        T::Err: std::fmt::Debug,
    {
        values.map(|value| value.map(|text| text.as_ref().parse().unwrap())).collect()
    }
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(numbers(values))),
        DataType::TinyInt => Arc::new(Int8Array::from(numbers(values))),
        DataType::SmallInt => Arc::new(Int16Array::from(numbers(values))),
        DataType::Int => Arc::new(Int32Array::from(numbers(values))),
        DataType::BigInt => Arc::new(Int64Array::from(numbers(values))),
        DataType::Float => Arc::new(Float32Array::from_iter(
            values.map(|value| value.map(|text| f32::from_bits(u32::from_str_radix(text, 16).unwrap()))),
        )),
        DataType::Double => Arc::new(Float64Array::from_iter(
            values.map(|value| value.map(|text| f64::from_bits(u64::from_str_radix(text, 16).unwrap()))),
        )),
        DataType::Decimal { precision, scale } => {
            Arc::new(Decimal128Array::from(numbers(values)).with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => Arc::new(StringArray::from_iter(values)),
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            Arc::new(BinaryArray::from_iter(values.map(|value| value.map(unhex))))
        }
        DataType::Date => Arc::new(Date32Array::from(numbers(values))),
        DataType::Timestamp(_) => Arc::new(TimestampMicrosecondArray::from(numbers(values))),
        DataType::TimestampLtz(_) => Arc::new(TimestampMicrosecondArray::from(numbers(values)).with_timezone("UTC")),
    }
}

/// Rows of a table.
pub(crate) fn batch(schema: &TableSchema, lines: &[Line]) -> RecordBatch {
    let column =
        |index: usize| array(&schema.fields[index].data_type, lines.iter().map(move |line| line[index].as_deref()));
    RecordBatch::try_new(schema.arrow_schema(), (0..schema.fields.len()).map(column).collect()).unwrap()
}

/// What a value stored as `from` is when it is read as `to`.
pub(crate) fn widened(from: &DataType, to: &DataType, text: &str) -> String {
    let scale_of = |data_type: &DataType| match data_type {
        DataType::Decimal { scale, .. } => *scale as usize,
        _ => 0,
    };
    match (from, to) {
        (from, to) if from == to => text.to_owned(),
        (_, DataType::Decimal { .. }) => {
            let zeros = scale_of(to) - scale_of(from);
            if text == "0" { text.to_owned() } else { format!("{text}{}", "0".repeat(zeros)) }
        }
        (DataType::Float, DataType::Double) => {
            let narrow = f32::from_bits(u32::from_str_radix(text, 16).unwrap());
            hex(&f64::from(narrow).to_be_bytes())
        }
        (_, DataType::Float) => hex(&text.parse::<f32>().unwrap().to_be_bytes()),
        (_, DataType::Double) => hex(&text.parse::<f64>().unwrap().to_be_bytes()),
        (DataType::Date, DataType::Timestamp(_)) => (text.parse::<i64>().unwrap() * 86_400_000_000).to_string(),
        _ => text.to_owned(),
    }
}
