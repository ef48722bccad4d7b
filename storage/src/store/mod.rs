//! Object stores: opening one, reading and creating objects, and the decorators around a store.
//!
//! Only conditional creates, reads, lists and deletes of whole objects are used. That is what every store can do
//! alike, so no rename, no lock service and no database is needed.
//!
//! * [`require_conditional_creates`]: whether a store keeps the one promise that everything rests on.
//! * [`retrying`]: every request has a time limit and bounded attempts.
//! * [`checked`]: bytes of data files are verified when they are read.
//! * [`caching`]: parts of objects that never change are kept in memory and on the local disk.
//! * [`measured`]: how many requests there were, how large, and how long they took.
//! * [`watched`]: which requests are under way, and for how long.
//! * [`durable`]: files on the local disk survive a power cut.
//! * [`on_runtime`]: requests of threads that stand back behind others are carried out by threads that do not.
//! * [`faulty`]: a test double that fails, delays, loses answers and fills up; [`dying`]: one whose process dies.

pub mod caching;
pub mod checked;
pub mod durable;
pub mod dying;
pub mod faulty;
mod kept;
pub mod measured;
pub(crate) mod on_runtime;
mod open;
mod pieces;
mod probe;
pub mod retrying;
pub mod watched;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

pub use open::open;
use pieces::PIECE;
pub use pieces::Pieces;
pub use probe::require_conditional_creates;

use crate::error::{Error, Result};

/// A shared object store.
pub type StoreRef = Arc<dyn ObjectStore>;

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A conditional create.
    Create,
    /// Any other write of an object, or of a part of one.
    Put,
    /// A read of the whole or of ranges.
    Get,
    /// A listing; its path is the prefix.
    List,
    /// A delete.
    Delete,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] = [Self::Create, Self::Put, Self::Get, Self::List, Self::Delete];

    /// The value shown in `sys.store_requests`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Put => "put",
            Self::Get => "get",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// What became of a conditional create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The object was not there and holds our bytes now.
    Created,
    /// An object of this name was there before; whether with the same bytes is not said.
    Exists,
}

/// Creates an object if there is none of its name.
///
/// Errors: [`Error::Unknown`] if the store's answer was lost: the object may be there. A store opened with [`open`]
/// resolves a lost answer by reading the object back; see [`retrying`].
pub async fn create_if_absent(store: &dyn ObjectStore, path: &Path, bytes: Bytes) -> Result<CreateOutcome> {
    match store.put_opts(path, PutPayload::from_bytes(bytes), PutMode::Create.into()).await {
        Ok(_) => Ok(CreateOutcome::Created),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
            Ok(CreateOutcome::Exists)
        }
        Err(error) => Err(match Error::from_store(path.as_ref(), "written", error) {
            // A create that failed in the middle may have been carried out.
            Error::Unavailable { object, source, .. } => {
                Error::Unknown { object, what: "the store did not answer".into(), source: Some(source) }
            }
            error => error,
        }),
    }
}

/// Creates an object that no other writer has the name of: an object of this name with the same bytes is ours.
///
/// Errors: [`Error::Conflict`] if it has other bytes; [`Error::Unknown`] if it may be there and cannot be read.
pub async fn create_own(store: &dyn ObjectStore, path: &Path, bytes: Bytes) -> Result<()> {
    let found = match create_if_absent(store, path, bytes.clone()).await {
        Ok(CreateOutcome::Created) => return Ok(()),
        Ok(CreateOutcome::Exists) => read(store, path).await.map_err(|error| Error::Unknown {
            object: path.to_string(),
            what: "it exists and cannot be read".into(),
            source: Some(Box::new(error)),
        })?,
        Err(unknown @ Error::Unknown { .. }) => match read(store, path).await {
            Ok(found) => found,
            Err(_) => return Err(unknown),
        },
        Err(error) => return Err(error),
    };
    if found == bytes { Ok(()) } else { Err(Error::conflict(path.as_ref(), "it exists with other content")) }
}

/// Reads a whole object.
pub async fn read(store: &dyn ObjectStore, path: &Path) -> Result<Bytes> {
    let read = async { store.get(path).await?.bytes().await };
    read.await.map_err(|e| Error::from_store(path.as_ref(), "read", e))
}

/// Reads a whole object, or nothing if it does not exist.
pub async fn read_optional(store: &dyn ObjectStore, path: &Path) -> Result<Option<Bytes>> {
    match read(store, path).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Objects larger than this are written in parts, so that a request stays within its time limit.
const LARGE: usize = 64 << 20;
/// Size of a part; stores want at least 5 MiB and at most 10,000 of them.
const PART: usize = 16 << 20;
/// Parts on their way at the same time.
const PARTS_AT_ONCE: usize = 4;

/// Writes an object, in place of one of the same name if there is one.
pub async fn write(store: &dyn ObjectStore, path: &Path, bytes: Bytes) -> Result<()> {
    write_pieces(store, path, pieces::cut(bytes)).await
}

/// Writes an object of the bytes of a [`Pieces`], in place of one of the same name if there is one.
pub async fn write_pieces(store: &dyn ObjectStore, path: &Path, pieces: Vec<Bytes>) -> Result<()> {
    let written = if pieces.iter().map(Bytes::len).sum::<usize>() > LARGE {
        write_in_parts(store, path, &pieces).await
    } else {
        store.put(path, PutPayload::from_iter(pieces)).await.map(drop)
    };
    written.map_err(|e| Error::from_store(path.as_ref(), "written", e))
}

/// Full pieces that make a part of an [`Upload`].
pub const PART_PIECES: usize = PART / PIECE;

/// An object that is written in parts while it is being made, so that it is never in memory as a whole. It comes to be
/// when it is finished, and not before.
#[derive(Debug)]
pub struct Upload {
    path: Path,
    inner: Box<dyn MultipartUpload>,
}

impl Upload {
    /// Begins an object, which will take the place of one of the same name if there is one.
    pub async fn begin(store: &dyn ObjectStore, path: &Path) -> Result<Self> {
        let inner = store.put_multipart(path).await;
        let inner = inner.map_err(|e| Error::from_store(path.as_ref(), "written", e))?;
        Ok(Self { path: path.clone(), inner })
    }

    /// Writes the next part: [`PART_PIECES`] pieces, or fewer as the last part.
    pub async fn part(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        let written = self.inner.put_part(PutPayload::from_iter(pieces)).await;
        written.map_err(|e| Error::from_store(self.path.as_ref(), "written", e))
    }

    /// All parts have been written.
    pub async fn finish(mut self) -> Result<()> {
        let completed = self.inner.complete().await;
        completed.map(drop).map_err(|e| Error::from_store(self.path.as_ref(), "written", e))
    }

    /// Gives the object up. Parts that stay behind cost room until the store's own rules clear them away.
    pub async fn abort(mut self) {
        if let Err(error) = self.inner.abort().await {
            tracing::debug!(object = %self.path, %error, "the parts of an unfinished object were not deleted");
        }
    }
}

async fn write_in_parts(store: &dyn ObjectStore, path: &Path, pieces: &[Bytes]) -> object_store::Result<()> {
    let mut upload = store.put_multipart(path).await?;
    let parts = pieces.chunks(PART_PIECES).map(|part| PutPayload::from_iter(part.iter().cloned()));
    let parts: Vec<_> = parts.map(|part| upload.put_part(part)).collect();
    let sent = stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await;
    let result = match sent {
        Ok(()) => upload.complete().await.map(drop),
        Err(error) => Err(error),
    };
    if result.is_err() {
        // Parts that stay behind cost room until the store's own rules clear them away.
        if let Err(error) = upload.abort().await {
            tracing::debug!(object = %path, %error, "the parts of an unfinished object were not deleted");
        }
    }
    result
}

/// Deletes an object; that it does not exist is no error.
pub async fn delete(store: &dyn ObjectStore, path: &Path) -> Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(Error::from_store(path.as_ref(), "deleted", error)),
    }
}

#[cfg(test)]
mod tests;
