//! A run: the world of a seed from its beginning until everything that was changed is in the mirror.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use tidegate_cdc::capture::{ErrorInfo, JobState, SourceView};
use tidegate_cdc::error::Code;
use tidegate_cdc::mysql::binlog::Xid;
use tidegate_cdc::source::definition::{ConnectionOptions, SourceDefinition, TablePattern, TableRule};
use tidegate_storage::checkpoint::CheckpointLog;
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::checked::Checked;
use uuid::Uuid;

use crate::check::{Checker, now};
use crate::host::{Gone, Host};
use crate::kept::Kept;
use crate::mysql::engine::Mysql;
use crate::note;
use crate::rows::Files;
use crate::scenario::Scenario;
use crate::store::{AsItIs, Conditions, Damage, Direct, Disk, Moment};
use crate::workload::first_tables;
use crate::world::World;

/// How far time moves at once.
const TICK: Duration = Duration::from_millis(2);
/// How long it may take at the end until all is in the mirror, once nothing goes wrong any more.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);

/// How long a process that ends may be away when somebody looks after it.
const BACK_AT_ONCE: Duration = Duration::from_millis(60);
/// How long a process that stood still is looked at.
const AFTER_FREEZE: Duration = Duration::from_millis(500);
/// The id of the source.
const SOURCE: Uuid = Uuid::from_u128(7);
/// How many damages of an object are tried one after the other.
const DAMAGES: usize = 30;
/// Around the time at which capture begins.
const BEGINNING: Duration = Duration::from_millis(30);
/// What rows may take beyond the memory they are given: what a column takes before it has a value counts in so little.
const MEMORY_TOLERANCE: usize = 8 << 10;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A digest of everything that happened.
    pub digest: u64,
    /// Lines of the trace.
    pub steps: u64,
    /// How long it took in the world.
    pub simulated: Duration,
    /// Checkpoints that were looked at.
    pub checkpoints: u64,
    /// Tables that were compared with the database at a checkpoint.
    pub compared: u64,
    /// Snapshots whose changelog was compared with what they changed.
    pub followed: u64,
    /// Transactions of the database.
    pub transactions: usize,
    /// Processes that ended at once.
    pub crashes: u64,
    /// An object in the store was damaged.
    pub damaged: bool,
    /// Somebody said so, and the world ended there.
    pub damage_named: bool,
    /// What was not as it must be.
    pub violation: Option<String>,
    /// The last things that happened, if something was not as it must be.
    pub last_lines: Vec<String>,
}

/// Runs the world of a seed.
pub fn run(seed: u64, aloud: bool) -> Outcome {
    run_shaped(seed, aloud, |_| {})
}

/// Runs the world of a seed, in which something is as it is wanted.
pub fn run_shaped(seed: u64, aloud: bool, shape: impl FnOnce(&mut Scenario)) -> Outcome {
    let world = World::new(seed, aloud);
    let mut scenario = Scenario::draw(&world);
    shape(&mut scenario);
    note!(world, "{scenario:?}");
    let outcome = Run::new(world.clone(), scenario).finish(seed);
    world.end();
    outcome
}

/// A world while it runs.
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) scenario: Scenario,
    pub(crate) mysql: Mysql,
    pub(crate) disk: Disk,
    hosts: Vec<Host>,
    checker: Checker,
    /// Prepared XA transactions that wait for their end.
    pub(crate) prepared: Vec<Xid>,
    readers: Vec<Reader>,
    /// Tags and consumers.
    pub(crate) kept: Vec<Kept>,
    /// An object was damaged.
    pub(crate) is_damaged: bool,
    /// Names for columns and transactions.
    pub(crate) names: u64,
    crashes: u64,
    /// Nobody can have a reason to read again what is durable.
    reads_once: bool,
    /// Processes that stand still as soon as they are in the midst of something, which another one does meanwhile.
    freezing: BTreeSet<(&'static str, Moment)>,
}

/// Somebody in a process who has begun to read and goes on for a while.
struct Reader {
    host: usize,
    until: Duration,
    view: Arc<SourceView>,
}

impl Run {
    pub(crate) fn new(world: World, scenario: Scenario) -> Self {
        let tables = first_tables(&world, &scenario);
        let mysql = Mysql::new(world.clone(), scenario.variant, tables.clone(), scenario.stream_lag)
            .with_page_lag(scenario.page_lag);
        let disk = Disk::default();
        let id = SOURCE;
        let definition = SourceDefinition {
            id,
            name: "shop".to_owned(),
            connection: ConnectionOptions::new("mysql", 3306, "cdc", ""),
            tables: vec![TableRule::new("shop.*".parse::<TablePattern>().expect("a pattern"))],
            exclude: Vec::new(),
            options: scenario.options.clone(),
        };
        let gone = Gone::default();
        let hosts = ["a", "b", "c"][..scenario.hosts]
            .iter()
            .map(|name| {
                let ahead_ms = world.below(400) as i64 - 200;
                Host::new(
                    &world,
                    name,
                    &mysql,
                    &disk,
                    &definition,
                    &scenario.layout,
                    ahead_ms,
                    scenario.begins_after,
                    &gone,
                )
            })
            .collect();
        // With more memory, nothing of a transaction is written before it is over, and undoing it needs no further reading.
        let reads_undone = scenario.undone > 0.0 && scenario.options.memory_bytes < 4 << 20;
        // Nothing in a changelog says that a table was read again.
        let follows = scenario.options.changelog
            && scenario.prepared == 0
            && scenario.xa_every.is_zero()
            && !reads_undone
            && scenario.resyncs_every.is_zero();
        let checker = Checker::new(&world, &mysql, &disk, id, tables, follows);
        // A checkpoint may appear late, another process may not know of it, and a schema change has a table read again.
        let reads_once = scenario.storms == 0.0
            && (scenario.hosts, scenario.prepared) == (1, 0)
            && scenario.xa_every.is_zero()
            && scenario.schema_changes_every.is_zero()
            && !reads_undone
            && scenario.resyncs_every.is_zero();
        let mut run = Self {
            reads_once,
            world,
            scenario,
            mysql,
            disk,
            hosts,
            checker,
            prepared: Vec::new(),
            readers: Vec::new(),
            kept: Vec::new(),
            is_damaged: false,
            names: 0,
            crashes: 0,
            freezing: BTreeSet::new(),
        };
        if run.scenario.freezes_first {
            let both = [Moment::Committing, Moment::Recovering];
            run.freezing.extend(run.hosts.iter().flat_map(|host| both.map(|moment| (host.name(), moment))));
        }
        for _ in 0..run.scenario.prepared {
            run.prepare();
        }
        run
    }

    fn finish(mut self, seed: u64) -> Outcome {
        let mut storm = Duration::ZERO;
        while self.world.now() < self.scenario.lasts && !self.is_over() {
            if self.world.now() >= storm {
                storm = self.world.now() + self.world.between(Duration::from_millis(200), Duration::from_secs(4));
                self.change_weather();
            }
            self.act();
            self.step();
        }
        note!(self.world, "nothing goes wrong from now on");
        for host in &self.hosts {
            host.weather.set(Conditions::calm());
        }
        let deadline = self.world.now() + SETTLED_WITHIN;
        let mut frozen = Duration::ZERO;
        while !self.is_over() {
            if self.mysql.is_open("") {
                for xid in std::mem::take(&mut self.prepared) {
                    self.mysql.commit_prepared(&xid, Duration::from_millis(5));
                }
            }
            self.step();
            if self.hosts.iter().any(Host::is_frozen) {
                frozen = self.world.now();
            }
            // Whoever stood still goes on with what it was doing.
            let is_calm = self.world.now() > frozen + AFTER_FREEZE;
            if is_calm
                && self.prepared.is_empty()
                && self.checker.covered() == self.mysql.length()
                && self.checker.is_complete()
            {
                break;
            }
            if self.world.now() > deadline {
                self.world.violate_in_any_case(self.stuck());
            }
        }
        self.look_at_all_kept();
        let violation = self.world.violation();
        Outcome {
            seed,
            digest: self.world.digest(),
            steps: self.world.steps(),
            simulated: self.world.now(),
            checkpoints: self.checker.checkpoints,
            compared: self.checker.compared,
            followed: self.checker.followed,
            transactions: self.mysql.length(),
            crashes: self.crashes,
            damaged: self.is_damaged,
            damage_named: self.world.is_excused(),
            last_lines: if violation.is_some() { self.world.last_lines() } else { Vec::new() },
            violation,
        }
    }

    fn is_over(&self) -> bool {
        self.world.violation().is_some() || self.world.is_excused()
    }

    fn stuck(&self) -> String {
        let states: Vec<String> = self
            .hosts
            .iter()
            .filter_map(Host::job)
            .map(|job| {
                let status = job.status();
                let last = status.errors.last().map(|error| format!("{} {}", error.code, error.message));
                format!("{:?}, {last:?}", status.state)
            })
            .collect();
        format!(
            "no progress: {} of {} transactions, complete: {}; {}",
            self.checker.covered(),
            self.mysql.length(),
            self.checker.is_complete(),
            states.join("; ")
        )
    }

    fn step(&mut self) {
        self.world.advance(self.world.now() + TICK);
        let first = self.world.below(self.hosts.len() as u64) as usize;
        for index in 0..self.hosts.len() {
            let index = (first + index) % self.hosts.len();
            self.hosts[index].step(TICK);
        }
        let before = self.checker.checkpoints;
        self.checker.look();
        if self.reads_once && self.checker.checkpoints > before {
            self.mysql.set_durable(self.checker.durable());
        }
        let mut failed = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let Some(job) = host.job() else { continue };
            let status = job.status();
            // Nothing is called damaged but what is.
            if let Some(damage) = status.errors.iter().find(|error| error.code == Code::StoreCorrupt.to_string()) {
                self.world.violate(format!("a job has met damage: {damage:?}"));
            }
            let allowed = job.definition().options.memory_bytes + MEMORY_TOLERANCE;
            if job.memory().peak() > allowed {
                let peak = job.memory().peak();
                self.world.violate_in_any_case(format!("rows took {peak} bytes of memory, and {allowed} are allowed"));
            }
            if status.state == JobState::Failed {
                failed.push((index, status.errors.last().cloned()));
            }
            self.checker.look_at(&job.view());
        }
        for (index, error) in failed {
            self.failed(index, error);
        }
        self.read();
    }

    /// A job says that it cannot go on. That is right if it has met a server that lacks what was captured; somebody looks
    /// after it then.
    fn failed(&mut self, index: usize, error: Option<ErrorInfo>) {
        let lacked = error.as_ref().is_some_and(|error| error.code == Code::OtherServer.to_string());
        if lacked && self.mysql.refused(self.hosts[index].name()) {
            note!(self.world, "somebody resumes what ended with {error:?}");
            self.hosts[index].crash(self.world.between(Duration::ZERO, Duration::from_secs(2)), true);
        } else {
            self.world.violate(format!("a job failed for good: {error:?}"));
        }
    }

    /// Readers find everything that they had begun to read, as long as their process lives. Nobody knows of readers of
    /// another process than the one that deletes.
    fn read(&mut self) {
        let now = self.world.now();
        let hosts = &self.hosts;
        self.readers.retain(|reader| hosts[reader.host].is_running());
        let over = self.readers.extract_if(.., |reader| reader.until <= now).collect::<Vec<_>>();
        for version in over.iter().flat_map(|reader| &reader.view.tables).filter_map(|table| table.version.as_ref()) {
            if let Some(file) = version.files.iter().find(|file| !self.disk.contains(&file.path)) {
                self.world.violate(format!(
                    "{} is gone, and a reader of snapshot {} needs it",
                    file.path, version.snapshot_id
                ));
            }
        }
    }

    /// Damages an object. Whoever meets it has to say which it is.
    fn damage(&mut self) {
        // What was written last is what is most likely to be read again.
        let recent = self.world.chance(0.7);
        let paths = self.disk.newest_paths(if recent { 20 } else { usize::MAX });
        let mut paths: Vec<_> = paths.into_iter().filter(|path| !is_of_others(path)).collect();
        let kinds = [".parquet", ".parquet", ".parquet", "/snapshot-", "/checkpoint-", ""];
        let kind = kinds[self.world.below(6) as usize];
        if paths.iter().any(|path| path.as_ref().contains(kind)) {
            paths.retain(|path| path.as_ref().contains(kind));
        }
        if paths.is_empty() {
            return;
        }
        // A record that is text can still be read after many a damage; larger ones are compressed.
        let is_text = |path: &Path| self.disk.content(path).is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok());
        let is_record = |path: &Path| path.as_ref().contains("/checkpoint/");
        let readable = |path: &&Path| is_record(path) && is_text(path);
        if let Some(record) = paths.iter().find(readable).filter(|_| self.world.chance(0.7)).cloned() {
            paths = vec![record];
        }
        let path = paths.swap_remove(self.world.below(paths.len() as u64) as usize);
        let damage = match self.world.below(5) {
            0 => Damage::Cut(self.world.draw(rand::Rng::random::<f64>)),
            // Nobody can know of a record that was there and is gone.
            1 if !is_record(&path) && !path.as_ref().contains("/owner/") => Damage::Gone,
            // What can still be read is harder to tell from what was written.
            1..4 if is_record(&path) => Damage::OtherDigit(self.world.draw(rand::Rng::random::<f64>)),
            // The values of a data file stand before what describes them.
            _ => Damage::Flipped(self.world.draw(rand::Rng::random::<f64>).powi(2), self.world.below(8) as u32),
        };
        note!(self.world, "{path} is damaged: {damage:?}");
        self.world.excuse(path.filename().unwrap_or_default());
        self.disk.damage(&path, damage);
        self.is_damaged = true;
        if self.world.chance(0.4) && !matches!(damage, Damage::Gone) {
            self.read_damaged(&path);
            self.disk.damage(&path, damage);
        }
        if self.world.chance(0.5) {
            // Merges read what nobody else does.
            self.scenario.compactions_every = Duration::from_millis(300);
        }
        if is_record(&path) || self.world.chance(0.7) {
            // A process that has just started reads more than one that goes on.
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].crash(Duration::ZERO, true);
            self.readers.retain(|reader| reader.host != index);
        }
    }

    /// Reads a data file as queries do, or a checkpoint record, while one bit or digit after the other is another one.
    fn read_damaged(&self, path: &Path) {
        let as_written: StoreRef = Arc::new(Direct(self.disk.clone()));
        let damaged: StoreRef = Arc::new(AsItIs(self.disk.clone()));
        let Some(number) = path.filename().and_then(|name| name.strip_prefix("checkpoint-")?.parse().ok()) else {
            let views = self.hosts.iter().filter_map(Host::job).map(|job| job.view());
            let versions: Vec<_> =
                views.flat_map(|view| view.tables.clone()).filter_map(|t| t.version.clone()).collect();
            if let Some(version) = versions.iter().find(|version| version.files.iter().any(|file| file.path == *path)) {
                let rows = |store: &StoreRef| now(Files::default().rows(store, version));
                self.compare_damaged(path, &rows(&as_written), || {
                    rows(&(Arc::new(Checked::new(damaged.clone())) as _))
                });
            }
            return;
        };
        let record = |store: &StoreRef| {
            now(CheckpointLog::new(store.clone(), SOURCE).read(number)).map_err(|error| error.to_string())
        };
        self.compare_damaged(path, &record(&as_written), || record(&damaged));
    }

    /// Whatever is damaged in an object, what is read is what was written or an error that names it.
    fn compare_damaged<T: PartialEq + std::fmt::Debug>(
        &self,
        path: &Path,
        written: &Result<T, String>,
        read: impl Fn() -> Result<T, String>,
    ) {
        let is_text = self.disk.content(path).is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok());
        for _ in 0..DAMAGES {
            let place = self.world.draw(rand::Rng::random::<f64>);
            let damage =
                if is_text { Damage::OtherDigit(place) } else { Damage::Flipped(place, self.world.below(8) as u32) };
            self.disk.damage(path, damage);
            match read() {
                Err(error) if error.contains(path.as_ref()) => {}
                seen if seen == *written => {}
                seen => self.world.violate_in_any_case(format!("with {damage:?} {path} is read as {seen:?}")),
            }
        }
    }

    /// Ends an XA transaction now and then, and more often while capture begins.
    fn end_prepared(&mut self) {
        let now = self.world.now();
        let begins = self.scenario.begins_after;
        let is_near = (begins.saturating_sub(BEGINNING)..begins + BEGINNING).contains(&now);
        if !self.every(if is_near { BEGINNING } else { Duration::from_secs(2) }) {
            return;
        }
        let xid = self.prepared.swap_remove(self.world.below(self.prepared.len() as u64) as usize);
        if self.world.chance(0.3) {
            self.mysql.roll_back_prepared(&xid, self.lag());
        } else {
            let lag = if is_near { self.world.between(Duration::ZERO, self.scenario.longest_lag) } else { self.lag() };
            self.mysql.commit_prepared(&xid, lag);
        }
    }

    fn freeze(&mut self, index: usize) {
        self.hosts[index].freeze(self.world.between(Duration::from_millis(100), Duration::from_secs(25)));
    }

    /// Whether something that happens every so often happens in this step.
    fn every(&self, mean: Duration) -> bool {
        !mean.is_zero() && self.world.chance(TICK.as_secs_f64() / mean.as_secs_f64())
    }

    fn change_weather(&self) {
        for host in &self.hosts {
            let conditions = self.scenario.weather(&self.world);
            note!(self.world, "weather: {conditions:?}");
            host.weather.set(conditions);
        }
    }

    fn act(&mut self) {
        if self.every(self.scenario.writes_every) {
            self.write();
        }
        if self.every(self.scenario.schema_changes_every) {
            self.change_schema();
        }
        if self.prepared.len() < 4 && self.every(self.scenario.xa_every) {
            self.prepare();
        }
        if self.every(self.scenario.rotates_every) {
            self.mysql.rotate();
        }
        if self.every(self.scenario.drops_every) {
            self.mysql.drop_connections();
        }
        if self.every(self.scenario.restarts_every) {
            self.mysql.restart(self.world.between(Duration::from_millis(50), Duration::from_secs(3)));
        }
        let soon = self.scenario.failover_after;
        let is_due = !soon.is_zero() && self.world.now() >= self.scenario.begins_after + soon;
        if self.every(self.scenario.failovers_every) || is_due {
            self.scenario.failover_after = if is_due { Duration::ZERO } else { soon };
            let lacks = if is_due || self.world.chance(0.5) { self.world.below(20) as usize } else { 0 };
            self.mysql.fail_over(lacks, self.world.between(Duration::from_millis(1), Duration::from_millis(400)));
        }
        if self.every(self.scenario.purges_every) {
            self.mysql.purge(self.checker.covered());
        }
        if !self.prepared.is_empty() && self.mysql.is_open("") {
            self.end_prepared();
        }
        if self.every(self.scenario.crashes_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            // One that is back at once may know more than a SELECT sees yet.
            let longest = if self.world.chance(0.5) { BACK_AT_ONCE } else { Duration::from_secs(3) };
            let (pause, known) = (self.world.between(Duration::ZERO, longest), self.world.chance(0.6));
            self.crashes += u64::from(self.hosts[index].is_running());
            self.hosts[index].crash(pause, known);
            self.readers.retain(|reader| reader.host != index);
        }
        if self.every(self.scenario.freezes_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            let name = self.hosts[index].name();
            match self.world.below(6) {
                0 => drop(self.freezing.insert((name, Moment::Committing))),
                1 => drop(self.freezing.insert((name, Moment::Reading))),
                2 => drop(self.freezing.insert((name, Moment::Recovering))),
                3 => drop(self.freezing.insert((name, Moment::Watching))),
                _ => self.freeze(index),
            }
        }
        for (name, moment) in self.disk.take_begun() {
            if self.freezing.remove(&(name, moment))
                && let Some(index) = self.hosts.iter().position(|host| host.name() == name)
            {
                self.freeze(index);
            }
        }
        if self.every(self.scenario.stops_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].stop();
            if self.world.chance(0.5) {
                let world = self.world.clone();
                self.hosts[index].change_options(|options| self.scenario.redraw(&world, options));
            }
        }
        if self.every(self.scenario.compactions_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].compact(|tables| self.world.below(tables as u64) as usize);
        }
        if self.every(self.scenario.resyncs_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].resync(|tables| self.world.below(tables as u64) as usize);
        }
        if self.hosts.len() == 1
            && self.every(Duration::from_millis(700))
            && let Some(job) = self.hosts[0].job()
        {
            let until = self.world.now() + self.world.between(Duration::from_millis(100), Duration::from_secs(12));
            self.readers.push(Reader { host: 0, until, view: job.view() });
        }
        if self.every(self.scenario.holders_every) {
            self.keep();
        }
        self.look_at_kept();
        if !self.is_damaged && !self.scenario.damage_after.is_zero() && self.world.now() >= self.scenario.damage_after {
            self.damage();
        }
        if self.every(Duration::from_secs(2)) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].ask_for_checkpoint();
        }
    }
}

/// Objects that other engines write.
fn is_of_others(path: &Path) -> bool {
    path.parts().any(|part| matches!(part.as_ref(), "tag" | "consumer"))
}
