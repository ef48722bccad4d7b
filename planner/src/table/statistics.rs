//! What is known about a table before it is read.
//!
//! The number of rows is exact, which is what answers an unfiltered `count(*)`. Null counts are left out: an exact one of a
//! file beside an exact number of *live* rows would let the Parquet source take a column for constant, and fill it with NULLs.

use datafusion::arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use tidegate_storage::paimon::{DataFileMeta, DataType, TableSchema};
use tidegate_storage::table::{LiveFile, TableVersion};

/// Statistics of all of `files`, in columns of `schema`.
pub(crate) fn files_statistics<'a>(
    version: &TableVersion,
    files: impl IntoIterator<Item = &'a LiveFile>,
    schema: &Schema,
) -> Statistics {
    let mut total = Statistics::new_unknown(schema);
    let (mut rows, mut bytes) = (0u64, 0u64);
    let mut bounds: Option<Option<(ScalarValue, ScalarValue)>> = None;
    for file in files {
        rows += file.row_count();
        bytes += u64::try_from(file.meta.file_size).unwrap_or_default();
        let of_file = key_bounds(version, file);
        bounds = Some(match (bounds.take(), of_file) {
            (None, of_file) => of_file,
            (Some(Some(all)), Some(of_file)) => widen(all, of_file),
            (Some(_), _) => None,
        });
    }
    total.num_rows = Precision::Exact(rows as usize);
    total.total_byte_size = Precision::Inexact(bytes as usize);
    if let (Some(Some((min, max))), Some(&key)) = (bounds, version.schema.key_indices().first()) {
        // Inexact: the row with the smallest key may be a deleted one.
        total.column_statistics[key] = ColumnStatistics {
            min_value: Precision::Inexact(min),
            max_value: Precision::Inexact(max),
            ..ColumnStatistics::new_unknown()
        };
    }
    total
}

pub(crate) fn table_statistics(version: &TableVersion, schema: &Schema) -> Statistics {
    files_statistics(version, &version.files, schema)
}

/// Statistics of one file, by which the source leaves it out before opening it. Bounds are of all its rows, deleted ones too; as
/// bounds they are exact, and only exact ones are used for pruning.
pub(crate) fn file_statistics(version: &TableVersion, file: &LiveFile, schema: &Schema) -> Statistics {
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Exact(file.row_count() as usize);
    if let (Some((min, max)), Some(&key)) = (key_bounds(version, file), version.schema.key_indices().first()) {
        statistics.column_statistics[key] = ColumnStatistics {
            min_value: Precision::Exact(min),
            max_value: Precision::Exact(max),
            ..ColumnStatistics::new_unknown()
        };
    }
    statistics
}

fn widen(a: (ScalarValue, ScalarValue), b: (ScalarValue, ScalarValue)) -> Option<(ScalarValue, ScalarValue)> {
    use std::cmp::Ordering;
    let min = if a.0.partial_cmp(&b.0)? == Ordering::Greater { b.0 } else { a.0 };
    let max = if a.1.partial_cmp(&b.1)? == Ordering::Less { b.1 } else { a.1 };
    Some((min, max))
}

/// Smallest and largest value of the first key column in a file. Only the first: the keys are compared as a whole, so the least
/// key says nothing about the least value of a later column.
fn key_bounds(version: &TableVersion, file: &LiveFile) -> Option<(ScalarValue, ScalarValue)> {
    let current = &version.schema;
    let field = &current.fields[*current.key_indices().first()?];
    let written = version.schemas.get(&schema_id(&file.meta)?)?;
    let first = first_key(written)?;
    // A key column whose type was changed since has bounds in its old type.
    if first.id != field.id || first.data_type != field.data_type {
        return None;
    }
    let min = first_value(&file.meta.min_key, &field.data_type, written.primary_keys.len())?;
    let max = first_value(&file.meta.max_key, &field.data_type, written.primary_keys.len())?;
    Some((min, max))
}

fn first_key(schema: &TableSchema) -> Option<&tidegate_storage::paimon::Field> {
    schema.fields.get(*schema.key_indices().first()?)
}

pub(crate) fn schema_id(meta: &DataFileMeta) -> Option<u64> {
    u64::try_from(meta.schema_id).ok()
}

/// Reads the first field of a serialized key row: arity (big-endian), null bits, then one little-endian slot of 8 bytes a field
/// (Paimon's `BinaryRow`). Types whose value lies elsewhere in the row are left out.
fn first_value(row: &[u8], data_type: &DataType, arity: usize) -> Option<ScalarValue> {
    let (head, row) = row.split_first_chunk::<4>()?;
    if usize::try_from(u32::from_be_bytes(*head)).ok()? != arity {
        return None;
    }
    // The first byte of the null bits is the row kind, so the first field's bit is the ninth.
    if row.get(1)? & 1 != 0 {
        return None;
    }
    let slot = *row.get((arity + 63 + 8) / 64 * 8..)?.first_chunk::<8>()?;
    let long = i64::from_le_bytes(slot);
    let int = i32::from_le_bytes(*slot.first_chunk::<4>()?);
    Some(match data_type {
        DataType::TinyInt => ScalarValue::Int8(Some(slot[0] as i8)),
        DataType::SmallInt => ScalarValue::Int16(Some(i16::from_le_bytes(*slot.first_chunk::<2>()?))),
        DataType::Int => ScalarValue::Int32(Some(int)),
        DataType::BigInt => ScalarValue::Int64(Some(long)),
        DataType::Date => ScalarValue::Date32(Some(int)),
        DataType::Decimal { precision, scale } if *precision <= 18 => {
            ScalarValue::Decimal128(Some(i128::from(long)), *precision, *scale)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arity: u32, null: bool, slot: [u8; 8]) -> Vec<u8> {
        let mut row = arity.to_be_bytes().to_vec();
        row.extend([0, u8::from(null), 0, 0, 0, 0, 0, 0]);
        row.extend(slot);
        row.resize(row.len() + 8 * (arity as usize - 1), 0);
        row
    }

    #[test]
    fn fixed_width_keys_are_read_and_others_left_out() {
        let minus_two = (-2i64).to_le_bytes();
        let read = |data_type| first_value(&row(2, false, minus_two), &data_type, 2);
        assert_eq!(read(DataType::BigInt), Some(ScalarValue::Int64(Some(-2))));
        assert_eq!(read(DataType::Int), Some(ScalarValue::Int32(Some(-2))));
        assert_eq!(read(DataType::TinyInt), Some(ScalarValue::Int8(Some(-2))));
        assert_eq!(
            read(DataType::Decimal { precision: 10, scale: 2 }),
            Some(ScalarValue::Decimal128(Some(-2), 10, 2))
        );
        assert_eq!(read(DataType::Decimal { precision: 20, scale: 0 }), None);
        assert_eq!(read(DataType::String), None);
        assert_eq!(first_value(&row(2, true, minus_two), &DataType::BigInt, 2), None);
        assert_eq!(first_value(&row(2, false, minus_two), &DataType::BigInt, 3), None);
        assert_eq!(first_value(&[0, 0, 0, 1], &DataType::BigInt, 1), None);
    }
}
