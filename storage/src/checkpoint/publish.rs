//! Publishing prepared snapshots, for readers that look for a table's own snapshot files.

use bytes::Bytes;
use object_store::path::Path;

use super::record::PreparedSnapshot;
use crate::error::Result;
use crate::paimon::TablePaths;
use crate::store::{StoreRef, create_if_absent, create_own, write};

/// Creates `snapshot/snapshot-<id>` with the prepared bytes. Doing so again changes nothing.
///
/// Errors: [`crate::Error::Conflict`] if there is a snapshot of this number with other content: someone else writes
/// to the table.
pub async fn publish(store: &StoreRef, table_path: &Path, prepared: &PreparedSnapshot) -> Result<()> {
    let paths = TablePaths::new(table_path.clone());
    let json = Bytes::copy_from_slice(prepared.json.as_bytes());
    create_own(&**store, &paths.snapshot(prepared.id), json).await?;
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
    Ok(())
}
