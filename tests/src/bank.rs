//! Reads the bank without a pause and sees its total in each reading.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    gate::Gate,
    pg::Pg,
    workload::{BANK_TOTAL, DATABASE},
};

/// A reader that sums both tables of the bank, alternately in one statement and in two statements of one transaction.
#[derive(Debug)]
pub struct BankWatch {
    stop: Arc<AtomicBool>,
    readings: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl BankWatch {
    pub fn start(gate: &Gate) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let readings = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(watch(gate.port, Arc::clone(&stop), Arc::clone(&readings)));
        Self { stop, readings, task }
    }

    /// Ends the reader and returns how often it has read. Panics if a reading was wrong.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("every reading sums to the bank's total");
        self.readings.load(Ordering::Relaxed)
    }
}

async fn watch(port: u16, stop: Arc<AtomicBool>, readings: Arc<AtomicU64>) {
    let pg = Pg::try_connect(port).await.expect("tidegate answers");
    while !stop.load(Ordering::Relaxed) {
        let total = pg
            .number(&format!(
                "SELECT (SELECT sum(balance) FROM {DATABASE}.bank_a) + (SELECT sum(balance) FROM {DATABASE}.bank_b)"
            ))
            .await;
        assert_eq!(total, BANK_TOTAL, "one statement over both tables");
        pg.execute("BEGIN").await;
        let a = pg.number(&format!("SELECT sum(balance) FROM {DATABASE}.bank_a")).await;
        let b = pg.number(&format!("SELECT sum(balance) FROM {DATABASE}.bank_b")).await;
        let again = pg.number(&format!("SELECT sum(balance) FROM {DATABASE}.bank_a")).await;
        pg.execute("COMMIT").await;
        assert_eq!((a + b, again), (BANK_TOTAL, a), "two statements of one transaction");
        readings.fetch_add(1, Ordering::Relaxed);
    }
}
