//! What is known about a table before it is read.
//!
//! The number of rows is exact, which is what answers an unfiltered `count(*)`. Null counts are left out: an exact one of a
//! file beside an exact number of *live* rows would let the Parquet source take a column for constant, and fill it with NULLs.

use datafusion::arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use tidegate_storage::paimon::{DataFileMeta, binary_row};
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
        let of_file = key_bounds(version, file, schema);
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
    if let (Some((min, max)), Some(&key)) = (key_bounds(version, file, schema), version.schema.key_indices().first()) {
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
fn key_bounds(version: &TableVersion, file: &LiveFile, schema: &Schema) -> Option<(ScalarValue, ScalarValue)> {
    let key = *version.schema.key_indices().first()?;
    let current = version.schema.fields.get(key)?;
    let written = version.schemas.get(&schema_id(&file.meta)?)?;
    let first = written.fields.get(*written.key_indices().first()?)?;
    // A key column whose type was changed since has bounds in its old type.
    if first.id != current.id || first.data_type != current.data_type {
        return None;
    }
    let types = written.key_types();
    let wanted = schema.field(key).data_type();
    let bound = |row: &[u8]| -> Option<ScalarValue> {
        let values = binary_row::decode(file.path.as_ref(), &types, row).ok()?;
        let value = ScalarValue::try_from_array(values.first()?, 0).ok()?;
        value.cast_to(wanted).ok().filter(|value| !value.is_null())
    };
    Some((bound(&file.meta.min_key)?, bound(&file.meta.max_key)?))
}

pub(crate) fn schema_id(meta: &DataFileMeta) -> Option<u64> {
    u64::try_from(meta.schema_id).ok()
}
