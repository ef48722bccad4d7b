//! Which requests of a store's user are under way, and for how long.
//!
//! A store that answers late is no error yet, and nothing else tells an operator why nothing moves.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::time::Instant;

use super::StoreRef;

/// A store whose requests can be looked at while they are under way. A request ends with its answer, a read or a
/// listing with the last byte of it; attempts that a store below makes again are one request here.
#[derive(Debug)]
pub struct Watched {
    inner: StoreRef,
    requests: Requests,
}

/// The requests under way.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    requests: BTreeMap<u64, (String, &'static str, Instant)>,
}

/// A request that has not been answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Path of the object, or of the directory that is listed.
    pub object: String,
    /// `read`, `written`, `listed` or `deleted`.
    pub action: &'static str,
    /// Time since it began.
    pub waiting: Duration,
}

impl Requests {
    /// The request that has been waiting longest.
    pub fn oldest(&self) -> Option<Request> {
        let open = self.lock();
        // Numbers are given in the order of the beginnings.
        let (object, action, began) = open.requests.values().next()?;
        Some(Request { object: object.clone(), action, waiting: began.elapsed() })
    }

    fn begin(&self, action: &'static str, path: &Path) -> UnderWay {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.requests.insert(number, (path.to_string(), action, Instant::now()));
        UnderWay { requests: self.clone(), number }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends its request when dropped.
#[derive(Debug)]
struct UnderWay {
    requests: Requests,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.requests.lock().requests.remove(&self.number);
    }
}

impl Watched {
    /// `inner`, and its requests.
    pub fn new(inner: StoreRef) -> (Self, Requests) {
        let requests = Requests::default();
        (Self { inner, requests: requests.clone() }, requests)
    }
}

/// A stream during which a request is under way.
fn keep<T: Send + 'static>(under_way: UnderWay, stream: BoxStream<'static, T>) -> BoxStream<'static, T> {
    stream
        .inspect(move |_| {
            let _kept = &under_way;
        })
        .boxed()
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, watched", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let _under_way = self.requests.begin("written", path);
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let _under_way = self.requests.begin("written", path);
        let inner = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(WatchedUpload { inner, requests: self.requests.clone(), path: path.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let under_way = self.requests.begin("read", path);
        let mut result = self.inner.get_opts(path, options).await?;
        result.payload = match result.payload {
            GetResultPayload::Stream(body) => GetResultPayload::Stream(keep(under_way, body)),
            file @ GetResultPayload::File(..) => file,
        };
        Ok(result)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let _under_way = self.requests.begin("read", path);
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // The paths come one by one; none of them stands for all.
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        keep(self.requests.begin("listed", &prefix.cloned().unwrap_or_default()), self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let under_way = self.requests.begin("listed", &prefix.cloned().unwrap_or_default());
        keep(under_way, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let _under_way = self.requests.begin("listed", &prefix.cloned().unwrap_or_default());
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _under_way = self.requests.begin("written", to);
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload each of whose parts is a request.
#[derive(Debug)]
struct WatchedUpload {
    inner: Box<dyn MultipartUpload>,
    requests: Requests,
    path: Path,
}

#[async_trait]
impl MultipartUpload for WatchedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (requests, path, part) = (self.requests.clone(), self.path.clone(), self.inner.put_part(data));
        Box::pin(async move {
            let _under_way = requests.begin("written", &path);
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _under_way = self.requests.begin("written", &self.path);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
