//! A server from its start to its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cdc::capture::CaptureEnv;
use tidegate_cdc::error::Error as CaptureError;
use tidegate_cdc::mysql::server::NetworkServer;
use tidegate_planner::catalog::sealing::SystemEntropy;
use tidegate_planner::context::RuntimeOptions;
use tidegate_planner::{Engine, EngineOptions, Jobs, SqlError};
use tidegate_storage::ErrorKind;
use tidegate_storage::clock::{Clock, SystemClock};
use tidegate_storage::store::measured::Measured;
use tidegate_storage::store::{StoreRef, require_conditional_creates};
use tidegate_storage::table::TableOptions;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::config::{AuthMethod, ServeOptions, default_memory, reachable};
use crate::pg::PasswordFileError;
use crate::pg::auth::{Authentication, Users};
use crate::pg::connection::{self, Context};
use crate::supervisor::{Supervisor, describe_process, is_dead};

/// Deep expressions recurse; the engine grows its stack, but not everywhere.
const QUERY_STACK_BYTES: usize = 8 << 20;

/// Some operators compute for seconds without giving way. With more threads than cores it is the operating system that
/// shares the cores out, and a small query gets its turn beside them.
const QUERY_THREADS_PER_CORE: usize = 8;

/// Sockets beyond the connections that have a place: for cancel requests, and to tell the others that it is full.
const SPARE_SOCKETS: usize = 100;

/// How long connections may take to end, once the server stops.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(2);

/// How long jobs may take to reach their last checkpoint.
const JOB_PATIENCE: Duration = Duration::from_secs(30);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Options(&'static str),
    #[error(transparent)]
    PasswordFile(#[from] PasswordFileError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot open the store {store}")]
    Store { store: String, source: tidegate_storage::Error },
    #[error("cannot open the store {store}: there is no such bucket. Create it, or correct --store")]
    StoreAbsent { store: String },
    #[error("{error}. {meaning} {hint}")]
    StoreUnfit { error: CaptureError, meaning: &'static str, hint: &'static str },
    #[error("cannot open the catalog in the store")]
    Catalog(#[source] SqlError),
    #[error("cannot write the ready file {path}")]
    ReadyFile { path: PathBuf, source: std::io::Error },
    #[error("cannot start a runtime")]
    Runtime(#[source] std::io::Error),
}

/// A runtime that is left behind, not waited for, when its owner goes: a drop may happen on another runtime.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn start(name: &str, threads: usize, stack_bytes: Option<usize>) -> Result<Self, StartError> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(name).enable_all();
        if let Some(bytes) = stack_bytes {
            builder.thread_stack_size(bytes);
        }
        Ok(Self(Some(builder.build().map_err(StartError::Runtime)?)))
    }

    fn handle(&self) -> tokio::runtime::Handle {
        self.0.as_ref().expect("taken only on drop").handle().clone()
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    store: String,
    shutdown: CancellationToken,
    accepting: JoinHandle<()>,
    supervisor: Arc<Supervisor>,
    ready_file: Option<PathBuf>,
    _sessions: OwnRuntime,
    _queries: OwnRuntime,
    _captures: OwnRuntime,
}

impl Server {
    /// Starts a server on the current runtime (for its sockets) and new ones (for sessions, queries and captures). It answers
    /// connections when this returns, and its sources are being captured.
    pub async fn start(options: ServeOptions) -> Result<Self, StartError> {
        let authentication = match options.auth_method().map_err(StartError::Options)? {
            AuthMethod::Trust => Authentication::Trust,
            AuthMethod::Scram => {
                let path = options.password_file.as_deref().expect("scram is chosen only with a password file");
                Authentication::Scram(Users::read(path)?)
            }
        };
        // The port first: a server that cannot have it must not touch the store.
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(|source| StartError::Listen { address: options.listen, source })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address: options.listen, source })?;

        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let sessions = OwnRuntime::start("sessions", cores.max(2), Some(QUERY_STACK_BYTES))?;
        let queries = OwnRuntime::start("queries", (QUERY_THREADS_PER_CORE * cores).max(16), Some(QUERY_STACK_BYTES))?;
        let captures = OwnRuntime::start("capture", cores.max(2), None)?;

        let store = tidegate_storage::store::open(&options.store, &options.store_options)
            .map_err(|source| StartError::Store { store: options.store.clone(), source })?;
        let (store, statistics) = Measured::new(store);
        let store: StoreRef = Arc::new(store);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let owner = Uuid::from_bytes(rand::random());
        require_conditional_creates(&*store, owner).await.map_err(|source| match source.kind() {
            ErrorKind::Unconditional => {
                let error = CaptureError::from(source);
                let info = error.code.info();
                StartError::StoreUnfit { error, meaning: info.meaning, hint: info.hint }
            }
            ErrorKind::NotFound => StartError::StoreAbsent { store: options.store.clone() },
            _ => StartError::Store { store: options.store.clone(), source },
        })?;
        let supervisor = Arc::new(Supervisor::new(
            captures.handle(),
            CaptureEnv {
                store: Arc::clone(&store),
                server_of: NetworkServer::of_options(),
                clock: Arc::clone(&clock),
                resources: Arc::new(options.resources()),
                layout: TableOptions::default(),
                owner,
                holder: describe_process(owner, address.to_string(), clock.now_ms()),
                holder_is_dead: Arc::new(is_dead),
            },
        ));
        let jobs: Arc<dyn Jobs> = Arc::clone(&supervisor) as Arc<dyn Jobs>;
        // What is kept in memory needs no key that outlives it, and should leave no file.
        let own_key = options.in_memory() && options.key_file.is_none();
        let engine_options = EngineOptions {
            store,
            statistics,
            clock,
            entropy: Arc::new(SystemEntropy),
            jobs,
            key_file: options.key_path(),
            key: options.key.clone().or_else(|| own_key.then(random_key)),
            runtime: RuntimeOptions {
                memory_bytes: options.memory.unwrap_or_else(default_memory),
                target_partitions: cores,
                object_cache: options.object_cache(),
                ..RuntimeOptions::default()
            },
        };
        let engine = queries
            .handle()
            .spawn(Engine::open(engine_options))
            .await
            .unwrap_or_else(|broken| Err(SqlError::internal(broken.to_string())))
            .map_err(StartError::Catalog)?;

        let shutdown = CancellationToken::new();
        let places = options.max_connections as usize;
        let context = Arc::new(Context {
            engine,
            authentication,
            registry: Arc::default(),
            places: Arc::new(Semaphore::new(places)),
            sessions: sessions.handle(),
            queries: queries.handle(),
            shutdown: shutdown.clone(),
        });
        let accepting = tokio::spawn(accept(listener, context, places + SPARE_SOCKETS));
        if let Some(path) = &options.ready_file {
            write_whole(path, &format!("{address}\n"))
                .map_err(|source| StartError::ReadyFile { path: path.clone(), source })?;
        }
        info!(%address, store = options.store, "ready");
        Ok(Self {
            address,
            store: options.store,
            shutdown,
            accepting,
            supervisor,
            ready_file: options.ready_file,
            _sessions: sessions,
            _queries: queries,
            _captures: captures,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a user needs to know to go on.
    pub fn greeting(&self) -> String {
        format!(
            "Tidegate {} is ready; its tables are kept in {}\nConnect with: psql -h {} -p {} -U tidegate",
            env!("CARGO_PKG_VERSION"),
            self.store,
            reachable(self.address),
            self.address.port(),
        )
    }

    /// Ends it in order: clients are told, jobs stop behind a last checkpoint and give their sources free.
    pub async fn stop(self) {
        self.shutdown.cancel();
        if let Some(path) = &self.ready_file {
            let _ = std::fs::remove_file(path);
        }
        let connections = async {
            if tokio::time::timeout(CONNECTION_PATIENCE, self.accepting).await.is_err() {
                warn!("some connections did not end in time");
            }
        };
        let jobs = async {
            if tokio::time::timeout(JOB_PATIENCE, self.supervisor.stop_all()).await.is_err() {
                warn!("some jobs did not reach a last checkpoint in time; they go on from the one before");
            }
        };
        tokio::join!(connections, jobs);
    }
}

/// 64 hexadecimal digits.
fn random_key() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Written aside and renamed, so that whoever waits for the file finds all of it.
fn write_whole(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    std::fs::write(&aside, text)?;
    std::fs::rename(&aside, path)
}

/// Takes connections until the server stops, then waits for those that are open.
async fn accept(listener: TcpListener, context: Arc<Context>, sockets: usize) {
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            () = context.shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) if open.len() < sockets => spawn(&mut open, stream, &context),
            // Too many even to be told so.
            Ok((stream, _)) => drop(stream),
            Err(error) => {
                // Out of file descriptors, most likely: other connections have to end first.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

fn spawn(open: &mut JoinSet<()>, stream: TcpStream, context: &Arc<Context>) {
    open.spawn(connection::serve(stream, Arc::clone(context)));
}
