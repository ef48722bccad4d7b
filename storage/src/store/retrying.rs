//! Every request has a time limit and bounded attempts, and a create whose answer was lost is looked up.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::time::Instant;

use crate::random::{Random, SystemRandom};

/// How often and how long to try.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Attempts in all; there is always one.
    pub attempts: u32,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Pause before the second attempt; it doubles from then on. Up to half of a pause is left out, by chance.
    pub first_backoff: Duration,
    /// Longest pause.
    pub max_backoff: Duration,
    /// No third or later attempt begins when so much time has passed since the first one began. With `timeout` it bounds
    /// a request; the second is made in any case, since the time may have passed while this machine stood still.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            timeout: Duration::from_secs(60),
            first_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            budget: Duration::from_secs(120),
        }
    }
}

/// A store that tries again.
///
/// A conditional create is answered by what is in the store: when an object of the name exists, it is read and
/// compared, because an attempt whose answer was lost may have created it. An object with the very same bytes counts as
/// created. So creates that must tell writers apart need something of the writer's own in their bytes.
///
/// Listings, the bodies of reads, deletes and the parts of uploads are not tried again, but have the time limit as well:
/// each of their steps.
#[derive(Debug)]
pub struct Retrying<S> {
    inner: S,
    policy: RetryPolicy,
    random: Arc<dyn Random>,
}

impl<S: ObjectStore> Retrying<S> {
    /// `inner`, tried according to `policy`.
    pub fn new(inner: S, policy: RetryPolicy) -> Self {
        Self { inner, policy, random: Arc::new(SystemRandom) }
    }

    /// The same, with its pauses drawn from `random`.
    pub fn drawing(self, random: Arc<dyn Random>) -> Self {
        Self { random, ..self }
    }

    /// Waits for between half of `pause` and all of it: requests that failed together do not come again together.
    async fn wait(&self, pause: Duration) {
        tokio::time::sleep(pause.mul_f64(0.5 + self.random.fraction() / 2.0)).await;
    }

    /// Whether another attempt may begin, so long after the first.
    fn another(&self, made: u32, elapsed: Duration) -> bool {
        made < self.policy.attempts && (made < 2 || elapsed < self.policy.budget)
    }

    async fn retry<T, F>(&self, action: &'static str, path: &Path, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut pause = self.policy.first_backoff;
        let mut made = 1;
        let began = Instant::now();
        loop {
            match within(self.policy.timeout, attempt()).await {
                Err(error) if may_pass(&error) && self.another(made, began.elapsed() + pause) => {
                    tracing::debug!(object = %path, action, made, %error, "trying again");
                    self.wait(pause).await;
                    pause = (pause * 2).min(self.policy.max_backoff);
                    made += 1;
                }
                result => return result,
            }
        }
    }

    async fn create(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mut remaining = self.policy.attempts.saturating_sub(1);
        loop {
            match self.create_once(path, payload.clone(), options.clone()).await {
                // Refused because of another create that was under way and came to nothing (S3 answers 409).
                Err(Error::NotFound { .. }) if remaining > 0 => {
                    self.wait(self.policy.first_backoff).await;
                    remaining -= 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn create_once(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let created = self.retry("create", path, || self.inner.put_opts(path, payload.clone(), options.clone())).await;
        let error = match created {
            Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. })) => error,
            // The last answer was lost too. If the object is there, that is an answer; if not, it may still come.
            Err(error) if may_pass(&error) => error,
            result => return result,
        };
        let read = self.retry("read", path, || async {
            let result = self.inner.get(path).await?;
            let (e_tag, version) = (result.meta.e_tag.clone(), result.meta.version.clone());
            Ok((result.bytes().await?, PutResult { e_tag, version }))
        });
        match read.await {
            Ok((found, result)) if found == Bytes::from(payload) => Ok(result),
            Ok(_) => match error {
                error @ (Error::AlreadyExists { .. } | Error::Precondition { .. }) => Err(error),
                error => Err(Error::AlreadyExists { path: path.to_string(), source: Box::new(error) }),
            },
            Err(_) if may_pass(&error) => Err(error),
            // It exists, but whether it is ours cannot be found out.
            Err(read) => Err(read),
        }
    }
}

async fn within<T>(timeout: Duration, attempt: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => {
            let what = format!("no answer within {timeout:?}");
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, what);
            Err(Error::Generic { store: "retrying", source: Box::new(source) })
        }
    }
}

/// The items of `stream`, until one is late.
fn limited<T: Send + 'static>(
    timeout: Duration,
    stream: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    stream::unfold(Some(stream), move |stream| async move {
        let mut stream = stream?;
        match within(timeout, async { Ok(stream.next().await) }).await {
            Ok(next) => next.map(|item| (item, Some(stream))),
            Err(late) => Some((Err(late), None)),
        }
    })
    .boxed()
}

/// An upload whose steps have a time limit.
#[derive(Debug)]
struct Limited {
    inner: Box<dyn MultipartUpload>,
    timeout: Duration,
}

#[async_trait]
impl MultipartUpload for Limited {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        within(self.timeout, self.inner.put_part(part)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        within(self.timeout, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        within(self.timeout, self.inner.abort()).await
    }
}

/// Whether an error says nothing about the next attempt. A full store stays full.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Generic { .. } | Error::JoinError { .. }) && !crate::error::is_full(error)
}

impl<S: ObjectStore> fmt::Display for Retrying<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, retrying", self.inner)
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Retrying<S> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match options.mode {
            PutMode::Create => self.create(path, payload, options).await,
            PutMode::Overwrite => {
                self.retry("put", path, || self.inner.put_opts(path, payload.clone(), options.clone())).await
            }
            // An update that was carried out without an answer would fail when tried again.
            PutMode::Update(_) => within(self.policy.timeout, self.inner.put_opts(path, payload, options)).await,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.retry("put", path, || self.inner.put_multipart_opts(path, options.clone())).await?;
        Ok(Box::new(Limited { inner, timeout: self.policy.timeout }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.retry("get", path, || self.inner.get_opts(path, options.clone())).await?;
        if let GetResultPayload::Stream(body) = result.payload {
            result.payload = GetResultPayload::Stream(limited(self.policy.timeout, body));
        }
        Ok(result)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.retry("get", path, || self.inner.get_ranges(path, ranges)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        limited(self.policy.timeout, self.inner.delete_stream(paths))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        limited(self.policy.timeout, self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        limited(self.policy.timeout, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        self.retry("list", prefix.unwrap_or(&root), || self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        within(self.policy.timeout, self.inner.copy_opts(from, to, options)).await
    }
}
