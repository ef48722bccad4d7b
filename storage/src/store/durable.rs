//! Local files that survive a power cut.
//!
//! `object_store` writes a file and gives it its name without asking the disk to keep either, so after a power cut a
//! name may be missing or stand before an empty file. Here a file is synced before it gets its name, and the directory
//! before the write counts.
//!
//! What a process that died was writing stays as a file of its own, beside the name that it never got. Such a file is
//! listed, so that whoever removes orphans finds it, and it can be deleted; it cannot be read.
//!
//! That costs: a sync takes many times as long as the writing of a small file. Disks sync what is written at once
//! together, so files that do not depend on each other should be written at the same time.

#![allow(clippy::disallowed_methods, reason = "the local disk is read and written on threads for blocking work")]

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Name of this store in errors.
const STORE: &str = "local files";
/// Files that are deleted at one time.
const DELETES: usize = 10;

/// Files below a directory, synced to the disk.
#[derive(Debug)]
pub struct DurableFiles {
    inner: Arc<LocalFileSystem>,
    /// Tells the names of files that are being written apart.
    next: Arc<AtomicU64>,
}

impl DurableFiles {
    /// The files of `inner`.
    pub fn new(inner: LocalFileSystem) -> Self {
        Self { inner: Arc::new(inner), next: Arc::default() }
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
        let next = Arc::clone(&self.next);
        blocking(move || {
            let (mut file, staging) = create_staging(&target, &next).map_err(generic)?;
            let written = payload.iter().try_for_each(|part| file.write_all(part)).and_then(|()| file.sync_all());
            let written = written.and_then(|()| {
                if create { std::fs::hard_link(&staging, &target) } else { std::fs::rename(&staging, &target) }
            });
            if create || written.is_err() {
                // What stays behind after a failure here is only a file without a meaning.
                let _ = std::fs::remove_file(&staging);
            }
            // Once the file has its name, a failure does not say that there is none, whatever it is about.
            match written.and_then(|()| sync_directory_of(&target).map_err(io::Error::other)) {
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
        if !options.attributes.is_empty() {
            // Refused by local files; their words for it are the right ones.
            return self.inner.put_multipart_opts(path, options).await;
        }
        let target = self.inner.path_to_filesystem(path)?;
        let next = Arc::clone(&self.next);
        blocking(move || {
            let (file, staging) = create_staging(&target, &next).map_err(generic)?;
            let file = Arc::new(Mutex::new(file));
            Ok(Box::new(DurableUpload { file, staging: Some(staging), target, size: 0 }) as Box<dyn MultipartUpload>)
        })
        .await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        let delete = move |path: Result<Path>| {
            let inner = Arc::clone(&inner);
            async move {
                let path = path?;
                if is_unfinished(&path) {
                    let file = filesystem_path(&inner, &path)?;
                    blocking(move || std::fs::remove_file(file).map_err(generic)).await?;
                } else {
                    inner.delete(&path).await?;
                }
                Ok(path)
            }
        };
        paths.map(delete).buffered(DELETES).boxed()
    }

    /// All objects, and the files that were not finished.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, below) = (Arc::clone(&self.inner), prefix.cloned().unwrap_or_default());
        let unfinished = async move {
            let directory = filesystem_path(&inner, &below)?;
            let mut found = Vec::new();
            blocking(move || {
                find_unfinished(&directory, &below, &mut found).map_err(generic)?;
                Ok(stream::iter(found).map(Ok))
            })
            .await
        };
        self.inner.list(prefix).chain(stream::once(unfinished).try_flatten()).boxed()
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

/// A file in parts, each of which is on the disk before the next one comes: a large file that is synced as a whole lets
/// every other sync wait for it.
#[derive(Debug)]
struct DurableUpload {
    file: Arc<Mutex<File>>,
    /// The name of the file until it is complete; none from then on.
    staging: Option<PathBuf>,
    target: PathBuf,
    /// Bytes of the parts so far.
    size: u64,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (file, start) = (Arc::clone(&self.file), self.size);
        self.size += data.content_length() as u64;
        Box::pin(blocking(move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let written = file.seek(SeekFrom::Start(start)).and_then(|_| {
                data.iter().try_for_each(|bytes| file.write_all(bytes))?;
                file.sync_data()
            });
            written.map_err(generic)
        }))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some(staging) = self.staging.take() else {
            return Err(generic(io::Error::other("the file is complete, or was given up")));
        };
        let (file, target) = (Arc::clone(&self.file), self.target.clone());
        blocking(move || {
            let synced = file.lock().unwrap_or_else(PoisonError::into_inner).sync_all();
            if let Err(source) = synced.and_then(|()| std::fs::rename(&staging, &target)) {
                // What stays behind is a file without a meaning.
                let _ = std::fs::remove_file(&staging);
                return Err(generic(source));
            }
            sync_directory_of(&target).map_err(generic)?;
            Ok(PutResult { e_tag: None, version: None })
        })
        .await
    }

    async fn abort(&mut self) -> Result<()> {
        let Some(staging) = self.staging.take() else { return Ok(()) };
        blocking(move || std::fs::remove_file(staging).map_err(generic)).await
    }
}

impl Drop for DurableUpload {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            // Whoever removes orphans finds it otherwise.
            let _ = std::fs::remove_file(staging);
        }
    }
}

/// The name of a file that is to become `target`, until it is complete. Digits behind a `#` mark it; `object_store`
/// leaves such names out of its listings and uses the like itself.
pub(super) fn unfinished_name(target: &std::path::Path, number: u64) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!("#{:010}{number:020}", std::process::id()));
    PathBuf::from(name)
}

/// Whether an object is a file that is being written, or was when its process died.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    let mark = path.filename().and_then(|name| Some(name.split_once('#')?.1));
    mark.is_some_and(|mark| !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Where an object lies, whatever its name.
fn filesystem_path(files: &LocalFileSystem, path: &Path) -> Result<PathBuf> {
    let mut file = files.path_to_filesystem(&Path::from("root"))?;
    file.pop();
    file.extend(path.parts().map(|part| part.as_ref().to_owned()));
    Ok(file)
}

/// The unfinished files in `directory`, which is called `path`, and below it.
fn find_unfinished(directory: &std::path::Path, path: &Path, found: &mut Vec<ObjectMeta>) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        // What goes while it is looked at is as good as gone before.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // A name that is not text, or no part of a path, is none of ours.
        let name = entry.file_name();
        let Some(location) = name.to_str().and_then(|name| Path::parse(format!("{path}/{name}")).ok()) else {
            continue;
        };
        if is_unfinished(&location) {
            match entry.metadata() {
                Ok(meta) if meta.is_file() => found.push(ObjectMeta {
                    location,
                    last_modified: meta.modified()?.into(),
                    size: meta.len(),
                    e_tag: None,
                    version: None,
                }),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        } else if entry.file_type()?.is_dir() {
            find_unfinished(&entry.path(), &location, found)?;
        }
    }
    Ok(())
}

/// A new file that is to become `target`, and its name until then. A process with the same number as this one may have
/// left such a file when it died.
fn create_staging(target: &std::path::Path, next: &AtomicU64) -> io::Result<(File, PathBuf)> {
    loop {
        let staging = unfinished_name(target, next.fetch_add(1, Ordering::Relaxed));
        match create_new(&staging) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((created?, staging)),
        }
    }
}

/// A new file, whose directory is made if need be.
fn create_new(path: &std::path::Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).open(path);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_directory(path.parent().unwrap_or(path))?;
            open()
        }
        opened => opened,
    }
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
