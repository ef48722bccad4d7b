//! Points at which something can fail: each step that capture takes at one of its seams, named for what is done and not for
//! whom. One of them fails in a run, in one of four ways; what is around it is real.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mysql_async::Value;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tidegate_cdc::error::{Code, Error, Result};
use tidegate_cdc::mysql::ServerInfo;
use tidegate_cdc::mysql::binlog::stream::EventStream;
use tidegate_cdc::mysql::catalog::MatchedTable;
use tidegate_cdc::mysql::server::{
    Asked, DefinitionLock, PageConnection, ServerOf, SourceConnection, SourceServer, TakeRow, Visible,
};
use tidegate_cdc::mysql::snapshot::pages::PageQuery;
use tidegate_cdc::mysql::snapshot::{KeyColumn, KeyValue};
use tidegate_cdc::mysql::types::MysqlTable;
use tidegate_cdc::source::definition::SourceDefinition;
use tidegate_cdc::source::position::{FilePosition, Position};
use tidegate_storage::store::StoreRef;
use tokio::sync::watch;

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The process ends before the step.
    EndBefore,
    /// The process ends behind it.
    EndAfter,
    /// The step is not taken, and an error is answered.
    FailBefore,
    /// The step is taken, and an error is answered.
    FailAfter,
}

impl Effect {
    pub(crate) const ALL: [Self; 4] = [Self::EndBefore, Self::EndAfter, Self::FailBefore, Self::FailAfter];
}

/// What is to happen in a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) point: String,
    /// At the how manieth time that the point is passed, from 1 on.
    pub(crate) nth: usize,
    pub(crate) effect: Effect,
}

/// The points of a run. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Points(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    passed: Mutex<BTreeMap<String, usize>>,
    plan: Option<Plan>,
    is_met: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

impl Points {
    pub(crate) fn new(plan: Option<Plan>) -> Self {
        let (is_met, ended) = (watch::Sender::new(false), watch::Sender::new(false));
        Self(Arc::new(Shared { passed: Mutex::default(), plan, is_met, ended }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often each point was passed.
    pub(crate) fn passed(&self) -> BTreeMap<String, usize> {
        self.lock().clone()
    }

    /// Whether what was planned has happened.
    pub(crate) fn is_met(&self) -> bool {
        *self.0.is_met.borrow()
    }

    /// Waits until the process is to end.
    pub(crate) async fn ended(&self) {
        let _ = self.0.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn passes(&self, point: &str) -> Option<Effect> {
        let mut passed = self.lock();
        let times = passed.entry(point.to_owned()).or_default();
        *times += 1;
        let plan = self.0.plan.as_ref()?;
        (plan.point == point && plan.nth == *times).then_some(plan.effect)
    }

    /// The process ends; what it was about to do next is not done.
    async fn end(&self) {
        self.0.ended.send_replace(true);
        std::future::pending().await
    }

    async fn step<T, E>(
        &self,
        point: &str,
        failure: impl FnOnce() -> E,
        step: impl Future<Output = std::result::Result<T, E>>,
    ) -> std::result::Result<T, E> {
        let effect = self.passes(point);
        if effect.is_some() {
            self.0.is_met.send_replace(true);
        }
        match effect {
            None => step.await,
            Some(Effect::EndBefore) => {
                self.end().await;
                Err(failure())
            }
            Some(Effect::EndAfter) => {
                let _ = step.await;
                self.end().await;
                Err(failure())
            }
            Some(Effect::FailBefore) => Err(failure()),
            Some(Effect::FailAfter) => {
                let _ = step.await;
                Err(failure())
            }
        }
    }
}

/// A store whose requests are points.
#[derive(Debug)]
pub(crate) struct PointStore {
    points: Points,
    inner: StoreRef,
}

impl PointStore {
    pub(crate) fn new(points: &Points, inner: StoreRef) -> Self {
        Self { points: points.clone(), inner }
    }
}

impl fmt::Display for PointStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store with points")
    }
}

/// What kind of object lies at a path: its folder and its name without numbers and identifiers.
fn kind_of(path: &Path) -> String {
    let plain = |part: &str| -> String {
        // `data-<uuid>-3.parquet` is `data`, `checkpoint-00001` is `checkpoint`, `00001.renewed` is `renewed`.
        let words =
            part.split(['-', '.']).filter(|word| word.len() > 1 && word.bytes().all(|b| b.is_ascii_alphabetic()));
        let name = words.collect::<Vec<_>>().join("-");
        if name.is_empty() { "object".to_owned() } else { name }
    };
    let parts: Vec<_> = path.parts().collect();
    match parts.as_slice() {
        [.., folder, name] => format!("{}/{}", plain(folder.as_ref()), plain(name.as_ref())),
        [name] => plain(name.as_ref()),
        [] => String::new(),
    }
}

fn reset(path: &Path) -> object_store::Error {
    let source = std::io::Error::new(std::io::ErrorKind::ConnectionReset, format!("{path}: the connection is gone"));
    object_store::Error::Generic { store: "points", source: Box::new(source) }
}

#[async_trait]
impl ObjectStore for PointStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        let action = if matches!(options.mode, PutMode::Create) { "create" } else { "put" };
        let point = format!("{action} {}", kind_of(path));
        self.points.step(&point, || reset(path), self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let point = format!("upload {}", kind_of(path));
        self.points.step(&point, || reset(path), self.inner.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let point = format!("get {}", kind_of(path));
        self.points.step(&point, || reset(path), self.inner.get_opts(path, options)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let (points, inner) = (self.points.clone(), self.inner.clone());
        let delete = move |path: Path| {
            let (points, inner) = (points.clone(), inner.clone());
            async move {
                let point = format!("delete {}", kind_of(&path));
                let one = stream::once(std::future::ready(Ok(path.clone()))).boxed();
                let deleted = inner.delete_stream(one).try_collect::<Vec<_>>();
                points.step(&point, || reset(&path), deleted).await.map(|_| path)
            }
        };
        paths.map_ok(delete).try_buffered(4).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let (points, inner, prefix) = (self.points.clone(), self.inner.clone(), prefix.cloned());
        stream::once(async move {
            let path = prefix.clone().unwrap_or_default();
            let point = format!("list {}", kind_of(&path));
            let listed = inner.list(prefix.as_ref()).try_collect::<Vec<_>>();
            let listed = points.step(&point, || reset(&path), listed).await?;
            Ok::<_, object_store::Error>(stream::iter(listed.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        let point = format!("list {}", kind_of(&path));
        self.points.step(&point, || reset(&path), self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        let point = format!("copy {}", kind_of(to));
        self.points.step(&point, || reset(to), self.inner.copy_opts(from, to, options)).await
    }
}

/// A server whose questions and events are points.
#[derive(Debug)]
pub(crate) struct PointServer {
    points: Points,
    inner: Arc<dyn SourceServer>,
}

impl PointServer {
    /// Servers of `inner`, with points.
    pub(crate) fn of(points: &Points, inner: ServerOf) -> ServerOf {
        let points = points.clone();
        Arc::new(move |options| Arc::new(Self { points: points.clone(), inner: inner(options) }))
    }
}

fn lost() -> Error {
    Error::new(Code::ConnectionLost, "the connection is gone")
}

/// A connection whose questions are points.
struct Link<C: ?Sized> {
    points: Points,
    inner: Box<C>,
}

#[async_trait]
impl SourceServer for PointServer {
    async fn connect(&self) -> Result<(Box<dyn SourceConnection>, ServerInfo)> {
        let (inner, info) = self.points.step("server connect", lost, self.inner.connect()).await?;
        Ok((Box::new(Link { points: self.points.clone(), inner }), info))
    }

    async fn connect_for_rows(&self, info: &ServerInfo) -> Result<Box<dyn PageConnection>> {
        let inner = self.points.step("server connect_for_rows", lost, self.inner.connect_for_rows(info)).await?;
        Ok(Box::new(Link { points: self.points.clone(), inner }))
    }

    async fn open_stream(
        &self,
        info: &ServerInfo,
        position: &Position,
        server_id: u32,
        heartbeat: Duration,
    ) -> Result<EventStream> {
        let opened = self.inner.open_stream(info, position, server_id, heartbeat);
        let stream = self.points.step("server open_stream", lost, opened).await?;
        let points = self.points.clone();
        Ok(stream.through(|events| {
            let events = stream::unfold(Some((events, points)), async |state| {
                let (mut events, points) = state?;
                let next = events.next().await?;
                let kind = next.as_ref().map_or(0, |event| event.header().event_type_raw());
                let broken =
                    || mysql_async::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
                let next = points.step(&format!("event {kind}"), broken, std::future::ready(next)).await;
                // After an error the stream is over.
                let rest = next.is_ok().then_some((events, points));
                Some((next, rest))
            });
            events.boxed()
        }))
    }

    async fn lock_definitions(&self, info: &ServerInfo, tables: &[(String, String)]) -> Result<Asked> {
        let asked =
            self.points.step("server lock_definitions", lost, self.inner.lock_definitions(info, tables)).await?;
        Ok(match asked {
            Asked::Locked(inner) => Asked::Locked(Box::new(Link { points: self.points.clone(), inner })),
            missed => missed,
        })
    }
}

#[async_trait]
impl DefinitionLock for Link<dyn DefinitionLock> {
    async fn release(self: Box<Self>) {
        let Self { points, inner } = *self;
        let released = async {
            inner.release().await;
            Ok(())
        };
        let _ = points.step("server release_definitions", lost, released).await;
    }
}

/// Each question is a point.
macro_rules! ask {
    ($self:ident . $question:ident ( $($argument:expr),* )) => {{
        let asked = $self.inner.$question($($argument),*);
        $self.points.step(concat!("server ", stringify!($question)), lost, asked).await
    }};
}

#[async_trait]
impl SourceConnection for Link<dyn SourceConnection> {
    async fn start_position(&mut self, info: &ServerInfo) -> Result<Visible> {
        ask!(self.start_position(info))
    }

    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition> {
        ask!(self.log_end(info))
    }

    async fn wait_visible(&mut self, info: &ServerInfo, position: &Position, patience: Duration) -> Result<()> {
        ask!(self.wait_visible(info, position, patience))
    }

    async fn prepared(&mut self, info: &ServerInfo) -> Result<Vec<String>> {
        ask!(self.prepared(info))
    }

    async fn list_tables(&mut self, info: &ServerInfo, definition: &SourceDefinition) -> Result<Vec<MatchedTable>> {
        ask!(self.list_tables(info, definition))
    }

    async fn load_tables(&mut self, info: &ServerInfo, database: &str, names: &[&str]) -> Result<Vec<MysqlTable>> {
        ask!(self.load_tables(info, database, names))
    }

    async fn key_ends(&mut self, table: &MysqlTable) -> Result<Option<(Value, Value)>> {
        ask!(self.key_ends(table))
    }

    async fn key_behind(
        &mut self,
        table: &MysqlTable,
        key: &[KeyColumn],
        after: Option<&[KeyValue]>,
        rows: u64,
    ) -> Result<Option<Vec<Value>>> {
        ask!(self.key_behind(table, key, after, rows))
    }

    async fn close(self: Box<Self>) {
        self.inner.close().await;
    }
}

#[async_trait]
impl PageConnection for Link<dyn PageConnection> {
    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition> {
        // Before and behind each page.
        let asked = self.inner.log_end(info);
        self.points.step("server log_end_for_rows", lost, asked).await
    }

    async fn select(&mut self, query: &PageQuery<'_>, take: TakeRow<'_>) -> Result<()> {
        ask!(self.select(query, take))
    }

    fn page_limits(&mut self) -> &mut HashMap<String, usize> {
        self.inner.page_limits()
    }

    async fn close(self: Box<Self>) {
        self.inner.close().await;
    }
}
