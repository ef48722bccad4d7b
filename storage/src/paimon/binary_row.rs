//! Rows as bytes: the form of keys and statistics in manifests, and what bucket hashes are computed over.
//!
//! A row is a bit set of NULLs (whose first byte is the row's kind, 0), one slot of 8 bytes a field, and a part for
//! what does not fit into a slot. Everything is little endian, all padding is zero. *Serialised*, its number of
//! fields goes in front as 4 bytes, big endian.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};

use super::data_type::DataType;
use crate::error::{Error, Result};

/// The serialised row without fields: the partition of tables that have none.
pub const EMPTY_ROW: [u8; 12] = [0; 12];

/// Decimals of up to this precision are kept in their slot.
const COMPACT_PRECISION: u8 = 18;
/// Timestamps of up to this precision are kept in their slot, as milliseconds.
const COMPACT_TIMESTAMP: u8 = 3;
/// Longest string or byte string that is kept in its slot.
const INLINE_LENGTH: usize = 7;
/// Marks a slot that holds its string itself, with the length in the low bits.
const INLINE_MARK: u8 = 0x80;

/// The bytes of row `row` of `columns`, whose types are `types`.
pub fn encode(types: &[DataType], columns: &[ArrayRef], row: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    RowEncoder::new(types, columns)?.encode_into(row, &mut out);
    Ok(out)
}

/// The bytes of row `row` of `columns` behind its number of fields, as manifests hold it.
pub fn serialize(types: &[DataType], columns: &[ArrayRef], row: usize) -> Result<Vec<u8>> {
    let mut out = (types.len() as u32).to_be_bytes().to_vec();
    let mut bytes = Vec::new();
    RowEncoder::new(types, columns)?.encode_into(row, &mut bytes);
    out.append(&mut bytes);
    Ok(out)
}

/// Murmur3 over a row's bytes, whose length is a multiple of 4: what buckets are chosen by.
pub fn hash(row: &[u8]) -> i32 {
    let mut state = SEED;
    for word in row.as_chunks::<4>().0 {
        state = mix(state, u32::from_le_bytes(*word));
    }
    finish(state, row.len() as u32)
}

pub(super) const SEED: u32 = 42;

/// Murmur3's step for one word.
#[inline]
pub(super) fn mix(state: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (state ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Murmur3's last step, `length` being in bytes.
#[inline]
pub(super) fn finish(state: u32, length: u32) -> i32 {
    let mut h = state ^ length;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)).cast_signed()
}

/// Bytes of the bit set of a row with `fields` fields: 8 bits for the row's kind, then one a field, in whole words.
fn null_bytes(fields: usize) -> usize {
    (fields + 8).div_ceil(64) * 8
}

enum Column<'a> {
    Boolean(&'a BooleanArray),
    TinyInt(&'a Int8Array),
    SmallInt(&'a Int16Array),
    Int(&'a Int32Array),
    BigInt(&'a Int64Array),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Decimal(&'a Decimal128Array, bool),
    String(&'a StringArray),
    Binary(&'a BinaryArray),
    Date(&'a Date32Array),
    Timestamp(&'a TimestampMicrosecondArray, bool),
}

/// Encodes rows of the same columns, without looking at their types again for each.
pub(super) struct RowEncoder<'a> {
    columns: Vec<(Column<'a>, &'a dyn Array)>,
    null_bytes: usize,
}

impl<'a> RowEncoder<'a> {
    pub(super) fn new(types: &[DataType], columns: &'a [ArrayRef]) -> Result<Self> {
        if types.len() != columns.len() {
            return Err(Error::invalid(format!("a row of {} types has {} columns", types.len(), columns.len())));
        }
        let typed = types.iter().zip(columns).map(|(data_type, array)| {
            let column = match data_type {
                DataType::Boolean => array.as_boolean_opt().map(Column::Boolean),
                DataType::TinyInt => array.as_primitive_opt::<Int8Type>().map(Column::TinyInt),
                DataType::SmallInt => array.as_primitive_opt::<Int16Type>().map(Column::SmallInt),
                DataType::Int => array.as_primitive_opt::<Int32Type>().map(Column::Int),
                DataType::BigInt => array.as_primitive_opt::<Int64Type>().map(Column::BigInt),
                DataType::Float => array.as_primitive_opt::<Float32Type>().map(Column::Float),
                DataType::Double => array.as_primitive_opt::<Float64Type>().map(Column::Double),
                DataType::Decimal { precision, .. } => array
                    .as_primitive_opt::<Decimal128Type>()
                    .map(|array| Column::Decimal(array, *precision <= COMPACT_PRECISION)),
                DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
                    array.as_string_opt::<i32>().map(Column::String)
                }
                DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
                    array.as_binary_opt::<i32>().map(Column::Binary)
                }
                DataType::Date => array.as_primitive_opt::<Date32Type>().map(Column::Date),
                DataType::Timestamp(p) | DataType::TimestampLtz(p) => array
                    .as_primitive_opt::<TimestampMicrosecondType>()
                    .map(|array| Column::Timestamp(array, *p <= COMPACT_TIMESTAMP)),
            };
            column
                .map(|column| (column, array.as_ref()))
                .ok_or_else(|| Error::invalid(format!("a column of type {data_type} is held as {}", array.data_type())))
        });
        Ok(Self { columns: typed.collect::<Result<_>>()?, null_bytes: null_bytes(types.len()) })
    }

    /// Replaces `out` by the bytes of row `row`.
    pub(super) fn encode_into(&self, row: usize, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.null_bytes + 8 * self.columns.len(), 0);
        for (i, (column, array)) in self.columns.iter().enumerate() {
            let slot = self.null_bytes + 8 * i;
            if array.is_null(row) {
                let bit = i + 8;
                out[bit / 8] |= 1 << (bit % 8);
                // The place of a value that may be changed in place later is kept for NULL too.
                match column {
                    Column::Decimal(_, false) => reserve(out, slot, 16, 0),
                    Column::Timestamp(_, false) => reserve(out, slot, 8, 0),
                    _ => {}
                }
                continue;
            }
            match column {
                Column::Boolean(array) => out[slot] = u8::from(array.value(row)),
                Column::TinyInt(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::SmallInt(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::Int(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::BigInt(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::Float(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::Double(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::Date(array) => put(out, slot, &array.value(row).to_le_bytes()),
                Column::Decimal(array, true) => put(out, slot, &(array.value(row) as i64).to_le_bytes()),
                Column::Decimal(array, false) => {
                    let bytes = array.value(row).to_be_bytes();
                    let minimal = &bytes[redundant_sign_bytes(&bytes)..];
                    let start = out.len();
                    reserve(out, slot, 16, minimal.len());
                    put(out, start, minimal);
                }
                Column::Timestamp(array, compact) => {
                    let micros = array.value(row);
                    let (millis, nanos) = (micros.div_euclid(1000), micros.rem_euclid(1000) * 1000);
                    if *compact {
                        put(out, slot, &millis.to_le_bytes());
                    } else {
                        let start = out.len();
                        reserve(out, slot, 8, nanos as usize);
                        put(out, start, &millis.to_le_bytes());
                    }
                }
                Column::String(array) => put_variable(out, slot, array.value(row).as_bytes()),
                Column::Binary(array) => put_variable(out, slot, array.value(row)),
            }
        }
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Appends `length` zero bytes and lets the slot point at them, with `low` in its lower half.
fn reserve(out: &mut Vec<u8>, slot: usize, length: usize, low: usize) {
    let pointer = (out.len() as u64) << 32 | low as u64;
    put(out, slot, &pointer.to_le_bytes());
    out.resize(out.len() + length, 0);
}

fn put_variable(out: &mut Vec<u8>, slot: usize, bytes: &[u8]) {
    if bytes.len() <= INLINE_LENGTH {
        put(out, slot, bytes);
        out[slot + INLINE_LENGTH] = INLINE_MARK | bytes.len() as u8;
    } else {
        let start = out.len();
        reserve(out, slot, bytes.len().next_multiple_of(8), bytes.len());
        put(out, start, bytes);
    }
}

/// How many leading bytes of a big-endian number only repeat its sign.
fn redundant_sign_bytes(bytes: &[u8; 16]) -> usize {
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    bytes.windows(2).take_while(|pair| pair[0] == sign && (pair[1] ^ sign) & 0x80 == 0).count()
}

/// The fields of a serialised row, as arrays of one value. `object` is where the row was read from.
pub fn decode(object: &str, types: &[DataType], serialized: &[u8]) -> Result<Vec<ArrayRef>> {
    let short = || Error::corrupt(object, "a binary row in it is cut short or damaged");
    let (arity, row) = serialized.split_at_checked(4).ok_or_else(short)?;
    if arity != (types.len() as u32).to_be_bytes() {
        return Err(Error::corrupt(object, format!("a binary row in it has not {} fields", types.len())));
    }
    let base = null_bytes(types.len());
    let field = |(i, data_type): (usize, &DataType)| {
        let null = row.get((i + 8) / 8).is_none_or(|byte| byte >> ((i + 8) % 8) & 1 == 1);
        let slot: [u8; 8] = *row.get(base + 8 * i..).and_then(<[u8]>::first_chunk)?;
        decode_field(data_type, (!null).then_some(slot), row)
    };
    types.iter().enumerate().map(field).collect::<Option<_>>().ok_or_else(short)
}

fn decode_field(data_type: &DataType, slot: Option<[u8; 8]>, row: &[u8]) -> Option<ArrayRef> {
    fn first<const N: usize>(slot: [u8; 8]) -> [u8; N] {
        std::array::from_fn(|i| slot[i])
    }
    let pointer = |slot| {
        let pointer = u64::from_le_bytes(slot);
        ((pointer >> 32) as usize, (pointer & 0xffff_ffff) as usize)
    };
    let variable = |slot: &[u8; 8]| -> Option<Vec<u8>> {
        if slot[INLINE_LENGTH] & INLINE_MARK != 0 {
            return slot[..INLINE_LENGTH].get(..usize::from(slot[INLINE_LENGTH] & !INLINE_MARK)).map(<[u8]>::to_vec);
        }
        let (start, length) = pointer(*slot);
        row.get(start..start.checked_add(length)?).map(<[u8]>::to_vec)
    };
    Some(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(vec![slot.map(|slot| slot[0] != 0)])),
        DataType::TinyInt => Arc::new(Int8Array::from(vec![slot.map(|slot| i8::from_le_bytes(first(slot)))])),
        DataType::SmallInt => Arc::new(Int16Array::from(vec![slot.map(|slot| i16::from_le_bytes(first(slot)))])),
        DataType::Int => Arc::new(Int32Array::from(vec![slot.map(|slot| i32::from_le_bytes(first(slot)))])),
        DataType::BigInt => Arc::new(Int64Array::from(vec![slot.map(i64::from_le_bytes)])),
        DataType::Float => Arc::new(Float32Array::from(vec![slot.map(|slot| f32::from_le_bytes(first(slot)))])),
        DataType::Double => Arc::new(Float64Array::from(vec![slot.map(f64::from_le_bytes)])),
        DataType::Date => Arc::new(Date32Array::from(vec![slot.map(|slot| i32::from_le_bytes(first(slot)))])),
        DataType::Decimal { precision, scale } => {
            let value = match slot {
                None => None,
                Some(slot) if *precision <= COMPACT_PRECISION => Some(i128::from(i64::from_le_bytes(slot))),
                Some(slot) => {
                    let (start, length) = pointer(slot);
                    let bytes =
                        row.get(start..start.checked_add(length)?).filter(|bytes| (1..=16).contains(&bytes.len()))?;
                    let mut wide = if bytes[0] & 0x80 == 0 { [0; 16] } else { [0xff; 16] };
                    wide[16 - bytes.len()..].copy_from_slice(bytes);
                    Some(i128::from_be_bytes(wide))
                }
            };
            Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(*precision, *scale).ok()?)
        }
        DataType::Timestamp(p) | DataType::TimestampLtz(p) => {
            let micros = match slot {
                None => None,
                Some(slot) if *p <= COMPACT_TIMESTAMP => Some(i64::from_le_bytes(slot).checked_mul(1000)?),
                Some(slot) => {
                    let (start, nanos) = pointer(slot);
                    let millis = i64::from_le_bytes(*row.get(start..)?.first_chunk()?);
                    Some(millis.checked_mul(1000)?.checked_add(nanos as i64 / 1000)?)
                }
            };
            let array = TimestampMicrosecondArray::from(vec![micros]);
            match data_type {
                DataType::TimestampLtz(_) => Arc::new(array.with_timezone("UTC")),
                _ => Arc::new(array),
            }
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            let value = match slot {
                Some(slot) => Some(String::from_utf8(variable(&slot)?).ok()?),
                None => None,
            };
            Arc::new(StringArray::from(vec![value]))
        }
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            let mut builder = BinaryBuilder::new();
            match slot {
                Some(slot) => builder.append_value(variable(&slot)?),
                None => builder.append_null(),
            }
            Arc::new(builder.finish())
        }
    })
}

#[cfg(test)]
mod tests;
