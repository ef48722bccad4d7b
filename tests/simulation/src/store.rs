//! An object store in the world: it keeps what conditional creates promise, and nothing else.
//!
//! A request arrives after a while and its answer comes after another one, so that requests overtake each other. It may get
//! lost on either way, arrive twice, or arrive long after its sender has been told that it failed or has ceased to exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::sync::oneshot;

use crate::note;
use crate::world::World;

/// What lies in the store. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<Objects>>);

#[derive(Debug, Default)]
struct Objects {
    objects: BTreeMap<Path, Object>,
    writes: u64,
    /// Paths of objects since they were last taken, in the order in which they were created.
    created: Vec<Path>,
    /// What processes have begun since that was last taken.
    begun: BTreeSet<(&'static str, Moment)>,
    /// Who has taken the source over, and read no table since.
    owners: BTreeSet<&'static str>,
}

#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    /// As it was written, if it is damaged.
    written: Option<Bytes>,
    modified_ms: i64,
    tag: u64,
}

/// What a process is in the midst of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// It writes the list of a snapshot's manifests: a checkpoint is near.
    Committing,
    /// It reads data files for a merge, or manifests.
    Reading,
    /// It has taken the source over, and reads what its tables are.
    Recovering,
    /// It looks whose the source is.
    Watching,
}

/// What can happen to an object; a place is a share of its length.
#[derive(Debug, Clone, Copy)]
pub enum Damage {
    /// A bit is another one.
    Flipped(f64, u32),
    /// A digit of what is text is another one.
    OtherDigit(f64),
    /// The end is missing.
    Cut(f64),
    /// It is not there.
    Gone,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The paths of the objects created since the last call.
    pub fn take_created(&self) -> Vec<Path> {
        std::mem::take(&mut self.lock().created)
    }

    /// What processes have begun since the last call.
    pub fn take_begun(&self) -> BTreeSet<(&'static str, Moment)> {
        std::mem::take(&mut self.lock().begun)
    }

    /// Number and bytes of all objects.
    pub fn size(&self) -> (usize, usize) {
        let objects = self.lock();
        (objects.objects.len(), objects.objects.values().map(|object| object.bytes.len()).sum())
    }

    /// Whether there is an object.
    pub fn contains(&self, path: &Path) -> bool {
        self.lock().objects.contains_key(path)
    }

    /// Damages an object behind everybody's back, but for the examiner's, who has to tell what is shown from what was
    /// written.
    pub fn damage(&self, path: &Path, damage: Damage) {
        let mut objects = self.lock();
        let Some(object) = objects.objects.get_mut(path) else { return };
        object.bytes = object.written.get_or_insert(object.bytes.clone()).clone();
        let at = |share: f64, length: usize| ((share * length as f64) as usize).min(length.saturating_sub(1));
        match damage {
            Damage::Flipped(share, bit) => {
                let mut bytes = object.bytes.to_vec();
                let place = at(share, bytes.len());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << bit;
                }
                object.bytes = bytes.into();
            }
            Damage::OtherDigit(share) => {
                let mut bytes = object.bytes.to_vec();
                let digits: Vec<usize> = (0..bytes.len()).filter(|place| bytes[*place].is_ascii_digit()).collect();
                if let Some(place) = digits.get(at(share, digits.len())) {
                    bytes[*place] ^= 1;
                }
                object.bytes = bytes.into();
            }
            Damage::Cut(share) => object.bytes = object.bytes.slice(..at(share, object.bytes.len())),
            Damage::Gone => drop(objects.objects.remove(path)),
        }
    }

    /// Writes and deletes as another engine would.
    pub fn write(&self, path: &Path, bytes: Option<Bytes>, now_ms: i64) {
        let mut objects = self.lock();
        match bytes {
            Some(bytes) => drop(objects.put(path, bytes, false, now_ms)),
            None => drop(objects.objects.remove(path)),
        }
    }

    /// The content of an object.
    pub fn content(&self, path: &Path) -> Option<Bytes> {
        self.lock().objects.get(path).map(|object| object.bytes.clone())
    }

    /// The paths of the objects that were written last, the newest first.
    pub fn newest_paths(&self, count: usize) -> Vec<Path> {
        let objects = self.lock();
        let mut all: Vec<(u64, &Path)> = objects.objects.iter().map(|(path, object)| (object.tag, path)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().take(count).map(|(_, path)| path.clone()).collect()
    }

    /// The paths of all objects.
    pub fn paths(&self) -> Vec<Path> {
        self.lock().objects.keys().cloned().collect()
    }
}

impl Objects {
    /// Remembers what a request says of the process that makes it.
    fn note_begun(&mut self, who: &'static str, path: &Path, writes: bool) {
        let name = path.filename().unwrap_or_default();
        match (writes, name.starts_with("manifest")) {
            (true, true) if name.starts_with("manifest-list") => drop(self.begun.insert((who, Moment::Committing))),
            (true, false) if path.as_ref().contains("/owner/") && !name.contains('.') => drop(self.owners.insert(who)),
            (false, false) if name == "owner" => drop(self.begun.insert((who, Moment::Watching))),
            (false, true) if self.owners.remove(who) => drop(self.begun.insert((who, Moment::Recovering))),
            (false, is_manifest) if is_manifest || name.ends_with(".parquet") => {
                self.begun.insert((who, Moment::Reading));
            }
            _ => {}
        }
    }

    fn put(&mut self, path: &Path, bytes: Bytes, create: bool, now_ms: i64) -> Result<PutResult> {
        if create && self.objects.contains_key(path) {
            return Err(Error::AlreadyExists { path: path.to_string(), source: "it exists".into() });
        }
        self.writes += 1;
        let tag = self.writes;
        if self.objects.insert(path.clone(), Object { bytes, written: None, modified_ms: now_ms, tag }).is_none() {
            self.created.push(path.clone());
        }
        Ok(PutResult { e_tag: Some(tag.to_string()), version: None })
    }

    fn meta(path: &Path, object: &Object) -> ObjectMeta {
        ObjectMeta {
            location: path.clone(),
            last_modified: DateTime::from_timestamp_millis(object.modified_ms).unwrap_or_default(),
            size: object.bytes.len() as u64,
            e_tag: Some(object.tag.to_string()),
            version: None,
        }
    }

    fn get(&self, path: &Path, options: &GetOptions) -> Result<(Bytes, ObjectMeta, Range<u64>)> {
        let object = self.objects.get(path).ok_or_else(|| absent(path))?;
        let meta = Self::meta(path, object);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => range
                .as_range(meta.size)
                .map_err(|error| Error::Generic { store: "simulated", source: Box::new(error) })?,
        };
        let bytes =
            if options.head { Bytes::new() } else { object.bytes.slice(range.start as usize..range.end as usize) };
        Ok((bytes, meta, range))
    }

    fn list(&self, prefix: Option<&Path>, after: Option<&Path>, limit: usize) -> Vec<ObjectMeta> {
        let is_below = |path: &&Path| {
            prefix.is_none_or(|prefix| {
                prefix.as_ref().is_empty() || path.prefix_match(prefix).is_some_and(|mut rest| rest.next().is_some())
            })
        };
        self.objects
            .iter()
            .filter(|(path, _)| is_below(path) && after.is_none_or(|after| *path > after))
            .take(limit)
            .map(|(path, object)| Self::meta(path, object))
            .collect()
    }
}

fn absent(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "there is none".into() }
}

/// How the way to the store is, from one process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Weather(Arc<Mutex<Conditions>>);

/// Probabilities of what may happen to a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    /// It never arrives, and an error is answered.
    pub refused: f64,
    /// It arrives, and an error is answered.
    pub answer_lost: f64,
    /// It arrives, and nothing is ever answered.
    pub silent: f64,
    /// An error is answered, and it arrives much later.
    pub late: f64,
    /// It arrives twice.
    pub twice: f64,
    /// The longest way, one way.
    pub slowest: Duration,
    /// Writes are refused because there is no space.
    pub full: bool,
    /// Nothing arrives.
    pub cut_off: bool,
    /// Nearly nothing goes well with objects whose paths contain this: stores slow down parts of their names.
    pub sour: Option<&'static str>,
}

impl Weather {
    /// Changes the conditions.
    pub fn set(&self, conditions: Conditions) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = conditions;
    }

    fn now(&self) -> Conditions {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Conditions {
    /// Nothing goes wrong.
    pub fn calm() -> Self {
        Self { slowest: Duration::from_millis(6), ..Self::default() }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    Refused,
    AnswerLost,
    Silent,
    Late,
    Twice,
    Full,
}

/// The store as one process reaches it.
#[derive(Clone)]
pub struct Client {
    world: World,
    disk: Disk,
    weather: Weather,
    who: &'static str,
}

impl Client {
    /// The way of `who` to the store.
    pub fn new(world: World, disk: Disk, weather: Weather, who: &'static str) -> Self {
        Self { world, disk, weather, who }
    }

    fn fate(&self, path: &Path, writes: bool) -> (Fate, Duration, Duration) {
        let conditions = self.weather.now();
        let slowest = conditions.slowest.max(Duration::from_millis(1));
        let fastest = Duration::from_micros(300);
        let (there, back) = (self.world.between(fastest, slowest), self.world.between(fastest, slowest));
        let mut left = self.world.draw(rand::Rng::random::<f64>);
        let mut is = |probability: f64| {
            left -= probability;
            left < 0.0
        };
        let is_sour = conditions.sour.is_some_and(|part| path.as_ref().contains(part));
        let fate = if is_sour && is(0.45) {
            Fate::Refused
        } else if is_sour && is(0.3) {
            Fate::AnswerLost
        } else if is_sour && is(0.2) {
            Fate::Late
        } else if conditions.cut_off || is(conditions.refused) {
            Fate::Refused
        } else if conditions.full && writes {
            Fate::Full
        } else if is(conditions.answer_lost) {
            Fate::AnswerLost
        } else if is(conditions.silent) {
            Fate::Silent
        } else if is(conditions.late) {
            Fate::Late
        } else if is(conditions.twice) {
            Fate::Twice
        } else {
            Fate::Answered
        };
        (fate, there, back)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of {}", self.who)
    }
}

fn found(bytes: Bytes, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    let payload = GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed());
    GetResult { payload, meta, range, attributes: Default::default() }
}

/// What requests come to, wherever they come from.
trait Requests: Send + Sync + Clone + 'static {
    /// How many objects the next page of a listing has at most.
    fn page_size(&self) -> usize;

    fn ask<T: Send + 'static>(
        &self,
        action: &'static str,
        path: &Path,
        writes: bool,
        apply: impl Fn(&mut Objects, i64) -> Result<T> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<T>> + Send;
}

impl Requests for Client {
    fn page_size(&self) -> usize {
        if self.world.chance(0.2) { 1 + self.world.below(30) as usize } else { 1000 }
    }

    async fn ask<T: Send + 'static>(
        &self,
        action: &'static str,
        path: &Path,
        writes: bool,
        apply: impl Fn(&mut Objects, i64) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let (fate, there, back) = self.fate(path, writes);
        self.disk.lock().note_begun(self.who, path, writes);
        note!(self.world, "{} {action} {path} {fate:?} {}+{}", self.who, there.as_micros(), back.as_micros());
        let (sender, answer) = oneshot::channel();
        let apply = Arc::new(apply);
        let arrive = {
            let (disk, world) = (self.disk.clone(), self.world.clone());
            move || apply(&mut disk.lock(), world.now_ms())
        };
        let world = self.world.clone();
        let reset = || Error::Generic {
            store: "simulated",
            source: Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
        };
        match fate {
            Fate::Refused => self.world.after(there + back, move || drop(sender.send(Err(reset())))),
            Fate::Full => self.world.after(there + back, move || {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                drop(sender.send(Err(Error::Generic { store: "simulated", source: Box::new(full) })));
            }),
            Fate::Answered => self.world.after(there, move || {
                let result = arrive();
                world.after(back, move || drop(sender.send(result)));
            }),
            Fate::AnswerLost => self.world.after(there, move || {
                drop(arrive());
                world.after(back, move || drop(sender.send(Err(reset()))));
            }),
            Fate::Silent => self.world.after(there, move || {
                drop(arrive());
                // The sender lives on until nobody can be waiting any more.
                world.after(Duration::from_secs(3600), move || drop(sender));
            }),
            Fate::Late => {
                let pause = self.world.between(Duration::from_millis(5), Duration::from_secs(8));
                self.world.after(there + back, move || drop(sender.send(Err(reset()))));
                if writes {
                    self.world.after(there + pause, move || drop(arrive()));
                }
            }
            Fate::Twice => {
                let pause = self.world.between(Duration::from_millis(1), Duration::from_secs(4));
                let again = arrive.clone();
                if writes {
                    self.world.after(there + pause, move || drop(again()));
                }
                self.world.after(there, move || {
                    let result = arrive();
                    world.after(back, move || drop(sender.send(result)));
                });
            }
        }
        answer.await.unwrap_or_else(|_| Err(reset()))
    }
}

/// The store as an examiner sees it: at once, without changing the world, and as it was written.
#[derive(Clone, Debug)]
pub struct Direct(pub Disk);

impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store itself")
    }
}

impl Requests for Direct {
    fn page_size(&self) -> usize {
        usize::MAX
    }

    async fn ask<T: Send + 'static>(
        &self,
        _: &'static str,
        path: &Path,
        _: bool,
        apply: impl Fn(&mut Objects, i64) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let mut objects = self.0.lock();
        let Some(written) = objects.objects.get(path).and_then(|object| object.written.clone()) else {
            return apply(&mut objects, 0);
        };
        let damaged = objects.objects.get_mut(path).map(|object| std::mem::replace(&mut object.bytes, written));
        let result = apply(&mut objects, 0);
        if let (Some(object), Some(damaged)) = (objects.objects.get_mut(path), damaged) {
            object.bytes = damaged;
        }
        result
    }
}

/// The store with what is damaged in it, at once and without changing the world.
#[derive(Clone, Debug)]
pub struct AsItIs(pub Disk);

impl fmt::Display for AsItIs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store with its damage")
    }
}

impl Requests for AsItIs {
    fn page_size(&self) -> usize {
        usize::MAX
    }

    async fn ask<T: Send + 'static>(
        &self,
        _: &'static str,
        _: &Path,
        _: bool,
        apply: impl Fn(&mut Objects, i64) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        apply(&mut self.0.lock(), 0)
    }
}

/// A listing: pages in the order of the names, each as of the moment at which it was asked for.
struct Pages<R> {
    store: R,
    prefix: Option<Path>,
    after: Option<Path>,
    is_over: bool,
}

impl<R: Requests> Pages<R> {
    async fn next(&mut self) -> Result<Option<Vec<ObjectMeta>>> {
        if self.is_over {
            return Ok(None);
        }
        let (prefix, after) = (self.prefix.clone(), self.after.clone());
        let path = self.prefix.clone().unwrap_or_default();
        let limit = self.store.page_size();
        let list = move |objects: &mut Objects, _| Ok(objects.list(prefix.as_ref(), after.as_ref(), limit));
        let page = self.store.ask("list", &path, false, list).await?;
        self.is_over = page.len() < limit;
        self.after = page.last().map(|object| object.location.clone());
        Ok(Some(page))
    }
}

/// An upload of parts, which is one request in the end.
#[derive(Debug)]
struct Upload<R> {
    store: R,
    path: Path,
    parts: Vec<Bytes>,
}

#[async_trait]
impl<R: Requests + fmt::Debug> MultipartUpload for Upload<R> {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.parts.push(part.into());
        Box::pin(async { Ok(()) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (path, bytes) = (self.path.clone(), Bytes::from(self.parts.concat()));
        let at = path.clone();
        self.store.ask("complete", &path, true, move |objects, now| objects.put(&at, bytes.clone(), false, now)).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}

macro_rules! is_object_store {
    ($store:ty) => {
        #[async_trait]
        impl ObjectStore for $store {
            async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
                let create = match options.mode {
                    PutMode::Create => true,
                    PutMode::Overwrite => false,
                    PutMode::Update(_) => {
                        return Err(Error::NotImplemented {
                            operation: "update".into(),
                            implementer: "simulated".into(),
                        });
                    }
                };
                let (at, bytes) = (path.clone(), Bytes::from(payload));
                let action = if create { "create" } else { "put" };
                self.ask(action, path, true, move |objects, now| objects.put(&at, bytes.clone(), create, now)).await
            }

            async fn put_multipart_opts(
                &self,
                path: &Path,
                _: PutMultipartOptions,
            ) -> Result<Box<dyn MultipartUpload>> {
                Ok(Box::new(Upload { store: self.clone(), path: path.clone(), parts: Vec::new() }))
            }

            async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
                let at = path.clone();
                let got = self.ask("get", path, false, move |objects, _| objects.get(&at, &options)).await;
                got.map(|(bytes, meta, range)| found(bytes, meta, range))
            }

            fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
                let store = self.clone();
                let delete = move |path: Path| {
                    let store = store.clone();
                    async move {
                        let at = path.clone();
                        let removed = store.ask("delete", &path, true, move |objects, _| {
                            objects.objects.remove(&at).map(drop).ok_or_else(|| absent(&at))
                        });
                        removed.await.map(|()| path)
                    }
                };
                paths.map_ok(delete).try_buffered(4).boxed()
            }

            fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
                let pages = Pages { store: self.clone(), prefix: prefix.cloned(), after: None, is_over: false };
                stream::try_unfold(pages, async |mut pages| {
                    Ok::<_, Error>(pages.next().await?.map(|page| (stream::iter(page.into_iter().map(Ok)), pages)))
                })
                .try_flatten()
                .boxed()
            }

            async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
                let path = prefix.cloned().unwrap_or_default();
                let mut pages = Pages { store: self.clone(), prefix: prefix.cloned(), after: None, is_over: false };
                let mut all = Vec::new();
                while let Some(page) = pages.next().await? {
                    all.extend(page);
                }
                let (mut objects, mut common) = (Vec::new(), std::collections::BTreeSet::new());
                for object in all {
                    let mut rest = object.location.prefix_match(&path).into_iter().flatten();
                    match (rest.next(), rest.next()) {
                        (Some(folder), Some(_)) => drop(common.insert(path.clone().join(folder))),
                        _ => objects.push(object.clone()),
                    }
                }
                Ok(ListResult { common_prefixes: common.into_iter().collect(), objects })
            }

            async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
                let (source, target) = (from.clone(), to.clone());
                let create = matches!(options.mode, CopyMode::Create);
                self.ask("copy", to, true, move |objects, now| {
                    let bytes = objects.objects.get(&source).ok_or_else(|| absent(&source))?.bytes.clone();
                    objects.put(&target, bytes, create, now).map(drop)
                })
                .await
            }
        }
    };
}

is_object_store!(Client);
is_object_store!(Direct);
is_object_store!(AsItIs);
