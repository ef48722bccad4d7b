//! Which files of a version may have given keys, and where, without reading data files.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;

use super::keys::{KeyCodec, Keys};
use super::version::{LiveFile, TableVersion};
use crate::error::Result;
use crate::paimon::DataType;
use crate::paimon::bucket::buckets_of;

/// A file that may have keys that are looked for.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// The file.
    pub file: &'a LiveFile,
    /// The live rows that have them, ascending; none if that is not known, and any row may.
    pub rows: Option<Vec<u32>>,
}

impl TableVersion {
    /// The files that may have rows with one of some keys. `columns` are the columns of the key, in key order and in the
    /// Arrow types of the newest schema, with a row for each key and without NULLs.
    ///
    /// A version that its writer handed out knows the rows too. Any other one knows the bucket.
    pub fn candidates(&self, columns: &[ArrayRef]) -> Result<Vec<Candidate<'_>>> {
        let types = self.schema.key_types();
        let all = KeyCodec::new(types.iter().map(DataType::arrow).collect())?.encode(columns)?;
        let mut by_bucket: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (row, bucket) in (0..).zip(buckets_of(&types, columns, self.buckets)?) {
            by_bucket.entry(bucket).or_default().push(row);
        }
        let mut keys: BTreeMap<u32, Keys> = BTreeMap::new();
        for (bucket, rows) in by_bucket {
            let mut sorted = all.sort(rows);
            sorted.dedup_by(|a, b| all.at(*a as usize) == all.at(*b as usize));
            keys.insert(bucket, all.gather(sorted.into_iter())?);
        }
        let files = self.files.iter().filter(|file| file.row_count() > 0);
        Ok(files.filter_map(|file| candidate(file, keys.get(&file.bucket)?)).collect())
    }

    /// The value of the key's first column in one row of a file, as an array of one value; none if the key index is not at
    /// hand.
    pub fn first_key_value(&self, file: &LiveFile, row: u32) -> Option<ArrayRef> {
        let index = file.keys.as_ref().filter(|index| (row as usize) < index.len())?;
        let codec = KeyCodec::new(self.schema.key_types().iter().map(DataType::arrow).collect()).ok()?;
        let keys = index.gather(std::iter::once(row), codec.empty()).ok()?;
        codec.decode(&keys).ok()?.into_iter().next()
    }
}

fn candidate<'a>(file: &'a LiveFile, keys: &Keys) -> Option<Candidate<'a>> {
    let Some(index) = &file.keys else { return Some(Candidate { file, rows: None }) };
    let mut rows = Vec::new();
    let looked_up = index.look_up(keys, 0, keys.len(), |_, row| {
        let row = row as u32;
        if !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(row)) {
            rows.push(row);
        }
    });
    match looked_up {
        Ok(()) => (!rows.is_empty()).then_some(Candidate { file, rows: Some(rows) }),
        // The keys of a file that has left the table since are not on the local disk any more.
        Err(_) => Some(Candidate { file, rows: None }),
    }
}
