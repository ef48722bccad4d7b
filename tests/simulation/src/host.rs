//! A process that captures: a runtime of its own, whose clock moves with the world's, and which may end at any step.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_cdc::capture::{CaptureEnv, CaptureHandle, CaptureJob};
use tidegate_cdc::source::definition::{CaptureOptions, SourceDefinition};
use tidegate_storage::checkpoint::Holder;
use tidegate_storage::random::{Random, SeededRandom};
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::retrying::{RetryPolicy, Retrying};
use tidegate_storage::table::{KeyCache, MergePool, Resources, TableOptions};
use tidegate_storage::workers::Workers;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::mysql::engine::Mysql;
use crate::note;
use crate::store::{Client, Disk, Weather};
use crate::world::World;

/// Owners of leases that are known to be gone. Clones are the same set.
pub type Gone = Arc<Mutex<BTreeSet<Uuid>>>;

/// A machine on which the server runs, or does not.
pub struct Host {
    world: World,
    name: &'static str,
    mysql: Mysql,
    disk: Disk,
    /// The way from here to the store.
    pub weather: Weather,
    definition: SourceDefinition,
    layout: TableOptions,
    /// How far this machine's clock is ahead.
    ahead_ms: i64,
    gone: Gone,
    running: Option<Running>,
    /// When the machine starts again.
    returns: Option<Duration>,
    /// Until when nothing here moves, and for how long that has been so.
    frozen: Option<(Duration, Duration)>,
}

struct Running {
    runtime: Runtime,
    job: CaptureHandle,
    owner: Uuid,
    stopping: Option<JoinHandle<()>>,
}

impl Host {
    /// A machine on which nothing runs yet.
    #[allow(clippy::too_many_arguments, reason = "a host is in the middle of everything")]
    pub fn new(
        world: &World,
        name: &'static str,
        mysql: &Mysql,
        disk: &Disk,
        definition: &SourceDefinition,
        layout: &TableOptions,
        ahead_ms: i64,
        starts_at: Duration,
        gone: &Gone,
    ) -> Self {
        Self {
            world: world.clone(),
            name,
            mysql: mysql.clone(),
            disk: disk.clone(),
            weather: Weather::default(),
            definition: definition.clone(),
            layout: layout.clone(),
            ahead_ms,
            gone: Arc::clone(gone),
            running: None,
            returns: Some(starts_at),
            frozen: None,
        }
    }

    fn start(&mut self) {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime can be built");
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(self.world.below(u64::MAX)));
        let client = Client::new(self.world.clone(), self.disk.clone(), self.weather.clone(), self.name);
        let store: StoreRef = Arc::new(Retrying::new(client, RetryPolicy::default()).drawing(Arc::clone(&random)));
        let owner =
            Uuid::from_u128(u128::from(self.world.below(u64::MAX)) << 64 | u128::from(self.world.below(u64::MAX)));
        let clock = self.world.clock(self.ahead_ms);
        let now = clock.now_ms();
        let gone = Arc::clone(&self.gone);
        let env = CaptureEnv {
            store,
            server_of: self.mysql.server_of(self.name),
            clock,
            resources: Arc::new(Resources {
                keys: KeyCache::unbounded(),
                merges: MergePool::new(2, None),
                workers: Workers::Caller,
                random,
            }),
            layout: self.layout.clone(),
            owner,
            holder: Holder {
                owner,
                host: self.name.to_owned(),
                pid: 1,
                process_start: 0,
                address: String::new(),
                since_ms: now,
                renewed_at_ms: now,
            },
            holder_is_dead: Arc::new(move |holder| {
                gone.lock().unwrap_or_else(PoisonError::into_inner).contains(&holder.owner)
            }),
        };
        let job = {
            let _entered = runtime.enter();
            CaptureJob::start(self.definition.clone(), env)
        };
        note!(self.world, "{} starts", self.name);
        self.running = Some(Running { runtime, job, owner, stopping: None });
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether something runs here.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether it stands still.
    pub fn is_frozen(&self) -> bool {
        self.running.is_some() && self.frozen.is_some()
    }

    /// The job that runs here.
    pub fn job(&self) -> Option<&CaptureHandle> {
        self.running.as_ref().map(|running| &running.job)
    }

    /// Everything here ends at once. It starts again after a while; others may have been told.
    pub fn crash(&mut self, pause: Duration, is_known: bool) {
        let Some(running) = self.running.take() else { return };
        note!(self.world, "{} ends at once, for {} ms", self.name, pause.as_millis());
        if is_known {
            self.gone.lock().unwrap_or_else(PoisonError::into_inner).insert(running.owner);
        }
        drop(running);
        self.returns = Some(self.world.now() + pause);
    }

    /// Nothing here moves for a while; what comes meanwhile is found afterwards.
    pub fn freeze(&mut self, pause: Duration) {
        if self.running.is_some() && self.frozen.is_none() {
            note!(self.world, "{} stands still for {} ms", self.name, pause.as_millis());
            self.frozen = Some((self.world.now() + pause, Duration::ZERO));
        }
    }

    /// The job stops in order, and starts again after a while.
    pub fn stop(&mut self) {
        let Some(running) = self.running.as_mut().filter(|running| running.stopping.is_none()) else { return };
        note!(self.world, "{} is told to stop", self.name);
        let job = running.job.clone();
        let world = self.world.clone();
        running.stopping = Some(running.runtime.spawn(async move {
            if let Err(error) = job.stop().await {
                world.violate(format!("a job did not stop: {error}"));
            }
        }));
    }

    /// Asks for a checkpoint, whose answer is noted.
    pub fn ask_for_checkpoint(&self) {
        let Some(running) = &self.running else { return };
        let (job, world, name) = (running.job.clone(), self.world.clone(), self.name);
        running.runtime.spawn(async move {
            match job.checkpoint().await {
                Ok(number) => note!(world, "{name} was answered: checkpoint {number}"),
                Err(error) => note!(world, "{name} was answered: {error}"),
            }
        });
    }

    /// Whoever starts the source here again does so with other options.
    pub fn change_options(&mut self, change: impl FnOnce(&mut CaptureOptions)) {
        change(&mut self.definition.options);
        note!(self.world, "{} has other options: {:?}", self.name, self.definition.options);
    }

    /// Asks for a table to be merged into as few files as possible; `choose` picks it among so many.
    pub fn compact(&self, choose: impl FnOnce(usize) -> usize) {
        let Some(running) = &self.running else { return };
        let view = running.job.view();
        let tables: Vec<_> = view.tables.iter().filter(|table| table.merges.is_some()).collect();
        let Some(table) = tables.get(choose(tables.len())) else { return };
        let Some(merges) = table.merges.clone() else { return };
        let (world, name, table) = (self.world.clone(), self.name, table.table_name.clone());
        note!(world, "{name} is asked to merge {table}");
        running.runtime.spawn(async move {
            let merged = merges.merge_all().await;
            note!(world, "{name} has merged {table}: {merged}");
        });
    }

    /// Asks for a table to be read again; `choose` picks it among so many.
    pub fn resync(&self, choose: impl FnOnce(usize) -> usize) {
        let Some(running) = &self.running else { return };
        let view = running.job.view();
        let Some(table) = view.tables.get(choose(view.tables.len())) else { return };
        let table = format!("{}.{}", table.schema_name, table.table_name);
        let (job, world, name) = (running.job.clone(), self.world.clone(), self.name);
        note!(world, "{name} is asked to read {table} again");
        running.runtime.spawn(async move {
            match job.resync(vec![table.clone()]).await {
                Ok(number) => note!(world, "{name} will read {table} again: checkpoint {number}"),
                Err(error) => note!(world, "{name} will not read {table} again: {error}"),
            }
        });
    }

    /// Lets this machine live for a while.
    pub fn step(&mut self, tick: Duration) {
        if self.running.is_none() && self.returns.is_some_and(|at| at <= self.world.now()) {
            self.returns = None;
            self.start();
        }
        let Some(running) = &mut self.running else {
            self.frozen = None;
            return;
        };
        let mut tick = tick;
        if let Some((until, lost)) = &mut self.frozen {
            *lost += tick;
            if *until > self.world.now() {
                return;
            }
            tick = *lost;
            self.frozen = None;
            note!(self.world, "{} moves again", self.name);
        }
        running.runtime.block_on(async { tokio::time::sleep(tick).await });
        if running.stopping.as_ref().is_some_and(JoinHandle::is_finished) {
            note!(self.world, "{} has stopped", self.name);
            self.running = None;
            self.returns = Some(self.world.now() + self.world.between(Duration::ZERO, Duration::from_secs(2)));
        }
    }
}
