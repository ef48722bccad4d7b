//! Where a run goes, and which runs are merged.
//!
//! Level 0 stays empty: readers do not see it in tables with deletion vectors. Every other level holds one sorted run,
//! whose files do not overlap. The highest level is the *top*: it takes what snapshot pages bring, in the gaps between
//! its files, and what has been merged often enough. The levels below are interchangeable; age does not matter to
//! readers, because deletion vectors leave one live row per key.
//!
//! Runs below the top are merged by size: [`FAN_IN`] runs of one size class become one of the next, so a row is
//! rewritten once per class. A run that is large against the part of the top that it overlaps is merged into it.

use super::keys::{KeyRange, Keys};

/// The table option `num-levels`: levels 0 to 39.
pub(crate) const LEVELS: u32 = 40;
/// The highest level.
pub(crate) const TOP: i32 = LEVELS as i32 - 1;
/// Runs of one size class that make a merge due.
const FAN_IN: usize = 4;
/// Runs below this many rows are all in the lowest class.
const SMALLEST_CLASS: u64 = 1024;
/// A merge into the top may rewrite this many rows of the top for each row it brings. More of them would keep fewer
/// dead rows at the top, and cost more writing.
const TOP_REWRITE: u64 = 2;
/// More runs below the top than this are merged, even if they will all go to the top soon.
const MANY_RUNS: usize = 12;
/// Runs merged into the top at a time at most, for the memory that reading them takes.
pub(crate) const MOST_INPUTS: usize = 12;
/// Runs of this many rows go to the top if that is cheap; smaller ones only if the top is small too.
const TOP_MIN_ROWS: u64 = 256 * 1024;
/// With fewer free levels than this, the smallest runs are merged whatever their size.
const FREE_LEVELS: usize = 4;
/// With fewer free levels than this, merges do not stand back behind other work any more.
const FREE_LEVELS_IN_HASTE: usize = 7;
/// The same with more dead rows than this share of the live ones, and more than [`TOP_MIN_ROWS`]. Merges that keep up
/// leave half as many.
const DEAD_IN_HASTE: f64 = 0.6;
/// Pages of different key ranges are told apart by a gap this many times wider than the keys around it are spaced.
const WIDE_GAP: f64 = 16.0;
/// A part of a page's rows below this size is not worth a file of its own at the top.
const SMALL_SEGMENT: usize = 4096;

/// One run below the top that may be merged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Run {
    pub(crate) level: i32,
    /// Live rows.
    pub(crate) live: u64,
}

fn class(rows: u64) -> u32 {
    (rows / SMALLEST_CLASS).max(1).ilog2() / FAN_IN.ilog2() + u32::from(rows >= SMALLEST_CLASS)
}

/// The indices of the `runs` that a new run of `rows` rows is due to be merged with.
pub(crate) fn due(runs: &[Run], rows: u64) -> Vec<usize> {
    let mut chosen = vec![false; runs.len()];
    let mut total = rows;
    loop {
        let class_now = class(total);
        let open = |(index, run): &(usize, &Run)| !chosen[*index] && class(run.live) <= class_now;
        let same = runs.iter().enumerate().filter(open).filter(|(_, run)| class(run.live) == class_now).count();
        if same + 1 < FAN_IN {
            break;
        }
        let joining: Vec<usize> = runs.iter().enumerate().filter(open).map(|(index, _)| index).collect();
        for index in joining {
            chosen[index] = true;
            total += runs[index].live;
        }
    }
    (0..runs.len()).filter(|index| chosen[*index]).collect()
}

/// Whether runs of `rows` rows are better left alone: there are few, and soon enough rows below a top of `overlapped`
/// rows for all to go there. One more merge before would be writing for little.
pub(crate) fn waits_for_top(runs: usize, rows: u64, overlapped: u64) -> bool {
    runs <= MANY_RUNS && rows >= TOP_MIN_ROWS && rows.saturating_mul(2 * TOP_REWRITE) >= overlapped
}

/// The indices of the `runs` that a new run is merged with because levels are scarce: the smallest. `free` levels are
/// left before it comes.
pub(crate) fn scarce(runs: &[Run], free: usize) -> Vec<usize> {
    if free >= FREE_LEVELS {
        return Vec::new();
    }
    let mut by_size: Vec<usize> = (0..runs.len()).collect();
    by_size.sort_by_key(|index| runs[*index].live);
    by_size.truncate(FAN_IN);
    by_size
}

/// Whether merging is behind in a bucket of so many live and dead rows, of which so many levels are taken: it must not
/// wait for a quiet moment then, which may never come.
pub(crate) fn is_behind(taken: usize, live: u64, dead: u64) -> bool {
    (TOP as usize).saturating_sub(taken) < FREE_LEVELS_IN_HASTE
        || (dead > TOP_MIN_ROWS && dead as f64 > live as f64 * DEAD_IN_HASTE)
}

/// Whether rows that overlap `overlapped` live rows of a top with `top` live rows in all are worth merging into it.
pub(crate) fn goes_to_top(rows: u64, overlapped: u64, top: u64) -> bool {
    (rows >= TOP_MIN_ROWS || rows >= top / TOP_REWRITE) && overlapped <= rows.saturating_mul(TOP_REWRITE)
}

/// The lowest level without a run. `taken` are the levels that have one.
pub(crate) fn free_level(taken: &[i32]) -> Option<i32> {
    (1..TOP).find(|level| !taken.contains(level))
}

/// How the rows of a flush are spread.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Spread {
    /// Rows for the top, each part a key range that meets no other file there.
    pub(crate) top: Vec<Vec<u32>>,
    /// Rows for a run below.
    pub(crate) low: Vec<u32>,
}

/// Spreads the `rows` of a flush, which are in key order; `true` marks the rows of snapshot pages, and only those go to
/// the top. `taken` are the key ranges at the top, ascending; `batch_of` tells in which batch a row came.
pub(crate) fn spread(keys: &Keys, rows: &[(u32, bool)], taken: &[KeyRange], batch_of: impl Fn(u32) -> u32) -> Spread {
    let mut pages = rows.iter().filter(|(_, page)| *page).map(|(row, _)| *row);
    let Some(first) = pages.next() else {
        return Spread { top: Vec::new(), low: rows.iter().map(|(row, _)| *row).collect() };
    };
    let last = pages.next_back().unwrap_or(first);
    let common = keys.common_prefix(first as usize, last as usize);

    let mut segments: Vec<Vec<u32>> = Vec::new();
    let mut outside = vec![false; rows.len()];
    let mut range = 0;
    let mut open_range = usize::MAX;
    for (index, (row, page)) in rows.iter().enumerate() {
        if !page {
            continue;
        }
        let key = keys.at(*row as usize);
        while range < taken.len() && taken[range].compare(key).is_gt() {
            range += 1;
        }
        if taken.get(range).is_some_and(|taken| taken.contains(key)) {
            continue;
        }
        outside[index] = true;
        let joins = range == open_range
            && segments.last().is_some_and(|segment| adjoins(keys, segment, *row, common, &batch_of));
        match segments.last_mut() {
            Some(segment) if joins => segment.push(*row),
            _ => segments.push(vec![*row]),
        }
        open_range = range;
    }

    let total: usize = segments.iter().map(Vec::len).sum();
    let smallest = SMALL_SEGMENT.min(total / 8);
    let mut kept = Vec::with_capacity(segments.len());
    let mut low = Vec::new();
    let mut segments = segments.into_iter();
    // Rows left out of the top are put back among the others in key order.
    let mut segment: std::vec::IntoIter<u32> = Vec::new().into_iter();
    let mut is_low = false;
    for (index, (row, _)) in rows.iter().enumerate() {
        if !outside[index] {
            low.push(*row);
            continue;
        }
        if segment.len() == 0
            && let Some(next) = segments.next()
        {
            is_low = next.len() < smallest;
            if !is_low {
                kept.push(next.clone());
            }
            segment = next.into_iter();
        }
        segment.next();
        if is_low {
            low.push(*row);
        }
    }
    Spread { top: kept, low }
}

/// Whether `row` continues the key range of the rows before it. Rows of one batch do. A batch that came before its
/// predecessor in key order belongs to another range, and so does one behind a wide gap: a later page will fill it.
fn adjoins(keys: &Keys, segment: &[u32], row: u32, common: usize, batch_of: &impl Fn(u32) -> u32) -> bool {
    let (Some(first), Some(last)) = (segment.first(), segment.last()) else { return true };
    let (batch, before) = (batch_of(row), batch_of(*last));
    if batch == before {
        return true;
    }
    if batch < before {
        return false;
    }
    if segment.len() < 2 {
        return true;
    }
    let spacing = keys.distance(*first as usize, *last as usize, common) / (segment.len() - 1) as f64;
    keys.distance(*last as usize, row as usize, common) <= spacing.max(1.0) * WIDE_GAP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::keys::Key;

    fn runs(live: &[u64]) -> Vec<Run> {
        (1..).zip(live).map(|(level, live)| Run { level, live: *live }).collect()
    }

    #[test]
    fn four_runs_of_a_class_make_one_of_the_next() {
        assert_eq!(due(&runs(&[10, 900]), 500), Vec::<usize>::new());
        assert_eq!(due(&runs(&[10, 900, 70_000, 3]), 500), vec![0, 1, 3]);
        // The sum falls into the next class, which is full by it.
        assert_eq!(due(&runs(&[1000, 1000, 1000, 2000, 2000, 2000, 900_000]), 1000), vec![0, 1, 2, 3, 4, 5]);
        // A large run takes no small ones along unless its own class is full.
        assert_eq!(due(&runs(&[10, 10, 10]), 1_000_000), Vec::<usize>::new());
    }

    #[test]
    fn rows_are_rewritten_a_logarithmic_number_of_times_and_levels_suffice() {
        let (mut levels, mut written, flushes, rows) = (Vec::<Run>::new(), 0, 20_000_u64, 500_u64);
        let mut most = 0;
        for _ in 0..flushes {
            let taken: Vec<i32> = levels.iter().map(|run| run.level).collect();
            assert!(taken.len() < (TOP - 1) as usize - FREE_LEVELS);
            let chosen = due(&levels, rows);
            let total = rows + chosen.iter().map(|index| levels[*index].live).sum::<u64>();
            let mut index = 0;
            levels.retain(|_| (!chosen.contains(&index), index += 1).0);
            let taken: Vec<i32> = levels.iter().map(|run| run.level).collect();
            levels.push(Run { level: free_level(&taken).unwrap(), live: total });
            written += total;
            most = most.max(levels.len());
        }
        assert!(written <= flushes * rows * 9, "each row was written {} times", written / (flushes * rows));
        assert!(most <= 30, "{most} levels");
    }

    #[test]
    fn scarce_levels_are_freed() {
        let runs = runs(&(0..34).map(|n| 4_u64.pow(n / 3) * 2000).rev().collect::<Vec<_>>());
        assert_eq!(scarce(&runs, 4), Vec::<usize>::new());
        let mut chosen = scarce(&runs, 3);
        chosen.sort_unstable();
        assert_eq!(chosen, [28, 31, 32, 33]);
        assert_eq!(free_level(&(1..TOP).collect::<Vec<_>>()), None);
        assert_eq!(free_level(&[1, 3]), Some(2));
    }

    #[test]
    fn merges_make_haste_before_levels_get_scarce() {
        assert!(!is_behind(MANY_RUNS + 1, 1000, 0));
        assert!(is_behind((TOP - 1) as usize - FREE_LEVELS, 1000, 0));
    }

    #[test]
    fn merges_make_haste_when_many_rows_are_dead() {
        assert!(!is_behind(3, 10_000_000, 4_000_000));
        assert!(is_behind(3, 10_000_000, 7_000_000));
        assert!(!is_behind(3, 1000, 2000));
    }

    #[test]
    fn a_run_goes_to_the_top_when_that_is_cheap() {
        assert!(goes_to_top(300_000, 0, 50_000_000));
        assert!(!goes_to_top(300_000, 50_000_000, 50_000_000));
        assert!(!goes_to_top(10_000_000, 50_000_000, 50_000_000));
        assert!(goes_to_top(26_000_000, 50_000_000, 50_000_000));
        assert!(!goes_to_top(4_000, 0, 50_000_000));
        assert!(goes_to_top(100, 100, 200));
        assert!(goes_to_top(40, 0, 0));
    }

    #[test]
    fn runs_that_will_soon_go_to_the_top_are_left_alone() {
        assert!(waits_for_top(5, 3_000_000, 10_000_000));
        assert!(!waits_for_top(5, 600_000, 10_000_000));
        assert!(!waits_for_top(MANY_RUNS + 1, 3_000_000, 10_000_000));
        assert!(!waits_for_top(5, 3000, 10_000));
    }

    fn range(min: i64, max: i64) -> KeyRange {
        KeyRange { min: Key::Int(min), max: Key::Int(max) }
    }

    #[test]
    fn page_rows_fill_the_gaps_of_the_top() {
        let keys = Keys::Int(vec![1, 2, 10, 12, 20, 21, 22, 30]);
        let rows: Vec<(u32, bool)> = (0..8).map(|row| (row, row != 5)).collect();
        let spread = spread(&keys, &rows, &[range(10, 12), range(25, 26)], |_| 0);
        assert_eq!(spread.top, vec![vec![0, 1], vec![4, 6], vec![7]]);
        assert_eq!(spread.low, vec![2, 3, 5]);
    }

    #[test]
    fn pages_of_two_ranges_become_two_files() {
        let page = |from: i64| (from..from + 100).collect::<Vec<_>>();
        // Pages of range A at 0, 100, 200 and of range B at 5000, 5100 come in turns.
        let keys = Keys::Int([page(0), page(5000), page(100), page(5100), page(200)].concat());
        let sorted = keys.sort((0..500).collect());
        let rows: Vec<(u32, bool)> = sorted.iter().map(|row| (*row, true)).collect();
        let parts = spread(&keys, &rows, &[], |row| row / 100);
        assert_eq!(parts.top.iter().map(Vec::len).collect::<Vec<_>>(), vec![300, 200]);
        assert!(parts.low.is_empty());
        // One page each: only the gap tells.
        let rows: Vec<(u32, bool)> = (0..200).map(|row| (row, true)).collect();
        let parts = spread(&keys, &rows, &[], |row| row / 100);
        assert_eq!(parts.top.iter().map(Vec::len).collect::<Vec<_>>(), vec![100, 100]);
    }

    #[test]
    fn crumbs_go_below() {
        let keys = Keys::Int((0..1000).collect());
        let rows: Vec<(u32, bool)> = (0..1000).map(|row| (row, true)).collect();
        let parts = spread(&keys, &rows, &[range(5, 9), range(700, 700)], |_| 0);
        assert_eq!(parts.top.iter().map(Vec::len).collect::<Vec<_>>(), vec![690, 299]);
        assert_eq!(parts.low, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 700]);
    }
}
