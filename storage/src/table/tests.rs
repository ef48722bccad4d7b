//! A table against a model of it, under random operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Date32Array, Decimal128Array, Int8Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Int64Type;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::key_index::tests::MemoryDisk;
use super::{KeyCache, Resources, RowKind, TableOptions, TableVersion, TableWriter, WriterContext};
use crate::checkpoint::publish;
use crate::clock::ManualClock;
use crate::paimon::{
    ColumnPosition, DataType, Field, NewField, SchemaChange, Snapshot, TablePaths, TableSchema, binary_row, bucket,
};
use crate::store::faulty::{Fault, Faulty, Operation};
use crate::store::{StoreRef, read};

mod damage;
mod evolution;
mod merging;

/// A row as text, by field id; a field that is missing is NULL.
pub(super) type Row = BTreeMap<i32, Option<String>>;

fn new_field(name: &str, data_type: DataType, nullable: bool) -> NewField {
    NewField { name: name.to_owned(), data_type, nullable, description: None }
}

/// A table with these key columns, then two more.
fn schema(keys: &[DataType]) -> TableSchema {
    let mut fields = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        fields.push(new_field(&format!("k{index}"), key.clone(), false));
    }
    // The key need not come first.
    fields.insert(fields.len() / 2, new_field("number", DataType::Int, true));
    fields.push(new_field("text", DataType::String, true));
    let names = (0..keys.len()).rev().map(|index| format!("k{index}")).collect();
    TableSchema::new(fields, names, BTreeMap::new(), None, 0).unwrap()
}

/// `part` is the field's place in the key.
fn column(field: &Field, part: Option<usize>, rows: &[(i64, u64)]) -> ArrayRef {
    if let Some(part) = part {
        let numbers = rows.iter().map(|(key, _)| *key);
        // With several columns one number becomes a few values of each, so that all of them matter.
        let digits = numbers.clone().map(move |key| if part == 0 { key } else { key / 7 - 20 });
        return match &field.data_type {
            DataType::TinyInt => Arc::new(Int8Array::from_iter_values(digits.map(|key| (key % 120) as i8))),
            DataType::Int => Arc::new(Int32Array::from_iter_values(digits.map(|key| key as i32))),
            DataType::BigInt => Arc::new(Int64Array::from_iter_values(digits.map(|key| key * 1_000_003 - 90_000_000))),
            DataType::Date => Arc::new(Date32Array::from_iter_values(numbers.map(|key| key as i32 - 50))),
            DataType::Timestamp(_) => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(numbers.map(|key| key * 777_777_777 - 5)))
            }
            DataType::Decimal { precision, scale } => Arc::new(
                Decimal128Array::from_iter_values(numbers.map(|key| (i128::from(key) - 60) * 10_i128.pow(17) + 3))
                    .with_precision_and_scale(*precision, *scale)
                    .unwrap(),
            ),
            DataType::Varchar(_) | DataType::String => Arc::new(StringArray::from_iter_values(
                numbers.map(|key| if key % 3 == 0 { format!("k{key}") } else { format!("a longer key {key} é") }),
            )),
            DataType::Varbinary(_) | DataType::Bytes => Arc::new(BinaryArray::from_iter_values(numbers.map(|key| {
                let mut bytes = vec![(key * 31 % 256) as u8; (key % 5) as usize];
                bytes.extend_from_slice(&(key as u32).to_le_bytes());
                bytes
            }))),
            other => panic!("no keys of type {other}"),
        };
    }
    let value = |key: i64, version: u64| {
        let number = key as u64 * 31 + version * 7 + field.id as u64;
        (!number.is_multiple_of(5)).then_some(number % 100_000)
    };
    let values = rows.iter().map(|(key, version)| value(*key, *version));
    match &field.data_type {
        DataType::Int => values.map(|value| value.map(|value| value as i32)).collect::<Int32Array>().wrap(),
        DataType::BigInt => values.map(|value| value.map(|value| value as i64)).collect::<Int64Array>().wrap(),
        DataType::String | DataType::Varchar(_) => {
            values.map(|value| value.map(|value| format!("text {value}"))).collect::<StringArray>().wrap()
        }
        other => panic!("no values of type {other}"),
    }
}

trait Wrap: Array + Sized + 'static {
    fn wrap(self) -> ArrayRef {
        Arc::new(self)
    }
}

impl<T: Array + Sized + 'static> Wrap for T {}

fn batch(schema: &TableSchema, rows: &[(i64, u64)]) -> RecordBatch {
    let columns = schema
        .fields
        .iter()
        .map(|field| column(field, schema.primary_keys.iter().position(|key| *key == field.name), rows))
        .collect();
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn texts(column: &ArrayRef) -> Vec<Option<String>> {
    let options = FormatOptions::default();
    let format = ArrayFormatter::try_new(column.as_ref(), &options).unwrap();
    (0..column.len()).map(|row| column.is_valid(row).then(|| format.value(row).to_string())).collect()
}

/// The rows of a batch by field id, under their keys.
fn rows_of(schema: &TableSchema, batch: &RecordBatch) -> Vec<(Vec<String>, Row)> {
    let columns: Vec<_> = batch.columns().iter().map(texts).collect();
    (0..batch.num_rows())
        .map(|row| {
            let key = schema.key_indices().into_iter().map(|index| columns[index][row].clone().unwrap());
            let fields = schema.fields.iter().zip(&columns).map(|(field, column)| (field.id, column[row].clone()));
            (key.collect(), fields.filter(|(_, value)| value.is_some()).collect())
        })
        .collect()
}

/// Reads a version as any reader would: each file by its own schema, less its deletion vector. Checks what the
/// metadata says on the way.
pub(super) async fn read_all(store: &StoreRef, version: &TableVersion) -> BTreeMap<Vec<String>, Row> {
    let mut all = BTreeMap::new();
    let newest: BTreeSet<i32> = version.schema.fields.iter().map(|field| field.id).collect();
    for file in &version.files {
        let schema = &version.schemas[&(file.meta.schema_id as u64)];
        let bytes = read(&**store, &file.path).await.unwrap();
        assert_eq!(bytes.len() as i64, file.meta.file_size);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        let mut position = 0_u32;
        let mut dead = 0;
        for batch in reader {
            let batch = batch.unwrap();
            let columns: Vec<_> =
                schema.fields.iter().map(|field| batch.column_by_name(&field.name).unwrap().clone()).collect();
            let keys: Vec<_> = schema.key_indices().into_iter().map(|index| columns[index].clone()).collect();
            for (key, index) in schema.primary_keys.iter().zip(schema.key_indices()) {
                assert_eq!(batch.column_by_name(&format!("_KEY_{key}")).unwrap(), &columns[index]);
            }
            let types = schema.key_types();
            for bucket in bucket::buckets_of(&types, &keys, version.buckets).unwrap() {
                assert_eq!(bucket, file.bucket);
            }
            if position == 0 {
                assert_eq!(file.meta.min_key, binary_row::serialize(&types, &keys, 0).unwrap());
            }
            if i64::from(position) + batch.num_rows() as i64 == file.meta.row_count {
                let last = binary_row::serialize(&types, &keys, batch.num_rows() - 1).unwrap();
                assert_eq!(file.meta.max_key, last);
            }
            let sequences = batch.column_by_name("_SEQUENCE_NUMBER").unwrap().as_primitive::<Int64Type>();
            assert!(sequences.values().iter().all(|sequence| *sequence == file.meta.max_sequence_number));
            let table = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
            for (key, mut row) in rows_of(schema, &table) {
                if file.deleted.as_ref().is_some_and(|deleted| deleted.contains(position)) {
                    dead += 1;
                } else {
                    row.retain(|id, _| newest.contains(id));
                    assert!(all.insert(key, row).is_none(), "a key is live twice");
                }
                position += 1;
            }
        }
        assert_eq!(i64::from(position), file.meta.row_count);
        assert_eq!(dead, file.deleted.as_ref().map_or(0, |deleted| deleted.len()));
    }
    assert_eq!(all.len() as u64, version.row_count());
    all
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    rows: BTreeMap<Vec<String>, Row>,
    /// Keys deleted since loading began, while loading.
    deleted: Option<BTreeSet<Vec<String>>>,
}

impl Model {
    fn apply(&mut self, schema: &TableSchema, batch: &RecordBatch, kinds: &[RowKind]) {
        for ((key, row), kind) in rows_of(schema, batch).into_iter().zip(kinds) {
            match kind {
                RowKind::Upsert => {
                    self.rows.insert(key, row);
                }
                RowKind::Delete => {
                    self.rows.remove(&key);
                    if let Some(deleted) = &mut self.deleted {
                        deleted.insert(key);
                    }
                }
                RowKind::UpdateBefore => {}
                RowKind::InsertAbsent => {
                    if !self.deleted.as_ref().is_some_and(|deleted| deleted.contains(&key)) {
                        self.rows.entry(key).or_insert(row);
                    }
                }
            }
        }
    }

    /// Rows as a reader with the newest schema sees them.
    fn seen(&self, schema: &TableSchema) -> BTreeMap<Vec<String>, Row> {
        let ids: BTreeSet<i32> = schema.fields.iter().map(|field| field.id).collect();
        let mut rows = self.rows.clone();
        rows.values_mut().for_each(|row| row.retain(|id, _| ids.contains(id)));
        rows
    }
}

fn context() -> WriterContext {
    context_on(Arc::new(InMemory::new()))
}

fn context_on(store: StoreRef) -> WriterContext {
    WriterContext {
        store,
        clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        commit_user: "writer".to_owned(),
        // So little memory that nearly every key is read from the disk.
        resources: Arc::new(Resources {
            keys: KeyCache::new(Arc::new(MemoryDisk::default()), 2000),
            ..Resources::default()
        }),
    }
}

pub(super) fn small_options(buckets: u32) -> TableOptions {
    TableOptions { buckets, rows_per_file: 50, inline_merge_rows: 60, ..TableOptions::default() }
}

pub(super) struct Trial {
    pub(super) ctx: WriterContext,
    pub(super) path: Path,
    options: TableOptions,
    pub(super) writer: TableWriter,
    model: Model,
    /// The last committed snapshot, whether it was published, and the model then.
    pub(super) committed: Option<(String, bool, Model)>,
    commits: u64,
    version: u64,
    random: StdRng,
}

impl Trial {
    async fn new(seed: u64, keys: &[DataType], options: TableOptions) -> Self {
        Self::new_on(seed, keys, options, Arc::new(InMemory::new())).await
    }

    pub(super) async fn new_on(seed: u64, keys: &[DataType], options: TableOptions, store: StoreRef) -> Self {
        let (ctx, path) = (context_on(store), Path::from("shop/orders"));
        let writer = TableWriter::create(ctx.clone(), path.clone(), schema(keys), options.clone()).await.unwrap();
        let random = StdRng::seed_from_u64(seed);
        Self { ctx, path, options, writer, model: Model::default(), committed: None, commits: 0, version: 0, random }
    }

    pub(super) fn apply(&mut self, keys: &[i64], mut kind: impl FnMut(&mut StdRng) -> RowKind) {
        self.version += 1;
        let rows: Vec<_> = keys.iter().map(|key| (*key, self.version)).collect();
        let schema = Arc::clone(self.writer.schema());
        let batch = batch(&schema, &rows);
        let kinds: Vec<_> = keys.iter().map(|_| kind(&mut self.random)).collect();
        self.model.apply(&schema, &batch, &kinds);
        self.writer.apply(batch, kinds).unwrap();
    }

    pub(super) async fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..40 => {
                let changes = self.random.random_range(1..40);
                let keys: Vec<i64> = (0..changes).map(|_| self.random.random_range(0..120)).collect();
                self.apply(&keys, |random| if random.random_bool(0.3) { RowKind::Delete } else { RowKind::Upsert });
            }
            40..55 if self.model.deleted.is_some() => {
                let from = self.random.random_range(0..110);
                let keys: Vec<i64> = (from..from + self.random.random_range(1..30)).collect();
                self.apply(&keys, |_| RowKind::InsertAbsent);
            }
            40..58 => {
                self.writer.begin_loading();
                self.model.deleted.get_or_insert_default();
            }
            58..62 => {
                self.writer.end_loading();
                self.model.deleted = None;
            }
            62..72 => self.writer.flush().await.unwrap(),
            72..84 => self.commit().await,
            84..88 => self.reopen().await,
            88..91 => self.evolve().await,
            91..93 => self.writer.compact().await.unwrap(),
            93 => {
                let merges = Arc::clone(self.writer.merges());
                tokio::spawn(async move { merges.merge_all().await });
            }
            94 => {
                self.writer.truncate().await.unwrap();
                self.model.rows.clear();
                if let Some(deleted) = &mut self.model.deleted {
                    deleted.clear();
                }
            }
            // A merge beside the writer gets on.
            _ => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
        }
        self.writer.buckets().iter().for_each(super::bucket::Bucket::check);
    }

    async fn commit(&mut self) {
        self.commits += 1;
        let properties = BTreeMap::from([("position".to_owned(), self.commits.to_string())]);
        let prepared = self.writer.prepare(self.commits, properties).await.unwrap();
        self.check(&prepared.version).await;
        let loaded = TableVersion::load(&self.ctx.store, &self.path, &prepared.snapshot.json).await.unwrap();
        self.check(&loaded).await;
        let snapshot = Snapshot::from_json("snapshot", prepared.snapshot.json.as_bytes()).unwrap();
        let physical: i64 = loaded.files.iter().map(|file| file.meta.row_count).sum();
        assert_eq!(snapshot.total_record_count, physical);
        assert_eq!(snapshot.id, prepared.snapshot.id);
        // One in eight is refused, and the writer goes back.
        if self.random.random_ratio(1, 8) {
            self.reopen().await;
            return;
        }
        let published = self.random.random_bool(0.7);
        self.writer.committed(published);
        if published {
            publish(&self.ctx.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        }
        assert!(!self.writer.is_dirty() || self.writer.merge_is_finished());
        self.committed = Some((prepared.snapshot.json, published, self.model.clone()));
    }

    /// Commits and publishes, come what may.
    pub(super) async fn publish_next(&mut self) {
        self.commits += 1;
        let prepared = self.writer.prepare(self.commits, BTreeMap::new()).await.unwrap();
        self.writer.committed(true);
        publish(&self.ctx.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        self.committed = Some((prepared.snapshot.json, true, self.model.clone()));
    }

    async fn check(&self, version: &TableVersion) {
        assert_eq!(version.schema, *self.writer.schema());
        let rows = read_all(&self.ctx.store, version).await;
        assert_eq!(rows, self.model.seen(&version.schema));
    }

    /// Drops the writer and goes back to the last commit.
    async fn reopen(&mut self) {
        let Some((json, published, model)) = self.committed.clone() else { return };
        self.model = model;
        // Deleted keys are not kept over a restart.
        self.model.deleted = None;
        let (ctx, options) = (self.ctx.clone(), self.options.clone());
        self.writer = TableWriter::open(ctx, self.path.clone(), &json, published, options).await.unwrap();
        assert!(!self.writer.is_dirty());
        assert_eq!(self.writer.row_count(), self.model.rows.len() as u64);
    }

    async fn evolve(&mut self) {
        let schema = Arc::clone(self.writer.schema());
        let values: Vec<&Field> =
            schema.fields.iter().filter(|field| !schema.primary_keys.contains(&field.name)).collect();
        let some = self.random.random_range(0..values.len().max(1));
        let name = || values[some].name.clone();
        let unused = format!("c{}", schema.highest_field_id + 1 + self.random.random_range(0..1000));
        let change = match self.random.random_range(0..5) {
            0 if values.len() > 1 => SchemaChange::DropColumn { name: name() },
            1 => SchemaChange::RenameColumn { from: name(), to: unused },
            2 if values[some].data_type == DataType::Int => {
                SchemaChange::ChangeType { name: name(), data_type: DataType::BigInt, nullable: true }
            }
            3 => {
                let keys = &schema.primary_keys;
                SchemaChange::RenameColumn { from: keys[self.random.random_range(0..keys.len())].clone(), to: unused }
            }
            _ if schema.fields.len() < 9 => {
                let data_type = if self.random.random_bool(0.5) { DataType::Int } else { DataType::String };
                let position = if self.random.random_bool(0.5) { ColumnPosition::First } else { ColumnPosition::Last };
                SchemaChange::AddColumn { field: new_field(&unused, data_type, true), position, initial_default: None }
            }
            _ => return,
        };
        let Ok(next) = schema.evolve(&[change], 7) else { return };
        self.writer.evolve(next).await.unwrap();
        // A column that comes back under a new id is another column.
        let ids: BTreeSet<i32> = self.writer.schema().fields.iter().map(|field| field.id).collect();
        self.model.rows.values_mut().for_each(|row| row.retain(|id, _| ids.contains(id)));
    }
}

async fn trial(seed: u64, keys: &[DataType], buckets: u32, steps: usize) {
    let mut trial = Trial::new(seed, keys, small_options(buckets)).await;
    for _ in 0..steps {
        trial.step().await;
    }
    trial.writer.compact().await.unwrap();
    trial.commit().await;
}

fn run(keys: &[DataType], buckets: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for seed in 0..12 {
        println!("seed {seed}");
        runtime.block_on(trial(seed, keys, buckets, 120));
    }
}

#[test]
fn a_table_with_an_integer_key_is_what_its_operations_make_it() {
    run(&[DataType::BigInt], 1);
    run(&[DataType::Int], 3);
}

#[test]
fn a_table_with_a_text_or_binary_key_is_what_its_operations_make_it() {
    run(&[DataType::Varchar(64)], 1);
    run(&[DataType::Varbinary(16)], 2);
}

#[test]
fn a_table_with_another_key_is_what_its_operations_make_it() {
    run(&[DataType::Decimal { precision: 30, scale: 4 }], 1);
    run(&[DataType::Date], 1);
    run(&[DataType::Timestamp(6)], 2);
}

#[test]
fn a_table_with_a_key_of_several_columns_is_what_its_operations_make_it() {
    run(&[DataType::Int, DataType::BigInt], 2);
    run(&[DataType::String, DataType::TinyInt, DataType::Decimal { precision: 20, scale: 0 }], 1);
}

#[tokio::test]
async fn pages_that_come_in_key_order_are_never_written_twice() {
    let ctx = context();
    let options = TableOptions { rows_per_file: 1000, inline_merge_rows: 1000, ..TableOptions::default() };
    let schema = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), Path::from("t"), schema.clone(), options).await.unwrap();
    writer.begin_loading();
    for flush in 0..20 {
        // Two ranges are read side by side, three pages of each per flush.
        for page in 0..3 {
            for range in [0, 1_000_000] {
                let from = range + flush * 300 + page * 100;
                let rows: Vec<_> = (from..from + 100).map(|key| (key, 1)).collect();
                writer.apply(batch(&schema, &rows), vec![RowKind::InsertAbsent; 100]).unwrap();
            }
        }
        // The log changes some of the rows that were read and some that will be.
        let rows: Vec<_> = (0..10).map(|key| (key * 577 + flush * 29, 2)).collect();
        writer.apply(batch(&schema, &rows), vec![RowKind::Upsert; 10]).unwrap();
        let prepared = writer.prepare(flush as u64 + 1, BTreeMap::new()).await.unwrap();
        assert_eq!(prepared.snapshot.id, 1);
        writer.committed(false);
        writer.buckets().iter().for_each(super::bucket::Bucket::check);
    }
    writer.end_loading();
    let top = || writer.buckets()[0].files.iter().filter(|file| file.meta.level == super::levels::TOP);
    let mut ranges: Vec<_> = top().map(|file| (file.range.clone(), file.rows())).collect();
    ranges.sort_by(|a, b| a.0.min.cmp(&b.0.min));
    assert_eq!(ranges.len(), 40, "{ranges:?}");
    assert!(top().all(|file| file.meta.file_source == Some(crate::paimon::FileSource::Append)));
    assert!(writer.row_count() >= 12_000);
}

#[tokio::test]
async fn a_table_created_anew_replaces_the_one_before() {
    let ctx = context();
    let path = Path::from("shop/orders");
    let first = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), first.clone(), small_options(2)).await.unwrap();
    assert!(writer.is_dirty());
    for commit in 1..4 {
        writer.apply(batch(&first, &[(1, commit), (2, commit), (3, commit)]), vec![RowKind::Upsert; 3]).unwrap();
        let prepared = writer.prepare(commit, BTreeMap::new()).await.unwrap();
        assert_eq!(prepared.snapshot.id, commit);
        writer.committed(true);
        publish(&ctx.store, &path, &prepared.snapshot).await.unwrap().require().unwrap();
    }
    let second = schema(&[DataType::String]);
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), second.clone(), small_options(1)).await.unwrap();
    assert_eq!(writer.schema().id, 1);
    writer.apply(batch(&second, &[(9, 1)]), vec![RowKind::Upsert]).unwrap();
    let prepared = writer.prepare(4, BTreeMap::new()).await.unwrap();
    assert_eq!(prepared.snapshot.id, 4);
    let loaded = TableVersion::load(&ctx.store, &path, &prepared.snapshot.json).await.unwrap();
    assert_eq!(loaded.row_count(), 1);
    assert_eq!(loaded.buckets, 1);
    let snapshot = Snapshot::from_json("snapshot", prepared.snapshot.json.as_bytes()).unwrap();
    assert_eq!(snapshot.total_record_count, 1);
    assert_eq!(snapshot.index_manifest, None);
    assert_eq!(snapshot.commit_kind, crate::paimon::CommitKind::Overwrite);
}

#[tokio::test]
async fn an_empty_result_writes_no_file() {
    let ctx = context();
    let path = Path::from("t");
    let schema = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), schema.clone(), small_options(1)).await.unwrap();
    let kinds = vec![RowKind::Upsert, RowKind::Delete, RowKind::Delete];
    writer.apply(batch(&schema, &[(1, 1), (1, 2), (2, 1)]), kinds).unwrap();
    let prepared = writer.prepare(1, BTreeMap::new()).await.unwrap();
    assert!(prepared.version.files.is_empty());
    let bucket = TablePaths::new(path).bucket(0);
    assert!(ctx.store.list_with_delimiter(Some(&bucket)).await.unwrap().objects.is_empty());
    writer.committed(true);
    assert!(!writer.is_dirty());
    // Rows that do nothing change nothing.
    writer.apply(batch(&schema, &[(5, 1)]), vec![RowKind::Delete]).unwrap();
    writer.flush().await.unwrap();
    assert!(!writer.is_dirty());
}

#[tokio::test]
async fn a_writer_that_failed_says_so_until_it_is_opened_again() {
    let ctx = context();
    let schema = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), Path::from("t"), schema.clone(), small_options(1)).await.unwrap();
    assert!(writer.apply(batch(&schema, &[(1, 1)]), Vec::new()).is_err());
    let other = super::tests::schema(&[DataType::String]);
    assert!(writer.apply(batch(&other, &[(1, 1)]), vec![RowKind::Upsert]).is_err());
    writer.apply(batch(&schema, &[(1, 1)]), vec![RowKind::Upsert]).unwrap();
    writer.prepare(1, BTreeMap::new()).await.unwrap();
}

#[tokio::test]
async fn many_commits_keep_the_manifest_lists_short() {
    let ctx = context();
    let path = Path::from("t");
    let schema = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), schema.clone(), small_options(1)).await.unwrap();
    let mut last = String::new();
    for commit in 1..=100_u64 {
        writer.apply(batch(&schema, &[(commit as i64, commit), (0, commit)]), vec![RowKind::Upsert; 2]).unwrap();
        let prepared = writer.prepare(commit, BTreeMap::new()).await.unwrap();
        // The first half is a table that is not visible yet.
        writer.committed(commit > 50);
        last = prepared.snapshot.json;
        let snapshot = Snapshot::from_json("snapshot", last.as_bytes()).unwrap();
        assert_eq!(snapshot.id, commit.saturating_sub(50).max(1));
        let paths = TablePaths::new(path.clone());
        for name in [&snapshot.base_manifest_list, &snapshot.delta_manifest_list] {
            let list = super::version::manifest_list(&ctx.store, &paths, name).await.unwrap();
            assert!(list.len() <= 31, "{} manifests", list.len());
        }
    }
    let loaded = TableVersion::load(&ctx.store, &path, &last).await.unwrap();
    assert_eq!(loaded.row_count(), 101);
    assert!(loaded.files.len() < 12, "{} files", loaded.files.len());
    let reopened = TableWriter::open(ctx, path, &last, true, TableOptions::default()).await.unwrap();
    assert_eq!(reopened.row_count(), 101);
}

/// Applies rows whose keys are `keys`, in batches of at most 5,000.
fn upsert(writer: &mut TableWriter, keys: impl IntoIterator<Item = i64>, version: u64, kind: RowKind) {
    let schema = Arc::clone(writer.schema());
    let keys: Vec<i64> = keys.into_iter().collect();
    for keys in keys.chunks(5000) {
        let rows: Vec<_> = keys.iter().map(|key| (*key, version)).collect();
        writer.apply(batch(&schema, &rows), vec![kind; rows.len()]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_rows_are_cleared_away_beside_the_writer() {
    let (ctx, path) = (context(), Path::from("t"));
    let options = TableOptions { rows_per_file: 5000, inline_merge_rows: 1000, ..TableOptions::default() };
    let schema = schema(&[DataType::BigInt]);
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), schema, options.clone()).await.unwrap();
    writer.begin_loading();
    upsert(&mut writer, 0..40_000, 0, RowKind::InsertAbsent);
    writer.prepare(1, BTreeMap::new()).await.unwrap();
    writer.committed(true);
    writer.end_loading();
    let mut random = StdRng::seed_from_u64(5);
    let mut newest: BTreeMap<i64, u64> = (0..40_000).map(|key| (key, 0)).collect();
    let mut last = String::new();
    for commit in 2..60_u64 {
        // Most changes meet one part of the table; some rows go.
        let keys: Vec<i64> = (0..700)
            .map(
                |_| if random.random_bool(0.7) { random.random_range(0..9000) } else { random.random_range(0..40_000) },
            )
            .collect();
        let (gone, changed) = keys.split_at(40);
        upsert(&mut writer, changed.iter().copied(), commit, RowKind::Upsert);
        upsert(&mut writer, gone.iter().copied(), commit, RowKind::Delete);
        newest.extend(changed.iter().map(|key| (*key, commit)));
        newest.retain(|key, _| !gone.contains(key));
        last = writer.prepare(commit, BTreeMap::new()).await.unwrap().snapshot.json;
        writer.committed(true);
        writer.buckets()[0].check();
        assert_eq!(writer.row_count(), newest.len() as u64);
        // Merges end at any time, also while rows are applied.
        tokio::time::sleep(std::time::Duration::from_millis(commit % 7)).await;
    }
    writer.compact().await.unwrap();
    writer.buckets()[0].check();
    for file in &writer.buckets()[0].files {
        assert!(file.deleted.len() < 1024 || file.live() * 4 >= file.rows() * 3, "{} of {}", file.live(), file.rows());
    }
    for _ in 0..2 {
        let prepared = writer.prepare(60, BTreeMap::new()).await.unwrap();
        let expected: BTreeMap<Vec<String>, Row> = newest
            .iter()
            .flat_map(|(key, version)| rows_of(writer.schema(), &batch(writer.schema(), &[(*key, *version)])))
            .collect();
        assert!(read_all(&ctx.store, &prepared.version).await == expected);
        // What was merged and not committed is forgotten by a writer that goes back.
        writer = TableWriter::open(ctx.clone(), path.clone(), &last, true, options.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_failed_write_the_table_is_opened_again_where_it_was() {
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let ctx = context_on(store.clone());
    let (path, schema) = (Path::from("t"), schema(&[DataType::BigInt]));
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), schema, small_options(1)).await.unwrap();
    upsert(&mut writer, 0..100, 1, RowKind::Upsert);
    let prepared = writer.prepare(1, BTreeMap::new()).await.unwrap();
    writer.committed(true);
    // Whichever write fails, nothing of the commit counts.
    for nth in 0.. {
        upsert(&mut writer, 50..150, 2, RowKind::Upsert);
        upsert(&mut writer, 0..10, 2, RowKind::Delete);
        store.inject_after(Operation::Put, "", Fault::Refuse, nth, 1);
        let outcome = writer.prepare(2, BTreeMap::new()).await;
        store.heal();
        if let Ok(prepared) = outcome {
            assert!(nth >= 5, "only {nth} writes");
            assert_eq!(prepared.version.row_count(), 140);
            break;
        }
        assert!(writer.flush().await.unwrap_err().to_string().contains("opened again"));
        let json = &prepared.snapshot.json;
        writer = TableWriter::open(ctx.clone(), path.clone(), json, true, small_options(1)).await.unwrap();
        assert_eq!(writer.row_count(), 100);
        let version = TableVersion::load(&ctx.store, &path, json).await.unwrap();
        assert_eq!(read_all(&ctx.store, &version).await.len(), 100);
    }
}

#[test]
fn every_step_can_run_on_another_thread() {
    fn is_send<T: Send>(_: T) {}
    fn check(ctx: &WriterContext, writer: &mut TableWriter, schema: TableSchema) {
        is_send(TableWriter::create(ctx.clone(), Path::from("t"), schema.clone(), TableOptions::default()));
        is_send(TableWriter::open(ctx.clone(), Path::from("t"), "", true, TableOptions::default()));
        is_send(TableVersion::load(&ctx.store, &Path::from("t"), ""));
        is_send(writer.prepare(1, BTreeMap::new()));
        is_send(writer.evolve(schema));
        is_send(writer.compact());
    }
    let _ = check;
}
