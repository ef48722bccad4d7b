//! Loads a table of order rows, then updates random ones commit by commit, and prints what that costs.
//!
//! `cargo run -p tidegate-storage --example table_bench -- [NAME=VALUE …]`; each name has a default:
//!
//! * `directory` (in memory): where a new table is made; it stays there.
//! * `rows` (5000000), `buckets` (1): the table. Several numbers of rows (`1000000,50000000`) make a table each, one after
//!   the other, and a report of all at the end.
//! * `changes` (100000), `commits` (10): random keys updated in each commit, and the number of commits.
//! * `pace` (0): seconds from one commit to the next; 0 is as fast as it goes.
//! * `key_memory` (128): MiB of key index in memory; the rest is on the disk, if there is a directory.
//! * `report` (60): commits in a line of the report.
//! * `durable` (1): 0 does not sync files to the disk.
//! * `merges` (1): 0 leaves every run as it was written.
//! * `expire` (5): commits between two rounds of expiry.
//!
//! Old snapshots expire meanwhile. The last lines are the figures over all.

#![allow(clippy::disallowed_methods, reason = "a program of its own, in the time and by the chance that there are")]

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use object_store::path::Path;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_storage::clock::{Clock, SystemClock};
use tidegate_storage::local_disk::LocalDirectory;
use tidegate_storage::paimon::{DataType, NewField, TableSchema};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{
    Expired, KeyCache, Resources, Retention, RowKind, TableOptions, TableVersion, TableWriter, WriterContext,
    expire_snapshots,
};
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PAGE: i64 = 20_000;
const FLUSH_BYTES: usize = 64 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The arguments: numbers by name, the sizes of the tables, and the directory.
struct Arguments {
    numbers: HashMap<&'static str, f64>,
    /// Rows of each table, one after the other.
    rows: Vec<i64>,
    directory: Option<String>,
}

impl Arguments {
    fn read() -> Outcome<Self> {
        let mut numbers = HashMap::from([
            ("buckets", 1.0),
            ("changes", 100_000.0),
            ("commits", 10.0),
            ("pace", 0.0),
            ("key_memory", 128.0),
            ("report", 60.0),
            ("merges", 1.0),
            ("durable", 1.0),
            ("expire", 5.0),
        ]);
        let (mut directory, mut rows) = (None, vec![5_000_000]);
        for argument in std::env::args().skip(1) {
            let (name, value) = argument.split_once('=').ok_or(format!("{argument}: NAME=VALUE is expected"))?;
            match numbers.get_mut(name) {
                Some(number) => *number = value.parse()?,
                None if name == "directory" => directory = Some(value.to_owned()),
                None if name == "rows" => rows = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                None => return Err(format!("there is no argument {name}").into()),
            }
        }
        Ok(Self { numbers, rows, directory })
    }

    fn int(&self, name: &str) -> i64 {
        self.numbers[name] as i64
    }
}

fn schema() -> Outcome<TableSchema> {
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

fn rows(schema: &TableSchema, ids: &[i64], random: &mut StdRng) -> Outcome<RecordBatch> {
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

/// What the commits of some time took.
#[derive(Default)]
struct Span {
    commits: Vec<f64>,
    /// The part of each that is spent on data files.
    flushes: Vec<f64>,
    plans: Vec<f64>,
    most_files: usize,
}

impl Span {
    fn take(&mut self, other: &Span) {
        self.commits.extend(&other.commits);
        self.flushes.extend(&other.flushes);
        self.plans.extend(&other.plans);
        self.most_files = self.most_files.max(other.most_files);
    }
}

/// The value below which `share` of the values are, in milliseconds.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1))).map_or(0.0, |v| v * 1e3)
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut arguments = Arguments::read()?;
    let (directory, sizes) = (arguments.directory.clone(), arguments.rows.clone());
    let mut summaries = Vec::new();
    for rows in &sizes {
        if sizes.len() > 1 {
            println!("{rows} rows");
            arguments.directory = directory.as_ref().map(|directory| format!("{directory}/{rows}"));
        }
        summaries.push((rows, runtime.block_on(bench(&arguments, *rows))?));
    }
    if sizes.len() > 1 {
        println!("{:>12}{:>12}{:>12}{:>16}{:>16}", "rows", "p50 ms", "p99 ms", "processor ms", "vectors KiB");
        for (rows, Summary { p50, p99, processor, vectors }) in summaries {
            println!("{rows:>12}{p50:>12.0}{p99:>12.0}{processor:>16.0}{vectors:>16.0}");
        }
    }
    Ok(())
}

/// What a commit took, merges included where it says processor.
struct Summary {
    p50: f64,
    p99: f64,
    processor: f64,
    vectors: f64,
}

async fn bench(arguments: &Arguments, rows: i64) -> Outcome<Summary> {
    let keys = match &arguments.directory {
        Some(directory) => {
            let disk = Arc::new(LocalDirectory::new(format!("{directory}/key-index")));
            KeyCache::new(disk, (arguments.int("key_memory") << 20) as usize)
        }
        None => KeyCache::unbounded(),
    };
    let url = arguments.directory.as_ref().map_or("memory:".to_owned(), |directory| format!("{directory}/store"));
    let store_options = match &arguments.directory {
        Some(_) => vec![("durable".to_owned(), (arguments.int("durable") > 0).to_string())],
        None => Vec::new(),
    };
    let ctx = WriterContext {
        store: store::open(&url, &store_options)?,
        clock: Arc::new(SystemClock),
        commit_user: "bench".to_owned(),
        resources: Arc::new(Resources { keys, ..Resources::default() }),
    };
    let options = TableOptions {
        buckets: arguments.int("buckets") as u32,
        compaction: arguments.int("merges") > 0,
        ..TableOptions::default()
    };
    let path = Path::from("bench/orders");
    let mut table = Table {
        writer: TableWriter::create(ctx.clone(), path.clone(), schema()?, options.clone()).await?,
        store: Arc::clone(&ctx.store),
        path: path.clone(),
        commits: 0,
        published: String::new(),
        snapshot: 0,
        vector_bytes: 0,
        dead_rows: 0,
        expiry: None,
    };
    let schema = Arc::clone(table.writer.schema());
    let mut random = StdRng::seed_from_u64(1);
    load(&mut table, &schema, rows, &mut random).await?;
    let summary = update(&mut table, &schema, arguments, rows, &mut random).await?;
    println!("  key index and deletion vectors {} MiB", table.writer.index_bytes() >> 20);

    println!("  that was snapshot {}", table.snapshot);
    rest(&mut table).await?;
    let json = table.published.clone();
    drop(table);
    let started = Moment::now();
    let reopened = TableWriter::open(ctx, path, &json, true, options).await?;
    report("open", reopened.row_count() as i64, &started);
    if reopened.row_count() != rows as u64 {
        return Err(format!("the table has {} rows", reopened.row_count()).into());
    }
    println!("peak resident memory: {} MiB", status_mib("VmHWM"));
    Ok(summary)
}

/// A table whose snapshots are published one after the other.
struct Table {
    writer: TableWriter,
    store: StoreRef,
    path: Path,
    commits: u64,
    published: String,
    snapshot: u64,
    /// Of all deletion vectors; random updates rewrite them all.
    vector_bytes: usize,
    dead_rows: u64,
    expiry: Option<JoinHandle<tidegate_storage::Result<Expired>>>,
}

impl Table {
    /// Prepares a snapshot and publishes it. Gives the number of its files.
    async fn commit(&mut self) -> Outcome<usize> {
        self.commits += 1;
        let prepared = self.writer.prepare(self.commits, BTreeMap::new()).await?;
        self.writer.committed(true);
        let file = Path::from(format!("{}/snapshot/snapshot-{}", self.path, prepared.snapshot.id));
        store::create_if_absent(&*self.store, &file, prepared.snapshot.json.clone().into()).await?;
        self.published = prepared.snapshot.json;
        self.snapshot = prepared.snapshot.id;
        let vectors = prepared.version.files.iter().filter_map(|file| file.deleted.as_ref());
        self.vector_bytes = vectors.clone().map(|vector| vector.serialized_size()).sum();
        self.dead_rows = vectors.map(|vector| vector.len()).sum();
        Ok(prepared.version.files.len())
    }

    /// Begins to expire old snapshots, unless that is still going on since the last time.
    async fn expire(&mut self) -> Outcome<()> {
        if let Some(running) = self.expiry.take_if(|running| running.is_finished()) {
            running.await??;
        }
        if self.expiry.is_none() {
            let spread = Duration::from_secs(4);
            let retention = Retention { time_retained_ms: 60_000, max_snapshots: 60, spread, ..Retention::default() };
            let (store, path) = (Arc::clone(&self.store), self.path.clone());
            self.expiry = Some(tokio::spawn(async move {
                expire_snapshots(&store, &path, SystemClock.now_ms(), &retention, None).await
            }));
        }
        Ok(())
    }
}

async fn load(table: &mut Table, schema: &TableSchema, rows_in_all: i64, random: &mut StdRng) -> Outcome<()> {
    table.writer.begin_loading();
    // Rows are made outside the time that is measured, and few at a time, as memory is measured too.
    let (mut seconds, mut processor, mut bytes) = (0.0, 0.0, 0);
    let mut next = 0;
    while next < rows_in_all {
        let mut pages = Vec::new();
        while next < rows_in_all && pages.len() < 10 {
            let end = rows_in_all.min(next + PAGE);
            pages.push(rows(schema, &(next..end).collect::<Vec<_>>(), random)?);
            next = end;
        }
        bytes += pages.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        let started = Moment::now();
        for page in pages {
            let kinds = vec![RowKind::InsertAbsent; page.num_rows()];
            table.writer.apply(page, kinds)?;
            if table.writer.buffered_bytes() > FLUSH_BYTES {
                table.commit().await?;
            }
        }
        if next == rows_in_all {
            table.commit().await?;
            table.writer.end_loading();
        }
        seconds += started.0.elapsed().as_secs_f64();
        processor += Moment::now().1 - started.1;
    }
    println!(
        "load: {:.2} M rows/s ({seconds:.2} s), {:.2} M rows per processor second, rows of {} bytes in memory",
        rows_in_all as f64 / seconds / 1e6,
        rows_in_all as f64 / processor / 1e6,
        bytes as i64 / rows_in_all.max(1),
    );
    println!("  key index {} MiB, peak resident {} MiB", table.writer.index_bytes() >> 20, status_mib("VmHWM"));
    Ok(())
}

async fn update(
    table: &mut Table,
    schema: &TableSchema,
    arguments: &Arguments,
    keys: i64,
    random: &mut StdRng,
) -> Outcome<Summary> {
    let (count, changes) = (arguments.int("commits"), arguments.int("changes"));
    let pace = Duration::from_secs_f64(arguments.numbers["pace"]);
    let (mut all, mut span) = (Span::default(), Span::default());
    let started = Moment::now();
    let mut late = 0.0_f64;
    let mut made = 0.0;
    for commit in 1..=count {
        let making = Moment::now();
        let ids: Vec<i64> = (0..changes).map(|_| random.random_range(0..keys)).collect();
        let batch = rows(schema, &ids, random)?;
        made += making.0.elapsed().as_secs_f64();
        let due = started.0 + pace * u32::try_from(commit)?;
        tokio::time::sleep_until(due.into()).await;
        late = late.max(Instant::now().saturating_duration_since(due).as_secs_f64());

        let began = Instant::now();
        let kinds = vec![RowKind::Upsert; batch.num_rows()];
        table.writer.apply(batch, kinds)?;
        table.writer.flush().await?;
        span.flushes.push(began.elapsed().as_secs_f64());
        span.most_files = span.most_files.max(table.commit().await?);
        span.commits.push(began.elapsed().as_secs_f64());
        if table.commits.is_multiple_of(arguments.int("expire") as u64) {
            table.expire().await?;
        }
        if commit % 10 == 0 {
            let began = Instant::now();
            TableVersion::load(&table.store, &table.path, &table.published).await?;
            span.plans.push(began.elapsed().as_secs_f64());
        }
        if commit % arguments.int("report") == 0 || commit == count {
            println!(
                "commits to {commit}: p50 {:.0} (data {:.0}) p99 {:.0} (data {:.0}) max {:.0} ms; plan from the store p50 {:.1} max {:.1} ms; at most {} \
                 files; resident {} MiB",
                quantile(&span.commits, 0.5),
                quantile(&span.flushes, 0.5),
                quantile(&span.commits, 0.99),
                quantile(&span.flushes, 0.99),
                quantile(&span.commits, 1.0),
                quantile(&span.plans, 0.5),
                quantile(&span.plans, 1.0),
                span.most_files,
                status_mib("VmRSS"),
            );
            all.take(&std::mem::take(&mut span));
        }
    }
    let written = table.writer.merges().written();
    let processor = Moment::now().1 - started.1 - made;
    let rows_written = (written.flushed.rows + written.merged.rows) as f64;
    report(&format!("updates, {changes} per commit"), count * changes, &started);
    println!(
        "  commits p50 {:.0} p99 {:.0} max {:.0} ms; plan p99 {:.1} ms; each row was written {:.2} times (load included); at most \
         {} files; {late:.1} s behind the pace at most; making rows took {made:.1} s",
        quantile(&all.commits, 0.5),
        quantile(&all.commits, 0.99),
        quantile(&all.commits, 1.0),
        quantile(&all.plans, 0.99),
        rows_written / written.applied_rows.max(1) as f64,
        all.most_files,
    );
    println!(
        "  last commit: deletion vectors of {:.1} KiB for {} dead rows beside {keys} live ones",
        table.vector_bytes as f64 / 1024.0,
        table.dead_rows,
    );
    println!("  peak resident memory: {} MiB", status_mib("VmHWM"));
    Ok(Summary {
        p50: quantile(&all.commits, 0.5),
        p99: quantile(&all.commits, 0.99),
        processor: processor * 1e3 / count.max(1) as f64,
        vectors: table.vector_bytes as f64 / 1024.0,
    })
}

/// Lets the table rest: as a mirror does, looks every tenth of a second whether there is something to commit, until
/// nothing has come for twice the time after which a table tidies itself.
async fn rest(table: &mut Table) -> Outcome<()> {
    let began = Instant::now();
    let mut tidied = began;
    while tidied.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let runs = table.writer.merges().merges().iter().any(|merge| merge.ended_ms.is_none());
        if runs {
            tidied = Instant::now();
        }
        if table.writer.is_dirty() {
            table.commit().await?;
            tidied = Instant::now();
        }
    }
    println!(
        "at rest after {:.1} s: {} dead rows in snapshot {}",
        (tidied - began).as_secs_f64(),
        table.dead_rows,
        table.snapshot
    );
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

/// A line of `/proc/self/status` that counts KiB, in MiB; 0 where there is none.
fn status_mib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
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
