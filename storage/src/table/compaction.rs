//! Merges that run beside the writer.
//!
//! A merge reads files as they were when it began. Its output takes the place of its inputs when the writer next
//! prepares a snapshot, and rows that died meanwhile die in the output too. So a merge never delays a checkpoint, and
//! a merge that is lost costs nothing but its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roaring::RoaringBitmap;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::bucket::{Bucket, Reserved};
use super::keys::KeyRange;
use super::layout::Layout;
use super::levels::{self, TOP};
use super::merge::{Input, merge};
use super::run::{DataFile, FILE_BYTES, RunWriter};
use crate::error::{Error, Result};
use crate::paimon::FileSource;

/// Merges that run at one time in the whole process.
static PERMITS: Semaphore = Semaphore::const_new(2);
/// Merges that run at one time in one table.
pub(crate) const JOBS: usize = 2;
/// Fewer dead rows than this are not worth a rewrite.
const MIN_DEAD_ROWS: u64 = 1024;
/// A run below the top of fewer rows is soon merged anyway.
const MIN_RUN_ROWS: u64 = 64 * 1024;
/// Small neighbours at the top that make a merge worthwhile.
const NEIGHBOURS: usize = 4;

/// What to merge, and where to put it.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    /// Indices of the bucket's files.
    pub(crate) inputs: Vec<usize>,
    pub(crate) level: i32,
}

/// The most useful merge in a bucket. `loading`: pages are coming, and the top must keep its gaps for them.
pub(crate) fn plan(bucket: &Bucket, layout: &Layout, loading: bool) -> Option<Plan> {
    let share = layout.options.dead_share;
    let is_dead = |file: &DataFile| {
        let dead = file.deleted.len();
        dead >= MIN_DEAD_ROWS && dead as f64 > file.rows() as f64 * share
    };
    let top_of = |levels: &[i32]| if loading { None } else { bucket.overlapped_top(levels, 0, None) };

    let mut idle = bucket.idle_runs();
    idle.sort_by_key(|run| run.live);
    for index in 0..idle.len() {
        let run = idle[index];
        let others: Vec<_> = idle.iter().copied().filter(|other| other.level != run.level).collect();
        let due = levels::due(&others, run.live);
        if due.is_empty() {
            continue;
        }
        let merged: Vec<i32> = due.iter().map(|index| others[*index].level).chain([run.level]).collect();
        return to_plan(bucket, &merged, top_of(&merged));
    }
    // One merge of each kind at a time: a long one at the top must not keep small runs waiting.
    if bucket.reserved.iter().any(|reserved| reserved.level == TOP) {
        return None;
    }

    let at_top = |file: &DataFile| file.meta.level == TOP && !file.merging;
    if !loading && let Some(dead) = bucket.files.iter().position(|file| at_top(file) && is_dead(file)) {
        let all: Vec<i32> = idle.iter().map(|run| run.level).collect();
        return match bucket.overlapped_top(&all, 0, None) {
            Some(top) if top.contains(&dead) => to_plan(bucket, &all, Some(top)),
            _ => Some(Plan { inputs: vec![dead], level: TOP }),
        };
    }
    for run in &idle {
        let files = || bucket.files.iter().filter(|file| file.meta.level == run.level);
        let rows: u64 = files().map(DataFile::rows).sum();
        if rows >= MIN_RUN_ROWS && (rows - run.live) as f64 > rows as f64 * share {
            return to_plan(bucket, &[run.level], top_of(&[run.level]));
        }
    }
    if loading { None } else { small_neighbours(bucket, layout.options.rows_per_file as u64 / 2) }
}

fn to_plan(bucket: &Bucket, merged: &[i32], top: Option<Vec<usize>>) -> Option<Plan> {
    let files = bucket.files.iter().enumerate();
    let mut inputs: Vec<usize> =
        files.filter(|(_, file)| merged.contains(&file.meta.level)).map(|(index, _)| index).collect();
    if let Some(top) = top {
        inputs.extend(top);
        return Some(Plan { inputs, level: TOP });
    }
    let reserved = bucket.reserved.iter().map(|reserved| reserved.level);
    let taken: Vec<i32> = bucket.files.iter().map(|file| file.meta.level).chain(reserved).collect();
    Some(Plan { inputs, level: levels::free_level(&taken)? })
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
                return Some(Plan { inputs: window.to_vec(), level: TOP });
            }
        }
    }
    None
}

/// A merge that is running.
#[derive(Debug)]
pub(crate) struct Job {
    bucket: usize,
    reserved: Reserved,
    /// The name of each input, and its dead rows when the merge began.
    began: Vec<(String, Arc<RoaringBitmap>)>,
    stop: Arc<AtomicBool>,
    handle: JoinHandle<Result<Vec<DataFile>>>,
}

impl Job {
    /// Begins a merge in `bucket`, which is the writer's bucket number `index`. None if its output would be in the way
    /// of another's.
    pub(crate) fn start(index: usize, bucket: &mut Bucket, plan: &Plan, layout: Arc<Layout>) -> Option<Self> {
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
        bucket.reserved.push(reserved.clone());
        let began = files.iter().map(|file| (file.meta.file_name.clone(), Arc::clone(&file.deleted))).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, number, level) = (Arc::clone(&stop), bucket.number, plan.level);
        let handle = tokio::spawn(async move {
            let _permit = PERMITS.acquire().await.map_err(|_| Error::invalid("merges have ended"))?;
            let runtime = Handle::current();
            let work = move || runtime.block_on(run(&layout, number, level, &files, stopped));
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|error| Error::Invalid(format!("a merge broke off: {error}")))?
        });
        Some(Self { bucket: index, reserved, began, stop, handle })
    }

    /// What the bucket needs to know to take over the output: the bucket's index, where the output goes, and the name
    /// of each input with its dead rows when the merge began.
    pub(crate) fn parts(&self) -> (usize, Reserved, Vec<(String, Arc<RoaringBitmap>)>) {
        (self.bucket, self.reserved.clone(), self.began.clone())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The output; waits for it.
    pub(crate) async fn output(mut self) -> Result<Vec<DataFile>> {
        (&mut self.handle).await.map_err(|error| Error::Invalid(format!("a merge broke off: {error}")))?
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn run(
    layout: &Layout,
    bucket: u32,
    level: i32,
    files: &[DataFile],
    stop: Arc<AtomicBool>,
) -> Result<Vec<DataFile>> {
    // The rows keep the age of the youngest input.
    let sequence = files.iter().map(|file| file.meta.max_sequence_number).max().unwrap_or(0);
    let inputs = files.iter().map(|file| Input::file(file, &file.deleted)).collect();
    let mut out = RunWriter::new(layout, bucket, level, sequence, FileSource::Compact).stopped_by(stop);
    merge(layout, inputs, &mut out).await?;
    out.finish().await
}
