//! From a URL to a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, RetryConfig};

use super::StoreRef;
use super::durable::DurableFiles;
use super::retrying::{RetryPolicy, Retrying};
use crate::error::{Error, Result};

/// Opens a store.
///
/// * a path or `file:///path`: files below this directory, which is created. Option `durable` (`true` unless given):
///   whether each file is synced to the disk before a write counts.
/// * `memory:`: nothing is kept.
/// * `s3://bucket/prefix`: S3 or what speaks its protocol. Options are those of `object_store` (`aws_region`,
///   `aws_endpoint`, `aws_access_key_id`, `aws_secret_access_key`, `aws_allow_http`, …); what is not given is taken from
///   the environment. The store must support conditional creates (`If-None-Match: *`).
///
/// Every store but `memory:` retries, with the time limits of [`RetryPolicy::default`].
pub fn open(url: &str, options: &[(String, String)]) -> Result<StoreRef> {
    match url.split_once(':') {
        Some(("memory", "" | "//" | "///")) => {
            refuse_options(url, options)?;
            Ok(Arc::new(InMemory::new()))
        }
        Some(("s3" | "s3a", rest)) => open_s3(url, rest.trim_start_matches('/'), options),
        Some(("file", rest)) => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            let path = path.strip_prefix("localhost").unwrap_or(path);
            if !path.starts_with('/') {
                return Err(Error::invalid(format!(
                    "store {url:?}: a file URL needs an absolute path, as file:///data"
                )));
            }
            let decoded = Path::from_url_path(path).map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
            open_files(url, PathBuf::from(format!("/{decoded}")), options)
        }
        Some((scheme, rest)) if rest.starts_with("//") => {
            Err(Error::invalid(format!("store {url:?}: {scheme} is not supported; use a path, file:, s3: or memory:")))
        }
        _ if url.is_empty() => Err(Error::invalid("the store's location is empty")),
        _ => open_files(url, PathBuf::from(url), options),
    }
}

fn refuse_options(url: &str, options: &[(String, String)]) -> Result<()> {
    match options.first() {
        Some((name, _)) => Err(Error::invalid(format!("store {url:?}: there is no option {name:?}"))),
        None => Ok(()),
    }
}

fn open_files(url: &str, root: PathBuf, options: &[(String, String)]) -> Result<StoreRef> {
    let mut durable = true;
    for (name, value) in options {
        match (name.as_str(), value.as_str()) {
            ("durable", "true") => durable = true,
            ("durable", "false") => durable = false,
            ("durable", _) => {
                return Err(Error::invalid(format!("store {url:?}: option durable is true or false, not {value:?}")));
            }
            _ => refuse_options(url, std::slice::from_ref(&(name.clone(), value.clone())))?,
        }
    }
    std::fs::create_dir_all(&root)
        .map_err(|e| Error::invalid(format!("store {url:?}: the directory cannot be made: {e}")))?;
    let files = LocalFileSystem::new_with_prefix(&root).map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
    let policy = RetryPolicy::default();
    Ok(if durable {
        Arc::new(Retrying::new(DurableFiles::new(files), policy))
    } else {
        Arc::new(Retrying::new(files, policy))
    })
}

fn open_s3(url: &str, rest: &str, options: &[(String, String)]) -> Result<StoreRef> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Error::invalid(format!("store {url:?}: an S3 URL needs a bucket, as s3://bucket/prefix")));
    }
    let policy = RetryPolicy::default();
    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in options {
        let key: AmazonS3ConfigKey = name
            .to_ascii_lowercase()
            .parse()
            .map_err(|_| Error::invalid(format!("store {url:?}: there is no option {name:?}")))?;
        builder = builder.with_config(key, value);
    }
    let store = builder
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Broken connections and throttling are retried below us for a short while; what lasts longer is ours.
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 3,
            retry_timeout: policy.timeout.saturating_sub(Duration::from_secs(1)),
        })
        .build()
        .map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
    let prefix =
        Path::parse(prefix.trim_end_matches('/')).map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
    Ok(Arc::new(Retrying::new(PrefixStore::new(store, prefix), policy)))
}
