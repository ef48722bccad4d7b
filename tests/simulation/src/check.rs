//! What must hold of every checkpoint: it follows the one before, its position does not go back, and every table that it
//! shows is the table of the database right there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int8Type;
use futures::FutureExt;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidegate_cdc::capture::{SourceView, TablePhase, TableState};
use tidegate_cdc::source::position::Position;
use tidegate_storage::checkpoint::{CheckpointLog, CheckpointState, PreparedSnapshot};
use tidegate_storage::paimon::manifest::{decode_manifest, decode_manifest_list};
use tidegate_storage::paimon::{Snapshot, TablePaths};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::TableVersion;
use uuid::Uuid;

use crate::mysql::durable::Durable;
use crate::mysql::engine::Mysql;
use crate::mysql::table::{Effect, Tables, apply};
use crate::note;
use crate::rows::{Files, Rows, Texts, texts};
use crate::store::{Direct, Disk};
use crate::world::World;

/// At each so many checkpoints everything is read again.
const READ_AGAIN_EVERY: u64 = 8;

/// Looks at all checkpoints of a source.
pub struct Checker {
    world: World,
    mysql: Mysql,
    disk: Disk,
    store: StoreRef,
    source: Uuid,
    /// The database as of the last checkpoint.
    replayed: Tables,
    replayed_to: usize,
    last: Option<CheckpointState>,
    /// The positions of all checkpoints.
    positions: BTreeMap<u64, Position>,
    /// Snapshots that were found to be right, with their rows.
    right: BTreeMap<String, Arc<Rows>>,
    /// The states of the tables in the last checkpoint, and what they were read from.
    states: BTreeMap<String, (serde_json::Value, Arc<TableState>)>,
    /// Whether the tables have changelogs that say everything.
    follows: bool,
    /// Tables that a statement has changed or emptied, which a changelog does not say.
    altered: BTreeSet<String>,
    /// The snapshot of each table that was found to have the rows of the database, which have not changed since.
    equal: BTreeMap<String, String>,
    files: Files,
    /// Checkpoints that were looked at.
    pub checkpoints: u64,
    /// Tables that were compared with the database.
    pub compared: u64,
    /// Snapshots whose changes were compared with what they changed.
    pub followed: u64,
}

impl Checker {
    /// For a source whose server has `tables` in the beginning.
    pub fn new(world: &World, mysql: &Mysql, disk: &Disk, source: Uuid, tables: Tables, follows: bool) -> Self {
        Self {
            world: world.clone(),
            mysql: mysql.clone(),
            disk: disk.clone(),
            store: Arc::new(Direct(disk.clone())),
            source,
            replayed: tables,
            replayed_to: 0,
            last: None,
            positions: BTreeMap::new(),
            right: BTreeMap::new(),
            states: BTreeMap::new(),
            follows,
            altered: BTreeSet::new(),
            equal: BTreeMap::new(),
            files: Files::default(),
            checkpoints: 0,
            compared: 0,
            followed: 0,
        }
    }

    /// How many transactions of the log the last checkpoint covers.
    pub fn covered(&self) -> usize {
        self.replayed_to
    }

    /// What the last checkpoint holds.
    pub fn durable(&self) -> Durable {
        let mut ranges = BTreeMap::new();
        for (name, (_, state)) in &self.states {
            let of_table = match &state.phase {
                TablePhase::Snapshot { ranges } => ranges.clone(),
                TablePhase::Streaming => Vec::new(),
                _ => continue,
            };
            ranges.insert(name.split('.').next_back().unwrap_or_default().to_owned(), of_table);
        }
        Durable { transactions: self.replayed_to, ranges }
    }

    /// Whether every table was complete in the last checkpoint.
    pub fn is_complete(&self) -> bool {
        self.last.is_some() && self.states.values().all(|(_, state)| state.phase == TablePhase::Streaming)
    }

    /// The state of a table. Reading it takes time, and most are those of the checkpoint before.
    fn state(&mut self, name: &str, capture: &serde_json::Value) -> Result<Arc<TableState>, String> {
        if let Some((value, state)) = self.states.get(name)
            && value == capture
        {
            return Ok(Arc::clone(state));
        }
        let state =
            serde_json::from_value(capture.clone()).map_err(|error| format!("{name}: its state is none: {error}"));
        let state = Arc::new(state?);
        self.states.insert(name.to_owned(), (capture.clone(), Arc::clone(&state)));
        Ok(state)
    }

    /// Looks at what has come into the store.
    pub fn look(&mut self) {
        let created = self.disk.take_created();
        let directory = format!("{}/checkpoint/checkpoint-", tidegate_directory(self.source));
        if created.iter().any(|path| path.as_ref().starts_with(&directory))
            && let Err(what) = self.examine()
        {
            self.world.violate(what);
        }
    }

    /// What readers of a process are shown is a checkpoint that is there, and nothing else.
    pub fn look_at(&self, view: &SourceView) {
        let is_there = match self.positions.get(&view.checkpoint) {
            Some(position) => (&position.gtid, &position.file) == (&view.position.gtid, &view.position.file),
            None => view.checkpoint == 0,
        };
        if !is_there {
            self.world
                .violate(format!("checkpoint {} at {} is shown, and is not there", view.checkpoint, view.position));
        }
    }

    fn has_checkpoint(&self, number: u64) -> bool {
        self.disk.contains(&CheckpointLog::new(Arc::clone(&self.store), self.source).path(number))
    }

    fn examine(&mut self) -> Result<(), String> {
        let log = CheckpointLog::new(Arc::clone(&self.store), self.source);
        let recover = || {
            let state = now(log.recover()).map_err(|error| format!("the state cannot be recovered: {error}"))?;
            state.ok_or_else(|| "a checkpoint was there and is gone".to_owned())
        };
        let before = self.last.as_ref().map_or(0, |state| state.number);
        let follows = self.last.clone().and_then(|mut state| {
            state.apply(now(log.read(before + 1)).ok()?);
            Some(state)
        });
        let state = match follows {
            Some(state) if !self.checkpoints.is_multiple_of(READ_AGAIN_EVERY) && !self.has_checkpoint(before + 2) => {
                state
            }
            follows => {
                let recovered = recover()?;
                if follows.is_some_and(|state| state != recovered) {
                    return Err(format!("checkpoint {} changes the one before into another one", recovered.number));
                }
                recovered
            }
        };
        if state.number != before + 1 {
            return Err(format!("checkpoint {} follows {before}", state.number));
        }
        self.checkpoints += 1;
        let position: Position =
            serde_json::from_value(state.position.clone()).map_err(|error| format!("a position is none: {error}"))?;
        self.positions.insert(state.number, position.clone());
        let covered = self.mysql.covered(&position);
        note!(self.world, "checkpoint {} covers {covered}", state.number);
        if covered < self.replayed_to {
            return Err(format!(
                "checkpoint {} covers {covered} transactions, the one before {}",
                state.number, self.replayed_to
            ));
        }
        for transaction in self.mysql.history(self.replayed_to, covered) {
            apply(&mut self.replayed, &transaction.effects);
            for effect in &transaction.effects {
                let (Effect::Rows(table, _) | Effect::Schema(table, _)) = effect;
                self.equal.remove(table);
            }
            let altered = transaction.effects.iter().filter_map(|effect| match effect {
                Effect::Schema(table, _) => Some(table.clone()),
                Effect::Rows(..) => None,
            });
            self.altered.extend(altered);
        }
        self.replayed_to = covered;
        let mut needed = BTreeSet::new();
        for (name, commit) in &state.tables {
            let was_complete = self.states.get(name).is_some_and(|(_, state)| state.phase == TablePhase::Streaming);
            let table = self.state(name, &commit.capture)?;
            match (&table.phase, &commit.snapshot) {
                (TablePhase::Streaming, Some(snapshot)) => {
                    self.compare(name, &commit.path, snapshot)?;
                    self.follow(name, &commit.path, snapshot, was_complete)?;
                    needed.insert(snapshot.json.clone());
                }
                (TablePhase::Streaming, None) => {
                    let short = name.split('.').next_back().unwrap_or_default();
                    if !self.replayed.get(short).is_some_and(|table| table.rows.is_empty()) {
                        return Err(format!("{name} is complete without a snapshot, and is not empty"));
                    }
                }
                (TablePhase::Error { error }, _) => {
                    return Err(format!("{name} stopped: {} {} {:?}", error.code, error.message, error.detail));
                }
                (TablePhase::Pending | TablePhase::Snapshot { .. }, _) => {}
            }
            if let Some(frozen) = &table.frozen {
                self.still_there(name, &commit.path, frozen)?;
                needed.insert(frozen.json.clone());
            }
            let shown = commit.visible && (table.phase == TablePhase::Streaming || table.frozen.is_some());
            let was_shown = self.last.as_ref().and_then(|last| last.tables.get(name)).is_some_and(|last| last.visible);
            if was_shown && !shown {
                return Err(format!("{name} was shown to readers and is not any more"));
            }
        }
        self.right.retain(|json, _| needed.contains(json));
        self.last = Some(state);
        Ok(())
    }

    /// A snapshot that readers stay on was right once, and its rows are still there.
    fn still_there(&mut self, name: &str, path: &str, snapshot: &PreparedSnapshot) -> Result<(), String> {
        let Some(right) = self.right.get(&snapshot.json).cloned() else {
            return Err(format!("{name} shows snapshot {}, which no checkpoint before showed", snapshot.id));
        };
        if !self.checkpoints.is_multiple_of(READ_AGAIN_EVERY) || self.rows(name, path, snapshot)? == *right {
            Ok(())
        } else {
            Err(format!("{name} shows snapshot {}, whose rows are not what they were", snapshot.id))
        }
    }

    fn compare(&mut self, name: &str, path: &str, snapshot: &PreparedSnapshot) -> Result<(), String> {
        self.compared += 1;
        let short = name.split('.').next_back().unwrap_or_default();
        let reads_again = self.checkpoints.is_multiple_of(READ_AGAIN_EVERY);
        if !reads_again && self.equal.get(short) == Some(&snapshot.json) {
            return Ok(());
        }
        // What a snapshot refers to does not change; whether it is all there is looked at now and then.
        let rows = match self.right.get(&snapshot.json) {
            Some(rows) if !reads_again => Arc::clone(rows),
            _ => Arc::new(self.rows(name, path, snapshot)?),
        };
        let table = self.replayed.get(short).ok_or_else(|| format!("{name} is no table of the database"))?;
        let names = table.names();
        let expected: Rows = table
            .rows
            .iter()
            .map(|(key, row)| {
                let values = names.iter().zip(row).filter_map(|(name, value)| Some((name.clone(), value.text()?)));
                (key.to_string(), values.collect())
            })
            .collect();
        if *rows != expected {
            let differing = expected
                .iter()
                .filter(|(key, row)| rows.get(*key) != Some(*row))
                .map(|(key, row)| format!("{key} is {:?}, not {row:?}", rows.get(key)));
            let more = rows.keys().filter(|key| !expected.contains_key(*key)).map(|key| format!("{key} is there"));
            let all: Vec<String> = differing.chain(more).take(5).collect();
            return Err(format!(
                "{name} in snapshot {} is not the database's after {} transactions: {}",
                snapshot.id,
                self.replayed_to,
                all.join("; ")
            ));
        }
        self.right.insert(snapshot.json.clone(), rows);
        self.equal.insert(short.to_owned(), snapshot.json.clone());
        Ok(())
    }

    /// What a snapshot says that it changed makes the rows before it those of the snapshot.
    fn follow(
        &mut self,
        name: &str,
        path: &str,
        snapshot: &PreparedSnapshot,
        was_complete: bool,
    ) -> Result<(), String> {
        let short = name.split('.').next_back().unwrap_or_default();
        let before = self.last.as_ref().and_then(|last| last.tables.get(name));
        let before = before.filter(|table| table.visible && was_complete);
        let Some(before) = before.and_then(|table| table.snapshot.as_ref()) else { return Ok(()) };
        if !self.follows || self.altered.contains(short) || before.json == snapshot.json {
            return Ok(());
        }
        if snapshot.id != before.id + 1 {
            return Err(format!("{name}: snapshot {} follows {}", snapshot.id, before.id));
        }
        let Some(mut rows) = self.right.get(&before.json).map(|rows| Rows::clone(rows)) else { return Ok(()) };
        for (kind, row) in self.changes(path, snapshot).map_err(|what| format!("{name}: its changelog: {what}"))? {
            let key = row.get("id").cloned().ok_or("a change without a key")?;
            match kind {
                0 | 2 => drop(rows.insert(key, row)),
                1 | 3 if rows.get(&key) == Some(&row) => drop(rows.remove(&key)),
                1 | 3 => {
                    return Err(format!(
                        "{name}: the changelog of snapshot {} takes back {row:?} where there is {:?}",
                        snapshot.id,
                        rows.get(&key)
                    ));
                }
                kind => return Err(format!("{name}: a change of kind {kind}")),
            }
        }
        if self.right.get(&snapshot.json).is_none_or(|right| **right != rows) {
            return Err(format!("{name}: the changelog of snapshot {} does not lead to it", snapshot.id));
        }
        self.followed += 1;
        Ok(())
    }

    /// The changes of a snapshot in their order, each with its kind.
    fn changes(&self, path: &str, snapshot: &PreparedSnapshot) -> Result<Vec<(i8, Texts)>, String> {
        let read = |path: &Path| now(store::read(&*self.store, path)).map_err(|error| error.to_string());
        let parsed = Snapshot::from_json("snapshot", snapshot.json.as_bytes()).map_err(|error| error.to_string())?;
        let paths = TablePaths::new(Path::from(path));
        let Some(list) = parsed.changelog_manifest_list else { return Ok(Vec::new()) };
        let manifests = decode_manifest_list(&list, &read(&paths.manifest(&list))?).map_err(|e| e.to_string())?;
        let mut changes = Vec::new();
        for manifest in manifests {
            let name = manifest.file_name;
            for entry in decode_manifest(&name, &read(&paths.manifest(&name))?).map_err(|e| e.to_string())? {
                let bytes = read(&paths.data_file(entry.bucket as u32, &entry.file.file_name))?;
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|builder| builder.build());
                for batch in reader.map_err(|error| error.to_string())? {
                    let batch = batch.map_err(|error| error.to_string())?;
                    let kinds = batch.column_by_name("_VALUE_KIND").ok_or("there are no kinds")?;
                    let kinds = kinds.as_primitive_opt::<Int8Type>().ok_or("its kinds are no numbers")?;
                    let schema = batch.schema();
                    let columns: Vec<_> = schema
                        .fields()
                        .iter()
                        .zip(batch.columns())
                        .filter(|(field, _)| !field.name().starts_with('_'))
                        .map(|(field, column)| (field.name().clone(), texts(column)))
                        .collect();
                    changes.extend((0..batch.num_rows()).map(|row| {
                        let value =
                            |(name, values): &(String, Vec<Option<String>>)| Some((name.clone(), values[row].clone()?));
                        (kinds.value(row), columns.iter().filter_map(value).collect::<Texts>())
                    }));
                }
            }
        }
        Ok(changes)
    }

    fn rows(&mut self, name: &str, path: &str, snapshot: &PreparedSnapshot) -> Result<Rows, String> {
        let version = now(TableVersion::load(&self.store, &Path::from(path), &snapshot.json))
            .map_err(|error| format!("{name}: snapshot {} cannot be read: {error}", snapshot.id))?;
        now(self.files.rows(&self.store, &version))
            .map_err(|error| format!("{name}: snapshot {}: {error}", snapshot.id))
    }
}

fn tidegate_directory(source: Uuid) -> String {
    format!("sources/{source}")
}

/// The outcome of what never waits.
pub(crate) fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("the store itself answers at once")
}
