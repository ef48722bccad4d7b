//! The merges of all tables of a process: how many run at one time, how much they write, and what became of them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{self, Either};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::levels::TOP;
use crate::error::{Error, Result};
use crate::workers::Workers;

/// A merge of more rows than this is long: not all threads may be taken by such merges.
const LONG_ROWS: u64 = 4_000_000;
/// The same for a merge into the top, of which there is seldom need at once.
const LONG_ROWS_AT_TOP: u64 = 1_000_000;
/// Ended merges that are remembered for each table.
const REMEMBERED: usize = 64;

/// Where merges wait for their turn.
///
/// They run in the order in which they became due, and a table has at most as many of them waiting or running as there
/// are threads, so that tables take turns. Long ones leave a thread to the short ones, which keep the number of runs
/// down: each commit makes a run, and a long merge takes the time of many commits. While one that has to make haste waits,
/// all that run have to.
#[derive(Debug)]
pub struct MergePool {
    threads: usize,
    any: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// Bytes a second that all merges together write; none is without limit.
    bytes_per_second: Option<u64>,
    /// Merges that have to make haste and wait for their turn.
    waiting_in_haste: watch::Sender<usize>,
    /// When the bytes written so far are paid for.
    paid: Mutex<Option<Instant>>,
}

impl Default for MergePool {
    fn default() -> Self {
        Self::new(Workers::Threads.parallelism(), None)
    }
}

/// Ends when what `told` says is so. It never is if nobody can say so any more.
async fn called_for<T>(told: &mut watch::Receiver<T>, is_so: impl FnMut(&T) -> bool) {
    if told.wait_for(is_so).await.is_err() {
        future::pending::<()>().await;
    }
}

/// One more merge that has to make haste and waits, until this is dropped.
struct InHaste<'a>(&'a watch::Sender<usize>);

impl<'a> InHaste<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for InHaste<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

/// The right to run a merge.
pub(crate) struct Turn {
    _any: OwnedSemaphorePermit,
    _long: Option<OwnedSemaphorePermit>,
}

impl MergePool {
    /// Up to `threads` merges at one time, at least two and all but one of them long, which write up to so many bytes a second together.
    pub fn new(threads: usize, bytes_per_second: Option<u64>) -> Self {
        let threads = threads.clamp(2, Semaphore::MAX_PERMITS / 2);
        Self {
            threads,
            any: Arc::new(Semaphore::new(threads)),
            long: Arc::new(Semaphore::new(threads - 1)),
            bytes_per_second,
            waiting_in_haste: watch::Sender::new(0),
            paid: Mutex::new(None),
        }
    }

    /// Merges of a table that may wait or run at one time: short ones, and long ones beside them.
    pub(crate) fn shares(&self) -> (usize, usize) {
        (self.threads, self.threads - 1)
    }

    /// Waits until a merge may run, which has to make haste once `haste` says so.
    pub(crate) async fn turn(&self, is_long: bool, mut haste: watch::Receiver<bool>) -> Result<Turn> {
        let mut turn = pin!(self.own_turn(is_long));
        let hurried = pin!(called_for(&mut haste, |haste| *haste));
        match future::select(turn.as_mut(), hurried).await {
            Either::Left((turn, _)) => turn,
            Either::Right(_) => {
                let _waiting = InHaste::new(&self.waiting_in_haste);
                turn.await
            }
        }
    }

    /// Ends when a merge that runs has to make haste, for its own sake or for that of one that waits.
    pub(crate) async fn hurry(&self, mut haste: watch::Receiver<bool>) {
        let mut waiting = self.waiting_in_haste.subscribe();
        let own = pin!(called_for(&mut haste, |haste| *haste));
        let other = pin!(called_for(&mut waiting, |waiting| *waiting > 0));
        future::select(own, other).await;
    }

    async fn own_turn(&self, is_long: bool) -> Result<Turn> {
        let ended = |_| Error::invalid("merges have ended");
        let long = match is_long {
            true => Some(Arc::clone(&self.long).acquire_owned().await.map_err(ended)?),
            false => None,
        };
        Ok(Turn { _any: Arc::clone(&self.any).acquire_owned().await.map_err(ended)?, _long: long })
    }

    /// Called after `bytes` were written: waits as long as the limit asks for.
    pub(crate) async fn pace(&self, bytes: u64) {
        let Some(limit) = self.bytes_per_second else { return };
        let until = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let until = paid_for(*paid, Instant::now(), bytes, limit);
            *paid = Some(until);
            until
        };
        tokio::time::sleep_until(until).await;
    }
}

/// Whether a merge of `rows` rows to `level` takes the time of many commits.
pub(crate) fn is_long(level: i32, rows: u64) -> bool {
    rows > if level == TOP { LONG_ROWS_AT_TOP } else { LONG_ROWS }
}

/// When `bytes` more are paid for at `limit` bytes a second, if all before are at `paid`.
fn paid_for(paid: Option<Instant>, now: Instant, bytes: u64, limit: u64) -> Instant {
    paid.map_or(now, |paid| paid.max(now)) + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64)
}

/// What a merge was begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeReason {
    /// Runs of one size.
    Runs,
    /// Too many rows of a file are dead.
    DeadRows,
    /// Small files side by side.
    SmallFiles,
    /// It was asked for.
    Request,
}

/// Where a merge stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeState {
    /// It waits for its turn.
    Waiting,
    /// It runs.
    Running,
    /// Its output is written, and takes the place of its input when the next snapshot is prepared.
    Written,
    /// Its output took the place of its input.
    Done,
    /// It was given up; its input stays as it was.
    Failed(String),
}

/// One merge that runs beside a table's writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// Counts the table's merges since its writer was opened.
    pub id: u64,
    /// The bucket.
    pub bucket: u32,
    /// Why it was begun.
    pub reason: MergeReason,
    /// The level of its output.
    pub level: i32,
    /// Files, live rows and bytes read.
    pub input: Amount,
    /// Files, rows and bytes written; nothing until it is done.
    pub output: Amount,
    /// When it became due, in milliseconds since 1970.
    pub due_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Where it stands.
    pub state: MergeState,
}

/// A number of files, with their rows and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Rows, dead ones aside.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How much was written for a table since its writer was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows that came, in flushes.
    pub applied_rows: u64,
    /// By flushes, including the runs that they merged with.
    pub flushed: Amount,
    /// By merges beside the writer.
    pub merged: Amount,
}

/// A table's merges and what was written for it. Shared by its writer and those who watch it.
#[derive(Debug, Default)]
pub struct MergeLog {
    state: Mutex<Log>,
    requests: watch::Sender<Requests>,
}

/// Full merges that were asked for, and carried out, since the writer was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Requests {
    wanted: u64,
    done: u64,
    /// The writer is gone.
    closed: bool,
}

#[derive(Debug, Default)]
struct Log {
    next: u64,
    merges: VecDeque<Merge>,
    written: Written,
}

impl MergeLog {
    fn locked(&self) -> MutexGuard<'_, Log> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The merges that wait or run, and those that ended last, oldest first.
    pub fn merges(&self) -> Vec<Merge> {
        self.locked().merges.iter().cloned().collect()
    }

    /// How much was written.
    pub fn written(&self) -> Written {
        self.locked().written
    }

    /// Asks for everything to be merged into as few files as possible, without dead rows, and waits until the writer
    /// has done so; the next checkpoint shows it. `false` if the writer went away before. Safe to give up.
    pub async fn merge_all(&self) -> bool {
        let mut wanted = 0;
        self.requests.send_modify(|requests| {
            requests.wanted += 1;
            wanted = requests.wanted;
        });
        let mut seen = self.requests.subscribe();
        let outcome = seen.wait_for(|requests| requests.done >= wanted || requests.closed).await;
        outcome.is_ok_and(|requests| requests.done >= wanted)
    }

    /// The number of full merges that were asked for.
    pub(crate) fn wanted(&self) -> u64 {
        self.requests.borrow().wanted
    }

    /// The number of full merges that were carried out.
    pub(crate) fn done(&self) -> u64 {
        self.requests.borrow().done
    }

    pub(crate) fn set_done(&self, done: u64) {
        self.requests.send_modify(|requests| requests.done = done);
    }

    /// The writer is gone.
    pub(crate) fn close(&self) {
        self.requests.send_modify(|requests| requests.closed = true);
    }

    pub(crate) fn begin(&self, merge: Merge) -> u64 {
        let mut log = self.locked();
        let id = log.next;
        log.next += 1;
        while log.merges.len() >= REMEMBERED {
            let Some(ended) = log.merges.iter().position(|merge| merge.ended_ms.is_some()) else { break };
            log.merges.remove(ended);
        }
        log.merges.push_back(Merge { id, ..merge });
        id
    }

    pub(crate) fn set(&self, id: u64, state: MergeState) {
        if let Some(merge) = self.locked().merges.iter_mut().find(|merge| merge.id == id) {
            merge.state = state;
        }
    }

    pub(crate) fn end(&self, id: u64, output: Amount, state: MergeState, now_ms: i64) {
        let mut log = self.locked();
        log.written.merged.add(output);
        if let Some(merge) = log.merges.iter_mut().find(|merge| merge.id == id) {
            (merge.output, merge.state, merge.ended_ms) = (output, state, Some(now_ms));
        }
    }

    pub(crate) fn flushed(&self, applied_rows: u64, written: Amount) {
        let mut log = self.locked();
        log.written.applied_rows += applied_rows;
        log.written.flushed.add(written);
    }
}

impl MergeReason {
    /// The value shown in `sys.compactions`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::DeadRows => "dead-rows",
            Self::SmallFiles => "small-files",
            Self::Request => "request",
        }
    }
}

impl MergeState {
    /// The value shown in `sys.compactions`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Written => "written",
            Self::Done => "done",
            Self::Failed(_) => "failed",
        }
    }
}

impl Amount {
    pub(crate) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_merge_finds_a_thread_beside_long_ones() {
        let pool = MergePool::new(3, None);
        let (_haste, calm) = watch::channel(false);
        let turn = |is_long| pool.turn(is_long, calm.clone());
        let long = [turn(true).await.unwrap(), turn(true).await.unwrap()];
        let short = turn(false).await.unwrap();
        let third = tokio::time::timeout(Duration::from_millis(20), turn(true));
        assert!(third.await.is_err());
        drop(long);
        drop(short);
        turn(true).await.unwrap();
    }

    #[tokio::test]
    async fn a_merge_that_waits_in_haste_hurries_those_that_run() {
        let pool = MergePool::new(2, None);
        let (_calm, calm) = watch::channel(false);
        let (haste, hurried) = watch::channel(false);
        let running = [pool.turn(false, calm.clone()).await.unwrap(), pool.turn(false, calm.clone()).await.unwrap()];
        let mut hurry = pin!(pool.hurry(calm.clone()));
        let mut waiting = Box::pin(pool.turn(false, hurried));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert!(futures::poll!(hurry.as_mut()).is_pending());
        haste.send_replace(true);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        hurry.await;
        drop(running);
        let _turn = waiting.await.unwrap();
        assert!(futures::poll!(pin!(pool.hurry(calm))).is_pending(), "nobody waits any more");
    }

    #[test]
    fn writing_is_held_down_to_the_limit() {
        let now = Instant::now();
        let mut paid = None;
        for _ in 0..10 {
            paid = Some(paid_for(paid, now, 500, 1000));
        }
        assert_eq!(paid, Some(now + Duration::from_secs(5)));
        // What was not used up is not saved.
        let later = now + Duration::from_secs(60);
        assert_eq!(paid_for(paid, later, 500, 1000), later + Duration::from_millis(500));
    }

    #[test]
    fn running_merges_are_not_forgotten() {
        let log = MergeLog::default();
        let merge = Merge {
            id: 0,
            bucket: 0,
            reason: MergeReason::Runs,
            level: 1,
            input: Amount::default(),
            output: Amount::default(),
            due_ms: 1,
            ended_ms: None,
            state: MergeState::Waiting,
        };
        let first = log.begin(merge.clone());
        for n in 0..200 {
            let id = log.begin(merge.clone());
            log.end(id, Amount { files: 1, rows: n, bytes: 10 }, MergeState::Done, 2);
        }
        let merges = log.merges();
        assert_eq!((merges.len(), merges[0].id), (REMEMBERED, first));
        assert_eq!(merges.last().map(|merge| merge.output.rows), Some(199));
        assert_eq!(log.written().merged, Amount { files: 200, rows: 199 * 100, bytes: 2000 });
    }
}
