//! One session of a job: recover from the newest checkpoint, connect, run until told to stop or something fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hashbrown::HashMap;
use object_store::path::Path;
use tidegate_storage::checkpoint::{
    CheckpointLog, CheckpointState, PreparedSnapshot, PublishOutcome, TableCommit, publish,
};
use tidegate_storage::table::{Retention, TableOptions, TableVersion, TableWriter};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::applier::{Applier, Slot, failed, writer_context};
use super::coordinator::{Coordinator, Cuts, StreamEvent, name_key};
use super::early_xa;
use super::held::HeldRows;
use super::housekeeping::{Housekeeper, Shown};
use super::job::{CaptureEnv, Control, StatusBoard};
use super::memory::{MemoryUse, reserve, shares};
use super::pages::Readers;
use super::state::{SourceState, TablePhase, TableState};
use super::status::ErrorInfo;
use super::table::{CapturedTable, buckets_for, first_schema};
use super::transaction::StreamState;
use super::view::{SourceView, is_superseded};
use crate::error::{Code, Error, Retry};
use crate::mysql::ServerInfo;
use crate::mysql::binlog::stream::EventStream;
use crate::mysql::catalog::MatchedTable;
use crate::mysql::connect::VISIBILITY_TIMEOUT;
use crate::mysql::server::{Asked, SourceConnection, SourceServer};
use crate::mysql::types::MysqlTable;
use crate::source::definition::SourceDefinition;
use crate::source::position::Position;

const HEARTBEAT: std::time::Duration = std::time::Duration::from_secs(1);
/// Attempts to find all tables of a source unchanged, and the pause between two.
const DEFINITION_ATTEMPTS: u32 = 10;
const DEFINITION_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Lists of tables that are put together, and the pause between two.
const LISTS: u32 = 4;
const LIST_PAUSE: std::time::Duration = std::time::Duration::from_millis(23);

/// How long a transaction may take from the log to its visibility while others overtake it, and the pause between two looks.
const GAP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);
const GAP_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// How a session ended when nothing failed.
pub(super) enum Ended {
    Stopped,
    /// Another server holds the source.
    Held,
}

pub(super) struct Session<'a> {
    pub(super) definition: &'a SourceDefinition,
    pub(super) env: &'a CaptureEnv,
    pub(super) server: &'a Arc<dyn SourceServer>,
    pub(super) epoch: u64,
    /// The id to stream with; another one each time the last was taken.
    pub(super) server_id: u32,
    pub(super) requests: &'a mut mpsc::Receiver<Control>,
    pub(super) views: &'a watch::Sender<Arc<SourceView>>,
    pub(super) shown: &'a Arc<Shown>,
    pub(super) status: &'a StatusBoard,
    pub(super) memory: &'a Arc<MemoryUse>,
}

/// What a session starts from.
struct Start {
    position: Position,
    tables: Vec<CapturedTable>,
    slots: Vec<Slot>,
    number: u64,
    committed_at_ms: i64,
    source: SourceState,
}

type Events = mpsc::Receiver<Result<StreamEvent, Error>>;

impl Session<'_> {
    pub(super) async fn run(self) -> Result<Ended, Error> {
        let (name, views, epoch) = (&self.definition.name, self.views, self.epoch);
        let log = CheckpointLog::new(self.env.store.clone(), self.definition.id);
        let mut known = 0;
        let error = match self.run_from(&mut known).await {
            Err(error) if error.retry == Retry::Never => error,
            ended => return ended,
        };
        // What was recovered may be old: a process may have stood still while another one went on, and a checkpoint that was
        // given up for lost can have come since. What is not there then is not lost.
        let known = known.max(views.borrow().checkpoint);
        match log.recover().await {
            Ok(Some(newest)) if newest.number > known && newest.epoch > epoch => {
                let message = format!("another server has gone on with source \"{name}\"");
                let detail =
                    format!("It wrote checkpoint {}; here, behind checkpoint {known}: {error}.", newest.number);
                Err(Error::new(Code::Fenced, message).with_detail(detail))
            }
            Ok(Some(newest)) if newest.number > known => {
                // By an attempt of ours that was given up for lost, or by the owner before, which did not know yet.
                let message = format!("checkpoint {} of source \"{name}\" came late", newest.number);
                let detail = format!("Capture goes on from it. Behind checkpoint {known}: {error}.");
                Err(Error::new(Code::CommitUnknown, message).with_detail(detail).with_retry(Retry::Now))
            }
            _ => Err(error),
        }
    }

    /// Captures from the newest checkpoint on, whose number is told.
    async fn run_from(self, known: &mut u64) -> Result<Ended, Error> {
        let log = CheckpointLog::new(self.env.store.clone(), self.definition.id);
        let recovered = log.recover().await?;
        *known = recovered.as_ref().map_or(0, |state| state.number);
        let resumes = recovered.is_some();
        // What is durable is shown before the source is even reachable.
        let recovered = match recovered {
            Some(state) => Some(self.recover(state).await?),
            None => None,
        };
        if let Some(start) = &recovered {
            self.show(start);
        }
        let (mut conn, info) = self.server.connect().await?;
        let mut start = match recovered {
            Some(start) => {
                if start.tables.iter().any(CapturedTable::is_loading) {
                    // Pages read from now on must see everything the stream will not repeat.
                    conn.wait_visible(&info, &start.position, VISIBILITY_TIMEOUT).await?;
                }
                start
            }
            None => self.begin(conn.as_mut(), &info).await?,
        };
        start.position.server_uuid.clone_from(&info.server_uuid);
        let server_end = conn.log_end(&info).await?;
        self.status.update(|s| {
            s.server_position = Some(server_end);
            // The stream of this session has reached nothing yet.
            s.lag_bytes = None;
            s.last_checkpoint = start.number;
        });
        let poll = AbortOnDropHandle::new(tokio::spawn(poll_server(Arc::clone(self.server), self.status.clone())));
        conn.close().await;
        let housekeeping = AbortOnDropHandle::new(tokio::spawn(self.housekeeper().run()));
        let ended = self.capture(start, info, log, resumes).await;
        drop((poll, housekeeping));
        ended
    }

    fn housekeeper(&self) -> Housekeeper {
        let options = &self.definition.options;
        let retention = Retention {
            time_retained_ms: i64::try_from(options.snapshot_time_retained.as_millis()).unwrap_or(i64::MAX),
            min_snapshots: options.snapshot_num_retained_min,
            max_snapshots: options.snapshot_num_retained_max.unwrap_or(usize::MAX),
            ..Retention::default()
        };
        Housekeeper {
            store: self.env.store.clone(),
            clock: Arc::clone(&self.env.clock),
            source: self.definition.name.clone(),
            source_id: self.definition.id,
            log: CheckpointLog::new(self.env.store.clone(), self.definition.id),
            retention,
            shown: Arc::clone(self.shown),
            views: self.views.subscribe(),
            status: self.status.clone(),
        }
    }

    fn show(&self, start: &Start) {
        let applier_view = SourceView {
            source: self.definition.name.clone(),
            source_id: self.definition.id,
            checkpoint: start.number,
            committed_at_ms: start.committed_at_ms,
            position: start.position.clone(),
            tables: Vec::new(),
        };
        let mut tables: Vec<_> = start.slots.iter().map(|slot| Arc::new(slot.view())).collect();
        tables.sort_by(|a, b| (&a.schema_name, &a.table_name).cmp(&(&b.schema_name, &b.table_name)));
        let view = SourceView { tables, ..applier_view };
        self.shown.note(&view);
        self.views.send_replace(Arc::new(view));
    }

    async fn capture(self, start: Start, info: ServerInfo, log: CheckpointLog, resumes: bool) -> Result<Ended, Error> {
        let options = &self.definition.options;
        let stream = self.open_stream(&info, &start.position).await?;
        // The stream's rows, the snapshot's pages and what the writers buffer share the source's memory.
        let memory_bytes = options.memory_bytes / 4;
        // The writers of the session before are gone.
        self.memory.set_buffered(0);
        let (work, queue) = mpsc::channel(256);
        let (readers, mut reads) =
            Readers::start(self.server, &info, self.definition, options.memory_bytes / 2, self.memory);
        let upkeep = Arc::new(AtomicBool::new(false));
        let applier = Applier {
            store: self.env.store.clone(),
            resources: Arc::clone(&self.env.resources),
            layout: self.env.layout.clone(),
            clock: Arc::clone(&self.env.clock),
            source: self.definition.name.clone(),
            source_id: self.definition.id,
            owner: self.env.owner,
            epoch: self.epoch,
            log,
            slots: start.slots,
            number: start.number,
            position: resumes.then(|| start.position.clone()),
            flush_bytes: options.memory_bytes / 4,
            views: self.views.clone(),
            shown: Arc::clone(self.shown),
            memory: Arc::clone(self.memory),
            upkeep: Arc::clone(&upkeep),
        };
        let mut by_name = HashMap::new();
        for (index, table) in start.tables.iter().enumerate() {
            by_name.insert(name_key(&info, &table.mysql.database, &table.mysql.name), index);
        }
        let mut coordinator = Coordinator {
            options,
            clock: Arc::clone(&self.env.clock),
            status: self.status,
            tables: start.tables,
            by_name,
            work,
            readers,
            memory: Arc::clone(self.memory),
            shares: shares(memory_bytes),
            memory_bytes,
            decoded_limit: options.memory_bytes / 8,
            decoded: 0,
            // With GTIDs the stream itself says where it begins, perhaps in another server's files.
            stream: StreamState::at(start.position.file.clone().filter(|_| start.position.gtid.is_none())),
            xa: HeldRows::new(self.env.store.clone(), self.definition.id, self.epoch, start.number),
            cuts: Cuts::new(&start.position, !resumes),
            position: start.position,
            source: start.source,
            held: Default::default(),
            resyncs: Default::default(),
            upkeep,
            info,
        };
        let mut events = pump(stream, options.memory_bytes / 8);
        let mut applying = AbortOnDropHandle::new(tokio::spawn(applier.run(queue)));
        let outcome = tokio::select! {
            biased;
            outcome = coordinator.run(&mut events.0, &mut reads, self.requests) => outcome.map(|()| Ended::Stopped),
            ended = &mut applying => {
                return match ended {
                    Ok(Err(error)) => Err(error),
                    Ok(Ok(())) => Err(Error::new(Code::Internal, "the writing half of the job ended first")),
                    Err(panic) => Err(Error::new(Code::Internal, "the writing half of the job broke off").with_source(panic)),
                };
            }
        };
        drop(coordinator);
        match outcome {
            // If both halves failed, the applier's error is the cause.
            Err(error) => match tokio::time::timeout(std::time::Duration::from_secs(1), applying).await {
                Ok(Ok(Err(cause))) => Err(cause),
                _ => Err(error),
            },
            ended => ended,
        }
    }

    async fn open_stream(&self, info: &ServerInfo, position: &Position) -> Result<EventStream, Error> {
        let options = &self.definition.options;
        let server_id = self.server_id;
        // The stream's own place moves with heartbeats when nothing flows; snapshot pages wait for it.
        let heartbeat = options.heartbeat_interval.min(HEARTBEAT);
        self.server.open_stream(info, position, server_id, heartbeat).await
    }

    /// The very first start.
    async fn begin(&self, conn: &mut dyn SourceConnection, info: &ServerInfo) -> Result<Start, Error> {
        let (position, matched) = self.definitions_at_a_position(conn, info).await?;
        early_xa::wait(self.server.as_ref(), conn, info, self.server_id, &position).await?;
        let context = writer_context(&self.env.store, &self.env.clock, &self.env.resources, self.definition.id);
        let mut start = Start {
            position,
            tables: Vec::new(),
            slots: Vec::new(),
            number: 0,
            committed_at_ms: 0,
            source: SourceState::default(),
        };
        for table in matched {
            let buckets = self.definition.options.buckets.unwrap_or_else(|| buckets_for(table.estimated_rows)).max(1);
            let schema = first_schema(&table.mysql, self.definition.options.changelog)?;
            let path = table_path(&table.schema_name, &table.table_name);
            let name = format!("{}.{}", table.schema_name, table.table_name);
            let options = TableOptions { buckets, ..self.env.layout.clone() };
            let mut writer = TableWriter::create(context.clone(), Path::from(path.as_str()), schema, options)
                .await
                .map_err(|e| failed(&name, e))?;
            writer.begin_loading();
            let schema = Arc::clone(writer.schema());
            let captured = CapturedTable::new(name.clone(), table.mysql, schema, buckets, table.estimated_rows);
            start.slots.push(Slot {
                name,
                path,
                state: captured.state(),
                writer: Some(writer),
                committed: None,
                version: None,
                frozen: None,
                shares: Vec::new(),
                changed: true,
            });
            start.tables.push(captured);
        }
        info!(source = self.definition.name, position = %start.position, tables = start.tables.len(), "capture begins");
        Ok(start)
    }

    /// A position to start from, and the tables with the definitions that they have right there: a schema change that
    /// the stream shows from the position on is in none of them, one before it is in all.
    async fn definitions_at_a_position(
        &self,
        conn: &mut dyn SourceConnection,
        info: &ServerInfo,
    ) -> Result<(Position, Vec<Matched>), Error> {
        for _ in 0..DEFINITION_ATTEMPTS {
            let expected = self.matching_names(conn, info).await?;
            let lock = match self.server.lock_definitions(info, &Vec::from_iter(expected.iter().cloned())).await? {
                Asked::Locked(lock) => lock,
                Asked::Missed(error) => {
                    info!(source = self.definition.name, %error, detail = error.detail, "a table is being changed; the start waits");
                    tokio::time::sleep(DEFINITION_PAUSE).await;
                    continue;
                }
            };
            let loaded = async {
                let position = behind_definitions(conn, info).await?;
                let mut tables = conn.list_tables(info, self.definition).await?;
                let complete = tables.iter().map(name_of).collect::<BTreeSet<_>>() == expected;
                tables.retain(|table| table.left_out.is_none());
                let captured = tables.len();
                let matched = self.load(conn, info, tables).await?;
                let complete = complete && matched.len() == captured;
                Ok::<_, Error>((position, matched, complete))
            };
            let loaded = loaded.await;
            lock.release().await;
            let (position, matched, complete) = loaded?;
            // A table that came or went between the lists was not locked.
            if !complete {
                tokio::time::sleep(DEFINITION_PAUSE).await;
                continue;
            }
            if matched.is_empty() {
                return Err(Error::new(
                    Code::NoTableMatched,
                    format!("no table of source \"{}\" can be captured", self.definition.name),
                ));
            }
            return Ok((position, matched));
        }
        Err(Error::new(Code::TableChanged, "the tables' definitions change all the time")
            .with_detail(format!(
                "{DEFINITION_ATTEMPTS} attempts to read them at one position failed. Nothing was read yet."
            ))
            .with_hint(
                "Capture tries again by itself. Look for an ALTER TABLE that runs or waits on the server for long.",
            )
            .with_retry(Retry::Backoff))
    }

    /// The names of all tables that match, captured or left out: what a table lacks is known only once it stands still.
    /// MariaDB leaves out of a list what is just being renamed by an ALTER TABLE, so that several lists are taken.
    async fn matching_names(
        &self,
        conn: &mut dyn SourceConnection,
        info: &ServerInfo,
    ) -> Result<BTreeSet<(String, String)>, Error> {
        let mut names = BTreeSet::new();
        for list in 0..LISTS {
            if list > 0 {
                tokio::time::sleep(LIST_PAUSE).await;
            }
            names.extend(conn.list_tables(info, self.definition).await?.iter().map(name_of));
        }
        Ok(names)
    }

    /// The definitions of tables; those that do not exist any more are missing.
    async fn load(
        &self,
        conn: &mut dyn SourceConnection,
        info: &ServerInfo,
        tables: Vec<MatchedTable>,
    ) -> Result<Vec<Matched>, Error> {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for table in &tables {
            names.entry(&table.database).or_default().push(&table.name);
        }
        let mut definitions = HashMap::new();
        for (database, names) in names {
            for table in conn.load_tables(info, database, &names).await? {
                definitions.insert((table.database.clone(), table.name.clone()), table);
            }
        }
        let matched = tables.into_iter().filter_map(|table| {
            let mut mysql = definitions.remove(&(table.database, table.name))?;
            if let Some(key) = table.key {
                mysql.primary_key = key;
            }
            Some(Matched {
                schema_name: table.target_schema,
                table_name: table.target_table,
                estimated_rows: table.estimated_rows,
                mysql,
            })
        });
        Ok(matched.collect())
    }

    /// Takes everything up where the newest checkpoint left it.
    async fn recover(&self, state: CheckpointState) -> Result<Start, Error> {
        let number = state.number;
        let corrupt = |what: &str, e: serde_json::Error| super::view::corrupt(number, what, e);
        let position = serde_json::from_value(state.position).map_err(|e| corrupt("position", e))?;
        let source: SourceState = serde_json::from_value(state.capture).map_err(|e| corrupt("source", e))?;
        let mut start = Start {
            position,
            tables: Vec::new(),
            slots: Vec::new(),
            number: state.number,
            committed_at_ms: state.committed_at_ms,
            source,
        };
        for (name, commit) in state.tables {
            let table: TableState = serde_json::from_value(commit.capture.clone()).map_err(|e| corrupt(&name, e))?;
            self.recover_table(&mut start, name, commit, table).await?;
        }
        info!(
            source = self.definition.name,
            checkpoint = start.number,
            position = %start.position,
            tables = start.tables.len(),
            "recovered"
        );
        Ok(start)
    }

    async fn recover_table(
        &self,
        start: &mut Start,
        name: String,
        commit: TableCommit,
        mut table: TableState,
    ) -> Result<(), Error> {
        let store = &self.env.store;
        let path = Path::from(commit.path.as_str());
        let live = table.phase == TablePhase::Streaming;
        if live && let Some(snapshot) = &commit.snapshot {
            // The last server may have ended between the checkpoint and this.
            let published = publish(store, &path, snapshot).await.and_then(PublishOutcome::require);
            published.map_err(|e| failed(&name, e))?;
        }
        let mut slot = Slot {
            name: name.clone(),
            path: commit.path.clone(),
            writer: None,
            state: table.clone(),
            committed: commit.snapshot.clone(),
            version: None,
            frozen: None,
            shares: Vec::new(),
            changed: false,
        };
        let opened = self.open_table(&mut slot, &path, &table, live).await;
        let schema = match opened {
            Ok(schema) => schema,
            Err(error)
                if error.code == Code::StoreCorrupt
                    && !is_superseded(store, self.definition.id, self.epoch, start.number).await? =>
            {
                // The fault is this table's: the others go on.
                warn!(table = name, %error, "the table cannot be opened");
                let info = ErrorInfo::new(&error, Some(&name), self.env.clock.now_ms());
                self.status.record(info.clone());
                table.phase = TablePhase::Error { error: info };
                slot.state = table.clone();
                slot.writer = None;
                if let (None, Some(snapshot), Some(version)) = (&slot.frozen, &slot.committed, &slot.version) {
                    slot.frozen = live.then(|| (snapshot.clone(), Arc::clone(version)));
                }
                slot.changed = true;
                Arc::new(first_schema(&table.mysql, self.definition.options.changelog)?)
            }
            Err(error) => return Err(error),
        };
        start.tables.push(CapturedTable::resume(name, table, schema));
        start.slots.push(slot);
        Ok(())
    }

    /// Opens a table's writer and versions.
    async fn open_table(
        &self,
        slot: &mut Slot,
        path: &Path,
        table: &TableState,
        live: bool,
    ) -> Result<Arc<tidegate_storage::paimon::TableSchema>, Error> {
        let store = &self.env.store;
        let load = async |snapshot: &PreparedSnapshot| {
            let version = TableVersion::load(store, path, &snapshot.json).await.map_err(|e| failed(&slot.name, e))?;
            Ok::<_, Error>(Arc::new(version))
        };
        if let Some(frozen) = &table.frozen {
            slot.frozen = Some((frozen.clone(), load(frozen).await?));
        }
        if let TablePhase::Error { .. } = table.phase {
            return Ok(Arc::new(first_schema(&table.mysql, self.definition.options.changelog)?));
        }
        let context = writer_context(store, &self.env.clock, &self.env.resources, self.definition.id);
        let options = TableOptions { buckets: table.buckets.max(1), ..self.env.layout.clone() };
        let mut writer = match &slot.committed {
            Some(snapshot) => {
                slot.version = Some(load(snapshot).await?);
                TableWriter::open(context, path.clone(), &snapshot.json, live, options).await
            }
            None => {
                TableWriter::create(
                    context,
                    path.clone(),
                    first_schema(&table.mysql, self.definition.options.changelog)?,
                    options,
                )
                .await
            }
        }
        .map_err(|e| failed(&slot.name, e))?;
        if !live {
            writer.begin_loading();
        }
        let schema = Arc::clone(writer.schema());
        slot.writer = Some(writer);
        Ok(schema)
    }
}

/// A position behind every schema change that has been carried out. The tables' definitions stand still, so that none comes
/// behind it.
///
/// Transactions may become visible in another order than the log's, and then a schema change may be visible behind one that
/// is not: the stream would repeat it from the prefix on. The prefix soon has it. If it does not, there is nothing on its way:
/// the server lacks the transaction for good, and what it has is the position.
async fn behind_definitions(conn: &mut dyn SourceConnection, info: &ServerInfo) -> Result<Position, Error> {
    let mut visible = conn.start_position(info).await?;
    let Some(carried_out) = visible.beyond.clone() else { return Ok(visible.prefix) };
    let deadline = tokio::time::Instant::now() + GAP_PATIENCE;
    while !visible.prefix.gtid.as_ref().is_some_and(|prefix| prefix.contains(&carried_out)) {
        if tokio::time::Instant::now() > deadline {
            info!(position = %visible.prefix, executed = %carried_out, "the server lacks transactions within its set");
            return Ok(Position { gtid: visible.beyond.or(visible.prefix.gtid), ..visible.prefix });
        }
        tokio::time::sleep(GAP_PAUSE).await;
        visible = conn.start_position(info).await?;
    }
    Ok(visible.prefix)
}

/// A table's database and its name.
fn name_of(table: &MatchedTable) -> (String, String) {
    (table.database.clone(), table.name.clone())
}

struct Matched {
    schema_name: String,
    table_name: String,
    estimated_rows: u64,
    mysql: MysqlTable,
}

/// Where a mirrored table lies in the store: Paimon's layout of a warehouse.
fn table_path(schema: &str, table: &str) -> String {
    format!("warehouse/{schema}.db/{table}")
}

/// Reads the stream on a task of its own, so that the next events arrive while the last are decoded.
fn pump(mut stream: EventStream, budget: usize) -> (Events, AbortOnDropHandle<()>) {
    let (sender, events) = mpsc::channel(1024);
    let memory = shares(budget);
    let task = tokio::spawn(async move {
        loop {
            let next = stream.next().await;
            let failed = next.is_err();
            let item = match next {
                Ok(event) => {
                    let memory = reserve(&memory, budget, event.body.len() + 64).await;
                    Ok(StreamEvent { end: stream.offset(), event, _memory: memory })
                }
                Err(error) => Err(error),
            };
            if sender.send(item).await.is_err() || failed {
                return;
            }
        }
    });
    (events, AbortOnDropHandle::new(task))
}

/// Asks the server where its log ends, so that a lag is seen even when nothing flows.
async fn poll_server(server: Arc<dyn SourceServer>, status: StatusBoard) {
    const EVERY: std::time::Duration = std::time::Duration::from_secs(2);
    loop {
        if let Ok((mut conn, info)) = server.connect().await {
            while let Ok(end) = conn.log_end(&info).await {
                status.update(|s| {
                    // The distance was measured to another end; the next report measures it anew.
                    if s.server_position.as_ref() != Some(&end) {
                        s.lag_bytes = None;
                    }
                    s.server_position = Some(end);
                });
                tokio::time::sleep(EVERY).await;
            }
        }
        // The stream's own connection reports what is wrong with the server; here only the lag is unknown meanwhile.
        tokio::time::sleep(EVERY).await;
    }
}
