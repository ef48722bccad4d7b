//! From a deletion vector to the row selection of a scan.
//!
//! The selection is made when a file is opened: a plan that is answered from statistics needs none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::buffer::{BooleanBuffer, MutableBuffer};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use object_store::path::Path;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use roaring::RoaringBitmap;

/// Bytes of selections kept for files that are read again.
const CACHE_BYTES: usize = 64 << 20;
/// Runs of live rows of a selection that is a list of them, at 32 bytes each. With more, it is a bit for each row.
const FEW_RUNS: usize = 1024;

/// The rows of a data file that are gone, on their way to where the file is opened.
#[derive(Debug)]
pub(crate) struct DeletedRows {
    pub(crate) cache: Arc<SelectionCache>,
    /// All rows of the file.
    pub(crate) rows: u64,
    pub(crate) deleted: Arc<RoaringBitmap>,
}

impl DeletedRows {
    /// `file` with the selection of the rows that are left, if it has any that are gone.
    pub(crate) fn select(file: PartitionedFile) -> Result<PartitionedFile> {
        let Some(gone) = file.extensions.get::<Self>() else { return Ok(file) };
        let selection = gone.cache.selection(&file.object_meta.location, gone.rows, &gone.deleted)?;
        Ok(file.with_extension(selection))
    }
}

/// Row selections by data file. A file has one live deletion vector at a time, so the newest one asked for is kept; a query at
/// an older checkpoint builds its own.
#[derive(Debug, Default)]
pub(crate) struct SelectionCache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_file: HashMap<Path, Entry>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    deleted: Arc<RoaringBitmap>,
    selection: ParquetRowSelection,
    bytes: usize,
    used: u64,
}

impl SelectionCache {
    /// The selection of the rows of `path` that are not deleted; `rows` counts all of them.
    pub(crate) fn selection(
        &self,
        path: &Path,
        rows: u64,
        deleted: &Arc<RoaringBitmap>,
    ) -> Result<ParquetRowSelection> {
        {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.uses += 1;
            let now = entries.uses;
            if let Some(entry) = entries.by_file.get_mut(path)
                && (Arc::ptr_eq(&entry.deleted, deleted) || entry.deleted == *deleted)
            {
                entry.used = now;
                return Ok(entry.selection.clone());
            }
        }
        let (selection, bytes) = live_rows(path, rows, deleted)?;
        let selection = ParquetRowSelection::new(selection);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(path, Entry { deleted: Arc::clone(deleted), selection: selection.clone(), bytes, used: 0 });
        Ok(selection)
    }
}

/// The selection of `chosen` rows, which ascend and are among the file's `rows`.
pub(crate) fn chosen_rows(path: &Path, rows: u64, chosen: &[u32]) -> Result<ParquetRowSelection> {
    if chosen.last().is_some_and(|last| u64::from(*last) >= rows) {
        return Err(DataFusionError::Execution(format!(
            "the key index names a row of data file {path} beyond the file's {rows} rows"
        )));
    }
    let ranges = chosen.chunk_by(|a, b| a + 1 == *b).map(|run| run[0] as usize..run[0] as usize + run.len());
    Ok(ParquetRowSelection::new(RowSelection::from_consecutive_ranges(ranges, rows as usize)))
}

impl Entries {
    fn insert(&mut self, path: &Path, mut entry: Entry) {
        if entry.bytes > CACHE_BYTES {
            return;
        }
        entry.used = self.uses;
        self.bytes += entry.bytes;
        if let Some(old) = self.by_file.insert(path.clone(), entry) {
            self.bytes -= old.bytes;
        }
        while self.bytes > CACHE_BYTES {
            let Some(oldest) = self.by_file.iter().min_by_key(|(_, entry)| entry.used).map(|(path, _)| path.clone())
            else {
                return;
            };
            if let Some(old) = self.by_file.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
    }
}

/// The selection of the rows that are not `deleted`, and about how much memory it takes.
fn live_rows(path: &Path, rows: u64, deleted: &RoaringBitmap) -> Result<(RowSelection, usize)> {
    if deleted.max().is_some_and(|last| u64::from(last) >= rows) {
        return Err(DataFusionError::Execution(format!(
            "the deletion vector of data file {path} names a row beyond the file's {rows} rows"
        )));
    }
    let rows = rows as usize;
    let mut runs = deleted.iter();
    let mut selectors = Vec::new();
    let mut next = 0;
    while let Some(run) = runs.next_range() {
        let (first, end) = (*run.start() as usize, *run.end() as usize + 1);
        if first > next {
            selectors.push(RowSelector::select(first - next));
        }
        selectors.push(RowSelector::skip(end - first));
        next = end;
        // The number of rows is what a manifest says: one that no file has must not take memory.
        let bytes = rows.div_ceil(8);
        if selectors.len() > 2 * FEW_RUNS && bytes <= CACHE_BYTES {
            let mut bits = MutableBuffer::new(bytes).with_bitset(bytes, true);
            for row in deleted {
                bits.as_slice_mut()[row as usize / 8] &= !(1 << (row % 8));
            }
            return Ok((RowSelection::from_boolean_buffer(BooleanBuffer::new(bits.into(), 0, rows)), bytes));
        }
    }
    if rows > next {
        selectors.push(RowSelector::select(rows - next));
    }
    let bytes = selectors.len() * size_of::<RowSelector>();
    Ok((RowSelection::from(selectors), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_selectors_that_cover_every_row() {
        let path = Path::from("f");
        let deleted: RoaringBitmap = [0, 1, 5, 9].into_iter().collect();
        let selectors = |rows, deleted: &RoaringBitmap| live_rows(&path, rows, deleted).map(|(s, _)| Vec::from(s));
        assert_eq!(
            selectors(10, &deleted).unwrap(),
            [
                RowSelector::skip(2),
                RowSelector::select(3),
                RowSelector::skip(1),
                RowSelector::select(3),
                RowSelector::skip(1)
            ]
        );
        assert_eq!(selectors(3, &RoaringBitmap::new()).unwrap(), [RowSelector::select(3)]);
        assert!(selectors(9, &deleted).unwrap_err().to_string().contains("beyond the file's 9 rows"));
    }

    #[test]
    fn many_runs_become_bits_that_say_the_same() {
        let path = Path::from("f");
        for rows in [9_999_u32, 10_000, 10_001, 10_007] {
            let deleted: RoaringBitmap = (0..rows).filter(|row| row % 3 == 1 || row % 64 > 61).collect();
            let (selection, bytes) = live_rows(&path, u64::from(rows), &deleted).unwrap();
            let mask = selection.as_mask().expect("a bit for each row");
            assert_eq!((mask.len(), bytes), (rows as usize, rows.div_ceil(8) as usize));
            let dead = (0..rows).filter(|row| !mask.value(*row as usize));
            assert!(dead.eq(&deleted));
            // More rows than there can be take no more memory than the deletions.
            let (selection, bytes) = live_rows(&path, u64::MAX >> 4, &deleted).unwrap();
            assert!(selection.as_mask().is_none() && bytes < 1 << 20);
        }
    }

    #[test]
    fn chosen_rows_are_all_that_is_selected() {
        let path = Path::from("f");
        let selection = chosen_rows(&path, 10, &[0, 3, 4, 9]).unwrap();
        assert_eq!(selection.selection().row_count(), 4);
        assert_eq!(selection.selection().iter().map(|part| part.row_count).sum::<usize>(), 10);
        assert!(chosen_rows(&path, 9, &[9]).is_err());
    }

    #[test]
    fn a_changed_vector_is_not_answered_from_the_cache() {
        let cache = SelectionCache::default();
        let path = Path::from("f");
        let rows = |deleted: &[u32]| {
            let deleted = Arc::new(deleted.iter().copied().collect());
            cache.selection(&path, 4, &deleted).unwrap().selection().row_count()
        };
        assert_eq!(rows(&[1]), 3);
        assert_eq!(rows(&[1]), 3);
        assert_eq!(rows(&[1, 2]), 2);
        assert_eq!(rows(&[1]), 3);
        assert_eq!(cache.entries.lock().unwrap().by_file.len(), 1);
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let cache = SelectionCache::default();
        let rows = 8 * CACHE_BYTES as u64 / 4;
        let deleted = Arc::new((0..1_000_000u32).step_by(2).collect::<RoaringBitmap>());
        for file in 0..9 {
            cache.selection(&Path::from(format!("f{file}")), rows, &deleted).unwrap();
        }
        let entries = cache.entries.lock().unwrap();
        assert!(entries.bytes <= CACHE_BYTES && entries.bytes > 0);
        assert!(entries.by_file.contains_key(&Path::from("f8")) && !entries.by_file.contains_key(&Path::from("f0")));
        assert_eq!(entries.bytes, entries.by_file.values().map(|entry| entry.bytes).sum::<usize>());
    }
}
