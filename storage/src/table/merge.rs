//! Several sorted inputs become one sorted run.
//!
//! The order of the output is found from the key index, a part of it at a time, without decoding anything; the rows
//! themselves stream by in small batches. Dead rows are left out. No key is live in two inputs.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use futures::StreamExt;
use futures::stream::BoxStream;
use roaring::RoaringBitmap;
use roaring::bitmap::IntoIter;
use tokio::task::yield_now;

use super::key_index::KeySet;
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
    pub(crate) fn gather(&self, rows: &[u32]) -> Result<RecordBatch> {
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
    keys: Source,
    /// The part of the keys that is unpacked, and the positions it covers. Before the first is, the input stands at
    /// the smallest key of its file, live or not.
    part: Option<(Range<usize>, Arc<Keys>)>,
    /// Positions to leave out, from the current one on.
    dead: Peekable<IntoIter>,
    position: usize,
    len: usize,
    rows: Rows<'a>,
    /// The batch that was decoded last: its index among the merge's batches, and the positions it covers.
    batch: Option<(usize, Range<usize>)>,
}

enum Source {
    File(Arc<KeySet>),
    Memory,
}

enum Rows<'a> {
    File(&'a DataFile),
    Open { path: String, stream: BoxStream<'static, Result<RecordBatch>> },
    Pending { pending: &'a Pending, rows: &'a [u32] },
}

impl<'a> Input<'a> {
    /// A data file; `deleted` are the positions that are dead.
    pub(crate) fn file(file: &'a DataFile, deleted: &RoaringBitmap) -> Self {
        Self {
            keys: Source::File(Arc::clone(&file.keys)),
            part: None,
            dead: deleted.clone().into_iter().peekable(),
            position: 0,
            len: file.keys.len(),
            rows: Rows::File(file),
            batch: None,
        }
    }

    /// Rows of a flush, in key order, with their keys.
    pub(crate) fn pending(pending: &'a Pending, rows: &'a [u32], keys: Keys) -> Self {
        let len = keys.len();
        Self {
            keys: Source::Memory,
            part: Some((0..len, Arc::new(keys))),
            dead: RoaringBitmap::new().into_iter().peekable(),
            position: 0,
            len,
            rows: Rows::Pending { pending, rows },
            batch: None,
        }
    }

    fn is_open(&self) -> bool {
        self.part.is_some()
    }

    /// Moves on to the first live row from `position` on and has its key ready.
    fn seek(&mut self, position: usize) -> Result<()> {
        self.position = position;
        while self.dead.next_if(|dead| *dead as usize == self.position).is_some() {
            self.position += 1;
        }
        let is_here = self.part.as_ref().is_some_and(|(range, _)| range.contains(&self.position));
        if !is_here && self.position < self.len {
            let Source::File(set) = &self.keys else {
                return Err(Error::invalid("a merge ran beyond the rows of a flush"));
            };
            let (range, keys) = set.unpack(self.position)?;
            self.part = Some((range, Arc::new(keys)));
        }
        Ok(())
    }

    fn key(&self) -> KeyRef<'_> {
        match (&self.part, &self.keys) {
            (Some((range, keys)), _) => keys.at(self.position - range.start),
            (None, Source::File(set)) => set.range().min.as_ref(),
            (None, Source::Memory) => KeyRef::Int(i64::MIN),
        }
    }

    /// The end of the live rows that lie behind each other from the current one on, are unpacked, and have keys below
    /// `limit`.
    fn stretch(&mut self, limit: Option<KeyRef<'_>>) -> usize {
        let Some((range, keys)) = &self.part else { return self.position };
        let end = self.dead.peek().map_or(range.end, |dead| range.end.min(*dead as usize));
        let Some(limit) = limit else { return end };
        let mut at = self.position;
        while at < end && keys.at(at - range.start) < limit {
            at += 1;
        }
        at
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

/// The inputs that have rows left, as a binary heap by their keys.
struct Order(Vec<usize>);

impl Order {
    fn new(inputs: &[Input<'_>]) -> Self {
        let mut order = Self((0..inputs.len()).filter(|index| inputs[*index].len > 0).collect());
        order.build(inputs);
        order
    }

    fn build(&mut self, inputs: &[Input<'_>]) {
        for place in (0..self.0.len() / 2).rev() {
            self.sink(place, inputs);
        }
    }

    /// The key at `place` has grown: moves it down to where it belongs.
    fn sink(&mut self, mut place: usize, inputs: &[Input<'_>]) {
        let heap = &mut self.0;
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let mut least = place;
            for child in [left, right] {
                if child < heap.len() && inputs[heap[child]].key() < inputs[heap[least]].key() {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            heap.swap(place, least);
            place = least;
        }
    }

    fn remove(&mut self, place: usize, inputs: &[Input<'_>]) {
        self.0.swap_remove(place);
        if place == 0 { self.sink(0, inputs) } else { self.build(inputs) }
    }

    /// The place of the input with the smallest key but for the first.
    fn second(&self, inputs: &[Input<'_>]) -> Option<usize> {
        match self.0.as_slice() {
            [] | [_] => None,
            [_, _] => Some(1),
            [_, left, right, ..] => Some(if inputs[*right].key() < inputs[*left].key() { 2 } else { 1 }),
        }
    }
}

/// Merges the inputs into `out`. Uses as much memory as a few batches per input that is being read.
pub(crate) async fn merge(layout: &Layout, mut inputs: Vec<Input<'_>>, out: &mut RunWriter<'_>) -> Result<()> {
    let mut order = Order::new(&inputs);
    let mut chunk = Chunk { batches: Vec::new(), places: Vec::new(), keys: layout.codec.empty(), bytes: 0 };
    while let Some(&index) = order.0.first() {
        // An input that was not read yet stands at a key that may be dead: it is looked at when its turn comes.
        let second = order.second(&inputs);
        let unopened = [Some(0), second].into_iter().flatten().find(|place| {
            let input = &inputs[order.0[*place]];
            !input.is_open() && (*place == 0 || input.key() <= inputs[index].key())
        });
        if let Some(place) = unopened {
            let input = &mut inputs[order.0[place]];
            input.seek(0)?;
            if input.position < input.len {
                order.sink(place, &inputs);
            } else {
                order.remove(place, &inputs);
            }
            continue;
        }
        let rival = second.map(|place| order.0[place]);
        loop {
            let position = inputs[index].position;
            let end = match rival {
                Some(rival) => {
                    let [input, rival] = inputs.get_disjoint_mut([index, rival]).map_err(|_| two_live())?;
                    input.stretch(Some(rival.key()))
                }
                None => inputs[index].stretch(None),
            };
            if end == position {
                return Err(two_live());
            }
            let reached = chunk.take(layout, &mut inputs[index], end).await?;
            inputs[index].seek(reached)?;
            if chunk.is_full() {
                chunk.write(out).await?;
                chunk.forget(&mut inputs);
                // Whoever waits for it may have it go on elsewhere.
                yield_now().await;
            }
            let input = &mut inputs[index];
            if input.position == input.len {
                // Nothing more is read from it.
                input.batch = None;
                input.rows = Rows::Pending { pending: &EMPTY, rows: &[] };
                input.part = None;
                order.remove(0, &inputs);
                break;
            }
            if rival.is_some_and(|rival| inputs[index].key() >= inputs[rival].key()) {
                order.sink(0, &inputs);
                break;
            }
        }
    }
    chunk.write(out).await
}

/// Two inputs with one live key: a deletion vector is missing.
fn two_live() -> Error {
    Error::invalid("a key is live in two files of one bucket")
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
    fn is_full(&self) -> bool {
        self.places.len() >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }

    /// Takes rows of `input` from its position on, up to `end`; they are unpacked and live. Ends early when it is
    /// full, and says where.
    async fn take(&mut self, layout: &Layout, input: &mut Input<'_>, end: usize) -> Result<usize> {
        let mut at = input.position;
        while at < end && !self.is_full() {
            let (batch, covered) = loop {
                match &input.batch {
                    Some((batch, covered)) if covered.contains(&at) => break (*batch, covered.clone()),
                    before => {
                        let from = before.as_ref().map_or(0, |(_, covered)| covered.end);
                        let batch = input.next_batch(layout, from).await?;
                        input.batch = Some((self.batches.len(), from..from + batch.num_rows()));
                        self.bytes += size(&batch);
                        self.batches.push(batch);
                    }
                }
            };
            let until = end.min(covered.end);
            self.places.extend((at..until).map(|position| (batch, position - covered.start)));
            if let Some((range, keys)) = &input.part {
                self.keys.extend_from(keys, at - range.start, until - range.start)?;
            }
            at = until;
        }
        Ok(at)
    }

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
        self.keys.clear();
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
