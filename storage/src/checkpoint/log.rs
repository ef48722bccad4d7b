//! The checkpoint records of one source in the store: `sources/<uuid>/checkpoint/checkpoint-<n>`.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use uuid::Uuid;

use super::record::{CheckpointRecord, CheckpointState};
use crate::error::{Error, Result};
use crate::store::durable::is_unfinished;
use crate::store::{self, CreateOutcome, StoreRef, create_if_absent};
use crate::table::Verified;

/// How often a record should be full: that many are read at most to find out a source's state.
pub const FULL_EVERY: u64 = 64;

/// Digits of a number in a name, so that names sort as numbers do.
const DIGITS: usize = 20;
const PREFIX: &str = "checkpoint-";

/// What became of a commit.
#[derive(Debug)]
#[must_use]
pub enum CommitOutcome {
    /// The record is durable: everything it refers to is now part of the source.
    Committed,
    /// Another record of this number was there first. Nothing of ours counts; the state must be read again.
    Conflicted(Box<CheckpointRecord>),
    /// The answer was lost, and what came of the record cannot be seen: it may be there, or appear later. The state must
    /// be read again before anything else is done. The error says why nothing is known.
    Unknown(Error),
}

/// The records of one source.
#[derive(Debug)]
pub struct CheckpointLog {
    store: StoreRef,
    source: Uuid,
    directory: Path,
    /// Newest number known to exist; 0 before the first is read or written.
    last: AtomicU64,
}

impl CheckpointLog {
    /// The records of `source` in `store`. Nothing is read yet.
    pub fn new(store: StoreRef, source: Uuid) -> Self {
        let directory = source_directory(source).join("checkpoint");
        Self { store, source, directory, last: AtomicU64::new(0) }
    }

    /// Where record `number` lies.
    pub fn path(&self, number: u64) -> Path {
        self.directory.clone().join(format!("{PREFIX}{number:0DIGITS$}"))
    }

    /// The source's state: the newest record, and those before it back to a full one. `None` if there is none.
    ///
    /// Errors: [`Error::Corrupt`], naming the object, if one of them is missing or not as it was written.
    pub async fn recover(&self) -> Result<Option<CheckpointState>> {
        let Some(newest) = self.numbers().await?.pop() else { return Ok(None) };
        let mut records = Vec::new();
        for number in (1..=newest).rev() {
            let record = self.read(number).await.map_err(|error| match error {
                Error::NotFound { object } => {
                    Error::corrupt(object, format!("it is missing, although checkpoint {newest} builds on it"))
                }
                error => error,
            })?;
            let full = record.full || number == 1;
            records.push(record);
            if full {
                break;
            }
        }
        let mut records = records.into_iter().rev();
        let Some(first) = records.next() else {
            return Err(Error::corrupt(self.path(newest).as_ref(), "there is no checkpoint of this number"));
        };
        let mut state = CheckpointState::new(first);
        for record in records {
            state.apply(record);
        }
        self.last.store(newest, Ordering::SeqCst);
        Ok(Some(state))
    }

    /// Creates the record. This is the commit point of everything it refers to.
    ///
    /// Errors: if nothing was written, or what stands under the record's number is none.
    pub async fn commit(&self, record: &CheckpointRecord) -> Result<CommitOutcome> {
        if record.source != self.source {
            return Err(Error::invalid(format!(
                "checkpoint {} is of source {}, not {}",
                record.number, record.source, self.source
            )));
        }
        self.refuse_gap(record.number).await?;
        let path = self.path(record.number);
        let bytes = Bytes::from(record.encode());
        let read = async || store::read(&*self.store, &path).await;
        let found = match create_if_absent(&*self.store, &path, bytes.clone()).await {
            Ok(CreateOutcome::Created) => Ok(bytes.clone()),
            Ok(CreateOutcome::Exists) => read().await,
            // The answer was lost. Only if the object is there is the outcome known; if not, it may still arrive.
            Err(error @ Error::Unknown { .. }) => read().await.map_err(|_| error),
            Err(error) => return Err(error),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return Ok(CommitOutcome::Unknown(unknown(&path, error))),
        };
        self.last.fetch_max(record.number, Ordering::SeqCst);
        if found == bytes {
            return Ok(match self.confirm(record.number).await {
                Ok(None) => CommitOutcome::Committed,
                Ok(Some(newest)) => CommitOutcome::Conflicted(Box::new(newest)),
                Err(error) => CommitOutcome::Unknown(unknown(&path, error)),
            });
        }
        let other = CheckpointRecord::decode(path.as_ref(), &found)?;
        Ok(CommitOutcome::Conflicted(Box::new(other)))
    }

    /// A record was created under its number. If it came so late that its number had been there and expired, nothing of
    /// it counts: the newest record never expires, so the one before is there unless others have followed long ago. Such
    /// a record leads nowhere and is left to [`Self::expire`]; deleting it here could hit one that others build on.
    ///
    /// `None` if the record counts; otherwise the newest one.
    async fn confirm(&self, number: u64) -> Result<Option<CheckpointRecord>> {
        if number > 1 && self.exists(number - 1).await? {
            return Ok(None);
        }
        let newest = self.numbers().await?.pop().unwrap_or(number);
        // The first has none before it; one that others build on is followed by the second.
        if number == 1 && (newest == 1 || self.exists(2).await?) {
            return Ok(None);
        }
        self.read(newest).await.map(Some)
    }

    async fn exists(&self, number: u64) -> Result<bool> {
        let path = self.path(number);
        match self.store.head(&path).await.map_err(|error| Error::from_store(path.as_ref(), "read", error)) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A record that does not follow on the newest would never be found again.
    async fn refuse_gap(&self, number: u64) -> Result<()> {
        let follows = match self.last.load(Ordering::SeqCst) {
            _ if number == 0 => false,
            0 if number > 1 => store::read_optional(&*self.store, &self.path(number - 1)).await?.is_some(),
            last => number <= last + 1,
        };
        if follows {
            return Ok(());
        }
        Err(Error::invalid(format!("checkpoint {number} of source {} does not follow on the newest", self.source)))
    }

    /// Reads record `number`.
    pub async fn read(&self, number: u64) -> Result<CheckpointRecord> {
        let path = self.path(number);
        let record = CheckpointRecord::decode(path.as_ref(), &store::read(&*self.store, &path).await?)?;
        if record.number != number || record.source != self.source {
            let what = format!("it holds checkpoint {} of source {}", record.number, record.source);
            return Err(Error::corrupt(path.as_ref(), what));
        }
        Ok(record)
    }

    /// The newest records, newest first.
    pub async fn list_recent(&self, limit: usize) -> Result<Vec<CheckpointRecord>> {
        let numbers = self.numbers().await?;
        let mut records = Vec::new();
        for number in numbers.into_iter().rev().take(limit) {
            match self.read(number).await {
                Ok(record) => records.push(record),
                // Expired between being listed and being read.
                Err(Error::NotFound { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Deletes records that no state builds on: those before the newest full one that were written before
    /// `before_ms`. Says how many were deleted. Files of the source that were being written then, by a process that
    /// died, are deleted too.
    ///
    /// A name that was deleted can be created again, so `before_ms` must lie further back than any writer that lost
    /// its lease could still be running.
    pub async fn expire(&self, before_ms: i64) -> Result<usize> {
        let numbers = self.numbers().await?;
        let mut full = None;
        for number in numbers.iter().rev() {
            if self.read(*number).await?.full {
                full = Some(*number);
                break;
            }
        }
        let mut deleted = 0;
        for number in numbers {
            if full.is_none_or(|full| number >= full) {
                break;
            }
            match self.read(number).await {
                Ok(record) if record.committed_at_ms >= before_ms => break,
                Ok(_) | Err(Error::Corrupt { .. }) => store::delete(&*self.store, &self.path(number)).await?,
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            }
            deleted += 1;
        }
        let failed = |error| Error::from_store(self.directory.as_ref(), "listed", error);
        let mut listed = self.store.list(Some(&source_directory(self.source)));
        while let Some(object) = listed.try_next().await.map_err(failed)? {
            if is_unfinished(&object.location) && object.last_modified.timestamp_millis() < before_ms {
                store::delete(&*self.store, &object.location).await?;
            }
        }
        Ok(deleted)
    }

    /// Reads every record.
    ///
    /// Errors: if the store cannot be read. Damage is no error of the walk.
    pub async fn verify(&self) -> Result<Verified> {
        let mut found = Verified::default();
        for number in self.numbers().await? {
            let path = self.path(number);
            match self.store.head(&path).await.map_err(|error| Error::from_store(path.as_ref(), "read", error)) {
                Ok(meta) => found.bytes += meta.size,
                // Expired since it was listed.
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            }
            found.objects += 1;
            match self.read(number).await {
                Err(Error::NotFound { .. }) => {}
                read => drop(found.note(read)?),
            }
        }
        Ok(found)
    }

    /// All numbers there are, in order.
    async fn numbers(&self) -> Result<Vec<u64>> {
        let listed: Vec<_> = self
            .store
            .list(Some(&self.directory))
            .try_collect()
            .await
            .map_err(|e| Error::from_store(self.directory.as_ref(), "listed", e))?;
        let number = |path: &Path| path.filename()?.strip_prefix(PREFIX)?.parse().ok();
        let mut numbers: Vec<u64> = listed.iter().filter_map(|object| number(&object.location)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Where everything about a source lies that is not in its tables.
pub fn source_directory(source: Uuid) -> Path {
    Path::from("sources").join(source.to_string())
}

/// A create was under way, and then `error` kept its outcome from being seen.
fn unknown(path: &Path, error: Error) -> Error {
    match error {
        Error::Unknown { .. } => error,
        error => Error::Unknown {
            object: path.to_string(),
            what: "it may have been created, and what is there cannot be read".into(),
            source: Some(Box::new(error)),
        },
    }
}

#[cfg(test)]
mod tests;
