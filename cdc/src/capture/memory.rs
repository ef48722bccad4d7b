//! What a source's rows take in memory on their way from the server into files.
//!
//! Of a source's `memory_bytes`, half is for pages of the snapshot, a quarter for changes that were handed over to the
//! writers, an eighth for changes that are decoded and wait for that, and an eighth for events that are not decoded. All but
//! the third take a share of a semaphore; pages and changes that were handed over keep it until they are in files. Here is
//! counted what really is there of rows, apart from the shares, so that it can be seen that they are right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes behind one permit of a memory semaphore.
pub(super) const PERMIT_BYTES: usize = 1024;

/// The bytes that a source's rows take. Row values count with what is reserved for them, but for changes that are being
/// collected; what encoding them takes is not counted.
#[derive(Debug, Default)]
pub struct MemoryUse {
    /// Pages and handed-over changes that are not with the writers yet.
    moving: AtomicUsize,
    /// Decoded changes that were not handed over.
    decoded: AtomicUsize,
    /// Rows that the writers hold.
    buffered: AtomicUsize,
    peak: AtomicUsize,
}

impl MemoryUse {
    /// The bytes that are held now.
    pub fn bytes(&self) -> usize {
        [&self.moving, &self.decoded, &self.buffered].iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }

    /// The most bytes that were held at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    fn grown(&self) {
        let bytes = self.bytes();
        if bytes > self.peak() {
            self.peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a batch of rows until what is returned is dropped.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.moving.fetch_add(bytes, Ordering::Relaxed);
        self.grown();
        Held { bytes, of: Arc::clone(self) }
    }

    pub(super) fn set_decoded(&self, bytes: usize) {
        self.decoded.store(bytes, Ordering::Relaxed);
        self.grown();
    }

    pub(super) fn set_buffered(&self, bytes: usize) {
        self.buffered.store(bytes, Ordering::Relaxed);
        self.grown();
    }
}

/// Rows that are counted while this lives.
#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    of: Arc<MemoryUse>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.moving.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A semaphore over `budget` bytes.
pub(super) fn shares(budget: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(all(budget)))
}

fn all(budget: usize) -> usize {
    (budget / PERMIT_BYTES).max(1)
}

/// The permits that `bytes` need; more than the whole budget are all of it.
pub(super) fn permits(budget: usize, bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES).clamp(1, all(budget))).unwrap_or(u32::MAX)
}

/// Takes the share of a budget that `bytes` need; more than the whole budget takes all of it.
pub(super) async fn reserve(memory: &Arc<Semaphore>, budget: usize, bytes: usize) -> OwnedSemaphorePermit {
    let taken = Arc::clone(memory).acquire_many_owned(permits(budget, bytes)).await;
    taken.expect("memory semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_goes() {
        let memory = Arc::new(MemoryUse::default());
        let page = memory.hold(1000);
        memory.set_decoded(200);
        memory.set_buffered(30);
        assert_eq!((memory.bytes(), memory.peak()), (1230, 1230));
        drop(page);
        memory.set_decoded(0);
        assert_eq!((memory.bytes(), memory.peak()), (30, 1230));
    }

    #[test]
    fn shares_are_rounded_up_and_never_more_than_there_are() {
        for (budget, bytes, expected) in [
            (8192, 1, 1),
            (8192, 1024, 1),
            (8192, 1025, 2),
            (8192, 8192, 8),
            (8192, 1 << 30, 8),
            (1500, 1500, 1),
            (10, 5, 1),
        ] {
            assert_eq!(permits(budget, bytes), expected, "{bytes} of {budget}");
            assert!(shares(budget).available_permits() >= expected as usize);
        }
    }
}
