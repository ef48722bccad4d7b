//! A table under test: its writer, and a model of what each of its snapshots holds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path as ObjectPath;
use tempfile::TempDir;
use tidegate_storage::checkpoint::{PreparedSnapshot, publish};
use tidegate_storage::clock::ManualClock;
use tidegate_storage::paimon::{DataType, NewField, SchemaChange, TableSchema};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{RowKind, TableOptions, TableVersion, TableWriter, WriterContext};

use crate::engines::{At, Condition, Engine, JAVA, PYPAIMON, Read};
use crate::files::{self, as_of, compare_keys};
use crate::texts::{Line, batch};
use crate::values::{compare, scatter};

/// Where every table lies in its store.
const TABLE: &str = "default.db/mirror";
/// 2026-01-01T00:00:00Z.
pub(crate) const START_MS: i64 = 1_767_225_600_000;

/// A table's rows at one time, by the key's columns.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) rows: BTreeMap<Line, Line>,
}

pub(crate) struct Mirror {
    pub(crate) warehouse: TempDir,
    pub(crate) store: StoreRef,
    pub(crate) path: ObjectPath,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) writer: TableWriter,
    options: TableOptions,
    /// Every live row by the key's values, with the schema that it was written with.
    model: BTreeMap<Line, (Arc<TableSchema>, Line)>,
    commits: u64,
    /// What each snapshot holds.
    pub(crate) states: BTreeMap<u64, State>,
}

/// What was compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) states: usize,
    pub(crate) rows: usize,
}

pub(crate) fn field(name: &str, data_type: DataType, nullable: bool) -> NewField {
    NewField { name: name.to_owned(), data_type, nullable, description: None }
}

impl Mirror {
    /// A table of these columns; the key's are those that may not be NULL.
    pub(crate) async fn new(fields: Vec<NewField>, options: TableOptions) -> Self {
        Self::with(fields, options, BTreeMap::new()).await
    }

    /// The same, with options of the table's schema.
    pub(crate) async fn with(
        fields: Vec<NewField>,
        options: TableOptions,
        schema_options: BTreeMap<String, String>,
    ) -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let store = store::open(warehouse.path().to_str().unwrap(), &[]).unwrap();
        let keys = fields.iter().filter(|field| !field.nullable).map(|field| field.name.clone()).collect();
        let schema = TableSchema::new(fields, keys, schema_options, None, 0).unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let path = ObjectPath::from(TABLE);
        let writer = TableWriter::create(context(&store, &clock), path.clone(), schema, options.clone()).await.unwrap();
        Self {
            warehouse,
            store,
            path,
            clock,
            writer,
            options,
            model: BTreeMap::new(),
            commits: 0,
            states: BTreeMap::new(),
        }
    }

    /// The table's folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.warehouse.path().join(TABLE)
    }

    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(self.writer.schema())
    }

    /// Applies rows of the newest schema.
    pub(crate) fn apply(&mut self, kind: RowKind, rows: &[Line]) {
        let schema = self.schema();
        self.writer.apply(batch(&schema, rows), vec![kind; rows.len()]).unwrap();
        self.apply_to_model(kind, rows);
    }

    /// Applies rows with what each of them replaces in front of it.
    pub(crate) fn replace(&mut self, rows: &[Line]) {
        let schema = self.schema();
        let (mut lines, mut kinds) = (Vec::new(), Vec::new());
        for row in rows {
            if let Some((written, old)) = self.model.get(&key_of(&schema, row)) {
                lines.push(as_of(old, written, &schema));
                kinds.push(RowKind::UpdateBefore);
            }
            lines.push(row.clone());
            kinds.push(RowKind::Upsert);
            self.apply_to_model(RowKind::Upsert, std::slice::from_ref(row));
        }
        self.writer.apply(batch(&schema, &lines), kinds).unwrap();
    }

    /// Deletes those of the keys that are there. The rows given to the writer are whole.
    pub(crate) fn remove(&mut self, keys: &[Line]) {
        let schema = self.schema();
        let found = keys.iter().filter_map(|key| self.model.remove(key));
        let rows: Vec<Line> = found.map(|(written, old)| as_of(&old, &written, &schema)).collect();
        self.apply(RowKind::Delete, &rows);
    }

    /// Applies to the model alone what another engine did to the table.
    pub(crate) fn apply_to_model(&mut self, kind: RowKind, rows: &[Line]) {
        let schema = self.schema();
        for row in rows {
            let key = key_of(&schema, row);
            let stored = (Arc::clone(&schema), row.clone());
            match kind {
                RowKind::Upsert => drop(self.model.insert(key, stored)),
                RowKind::Delete => drop(self.model.remove(&key)),
                RowKind::InsertAbsent => drop(self.model.entry(key).or_insert(stored)),
                RowKind::UpdateBefore => {}
            }
        }
    }

    pub(crate) async fn evolve(&mut self, changes: &[SchemaChange]) {
        let schema = self.schema().evolve(changes, START_MS).unwrap();
        self.writer.evolve(schema).await.unwrap();
    }

    pub(crate) async fn truncate(&mut self) {
        self.writer.truncate().await.unwrap();
        self.model.clear();
    }

    /// Publishes a snapshot and remembers what it holds.
    pub(crate) async fn commit(&mut self) -> u64 {
        self.commits += 1;
        self.clock.advance(60_000);
        let properties = BTreeMap::from([("position".to_owned(), format!("binlog.000001:{}", self.commits))]);
        let prepared = self.writer.prepare(self.commits, properties).await.unwrap();
        publish(&self.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        self.writer.committed(true);
        let id = prepared.snapshot.id;
        self.states.insert(id, self.state());
        id
    }

    /// A checkpoint that does not make its snapshot visible.
    pub(crate) async fn keep(&mut self) -> PreparedSnapshot {
        self.commits += 1;
        let prepared = self.writer.prepare(self.commits, BTreeMap::new()).await.unwrap();
        self.writer.committed(false);
        prepared.snapshot
    }

    /// What the table holds now.
    pub(crate) fn state(&self) -> State {
        let schema = self.schema();
        let rows = self.model.iter().map(|(key, (written, row))| (key.clone(), as_of(row, written, &schema)));
        State { rows: rows.collect(), schema }
    }

    /// The text of a snapshot's file.
    pub(crate) fn snapshot_json(&self, id: u64) -> String {
        std::fs::read_to_string(self.folder().join(format!("snapshot/snapshot-{id}"))).unwrap()
    }

    pub(crate) async fn load(&self, id: u64) -> tidegate_storage::Result<TableVersion> {
        TableVersion::load(&self.store, &self.path, &self.snapshot_json(id)).await
    }

    /// Opens the table anew at a snapshot.
    pub(crate) async fn reopen(&mut self, id: u64) -> tidegate_storage::Result<()> {
        let ctx = context(&self.store, &self.clock);
        let json = self.snapshot_json(id);
        self.writer = TableWriter::open(ctx, self.path.clone(), &json, true, self.options.clone()).await?;
        Ok(())
    }

    /// Opens the table anew at a snapshot that is not visible.
    pub(crate) async fn reopen_kept(&mut self, snapshot: &PreparedSnapshot) {
        let ctx = context(&self.store, &self.clock);
        let opened = TableWriter::open(ctx, self.path.clone(), &snapshot.json, false, self.options.clone());
        self.writer = opened.await.unwrap();
    }

    /// Every snapshot that is there is read by everyone.
    pub(crate) async fn check_all(&self) -> Compared {
        let mut compared = Compared::default();
        for (id, state) in &self.states {
            self.check(At::Snapshot(*id), *id, state).await;
            compared.states += 1;
            compared.rows += state.rows.len();
        }
        compared
    }

    /// The state at `at`, whose snapshot has the number `id`, is read by everyone.
    pub(crate) async fn check(&self, at: At<'_>, id: u64, state: &State) {
        self.check_without("", at, id, state).await;
    }

    /// The same, but for the engine called `without`.
    pub(crate) async fn check_without(&self, without: &str, at: At<'_>, id: u64, state: &State) {
        let what = format!("{at:?} of {:?}", state.schema.key_types());
        let json = match at {
            At::Tag(name) => std::fs::read_to_string(self.folder().join(format!("tag/tag-{name}"))).unwrap(),
            _ => self.snapshot_json(id),
        };
        let version = TableVersion::load(&self.store, &self.path, &json).await.unwrap();
        let ours = files::rows(self.warehouse.path(), &version);
        compare_rows(&format!("Tidegate: {what}"), state, ours);
        assert_eq!(version.row_count(), state.rows.len() as u64, "{what}");
        files::check_manifests(&self.folder(), at, &version);
        for (engine, read) in self.read_by_all(without, at, &[]) {
            assert_eq!(read.columns, names(&state.schema), "{engine}: {what}");
            if engine == JAVA.name {
                check_order(state, &read.rows);
            }
            compare_rows(&format!("{engine}: {what}"), state, read.rows);
        }
    }

    /// What the other engines read, but for the one called `without`.
    fn read_by_all(&self, without: &str, at: At<'_>, filter: &[Condition]) -> Vec<(&'static str, Read)> {
        let folder = self.folder();
        let read = &|engine: &'static Engine| {
            let read = engine.read(&folder, at, filter);
            (engine.name, read.unwrap_or_else(|error| panic!("{}: {at:?} {filter:?}: {error}", engine.name)))
        };
        let engines = [&*JAVA, &*PYPAIMON].into_iter().filter(|engine| engine.name != without);
        std::thread::scope(|scope| {
            let started: Vec<_> = engines.map(|engine| scope.spawn(move || read(engine))).collect();
            started
                .into_iter()
                .map(|read| read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// Filters that some rows of the newest state meet, for which a reader skips files, row groups and pages: by the whole
    /// key, and by ranges of `columns`. Returns how many rows were found.
    pub(crate) fn check_filters(&self, columns: &[&str]) -> usize {
        let (_, state) = self.states.last_key_value().unwrap();
        let rows: Vec<&Line> = state.rows.values().collect();
        let pick = |n: u64| rows[scatter(n) as usize % rows.len()];
        let condition = |index: usize, operator, row: &Line| -> Option<Condition> {
            Some((state.schema.fields[index].name.clone(), operator, row[index].clone()?))
        };
        let mut filters: Vec<Vec<Condition>> = Vec::new();
        for n in 0..4 {
            let by_key = state.schema.key_indices().into_iter().map(|index| condition(index, "=", pick(n)).unwrap());
            filters.push(by_key.collect());
        }
        for (n, name) in (100_u64..).step_by(10).zip(columns) {
            let index = state.schema.index_of(name).unwrap();
            filters.extend((n..n + 3).filter_map(|n| condition(index, "=", pick(n))).map(|equal| vec![equal]));
            // To Paimon, bytes of a filter are signed numbers: its ranges are other ones.
            if matches!(
                state.schema.fields[index].data_type,
                DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes
            ) {
                continue;
            }
            let from = (n..n + 9).find_map(|n| condition(index, ">=", pick(n)));
            let to = (n + 1..n + 9).rev().find_map(|n| condition(index, "<", pick(n)));
            filters.extend(from.clone().map(|from| vec![from]));
            filters.extend(to.clone().map(|to| vec![to]));
            filters.extend(from.zip(to).map(|(from, to)| vec![from, to]));
        }
        let mut found = 0;
        for filter in &filters {
            let mut wanted = state.clone();
            wanted.rows.retain(|_, row| filter.iter().all(|condition| meets(&state.schema, row, condition)));
            found += wanted.rows.len();
            for (engine, read) in self.read_by_all("", At::Newest, filter) {
                compare_rows(&format!("{engine}: {filter:?}"), &wanted, read.rows);
            }
        }
        found
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("TIDEGATE_TEST_KEEP").is_some() {
            self.warehouse.disable_cleanup(true);
            eprintln!("the table is kept in {}", self.folder().display());
        }
    }
}

fn context(store: &StoreRef, clock: &Arc<ManualClock>) -> WriterContext {
    WriterContext {
        store: Arc::clone(store),
        clock: Arc::<ManualClock>::clone(clock),
        commit_user: "source-1".to_owned(),
        resources: Arc::default(),
    }
}

fn names(schema: &TableSchema) -> Vec<&str> {
    schema.fields.iter().map(|field| field.name.as_str()).collect()
}

pub(crate) fn key_of(schema: &TableSchema, row: &Line) -> Line {
    schema.key_indices().into_iter().map(|index| row[index].clone()).collect()
}

fn meets(schema: &TableSchema, row: &Line, (name, operator, value): &Condition) -> bool {
    let index = schema.index_of(name).unwrap();
    let Some(found) = &row[index] else { return false };
    let order = compare(&schema.fields[index].data_type, found, value);
    match *operator {
        "=" => order.is_eq(),
        ">=" => order.is_ge(),
        "<" => order.is_lt(),
        other => panic!("{other}"),
    }
}

/// Rows come in the order in which this crate sorts keys.
fn check_order(state: &State, rows: &[Line]) {
    let types = state.schema.key_types();
    for pair in rows.windows(2) {
        let (a, b) = (key_of(&state.schema, &pair[0]), key_of(&state.schema, &pair[1]));
        assert!(compare_keys(&types, &a, &b).is_lt(), "Java has {a:?} before {b:?}");
    }
}

fn compare_rows(what: &str, wanted: &State, rows: Vec<Line>) {
    let count = rows.len();
    let found: BTreeMap<Line, Line> = rows.into_iter().map(|row| (key_of(&wanted.schema, &row), row)).collect();
    assert_eq!(found.len(), count, "{what}: a row appears twice");
    let differ = |key: &&Line| found.get(*key) != wanted.rows.get(*key);
    let keys: std::collections::BTreeSet<&Line> = found.keys().chain(wanted.rows.keys()).collect();
    let differing: Vec<_> = keys.into_iter().filter(differ).collect();
    if let Some(first) = differing.first() {
        panic!(
            "{what}: {} rows of {} differ, first\n wanted {:?}\n found  {:?}",
            differing.len(),
            wanted.rows.len(),
            wanted.rows.get(*first),
            found.get(*first)
        );
    }
}
