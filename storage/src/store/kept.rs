//! What is kept of objects, up to so many bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use object_store::path::Path;

/// Values by key; those not used for longest go first.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    limit: usize,
    bytes: usize,
    entries: HashMap<K, Entry<V>>,
    /// The keys by the time of their last use.
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

/// The memory that a key takes beside its own size.
pub(super) trait Key: Clone + Eq + Hash {
    fn heap_bytes(&self) -> usize;
}

impl Key for Path {
    fn heap_bytes(&self) -> usize {
        self.as_ref().len()
    }
}

impl<K: Key, V: Clone> Kept<K, V> {
    /// Keeps values of `limit` bytes in all.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Bytes of what is kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.uses, key);
        }
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    /// Keeps `value`, which takes `bytes`, unless it alone is larger than the limit. Gives the keys of what had to go.
    pub(super) fn insert(&mut self, key: &K, value: V, bytes: usize) -> Vec<K> {
        self.remove(key);
        let bytes = bytes + 2 * (key.heap_bytes() + size_of::<Entry<V>>());
        let mut gone = Vec::new();
        if bytes > self.limit {
            gone.push(key.clone());
            return gone;
        }
        while self.bytes + bytes > self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some(old) = self.entries.remove(&oldest) {
                self.bytes -= old.bytes;
            }
            gone.push(oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key.clone(), Entry { value, bytes, used: self.uses });
        gone
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(old) = self.entries.remove(key) {
            self.by_use.remove(&old.used);
            self.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut kept = Kept::new(10_000);
        for object in 0..4u32 {
            kept.insert(&Path::from(format!("f{object}")), object, 2_000);
        }
        assert_eq!(kept.get(&Path::from("f0")), Some(0));
        assert_eq!(kept.insert(&Path::from("f4"), 4, 2_000), [Path::from("f1")]);
        assert_eq!(kept.get(&Path::from("f1")), None);
        assert_eq!(kept.get(&Path::from("f0")), Some(0));
        kept.insert(&Path::from("f4"), 5, 3_000);
        assert_eq!(kept.get(&Path::from("f4")), Some(5));
        kept.insert(&Path::from("large"), 6, 10_000);
        assert_eq!(kept.get(&Path::from("large")), None);
        for object in 0..5 {
            kept.remove(&Path::from(format!("f{object}")));
        }
        assert_eq!((kept.bytes, kept.entries.len(), kept.by_use.len()), (0, 0, 0));
    }
}
