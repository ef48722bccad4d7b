//! How much of the key index is in memory, and the local disk that holds the rest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::segment::Segment;
use crate::local_disk::LocalDisk;

/// Bytes of key index that a cache keeps in memory unless told otherwise.
pub const DEFAULT_KEY_MEMORY: usize = 128 << 20;

/// Keeps the parts of key indexes that were used last in memory, up to a bound, and the others on the local disk.
///
/// Without a disk everything stays in memory. One cache serves all tables of a process.
#[derive(Debug)]
pub struct KeyCache {
    disk: Option<Arc<dyn LocalDisk>>,
    limit: usize,
    held: AtomicUsize,
    clock: Mutex<Clock>,
}

/// What is in memory, in the order in which it is looked at when room is needed.
#[derive(Debug, Default)]
struct Clock {
    places: VecDeque<Weak<Slot>>,
    /// With this many places those of files that are gone are left out.
    full: usize,
}

/// The place of one segment in memory.
#[derive(Debug)]
pub(crate) struct Slot {
    segment: Mutex<Option<Arc<Segment>>>,
    /// Whether it was used since room was last looked for.
    used: AtomicBool,
    cache: Weak<KeyCache>,
}

impl Slot {
    fn locked(&self) -> MutexGuard<'_, Option<Arc<Segment>>> {
        self.segment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment, if it is in memory.
    pub(crate) fn get(&self) -> Option<Arc<Segment>> {
        let segment = self.locked().clone();
        self.used.store(segment.is_some(), Ordering::Relaxed);
        segment
    }

    /// The segment, if it is in memory; that does not count as a use.
    pub(crate) fn peek(&self) -> Option<Arc<Segment>> {
        self.locked().clone()
    }

    fn take(&self) -> usize {
        self.locked().take().map_or(0, |segment| segment.bytes())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let bytes = self.take();
        if let Some(cache) = self.cache.upgrade() {
            cache.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl KeyCache {
    /// Everything stays in memory.
    pub fn unbounded() -> Arc<Self> {
        Arc::new(Self { disk: None, limit: usize::MAX, held: AtomicUsize::new(0), clock: Mutex::default() })
    }

    /// Keeps about `limit` bytes in memory and everything on `disk`.
    pub fn new(disk: Arc<dyn LocalDisk>, limit: usize) -> Arc<Self> {
        Arc::new(Self { disk: Some(disk), limit, held: AtomicUsize::new(0), clock: Mutex::default() })
    }

    /// Bytes held in memory, for all tables.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn disk(&self) -> Option<&Arc<dyn LocalDisk>> {
        self.disk.as_ref()
    }

    /// A place for a segment that is not in memory.
    pub(crate) fn slot(self: &Arc<Self>) -> Arc<Slot> {
        Arc::new(Slot { segment: Mutex::default(), used: AtomicBool::new(false), cache: Arc::downgrade(self) })
    }

    /// Puts a segment in its place and makes room for it. One that is not on the disk (`fixed`) stays.
    pub(crate) fn fill(&self, slot: &Arc<Slot>, segment: &Arc<Segment>, fixed: bool) {
        {
            let mut place = slot.locked();
            if place.is_some() {
                return;
            }
            *place = Some(Arc::clone(segment));
        }
        let mut held = self.held.fetch_add(segment.bytes(), Ordering::Relaxed) + segment.bytes();
        if fixed {
            return;
        }
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if clock.places.len() >= clock.full {
            clock.places.retain(|place| place.strong_count() > 0);
            clock.full = (2 * clock.places.len()).max(1024);
        }
        clock.places.push_back(Arc::downgrade(slot));
        // Each place gets a second chance at most, so this ends.
        let mut looks = 2 * clock.places.len();
        while held > self.limit && looks > 0 {
            looks -= 1;
            let Some(place) = clock.places.pop_front() else { break };
            let Some(slot) = place.upgrade() else { continue };
            if slot.used.swap(false, Ordering::Relaxed) {
                clock.places.push_back(place);
            } else {
                let bytes = slot.take();
                held = self.held.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::io::{Error, ErrorKind};

    use super::*;

    /// A disk in memory whose bytes tests can reach.
    #[derive(Debug, Default)]
    pub(crate) struct MemoryDisk {
        pub(crate) files: Mutex<BTreeMap<String, Vec<u8>>>,
        pub(crate) full: AtomicBool,
        pub(crate) reads: AtomicUsize,
    }

    impl LocalDisk for MemoryDisk {
        fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
            if self.full.load(Ordering::Relaxed) {
                return Err(ErrorKind::StorageFull.into());
            }
            self.files.lock().unwrap().insert(name.to_owned(), bytes.to_vec());
            Ok(())
        }

        fn read(&self, name: &str, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let files = self.files.lock().unwrap();
            let bytes = files.get(name).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
            let part = bytes.get(offset as usize..offset as usize + len);
            Ok(part.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?.to_vec())
        }

        fn size(&self, name: &str) -> std::io::Result<u64> {
            let files = self.files.lock().unwrap();
            Ok(files.get(name).ok_or_else(|| Error::from(ErrorKind::NotFound))?.len() as u64)
        }

        fn remove(&self, name: &str) -> std::io::Result<()> {
            self.files.lock().unwrap().remove(name);
            Ok(())
        }

        fn list(&self, directory: &str) -> std::io::Result<Vec<String>> {
            let files = self.files.lock().unwrap();
            let inside = files.keys().filter_map(|name| name.strip_prefix(directory)?.strip_prefix('/'));
            Ok(inside.map(str::to_owned).collect())
        }
    }
}
