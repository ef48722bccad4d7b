//! How many requests there were, how large they were, and how long they took. The time of a read or a listing ends with
//! the last byte of it. Each deleted object counts; how long deletes take is not told apart.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::time::Instant;

use super::{Operation, StoreRef};

/// Times are counted by the power of two of their microseconds: the first place is below 2 µs, the last beyond a day.
const PLACES: usize = 40;

#[derive(Debug)]
struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
    longest: AtomicU64,
    times: [AtomicU64; PLACES],
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            requests: zero(),
            errors: zero(),
            bytes: zero(),
            micros: zero(),
            longest: zero(),
            times: std::array::from_fn(|_| zero()),
        }
    }
}

/// What was asked of a store until now.
#[derive(Debug, Default)]
pub struct Statistics([Counters; Operation::ALL.len()]);

/// The requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Requests that ended.
    pub requests: u64,
    /// Those that ended with an error. That an object is not there, or is there already, is an answer and no error.
    pub errors: u64,
    /// Bytes of objects that were read or written.
    pub bytes: u64,
    /// The time all of them took.
    pub total: Duration,
    /// Half of them took no longer than this; a power of two of microseconds.
    pub median: Duration,
    /// 99 of 100 took no longer than this; a power of two of microseconds.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Statistics {
    /// The requests of a kind.
    pub fn of(&self, operation: Operation) -> Figures {
        let counters = &self.0[operation as usize];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let times: Vec<u64> = counters.times.iter().map(load).collect();
        let longest = load(&counters.longest);
        let quantile = |share: f64| {
            let wanted = (times.iter().sum::<u64>() as f64 * share).ceil() as u64;
            let mut counted = 0;
            let place = times.iter().position(|count| {
                counted += count;
                counted >= wanted && counted > 0
            });
            Duration::from_micros(place.map_or(0, |place| (2_u64 << place).min(longest)))
        };
        Figures {
            requests: load(&counters.requests),
            errors: load(&counters.errors),
            bytes: load(&counters.bytes),
            total: Duration::from_micros(load(&counters.micros)),
            median: quantile(0.5),
            p99: quantile(0.99),
            longest: Duration::from_micros(longest),
        }
    }

    fn end(&self, operation: Operation, time: Duration, bytes: u64, failed: bool) {
        let counters = &self.0[operation as usize];
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = (micros.max(1).ilog2() as usize).min(PLACES - 1);
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.micros.fetch_add(micros, Ordering::Relaxed);
        counters.longest.fetch_max(micros, Ordering::Relaxed);
        counters.times[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// A request that goes on. It ends when it is dropped; until it is told otherwise, with an error: it was given up.
struct Running {
    statistics: Arc<Statistics>,
    operation: Operation,
    began: Instant,
    bytes: u64,
    failed: bool,
}

impl Running {
    fn note<T>(&mut self, answer: &Result<T>) {
        self.failed = match answer {
            Ok(_) => false,
            Err(error) => !matches!(
                error,
                object_store::Error::NotFound { .. }
                    | object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. }
                    | object_store::Error::NotModified { .. }
            ),
        };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.statistics.end(self.operation, self.began.elapsed(), self.bytes, self.failed);
    }
}

/// A store whose requests are counted; attempts that a store below makes again are one request here.
#[derive(Debug)]
pub struct Measured {
    inner: StoreRef,
    statistics: Arc<Statistics>,
}

impl Measured {
    /// `inner`, and what is asked of it.
    pub fn new(inner: StoreRef) -> (Self, Arc<Statistics>) {
        let statistics = Arc::<Statistics>::default();
        (Self { inner, statistics: Arc::clone(&statistics) }, statistics)
    }

    fn begin(&self, operation: Operation) -> Running {
        begin(&self.statistics, operation)
    }
}

fn begin(statistics: &Arc<Statistics>, operation: Operation) -> Running {
    Running { statistics: Arc::clone(statistics), operation, began: Instant::now(), bytes: 0, failed: true }
}

/// A stream with whose last item a request ends.
fn until_end<T: Send + 'static>(
    mut running: Running,
    stream: BoxStream<'static, Result<T>>,
    size: impl Fn(&T) -> u64 + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    // A reader that stops early has what it wanted.
    running.failed = false;
    stream
        .inspect(move |item| {
            running.note(item);
            if let Ok(item) = item {
                running.bytes += size(item);
            }
        })
        .boxed()
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, measured", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Measured {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let operation = if matches!(options.mode, PutMode::Overwrite) { Operation::Put } else { Operation::Create };
        let mut running = self.begin(operation);
        running.bytes = payload.content_length() as u64;
        let answer = self.inner.put_opts(path, payload, options).await;
        running.note(&answer);
        answer
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let mut running = self.begin(Operation::Put);
        let answer = self.inner.put_multipart_opts(path, options).await;
        running.note(&answer);
        Ok(Box::new(MeasuredUpload { inner: answer?, statistics: Arc::clone(&self.statistics) }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let mut running = self.begin(Operation::Get);
        let answer = self.inner.get_opts(path, options).await;
        running.note(&answer);
        let mut result = answer?;
        result.payload = match result.payload {
            GetResultPayload::Stream(body) => {
                GetResultPayload::Stream(until_end(running, body, |bytes: &Bytes| bytes.len() as u64))
            }
            file @ GetResultPayload::File(..) => {
                running.bytes = result.range.end.saturating_sub(result.range.start);
                file
            }
        };
        Ok(result)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut running = self.begin(Operation::Get);
        let answer = self.inner.get_ranges(path, ranges).await;
        running.note(&answer);
        running.bytes = answer.iter().flatten().map(|bytes| bytes.len() as u64).sum();
        answer
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let statistics = Arc::clone(&self.statistics);
        let deleted = self.inner.delete_stream(paths);
        deleted.inspect(move |answer| begin(&statistics, Operation::Delete).note(answer)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        until_end(self.begin(Operation::List), self.inner.list(prefix), |_| 0)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        until_end(self.begin(Operation::List), self.inner.list_with_offset(prefix, offset), |_| 0)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut running = self.begin(Operation::List);
        let answer = self.inner.list_with_delimiter(prefix).await;
        running.note(&answer);
        answer
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mut running = self.begin(Operation::Put);
        let answer = self.inner.copy_opts(from, to, options).await;
        running.note(&answer);
        answer
    }
}

/// An upload each of whose parts is a request.
#[derive(Debug)]
struct MeasuredUpload {
    inner: Box<dyn MultipartUpload>,
    statistics: Arc<Statistics>,
}

#[async_trait]
impl MultipartUpload for MeasuredUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut running = begin(&self.statistics, Operation::Put);
        running.bytes = data.content_length() as u64;
        let part = self.inner.put_part(data);
        Box::pin(async move {
            let answer = part.await;
            running.note(&answer);
            answer
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut running = begin(&self.statistics, Operation::Put);
        let answer = self.inner.complete().await;
        running.note(&answer);
        answer
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::super::faulty::{Fault, Faulty};
    use super::*;

    #[tokio::test]
    async fn requests_are_counted_with_their_bytes_times_and_errors() {
        let faulty = Arc::new(Faulty::new(Arc::new(InMemory::new())));
        let (store, statistics) = Measured::new(Arc::clone(&faulty) as StoreRef);
        let path = Path::from("a/b");
        store.put(&path, vec![7; 1000].into()).await.unwrap();
        let create = |bytes: usize| store.put_opts(&path, vec![1; bytes].into(), PutMode::Create.into());
        assert!(create(10).await.is_err());
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(read.len(), 1000);
        assert_eq!(store.get_ranges(&path, &[0..10, 20..30]).await.unwrap().len(), 2);
        assert!(store.get(&Path::from("none")).await.is_err());
        assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 1);

        let put = statistics.of(Operation::Put);
        assert_eq!((put.requests, put.errors, put.bytes), (1, 0, 1000));
        // The answers "exists" and "not found" are no errors.
        let create = statistics.of(Operation::Create);
        assert_eq!((create.requests, create.errors), (1, 0));
        let get = statistics.of(Operation::Get);
        assert_eq!((get.requests, get.errors, get.bytes), (3, 0, 1020));
        assert_eq!(statistics.of(Operation::List).requests, 1);

        let slow = Duration::from_millis(200);
        faulty.inject(Operation::Get, "", Fault::Delay(slow), 1);
        store.get_range(&path, 0..1).await.unwrap();
        let get = statistics.of(Operation::Get);
        assert!(get.longest >= slow && get.p99 >= slow && get.total >= slow, "{get:?}");
        assert!(get.median < slow, "{get:?}");
        // Refused, and given up by who asked.
        faulty.inject(Operation::Get, "", Fault::Refuse, 1);
        assert!(store.get_range(&path, 0..1).await.is_err());
        faulty.inject(Operation::Get, "", Fault::Hang, 1);
        let given_up = tokio::time::timeout(Duration::from_millis(1), store.get_range(&path, 0..1)).await;
        assert!(given_up.is_err());
        assert_eq!(statistics.of(Operation::Get).errors, 2);

        store.delete(&path).await.unwrap();
        assert_eq!(statistics.of(Operation::Delete).requests, 1);
    }
}
