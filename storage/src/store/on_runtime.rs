//! Requests that the threads of the runtime carry out, wherever they are made.
//!
//! A request to the local disk is work for another thread. If none is at hand, a new one is started, and on Linux it has
//! the priority of the thread that makes the request, for as long as it lives. Merges, which stand back behind all else, would
//! in this way leave threads behind that commits are slow on.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::runtime::Handle;

use super::StoreRef;

/// A store whose requests are tasks of a runtime. What is read comes as a whole.
#[derive(Debug)]
pub(crate) struct OnRuntime {
    inner: StoreRef,
    runtime: Handle,
}

impl OnRuntime {
    /// `inner`, with its requests on `runtime`.
    pub(crate) fn new(inner: StoreRef, runtime: Handle) -> Self {
        Self { inner, runtime }
    }
}

impl fmt::Display for OnRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, on its runtime", self.inner)
    }
}

#[async_trait]
impl ObjectStore for OnRuntime {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (inner, path) = (StoreRef::clone(&self.inner), path.clone());
        self.runtime.spawn(async move { inner.put_opts(&path, payload, options).await }).await?
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let (inner, path) = (StoreRef::clone(&self.inner), path.clone());
        let upload = self.runtime.spawn(async move { inner.put_multipart_opts(&path, options).await }).await??;
        Ok(Box::new(UploadOnRuntime { inner: Some(upload), runtime: self.runtime.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let (inner, path) = (StoreRef::clone(&self.inner), path.clone());
        let read = async move {
            let found = inner.get_opts(&path, options).await?;
            let (meta, range, attributes) = (found.meta.clone(), found.range.clone(), found.attributes.clone());
            let bytes = found.bytes().await?;
            let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
            Ok(GetResult { payload, meta, range, attributes })
        };
        self.runtime.spawn(read).await?
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (inner, path, ranges) = (StoreRef::clone(&self.inner), path.clone(), ranges.to_vec());
        self.runtime.spawn(async move { inner.get_ranges(&path, &ranges).await }).await?
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, runtime) = (StoreRef::clone(&self.inner), self.runtime.clone());
        paths
            .then(move |path| {
                let (inner, runtime) = (StoreRef::clone(&inner), runtime.clone());
                async move {
                    let one = stream::once(async { path }).boxed();
                    runtime.spawn(async move { inner.delete_stream(one).try_collect::<Vec<_>>().await }).await?
                }
            })
            .map_ok(|deleted| stream::iter(deleted).map(Ok))
            .try_flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.inner.list(prefix);
        let all = self.runtime.spawn(listed.try_collect::<Vec<_>>());
        stream::once(async move { Ok::<_, object_store::Error>(stream::iter(all.await??).map(Ok)) })
            .try_flatten()
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (inner, prefix) = (StoreRef::clone(&self.inner), prefix.cloned());
        self.runtime.spawn(async move { inner.list_with_delimiter(prefix.as_ref()).await }).await?
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (inner, from, to) = (StoreRef::clone(&self.inner), from.clone(), to.clone());
        self.runtime.spawn(async move { inner.copy_opts(&from, &to, options).await }).await?
    }
}

/// An upload whose requests are tasks of a runtime.
#[derive(Debug)]
struct UploadOnRuntime {
    /// None while a request that ends it is under way, and if that broke off.
    inner: Option<Box<dyn MultipartUpload>>,
    runtime: Handle,
}

impl UploadOnRuntime {
    fn take(&mut self) -> Result<Box<dyn MultipartUpload>> {
        self.inner.take().ok_or_else(|| object_store::Error::Generic {
            store: "upload",
            source: "a request that was to end it broke off".into(),
        })
    }
}

#[async_trait]
impl MultipartUpload for UploadOnRuntime {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.take().map(|mut inner| {
            let part = inner.put_part(data);
            self.inner = Some(inner);
            self.runtime.spawn(part)
        });
        Box::pin(async move { part?.await? })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut inner = self.take()?;
        let ended = self.runtime.spawn(async move { (inner.complete().await, inner) });
        let (result, inner) = ended.await?;
        self.inner = Some(inner);
        result
    }

    async fn abort(&mut self) -> Result<()> {
        let mut inner = self.take()?;
        let ended = self.runtime.spawn(async move { (inner.abort().await, inner) });
        let (result, inner) = ended.await?;
        self.inner = Some(inner);
        result
    }
}
