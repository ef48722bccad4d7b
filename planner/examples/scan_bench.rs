//! Queries over a table of `table_bench` beside the same queries by DataFusion on plain Parquet files with the same rows.
//!
//! `cargo run -p tidegate-planner --example scan_bench -- DIRECTORY [SNAPSHOT]`, where `DIRECTORY` is that of a
//! `table_bench`, and `SNAPSHOT` the number of a snapshot of its table, the newest one if none is given. The plain files
//! have a million rows each, in the order of the key, zstd; they are made in a temporary directory below `DIRECTORY`. Both
//! sides run by turns; the figures are medians of 9.

use std::error::Error;
use std::fs::File;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tidegate_planner::context::{QueryRuntime, RuntimeOptions};
use tidegate_storage::store;
use tidegate_storage::table::TableVersion;

const RUNS: usize = 9;
const FILE_ROWS: usize = 1_000_000;

/// `{key}` is another key in every run.
const QUERIES: &[(&str, &str)] = &[
    ("number of rows", "SELECT count(*) FROM {t}"),
    ("smallest and largest key", "SELECT min(id), max(id) FROM {t}"),
    ("aggregate by status", "SELECT status, count(*), sum(amount) FROM {t} GROUP BY status"),
    ("filtered sum", "SELECT sum(amount) FROM {t} WHERE customer < 40000"),
    (
        "all columns",
        "SELECT count(customer), min(status), sum(amount), sum(quantity), max(ordered_on), max(changed_at), max(note) FROM {t}",
    ),
    ("range of keys", "SELECT sum(quantity) FROM {t} WHERE id BETWEEN {key} AND {key} + 100000"),
    ("point look-up", "SELECT * FROM {t} WHERE id = {key}"),
    ("top 10 rows", "SELECT * FROM {t} ORDER BY changed_at DESC LIMIT 10"),
    ("first 10 rows by key", "SELECT * FROM {t} ORDER BY id LIMIT 10"),
    ("all rows in key order", "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY id) AS n FROM {t})"),
];

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("the directory of a table_bench is missing")?);
    let store = store::open(&directory.join("store").to_string_lossy(), &[])?;
    let path = Path::from("bench/orders");

    let snapshots = store.list_with_delimiter(Some(&Path::from("bench/orders/snapshot"))).await?;
    let numbers = snapshots
        .objects
        .iter()
        .filter_map(|object| object.location.filename()?.strip_prefix("snapshot-")?.parse::<u64>().ok());
    let number = match std::env::args().nth(2) {
        Some(number) => number.parse()?,
        None => numbers.max().ok_or("the table has no snapshot")?,
    };
    let json = store.get(&Path::from(format!("bench/orders/snapshot/snapshot-{number}"))).await?.bytes().await?;
    let json = String::from_utf8(json.to_vec())?;
    let mut plans = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        TableVersion::load(&store, &path, &json).await?;
        plans.push(began.elapsed());
    }
    let version = Arc::new(TableVersion::load(&store, &path, &json).await?);
    let dead: u64 = version.files.iter().filter_map(|file| file.deleted.as_ref()).map(|deleted| deleted.len()).sum();
    let bytes: i64 = version.files.iter().map(|file| file.meta.file_size).sum();
    println!(
        "snapshot {number}: {} rows in {} files of {} MiB, {dead} dead rows ({:.1} % of the live ones)",
        version.row_count(),
        version.files.len(),
        bytes >> 20,
        dead as f64 * 100.0 / version.row_count() as f64,
    );
    println!("the version is read from the store in {:.1} ms", milliseconds(median(plans)));

    let runtime =
        QueryRuntime::new(Arc::clone(&store), &RuntimeOptions { memory_bytes: 8 << 30, ..RuntimeOptions::default() })?;
    let ours = runtime.bare_session(SessionConfig::new());
    ours.register_table("t", Arc::new(runtime.table("bench.orders", Arc::clone(&version))))?;
    let copy = tempfile::tempdir_in(&directory)?;
    let plain_bytes = write_copy(&ours, copy.path()).await?;
    println!("plain Parquet files: {} MiB", plain_bytes >> 20);
    let plain = SessionContext::new();
    plain.register_parquet("t", &*copy.path().to_string_lossy(), ParquetReadOptions::default()).await?;

    println!("{:<28}{:>12}{:>12}{:>8}", "", "Tidegate", "plain", "ratio");
    let rows = version.row_count();
    for (name, sql) in QUERIES {
        let (mut us, mut them) = (Vec::new(), Vec::new());
        // The first run of each side warms its caches.
        for run in 0..=RUNS as u64 {
            let key = (run * 7_919_001 + 12_345) % rows.max(1);
            let sql = sql.replace("{t}", "t").replace("{key}", &key.to_string());
            let (first, second) = if run % 2 == 0 { (&ours, &plain) } else { (&plain, &ours) };
            let (a, b) = (timed(first, &sql).await?, timed(second, &sql).await?);
            let (a, b) = if run % 2 == 0 { (a, b) } else { (b, a) };
            if a.1 != b.1 {
                return Err(format!("{sql}\ngave\n{}\nand on plain files\n{}", a.1, b.1).into());
            }
            if run > 0 {
                us.push(a.0);
                them.push(b.0);
            }
        }
        let (us, them) = (median(us), median(them));
        println!(
            "{name:<28}{:>9.1} ms{:>9.1} ms{:>8.2}",
            milliseconds(us),
            milliseconds(them),
            us.as_secs_f64() / them.as_secs_f64()
        );
    }
    Ok(())
}

/// How long a query takes from its text to its last row, and what it gives, in an order of its own.
async fn timed(context: &SessionContext, sql: &str) -> Outcome<(Duration, String)> {
    let began = Instant::now();
    let batches = context.sql(sql).await?.collect().await?;
    let took = began.elapsed();
    let text = arrow::util::pretty::pretty_format_batches(&batches)?.to_string();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    Ok((took, lines.join("\n")))
}

async fn write_copy(context: &SessionContext, folder: &FilePath) -> Outcome<u64> {
    let mut batches = context.sql("SELECT * FROM t ORDER BY id").await?.execute_stream().await?;
    let mut writer: Option<ArrowWriter<File>> = None;
    let (mut rows, mut files) = (0, 0);
    let file = |number: usize| folder.join(format!("part-{number:04}.parquet"));
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if rows >= FILE_ROWS {
            if let Some(full) = writer.take() {
                full.close()?;
            }
            rows = 0;
        }
        let open = match writer.take() {
            Some(open) => writer.insert(open),
            None => {
                files += 1;
                let compression = Compression::ZSTD(ZstdLevel::try_new(1)?);
                let properties = WriterProperties::builder().set_compression(compression).build();
                writer.insert(ArrowWriter::try_new(File::create(file(files))?, batch.schema(), Some(properties))?)
            }
        };
        rows += batch.num_rows();
        open.write(&batch)?;
    }
    if let Some(last) = writer {
        last.close()?;
    }
    Ok((1..=files).map(|number| std::fs::metadata(file(number)).map_or(0, |meta| meta.len())).sum())
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
