//! Several sorted inputs become one sorted run.
//!
//! The keys of every input are in memory already, so the order of the output is found without decoding anything; the
//! rows themselves stream by in small batches. Dead rows are left out. No key is live in two inputs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use futures::StreamExt;
use futures::stream::BoxStream;
use roaring::RoaringBitmap;

use super::keys::{KeyRef, Keys};
use super::layout::Layout;
use super::read;
use super::run::{DataFile, RunWriter};
use crate::error::{Error, Result};

/// Rows handed to the writer at a time.
const CHUNK_ROWS: usize = 16 * 1024;
/// Bytes of decoded rows held before they are handed to the writer, about.
const CHUNK_BYTES: usize = 64 << 20;
/// Rows of a flush gathered at a time.
const GATHER_ROWS: usize = 32 * 1024;

/// Rows that were applied and not flushed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) batches: Vec<RecordBatch>,
    /// Number of rows before each batch.
    pub(crate) starts: Vec<u32>,
}

impl Pending {
    /// Index of the batch that holds `row`.
    pub(crate) fn batch_of(&self, row: u32) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1)
    }

    /// The given rows in that order: without copying if they lie behind each other in one batch.
    fn gather(&self, rows: &[u32]) -> Result<RecordBatch> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Err(Error::invalid("a batch of no rows was gathered"));
        };
        let batch = self.batch_of(*first);
        let consecutive = rows.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if consecutive && self.batch_of(*last) == batch {
            return Ok(self.batches[batch].slice((first - self.starts[batch]) as usize, rows.len()));
        }
        let mut current = batch;
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            let start = self.starts[current];
            if *row < start || (*row - start) as usize >= self.batches[current].num_rows() {
                current = self.batch_of(*row);
            }
            places.push((current, (*row - self.starts[current]) as usize));
        }
        gather(&self.batches, &places)
    }
}

/// The rows at `places`, each given as index of a batch and row in it.
fn gather(batches: &[RecordBatch], places: &[(usize, usize)]) -> Result<RecordBatch> {
    let bad = |error| Error::invalid(format!("rows cannot be put together: {error}"));
    let first = batches.first().ok_or_else(|| Error::invalid("rows of no batch were gathered"))?;
    let columns = (0..first.num_columns()).map(|column| {
        let arrays: Vec<_> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        interleave(&arrays, places)
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().map_err(bad)?;
    RecordBatch::try_new(first.schema(), columns).map_err(bad)
}

/// One sorted input of a merge.
pub(crate) struct Input<'a> {
    keys: Arc<Keys>,
    /// Positions to leave out, ascending.
    dead: Vec<u32>,
    next_dead: usize,
    position: usize,
    rows: Rows<'a>,
    /// The batch that was decoded last: its index among the merge's batches, and the positions it covers.
    batch: Option<(usize, Range<usize>)>,
}

enum Rows<'a> {
    File(&'a DataFile),
    Open { path: String, stream: BoxStream<'static, Result<RecordBatch>> },
    Pending { pending: &'a Pending, rows: &'a [u32] },
}

impl<'a> Input<'a> {
    /// A data file; `deleted` are the positions that are dead.
    pub(crate) fn file(file: &'a DataFile, deleted: &RoaringBitmap) -> Self {
        Self::new(Arc::clone(&file.keys), deleted.iter().collect(), Rows::File(file))
    }

    /// Rows of a flush, in key order, with their keys.
    pub(crate) fn pending(pending: &'a Pending, rows: &'a [u32], keys: Keys) -> Self {
        Self::new(Arc::new(keys), Vec::new(), Rows::Pending { pending, rows })
    }

    fn new(keys: Arc<Keys>, dead: Vec<u32>, rows: Rows<'a>) -> Self {
        let mut input = Self { keys, dead, next_dead: 0, position: 0, rows, batch: None };
        input.skip_dead();
        input
    }

    fn skip_dead(&mut self) {
        while self.dead.get(self.next_dead).is_some_and(|dead| *dead as usize == self.position) {
            self.next_dead += 1;
            self.position += 1;
        }
    }

    fn key(&self) -> Option<KeyRef<'_>> {
        (self.position < self.keys.len()).then(|| self.keys.at(self.position))
    }

    /// The positions from the current one on that are live, in a row, and whose keys are below `limit`.
    fn stretch(&self, limit: Option<KeyRef<'_>>) -> Range<usize> {
        let start = self.position;
        let end = self.dead.get(self.next_dead).map_or(self.keys.len(), |dead| *dead as usize);
        let Some(limit) = limit else { return start..end };
        let mut at = start;
        while at < end && self.keys.at(at) < limit {
            at += 1;
        }
        start..at
    }

    async fn next_batch(&mut self, layout: &Layout, from: usize) -> Result<RecordBatch> {
        if let Rows::File(file) = self.rows {
            let stream = read::rows(layout, &file.path, &file.meta).await?;
            self.rows = Rows::Open { path: file.path.to_string(), stream };
        }
        match &mut self.rows {
            Rows::Open { path, stream } => match stream.next().await {
                Some(batch) => batch,
                None => Err(Error::corrupt(path.as_str(), "it has fewer rows than keys")),
            },
            Rows::Pending { pending, rows } => pending.gather(&rows[from..rows.len().min(from + GATHER_ROWS)]),
            Rows::File(_) => Err(Error::invalid("a file was not opened")),
        }
    }
}

/// Merges the inputs into `out`. Uses as much memory as a few batches per input that is being read.
pub(crate) async fn merge(layout: &Layout, mut inputs: Vec<Input<'_>>, out: &mut RunWriter<'_>) -> Result<()> {
    let all_keys: Vec<Arc<Keys>> = inputs.iter().map(|input| Arc::clone(&input.keys)).collect();
    let mut heap: BinaryHeap<Reverse<(KeyRef<'_>, usize)>> = BinaryHeap::with_capacity(inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        if input.position < input.keys.len() {
            heap.push(Reverse((all_keys[index].at(input.position), index)));
        }
    }
    let mut chunk = Chunk { batches: Vec::new(), places: Vec::new(), keys: layout.codec.empty(), bytes: 0 };
    while let Some(Reverse((_, index))) = heap.pop() {
        let limit = heap.peek().map(|Reverse((key, _))| *key);
        let input = &mut inputs[index];
        let stretch = input.stretch(limit);
        if stretch.is_empty() {
            // Two inputs with one live key: a deletion vector is missing.
            return Err(Error::invalid("a key is live in two files of one bucket"));
        }
        let mut at = stretch.start;
        while at < stretch.end {
            let (batch, covered) = loop {
                match &input.batch {
                    Some((batch, covered)) if covered.contains(&at) => break (*batch, covered.clone()),
                    before => {
                        let from = before.as_ref().map_or(0, |(_, covered)| covered.end);
                        let batch = input.next_batch(layout, from).await?;
                        input.batch = Some((chunk.batches.len(), from..from + batch.num_rows()));
                        chunk.bytes += size(&batch);
                        chunk.batches.push(batch);
                    }
                }
            };
            let until = stretch.end.min(covered.end);
            for position in at..until {
                chunk.places.push((batch, position - covered.start));
                chunk.keys.push(all_keys[index].at(position))?;
            }
            at = until;
            if chunk.places.len() >= CHUNK_ROWS || chunk.bytes >= CHUNK_BYTES {
                chunk.write(out).await?;
                chunk.forget(&mut inputs);
                break;
            }
        }
        let input = &mut inputs[index];
        input.position = at;
        input.skip_dead();
        if input.key().is_some() {
            heap.push(Reverse((all_keys[index].at(input.position), index)));
        } else {
            // Nothing more is read from it.
            input.batch = None;
            input.rows = Rows::Pending { pending: &EMPTY, rows: &[] };
        }
    }
    chunk.write(out).await
}

static EMPTY: Pending = Pending { batches: Vec::new(), starts: Vec::new() };

/// Output rows that were found and not yet put together.
struct Chunk {
    batches: Vec<RecordBatch>,
    places: Vec<(usize, usize)>,
    keys: Keys,
    /// Size of the batches.
    bytes: usize,
}

/// Memory of the rows of a batch, which may be a part of a larger one.
fn size(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

impl Chunk {
    async fn write(&mut self, out: &mut RunWriter<'_>) -> Result<()> {
        let (Some(first), Some(last)) = (self.places.first().copied(), self.places.last().copied()) else {
            return Ok(());
        };
        let one_stretch = first.0 == last.0
            && last.1.checked_sub(first.1) == Some(self.places.len() - 1)
            && self.places.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1);
        let batch = if one_stretch {
            self.batches[first.0].slice(first.1, self.places.len())
        } else {
            gather(&self.batches, &self.places)?
        };
        out.write(&batch, &self.keys).await?;
        self.places.clear();
        self.keys = self.keys.empty();
        Ok(())
    }

    /// Drops the batches that no input is in the middle of.
    fn forget(&mut self, inputs: &mut [Input<'_>]) {
        let mut kept = Vec::new();
        for input in inputs {
            if let Some((batch, _)) = &mut input.batch {
                kept.push(self.batches[*batch].clone());
                *batch = kept.len() - 1;
            }
        }
        self.bytes = kept.iter().map(size).sum();
        self.batches = kept;
    }
}
