//! The half of a job that owns the table writers: it applies work in the order in which it was sent, and turns each
//! [`Work::Cut`] into a durable checkpoint. It runs beside the coordinator, which decodes the next changes meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::future::{BoxFuture, try_join_all};
use object_store::path::Path;
use tidegate_storage::checkpoint::{
    CheckpointLog, CheckpointRecord, CommitOutcome, PreparedSnapshot, PublishOutcome, TableCommit, publish,
};
use tidegate_storage::clock::Clock;
use tidegate_storage::paimon::TableSchema;
use tidegate_storage::store::StoreRef;
use tidegate_storage::table::{Resources, RowKind, TableOptions, TableVersion, TableWriter, WriterContext};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::timeout;
use uuid::Uuid;

use super::housekeeping::Shown;
use super::memory::{Held, MemoryUse, PERMIT_BYTES};
use super::state::{SourceState, TablePhase, TableState};
use super::table::TableIndex;
use super::view::{SourceView, TableView, split_name};
use crate::error::{Code, Error, Retry};
use crate::source::position::Position;

/// A record that lists every table is written this often; those between list what changed.
const FULL_RECORD_EVERY: u64 = 64;

/// How long the applier is idle before it looks whether a merge has ended, was asked for, or is due at rest.
const IDLE: Duration = Duration::from_millis(100);

/// One step for the writers, in log order.
pub(super) enum Work {
    Apply {
        table: TableIndex,
        batch: RecordBatch,
        kinds: Vec<RowKind>,
        share: OwnedSemaphorePermit,
        held: Held,
    },
    Evolve {
        table: TableIndex,
        schema: TableSchema,
    },
    /// The table's content is replaced from here on: emptied (TRUNCATE), or read again beside its frozen old state.
    Restart {
        table: TableIndex,
        schema: TableSchema,
        loading: bool,
    },
    /// The snapshot's last page has been applied.
    EndLoading {
        table: TableIndex,
    },
    /// The table stopped with an error: it stays at its last checkpoint.
    Stop {
        table: TableIndex,
    },
    /// Everything buffered goes to files, so that its memory comes back.
    Flush,
    Cut(Cut),
}

/// The boundary of a checkpoint.
pub(super) struct Cut {
    pub(super) position: Position,
    pub(super) source: SourceState,
    /// States that differ from the last checkpoint's.
    pub(super) tables: Vec<(TableIndex, TableState)>,
    pub(super) done: oneshot::Sender<u64>,
}

/// A table as the applier holds it.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) path: String,
    /// `None` for a table that stopped.
    pub(super) writer: Option<TableWriter>,
    pub(super) state: TableState,
    /// The snapshot that the newest checkpoint holds, and its version.
    pub(super) committed: Option<PreparedSnapshot>,
    pub(super) version: Option<Arc<TableVersion>>,
    /// What readers stay on while the table is read again or stopped.
    pub(super) frozen: Option<(PreparedSnapshot, Arc<TableVersion>)>,
    /// Memory shares of rows that were applied and not flushed.
    pub(super) shares: Vec<OwnedSemaphorePermit>,
    /// Whether the next checkpoint must list the table.
    pub(super) changed: bool,
}

impl Slot {
    /// Whether readers see the table's newest snapshot.
    fn is_live(&self) -> bool {
        self.state.phase == TablePhase::Streaming
    }

    /// Keeps what readers see now while the table's content is replaced.
    fn freeze(&mut self) {
        if self.is_live()
            && let (Some(snapshot), Some(version)) = (self.committed.clone(), self.version.clone())
        {
            self.frozen = Some((snapshot, version));
        }
    }

    /// Memory that a flush would free: what the writer holds, or the shares taken for it if those are larger.
    fn buffered(&self) -> usize {
        let shares: usize = self.shares.iter().map(|share| share.num_permits() * PERMIT_BYTES).sum();
        self.writer.as_ref().map_or(0, |writer| writer.buffered_bytes().max(shares))
    }
}

pub(super) struct Applier {
    pub(super) store: StoreRef,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) resources: Arc<Resources>,
    pub(super) layout: TableOptions,
    pub(super) source: String,
    pub(super) source_id: Uuid,
    pub(super) owner: Uuid,
    pub(super) epoch: u64,
    pub(super) log: CheckpointLog,
    pub(super) slots: Vec<Slot>,
    /// Number and position of the newest checkpoint; 0 before the first.
    pub(super) number: u64,
    pub(super) position: Option<Position>,
    /// Buffered bytes from which rows are flushed before a checkpoint asks for it.
    pub(super) flush_bytes: usize,
    pub(super) views: watch::Sender<Arc<SourceView>>,
    pub(super) shown: Arc<Shown>,
    pub(super) memory: Arc<MemoryUse>,
    /// Set while a checkpoint is wanted though no row has come: merges are to be begun, or their outputs taken over.
    pub(super) upkeep: Arc<AtomicBool>,
}

/// What a writer of one source signs its snapshots with.
pub(super) fn writer_context(
    store: &StoreRef,
    clock: &Arc<dyn Clock>,
    resources: &Arc<Resources>,
    source_id: Uuid,
) -> WriterContext {
    WriterContext {
        store: store.clone(),
        clock: Arc::clone(clock),
        commit_user: format!("tidegate-{source_id}"),
        resources: Arc::clone(resources),
    }
}

impl Applier {
    /// Runs until the coordinator hangs up or something fails; after a failure the job recovers from the newest
    /// checkpoint.
    pub(super) async fn run(mut self, mut work: mpsc::Receiver<Work>) -> Result<(), Error> {
        loop {
            let step = match timeout(IDLE, work.recv()).await {
                Ok(Some(step)) => step,
                Ok(None) => return Ok(()),
                Err(_) => {
                    let wanted = self.slots.iter().any(|s| s.writer.as_ref().is_some_and(TableWriter::is_dirty));
                    self.upkeep.store(wanted, Ordering::Relaxed);
                    continue;
                }
            };
            match step {
                Work::Apply { table, batch, kinds, share, held } => {
                    if let Some(slot) = self.slots.get_mut(table)
                        && let Some(writer) = &mut slot.writer
                    {
                        writer.apply(batch, kinds).map_err(|e| failed(&slot.name, e))?;
                        slot.shares.push(share);
                    }
                    drop(held);
                    self.note_buffered();
                    self.relieve().await?;
                }
                Work::Evolve { table, schema } => {
                    if let Some(slot) = self.slots.get_mut(table)
                        && let Some(writer) = &mut slot.writer
                    {
                        writer.evolve(schema).await.map_err(|e| failed(&slot.name, e))?;
                        slot.shares.clear();
                        slot.changed = true;
                    }
                }
                Work::Restart { table, schema, loading } => self.restart(table, schema, loading).await?,
                Work::EndLoading { table } => {
                    if let Some(slot) = self.slots.get_mut(table)
                        && let Some(writer) = &mut slot.writer
                    {
                        writer.end_loading();
                        slot.changed = true;
                    }
                }
                Work::Stop { table } => {
                    if let Some(slot) = self.slots.get_mut(table) {
                        slot.freeze();
                        slot.writer = None;
                        slot.shares.clear();
                        slot.changed = true;
                    }
                }
                Work::Flush => {
                    for slot in &mut self.slots {
                        if let Some(writer) = &mut slot.writer {
                            writer.flush().await.map_err(|e| failed(&slot.name, e))?;
                        }
                        slot.shares.clear();
                    }
                }
                Work::Cut(cut) => {
                    self.cut(cut).await?;
                    self.upkeep.store(false, Ordering::Relaxed);
                }
            }
            self.note_buffered();
        }
    }

    /// What the writers hold counts until it is in files.
    fn note_buffered(&self) {
        let buffered = self.slots.iter().filter_map(|slot| slot.writer.as_ref()).map(TableWriter::buffered_bytes);
        self.memory.set_buffered(buffered.sum());
    }

    async fn restart(&mut self, table: TableIndex, schema: TableSchema, loading: bool) -> Result<(), Error> {
        let context = writer_context(&self.store, &self.clock, &self.resources, self.source_id);
        let Some(slot) = self.slots.get_mut(table) else { return Ok(()) };
        slot.freeze();
        slot.shares.clear();
        (slot.committed, slot.version) = (None, None);
        let options = TableOptions { buckets: slot.state.buckets.max(1), ..self.layout.clone() };
        let mut writer = TableWriter::create(context, Path::from(slot.path.as_str()), schema, options)
            .await
            .map_err(|e| failed(&slot.name, e))?;
        if loading {
            writer.begin_loading();
        }
        slot.writer = Some(writer);
        slot.changed = true;
        Ok(())
    }

    /// Flushes the largest tables while more than the limit is buffered.
    async fn relieve(&mut self) -> Result<(), Error> {
        let mut total: usize = self.slots.iter().map(Slot::buffered).sum();
        while total > self.flush_bytes {
            let Some(slot) = self.slots.iter_mut().max_by_key(|s| s.buffered()) else { break };
            let Some(writer) = &mut slot.writer else { break };
            writer.flush().await.map_err(|e| failed(&slot.name, e))?;
            slot.shares.clear();
            total = self.slots.iter().map(Slot::buffered).sum();
        }
        Ok(())
    }

    async fn cut(&mut self, cut: Cut) -> Result<(), Error> {
        for (index, state) in cut.tables {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.state = state;
                slot.changed = true;
            }
        }
        let number = self.number + 1;
        let prepared = self.prepare(number).await?;
        if prepared.is_empty() && self.position.as_ref() == Some(&cut.position) && !self.slots.iter().any(|s| s.changed)
        {
            // Nothing happened since the newest checkpoint: it is the answer. Nobody may be waiting for it.
            let _ = cut.done.send(self.number);
            return Ok(());
        }
        let full = number % FULL_RECORD_EVERY == 1;
        let mut commits = Vec::new();
        for slot in &mut self.slots {
            if full || slot.changed {
                commits.push(slot.commit()?);
            }
        }
        let record = CheckpointRecord {
            format: 1,
            source: self.source_id,
            number,
            epoch: self.epoch,
            owner: self.owner,
            committed_at_ms: self.clock.now_ms(),
            full,
            position: to_json(&cut.position)?,
            capture: to_json(&cut.source)?,
            tables: commits,
            dropped: Vec::new(),
        };
        match self.log.commit(&record).await? {
            CommitOutcome::Committed => {}
            // Recovery reads what came of it.
            CommitOutcome::Unknown(error) => return Err(error.into()),
            // An earlier attempt of ours, given up for lost and carried out all the same: whatever it holds counts.
            CommitOutcome::Conflicted(other) if other.owner == self.owner => {
                return Err(Error::new(
                    Code::CommitUnknown,
                    format!("checkpoint {number} of source \"{}\" was written late by an earlier attempt", self.source),
                )
                .with_detail("Its answer had been lost. Capture goes on from it; no change is applied twice.")
                .with_retry(Retry::Now));
            }
            CommitOutcome::Conflicted(other) => {
                let us = format!("this one is {} (epoch {})", self.owner, self.epoch);
                return Err(Error::new(
                    Code::Fenced,
                    format!("another server wrote checkpoint {number} of source \"{}\"", self.source),
                )
                .with_detail(format!("Its owner is {} (epoch {}); {us}.", other.owner, other.epoch)));
            }
        }
        self.number = number;
        self.publish(&prepared).await?;
        for slot in &mut self.slots {
            slot.changed = false;
        }
        for (index, _) in &prepared {
            if let Some(slot) = self.slots.get_mut(*index) {
                let live = slot.is_live();
                if live {
                    slot.frozen = None;
                }
                if let Some(writer) = &mut slot.writer {
                    writer.committed(live);
                }
            }
        }
        self.position = Some(cut.position);
        self.show(record.committed_at_ms);
        // The coordinator may have gone; the checkpoint stands all the same.
        let _ = cut.done.send(number);
        Ok(())
    }

    /// Prepares the snapshots of all tables that changed, side by side.
    async fn prepare(&mut self, number: u64) -> Result<Vec<(TableIndex, PreparedSnapshot)>, Error> {
        let properties = BTreeMap::from([("tidegate.checkpoint".to_owned(), number.to_string())]);
        let work = self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let wanted = slot.writer.as_ref().is_some_and(TableWriter::is_dirty)
                || (slot.is_live() && (slot.committed.is_none() || slot.frozen.is_some()));
            let properties = properties.clone();
            let name = slot.name.clone();
            let writer = slot.writer.as_mut().filter(|_| wanted)?;
            let work: BoxFuture<'_, _> = Box::pin(async move {
                let prepared = writer.prepare(number, properties).await.map_err(|e| failed(&name, e))?;
                Ok::<_, Error>((index, prepared))
            });
            Some(work)
        });
        let prepared = try_join_all(work.collect::<Vec<_>>()).await?;
        let mut snapshots = Vec::with_capacity(prepared.len());
        for (index, prepared) in prepared {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.shares.clear();
                slot.committed = Some(prepared.snapshot.clone());
                slot.version = Some(prepared.version);
                slot.changed = true;
            }
            snapshots.push((index, prepared.snapshot));
        }
        Ok(snapshots)
    }

    /// Makes the snapshots of live tables visible to other engines. The checkpoint is durable: should this fail,
    /// recovery does it again.
    async fn publish(&mut self, prepared: &[(TableIndex, PreparedSnapshot)]) -> Result<(), Error> {
        let mut work: Vec<BoxFuture<'static, Result<(), Error>>> = Vec::new();
        for (index, snapshot) in prepared {
            let Some(slot) = self.slots.get(*index).filter(|s| s.is_live()) else { continue };
            let (store, name, path) = (self.store.clone(), slot.name.clone(), Path::from(slot.path.as_str()));
            let snapshot = snapshot.clone();
            work.push(Box::pin(async move {
                let published = publish(&store, &path, &snapshot).await.and_then(PublishOutcome::require);
                published.map_err(|e| failed(&name, e))
            }));
        }
        try_join_all(work).await?;
        Ok(())
    }

    /// Shows the newest checkpoint to readers.
    pub(super) fn show(&self, committed_at_ms: i64) {
        let mut tables: Vec<_> = self.slots.iter().map(|slot| Arc::new(slot.view())).collect();
        tables.sort_by(|a, b| (&a.schema_name, &a.table_name).cmp(&(&b.schema_name, &b.table_name)));
        let view = SourceView {
            source: self.source.clone(),
            source_id: self.source_id,
            checkpoint: self.number,
            committed_at_ms,
            position: self.position.clone().unwrap_or_default(),
            tables,
        };
        self.shown.note(&view);
        self.views.send_replace(Arc::new(view));
    }
}

impl Slot {
    fn commit(&mut self) -> Result<TableCommit, Error> {
        self.state.frozen = self.frozen.as_ref().filter(|_| !self.is_live()).map(|(snapshot, _)| snapshot.clone());
        Ok(TableCommit {
            name: self.name.clone(),
            path: self.path.clone(),
            visible: self.is_live() || self.frozen.is_some(),
            snapshot: self.committed.clone(),
            capture: to_json(&self.state)?,
        })
    }

    pub(super) fn view(&self) -> TableView {
        let (schema_name, table_name) = split_name(&self.name);
        let version = if self.is_live() {
            self.version.clone()
        } else {
            self.frozen.as_ref().map(|(_, version)| Arc::clone(version))
        };
        let merges = self.writer.as_ref().map(|writer| Arc::clone(writer.merges()));
        let mysql = self.state.mysql.clone();
        let visible = version.is_some();
        TableView { schema_name, table_name, visible, complete: visible && self.is_live(), version, mysql, merges }
    }
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value)
        .map_err(|e| Error::new(Code::Internal, "the job's state could not be encoded").with_source(e))
}

/// A storage error, with the table it concerns.
pub(super) fn failed(table: &str, error: tidegate_storage::Error) -> Error {
    let mut error = Error::from(error);
    error.message = format!("table {table}: {}", error.message);
    error
}
