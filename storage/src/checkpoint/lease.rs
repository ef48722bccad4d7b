//! The lease on a source: one owner at a time.
//!
//! `sources/<uuid>/owner/<epoch>` is created conditionally and says who took the source; of several who try, one
//! succeeds. The owner renews it in a second object beside it. When the renewals stop for [`LEASE_TTL_MS`], or the
//! owner is known to be dead, the next epoch may be taken. They have stopped if the last one is so old by its time stamp, or
//! if it has been the same for so long before the eyes of the one who waits: a stamp from the future must not hold a source
//! for years.
//!
//! The lease saves work: it keeps two owners from reading the same source. It is not what keeps the data right, since
//! clocks differ and processes pause; that is the creation of checkpoint records, which only one can win.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::log::source_directory;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::{self, CreateOutcome, StoreRef, create_if_absent};

/// How long a lease holds without being renewed.
pub const LEASE_TTL_MS: i64 = 15_000;

/// Digits of an epoch in a name, so that names sort as numbers do.
const DIGITS: usize = 20;
const RENEWAL_SUFFIX: &str = ".renewed";

/// Who holds a source, or wants to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Identity of the running program; new at each start.
    pub owner: Uuid,
    /// Name of its machine.
    pub host: String,
    /// Its process id on that machine.
    pub pid: u32,
    /// When that process started, in whatever unit the machine tells it: it tells a process from a later one with
    /// the same id.
    pub process_start: u64,
    /// Where it can be reached.
    pub address: String,
    /// When it took the source.
    pub since_ms: i64,
    /// When it was last heard of.
    pub renewed_at_ms: i64,
}

/// What came of trying to take a source.
#[derive(Debug)]
pub enum Claim {
    /// The source is ours.
    Acquired(Lease),
    /// Someone else holds it.
    Held(Holder),
}

/// The right to write a source's checkpoints, until someone else takes it.
#[derive(Debug)]
pub struct Lease {
    store: StoreRef,
    directory: Path,
    epoch: u64,
    holder: Holder,
    clock: Arc<dyn Clock>,
}

/// What somebody who waits for a source has seen of its lease so far.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    /// The epoch, its last renewal, and since when that has been the last one, by the watcher's clock.
    seen: Option<(u64, i64, i64)>,
}

impl LeaseWatch {
    /// Looks once more, and says for how long nothing has changed.
    fn unchanged_ms(&mut self, lease: &Found, now_ms: i64) -> i64 {
        match self.seen {
            Some((epoch, renewed, since)) if (epoch, renewed) == (lease.epoch, lease.last_stamp) => now_ms - since,
            _ => {
                self.seen = Some((lease.epoch, lease.last_stamp, now_ms));
                0
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Renewal {
    renewed_at_ms: i64,
    released: bool,
}

impl Lease {
    /// Tries to take `source`.
    ///
    /// `holder_is_dead` says of a holder whether it is known to run no longer (it is on this host and its process is
    /// gone); then it is replaced without waiting for its lease to end. `watched` is what earlier tries have seen.
    pub async fn acquire(
        store: StoreRef,
        source: Uuid,
        me: Holder,
        clock: Arc<dyn Clock>,
        holder_is_dead: &(dyn Fn(&Holder) -> bool + Send + Sync),
        watched: &mut LeaseWatch,
    ) -> Result<Claim> {
        let directory = source_directory(source).join("owner");
        let newest = newest(&store, &directory).await?;
        if let Some(found) = newest.as_ref() {
            let now = clock.now_ms();
            let age = now.saturating_sub(found.holder.renewed_at_ms).max(watched.unchanged_ms(found, now));
            // A holder's clock may be ahead of ours; its renewals then seem to come from the future, but do come.
            if !found.released && age < LEASE_TTL_MS && !holder_is_dead(&found.holder) {
                return Ok(Claim::Held(found.holder.clone()));
            }
        }
        let epoch = newest.map_or(0, |found| found.epoch) + 1;
        let now = clock.now_ms();
        let holder = Holder { since_ms: now, renewed_at_ms: now, ..me };
        let path = epoch_path(&directory, epoch);
        let bytes = Bytes::from(serde_json::to_vec(&holder).expect("a struct of strings and numbers is always JSON"));
        let found = match create_if_absent(&*store, &path, bytes.clone()).await {
            Ok(CreateOutcome::Created) => bytes.clone(),
            // It may be over and deleted already.
            Ok(CreateOutcome::Exists) => store::read_optional(&*store, &path).await?.unwrap_or_default(),
            Err(error @ Error::Unknown { .. }) => store::read(&*store, &path).await.map_err(|_| error)?,
            Err(error) => return Err(error),
        };
        // Epochs are deleted when they are long over. If this attempt is so late that ours was, a later one exists.
        let last = epochs(&store, &directory).await?.pop().unwrap_or(epoch);
        if found != bytes || last != epoch {
            let found = self::newest(&store, &directory)
                .await?
                .ok_or_else(|| Error::conflict(path.as_ref(), "the source was taken by another owner"))?;
            return Ok(Claim::Held(found.holder));
        }
        let lease = Self { store, directory, epoch, holder, clock };
        lease.forget_old_epochs().await;
        Ok(Claim::Acquired(lease))
    }

    /// Who holds `source` now, if anyone does.
    pub async fn current(store: &StoreRef, source: Uuid, clock: &dyn Clock) -> Result<Option<Holder>> {
        let directory = source_directory(source).join("owner");
        let Some(found) = newest(store, &directory).await? else { return Ok(None) };
        let lives = !found.released && clock.now_ms().saturating_sub(found.holder.renewed_at_ms) < LEASE_TTL_MS;
        Ok(lives.then_some(found.holder))
    }

    /// Number of this lease: larger than that of every owner before.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Who we said we are.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Says that we are still there.
    ///
    /// Errors: [`Error::Conflict`] if someone else has taken the source; the holder must stop at once.
    pub async fn renew(&mut self) -> Result<()> {
        self.check_not_replaced().await?;
        let now = self.clock.now_ms();
        self.write_renewal(&Renewal { renewed_at_ms: now, released: false }).await?;
        self.holder.renewed_at_ms = now;
        Ok(())
    }

    /// Whether the last renewal is so long ago that someone else may have taken the source.
    pub fn may_have_lapsed(&self) -> bool {
        self.clock.now_ms().saturating_sub(self.holder.renewed_at_ms) >= LEASE_TTL_MS
    }

    /// Gives the source back, so that the next owner need not wait.
    pub async fn release(self) -> Result<()> {
        match self.check_not_replaced().await {
            Ok(()) => self.write_renewal(&Renewal { renewed_at_ms: self.clock.now_ms(), released: true }).await,
            // It is not ours any more, so there is nothing to give back.
            Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn check_not_replaced(&self) -> Result<()> {
        match epochs(&self.store, &self.directory).await?.pop() {
            Some(newest) if newest > self.epoch => {
                let path = epoch_path(&self.directory, newest);
                Err(Error::conflict(path.as_ref(), "the source was taken by another owner"))
            }
            _ => Ok(()),
        }
    }

    async fn write_renewal(&self, renewal: &Renewal) -> Result<()> {
        let bytes = serde_json::to_vec(renewal).expect("a struct of numbers is always JSON");
        store::write(&*self.store, &renewal_path(&self.directory, self.epoch), bytes.into()).await
    }

    /// Deletes epochs that are long over. The one before stays, as a trace of who was replaced.
    async fn forget_old_epochs(&self) {
        let Ok(epochs) = epochs(&self.store, &self.directory).await else { return };
        for epoch in epochs.into_iter().filter(|epoch| epoch + 1 < self.epoch) {
            for path in [renewal_path(&self.directory, epoch), epoch_path(&self.directory, epoch)] {
                if let Err(error) = store::delete(&*self.store, &path).await {
                    tracing::debug!(object = %path, %error, "an old lease was not deleted");
                }
            }
        }
    }
}

fn epoch_path(directory: &Path, epoch: u64) -> Path {
    directory.clone().join(format!("{epoch:0DIGITS$}"))
}

fn renewal_path(directory: &Path, epoch: u64) -> Path {
    directory.clone().join(format!("{epoch:0DIGITS$}{RENEWAL_SUFFIX}"))
}

async fn epochs(store: &StoreRef, directory: &Path) -> Result<Vec<u64>> {
    let listed: Vec<_> = store
        .list(Some(directory))
        .try_collect()
        .await
        .map_err(|e| Error::from_store(directory.as_ref(), "listed", e))?;
    let mut epochs: Vec<u64> = listed.iter().filter_map(|object| object.location.filename()?.parse().ok()).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// A lease as it is in the store.
#[derive(Debug)]
struct Found {
    epoch: u64,
    /// With its last renewal.
    holder: Holder,
    /// The time stamp of what was written last.
    last_stamp: i64,
    /// The source was given back.
    released: bool,
}

/// The lease of the newest epoch.
async fn newest(store: &StoreRef, directory: &Path) -> Result<Option<Found>> {
    let mut missing = None;
    loop {
        let Some(epoch) = epochs(store, directory).await?.pop() else { return Ok(None) };
        match read_lease(store, directory, epoch).await {
            // Between the two questions others took the source, twice, and this epoch was forgotten.
            Err(Error::NotFound { .. }) if missing != Some(epoch) => missing = Some(epoch),
            other => return other.map(Some),
        }
    }
}

async fn read_lease(store: &StoreRef, directory: &Path, epoch: u64) -> Result<Found> {
    let path = epoch_path(directory, epoch);
    let not_json = |path: &Path, e: serde_json::Error| Error::corrupt(path.as_ref(), format!("not a lease: {e}"));
    let mut holder: Holder =
        serde_json::from_slice(&store::read(&**store, &path).await?).map_err(|e| not_json(&path, e))?;
    let path = renewal_path(directory, epoch);
    let Some(bytes) = store::read_optional(&**store, &path).await? else {
        return Ok(Found { epoch, last_stamp: holder.renewed_at_ms, holder, released: false });
    };
    let renewal: Renewal = serde_json::from_slice(&bytes).map_err(|e| not_json(&path, e))?;
    holder.renewed_at_ms = holder.renewed_at_ms.max(renewal.renewed_at_ms);
    Ok(Found { epoch, holder, last_stamp: renewal.renewed_at_ms, released: renewal.released })
}

#[cfg(test)]
mod tests;
