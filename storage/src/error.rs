//! The one error type of this crate: few kinds, each saying what the caller can do about it.

use crate::store::checked::DamagedFile;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with stored data. Every message names the object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object is not there. A reader may have been handed something that has expired meanwhile.
    #[error("object {object} does not exist")]
    NotFound {
        /// Path of the object in its store.
        object: String,
    },
    /// The object's bytes are not what was written. Nothing read from it may be used.
    #[error("object {object} is corrupt: {what}")]
    Corrupt {
        /// Path of the object in its store.
        object: String,
        /// Which check failed.
        what: String,
    },
    /// Another writer holds or wrote what this one wanted to write. The caller stops and reads again.
    #[error("object {object} was written by another writer: {what}")]
    Conflict {
        /// Path of the object in its store.
        object: String,
        /// How the two differ.
        what: String,
    },
    /// The store did not answer or refused for now; nothing was changed. Retry later.
    #[error("object {object} could not be {action}: the store is unavailable")]
    Unavailable {
        /// Path of the object in its store.
        object: String,
        /// `read`, `written`, `listed` or `deleted`.
        action: &'static str,
        /// The store's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store has no room left. Retrying helps only after space was made.
    #[error("object {object} could not be written: the store is full")]
    Full {
        /// Path of the object in its store.
        object: String,
        /// The store's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store refuses these credentials or this operation for good.
    #[error("object {object} could not be {action}: the store refuses access")]
    Denied {
        /// Path of the object in its store.
        object: String,
        /// `read`, `written`, `listed` or `deleted`.
        action: &'static str,
        /// The store's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The write may or may not have happened. The caller must read the object again before it goes on.
    #[error("the outcome of writing object {object} is unknown: {what}")]
    Unknown {
        /// Path of the object in its store.
        object: String,
        /// Why the outcome could not be found out.
        what: String,
        /// The store's own error.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The store does not do what everything here rests on: to create an object only if there is none of its name.
    #[error("the store does not honour conditional creates: object {object}: {what}")]
    Unconditional {
        /// Path of the object that was tried.
        object: String,
        /// What the store did.
        what: String,
    },
    /// A file of the local cache directory is lost or damaged. No data is: the same work, begun again from the last
    /// checkpoint, makes it anew.
    #[error("file {file} of the local cache directory is lost or damaged: {what}")]
    LocalCache {
        /// Path of the file below the cache directory.
        file: String,
        /// What was found.
        what: String,
    },
    /// The caller asked for something that cannot be represented or does not exist.
    #[error("{0}")]
    Invalid(String),
}

/// The kind of an [`Error`], for callers that choose by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// See [`Error::NotFound`].
    NotFound,
    /// See [`Error::Corrupt`].
    Corrupt,
    /// See [`Error::Conflict`].
    Conflict,
    /// See [`Error::Unavailable`].
    Unavailable,
    /// See [`Error::Full`].
    Full,
    /// See [`Error::Denied`].
    Denied,
    /// See [`Error::Unknown`].
    Unknown,
    /// See [`Error::Unconditional`].
    Unconditional,
    /// See [`Error::LocalCache`].
    LocalCache,
    /// See [`Error::Invalid`].
    Invalid,
}

impl Error {
    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Full { .. } => ErrorKind::Full,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Unknown { .. } => ErrorKind::Unknown,
            Self::Unconditional { .. } => ErrorKind::Unconditional,
            Self::LocalCache { .. } => ErrorKind::LocalCache,
            Self::Invalid(_) => ErrorKind::Invalid,
        }
    }

    /// Whether the same call may succeed later without anyone doing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// An [`Error::Corrupt`].
    pub fn corrupt(object: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Corrupt { object: object.into(), what: what.into() }
    }

    /// An [`Error::Conflict`].
    pub fn conflict(object: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Conflict { object: object.into(), what: what.into() }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// What a store's error on `object` means. `action` is `read`, `written`, `listed` or `deleted`.
    pub fn from_store(object: impl Into<String>, action: &'static str, error: object_store::Error) -> Self {
        use object_store::Error as Store;
        let object = object.into();
        if let Some(damage) = DamagedFile::find(&error) {
            return Self::corrupt(&damage.object, damage.to_string());
        }
        match error {
            Store::NotFound { .. } => Self::NotFound { object },
            Store::AlreadyExists { .. } => Self::conflict(object, "it exists already"),
            Store::Precondition { .. } => Self::conflict(object, "it was changed meanwhile"),
            error @ (Store::PermissionDenied { .. } | Store::Unauthenticated { .. }) => {
                Self::Denied { object, action, source: Box::new(error) }
            }
            error @ (Store::InvalidPath { .. }
            | Store::NotSupported { .. }
            | Store::NotImplemented { .. }
            | Store::UnknownConfigurationKey { .. }) => Self::Invalid(format!("object {object}: {error}")),
            error if is_full(&error) => Self::Full { object, source: Box::new(error) },
            error => Self::Unavailable { object, action, source: Box::new(error) },
        }
    }
}

/// Whether the chain of causes ends in the operating system's "no space left" or "quota exceeded".
pub(crate) fn is_full(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind::{QuotaExceeded, StorageFull};
            if matches!(io.kind(), StorageFull | QuotaExceeded) {
                return true;
            }
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_an_unreachable_store() {
        let full = |kind| object_store::Error::Generic {
            store: "test",
            source: Box::new(std::io::Error::new(kind, "from the disk")),
        };
        let error = Error::from_store("a/b", "written", full(std::io::ErrorKind::StorageFull));
        assert_eq!(error.kind(), ErrorKind::Full);
        assert_eq!(error.to_string(), "object a/b could not be written: the store is full");
        assert!(!error.is_retryable());
        let error = Error::from_store("a/b", "read", full(std::io::ErrorKind::TimedOut));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
    }
}
