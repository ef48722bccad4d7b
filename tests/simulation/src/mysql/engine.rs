//! The server: tables, what of them a SELECT sees, and the log.
//!
//! A transaction is in the log some time before a SELECT sees it; transactions become visible in the log's order, unless
//! the server is told that the order does not matter. MariaDB's position of snapshots passes an XA COMMIT before the engine
//! has carried it out. Another server may take the place of this one: the same transactions in another log, of which the
//! last may not be there yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_cdc::mysql::binlog::Xid;
use tidegate_cdc::mysql::server::Visible;
use tidegate_cdc::mysql::{Flavor, ServerInfo};
use tidegate_cdc::source::position::{FilePosition, Gtid, GtidSet, MariaGtidSet, MysqlGtidSet, Position};
use tokio::sync::watch;
use uuid::Uuid;

use super::durable::Durable;
use super::events::{self, Begin, Body, Statement};
use super::log::{LogFile, Logged};
use super::sql;
use super::table::{Change, DATABASE, Effect, Row, Schema, Tables, apply, key_of};
use crate::note;
use crate::world::World;

/// What kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// MySQL or MariaDB.
    pub flavor: Flavor,
    /// Whether transactions carry GTIDs; MariaDB's always do.
    pub gtid: bool,
    /// Whether transactions that do not concern each other become visible in any order (`binlog_order_commits = OFF`).
    pub unordered: bool,
}

/// A server in the world. Clones are the same one.
#[derive(Clone)]
pub struct Mysql {
    pub(super) world: World,
    engine: Arc<Mutex<Engine>>,
    /// Changes with the log, with each restart and with each lost connection.
    pub(super) changes: watch::Sender<u64>,
    /// The longest time that an event is on its way.
    pub(super) stream_lag: Duration,
    /// The longest time that a page waits to be read, and then to be sent.
    pub(super) page_lag: Duration,
}

/// A transaction in the log.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Behind it.
    pub end: FilePosition,
    /// What it did.
    pub effects: Vec<Effect>,
    /// Its name; `None` where the server gives none.
    pub(super) gtid: Option<Gtid>,
    /// MariaDB counts it as visible before it is.
    pub(super) counts_early: bool,
    xid: Option<String>,
    pub(super) carried_out: bool,
}

pub(super) struct Engine {
    pub(super) variant: Variant,
    pub(super) uuid: Uuid,
    /// Counts the servers that this one is.
    pub(super) server_id: u32,
    /// Transactions of the servers before.
    pub(super) inherited: usize,
    /// Transactions at the end of the history that this server does not have yet.
    pub(super) lacking: usize,
    /// Who was told so, and has not read on since.
    pub(super) refused: BTreeSet<&'static str>,
    /// The events of those transactions, each with the file and the place in it that they get.
    pub(super) arriving: VecDeque<Vec<Logged>>,
    /// Transactions that are in the files.
    pub(super) in_log: usize,
    /// The first server, and the transactions that it had before the history begins.
    pub(super) first_uuid: Uuid,
    pub(super) base: u64,
    /// The number of the first file.
    pub(super) first_file: usize,
    /// The statements that do the same on a real server: a list for each transaction, to be run over a connection of its own.
    pub(super) script: Option<Vec<Vec<String>>>,
    /// Files at the beginning of the log that are not there any more.
    pub(super) purged: usize,
    /// With everything in the log.
    pub(super) logged: Tables,
    /// As they were in the beginning.
    pub(super) first: Tables,
    /// What a SELECT sees.
    pub(super) seen: Tables,
    pub(super) table_ids: BTreeMap<String, u64>,
    pub(super) next_table_id: u64,
    pub(super) files: Vec<LogFile>,
    pub(super) history: Vec<Transaction>,
    /// How many transactions the server says are visible.
    pub(super) visible: usize,
    /// Transactions whose engines have committed, though one before has not.
    pub(super) ready: BTreeSet<usize>,
    /// Prepared XA transactions, as `XA RECOVER` lists them.
    pub(super) prepared: BTreeMap<String, Vec<Effect>>,
    /// Tables that a schema change has for itself.
    pub(super) exclusive: BTreeSet<String>,
    /// How many keep a table's definition as it is.
    pub(super) shared: BTreeMap<String, usize>,
    pub(super) up: bool,
    pub(super) durable: Durable,
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
            server_id: 1,
            inherited: 0,
            lacking: 0,
            refused: BTreeSet::new(),
            purged: 0,
            logged: tables.clone(),
            first: tables.clone(),
            seen: tables,
            arriving: VecDeque::new(),
            in_log: 0,
            first_uuid: uuid,
            base: 0,
            first_file: 1,
            script: None,
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
            durable: Durable::default(),
            epoch: 0,
        };
        engine.begin_file(0);
        Self {
            world,
            engine: Arc::new(Mutex::new(engine)),
            changes: watch::Sender::new(0),
            stream_lag,
            page_lag: Duration::ZERO,
        }
    }

    /// The same server, whose pages take up to twice this.
    pub fn with_page_lag(mut self, page_lag: Duration) -> Self {
        self.page_lag = page_lag;
        self
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.world.now_ms() / 1000).unwrap_or(u32::MAX)
    }

    /// The server is like one that has the name `uuid`, has executed `base` transactions, and begins the file of a number. It
    /// writes down what it does as statements. To be called before it does anything.
    pub fn records(&self, uuid: Uuid, base: u64, first_file: usize) {
        let mut engine = self.lock();
        (engine.uuid, engine.first_uuid, engine.base, engine.first_file) = (uuid, uuid, base, first_file);
        engine.script = Some(Vec::new());
        engine.files.clear();
        engine.begin_file(0);
    }

    /// The statements of what was done, and the events of each file of the log.
    pub fn recorded(&self) -> (Vec<Vec<String>>, Vec<Vec<Vec<u8>>>) {
        let engine = self.lock();
        let event = |logged: &Logged| logged.body.event(logged.timestamp, logged.server_id, logged.end, 0);
        let files = engine.files.iter().map(|file| file.events.iter().map(event).collect());
        (engine.script.clone().unwrap_or_default(), files.collect())
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
        if engine.lacking > 0 {
            return false;
        }
        let waits = engine.shared.get(table).is_some_and(|count| *count > 0);
        let is_held =
            engine.prepared.values().flatten().any(|effect| matches!(effect, Effect::Rows(name, _) if name == table));
        let is_changed = |effect: &Effect| match effect {
            Effect::Rows(name, _) | Effect::Schema(name, _) => name == table,
        };
        let unseen = &engine.history[engine.visible..];
        let is_locked = unseen.iter().any(|other| !other.carried_out && other.effects.iter().any(is_changed));
        engine.up && !waits && !is_held && !engine.exclusive.contains(table) && !is_locked
    }

    /// Whether transactions may change a table's rows now.
    pub fn is_open(&self, table: &str) -> bool {
        let engine = self.lock();
        engine.up && engine.lacking == 0 && !engine.exclusive.contains(table)
    }

    /// Commits a transaction of row changes. It is visible after `pause` and, on most servers, after all before it.
    /// `undone` is what it did at its end and undid, which the log has all the same.
    pub fn commit(&self, effects: Vec<Effect>, undone: &[Effect], pause: Duration) {
        let mut engine = self.lock();
        let number = engine.history.len() as u64 + 1;
        // It takes more than a statement to make a real server log what was undone.
        let undone = if engine.script.is_some() { &[] } else { undone };
        if engine.script.is_some() {
            let rows = sql::changes(&engine.logged, &effects);
            engine.record([vec!["BEGIN".to_owned()], rows, vec!["COMMIT".to_owned()]].concat());
        }
        let mut bodies = engine.begun(&effects);
        if !undone.is_empty() {
            bodies.push(engine.control("SAVEPOINT `here`"));
            bodies.extend(engine.row_events(undone));
            bodies.push(engine.control("ROLLBACK TO `here`"));
        }
        bodies.push(events::commit(number));
        note!(self.world, "mysql commits {number}, visible in {} us", pause.as_micros());
        self.log(engine, bodies, effects, pause);
    }

    /// Rolls back a transaction of row changes that is in the log all the same, as are those that changed a table of an engine
    /// without transactions too.
    pub fn roll_back(&self, undone: &[Effect], pause: Duration) {
        let mut engine = self.lock();
        if engine.script.is_some() {
            return;
        }
        let mut bodies = engine.begun(undone);
        bodies.push(engine.control("ROLLBACK"));
        note!(self.world, "mysql rolls back {}", engine.history.len() + 1);
        self.log(engine, bodies, Vec::new(), pause);
    }

    fn log(&self, mut engine: MutexGuard<'_, Engine>, bodies: Vec<Body>, effects: Vec<Effect>, pause: Duration) {
        let number = engine.history.len() as u64 + 1;
        let begin = engine.begin(self.seconds());
        engine.append(&begin, bodies, number);
        let index = engine.note(effects, false, None);
        drop(engine);
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
            engine.record(vec![sql.clone()]);
            let begin = Begin { standalone: true, ddl: true, ..engine.begin(this.seconds()) };
            let kind = match &effect {
                Effect::Schema(_, Schema::Truncate) => Statement::Truncate,
                _ => Statement::Schema,
            };
            let statement = events::query(engine.variant.flavor, kind, DATABASE, &sql, number);
            engine.append(&begin, vec![statement], number);
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
        if engine.script.is_some() {
            let rows = sql::changes(&engine.logged, &effects);
            let verb = |verb: &str| vec![format!("XA {verb} {}", upper(xid))];
            engine.record([verb("START"), rows, verb("END"), verb("PREPARE")].concat());
        }
        let begin = Begin { prepares: Some(xid), ..engine.begin(self.seconds()) };
        let mut bodies = Vec::new();
        if engine.variant.flavor == Flavor::Mysql {
            bodies.push(engine.opening(&format!("XA START {}", upper(xid)), &effects));
        }
        bodies.extend(engine.row_events(&effects));
        bodies.push(engine.control(&format!("XA END {}", upper(xid))));
        bodies.push(events::xa_prepare(xid));
        engine.append(&begin, bodies, number);
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
        let begin = Begin { standalone: true, completes: Some(xid), ..engine.begin(self.seconds()) };
        engine.record(vec![format!("XA COMMIT {}", upper(xid))]);
        let statement = engine.control(&format!("XA COMMIT {}", upper(xid)));
        engine.append(&begin, vec![statement], number);
        let early = engine.variant.flavor == Flavor::MariaDb;
        let index = engine.note(effects, early, Some(xid.to_string()));
        drop(engine);
        note!(self.world, "mysql commits {number}: XA {xid}, visible in {} us", pause.as_micros());
        if early {
            self.reveal(index);
            self.carry_out_after(index, pause);
        } else {
            self.reveal_after(index, pause);
        }
        self.changed();
    }

    /// Lets a transaction that counts already be seen after a while, and behind those whose rows it changed again.
    fn carry_out_after(&self, index: usize, pause: Duration) {
        let this = self.clone();
        self.world.after(pause, move || {
            let mut engine = this.lock();
            if engine.waits_for_another(index) {
                drop(engine);
                this.carry_out_after(index, Duration::from_millis(2));
            } else {
                engine.carry_out(index);
            }
        });
    }

    /// Rolls a prepared XA transaction back.
    pub fn roll_back_prepared(&self, xid: &Xid, pause: Duration) {
        let mut engine = self.lock();
        let number = engine.history.len() as u64 + 1;
        let begin = Begin { standalone: true, completes: Some(xid), ..engine.begin(self.seconds()) };
        engine.record(vec![format!("XA ROLLBACK {}", upper(xid))]);
        let statement = engine.control(&format!("XA ROLLBACK {}", upper(xid)));
        engine.append(&begin, vec![statement], number);
        let index = engine.note(Vec::new(), false, Some(xid.to_string()));
        drop(engine);
        note!(self.world, "mysql rolls back {number}: XA {xid}, visible in {} us", pause.as_micros());
        self.reveal_after(index, pause);
        self.changed();
    }

    fn reveal_after(&self, index: usize, pause: Duration) {
        let (this, server_id) = (self.clone(), self.lock().server_id);
        self.world.after(pause, move || {
            // What another server has, it has in its own time.
            if this.lock().server_id == server_id {
                this.reveal(index);
            }
        });
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
            engine.record(vec!["FLUSH BINARY LOGS".to_owned()]);
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
            engine.recover();
            engine.exclusive.clear();
            engine.rotate(this.seconds());
            engine.up = true;
            drop(engine);
            note!(this.world, "mysql is back");
            this.changed();
        });
    }

    /// Deletes the files of the log before the one in which transaction `covered` ends.
    pub fn purge(&self, covered: usize) {
        let mut engine = self.lock();
        let Some(last) = covered.checked_sub(1).filter(|last| *last < engine.length()) else { return };
        let needed = engine.history[last].end.file.clone();
        let Some(first) = engine.files.iter().position(|file| file.name == needed) else { return };
        if engine.up && first > engine.purged {
            engine.purged = first;
            drop(engine);
            note!(self.world, "mysql deletes the first {first} files of its log");
        }
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

/// The version that a server says it is.
pub(super) fn version_of(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mysql => "9.7.4-2",
        Flavor::MariaDb => "10.11.19-MariaDB-0+deb12u1-log",
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
    pub(super) fn info(&self) -> ServerInfo {
        let is_mysql = self.variant.flavor == Flavor::Mysql;
        ServerInfo {
            flavor: self.variant.flavor,
            version: version_of(self.variant.flavor).to_owned(),
            server_uuid: is_mysql.then(|| self.uuid.to_string()),
            server_id: self.server_id,
            gtid: self.variant.gtid,
            lower_case_table_names: 0,
        }
    }

    fn record(&mut self, statements: Vec<String>) {
        if let Some(script) = &mut self.script {
            script.push(statements);
        }
    }

    /// What a server does when it starts: what is in its log is committed.
    pub(super) fn recover(&mut self) {
        let waiting: Vec<usize> = (self.visible..self.length()).collect();
        self.ready.extend(waiting);
        self.reveal_ready();
        for index in 0..self.length() {
            self.carry_out(index);
        }
        self.exclusive.clear();
    }

    /// Adds a transaction to the history; what is logged has happened to the rows that writers see.
    /// The events of a transaction up to its last row.
    fn begun(&mut self, effects: &[Effect]) -> Vec<Body> {
        let mut bodies = Vec::new();
        if self.variant.flavor == Flavor::Mysql {
            bodies.push(self.opening("BEGIN", effects));
        }
        bodies.extend(self.row_events(effects));
        bodies
    }

    fn note(&mut self, effects: Vec<Effect>, counts_early: bool, xid: Option<String>) -> usize {
        apply(&mut self.logged, &effects);
        let number = self.next_number();
        let gtid = match self.variant.flavor {
            Flavor::Mysql if self.variant.gtid => Some(Gtid::Mysql { uuid: self.uuid, tag: String::new(), number }),
            Flavor::Mysql => None,
            Flavor::MariaDb => Some(Gtid::MariaDb { domain: 0, server: self.server_id, sequence: number }),
        };
        self.history.push(Transaction { end: self.log_end(), effects, gtid, counts_early, xid, carried_out: false });
        self.history.len() - 1
    }

    pub(super) fn reveal_ready(&mut self) {
        if self.variant.unordered {
            for index in self.visible..self.history.len() {
                if self.ready.contains(&index) && !self.waits_for_another(index) {
                    self.carry_out(index);
                }
            }
        }
        while self.ready.remove(&self.visible) {
            let index = self.visible;
            self.visible += 1;
            if !self.history[index].counts_early {
                self.carry_out(index);
            }
        }
    }

    /// Whether a transaction before this one, of which a SELECT sees nothing yet, had a lock on what this one changed.
    fn waits_for_another(&self, index: usize) -> bool {
        let this = &self.history[index].effects;
        let unseen = self.history.get(self.visible..index).unwrap_or_default();
        unseen.iter().any(|before| !before.carried_out && concern_each_other(&before.effects, this))
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

    /// How many transactions this server has.
    pub(super) fn length(&self) -> usize {
        self.history.len() - self.lacking
    }

    /// The transactions that are visible, as a position: a prefix of the log.
    pub(super) fn visible_position(&self) -> Visible {
        let visible = self.visible.min(self.length());
        let file = match visible.checked_sub(1) {
            // Nothing is behind the last transaction but the heads of files.
            Some(_) if visible == self.history.len() => self.log_end(),
            Some(last) => self.history[last].end.clone(),
            None if self.history.is_empty() => self.log_end(),
            None => FilePosition::new(self.files[0].name.clone(), 4),
        };
        let mut beyond = None;
        let gtid = match self.executed() {
            // As capture does with what a server says is executed.
            Some(GtidSet::Mysql(executed)) => {
                let prefix = executed.cut_at_first_gap(&self.purged_gtids());
                beyond = (prefix != executed).then_some(GtidSet::Mysql(executed));
                Some(GtidSet::Mysql(prefix))
            }
            Some(GtidSet::MariaDb(_)) => self.gtids(0..visible),
            None => None,
        };
        Visible { prefix: Position { gtid, file: Some(file), server_uuid: self.info().server_uuid }, beyond }
    }

    /// `gtid_executed`: without an order it has gaps.
    fn executed(&self) -> Option<GtidSet> {
        let mut set = self.gtids(0..self.visible.min(self.length()))?;
        for transaction in &self.history[self.visible.min(self.length())..self.length()] {
            if let (true, Some(gtid)) = (transaction.carried_out, &transaction.gtid) {
                set.add(gtid);
            }
        }
        Some(set)
    }

    /// `gtid_purged`.
    fn purged_gtids(&self) -> MysqlGtidSet {
        match self.gtids(0..self.purged_transactions()) {
            Some(GtidSet::Mysql(set)) => set,
            _ => MysqlGtidSet::new(),
        }
    }

    /// Transactions in files that are not there any more.
    pub(super) fn purged_transactions(&self) -> usize {
        let last = self.files[..self.purged].iter().flat_map(|file| &file.events).map(|event| event.number).max();
        last.unwrap_or(0) as usize
    }

    fn gtids(&self, transactions: std::ops::Range<usize>) -> Option<GtidSet> {
        let mut set = match self.variant.flavor {
            Flavor::MariaDb => GtidSet::MariaDb(MariaGtidSet::new()),
            Flavor::Mysql if self.variant.gtid => GtidSet::Mysql(MysqlGtidSet::new()),
            Flavor::Mysql => return None,
        };
        for gtid in self.history[transactions].iter().filter_map(|transaction| transaction.gtid.as_ref()) {
            set.add(gtid);
        }
        Some(set)
    }

    /// Whether a set has the transaction of a number from 1 on.
    pub(super) fn has(&self, set: &GtidSet, number: u64) -> bool {
        let transaction = self.history.get((number as usize).saturating_sub(1));
        transaction.and_then(|transaction| transaction.gtid.as_ref()).is_some_and(|gtid| set.contains_one(gtid))
    }

    /// How many transactions of the log lie before a position.
    pub(super) fn covered(&self, position: &Position) -> usize {
        match (&position.gtid, &position.file) {
            (Some(set), _) => self
                .history
                .partition_point(|transaction| transaction.gtid.as_ref().is_some_and(|gtid| set.contains_one(gtid))),
            (None, Some(file)) => self.history.partition_point(|transaction| transaction.end <= *file),
            (None, None) => 0,
        }
    }
}

/// Whether two transactions have something in common.
fn concern_each_other(one: &[Effect], other: &[Effect]) -> bool {
    one.iter().any(|a| {
        other.iter().any(|b| match (a, b) {
            (Effect::Rows(table, ours), Effect::Rows(same, theirs)) if table == same => {
                let ours: BTreeSet<i64> = ours.iter().flat_map(keys_of).collect();
                theirs.iter().flat_map(keys_of).any(|key| ours.contains(&key))
            }
            (Effect::Rows(table, _) | Effect::Schema(table, _), Effect::Rows(same, _) | Effect::Schema(same, _)) => {
                table == same && !matches!((a, b), (Effect::Rows(..), Effect::Rows(..)))
            }
        })
    })
}
