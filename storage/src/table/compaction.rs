//! Merges that run beside the writer.
//!
//! A merge reads files as they were when it began. Its output takes the place of its inputs when the writer next
//! prepares a snapshot, and rows that died meanwhile die in the output too. So a merge never delays a checkpoint, and
//! a merge that is lost costs nothing but its work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use roaring::RoaringBitmap;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};

use super::bucket::{Bucket, FullMerge, Reserved, carry};
use super::keys::KeyRange;
use super::layout::Layout;
use super::levels::{self, MOST_INPUTS, TOP};
use super::merge::{Input, merge};
use super::merges::{self, Amount, Merge, MergeLog, MergeReason, MergeState};
use super::run::{DataFile, FILE_BYTES, RunWriter};
use crate::error::{Error, Result};
use crate::paimon::FileSource;
use crate::paimon::data_file::Age;

/// Fewer dead rows than this are not worth a rewrite.
const MIN_DEAD_ROWS: u64 = 1024;
/// The share of dead rows from which a file is rewritten while no rows come.
const DEAD_SHARE_AT_REST: f64 = 0.05;
/// A file at the top that is replaced sooner than this after it was made is not worth the work of compressing for size.
const SHORT_LIFE_MS: i64 = 600_000;
/// A run below the top of fewer rows is soon merged anyway.
const MIN_RUN_ROWS: u64 = 64 * 1024;
/// So often a merge that has written its output looks which rows have died meanwhile.
const CATCH_UP_ROUNDS: usize = 8;
/// So few rows that the writer can look them up itself.
const FEW_DEAD_ROWS: u64 = 64 * 1024;
/// Small neighbours at the top that make a merge worthwhile.
const NEIGHBOURS: usize = 4;

/// What to merge, and where to put it.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    /// Indices of the bucket's files.
    pub(crate) inputs: Vec<usize>,
    pub(crate) level: i32,
    pub(crate) reason: MergeReason,
}

impl Plan {
    /// Whether it takes the time of many commits.
    pub(crate) fn is_long(&self, bucket: &Bucket) -> bool {
        merges::is_long(self.level, self.inputs.iter().map(|input| bucket.files[*input].live()).sum())
    }
}

/// What goes on around merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// Snapshot pages are coming, and the top must keep its gaps for them.
    Loading,
    /// Rows are coming.
    Busy,
    /// No rows have come for a while: there is time to tidy.
    Rest,
}

impl Times {
    /// The share of dead rows from which a file is rewritten.
    fn dead_share(self, layout: &Layout) -> f64 {
        match self {
            Self::Loading | Self::Busy => layout.options.dead_share,
            Self::Rest => layout.options.dead_share.min(DEAD_SHARE_AT_REST),
        }
    }
}

/// The most useful merge in a bucket, of the short ones only if `may_be_long` is not set.
pub(crate) fn plan(bucket: &Bucket, layout: &Layout, times: Times, may_be_long: bool) -> Option<Plan> {
    let plan = most_useful(bucket, layout, times, true)?;
    if may_be_long || !plan.is_long(bucket) {
        return Some(plan);
    }
    // Runs go on being merged below the top meanwhile.
    most_useful(bucket, layout, times, false).filter(|plan| !plan.is_long(bucket))
}

/// The most useful merge in a bucket; one into the top only if `to_top` is set.
fn most_useful(bucket: &Bucket, layout: &Layout, times: Times, to_top: bool) -> Option<Plan> {
    let loading = times == Times::Loading;
    if bucket.full_merge == FullMerge::Wanted && !loading {
        // It needs all files, so those that are being merged come first.
        let idle = bucket.reserved.is_empty() && !bucket.files.is_empty();
        let inputs = (0..bucket.files.len()).collect();
        return idle.then_some(Plan { inputs, level: TOP, reason: MergeReason::Request });
    }
    let share = times.dead_share(layout);
    let is_dead = |file: &DataFile| {
        let dead = file.deleted.len();
        dead >= MIN_DEAD_ROWS && dead as f64 > file.rows() as f64 * share
    };
    let top_of = |levels: &[i32]| if loading || !to_top { None } else { bucket.overlapped_top(levels, 0, None) };

    let mut idle = bucket.idle_runs();
    idle.sort_by_key(|run| run.live);
    // The largest, if there are many: reading a run takes memory.
    let all: Vec<i32> = idle.iter().rev().take(MOST_INPUTS).map(|run| run.level).collect();
    if idle.len() > 1
        && let Some(top) = top_of(&all)
    {
        return to_plan(bucket, &all, Some(top), MergeReason::Runs);
    }
    let top_rows = bucket.files.iter().filter(|file| file.meta.level == TOP).map(DataFile::live).sum();
    for index in 0..idle.len() {
        let run = idle[index];
        let others: Vec<_> = idle.iter().copied().filter(|other| other.level != run.level).collect();
        let due = levels::due(&others, run.live);
        if due.is_empty() {
            continue;
        }
        let merged: Vec<i32> = due.iter().map(|index| others[*index].level).chain([run.level]).collect();
        let rows = due.iter().map(|index| others[*index].live).sum::<u64>() + run.live;
        if levels::waits_for_top(idle.len(), rows, top_rows) {
            continue;
        }
        return to_plan(bucket, &merged, top_of(&merged), MergeReason::Runs);
    }
    // One merge of each kind at a time: a long one at the top must not keep small runs waiting.
    if !to_top || bucket.reserved.iter().any(|reserved| reserved.level == TOP) {
        return None;
    }

    let at_top = |file: &DataFile| file.meta.level == TOP && !file.merging;
    if !loading && let Some(dead) = bucket.files.iter().position(|file| at_top(file) && is_dead(file)) {
        return match bucket.overlapped_top(&all, 0, None) {
            Some(top) if top.contains(&dead) => to_plan(bucket, &all, Some(top), MergeReason::DeadRows),
            _ => Some(Plan { inputs: vec![dead], level: TOP, reason: MergeReason::DeadRows }),
        };
    }
    for run in &idle {
        let files = || bucket.files.iter().filter(|file| file.meta.level == run.level);
        let rows: u64 = files().map(DataFile::rows).sum();
        if rows >= MIN_RUN_ROWS && (rows - run.live) as f64 > rows as f64 * share {
            return to_plan(bucket, &[run.level], top_of(&[run.level]), MergeReason::DeadRows);
        }
    }
    if loading { None } else { small_neighbours(bucket, layout.options.rows_per_file as u64 / 2) }
}

fn to_plan(bucket: &Bucket, merged: &[i32], top: Option<Vec<usize>>, reason: MergeReason) -> Option<Plan> {
    let files = bucket.files.iter().enumerate();
    let mut inputs: Vec<usize> =
        files.filter(|(_, file)| merged.contains(&file.meta.level)).map(|(index, _)| index).collect();
    if let Some(top) = top {
        inputs.extend(top);
        return Some(Plan { inputs, level: TOP, reason });
    }
    let reserved = bucket.reserved.iter().map(|reserved| reserved.level);
    let taken: Vec<i32> = bucket.files.iter().map(|file| file.meta.level).chain(reserved).collect();
    Some(Plan { inputs, level: levels::free_level(&taken)?, reason })
}

/// Small files that lie side by side at the top.
fn small_neighbours(bucket: &Bucket, small: u64) -> Option<Plan> {
    let mut top: Vec<usize> = (0..bucket.files.len()).filter(|index| bucket.files[*index].meta.level == TOP).collect();
    top.sort_by(|a, b| bucket.files[*a].range.min.cmp(&bucket.files[*b].range.min));
    // Files that ended because of their size would only be written again as they are.
    let is_small = |index: &usize| {
        let file = &bucket.files[*index];
        !file.merging && file.live() < small && file.meta.file_size < FILE_BYTES as i64 / 2
    };
    for side_by_side in top.chunk_by(|a, b| is_small(a) && is_small(b)) {
        for window in side_by_side.windows(NEIGHBOURS) {
            let rows = window.iter().map(|index| bucket.files[*index].live());
            let (sum, max) = (rows.clone().sum::<u64>(), rows.max().unwrap_or(0));
            if max <= sum / 2 && window.iter().all(is_small) {
                return Some(Plan { inputs: window.to_vec(), level: TOP, reason: MergeReason::SmallFiles });
            }
        }
    }
    None
}

/// What a merge made.
#[derive(Debug)]
struct Output {
    files: Vec<DataFile>,
    /// What was written, with the rows that have died since.
    written: Amount,
    /// The dead rows of each input that are not among the rows of the files, or are dead in them.
    carried: Vec<Arc<RoaringBitmap>>,
}

/// The dead rows of each input of a merge, as the writer last knew them.
type DeadRows = Arc<Mutex<Vec<Arc<RoaringBitmap>>>>;

/// A merge that waits or runs.
#[derive(Debug)]
pub(crate) struct Job {
    bucket: usize,
    is_long: bool,
    reserved: Reserved,
    /// The names of the inputs.
    inputs: Vec<String>,
    dead: DeadRows,
    /// Whether it must not stand back any more.
    haste: watch::Sender<bool>,
    stop: Arc<AtomicBool>,
    handle: JoinHandle<Result<Output>>,
    reason: MergeReason,
    log: Arc<MergeLog>,
    /// Its number in the log.
    id: u64,
    layout: Arc<Layout>,
}

/// What a bucket needs to know to take over the output of a merge.
pub(crate) struct Finished {
    /// The bucket's index.
    pub(crate) bucket: usize,
    /// Where the output goes.
    pub(crate) reserved: Reserved,
    /// The name of each input, and those of its dead rows that the output knows of.
    pub(crate) carried: Vec<(String, Arc<RoaringBitmap>)>,
    pub(crate) reason: MergeReason,
    pub(crate) output: Result<Vec<DataFile>>,
}

impl Amount {
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a DataFile>) -> Self {
        let mut amount = Self::default();
        for file in files {
            let bytes = u64::try_from(file.meta.file_size).unwrap_or(0);
            amount.add(Self { files: 1, rows: file.live(), bytes });
        }
        amount
    }
}

impl Job {
    /// Begins a merge in `bucket`, which is the writer's bucket number `index`. None if its output would be in the way
    /// of another's.
    pub(crate) fn start(
        index: usize,
        bucket: &mut Bucket,
        plan: &Plan,
        layout: &Arc<Layout>,
        log: &Arc<MergeLog>,
    ) -> Option<Self> {
        let mut range: Option<KeyRange> = None;
        let mut files = Vec::with_capacity(plan.inputs.len());
        for input in &plan.inputs {
            let file = &bucket.files[*input];
            range = Some(range.map_or_else(|| file.range.clone(), |range| range.hull(&file.range)));
            files.push(file.clone());
        }
        let reserved = Reserved { level: plan.level, range: range? };
        if bucket.is_reserved(reserved.level, &reserved.range) {
            return None;
        }
        plan.inputs.iter().for_each(|input| bucket.files[*input].merging = true);
        if plan.reason == MergeReason::Request {
            bucket.full_merge = FullMerge::Running;
        }
        bucket.reserved.push(reserved.clone());
        let inputs = files.iter().map(|file| file.meta.file_name.clone()).collect();
        let dead = DeadRows::new(Mutex::new(files.iter().map(|file| Arc::clone(&file.deleted)).collect()));
        let input = Amount::of(&files);
        let id = log.begin(Merge {
            id: 0,
            bucket: bucket.number,
            reason: plan.reason,
            level: plan.level,
            input,
            output: Amount::default(),
            due_ms: layout.ctx.clock.now_ms(),
            ended_ms: None,
            state: MergeState::Waiting,
        });
        let stop = Arc::new(AtomicBool::new(false));
        let (number, level, is_long) = (bucket.number, plan.level, plan.is_long(bucket));
        // Somebody waits for what was asked for.
        let haste = watch::Sender::new(plan.reason == MergeReason::Request || bucket.is_in_haste());
        let hurried = haste.subscribe();
        let (stopped, shared_dead) = (Arc::clone(&stop), Arc::clone(&dead));
        let (of_merge, shared_log) = (Arc::clone(layout), Arc::clone(log));
        let handle = tokio::spawn(async move {
            let resources = Arc::clone(&of_merge.ctx.resources);
            let _turn = resources.merges.turn(is_long, hurried.clone()).await?;
            shared_log.set(id, MergeState::Running);
            let layout = of_merge.on_runtime();
            let work = async move { run(&layout, number, level, &files, &shared_dead, stopped).await };
            let hurry = {
                let resources = Arc::clone(&resources);
                async move { resources.merges.hurry(hurried).await }
            };
            let output = resources.workers.stand_back(work.boxed(), hurry.boxed()).await;
            let state = output.as_ref().map_or_else(|e| MergeState::Failed(e.to_string()), |_| MergeState::Written);
            shared_log.set(id, state);
            output
        });
        let (log, layout, reason) = (Arc::clone(log), Arc::clone(layout), plan.reason);
        Some(Self { bucket: index, is_long, reserved, inputs, dead, haste, stop, handle, reason, log, id, layout })
    }

    /// Tells the merge which rows of its inputs have died by now, and whether it has to make haste. `buckets` are the
    /// writer's.
    pub(crate) fn note(&self, buckets: &[Bucket]) {
        let Some(bucket) = buckets.get(self.bucket) else { return };
        if bucket.is_in_haste() {
            self.haste.send_replace(true);
        }
        *locked(&self.dead) = bucket.dead_rows(self.inputs.iter().map(String::as_str));
    }

    pub(crate) fn is_long(&self) -> bool {
        self.is_long
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The output; waits for it.
    pub(crate) async fn finish(mut self) -> Finished {
        let output = (&mut self.handle).await;
        let output = output.map_err(|error| Error::Invalid(format!("a merge broke off: {error}"))).flatten();
        let (amount, state) = match &output {
            Ok(output) => (output.written, MergeState::Done),
            Err(error) => (Amount::default(), MergeState::Failed(error.to_string())),
        };
        self.log.end(self.id, amount, state, self.layout.ctx.clock.now_ms());
        let (output, carried) = match output {
            Ok(Output { files, carried, .. }) => (Ok(files), carried),
            Err(error) => (Err(error), vec![Arc::default(); self.inputs.len()]),
        };
        let carried = std::mem::take(&mut self.inputs).into_iter().zip(carried).collect();
        Finished { bucket: self.bucket, reserved: self.reserved.clone(), carried, reason: self.reason, output }
    }
}

fn locked(dead: &DeadRows) -> MutexGuard<'_, Vec<Arc<RoaringBitmap>>> {
    dead.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The sooner it sees that, the sooner another merge has its turn.
        self.haste.send_replace(true);
    }
}

async fn run(
    layout: &Layout,
    bucket: u32,
    level: i32,
    files: &[DataFile],
    dead: &DeadRows,
    stop: Arc<AtomicBool>,
) -> Result<Output> {
    // The rows keep the age of the youngest input.
    let sequence = files.iter().map(|file| file.meta.max_sequence_number).max().unwrap_or(0);
    let now = layout.ctx.clock.now_ms();
    let short_lived = |file: &DataFile| {
        file.meta.level == TOP && file.meta.creation_time.is_some_and(|made| now - made < SHORT_LIFE_MS)
    };
    let age = match level < TOP {
        true => Age::Young,
        false if files.iter().any(short_lived) => Age::Restless,
        false => Age::Old,
    };
    let inputs = files.iter().map(|file| Input::file(file, &file.deleted)).collect();
    let mut out = RunWriter::new(layout, bucket, level, sequence, FileSource::Compact).aged(age).stopped_by(stop);
    match merge(layout, inputs, &mut out).await {
        Ok(()) => catch_up(layout, files, dead, out.finish().await?).await,
        Err(error) => {
            out.abort().await;
            Err(error)
        }
    }
}

/// Rows died while the merge ran, perhaps millions. They are looked for in the output here, not by the writer, which
/// has a commit to finish; it is left those of a moment.
async fn catch_up(layout: &Layout, inputs: &[DataFile], dead: &DeadRows, mut files: Vec<DataFile>) -> Result<Output> {
    let (empty, written) = (layout.codec.empty(), Amount::of(&files));
    let mut carried: Vec<_> = inputs.iter().map(|file| Arc::clone(&file.deleted)).collect();
    for _ in 0..CATCH_UP_ROUNDS {
        let newest = locked(dead).clone();
        let mut died_rows = 0;
        for ((input, newest), known) in inputs.iter().zip(newest).zip(&mut carried) {
            let died = newest.as_ref() - known.as_ref();
            died_rows += died.len();
            carry(input, &died, &empty, &mut files)?;
            *known = newest;
            yield_now().await;
        }
        if died_rows < FEW_DEAD_ROWS {
            break;
        }
    }
    Ok(Output { files, written, carried })
}
