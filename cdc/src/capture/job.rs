//! The life of a job around its sessions: lease, recovery, retries, and the handle others hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_storage::ErrorKind;
use tidegate_storage::checkpoint::{Claim, Holder, Lease, LeaseWatch, is_retired};
use tidegate_storage::clock::Clock;
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::watched::{Requests, Watched};
use tidegate_storage::table::{Resources, TableOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::housekeeping::Shown;
use super::memory::MemoryUse;
use super::session::{Ended, Session};
use super::status::{ErrorInfo, JobState, JobStatus};
use super::view::{SourceView, newer_view};
use crate::error::{Code, Error, Retry};
use crate::mysql::server::{ServerOf, SourceServer};
use crate::source::definition::SourceDefinition;

/// How often a lease is renewed; it expires after several missed renewals.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How often a source held by another server is asked for again.
const STANDBY_PAUSE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session that ran this long has recovered: the next pause is short again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
const ERRORS_KEPT: usize = 100;
/// A request that the store has not answered for so long is shown to operators.
const LATE_AFTER: Duration = Duration::from_secs(5);
/// How often that is looked at.
const LOOK_AT_REQUESTS: Duration = Duration::from_millis(500);
/// How long giving the lease free may hold up what comes next.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// What a job needs from its process.
#[derive(Clone)]
pub struct CaptureEnv {
    pub store: StoreRef,
    /// How the source's server is reached.
    pub server_of: ServerOf,
    pub clock: Arc<dyn Clock>,
    /// What the writers of all tables of this process share.
    pub resources: Arc<Resources>,
    /// How tables are laid out, but for their buckets.
    pub layout: TableOptions,
    /// Identity of this process; new at each start.
    pub owner: Uuid,
    /// How this process describes itself to others that want the same source.
    pub holder: Holder,
    /// Whether a holder is known to be gone, so that its source may be taken without waiting for its lease to run out.
    pub holder_is_dead: Arc<dyn Fn(&Holder) -> bool + Send + Sync>,
}

/// Requests to a running job.
pub(super) enum Control {
    /// Answers with the number of a checkpoint that covers everything seen when it was asked for.
    Checkpoint(oneshot::Sender<u64>),
    /// Read these tables again, given as they are queried. Answers with the number of a checkpoint that holds the wish.
    Resync(Vec<String>, oneshot::Sender<u64>),
    /// Cut a last checkpoint and end.
    Stop,
}

/// The job of one source.
pub struct CaptureJob;

/// A running job.
#[derive(Clone)]
pub struct CaptureHandle {
    definition: Arc<SourceDefinition>,
    control: mpsc::Sender<Control>,
    views: watch::Receiver<Arc<SourceView>>,
    statuses: watch::Receiver<Arc<JobStatus>>,
    memory: Arc<MemoryUse>,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    /// Outlives a request that a failing session has taken with it.
    stopping: Arc<AtomicBool>,
}

impl CaptureJob {
    /// Starts the job on the current runtime; it goes on until [`CaptureHandle::stop`] or a fault that will not pass.
    pub fn start(definition: SourceDefinition, mut env: CaptureEnv) -> CaptureHandle {
        let definition = Arc::new(definition);
        let (store, store_requests) = Watched::new(env.store);
        env.store = Arc::new(store);
        let (control, requests) = mpsc::channel(16);
        let (view_tx, views) = watch::channel(Arc::new(SourceView::empty(definition.name.clone(), definition.id)));
        let started = JobStatus { started_at_ms: env.clock.now_ms(), ..JobStatus::default() };
        let (status_tx, statuses) = watch::channel(Arc::new(started));
        let stopping = Arc::new(AtomicBool::new(false));
        let memory = Arc::new(MemoryUse::default());
        let runner = Runner {
            server: (env.server_of)(&definition.connection),
            definition: Arc::clone(&definition),
            env,
            requests,
            views: view_tx,
            shown: Arc::default(),
            status: StatusBoard { sender: status_tx },
            memory: Arc::clone(&memory),
            attempts: 0,
            stopping: Arc::clone(&stopping),
            store_requests,
            watched: LeaseWatch::default(),
        };
        let task = Arc::new(tokio::sync::Mutex::new(Some(tokio::spawn(runner.run()))));
        CaptureHandle { definition, control, views, statuses, memory, task, stopping }
    }
}

impl CaptureHandle {
    pub fn definition(&self) -> &SourceDefinition {
        &self.definition
    }

    /// The newest checkpoint's tables.
    pub fn view(&self) -> Arc<SourceView> {
        Arc::clone(&self.views.borrow())
    }

    /// Follows the checkpoints; the receiver is closed when the job ends.
    pub fn views(&self) -> watch::Receiver<Arc<SourceView>> {
        self.views.clone()
    }

    pub fn status(&self) -> Arc<JobStatus> {
        Arc::clone(&self.statuses.borrow())
    }

    /// What the source's rows take in memory.
    pub fn memory(&self) -> &MemoryUse {
        &self.memory
    }

    pub fn statuses(&self) -> watch::Receiver<Arc<JobStatus>> {
        self.statuses.clone()
    }

    /// Cuts a checkpoint now. The answer's number covers all that the stream has delivered.
    pub async fn checkpoint(&self) -> Result<u64, Error> {
        self.ask(Control::Checkpoint).await
    }

    /// Has tables read again, each beside its old state, which readers keep until the new one is complete. Tables are named
    /// as they are queried (`schema.table`); a name that is none does nothing. Answers when the wish is durable.
    pub async fn resync(&self, tables: Vec<String>) -> Result<u64, Error> {
        self.ask(|answer| Control::Resync(tables, answer)).await
    }

    async fn ask(&self, request: impl FnOnce(oneshot::Sender<u64>) -> Control) -> Result<u64, Error> {
        let (answer, number) = oneshot::channel();
        let not_running = || {
            Error::new(Code::Stopped, format!("source \"{}\" is not capturing", self.definition.name))
                .with_detail(format!("Its state is {}.", self.status().state.as_str()))
        };
        self.control.send(request(answer)).await.map_err(|_| not_running())?;
        number.await.map_err(|_| not_running())
    }

    /// Ends the job behind a last checkpoint and gives the source free. Safe to call more than once.
    pub async fn stop(&self) -> Result<(), Error> {
        self.stopping.store(true, Ordering::Release);
        // A job that has ended by itself does not listen any more.
        let _ = self.control.send(Control::Stop).await;
        if let Some(task) = self.task.lock().await.take() {
            task.await.map_err(|e| {
                Error::new(Code::Internal, format!("the job of source \"{}\" broke off", self.definition.name))
                    .with_source(e)
            })?;
        }
        Ok(())
    }
}

/// The sending side of a job's status.
#[derive(Clone)]
pub(super) struct StatusBoard {
    sender: watch::Sender<Arc<JobStatus>>,
}

impl StatusBoard {
    pub(super) fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        self.sender.send_modify(|status| change(Arc::make_mut(status)));
    }

    pub(super) fn record(&self, info: ErrorInfo) {
        self.update(|status| {
            if status.errors.len() >= ERRORS_KEPT {
                status.errors.remove(0);
            }
            status.errors.push(info);
        });
    }
}

struct Runner {
    definition: Arc<SourceDefinition>,
    server: Arc<dyn SourceServer>,
    env: CaptureEnv,
    requests: mpsc::Receiver<Control>,
    views: watch::Sender<Arc<SourceView>>,
    shown: Arc<Shown>,
    status: StatusBoard,
    memory: Arc<MemoryUse>,
    attempts: u32,
    stopping: Arc<AtomicBool>,
    store_requests: Requests,
    /// The lease of another one.
    watched: LeaseWatch,
}

impl Runner {
    async fn run(mut self) {
        let source = self.definition.name.clone();
        let _watch = AbortOnDropHandle::new(tokio::spawn(watch_store(
            source.clone(),
            self.store_requests.clone(),
            Arc::clone(&self.env.clock),
            self.status.clone(),
        )));
        let mut pause = FIRST_PAUSE;
        loop {
            let began = tokio::time::Instant::now();
            let failure = match self.attempt().await {
                Ok(Ended::Stopped) => {
                    info!(source, "capture stopped");
                    self.status.update(|s| s.state = JobState::Stopped);
                    return;
                }
                Ok(Ended::Held) => {
                    if self.wait(STANDBY_PAUSE).await {
                        self.status.update(|s| s.state = JobState::Stopped);
                        return;
                    }
                    continue;
                }
                Err(failure) => failure,
            };
            self.status.record(ErrorInfo::new(&failure, None, self.env.clock.now_ms()));
            if self.stopping.load(Ordering::Acquire) {
                warn!(source, code = %failure.code, error = %failure, "capture stopped without a last checkpoint");
                self.status.update(|s| s.state = JobState::Stopped);
                return;
            }
            if began.elapsed() > HEALTHY_AFTER {
                pause = FIRST_PAUSE;
            }
            let wait = match failure.retry {
                Retry::Never => {
                    error!(source, code = %failure.code, error = %failure, "capture failed and waits for an operator");
                    self.status.update(|s| s.state = JobState::Failed);
                    self.wait_for_stop().await;
                    self.status.update(|s| s.state = JobState::Stopped);
                    return;
                }
                Retry::Now => FIRST_PAUSE.min(pause),
                Retry::Backoff => {
                    let this = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    // Sources of one server that fell over together do not come back together.
                    this.mul_f64(0.75 + self.env.resources.random.fraction() * 0.5)
                }
            };
            warn!(source, code = %failure.code, error = %failure, retry_in_ms = wait.as_millis() as u64, "capture interrupted");
            self.status.update(|s| s.state = JobState::Retrying);
            if self.wait(wait).await {
                self.status.update(|s| s.state = JobState::Stopped);
                return;
            }
        }
    }

    /// One session under the lease.
    async fn attempt(&mut self) -> Result<Ended, Error> {
        self.attempts = self.attempts.wrapping_add(1);
        let (attempt, durable) = (self.attempts, self.views.borrow().position.clone());
        self.status.update(|s| {
            s.state = JobState::Starting;
            s.session = attempt;
            s.position = durable;
            (s.server_position, s.lag_bytes, s.lag_ms) = (None, None, None);
        });
        if is_retired(&self.env.store, self.definition.id).await? {
            info!(source = self.definition.name, "the source was dropped by another server");
            return Ok(Ended::Stopped);
        }
        let mut me = self.env.holder.clone();
        me.owner = self.env.owner;
        let (owner, dead) = (me.owner, Arc::clone(&self.env.holder_is_dead));
        // A lease of our own is a former attempt's that could not give it free.
        let is_over = move |holder: &Holder| holder.owner == owner || dead(holder);
        let (clock, store) = (Arc::clone(&self.env.clock), self.env.store.clone());
        let claim = Lease::acquire(store, self.definition.id, me, clock, &is_over, &mut self.watched).await?;
        let lease = match claim {
            Claim::Acquired(lease) => lease,
            Claim::Held(holder) => {
                self.status.update(|s| {
                    s.state = JobState::Standby;
                    s.holder = Some(holder);
                });
                self.follow().await?;
                return Ok(Ended::Held);
            }
        };
        self.status.update(|s| s.holder = None);
        let epoch = lease.epoch();
        let lease = Arc::new(tokio::sync::Mutex::new(Some(lease)));
        let ids = self.definition.server_ids();
        // Where the definition gives a range, a session whose id was taken is followed by one with the next.
        let server_id = ids.first + self.attempts % ids.count().max(1);
        let session = Session {
            server_id,
            definition: &self.definition,
            env: &self.env,
            server: &self.server,
            epoch,
            requests: &mut self.requests,
            views: &self.views,
            shown: &self.shown,
            status: &self.status,
            memory: &self.memory,
        };
        let ended = tokio::select! {
            biased;
            ended = session.run() => ended,
            ended = keep(&self.env.store, self.definition.id, Arc::clone(&lease)) => ended,
        };
        // Given free even after a failure, so that another server or the next attempt need not wait for it to expire.
        if let Some(lease) = lease.lock().await.take() {
            let problem = match tokio::time::timeout(RELEASE_PATIENCE, lease.release()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the store does not answer".to_owned()),
            };
            if let Some(error) = problem {
                warn!(source = self.definition.name, error, "the lease could not be given free; it expires by itself");
            }
        }
        ended
    }

    /// Shows what the holder of the source has made durable meanwhile.
    async fn follow(&self) -> Result<(), Error> {
        let known = self.views.borrow().checkpoint;
        let newer = newer_view(&self.env.store, self.definition.id, &self.definition.name, known).await?;
        if let Some(view) = newer {
            self.shown.note(&view);
            self.views.send_replace(Arc::new(view));
        }
        Ok(())
    }

    /// Waits, answering requests; `true` when the job is to stop.
    async fn wait(&mut self, pause: Duration) -> bool {
        let until = tokio::time::Instant::now() + pause;
        loop {
            match tokio::time::timeout_at(until, self.requests.recv()).await {
                Err(_) => return false,
                Ok(None | Some(Control::Stop)) => return true,
                // Dropping the answer tells the caller that the job is not running.
                Ok(Some(Control::Checkpoint(_) | Control::Resync(..))) => {}
            }
        }
    }

    async fn wait_for_stop(&mut self) {
        while let Some(Control::Checkpoint(_) | Control::Resync(..)) = self.requests.recv().await {}
    }
}

/// Renews the lease for as long as that works and the source exists.
async fn keep(store: &StoreRef, source: Uuid, lease: Arc<tokio::sync::Mutex<Option<Lease>>>) -> Result<Ended, Error> {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let mut lease = lease.lock().await;
        let Some(lease) = lease.as_mut() else { continue };
        match lease.renew().await {
            Ok(()) => {}
            // The lease lasts over several renewals: one that fails is tried again.
            Err(error) if error.kind() != ErrorKind::Conflict && !lease.may_have_lapsed() => {
                warn!(%error, "the lease was not renewed");
            }
            Err(error) => return Err(Error::from(error)),
        }
        match is_retired(store, source).await {
            Ok(true) => return Ok(Ended::Stopped),
            Ok(false) => {}
            // Whether the store is gone is for the lease to decide; the mark is looked for again next time.
            Err(error) => warn!(%error, "whether the source was dropped could not be read"),
        }
    }
}

/// Shows the store's late answers for as long as the job lives: in its state while one is missing, and among its errors.
async fn watch_store(source: String, requests: Requests, clock: Arc<dyn Clock>, status: StatusBoard) {
    let mut late = false;
    loop {
        tokio::time::sleep(LOOK_AT_REQUESTS).await;
        match requests.oldest().filter(|request| request.waiting >= LATE_AFTER) {
            Some(request) => {
                let what = match request.action {
                    "listed" => format!("the listing of {} has", request.object),
                    action => format!("object {} is being {action} and has", request.object),
                };
                let seconds = request.waiting.as_secs();
                let message = format!("{what} waited {seconds} s for the store's answer");
                let error = Error::new(Code::StoreLate, message)
                    .with_detail(format!("{} It is tried again by itself.", Code::StoreLate.info().meaning));
                let info = ErrorInfo::new(&error, None, clock.now_ms());
                if !late {
                    warn!(source, code = %error.code, object = request.object, waiting_s = seconds, "the store answers late");
                    status.record(info.clone());
                }
                status.update(|s| s.store_late = Some(info));
                late = true;
            }
            None if late => {
                info!(source, "the store answers again");
                status.update(|s| s.store_late = None);
                late = false;
            }
            None => {}
        }
    }
}
