//! Which bucket a key belongs to.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int32Type, Int64Type};

use super::binary_row::{self, RowEncoder, SEED, finish, mix};
use super::data_type::DataType;
use crate::error::{Error, Result};

/// The bucket of each row of the key columns `columns`, whose types are `types`, in a table of `buckets` buckets.
pub fn buckets_of(types: &[DataType], columns: &[ArrayRef], buckets: u32) -> Result<Vec<u32>> {
    let count = i32::try_from(buckets).ok().filter(|count| *count > 0);
    let count = count.ok_or_else(|| Error::invalid(format!("a table cannot have {buckets} buckets")))?;
    let rows = columns.first().map_or(0, Array::len);
    if count == 1 {
        return Ok(vec![0; rows]);
    }
    match (types, columns) {
        ([DataType::BigInt], [column]) if column.null_count() == 0 => {
            if let Some(keys) = column.as_primitive_opt::<Int64Type>() {
                return Ok(keys.values().iter().map(|key| bucket(hash_of_number(*key), count)).collect());
            }
        }
        ([DataType::Int], [column]) if column.null_count() == 0 => {
            if let Some(keys) = column.as_primitive_opt::<Int32Type>() {
                // The slot's upper half stays zero, for negative numbers too.
                return Ok(keys
                    .values()
                    .iter()
                    .map(|key| bucket(hash_of_number(i64::from(key.cast_unsigned())), count))
                    .collect());
            }
        }
        _ => {}
    }
    let encoder = RowEncoder::new(types, columns)?;
    let mut bytes = Vec::new();
    Ok((0..rows)
        .map(|row| {
            encoder.encode_into(row, &mut bytes);
            bucket(binary_row::hash(&bytes), count)
        })
        .collect())
}

/// `Math.abs(hash % buckets)`.
fn bucket(hash: i32, count: i32) -> u32 {
    (hash % count).unsigned_abs()
}

/// The hash of a row whose only slot holds `number`: a word pair of zeros for the NULL bits, then the slot.
fn hash_of_number(number: i64) -> i32 {
    let number = number.cast_unsigned();
    let state = mix(mix(SEED, 0), 0);
    finish(mix(mix(state, number as u32), (number >> 32) as u32), 16)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, Int64Array};

    use super::*;

    #[test]
    fn short_ways_agree_with_the_whole_row() {
        let long: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, -1, 7, i64::MIN, i64::MAX, 1 << 40]));
        let int: ArrayRef = Arc::new(Int32Array::from(vec![0, 1, -1, 7, i32::MIN, i32::MAX]));
        for (data_type, column) in [(DataType::BigInt, long), (DataType::Int, int)] {
            let types = [data_type];
            let short = buckets_of(&types, std::slice::from_ref(&column), 1009).unwrap();
            for (row, bucket) in short.into_iter().enumerate() {
                let bytes = binary_row::encode(&types, std::slice::from_ref(&column), row).unwrap();
                assert_eq!(bucket, (binary_row::hash(&bytes) % 1009).unsigned_abs(), "row {row} of {types:?}");
            }
        }
    }

    #[test]
    fn a_table_without_buckets_is_refused() {
        assert!(buckets_of(&[DataType::Int], &[Arc::new(Int32Array::from(vec![1]))], 0).is_err());
    }
}
