//! Names of new objects, which no other writer takes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use object_store::path::Path;
use uuid::Builder;
use uuid::Uuid;

use crate::paimon::paths;

/// Counts the objects of one writer under an id of its own. A writer that is opened again takes a new id, so what an
/// earlier one left behind is never overwritten.
#[derive(Debug)]
pub(crate) struct Names {
    id: Uuid,
    next: AtomicU32,
}

impl Names {
    /// For a writer of the table at `path`, opened at `now_ms`.
    pub(crate) fn new(path: &Path, commit_user: &str, now_ms: i64) -> Self {
        // The standard library's hasher keys come from the operating system's randomness and differ for every state.
        let random = || {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write(path.as_ref().as_bytes());
            hasher.write(commit_user.as_bytes());
            hasher.write_i64(now_ms);
            hasher.finish().to_be_bytes()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random());
        bytes[8..].copy_from_slice(&random());
        Self { id: Builder::from_random_bytes(bytes).into_uuid(), next: AtomicU32::new(0) }
    }

    fn next(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn data_file(&self) -> String {
        paths::data_file_name(self.id, self.next())
    }

    pub(crate) fn changelog_file(&self) -> String {
        paths::changelog_file_name(self.id, self.next())
    }

    pub(crate) fn manifest(&self) -> String {
        paths::manifest_name(self.id, self.next())
    }

    pub(crate) fn manifest_list(&self) -> String {
        paths::manifest_list_name(self.id, self.next())
    }

    pub(crate) fn index_manifest(&self) -> String {
        paths::index_manifest_name(self.id, self.next())
    }

    pub(crate) fn index_file(&self) -> String {
        paths::index_file_name(self.id, self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_of_one_table_never_share_a_name() {
        let path = Path::from("db/t");
        let (a, b) = (Names::new(&path, "user", 1), Names::new(&path, "user", 1));
        assert_ne!(a.data_file(), b.data_file());
        assert_ne!(a.data_file(), a.data_file());
    }
}
