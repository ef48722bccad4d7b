//! Publishing prepared snapshots, for readers that look for a table's own snapshot files.

use bytes::Bytes;
use object_store::path::Path;

use super::record::PreparedSnapshot;
use crate::error::{Error, Result};
use crate::paimon::{Snapshot, TablePaths};
use crate::store::{StoreRef, create_if_absent, create_own, read, write};

/// What became of a publication.
#[derive(Debug)]
#[must_use]
pub enum PublishOutcome {
    /// The snapshot is there for every reader.
    Published,
    /// There is a snapshot of this number with other content: someone else writes to the table. The error names it.
    Conflicted(Error),
    /// The answer was lost, and the snapshot cannot be seen: it may be there, or appear later. Publishing it again finds
    /// out. The error says why nothing is known.
    Unknown(Error),
}

impl PublishOutcome {
    /// For a caller that goes on only if the snapshot is there.
    ///
    /// Errors: why it is not, or is not known to be.
    pub fn require(self) -> Result<()> {
        match self {
            Self::Published => Ok(()),
            Self::Conflicted(error) | Self::Unknown(error) => Err(error),
        }
    }
}

/// Creates `snapshot/snapshot-<id>` with the prepared bytes. Doing so again changes nothing.
///
/// Errors: if nothing was written; [`Error::Corrupt`] if what is there under this name is no whole snapshot.
pub async fn publish(store: &StoreRef, table_path: &Path, prepared: &PreparedSnapshot) -> Result<PublishOutcome> {
    let paths = TablePaths::new(table_path.clone());
    let (path, json) = (paths.snapshot(prepared.id), Bytes::copy_from_slice(prepared.json.as_bytes()));
    match create_own(&**store, &path, json).await {
        Ok(()) => {}
        Err(error @ Error::Conflict { .. }) => {
            // Ours may have been there and have been damaged since, which no other writer is to blame for.
            let found = read(&**store, &path).await.map(|found| damage(&path, &found, prepared));
            return match found {
                Ok(Some(damage)) => Err(damage),
                _ => Ok(PublishOutcome::Conflicted(error)),
            };
        }
        Err(error @ Error::Unknown { .. }) => return Ok(PublishOutcome::Unknown(error)),
        Err(error) => return Err(error),
    }
    // Hints save readers a listing. They may be behind or missing, so no failure to write one matters.
    let id = Bytes::from(prepared.id.to_string());
    if let Err(error) = write(&**store, &paths.latest_hint(), id.clone()).await {
        tracing::debug!(table = %table_path, snapshot = prepared.id, %error, "the hint for the latest snapshot was not written");
    }
    if prepared.id == 1
        && let Err(error) = create_if_absent(&**store, &paths.earliest_hint(), id).await
    {
        tracing::debug!(table = %table_path, %error, "the hint for the earliest snapshot was not written");
    }
    Ok(PublishOutcome::Published)
}

/// Why a snapshot that is not the prepared one is no whole snapshot.
fn damage(path: &Path, found: &[u8], prepared: &PreparedSnapshot) -> Option<Error> {
    match (Snapshot::from_json(path.as_ref(), found), Snapshot::from_json("snapshot", prepared.json.as_bytes())) {
        (Err(damage @ Error::Corrupt { .. }), _) => Some(damage),
        // One of this source that is not as this source writes them: what its digest is known by may be what is damaged.
        (Ok(found_one), Ok(ours))
            if found_one.commit_user == ours.commit_user && found_one.to_digested_json().as_bytes() != found =>
        {
            Some(Error::corrupt(path.as_ref(), "it is this source's, and its digest is missing"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::ErrorKind;
    use crate::store::faulty::{Fault, Faulty, Operation};

    fn prepared(id: u64, json: &str) -> PreparedSnapshot {
        PreparedSnapshot { id, json: json.into() }
    }

    fn snapshot(user: &str) -> String {
        let json = serde_json::json!({
            "version": 3, "id": 3, "schemaId": 0, "baseManifestList": "a", "deltaManifestList": "b", "commitUser": user,
            "commitIdentifier": 1, "commitKind": "APPEND", "timeMillis": 0, "totalRecordCount": 7, "deltaRecordCount": 7,
        });
        Snapshot::from_json("snapshot", json.to_string().as_bytes()).unwrap().to_digested_json()
    }

    async fn publish_once(store: &StoreRef, table: &Path, snapshot: &PreparedSnapshot) {
        let outcome = publish(store, table, snapshot).await.unwrap();
        assert!(matches!(outcome, PublishOutcome::Published), "{outcome:?}");
    }

    #[tokio::test]
    async fn publishing_again_changes_nothing_and_other_content_is_refused() {
        let store: StoreRef = Arc::new(InMemory::new());
        let table = Path::from("db/t");
        for id in [1, 1, 2, 2] {
            publish_once(&store, &table, &prepared(id, &format!("snapshot {id}"))).await;
        }
        for (name, content) in
            [("snapshot-1", "snapshot 1"), ("snapshot-2", "snapshot 2"), ("LATEST", "2"), ("EARLIEST", "1")]
        {
            assert_eq!(read(&*store, &table.clone().join("snapshot").join(name)).await.unwrap(), content, "{name}");
        }
        let (ours, another) = (snapshot("ours"), snapshot("another's"));
        publish_once(&store, &table, &prepared(3, &ours)).await;
        let PublishOutcome::Conflicted(error) = publish(&store, &table, &prepared(3, &another)).await.unwrap() else {
            panic!("two snapshots have one number");
        };
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("db/t/snapshot/snapshot-3"), "{error}");
    }

    #[tokio::test]
    async fn a_snapshot_that_was_damaged_is_no_other_writers() {
        let store: StoreRef = Arc::new(InMemory::new());
        let table = Path::from("db/t");
        let whole = snapshot("ours");
        publish_once(&store, &table, &prepared(3, &whole)).await;
        let cut = &whole[..whole.len() / 2];
        let (another, unsealed) = (
            whole.replace("\"totalRecordCount\": 7", "\"totalRecordCount\": 5"),
            whole.replace("tidegate.crc32", "tidegate.crc22"),
        );
        for damaged in [cut, &another, &unsealed, ""] {
            assert_ne!(damaged, whole);
            let path = TablePaths::new(table.clone()).snapshot(3);
            write(&*store, &path, Bytes::from(damaged.to_owned())).await.unwrap();
            let error = publish(&store, &table, &prepared(3, &whole)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damaged}");
            assert!(error.to_string().contains("db/t/snapshot/snapshot-3"), "{error}");
        }
    }

    #[tokio::test]
    async fn only_the_snapshot_itself_must_be_written() {
        let faulty = Arc::new(Faulty::new(Arc::new(InMemory::new())));
        let store = Arc::clone(&faulty) as StoreRef;
        let table = Path::from("db/t");
        faulty.inject(Operation::Put, "LATEST", Fault::Refuse, 1);
        faulty.inject(Operation::Create, "EARLIEST", Fault::Refuse, 1);
        publish_once(&store, &table, &prepared(1, "one")).await;
        faulty.inject(Operation::Create, "snapshot-2", Fault::LoseAnswer, 1);
        publish_once(&store, &table, &prepared(2, "two")).await;
        faulty.inject(Operation::Create, "snapshot-3", Fault::Refuse, 1);
        let outcome = publish(&store, &table, &prepared(3, "three")).await.unwrap();
        assert!(matches!(outcome, PublishOutcome::Unknown(_)), "{outcome:?}");
        publish_once(&store, &table, &prepared(3, "three")).await;
        // Refused for good, so that nothing was written and nothing is unclear.
        faulty.inject(Operation::Create, "snapshot-4", Fault::Full, 1);
        assert_eq!(publish(&store, &table, &prepared(4, "four")).await.unwrap_err().kind(), ErrorKind::Full);
    }
}
