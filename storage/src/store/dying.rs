//! A test double: a store whose process dies at one of its requests.
//!
//! A scenario is run once to learn its [`Moment`]s, and then once for each of them: the process dies there, before or
//! after the request took effect, and nothing that it asks for afterwards is done. What is in the store then is what
//! the next process finds.
//!
//! A moment is told by what is done where and for the how-manieth time, not by its place in the order of all requests:
//! work that runs side by side changes that order from run to run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

use super::StoreRef;
use super::durable::unfinished_name;
use super::faulty::Operation;

/// One request of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// What is done.
    pub operation: Operation,
    /// The object's path up to what differs from run to run, or the prefix of a listing.
    pub place: String,
    /// How often that was done there before.
    pub earlier: u32,
}

/// How the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Death {
    /// The request is never carried out.
    Before,
    /// The request is carried out, and nobody hears of it.
    After,
    /// Half of the object was written, under the name that files have before they are complete.
    HalfWritten,
    /// The object was created, and its file still has the name from before as well.
    StillLinked,
}

/// A store that is used by a process that may die.
#[derive(Debug)]
pub struct Dying {
    shared: Arc<Shared>,
    /// Where the files of a directory lie.
    directory: Option<PathBuf>,
}

#[derive(Debug)]
struct Shared {
    inner: StoreRef,
    end: Option<(Moment, Death)>,
    state: Mutex<State>,
    under_way: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    dead: bool,
    counts: BTreeMap<(Operation, String), u32>,
    moments: Vec<Moment>,
}

/// What becomes of a request.
enum Fate {
    Lives(UnderWay),
    Dies(Death, UnderWay),
}

/// A request that is being carried out.
struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl Dying {
    /// `inner`, used by a process that dies at `end`, if at all. `directory` is where its files lie if it is a local one.
    pub fn new(inner: StoreRef, directory: Option<PathBuf>, end: Option<(Moment, Death)>) -> Self {
        let shared = Shared { inner, end, state: Mutex::default(), under_way: watch::Sender::new(0) };
        Self { shared: Arc::new(shared), directory }
    }

    /// All requests so far.
    pub fn moments(&self) -> Vec<Moment> {
        self.shared.lock().moments.clone()
    }

    /// Whether the process has died.
    pub fn is_dead(&self) -> bool {
        self.shared.lock().dead
    }

    /// Waits until no request is under way. Of a dead process nothing happens any more from then on.
    pub async fn settled(&self) {
        let mut under_way = self.shared.under_way.subscribe();
        under_way.wait_for(|count| *count == 0).await.expect("the sender lives as long as this store");
    }

    async fn around<T>(
        &self,
        operation: Operation,
        path: &Path,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.shared.around(operation, path, work).await
    }

    /// Leaves the file behind that a write which was cut off does.
    fn leave_file(&self, path: &Path, payload: &PutPayload, half: bool) -> std::io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let bytes = payload.iter().flatten().copied().collect::<Vec<u8>>();
        let length = if half { bytes.len() / 2 } else { bytes.len() };
        let file = unfinished_name(&directory.join(path.as_ref()), 0);
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(file, &bytes[..length])
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(self: &Arc<Self>, operation: Operation, path: &Path) -> Result<Fate> {
        let mut state = self.lock();
        if state.dead {
            return Err(died(operation, path));
        }
        let place = place(path);
        let count = state.counts.entry((operation, place.clone())).or_default();
        let moment = Moment { operation, place, earlier: *count };
        *count += 1;
        self.under_way.send_modify(|count| *count += 1);
        let under_way = UnderWay(Arc::clone(self));
        let fate = match &self.end {
            Some((end, death)) if *end == moment => {
                state.dead = true;
                Fate::Dies(*death, under_way)
            }
            _ => Fate::Lives(under_way),
        };
        state.moments.push(moment);
        Ok(fate)
    }

    async fn around<T>(
        self: &Arc<Self>,
        operation: Operation,
        path: &Path,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match self.meet(operation, path)? {
            Fate::Lives(_under_way) => work.await,
            Fate::Dies(Death::After, _under_way) => {
                let _ = work.await;
                Err(died(operation, path))
            }
            Fate::Dies(..) => Err(died(operation, path)),
        }
    }
}

/// The path without the id of the writer that named the object, and what follows it.
fn place(path: &Path) -> String {
    const UUID: usize = 36;
    let path = path.as_ref();
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let is_uuid = |at: &usize| path.get(*at..at + UUID).is_some_and(|text| uuid::Uuid::try_parse(text).is_ok());
    let end = (name..path.len()).find(is_uuid).unwrap_or(path.len());
    path[..end].to_owned()
}

fn died(operation: Operation, path: &Path) -> Error {
    Error::Generic {
        store: "dying",
        source: format!("the process died before {operation:?} of {path} was over").into(),
    }
}

impl fmt::Display for Dying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, dying", self.shared.inner)
    }
}

#[async_trait]
impl ObjectStore for Dying {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let operation = if matches!(options.mode, PutMode::Create) { Operation::Create } else { Operation::Put };
        let inner = &self.shared.inner;
        let (death, _under_way) = match self.shared.meet(operation, path)? {
            Fate::Lives(_under_way) => return inner.put_opts(path, payload, options).await,
            Fate::Dies(death, under_way) => (death, under_way),
        };
        if matches!(death, Death::After | Death::StillLinked) {
            let _ = inner.put_opts(path, payload.clone(), options).await;
        }
        if matches!(death, Death::HalfWritten | Death::StillLinked) {
            let left = self.leave_file(path, &payload, death == Death::HalfWritten);
            left.map_err(|source| Error::Generic { store: "dying", source: Box::new(source) })?;
        }
        Err(died(operation, path))
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.around(Operation::Put, path, self.shared.inner.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.around(Operation::Get, path, self.shared.inner.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.around(Operation::Get, path, self.shared.inner.get_ranges(path, ranges)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shared = Arc::clone(&self.shared);
        let delete = move |path: Result<Path>| {
            let shared = Arc::clone(&shared);
            async move {
                let path = path?;
                shared.around(Operation::Delete, &path, shared.inner.delete(&path)).await?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        match self.shared.meet(Operation::List, &path) {
            Ok(Fate::Lives(_)) => self.shared.inner.list(prefix),
            Ok(Fate::Dies(..)) | Err(_) => stream::once(async move { Err(died(Operation::List, &path)) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.around(Operation::List, &path, self.shared.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.around(Operation::Put, to, self.shared.inner.copy_opts(from, to, options)).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn the_dead_ask_for_nothing_more() {
        let name = Path::from("t/bucket-0/data-00000000-0000-4000-8000-00000000000a-7.parquet");
        let moment = Moment { operation: Operation::Put, place: "t/bucket-0/data-".to_owned(), earlier: 1 };
        for (death, written) in [(Death::Before, 1), (Death::After, 2)] {
            let inner: StoreRef = Arc::new(InMemory::new());
            let dying = Dying::new(Arc::clone(&inner), None, Some((moment.clone(), death)));
            dying.put(&name, "first".into()).await.unwrap();
            assert!(!dying.is_dead());
            dying.put(&name, "second".into()).await.unwrap_err();
            assert!(dying.is_dead());
            dying.put(&name, "third".into()).await.unwrap_err();
            dying.delete(&name).await.unwrap_err();
            dying.get(&name).await.unwrap_err();
            dying.settled().await;
            let found = inner.get(&name).await.unwrap().bytes().await.unwrap();
            assert_eq!(found, ["first", "second"][written - 1]);
            assert_eq!(dying.moments().len(), 2, "a request that was never made is none");
        }
    }
}
