//! Loads a table of order rows, then updates random ones, and prints rows per second and per second of processor time.
//!
//! `cargo run -p tidegate-storage --example table_bench [directory]`: in a new directory below the one given, or in
//! memory.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use object_store::path::Path;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_storage::clock::SystemClock;
use tidegate_storage::paimon::{DataType, NewField, TableSchema};
use tidegate_storage::store;
use tidegate_storage::table::{RowKind, TableOptions, TableWriter, WriterContext};

const ROWS: i64 = 5_000_000;
const PAGE: i64 = 20_000;
const FLUSH_BYTES: usize = 128 << 20;

fn schema() -> Result<TableSchema, Box<dyn Error>> {
    let field =
        |name: &str, data_type, nullable| NewField { name: name.to_owned(), data_type, nullable, description: None };
    let fields = vec![
        field("id", DataType::BigInt, false),
        field("customer", DataType::BigInt, true),
        field("status", DataType::Varchar(16), true),
        field("amount", DataType::Decimal { precision: 12, scale: 2 }, true),
        field("quantity", DataType::Int, true),
        field("ordered_on", DataType::Date, true),
        field("changed_at", DataType::Timestamp(6), true),
        field("note", DataType::String, true),
    ];
    Ok(TableSchema::new(fields, vec!["id".to_owned()], BTreeMap::new(), None, 0)?)
}

fn rows(schema: &TableSchema, ids: &[i64], random: &mut StdRng) -> Result<RecordBatch, Box<dyn Error>> {
    let status = ["new", "paid", "packed", "shipped", "returned"];
    let len = ids.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new((0..len).map(|_| Some(random.random_range(0..400_000_i64))).collect::<Int64Array>()),
        Arc::new(StringArray::from_iter_values((0..len).map(|_| status[random.random_range(0..5)]))),
        Arc::new(
            (0..len)
                .map(|_| Some(i128::from(random.random_range(100..1_000_000_i64))))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)?,
        ),
        Arc::new((0..len).map(|_| Some(random.random_range(1..20))).collect::<Int32Array>()),
        Arc::new((0..len).map(|_| Some(19_000 + random.random_range(0..700))).collect::<Date32Array>()),
        Arc::new(
            ids.iter().map(|id| Some(1_700_000_000_000_000 + id * 1_000_003)).collect::<TimestampMicrosecondArray>(),
        ),
        Arc::new(StringArray::from_iter_values((0..len).map(|_| {
            let (a, b): (u64, u64) = (random.random(), random.random());
            format!("order note {a:016x} {b:016x}")
        }))),
    ];
    Ok(RecordBatch::try_new(schema.arrow_schema(), columns)?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1);
    let url = match &directory {
        Some(directory) => format!("{directory}/bench-{}", std::process::id()),
        None => "memory:".to_owned(),
    };
    let ctx =
        WriterContext { store: store::open(&url, &[])?, clock: Arc::new(SystemClock), commit_user: "bench".to_owned() };
    let buckets = std::env::var("BUCKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let options = TableOptions { buckets, ..TableOptions::default() };
    let schema = schema()?;
    let mut random = StdRng::seed_from_u64(1);
    let mut writer = TableWriter::create(ctx.clone(), Path::from("bench/orders"), schema.clone(), options).await?;
    let schema = Arc::clone(writer.schema());

    // Rows are made outside the time that is measured.
    let pages: Vec<RecordBatch> = (0..ROWS / PAGE)
        .map(|page| rows(&schema, &(page * PAGE..(page + 1) * PAGE).collect::<Vec<_>>(), &mut random))
        .collect::<Result<_, _>>()?;
    let bytes: usize = pages.iter().map(RecordBatch::get_array_memory_size).sum();
    println!("rows of {} bytes in memory, {buckets} bucket(s), {url}", bytes as i64 / ROWS);

    writer.begin_loading();
    let started = Moment::now();
    let mut commits = 0;
    for page in pages {
        let kinds = vec![RowKind::InsertAbsent; page.num_rows()];
        writer.apply(page, kinds)?;
        if writer.buffered_bytes() > FLUSH_BYTES {
            commits += 1;
            writer.prepare(commits, BTreeMap::new()).await?;
            writer.committed(true);
        }
    }
    commits += 1;
    writer.prepare(commits, BTreeMap::new()).await?;
    writer.committed(true);
    writer.end_loading();
    report("load", ROWS, &started);
    println!("  key index: {} MiB", writer.index_bytes() >> 20);

    for per_commit in [100_000_i64, 5_000] {
        let batches: Vec<RecordBatch> = (0..1_000_000 / per_commit)
            .map(|_| {
                let ids: Vec<i64> = (0..per_commit).map(|_| random.random_range(0..ROWS)).collect();
                rows(&schema, &ids, &mut random)
            })
            .collect::<Result<_, _>>()?;
        let started = Moment::now();
        let mut slowest = 0.0_f64;
        let mut files = 0;
        for batch in batches {
            let commit_started = Instant::now();
            let kinds = vec![RowKind::Upsert; batch.num_rows()];
            writer.apply(batch, kinds)?;
            commits += 1;
            let prepared = writer.prepare(commits, BTreeMap::new()).await?;
            writer.committed(true);
            files = files.max(prepared.version.files.len());
            slowest = slowest.max(commit_started.elapsed().as_secs_f64());
        }
        report(&format!("updates, {per_commit} per commit"), 1_000_000, &started);
        println!("  slowest commit {slowest:.3} s, at most {files} files");
        let started = Moment::now();
        writer.compact().await?;
        println!("  merges left over: {:.2} s", started.0.elapsed().as_secs_f64());
    }
    let prepared = writer.prepare(commits + 1, BTreeMap::new()).await?;
    writer.committed(true);
    let started = Moment::now();
    let reopened =
        TableWriter::open(ctx, Path::from("bench/orders"), &prepared.snapshot.json, true, TableOptions::default())
            .await?;
    report("open", reopened.row_count() as i64, &started);
    if reopened.row_count() != ROWS as u64 {
        return Err(format!("the table has {} rows", reopened.row_count()).into());
    }
    Ok(())
}

/// A moment, and the processor time used until then in seconds (0 where it is not known).
struct Moment(Instant, f64);

impl Moment {
    fn now() -> Self {
        Self(Instant::now(), processor_seconds().unwrap_or(0.0))
    }
}

/// User and system time of this process, from Linux's `/proc`, which counts in hundredths of a second.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / 100.0)
}

fn report(what: &str, rows: i64, started: &Moment) {
    let seconds = started.0.elapsed().as_secs_f64();
    let processor = Moment::now().1 - started.1;
    println!(
        "{what}: {:.2} M rows/s ({seconds:.2} s), {:.2} M rows per processor second ({processor:.2} s)",
        rows as f64 / seconds / 1e6,
        rows as f64 / processor / 1e6,
    );
}
