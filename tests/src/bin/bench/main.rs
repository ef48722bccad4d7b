//! One run, one table: how fast Tidegate is beside the bare work that it cannot avoid.
//!
//! `cargo run -p tidegate-tests --bin bench` starts a database and Tidegate, measures, and prints. What stands beside a figure was measured in the
//! same run on the same data: a bare read of the table, a bare decoding of the same binlog, the same query on plain Parquet files.

mod bare;
mod latency;
mod queries;
mod tables;

use std::time::{Duration, Instant};

use clap::Parser;
use mysql_async::prelude::Queryable;
use tidegate_tests::{
    gate::Gate,
    servers::{Kind, Server},
};

use crate::tables::{DATABASE, TABLE};

#[derive(Debug, Parser)]
#[command(about = "Measures Tidegate beside the bare work that it cannot avoid")]
struct Options {
    /// Rows of the table whose snapshot is taken.
    #[arg(long, default_value_t = 5_000_000)]
    rows: u64,
    /// Row changes that wait in the binlog when the source is resumed.
    #[arg(long, default_value_t = 2_000_000)]
    changes: u64,
    /// Seconds of writing at each rate whose latency is measured.
    #[arg(long, default_value_t = 20)]
    latency_seconds: u64,
    /// The server: `mysql` or `mariadb`.
    #[arg(long, default_value = "mysql")]
    server: String,
}

/// A line of the result.
struct Line {
    what: String,
    tidegate: String,
    beside: String,
    ratio: String,
}

/// Snapshots and bare reads, of each of which the median counts.
const ROUNDS: usize = 3;

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    let kind = if options.server == "mariadb" { Kind::MariaDb } else { Kind::Mysql };
    let mut lines = Vec::new();
    let settings = ["--innodb-buffer-pool-size=2G", "--max-binlog-size=1G", "--max-allowed-packet=64M"];
    let server = Server::start(kind, &settings).await;
    eprintln!("filling {} rows", thousands(options.rows as f64));
    tables::fill(&server, options.rows).await;

    // By turns, since the machine is never the same for long.
    let (mut bare_reads, mut snapshots, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        eprintln!("bare read");
        let (rows, time) = bare::read_table(&server).await;
        assert_eq!(rows, options.rows, "the bare read reads every row");
        bare_reads.push(time);
        eprintln!("snapshot");
        drop(last.take());
        let mut gate = Gate::start().await;
        gate.expect_in_log("");
        let start = Instant::now();
        gate.mirror("bench", &server, &format!("{DATABASE}.*")).await;
        snapshots.push(start.elapsed());
        last = Some(gate);
    }
    let gate = last.expect("there is at least one round");
    let (bare_read, snapshot) = (median(&mut bare_reads), median(&mut snapshots));
    let snapshot_memory = gate.process().peak_resident_bytes().unwrap_or(0);
    let counted = gate.connect().await.number(&format!("SELECT count(*) FROM {DATABASE}.{TABLE}")).await;
    assert_eq!(u64::try_from(counted), Ok(options.rows), "the mirror has every row");
    let (ours, theirs) = (rate(options.rows, snapshot), rate(options.rows, bare_read));
    lines.push(Line {
        what: format!(
            "snapshot of {} rows, rows/s (beside: bare read), medians of {ROUNDS}",
            thousands(options.rows as f64)
        ),
        tidegate: thousands(ours),
        beside: thousands(theirs),
        ratio: format!("{:.2}", ours / theirs),
    });
    lines.push(Line {
        what: "peak resident memory, snapshot".to_owned(),
        tidegate: format!("{} MiB", snapshot_memory >> 20),
        beside: String::new(),
        ratio: String::new(),
    });

    // Queries are measured on the fresh snapshot's rows, first without and then with changes flowing.
    eprintln!("plain Parquet copy");
    let copy = queries::plain_copy(&gate).await;

    eprintln!("{} changes for the backlog", thousands(options.changes as f64));
    let pg = gate.connect().await;
    pg.execute("CHECKPOINT SOURCE bench").await;
    pg.execute("PAUSE SOURCE bench").await;
    let from = server.log_end().await;
    let written = tables::write_backlog(&server, options.changes).await;
    let (decoded, bare_decode) = bare::decode_binlog(&server, &from).await;
    assert_eq!(decoded, written, "the bare decoder sees every change");
    let start = Instant::now();
    pg.execute("RESUME SOURCE bench").await;
    gate.catch_up("bench").await;
    let applied = start.elapsed();
    let (ours, theirs) = (rate(written, applied), rate(written, bare_decode));
    lines.push(Line {
        what: format!("{} changes made durable, changes/s (beside: bare decoding)", thousands(written as f64)),
        tidegate: thousands(ours),
        beside: thousands(theirs),
        ratio: format!("{:.2}", ours / theirs),
    });
    let mut conn = server.connect().await;
    let truth: Option<(u64, u64)> = conn
        .query_first(format!("SELECT COUNT(*), CAST(SUM(quantity) AS UNSIGNED) FROM {DATABASE}.{TABLE}"))
        .await
        .expect("the table can be read");
    let mirror = pg.rows(&format!("SELECT count(*), sum(quantity) FROM {DATABASE}.{TABLE}")).await;
    let mirror =
        mirror[0].iter().map(|value| value.as_deref().and_then(|text| text.parse().ok())).collect::<Vec<Option<u64>>>();
    assert_eq!(truth.map(|(count, sum)| vec![Some(count), Some(sum)]), Some(mirror), "the mirror is MySQL's table");

    for changes_per_second in [1_000, 5_000] {
        eprintln!("latency at {changes_per_second} changes/s");
        let seen = latency::measure(
            &server,
            &gate,
            options.rows,
            changes_per_second,
            Duration::from_secs(options.latency_seconds),
        )
        .await;
        lines.push(Line {
            what: format!("commit to visible at {} changes/s, p50 / p99", thousands(seen.rate)),
            tidegate: format!("{:.2} s / {:.2} s", seen.p50.as_secs_f64(), seen.p99.as_secs_f64()),
            beside: String::new(),
            ratio: String::new(),
        });
    }

    eprintln!("queries while 1,000 changes/s flow");
    let flow = latency::Flow::start(&server, options.rows, 1_000).await;
    for query in queries::measure(&gate, &copy).await {
        lines.push(Line {
            what: format!("{} (beside: plain Parquet)", query.name),
            tidegate: format!("{:.1} ms", query.tidegate.as_secs_f64() * 1e3),
            beside: format!("{:.1} ms", query.plain.as_secs_f64() * 1e3),
            ratio: format!("{:.2}", query.tidegate.as_secs_f64() / query.plain.as_secs_f64()),
        });
    }
    flow.stop().await;
    let peak = gate.process().peak_resident_bytes().unwrap_or(0);
    lines.push(Line {
        what: "peak resident memory, whole run".to_owned(),
        tidegate: format!("{} MiB", peak >> 20),
        beside: String::new(),
        ratio: String::new(),
    });

    println!("\n{} {}", options.server, server.variable("version").await);
    println!("{:<72} {:>18} {:>14} {:>6}", "", "Tidegate", "beside", "ratio");
    for line in lines {
        println!("{:<72} {:>18} {:>14} {:>6}", line.what, line.tidegate, line.beside, line.ratio);
    }
}
