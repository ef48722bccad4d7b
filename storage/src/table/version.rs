//! One version of a table, as readers see it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use roaring::RoaringBitmap;

use super::key_index::KeySet;
use super::layout::get;
use crate::error::{Error, Result};
use crate::paimon::deletion_vector::decode_index_file;
use crate::paimon::manifest::{DELETION_VECTORS, decode_index_manifest, decode_manifest, decode_manifest_list};
use crate::paimon::{
    DataFileMeta, FileKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta, Snapshot, TablePaths, TableSchema,
};
use crate::store::StoreRef;

/// Objects read at one time.
const PARALLEL_READS: usize = 8;

/// Live files by bucket and name.
pub(crate) type Files = BTreeMap<(u32, String), Arc<DataFileMeta>>;

/// One data file of a version.
#[derive(Debug, Clone)]
pub struct LiveFile {
    /// What the manifest says about the file.
    pub meta: Arc<DataFileMeta>,
    /// The bucket whose keys it holds.
    pub bucket: u32,
    /// Where it lies in the store.
    pub path: Path,
    /// Positions of its rows that are gone; none if all rows are live.
    pub deleted: Option<Arc<RoaringBitmap>>,
    /// The keys of its rows, if the table's writer is in this process.
    pub(crate) keys: Option<Arc<KeySet>>,
}

impl LiveFile {
    /// A file whose keys are only in the file itself.
    pub fn new(meta: Arc<DataFileMeta>, bucket: u32, path: Path, deleted: Option<Arc<RoaringBitmap>>) -> Self {
        Self { meta, bucket, path, deleted, keys: None }
    }

    /// The number of live rows.
    pub fn row_count(&self) -> u64 {
        let dead = self.deleted.as_ref().map_or(0, |deleted| deleted.len());
        u64::try_from(self.meta.row_count).unwrap_or(0).saturating_sub(dead)
    }

    /// The positions of its first and its last live row; none if it has no live rows.
    pub fn first_and_last_live(&self) -> Option<(u32, u32)> {
        let end = u32::try_from(self.meta.row_count).ok()?;
        let (mut first, mut last) = (0, end.checked_sub(1)?);
        if let Some(deleted) = &self.deleted {
            if let Some(run) = deleted.iter().next_range().filter(|run| *run.start() == 0) {
                first = run.end().checked_add(1)?;
            }
            if let Some(run) = deleted.iter().next_range_back().filter(|run| *run.end() >= last) {
                last = run.start().checked_sub(1)?;
            }
        }
        (first <= last).then_some((first, last))
    }
}

/// The files and deletion vectors of one snapshot. Each key has exactly one live row.
#[derive(Debug, Clone)]
pub struct TableVersion {
    /// The table's directory.
    pub path: Path,
    /// The newest schema.
    pub schema: Arc<TableSchema>,
    /// The newest schema and every one that a file was written with, by id.
    pub schemas: Arc<BTreeMap<u64, Arc<TableSchema>>>,
    /// The snapshot's number.
    pub snapshot_id: u64,
    /// Number of hash buckets.
    pub buckets: u32,
    /// The live files, ordered by bucket, then level, then smallest key's bytes, and then name.
    pub files: Vec<LiveFile>,
}

impl TableVersion {
    /// The exact number of live rows.
    pub fn row_count(&self) -> u64 {
        self.files.iter().map(LiveFile::row_count).sum()
    }

    /// Reads the version that a snapshot describes. `snapshot_json` is the snapshot file's text, published or not.
    pub async fn load(store: &StoreRef, path: &Path, snapshot_json: &str) -> Result<Self> {
        let paths = TablePaths::new(path.clone());
        let snapshot = Snapshot::from_json(path.as_ref(), snapshot_json.as_bytes())?;
        let schema = read_schema(store, &paths, snapshot.schema_id).await?;
        let base = manifest_list(store, &paths, &snapshot.base_manifest_list).await?;
        let delta = manifest_list(store, &paths, &snapshot.delta_manifest_list).await?;
        let mut live = live_entries(store, &paths, &base).await?;
        apply_manifests(store, &paths, &delta, &mut live).await?;
        check_live(&paths, &live)?;
        let index = match &snapshot.index_manifest {
            Some(name) => index_manifest(store, &paths, name).await?,
            None => Vec::new(),
        };
        let mut deleted = vectors(store, &paths, index.iter()).await?;
        let schemas = read_schemas(store, &paths, &schema, live.values()).await?;
        let buckets = schema.buckets()?;
        let files = live.into_iter().map(|((bucket, name), meta)| {
            let deleted = deleted.remove(&name).map(Arc::new);
            LiveFile::new(meta, bucket, paths.data_file(bucket, &name), deleted)
        });
        let files = files.collect();
        Ok(Self::assemble(path.clone(), &schema, &Arc::new(schemas), snapshot.id, buckets, files))
    }

    /// A version of these files, put in order.
    pub(crate) fn assemble(
        path: Path,
        schema: &Arc<TableSchema>,
        schemas: &Arc<BTreeMap<u64, Arc<TableSchema>>>,
        snapshot_id: u64,
        buckets: u32,
        mut files: Vec<LiveFile>,
    ) -> Self {
        files.sort_by(|a, b| {
            let key = |file: &LiveFile| (file.bucket, file.meta.level);
            key(a)
                .cmp(&key(b))
                .then_with(|| a.meta.min_key.cmp(&b.meta.min_key))
                .then_with(|| a.meta.file_name.cmp(&b.meta.file_name))
        });
        Self { path, schema: Arc::clone(schema), schemas: Arc::clone(schemas), snapshot_id, buckets, files }
    }
}

pub(crate) async fn read_schema(store: &StoreRef, paths: &TablePaths, id: u64) -> Result<Arc<TableSchema>> {
    let path = paths.schema(id);
    let schema = TableSchema::from_json(path.as_ref(), &get(store, &path).await?)?;
    if schema.id != id {
        return Err(Error::corrupt(path.as_ref(), format!("it holds schema {}", schema.id)));
    }
    Ok(Arc::new(schema))
}

/// The newest schema and those of `files`.
pub(crate) async fn read_schemas<'a>(
    store: &StoreRef,
    paths: &TablePaths,
    newest: &Arc<TableSchema>,
    files: impl Iterator<Item = &'a Arc<DataFileMeta>>,
) -> Result<BTreeMap<u64, Arc<TableSchema>>> {
    let mut schemas = BTreeMap::from([(newest.id, Arc::clone(newest))]);
    for meta in files {
        let id = u64::try_from(meta.schema_id)
            .map_err(|_| Error::corrupt(paths.root().as_ref(), format!("file {} has no schema", meta.file_name)))?;
        if let Entry::Vacant(place) = schemas.entry(id) {
            place.insert(read_schema(store, paths, id).await?);
        }
    }
    Ok(schemas)
}

pub(crate) async fn manifest_list(store: &StoreRef, paths: &TablePaths, name: &str) -> Result<Vec<ManifestFileMeta>> {
    let path = paths.manifest(name);
    decode_manifest_list(path.as_ref(), &get(store, &path).await?)
}

pub(crate) async fn index_manifest(
    store: &StoreRef,
    paths: &TablePaths,
    name: &str,
) -> Result<Vec<IndexManifestEntry>> {
    let path = paths.manifest(name);
    let entries = decode_index_manifest(path.as_ref(), &get(store, &path).await?)?;
    Ok(entries.into_iter().filter(|entry| entry.index_type == DELETION_VECTORS).collect())
}

/// The files that `manifests` leave live.
pub(crate) async fn live_entries(
    store: &StoreRef,
    paths: &TablePaths,
    manifests: &[ManifestFileMeta],
) -> Result<Files> {
    let mut live = Files::new();
    apply_manifests(store, paths, manifests, &mut live).await?;
    Ok(live)
}

/// Applies the entries of `manifests` in order.
pub(crate) async fn apply_manifests(
    store: &StoreRef,
    paths: &TablePaths,
    manifests: &[ManifestFileMeta],
    live: &mut Files,
) -> Result<()> {
    let read = manifests.iter().map(|manifest| {
        let path = paths.manifest(&manifest.file_name);
        async move {
            let entries = decode_manifest(path.as_ref(), &get(store, &path).await?)?;
            Ok::<_, Error>((path, entries))
        }
        .boxed()
    });
    let mut read = stream::iter(read.collect::<Vec<_>>()).buffered(PARALLEL_READS);
    while let Some((path, entries)) = read.try_next().await? {
        apply_entries(&path, entries, live)?;
    }
    Ok(())
}

/// Applies the entries of the manifest at `path` in order.
pub(crate) fn apply_entries(
    path: &Path,
    entries: impl IntoIterator<Item = ManifestEntry>,
    live: &mut Files,
) -> Result<()> {
    for ManifestEntry { kind, bucket, file, .. } in entries {
        let bucket =
            u32::try_from(bucket).map_err(|_| Error::corrupt(path.as_ref(), format!("it has a bucket {bucket}")))?;
        apply_entry(path, kind, bucket, Arc::new(file), live)?;
    }
    Ok(())
}

/// Applies one entry of the manifest at `path`.
pub(crate) fn apply_entry(
    path: &Path,
    kind: FileKind,
    bucket: u32,
    file: Arc<DataFileMeta>,
    live: &mut Files,
) -> Result<()> {
    let key = (bucket, file.file_name.clone());
    match kind {
        FileKind::Add => {
            live.insert(key, file);
        }
        FileKind::Delete => {
            if live.remove(&key).is_none() {
                let what = format!("it removes file {}, which is not live", file.file_name);
                return Err(Error::corrupt(path.as_ref(), what));
            }
        }
    }
    Ok(())
}

/// Refuses live files that this crate never writes and would read wrongly: those that another engine left unmerged, and
/// those in places or formats that are not supported.
pub(crate) fn check_live(paths: &TablePaths, live: &Files) -> Result<()> {
    for ((bucket, name), meta) in live {
        let what = if meta.level <= 0 {
            "is at level 0: another engine wrote it and has not merged it yet, and until then no reader of a table with \
             deletion vectors sees its rows; let that engine compact the table, and take the snapshot behind that"
        } else if meta.delete_row_count.is_some_and(|deletes| deletes > 0) {
            "holds rows that stand for deletions, which another engine left in it; let that engine compact the table in \
             full, and take the snapshot behind that"
        } else if meta.external_path.is_some() {
            "lies outside of the table's directory, where another engine put it (table option data-file.external-paths), \
             which is not supported; remove the option, and let that engine compact the table in full"
        } else if !name.ends_with(".parquet") {
            "is not a Parquet file; set the table option file.format to parquet, and let the engine that wrote it compact \
             the table in full"
        } else {
            continue;
        };
        return Err(Error::invalid(format!("object {} {what}", paths.data_file(*bucket, name))));
    }
    Ok(())
}

/// Every deletion vector, by data file.
pub(crate) async fn vectors<'a>(
    store: &StoreRef,
    paths: &TablePaths,
    index: impl Iterator<Item = &'a IndexManifestEntry>,
) -> Result<BTreeMap<String, RoaringBitmap>> {
    let read = index.filter(|entry| entry.row_count > 0).map(|entry| {
        let path = paths.index(&entry.file_name);
        async move { decode_index_file(path.as_ref(), &get(store, &path).await?, entry.vectors()) }.boxed()
    });
    let mut all = BTreeMap::new();
    let mut read = stream::iter(read.collect::<Vec<_>>()).buffered(PARALLEL_READS);
    while let Some(vectors) = read.try_next().await? {
        all.extend(vectors);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_would_be_read_wrongly_are_refused_by_name() {
        let meta = DataFileMeta::sample("data-1.parquet");
        let paths = TablePaths::new(Path::from("db/t"));
        let check = |meta: DataFileMeta| {
            check_live(&paths, &Files::from([((3, meta.file_name.clone()), Arc::new(meta))])).map_err(|e| e.to_string())
        };
        check(meta.clone()).unwrap();
        check(DataFileMeta { delete_row_count: Some(0), ..meta.clone() }).unwrap();
        let refused = [
            (DataFileMeta { level: 0, ..meta.clone() }, "db/t/bucket-3/data-1.parquet is at level 0"),
            (
                DataFileMeta { delete_row_count: Some(1), ..meta.clone() },
                "data-1.parquet holds rows that stand for deletions",
            ),
            (DataFileMeta { external_path: Some("s3://x".into()), ..meta.clone() }, "data-1.parquet lies outside"),
            (DataFileMeta { file_name: "data-1.orc".into(), ..meta }, "data-1.orc is not a Parquet file"),
        ];
        for (meta, what) in refused {
            let error = check(meta).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
