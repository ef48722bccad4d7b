//! Local files that survive a power cut.
//!
//! `object_store` writes a file and gives it its name without asking the disk to keep either, so after a power cut a
//! name may be missing or stand before an empty file. Here a file is synced before it gets its name, and the directory
//! before the write counts.
//!
//! That costs: a sync takes many times as long as the writing of a small file. Disks sync what is written at once
//! together, so files that do not depend on each other should be written at the same time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Name of this store in errors.
const STORE: &str = "local files";

/// Files below a directory, synced to the disk.
#[derive(Debug)]
pub struct DurableFiles {
    inner: LocalFileSystem,
    /// Tells the names of files that are being written apart.
    next: AtomicU64,
}

impl DurableFiles {
    /// The files of `inner`.
    pub fn new(inner: LocalFileSystem) -> Self {
        Self { inner, next: AtomicU64::new(0) }
    }
}

impl fmt::Display for DurableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, durable", self.inner)
    }
}

fn generic(source: io::Error) -> Error {
    Error::Generic { store: STORE, source: Box::new(source) }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[async_trait]
impl ObjectStore for DurableFiles {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let create = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            // Refused by local files; their words for it are the right ones.
            PutMode::Update(_) => return self.inner.put_opts(path, payload, options).await,
        };
        let target = self.inner.path_to_filesystem(path)?;
        let name = path.to_string();
        let (process, number) = (std::process::id(), self.next.fetch_add(1, Ordering::Relaxed));
        blocking(move || {
            // Digits behind a `#` mark a file that is being written; listings leave it out.
            let mut staging = target.clone().into_os_string();
            staging.push(format!("#{process:010}{number:020}"));
            let staging = PathBuf::from(staging);
            let written = write_synced(&staging, &payload).and_then(|()| {
                if create { std::fs::hard_link(&staging, &target) } else { std::fs::rename(&staging, &target) }
            });
            if create || written.is_err() {
                // What stays behind after a failure here is only a file without a meaning.
                let _ = std::fs::remove_file(&staging);
            }
            match written.and_then(|()| sync_directory_of(&target)) {
                Ok(()) => Ok(PutResult { e_tag: None, version: None }),
                Err(source) if create && source.kind() == ErrorKind::AlreadyExists => {
                    Err(Error::AlreadyExists { path: name, source: Box::new(source) })
                }
                Err(source) => Err(generic(source)),
            }
        })
        .await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let target = self.inner.path_to_filesystem(path)?;
        let inner = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(DurableUpload { inner, target }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
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
        let target = self.inner.path_to_filesystem(to)?;
        self.inner.copy_opts(from, to, options).await?;
        blocking(move || sync_file(&target).map_err(generic)).await
    }
}

/// A file in parts: nothing refers to it before it is complete, so syncing it then is early enough.
#[derive(Debug)]
struct DurableUpload {
    inner: Box<dyn MultipartUpload>,
    target: PathBuf,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.inner.complete().await?;
        let target = self.target.clone();
        blocking(move || sync_file(&target).map_err(generic)).await?;
        Ok(result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// Writes a new file, whose directory is made if need be, down to the disk.
fn write_synced(path: &std::path::Path, payload: &PutPayload) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_directory(path.parent().unwrap_or(path))?;
            open()?
        }
        opened => opened?,
    };
    for part in payload {
        file.write_all(part)?;
    }
    file.sync_all()
}

/// Makes a directory and those above it, each of them kept on the disk.
fn make_directory(directory: &std::path::Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Ok(()) => {}
        // Another writer made it just now, perhaps without having synced it yet.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_directory(directory.parent().ok_or(error)?)?;
            return make_directory(directory);
        }
        Err(error) => return Err(error),
    }
    sync_directory_of(directory)
}

fn sync_file(path: &std::path::Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    sync_directory_of(path)
}

/// Lets the disk keep the names in the directory that `path` lies in.
fn sync_directory_of(path: &std::path::Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
