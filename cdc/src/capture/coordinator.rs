//! The loop that joins the binlog stream with the pages of running snapshots, and cuts checkpoints.
//!
//! It owns the order of things. Everything it sends to the applier is in log order; a page's rows are sent once the
//! stream has passed the page's HIGH, and only while no schema change of the table was seen since the page was read;
//! a cut is sent between two transactions only. Design record 0001 says why that is right.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tracing::{info, warn};

use super::applier::{Cut, Work};
use super::held::HeldRows;
use super::job::{Control, StatusBoard};
use super::memory::{MemoryUse, permits, reserve};
use super::pages::{ReadEvent, ReadJob, ReadPage, Readers};
use super::resync::Resyncs;
use super::state::SourceState;
use super::status::{ErrorInfo, JobState};
use super::table::{CapturedTable, Phase, ReadToken, TableIndex};
use super::transaction::StreamState;
use crate::error::{Code, Error, Retry};
use crate::mysql::ServerInfo;
use crate::mysql::binlog::stream::RawEvent;
use crate::mysql::binlog::{DecodeError, Event, TableMap, parse_event};
use crate::mysql::types::MysqlTable;
use crate::source::definition::CaptureOptions;
use crate::source::position::{FilePosition, Gtid, Position};
use tidegate_storage::clock::Clock;
use tidegate_storage::table::RowKind;

/// Decoded rows of one table are handed over from this size on, so that encoding begins before the checkpoint.
const HAND_OVER_BYTES: usize = 4 << 20;
/// A position that moved without captured changes is recorded this often.
const IDLE_CHECKPOINT: Duration = Duration::from_secs(10);
/// While tables are only loaded, a checkpoint saves progress rather than showing anything: seldom is enough, and the
/// files come out larger.
const LOADING_CHECKPOINT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(100);
const STATUS_EVERY: Duration = Duration::from_millis(500);
pub(super) const RETRY_READ: Duration = Duration::from_secs(1);

pub(super) struct Coordinator<'a> {
    pub(super) options: &'a CaptureOptions,
    pub(super) info: ServerInfo,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) status: &'a StatusBoard,
    pub(super) tables: Vec<CapturedTable>,
    /// (database, table) in MySQL → index.
    pub(super) by_name: HashMap<(String, String), TableIndex>,
    pub(super) work: mpsc::Sender<Work>,
    pub(super) readers: Readers,
    pub(super) memory: Arc<MemoryUse>,
    /// Shares of the memory for changes that were handed over.
    pub(super) shares: Arc<Semaphore>,
    pub(super) memory_bytes: usize,
    /// The most that changes of all tables may take together before they are handed over.
    pub(super) decoded_limit: usize,
    /// At least what they take.
    pub(super) decoded: usize,
    /// The last transaction boundary.
    pub(super) position: Position,
    /// The source's own part of the next checkpoint.
    pub(super) source: SourceState,
    pub(super) stream: StreamState,
    /// Rows of XA transactions.
    pub(super) xa: HeldRows,
    pub(super) cuts: Cuts,
    /// Pages that wait for the stream to pass their HIGH, oldest first.
    pub(super) held: VecDeque<ReadPage>,
    /// Tables that somebody wants to be read again.
    pub(super) resyncs: Resyncs,
    /// The applier has something to commit though no row has come.
    pub(super) upkeep: Arc<AtomicBool>,
}

/// An event, the offset behind it in its file, and its share of the memory for events.
pub(super) struct StreamEvent {
    pub(super) event: RawEvent,
    pub(super) end: u64,
    pub(super) _memory: OwnedSemaphorePermit,
}

/// Checkpoints under way and due.
pub(super) struct Cuts {
    /// Rows or states were sent to the applier, or wait in buffers, since the last cut.
    pub(super) dirty: bool,
    /// Changes of tables that readers see are among them.
    pub(super) live_dirty: bool,
    /// The last table has just been loaded: readers wait for it.
    loaded: bool,
    last: Instant,
    last_position: Position,
    outstanding: Option<oneshot::Receiver<u64>>,
    waiting: Vec<oneshot::Sender<u64>>,
    /// Who asked before the outstanding cut was sent, and is answered by it.
    answered_by_outstanding: Vec<oneshot::Sender<u64>>,
    stopping: bool,
    /// The cut that is outstanding is the last one.
    last_sent: bool,
}

impl Cuts {
    pub(super) fn new(position: &Position, dirty: bool) -> Self {
        Self {
            dirty,
            live_dirty: false,
            loaded: false,
            last: Instant::now(),
            last_position: position.clone(),
            outstanding: None,
            waiting: Vec::new(),
            answered_by_outstanding: Vec::new(),
            stopping: false,
            last_sent: false,
        }
    }
}

/// Sending fails only when the applier has ended, and then its own error is the one that counts.
pub(super) fn applier_gone<T>(_: mpsc::error::SendError<T>) -> Error {
    Error::new(Code::Internal, "the writing half of the job ended first")
}

impl Coordinator<'_> {
    /// Runs until it is told to stop (`Ok`) or something fails.
    pub(super) async fn run(
        &mut self,
        events: &mut mpsc::Receiver<Result<StreamEvent, Error>>,
        reads: &mut mpsc::Receiver<ReadEvent>,
        requests: &mut mpsc::Receiver<Control>,
    ) -> Result<(), Error> {
        for index in 0..self.tables.len() {
            self.start_reads(index);
            self.start_resync(index);
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut last_status = Instant::now();
        let mut requests_open = true;
        loop {
            // In this order: events may come without end, and whatever is before them is bounded by what they do.
            tokio::select! {
                biased;
                Some(read) = reads.recv() => self.read(read).await?,
                number = finished(&mut self.cuts.outstanding) => {
                    let number = number?;
                    self.cuts.outstanding = None;
                    self.xa.durable();
                    for waiting in self.cuts.answered_by_outstanding.drain(..) {
                        // Whoever asked may have gone.
                        let _ = waiting.send(number);
                    }
                    let now = self.clock.now_ms();
                    self.status.update(|s| {
                        s.last_checkpoint = number;
                        s.last_checkpoint_at_ms = Some(now);
                    });
                    if self.cuts.last_sent {
                        return Ok(());
                    }
                }
                request = requests.recv(), if requests_open => match request {
                    Some(Control::Checkpoint(answer)) => self.cuts.waiting.push(answer),
                    Some(Control::Resync(names, answer)) => {
                        self.resync(&names);
                        self.cuts.waiting.push(answer);
                    }
                    Some(Control::Stop) => self.cuts.stopping = true,
                    None => {
                        requests_open = false;
                        self.cuts.stopping = true;
                    }
                },
                _ = tick.tick() => {}
                event = events.recv() => match event {
                    Some(Ok(event)) => self.event(&event).await?,
                    Some(Err(error)) => return Err(error),
                    None => return Err(Error::new(Code::ConnectionLost, "the binlog stream ended")),
                },
            }
            if !self.stream.in_transaction {
                self.between_transactions().await?;
            }
            if last_status.elapsed() >= STATUS_EVERY {
                last_status = Instant::now();
                self.report();
            }
        }
    }

    // ---- Snapshot pages -------------------------------------------------------------------------------------------

    /// Sends whatever a loading table still needs to the readers.
    pub(super) fn start_reads(&mut self, index: TableIndex) {
        let Some(table) = self.tables.get_mut(index) else { return };
        match &mut table.phase {
            Phase::Pending => self.readers.submit(ReadJob::Plan {
                table: index,
                generation: table.generation,
                mysql: Arc::clone(&table.mysql),
                estimated_rows: table.estimated_rows,
                since: table.since.clone(),
                awaited: table.awaited.clone(),
            }),
            Phase::Snapshot(runs) => {
                for (range_index, run) in runs.iter_mut().enumerate().filter(|(_, r)| !r.state.done) {
                    run.token.cancel();
                    run.token = Arc::default();
                    self.readers.submit(ReadJob::Range {
                        table: index,
                        range_index,
                        generation: table.generation,
                        mysql: Arc::clone(&table.mysql),
                        schema: Arc::clone(&table.schema),
                        range: run.state.range.clone(),
                        after: run.state.after.clone(),
                        token: Arc::clone(&run.token),
                    });
                }
            }
            Phase::Streaming | Phase::Error(_) => {}
        }
    }

    async fn read(&mut self, event: ReadEvent) -> Result<(), Error> {
        match event {
            ReadEvent::Planned { table: index, generation, ranges } => {
                let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
                if table.generation != generation {
                    // The definition it was planned with is gone; whatever replaced it has asked anew.
                    return Ok(());
                }
                if matches!(table.phase, Phase::Pending) {
                    table.plan(ranges);
                    self.cuts.dirty = true;
                    self.start_reads(index);
                }
            }
            ReadEvent::Defined { table, question, definition } => self.defined(table, question, *definition),
            ReadEvent::Page(page) => {
                self.held.push_back(page);
            }
            ReadEvent::Failed { table: index, generation, range, error, end } => {
                self.read_failed(index, generation, range, error, end).await?;
            }
        }
        Ok(())
    }

    async fn read_failed(
        &mut self,
        index: TableIndex,
        generation: u64,
        range: Option<(usize, Arc<ReadToken>)>,
        error: Error,
        end: Option<FilePosition>,
    ) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        let stale = table.generation != generation || range.as_ref().is_some_and(|(_, token)| token.is_cancelled());
        if stale {
            return Ok(());
        }
        if error.retry == Retry::Never {
            // The server may be ahead: a schema change that the stream has not reached yet explains values that do not
            // fit. It is judged once the stream has passed the log's end of the first failure.
            let since = table.refused.get_or_insert_with(|| end.unwrap_or_else(|| FilePosition::new("", 0))).clone();
            if self.stream.reached.as_ref().is_some_and(|reached| since <= *reached) {
                return self.stop_table(index, error).await;
            }
        }
        warn!(table = table.name, code = %error.code, %error, "a snapshot read failed and is tried again");
        self.status.record(ErrorInfo::new(&error, Some(&table.name), self.clock.now_ms()));
        let job = match (range, &mut table.phase) {
            (Some((range_index, _)), Phase::Snapshot(runs)) => {
                let Some(run) = runs.get_mut(range_index) else { return Ok(()) };
                // Pages of this attempt that are still held go too: the next one begins behind what was applied.
                run.token.cancel();
                run.token = Arc::default();
                ReadJob::Range {
                    table: index,
                    range_index,
                    generation,
                    mysql: Arc::clone(&table.mysql),
                    schema: Arc::clone(&table.schema),
                    range: run.state.range.clone(),
                    after: run.state.after.clone(),
                    token: Arc::clone(&run.token),
                }
            }
            (None, Phase::Pending) => ReadJob::Plan {
                table: index,
                generation,
                mysql: Arc::clone(&table.mysql),
                estimated_rows: table.estimated_rows,
                since: table.since.clone(),
                awaited: table.awaited.clone(),
            },
            _ => return Ok(()),
        };
        self.readers.submit_later(job, RETRY_READ);
        Ok(())
    }

    /// Hands over the pages whose HIGH the stream has passed.
    async fn apply_pages(&mut self) -> Result<(), Error> {
        let Some(reached) = self.stream.reached.clone() else { return Ok(()) };
        let mut waiting = VecDeque::with_capacity(self.held.len());
        while let Some(page) = self.held.pop_front() {
            let current = self.tables.get(page.table).is_some_and(|t| t.generation == page.generation);
            if !current || page.token.is_cancelled() {
                continue;
            }
            if page.page.high > reached {
                waiting.push_back(page);
                continue;
            }
            self.apply_page(page).await?;
        }
        self.held = waiting;
        Ok(())
    }

    async fn apply_page(&mut self, page: ReadPage) -> Result<(), Error> {
        let index = page.table;
        self.hand_over(index).await?;
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        let Phase::Snapshot(runs) = &mut table.phase else { return Ok(()) };
        let Some(run) = runs.get_mut(page.range_index) else { return Ok(()) };
        if page.page.last_key.is_some() {
            run.state.after = page.page.last_key;
        }
        run.state.done |= page.page.end_of_range;
        let complete = runs.iter().all(|r| r.state.done);
        table.changed = true;
        table.refused = None;
        self.cuts.dirty = true;
        let rows = page.page.batch.num_rows();
        table.rows_read += rows as u64;
        if rows > 0 {
            let kinds = vec![RowKind::InsertAbsent; rows];
            let work = Work::Apply { table: index, batch: page.page.batch, kinds, share: page.share, held: page.held };
            self.work.send(work).await.map_err(applier_gone)?;
        }
        if complete {
            table.phase = Phase::Streaming;
            info!(table = table.name, rows = table.rows_read, "snapshot complete");
            self.work.send(Work::EndLoading { table: index }).await.map_err(applier_gone)?;
            self.cuts.live_dirty = true;
            self.cuts.loaded = !self.tables.iter().any(CapturedTable::is_loading);
        }
        Ok(())
    }

    // ---- Stream ---------------------------------------------------------------------------------------------------

    async fn event(&mut self, next: &StreamEvent) -> Result<(), Error> {
        let raw = &next.event;
        let header = &raw.header;
        let event =
            parse_event(self.info.flavor, header, &raw.body).map_err(|e| self.undecodable(raw, &e.to_string()))?;
        match event {
            Event::Rotate { file, offset } => {
                let at = FilePosition { file, offset };
                if self.stream.reached.as_ref().is_none_or(|reached| at > *reached) {
                    self.stream.reached = Some(at.clone());
                    if !self.stream.in_transaction {
                        self.position.file = Some(at);
                    }
                }
                return Ok(());
            }
            Event::Heartbeat { .. } => {
                self.advance(next.end);
                if !self.stream.in_transaction {
                    self.position.file.clone_from(&self.stream.reached);
                }
                return Ok(());
            }
            _ => {}
        }
        self.advance(next.end);
        if header.timestamp != 0 {
            self.stream.last_event_at_ms = Some(i64::from(header.timestamp) * 1000);
        }
        match event {
            Event::Gtid(gtid) => {
                self.begin(Some(Gtid::Mysql { uuid: gtid.uuid, tag: gtid.tag, number: gtid.gno }));
            }
            Event::AnonymousGtid => self.begin(None),
            Event::MariaGtid { gtid, standalone, prepares, .. } => {
                // Without the flag the server opens a transaction by this event alone.
                self.begin(Some(Gtid::MariaDb { domain: gtid.domain, server: gtid.server, sequence: gtid.seq }));
                self.stream.explicit = !standalone;
                if prepares {
                    self.xa.xa_start();
                }
            }
            Event::Query(query) => self.query(&query.database, &query.sql).await?,
            Event::Xid(_) => self.end_transaction(),
            Event::XaPrepare { one_phase: true, .. } => self.xa_one_phase().await?,
            Event::XaPrepare { xid, .. } => self.xa_prepare(xid.to_string()).await?,
            Event::TableMap(map) => self.table_map(map).await?,
            Event::Rows(rows) => {
                let Some(index) = self.stream.ids.get(&rows.table_id).copied() else { return Ok(()) };
                let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
                let Some((decoder, buffer)) = table.decoding(rows.table_id) else { return Ok(()) };
                let before = buffer.bytes();
                match decoder.decode(&rows, buffer) {
                    Ok(changes) => {
                        table.changes += changes as u64;
                        self.source.changes_total += changes as u64;
                        self.cuts.dirty = true;
                        self.cuts.live_dirty |= !table.is_loading();
                        let after = table.buffer.bytes();
                        self.decoded += after.saturating_sub(before);
                        self.memory.set_decoded(self.decoded);
                        if after >= HAND_OVER_BYTES {
                            self.hand_over_early(index).await?;
                        }
                        if self.decoded > self.decoded_limit {
                            self.hand_over_all(self.decoded_limit).await?;
                        }
                    }
                    Err(error) => {
                        let error = undecodable_rows(&error, &table.mysql);
                        self.stop_table(index, error).await?;
                    }
                }
            }
            Event::Unknown(kind) => {
                return Err(self.undecodable(raw, &format!("event type {kind} is not known and may hold rows")));
            }
            _ => {}
        }
        Ok(())
    }

    fn undecodable(&self, raw: &RawEvent, why: &str) -> Error {
        let at = self.stream.reached.as_ref().map_or_else(|| "the start".to_owned(), ToString::to_string);
        Error::new(
            Code::EventNotUnderstood,
            format!("a binlog event of type {} behind {at} is not understood", raw.header.kind),
        )
        .with_detail(why.to_owned())
    }

    /// Moves the stream's own place behind an event.
    fn advance(&mut self, end: u64) {
        if let Some(reached) = &mut self.stream.reached
            && end > reached.offset
        {
            reached.offset = end;
        }
    }

    async fn table_map(&mut self, map: TableMap) -> Result<(), Error> {
        let Some(index) = self.index_of(&map.database, &map.table) else { return Ok(()) };
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        if !table.is_captured() {
            self.xa.misses(&table.name);
            return Ok(());
        }
        let id = map.table_id;
        match table.decoder(map) {
            Ok(()) => {
                self.stream.ids.insert(id, index);
                Ok(())
            }
            Err(error) => self.stop_table(index, error).await,
        }
    }

    pub(super) fn index_of(&self, database: &str, table: &str) -> Option<TableIndex> {
        let key = self.name_key(database, table);
        self.by_name.get(&key).copied()
    }

    pub(super) fn name_key(&self, database: &str, table: &str) -> (String, String) {
        name_key(&self.info, database, table)
    }

    // ---- Tables that start again or stop ------------------------------------------------------------------------------

    /// The table's content begins anew at this position: read again from the server, or empty after TRUNCATE.
    pub(super) async fn restart_table(
        &mut self,
        index: TableIndex,
        mysql: MysqlTable,
        schema: tidegate_storage::paimon::TableSchema,
        reading: bool,
    ) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        table.cancel_reads();
        table.redefine(mysql, Arc::new(schema.clone()));
        table.rows_read = 0;
        table.phase = if reading { Phase::Pending } else { Phase::Streaming };
        self.cuts.dirty = true;
        self.cuts.live_dirty = true;
        let work = Work::Restart { table: index, schema, loading: reading };
        self.work.send(work).await.map_err(applier_gone)?;
        self.start_reads(index);
        Ok(())
    }

    /// One table stops, the others go on.
    pub(super) async fn stop_table(&mut self, index: TableIndex, error: Error) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index).filter(|t| t.is_captured()) else { return Ok(()) };
        let info = ErrorInfo::new(&error, Some(&table.name), self.clock.now_ms());
        tracing::error!(table = table.name, code = %error.code, %error, "table stopped; the others go on");
        // Its rows of an XA transaction are not held: it may be read again before they are committed.
        self.xa.misses(&table.name);
        table.cancel_reads();
        table.buffer.truncate(0);
        table.transaction_start = 0;
        table.phase = Phase::Error(info.clone());
        table.generation += 1;
        table.changed = true;
        self.stream.ids.retain(|_, table| *table != index);
        self.status.record(info);
        self.cuts.dirty = true;
        self.cuts.live_dirty = true;
        self.work.send(Work::Stop { table: index }).await.map_err(applier_gone)
    }

    // ---- Checkpoints ----------------------------------------------------------------------------------------------

    async fn between_transactions(&mut self) -> Result<(), Error> {
        if !self.held.is_empty() {
            self.apply_pages().await?;
        }
        self.read_undone_again().await?;
        self.begin_resyncs().await?;
        // Between transactions nothing can be cut back any more: better here than within the next one.
        if self.decoded > self.decoded_limit / 2 {
            self.hand_over_all(self.decoded_limit / 2).await?;
        }
        if self.cuts.outstanding.is_none() && self.cut_is_due() {
            self.cut().await?;
        }
        Ok(())
    }

    fn cut_is_due(&self) -> bool {
        if self.cuts.stopping || self.cuts.loaded || !self.cuts.waiting.is_empty() {
            return true;
        }
        let since = self.cuts.last.elapsed();
        if self.cuts.dirty {
            let interval = self.options.checkpoint_interval;
            return since >= if self.cuts.live_dirty { interval } else { interval.max(LOADING_CHECKPOINT) };
        }
        if self.upkeep.load(Ordering::Relaxed) {
            return since >= self.options.checkpoint_interval;
        }
        since >= IDLE_CHECKPOINT && self.position != self.cuts.last_position
    }

    async fn cut(&mut self) -> Result<(), Error> {
        for index in 0..self.tables.len() {
            self.hand_over(index).await?;
        }
        let changed = self.tables.iter_mut().enumerate().filter(|(_, t)| t.changed);
        let tables = changed
            .map(|(index, table)| {
                table.changed = false;
                (index, table.state())
            })
            .collect();
        let (done, outstanding) = oneshot::channel();
        let cut = Cut { position: self.position.clone(), source: self.source.clone(), tables, done };
        self.work.send(Work::Cut(cut)).await.map_err(applier_gone)?;
        self.xa.cut();
        self.cuts.outstanding = Some(outstanding);
        self.cuts.last_sent = self.cuts.stopping;
        self.cuts.answered_by_outstanding.append(&mut self.cuts.waiting);
        self.cuts.dirty = false;
        self.cuts.live_dirty = false;
        self.cuts.loaded = false;
        self.cuts.last = Instant::now();
        self.cuts.last_position = self.position.clone();
        Ok(())
    }

    /// Sends a table's decoded changes to the applier.
    pub(super) async fn hand_over(&mut self, index: TableIndex) -> Result<(), Error> {
        if self.tables.get(index).is_none_or(|table| table.buffer.is_empty()) {
            return Ok(());
        }
        let (batch, kinds) = self.take(index)?;
        self.send(index, batch, kinds).await
    }

    /// All rows of a table's buffer.
    pub(super) fn take(&mut self, index: TableIndex) -> Result<(RecordBatch, Vec<RowKind>), Error> {
        let no_table = || Error::new(Code::Internal, "rows belong to no table");
        let table = self.tables.get_mut(index).ok_or_else(no_table)?;
        self.decoded = self.decoded.saturating_sub(table.buffer.bytes());
        let taken = table.buffer.take().map_err(|e| {
            Error::new(Code::Internal, format!("the changes of table {} do not form a batch", table.name))
                .with_source(e)
        })?;
        table.transaction_start = 0;
        self.memory.set_decoded(self.decoded);
        Ok(taken)
    }

    /// Sends a table's changes to the applier, which hold a share of the memory until they are in files.
    pub(super) async fn send(
        &mut self,
        index: TableIndex,
        batch: RecordBatch,
        kinds: Vec<RowKind>,
    ) -> Result<(), Error> {
        let bytes = batch.get_array_memory_size() + kinds.len();
        let held = self.memory.hold(bytes);
        let permits = permits(self.memory_bytes, bytes);
        let share = match Arc::clone(&self.shares).try_acquire_many_owned(permits) {
            Ok(share) => share,
            Err(_) => {
                // All shares are the applier's. Only a flush gives them back, and below its own limit it would not come.
                self.work.send(Work::Flush).await.map_err(applier_gone)?;
                reserve(&self.shares, self.memory_bytes, bytes).await
            }
        };
        self.work.send(Work::Apply { table: index, batch, kinds, share, held }).await.map_err(applier_gone)
    }

    /// Hands over the changes of all tables if they take more than `limit` together: each table alone may be far from
    /// what it hands over by itself.
    async fn hand_over_all(&mut self, limit: usize) -> Result<(), Error> {
        // What was cut back since it was counted is not there any more.
        self.decoded = self.tables.iter().map(|table| table.buffer.bytes()).sum();
        self.memory.set_decoded(self.decoded);
        if self.decoded <= limit {
            return Ok(());
        }
        for index in 0..self.tables.len() {
            if self.stream.in_transaction && self.tables.get(index).is_some_and(|table| !table.buffer.is_empty()) {
                self.hand_over_early(index).await?;
            } else {
                self.hand_over(index).await?;
            }
        }
        Ok(())
    }

    // ---- Status ---------------------------------------------------------------------------------------------------

    pub(super) fn report(&self) {
        let loading = self.tables.iter().any(|table| table.is_loading() || table.resync);
        let now = self.clock.now_ms();
        self.status.update(|status| {
            status.state = if loading { JobState::Snapshot } else { JobState::Streaming };
            status.tables = self.tables.iter().map(CapturedTable::status).collect();
            status.position = self.position.clone();
            status.last_event_at_ms = self.stream.last_event_at_ms;
            status.changes_total = self.source.changes_total;
            let level = match (&status.server_position, &self.stream.reached) {
                (Some(server), Some(reached)) => reached >= server,
                _ => false,
            };
            let durable = self.cuts.outstanding.is_none() && !self.cuts.dirty;
            status.lag_ms =
                if level && durable { Some(0) } else { self.stream.last_event_at_ms.map(|at| (now - at).max(0)) };
            status.lag_bytes = match (&status.server_position, &self.stream.reached) {
                (Some(server), Some(reached)) if server.file == reached.file => {
                    Some(server.offset.saturating_sub(reached.offset))
                }
                _ => None,
            };
        });
    }
}

/// How a table's name is compared: as it is, or without case where the server folds it.
pub(super) fn name_key(info: &ServerInfo, database: &str, table: &str) -> (String, String) {
    if info.lower_case_table_names == 0 {
        (database.to_owned(), table.to_owned())
    } else {
        (database.to_lowercase(), table.to_lowercase())
    }
}

fn undecodable_rows(error: &DecodeError, table: &MysqlTable) -> Error {
    let code = match error {
        DecodeError::MinimalImage => Code::MinimalImage,
        DecodeError::PartialJson => Code::PartialJson,
        DecodeError::NullKey { .. } => Code::KeyNotStorable,
        DecodeError::Value { .. } => Code::ValueNotStorable,
        DecodeError::Compression(_) => Code::PayloadNotUnpacked,
        _ => Code::EventNotUnderstood,
    };
    Error::new(code, format!("a change of table {}.{} cannot be applied", table.database, table.name))
        .with_detail(error.to_string())
}

/// Waits for the outstanding cut, or for ever when there is none.
async fn finished(outstanding: &mut Option<oneshot::Receiver<u64>>) -> Result<u64, Error> {
    match outstanding {
        Some(receiver) => {
            receiver.await.map_err(|_| Error::new(Code::Internal, "the writing half of the job ended first"))
        }
        None => std::future::pending().await,
    }
}
