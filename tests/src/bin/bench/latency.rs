//! From the commit in MySQL until a query sees it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mysql_async::prelude::Queryable;
use tidegate_tests::{gate::Gate, servers::Server};

use crate::tables::{DATABASE, TABLE};

/// What a measurement saw.
pub(crate) struct Seen {
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// A writer that keeps a rate of row changes, in transactions of ten, all over a table that began with `rows` rows.
pub(crate) struct Flow {
    stop: Arc<AtomicBool>,
    changes: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Flow {
    pub(crate) async fn start(server: &Server, rows: u64, changes_per_second: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let changes = Arc::new(AtomicU64::new(0));
        let writers = (changes_per_second / 1_000).clamp(1, 4);
        let mut tasks = Vec::new();
        for writer in 0..writers {
            let mut conn = server.connect().await;
            let (stop, changes) = (Arc::clone(&stop), Arc::clone(&changes));
            let share = changes_per_second as f64 / writers as f64;
            tasks.push(tokio::spawn(async move {
                let mut ticks = tokio::time::interval(Duration::from_millis(5));
                let (start, mut own) = (Instant::now(), 0.0);
                let mut at = writer * 1_000_003;
                while !stop.load(Ordering::Relaxed) {
                    // Some of the ten rows may be gone, so the pace is kept by what was changed.
                    if own >= start.elapsed().as_secs_f64() * share {
                        ticks.tick().await;
                        continue;
                    }
                    at = (at + 7_919) % rows;
                    let statement = format!(
                        "UPDATE {DATABASE}.{TABLE} SET quantity = quantity + 1 WHERE id BETWEEN {at} AND {}",
                        at + 9
                    );
                    conn.query_drop(statement).await.expect("rows can be updated");
                    own += conn.affected_rows() as f64;
                    changes.fetch_add(conn.affected_rows(), Ordering::Relaxed);
                }
                let _ = conn.disconnect().await;
            }));
        }
        Self { stop, changes, tasks }
    }

    /// Ends the writers and returns how many rows they changed.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a writer does not panic");
        }
        self.changes.load(Ordering::Relaxed)
    }
}

/// Writes at a rate, commits a numbered probe every 50 ms, and notes when a query first sees it.
pub(crate) async fn measure(server: &Server, gate: &Gate, rows: u64, changes_per_second: u64, time: Duration) -> Seen {
    let flow = Flow::start(server, rows, changes_per_second).await;
    let mut conn = server.connect().await;
    let pg = gate.connect().await;
    let start = Instant::now();
    let first = i64::try_from(changes_per_second * 1_000_000).expect("a small rate");
    let (sender, mut committed) = tokio::sync::mpsc::unbounded_channel();
    let prober = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let mut id = first;
        while start.elapsed() < time {
            ticks.tick().await;
            conn.query_drop(format!("INSERT INTO {DATABASE}.probe VALUES ({id})"))
                .await
                .expect("a probe can be written");
            let _ = sender.send((id, Instant::now()));
            id += 1;
        }
        let _ = conn.disconnect().await;
    });
    let mut latencies = Vec::new();
    let mut waiting = std::collections::VecDeque::new();
    let mut open = true;
    while open || !waiting.is_empty() {
        loop {
            match committed.try_recv() {
                Ok(probe) => waiting.push_back(probe),
                Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
                Err(tokio::sync::mpsc::error::TryRecvError::Empty) => break,
            }
        }
        let newest = pg.value(&format!("SELECT max(id) FROM {DATABASE}.probe")).await;
        let newest: i64 = newest.and_then(|text| text.parse().ok()).unwrap_or(-1);
        let now = Instant::now();
        while waiting.front().is_some_and(|(id, _)| *id <= newest) {
            if let Some((_, at)) = waiting.pop_front() {
                latencies.push(now - at);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    prober.await.expect("the prober does not panic");
    let elapsed = start.elapsed();
    let changes = flow.stop().await;
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Seen { rate: changes as f64 / elapsed.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
}
