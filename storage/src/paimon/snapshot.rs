//! A snapshot: one version of a table, as other readers find it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::json_digest;
use crate::error::{Error, Result};

/// Version of the snapshot file's layout (`Snapshot.CURRENT_VERSION` in Paimon).
pub const SNAPSHOT_VERSION: u32 = 3;

/// What a snapshot's files tell a reader that follows the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CommitKind {
    /// Only rows were added.
    Append,
    /// The same rows in other files.
    Compact,
    /// Rows were replaced or deleted. A commit with deletion vectors is one: a reader that follows only `APPEND`
    /// would see its inserts without its deletes.
    Overwrite,
    /// Only statistics.
    Analyze,
}

/// The content of `snapshot-<id>`. Fields that are `None` are left out of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// [`SNAPSHOT_VERSION`].
    pub version: u32,
    /// Identity of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Number of the snapshot, from 1 and without gaps.
    pub id: u64,
    /// Schema the snapshot is read with.
    pub schema_id: u64,
    /// Manifest list with all files before this commit.
    pub base_manifest_list: String,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_manifest_list_size: Option<i64>,
    /// Manifest list with this commit's changes.
    pub delta_manifest_list: String,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_manifest_list_size: Option<i64>,
    /// Manifest list of changelog files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changelog_manifest_list: Option<String>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changelog_manifest_list_size: Option<i64>,
    /// All index files (deletion vectors); carried forward when no index file changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_manifest: Option<String>,
    /// Who commits: the same over restarts of one writer.
    pub commit_user: String,
    /// Name and version of the writing program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_version: Option<String>,
    /// Strictly increasing per commit user.
    pub commit_identifier: i64,
    /// Kind of commit.
    pub commit_kind: CommitKind,
    /// When the commit was prepared.
    pub time_millis: i64,
    /// Rows in live files, deleted ones included.
    pub total_record_count: i64,
    /// Rows of added files less rows of removed files.
    pub delta_record_count: i64,
    /// Rows in changelog files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changelog_record_count: Option<i64>,
    /// Event-time watermark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<i64>,
    /// Name of the statistics file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<String>,
    /// What the committer noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// Next row id for tables with row tracking; starts at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_row_id: Option<i64>,
}

impl Snapshot {
    /// The bytes of the snapshot's file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a struct of strings and numbers is always JSON")
    }

    /// The bytes of the snapshot's file, with a digest of them among the properties.
    pub fn to_digested_json(&self) -> String {
        let mut digested = self.clone();
        json_digest::add(digested.properties.get_or_insert_default(), self.id);
        json_digest::seal(digested.to_json(), self.id)
    }

    /// Reads a snapshot's file and verifies its digest if it has one. `object` is its path. Unknown fields are ignored,
    /// as every reader does.
    pub fn from_json(object: &str, json: &[u8]) -> Result<Self> {
        let mut snapshot: Self =
            serde_json::from_slice(json).map_err(|e| Error::corrupt(object, format!("not a snapshot: {e}")))?;
        if let Some(properties) = &mut snapshot.properties {
            json_digest::verify(json, snapshot.id, properties).map_err(|what| Error::corrupt(object, what))?;
            if properties.is_empty() {
                snapshot.properties = None;
            }
        }
        if snapshot.version > SNAPSHOT_VERSION {
            return Err(Error::invalid(format!(
                "object {object} has snapshot version {}, newer than this program",
                snapshot.version
            )));
        }
        Ok(snapshot)
    }
}
