//! The files of one bucket, and a flush into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tokio::runtime::Handle;

use super::RowKind;
use super::changelog;
use super::keys::{KeyRange, Keys};
use super::layout::Layout;
use super::levels::{self, Run, TOP};
use super::merge::{Input, Pending, merge};
use super::merges::Amount;
use super::resolve::{Groups, Loadings, Outcome, Place, Tombstones, resolve};
use super::run::{DataFile, RunWriter};
use crate::error::{Error, Result};
use crate::paimon::data_file::Age;
use crate::paimon::{DataFileMeta, FileSource};
use crate::workers::Workers;

/// One bucket. Each level holds files that do not overlap, and each key has at most one live row.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) number: u32,
    pub(crate) files: Vec<DataFile>,
    pub(crate) next_sequence: i64,
    pub(crate) tombstones: Tombstones,
    /// Where running merges will put their output.
    pub(crate) reserved: Vec<Reserved>,
    /// Whether the deletion vectors differ from those last written to an index file.
    pub(crate) vectors_changed: bool,
    /// Whether the files or vectors differ from those last prepared.
    pub(crate) changed: bool,
    /// Files that are not among `files` any more.
    pub(crate) removed: Vec<DataFile>,
    /// Files of the table's changelog that were written since the last snapshot was prepared.
    pub(crate) changelog: Vec<Arc<DataFileMeta>>,
    /// What the last flush wrote.
    pub(crate) flushed: Amount,
    /// Everything is to be merged, or is being merged, because that was asked for.
    pub(crate) full_merge: FullMerge,
}

/// How far a full merge is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FullMerge {
    /// None was asked for.
    #[default]
    No,
    Wanted,
    Running,
}

/// A level, and the range of keys in it, that is spoken for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reserved {
    pub(crate) level: i32,
    pub(crate) range: KeyRange,
}

/// The rows of a flush that belong to one bucket.
pub(crate) struct FlushInput {
    /// All rows of the flush.
    pub(crate) pending: Arc<Pending>,
    /// The keys of all rows of the flush.
    pub(crate) keys: Arc<Keys>,
    /// Their kinds.
    pub(crate) kinds: Arc<Vec<RowKind>>,
    /// For each row the number of the batch it was applied in.
    pub(crate) arrivals: Arc<Vec<u32>>,
    /// During which loading of the table each row was applied.
    pub(crate) loadings: Arc<Loadings>,
    /// The bucket's rows, ascending.
    pub(crate) rows: Vec<u32>,
    /// Those, and what they replace, that belong to the table's changelog, ascending.
    pub(crate) changes: Vec<u32>,
}

/// A merge of at most this many bytes of files is done within the flush that makes it due.
const INLINE_BYTES: i64 = 16 << 20;
/// A page's rows are not cut into smaller parts than this for the sake of using more threads.
const PART_ROWS: usize = 256 * 1024;

/// The size of the parts in which `rows` rows are written by `threads` threads.
fn part_rows(rows: usize, threads: usize) -> usize {
    rows.div_ceil(threads.max(1)).max(PART_ROWS)
}

/// Where those of the ascending `keys` begin and end that are in `range`.
fn within(keys: &Keys, range: &KeyRange) -> (usize, usize) {
    let from = keys.lower_bound_in(range.min.as_ref(), 0, keys.len());
    let last = keys.lower_bound_in(range.max.as_ref(), from, keys.len());
    let to = if last < keys.len() && keys.at(last) == range.max.as_ref() { last + 1 } else { last };
    (from, to)
}

/// Writes sorted rows of snapshot pages to the top.
async fn write_top(
    layout: &Layout,
    bucket: u32,
    pending: &Pending,
    keys: &Keys,
    rows: &[u32],
    sequence: i64,
) -> Result<Vec<DataFile>> {
    let input = Input::pending(pending, rows, keys.gather(rows.iter().copied())?);
    let mut out = RunWriter::new(layout, bucket, TOP, sequence, FileSource::Append);
    merge(layout, vec![input], &mut out).await?;
    out.finish().await
}

/// Rows `died` of `input` die in what it was merged into, too.
pub(crate) fn carry(input: &DataFile, died: &RoaringBitmap, empty: &Keys, output: &mut [DataFile]) -> Result<()> {
    if died.is_empty() {
        return Ok(());
    }
    let keys = input.keys.gather(died.iter(), empty.clone())?;
    let mut carried = 0;
    for file in output {
        let (from, to) = within(&keys, &file.range);
        let mut rows = Vec::with_capacity(to - from);
        file.keys.look_up(&keys, from, to, |_, row| rows.push(row as u32))?;
        carried += rows.len();
        let more = RoaringBitmap::from_sorted_iter(rows);
        *Arc::make_mut(&mut file.deleted) |= more.map_err(|_| Error::invalid("positions of keys do not ascend"))?;
    }
    if carried != keys.len() {
        let name = &input.meta.file_name;
        return Err(Error::invalid(format!("rows of file {name} are missing in what it was merged into")));
    }
    Ok(())
}

impl Bucket {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Live rows.
    pub(crate) fn live(&self) -> u64 {
        self.files.iter().map(DataFile::live).sum()
    }

    /// Memory held by keys and deletion vectors.
    pub(crate) fn index_bytes(&self) -> usize {
        self.files.iter().map(|file| file.keys.held_bytes() + file.deleted.serialized_size()).sum()
    }

    /// Where the live rows of ascending, distinct `keys` are.
    ///
    /// A key has one live row at most, so those that are found are left out of what is looked up in the files behind.
    /// The files with most rows come first: that is where most keys are.
    fn locate(&self, keys: &Keys) -> Result<Vec<Option<Place>>> {
        let mut places = vec![None; keys.len()];
        let mut levels: BTreeMap<i32, (u64, Vec<u32>)> = BTreeMap::new();
        for (number, file) in (0_u32..).zip(&self.files) {
            let (live, files) = levels.entry(file.meta.level).or_default();
            *live += file.live();
            files.push(number);
        }
        let mut levels: Vec<(u64, Vec<u32>)> = levels.into_values().collect();
        levels.sort_by_key(|(live, _)| std::cmp::Reverse(*live));

        // What is left to look for, and which of `keys` each is.
        let mut left: Option<(Keys, Vec<u32>)> = None;
        let mut found = 0;
        for (_, files) in levels {
            for number in files {
                let file = &self.files[number as usize];
                let needles = left.as_ref().map_or(keys, |(needles, _)| needles);
                let (from, to) = within(needles, &file.range);
                if from == to {
                    continue;
                }
                let all_live = file.deleted.is_empty();
                file.keys.look_up(needles, from, to, |key, row| {
                    let row = row as u32;
                    if all_live || !file.deleted.contains(row) {
                        let key = left.as_ref().map_or(key, |(_, numbers)| numbers[key] as usize);
                        places[key] = Some(Place { file: number, row });
                        found += 1;
                    }
                })?;
            }
            let count = left.as_ref().map_or(keys.len(), |(_, numbers)| numbers.len());
            if found == count {
                break;
            }
            if found * 8 > count {
                found = 0;
                let rest: Vec<u32> = match &left {
                    None => (0..keys.len() as u32).filter(|key| places[*key as usize].is_none()).collect(),
                    Some((_, numbers)) => {
                        numbers.iter().copied().filter(|key| places[*key as usize].is_none()).collect()
                    }
                };
                left = Some((keys.gather(rest.iter().copied())?, rest));
            }
        }
        Ok(places)
    }

    /// Marks rows as gone.
    fn kill(&mut self, mut places: Vec<Place>) {
        if places.is_empty() {
            return;
        }
        places.sort_unstable_by_key(|place| (place.file, place.row));
        for of_file in places.chunk_by(|a, b| a.file == b.file) {
            let file = &mut self.files[of_file[0].file as usize];
            let deleted = Arc::make_mut(&mut file.deleted);
            *deleted |= RoaringBitmap::from_sorted_iter(of_file.iter().map(|place| place.row))
                .expect("the places are sorted and no row is replaced twice");
        }
        self.vectors_changed = true;
        self.changed = true;
    }

    /// Forgets files without live rows, unless a merge is reading them.
    pub(crate) fn drop_dead_files(&mut self) {
        let before = self.files.len();
        self.remove(|_, file| !file.merging && file.live() == 0);
        if self.files.len() != before {
            self.vectors_changed = true;
            self.changed = true;
        }
    }

    fn taken_levels(&self) -> Vec<i32> {
        let mut levels: Vec<i32> = self.files.iter().map(|file| file.meta.level).collect();
        levels.extend(self.reserved.iter().map(|reserved| reserved.level));
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// Whether merging has fallen so far behind that it must not wait for a quiet moment.
    pub(crate) fn is_in_haste(&self) -> bool {
        let (live, dead) =
            self.files.iter().fold((0, 0), |(live, dead), file| (live + file.live(), dead + file.deleted.len()));
        levels::is_behind(self.taken_levels().len(), live, dead)
    }

    /// The runs below the top that are not being merged.
    pub(crate) fn idle_runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for level in self.taken_levels() {
            let files = || self.files.iter().filter(|file| file.meta.level == level);
            if level < TOP && files().next().is_some() && !files().any(|file| file.merging) {
                runs.push(Run { level, live: files().map(DataFile::live).sum() });
            }
        }
        runs
    }

    /// The key ranges at the top that are taken or spoken for, ascending.
    fn top_ranges(&self) -> Vec<KeyRange> {
        let mut ranges: Vec<KeyRange> =
            self.files.iter().filter(|file| file.meta.level == TOP).map(|file| file.range.clone()).collect();
        for Reserved { range, .. } in self.reserved.iter().filter(|reserved| reserved.level == TOP) {
            // It covers the files being merged.
            ranges.retain(|taken| !taken.overlaps(range));
            ranges.push(range.clone());
        }
        ranges.sort_unstable_by(|a, b| a.min.cmp(&b.min));
        ranges
    }

    /// Whether the output of a running merge will be in the way.
    pub(crate) fn is_reserved(&self, level: i32, range: &KeyRange) -> bool {
        self.reserved.iter().any(|reserved| reserved.level == level && reserved.range.overlaps(range))
    }

    /// The files at `levels` below the top, and what they would be merged with to end up at the top: nothing if that
    /// is not worth it. `rows` more rows in `range` join them.
    pub(crate) fn overlapped_top(&self, levels: &[i32], rows: u64, range: Option<KeyRange>) -> Option<Vec<usize>> {
        let mut range = range;
        let mut total = rows;
        for file in self.files.iter().filter(|file| levels.contains(&file.meta.level)) {
            total += file.live();
            range = Some(match range {
                Some(range) => range.hull(&file.range),
                None => file.range.clone(),
            });
        }
        let range = range?;
        if self.is_reserved(TOP, &range) {
            return None;
        }
        let top = || self.files.iter().enumerate().filter(|(_, file)| file.meta.level == TOP);
        let overlapped: Vec<usize> =
            top().filter(|(_, file)| file.range.overlaps(&range)).map(|(index, _)| index).collect();
        let overlapped_rows = overlapped.iter().map(|index| self.files[*index].live()).sum();
        let top_rows = top().map(|(_, file)| file.live()).sum();
        let worth = levels::goes_to_top(total, overlapped_rows, top_rows);
        (worth && overlapped.iter().all(|index| !self.files[*index].merging)).then_some(overlapped)
    }

    /// Adds the rows of a flush: new files, and deletion vectors for the rows they replace. Large files are written by
    /// several threads.
    pub(crate) async fn flush(&mut self, layout: &Layout, input: FlushInput, threads: usize) -> Result<()> {
        if let Some(file) = changelog::write(layout, self.number, &input, self.next_sequence).await? {
            self.changelog.push(file);
            self.changed = true;
        }
        let FlushInput { pending, keys, kinds, arrivals, loadings, rows, .. } = input;
        let sorted = keys.sort(rows);
        let groups = Groups::new(&keys, &sorted)?;
        let places = self.locate(&groups.keys)?;
        let Outcome { rows, replaced } = resolve(&groups, &sorted, &kinds, &places, &loadings, &mut self.tombstones);
        drop((groups, places, sorted));
        self.kill(replaced);
        self.drop_dead_files();
        if rows.is_empty() {
            return Ok(());
        }
        self.changed = true;
        let sequence = self.next_sequence;
        self.next_sequence += 1;

        let spread = levels::spread(&keys, &rows, &self.top_ranges(), |row| arrivals[row as usize]);
        drop(rows);
        let parts: Vec<&[u32]> =
            spread.top.iter().flat_map(|segment| segment.chunks(part_rows(segment.len(), threads))).collect();
        let number = self.number;
        let write = |rows| write_top(layout, number, &pending, &keys, rows, sequence);
        let written = match parts.as_slice() {
            [] => Vec::new(),
            [part] => vec![write(part).await?],
            parts if layout.ctx.resources.workers == Workers::Caller => {
                let mut written = Vec::with_capacity(parts.len());
                for part in parts {
                    written.push(write(part).await?);
                }
                written
            }
            parts => {
                let runtime = Handle::current();
                let mut written = Vec::with_capacity(parts.len());
                for parts in parts.chunks(threads.max(1)) {
                    #[allow(clippy::disallowed_methods, reason = "`Workers` that are threads ask for it")]
                    let together = std::thread::scope(|scope| {
                        let mut started = Vec::with_capacity(parts.len());
                        for part in parts {
                            let (part, runtime, write): (&[u32], _, _) = (part, &runtime, &write);
                            started.push(scope.spawn(move || runtime.block_on(write(part))));
                        }
                        started.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
                    });
                    for files in together {
                        written.push(files.unwrap_or_else(|_| Err(Error::invalid("writing a data file broke off")))?);
                    }
                }
                written
            }
        };
        let written: Vec<DataFile> = written.into_iter().flatten().collect();
        self.flushed.add(Amount::of(&written));
        self.files.extend(written);
        if spread.low.is_empty() {
            return Ok(());
        }
        let low_keys = keys.gather(spread.low.iter().copied())?;
        // While pages are coming the top keeps its gaps for them.
        let may_join_top = !loadings.any();
        self.flush_low(layout, &pending, &spread.low, low_keys, sequence, may_join_top).await
    }

    /// Writes sorted rows as a run below the top, together with the runs that are due to be merged with it if those are
    /// small.
    async fn flush_low(
        &mut self,
        layout: &Layout,
        pending: &Pending,
        rows: &[u32],
        keys: Keys,
        sequence: i64,
        may_join_top: bool,
    ) -> Result<()> {
        let limit = layout.options.inline_merge_rows;
        let new_rows = rows.len() as u64;
        let range = KeyRange::of(&keys);
        let idle = self.idle_runs();
        let free = (1..TOP).filter(|level| !self.taken_levels().contains(level)).count();
        let mut due = if layout.options.compaction { levels::due(&idle, new_rows) } else { Vec::new() };
        let due_rows = due.iter().map(|index| idle[*index].live).sum::<u64>() + new_rows;
        let of_due = |file: &&DataFile| due.iter().any(|index| idle[*index].level == file.meta.level);
        let bytes: i64 = self.files.iter().filter(of_due).map(|file| file.meta.file_size).sum();
        if due_rows > limit || bytes > INLINE_BYTES {
            due.clear();
        }
        if due.is_empty() {
            due = levels::scarce(&idle, free);
        }
        let joined: Vec<i32> = due.iter().map(|index| idle[*index].level).collect();
        let mut level = None;
        let mut chosen: Vec<bool> = self.files.iter().map(|file| joined.contains(&file.meta.level)).collect();
        let first_run = self.files.is_empty() && self.reserved.is_empty();
        if may_join_top
            && (!joined.is_empty() || first_run)
            && let Some(top) = self.overlapped_top(&joined, new_rows, range)
        {
            let overlapped: u64 = top.iter().map(|index| self.files[*index].live()).sum();
            let bytes: i64 = top.iter().map(|index| self.files[*index].meta.file_size).sum();
            if first_run || (overlapped + new_rows <= limit && bytes <= INLINE_BYTES) {
                top.into_iter().for_each(|index| chosen[index] = true);
                level = Some(TOP);
            }
        }
        let level = match level {
            Some(level) => level,
            None => {
                let kept =
                    self.files.iter().zip(&chosen).filter(|(_, chosen)| !**chosen).map(|(file, _)| file.meta.level);
                let taken: Vec<i32> = kept.chain(self.reserved.iter().map(|reserved| reserved.level)).collect();
                levels::free_level(&taken).ok_or_else(|| Error::invalid("a bucket has run out of levels"))?
            }
        };
        let merging: Vec<&DataFile> =
            self.files.iter().zip(&chosen).filter(|(_, chosen)| **chosen).map(|(file, _)| file).collect();
        let source = if merging.is_empty() { FileSource::Append } else { FileSource::Compact };
        let mut inputs = vec![Input::pending(pending, rows, keys)];
        inputs.extend(merging.iter().map(|file| Input::file(file, &file.deleted)));
        let mut out = RunWriter::new(layout, self.number, level, sequence, source);
        if merging.is_empty() && level < TOP {
            out = out.aged(Age::New);
        }
        merge(layout, inputs, &mut out).await?;
        let written = out.finish().await?;
        if merging.iter().any(|file| !file.deleted.is_empty()) {
            self.vectors_changed = true;
        }
        self.remove(|index, _| chosen[index]);
        self.flushed.add(Amount::of(&written));
        self.files.extend(written);
        Ok(())
    }

    fn remove(&mut self, mut goes: impl FnMut(usize, &DataFile) -> bool) {
        let mut index = 0;
        let gone = self.files.extract_if(.., |file| (goes(index, file), index += 1).0);
        self.removed.extend(gone);
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.changed |= !self.files.is_empty();
        self.vectors_changed |= self.files.iter().any(|file| !file.deleted.is_empty());
        self.remove(|_, _| true);
        self.reserved.clear();
        self.tombstones.clear();
        self.full_merge = FullMerge::No;
    }

    /// Puts the output of a merge in the place of its inputs. `carried` has the name of each input and those of its dead
    /// rows that the output knows of; rows that died since are dead in the output too. `empty` is a list of keys of the
    /// table's form.
    pub(crate) fn install(
        &mut self,
        empty: &Keys,
        reserved: &Reserved,
        carried: &[(String, Arc<RoaringBitmap>)],
        mut output: Vec<DataFile>,
    ) -> Result<()> {
        self.reserved.retain(|other| other != reserved);
        self.changed = true;
        for (name, before) in carried {
            let input = self.files.iter_mut().find(|file| file.meta.file_name == *name);
            let input = input.ok_or_else(|| Error::invalid(format!("file {name} vanished while it was merged")))?;
            // Nobody reads it any more, so it may be deleted if no snapshot names it.
            input.merging = false;
            self.vectors_changed |= !input.deleted.is_empty();
            carry(input, &(input.deleted.as_ref() - before.as_ref()), empty, &mut output)?;
        }
        self.remove(|_, file| carried.iter().any(|(name, _)| *name == file.meta.file_name));
        self.vectors_changed |= output.iter().any(|file| !file.deleted.is_empty());
        self.files.extend(output);
        self.drop_dead_files();
        Ok(())
    }

    /// The dead rows of the files called `names`, which the bucket has.
    pub(crate) fn dead_rows<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Arc<RoaringBitmap>> {
        let of = |name: &str| self.files.iter().find(|file| file.meta.file_name == *name);
        names.map(|name| of(name).map(|file| Arc::clone(&file.deleted)).unwrap_or_default()).collect()
    }

    /// Whether a full merge would change nothing.
    pub(crate) fn is_merged(&self) -> bool {
        self.reserved.is_empty() && self.files.iter().all(|file| file.meta.level == TOP && file.deleted.is_empty())
    }

    /// Gives up a merge: its inputs stay.
    pub(crate) fn abandon(&mut self, reserved: &Reserved, inputs: &[(String, Arc<RoaringBitmap>)]) {
        self.reserved.retain(|other| other != reserved);
        for file in &mut self.files {
            file.merging &= !inputs.iter().any(|(name, _)| *name == file.meta.file_name);
        }
        self.drop_dead_files();
    }

    /// Checks what the rest relies on: levels without overlaps and each key live once.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut live = std::collections::HashSet::new();
        for file in &self.files {
            assert!((1..=TOP).contains(&file.meta.level), "level {}", file.meta.level);
            let mut position = 0;
            while position < file.keys.len() {
                let (rows, keys) = file.keys.unpack(position).unwrap();
                assert!(keys.ascends_in(0, keys.len()));
                assert!(file.range.contains(keys.at(0)) && file.range.contains(keys.at(keys.len() - 1)));
                position = rows.end;
                for row in rows.clone() {
                    if !file.deleted.contains(row as u32) {
                        assert!(live.insert(keys.at(row - rows.start).to_owned()), "a key is live twice");
                    }
                }
            }
            for other in &self.files {
                let same = other.meta.file_name == file.meta.file_name;
                let overlap = other.meta.level == file.meta.level && other.range.overlaps(&file.range);
                assert!(same || !overlap, "two files of level {} overlap", file.meta.level);
            }
        }
    }
}
