//! The catalog's versions: `catalog/v-<n>`, each the whole catalog, each created once.
//!
//! An object is one line of header, with the SHA-256 of the rest, and JSON. A change reads the newest version, and creates
//! the next one; if somebody else did that first, the change is made again on theirs. Versions are never deleted: the number that is free
//! is the one after the newest, and that must not become untrue.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_storage::store::{CreateOutcome, StoreRef, create_if_absent};
use tidegate_storage::table::{Damage, Verified};

use super::Catalog;
use super::sealing::to_hex;
use crate::error::{SqlError, sqlstate};

/// Attempts of one change against concurrent ones. Each failure means that somebody else got on.
const ATTEMPTS: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    sha256: String,
}

const FORMAT: u32 = 1;

#[derive(Debug, Clone, Default)]
struct Current {
    version: u64,
    catalog: Arc<Catalog>,
}

/// The catalog in a store, and the version of it that was seen last.
#[derive(Debug)]
pub struct CatalogStore {
    store: StoreRef,
    current: Mutex<Current>,
}

impl CatalogStore {
    /// Finds the newest version.
    pub async fn open(store: StoreRef) -> Result<Self, SqlError> {
        let opened = Self { store, current: Mutex::default() };
        let objects: Vec<_> = opened
            .store
            .list(Some(&Path::from("catalog")))
            .try_collect()
            .await
            .map_err(|error| store_error("list the catalog", &error))?;
        let newest = objects
            .iter()
            .filter_map(|object| object.location.filename()?.strip_prefix("v-")?.parse::<u64>().ok())
            .max();
        if let Some(version) = newest {
            let catalog = opened
                .read(version)
                .await?
                .ok_or_else(|| SqlError::new(sqlstate::DATA_CORRUPTED, format!("\"{}\" vanished", path(version))))?;
            opened.advance(version, catalog);
        }
        opened.refresh().await?;
        Ok(opened)
    }

    /// The version that was seen last.
    pub fn current(&self) -> Arc<Catalog> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).catalog.clone()
    }

    /// Follows the versions that others have created.
    pub async fn refresh(&self) -> Result<(), SqlError> {
        loop {
            let next = self.version() + 1;
            match self.read(next).await? {
                Some(catalog) => self.advance(next, catalog),
                None => return Ok(()),
            }
        }
    }

    /// Makes a change on the newest version. It is made anew if another one came first, and must have no other effect than its answer.
    pub async fn change<T>(
        &self,
        mut change: impl FnMut(&mut Catalog) -> Result<T, SqlError> + Send,
    ) -> Result<T, SqlError> {
        for _ in 0..ATTEMPTS {
            self.refresh().await?;
            let Current { version, catalog: before } =
                self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut catalog = before.as_ref().clone();
            let answer = change(&mut catalog)?;
            if catalog == *before {
                return Ok(answer);
            }
            let next = version + 1;
            let outcome = create_if_absent(&self.store, &path(next), encode(&catalog)?)
                .await
                .map_err(|error| store_error("write the catalog", &error))?;
            if matches!(outcome, CreateOutcome::Created) {
                self.advance(next, catalog);
                return Ok(answer);
            }
        }
        Err(SqlError::new(sqlstate::SERIALIZATION_FAILURE, "the catalog was changed by others all the time")
            .with_hint("Try again."))
    }

    /// Reads every version.
    ///
    /// Errors: if the store cannot be read. Damage is no error of the walk.
    pub async fn verify(&self) -> Result<Verified, SqlError> {
        let mut found = Verified::default();
        for version in 1..=self.version() {
            let path = path(version);
            let bytes = match self.store.get(&path).await {
                Ok(object) => object.bytes().await,
                Err(error) => Err(error),
            };
            let problem = match bytes {
                Ok(bytes) => {
                    found.objects += 1;
                    found.bytes += bytes.len() as u64;
                    decode(&bytes).err()
                }
                Err(object_store::Error::NotFound { .. }) => Some("it is missing".to_owned()),
                Err(error) => return Err(store_error("read the catalog", &error)),
            };
            found.damages.extend(problem.map(|problem| Damage { object: path.to_string(), problem }));
        }
        Ok(found)
    }

    fn version(&self) -> u64 {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).version
    }

    fn advance(&self, version: u64, catalog: Catalog) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if version > current.version {
            *current = Current { version, catalog: Arc::new(catalog) };
        }
    }

    async fn read(&self, version: u64) -> Result<Option<Catalog>, SqlError> {
        let path = path(version);
        let bytes = match self.store.get(&path).await {
            Ok(found) => found.bytes().await,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(|error| store_error("read the catalog", &error))?;
        decode(&bytes).map(Some).map_err(|reason| {
            SqlError::new(sqlstate::DATA_CORRUPTED, format!("the catalog object \"{path}\" is damaged: {reason}"))
                .with_hint("Restore the object from a copy of the store.")
        })
    }
}

fn path(version: u64) -> Path {
    Path::from(format!("catalog/v-{version}"))
}

fn store_error(action: &str, error: &dyn std::error::Error) -> SqlError {
    SqlError::new(sqlstate::IO_ERROR, format!("cannot {action}: {error}"))
}

fn encode(catalog: &Catalog) -> Result<Bytes, SqlError> {
    let failed = |error: serde_json::Error| SqlError::internal(format!("cannot encode the catalog: {error}"));
    let body = serde_json::to_vec_pretty(catalog).map_err(failed)?;
    let header = Header { format: FORMAT, sha256: to_hex(&Sha256::digest(&body)) };
    let mut bytes = serde_json::to_vec(&header).map_err(failed)?;
    bytes.push(b'\n');
    bytes.extend(body);
    Ok(bytes.into())
}

fn decode(bytes: &[u8]) -> Result<Catalog, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("it has no header")?;
    let (header, body) = bytes.split_at(end);
    let body = body.get(1..).unwrap_or_default();
    let header: Header = serde_json::from_slice(header).map_err(|error| format!("its header: {error}"))?;
    if header.format != FORMAT {
        return Err(format!("its format is {}, not {FORMAT}", header.format));
    }
    if header.sha256 != to_hex(&Sha256::digest(body)) {
        return Err("its digest is another".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
