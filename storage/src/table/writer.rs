//! The writer of one table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use super::bucket::{Bucket, FullMerge};
use super::commit::History;
use super::compaction::{self, Finished, Job, Times};
use super::flush::{Buffer, flush};
use super::key_index::KeySet;
use super::layout::{Layout, numbers};
use super::levels::LEVELS;
use super::merges::{Amount, MergeLog, MergeReason};
use super::names::Names;
use super::resolve::Tombstones;
use super::run::DataFile;
use super::{Prepared, RowKind, TableOptions, WriterContext, read, version};
use crate::error::{Error, Result};
use crate::paimon::{DataFileMeta, Snapshot, TablePaths, TableSchema};
use crate::store::{CreateOutcome, StoreRef, create_if_absent};

/// Snapshots prepared before a merge is tried again after one failed.
const PAUSE_AFTER_FAILURE: u32 = 32;
/// A table to which no rows have come for so long is at rest.
const REST_MS: i64 = 10_000;

/// The only writer of one table. After any error it must be dropped and opened again at the last checkpoint's
/// snapshot: its memory may be ahead of what was written.
#[derive(Debug)]
pub struct TableWriter {
    layout: Arc<Layout>,
    buckets: Vec<Bucket>,
    buffer: Buffer,
    history: History,
    /// The number of the loading that is going on, and of the last one.
    loading: Option<u32>,
    last_loading: u32,
    jobs: Vec<Job>,
    merges: Arc<MergeLog>,
    /// The number of full merges that were begun.
    full_merges: u64,
    /// Snapshots to be prepared before the next merge may begin.
    pause: u32,
    /// When the last rows were flushed, in milliseconds since 1970.
    rows_came_ms: i64,
    /// At rest there is nothing to merge. Known once it was looked for, until files change; many tables are asked often.
    is_tidy: AtomicBool,
    /// Whether something was changed since the last prepared snapshot, other than in a bucket.
    changed: bool,
    /// Whether the last prepared snapshot is not known to be in a checkpoint.
    uncommitted: bool,
    failed: bool,
}

impl TableWriter {
    /// Creates a table at `path` with the fields and keys of `schema`; its id, time and layout options are set here. If
    /// the directory holds snapshots of an earlier table of this name, they are continued: the next snapshot takes the
    /// next number and replaces their content.
    pub async fn create(
        ctx: WriterContext,
        path: Path,
        mut schema: TableSchema,
        options: TableOptions,
    ) -> Result<Self> {
        if options.buckets == 0 {
            return Err(Error::invalid("a table needs at least one bucket"));
        }
        let paths = TablePaths::new(path.clone());
        for (name, value) in TableSchema::default_options(options.buckets, LEVELS) {
            schema.options.insert(name, value);
        }
        schema.time_millis = ctx.clock.now_ms();
        schema.id = numbers(&ctx.store, &paths.schemas(), "schema-").await?.pop().unwrap_or(0);
        let schema = Arc::new(write_schema(&ctx.store, &paths, schema).await?);
        let last = numbers(&ctx.store, &paths.snapshots(), "snapshot-").await?.pop();
        let layout = new_layout(ctx, path, options, schema, None)?;
        let history = match last {
            Some(id) => History::replacing(layout.store(), &layout, id).await?,
            None => History::default(),
        };
        let buckets = (0..layout.options.buckets).map(Bucket::new).collect();
        Ok(Self::new(layout, buckets, history, true))
    }

    /// Opens a table at a snapshot, given as the text of the snapshot file; `published` says whether that file is, or
    /// is about to be, in the table's directory. Reads the key columns of every live file.
    pub async fn open(
        ctx: WriterContext,
        path: Path,
        snapshot_json: &str,
        published: bool,
        mut options: TableOptions,
    ) -> Result<Self> {
        let paths = TablePaths::new(path.clone());
        let snapshot = Snapshot::from_json(path.as_ref(), snapshot_json.as_bytes())?;
        let schema = version::read_schema(&ctx.store, &paths, snapshot.schema_id).await?;
        options.buckets = schema.buckets()?;
        let mut layout = new_layout(ctx, path, options, schema, None)?;
        let (history, files) = History::opened(layout.store(), &layout, &snapshot, published).await?;
        let metas = files.iter().map(|(_, meta)| meta);
        layout.schemas = Arc::new(version::read_schemas(layout.store(), &layout.paths, &layout.schema, metas).await?);
        let mut deleted = version::vectors(layout.store(), &layout.paths, history.index()).await?;

        let layout = Arc::new(layout);
        let key_files = files.iter().map(|(_, meta)| layout.key_file(&meta.file_name)).collect();
        KeySet::sweep(&layout.ctx.resources.keys, layout.paths.root().as_ref(), &key_files);
        let mut buckets: Vec<Bucket> = (0..layout.options.buckets).map(Bucket::new).collect();
        let loaded = files.into_iter().map(|(bucket, meta)| load_keys(Arc::clone(&layout), bucket, meta));
        let mut loaded = stream::iter(loaded).buffer_unordered(layout.ctx.resources.workers.parallelism());
        while let Some((bucket, meta, path, keys)) = loaded.try_next().await? {
            let bucket = usize::try_from(bucket).ok().and_then(|bucket| buckets.get_mut(bucket));
            let bucket = bucket.ok_or_else(|| Error::corrupt(path.as_ref(), "its bucket is none of the table's"))?;
            bucket.next_sequence = bucket.next_sequence.max(meta.max_sequence_number + 1);
            let deleted = deleted.remove(&meta.file_name).unwrap_or_default();
            bucket.files.push(DataFile::new(Arc::unwrap_or_clone(meta), path, keys, deleted));
        }
        drop(loaded);
        let mut writer = Self::new(Arc::unwrap_or_clone(layout), buckets, history, false);
        writer.changed = false;
        Ok(writer)
    }

    fn new(layout: Layout, buckets: Vec<Bucket>, history: History, changed: bool) -> Self {
        Self {
            rows_came_ms: layout.ctx.clock.now_ms(),
            is_tidy: AtomicBool::new(false),
            layout: Arc::new(layout),
            buckets,
            buffer: Buffer::default(),
            history,
            loading: None,
            last_loading: 0,
            jobs: Vec::new(),
            merges: Arc::default(),
            full_merges: 0,
            pause: 0,
            changed,
            uncommitted: false,
            failed: false,
        }
    }

    /// The schema that batches must have.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.layout.schema
    }

    /// The table's merges, and how much is written for it, as they go on.
    pub fn merges(&self) -> &Arc<MergeLog> {
        &self.merges
    }

    /// The number of live rows, those not flushed yet aside.
    pub fn row_count(&self) -> u64 {
        self.buckets.iter().map(Bucket::live).sum()
    }

    /// Takes rows, in log order, with one kind per row. The batch has the columns of the schema's Arrow schema. The
    /// rows are only kept; nothing is written.
    pub fn apply(&mut self, batch: RecordBatch, kinds: Vec<RowKind>) -> Result<()> {
        self.check()?;
        if batch.num_rows() != kinds.len() {
            return Err(Error::invalid(format!("{} kinds were given for {} rows", kinds.len(), batch.num_rows())));
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.layout.arrow_schema), batch.columns().to_vec())
            .map_err(|error| Error::invalid(format!("rows do not fit the table: {error}")))?;
        self.buffer.push(batch, kinds)
    }

    /// From now on the keys of deleted rows are remembered, so that a snapshot page does not bring them back. If the
    /// table is being loaded already, that goes on.
    pub fn begin_loading(&mut self) {
        if self.loading.is_none() {
            self.last_loading += 1;
            self.set_loading(Some(self.last_loading));
        }
    }

    /// The snapshot pages have all been applied. The deleted keys are forgotten; a loading that begins later starts
    /// without any.
    pub fn end_loading(&mut self) {
        // The snapshot is prepared once more, so that a table that became complete with nothing new is published.
        self.changed = true;
        self.set_loading(None);
    }

    fn set_loading(&mut self, loading: Option<u32>) {
        self.loading = loading;
        self.buffer.mark_loading(loading.unwrap_or(0));
        if self.buffer.is_empty() {
            self.forget_tombstones();
        }
    }

    /// Forgets the keys deleted in loadings that have ended, once no buffered row can ask for them.
    fn forget_tombstones(&mut self) {
        for bucket in &mut self.buckets {
            match self.loading {
                Some(loading) => bucket.tombstones.retain(|_, of| *of == loading),
                None => bucket.tombstones = Tombstones::new(),
            }
        }
    }

    fn new_buffer(&self) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.mark_loading(self.loading.unwrap_or(0));
        buffer
    }

    /// Memory held by rows that were applied and not flushed.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Memory held by the key index and the deletion vectors.
    pub fn index_bytes(&self) -> usize {
        self.buckets.iter().map(Bucket::index_bytes).sum()
    }

    /// Whether a prepared snapshot would differ from the last committed one, or begin a merge.
    pub fn is_dirty(&self) -> bool {
        self.changed
            || self.uncommitted
            || !self.buffer.is_empty()
            || self.buckets.iter().any(|bucket| bucket.changed)
            || self.jobs.iter().any(Job::is_finished)
            || (self.loading.is_none() && self.full_merge_waits())
            || self.is_to_be_tidied()
    }

    fn times(&self) -> Times {
        let quiet_ms = self.layout.ctx.clock.now_ms() - self.rows_came_ms;
        match self.loading {
            Some(_) => Times::Loading,
            None if quiet_ms < REST_MS => Times::Busy,
            None => Times::Rest,
        }
    }

    /// Whether the next prepared snapshot would begin a merge for which there is time because no rows come. After one
    /// failed, the next has to wait until rows come again.
    fn is_to_be_tidied(&self) -> bool {
        let may_begin = self.layout.options.compaction && self.jobs.is_empty() && self.pause == 0;
        let times = self.times();
        if !may_begin || times != Times::Rest || self.is_tidy.load(Ordering::Relaxed) {
            return false;
        }
        let due = |bucket: &Bucket| compaction::plan(bucket, &self.layout, times, true).is_some();
        let is_due = self.buckets.iter().any(due);
        self.is_tidy.store(!is_due, Ordering::Relaxed);
        is_due
    }

    /// Whether the next prepared snapshot would begin a merge that was asked for, or bring it nearer.
    fn full_merge_waits(&self) -> bool {
        let wanted = |bucket: &Bucket| bucket.full_merge == FullMerge::Wanted;
        self.merges.wanted() > self.full_merges
            || (self.layout.options.compaction && self.jobs.is_empty() && self.buckets.iter().any(wanted))
    }

    fn check(&self) -> Result<()> {
        if self.failed {
            return Err(Error::invalid("the table's writer failed earlier and has to be opened again"));
        }
        Ok(())
    }

    /// Writes the rows applied so far to data files, which nothing refers to yet, and frees their memory.
    pub async fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.failed = true;
        self.install_finished().await?;
        let buckets = std::mem::take(&mut self.buckets);
        let empty = self.new_buffer();
        let buffer = std::mem::replace(&mut self.buffer, empty);
        let rows = buffer.len() as u64;
        self.rows_came_ms = self.layout.ctx.clock.now_ms();
        self.is_tidy = AtomicBool::new(false);
        self.buckets = flush(&self.layout, buffer, buckets).await?;
        self.jobs.iter().for_each(|job| job.note(&self.buckets));
        let mut written = Amount::default();
        self.buckets.iter_mut().for_each(|bucket| written.add(std::mem::take(&mut bucket.flushed)));
        self.merges.flushed(rows, written);
        self.forget_tombstones();
        self.failed = false;
        Ok(())
    }

    /// Flushes, then changes the schema: `schema` comes from [`TableSchema::evolve`] on the current one, or on the one that
    /// the table was created with; options that it does not have stay. Batches applied from now on have the new columns.
    /// The key's columns may only be renamed.
    pub async fn evolve(&mut self, mut schema: TableSchema) -> Result<()> {
        self.flush().await?;
        for (name, value) in &self.layout.schema.options {
            schema.options.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let key = |schema: &TableSchema| -> Vec<_> {
            let fields = schema.key_indices().into_iter().map(|index| &schema.fields[index]);
            fields.map(|field| (field.id, field.data_type.clone())).collect()
        };
        if key(&schema) != key(&self.layout.schema) {
            return Err(Error::invalid("the primary key of a table cannot change; the table has to be created anew"));
        }
        if schema.buckets()? != self.layout.options.buckets {
            return Err(Error::invalid("the number of buckets of a table cannot change"));
        }
        let schema = Arc::new(write_schema(self.layout.store(), &self.layout.paths, schema).await?);
        let mut schemas = self.layout.schemas.as_ref().clone();
        schemas.insert(schema.id, Arc::clone(&schema));
        let old = self.layout.as_ref().clone();
        let layout = Layout::new(old.ctx, old.paths.root().clone(), old.names, old.options, schema, Arc::new(schemas))?;
        self.layout = Arc::new(layout);
        self.changed = true;
        Ok(())
    }

    /// Removes every row, including those not flushed yet. Deleted keys remembered for loading are forgotten.
    pub async fn truncate(&mut self) -> Result<()> {
        self.check()?;
        self.jobs.clear();
        self.buffer = self.new_buffer();
        // With nothing left, a full merge is done too.
        self.buckets.iter_mut().for_each(Bucket::clear);
        Ok(())
    }

    /// Flushes and writes everything the next snapshot refers to, but not the snapshot file. Its number is one above
    /// the last published one, so while nothing is published each prepared snapshot takes the place of the one before.
    pub async fn prepare(&mut self, commit_identifier: u64, properties: BTreeMap<String, String>) -> Result<Prepared> {
        self.flush().await?;
        self.failed = true;
        self.install_finished().await?;
        self.start_merges();
        let prepared = self.history.prepare(&self.layout, &mut self.buckets, commit_identifier, properties).await?;
        self.buckets.iter_mut().for_each(|bucket| bucket.changed = false);
        self.changed = false;
        self.uncommitted = true;
        self.failed = false;
        Ok(prepared)
    }

    /// A checkpoint that holds the last prepared snapshot is durable. `published` says whether its snapshot file is, or
    /// will be, published.
    pub fn committed(&mut self, published: bool) {
        self.uncommitted = false;
        if published {
            self.history.published();
        }
    }

    /// Flushes, then runs every merge that is due, and waits for it.
    pub async fn compact(&mut self) -> Result<()> {
        self.flush().await?;
        self.failed = true;
        self.pause = 0;
        loop {
            self.start_merges();
            let Some(job) = self.jobs.pop() else { break };
            let Finished { bucket, reserved, carried, reason, output } = job.finish().await;
            self.buckets[bucket].install(&self.layout.codec.empty(), &reserved, &carried, output?)?;
            if reason == MergeReason::Request {
                self.buckets[bucket].full_merge = FullMerge::No;
            }
        }
        self.failed = false;
        Ok(())
    }

    /// Begins the merges that are due.
    fn start_merges(&mut self) {
        self.note_full_merges();
        if !self.layout.options.compaction {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let times = self.times();
        let (short, long) = self.layout.ctx.resources.merges.shares();
        for (index, bucket) in self.buckets.iter_mut().enumerate() {
            loop {
                let long_jobs = self.jobs.iter().filter(|job| job.is_long()).count();
                if self.jobs.len() - long_jobs >= short {
                    break;
                }
                let plan = compaction::plan(bucket, &self.layout, times, long_jobs < long);
                let job = plan.and_then(|plan| Job::start(index, bucket, &plan, &self.layout, &self.merges));
                match job {
                    Some(job) => self.jobs.push(job),
                    None => break,
                }
            }
        }
    }

    /// Learns of full merges that were asked for, and tells those who wait for one that it is done.
    fn note_full_merges(&mut self) {
        let wanted = self.merges.wanted();
        if wanted > self.full_merges && self.loading.is_none() {
            self.full_merges = wanted;
            self.pause = 0;
            self.buckets.iter_mut().filter(|b| !b.is_merged()).for_each(|b| b.full_merge = FullMerge::Wanted);
        }
        // One that had to wait for another may find nothing left to do.
        let is_done = |bucket: &&mut Bucket| bucket.full_merge == FullMerge::Wanted && bucket.is_merged();
        self.buckets.iter_mut().filter(is_done).for_each(|bucket| bucket.full_merge = FullMerge::No);
        if self.merges.done() < self.full_merges && self.buckets.iter().all(|b| b.full_merge == FullMerge::No) {
            self.merges.set_done(self.full_merges);
        }
    }

    /// Takes over the outputs of merges that have ended.
    async fn install_finished(&mut self) -> Result<()> {
        while let Some(index) = self.jobs.iter().position(Job::is_finished) {
            let job = self.jobs.swap_remove(index);
            let Finished { bucket, reserved, carried, reason, output } = job.finish().await;
            self.is_tidy = AtomicBool::new(false);
            let is_full = reason == MergeReason::Request;
            match output {
                Ok(output) => {
                    self.buckets[bucket].install(&self.layout.codec.empty(), &reserved, &carried, output)?;
                    if is_full {
                        self.buckets[bucket].full_merge = FullMerge::No;
                    }
                }
                Err(error) => {
                    if is_full {
                        self.buckets[bucket].full_merge = FullMerge::Wanted;
                    }
                    let table = self.layout.paths.root();
                    tracing::warn!(%table, bucket, %error, "a merge failed; its files stay as they are for now");
                    self.buckets[bucket].abandon(&reserved, &carried);
                    self.pause = PAUSE_AFTER_FAILURE;
                }
            }
        }
        Ok(())
    }

    /// Whether the output of a merge waits to be taken over.
    #[cfg(test)]
    pub(super) fn merge_is_finished(&self) -> bool {
        self.jobs.iter().any(Job::is_finished)
    }

    /// The buckets, for checks of their invariants.
    #[cfg(test)]
    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        self.merges.close();
    }
}

fn new_layout(
    ctx: WriterContext,
    path: Path,
    options: TableOptions,
    schema: Arc<TableSchema>,
    schemas: Option<BTreeMap<u64, Arc<TableSchema>>>,
) -> Result<Layout> {
    let names = Arc::new(Names::new(&*ctx.resources.random));
    let schemas = schemas.unwrap_or_else(|| BTreeMap::from([(schema.id, Arc::clone(&schema))]));
    Layout::new(ctx, path, names, options, schema, Arc::new(schemas))
}

async fn load_keys(
    layout: Arc<Layout>,
    bucket: u32,
    meta: Arc<DataFileMeta>,
) -> Result<(u32, Arc<DataFileMeta>, Path, KeySet)> {
    let workers = layout.ctx.resources.workers;
    let path = layout.paths.data_file(bucket, &meta.file_name);
    let work = async move {
        let keys = read::keys(&layout, &path, &meta).await?;
        Ok((bucket, meta, path, keys))
    };
    workers.drive("reading keys", work).await
}

/// Writes `schema` under its id, or the next that is free. A schema that is there already with the same content, left
/// by a writer that did not get as far as a checkpoint, is taken as it is.
async fn write_schema(store: &StoreRef, paths: &TablePaths, mut schema: TableSchema) -> Result<TableSchema> {
    loop {
        let path = paths.schema(schema.id);
        match create_if_absent(&**store, &path, Bytes::from(schema.to_digested_json())).await? {
            CreateOutcome::Created => return Ok(schema),
            CreateOutcome::Exists => {
                let found = version::read_schema(store, paths, schema.id).await?;
                let same = TableSchema { time_millis: schema.time_millis, ..found.as_ref().clone() };
                if same == schema {
                    return Ok(Arc::unwrap_or_clone(found));
                }
                schema.id += 1;
            }
        }
    }
}
