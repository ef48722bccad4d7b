//! A table whose schema changed several times, with initial defaults and files of every version, read by other engines.
//!
//! They read all of it as we do, but for one thing: they do not know of initial defaults. Rows of files that were
//! written before a column was added have NULL in it there, until a merge has written them anew.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use object_store::path::Path;
use tidegate_storage::checkpoint::{PreparedSnapshot, publish};
use tidegate_storage::clock::ManualClock;
use tidegate_storage::paimon::{ColumnPosition, DataType, NewField, SchemaChange, TableSchema};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{RowKind, TableOptions, TableWriter, WriterContext};

use crate::engines::{At, JAVA, PYPAIMON};

fn data_type(text: &str) -> DataType {
    text.parse().unwrap()
}

fn new_field(name: &str, data_type: &str, nullable: bool) -> NewField {
    NewField { name: name.to_owned(), data_type: self::data_type(data_type), nullable, description: None }
}

fn add(name: &str, data_type: &str, position: ColumnPosition, default: Option<&str>) -> SchemaChange {
    SchemaChange::AddColumn {
        field: new_field(name, data_type, true),
        position,
        initial_default: default.map(str::to_owned),
    }
}

fn widen(name: &str, data_type: &str) -> SchemaChange {
    SchemaChange::ChangeType { name: name.to_owned(), data_type: self::data_type(data_type), nullable: true }
}

fn rename(from: &str, to: &str) -> SchemaChange {
    SchemaChange::RenameColumn { from: from.to_owned(), to: to.to_owned() }
}

/// What a column holds in row `id`: the same number in each of its types.
fn column(data_type: &DataType, ids: &[i64]) -> ArrayRef {
    let ids = ids.iter().copied();
    match data_type {
        DataType::Int => Arc::new(Int32Array::from_iter_values(ids.map(|id| id as i32))),
        DataType::BigInt => Arc::new(Int64Array::from_iter_values(ids)),
        DataType::Float => Arc::new(Float32Array::from_iter_values(ids.map(|id| id as f32 / 3.0))),
        DataType::Double => Arc::new(Float64Array::from_iter_values(ids.map(|id| f64::from(id as f32 / 3.0)))),
        DataType::Decimal { precision, scale } => {
            let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let values = Decimal128Array::from_iter_values(ids.map(|id| i128::from(id) * unit));
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Varchar(_) | DataType::String => {
            Arc::new(StringArray::from_iter_values(ids.map(|id| format!("text {id}"))))
        }
        DataType::Date => Arc::new(Date32Array::from_iter_values(ids.map(|id| id as i32))),
        DataType::Timestamp(_) => {
            Arc::new(TimestampMicrosecondArray::from_iter_values(ids.map(|id| id * 86_400_000_000)))
        }
        other => panic!("no values of type {other}"),
    }
}

/// The same as engines print it.
fn printed(data_type: &DataType, id: i64) -> String {
    match data_type {
        DataType::Int | DataType::BigInt | DataType::Date => id.to_string(),
        DataType::Float => format!("{:08x}", (id as f32 / 3.0).to_bits()),
        DataType::Double => format!("{:016x}", f64::from(id as f32 / 3.0).to_bits()),
        DataType::Decimal { scale, .. } => (id * 10_i64.pow(u32::from(scale.unsigned_abs()))).to_string(),
        DataType::Varchar(_) | DataType::String => format!("text {id}"),
        DataType::Timestamp(_) => (id * 86_400_000_000).to_string(),
        other => panic!("no values of type {other}"),
    }
}

/// Columns in order, and by `id` the rows.
type Contents = (Vec<String>, BTreeMap<i64, Vec<Option<String>>>);

struct Mirror {
    store: StoreRef,
    path: Path,
    writer: TableWriter,
    /// Version of the schema that each row was written with.
    rows: BTreeMap<i64, u64>,
    /// For each column by id: the version of the schema it came with, and what old rows have in it.
    added: BTreeMap<i32, (u64, Option<String>)>,
    commits: u64,
    wanted: Vec<Contents>,
}

impl Mirror {
    fn apply(&mut self, ids: Range<i64>) {
        let schema = Arc::clone(self.writer.schema());
        let ids: Vec<i64> = ids.collect();
        let columns = schema.fields.iter().map(|field| column(&field.data_type, &ids)).collect();
        let batch = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
        self.writer.apply(batch, vec![RowKind::Upsert; ids.len()]).unwrap();
        self.rows.extend(ids.into_iter().map(|id| (id, schema.id)));
    }

    /// `printed` is what engines print for the default of each column that has one.
    async fn evolve(&mut self, changes: &[SchemaChange], printed: &[(&str, &str)]) {
        let schema = self.writer.schema().evolve(changes, 1).unwrap();
        self.writer.evolve(schema).await.unwrap();
        let schema = Arc::clone(self.writer.schema());
        for field in &schema.fields {
            let default = printed.iter().find(|(name, _)| *name == field.name).map(|(_, text)| (*text).to_owned());
            match self.added.get_mut(&field.id) {
                Some((_, old)) if default.is_some() => *old = default,
                Some(_) => {}
                None => drop(self.added.insert(field.id, (schema.id, default))),
            }
        }
    }

    async fn publish(&mut self) -> PreparedSnapshot {
        self.commits += 1;
        let prepared = self.writer.prepare(self.commits, BTreeMap::new()).await.unwrap();
        publish(&self.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        self.writer.committed(true);
        prepared.snapshot
    }

    /// Publishes a snapshot; `written_out` says whether every row is in a file that has all columns.
    async fn commit(&mut self, written_out: bool) -> PreparedSnapshot {
        let snapshot = self.publish().await;
        let schema = self.writer.schema();
        let line = |(id, written): (&i64, &u64)| {
            let values = schema.fields.iter().map(|field| match self.added.get(&field.id) {
                Some((added, default)) if added > written => default.clone().filter(|_| written_out),
                _ => Some(printed(&field.data_type, *id)),
            });
            (*id, values.collect())
        };
        let names = schema.fields.iter().map(|field| field.name.clone()).collect();
        self.wanted.push((names, self.rows.iter().map(line).collect()));
        snapshot
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_are_read_once_a_merge_has_written_them() {
    let warehouse = tempfile::tempdir().unwrap();
    let root = warehouse.path().to_str().unwrap();
    let store = store::open(root, &[]).unwrap();
    let fields = vec![
        new_field("id", "BIGINT", false),
        new_field("number", "INT", true),
        new_field("real", "FLOAT", true),
        new_field("price", "DECIMAL(6, 2)", true),
        new_field("words", "VARCHAR(10)", true),
        new_field("day", "DATE", true),
        new_field("gone", "STRING", true),
    ];
    let schema = TableSchema::new(fields, vec!["id".to_owned()], BTreeMap::new(), None, 0).unwrap();
    let clock = Arc::new(ManualClock::new(1_767_225_600_000));
    let ctx = WriterContext {
        store: Arc::clone(&store),
        clock,
        commit_user: "source-1".to_owned(),
        resources: Arc::default(),
    };
    let path = Path::from("default.db/items");
    let still = TableOptions { compaction: false, ..TableOptions::default() };
    let writer = TableWriter::create(ctx.clone(), path.clone(), schema, still).await.unwrap();
    let added = writer.schema().fields.iter().map(|field| (field.id, (0, None))).collect();
    let rows = BTreeMap::new();
    let mut mirror = Mirror { store, path: path.clone(), writer, rows, added, commits: 0, wanted: Vec::new() };
    mirror.apply(0..20);
    mirror.commit(false).await;

    // Everything in one snapshot.
    let changes = [
        add("added", "INT", ColumnPosition::First, Some("11")),
        rename("number", "amount"),
        rename("real", "number"),
        widen("amount", "BIGINT"),
        widen("number", "DOUBLE"),
        widen("price", "DECIMAL(12, 4)"),
        widen("words", "STRING"),
        widen("day", "TIMESTAMP(6)"),
        SchemaChange::DropColumn { name: "gone".to_owned() },
        add("gone", "INT", ColumnPosition::After("id".to_owned()), None),
        SchemaChange::Move { name: "words".to_owned(), position: ColumnPosition::First },
    ];
    mirror.evolve(&changes, &[("added", "11")]).await;
    mirror.commit(false).await;
    mirror.apply(15..30);
    mirror.commit(false).await;
    let changes = [
        rename("added", "extra"),
        widen("extra", "DECIMAL(20, 2)"),
        rename("gone", "added"),
        add("gone", "VARCHAR(9)", ColumnPosition::Last, Some("é \"q\" \\")),
        add("since", "TIMESTAMP(6)", ColumnPosition::After("id".to_owned()), Some("1970-01-02 00:00:00.5")),
    ];
    mirror.evolve(&changes, &[("extra", "1100"), ("gone", "é \"q\" \\"), ("since", "86400500000")]).await;
    mirror.apply(25..40);
    let last = mirror.commit(false).await;

    // Now with merges, until there is no file of an older version, and still some rows of each.
    mirror.writer = TableWriter::open(ctx, path, &last.json, true, TableOptions::default()).await.unwrap();
    let newest = mirror.writer.schema().id as i64;
    for round in 0.. {
        assert!(round < 50, "files of older versions are still there");
        mirror.apply(5 + round % 5..8 + round % 5);
        mirror.apply(18..21);
        mirror.writer.flush().await.unwrap();
        mirror.writer.compact().await.unwrap();
        let prepared = mirror.writer.prepare(mirror.commits + 1, BTreeMap::new()).await.unwrap();
        if prepared.version.files.iter().all(|file| file.meta.schema_id == newest) {
            break;
        }
    }
    assert!((0..newest as u64).all(|old| mirror.rows.values().any(|written| *written == old)));
    mirror.commit(true).await;

    let folder = warehouse.path().join("default.db/items");
    for engine in [&*PYPAIMON, &*JAVA] {
        for (snapshot, (columns, wanted)) in (1..).zip(&mirror.wanted) {
            let read = engine.read(&folder, At::Snapshot(snapshot), &[]).unwrap();
            assert_eq!(read.columns, *columns, "{}: snapshot {snapshot}", engine.name);
            let id = columns.iter().position(|column| column == "id").unwrap();
            let mut by_id = BTreeMap::new();
            for row in read.rows {
                let id: i64 = row[id].as_ref().unwrap().parse().unwrap();
                assert!(by_id.insert(id, row).is_none(), "{}: row {id} appears twice", engine.name);
            }
            assert_eq!(by_id, *wanted, "{}: snapshot {snapshot}", engine.name);
        }
    }
}
