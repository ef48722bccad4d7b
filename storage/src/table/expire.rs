//! What nobody needs any more is deleted: old snapshots with the objects that only they use, and orphans.
//!
//! A snapshot file goes before the objects behind it, so that whoever finds a snapshot finds all of it. What a crash
//! leaves behind then is an orphan: an object that no snapshot, tag or checkpoint leads to. A request to create a snapshot
//! that arrives when its number has expired already leaves a snapshot that leads to nothing; it is deleted as well.
//!
//! Only the owner of a table's source does this, one table after the other.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use serde::Deserialize;

use super::layout::{get, numbers};
use super::version;
use crate::error::{Error, Result};
use crate::paimon::manifest::{decode_index_manifest, decode_manifest};
use crate::paimon::{FileKind, ManifestEntry, Snapshot, TablePaths};
use crate::store::durable::is_unfinished;
use crate::store::{self, StoreRef};

#[cfg(test)]
mod tests;

/// Snapshots that one run expires at most, so that it ends.
const SNAPSHOTS_AT_ONCE: usize = 512;
/// Requests under way at one time.
const PARALLEL: usize = 8;
/// Deletions are spread in so many slices, each of so many objects at least.
const SLICES: u32 = 16;
const SLICE: usize = 16;

/// How long old things stay. The names and defaults are Paimon's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Snapshots younger than this stay (`snapshot.time-retained`).
    pub time_retained_ms: i64,
    /// So many of the newest snapshots stay, however old they are (`snapshot.num-retained.min`). At least 1.
    pub min_snapshots: usize,
    /// Of more than this the oldest go, however young they are (`snapshot.num-retained.max`).
    pub max_snapshots: usize,
    /// Objects that nothing leads to stay so long: they may belong to a snapshot that is being made.
    pub orphan_age_ms: i64,
    /// Over how long the deletions of one run are spread if they are many: a file system that is told to forget hundreds
    /// of files at once keeps commits waiting while it does.
    pub spread: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            time_retained_ms: 3_600_000,
            min_snapshots: 10,
            max_snapshots: usize::MAX,
            orphan_age_ms: 86_400_000,
            spread: Duration::ZERO,
        }
    }
}

/// Who needs an old snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A tag: its snapshot's objects stay, though the snapshot's number may go.
    Tag(String),
    /// A reader of another engine that has said how far it is: everything from there on stays.
    Consumer(String),
    /// A branch, whose snapshots share objects with the table's: everything stays.
    Branch(String),
    /// A transaction or a query of this process.
    Reader,
}

/// Something that keeps objects from being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who.
    pub holder: Holder,
    /// The oldest snapshot that is needed.
    pub snapshot_id: u64,
}

/// What an expiry did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expired {
    /// Snapshots that are gone.
    pub snapshots: usize,
    /// Objects deleted with them, the snapshot files not counted.
    pub objects: usize,
    /// The oldest snapshot left; `None` for a table without any.
    pub earliest: Option<u64>,
    /// Who needs old snapshots.
    pub holds: Vec<Hold>,
}

/// Orphans that were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orphans {
    /// How many.
    pub objects: usize,
    /// Their size.
    pub bytes: u64,
}

/// Deletes snapshots that are old enough and held by nobody, and the objects that only they need.
///
/// `oldest_read` is the oldest snapshot that a reader of this process is on.
///
/// Errors: if something of a snapshot cannot be read or deleted. What was deleted until then was needed by nobody.
pub async fn expire_snapshots(
    store: &StoreRef,
    table: &Path,
    now_ms: i64,
    retention: &Retention,
    oldest_read: Option<u64>,
) -> Result<Expired> {
    let paths = TablePaths::new(table.clone());
    let mut ids = snapshot_ids(store, &paths).await?;
    loop {
        let expired = expire_listed(store, &paths, &ids, now_ms, retention, oldest_read).await;
        let Err(Error::NotFound { .. }) = &expired else { return expired };
        match listed_without_some(store, &paths, &ids).await? {
            Some(listed) => ids = listed,
            None => return expired,
        }
    }
}

/// The snapshots that are there now, if some of `known` no longer are: a deletion of an earlier process came late, or
/// another server has taken over meanwhile. What could not be read then need not be missing.
async fn listed_without_some(store: &StoreRef, paths: &TablePaths, known: &[u64]) -> Result<Option<Vec<u64>>> {
    let listed = snapshot_ids(store, paths).await?;
    let is_gone = known.iter().any(|id| listed.binary_search(id).is_err());
    Ok(is_gone.then_some(listed))
}

async fn expire_listed(
    store: &StoreRef,
    paths: &TablePaths,
    ids: &[u64],
    now_ms: i64,
    retention: &Retention,
    oldest_read: Option<u64>,
) -> Result<Expired> {
    let tags = tags(store, paths).await?;
    let mut holds: Vec<Hold> =
        tags.iter().map(|(name, tag)| Hold { holder: Holder::Tag(name.clone()), snapshot_id: tag.id }).collect();
    holds.extend(consumers(store, paths).await?);
    let first = ids.first().copied();
    for name in branches(store, paths).await? {
        holds.push(Hold { holder: Holder::Branch(name), snapshot_id: first.unwrap_or(0) });
    }
    holds.extend(oldest_read.map(|snapshot_id| Hold { holder: Holder::Reader, snapshot_id }));
    let held = holds.iter().filter(|hold| !matches!(hold.holder, Holder::Tag(_))).map(|hold| hold.snapshot_id).min();

    // Whether a snapshot may go, of which there are so many with those behind it.
    let is_over = |snapshot: &Snapshot, left: usize| {
        held.is_none_or(|held| held > snapshot.id)
            && (left > retention.max_snapshots
                || now_ms.saturating_sub(snapshot.time_millis) >= retention.time_retained_ms)
    };
    let mut old = Vec::new();
    let candidates = ids.len().saturating_sub(retention.min_snapshots.max(1)).min(SNAPSHOTS_AT_ONCE);
    for (index, &id) in ids.iter().enumerate().take(candidates) {
        let snapshot = read_snapshot(store, &paths.snapshot(id)).await?;
        if !is_over(&snapshot, ids.len() - index) {
            break;
        }
        old.push(snapshot);
    }
    if let (Some(held), Some(&next)) = (held, ids.get(old.len()))
        && held < next
    {
        // The file of the one that is held is lost. What its readers need and those of the next do not is not known.
        old.pop();
    }
    if old.is_empty() {
        return Ok(Expired { earliest: first, holds, ..Expired::default() });
    }
    let (next, mut kept) = first_whole(store, paths, ids, &mut old, is_over).await?;
    for (_, tag) in &tags {
        kept.add_live(store, paths, tag).await?;
    }
    let mut obsolete = Needed::default();
    for (snapshot, follower) in old.iter().zip(old.iter().skip(1).chain([&next])) {
        for added in
            [obsolete.add_own(store, paths, snapshot).await, obsolete.add_removed(store, paths, follower).await]
        {
            match added {
                Err(Error::NotFound { object }) => {
                    tracing::info!(table = %paths.root(), snapshot = snapshot.id, missing = object, "a snapshot had expired before");
                }
                other => other?,
            }
        }
    }
    let mut obsolete: Vec<Path> = obsolete.0.difference(&kept.0).cloned().collect();
    // In the same order every time.
    obsolete.sort_unstable();

    // A reader that looks for the oldest snapshot does not begin with one that is about to go.
    store::write(&**store, &paths.earliest_hint(), Bytes::from(next.id.to_string())).await?;
    for snapshot in &old {
        store::delete(&**store, &paths.snapshot(snapshot.id)).await?;
    }
    let objects = delete_all(store, &obsolete, retention.spread).await?;
    Ok(Expired { snapshots: old.len(), objects, earliest: Some(next.id), holds })
}

/// The oldest snapshot behind the `old` ones, with what its readers need. If something of it is missing, and it may go, then
/// it was created when it had expired already and is added to the old ones.
async fn first_whole(
    store: &StoreRef,
    paths: &TablePaths,
    ids: &[u64],
    old: &mut Vec<Snapshot>,
    is_over: impl Fn(&Snapshot, usize) -> bool,
) -> Result<(Snapshot, Needed)> {
    loop {
        // At least the newest is not among the old ones.
        let snapshot = read_snapshot(store, &paths.snapshot(ids[old.len()])).await?;
        let left = ids.len() - old.len();
        let mut needed = Needed::default();
        match needed.add_live(store, paths, &snapshot).await {
            Err(Error::NotFound { .. }) if left > 1 && is_over(&snapshot, left) => old.push(snapshot),
            other => return other.map(|()| (snapshot, needed)),
        }
    }
}

/// Deletes objects of the table that no reader of a snapshot, a tag or a checkpoint needs, and files that were being
/// written when their process died.
///
/// `prepared` are the texts of snapshots that a checkpoint holds, published or not.
///
/// Errors: if anything that may lead to objects cannot be read; nothing was deleted then.
pub async fn remove_orphans(
    store: &StoreRef,
    table: &Path,
    now_ms: i64,
    retention: &Retention,
    prepared: &[&str],
) -> Result<Orphans> {
    let paths = TablePaths::new(table.clone());
    if !branches(store, &paths).await?.is_empty() {
        return Ok(Orphans::default());
    }
    // First the objects, then what leads to them: what comes meanwhile is not among the objects.
    let listed: Vec<ObjectMeta> = store
        .list(Some(table))
        .try_collect()
        .await
        .map_err(|error| Error::from_store(table.as_ref(), "listed", error))?;
    let mut ids = snapshot_ids(store, &paths).await?;
    let mut needed = loop {
        let needed = Needed::of_all(store, &paths, &ids).await;
        let Err(Error::NotFound { .. }) = &needed else { break needed? };
        match listed_without_some(store, &paths, &ids).await? {
            Some(listed) => ids = listed,
            None => break needed?,
        }
    };
    for (_, tag) in tags(store, &paths).await? {
        needed.add_live(store, &paths, &tag).await?;
    }
    for json in prepared {
        needed.add_live(store, &paths, &Snapshot::from_json(table.as_ref(), json.as_bytes())?).await?;
    }
    let mut orphans = Orphans::default();
    let mut doomed = Vec::new();
    for object in listed {
        let age = now_ms.saturating_sub(object.last_modified.timestamp_millis());
        if age >= retention.orphan_age_ms
            && (is_of_snapshots(table, &object.location) || is_unfinished(&object.location))
            && !needed.0.contains(&object.location)
        {
            orphans.bytes += object.size;
            doomed.push(object.location);
        }
    }
    orphans.objects = delete_all(store, &doomed, retention.spread).await?;
    Ok(orphans)
}

/// Whether an object can only be there for the sake of snapshots: schemas, hints and other engines' files are not.
fn is_of_snapshots(table: &Path, object: &Path) -> bool {
    let Some(mut parts) = object.prefix_match(table) else { return false };
    let directory = parts.next();
    let directory = directory.as_ref().map_or("", |part| part.as_ref());
    matches!(directory, "manifest" | "index") || directory.starts_with("bucket-")
}

/// Paths of objects that snapshots lead to.
#[derive(Debug, Default)]
struct Needed(HashSet<Path>);

impl Needed {
    /// What readers of any of the snapshots read.
    async fn of_all(store: &StoreRef, paths: &TablePaths, ids: &[u64]) -> Result<Self> {
        let mut needed = Self::default();
        let mut before = None;
        for &id in ids {
            let snapshot = read_snapshot(store, &paths.snapshot(id)).await?;
            if before.is_some_and(|before: u64| before.checked_add(1) == Some(id)) {
                needed.add_following(store, paths, &snapshot).await?;
            } else {
                needed.add_live(store, paths, &snapshot).await?;
            }
            before = Some(id);
        }
        Ok(needed)
    }

    /// What a reader of the snapshot reads.
    async fn add_live(&mut self, store: &StoreRef, paths: &TablePaths, snapshot: &Snapshot) -> Result<()> {
        self.add_own(store, paths, snapshot).await?;
        let base = version::manifest_list(store, paths, &snapshot.base_manifest_list).await?;
        let delta = version::manifest_list(store, paths, &snapshot.delta_manifest_list).await?;
        let mut live = version::live_entries(store, paths, &base).await?;
        version::apply_manifests(store, paths, &delta, &mut live).await?;
        for ((bucket, name), meta) in live {
            let directory = paths.bucket(bucket);
            self.0.extend(meta.extra_files.iter().map(|extra| directory.clone().join(extra.as_str())));
            self.0.insert(directory.join(name));
        }
        Ok(())
    }

    /// The snapshot's metadata and deletion vectors.
    async fn add_own(&mut self, store: &StoreRef, paths: &TablePaths, snapshot: &Snapshot) -> Result<()> {
        let mut lists = vec![&snapshot.base_manifest_list, &snapshot.delta_manifest_list];
        lists.extend(&snapshot.changelog_manifest_list);
        for list in lists {
            for manifest in version::manifest_list(store, paths, list).await? {
                self.0.insert(paths.manifest(&manifest.file_name));
            }
            self.0.insert(paths.manifest(list));
        }
        if let Some(name) = &snapshot.index_manifest {
            let path = paths.manifest(name);
            if self.0.insert(path.clone()) {
                for entry in decode_index_manifest(path.as_ref(), &get(store, &path).await?)? {
                    self.0.insert(paths.index(&entry.file_name));
                }
            }
        }
        if let Some(changelog) = &snapshot.changelog_manifest_list {
            for manifest in version::manifest_list(store, paths, changelog).await? {
                self.add_entries(store, paths, &manifest.file_name, |_| true).await?;
            }
        }
        Ok(())
    }

    /// Data files that the snapshot no longer has, although the one before did.
    async fn add_removed(&mut self, store: &StoreRef, paths: &TablePaths, snapshot: &Snapshot) -> Result<()> {
        for manifest in version::manifest_list(store, paths, &snapshot.delta_manifest_list).await? {
            self.add_entries(store, paths, &manifest.file_name, |entry| entry.kind == FileKind::Delete).await?;
        }
        Ok(())
    }

    /// What a reader of the snapshot reads, beside what a reader of the one before it does.
    async fn add_following(&mut self, store: &StoreRef, paths: &TablePaths, snapshot: &Snapshot) -> Result<()> {
        self.add_own(store, paths, snapshot).await?;
        let mut added = Self::default();
        for manifest in version::manifest_list(store, paths, &snapshot.delta_manifest_list).await? {
            let path = paths.manifest(&manifest.file_name);
            for entry in decode_manifest(path.as_ref(), &get(store, &path).await?)? {
                match entry.kind {
                    FileKind::Add => added.add_file(paths, &entry),
                    // It may have come with the very same snapshot.
                    FileKind::Delete => added.remove_file(paths, &entry),
                }
            }
        }
        self.0.extend(added.0);
        Ok(())
    }

    async fn add_entries(
        &mut self,
        store: &StoreRef,
        paths: &TablePaths,
        manifest: &str,
        wanted: impl Fn(&ManifestEntry) -> bool,
    ) -> Result<()> {
        let path = paths.manifest(manifest);
        let entries = decode_manifest(path.as_ref(), &get(store, &path).await?)?;
        entries.iter().filter(|entry| wanted(entry)).for_each(|entry| self.add_file(paths, entry));
        Ok(())
    }

    fn add_file(&mut self, paths: &TablePaths, entry: &ManifestEntry) {
        self.0.extend(files_of(paths, entry));
    }

    fn remove_file(&mut self, paths: &TablePaths, entry: &ManifestEntry) {
        for path in files_of(paths, entry) {
            self.0.remove(&path);
        }
    }
}

/// The data file that an entry names, and those that belong to it.
fn files_of(paths: &TablePaths, entry: &ManifestEntry) -> Vec<Path> {
    let Ok(bucket) = u32::try_from(entry.bucket) else { return Vec::new() };
    let directory = paths.bucket(bucket);
    let extra = entry.file.extra_files.iter().map(String::as_str);
    extra.chain([entry.file.file_name.as_str()]).map(|name| directory.clone().join(name)).collect()
}

/// Deletes objects, and says how many there were to delete. One that is gone already is as good as deleted.
async fn delete_all(store: &StoreRef, paths: &[Path], spread: Duration) -> Result<usize> {
    for (number, slice) in paths.chunks(paths.len().div_ceil(SLICES as usize).max(SLICE)).enumerate() {
        if number > 0 && !spread.is_zero() {
            tokio::time::sleep(spread / SLICES).await;
        }
        let deletions = slice.iter().map(|path| store::delete(&**store, path).boxed());
        stream::iter(deletions.collect::<Vec<_>>()).buffer_unordered(PARALLEL).try_collect::<()>().await?;
    }
    Ok(paths.len())
}

async fn read_snapshot(store: &StoreRef, path: &Path) -> Result<Snapshot> {
    Snapshot::from_json(path.as_ref(), &get(store, path).await?)
}

/// Names of the objects directly in a directory.
async fn names(store: &StoreRef, directory: &Path) -> Result<Vec<String>> {
    let listed = store
        .list_with_delimiter(Some(directory))
        .await
        .map_err(|error| Error::from_store(directory.as_ref(), "listed", error))?;
    Ok(listed.objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect())
}

/// Numbers of the published snapshots, in order.
async fn snapshot_ids(store: &StoreRef, paths: &TablePaths) -> Result<Vec<u64>> {
    numbers(store, &paths.snapshots(), "snapshot-").await
}

/// The table's tags: snapshots under a name (`tag/tag-<name>`).
async fn tags(store: &StoreRef, paths: &TablePaths) -> Result<Vec<(String, Snapshot)>> {
    let directory = paths.root().clone().join("tag");
    let mut tags = Vec::new();
    for file in names(store, &directory).await? {
        if let Some(name) = file.strip_prefix("tag-") {
            match read_snapshot(store, &directory.clone().join(file.as_str())).await {
                Ok(tag) => tags.push((name.to_owned(), tag)),
                // Deleted since it was listed.
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(tags)
}

/// Readers of other engines that keep their progress with the table (`consumer/consumer-<id>`).
async fn consumers(store: &StoreRef, paths: &TablePaths) -> Result<Vec<Hold>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Consumer {
        next_snapshot: u64,
    }
    let directory = paths.root().clone().join("consumer");
    let mut holds = Vec::new();
    for file in names(store, &directory).await? {
        let Some(name) = file.strip_prefix("consumer-") else { continue };
        let path = directory.clone().join(file.as_str());
        let Some(json) = store::read_optional(&**store, &path).await? else { continue };
        let consumer: Consumer = serde_json::from_slice(&json)
            .map_err(|error| Error::corrupt(path.as_ref(), format!("not a consumer's progress: {error}")))?;
        holds.push(Hold { holder: Holder::Consumer(name.to_owned()), snapshot_id: consumer.next_snapshot });
    }
    Ok(holds)
}

/// The table's branches (`branch/branch-<name>/`).
async fn branches(store: &StoreRef, paths: &TablePaths) -> Result<Vec<String>> {
    let directory = paths.root().clone().join("branch");
    let listed = store
        .list_with_delimiter(Some(&directory))
        .await
        .map_err(|error| Error::from_store(directory.as_ref(), "listed", error))?;
    let names = listed.common_prefixes.iter().filter_map(|path| path.filename()?.strip_prefix("branch-"));
    Ok(names.map(str::to_owned).collect())
}
