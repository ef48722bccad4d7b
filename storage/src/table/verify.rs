//! Reads every object of a table and says which are damaged or missing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::layout::{get, numbers};
use super::version::{Files, apply_entries};
use crate::error::{Error, Result};
use crate::paimon::deletion_vector::decode_index_file;
use crate::paimon::manifest::{DELETION_VECTORS, decode_index_manifest, decode_manifest, decode_manifest_list};
use crate::paimon::{DataFileMeta, ManifestEntry, Snapshot, TablePaths, TableSchema};
use crate::store::StoreRef;
use crate::store::checked::Checked;

#[cfg(test)]
mod tests;

/// Bytes of a data file that are read at a time.
const WINDOW: u64 = 8 << 20;
/// Data files that are read at one time.
const FILES_AT_ONCE: usize = 4;

/// An object that is not what was written, or is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its path.
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What was read, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects read.
    pub objects: u64,
    /// Their size.
    pub bytes: u64,
    /// Those among them that are damaged, and those that are missing.
    pub damages: Vec<Damage>,
}

impl Verified {
    /// Takes the outcome of reading an object: what it holds, or nothing if it is damaged or missing.
    ///
    /// Errors: the store's own; they tell nothing about the object.
    pub fn note<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        let (object, problem) = match outcome {
            Ok(found) => return Ok(Some(found)),
            Err(Error::NotFound { object }) => (object, MISSING.to_owned()),
            Err(Error::Corrupt { object, what, .. }) => (object, what),
            Err(error) => return Err(error),
        };
        self.damages.push(Damage { object, problem });
        Ok(None)
    }

    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.damages.extend(other.damages);
    }
}

const MISSING: &str = "it is missing";

/// Reads everything that the table's snapshots lead to: published ones, and `prepared`, the texts of those that a
/// checkpoint holds.
///
/// Errors: if the store cannot be read. Damage is no error of the walk.
pub async fn verify_table(store: &StoreRef, table: &Path, prepared: &[&str]) -> Result<Verified> {
    let paths = TablePaths::new(table.clone());
    let checked: StoreRef = Arc::new(Checked::new(Arc::clone(store)));
    let mut walk =
        Walk { store: checked, paths, seen: HashSet::new(), manifests: HashMap::new(), found: Verified::default() };
    walk.schemas().await?;
    for json in prepared {
        if let Some(snapshot) = walk.found.note(Snapshot::from_json(table.as_ref(), json.as_bytes()))? {
            walk.snapshot(&snapshot).await?;
        }
    }
    // The newest first: what a snapshot shares with a later one counts as the later one's.
    let ids = numbers(&walk.store, &walk.paths.snapshots(), "snapshot-").await?;
    for id in ids.into_iter().rev() {
        let path = walk.paths.snapshot(id);
        let before = walk.found.damages.len();
        let read = walk.read(&path).await;
        let read = read.and_then(|bytes| numbered(&path, Snapshot::from_json(path.as_ref(), &bytes)?, id));
        if let Some(snapshot) = walk.found.note(read)? {
            walk.snapshot(&snapshot).await?;
        }
        walk.forgive_expired(&path, before).await?;
    }
    Ok(walk.found)
}

fn numbered(path: &Path, snapshot: Snapshot, id: u64) -> Result<Snapshot> {
    if snapshot.id == id {
        return Ok(snapshot);
    }
    Err(Error::corrupt(path.as_ref(), format!("it holds snapshot {}", snapshot.id)))
}

struct Walk {
    store: StoreRef,
    paths: TablePaths,
    seen: HashSet<Path>,
    /// The entries of each manifest read; nothing for one that cannot be.
    manifests: HashMap<String, Option<Arc<Vec<ManifestEntry>>>>,
    found: Verified,
}

impl Walk {
    /// A whole object other than a data file.
    async fn read(&mut self, path: &Path) -> Result<Bytes> {
        let bytes = get(&self.store, path).await?;
        self.found.objects += 1;
        self.found.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    async fn schemas(&mut self) -> Result<()> {
        for id in numbers(&self.store, &self.paths.schemas(), "schema-").await? {
            let path = self.paths.schema(id);
            let read = self.read(&path).await;
            let read = read.and_then(|bytes| match TableSchema::from_json(path.as_ref(), &bytes)? {
                schema if schema.id == id => Ok(()),
                schema => Err(Error::corrupt(path.as_ref(), format!("it holds schema {}", schema.id))),
            });
            self.found.note(read)?;
        }
        Ok(())
    }

    async fn snapshot(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut live = Some(Files::new());
        for list in [&snapshot.base_manifest_list, &snapshot.delta_manifest_list] {
            self.list(list, &mut live).await?;
        }
        if let Some(changelog) = &snapshot.changelog_manifest_list {
            // Its files are all live, whatever the table's are.
            let mut files = Some(Files::new());
            self.list(changelog, &mut files).await?;
            self.data_files(files.unwrap_or_default()).await?;
        }
        self.data_files(live.unwrap_or_default()).await?;
        if let Some(name) = &snapshot.index_manifest {
            self.index_manifest(name).await?;
        }
        Ok(())
    }

    /// Reads a list and its manifests. `live` follows their entries, and becomes nothing when some of them are unknown.
    async fn list(&mut self, name: &str, live: &mut Option<Files>) -> Result<()> {
        let path = self.paths.manifest(name);
        let read = match self.seen.insert(path.clone()) {
            true => self.read(&path).await,
            false => get(&self.store, &path).await,
        };
        let read = read.and_then(|bytes| decode_manifest_list(path.as_ref(), &bytes));
        let Some(manifests) = self.found.note(read)? else {
            *live = None;
            return Ok(());
        };
        for manifest in manifests {
            let entries = self.manifest(&manifest.file_name).await?;
            let (Some(entries), Some(files)) = (entries, live.as_mut()) else {
                *live = None;
                continue;
            };
            let path = self.paths.manifest(&manifest.file_name);
            if self.found.note(apply_entries(&path, entries.iter().cloned(), files))?.is_none() {
                *live = None;
            }
        }
        Ok(())
    }

    async fn manifest(&mut self, name: &str) -> Result<Option<Arc<Vec<ManifestEntry>>>> {
        if let Some(known) = self.manifests.get(name) {
            return Ok(known.clone());
        }
        let path = self.paths.manifest(name);
        let read = self.read(&path).await.and_then(|bytes| decode_manifest(path.as_ref(), &bytes));
        let entries = self.found.note(read)?.map(Arc::new);
        self.manifests.insert(name.to_owned(), entries.clone());
        Ok(entries)
    }

    async fn index_manifest(&mut self, name: &str) -> Result<()> {
        let path = self.paths.manifest(name);
        if !self.seen.insert(path.clone()) {
            return Ok(());
        }
        let read = self.read(&path).await.and_then(|bytes| decode_index_manifest(path.as_ref(), &bytes));
        for entry in self.found.note(read)?.unwrap_or_default() {
            let path = self.paths.index(&entry.file_name);
            if self.seen.insert(path.clone()) {
                let read = self.read(&path).await;
                let read = match entry.index_type == DELETION_VECTORS {
                    true => read.and_then(|bytes| decode_index_file(path.as_ref(), &bytes, entry.vectors())).map(drop),
                    false => read.map(drop),
                };
                self.found.note(read)?;
            }
        }
        Ok(())
    }

    /// Reads data files through, several at a time.
    async fn data_files(&mut self, files: Files) -> Result<()> {
        let mut reads = Vec::new();
        for ((bucket, name), meta) in files {
            let path = self.paths.data_file(bucket, &name);
            if self.seen.insert(path.clone()) {
                reads.push(data_file(Arc::clone(&self.store), path, meta).boxed());
            }
        }
        let mut reads = stream::iter(reads).buffered(FILES_AT_ONCE);
        while let Some((size, read)) = reads.next().await {
            self.found.objects += u64::from(size.is_some());
            self.found.bytes += size.unwrap_or(0);
            self.found.note(read)?;
        }
        Ok(())
    }

    /// A snapshot that has expired meanwhile took its objects with it.
    async fn forgive_expired(&mut self, snapshot: &Path, before: usize) -> Result<()> {
        let new = self.found.damages.get(before..).unwrap_or_default();
        if new.iter().any(|damage| damage.problem == MISSING) {
            match self.store.head(snapshot).await.map_err(|error| Error::from_store(snapshot.as_ref(), "read", error)) {
                Err(Error::NotFound { .. }) => self.found.damages.truncate(before),
                found => drop(found?),
            }
        }
        Ok(())
    }
}

/// Reads a data file through, a window at a time; its blocks are verified on the way. Gives its size too, if it is there.
async fn data_file(store: StoreRef, path: Path, meta: Arc<DataFileMeta>) -> (Option<u64>, Result<()>) {
    let failed = |error| Error::from_store(path.as_ref(), "read", error);
    let size = match store.head(&path).await {
        Ok(found) => found.size,
        Err(error) => return (None, Err(failed(error))),
    };
    if i64::try_from(size) != Ok(meta.file_size) {
        let what = format!("it has {size} bytes, and the manifest says {}", meta.file_size);
        return (Some(size), Err(Error::corrupt(path.as_ref(), what)));
    }
    let mut start = 0;
    while start < size {
        let end = size.min(start + WINDOW);
        if let Err(error) = store.get_range(&path, start..end).await {
            return (Some(size), Err(failed(error)));
        }
        start = end;
    }
    (Some(size), Ok(()))
}

/// Directories of the tables below `warehouse`: `warehouse/<schema>.db/<table>`.
pub async fn tables_of(store: &StoreRef, warehouse: &Path) -> Result<Vec<Path>> {
    let below = async |directory: &Path| -> Result<Vec<Path>> {
        let listed = store
            .list_with_delimiter(Some(directory))
            .await
            .map_err(|error| Error::from_store(directory.as_ref(), "listed", error))?;
        Ok(listed.common_prefixes)
    };
    let mut tables = Vec::new();
    for database in below(warehouse).await? {
        tables.extend(below(&database).await?);
    }
    Ok(tables)
}
