//! Storage errors in capture's codes.

use std::error::Error as _;

use tidegate_storage::{Error as StorageError, ErrorKind};

use crate::error::{Code, Error};

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        let code = match error.kind() {
            ErrorKind::NotFound | ErrorKind::Corrupt => Code::StoreCorrupt,
            ErrorKind::Conflict => Code::Fenced,
            ErrorKind::Unavailable => Code::StoreUnavailable,
            ErrorKind::Full => Code::StoreFull,
            ErrorKind::Denied => Code::StoreDenied,
            ErrorKind::Unknown => Code::CommitUnknown,
            ErrorKind::Unconditional => Code::StoreUnconditional,
            ErrorKind::LocalCache => Code::LocalCacheLost,
            ErrorKind::Invalid => Code::Internal,
        };
        let message = error.to_string();
        let cause = error.source().map(ToString::to_string);
        let built = Self::new(code, message);
        match cause {
            Some(cause) => built.with_detail(cause),
            None => built,
        }
        .with_source(error)
    }
}
