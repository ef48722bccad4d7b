//! A source of several tables, written by a script as capture writes its own, and a model of what must be there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::ObjectStore;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tidegate_storage::checkpoint::{
    CheckpointLog, CheckpointRecord, CommitOutcome, PreparedSnapshot, TableCommit, publish, record,
};
use tidegate_storage::clock::ManualClock;
use tidegate_storage::paimon::manifest::{decode_index_manifest, decode_manifest, decode_manifest_list};
use tidegate_storage::paimon::{
    CHANGELOG_INPUT, CHANGELOG_PRODUCER, ColumnPosition, DataType, ManifestEntry, NewField, SchemaChange, Snapshot,
    TablePaths, TableSchema,
};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{
    MergeState, Prepared, Retention, RowKind, TableOptions, TableVersion, TableWriter, WriterContext, expire_snapshots,
    remove_orphans, verify_table,
};
use tidegate_storage::{Error, Result};
use uuid::Uuid;

pub(crate) const SOURCE: Uuid = Uuid::from_u128(7);
/// Objects are as old as they really are: by then every one of them is old.
const FAR_FUTURE_MS: i64 = 4_000_000_000_000;
/// Every so many records one is full.
const FULL_EVERY: u64 = 3;

/// Number, text and note of a row.
pub(crate) type Row = (Option<i32>, String, Option<String>);
pub(crate) type Rows = BTreeMap<i64, Row>;

/// A table as it must be at a checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) rows: Rows,
    visible: bool,
    has_note: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) options: TableOptions,
    /// Whether pages of the table are still coming when it is created.
    pub(crate) loading: bool,
}

impl Spec {
    pub(crate) fn path(&self) -> Path {
        Path::from("warehouse/shop.db").join(self.name)
    }
}

/// One step of the script. Tables are given by their index.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Apply(usize, Vec<(i64, i32, RowKind)>),
    Flush(usize),
    AddNote(usize),
    EndLoading(usize),
    /// Runs all merges that are due.
    Compact(usize),
    /// Prepares a checkpoint that is never committed, and goes back to the last one.
    GiveUp,
    Checkpoint,
    /// Old snapshots go, but for so many, and old records.
    Expire(usize),
    RemoveOrphans,
}

/// What a process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Recover,
    Flush,
    Evolve,
    /// Snapshots are prepared; merges begin and go on beside that.
    Prepare,
    Merge,
    Commit,
    Publish,
    Expire,
    Orphans,
}

/// What is written, and what must be there after each checkpoint.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) tables: Vec<Spec>,
    pub(crate) steps: Vec<Step>,
    /// The tables at each checkpoint; there is nothing at number 0.
    pub(crate) models: Vec<Vec<Model>>,
}

impl Script {
    /// `rounds` checkpoints and one more, with two times `changes` changes to each table before each of them.
    pub(crate) fn new(seed: u64, tables: Vec<Spec>, rounds: u64, changes: usize) -> Self {
        let mut steps = Vec::new();
        let mut random = StdRng::seed_from_u64(seed);
        let keys = 6 * changes as i64;
        let mut version = 0;
        for round in 1..=rounds {
            for (table, spec) in tables.iter().enumerate() {
                // A page in each of the first rounds, one after the other.
                let pages = rounds.min(5) / 2;
                let loading = spec.loading && round <= pages;
                let page = |round: u64| round as i64 * keys / pages as i64;
                if loading {
                    let page = page(round - 1)..page(round);
                    steps.push(Step::Apply(table, page.map(|key| (key, 0, RowKind::InsertAbsent)).collect()));
                }
                // What a page has yet to bring stays as it is: a process that recovers would not know that it changed.
                let known = if loading { page(round) } else { keys };
                for _ in 0..2 {
                    let mut change = || {
                        version += 1;
                        let kind = if random.random_ratio(1, 4) { RowKind::Delete } else { RowKind::Upsert };
                        (random.random_range(0..known), version, kind)
                    };
                    let changes = (0..changes).map(|_| change()).collect();
                    steps.extend([Step::Apply(table, changes), Step::Flush(table)]);
                }
                if spec.loading && round == pages + 1 {
                    steps.push(Step::EndLoading(table));
                }
                if table == 0 && round == 2 {
                    steps.push(Step::AddNote(table));
                }
            }
            if round % 5 == 3 {
                steps.push(Step::GiveUp);
            }
            steps.push(Step::Checkpoint);
            if round % 6 == 4 {
                steps.push(Step::Expire(2));
            }
        }
        let models = models(&tables, &steps);
        let mut script = Self { seed, tables, steps, models };
        script.end(-1);
        script
    }

    /// A last change of each table, all merges, a checkpoint, and everything old removed.
    fn end(&mut self, version: i32) {
        let last = self.models.last().expect("there is a first model");
        let visible: Vec<bool> = last.iter().map(|model| model.visible).collect();
        for (table, visible) in visible.into_iter().enumerate() {
            if !visible {
                self.steps.push(Step::EndLoading(table));
            }
            let changes = vec![(2, version, RowKind::Upsert), (3, version, RowKind::Delete)];
            self.steps.extend([Step::Apply(table, changes), Step::Compact(table)]);
        }
        self.steps.extend([Step::Checkpoint, Step::Expire(1), Step::RemoveOrphans]);
        self.models = models(&self.tables, &self.steps);
    }

    /// The script for a process that begins at checkpoint `number`: to the end and further if `whole`, or just one
    /// checkpoint further.
    pub(crate) fn continued(&self, number: u64, whole: bool) -> Self {
        let mut script = Self {
            seed: self.seed,
            tables: self.tables.clone(),
            steps: self.steps.clone(),
            models: self.models.clone(),
        };
        if !whole {
            // The log is read again from there, so a change of the schema that was seen before is seen again.
            let next = self.after(number)..self.after((number + 1).min(self.models.len() as u64 - 1));
            let evolve = self.steps.get(next).into_iter().flatten().find(|step| matches!(step, Step::AddNote(_)));
            script.steps.truncate(self.after(number));
            script.models.truncate(number as usize + 1);
            script.steps.extend(evolve.cloned());
        }
        script.end(-2);
        script
    }

    /// The step behind checkpoint `number`.
    fn after(&self, number: u64) -> usize {
        let checkpoints = self.steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::Checkpoint));
        let before = checkpoints.map(|(index, _)| index + 1).nth((number as usize).wrapping_sub(1));
        before.unwrap_or(0)
    }
}

fn row(key: i64, version: i32, has_note: bool) -> Row {
    let number = (version % 5 != 0).then(|| key as i32 * 100 + version);
    (number, format!("row {key} version {version}"), has_note.then(|| format!("note {version}")))
}

fn models(tables: &[Spec], steps: &[Step]) -> Vec<Vec<Model>> {
    let first = |spec: &Spec| Model { visible: !spec.loading, ..Model::default() };
    let mut now: Vec<Model> = tables.iter().map(first).collect();
    let mut all = vec![now.clone()];
    // On a GiveUp, what was applied since the last checkpoint is gone; capture reads it from the log again.
    let mut since: Vec<&Step> = Vec::new();
    let apply = |now: &mut Vec<Model>, step: &Step| match step {
        Step::Apply(table, changes) => {
            let model = &mut now[*table];
            for (key, version, kind) in changes {
                let row = row(*key, *version, model.has_note);
                match kind {
                    RowKind::Upsert => drop(model.rows.insert(*key, row)),
                    RowKind::Delete => drop(model.rows.remove(key)),
                    RowKind::InsertAbsent => drop(model.rows.entry(*key).or_insert(row)),
                    RowKind::UpdateBefore => {}
                }
            }
        }
        Step::AddNote(table) => now[*table].has_note = true,
        Step::EndLoading(table) => now[*table].visible = true,
        _ => {}
    };
    for step in steps {
        match step {
            Step::Checkpoint => {
                all.push(now.clone());
                since.clear();
            }
            step => {
                apply(&mut now, step);
                since.push(step);
            }
        }
    }
    all
}

fn schema() -> TableSchema {
    let field =
        |name: &str, data_type, nullable| NewField { name: name.to_owned(), data_type, nullable, description: None };
    let fields = vec![
        field("id", DataType::BigInt, false),
        field("number", DataType::Int, true),
        field("text", DataType::String, false),
    ];
    let options = BTreeMap::from([(CHANGELOG_PRODUCER.to_owned(), CHANGELOG_INPUT.to_owned())]);
    TableSchema::new(fields, vec!["id".to_owned()], options, None, 0).unwrap()
}

fn batch(schema: &TableSchema, changes: &[(i64, i32, RowKind)]) -> RecordBatch {
    let has_note = schema.field("note").is_some();
    let rows: Vec<Row> = changes.iter().map(|(key, version, _)| row(*key, *version, has_note)).collect();
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(changes.iter().map(|(key, ..)| *key))),
        Arc::new(rows.iter().map(|row| row.0).collect::<Int32Array>()),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1.as_str()))),
    ];
    if has_note {
        columns.push(Arc::new(rows.iter().map(|row| row.2.as_deref()).collect::<StringArray>()));
    }
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

/// A table in the hands of a process.
struct Slot {
    writer: TableWriter,
    committed: Option<PreparedSnapshot>,
    visible: bool,
    changed: bool,
}

/// A process that captures the source: it recovers, and then follows the script.
pub(crate) struct Process<'a> {
    script: &'a Script,
    store: StoreRef,
    log: CheckpointLog,
    slots: Vec<Slot>,
    progress: &'a Progress,
}

/// How far a process came; it outlives the process.
#[derive(Default)]
pub(crate) struct Progress {
    /// The checkpoint that it knows to be committed.
    pub(crate) acknowledged: AtomicU64,
    /// The last checkpoint that it began to commit.
    pub(crate) attempted: AtomicU64,
    /// Merges that ended beside the writers.
    pub(crate) merges: AtomicU64,
    /// Told whenever the process begins something else.
    pub(crate) on_phase: Option<Box<dyn Fn(Phase) + Send + Sync>>,
}

impl Progress {
    fn phase(&self, phase: Phase) {
        if let Some(on_phase) = &self.on_phase {
            on_phase(phase);
        }
    }
}

impl<'a> Process<'a> {
    /// Recovers from the newest checkpoint, as a session of capture does.
    pub(crate) async fn start(script: &'a Script, store: &StoreRef, progress: &'a Progress) -> Result<Self> {
        let (slots, log) = Self::recover(script, store, progress).await?;
        Ok(Self { script, store: Arc::clone(store), log, slots, progress })
    }

    fn number(&self) -> u64 {
        self.progress.acknowledged.load(Ordering::SeqCst)
    }

    async fn recover(script: &Script, store: &StoreRef, progress: &Progress) -> Result<(Vec<Slot>, CheckpointLog)> {
        progress.phase(Phase::Recover);
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let context = WriterContext {
            store: Arc::clone(store),
            clock,
            commit_user: "tidegate".to_owned(),
            resources: Arc::default(),
        };
        let log = CheckpointLog::new(Arc::clone(store), SOURCE);
        let state = log.recover().await?;
        progress.acknowledged.store(state.as_ref().map_or(0, |state| state.number), Ordering::SeqCst);
        let mut slots = Vec::new();
        for spec in &script.tables {
            let (path, options) = (spec.path(), spec.options.clone());
            let commit = state.as_ref().map(|state| state.tables[spec.name].clone());
            let visible = commit.as_ref().map_or(!spec.loading, |commit| commit.visible);
            let committed = commit.and_then(|commit| commit.snapshot);
            let mut writer = match &committed {
                Some(snapshot) => {
                    if visible {
                        publish(store, &path, snapshot).await?.require()?;
                    }
                    TableVersion::load(store, &path, &snapshot.json).await?;
                    TableWriter::open(context.clone(), path, &snapshot.json, visible, options).await?
                }
                None => TableWriter::create(context.clone(), path, schema(), options).await?,
            };
            if !visible {
                writer.begin_loading();
            }
            slots.push(Slot { writer, committed, visible, changed: false });
        }
        Ok((slots, log))
    }

    /// Follows the script from the checkpoint reached to its end.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let script = self.script;
        self.follow(script.after(self.number())..script.steps.len()).await
    }

    async fn follow(&mut self, steps: Range<usize>) -> Result<()> {
        let script = self.script;
        for index in steps {
            match &script.steps[index] {
                Step::GiveUp => {
                    self.flush().await?;
                    self.prepare().await?;
                    // Whether a merge that was begun still writes something must not be left to chance.
                    self.slots.iter_mut().for_each(|slot| slot.writer.committed(false));
                    self.await_merges().await;
                    (self.slots, self.log) = Self::recover(script, &self.store, self.progress).await?;
                    Box::pin(self.follow(script.after(self.number())..index)).await?;
                }
                step => self.step(step).await?,
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Apply(table, changes) => {
                let writer = &mut self.slots[*table].writer;
                let batch = batch(writer.schema(), changes);
                writer.apply(batch, changes.iter().map(|(_, _, kind)| *kind).collect())
            }
            Step::Flush(table) => {
                self.progress.phase(Phase::Flush);
                self.slots[*table].writer.flush().await
            }
            Step::AddNote(table) => {
                self.progress.phase(Phase::Evolve);
                let slot = &mut self.slots[*table];
                let data_type = DataType::String;
                let note = NewField { name: "note".to_owned(), data_type, nullable: true, description: None };
                let add =
                    SchemaChange::AddColumn { field: note, position: ColumnPosition::Last, initial_default: None };
                let evolved = slot.writer.schema().evolve(&[add], 0)?;
                slot.writer.evolve(evolved).await
            }
            Step::EndLoading(table) => {
                self.slots[*table].writer.end_loading();
                self.slots[*table].visible = true;
                self.slots[*table].changed = true;
                Ok(())
            }
            Step::Compact(table) => {
                self.flush().await?;
                self.progress.phase(Phase::Merge);
                self.slots[*table].writer.compact().await
            }
            Step::GiveUp => panic!("a step that consists of others"),
            Step::Checkpoint => self.checkpoint().await,
            Step::Expire(keep) => {
                self.progress.phase(Phase::Expire);
                for (spec, slot) in self.script.tables.iter().zip(&self.slots) {
                    if slot.visible {
                        expire_snapshots(&self.store, &spec.path(), FAR_FUTURE_MS, &retention(*keep), None).await?;
                    }
                }
                self.log.expire(FAR_FUTURE_MS).await.map(drop)
            }
            Step::RemoveOrphans => {
                self.progress.phase(Phase::Orphans);
                let state = self.log.recover().await?.expect("there is a checkpoint");
                for spec in &self.script.tables {
                    let path = spec.path();
                    let prepared = state.prepared_snapshots(path.as_ref());
                    remove_orphans(&self.store, &path, FAR_FUTURE_MS, &retention(1), &prepared).await?;
                }
                Ok(())
            }
        }
    }

    async fn flush(&mut self) -> Result<()> {
        self.progress.phase(Phase::Flush);
        for slot in &mut self.slots {
            slot.writer.flush().await?;
        }
        Ok(())
    }

    async fn prepare(&mut self) -> Result<Vec<Option<Prepared>>> {
        self.progress.phase(Phase::Prepare);
        let number = self.number() + 1;
        let work = self.slots.iter_mut().map(async |slot| {
            if slot.writer.is_dirty() || (slot.visible && slot.committed.is_none()) {
                return Ok::<_, Error>(Some(slot.writer.prepare(number, BTreeMap::new()).await?));
            }
            Ok(None)
        });
        try_join_all(work).await
    }

    /// One checkpoint, as capture commits it.
    async fn checkpoint(&mut self) -> Result<()> {
        self.flush().await?;
        let number = self.number() + 1;
        let prepared = self.prepare().await?;
        let full = number % FULL_EVERY == 1;
        let mut tables = Vec::new();
        for ((slot, spec), prepared) in self.slots.iter_mut().zip(&self.script.tables).zip(&prepared) {
            slot.changed |= prepared.is_some();
            if let Some(prepared) = prepared {
                slot.committed = Some(prepared.snapshot.clone());
            }
            if full || slot.changed {
                tables.push(TableCommit {
                    name: spec.name.to_owned(),
                    path: spec.path().to_string(),
                    visible: slot.visible,
                    snapshot: slot.committed.clone(),
                    capture: Value::Null,
                });
            }
        }
        let record = CheckpointRecord {
            format: record::FORMAT,
            source: SOURCE,
            number,
            epoch: 1,
            owner: Uuid::from_u128(1),
            committed_at_ms: 1_700_000_000_000 + number as i64,
            full,
            position: json!(number),
            capture: Value::Null,
            tables,
            dropped: vec![],
        };
        self.progress.phase(Phase::Commit);
        self.progress.attempted.store(number, Ordering::SeqCst);
        match self.log.commit(&record).await? {
            CommitOutcome::Committed => {}
            CommitOutcome::Unknown(error) => return Err(error),
            CommitOutcome::Conflicted(other) => panic!("nobody else writes to the source: {other:?}"),
        }
        self.progress.acknowledged.store(number, Ordering::SeqCst);
        self.progress.phase(Phase::Publish);
        let visible = self.slots.iter().zip(&self.script.tables).zip(&prepared).filter(|((slot, _), _)| slot.visible);
        let published = visible.filter_map(|((_, spec), prepared)| {
            let snapshot = &prepared.as_ref()?.snapshot;
            Some(async { publish(&self.store, &spec.path(), snapshot).await?.require() })
        });
        try_join_all(published.collect::<Vec<_>>()).await?;
        for (slot, prepared) in self.slots.iter_mut().zip(&prepared) {
            slot.changed = false;
            if prepared.is_some() {
                slot.writer.committed(slot.visible);
            }
        }
        self.await_merges().await;
        Ok(())
    }

    /// Waits for the merges that were begun when the snapshots were prepared. Their outputs are not taken over yet.
    async fn await_merges(&self) {
        self.progress.phase(Phase::Merge);
        for slot in &self.slots {
            let in_state = |states: &[MergeState]| {
                let merges = slot.writer.merges().merges();
                merges.iter().filter(|merge| merge.ended_ms.is_none() && states.contains(&merge.state)).count()
            };
            let ended = async {
                while in_state(&[MergeState::Waiting, MergeState::Running]) > 0 {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                // What is left of a merge after it has said so.
                tokio::time::sleep(Duration::from_millis(2)).await;
            };
            tokio::time::timeout(Duration::from_secs(60), ended).await.expect("a merge that was begun ends");
            self.progress.merges.fetch_add(in_state(&[MergeState::Written]) as u64, Ordering::SeqCst);
        }
    }
}

fn retention(snapshots: usize) -> Retention {
    Retention { time_retained_ms: 0, min_snapshots: snapshots, orphan_age_ms: 0, ..Retention::default() }
}

/// What a store holds, looked at by somebody who only reads.
pub(crate) struct Observer<'a> {
    script: &'a Script,
    store: StoreRef,
    /// Rows of the data files and of the snapshots read so far. A name is never used twice.
    files: HashMap<Path, Vec<(i64, Row)>>,
    snapshots: HashMap<String, Rows>,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(script: &'a Script, store: &StoreRef) -> Self {
        Self { script, store: Arc::clone(store), files: HashMap::new(), snapshots: HashMap::new() }
    }

    /// Checks that all that is found is whole, and one state of the source; says which checkpoint that is.
    pub(crate) async fn check(&mut self) -> u64 {
        let log = CheckpointLog::new(Arc::clone(&self.store), SOURCE);
        let state = log.recover().await.unwrap();
        let number = state.as_ref().map_or(0, |state| state.number);
        assert_eq!(log.verify().await.unwrap().damages, []);
        for (index, spec) in self.script.tables.iter().enumerate() {
            let (path, model) = (spec.path(), &self.script.models[number as usize][index]);
            let commit = state.as_ref().map(|state| &state.tables[spec.name]);
            let prepared: Vec<&str> = state.as_ref().map_or(vec![], |state| state.prepared_snapshots(path.as_ref()));
            if let Some(commit) = commit {
                assert_eq!(commit.visible, model.visible, "{} at checkpoint {number}", spec.name);
                let snapshot = commit.snapshot.as_ref().unwrap();
                let rows = self.rows(&path, &snapshot.json).await;
                assert_eq!(rows, model.rows, "{} at checkpoint {number}", spec.name);
            }
            let published = self.published(&path).await;
            for json in published.values() {
                let snapshot = Snapshot::from_json("published", json.as_bytes()).unwrap();
                let of = &self.script.models[snapshot.commit_identifier as usize][index];
                assert!(snapshot.commit_identifier as u64 <= number, "a snapshot is published before it is committed");
                assert_eq!(self.rows(&path, json).await, of.rows, "{} in snapshot {}", spec.name, snapshot.id);
            }
            self.check_hints(&path, &published).await;
            let verified = verify_table(&self.store, &path, &prepared).await.unwrap();
            assert_eq!(verified.damages, [], "{} at checkpoint {number}", spec.name);
        }
        number
    }

    /// Other engines begin with the hints: what they name must be there.
    async fn check_hints(&self, path: &Path, published: &BTreeMap<u64, String>) {
        let paths = TablePaths::new(path.clone());
        for hint in [paths.earliest_hint(), paths.latest_hint()] {
            if let Some(bytes) = store::read_optional(&*self.store, &hint).await.unwrap() {
                let id = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
                assert!(published.contains_key(&id), "{hint} names {id} of {:?}", published.keys());
            }
        }
    }

    async fn published(&self, path: &Path) -> BTreeMap<u64, String> {
        let paths = TablePaths::new(path.clone());
        let mut published = BTreeMap::new();
        for object in self.listed(Some(&paths.snapshots())).await {
            if object.filename().unwrap().starts_with("snapshot-") && !object.as_ref().contains('#') {
                let bytes = store::read(&*self.store, &object).await.unwrap();
                let snapshot = Snapshot::from_json(object.as_ref(), &bytes).unwrap();
                assert_eq!(object, paths.snapshot(snapshot.id));
                published.insert(snapshot.id, String::from_utf8(bytes.to_vec()).unwrap());
            }
        }
        published
    }

    async fn listed(&self, prefix: Option<&Path>) -> BTreeSet<Path> {
        self.store.list(prefix).map_ok(|object| object.location).try_collect().await.unwrap()
    }

    /// The rows of a snapshot, as any reader decodes them.
    async fn rows(&mut self, path: &Path, json: &str) -> Rows {
        if let Some(rows) = self.snapshots.get(json) {
            return rows.clone();
        }
        let version = TableVersion::load(&self.store, path, json).await.unwrap();
        let mut all = Rows::new();
        for file in &version.files {
            if !self.files.contains_key(&file.path) {
                let bytes = store::read(&*self.store, &file.path).await.unwrap();
                let mut rows = Vec::new();
                for batch in ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap() {
                    decode(&batch.unwrap(), &mut rows);
                }
                self.files.insert(file.path.clone(), rows);
            }
            let rows = &self.files[&file.path];
            assert_eq!(rows.len() as i64, file.meta.row_count);
            for (position, (key, row)) in (0..).zip(rows) {
                if !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(position)) {
                    assert!(all.insert(*key, row.clone()).is_none(), "key {key} is live twice");
                }
            }
        }
        self.snapshots.insert(json.to_owned(), all.clone());
        all
    }

    /// Takes the script of a process that follows.
    pub(crate) fn follow(&mut self, script: &'a Script) {
        self.script = script;
    }

    /// The newest checkpoint.
    pub(crate) async fn newest(&self) -> u64 {
        let log = CheckpointLog::new(Arc::clone(&self.store), SOURCE);
        log.recover().await.unwrap().map_or(0, |state| state.number)
    }

    /// Everything that a reader of any snapshot or of the newest checkpoint needs, and the records themselves.
    pub(crate) async fn reachable(&self) -> BTreeSet<Path> {
        let log = CheckpointLog::new(Arc::clone(&self.store), SOURCE);
        let state = log.recover().await.unwrap().unwrap();
        let full = (1..=state.number).rev().find(|number| number % FULL_EVERY == 1).unwrap();
        let mut reachable: BTreeSet<Path> = (full..=state.number).map(|number| log.path(number)).collect();
        for spec in &self.script.tables {
            let paths = TablePaths::new(spec.path());
            reachable.extend([paths.latest_hint(), paths.earliest_hint()]);
            let mut snapshots = Vec::new();
            for (id, json) in self.published(&spec.path()).await {
                reachable.insert(paths.snapshot(id));
                snapshots.push(json);
            }
            snapshots.extend(state.prepared_snapshots(spec.path().as_ref()).into_iter().map(str::to_owned));
            for json in snapshots {
                let snapshot = Snapshot::from_json("snapshot", json.as_bytes()).unwrap();
                reachable.extend((0..=snapshot.schema_id).map(|id| paths.schema(id)));
                let changelog = snapshot.changelog_manifest_list.iter().map(|list| (list, true));
                let lists = [(&snapshot.base_manifest_list, false), (&snapshot.delta_manifest_list, false)];
                for (list, is_changelog) in lists.into_iter().chain(changelog) {
                    let list = paths.manifest(list);
                    let bytes = store::read(&*self.store, &list).await.unwrap();
                    for manifest in decode_manifest_list(list.as_ref(), &bytes).unwrap() {
                        let manifest = paths.manifest(&manifest.file_name);
                        if is_changelog {
                            let bytes = store::read(&*self.store, &manifest).await.unwrap();
                            let entries = decode_manifest(manifest.as_ref(), &bytes).unwrap();
                            let file = |e: &ManifestEntry| paths.data_file(e.bucket as u32, &e.file.file_name);
                            reachable.extend(entries.iter().map(file));
                        }
                        reachable.insert(manifest);
                    }
                    reachable.insert(list);
                }
                if let Some(name) = &snapshot.index_manifest {
                    let index = paths.manifest(name);
                    let bytes = store::read(&*self.store, &index).await.unwrap();
                    let entries = decode_index_manifest(index.as_ref(), &bytes).unwrap();
                    reachable.extend(entries.iter().map(|entry| paths.index(&entry.file_name)));
                    reachable.insert(index);
                }
                let version = TableVersion::load(&self.store, &spec.path(), &json).await.unwrap();
                reachable.extend(version.files.into_iter().map(|file| file.path));
            }
        }
        reachable
    }

    /// Every object in the store.
    pub(crate) async fn all(&self) -> BTreeSet<Path> {
        self.listed(None).await
    }
}

fn decode(batch: &RecordBatch, rows: &mut Vec<(i64, Row)>) {
    let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
    let numbers = batch.column_by_name("number").unwrap().as_primitive::<Int32Type>();
    let texts = batch.column_by_name("text").unwrap().as_string::<i32>();
    let notes = batch.column_by_name("note").map(|notes| notes.as_string::<i32>());
    for row in 0..batch.num_rows() {
        let number = numbers.is_valid(row).then(|| numbers.value(row));
        let note = notes.filter(|notes| notes.is_valid(row)).map(|notes| notes.value(row).to_owned());
        rows.push((ids.value(row), (number, texts.value(row).to_owned(), note)));
    }
}
