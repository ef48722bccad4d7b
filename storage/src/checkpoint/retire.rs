//! The end of a source: a mark that every server on the store sees, whatever catalog it has read.

use bytes::Bytes;
use object_store::path::Path;
use uuid::Uuid;

use super::log::source_directory;
use crate::error::Result;
use crate::store::{StoreRef, create_if_absent, read_optional};

/// Where the mark of a source is. It stays when the source's other objects are deleted.
pub fn retired_path(source: Uuid) -> Path {
    source_directory(source).join("dropped")
}

/// Marks a source as dropped: from now on no server captures it.
pub async fn retire(store: &StoreRef, source: Uuid) -> Result<()> {
    // That somebody marked it before is as good.
    create_if_absent(store, &retired_path(source), Bytes::from_static(b"dropped\n")).await.map(|_| ())
}

/// Whether a source was dropped.
pub async fn is_retired(store: &StoreRef, source: Uuid) -> Result<bool> {
    Ok(read_optional(store, &retired_path(source)).await?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_is_retired_once_and_for_all() {
        let store = crate::store::open("memory:", &[]).unwrap();
        let (dropped, kept) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert!(!is_retired(&store, dropped).await.unwrap());
        retire(&store, dropped).await.unwrap();
        retire(&store, dropped).await.unwrap();
        assert!(is_retired(&store, dropped).await.unwrap());
        assert!(!is_retired(&store, kept).await.unwrap());
    }
}
