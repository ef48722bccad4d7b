//! Scans against the truth: the same rows in memory, without the deleted ones.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Decimal128Array, Int8Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::DataType as Arrow;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use roaring::RoaringBitmap;
use tidegate_storage::clock::SystemClock;
use tidegate_storage::paimon::data_file::{self, Age};
use tidegate_storage::paimon::manifest::SimpleStats;
use tidegate_storage::paimon::{
    ColumnPosition, DataFileMeta, DataType, NewField, SchemaChange, TableSchema, binary_row,
};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{LiveFile, RowKind, TableOptions, TableVersion, TableWriter, WriterContext};

mod evolution;

use super::FileError;
use crate::context::{QueryRuntime, RuntimeOptions};

/// A small generator of numbers, the same ones each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn field(name: &str, data_type: DataType, nullable: bool) -> NewField {
    NewField { name: name.to_owned(), data_type, nullable, description: None }
}

fn orders() -> TableSchema {
    TableSchema::new(
        vec![
            field("id", DataType::BigInt, false),
            field("customer", DataType::Int, true),
            field("amount", DataType::Decimal { precision: 12, scale: 2 }, true),
            field("status", DataType::Varchar(20), true),
            field("created", DataType::Timestamp(6), true),
        ],
        vec!["id".to_owned()],
        TableSchema::default_options(1, 6),
        None,
        0,
    )
    .unwrap()
}

/// Rows of the first schema, with ids `first..first + rows`.
fn rows(schema: &TableSchema, first: i64, rows: i64, numbers: &mut Numbers) -> RecordBatch {
    let ids = first..first + rows;
    let nullable = |numbers: &mut Numbers, below: u64| (numbers.next(10) != 0).then(|| numbers.next(below) as i64);
    let customers: Vec<Option<i64>> = ids.clone().map(|_| nullable(numbers, 50)).collect();
    let amounts: Vec<Option<i64>> = ids.clone().map(|_| nullable(numbers, 100_000)).collect();
    let states: Vec<Option<i64>> = ids.clone().map(|_| nullable(numbers, 4)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(customers.iter().map(|value| value.map(|value| value as i32)).collect::<Int32Array>()),
        Arc::new(
            amounts
                .iter()
                .map(|value| value.map(i128::from))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(
            states
                .iter()
                .map(|value| value.map(|value| ["new", "paid", "sent", "lost"][value as usize]))
                .collect::<StringArray>(),
        ),
        Arc::new(TimestampMicrosecondArray::from_iter_values(ids.map(|id| 1_700_000_000_000_000 + id * 1_000_000))),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

/// The rows of `batch` with the columns that a file has beside them.
fn file_rows(schema: &TableSchema, batch: &RecordBatch) -> RecordBatch {
    let count = batch.num_rows();
    let mut columns: Vec<ArrayRef> = schema.key_indices().iter().map(|at| Arc::clone(batch.column(*at))).collect();
    columns.push(Arc::new(Int64Array::from_iter_values(0..count as i64)));
    columns.push(Arc::new(Int8Array::from_iter_values(vec![0; count])));
    columns.extend(batch.columns().iter().cloned());
    RecordBatch::try_new(schema.file_schema(), columns).unwrap()
}

/// A table of files written here, and what a scan of it must give.
struct Fixture {
    store: StoreRef,
    runtime: Arc<QueryRuntime>,
    version: TableVersion,
    /// The live rows, in the current schema.
    truth: Vec<RecordBatch>,
}

impl Fixture {
    fn new(schema: TableSchema) -> Self {
        let store = store::open("memory:", &[]).unwrap();
        let options = RuntimeOptions { target_partitions: 4, ..RuntimeOptions::default() };
        let runtime = QueryRuntime::new(Arc::clone(&store), &options).unwrap();
        let schema = Arc::new(schema);
        let version = TableVersion {
            path: Path::from("shop.db/orders"),
            schemas: Arc::new(BTreeMap::from([(schema.id, Arc::clone(&schema))])),
            schema,
            snapshot_id: 1,
            buckets: 1,
            files: Vec::new(),
        };
        Self { store, runtime, version, truth: Vec::new() }
    }

    /// Adds a file of another writer with the rows of `batch` (in the current schema), those at `deleted` dead.
    async fn add(&mut self, batch: &RecordBatch, deleted: RoaringBitmap) {
        let schema = &self.version.schema;
        // Small groups and pages, so that some are pruned and deletions cross their borders.
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(700))
            .set_data_page_row_count_limit(90)
            .set_write_batch_size(30)
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema.file_schema(), Some(properties)).unwrap();
        writer.write(&file_rows(schema, batch)).unwrap();
        let bytes = writer.into_inner().unwrap();
        self.add_file(batch, deleted, bytes).await;
    }

    /// The same, as the mirror writes it.
    async fn add_own(&mut self, batch: &RecordBatch, deleted: RoaringBitmap) {
        let schema = &self.version.schema;
        let bytes = data_file::encode("f", schema, Age::Old, &[file_rows(schema, batch)]).unwrap();
        self.add_file(batch, deleted, bytes).await;
    }

    async fn add_file(&mut self, batch: &RecordBatch, deleted: RoaringBitmap, bytes: Vec<u8>) {
        let schema = Arc::clone(&self.version.schema);
        let path = Path::from(format!("shop.db/orders/bucket-0/data-{}.parquet", self.version.files.len()));
        let keys: Vec<ArrayRef> = schema.key_indices().iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let count = batch.num_rows();
        let meta = DataFileMeta {
            file_name: path.filename().unwrap().to_owned(),
            file_size: bytes.len() as i64,
            row_count: count as i64,
            min_key: binary_row::serialize(&schema.key_types(), &keys, 0).unwrap(),
            max_key: binary_row::serialize(&schema.key_types(), &keys, count - 1).unwrap(),
            key_stats: SimpleStats::empty(),
            value_stats: SimpleStats::empty(),
            min_sequence_number: 0,
            max_sequence_number: count as i64,
            schema_id: schema.id as i64,
            level: 5,
            extra_files: Vec::new(),
            creation_time: None,
            delete_row_count: Some(0),
            embedded_file_index: None,
            file_source: None,
            value_stats_cols: Some(Vec::new()),
            external_path: None,
            first_row_id: None,
            write_cols: None,
            write_cols_sequences: None,
        };
        self.store.put(&path, PutPayload::from(bytes)).await.unwrap();
        let live = (0..count as u32).map(|row| Some(!deleted.contains(row))).collect();
        self.truth.push(filter_record_batch(batch, &live).unwrap());
        let deleted = (!deleted.is_empty()).then(|| Arc::new(deleted));
        self.version.files.push(LiveFile::new(Arc::new(meta), 0, path, deleted));
    }

    fn writer_context(&self) -> WriterContext {
        WriterContext {
            store: Arc::clone(&self.store),
            clock: Arc::new(SystemClock),
            commit_user: "test".to_owned(),
            resources: Arc::default(),
        }
    }

    fn session(&self, settings: &[(&str, &str)]) -> SessionContext {
        let mut config = SessionConfig::new();
        for (name, value) in settings {
            config.options_mut().set(name, value).unwrap();
        }
        let context = self.runtime.bare_session(config);
        let table = self.runtime.table("shop.orders", Arc::new(self.version.clone()));
        context.register_table("orders", Arc::new(table)).unwrap();
        let schema = self.version.schema.arrow_schema();
        let truth = self.truth.iter().map(|batch| batch.clone().with_schema(Arc::clone(&schema)).unwrap()).collect();
        context.register_table("truth", Arc::new(MemTable::try_new(schema, vec![truth]).unwrap())).unwrap();
        context
    }
}

async fn answer(context: &SessionContext, sql: &str) -> Vec<String> {
    let batches = match context.sql(sql).await {
        Ok(frame) => frame.collect().await,
        Err(error) => Err(error),
    };
    shown(&batches.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let shown = pretty_format_batches(batches).unwrap().to_string();
    // Columns are as wide as their headers, which name the table.
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    shown.lines().skip(3).filter(|line| line.starts_with('|')).map(squeezed).collect()
}

/// Files of 3,000 rows, of which the given share is deleted at random and in runs.
async fn with_deletions(percent: u64, runs: bool) -> Fixture {
    let mut fixture = Fixture::new(orders());
    let mut numbers = Numbers(42 + percent);
    for file in 0..3 {
        let batch = rows(&fixture.version.schema, file * 3000, 3000, &mut numbers);
        let mut deleted = RoaringBitmap::new();
        if runs {
            deleted.insert_range(100..100 + 3000 * percent as u32 / 100);
            deleted.insert_range(2990..3000);
        } else {
            deleted.extend((0..3000).filter(|_| numbers.next(100) < percent));
        }
        fixture.add(&batch, deleted).await;
    }
    fixture
}

/// Queries whose answers are wholly determined.
const EXACT: &[&str] = &[
    "SELECT count(*) FROM {t}",
    "SELECT count(*), count(id), count(customer), count(status), min(id), max(id), sum(amount) FROM {t}",
    "SELECT status, count(*), sum(amount) FROM {t} GROUP BY status ORDER BY status",
    "SELECT * FROM {t} WHERE id = 4711",
    "SELECT * FROM {t} WHERE id IN (7, 8, 9, 150, 2995, 6001, 99999) ORDER BY id",
    "SELECT * FROM {t} WHERE id >= 690 AND id < 730 ORDER BY id",
    "SELECT id, status FROM {t} WHERE customer = 7 AND status = 'paid' ORDER BY id",
    "SELECT count(*) FROM {t} WHERE customer IS NULL",
    "SELECT count(*) FROM {t} WHERE id >= 0",
    "SELECT count(*) FROM {t} WHERE status LIKE 'p%' OR amount > 900",
    "SELECT id FROM {t} ORDER BY id LIMIT 10",
    "SELECT id FROM {t} ORDER BY id DESC LIMIT 10",
    "SELECT id, amount FROM {t} WHERE amount IS NOT NULL ORDER BY amount DESC, id LIMIT 10",
    "SELECT id FROM {t} WHERE id >= 2500 ORDER BY id LIMIT 20 OFFSET 5",
    "SELECT id FROM {t} WHERE created >= '2023-11-15T00:00:00' ORDER BY created DESC, id LIMIT 7",
    "SELECT id AS x, row_number() OVER (ORDER BY id) AS n FROM {t} WHERE customer < 40 ORDER BY x LIMIT 50",
    "SELECT x FROM (SELECT id AS x, customer AS id FROM {t}) ORDER BY id, x LIMIT 20",
    "SELECT id FROM {t} ORDER BY id, customer OFFSET 8000",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.customer WHERE b.id < 300 ORDER BY a.id, b.id",
];

/// (query with a limit but no order, the rows it chooses among, how many)
const CHOSEN: &[(&str, &str, usize)] = &[
    ("SELECT id, customer, status FROM {t} LIMIT 10", "SELECT id, customer, status FROM {t}", 10),
    ("SELECT id FROM {t} WHERE id >= 0 LIMIT 10", "SELECT id FROM {t}", 10),
    ("SELECT id FROM {t} WHERE id >= 100 LIMIT 1000", "SELECT id FROM {t} WHERE id >= 100", 1000),
    ("SELECT id, status FROM {t} WHERE id < 5000 LIMIT 3", "SELECT id, status FROM {t} WHERE id < 5000", 3),
    ("SELECT id FROM {t} WHERE customer > 3 LIMIT 100", "SELECT id FROM {t} WHERE customer > 3", 100),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_rows_never_come_back() {
    let fixtures = [
        with_deletions(1, false).await,
        with_deletions(20, false).await,
        with_deletions(20, true).await,
        with_deletions(80, true).await,
    ];
    for fixture in &fixtures {
        let truth = fixture.session(&[]);
        let mut expected = Vec::new();
        for query in EXACT {
            expected.push(answer(&truth, &query.replace("{t}", "truth")).await);
        }
        let mut allowed = Vec::new();
        for (_, from, _) in CHOSEN {
            allowed.push(answer(&truth, &from.replace("{t}", "truth")).await.into_iter().collect::<HashSet<_>>());
        }
        for combination in 0..64 {
            let on = |bit: u32| if combination & (1 << bit) == 0 { "false" } else { "true" };
            // Byte ranges split a file over partitions when the least size is 0.
            let splits = if on(3) == "true" { "0" } else { "1000000000" };
            let settings = [
                ("datafusion.execution.parquet.pushdown_filters", on(0)),
                ("datafusion.execution.parquet.enable_page_index", on(1)),
                ("datafusion.execution.parquet.pruning", on(2)),
                ("datafusion.optimizer.repartition_file_min_size", splits),
                ("datafusion.optimizer.enable_dynamic_filter_pushdown", on(4)),
                ("datafusion.execution.target_partitions", if on(5) == "true" { "4" } else { "1" }),
                ("datafusion.execution.parquet.reorder_filters", on(2)),
                ("datafusion.execution.batch_size", "256"),
            ];
            let context = fixture.session(&settings);
            for (query, expected) in EXACT.iter().zip(&expected) {
                let got = answer(&context, &query.replace("{t}", "orders")).await;
                assert_eq!(&got, expected, "{query} with {settings:?}");
            }
            for ((query, _, limit), allowed) in CHOSEN.iter().zip(&allowed) {
                let mut got = answer(&context, &query.replace("{t}", "orders")).await;
                assert_eq!(got.len(), (*limit).min(allowed.len()), "{query} with {settings:?}");
                let wrong: Vec<&String> = got.iter().filter(|row| !allowed.contains(*row)).collect();
                assert!(wrong.is_empty(), "{query} with {settings:?} gave {wrong:?}");
                got.sort();
                got.dedup();
                assert_eq!(got.len(), (*limit).min(allowed.len()), "{query} with {settings:?} repeats rows");
            }
        }
    }
}

#[tokio::test]
async fn an_unfiltered_count_reads_nothing() {
    let mut fixture = with_deletions(20, false).await;
    // Gone: whoever looks for them fails.
    for file in &mut fixture.version.files {
        file.path = Path::from("nowhere");
    }
    let context = fixture.session(&[]);
    let live: usize = fixture.truth.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(answer(&context, "SELECT count(*) FROM orders").await, [format!("| {live} |")]);
}

#[tokio::test]
async fn files_are_left_out_by_their_keys() {
    let fixture = with_deletions(1, false).await;
    let context = fixture.session(&[]);
    let frame = context.sql("SELECT status FROM orders WHERE id = 3001").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
    let shown = displayable(plan.as_ref()).indent(true).to_string();
    let metrics = datafusion::physical_plan::display::DisplayableExecutionPlan::with_metrics(plan.as_ref());
    let metrics = metrics.indent(true).to_string();
    assert!(metrics.contains("files_ranges_pruned_statistics=3 total → 1 matched"), "{shown}\n{metrics}");
}

#[tokio::test]
async fn older_files_are_read_as_the_current_schema() {
    let mut fixture = Fixture::new(orders());
    let mut numbers = Numbers(7);
    let batch = rows(&fixture.version.schema, 0, 2000, &mut numbers);
    fixture.add(&batch, [0, 5, 1999].into_iter().collect()).await;

    // Renamed, retyped, dropped and added again under another's old name.
    let changes = [
        SchemaChange::RenameColumn { from: "customer".to_owned(), to: "client".to_owned() },
        SchemaChange::ChangeType { name: "client".to_owned(), data_type: DataType::BigInt, nullable: true },
        SchemaChange::DropColumn { name: "status".to_owned() },
        SchemaChange::AddColumn {
            field: field("status", DataType::Int, true),
            position: ColumnPosition::First,
            initial_default: None,
        },
        SchemaChange::AddColumn {
            field: field("customer", DataType::String, true),
            position: ColumnPosition::After("id".to_owned()),
            initial_default: None,
        },
    ];
    let evolved = Arc::new(fixture.version.schema.evolve(&changes, 1).unwrap());
    let schemas = Arc::make_mut(&mut fixture.version.schemas);
    schemas.insert(evolved.id, Arc::clone(&evolved));
    fixture.version.schema = Arc::clone(&evolved);

    // The old rows as they are seen now.
    let old = fixture.truth.pop().unwrap();
    let null = |data_type: &Arrow, rows: usize| datafusion::arrow::array::new_null_array(data_type, rows);
    let seen = |old: &RecordBatch| {
        let columns = evolved
            .fields
            .iter()
            .map(|field| match field.name.as_str() {
                "client" => datafusion::arrow::compute::cast(old.column(1), &Arrow::Int64).unwrap(),
                "status" | "customer" => null(&field.data_type.arrow(), old.num_rows()),
                name => Arc::clone(old.column_by_name(name).unwrap()),
            })
            .collect();
        RecordBatch::try_new(evolved.arrow_schema(), columns).unwrap()
    };
    fixture.truth.push(seen(&old));
    // New rows of the new schema, with values where the old ones have none.
    let new = seen(&rows(&orders(), 2000, 1500, &mut numbers));
    let mut columns = new.columns().to_vec();
    columns[evolved.index_of("status").unwrap()] = Arc::new(Int32Array::from_iter_values(0..1500));
    columns[evolved.index_of("customer").unwrap()] =
        Arc::new(StringArray::from_iter_values((0..1500).map(|n| format!("c{}", n % 7))));
    let new = RecordBatch::try_new(evolved.arrow_schema(), columns).unwrap();
    fixture.add(&new, [3, 4].into_iter().collect()).await;

    for pushdown in ["false", "true"] {
        let context = fixture.session(&[("datafusion.execution.parquet.pushdown_filters", pushdown)]);
        for query in [
            "SELECT * FROM {t} ORDER BY id",
            "SELECT count(*), count(status), count(customer), count(client), sum(client) FROM {t}",
            "SELECT id, client FROM {t} WHERE client = 7 ORDER BY id",
            "SELECT id FROM {t} WHERE status IS NULL AND client > 40 ORDER BY id DESC LIMIT 5",
            "SELECT id FROM {t} WHERE customer = 'c3' ORDER BY id LIMIT 9",
            "SELECT id FROM {t} WHERE status >= 10 AND status < 20 ORDER BY id",
            "SELECT id, status FROM {t} ORDER BY status NULLS FIRST, id LIMIT 20",
            "SELECT client FROM {t} WHERE id = 1",
        ] {
            let expected = answer(&context, &query.replace("{t}", "truth")).await;
            assert_eq!(
                answer(&context, &query.replace("{t}", "orders")).await,
                expected,
                "{query}, pushdown {pushdown}"
            );
        }
    }
}

#[tokio::test]
async fn an_empty_table_has_no_rows_and_its_columns() {
    let fixture = Fixture::new(orders());
    let context = fixture.session(&[]);
    assert_eq!(answer(&context, "SELECT count(*), sum(amount) FROM orders").await, ["| 0 | |"]);
    assert!(answer(&context, "SELECT status, id FROM orders WHERE id > 3").await.is_empty());
    // All rows of a file deleted is as good as no file.
    let mut fixture = Fixture::new(orders());
    let batch = rows(&fixture.version.schema, 0, 10, &mut Numbers(1));
    fixture.add(&batch, (0..10).collect()).await;
    assert!(answer(&fixture.session(&[]), "SELECT id FROM orders LIMIT 3").await.is_empty());
}

/// The error of reading everything.
async fn fault(fixture: &Fixture) -> (String, &'static str) {
    let context = fixture.session(&[]);
    let sql = "SELECT count(id), sum(customer), min(amount), max(status), max(created) FROM orders WHERE id >= 0";
    let error = context.sql(sql).await.unwrap().collect().await.unwrap_err();
    let file = FileError::find(&error).unwrap_or_else(|| panic!("not the error of a file: {error:?}"));
    (file.to_string(), file.sqlstate())
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let fixture = with_deletions(1, false).await;
    let path = fixture.version.files[1].path.clone();
    fixture.store.delete(&path).await.unwrap();
    let (message, sqlstate) = fault(&fixture).await;
    assert_eq!(message, format!("data file {path} of table shop.orders is missing"));
    assert_eq!(sqlstate, "XX001");
}

#[tokio::test]
async fn a_file_that_is_not_what_was_written_is_named() {
    let fixture = with_deletions(1, false).await;
    let path = fixture.version.files[1].path.clone();
    let bytes = fixture.store.get(&path).await.unwrap().bytes().await.unwrap();

    let mut shorter = bytes.to_vec();
    shorter.truncate(bytes.len() / 2);
    let mut no_footer = bytes.to_vec();
    let end = no_footer.len();
    no_footer[end - 20..].fill(0);
    let mut no_pages = bytes.to_vec();
    no_pages[4..end / 3].fill(0xff);
    for damaged in [shorter, no_footer, no_pages, Vec::new()] {
        // The footer is remembered by path: a runtime of its own.
        let mut damaged_fixture = Fixture::new(orders());
        damaged_fixture.version = fixture.version.clone();
        for file in &fixture.version.files {
            let bytes = fixture.store.get(&file.path).await.unwrap().bytes().await.unwrap();
            damaged_fixture.store.put(&file.path, bytes.into()).await.unwrap();
        }
        damaged_fixture.store.put(&path, damaged.into()).await.unwrap();
        let (message, _) = fault(&damaged_fixture).await;
        assert!(message.starts_with(&format!("data file {path} of table shop.orders")), "{message}");
    }
}

/// Two files as the mirror writes them, the second one larger than what is read of a file's end.
async fn own_files() -> Fixture {
    let mut fixture = Fixture::new(orders());
    let mut numbers = Numbers(11);
    for (first, count) in [(0, 3000), (3000, 40_000)] {
        let batch = rows(&fixture.version.schema, first, count, &mut numbers);
        fixture.add_own(&batch, (0..count as u32).step_by(7).collect()).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_the_mirror_answer_as_others_do() {
    let fixture = own_files().await;
    let truth = fixture.session(&[]);
    for page_index in ["false", "true"] {
        let context = fixture.session(&[("datafusion.execution.parquet.enable_page_index", page_index)]);
        for query in EXACT {
            let expected = answer(&truth, &query.replace("{t}", "truth")).await;
            assert_eq!(answer(&context, &query.replace("{t}", "orders")).await, expected, "{query}");
        }
    }
}

/// A flipped byte anywhere in a file is an error that names the file, or the answer is the right one because the query
/// has no use for the part that the byte is in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_never_changes_an_answer() {
    let fixture = own_files().await;
    let path = fixture.version.files[1].path.clone();
    let bytes = fixture.store.get(&path).await.unwrap().bytes().await.unwrap();
    let queries = [
        "SELECT count(id), sum(customer), min(amount), max(status), max(created) FROM {t} WHERE id >= 0",
        "SELECT id, status FROM {t} WHERE id = 3010",
    ];
    let mut expected = Vec::new();
    for query in queries {
        expected.push(answer(&fixture.session(&[]), &query.replace("{t}", "truth")).await);
    }
    let mut numbers = Numbers(5);
    let mut places: Vec<usize> = (0..150).map(|_| numbers.next(bytes.len() as u64) as usize).collect();
    // The magic numbers, and the footer's length.
    places.extend((0..4).chain(bytes.len() - 8..bytes.len()));
    let (mut harmless, mut named) = ([0; 2], [0; 2]);
    for at in places {
        // Ends are remembered by path: a runtime of its own.
        let mut damaged = Fixture::new(orders());
        damaged.version = fixture.version.clone();
        let intact = &fixture.version.files[0].path;
        let other = fixture.store.get(intact).await.unwrap().bytes().await.unwrap();
        damaged.store.put(intact, other.into()).await.unwrap();
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << numbers.next(8);
        damaged.store.put(&path, flipped.into()).await.unwrap();
        for (index, query) in queries.iter().enumerate() {
            let context = damaged.session(&[]);
            let frame = context.sql(&query.replace("{t}", "orders")).await.unwrap();
            match frame.collect().await {
                Ok(batches) => {
                    assert_eq!(shown(&batches), expected[index], "{query} with byte {at} of {} flipped", bytes.len());
                    harmless[index] += 1;
                }
                Err(error) => {
                    let error = FileError::find(&error).unwrap_or_else(|| panic!("byte {at}: {error:?}"));
                    assert!(matches!(error, FileError::Corrupt { .. }), "byte {at}: {error:?}");
                    let message = error.to_string();
                    let expected = format!("data file {path} of table shop.orders is corrupt");
                    assert!(message.starts_with(&expected), "{message}");
                    named[index] += 1;
                }
            }
        }
    }
    // A query of all rows passes over the columns it does not need, one of a single row over most of the file.
    assert!(named[0] > named[1] && named[1] > 12, "{named:?} named");
    assert!(harmless[1] > harmless[0] && harmless[0] > 0, "{harmless:?} harmless");
}

#[tokio::test]
async fn a_vector_of_another_file_is_refused() {
    let mut fixture = with_deletions(1, false).await;
    fixture.version.files[0].deleted = Some(Arc::new([5000].into_iter().collect()));
    let context = fixture.session(&[]);
    let error = context.sql("SELECT sum(customer) FROM orders").await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("beyond the file's 3000 rows"), "{error}");
}

#[tokio::test]
async fn bounds_of_the_key_need_no_scan_unless_their_rows_are_deleted() {
    for (deleted, scans) in [(vec![], false), (vec![50], false), (vec![0], true), (vec![99], true), (vec![0, 99], true)]
    {
        let mut fixture = Fixture::new(orders());
        let batch = rows(&fixture.version.schema, 0, 100, &mut Numbers(1));
        fixture.add(&batch, deleted.iter().copied().collect()).await;
        let context = fixture.session(&[]);
        let sql = "SELECT min(id), max(id), count(*) FROM {t}";
        let plan = context.sql(&sql.replace("{t}", "orders")).await.unwrap().create_physical_plan().await.unwrap();
        let plan = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(plan.contains("file_groups"), scans, "{deleted:?}: {plan}");
        let answers = [
            answer(&context, &sql.replace("{t}", "orders")).await,
            answer(&context, &sql.replace("{t}", "truth")).await,
        ];
        assert_eq!(answers[0], answers[1], "{deleted:?}");
    }
}

/// A version that comes from its writer knows in which rows keys are; one that is read from the store knows their buckets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_looked_up_where_they_are() {
    let fixture = Fixture::new(orders());
    let ctx = fixture.writer_context();
    let options = TableOptions { buckets: 3, rows_per_file: 400, inline_merge_rows: 0, ..TableOptions::default() };
    let path = Path::from("shop.db/orders");
    let mut writer = TableWriter::create(ctx, path.clone(), orders(), options).await.unwrap();
    let schema = Arc::clone(writer.schema());
    let mut numbers = Numbers(3);
    let mut truth: BTreeMap<i64, RecordBatch> = BTreeMap::new();
    let mut last = None;
    for (commit, (first, count)) in [(0, 3000), (500, 300), (2900, 400), (10, 5), (500, 20)].into_iter().enumerate() {
        let batch = rows(&schema, first, count, &mut numbers);
        let kind = if commit == 4 { RowKind::Delete } else { RowKind::Upsert };
        writer.apply(batch.clone(), vec![kind; count as usize]).unwrap();
        for row in 0..count {
            match kind {
                RowKind::Delete => drop(truth.remove(&(first + row))),
                _ => drop(truth.insert(first + row, batch.slice(row as usize, 1))),
            }
        }
        last = Some(writer.prepare(commit as u64 + 1, BTreeMap::new()).await.unwrap());
    }
    let prepared = last.unwrap();
    let loaded = TableVersion::load(&fixture.store, &path, &prepared.snapshot.json).await.unwrap();
    let truth: Vec<RecordBatch> = truth.into_values().collect();
    for (version, most_rows) in [(prepared.version, Some(1)), (Arc::new(loaded), None)] {
        let fixture = Fixture {
            store: Arc::clone(&fixture.store),
            runtime: Arc::clone(&fixture.runtime),
            version: version.as_ref().clone(),
            truth: truth.clone(),
        };
        let context = fixture.session(&[]);
        for id in (0..3400).step_by(97).chain([10, 14, 499, 500, 519, 520, 2999, 3299, 3300, -1]) {
            for filter in [
                format!("id = {id}"),
                format!("{id} = id AND customer >= 0"),
                format!("id IN ({id}, {}, {}, 77, 77)", id + 1, id + 500),
                format!("id = {id} AND id = {}", id + 1),
                format!("id = {id} OR id = 12"),
            ] {
                let sql = format!("SELECT * FROM {{t}} WHERE {filter} ORDER BY id");
                let ours = answer(&context, &sql.replace("{t}", "orders")).await;
                assert_eq!(ours, answer(&context, &sql.replace("{t}", "truth")).await, "{sql}");
            }
            let sql = format!("SELECT count(*), min(id), max(id) FROM {{t}} WHERE id = {id}");
            let ours = answer(&context, &sql.replace("{t}", "orders")).await;
            assert_eq!(ours, answer(&context, &sql.replace("{t}", "truth")).await, "{sql}");
            // Files of other buckets, and where the rows are known all other files, are not part of the plan.
            let keys: ArrayRef = Arc::new(Int64Array::from(vec![id]));
            let candidates = version.candidates(&[keys]).unwrap();
            assert!(candidates.iter().all(|found| found.file.bucket == candidates[0].file.bucket));
            if let Some(most) = most_rows {
                assert!(candidates.len() <= 1);
                assert!(candidates.iter().all(|found| found.rows.as_ref().unwrap().len() <= most));
            }
        }
    }
}

/// The outermost rows may be gone: the key index knows those behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_of_the_key_need_no_scan() {
    let fixture = Fixture::new(orders());
    let ctx = fixture.writer_context();
    let options = TableOptions { buckets: 2, rows_per_file: 100, compaction: false, ..TableOptions::default() };
    let path = Path::from("shop.db/orders");
    let mut writer = TableWriter::create(ctx, path.clone(), orders(), options).await.unwrap();
    let schema = Arc::clone(writer.schema());
    let mut numbers = Numbers(3);
    // Of the first file nothing is left at either end, then of none of its rows.
    let steps =
        [(RowKind::Upsert, 0, 1000), (RowKind::Delete, 0, 7), (RowKind::Delete, 985, 15), (RowKind::Delete, 7, 300)];
    let mut live: Vec<i64> = Vec::new();
    for (commit, (kind, first, count)) in steps.into_iter().enumerate() {
        writer.apply(rows(&schema, first, count, &mut numbers), vec![kind; count as usize]).unwrap();
        match kind {
            RowKind::Upsert => live.extend(first..first + count),
            _ => live.retain(|id| !(first..first + count).contains(id)),
        }
        let prepared = writer.prepare(commit as u64 + 1, BTreeMap::new()).await.unwrap();
        let loaded = TableVersion::load(&fixture.store, &path, &prepared.snapshot.json).await.unwrap();
        for (version, knows_keys) in [(prepared.version, true), (Arc::new(loaded), false)] {
            let context = fixture.runtime.bare_session(SessionConfig::new().with_target_partitions(2));
            context.register_table("orders", Arc::new(fixture.runtime.table("shop.orders", version))).unwrap();
            let sql = "SELECT count(*) AS n, min(id) AS a, max(id) AS z FROM orders";
            let expected = format!("| {:<3} | {} | {} |", live.len(), live[0], live[live.len() - 1]);
            let shown = answer(&context, sql).await.concat();
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            assert!(plain(&shown).contains(&plain(&expected)), "{shown} instead of {expected}");
            let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            let plan = displayable(plan.as_ref()).indent(true).to_string();
            let scans = plan.contains("DataSourceExec");
            assert_eq!(scans, !knows_keys && commit > 0, "{plan}");
        }
    }
}

/// Runs are merged instead of sorting rows, however files were dealt out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_in_the_order_of_the_key_without_a_sort() {
    let fixture = Fixture::new(orders());
    let ctx = fixture.writer_context();
    let mut schema = orders();
    schema.primary_keys = vec!["customer".to_owned(), "id".to_owned()];
    schema.fields[1].nullable = false;
    for (schema, by) in [(orders(), ["id", "id"]), (schema, ["customer", "customer, id"])] {
        let options = TableOptions { buckets: 3, rows_per_file: 150, compaction: false, ..TableOptions::default() };
        let path = Path::from(format!("shop.db/by {}", by[1]));
        let mut writer = TableWriter::create(ctx.clone(), path, schema, options).await.unwrap();
        let schema = Arc::clone(writer.schema());
        let mut numbers = Numbers(5);
        let mut version = None;
        for (commit, (kind, first, count)) in
            [(RowKind::Upsert, 0, 2000), (RowKind::Upsert, 300, 400), (RowKind::Delete, 350, 70)]
                .into_iter()
                .enumerate()
        {
            // The customer is told by the id, as it is part of a key.
            let mut columns = rows(&orders(), first, count, &mut numbers).columns().to_vec();
            columns[1] = Arc::new((first..first + count).map(|id| Some((id * 7 % 50) as i32)).collect::<Int32Array>());
            let batch = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
            writer.apply(batch, vec![kind; count as usize]).unwrap();
            version = Some(writer.prepare(commit as u64 + 1, BTreeMap::new()).await.unwrap().version);
        }
        let version = version.unwrap();
        assert!(version.files.len() > 15, "{}", version.files.len());
        let context = fixture.runtime.bare_session(SessionConfig::new().with_target_partitions(2));
        context.register_table("t", Arc::new(fixture.runtime.table("shop.orders", version))).unwrap();
        for (order, limit, sorts) in [
            (by[1].to_owned(), "", false),
            (by[0].to_owned(), " LIMIT 10", false),
            (format!("{} DESC", by[0]), "", true),
            ("status".to_owned(), "", true),
        ] {
            let sql = format!("SELECT {}, status FROM t WHERE status <> 'lost' ORDER BY {order}{limit}", by[1]);
            let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
            let shown = displayable(plan.as_ref()).indent(true).to_string();
            assert_eq!(shown.contains("SortExec"), sorts, "{sql}\n{shown}");
        }
        for limit in ["", " LIMIT 1", " LIMIT 33 OFFSET 340"] {
            let sorted = format!("SELECT id, status, customer FROM t ORDER BY {}{limit}", by[1]);
            // A key that is not a plain column is sorted by.
            let keys = by[1].replace("id", "id + 0");
            let reference = format!("SELECT id, status, customer FROM t ORDER BY {keys}{limit}");
            let plan = context.sql(&reference).await.unwrap().create_physical_plan().await.unwrap();
            assert!(displayable(plan.as_ref()).indent(true).to_string().contains("SortExec"));
            assert_eq!(answer(&context, &sorted).await, answer(&context, &reference).await, "{sorted}");
        }
    }
}
