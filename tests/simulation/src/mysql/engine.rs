//! The server: tables, what of them a SELECT sees, and the log.
//!
//! A transaction is in the log some time before a SELECT sees it; transactions become visible in the log's order. MariaDB's
//! position of snapshots passes an XA COMMIT before the engine has carried it out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_cdc::mysql::binlog::Xid;
use tidegate_cdc::mysql::{Flavor, ServerInfo};
use tidegate_cdc::source::position::{FilePosition, Gtid, GtidSet, MariaGtidSet, MysqlGtidSet, Position};
use tokio::sync::watch;
use uuid::Uuid;

use super::events::{self, Begin, Body};
use super::table::{Change, DATABASE, Effect, Row, Tables, apply, key_of};
use crate::note;
use crate::world::World;

/// What kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// MySQL or MariaDB.
    pub flavor: Flavor,
    /// Whether transactions carry GTIDs; MariaDB's always do.
    pub gtid: bool,
}

/// A server in the world. Clones are the same one.
#[derive(Clone)]
pub struct Mysql {
    world: World,
    engine: Arc<Mutex<Engine>>,
    /// Changes with the log, with each restart and with each lost connection.
    pub(super) changes: watch::Sender<u64>,
    /// The longest time that an event is on its way.
    pub(super) stream_lag: Duration,
}

/// A transaction in the log.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Behind it.
    pub end: FilePosition,
    /// What it did.
    pub effects: Vec<Effect>,
    /// MariaDB counts it as visible before it is.
    counts_early: bool,
    xid: Option<String>,
    carried_out: bool,
}

pub(super) struct Logged {
    pub(super) body: Body,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of its transaction from 1 on; 0 for what belongs to none.
    pub(super) number: u64,
    pub(super) timestamp: u32,
}

pub(super) struct LogFile {
    pub(super) name: String,
    pub(super) events: Vec<Logged>,
    pub(super) size: u64,
}

pub(super) struct Engine {
    pub(super) variant: Variant,
    uuid: Uuid,
    /// With everything in the log.
    pub(super) logged: Tables,
    /// What a SELECT sees.
    pub(super) seen: Tables,
    table_ids: BTreeMap<String, u64>,
    next_table_id: u64,
    pub(super) files: Vec<LogFile>,
    pub(super) history: Vec<Transaction>,
    /// How many transactions the server says are visible.
    pub(super) visible: usize,
    /// Transactions whose engines have committed, though one before has not.
    ready: BTreeSet<usize>,
    /// Prepared XA transactions, as `XA RECOVER` lists them.
    pub(super) prepared: BTreeMap<String, Vec<Effect>>,
    /// Tables that a schema change has for itself.
    pub(super) exclusive: BTreeSet<String>,
    /// How many keep a table's definition as it is.
    pub(super) shared: BTreeMap<String, usize>,
    pub(super) up: bool,
    /// Counts what ends all connections.
    pub(super) epoch: u64,
}

impl Mysql {
    /// A server with tables.
    pub fn new(world: World, variant: Variant, tables: Tables, stream_lag: Duration) -> Self {
        let uuid = Uuid::from_u128(world.draw(rand::Rng::random));
        let mut engine = Engine {
            variant,
            uuid,
            logged: tables.clone(),
            seen: tables,
            table_ids: BTreeMap::new(),
            next_table_id: 100,
            files: Vec::new(),
            history: Vec::new(),
            visible: 0,
            ready: BTreeSet::new(),
            prepared: BTreeMap::new(),
            exclusive: BTreeSet::new(),
            shared: BTreeMap::new(),
            up: true,
            epoch: 0,
        };
        engine.begin_file(0);
        Self { world, engine: Arc::new(Mutex::new(engine)), changes: watch::Sender::new(0), stream_lag }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.world.now_ms() / 1000).unwrap_or(u32::MAX)
    }

    /// The tables with everything that is in the log.
    pub fn with_tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.lock().logged)
    }

    /// Keys of a table that prepared transactions hold.
    pub fn reserved(&self, table: &str) -> BTreeSet<i64> {
        let engine = self.lock();
        let rows = engine.prepared.values().flatten().filter_map(|effect| match effect {
            Effect::Rows(name, changes) if name == table => Some(changes),
            _ => None,
        });
        rows.flatten().flat_map(keys_of).collect()
    }

    /// Whether a schema change may have a table now.
    pub fn is_free(&self, table: &str) -> bool {
        let engine = self.lock();
        let waits = engine.shared.get(table).is_some_and(|count| *count > 0);
        let is_held =
            engine.prepared.values().flatten().any(|effect| matches!(effect, Effect::Rows(name, _) if name == table));
        engine.up && !waits && !is_held && !engine.exclusive.contains(table) && engine.visible == engine.history.len()
    }

    /// Whether transactions may change a table's rows now.
    pub fn is_open(&self, table: &str) -> bool {
        let engine = self.lock();
        engine.up && !engine.exclusive.contains(table)
    }

    /// Commits a transaction of row changes. It is visible after `pause` and after all before it.
    pub fn commit(&self, effects: Vec<Effect>, pause: Duration) {
        let mut engine = self.lock();
        let number = engine.history.len() as u64 + 1;
        let begin = engine.begin(number);
        let mut bodies = vec![events::begin(&begin)];
        if engine.variant.flavor == Flavor::Mysql {
            bodies.push(events::query(DATABASE, "BEGIN"));
        }
        bodies.extend(engine.row_events(&effects));
        bodies.push(events::commit(number));
        engine.append(bodies, number, self.seconds());
        let index = engine.note(effects, false, None);
        drop(engine);
        note!(self.world, "mysql commits {number}, visible in {} us", pause.as_micros());
        self.reveal_after(index, pause);
        self.changed();
    }

    /// Carries out a schema change: it has the table for itself, until it is logged and seen.
    pub fn alter(&self, table: &str, effect: Effect, sql: &str, pause: Duration) {
        let mut engine = self.lock();
        engine.exclusive.insert(table.to_owned());
        drop(engine);
        note!(self.world, "mysql begins {sql}");
        let (this, table, sql) = (self.clone(), table.to_owned(), sql.to_owned());
        let epoch = self.lock().epoch;
        self.world.after(pause / 2, move || {
            let mut engine = this.lock();
            if engine.epoch != epoch || !engine.up {
                // The server was gone before the statement came to anything.
                engine.exclusive.remove(&table);
                return;
            }
            let number = engine.history.len() as u64 + 1;
            let begin = Begin { standalone: true, ddl: true, ..engine.begin(number) };
            let bodies = vec![events::begin(&begin), events::query(DATABASE, &sql)];
            engine.append(bodies, number, this.seconds());
            engine.table_ids.remove(&table);
            let index = engine.note(vec![effect], false, None);
            drop(engine);
            note!(this.world, "mysql logs {number}: {sql}");
            this.reveal_after(index, pause / 2);
            this.changed();
        });
    }

    /// Prepares an XA transaction.
    pub fn prepare(&self, xid: &Xid, effects: Vec<Effect>) {
        let mut engine = self.lock();
        let number = engine.history.len() as u64 + 1;
        let begin = Begin { prepares: Some(xid), ..engine.begin(number) };
        let mut bodies = vec![events::begin(&begin)];
        if engine.variant.flavor == Flavor::Mysql {
            bodies.push(events::query(DATABASE, &format!("XA START {}", upper(xid))));
        }
        bodies.extend(engine.row_events(&effects));
        bodies.push(events::query(DATABASE, &format!("XA END {}", upper(xid))));
        bodies.push(events::xa_prepare(xid));
        engine.append(bodies, number, self.seconds());
        engine.prepared.insert(xid.to_string(), effects);
        let index = engine.note(Vec::new(), false, None);
        drop(engine);
        note!(self.world, "mysql prepares {number}: {xid}");
        self.reveal_after(index, Duration::ZERO);
        self.changed();
    }

    /// Commits a prepared XA transaction.
    pub fn commit_prepared(&self, xid: &Xid, pause: Duration) {
        let mut engine = self.lock();
        let effects = engine.prepared.get(&xid.to_string()).cloned().unwrap_or_default();
        let number = engine.history.len() as u64 + 1;
        let begin = Begin { standalone: true, completes: Some(xid), ..engine.begin(number) };
        let bodies = vec![events::begin(&begin), events::query(DATABASE, &format!("XA COMMIT {}", upper(xid)))];
        engine.append(bodies, number, self.seconds());
        let early = engine.variant.flavor == Flavor::MariaDb;
        let index = engine.note(effects, early, Some(xid.to_string()));
        drop(engine);
        note!(self.world, "mysql commits {number}: XA {xid}, visible in {} us", pause.as_micros());
        if early {
            let this = self.clone();
            self.reveal(index);
            self.world.after(pause, move || this.lock().carry_out(index));
        } else {
            self.reveal_after(index, pause);
        }
        self.changed();
    }

    fn reveal_after(&self, index: usize, pause: Duration) {
        let this = self.clone();
        self.world.after(pause, move || this.reveal(index));
    }

    /// The engine has committed a transaction; it is visible when all before it are.
    fn reveal(&self, index: usize) {
        let mut engine = self.lock();
        engine.ready.insert(index);
        engine.reveal_ready();
    }

    /// Goes on in another file of the log.
    pub fn rotate(&self) {
        let mut engine = self.lock();
        if engine.up {
            engine.rotate(self.seconds());
            drop(engine);
            note!(self.world, "mysql begins another file");
            self.changed();
        }
    }

    /// Ends all connections.
    pub fn drop_connections(&self) {
        let mut engine = self.lock();
        engine.epoch += 1;
        engine.shared.clear();
        drop(engine);
        note!(self.world, "mysql drops its connections");
        self.changed();
    }

    /// The server ends, and is there again after a while. What is in its log is committed when it is.
    pub fn restart(&self, pause: Duration) {
        let mut engine = self.lock();
        if !engine.up {
            return;
        }
        engine.up = false;
        engine.epoch += 1;
        engine.shared.clear();
        drop(engine);
        note!(self.world, "mysql ends, and is back in {} us", pause.as_micros());
        self.changed();
        let this = self.clone();
        self.world.after(pause, move || {
            let mut engine = this.lock();
            let waiting: Vec<usize> = (engine.visible..engine.history.len()).collect();
            engine.ready.extend(waiting);
            engine.reveal_ready();
            for index in 0..engine.history.len() {
                engine.carry_out(index);
            }
            engine.exclusive.clear();
            engine.rotate(this.seconds());
            engine.up = true;
            drop(engine);
            note!(this.world, "mysql is back");
            this.changed();
        });
    }

    /// How many transactions of the log lie before a position.
    pub fn covered(&self, position: &Position) -> usize {
        self.lock().covered(position)
    }

    /// Transactions of the log from one on.
    pub fn history(&self, from: usize, to: usize) -> Vec<Transaction> {
        self.lock().history[from..to].to_vec()
    }

    /// How many transactions there are.
    pub fn length(&self) -> usize {
        self.lock().history.len()
    }
}

/// The name of an XA transaction as statements of the log have it.
fn upper(xid: &Xid) -> String {
    xid.to_string().replace("x'", "X'")
}

fn keys_of(change: &Change) -> Vec<i64> {
    let keys = |rows: &[&Row]| rows.iter().map(|row| key_of(row)).collect();
    match change {
        Change::Insert(row) | Change::Delete(row) => keys(&[row]),
        Change::Update(old, new) => keys(&[old, new]),
    }
}

impl Engine {
    fn begin<'a>(&self, number: u64) -> Begin<'a> {
        Begin {
            flavor: self.variant.flavor,
            gtid: self.variant.gtid,
            uuid: self.uuid,
            number,
            standalone: false,
            ddl: false,
            prepares: None,
            completes: None,
        }
    }

    pub(super) fn version(&self) -> &'static str {
        match self.variant.flavor {
            Flavor::Mysql => "9.7.4",
            Flavor::MariaDb => "10.11.19-MariaDB-log",
        }
    }

    pub(super) fn info(&self) -> ServerInfo {
        let is_mysql = self.variant.flavor == Flavor::Mysql;
        ServerInfo {
            flavor: self.variant.flavor,
            version: self.version().to_owned(),
            server_uuid: is_mysql.then(|| self.uuid.to_string()),
            server_id: 1,
            gtid: self.variant.gtid,
            lower_case_table_names: 0,
        }
    }

    fn begin_file(&mut self, timestamp: u32) {
        let name = format!("binlog.{:06}", self.files.len() + 1);
        self.files.push(LogFile { name, events: Vec::new(), size: 4 });
        let body = events::format_description(self.version());
        self.append(vec![body], 0, timestamp);
    }

    fn rotate(&mut self, timestamp: u32) {
        let next = format!("binlog.{:06}", self.files.len() + 1);
        self.append(vec![events::rotate(&next, 4)], 0, timestamp);
        self.begin_file(timestamp);
    }

    fn append(&mut self, bodies: Vec<Body>, number: u64, timestamp: u32) {
        let file = self.files.last_mut().expect("there is always a file");
        for body in bodies {
            let (start, end) = (file.size, file.size + body.size());
            file.events.push(Logged { body, start, end, number, timestamp });
            file.size = end;
        }
    }

    fn row_events(&mut self, effects: &[Effect]) -> Vec<Body> {
        let mut bodies = Vec::new();
        for effect in effects {
            let Effect::Rows(name, changes) = effect else { continue };
            let id = match self.table_ids.get(name) {
                Some(id) => *id,
                None => {
                    self.next_table_id += 1;
                    self.table_ids.insert(name.clone(), self.next_table_id);
                    self.next_table_id
                }
            };
            let definition = &self.logged[name].definition;
            bodies.push(events::table_map(id, definition));
            let same = |a: &Change, b: &Change| std::mem::discriminant(a) == std::mem::discriminant(b);
            let groups: Vec<&[Change]> = changes.chunk_by(same).collect();
            for (index, group) in groups.iter().enumerate() {
                let group: Vec<&Change> = group.iter().collect();
                bodies.push(events::rows(self.variant.flavor, id, definition, &group, index + 1 == groups.len()));
            }
        }
        bodies
    }

    /// Adds a transaction to the history; what is logged has happened to the rows that writers see.
    fn note(&mut self, effects: Vec<Effect>, counts_early: bool, xid: Option<String>) -> usize {
        apply(&mut self.logged, &effects);
        self.history.push(Transaction { end: self.log_end(), effects, counts_early, xid, carried_out: false });
        self.history.len() - 1
    }

    fn reveal_ready(&mut self) {
        while self.ready.remove(&self.visible) {
            let index = self.visible;
            self.visible += 1;
            if !self.history[index].counts_early {
                self.carry_out(index);
            }
        }
    }

    /// What a transaction did is seen from now on. Doing so again changes nothing.
    fn carry_out(&mut self, index: usize) {
        let transaction = &mut self.history[index];
        if std::mem::replace(&mut transaction.carried_out, true) {
            return;
        }
        if let Some(xid) = transaction.xid.take() {
            self.prepared.remove(&xid);
        }
        let effects = transaction.effects.clone();
        for effect in &effects {
            if let Effect::Schema(table, _) = effect {
                self.exclusive.remove(table);
            }
        }
        apply(&mut self.seen, &effects);
    }

    pub(super) fn log_end(&self) -> FilePosition {
        let file = self.files.last().expect("there is always a file");
        FilePosition::new(file.name.clone(), file.size)
    }

    /// The transactions that are visible, as a position.
    pub(super) fn visible_position(&self) -> Position {
        let file = match self.visible.checked_sub(1) {
            // Nothing is behind the last transaction but the heads of files.
            Some(_) if self.visible == self.history.len() => self.log_end(),
            Some(last) => self.history[last].end.clone(),
            None if self.history.is_empty() => self.log_end(),
            None => FilePosition::new(self.files[0].name.clone(), 4),
        };
        Position { gtid: self.gtids(self.visible), file: Some(file), server_uuid: self.info().server_uuid }
    }

    fn gtids(&self, count: usize) -> Option<GtidSet> {
        match self.variant.flavor {
            Flavor::MariaDb => {
                let mut set = MariaGtidSet::new();
                if count > 0 {
                    set.add(0, 1, count as u64);
                }
                Some(GtidSet::MariaDb(set))
            }
            Flavor::Mysql if self.variant.gtid => {
                let mut set = MysqlGtidSet::new();
                for number in 1..=count as u64 {
                    set.add(self.uuid, "", number);
                }
                Some(GtidSet::Mysql(set))
            }
            Flavor::Mysql => None,
        }
    }

    /// Whether a set has the transaction of a number.
    pub(super) fn has(&self, set: &GtidSet, number: u64) -> bool {
        set.contains_one(&match self.variant.flavor {
            Flavor::Mysql => Gtid::Mysql { uuid: self.uuid, tag: String::new(), number },
            Flavor::MariaDb => Gtid::MariaDb { domain: 0, server: 1, sequence: number },
        })
    }

    pub(super) fn covered(&self, position: &Position) -> usize {
        match (&position.gtid, &position.file) {
            (Some(set), _) => {
                let numbers: Vec<u64> = (1..=self.history.len() as u64).collect();
                numbers.partition_point(|number| self.has(set, *number))
            }
            (None, Some(file)) => self.history.partition_point(|transaction| transaction.end <= *file),
            (None, None) => 0,
        }
    }
}
