//! What is known about a table before it is read.
//!
//! The number of rows is exact, which is what answers an unfiltered `count(*)`, and so are the bounds of the key in most cases. Null counts are left out: an exact one of a
//! file beside an exact number of *live* rows would let the Parquet source take a column for constant, and fill it with NULLs.

use std::cmp::Ordering;

use datafusion::arrow::datatypes::{DataType, Schema};
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
    let mut bounds = Some(Vec::new());
    for file in files {
        rows += file.row_count();
        bytes += u64::try_from(file.meta.file_size).unwrap_or_default();
        let of_file = key_bounds(version, file, schema);
        bounds = bounds.zip(of_file).map(|(mut bounds, (min, max))| {
            bounds.push(Bounds { file, min, max });
            bounds
        });
    }
    total.num_rows = Precision::Exact(rows as usize);
    total.total_byte_size = Precision::Inexact(bytes as usize);
    if let (Some(mut bounds), Some(&key)) = (bounds, version.schema.key_indices().first()) {
        let wanted = schema.field(key).data_type();
        total.column_statistics[key] = ColumnStatistics {
            min_value: outermost(version, &mut bounds, Side::Min, wanted),
            max_value: outermost(version, &mut bounds, Side::Max, wanted),
            ..ColumnStatistics::new_unknown()
        };
    }
    total
}

/// The smallest and the largest value of the first key column in a file, deleted rows included.
struct Bounds<'a> {
    file: &'a LiveFile,
    min: ScalarValue,
    max: ScalarValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Min,
    Max,
}

impl Bounds<'_> {
    fn at(&self, side: Side) -> &ScalarValue {
        match side {
            Side::Min => &self.min,
            Side::Max => &self.max,
        }
    }

    /// The same of the live rows: nothing if there are none, an error if it is not known.
    fn live_at(&self, version: &TableVersion, side: Side, wanted: &DataType) -> Option<Result<ScalarValue, ()>> {
        let (first, last) = self.file.first_and_last_live()?;
        // A file is sorted by its key.
        let (row, outer) = match side {
            Side::Min => (first, 0),
            Side::Max => (last, self.file.meta.row_count - 1),
        };
        if i64::from(row) == outer {
            return Some(Ok(self.at(side).clone()));
        }
        let value = version.first_key_value(self.file, row);
        let value = value.and_then(|value| ScalarValue::try_from_array(&value, 0).ok()?.cast_to(wanted).ok());
        Some(value.filter(|value| !value.is_null()).ok_or(()))
    }
}

/// The smallest or the largest value of the first key column. If it is exact, it answers `min` or `max` of the key without a
/// scan: where the outermost row of a file has been deleted, the key index knows the next one that has not.
fn outermost(
    version: &TableVersion,
    bounds: &mut [Bounds<'_>],
    side: Side,
    wanted: &DataType,
) -> Precision<ScalarValue> {
    let outside = match side {
        Side::Min => Ordering::Less,
        Side::Max => Ordering::Greater,
    };
    let comparable = bounds.iter().all(|file| file.at(side).partial_cmp(bounds[0].at(side)).is_some());
    if bounds.is_empty() || !comparable {
        return Precision::Absent;
    }
    bounds.sort_by(|a, b| {
        let order = a.at(side).partial_cmp(b.at(side)).unwrap_or(Ordering::Equal);
        if side == Side::Min { order } else { order.reverse() }
    });
    let outer = bounds[0].at(side).clone();
    let mut found: Option<ScalarValue> = None;
    for file in bounds.iter() {
        if found.as_ref().is_some_and(|found| file.at(side).partial_cmp(found) != Some(outside)) {
            break;
        }
        match file.live_at(version, side, wanted) {
            Some(Err(())) => return Precision::Inexact(outer),
            Some(Ok(value)) if found.as_ref().is_none_or(|found| value.partial_cmp(found) == Some(outside)) => {
                found = Some(value);
            }
            _ => {}
        }
    }
    found.map_or(Precision::Inexact(outer), Precision::Exact)
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
