//! A table written with this crate's encoders alone, without its writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::take;
use object_store::path::Path;
use roaring::RoaringBitmap;
use tidegate_storage::checkpoint::{PreparedSnapshot, publish};
use tidegate_storage::paimon::data_file::{self, Age};
use tidegate_storage::paimon::manifest::{encode_index_manifest, encode_manifest, encode_manifest_list};
use tidegate_storage::paimon::paths::{
    data_file_name, index_file_name, index_manifest_name, manifest_list_name, manifest_name,
};
use tidegate_storage::paimon::snapshot::SNAPSHOT_VERSION;
use tidegate_storage::paimon::{
    ColumnPosition, CommitKind, DataFileMeta, DataType, FileKind, FileSource, IndexManifestEntry, ManifestEntry,
    ManifestFileMeta, NewField, SchemaChange, SimpleStats, Snapshot, TablePaths, TableSchema, binary_row, bucket,
    deletion_vector,
};
use tidegate_storage::store::{self, StoreRef};
use uuid::Uuid;

use crate::engines::{At, JAVA, PYPAIMON, Read};
use crate::texts::{Line, lines};

/// Where the table lies in its store.
const PATH: &str = "default.db/things";
const BUCKETS: u32 = 3;
const TOP_LEVEL: i32 = 7;
/// 2026-01-01T00:00:00Z.
const START_MS: i64 = 1_767_225_600_000;

/// A row's key and the version that its other columns follow from.
type Row = (Key, u64);

/// Ordered as the format orders it: strings by their bytes, decimals as numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key(String, i128);

fn key(n: u64) -> Key {
    // Short and long strings; negative ids, and some beyond 64 signed bits.
    let region = ["", "eu", "asia-pacific", "südamerika"][n as usize % 4];
    let id = match n {
        n if n.is_multiple_of(7) => i128::from(u64::MAX - n),
        n if n.is_multiple_of(3) => -i128::from(n),
        n => i128::from(n),
    };
    Key(region.into(), id)
}

fn first_schema() -> TableSchema {
    let field = |name: &str, data_type, nullable| NewField {
        name: name.into(),
        data_type,
        nullable,
        description: Some(format!("the {name}")),
    };
    let fields = vec![
        field("region", DataType::Varchar(20), false),
        field("flag", DataType::Boolean, true),
        field("tiny", DataType::TinyInt, true),
        field("small", DataType::SmallInt, true),
        field("int", DataType::Int, true),
        field("big", DataType::BigInt, true),
        field("float", DataType::Float, true),
        field("double", DataType::Double, true),
        field("price", DataType::Decimal { precision: 12, scale: 2 }, true),
        field("huge", DataType::Decimal { precision: 38, scale: 5 }, true),
        field("text", DataType::String, true),
        field("hash", DataType::Binary(4), true),
        field("blob", DataType::Bytes, true),
        field("day", DataType::Date, true),
        field("at", DataType::Timestamp(6), true),
        field("since", DataType::TimestampLtz(6), true),
        field("id", DataType::Decimal { precision: 20, scale: 0 }, false),
    ];
    let options = TableSchema::default_options(BUCKETS, TOP_LEVEL as u32 + 1);
    TableSchema::new(fields, vec!["region".into(), "id".into()], options, Some("All types".into()), START_MS).unwrap()
}

/// The rows as the table's columns.
fn batch(schema: &TableSchema, rows: &[Row]) -> RecordBatch {
    let seed = |(key, version): &Row, salt: u64| {
        let text = key.0.bytes().fold(salt, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        (text ^ key.1 as u64).wrapping_add(version << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
    };
    let columns = schema.fields.iter().map(|field| -> ArrayRef {
        let salt = field.id as u64 + 1;
        // About one in seven is NULL.
        let values: Vec<Option<u64>> =
            rows.iter().map(|row| Some(seed(row, salt)).filter(|n| !n.is_multiple_of(7))).collect();
        let signed = || values.iter().map(|n| n.map(|n| n as i64 - (1 << 54)));
        match (field.name.as_str(), &field.data_type) {
            ("region", _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, _)| &key.0))),
            ("id", _) => {
                let ids = Decimal128Array::from_iter_values(rows.iter().map(|(key, _)| key.1));
                Arc::new(ids.with_precision_and_scale(20, 0).unwrap())
            }
            (_, DataType::Boolean) => Arc::new(BooleanArray::from_iter(values.iter().map(|n| n.map(|n| n % 2 == 0)))),
            (_, DataType::TinyInt) => Arc::new(Int8Array::from_iter(signed().map(|n| n.map(|n| n as i8)))),
            (_, DataType::SmallInt) => Arc::new(Int16Array::from_iter(signed().map(|n| n.map(|n| n as i16)))),
            (_, DataType::Int) => Arc::new(Int32Array::from_iter(signed().map(|n| n.map(|n| n as i32)))),
            (_, DataType::BigInt) => Arc::new(Int64Array::from_iter(signed().map(|n| n.map(|n| n.wrapping_mul(1021))))),
            (_, DataType::Float) => Arc::new(Float32Array::from_iter(signed().map(|n| n.map(|n| n as f32 / 3.0)))),
            (_, DataType::Double) => Arc::new(Float64Array::from_iter(signed().map(|n| n.map(|n| n as f64 / 3.0)))),
            (_, DataType::Decimal { precision, scale }) => {
                let limit = 10_i128.pow(u32::from(*precision));
                let wide = signed().map(|n| n.map(|n| (i128::from(n).pow(2) * i128::from(n.signum())) % limit));
                Arc::new(Decimal128Array::from_iter(wide).with_precision_and_scale(*precision, *scale).unwrap())
            }
            (_, DataType::String) => Arc::new(StringArray::from_iter(
                values.iter().map(|n| n.map(|n| format!("{n} ☂ \"\\\n").repeat(n as usize % 3))),
            )),
            (_, DataType::Binary(_)) => {
                Arc::new(BinaryArray::from_iter(values.iter().map(|n| n.map(|n| (n as u32).to_be_bytes()))))
            }
            (_, DataType::Bytes) => Arc::new(BinaryArray::from_iter(
                values.iter().map(|n| n.map(|n| n.to_be_bytes()[8 - n as usize % 9..].to_vec())),
            )),
            (_, DataType::Date) => Arc::new(Date32Array::from_iter(signed().map(|n| n.map(|n| (n % 30_000) as i32)))),
            (_, DataType::Timestamp(_)) => {
                Arc::new(TimestampMicrosecondArray::from_iter(signed().map(|n| n.map(|n| n / 8))))
            }
            (_, DataType::TimestampLtz(_)) => {
                Arc::new(TimestampMicrosecondArray::from_iter(signed().map(|n| n.map(|n| n / 8))).with_timezone("UTC"))
            }
            (name, other) => panic!("{name} {other}"),
        }
    });
    RecordBatch::try_new(schema.arrow_schema(), columns.collect()).unwrap()
}

#[derive(Default)]
struct Bucket {
    next_sequence: i64,
    vectors: BTreeMap<String, RoaringBitmap>,
    index: Option<IndexManifestEntry>,
}

/// Writes a table the way the storage engine does, only simpler.
struct Table {
    store: StoreRef,
    paths: TablePaths,
    schema: TableSchema,
    buckets: Vec<Bucket>,
    /// Where each live row is: bucket, file, position.
    places: BTreeMap<Key, (usize, String, u32)>,
    /// Which schema and version each live row was written with.
    model: BTreeMap<Key, (TableSchema, u64)>,
    base: Vec<ManifestFileMeta>,
    total: i64,
    snapshot: u64,
}

impl Table {
    async fn create(store: StoreRef, root: &str) -> Self {
        let paths = TablePaths::new(Path::from(root));
        let schema = first_schema();
        store::create_own(&*store, &paths.schema(0), schema.to_json().into()).await.unwrap();
        Self {
            store,
            paths,
            schema,
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            places: BTreeMap::new(),
            model: BTreeMap::new(),
            base: Vec::new(),
            total: 0,
            snapshot: 0,
        }
    }

    async fn evolve(&mut self, changes: &[SchemaChange]) {
        self.schema = self.schema.evolve(changes, START_MS).unwrap();
        let path = self.paths.schema(self.schema.id);
        store::create_own(&*self.store, &path, self.schema.to_json().into()).await.unwrap();
    }

    async fn put(&self, path: Path, bytes: Vec<u8>) -> usize {
        let size = bytes.len();
        store::write(&*self.store, &path, bytes.into()).await.unwrap();
        size
    }

    /// One commit: rows written as a run of `level`, keys deleted.
    async fn commit(&mut self, level: i32, rows: &[Row], deletes: &[Key]) {
        self.snapshot += 1;
        let id = Uuid::from_u128(u128::from(self.snapshot));
        let mut touched = vec![false; self.buckets.len()];
        for key in rows.iter().map(|(key, _)| key).chain(deletes) {
            if let Some((bucket, file, position)) = self.places.remove(key) {
                self.buckets[bucket].vectors.entry(file).or_default().insert(position);
                touched[bucket] = true;
            }
        }
        for key in deletes {
            self.model.remove(key).unwrap();
        }
        let mut entries = Vec::new();
        if !rows.is_empty() {
            let all = batch(&self.schema, rows);
            let keys: Vec<_> = self.schema.key_indices().into_iter().map(|i| Arc::clone(all.column(i))).collect();
            let buckets = bucket::buckets_of(&self.schema.key_types(), &keys, BUCKETS).unwrap();
            for bucket in 0..BUCKETS {
                let mut members: Vec<u32> =
                    (0..rows.len() as u32).filter(|row| buckets[*row as usize] == bucket).collect();
                members.sort_by_key(|row| &rows[*row as usize].0);
                if members.is_empty() {
                    continue;
                }
                let meta = self.write_run(bucket, level, &all, &members, id).await;
                for (position, row) in (0..).zip(&members) {
                    let (key, version) = &rows[*row as usize];
                    self.places.insert(key.clone(), (bucket as usize, meta.file_name.clone(), position));
                    self.model.insert(key.clone(), (self.schema.clone(), *version));
                }
                entries.push(ManifestEntry::new(FileKind::Add, bucket, BUCKETS, meta));
            }
        }
        for (bucket, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
            let vectors: Vec<_> =
                self.buckets[bucket].vectors.iter().map(|(file, bitmap)| (file.clone(), bitmap)).collect();
            let (bytes, metas) = deletion_vector::encode_index_file(&vectors).unwrap();
            let name = index_file_name(id, bucket as u32);
            let size = self.put(self.paths.index(&name), bytes).await;
            self.buckets[bucket].index = Some(IndexManifestEntry::deletion_vectors(bucket as u32, name, size, metas));
        }
        self.write_snapshot(id, &entries).await;
    }

    async fn write_run(
        &mut self,
        bucket: u32,
        level: i32,
        all: &RecordBatch,
        members: &[u32],
        id: Uuid,
    ) -> DataFileMeta {
        let schema = &self.schema;
        let indices = UInt32Array::from(members.to_vec());
        let columns: Vec<ArrayRef> = all.columns().iter().map(|column| take(column, &indices, None).unwrap()).collect();
        let keys: Vec<_> = schema.key_indices().into_iter().map(|i| Arc::clone(&columns[i])).collect();
        let count = members.len() as i64;
        let first = self.buckets[bucket as usize].next_sequence;
        self.buckets[bucket as usize].next_sequence += count;
        let sequence: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
        let kinds: ArrayRef = Arc::new(Int8Array::from_value(0, members.len()));
        let file_columns = keys.iter().cloned().chain([sequence, kinds]).chain(columns).collect();
        let rows = RecordBatch::try_new(schema.file_schema(), file_columns).unwrap();
        let age = if level == TOP_LEVEL { Age::Old } else { Age::Young };
        let name = data_file_name(id, bucket);
        let path = self.paths.data_file(bucket, &name);
        let bytes = data_file::encode(path.as_ref(), schema, age, &[rows]).unwrap();
        let types = schema.key_types();
        let min_key = binary_row::serialize(&types, &keys, 0).unwrap();
        let max_key = binary_row::serialize(&types, &keys, members.len() - 1).unwrap();
        let schema_id = schema.id as i64;
        let key_stats = self.key_stats(&keys);
        let file_size = self.put(path, bytes).await as i64;
        DataFileMeta {
            file_name: name,
            file_size,
            row_count: count,
            min_key,
            max_key,
            key_stats,
            value_stats: SimpleStats::empty(),
            min_sequence_number: first,
            max_sequence_number: first + count - 1,
            schema_id,
            level,
            extra_files: Vec::new(),
            creation_time: Some(START_MS),
            delete_row_count: Some(0),
            embedded_file_index: None,
            file_source: Some(FileSource::Append),
            value_stats_cols: Some(Vec::new()),
            external_path: None,
            first_row_id: None,
            write_cols: None,
            write_cols_sequences: None,
        }
    }

    /// Smallest and largest value of each key column by itself.
    fn key_stats(&self, keys: &[ArrayRef]) -> SimpleStats {
        let types = self.schema.key_types();
        let ends = |last: bool| -> Vec<u8> {
            let values: Vec<ArrayRef> = keys
                .iter()
                .map(|key| {
                    let options = arrow::compute::SortOptions { descending: last, nulls_first: false };
                    arrow::compute::sort_limit(key, Some(options), Some(1)).unwrap()
                })
                .collect();
            binary_row::serialize(&types, &values, 0).unwrap()
        };
        SimpleStats { min_values: ends(false), max_values: ends(true), null_counts: Some(vec![Some(0); keys.len()]) }
    }

    async fn write_snapshot(&mut self, id: Uuid, entries: &[ManifestEntry]) {
        let mut delta = Vec::new();
        if !entries.is_empty() {
            let name = manifest_name(id, 0);
            let size = self.put(self.paths.manifest(&name), encode_manifest(entries)).await;
            delta.push(ManifestFileMeta::of(name, size, self.schema.id, entries));
        }
        let (base_name, delta_name) = (manifest_list_name(id, 0), manifest_list_name(id, 1));
        let base_size = self.put(self.paths.manifest(&base_name), encode_manifest_list(&self.base)).await;
        let delta_size = self.put(self.paths.manifest(&delta_name), encode_manifest_list(&delta)).await;
        self.base.append(&mut delta);
        let index: Vec<_> = self.buckets.iter().filter_map(|bucket| bucket.index.clone()).collect();
        let index_name = index_manifest_name(id, 0);
        if !index.is_empty() {
            self.put(self.paths.manifest(&index_name), encode_index_manifest(&index)).await;
        }
        let added: i64 = entries.iter().map(|entry| entry.file.row_count).sum();
        self.total += added;
        let snapshot = Snapshot {
            version: SNAPSHOT_VERSION,
            uuid: Some(id),
            id: self.snapshot,
            schema_id: self.schema.id,
            base_manifest_list: base_name,
            base_manifest_list_size: Some(base_size as i64),
            delta_manifest_list: delta_name,
            delta_manifest_list_size: Some(delta_size as i64),
            changelog_manifest_list: None,
            changelog_manifest_list_size: None,
            index_manifest: (!index.is_empty()).then_some(index_name),
            commit_user: "test".into(),
            writer_version: None,
            commit_identifier: self.snapshot as i64,
            commit_kind: if index.is_empty() { CommitKind::Append } else { CommitKind::Overwrite },
            time_millis: START_MS + self.snapshot as i64 * 1000,
            total_record_count: self.total,
            delta_record_count: added,
            changelog_record_count: None,
            watermark: None,
            statistics: None,
            properties: Some(BTreeMap::from([("tidegate.checkpoint".into(), self.snapshot.to_string())])),
            next_row_id: Some(0),
        };
        let prepared = PreparedSnapshot { id: self.snapshot, json: snapshot.to_json() };
        publish(&self.store, self.paths.root(), &prepared).await.unwrap().require().unwrap();
        publish(&self.store, self.paths.root(), &prepared).await.unwrap().require().unwrap();
    }

    /// What a reader must see, in key order: each row as it was written, columns found by field id, of today's schema.
    fn expected(&self, schema: &TableSchema) -> Vec<Line> {
        let row = |(key, (written, version)): (&Key, &(TableSchema, u64))| {
            let line = lines(batch(written, &[(key.clone(), *version)]).columns()).remove(0);
            let value = |id| written.fields.iter().position(|field| field.id == id).and_then(|i| line[i].clone());
            schema.fields.iter().map(|field| value(field.id)).collect()
        };
        self.model.iter().map(row).collect()
    }
}

/// Rows as an engine sees them, in the order of their keys in `schema`.
fn rows_of(read: Read, schema: &TableSchema) -> Vec<Line> {
    let names: Vec<_> = schema.fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(read.columns, names);
    let mut rows = read.rows;
    let (region, id) = (schema.index_of("region").unwrap(), schema.index_of("id").unwrap());
    rows.sort_by_key(|row| Key(row[region].clone().unwrap(), row[id].as_ref().unwrap().parse().unwrap()));
    rows
}

#[tokio::test]
async fn what_the_encoders_write_is_read() {
    let warehouse = tempfile::tempdir().unwrap();
    let root = warehouse.path().to_str().unwrap();
    let mut table = Table::create(store::open(root, &[]).unwrap(), PATH).await;
    let mut wanted = Vec::new();

    // A bulk load; then updates, inserts and deletes; then deletes alone.
    let keys: Vec<Key> = (0..600).map(key).collect();
    assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 600);
    table.commit(TOP_LEVEL, &keys[..500].iter().map(|key| (key.clone(), 1)).collect::<Vec<_>>(), &[]).await;
    wanted.push(table.expected(&table.schema));
    table.commit(5, &keys[470..530].iter().map(|key| (key.clone(), 2)).collect::<Vec<_>>(), &keys[..15]).await;
    wanted.push(table.expected(&table.schema));
    table.commit(5, &[], &keys[100..300]).await;
    wanted.push(table.expected(&table.schema));

    // A column is added in the middle, one renamed, one dropped, one widened; updates reach files of both schemas.
    let note = NewField { name: "note".into(), data_type: DataType::String, nullable: true, description: None };
    let changes = [
        SchemaChange::AddColumn { field: note, position: ColumnPosition::After("flag".into()), initial_default: None },
        SchemaChange::RenameColumn { from: "price".into(), to: "cost".into() },
        SchemaChange::DropColumn { name: "small".into() },
        SchemaChange::ChangeType { name: "int".into(), data_type: DataType::BigInt, nullable: true },
    ];
    table.evolve(&changes).await;
    table.commit(4, &keys[460..540].iter().map(|key| (key.clone(), 3)).collect::<Vec<_>>(), &keys[15..20]).await;
    wanted.push(table.expected(&table.schema));

    let folder = warehouse.path().join(PATH);
    for engine in [&*PYPAIMON, &*JAVA] {
        for (number, wanted) in (1..).zip(&wanted) {
            let schema = if number < 4 { first_schema() } else { table.schema.clone() };
            let rows = rows_of(engine.read(&folder, At::Snapshot(number), &[]).unwrap(), &schema);
            assert_eq!(rows.len(), wanted.len(), "{}: snapshot {number}", engine.name);
            for (row, wanted) in rows.iter().zip(wanted) {
                assert_eq!(row, wanted, "{}: snapshot {number}", engine.name);
            }
        }
        // A lookup by the whole key, for which a reader may go by the bucket's hash.
        let key = &keys[503];
        assert_eq!(key.0, "südamerika");
        let filter = [("region".to_owned(), "=", key.0.clone()), ("id".to_owned(), "=", key.1.to_string())];
        let found = rows_of(engine.read(&folder, At::Newest, &filter).unwrap(), &table.schema);
        let position = table.model.keys().position(|other| other == key).unwrap();
        assert_eq!(found, [wanted[3][position].clone()], "{}", engine.name);
    }
}
