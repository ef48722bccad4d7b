//! Sorted rows become data files.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

use arrow::array::{Array, ArrayRef, Int8Array, Int64Array, RecordBatch, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, concat, take};
use arrow::row::{RowConverter, SortField};
use object_store::path::Path;
use roaring::RoaringBitmap;

use super::key_index::{KeySet, KeySetBuilder};
use super::keys::{KeyRange, Keys};
use super::layout::Layout;
use super::levels::TOP;
use crate::error::{Error, Result};
use crate::paimon::binary_row;
use crate::paimon::data_file::{Age, DataFileWriter};
use crate::paimon::{DataFileMeta, FileSource, SimpleStats};
use crate::store::{self, Pieces, Upload};

/// Encoded bytes after which a data file ends, whatever its rows.
pub(crate) const FILE_BYTES: usize = 128 << 20;

/// A data file with what the writer knows of it.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    pub(crate) meta: Arc<DataFileMeta>,
    pub(crate) path: Path,
    /// The key of each row.
    pub(crate) keys: Arc<KeySet>,
    pub(crate) range: KeyRange,
    /// Positions of rows that are gone.
    pub(crate) deleted: Arc<RoaringBitmap>,
    /// A merge beside the writer is reading the file; it stays until that ends.
    pub(crate) merging: bool,
}

impl DataFile {
    pub(crate) fn new(meta: DataFileMeta, path: Path, keys: KeySet, deleted: RoaringBitmap) -> Self {
        let range = keys.range().clone();
        Self { meta: Arc::new(meta), path, keys: Arc::new(keys), range, deleted: Arc::new(deleted), merging: false }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.keys.len() as u64
    }

    pub(crate) fn live(&self) -> u64 {
        self.rows().saturating_sub(self.deleted.len())
    }
}

/// Writes one sorted run, split into files where they get large.
pub(crate) struct RunWriter<'a> {
    layout: &'a Layout,
    bucket: u32,
    level: i32,
    sequence: i64,
    source: FileSource,
    age: Age,
    stop: Option<Arc<AtomicBool>>,
    /// Columns that hardly repeat a value; known once the first rows have been seen.
    distinct: Option<Vec<usize>>,
    open: Option<OpenFile>,
    done: Vec<DataFile>,
}

struct OpenFile {
    name: String,
    writer: DataFileWriter<Pieces>,
    keys: KeySetBuilder,
    bounds: KeyBounds,
    /// Bytes that the limit on merges has been asked for.
    paced: u64,
    /// Where the parts go that are written already.
    upload: Option<Upload>,
}

impl OpenFile {
    /// Writes what makes whole parts of the file.
    async fn send_full_parts(&mut self, layout: &Layout, bucket: u32) -> Result<()> {
        while let Some(part) = self.writer.sink_mut().take_full(store::PART_PIECES) {
            let upload = match &mut self.upload {
                Some(upload) => upload,
                None => {
                    let path = layout.paths.data_file(bucket, &self.name);
                    self.upload.insert(Upload::begin(&**layout.store(), &path).await?)
                }
            };
            upload.part(part).await?;
        }
        Ok(())
    }
}

impl<'a> RunWriter<'a> {
    /// Every row gets the same sequence number: a run has one row per key, and rows of different runs are told apart
    /// by their runs' numbers.
    pub(crate) fn new(layout: &'a Layout, bucket: u32, level: i32, sequence: i64, source: FileSource) -> Self {
        let age = if level == TOP { Age::Old } else { Age::Young };
        Self { layout, bucket, level, sequence, source, age, stop: None, distinct: None, open: None, done: Vec::new() }
    }

    /// Compresses for this age; without it, that follows from the level.
    pub(crate) fn aged(mut self, age: Age) -> Self {
        self.age = age;
        self
    }

    /// Fails at the next write once `stop` is set.
    pub(crate) fn stopped_by(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Appends rows of the newest schema with their keys, greater than all before.
    pub(crate) async fn write(&mut self, batch: &RecordBatch, keys: &Keys) -> Result<()> {
        if self.stop.as_ref().is_some_and(|stop| stop.load(atomic::Ordering::Relaxed)) {
            return Err(Error::invalid("the writer that began this run is gone"));
        }
        let mut offset = 0;
        while offset < batch.num_rows() {
            let layout = self.layout;
            let open = match self.open.as_mut() {
                Some(open) => open,
                None => {
                    let name = layout.names.data_file();
                    let distinct = match &self.distinct {
                        Some(distinct) => distinct,
                        None => self.distinct.insert(distinct_columns(layout, batch)?),
                    };
                    let distinct: Vec<&str> =
                        distinct.iter().map(|column| layout.schema.fields[*column].name.as_str()).collect();
                    let writer =
                        DataFileWriter::new(name.as_str(), Pieces::default(), &layout.schema, self.age, &distinct)?;
                    let keys = KeySetBuilder::new(&layout.ctx.resources.keys, layout.codec.empty());
                    self.open.insert(OpenFile {
                        name,
                        writer,
                        keys,
                        bounds: KeyBounds::default(),
                        paced: 0,
                        upload: None,
                    })
                }
            };
            let room = layout.options.rows_per_file.max(1).saturating_sub(open.keys.len()).max(1);
            let len = room.min(batch.num_rows() - offset);
            let part = batch.slice(offset, len);
            let key_arrays = layout.key_arrays(&part);
            open.bounds.add(&key_arrays)?;
            let kinds = Int8Array::from_value(0, len);
            open.writer.write(&file_batch(&open.writer, &key_arrays, self.sequence, kinds, &part)?)?;
            open.keys.push(keys, offset..offset + len)?;
            if self.stop.is_some() {
                let bytes = open.writer.estimated_bytes() as u64;
                layout.ctx.resources.merges.pace(bytes.saturating_sub(open.paced)).await;
                open.paced = open.paced.max(bytes);
                open.send_full_parts(layout, self.bucket).await?;
            }
            offset += len;
            let full = open.keys.len() >= layout.options.rows_per_file || open.writer.estimated_bytes() >= FILE_BYTES;
            if full {
                self.end_file().await?;
            }
        }
        Ok(())
    }

    async fn end_file(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let layout = self.layout;
        let OpenFile { name, writer, keys, bounds, upload, .. } = open;
        let (pieces, size) = writer.finish_sized()?;
        let path = layout.paths.data_file(self.bucket, &name);
        let (rows, sequence, level) = (keys.len(), self.sequence, self.level);
        let file = NewFile { name, size, rows, deletions: 0, bounds, sequence, level };
        let meta = file.meta(layout, self.source)?;
        match upload {
            None => layout.put_pieces(&path, pieces).await?,
            Some(mut upload) => {
                let rest = pieces.finish();
                let sent = async {
                    for part in rest.chunks(store::PART_PIECES) {
                        upload.part(part.to_vec()).await?;
                    }
                    Ok(())
                };
                match sent.await {
                    Ok(()) => upload.finish().await?,
                    Err(error) => {
                        upload.abort().await;
                        return Err(error);
                    }
                }
            }
        }
        let keys = keys.finish(layout.key_file(&meta.file_name))?;
        self.done.push(DataFile::new(meta, path, keys, RoaringBitmap::new()));
        Ok(())
    }

    /// Gives up the file that is being written.
    pub(crate) async fn abort(mut self) {
        if let Some(upload) = self.open.take().and_then(|open| open.upload) {
            upload.abort().await;
        }
    }

    /// The files, in key order.
    pub(crate) async fn finish(mut self) -> Result<Vec<DataFile>> {
        self.end_file().await?;
        Ok(self.done)
    }
}

/// What is known of a file that was written.
pub(crate) struct NewFile {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) rows: usize,
    /// Rows that stand for what is no more.
    pub(crate) deletions: i64,
    pub(crate) bounds: KeyBounds,
    pub(crate) sequence: i64,
    pub(crate) level: i32,
}

impl NewFile {
    /// What the manifest says of it.
    pub(crate) fn meta(self, layout: &Layout, source: FileSource) -> Result<DataFileMeta> {
        let types = &layout.key_types;
        let (first, last) = self.bounds.first_and_last()?;
        let (min, max) = self.bounds.min_and_max()?;
        Ok(DataFileMeta {
            file_name: self.name,
            file_size: self.size as i64,
            row_count: self.rows as i64,
            min_key: binary_row::serialize(types, &first, 0)?,
            max_key: binary_row::serialize(types, &last, 0)?,
            key_stats: SimpleStats {
                min_values: binary_row::serialize(types, &min, 0)?,
                max_values: binary_row::serialize(types, &max, 0)?,
                null_counts: Some(vec![Some(0); types.len()]),
            },
            value_stats: SimpleStats::empty(),
            min_sequence_number: self.sequence,
            max_sequence_number: self.sequence,
            schema_id: layout.schema.id as i64,
            level: self.level,
            extra_files: Vec::new(),
            creation_time: Some(layout.ctx.clock.now_ms()),
            delete_row_count: Some(self.deletions),
            embedded_file_index: None,
            file_source: Some(source),
            value_stats_cols: Some(Vec::new()),
            external_path: None,
            first_row_id: None,
            write_cols: None,
            write_cols_sequences: None,
        })
    }
}

/// Rows looked at to see whether a column repeats its values.
const SAMPLE_ROWS: usize = 1024;

/// The columns, other than the key's, of which most values in `batch` are different ones.
fn distinct_columns(layout: &Layout, batch: &RecordBatch) -> Result<Vec<usize>> {
    let rows = batch.num_rows();
    if rows < SAMPLE_ROWS / 4 {
        return Ok(Vec::new());
    }
    let step = rows.div_ceil(SAMPLE_ROWS);
    let sample = UInt32Array::from_iter_values((0..rows as u32).step_by(step));
    let mut distinct = Vec::new();
    for (index, column) in batch.columns().iter().enumerate() {
        if layout.key_columns.contains(&index) || column.null_count() * 2 > rows {
            continue;
        }
        let unsorted = |error| Error::invalid(format!("a column cannot be sampled: {error}"));
        let values = take(column, &sample, None).map_err(unsorted)?;
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())]).map_err(unsorted)?;
        let values = converter.convert_columns(&[values]).map_err(unsorted)?;
        let different: HashSet<_> = values.iter().collect();
        if different.len() * 2 > sample.len() {
            distinct.push(index);
        }
    }
    Ok(distinct)
}

/// Rows as they stand in the file: the key columns once more, the sequence number and the kind before the columns.
pub(crate) fn file_batch(
    writer: &DataFileWriter<Pieces>,
    key_arrays: &[ArrayRef],
    sequence: i64,
    kinds: Int8Array,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let mut columns = Vec::with_capacity(key_arrays.len() + 2 + batch.num_columns());
    columns.extend_from_slice(key_arrays);
    columns.push(Arc::new(Int64Array::from_value(sequence, rows)) as ArrayRef);
    columns.push(Arc::new(kinds));
    columns.extend_from_slice(batch.columns());
    RecordBatch::try_new(Arc::clone(writer.schema()), columns)
        .map_err(|error| Error::invalid(format!("rows do not fit the table: {error}")))
}

/// The first and last key of a file, and the smallest and largest value of each key column.
#[derive(Default)]
pub(crate) struct KeyBounds {
    first: Option<Vec<ArrayRef>>,
    last: Option<Vec<ArrayRef>>,
    /// For each key column arrays of one value each, among which are the smallest and the largest.
    candidates: Vec<Vec<ArrayRef>>,
}

impl KeyBounds {
    /// Goes on with rows, whose keys ascend by the first column.
    pub(crate) fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let rows = columns.first().map_or(0, |column| column.len());
        if rows == 0 {
            return Ok(());
        }
        let row = |index: usize| columns.iter().map(|column| one(column, index)).collect::<Result<Vec<_>>>();
        if self.first.is_none() {
            self.first = Some(row(0)?);
        }
        self.last = Some(row(rows - 1)?);
        // Rows are sorted by the first column, so only the others need a look.
        self.candidates.resize_with(columns.len() - 1, Vec::new);
        for (column, candidates) in columns[1..].iter().zip(&mut self.candidates) {
            let (min, max) = extremes(column)?;
            candidates.push(one(column, min)?);
            candidates.push(one(column, max)?);
        }
        Ok(())
    }

    fn first_and_last(&self) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => Ok((first.clone(), last.clone())),
            _ => Err(Error::invalid("a data file without rows")),
        }
    }

    fn min_and_max(&self) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
        let (mut min, mut max) = self.first_and_last()?;
        for (index, candidates) in self.candidates.iter().enumerate() {
            let candidates: Vec<&dyn Array> = candidates.iter().map(AsRef::as_ref).collect();
            let all = concat(&candidates).map_err(bad_key)?;
            let (smallest, largest) = extremes(&all)?;
            min[index + 1] = one(&all, smallest)?;
            max[index + 1] = one(&all, largest)?;
        }
        Ok((min, max))
    }
}

fn bad_key(error: arrow::error::ArrowError) -> Error {
    Error::invalid(format!("key columns cannot be compared: {error}"))
}

/// One value of a column, copied, so that it does not keep the column's memory.
fn one(column: &ArrayRef, index: usize) -> Result<ArrayRef> {
    take(column, &UInt32Array::from(vec![index as u32]), None).map_err(bad_key)
}

/// Where the smallest and the largest value are.
fn extremes(column: &ArrayRef) -> Result<(usize, usize)> {
    let compare = make_comparator(column, column, SortOptions::default()).map_err(bad_key)?;
    let (mut min, mut max) = (0, 0);
    for index in 1..column.len() {
        if compare(index, min) == Ordering::Less {
            min = index;
        }
        if compare(index, max) == Ordering::Greater {
            max = index;
        }
    }
    Ok((min, max))
}
