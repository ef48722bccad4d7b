//! From a URL to a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};

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
///   `aws_endpoint`, `aws_access_key_id`, `aws_secret_access_key`, …); what is not given is taken from the environment.
///   An endpoint that begins with `http://` is taken at its word, unless `aws_allow_http` is `false`. Two options are
///   ours: `request_timeout` (30 s unless given), how long one request may take, and `retry_timeout` (60 s), how long
///   after the first attempt another one may begin. The store must support conditional creates (`If-None-Match: *`):
///   see [`require_conditional_creates`](super::require_conditional_creates).
///
/// Every store but `memory:` retries; a directory with the time limits of [`RetryPolicy::default`].
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

/// How long one request to S3 may take, unless `request_timeout` says otherwise.
const S3_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after the first attempt another one may begin, unless `retry_timeout` says otherwise.
const S3_RETRY_TIMEOUT: Duration = Duration::from_secs(60);

fn open_s3(url: &str, rest: &str, options: &[(String, String)]) -> Result<StoreRef> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Error::invalid(format!("store {url:?}: an S3 URL needs a bucket, as s3://bucket/prefix")));
    }
    let mut request_timeout = S3_REQUEST_TIMEOUT;
    let mut retry_timeout = S3_RETRY_TIMEOUT;
    let mut builder = AmazonS3Builder::from_env();
    for (name, value) in options {
        match name.to_ascii_lowercase().as_str() {
            "request_timeout" => request_timeout = duration(url, name, value)?,
            "retry_timeout" => retry_timeout = duration(url, name, value)?,
            lower => {
                let key: AmazonS3ConfigKey =
                    lower.parse().map_err(|_| Error::invalid(format!("store {url:?}: there is no option {name:?}")))?;
                builder = builder.with_config(key, value);
            }
        }
    }
    let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let in_the_clear = endpoint.is_some_and(|endpoint| endpoint.to_ascii_lowercase().starts_with("http://"));
    let asked = options.iter().any(|(name, _)| name.to_ascii_lowercase().ends_with("allow_http"))
        || std::env::var_os("AWS_ALLOW_HTTP").is_some();
    if in_the_clear && !asked {
        builder = builder.with_config(allow_http, "true");
    }
    let time_limit = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
    let store = builder
        .with_config(time_limit, format!("{} ms", request_timeout.as_millis()))
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Broken connections and throttling are retried below us for a short while; what lasts longer is ours. A
        // request that has used up its time is not repeated below: that would be beyond the limit of an attempt.
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 3,
            retry_timeout: request_timeout / 2,
        })
        .build()
        .map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
    let prefix =
        Path::parse(prefix.trim_end_matches('/')).map_err(|e| Error::invalid(format!("store {url:?}: {e}")))?;
    let policy = RetryPolicy {
        // Half of the limit for quick failures below us, and the request after the last of them.
        timeout: request_timeout * 2,
        budget: retry_timeout,
        ..RetryPolicy::default()
    };
    Ok(Arc::new(Retrying::new(PrefixStore::new(store, prefix), policy)))
}

/// A time of at least 100 milliseconds, as `500ms`, `30s`, `2min`; a bare number is seconds.
fn duration(url: &str, name: &str, value: &str) -> Result<Duration> {
    let text = value.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let millis = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "min" => 60_000,
        _ => 0,
    };
    let parsed = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    match parsed {
        Some(millis @ 100..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err(Error::invalid(format!(
            "store {url:?}: option {name} is a time between 100ms and 1440min, as 500ms, 30s or 2min, not {value:?}"
        ))),
    }
}
