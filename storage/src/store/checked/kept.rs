//! What is kept of objects, up to so many bytes.

use std::collections::{BTreeMap, HashMap};

use object_store::path::Path;

/// Values by object; those not used for longest go first.
#[derive(Debug)]
pub(super) struct Kept<V> {
    limit: usize,
    bytes: usize,
    entries: HashMap<Path, Entry<V>>,
    /// The objects by the time of their last use.
    by_use: BTreeMap<u64, Path>,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<V: Clone> Kept<V> {
    /// Keeps values of `limit` bytes in all.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn get(&mut self, path: &Path) -> Option<V> {
        let entry = self.entries.get_mut(path)?;
        self.uses += 1;
        if let Some(path) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.uses, path);
        }
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    /// Keeps `value`, which takes `bytes`, unless it alone is larger than the limit.
    pub(super) fn insert(&mut self, path: &Path, value: V, bytes: usize) {
        self.remove(path);
        let bytes = bytes + 2 * (path.as_ref().len() + size_of::<Entry<V>>());
        if bytes > self.limit {
            return;
        }
        while self.bytes + bytes > self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some(old) = self.entries.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, path.clone());
        self.entries.insert(path.clone(), Entry { value, bytes, used: self.uses });
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if let Some(old) = self.entries.remove(path) {
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
        kept.insert(&Path::from("f4"), 4, 2_000);
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
