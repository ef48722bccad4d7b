//! The difference to the last snapshot, as manifests, index files and a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;

use super::Prepared;
use super::bucket::Bucket;
use super::layout::{Layout, get};
use super::manifests::{self, MANY_MANIFESTS, Manifest};
use super::version::{self, Files as FileSet, LiveFile, TableVersion};
use crate::checkpoint::PreparedSnapshot;
use crate::error::{Error, Result};
use crate::paimon::deletion_vector;
use crate::paimon::manifest::{encode_index_manifest, encode_manifest_list};
use crate::paimon::snapshot::SNAPSHOT_VERSION;
use crate::paimon::{CommitKind, DataFileMeta, IndexManifestEntry, Snapshot};
use crate::store::{self, StoreRef};

/// Objects of a commit that are written at the same time.
const WRITES_AT_ONCE: usize = 8;

/// What the objects written so far describe. Snapshots are prepared one upon the other; which of them is published is
/// learnt afterwards.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The last published snapshot; 0 if there is none.
    published_id: u64,
    published_files: FileSet,
    published_manifests: Vec<Manifest>,
    published_index: Option<String>,
    /// The files of the last prepared snapshot, and the manifests that lead to them from the published one.
    files: FileSet,
    delta_manifests: Vec<Manifest>,
    /// The changes since the published snapshot, if the table has a changelog.
    changelog_manifests: Vec<Manifest>,
    /// Each bucket's index file of deletion vectors, and the index manifest that names them.
    index: BTreeMap<u32, IndexManifestEntry>,
    index_manifest: Option<String>,
    /// The last prepared snapshot.
    prepared_id: u64,
}

impl History {
    /// For a table that continues an earlier one of its name: the next snapshot removes the files of snapshot `id`. If that
    /// one is damaged it is replaced all the same, and its files become orphans.
    pub(crate) async fn replacing(store: &StoreRef, layout: &Layout, id: u64) -> Result<Self> {
        let read = async {
            let snapshot = read_snapshot(store, layout, id).await?;
            Self::read(store, layout, &snapshot, true).await
        };
        match read.await {
            Ok((mut history, _)) => {
                history.index.clear();
                // The old vectors go with their files.
                history.index_manifest = None;
                Ok(history)
            }
            Err(error @ (Error::Corrupt { .. } | Error::NotFound { .. })) => {
                tracing::warn!(table = %layout.paths.root(), snapshot = id, %error, "a damaged snapshot is replaced");
                Ok(Self { published_id: id, prepared_id: id, ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// At a snapshot, with its live files by bucket.
    pub(crate) async fn opened(
        store: &StoreRef,
        layout: &Layout,
        snapshot: &Snapshot,
        published: bool,
    ) -> Result<(Self, Vec<(u32, Arc<DataFileMeta>)>)> {
        let (history, index) = Self::read(store, layout, snapshot, published).await?;
        version::check_live(&layout.paths, &history.files)?;
        // A bucket's vectors are written as one file, so those of a second would be lost with the next change.
        if let Some(second) = index.iter().find(|entry| !history.index.values().any(|kept| kept == *entry)) {
            return Err(Error::invalid(format!(
                "object {} is one of several files with deletion vectors of bucket {}, which another engine wrote; let that \
                 engine compact the table in full",
                layout.paths.index(&second.file_name),
                second.bucket
            )));
        }
        let files = history.files.iter().map(|((bucket, _), meta)| (*bucket, Arc::clone(meta))).collect();
        Ok((history, files))
    }

    /// At a snapshot, with the entries of its index manifest.
    async fn read(
        store: &StoreRef,
        layout: &Layout,
        snapshot: &Snapshot,
        published: bool,
    ) -> Result<(Self, Vec<IndexManifestEntry>)> {
        let paths = &layout.paths;
        let base = manifests::read_list(store, paths, &snapshot.base_manifest_list).await?;
        let delta = manifests::read_list(store, paths, &snapshot.delta_manifest_list).await?;
        let mut before = FileSet::new();
        manifests::apply(paths, &base, &mut before)?;
        let mut live = before.clone();
        manifests::apply(paths, &delta, &mut live)?;
        let index = match &snapshot.index_manifest {
            Some(name) => version::index_manifest(store, paths, name).await?,
            None => Vec::new(),
        };
        let mut history = Self {
            files: live.clone(),
            index: index.iter().filter_map(|entry| Some((u32::try_from(entry.bucket).ok()?, entry.clone()))).collect(),
            index_manifest: snapshot.index_manifest.clone(),
            prepared_id: snapshot.id,
            ..Self::default()
        };
        if published {
            history.published_id = snapshot.id;
            history.published_files = live.clone();
            history.published_manifests = base.into_iter().chain(delta).collect();
            history.published_index = snapshot.index_manifest.clone();
        } else {
            history.published_id = snapshot.id.saturating_sub(1);
            history.published_files = before;
            history.published_manifests = base;
            history.delta_manifests = delta;
            if let Some(name) = &snapshot.changelog_manifest_list {
                history.changelog_manifests = manifests::read_list(store, paths, name).await?;
            }
        }
        Ok((history, index))
    }

    /// The deletion vectors of the last prepared snapshot.
    pub(crate) fn index(&self) -> impl Iterator<Item = &IndexManifestEntry> {
        self.index.values()
    }

    /// The last prepared snapshot is, or will be, published.
    pub(crate) fn published(&mut self) {
        self.published_id = self.prepared_id;
        self.published_files.clone_from(&self.files);
        self.published_manifests.append(&mut self.delta_manifests);
        self.changelog_manifests.clear();
        self.published_index.clone_from(&self.index_manifest);
    }

    /// Writes what the next snapshot refers to.
    pub(crate) async fn prepare(
        &mut self,
        layout: &Layout,
        buckets: &mut [Bucket],
        commit_identifier: u64,
        properties: BTreeMap<String, String>,
    ) -> Result<Prepared> {
        let mut outbox = Outbox::default();
        self.write_vectors(layout, buckets, &mut outbox)?;

        let current: FileSet = buckets
            .iter()
            .flat_map(|bucket| bucket.files.iter().map(|file| (bucket.number, &file.meta)))
            .map(|(bucket, meta)| ((bucket, meta.file_name.clone()), Arc::clone(meta)))
            .collect();
        let changes = manifests::difference(&self.files, &current);
        self.forget_unnamed(layout, buckets).await;
        self.files = current;
        if self.delta_manifests.len() >= MANY_MANIFESTS {
            let changes = manifests::difference(&self.published_files, &self.files);
            self.delta_manifests = manifests::write(layout, changes, &mut outbox)?;
        } else if !changes.is_empty() {
            self.delta_manifests.extend(manifests::write(layout, changes, &mut outbox)?);
        }
        if let Some(from) = manifests::merged_from(&self.published_manifests, self.published_files.len()) {
            let merged = manifests::merged(self.published_manifests.drain(from..));
            self.published_manifests.extend(manifests::write(layout, merged, &mut outbox)?);
        }
        let written = buckets.iter_mut().flat_map(|bucket| {
            let number = bucket.number;
            bucket.changelog.drain(..).map(move |file| (number, file))
        });
        let written = manifests::added(written.collect());
        self.changelog_manifests.extend(manifests::write(layout, written, &mut outbox)?);
        if self.changelog_manifests.len() >= MANY_MANIFESTS {
            let joined = manifests::joined(self.changelog_manifests.drain(..));
            self.changelog_manifests = manifests::write(layout, joined, &mut outbox)?;
        }
        let changelog = match self.changelog_manifests.as_slice() {
            [] => None,
            manifests => Some(write_list(layout, manifests, &mut outbox)),
        };
        let changes = self.changelog_manifests.iter().map(Manifest::rows).sum();
        let (base, base_size) = write_list(layout, &self.published_manifests, &mut outbox);
        let (delta, delta_size) = write_list(layout, &self.delta_manifests, &mut outbox);

        let rows = |files: &FileSet| files.values().map(|meta| meta.row_count).sum::<i64>();
        let (total, before) = (rows(&self.files), rows(&self.published_files));
        let removes = self.delta_manifests.iter().any(|manifest| manifest.meta.num_deleted_files > 0);
        let kind = if removes || self.index_manifest != self.published_index {
            CommitKind::Overwrite
        } else {
            CommitKind::Append
        };
        outbox.send(layout).await?;
        self.prepared_id = self.published_id + 1;
        let snapshot = Snapshot {
            version: SNAPSHOT_VERSION,
            uuid: None,
            id: self.prepared_id,
            schema_id: layout.schema.id,
            base_manifest_list: base,
            base_manifest_list_size: Some(base_size),
            delta_manifest_list: delta,
            delta_manifest_list_size: Some(delta_size),
            changelog_manifest_list_size: changelog.as_ref().map(|(_, size)| *size),
            changelog_record_count: changelog.is_some().then_some(changes),
            changelog_manifest_list: changelog.map(|(name, _)| name),
            index_manifest: self.index_manifest.clone(),
            commit_user: layout.ctx.commit_user.clone(),
            writer_version: Some(concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_owned()),
            commit_identifier: commit_identifier as i64,
            commit_kind: kind,
            time_millis: layout.ctx.clock.now_ms(),
            total_record_count: total,
            delta_record_count: total - before,
            watermark: None,
            statistics: None,
            properties: (!properties.is_empty()).then_some(properties),
            next_row_id: Some(0),
        };
        let version = Arc::new(version_of(layout, buckets, snapshot.id));
        Ok(Prepared { snapshot: PreparedSnapshot { id: snapshot.id, json: snapshot.to_digested_json() }, version })
    }

    /// Deletes files that came and went since the last snapshot was prepared: none has ever named them.
    async fn forget_unnamed(&self, layout: &Layout, buckets: &mut [Bucket]) {
        for bucket in buckets {
            for file in bucket.removed.drain(..) {
                let name = (bucket.number, file.meta.file_name.clone());
                // A merge that was given up may still be reading it.
                if !file.merging {
                    file.keys.remove_file();
                }
                if file.merging || self.files.contains_key(&name) || self.published_files.contains_key(&name) {
                    continue;
                }
                if let Err(error) = store::delete(&**layout.store(), &file.path).await {
                    tracing::debug!(object = %file.path, %error, "a file that nothing refers to was not deleted; it is an orphan now");
                }
            }
        }
    }

    /// Writes the deletion vectors of every bucket where they changed, and the index manifest if any did. A bucket's
    /// vectors are one file, since some writers keep only the last of several.
    fn write_vectors(&mut self, layout: &Layout, buckets: &mut [Bucket], outbox: &mut Outbox) -> Result<()> {
        let mut changed = false;
        for bucket in buckets.iter_mut().filter(|bucket| bucket.vectors_changed) {
            let vectors: Vec<_> = bucket
                .files
                .iter()
                .filter(|file| !file.deleted.is_empty())
                .map(|file| (file.meta.file_name.clone(), file.deleted.as_ref()))
                .collect();
            if vectors.is_empty() {
                changed |= self.index.remove(&bucket.number).is_some();
            } else {
                let (bytes, metas) = deletion_vector::encode_index_file(&vectors)?;
                let (name, size) = (layout.names.index_file(), bytes.len());
                outbox.put(layout.paths.index(&name), bytes);
                self.index
                    .insert(bucket.number, IndexManifestEntry::deletion_vectors(bucket.number, name, size, metas));
                changed = true;
            }
            bucket.vectors_changed = false;
        }
        if changed {
            let entries: Vec<_> = self.index.values().cloned().collect();
            self.index_manifest = None;
            if !entries.is_empty() {
                let name = layout.names.index_manifest();
                outbox.put(layout.paths.manifest(&name), encode_index_manifest(&entries));
                self.index_manifest = Some(name);
            }
        }
        Ok(())
    }
}

/// Objects of one commit. None refers to another in a way that readers follow before the snapshot is there, so they are
/// written side by side.
#[derive(Default)]
pub(crate) struct Outbox(Vec<(Path, Vec<u8>)>);

impl Outbox {
    pub(crate) fn put(&mut self, path: Path, bytes: Vec<u8>) {
        self.0.push((path, bytes));
    }

    async fn send(self, layout: &Layout) -> Result<()> {
        let writes: Vec<_> =
            self.0.into_iter().map(|(path, bytes)| async move { layout.put(&path, bytes).await }.boxed()).collect();
        stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).try_collect().await
    }
}

/// The state of the buckets for readers.
fn version_of(layout: &Layout, buckets: &[Bucket], snapshot_id: u64) -> TableVersion {
    let mut files = Vec::new();
    for bucket in buckets {
        files.extend(bucket.files.iter().map(|file| LiveFile {
            meta: Arc::clone(&file.meta),
            bucket: bucket.number,
            path: file.path.clone(),
            deleted: (!file.deleted.is_empty()).then(|| Arc::clone(&file.deleted)),
            keys: Some(Arc::clone(&file.keys)),
        }));
    }
    TableVersion::assemble(
        layout.paths.root().clone(),
        &layout.schema,
        &layout.schemas,
        snapshot_id,
        layout.options.buckets,
        files,
    )
}

fn write_list(layout: &Layout, manifests: &[Manifest], outbox: &mut Outbox) -> (String, i64) {
    let metas: Vec<_> = manifests.iter().map(|manifest| manifest.meta.clone()).collect();
    let bytes = encode_manifest_list(&metas);
    let (name, size) = (layout.names.manifest_list(), bytes.len() as i64);
    outbox.put(layout.paths.manifest(&name), bytes);
    (name, size)
}

/// Reads the snapshot file numbered `id` of a table.
pub(crate) async fn read_snapshot(store: &StoreRef, layout: &Layout, id: u64) -> Result<Snapshot> {
    let path = layout.paths.snapshot(id);
    let snapshot = Snapshot::from_json(path.as_ref(), &get(store, &path).await?)?;
    if snapshot.id != id {
        return Err(Error::corrupt(path.as_ref(), format!("it holds snapshot {}", snapshot.id)));
    }
    Ok(snapshot)
}
