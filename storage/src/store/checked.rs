//! Data files are verified as they are read: a byte that is not the one written is an error that names the file.
//!
//! A range of a data file is widened to the blocks it touches, these are fetched and verified, and what was asked for
//! is cut out of them. The digests are read from the file's end when the file is first read; they are kept, and so
//! for a while is the end itself, since the footer in it is what readers ask for next.
//!
//! Data files are known by their name, and ours by the digests in their footer: a file of another writer has none and
//! is passed through. Everything else in the store carries digests in its own format and is passed through too.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::StoreRef;
use super::kept::Kept;
use crate::paimon::block_digest::{BLOCK_BYTES, BlockDigests, End};

/// Name of this store in errors.
const STORE: &str = "checked";
/// What names of data files end with.
const DATA_FILE: &str = ".parquet";

/// Bytes at a file's end that readers should ask for to get its footer: the digests were read together with them.
pub const FOOTER_BYTES: usize = 64 << 10;
/// Bytes read to find a file's digests: so many that a block begins before the last [`FOOTER_BYTES`].
const END_BYTES: u64 = FOOTER_BYTES as u64 + BLOCK_BYTES;
/// Memory for digests: those of 256 GiB.
const DIGESTS_MEMORY: usize = 32 << 20;
/// Memory for the ends of files whose footers are about to be read.
const ENDS_MEMORY: usize = 16 << 20;

/// A data file's bytes are not what was written. It is the source of the store's error.
#[derive(Debug, thiserror::Error)]
#[error("bytes {} to {} of data file {object}: {what}", range.start, range.end)]
pub struct DamagedFile {
    /// Path of the file in its store.
    pub object: String,
    /// The damage lies somewhere in these bytes.
    pub range: Range<u64>,
    /// Which check failed.
    pub what: &'static str,
}

impl DamagedFile {
    /// Finds the damage that `error` comes from, if that is its cause.
    pub fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

/// A store whose data files are verified.
#[derive(Debug)]
pub struct Checked {
    inner: StoreRef,
    known: Arc<Mutex<Known>>,
}

/// What is known of files. A name is never used twice, so it stays true.
#[derive(Debug)]
struct Known {
    files: Kept<Path, Arc<File>>,
    ends: Kept<Path, Piece>,
}

#[derive(Debug)]
struct File {
    meta: ObjectMeta,
    /// None if another writer wrote the file.
    digests: Option<BlockDigests>,
}

/// Verified bytes of a file.
#[derive(Debug, Clone)]
struct Piece {
    start: u64,
    bytes: Bytes,
}

impl Piece {
    /// The part `range`, if it lies in the piece.
    fn part(&self, range: &Range<u64>) -> Option<Bytes> {
        let start = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

impl File {
    fn damaged(&self, range: Range<u64>, what: &'static str) -> Error {
        damaged(&self.meta.location, range, what)
    }

    /// The smallest range around `range` that can be verified.
    fn widen(&self, range: &Range<u64>) -> Range<u64> {
        match &self.digests {
            Some(digests) if range.start < range.end => digests.widen(range),
            _ => range.clone(),
        }
    }

    /// Verifies bytes from `start` on, a range that [`Self::widen`] gave.
    fn verify(&self, start: u64, bytes: &[u8]) -> Result<()> {
        let Some(digests) = &self.digests else { return Ok(()) };
        digests.verify(start, bytes).map_err(|part| self.damaged(part, "they are not what was written"))
    }

    fn refuse_beyond(&self, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end && range.end <= self.meta.size {
            return Ok(());
        }
        Err(self.damaged(range.clone(), "the file is shorter than it should be"))
    }
}

fn damaged(path: &Path, range: Range<u64>, what: &'static str) -> Error {
    Error::Generic { store: STORE, source: Box::new(DamagedFile { object: path.to_string(), range, what }) }
}

fn is_data_file(path: &Path) -> bool {
    path.as_ref().ends_with(DATA_FILE)
}

impl Checked {
    /// The objects of `inner`.
    pub fn new(inner: StoreRef) -> Self {
        let known = Known { files: Kept::new(DIGESTS_MEMORY), ends: Kept::new(ENDS_MEMORY) };
        Self { inner, known: Arc::new(Mutex::new(known)) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file and, if it is at hand, its end.
    async fn file(&self, path: &Path) -> Result<(Arc<File>, Option<Piece>)> {
        {
            let mut known = self.known();
            if let Some(file) = known.files.get(path) {
                return Ok((file, known.ends.get(path)));
            }
        }
        let (file, end) = self.open(path).await?;
        let memory = size_of::<File>() + file.digests.as_ref().map_or(0, BlockDigests::memory);
        let mut known = self.known();
        known.files.insert(path, Arc::clone(&file), memory);
        known.ends.insert(path, end.clone(), end.bytes.len());
        Ok((file, Some(end)))
    }

    /// Reads and verifies a file's end.
    async fn open(&self, path: &Path) -> Result<(Arc<File>, Piece)> {
        let options = GetOptions::new().with_range(Some(GetRange::Suffix(END_BYTES)));
        let result = self.inner.get_opts(path, options).await?;
        let mut meta = result.meta.clone();
        meta.location = path.clone();
        let mut end = result.bytes().await?;
        let size = meta.size;
        let digests = loop {
            match End::read(size, &end) {
                Ok(End::Digested(digests)) => break Some(digests),
                Ok(End::Foreign) => break None,
                Ok(End::Longer(needed)) => {
                    let have = end.len() as u64;
                    let missing = size.saturating_sub(needed)..size.saturating_sub(have);
                    if missing.is_empty() {
                        return Err(damaged(path, 0..size, "its end cannot be read"));
                    }
                    let before = self.inner.get_range(path, missing.clone()).await?;
                    if before.len() as u64 != missing.end - missing.start {
                        return Err(damaged(path, missing, "the store did not give all of them"));
                    }
                    let mut longer = BytesMut::with_capacity(before.len() + end.len());
                    longer.extend_from_slice(&before);
                    longer.extend_from_slice(&end);
                    end = longer.freeze();
                }
                Err(what) => return Err(damaged(path, size.saturating_sub(end.len() as u64)..size, what)),
            }
        };
        let file = Arc::new(File { meta, digests });
        let first = size.saturating_sub(end.len() as u64);
        let start = file.digests.as_ref().map_or(first, |digests| digests.next_border(first));
        let bytes = end.slice(usize::try_from(start - first).unwrap_or(usize::MAX).min(end.len())..);
        file.verify(start, &bytes)?;
        Ok((file, Piece { start, bytes }))
    }

    /// Bytes of a data file, verified.
    async fn read(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (file, end) = self.file(path).await?;
        for range in ranges {
            file.refuse_beyond(range)?;
        }
        let at_hand = |range: &Range<u64>| end.as_ref().and_then(|end| end.part(range));
        let wanted = ranges.iter().filter(|range| !range.is_empty() && at_hand(range).is_none());
        let wanted = merged(wanted.map(|range| file.widen(range)).collect());
        let fetched = if wanted.is_empty() { Vec::new() } else { self.inner.get_ranges(path, &wanted).await? };
        let mut pieces = Vec::with_capacity(fetched.len());
        for (range, bytes) in wanted.into_iter().zip(fetched) {
            if bytes.len() as u64 != range.end - range.start {
                return Err(file.damaged(range, "the store did not give all of them"));
            }
            file.verify(range.start, &bytes)?;
            pieces.push(Piece { start: range.start, bytes });
        }
        let cut = |range: &Range<u64>| {
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let piece = pieces.partition_point(|piece| piece.start <= range.start).checked_sub(1);
            let found = piece.and_then(|index| pieces.get(index)).and_then(|piece| piece.part(range));
            found.or_else(|| at_hand(range)).ok_or_else(|| file.damaged(range.clone(), "they were not read"))
        };
        ranges.iter().map(cut).collect()
    }

    /// A whole data file, with one request.
    async fn read_whole(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let result = self.inner.get_opts(path, options).await?;
        let (meta, attributes) = (result.meta.clone(), result.attributes.clone());
        let bytes = result.bytes().await?;
        let size = bytes.len() as u64;
        let digests = match End::read(size, &bytes) {
            Ok(End::Digested(digests)) => Some(digests),
            Ok(End::Foreign) => None,
            Ok(End::Longer(_)) => return Err(damaged(path, 0..size, "its end cannot be read")),
            Err(what) => return Err(damaged(path, 0..size, what)),
        };
        File { meta: ObjectMeta { location: path.clone(), ..meta.clone() }, digests }.verify(0, &bytes)?;
        Ok(GetResult { payload: payload(bytes), meta, range: 0..size, attributes })
    }
}

fn payload(bytes: Bytes) -> GetResultPayload {
    GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed())
}

/// The ranges in order, those that touch put together.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, checked", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Checked {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head || !is_data_file(path) {
            return self.inner.get_opts(path, options).await;
        }
        let Some(range) = &options.range else { return self.read_whole(path, options).await };
        let (file, _) = self.file(path).await?;
        options.check_preconditions(&file.meta)?;
        let size = file.meta.size;
        let range = match range {
            GetRange::Bounded(range) => range.clone(),
            GetRange::Offset(offset) => *offset..size,
            GetRange::Suffix(length) => size.saturating_sub(*length)..size,
        };
        let bytes = self.read(path, std::slice::from_ref(&range)).await?.pop().unwrap_or_default();
        Ok(GetResult { payload: payload(bytes), meta: file.meta.clone(), range, attributes: Default::default() })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if is_data_file(path) { self.read(path, ranges).await } else { self.inner.get_ranges(path, ranges).await }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let known = Arc::clone(&self.known);
        let forget = move |path: &Path| {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.files.remove(path);
            known.ends.remove(path);
        };
        self.inner.delete_stream(paths).inspect_ok(forget).boxed()
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
