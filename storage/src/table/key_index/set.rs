//! The sorted keys of one data file, in segments that are in memory or on the local disk.
//!
//! The file on the local disk has the segments one behind the other, then a directory of them, then the directory's
//! length and [`MAGIC`]. The directory ends with a CRC-32 of itself and holds one of each segment.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::cache::{KeyCache, Slot};
use super::packed::{take_u32, take_u64};
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::table::keys::{Key, KeyRange, KeyRef, Keys};

/// Keys of one segment: the unit of what is read from the local disk.
const SEGMENT_KEYS: usize = 64 * 1024;
/// Bytes of keys after which a segment ends, however few they are.
const SEGMENT_BYTES: usize = 1 << 20;
/// The last bytes of a file on the local disk; another form of it gets another number.
const MAGIC: &[u8; 8] = b"TGKEYS01";

/// The sorted keys of one data file. A key's position is that of its row.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// The file on the local disk; none if everything is in memory.
    name: Option<String>,
    cache: Arc<KeyCache>,
    parts: Vec<Part>,
    len: usize,
    range: KeyRange,
}

#[derive(Debug)]
struct Part {
    first: Key,
    /// Position of its first key.
    start: usize,
    /// Where its bytes are in the file, how many, and their CRC-32.
    at: u64,
    size: u32,
    crc: u32,
    slot: Arc<Slot>,
}

impl KeySet {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// From the first key to the last.
    pub(crate) fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Memory that the keys need at least, whatever is in memory of them.
    pub(crate) fn fixed_bytes(&self) -> usize {
        let key = |key: &Key| match key {
            Key::Int(_) => 0,
            Key::Bytes(bytes) => bytes.len(),
        };
        self.parts.iter().map(|part| size_of::<Part>() + size_of::<Slot>() + key(&part.first)).sum()
    }

    /// Memory held for the keys now.
    pub(crate) fn held_bytes(&self) -> usize {
        let held = |part: &Part| part.slot.peek().map_or(0, |segment| segment.bytes());
        self.fixed_bytes() + self.parts.iter().map(held).sum::<usize>()
    }

    fn segment(&self, number: usize) -> Result<Arc<Segment>> {
        let part = &self.parts[number];
        if let Some(segment) = part.slot.get() {
            return Ok(segment);
        }
        let (Some(name), Some(disk)) = (&self.name, self.cache.disk()) else {
            return Err(Error::invalid("a part of the key index is neither in memory nor on the local disk"));
        };
        let bytes = disk.read(name, part.at, part.size as usize).map_err(|error| self.lost(&error.to_string()))?;
        if crc32fast::hash(&bytes) != part.crc {
            return Err(self.lost("its bytes are not those that were written"));
        }
        let segment = Segment::read(&bytes).filter(|segment| segment.len() == self.end_of(number) - part.start);
        let segment = Arc::new(segment.ok_or_else(|| self.lost("it cannot be read"))?);
        self.cache.fill(&part.slot, &segment, false);
        Ok(segment)
    }

    /// A part cannot be read. The file is removed, so that the next writer makes it anew from the data file.
    fn lost(&self, why: &str) -> Error {
        let name = self.name.as_deref().unwrap_or_default();
        let removed = match self.cache.disk().map(|disk| disk.remove(name)) {
            Some(Err(error)) => format!("; it could not be removed ({error}): remove it by hand"),
            _ => "; it was removed, and will be made again from its data file".to_owned(),
        };
        Error::LocalCache { file: name.to_owned(), what: format!("{why}{removed}") }
    }

    /// The part that holds `position`.
    fn part_of(&self, position: usize) -> usize {
        self.parts.partition_point(|part| part.start <= position).saturating_sub(1)
    }

    fn end_of(&self, number: usize) -> usize {
        self.parts.get(number + 1).map_or(self.len, |part| part.start)
    }

    /// Calls `found(needle's index, position)` for each of the ascending `needles[from..to]` that is in the file.
    pub(crate) fn look_up(
        &self,
        needles: &Keys,
        from: usize,
        to: usize,
        mut found: impl FnMut(usize, usize),
    ) -> Result<()> {
        let mut from = from;
        while from < to {
            let needle = needles.at(from);
            let number = self.parts.partition_point(|part| part.first.as_ref() <= needle);
            let end = match self.parts.get(number) {
                // Those of the next part are found in it.
                Some(next) => needles.lower_bound_in(next.first.as_ref(), from, to),
                None => to,
            };
            if let Some(number) = number.checked_sub(1) {
                let start = self.parts[number].start;
                self.segment(number)?.look_up(needles, from, end, &mut |key, at| found(key, start + at));
            }
            from = end;
        }
        Ok(())
    }

    /// The keys at `positions`, which ascend.
    pub(crate) fn gather(&self, positions: impl Iterator<Item = u32>, mut out: Keys) -> Result<Keys> {
        let mut open: Option<(Range<usize>, Arc<Segment>)> = None;
        for position in positions {
            let position = position as usize;
            let (range, segment) = match &open {
                Some((range, segment)) if range.contains(&position) => (range.start, segment),
                _ => {
                    if position >= self.len {
                        return Err(Error::invalid("a row's key was asked for beyond the end of its file"));
                    }
                    let number = self.part_of(position);
                    let range = self.parts[number].start..self.end_of(number);
                    let (range, segment) = open.insert((range, self.segment(number)?));
                    (range.start, &*segment)
                }
            };
            segment.append(position - range, &mut out)?;
        }
        Ok(out)
    }

    /// The positions of the part that holds `position`, and its keys.
    pub(crate) fn unpack(&self, position: usize) -> Result<(Range<usize>, Keys)> {
        let number = self.part_of(position);
        Ok((self.parts[number].start..self.end_of(number), self.segment(number)?.unpack()?))
    }

    /// Removes files of `directory` on the local disk but for those called `names`: nobody asks for them any more.
    pub(crate) fn sweep(cache: &KeyCache, directory: &str, names: &HashSet<String>) {
        let Some(disk) = cache.disk() else { return };
        let swept = disk.list(directory).and_then(|found| {
            let old = found.into_iter().map(|name| format!("{directory}/{name}")).filter(|name| !names.contains(name));
            old.into_iter().try_for_each(|name| disk.remove(&name))
        });
        if let Err(error) = swept {
            tracing::warn!(directory, %error, "old key index files cannot be removed from the local cache directory");
        }
    }

    /// Removes the file on the local disk: the data file is gone.
    pub(crate) fn remove_file(&self) {
        if let (Some(name), Some(disk)) = (&self.name, self.cache.disk())
            && let Err(error) = disk.remove(name)
        {
            tracing::debug!(file = name, %error, "a key index file was not removed; the next writer of the table does");
        }
    }

    /// The keys of a data file as an earlier writer left them on the local disk; none if they are not there, or are
    /// not those of a file of `rows` rows.
    pub(crate) fn find(cache: &Arc<KeyCache>, name: &str, rows: usize) -> Option<Self> {
        let disk = cache.disk()?;
        let size = disk.size(name).ok()?;
        let tail = disk.read(name, size.checked_sub(12)?, 12).ok()?;
        let mut rest = tail.as_slice();
        let length = take_u32(&mut rest)?;
        if rest != MAGIC {
            return None;
        }
        let at = size.checked_sub(12 + u64::from(length))?;
        let bytes = disk.read(name, at, length as usize).ok()?;
        let (directory, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(directory) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut rest = directory;
        let count = take_u32(&mut rest)?;
        let len = take_u32(&mut rest)? as usize;
        let last = read_key(&mut rest)?;
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..count {
            let first = read_key(&mut rest)?;
            let start = take_u32(&mut rest)? as usize;
            let (at, size, crc) = (take_u64(&mut rest)?, take_u32(&mut rest)?, take_u32(&mut rest)?);
            parts.push(Part { first, start, at, size, crc, slot: cache.slot() });
        }
        let min = parts.first()?.first.clone();
        (len == rows).then(|| Self {
            name: Some(name.to_owned()),
            cache: Arc::clone(cache),
            parts,
            len,
            range: KeyRange { min, max: last },
        })
    }
}

fn write_key(key: KeyRef<'_>, out: &mut Vec<u8>) {
    match key {
        KeyRef::Int(key) => {
            out.push(0);
            out.extend(key.to_le_bytes());
        }
        KeyRef::Bytes(key) => {
            out.push(1);
            out.extend((key.len() as u32).to_le_bytes());
            out.extend_from_slice(key);
        }
    }
}

fn read_key(bytes: &mut &[u8]) -> Option<Key> {
    let (form, rest) = bytes.split_first()?;
    *bytes = rest;
    match form {
        0 => Some(Key::Int(take_u64(bytes)? as i64)),
        1 => {
            let len = take_u32(bytes)? as usize;
            let (key, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            Some(Key::Bytes(key.into()))
        }
        _ => None,
    }
}

/// Takes the ascending keys of a data file as it is written or read.
#[derive(Debug)]
pub(crate) struct KeySetBuilder {
    cache: Arc<KeyCache>,
    parts: Vec<(Part, Arc<Segment>)>,
    /// Bytes of the file so far.
    bytes: Vec<u8>,
    /// Keys of the segment that is not full yet.
    open: Keys,
    len: usize,
    last: Option<Key>,
}

impl KeySetBuilder {
    /// `empty` is a list of the table's form.
    pub(crate) fn new(cache: &Arc<KeyCache>, empty: Keys) -> Self {
        Self { cache: Arc::clone(cache), parts: Vec::new(), bytes: Vec::new(), open: empty, len: 0, last: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends `keys[range]`. Fails if they do not ascend.
    pub(crate) fn push(&mut self, keys: &Keys, range: Range<usize>) -> Result<()> {
        let mut from = range.start;
        while from < range.end {
            let room = SEGMENT_KEYS - self.open.len();
            let to = range.end.min(from + room.min(4096));
            let first = keys.at(from);
            let follows = match (self.open.last(), &self.last) {
                (Some(last), _) => last < first,
                (None, Some(last)) => last.as_ref() < first,
                (None, None) => true,
            };
            if !follows || !keys.ascends_in(from, to) {
                return Err(Error::invalid("the keys of a file do not ascend"));
            }
            self.open.extend_from(keys, from, to)?;
            self.len += to - from;
            from = to;
            if self.open.len() >= SEGMENT_KEYS || self.open.bytes() >= 2 * SEGMENT_BYTES {
                self.end_segment()?;
            }
        }
        Ok(())
    }

    fn end_segment(&mut self) -> Result<()> {
        let (Some(first), Some(last)) = (self.open.first(), self.open.last()) else { return Ok(()) };
        self.last = Some(last.to_owned());
        let count = self.open.len();
        let segment = Arc::new(Segment::new(&self.open, 0, count)?);
        let at = self.bytes.len();
        if self.cache.disk().is_some() {
            segment.write(&mut self.bytes);
        }
        let written = &self.bytes[at..];
        let part = Part {
            first: first.to_owned(),
            start: self.len - count,
            at: at as u64,
            size: written.len() as u32,
            crc: crc32fast::hash(written),
            slot: self.cache.slot(),
        };
        self.parts.push((part, segment));
        self.open.clear();
        Ok(())
    }

    /// All keys have come. `name` is that of the file on the local disk.
    pub(crate) fn finish(mut self, name: String) -> Result<KeySet> {
        self.end_segment()?;
        let (Some((first, _)), Some(last)) = (self.parts.first(), self.last.take()) else {
            return Err(Error::invalid("a data file has no rows"));
        };
        let range = KeyRange { min: first.first.clone(), max: last };
        let mut on_disk = false;
        if let Some(disk) = self.cache.disk().cloned() {
            self.write_directory(&range.max);
            match disk.write(&name, &self.bytes) {
                Ok(()) => on_disk = true,
                Err(error) => tracing::warn!(
                    file = name, %error,
                    "a key index file cannot be written to the local cache directory; its keys stay in memory, beyond \
                     the bound that is set for it, and are read from the data file at the next start"
                ),
            }
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        for (part, segment) in self.parts {
            self.cache.fill(&part.slot, &segment, !on_disk);
            parts.push(part);
        }
        Ok(KeySet { name: on_disk.then_some(name), cache: self.cache, parts, len: self.len, range })
    }

    fn write_directory(&mut self, last: &Key) {
        let start = self.bytes.len();
        let out = &mut self.bytes;
        out.extend((self.parts.len() as u32).to_le_bytes());
        out.extend((self.len as u32).to_le_bytes());
        write_key(last.as_ref(), out);
        for (part, _) in &self.parts {
            write_key(part.first.as_ref(), out);
            out.extend((part.start as u32).to_le_bytes());
            out.extend(part.at.to_le_bytes());
            out.extend(part.size.to_le_bytes());
            out.extend(part.crc.to_le_bytes());
        }
        let crc = crc32fast::hash(&out[start..]);
        out.extend(crc.to_le_bytes());
        let length = (out.len() - start) as u32;
        out.extend(length.to_le_bytes());
        out.extend_from_slice(MAGIC);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::cache::tests::MemoryDisk;
    use super::*;
    use crate::table::keys::ByteKeys;

    const KEYS: usize = 300_000;

    fn ints() -> Keys {
        Keys::Int((0..KEYS as i64).map(|n| n * 3).collect())
    }

    fn strings() -> Keys {
        let mut keys = ByteKeys::default();
        (0..KEYS).for_each(|n| keys.push(format!("customer-{n:09}").as_bytes()).unwrap());
        Keys::Bytes(keys)
    }

    fn build(cache: &Arc<KeyCache>, keys: &Keys, name: &str) -> KeySet {
        let mut builder = KeySetBuilder::new(cache, keys.empty());
        for from in (0..keys.len()).step_by(10_000) {
            builder.push(keys, from..keys.len().min(from + 10_000)).unwrap();
        }
        builder.finish(name.to_owned()).unwrap()
    }

    /// Every seventh key and as many that are not there are looked up; gathering and unpacking gives the keys back.
    fn check(set: &KeySet, keys: &Keys) {
        assert_eq!(set.len(), keys.len());
        assert_eq!(Some(set.range()), KeyRange::of(keys).as_ref());
        let needles = keys.gather((0..keys.len() as u32).step_by(7)).unwrap();
        let mut found = Vec::new();
        set.look_up(&needles, 0, needles.len(), |needle, at| found.push((needle, at))).unwrap();
        assert_eq!(found, (0..needles.len()).map(|n| (n, 7 * n)).collect::<Vec<_>>());
        let gathered = set.gather((0..keys.len() as u32).step_by(7), keys.empty()).unwrap();
        assert_eq!(gathered, needles);
        let mut position = 0;
        while position < set.len() {
            let (range, part) = set.unpack(position).unwrap();
            assert_eq!((range.start, part.len()), (position, range.len()));
            assert_eq!(part, keys.gather(range.start as u32..range.end as u32).unwrap());
            position = range.end;
        }
    }

    #[test]
    fn keys_are_found_in_memory_and_from_the_disk() {
        for keys in [ints(), strings()] {
            check(&build(&KeyCache::unbounded(), &keys, "a"), &keys);
            let disk = Arc::new(MemoryDisk::default());
            let limit = 200_000;
            let cache = KeyCache::new(disk.clone(), limit);
            let set = build(&cache, &keys, "t/a");
            check(&set, &keys);
            assert!(disk.reads.load(Ordering::Relaxed) > 0);
            // The bound holds up to the segment that came last.
            assert!(cache.held() <= limit + 3 * SEGMENT_BYTES, "{} bytes are held", cache.held());
            drop(set);
            assert_eq!(cache.held(), 0);
            let again = KeySet::find(&cache, "t/a", KEYS).unwrap();
            check(&again, &keys);
            assert!(KeySet::find(&cache, "t/a", KEYS - 1).is_none());
            assert!(KeySet::find(&cache, "t/b", KEYS).is_none());
        }
    }

    #[test]
    fn integers_are_small_enough_for_fifty_million() {
        let cache = KeyCache::unbounded();
        let set = build(&cache, &ints(), "a");
        assert!(set.held_bytes() < KEYS * 3 / 2, "{} bytes", set.held_bytes());
    }

    #[test]
    fn what_was_used_stays_in_memory() {
        let disk = Arc::new(MemoryDisk::default());
        let keys = ints();
        let cache = KeyCache::new(disk.clone(), 250_000);
        let set = build(&cache, &keys, "a");
        let hot = keys.gather(70_000..70_010).unwrap();
        for round in 0..6 {
            let cold = keys.gather(std::iter::once(round * 49_000)).unwrap();
            set.look_up(&hot, 0, hot.len(), |_, _| ()).unwrap();
            set.look_up(&cold, 0, 1, |_, _| ()).unwrap();
        }
        let before = disk.reads.load(Ordering::Relaxed);
        set.look_up(&hot, 0, hot.len(), |_, _| ()).unwrap();
        assert_eq!(disk.reads.load(Ordering::Relaxed), before);
    }

    #[test]
    fn a_damaged_file_is_never_believed() {
        let disk = Arc::new(MemoryDisk::default());
        let keys = ints();
        let small = KeyCache::new(disk.clone(), 0);
        drop(build(&small, &keys, "a"));
        let whole = disk.files.lock().unwrap()["a"].clone();
        for at in (0..whole.len()).step_by(991).chain(whole.len() - 200..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            disk.files.lock().unwrap().insert("a".to_owned(), bytes);
            let Some(set) = KeySet::find(&small, "a", KEYS) else { continue };
            let mut found = 0;
            let outcome = set.look_up(&keys, 0, keys.len(), |needle, position| {
                assert_eq!(needle, position);
                found += 1;
            });
            let error = outcome.expect_err("a byte was flipped and nobody noticed").to_string();
            assert!(error.contains("file a of the local cache"), "{error}");
            // It is gone, so it will be made anew.
            assert!(!disk.files.lock().unwrap().contains_key("a"));
        }
    }

    #[test]
    fn a_full_disk_keeps_keys_in_memory() {
        let disk = Arc::new(MemoryDisk::default());
        disk.full.store(true, Ordering::Relaxed);
        let keys = ints();
        let cache = KeyCache::new(disk, 1000);
        let set = build(&cache, &keys, "a");
        assert!(cache.held() > 300_000);
        check(&set, &keys);
    }

    #[test]
    fn keys_that_do_not_ascend_are_refused() {
        let cache = KeyCache::unbounded();
        for keys in [vec![1, 1], vec![5, 4]] {
            let mut builder = KeySetBuilder::new(&cache, Keys::Int(Vec::new()));
            assert!(builder.push(&Keys::Int(keys), 0..2).is_err());
        }
        let mut builder = KeySetBuilder::new(&cache, Keys::Int(Vec::new()));
        builder.push(&Keys::Int(vec![1, 9]), 0..2).unwrap();
        assert!(builder.push(&Keys::Int(vec![9]), 0..1).is_err());
    }
}
