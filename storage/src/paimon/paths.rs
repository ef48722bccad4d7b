//! Where a table's objects lie and what they are called.

use object_store::path::Path;
use uuid::Uuid;

/// Paths below a table's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePaths {
    root: Path,
}

impl TablePaths {
    /// Paths below `root`.
    pub fn new(root: Path) -> Self {
        Self { root }
    }

    /// The table's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of schemas.
    pub fn schemas(&self) -> Path {
        self.root.clone().join("schema")
    }

    /// `schema/schema-<id>`.
    pub fn schema(&self, id: u64) -> Path {
        self.schemas().join(format!("schema-{id}"))
    }

    /// The directory of snapshots.
    pub fn snapshots(&self) -> Path {
        self.root.clone().join("snapshot")
    }

    /// `snapshot/snapshot-<id>`.
    pub fn snapshot(&self, id: u64) -> Path {
        self.snapshots().join(format!("snapshot-{id}"))
    }

    /// `snapshot/LATEST`: the number of the newest snapshot; a hint that may be behind.
    pub fn latest_hint(&self) -> Path {
        self.snapshots().join("LATEST")
    }

    /// `snapshot/EARLIEST`: the number of the oldest snapshot; a hint that may be behind.
    pub fn earliest_hint(&self) -> Path {
        self.snapshots().join("EARLIEST")
    }

    /// `manifest/<name>`: manifests, manifest lists and index manifests.
    pub fn manifest(&self, name: &str) -> Path {
        self.root.clone().join("manifest").join(name)
    }

    /// `index/<name>`: deletion vectors.
    pub fn index(&self, name: &str) -> Path {
        self.root.clone().join("index").join(name)
    }

    /// The directory of a bucket's data files.
    pub fn bucket(&self, bucket: u32) -> Path {
        self.root.clone().join(format!("bucket-{bucket}"))
    }

    /// `bucket-<bucket>/<name>`: a data file.
    pub fn data_file(&self, bucket: u32, name: &str) -> Path {
        self.bucket(bucket).join(name)
    }
}

/// Name of a data file; `n` tells apart the files written under one `id`.
pub fn data_file_name(id: Uuid, n: u32) -> String {
    format!("data-{id}-{n}.parquet")
}

/// Name of a file of the changelog, which lies among the data files.
pub fn changelog_file_name(id: Uuid, n: u32) -> String {
    format!("changelog-{id}-{n}.parquet")
}

/// Name of a manifest.
pub fn manifest_name(id: Uuid, n: u32) -> String {
    format!("manifest-{id}-{n}")
}

/// Name of a manifest list.
pub fn manifest_list_name(id: Uuid, n: u32) -> String {
    format!("manifest-list-{id}-{n}")
}

/// Name of an index manifest.
pub fn index_manifest_name(id: Uuid, n: u32) -> String {
    format!("index-manifest-{id}-{n}")
}

/// Name of an index file (deletion vectors).
pub fn index_file_name(id: Uuid, n: u32) -> String {
    format!("index-{id}-{n}")
}
