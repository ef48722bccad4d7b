//! What is known about a table before it is read.
//!
//! The number of rows is exact, which is what answers an unfiltered `count(*)`, and so are the bounds of the key in most cases. Null counts are left out: an exact one of a
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
    let mut bounds: Option<Option<Bounds>> = None;
    for file in files {
        rows += file.row_count();
        bytes += u64::try_from(file.meta.file_size).unwrap_or_default();
        let of_file = key_bounds(version, file, schema).map(|(min, max)| Bounds::of(file, min, max));
        bounds = Some(match (bounds.take(), of_file) {
            (None, of_file) => of_file,
            (Some(Some(all)), Some(of_file)) => all.widen(of_file),
            (Some(_), _) => None,
        });
    }
    total.num_rows = Precision::Exact(rows as usize);
    total.total_byte_size = Precision::Inexact(bytes as usize);
    if let (Some(Some(bounds)), Some(&key)) = (bounds, version.schema.key_indices().first()) {
        let precision = |(value, is_live)| if is_live { Precision::Exact(value) } else { Precision::Inexact(value) };
        total.column_statistics[key] = ColumnStatistics {
            min_value: precision(bounds.min),
            max_value: precision(bounds.max),
            ..ColumnStatistics::new_unknown()
        };
    }
    total
}

/// The smallest and the largest value of the first key column, each with whether a live row is known to have it. That
/// answers `min` and `max` of the key without a scan, unless the very row has been deleted.
struct Bounds {
    min: (ScalarValue, bool),
    max: (ScalarValue, bool),
}

impl Bounds {
    /// A file is sorted by its key: its first row has the smallest value, and its last row the largest.
    fn of(file: &LiveFile, min: ScalarValue, max: ScalarValue) -> Self {
        let is_live = |row: i64| {
            let row = u32::try_from(row).ok();
            row.is_some_and(|row| !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(row)))
        };
        Self { min: (min, is_live(0)), max: (max, is_live(file.meta.row_count - 1)) }
    }

    /// Of both; none if the values cannot be compared.
    fn widen(self, other: Self) -> Option<Self> {
        use std::cmp::Ordering;
        let of_both = |a: (ScalarValue, bool), b: (ScalarValue, bool), wanted| {
            Some(match a.0.partial_cmp(&b.0)? {
                Ordering::Equal => (a.0, a.1 || b.1),
                order if order == wanted => a,
                _ => b,
            })
        };
        Some(Self {
            min: of_both(self.min, other.min, Ordering::Less)?,
            max: of_both(self.max, other.max, Ordering::Greater)?,
        })
    }
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
