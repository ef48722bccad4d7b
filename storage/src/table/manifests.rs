//! The manifests that a snapshot's lists name: which files came and went, oldest first.
//!
//! They are merged by size, like runs: the newest of them into one as soon as there are many, and an older one along
//! with them only if it is not much larger than they are together. So an entry is rewritten as often as the number of
//! entries doubles, whatever the age of the table, and what a commit writes depends on the files it changes, not on
//! those that there are. Once entries of files that are gone outnumber the rest, all are written anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::commit::Outbox;
use super::layout::{Layout, get};
use super::version::{self, Files};
use crate::error::{Error, Result};
use crate::paimon::manifest::{decode_manifest, encode_manifest};
use crate::paimon::{DataFileMeta, FileKind, ManifestEntry, ManifestFileMeta, SimpleStats, TablePaths};
use crate::store::StoreRef;

/// A list of more manifests than this is shortened.
pub(crate) const MANY_MANIFESTS: usize = 12;
/// The number of manifests that a shortened list has at most.
const FEW_MANIFESTS: usize = 6;
/// A manifest is merged with those behind it if it has at most so many times their entries.
const GROWTH: usize = 2;
/// Entries in one manifest, at a few hundred bytes each.
const MANIFEST_ENTRIES: usize = 16 * 1024;
/// Entries of files that are gone are of no account below this number.
const FEW_ENTRIES: usize = 1024;
/// Manifests read at one time.
const PARALLEL_READS: usize = 8;

/// A manifest that is written, and what it says.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub(crate) meta: ManifestFileMeta,
    changes: Vec<Change>,
}

/// A file that came or went.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    kind: FileKind,
    bucket: u32,
    file: Arc<DataFileMeta>,
}

impl Manifest {
    /// Rows of the files that came.
    pub(crate) fn rows(&self) -> i64 {
        self.changes.iter().filter(|change| change.kind == FileKind::Add).map(|change| change.file.row_count).sum()
    }
}

/// Files that came.
pub(crate) fn added(files: Vec<(u32, Arc<DataFileMeta>)>) -> Vec<Change> {
    files.into_iter().map(|(bucket, file)| Change { kind: FileKind::Add, bucket, file }).collect()
}

/// Reads the manifests of the list called `name`.
pub(crate) async fn read_list(store: &StoreRef, paths: &TablePaths, name: &str) -> Result<Vec<Manifest>> {
    let read = version::manifest_list(store, paths, name).await?.into_iter().map(|meta| {
        async move {
            let path = paths.manifest(&meta.file_name);
            let entries = decode_manifest(path.as_ref(), &get(store, &path).await?)?;
            let changes = entries.into_iter().map(|ManifestEntry { kind, bucket, file, .. }| {
                let bucket = u32::try_from(bucket)
                    .map_err(|_| Error::corrupt(path.as_ref(), format!("it has a bucket {bucket}")))?;
                Ok(Change { kind, bucket, file: Arc::new(file) })
            });
            let changes = changes.collect::<Result<_>>()?;
            Ok(Manifest { meta, changes })
        }
        .boxed()
    });
    stream::iter(read.collect::<Vec<_>>()).buffered(PARALLEL_READS).try_collect().await
}

/// Applies what `manifests` say, in order.
pub(crate) fn apply(paths: &TablePaths, manifests: &[Manifest], live: &mut Files) -> Result<()> {
    for manifest in manifests {
        let path = paths.manifest(&manifest.meta.file_name);
        for Change { kind, bucket, file } in &manifest.changes {
            version::apply_entry(&path, *kind, *bucket, Arc::clone(file), live)?;
        }
    }
    Ok(())
}

/// What leads from one set of files to another: removals first, as a merge's output may lie where its inputs were.
pub(crate) fn difference(from: &Files, to: &Files) -> Vec<Change> {
    let change = |kind, bucket: u32, file: &Arc<DataFileMeta>| Change { kind, bucket, file: Arc::clone(file) };
    let removed = from.iter().filter(|(file, _)| !to.contains_key(*file));
    let added = to.iter().filter(|(file, _)| !from.contains_key(*file));
    removed
        .map(|((bucket, _), file)| change(FileKind::Delete, *bucket, file))
        .chain(added.map(|((bucket, _), file)| change(FileKind::Add, *bucket, file)))
        .collect()
}

/// From which of `manifests` on they are to be merged into one. `live` files remain of them all.
pub(crate) fn merged_from(manifests: &[Manifest], live: usize) -> Option<usize> {
    let sizes: Vec<usize> = manifests.iter().map(|manifest| manifest.changes.len()).collect();
    tail(&sizes, live)
}

fn tail(sizes: &[usize], live: usize) -> Option<usize> {
    let entries: usize = sizes.iter().sum();
    if entries > live.saturating_mul(2).max(FEW_ENTRIES) {
        return Some(0);
    }
    if sizes.len() <= MANY_MANIFESTS {
        return None;
    }
    let (mut from, mut behind) = (sizes.len(), 0_usize);
    while from > 0 && (from >= FEW_MANIFESTS || sizes[from - 1] <= behind.saturating_mul(GROWTH)) {
        from -= 1;
        behind += sizes[from];
    }
    Some(from)
}

/// What `manifests` say, one behind the other.
pub(crate) fn joined(manifests: impl Iterator<Item = Manifest>) -> Vec<Change> {
    manifests.flat_map(|manifest| manifest.changes).collect()
}

/// What `manifests` say together. Of a file that came and went in them nothing is left.
pub(crate) fn merged(manifests: impl Iterator<Item = Manifest>) -> Vec<Change> {
    /// A file of that name went that had come before, and one came.
    #[derive(Default)]
    struct Net {
        removed: Option<Change>,
        added: Option<Change>,
    }
    let mut files: BTreeMap<(u32, String), Net> = BTreeMap::new();
    for change in manifests.flat_map(|manifest| manifest.changes) {
        let net = files.entry((change.bucket, change.file.file_name.clone())).or_default();
        match change.kind {
            FileKind::Add => net.added = Some(change),
            FileKind::Delete => {
                if net.added.take().is_none() {
                    net.removed = Some(change);
                }
            }
        }
    }
    let (removed, added): (Vec<_>, Vec<_>) = files.into_values().map(|net| (net.removed, net.added)).unzip();
    removed.into_iter().chain(added).flatten().collect()
}

/// Writes changes as manifests.
pub(crate) fn write(layout: &Layout, mut changes: Vec<Change>, outbox: &mut Outbox) -> Result<Vec<Manifest>> {
    let types = &layout.key_types;
    let bare = SimpleStats::concern_bytes(types);
    let mut manifests = Vec::new();
    while !changes.is_empty() {
        let rest = changes.split_off(changes.len().min(MANIFEST_ENTRIES));
        let entries = changes.iter().map(|change| {
            let mut file = change.file.as_ref().clone();
            if bare {
                file.key_stats = file.key_stats.without_bytes(&file.file_name, types)?;
            }
            Ok(ManifestEntry::new(change.kind, change.bucket, layout.options.buckets, file))
        });
        let entries = entries.collect::<Result<Vec<_>>>()?;
        let bytes = encode_manifest(&entries);
        let (name, size) = (layout.names.manifest(), bytes.len());
        outbox.put(layout.paths.manifest(&name), bytes);
        let meta = ManifestFileMeta::of(name, size, layout.schema.id, &entries);
        manifests.push(Manifest { meta, changes });
        changes = rest;
    }
    Ok(manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_rewritten_as_often_as_their_number_doubles() {
        // Every commit adds 10 files and removes none.
        let (mut sizes, mut live, mut written, mut most) = (Vec::new(), 0, 0, 0);
        for _ in 0..20_000 {
            sizes.push(10);
            live += 10;
            written += 10;
            if let Some(from) = tail(&sizes, live) {
                let merged: usize = sizes.drain(from..).sum();
                written += merged;
                sizes.push(merged);
            }
            most = most.max(sizes.len());
        }
        assert!(most <= MANY_MANIFESTS, "{most}");
        assert!(written < live * 14, "{} times", written / live);
    }

    #[test]
    fn a_large_old_manifest_stays_where_it_is() {
        let (mut sizes, live, mut written) = (vec![1_000_000], 1_000_000, 0);
        for commit in 0..1000 {
            // Four files come and four go, or a few more.
            let entries = 8 + commit % 3;
            sizes.push(entries);
            written += entries;
            if let Some(from) = tail(&sizes, live) {
                let merged: usize = sizes.drain(from..).sum();
                written += merged;
                sizes.push(merged);
            }
        }
        assert_eq!(sizes[0], 1_000_000);
        assert!(written < 9 * 1000 * 12, "{written}");
    }

    #[test]
    fn entries_of_files_that_are_gone_are_dropped_in_the_end() {
        assert_eq!(tail(&[5000, 4000, 1001], 5000), Some(0));
        assert_eq!(tail(&[5000, 4000, 1000], 5000), None);
        assert_eq!(tail(&[500, 500], 0), None);
    }

    #[test]
    fn what_came_and_went_leaves_nothing() {
        let meta = |name: &str, level| {
            let mut meta = DataFileMeta::sample(name);
            meta.level = level;
            Arc::new(meta)
        };
        let change = |kind, name: &str, level| Change { kind, bucket: 1, file: meta(name, level) };
        let manifest = |changes: Vec<Change>| Manifest { meta: ManifestFileMeta::of("m".into(), 1, 0, &[]), changes };
        let (add, delete) = (FileKind::Add, FileKind::Delete);
        let merged = merged(
            [
                manifest(vec![change(add, "new", 1), change(delete, "old", 0), change(add, "old", 5)]),
                manifest(vec![change(delete, "older", 3), change(add, "brief", 1)]),
                manifest(vec![change(delete, "brief", 1)]),
            ]
            .into_iter(),
        );
        assert_eq!(
            merged,
            [change(delete, "old", 0), change(delete, "older", 3), change(add, "new", 1), change(add, "old", 5)]
        );
    }
}
