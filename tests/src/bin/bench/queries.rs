//! The same queries through Tidegate and by DataFusion on plain Parquet files with the same rows.

use std::{
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};
use tidegate_tests::{checkpoints, gate::Gate};

use crate::tables::{DATABASE, TABLE};

const QUERIES: &[(&str, &str)] = &[
    (
        "aggregate by status",
        "SELECT status, count(*), sum(amount), max(quantity) FROM {t} GROUP BY status ORDER BY status",
    ),
    ("filtered sum", "SELECT sum(amount) FROM {t} WHERE customer_id BETWEEN 1000 AND 2000 AND quantity > 3"),
    ("point query", "SELECT * FROM {t} WHERE id = 3000001"),
    (
        "top 10 of a million groups",
        "SELECT customer_id, sum(amount) AS s FROM {t} GROUP BY customer_id ORDER BY s DESC, customer_id LIMIT 10",
    ),
    ("top 10 rows", "SELECT id, amount FROM {t} ORDER BY amount DESC, id LIMIT 10"),
];

/// One query's median times.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) tidegate: Duration,
    pub(crate) plain: Duration,
}

/// Writes the mirrored table's rows into plain Parquet files of a million rows.
pub(crate) async fn plain_copy(gate: &Gate) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let name = format!("{DATABASE}.{TABLE}");
    let mut writer: Option<ArrowWriter<File>> = None;
    let mut rows = 0;
    let mut files = 0;
    checkpoints::for_each_batch(gate, &name, |batch| {
        if rows >= 1_000_000 {
            if let Some(full) = writer.take() {
                full.close().expect("a file can be written");
            }
            rows = 0;
        }
        let writer = writer.get_or_insert_with(|| {
            files += 1;
            let file = File::create(folder.path().join(format!("part-{files}.parquet"))).expect("a file can be made");
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level of zstd")))
                .build();
            ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("Parquet can hold the rows")
        });
        rows += batch.num_rows();
        writer.write(&batch).expect("rows can be written");
    })
    .await;
    if let Some(last) = writer {
        last.close().expect("a file can be written");
    }
    folder
}

/// Runs each query alternately on both sides and takes the medians.
pub(crate) async fn measure(gate: &Gate, copy: &tempfile::TempDir) -> Vec<Measured> {
    const RUNS: usize = 9;
    let context = plain_context(copy.path()).await;
    let pg = gate.connect().await;
    let mut measured = Vec::new();
    for (name, sql) in QUERIES {
        let ours = sql.replace("{t}", &format!("{DATABASE}.{TABLE}"));
        let theirs = sql.replace("{t}", "plain");
        let mut tidegate = Vec::new();
        let mut plain = Vec::new();
        // The first run of each side warms its caches.
        for run in 0..=RUNS {
            let start = Instant::now();
            pg.execute(&ours).await;
            let took = start.elapsed();
            let start = Instant::now();
            let frame = context.sql(&theirs).await.expect("the query can be planned");
            frame.collect().await.expect("the query runs");
            if run > 0 {
                tidegate.push(took);
                plain.push(start.elapsed());
            }
        }
        tidegate.sort_unstable();
        plain.sort_unstable();
        measured.push(Measured { name, tidegate: tidegate[RUNS / 2], plain: plain[RUNS / 2] });
    }
    measured
}

async fn plain_context(folder: &Path) -> SessionContext {
    let context = SessionContext::new();
    context
        .register_parquet("plain", &*folder.to_string_lossy(), ParquetReadOptions::default())
        .await
        .expect("Parquet files can be registered");
    context
}
