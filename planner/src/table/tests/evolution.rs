//! Queries over files of four versions of a schema, against the same rows in memory.

use std::collections::BTreeMap;

use datafusion::arrow::array::{BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array};
use datafusion::common::stats::Precision;
use datafusion::datasource::TableProvider;

use super::*;

fn data_type(text: &str) -> DataType {
    text.parse().unwrap()
}

fn add(name: &str, of: &str, position: ColumnPosition, default: Option<&str>) -> SchemaChange {
    SchemaChange::AddColumn {
        field: field(name, data_type(of), true),
        position,
        initial_default: default.map(str::to_owned),
    }
}

fn rename(from: &str, to: &str) -> SchemaChange {
    SchemaChange::RenameColumn { from: from.to_owned(), to: to.to_owned() }
}

fn widen(name: &str, to: &str) -> SchemaChange {
    SchemaChange::ChangeType { name: name.to_owned(), data_type: data_type(to), nullable: true }
}

fn drop(name: &str) -> SchemaChange {
    SchemaChange::DropColumn { name: name.to_owned() }
}

/// The number behind the value of a column in a row: it grows with the row, so that statistics tell pages apart.
fn number(field_id: i32, id: i64) -> Option<i64> {
    let mixed = (id * 31 + i64::from(field_id) * 17).rem_euclid(101);
    (mixed % 9 != 0).then_some(id / 25 + mixed % 3)
}

/// Values of a column that was born as `born` and now is a `now`: of each number what it was in the first type.
fn array(born: &DataType, now: &DataType, numbers: &[Option<i64>]) -> ArrayRef {
    let each = numbers.iter().copied();
    let with = |value: fn(i64) -> i64| each.clone().map(move |number| number.map(value));
    match (born, now) {
        (_, DataType::Boolean) => Arc::new(each.map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>()),
        (_, DataType::SmallInt) => Arc::new(each.map(|n| n.map(|n| n as i16)).collect::<Int16Array>()),
        (_, DataType::Int) => Arc::new(each.map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        (_, DataType::BigInt) => Arc::new(each.collect::<Int64Array>()),
        (_, DataType::Float) => Arc::new(each.map(|n| n.map(|n| n as f32 / 10.0)).collect::<Float32Array>()),
        (DataType::Float, DataType::Double) => {
            Arc::new(each.map(|n| n.map(|n| f64::from(n as f32 / 10.0))).collect::<Float64Array>())
        }
        (_, DataType::Double) => Arc::new(each.map(|n| n.map(|n| n as f64 / 10.0)).collect::<Float64Array>()),
        (_, DataType::Decimal { precision, scale }) => {
            let born = if let DataType::Decimal { scale, .. } = born { *scale } else { 0 };
            let unit = 10_i128.pow(u32::from((scale - born).unsigned_abs()));
            let values = each.map(|n| n.map(|n| i128::from(n) * unit)).collect::<Decimal128Array>();
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        (_, DataType::Varchar(_) | DataType::String) => {
            Arc::new(each.map(|n| n.map(|n| format!("w{n:04}"))).collect::<StringArray>())
        }
        (_, DataType::Varbinary(_) | DataType::Bytes) => {
            let values: Vec<_> = each.map(|n| n.map(|n| (n as u32).to_be_bytes())).collect();
            Arc::new(BinaryArray::from_iter(values))
        }
        (_, DataType::Date) => Arc::new(each.map(|n| n.map(|n| n as i32)).collect::<Date32Array>()),
        (DataType::Date, DataType::Timestamp(_)) => {
            Arc::new(with(|n| n * 86_400_000_000).collect::<TimestampMicrosecondArray>())
        }
        (_, DataType::Timestamp(_)) => Arc::new(with(|n| n * 3_600_000_000 + 5).collect::<TimestampMicrosecondArray>()),
        (_, DataType::TimestampLtz(_)) => {
            let values = with(|n| n * 3_600_000_000).collect::<TimestampMicrosecondArray>();
            Arc::new(values.with_timezone("UTC"))
        }
        (_, other) => panic!("no values of type {other}"),
    }
}

/// A table that went through several versions of its schema, with two files of each.
struct Evolved {
    fixture: Fixture,
    /// By field id: the version and the type that a column came with.
    born: BTreeMap<i32, (u64, DataType)>,
    /// By version: the live rows.
    ids: BTreeMap<u64, Vec<i64>>,
    next_id: i64,
}

impl Evolved {
    fn new(fields: Vec<NewField>) -> Self {
        let schema =
            TableSchema::new(fields, vec!["id".to_owned()], TableSchema::default_options(1, 6), None, 0).unwrap();
        let born = schema.fields.iter().map(|field| (field.id, (0, field.data_type.clone()))).collect();
        Self { fixture: Fixture::new(schema), born, ids: BTreeMap::new(), next_id: 0 }
    }

    fn evolve(&mut self, changes: &[SchemaChange]) {
        let version = &mut self.fixture.version;
        let next = Arc::new(version.schema.evolve(changes, 1).unwrap());
        Arc::make_mut(&mut version.schemas).insert(next.id, Arc::clone(&next));
        for field in &next.fields {
            self.born.entry(field.id).or_insert_with(|| (next.id, field.data_type.clone()));
        }
        version.schema = next;
    }

    /// The column's values in rows that were written at version `written`, if it was there.
    fn column(&self, field: &tidegate_storage::paimon::Field, ids: &[i64], written: u64) -> Option<ArrayRef> {
        if field.name == "id" {
            return Some(Arc::new(Int64Array::from(ids.to_vec())));
        }
        let (born, born_as) = &self.born[&field.id];
        let numbers: Vec<_> = ids.iter().map(|id| number(field.id, *id)).collect();
        (*born <= written).then(|| array(born_as, &field.data_type, &numbers))
    }

    /// Two files of the current version, the first as another writer may have written it.
    async fn write(&mut self) {
        let schema = Arc::clone(&self.fixture.version.schema);
        for own in [false, true] {
            let ids: Vec<i64> = (self.next_id..self.next_id + 1000).collect();
            self.next_id += 1000;
            let columns = schema.fields.iter().map(|field| self.column(field, &ids, schema.id).unwrap()).collect();
            let batch = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
            let deleted: RoaringBitmap = (0..1000).filter(|row| row % 13 == 0).collect();
            let live = ids.iter().copied().enumerate().filter(|(row, _)| !deleted.contains(*row as u32));
            self.ids.entry(schema.id).or_default().extend(live.map(|(_, id)| id));
            match own {
                true => self.fixture.add_own(&batch, deleted).await,
                false => self.fixture.add(&batch, deleted).await,
            }
        }
    }

    /// Sets what queries must give: `defaults` are the values of columns in rows older than they are.
    fn settle(&mut self, defaults: &[(&str, ArrayRef)]) {
        let schema = Arc::clone(&self.fixture.version.schema);
        let mut truth = Vec::new();
        for (written, ids) in &self.ids {
            let columns = schema.fields.iter().map(|field| {
                self.column(field, ids, *written).unwrap_or_else(|| {
                    let default = defaults.iter().find(|(name, _)| *name == field.name);
                    match default {
                        Some((_, value)) => {
                            let zeros = datafusion::arrow::array::UInt32Array::from(vec![0; ids.len()]);
                            datafusion::arrow::compute::take(value, &zeros, None).unwrap()
                        }
                        None => datafusion::arrow::array::new_null_array(&field.data_type.arrow(), ids.len()),
                    }
                })
            });
            truth.push(RecordBatch::try_new(schema.arrow_schema(), columns.collect()).unwrap());
        }
        self.fixture.truth = truth;
    }
}

/// Four versions; every kind of change, several of them in one step.
async fn evolved() -> Evolved {
    let mut table = Evolved::new(vec![
        field("id", DataType::BigInt, false),
        field("qty", DataType::Int, true),
        field("price", DataType::Float, true),
        field("cost", data_type("DECIMAL(6, 2)"), true),
        field("small", DataType::SmallInt, true),
        field("word", DataType::Varchar(8), true),
        field("day", DataType::Date, true),
        field("old", DataType::String, true),
    ]);
    table.write().await;
    table.evolve(&[
        add("extra", "INT", ColumnPosition::First, Some("42")),
        widen("qty", "BIGINT"),
        widen("price", "DOUBLE"),
        widen("small", "DECIMAL(8, 3)"),
        rename("word", "label"),
        widen("label", "STRING"),
        drop("old"),
        // Another column of the same name and type.
        add("old", "STRING", ColumnPosition::After("id".to_owned()), Some("w0017")),
        add("ratio", "FLOAT", ColumnPosition::Last, Some("0.1")),
    ]);
    table.write().await;
    table.evolve(&[
        rename("qty", "amount"),
        rename("price", "qty"),
        widen("cost", "DECIMAL(12, 4)"),
        widen("day", "TIMESTAMP(6)"),
        widen("extra", "BIGINT"),
        widen("ratio", "DOUBLE"),
        rename("extra", "bonus"),
        add("word", "INT", ColumnPosition::Last, Some("-7")),
        add("flag", "BOOLEAN", ColumnPosition::After("amount".to_owned()), Some("true")),
        add("at", "TIMESTAMP(6)", ColumnPosition::Last, Some("1970-01-02 03:04:05.000006")),
        add("instant", "TIMESTAMP(6) WITH LOCAL TIME ZONE", ColumnPosition::Last, Some("1970-01-05 00:00:00Z")),
        add("raw", "VARBINARY(8)", ColumnPosition::First, Some("00000021")),
        add("a.b", "DOUBLE", ColumnPosition::Last, Some("2.5")),
        add("money", "DECIMAL(20, 2)", ColumnPosition::Last, Some("-1.25")),
        add("born", "DATE", ColumnPosition::Last, Some("1970-02-01")),
        add("Größe", "VARCHAR(20)", ColumnPosition::Last, Some("it's \"x\"")),
        add("plain", "INT", ColumnPosition::Last, None),
    ]);
    table.write().await;
    table.evolve(&[
        SchemaChange::Move { name: "id".to_owned(), position: ColumnPosition::Last },
        widen("word", "DECIMAL(12, 1)"),
        drop("small"),
        add("small", "BIGINT", ColumnPosition::First, Some("1000000")),
        rename("old", "older"),
        add("old", "INT", ColumnPosition::First, None),
    ]);
    table.write().await;
    let decimal = |value: i128, precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap())
    };
    let micros = |value: i64| TimestampMicrosecondArray::from(vec![value]);
    table.settle(&[
        ("bonus", Arc::new(Int64Array::from(vec![42]))),
        ("older", Arc::new(StringArray::from(vec!["w0017"]))),
        // The bits of the FLOAT.
        ("ratio", Arc::new(Float64Array::from(vec![f64::from(0.1_f32)]))),
        ("word", decimal(-70, 12, 1)),
        ("flag", Arc::new(BooleanArray::from(vec![true]))),
        ("at", Arc::new(micros(86_400_000_000 + 11_045_000_006))),
        ("instant", Arc::new(micros(4 * 86_400_000_000).with_timezone("UTC"))),
        ("raw", Arc::new(BinaryArray::from(vec![&[0_u8, 0, 0, 0x21][..]]))),
        ("a.b", Arc::new(Float64Array::from(vec![2.5]))),
        ("money", decimal(-125, 20, 2)),
        ("born", Arc::new(Date32Array::from(vec![31]))),
        ("Größe", Arc::new(StringArray::from(vec!["it's \"x\""]))),
        ("small", Arc::new(Int64Array::from(vec![1_000_000]))),
    ]);
    table
}

/// Values to compare a column with: its default if it has one, one that rows have, one that is between two values of its
/// narrower type, and one beyond all.
fn literals(name: &str) -> &'static [&'static str] {
    match name {
        "old" | "plain" => &["100", "0", "99999999999"],
        "small" => &["1000000", "250", "99999999999"],
        "raw" => &["X'00000021'", "X'00000050'", "X'ff'"],
        "bonus" => &["42", "41", "42.5", "3000000000"],
        "amount" => &["60", "60.5", "-3000000000", "3000000000"],
        "flag" => &["true", "false"],
        "qty" => &["3.0", "0.1", "CAST(CAST(0.1 AS REAL) AS DOUBLE)", "2.95", "1e300"],
        "ratio" => &["CAST(CAST(0.1 AS REAL) AS DOUBLE)", "0.1", "5.5", "-1e300"],
        "cost" => &["0.5", "0.505", "0.50", "99999"],
        "label" | "older" => &["'w0017'", "'w0030'", "'w00'", "'x'"],
        "day" => &["'1970-01-18'", "'1970-01-18 12:00:00'", "'1969-01-01'", "'2200-01-01'"],
        "word" => &["-7", "-7.0", "90.5", "100", "-1000"],
        "at" => &["'1970-01-02 03:04:05.000006'", "'1970-01-05 00:00:00'", "'2100-01-01'"],
        "instant" => &["'1970-01-05 00:00:00Z'", "'1970-01-08 01:00:00Z'", "'1900-01-01 00:00:00Z'"],
        "a.b" => &["2.5", "7.7", "-1"],
        "money" => &["-1.25", "0.77", "100"],
        "born" => &["'1970-02-01'", "'1970-04-11'", "'2100-01-01'"],
        "Größe" => &["'it''s \"x\"'", "'w0130'", "'a'"],
        other => panic!("no values to compare {other} with"),
    }
}

/// Queries about one column whose answers are wholly determined.
fn queries(name: &str) -> Vec<String> {
    let c = format!("\"{name}\"");
    let mut queries = vec![
        format!("SELECT count(*), count({c}), min({c}), max({c}), count(DISTINCT {c}) FROM {{t}}"),
        format!("SELECT count(*), min(id), max(id) FROM {{t}} WHERE {c} IS NULL"),
        format!("SELECT count(*), min(id), max(id) FROM {{t}} WHERE {c} IS NOT NULL"),
        format!("SELECT id, {c} FROM {{t}} ORDER BY {c} NULLS FIRST, id LIMIT 30"),
        format!("SELECT id, {c} FROM {{t}} ORDER BY {c} DESC NULLS LAST, id DESC LIMIT 30"),
        format!("SELECT id, {c} FROM {{t}} WHERE {c} IS NOT NULL ORDER BY {c}, id LIMIT 7"),
        format!("SELECT {c}, count(*) FROM {{t}} GROUP BY {c} ORDER BY {c} NULLS LAST LIMIT 12"),
        format!("SELECT {c} FROM {{t}} WHERE id IN (0, 3, 2001, 3999, 4001, 6001, 7999) ORDER BY id"),
    ];
    let literals = literals(name);
    for literal in literals {
        for op in ["=", "<", ">="] {
            queries.push(format!("SELECT count(*), min(id), max(id) FROM {{t}} WHERE {c} {op} {literal}"));
        }
        queries.push(format!("SELECT count(*), sum(id) FROM {{t}} WHERE {c} IS NULL OR {c} = {literal}"));
        queries.push(format!("SELECT count(*), sum(id) FROM {{t}} WHERE NOT ({c} > {literal})"));
        queries.push(format!("SELECT count(*), sum(id) FROM {{t}} WHERE {c} IS DISTINCT FROM {literal}"));
        queries.push(format!("SELECT id FROM {{t}} WHERE {c} = {literal} AND \"flag\" ORDER BY id LIMIT 15"));
        queries
            .push(format!("SELECT id, amount FROM {{t}} WHERE {c} <= {literal} AND amount > 20 ORDER BY id LIMIT 15"));
    }
    let list = literals.join(", ");
    queries.push(format!("SELECT count(*), sum(id) FROM {{t}} WHERE {c} IN ({list})"));
    queries.push(format!("SELECT count(*), sum(id) FROM {{t}} WHERE {c} NOT IN ({list})"));
    queries
}

const SEVERAL: &[&str] = &[
    "SELECT * FROM {t} ORDER BY id",
    "SELECT count(*) FROM {t}",
    "SELECT count(*) FROM {t} WHERE bonus = 42 AND older = 'w0017' AND word = -7 AND plain IS NULL",
    "SELECT count(*) FROM {t} WHERE bonus = 42 OR older = 'w0030' OR qty > 20",
    "SELECT sum(bonus), sum(amount), sum(word), sum(money), max(ratio), sum(small), sum(plain) FROM {t}",
    "SELECT flag, count(*), sum(bonus + amount) FROM {t} GROUP BY flag ORDER BY flag",
    "SELECT id FROM {t} WHERE bonus + small > 1000041 AND amount < 10 ORDER BY id LIMIT 20",
    "SELECT id FROM {t} WHERE older LIKE 'w001%' AND label LIKE 'w00%' ORDER BY id DESC LIMIT 20",
    "SELECT id FROM {t} WHERE coalesce(plain, bonus) = 42 ORDER BY id LIMIT 9",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.bonus WHERE b.id < 40 ORDER BY a.id, b.id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_every_version_answer_as_the_newest_schema() {
    let table = evolved().await;
    let fixture = &table.fixture;
    assert_eq!(fixture.version.files.iter().map(|file| file.meta.schema_id).max(), Some(3));
    let names = fixture.version.schema.fields.iter().map(|field| field.name.as_str()).filter(|name| *name != "id");
    let queries: Vec<String> = names.flat_map(queries).chain(SEVERAL.iter().map(|sql| (*sql).to_owned())).collect();
    let truth = fixture.session(&[]);
    let mut expected = Vec::new();
    for query in &queries {
        expected.push(answer(&truth, &query.replace("{t}", "truth")).await);
    }
    // Most queries find something, and not everything.
    let empty = expected.iter().filter(|rows| rows.iter().all(|row| row.starts_with("| 0 |"))).count();
    assert!(empty * 4 < queries.len(), "{empty} of {} queries find nothing", queries.len());
    // (filters pushed down, everything that prunes)
    for (pushed, pruned) in [("false", "false"), ("false", "true"), ("true", "false"), ("true", "true")] {
        let settings = [
            ("datafusion.execution.parquet.pushdown_filters", pushed),
            ("datafusion.execution.parquet.reorder_filters", pushed),
            ("datafusion.execution.parquet.enable_page_index", pruned),
            ("datafusion.execution.parquet.pruning", pruned),
            ("datafusion.optimizer.enable_dynamic_filter_pushdown", pruned),
            ("datafusion.execution.target_partitions", if pruned == "true" { "3" } else { "1" }),
            ("datafusion.execution.batch_size", "256"),
        ];
        let context = fixture.session(&settings);
        for (query, expected) in queries.iter().zip(&expected) {
            let got = answer(&context, &query.replace("{t}", "orders")).await;
            assert_eq!(&got, expected, "{query} with {settings:?}");
        }
        // A limit without an order: any rows, as many as there are, and none twice.
        let found = |filter: &str| format!("SELECT id, bonus FROM {{t}} WHERE {filter}");
        for (filter, limit) in [("bonus = 42", 1000), ("bonus <> 42", 1000), ("older = 'w0017'", 5000), ("true", 3000)]
        {
            let all: HashSet<_> = answer(&truth, &found(filter).replace("{t}", "truth")).await.into_iter().collect();
            let got = answer(&context, &format!("{} LIMIT {limit}", found(filter).replace("{t}", "orders"))).await;
            assert_eq!(got.len(), all.len().min(limit), "{filter} with {settings:?}");
            let got: HashSet<_> = got.into_iter().collect();
            assert!(got.is_subset(&all) && got.len() == all.len().min(limit), "{filter} with {settings:?}");
        }
    }
}

/// A filter that the default does not meet leaves the older files out, one that it meets reads them whole.
#[tokio::test]
async fn a_default_prunes_by_its_value() {
    let table = evolved().await;
    let context = table.fixture.session(&[("datafusion.execution.target_partitions", "1")]);
    // Three versions have no such column; each has three row groups, in two files.
    for (filter, rows, groups) in [
        ("small > 1000000", 0, "row_groups_pruned_statistics=3 total → 0 matched"),
        ("small = 1000000", 6 * 923, "row_groups_pruned_statistics=3 total → 3 matched"),
    ] {
        let frame = context.sql(&format!("SELECT id FROM orders WHERE {filter} AND id < 6000")).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let batches = datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{filter}");
        let metrics = datafusion::physical_plan::display::DisplayableExecutionPlan::with_metrics(plan.as_ref());
        let metrics = metrics.indent(true).to_string();
        assert_eq!(metrics.matches(groups).count(), 3, "{filter}: {metrics}");
    }
}

/// What is known before files are read says nothing of columns that some of them do not have.
#[tokio::test]
async fn statistics_are_of_the_key_alone() {
    let table = evolved().await;
    let provider = table.fixture.runtime.table("shop.orders", Arc::new(table.fixture.version.clone()));
    let statistics = provider.statistics().unwrap();
    let live: usize = table.fixture.truth.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(statistics.num_rows, Precision::Exact(live));
    for (field, column) in table.fixture.version.schema.fields.iter().zip(&statistics.column_statistics) {
        if field.name != "id" {
            assert_eq!(*column, datafusion::common::ColumnStatistics::new_unknown(), "{}", field.name);
        }
    }
}
