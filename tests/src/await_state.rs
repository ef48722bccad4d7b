//! Waiting for a state instead of for a time.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

/// A moment after which a test gives up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    pub fn after(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    pub fn passed(&self) -> bool {
        self.start.elapsed() >= self.limit
    }
}

/// Calls `probe` until it returns a value; its last refusal is printed when the time is over.
pub async fn await_value<T, E, F, Fut>(what: &str, limit: Duration, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Debug,
{
    let deadline = Deadline::after(limit);
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(refusal) => assert!(!deadline.passed(), "after {limit:?} still waiting for {what}: {refusal:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
