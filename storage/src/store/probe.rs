//! Whether a store refuses to create what exists.

use bytes::Bytes;
use object_store::path::Path;
use uuid::Uuid;

use super::{CreateOutcome, create_if_absent, delete, read};
use crate::error::{Error, Result};

/// Makes sure that the store honours conditional creates, which keep two servers from overwriting each other's
/// checkpoints. Some stores that speak S3's protocol leave the condition (`If-None-Match: *`) unread.
///
/// An object is created under a name of its own, `probe/<uuid>`, and created again with other bytes: that must be
/// refused, and the first bytes must still be there. The object is deleted afterwards.
///
/// Errors: [`Error::Unconditional`] if the store does not; the store's own errors if it cannot be asked.
pub async fn require_conditional_creates(store: &dyn object_store::ObjectStore, name: Uuid) -> Result<()> {
    let path = Path::from("probe").join(name.to_string());
    let outcome = try_twice(store, &path).await;
    if let Err(error) = delete(store, &path).await {
        // A few bytes without a meaning.
        tracing::debug!(object = %path, %error, "a probe was not deleted");
    }
    outcome
}

async fn try_twice(store: &dyn object_store::ObjectStore, path: &Path) -> Result<()> {
    const FIRST: &[u8] = b"first\n";
    let create = |bytes| create_if_absent(store, path, Bytes::from_static(bytes));
    let unconditional = |what: &str| Err(Error::Unconditional { object: path.to_string(), what: what.to_owned() });
    if create(FIRST).await? == CreateOutcome::Exists {
        return unconditional("an object that nobody has written before is said to exist");
    }
    if create(b"second\n").await? == CreateOutcome::Created {
        return unconditional("it was created a second time, over the first");
    }
    if read(store, path).await? != FIRST {
        return unconditional("a second create was refused, and replaced the object all the same");
    }
    Ok(())
}
