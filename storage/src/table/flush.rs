//! Rows that were applied, and their way into the buckets.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use futures::{StreamExt, TryStreamExt, stream};

use super::RowKind;
use super::bucket::{Bucket, FlushInput};
use super::layout::Layout;
use super::merge::Pending;
use super::resolve::Loadings;
use crate::error::{Error, Result};
use crate::paimon::bucket::buckets_of;

/// Neighbouring batches are put together up to this many rows.
const BATCH_ROWS: usize = 32 * 1024;
/// More rows than this are never held.
const MAX_ROWS: usize = u32::MAX as usize / 2;

/// Rows that were applied and not flushed.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    batches: Vec<RecordBatch>,
    kinds: Vec<RowKind>,
    loadings: Loadings,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn push(&mut self, batch: RecordBatch, kinds: Vec<RowKind>) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.kinds.len() + kinds.len() > MAX_ROWS {
            return Err(Error::invalid("too many rows were applied without a flush"));
        }
        self.bytes += batch.get_array_memory_size() + kinds.len();
        self.batches.push(batch);
        self.kinds.extend(kinds);
        Ok(())
    }

    /// Rows pushed from now on belong to this loading of the table; 0 is none.
    pub(crate) fn mark_loading(&mut self, loading: u32) {
        self.loadings.mark(self.kinds.len() as u32, loading);
    }

    /// Rows held.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Puts the buffered rows into the buckets, several buckets at a time.
pub(crate) async fn flush(layout: &Arc<Layout>, buffer: Buffer, buckets: Vec<Bucket>) -> Result<Vec<Bucket>> {
    let workers = layout.ctx.resources.workers;
    let shared = Arc::clone(layout);
    let inputs = workers.compute("a flush", move || split(&shared, buffer)).await?;
    let threads = workers.parallelism().div_ceil(buckets.len().max(1));
    let work = buckets.into_iter().zip(inputs).map(|(mut bucket, input)| {
        let layout = Arc::clone(layout);
        async move {
            if input.rows.is_empty() && input.changes.is_empty() {
                return Ok(bucket);
            }
            let work = async move {
                bucket.flush(&layout, input, threads).await?;
                Ok(bucket)
            };
            workers.drive("a flush", work).await
        }
    });
    stream::iter(work).buffered(workers.parallelism()).try_collect().await
}

/// The buffered rows by bucket.
fn split(layout: &Layout, buffer: Buffer) -> Result<Vec<FlushInput>> {
    let Buffer { batches, kinds, loadings, .. } = buffer;
    let rows = kinds.len();
    let mut arrivals = Vec::new();
    if kinds.contains(&RowKind::InsertAbsent) {
        arrivals.reserve_exact(rows);
        for (number, batch) in (0_u32..).zip(&batches) {
            arrivals.resize(arrivals.len() + batch.num_rows(), number);
        }
    }
    let batches = together(batches)?;
    let mut starts = Vec::with_capacity(batches.len());
    let mut keys = layout.codec.empty();
    let count = layout.options.buckets;
    let mut by_bucket: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
    let mut start = 0_u32;
    for batch in &batches {
        starts.push(start);
        let columns = layout.key_arrays(batch);
        keys.extend(&layout.codec.encode(&columns)?)?;
        let end = start + batch.num_rows() as u32;
        if let [only] = by_bucket.as_mut_slice() {
            only.extend(start..end);
        } else {
            let buckets = buckets_of(&layout.key_types, &columns, count)?;
            for (row, bucket) in (start..end).zip(buckets) {
                by_bucket[bucket as usize].push(row);
            }
        }
        start = end;
    }
    let pending = Arc::new(Pending { batches, starts });
    let mut changes: Vec<Vec<u32>> = vec![Vec::new(); by_bucket.len()];
    if layout.changelog {
        for (changes, rows) in changes.iter_mut().zip(&by_bucket) {
            changes.extend(rows.iter().filter(|row| loadings.of(**row) == 0));
        }
    }
    if kinds.contains(&RowKind::UpdateBefore) {
        let stays = |row: &u32| kinds[*row as usize] != RowKind::UpdateBefore;
        by_bucket.iter_mut().for_each(|rows| rows.retain(stays));
    }
    let (keys, kinds) = (Arc::new(keys), Arc::new(kinds));
    let (arrivals, loadings) = (Arc::new(arrivals), Arc::new(loadings));
    let input = |(rows, changes)| FlushInput {
        pending: Arc::clone(&pending),
        keys: Arc::clone(&keys),
        kinds: Arc::clone(&kinds),
        arrivals: Arc::clone(&arrivals),
        loadings: Arc::clone(&loadings),
        rows,
        changes,
    };
    Ok(by_bucket.into_iter().zip(changes).map(input).collect())
}

/// Many small batches as fewer large ones; every row gathered costs a look at its batch.
fn together(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let mut out = Vec::new();
    let mut small: Vec<RecordBatch> = Vec::new();
    let mut rows = 0;
    let close = |small: &mut Vec<RecordBatch>, out: &mut Vec<RecordBatch>| {
        match small.as_slice() {
            [] => {}
            [one] => out.push(one.clone()),
            several => out.push(
                concat_batches(&several[0].schema(), several)
                    .map_err(|error| Error::invalid(format!("rows cannot be put together: {error}")))?,
            ),
        }
        small.clear();
        Ok::<_, Error>(())
    };
    for batch in batches {
        if rows + batch.num_rows() > BATCH_ROWS {
            close(&mut small, &mut out)?;
            rows = 0;
        }
        rows += batch.num_rows();
        small.push(batch);
    }
    close(&mut small, &mut out)?;
    Ok(out)
}
