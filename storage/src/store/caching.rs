//! Parts of objects that never change are kept at hand: in memory, and on the local disk.
//!
//! Names of data files, manifests and index files are never used twice, so what was read of one stays true. It is kept in
//! blocks; a range of an object is put together from the blocks it touches, and those that are missing are fetched
//! side by side. Every other object, and every request with a condition, is passed through.
//!
//! Both places are bounded, and in both what was not used for longest goes first. A block on the disk that is not what
//! was written there, or cannot be read, is fetched anew: the disk is never a reason for a wrong answer or an error.

#![allow(clippy::disallowed_methods, reason = "the local disk is read and written on threads for blocking work")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::task::{spawn_blocking, yield_now};

use super::StoreRef;
use super::kept::{self, Kept};
use crate::local_disk::LocalDisk;

/// Bytes of a block.
const BLOCK: u64 = 256 << 10;
/// Blocks fetched with one request at most.
const BLOCKS_A_REQUEST: u64 = 16;
/// What is asked for without a range, and is larger than this, is passed through.
const LARGE: u64 = 16 << 20;
/// Memory for what is known of objects.
const METAS_MEMORY: usize = 8 << 20;
/// Blocks that are being written to the disk at one time; beyond that a block is kept in memory only.
const DISK_WRITES: usize = 32;
/// Blocks read from the disk at one time for one request.
const DISK_READS: usize = 8;
/// Where blocks lie on the disk.
const DIRECTORY: &str = "blocks";

/// How much is kept, and where.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Bytes in memory.
    pub memory_bytes: usize,
    /// Bytes on the disk; nothing is kept there without one.
    pub disk: Option<(Arc<dyn LocalDisk>, u64)>,
}

/// A store whose unchanging objects are kept at hand.
#[derive(Debug)]
pub struct Caching {
    inner: StoreRef,
    shared: Arc<Shared>,
}

/// What became of the reads of a [`Caching`], since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Blocks found in memory.
    pub memory_hits: u64,
    /// Blocks found on the disk.
    pub disk_hits: u64,
    /// Blocks that had to be fetched.
    pub misses: u64,
    /// Bytes kept in memory now.
    pub memory_bytes: u64,
    /// Bytes kept on the disk now.
    pub disk_bytes: u64,
}

/// Looks at a [`Caching`] that is in use.
#[derive(Debug, Clone)]
pub struct CacheWatch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    blocks: Mutex<Kept<BlockId, Bytes>>,
    metas: Mutex<Kept<Path, ObjectMeta>>,
    disk: Option<Disk>,
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
}

/// A block of an object: the `number`th.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BlockId {
    path: Path,
    number: u64,
}

impl kept::Key for BlockId {
    fn heap_bytes(&self) -> usize {
        self.path.as_ref().len()
    }
}

impl kept::Key for String {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks on the disk, each a file: a checksum over the rest, the length of the object's path, the path, the
/// number of the block, and its bytes.
#[derive(Debug)]
struct Disk {
    disk: Arc<dyn LocalDisk>,
    files: Arc<Mutex<Kept<String, ()>>>,
    writes: Arc<Semaphore>,
}

impl Disk {
    /// With the blocks that an earlier process left.
    fn open(disk: Arc<dyn LocalDisk>, limit: u64) -> Self {
        let mut files = Kept::new(usize::try_from(limit).unwrap_or(usize::MAX));
        let found = disk.list(DIRECTORY).unwrap_or_else(|error| {
            tracing::warn!(%error, "the blocks kept in the local cache directory cannot be listed");
            Vec::new()
        });
        for name in found {
            let name = format!("{DIRECTORY}/{name}");
            // Files of unfinished writes, and what was removed meanwhile.
            let size = if name.ends_with(".block") { disk.size(&name).ok() } else { None };
            let gone = match size.and_then(|size| usize::try_from(size).ok()) {
                Some(size) => files.insert(&name, (), size),
                None => vec![name],
            };
            remove(&*disk, &gone);
        }
        Self { disk, files: Arc::new(Mutex::new(files)), writes: Arc::new(Semaphore::new(DISK_WRITES)) }
    }

    async fn get(&self, id: &BlockId) -> Option<Bytes> {
        let name = file_name(id);
        locked(&self.files).get(&name)?;
        let (disk, id, file) = (Arc::clone(&self.disk), id.clone(), name.clone());
        let read = move || {
            let size = usize::try_from(disk.size(&file).ok()?).ok()?;
            decode(&id, disk.read(&file, 0, size).ok()?)
        };
        let block = spawn_blocking(read).await.ok().flatten();
        if block.is_none() {
            locked(&self.files).remove(&name);
        }
        block
    }

    /// Begins to write a block, unless many are being written.
    fn put(&self, id: &BlockId, block: &Bytes) {
        let Ok(permit) = Arc::clone(&self.writes).try_acquire_owned() else { return };
        let (disk, files, id, block) = (Arc::clone(&self.disk), Arc::clone(&self.files), id.clone(), block.clone());
        // Nobody waits for it: a block that is not written is fetched again one day.
        drop(spawn_blocking(move || {
            let _permit = permit;
            let (name, bytes) = (file_name(&id), encode(&id, &block));
            match disk.write(&name, &bytes) {
                Ok(()) => {
                    let gone = locked(&files).insert(&name, (), bytes.len());
                    remove(&*disk, &gone);
                }
                Err(error) => {
                    tracing::debug!(file = name, %error, "a block was not written to the local cache directory");
                }
            }
        }));
    }
}

fn remove(disk: &dyn LocalDisk, names: &[String]) {
    for name in names {
        if let Err(error) = disk.remove(name) {
            tracing::debug!(file = name, %error, "a block was not removed from the local cache directory");
        }
    }
}

fn file_name(id: &BlockId) -> String {
    let mut digest = Sha256::new();
    digest.update(id.number.to_le_bytes());
    digest.update(id.path.as_ref());
    let hex: String = digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{DIRECTORY}/{hex}.block")
}

/// Everything before the bytes of a block but the checksum.
fn head(id: &BlockId) -> Vec<u8> {
    let path = id.path.as_ref().as_bytes();
    let mut head = Vec::with_capacity(path.len() + 12);
    head.extend_from_slice(&u32::try_from(path.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(path);
    head.extend_from_slice(&id.number.to_le_bytes());
    head
}

fn encode(id: &BlockId, block: &[u8]) -> Vec<u8> {
    let rest = [&head(id), block].concat();
    [&crc32fast::hash(&rest).to_le_bytes(), rest.as_slice()].concat()
}

/// The bytes of a block, if the file is whole and holds this one.
fn decode(id: &BlockId, file: Vec<u8>) -> Option<Bytes> {
    let file = Bytes::from(file);
    let (checksum, rest) = file.split_first_chunk::<4>()?;
    let head = head(id);
    let whole = crc32fast::hash(rest) == u32::from_le_bytes(*checksum) && rest.starts_with(&head);
    whole.then(|| file.slice(4 + head.len()..))
}

/// Whether an object of this name never changes: data files, manifests and their lists, and index files of tables.
fn never_changes(path: &Path) -> bool {
    let parts: Vec<_> = path.parts().collect();
    let [.., directory, _] = parts.as_slice() else { return false };
    matches!(directory.as_ref(), "manifest" | "index") || directory.as_ref().starts_with("bucket-")
}

/// Whether a read asks for the bytes of the object as they are.
fn is_plain(options: &GetOptions) -> bool {
    options.if_match.is_none()
        && options.if_none_match.is_none()
        && options.if_modified_since.is_none()
        && options.if_unmodified_since.is_none()
        && options.version.is_none()
        && !options.head
}

/// The bytes of an object of `size` bytes that are asked for; none if there are no such bytes.
fn resolve(range: Option<&GetRange>, size: u64) -> Option<Range<u64>> {
    let resolved = match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(offset)) => *offset..size,
        Some(GetRange::Suffix(length)) => size.saturating_sub(*length)..size,
    };
    (resolved.start < resolved.end).then_some(resolved)
}

/// The numbers of the blocks that a range touches.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

/// Where a block lies in an object of `size` bytes.
fn place_of(number: u64, size: u64) -> Range<u64> {
    (number * BLOCK).min(size)..((number + 1) * BLOCK).min(size)
}

impl Caching {
    /// The objects of `inner`, and a way to look at what is kept of them.
    pub fn new(inner: StoreRef, options: CacheOptions) -> (Self, CacheWatch) {
        let shared = Arc::new(Shared {
            blocks: Mutex::new(Kept::new(options.memory_bytes)),
            metas: Mutex::new(Kept::new(METAS_MEMORY)),
            disk: options.disk.map(|(disk, limit)| Disk::open(disk, limit)),
            memory_hits: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        });
        (Self { inner, shared: Arc::clone(&shared) }, CacheWatch(shared))
    }

    /// The blocks called `numbers`, which ascend, from wherever they are.
    async fn blocks(&self, meta: &ObjectMeta, numbers: impl Iterator<Item = u64>) -> Result<BTreeMap<u64, Bytes>> {
        let path = &meta.location;
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for number in numbers {
            let id = BlockId { path: path.clone(), number };
            let in_memory = locked(&self.shared.blocks).get(&id);
            match in_memory {
                Some(block) => {
                    self.shared.memory_hits.fetch_add(1, Ordering::Relaxed);
                    found.insert(number, block);
                }
                None => missing.push(id),
            }
        }
        if let Some(disk) = &self.shared.disk {
            let reads = missing.into_iter().map(|id| async move { (disk.get(&id).await, id) }.boxed());
            let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(DISK_READS);
            missing = Vec::new();
            while let Some((block, id)) = reads.next().await {
                match block {
                    Some(block) => {
                        self.shared.disk_hits.fetch_add(1, Ordering::Relaxed);
                        locked(&self.shared.blocks).insert(&id, block.clone(), block.len());
                        found.insert(id.number, block);
                    }
                    None => missing.push(id),
                }
            }
        }
        let missing: Vec<u64> = missing.into_iter().map(|id| id.number).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        self.shared.misses.fetch_add(missing.len() as u64, Ordering::Relaxed);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in &missing {
            let place = place_of(*number, meta.size);
            match ranges.last_mut() {
                Some(last) if last.end == place.start && last.end - last.start < BLOCKS_A_REQUEST * BLOCK => {
                    last.end = place.end;
                }
                _ => ranges.push(place),
            }
        }
        let fetched = self.inner.get_ranges(path, &ranges).await?;
        for (range, bytes) in ranges.iter().zip(fetched) {
            for (number, block) in self.keep(meta, range, &bytes) {
                found.insert(number, block);
            }
            // Copying is quick, but a scan reads much.
            yield_now().await;
        }
        Ok(found)
    }

    /// Keeps the whole blocks among the bytes of a range, and gives them.
    fn keep(&self, meta: &ObjectMeta, range: &Range<u64>, bytes: &Bytes) -> Vec<(u64, Bytes)> {
        let mut kept = Vec::new();
        for number in blocks_of(range) {
            let place = place_of(number, meta.size);
            let (Some(from), Some(to)) = (place.start.checked_sub(range.start), place.end.checked_sub(range.start))
            else {
                continue;
            };
            let Some(block) = bytes.get(from as usize..to as usize) else { continue };
            // Copied, so that it does not hold on to all that was fetched along with it.
            let block = Bytes::copy_from_slice(block);
            let id = BlockId { path: meta.location.clone(), number };
            locked(&self.shared.blocks).insert(&id, block.clone(), block.len());
            if let Some(disk) = &self.shared.disk {
                disk.put(&id, &block);
            }
            kept.push((number, block));
        }
        kept
    }

    async fn read(&self, meta: &ObjectMeta, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut numbers: Vec<u64> = ranges.iter().flat_map(blocks_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let blocks = self.blocks(meta, numbers.into_iter()).await?;
        let short = |range: &Range<u64>| object_store::Error::Generic {
            store: "caching",
            source: format!("object {} gave less than bytes {} to {}", meta.location, range.start, range.end).into(),
        };
        let bytes = ranges.iter().map(|range| {
            let mut whole = BytesMut::new();
            for number in blocks_of(range) {
                let place = place_of(number, meta.size);
                let from = range.start.max(place.start) - place.start;
                let to = range.end.min(place.end) - place.start;
                let block = blocks.get(&number).filter(|block| block.len() as u64 >= to).ok_or_else(|| short(range))?;
                let part = block.slice(from as usize..to as usize);
                if part.len() as u64 == range.end - range.start {
                    return Ok(part);
                }
                whole.extend_from_slice(&part);
            }
            Ok(whole.freeze())
        });
        bytes.collect()
    }

    fn known(&self, path: &Path) -> Option<ObjectMeta> {
        locked(&self.shared.metas).get(path)
    }
}

impl CacheWatch {
    /// What was read from where until now.
    pub fn usage(&self) -> CacheUse {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheUse {
            memory_hits: count(&self.0.memory_hits),
            disk_hits: count(&self.0.disk_hits),
            misses: count(&self.0.misses),
            memory_bytes: locked(&self.0.blocks).bytes() as u64,
            disk_bytes: self.0.disk.as_ref().map_or(0, |disk| locked(&disk.files).bytes() as u64),
        }
    }
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, cached", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Caching {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        if !never_changes(path) || !is_plain(&options) {
            return self.inner.get_opts(path, options).await;
        }
        if let Some(meta) = self.known(path)
            && let Some(range) = resolve(options.range.as_ref(), meta.size)
            && range.end - range.start <= LARGE
        {
            let mut bytes = self.read(&meta, std::slice::from_ref(&range)).await?;
            let payload = GetResultPayload::Stream(stream::iter(bytes.pop().map(Ok)).boxed());
            return Ok(GetResult { payload, meta, range, attributes: Default::default() });
        }
        let result = self.inner.get_opts(path, options).await?;
        let mut meta = result.meta.clone();
        meta.location = path.clone();
        locked(&self.shared.metas).insert(path, meta.clone(), size_of::<ObjectMeta>());
        let (range, attributes) = (result.range.clone(), result.attributes.clone());
        if range.end - range.start > LARGE {
            return Ok(result);
        }
        let bytes = result.bytes().await?;
        self.keep(&meta, &range, &bytes);
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        Ok(GetResult { payload, meta, range, attributes })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.known(path) {
            Some(meta) if ranges.iter().all(|range| range.start < range.end && range.end <= meta.size) => {
                self.read(&meta, ranges).await
            }
            _ => self.inner.get_ranges(path, ranges).await,
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests;
