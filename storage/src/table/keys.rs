//! Keys in a form that compares fast, in the order of Paimon's comparator, and sorted sets of them.
//!
//! A single integer, date or timestamp key is an `i64`. A single string or binary key is its bytes. Every other key is
//! Arrow's row encoding, whose bytes compare as the columns do: left to right, numbers by value, strings and binary
//! values as unsigned bytes.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::row::{RowConverter, SortField};

use crate::error::{Error, Result};

/// Turns key columns into [`Keys`].
#[derive(Debug)]
pub(crate) struct KeyCodec {
    types: Vec<DataType>,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Int,
    Raw,
    Rows,
}

/// A list of keys. Which order they are in is the holder's business.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Keys {
    Int(Vec<i64>),
    Bytes(ByteKeys),
}

/// Keys as one buffer and the end of each key in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ByteKeys {
    data: Vec<u8>,
    ends: Vec<u32>,
}

/// One key, borrowed. Only keys of one table are ever compared, so both sides have the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyRef<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

/// One key, owned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Int(i64),
    Bytes(Box<[u8]>),
}

impl Key {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Int(key) => KeyRef::Int(*key),
            Self::Bytes(key) => KeyRef::Bytes(key),
        }
    }
}

impl KeyRef<'_> {
    pub(crate) fn to_owned(self) -> Key {
        match self {
            Self::Int(key) => Key::Int(key),
            Self::Bytes(key) => Key::Bytes(key.into()),
        }
    }
}

/// Random access to keys of one form; lets the loops over keys be compiled once for each form.
pub(crate) trait KeyList {
    type Item<'a>: Ord + Copy
    where
        Self: 'a;

    fn len(&self) -> usize;
    fn at(&self, index: usize) -> Self::Item<'_>;
}

impl KeyList for Vec<i64> {
    type Item<'a> = i64;

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn at(&self, index: usize) -> i64 {
        self[index]
    }
}

impl KeyList for ByteKeys {
    type Item<'a> = &'a [u8];

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn at(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.data[start as usize..self.ends[index] as usize]
    }
}

/// The first eight bytes as a big-endian number, zeros after a shorter key.
fn prefix_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first)
}

impl ByteKeys {
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<()> {
        self.data.extend_from_slice(key);
        let end = u32::try_from(self.data.len()).map_err(|_| Error::invalid("the keys of one file exceed 4 GiB"))?;
        self.ends.push(end);
        Ok(())
    }
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int(keys) => keys.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    pub(crate) fn at(&self, index: usize) -> KeyRef<'_> {
        match self {
            Self::Int(keys) => KeyRef::Int(keys.at(index)),
            Self::Bytes(keys) => KeyRef::Bytes(keys.at(index)),
        }
    }

    pub(crate) fn first(&self) -> Option<KeyRef<'_>> {
        (self.len() > 0).then(|| self.at(0))
    }

    pub(crate) fn last(&self) -> Option<KeyRef<'_>> {
        self.len().checked_sub(1).map(|last| self.at(last))
    }

    /// An empty list of the same form.
    #[cfg(test)]
    pub(crate) fn empty(&self) -> Self {
        match self {
            Self::Int(_) => Self::Int(Vec::new()),
            Self::Bytes(_) => Self::Bytes(ByteKeys::default()),
        }
    }

    pub(crate) fn push(&mut self, key: KeyRef<'_>) -> Result<()> {
        match (self, key) {
            (Self::Int(keys), KeyRef::Int(key)) => {
                keys.push(key);
                Ok(())
            }
            (Self::Bytes(keys), KeyRef::Bytes(key)) => keys.push(key),
            _ => Err(Error::invalid("keys of two forms in one table")),
        }
    }

    /// Appends all of `other`.
    pub(crate) fn extend(&mut self, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::Int(keys), Self::Int(other)) => keys.extend_from_slice(other),
            (Self::Bytes(keys), Self::Bytes(other)) => {
                let base = u32::try_from(keys.data.len()).ok();
                let fits = u32::try_from(keys.data.len() + other.data.len()).is_ok();
                let base = base.filter(|_| fits).ok_or_else(|| Error::invalid("the buffered keys exceed 4 GiB"))?;
                keys.data.extend_from_slice(&other.data);
                keys.ends.extend(other.ends.iter().map(|end| end + base));
            }
            _ => return Err(Error::invalid("keys of two forms in one table")),
        }
        Ok(())
    }

    /// The keys at `rows`, in that order.
    pub(crate) fn gather(&self, rows: impl Iterator<Item = u32>) -> Result<Self> {
        match self {
            Self::Int(keys) => Ok(Self::Int(rows.map(|row| keys[row as usize]).collect())),
            Self::Bytes(keys) => {
                let mut out = ByteKeys::default();
                for row in rows {
                    out.push(keys.at(row as usize))?;
                }
                Ok(Self::Bytes(out))
            }
        }
    }

    /// Appends `other[from..to]`.
    pub(crate) fn extend_from(&mut self, other: &Self, from: usize, to: usize) -> Result<()> {
        match (self, other) {
            (Self::Int(keys), Self::Int(other)) => {
                keys.extend_from_slice(&other[from..to]);
                Ok(())
            }
            (Self::Bytes(keys), Self::Bytes(other)) => (from..to).try_for_each(|index| keys.push(other.at(index))),
            _ => Err(Error::invalid("keys of two forms in one table")),
        }
    }

    /// Forgets all keys and keeps the buffers.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Int(keys) => keys.clear(),
            Self::Bytes(keys) => {
                keys.data.clear();
                keys.ends.clear();
            }
        }
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Int(keys) => keys.capacity() * 8,
            Self::Bytes(keys) => keys.data.capacity() + keys.ends.capacity() * 4,
        }
    }

    /// `rows` reordered so that their keys ascend; rows of one key keep their order. `rows` ascends.
    pub(crate) fn sort(&self, rows: Vec<u32>) -> Vec<u32> {
        match self {
            Self::Int(keys) => sort_ints(keys, rows),
            Self::Bytes(keys) => sort_bytes(keys, rows),
        }
    }

    /// Whether every key of `from..to` is greater than the one before.
    pub(crate) fn ascends_in(&self, from: usize, to: usize) -> bool {
        match self {
            Self::Int(keys) => keys[from..to].is_sorted_by(|a, b| a < b),
            Self::Bytes(keys) => (from + 1..to).all(|index| keys.at(index - 1) < keys.at(index)),
        }
    }

    /// The first index of `from..to` whose key is not less than `key`, in an ascending list.
    pub(crate) fn lower_bound_in(&self, key: KeyRef<'_>, from: usize, to: usize) -> usize {
        match (self, key) {
            (Self::Int(keys), KeyRef::Int(key)) => from + keys[from..to].partition_point(|k| *k < key),
            _ => {
                let (mut low, mut high) = (from, to);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if self.at(middle) < key { low = middle + 1 } else { high = middle }
                }
                low
            }
        }
    }

    /// How far apart two keys are, as a number that grows with the distance: exact for integers, by the first eight
    /// bytes that are not common to `range` for others.
    pub(crate) fn distance(&self, from: usize, to: usize, common: usize) -> f64 {
        match self {
            Self::Int(keys) => keys[to] as f64 - keys[from] as f64,
            Self::Bytes(keys) => {
                let tail = |index| prefix_of(keys.at(index).get(common..).unwrap_or_default());
                tail(to) as f64 - tail(from) as f64
            }
        }
    }

    /// The length of the prefix that two keys share; 0 for integers.
    pub(crate) fn common_prefix(&self, a: usize, b: usize) -> usize {
        match self {
            Self::Int(_) => 0,
            Self::Bytes(keys) => keys.at(a).iter().zip(keys.at(b)).take_while(|(a, b)| a == b).count(),
        }
    }
}

fn sort_ints(keys: &[i64], rows: Vec<u32>) -> Vec<u32> {
    if rows.is_sorted_by_key(|row| keys[*row as usize]) {
        return rows;
    }
    let mut pairs: Vec<(i64, u32)> = rows.into_iter().map(|row| (keys[row as usize], row)).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, row)| row).collect()
}

fn sort_bytes(keys: &ByteKeys, rows: Vec<u32>) -> Vec<u32> {
    if rows.is_sorted_by(|a, b| keys.at(*a as usize) <= keys.at(*b as usize)) {
        return rows;
    }
    // Most comparisons are decided by what follows the prefix that all keys share.
    let common = rows.iter().fold(None, |common: Option<(&[u8], usize)>, row| {
        let key = keys.at(*row as usize);
        match common {
            None => Some((key, key.len())),
            Some((first, len)) => Some((first, first[..len].iter().zip(key).take_while(|(a, b)| a == b).count())),
        }
    });
    let common = common.map_or(0, |(_, len)| len);
    let mut pairs: Vec<(u64, u32)> =
        rows.into_iter().map(|row| (prefix_of(&keys.at(row as usize)[common..]), row)).collect();
    pairs.sort_unstable_by(|(a, row_a), (b, row_b)| {
        a.cmp(b)
            .then_with(|| keys.at(*row_a as usize)[common..].cmp(&keys.at(*row_b as usize)[common..]))
            .then_with(|| row_a.cmp(row_b))
    });
    pairs.into_iter().map(|(_, row)| row).collect()
}

impl KeyCodec {
    /// For key columns of these types, in key order.
    pub(crate) fn new(types: Vec<DataType>) -> Result<Self> {
        let form = match types.as_slice() {
            [] => return Err(Error::invalid("a table needs a primary key")),
            [
                DataType::Int8
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::Date32
                | DataType::Timestamp(_, _),
            ] => Form::Int,
            [DataType::Utf8 | DataType::Binary] => Form::Raw,
            _ => Form::Rows,
        };
        let codec = Self { types, form };
        if form == Form::Rows {
            codec.converter()?;
        }
        Ok(codec)
    }

    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// An empty list of this table's keys.
    pub(crate) fn empty(&self) -> Keys {
        match self.form {
            Form::Int => Keys::Int(Vec::new()),
            Form::Raw | Form::Rows => Keys::Bytes(ByteKeys::default()),
        }
    }

    fn converter(&self) -> Result<RowConverter> {
        let fields = self.types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        RowConverter::new(fields).map_err(|error| Error::invalid(format!("these columns cannot be a key: {error}")))
    }

    /// The columns that these keys were encoded from.
    pub(crate) fn decode(&self, keys: &Keys) -> Result<Vec<ArrayRef>> {
        match (keys, self.types.as_slice()) {
            (Keys::Int(keys), [data_type]) if self.form == Form::Int => {
                Ok(vec![from_int64(&(Arc::new(Int64Array::from(keys.clone())) as ArrayRef), data_type)?])
            }
            (Keys::Bytes(keys), [data_type]) if self.form == Form::Raw => {
                let keys = BinaryArray::from_iter_values((0..KeyList::len(keys)).map(|index| keys.at(index)));
                let keys = Arc::new(keys) as ArrayRef;
                let column = cast(&keys, data_type);
                Ok(vec![column.map_err(|error| Error::invalid(format!("a key cannot be read as text: {error}")))?])
            }
            (Keys::Bytes(keys), _) if self.form == Form::Rows => {
                let converter = self.converter()?;
                let parser = converter.parser();
                let rows = (0..KeyList::len(keys)).map(|index| parser.parse(keys.at(index)));
                converter
                    .convert_rows(rows)
                    .map_err(|error| Error::invalid(format!("a key cannot be decoded: {error}")))
            }
            _ => Err(Error::invalid("keys of another form than the table's")),
        }
    }

    /// The keys of the rows of `columns`. NULL has no place in a key.
    pub(crate) fn encode(&self, columns: &[ArrayRef]) -> Result<Keys> {
        if columns.len() != self.types.len() {
            return Err(Error::invalid("the number of key columns differs from the key's"));
        }
        for (column, expected) in columns.iter().zip(&self.types) {
            if column.null_count() > 0 {
                return Err(Error::invalid("a key column holds NULL"));
            }
            if column.data_type() != expected {
                return Err(Error::invalid(format!("a key column is {} instead of {expected}", column.data_type())));
            }
        }
        match self.form {
            Form::Int => {
                let ints = to_int64(&columns[0])?;
                Ok(Keys::Int(ints.as_primitive::<Int64Type>().values().to_vec()))
            }
            Form::Raw => {
                let column = match &self.types[0] {
                    DataType::Utf8 => &BinaryArray::from(columns[0].as_string::<i32>().clone()),
                    _ => columns[0].as_binary::<i32>(),
                };
                let offsets = column.value_offsets();
                let (first, last) = (offsets[0], offsets[column.len()]);
                let data = column.value_data()[first as usize..last as usize].to_vec();
                let ends = offsets[1..].iter().map(|end| (end - first) as u32).collect();
                Ok(Keys::Bytes(ByteKeys { data, ends }))
            }
            Form::Rows => {
                let converter = self.converter()?;
                let rows = converter
                    .convert_columns(columns)
                    .map_err(|error| Error::invalid(format!("a key cannot be encoded: {error}")))?;
                let mut keys = ByteKeys::default();
                keys.ends.reserve(rows.num_rows());
                for row in &rows {
                    keys.push(row.data())?;
                }
                Ok(Keys::Bytes(keys))
            }
        }
    }
}

fn from_int64(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let bad = |error| Error::invalid(format!("a key cannot be made from a number: {error}"));
    match data_type {
        DataType::Date32 => cast(&cast(column, &DataType::Int32).map_err(bad)?, data_type).map_err(bad),
        _ => cast(column, data_type).map_err(bad),
    }
}

fn to_int64(column: &ArrayRef) -> Result<ArrayRef> {
    let bad = |error| Error::invalid(format!("a key cannot be read as a number: {error}"));
    match column.data_type() {
        DataType::Int64 => Ok(column.clone()),
        // Days are 32 bits wide and there is no direct cast to 64.
        DataType::Date32 => cast(&cast(column, &DataType::Int32).map_err(bad)?, &DataType::Int64).map_err(bad),
        _ => cast(column, &DataType::Int64).map_err(bad),
    }
}

/// A closed range of keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyRange {
    pub(crate) min: Key,
    pub(crate) max: Key,
}

impl KeyRange {
    /// The range of an ascending list; none if it is empty.
    pub(crate) fn of(keys: &Keys) -> Option<Self> {
        Some(Self { min: keys.first()?.to_owned(), max: keys.last()?.to_owned() })
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    pub(crate) fn contains(&self, key: KeyRef<'_>) -> bool {
        self.min.as_ref() <= key && key <= self.max.as_ref()
    }

    /// The smallest range that covers both.
    pub(crate) fn hull(self, other: &Self) -> Self {
        Self { min: self.min.min(other.min.clone()), max: self.max.max(other.max.clone()) }
    }

    /// How `key` lies to the range: before, inside (`Equal`) or after.
    pub(crate) fn compare(&self, key: KeyRef<'_>) -> Ordering {
        if key < self.min.as_ref() {
            Ordering::Less
        } else if key > self.max.as_ref() {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int8Array, StringArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn keys_decode_to_what_they_were_encoded_from() {
        let columns: [Vec<ArrayRef>; 6] = [
            vec![Arc::new(Int64Array::from(vec![i64::MIN, -1, i64::MAX]))],
            vec![Arc::new(Int8Array::from(vec![-128, 0, 127]))],
            vec![Arc::new(Date32Array::from(vec![-719_162, 0, 20_000]))],
            vec![Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, 1 << 50]))],
            vec![Arc::new(StringArray::from(vec!["", "a", "\u{10ffff}"]))],
            vec![Arc::new(StringArray::from(vec!["", "a", "b"])), Arc::new(Int64Array::from(vec![3, -2, 1]))],
        ];
        for columns in columns {
            let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
            let codec = KeyCodec::new(types).unwrap();
            let keys = codec.encode(&columns).unwrap();
            assert_eq!(codec.decode(&keys).unwrap(), columns);
            assert_eq!(codec.decode(&codec.empty()).unwrap()[0].len(), 0);
        }
    }

    #[test]
    fn keys_of_another_table_are_not_decoded() {
        let codec = KeyCodec::new(vec![DataType::Int64]).unwrap();
        assert!(codec.decode(&Keys::Bytes(ByteKeys::default())).is_err());
    }
}
