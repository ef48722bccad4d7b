//! Names of new objects, which no other writer takes.

use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Builder;
use uuid::Uuid;

use crate::paimon::paths;
use crate::random::Random;

/// Counts the objects of one writer under an id of its own. A writer that is opened again takes a new id, so what an
/// earlier one left behind is never overwritten.
#[derive(Debug)]
pub(crate) struct Names {
    id: Uuid,
    next: AtomicU32,
}

impl Names {
    /// For a writer that is opened now.
    pub(crate) fn new(random: &dyn Random) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random.draw().to_be_bytes());
        bytes[8..].copy_from_slice(&random.draw().to_be_bytes());
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
    use crate::random::SystemRandom;

    #[test]
    fn two_writers_of_one_table_never_share_a_name() {
        let (a, b) = (Names::new(&SystemRandom), Names::new(&SystemRandom));
        assert_ne!(a.data_file(), b.data_file());
        assert_ne!(a.data_file(), a.data_file());
    }
}
