//! A test double: a store that fails, delays, loses answers, repeats requests and fills up, as told.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

pub use super::Operation;
use super::StoreRef;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and an error is answered.
    Refuse,
    /// The thing is done, and an error is answered.
    LoseAnswer,
    /// The thing is done, and no answer ever comes.
    Hang,
    /// The thing is done after a while.
    Delay(Duration),
    /// An error is answered, and the thing is done after a while, when nobody expects it any more. Writes only; to other
    /// requests it is a refusal.
    Late(Duration),
    /// The thing is done and answered, and after a while it is done again, as if its request had been sent twice. Writes
    /// only.
    Again(Duration),
    /// Nothing is done, because there is no space left.
    Full,
    /// A conditional create is carried out whatever is there, as by a store that does not know the condition.
    Unconditional,
}

/// A store with faults.
#[derive(Debug)]
pub struct Faulty {
    inner: StoreRef,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    counts: BTreeMap<Operation, u64>,
    /// Writes that arrive later.
    arriving: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Debug)]
struct Rule {
    operation: Operation,
    path_contains: String,
    fault: Fault,
    skip: u32,
    times: u32,
}

impl Faulty {
    /// `inner`, without faults so far.
    pub fn new(inner: StoreRef) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// Lets the next `times` operations of this kind, on paths that contain `path_contains`, meet `fault`. Of several
    /// rules that apply, the first one given is used up first.
    pub fn inject(&self, operation: Operation, path_contains: &str, fault: Fault, times: u32) {
        self.inject_after(operation, path_contains, fault, 0, times);
    }

    /// Like [`Self::inject`], after `skip` such operations that go well.
    pub fn inject_after(&self, operation: Operation, path_contains: &str, fault: Fault, skip: u32, times: u32) {
        let rule = Rule { operation, path_contains: path_contains.to_owned(), fault, skip, times };
        self.lock().rules.push(rule);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.lock().rules.clear();
    }

    /// How many operations of this kind there were, those with faults included.
    pub fn count(&self, operation: Operation) -> u64 {
        self.lock().counts.get(&operation).copied().unwrap_or(0)
    }

    /// Changes one bit of an object, as a failing disk might.
    pub async fn flip_bit(&self, path: &Path, offset: usize) -> Result<()> {
        let mut bytes = self.inner.get(path).await?.bytes().await?.to_vec();
        let length = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(offset % length) {
            *byte ^= 1;
        }
        self.inner.put(path, bytes.into()).await.map(drop)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn meet(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let mut state = self.lock();
        *state.counts.entry(operation).or_default() += 1;
        let applies = |rule: &Rule| rule.operation == operation && path.as_ref().contains(&rule.path_contains);
        let rule = state.rules.iter_mut().find(|rule| rule.times > 0 && applies(rule))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault)
    }

    /// The fault that the next such operation will meet.
    fn next(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let state = self.lock();
        let applies =
            |rule: &&Rule| rule.times > 0 && rule.operation == operation && path.as_ref().contains(&rule.path_contains);
        state.rules.iter().find(applies).filter(|rule| rule.skip == 0).map(|rule| rule.fault)
    }

    /// Lets a write arrive after `pause`. Nobody hears what came of it.
    fn put_later(&self, path: &Path, payload: PutPayload, options: PutOptions, pause: Duration) {
        let (inner, path) = (StoreRef::clone(&self.inner), path.clone());
        let arrival = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = inner.put_opts(&path, payload, options).await;
        });
        self.lock().arriving.push(arrival);
    }

    /// Waits until every write has arrived that was held up.
    pub async fn arrived(&self) {
        let arriving = std::mem::take(&mut self.lock().arriving);
        for arrival in arriving {
            // One that broke off is over too.
            let _ = arrival.await;
        }
    }

    async fn around<T>(&self, operation: Operation, path: &Path, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.meet(operation, path) {
            None => work.await,
            Some(Fault::Refuse | Fault::Late(_)) => Err(refused(operation, path)),
            Some(Fault::LoseAnswer) => {
                // Whatever the answer was, nobody hears it.
                let _ = work.await;
                Err(refused(operation, path))
            }
            Some(Fault::Hang) => {
                let _ = work.await;
                std::future::pending().await
            }
            Some(Fault::Delay(pause)) => {
                tokio::time::sleep(pause).await;
                work.await
            }
            Some(Fault::Full) => Err(full()),
            // Known to conditional creates or to writes alone; to others it is none.
            Some(Fault::Unconditional | Fault::Again(_)) => work.await,
        }
    }
}

fn refused(operation: Operation, path: &Path) -> Error {
    let source =
        std::io::Error::new(std::io::ErrorKind::ConnectionReset, format!("{operation:?} of {path} met a fault"));
    Error::Generic { store: "faulty", source: Box::new(source) }
}

fn full() -> Error {
    Error::Generic { store: "faulty", source: Box::new(std::io::Error::from(std::io::ErrorKind::StorageFull)) }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, faulty", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let operation = if matches!(options.mode, PutMode::Create) { Operation::Create } else { Operation::Put };
        match self.next(operation, path) {
            Some(Fault::Unconditional) if operation == Operation::Create => {
                self.meet(operation, path);
                self.inner.put_opts(path, payload, PutMode::Overwrite.into()).await
            }
            Some(Fault::Late(pause)) => {
                self.meet(operation, path);
                self.put_later(path, payload, options, pause);
                Err(refused(operation, path))
            }
            Some(Fault::Again(pause)) => {
                self.meet(operation, path);
                let result = self.inner.put_opts(path, payload.clone(), options.clone()).await;
                self.put_later(path, payload, options, pause);
                result
            }
            _ => self.around(operation, path, self.inner.put_opts(path, payload, options)).await,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.around(Operation::Put, path, self.inner.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.around(Operation::Get, path, self.inner.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.around(Operation::Get, path, self.inner.get_ranges(path, ranges)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.meet(Operation::Delete, &Path::default()) {
            Some(Fault::Full) => stream::once(async { Err(full()) }).boxed(),
            Some(Fault::Hang) => stream::pending().boxed(),
            Some(_) => stream::once(async { Err(refused(Operation::Delete, &Path::default())) }).boxed(),
            None => self.inner.delete_stream(paths),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        match self.meet(Operation::List, &path) {
            Some(Fault::Hang) => stream::pending().boxed(),
            Some(_) => stream::once(async move { Err(refused(Operation::List, &path)) }).boxed(),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.around(Operation::List, &path, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.around(Operation::Put, to, self.inner.copy_opts(from, to, options)).await
    }
}
