//! A table as its writer leaves it, through loads, updates, schema changes and merges.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use object_store::path::Path;
use tidegate_storage::checkpoint::publish;
use tidegate_storage::clock::ManualClock;
use tidegate_storage::paimon::{ColumnPosition, DataType, NewField, SchemaChange, TableSchema};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{RowKind, TableOptions, TableWriter, WriterContext};

use crate::engines::{At, JAVA, PYPAIMON, Read};

type Lines = BTreeMap<i64, Vec<Option<String>>>;

fn new_field(name: &str, data_type: DataType, nullable: bool) -> NewField {
    NewField { name: name.to_owned(), data_type, nullable, description: None }
}

struct Mirror {
    store: StoreRef,
    path: Path,
    writer: TableWriter,
    /// The version of each live row, and whether the row was written when there was a note.
    model: BTreeMap<i64, (u64, bool)>,
    commits: u64,
    wanted: Vec<Lines>,
}

impl Mirror {
    fn has_note(&self) -> bool {
        self.writer.schema().field("note").is_some()
    }

    fn line(&self, id: i64, version: u64, noted: bool) -> Vec<Option<String>> {
        let mut line = vec![
            Some(id.to_string()),
            (!version.is_multiple_of(3)).then(|| (id * 10 + version as i64).to_string()),
            Some(format!("row {id} version {version}")),
        ];
        if self.has_note() {
            line.push(noted.then(|| format!("note {version}")));
        }
        line
    }

    fn apply(&mut self, ids: impl IntoIterator<Item = i64>, version: u64, kind: RowKind) {
        let (has_note, schema) = (self.has_note(), Arc::clone(self.writer.schema()));
        let ids: Vec<i64> = ids.into_iter().collect();
        let number = |id: &i64| (!version.is_multiple_of(3)).then(|| id * 10 + version as i64);
        let wide = schema.fields[1].data_type == DataType::BigInt;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(ids.clone())),
            if wide {
                Arc::new(ids.iter().map(number).collect::<Int64Array>())
            } else {
                Arc::new(ids.iter().map(|id| number(id).map(|number| number as i32)).collect::<Int32Array>())
            },
            Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("row {id} version {version}")))),
        ];
        if has_note {
            columns.push(Arc::new(StringArray::from_iter_values(ids.iter().map(|_| format!("note {version}")))));
        }
        let batch = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
        self.writer.apply(batch, vec![kind; ids.len()]).unwrap();
        for id in ids {
            match kind {
                RowKind::Delete => drop(self.model.remove(&id)),
                RowKind::Upsert => drop(self.model.insert(id, (version, has_note))),
                RowKind::InsertAbsent => drop(self.model.entry(id).or_insert((version, has_note))),
                RowKind::UpdateBefore => {}
            }
        }
    }

    async fn commit(&mut self) {
        self.commits += 1;
        let properties = BTreeMap::from([("position".to_owned(), format!("binlog.000001:{}", self.commits))]);
        let prepared = self.writer.prepare(self.commits, properties).await.unwrap();
        publish(&self.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        self.writer.committed(true);
        let lines = self.model.iter().map(|(id, (version, noted))| (*id, self.line(*id, *version, *noted)));
        self.wanted.push(lines.collect());
    }
}

fn lines(read: Read) -> Lines {
    let count = read.rows.len();
    let lines: Lines = read.rows.into_iter().map(|row| (row[0].as_ref().unwrap().parse().unwrap(), row)).collect();
    assert_eq!(lines.len(), count, "a row appears twice");
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_snapshot_of_a_writer_is_read() {
    let warehouse = tempfile::tempdir().unwrap();
    let root = warehouse.path().to_str().unwrap();
    let store = store::open(root, &[]).unwrap();
    let fields = vec![
        new_field("id", DataType::BigInt, false),
        new_field("number", DataType::Int, true),
        new_field("text", DataType::String, true),
    ];
    let schema = TableSchema::new(fields, vec!["id".to_owned()], BTreeMap::new(), None, 0).unwrap();
    let clock = Arc::new(ManualClock::new(1_767_225_600_000));
    let ctx = WriterContext {
        store: Arc::clone(&store),
        clock,
        commit_user: "source-1".to_owned(),
        resources: Arc::default(),
    };
    let options = TableOptions { buckets: 2, rows_per_file: 400, inline_merge_rows: 300, ..TableOptions::default() };
    let path = Path::from("default.db/items");
    let writer = TableWriter::create(ctx, path.clone(), schema, options).await.unwrap();
    let mut mirror = Mirror { store, path, writer, model: BTreeMap::new(), commits: 0, wanted: Vec::new() };

    // Pages and the log at the same time; then the log alone.
    mirror.writer.begin_loading();
    for page in 0..4 {
        mirror.apply((page * 70..page * 70 + 20).chain([-5, 900]), 2, RowKind::Upsert);
        mirror.apply(page * 300..page * 300 + 300, 1, RowKind::InsertAbsent);
        mirror.commit().await;
    }
    mirror.writer.end_loading();
    for version in 4..12 {
        mirror.apply((0..90).map(|n| (n * 37 + version as i64 * 11) % 1300), version, RowKind::Upsert);
        mirror.apply((0..15).map(|n| (n * 71 + version as i64 * 5) % 1300), version, RowKind::Delete);
        mirror.commit().await;
    }
    mirror.writer.compact().await.unwrap();
    mirror.commit().await;

    let changes = [
        SchemaChange::AddColumn {
            field: new_field("note", DataType::String, true),
            position: ColumnPosition::Last,
            initial_default: None,
        },
        SchemaChange::RenameColumn { from: "text".into(), to: "words".into() },
        SchemaChange::ChangeType { name: "number".into(), data_type: DataType::BigInt, nullable: true },
    ];
    let before_change = mirror.wanted.len();
    let schema = mirror.writer.schema().evolve(&changes, 1).unwrap();
    mirror.writer.evolve(schema).await.unwrap();
    for version in 13..22 {
        mirror.apply((0..200).map(|n| (n * 53 + version as i64) % 1300), version, RowKind::Upsert);
        mirror.commit().await;
    }
    mirror.writer.compact().await.unwrap();
    mirror.commit().await;
    mirror.writer.truncate().await.unwrap();
    mirror.model.clear();
    mirror.apply(0..10, 23, RowKind::Upsert);
    mirror.commit().await;

    let folder = warehouse.path().join("default.db/items");
    for engine in [&*PYPAIMON, &*JAVA] {
        for (number, wanted) in mirror.wanted.iter().enumerate() {
            let columns: &[&str] =
                if number < before_change { &["id", "number", "text"] } else { &["id", "number", "words", "note"] };
            let snapshot = number as u64 + 1;
            let read = engine.read(&folder, At::Snapshot(snapshot), &[]).unwrap();
            assert_eq!(read.columns, columns, "{}: snapshot {snapshot}", engine.name);
            assert_eq!(lines(read), *wanted, "{}: snapshot {snapshot}", engine.name);
        }
        let seven = engine.read(&folder, At::Newest, &[("id".to_owned(), "=", "7".to_owned())]).unwrap();
        assert_eq!(lines(seven).into_keys().collect::<Vec<_>>(), [7], "{}", engine.name);
    }
}
