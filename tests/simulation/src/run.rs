//! A run: the world of a seed from its beginning until everything that was changed is in the mirror.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tidegate_cdc::capture::{JobState, SourceView};
use tidegate_cdc::mysql::binlog::Xid;
use tidegate_cdc::mysql::types::MysqlType;
use tidegate_cdc::source::definition::{ConnectionOptions, SourceDefinition, TablePattern, TableRule};
use uuid::Uuid;

use crate::check::Checker;
use crate::host::{Gone, Host};
use crate::mysql::engine::Mysql;
use crate::mysql::table::{Change, DATABASE, Effect, Row, Schema, Table, Tables, Value, column};
use crate::note;
use crate::scenario::Scenario;
use crate::store::{Conditions, Disk};
use crate::world::World;

/// How far time moves at once.
const TICK: Duration = Duration::from_millis(2);
/// How long it may take at the end until all is in the mirror, once nothing goes wrong any more.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);

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
    /// Transactions of the database.
    pub transactions: usize,
    /// Processes that ended at once.
    pub crashes: u64,
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
    Run::new(world, scenario).finish(seed)
}

struct Run {
    world: World,
    scenario: Scenario,
    mysql: Mysql,
    disk: Disk,
    hosts: Vec<Host>,
    checker: Checker,
    /// Prepared XA transactions that wait for their end.
    prepared: Vec<Xid>,
    readers: Vec<Reader>,
    /// Names for columns and transactions.
    names: u64,
    crashes: u64,
}

/// Somebody in a process who has begun to read and goes on for a while.
struct Reader {
    host: usize,
    until: Duration,
    view: Arc<SourceView>,
}

impl Run {
    fn new(world: World, scenario: Scenario) -> Self {
        let tables = first_tables(&world, &scenario);
        let mysql = Mysql::new(world.clone(), scenario.variant, tables.clone(), scenario.stream_lag);
        let disk = Disk::default();
        let id = Uuid::from_u128(7);
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
                Host::new(&world, name, &mysql, &disk, &definition, &scenario.layout, ahead_ms, &gone)
            })
            .collect();
        let checker = Checker::new(&world, &mysql, &disk, id, tables);
        let mut run = Self {
            world,
            scenario,
            mysql,
            disk,
            hosts,
            checker,
            prepared: Vec::new(),
            readers: Vec::new(),
            names: 0,
            crashes: 0,
        };
        for _ in 0..run.scenario.prepared {
            run.prepare();
        }
        run
    }

    fn finish(mut self, seed: u64) -> Outcome {
        let mut storm = Duration::ZERO;
        while self.world.now() < self.scenario.lasts && self.world.violation().is_none() {
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
        for xid in std::mem::take(&mut self.prepared) {
            self.mysql.commit_prepared(&xid, Duration::from_millis(5));
        }
        let deadline = self.world.now() + SETTLED_WITHIN;
        while self.world.violation().is_none() {
            self.step();
            if self.checker.covered() == self.mysql.length() && self.checker.is_complete() {
                break;
            }
            if self.world.now() > deadline {
                self.world.violate(self.stuck());
            }
        }
        let violation = self.world.violation();
        Outcome {
            seed,
            digest: self.world.digest(),
            steps: self.world.steps(),
            simulated: self.world.now(),
            checkpoints: self.checker.checkpoints,
            compared: self.checker.compared,
            transactions: self.mysql.length(),
            crashes: self.crashes,
            last_lines: if violation.is_some() { self.world.last_lines() } else { Vec::new() },
            violation,
        }
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
        self.checker.look();
        for job in self.hosts.iter().filter_map(Host::job) {
            let status = job.status();
            if status.state == JobState::Failed {
                self.world.violate(format!("a job failed for good: {:?}", status.errors.last()));
            }
            self.checker.look_at(&job.view());
        }
        self.read();
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
        if self.every(self.scenario.rotates_every) {
            self.mysql.rotate();
        }
        if self.every(self.scenario.drops_every) {
            self.mysql.drop_connections();
        }
        if self.every(self.scenario.restarts_every) {
            self.mysql.restart(self.world.between(Duration::from_millis(50), Duration::from_secs(3)));
        }
        if !self.prepared.is_empty() && self.every(Duration::from_secs(3)) {
            let xid = self.prepared.remove(0);
            self.mysql.commit_prepared(&xid, self.lag());
        }
        if self.every(self.scenario.crashes_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            let (pause, known) = (self.world.between(Duration::ZERO, Duration::from_secs(3)), self.world.chance(0.6));
            self.crashes += u64::from(self.hosts[index].is_running());
            self.hosts[index].crash(pause, known);
            self.readers.retain(|reader| reader.host != index);
        }
        if self.every(self.scenario.freezes_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].freeze(self.world.between(Duration::from_millis(100), Duration::from_secs(25)));
        }
        if self.every(self.scenario.stops_every) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].stop();
        }
        if self.hosts.len() == 1
            && self.every(Duration::from_millis(700))
            && let Some(job) = self.hosts[0].job()
        {
            let until = self.world.now() + self.world.between(Duration::from_millis(100), Duration::from_secs(12));
            self.readers.push(Reader { host: 0, until, view: job.view() });
        }
        if self.every(Duration::from_secs(2)) {
            let index = self.world.below(self.hosts.len() as u64) as usize;
            self.hosts[index].ask_for_checkpoint();
        }
    }

    /// How long a transaction is in the log before it is seen.
    fn lag(&self) -> Duration {
        if self.world.chance(0.7) {
            self.world.between(Duration::ZERO, Duration::from_millis(3))
        } else {
            self.world.between(Duration::ZERO, self.scenario.longest_lag)
        }
    }

    fn write(&mut self) {
        let names: Vec<String> = self.mysql.with_tables(|tables| tables.keys().cloned().collect());
        let mut effects: Vec<Effect> = Vec::new();
        for name in &names {
            let wanted = self.world.chance(0.4);
            if wanted && self.mysql.is_open(name) && !name.starts_with("bank") {
                let changes = self.changes(name);
                if !changes.is_empty() {
                    effects.push(Effect::Rows(name.clone(), changes));
                }
            }
        }
        if self.mysql.is_open("bank1") && self.mysql.is_open("bank2") && self.world.chance(0.4) {
            effects.extend(self.transfer());
        }
        if !effects.is_empty() && self.mysql.is_open("") {
            self.mysql.commit(effects, self.lag());
        }
    }

    /// Moves money from an account of one bank to one of the other.
    fn transfer(&self) -> Vec<Effect> {
        let amount = self.world.below(100) as i64;
        let one = |name: &str, amount: i64| {
            let reserved = self.mysql.reserved(name);
            let row = self.mysql.with_tables(|tables| {
                let keys: Vec<i64> = tables[name].rows.keys().filter(|key| !reserved.contains(key)).copied().collect();
                let key = keys.get(self.world.below(keys.len() as u64) as usize)?;
                Some(tables[name].rows[key].clone())
            })?;
            let mut after = row.clone();
            if let Some(Value::Int(balance)) = after.get_mut(1) {
                *balance += amount;
            }
            Some(Effect::Rows(name.to_owned(), vec![Change::Update(row, after)]))
        };
        match (one("bank1", -amount), one("bank2", amount)) {
            (Some(from), Some(to)) => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// A few changes of a table that are possible one after the other.
    fn changes(&self, name: &str) -> Vec<Change> {
        let reserved = self.mysql.reserved(name);
        let mut table = self.mysql.with_tables(|tables| tables[name].clone());
        let count = 1 + self.world.below(if self.world.chance(0.1) { 40 } else { 4 });
        let mut changes = Vec::new();
        for _ in 0..count {
            let key = self.world.below(self.scenario.keys) as i64;
            if reserved.contains(&key) {
                continue;
            }
            let change = match table.rows.get(&key) {
                None => Change::Insert(random_row(&self.world, &table, key)),
                Some(row) => match self.world.below(10) {
                    0..3 => Change::Delete(row.clone()),
                    3 => {
                        let other = self.world.below(self.scenario.keys) as i64;
                        if table.rows.contains_key(&other) || reserved.contains(&other) {
                            continue;
                        }
                        Change::Update(row.clone(), random_row(&self.world, &table, other))
                    }
                    _ => Change::Update(row.clone(), random_row(&self.world, &table, key)),
                },
            };
            let mut one = Tables::from([(name.to_owned(), table)]);
            crate::mysql::table::apply(&mut one, &[Effect::Rows(name.to_owned(), vec![change.clone()])]);
            table = one.remove(name).expect("it was just put there");
            changes.push(change);
        }
        changes
    }

    fn prepare(&mut self) {
        self.names += 1;
        let xid = Xid { format: 1, global: format!("early{}", self.names).into_bytes(), branch: Vec::new() };
        let changes = self.changes("t1");
        if !changes.is_empty() {
            self.mysql.prepare(&xid, vec![Effect::Rows("t1".to_owned(), changes)]);
            self.prepared.push(xid);
        }
    }

    fn change_schema(&mut self) {
        let names: Vec<String> =
            self.mysql.with_tables(|tables| tables.keys().filter(|name| name.starts_with('t')).cloned().collect());
        let name = names[self.world.below(names.len() as u64) as usize].clone();
        if !self.mysql.is_free(&name) {
            return;
        }
        self.names += 1;
        let number = self.names;
        let table = self.mysql.with_tables(|tables| tables[&name].clone());
        let columns = &table.definition.columns;
        let any = |world: &World| 1 + world.below(columns.len() as u64 - 1) as usize;
        let (schema, clause) = match self.world.below(10) {
            0..3 if columns.len() < 8 => {
                let column_name = format!("c{number}");
                let sql = format!("ADD COLUMN {column_name} INT");
                (Schema::Add(column(&column_name, "int"), Value::Null), sql)
            }
            3..5 if columns.len() < 8 => {
                let column_name = format!("c{number}");
                let mut added = column(&column_name, "int");
                added.default = Some("7".to_owned());
                let sql = format!("ADD COLUMN {column_name} INT DEFAULT 7");
                (Schema::Add(added, Value::Int(7)), sql)
            }
            5..7 if columns.len() > 2 => {
                let index = any(&self.world);
                (Schema::Drop(index), format!("DROP COLUMN {}", columns[index].name))
            }
            7 if columns.len() > 1 => {
                let index = any(&self.world);
                let new = format!("c{number}");
                let sql = format!("RENAME COLUMN {} TO {new}", columns[index].name);
                (Schema::Rename(index, new), sql)
            }
            8 => {
                let narrow = columns.iter().position(|c| matches!(c.column_type, MysqlType::Int { .. }));
                let Some(index) = narrow else { return };
                let sql = format!("MODIFY COLUMN {} BIGINT", columns[index].name);
                let default = columns[index].default.clone();
                if default.is_some() {
                    return;
                }
                (Schema::Widen(index, MysqlType::BigInt { unsigned: false }), sql)
            }
            9 => (Schema::Truncate, String::new()),
            _ => return,
        };
        let sql = match schema {
            Schema::Truncate => format!("TRUNCATE TABLE `{name}`"),
            _ => format!("ALTER TABLE `{DATABASE}`.`{name}` {clause}"),
        };
        let pause = self.world.between(Duration::from_millis(1), Duration::from_millis(150));
        self.mysql.alter(&name, Effect::Schema(name.clone(), schema), &sql, pause);
    }
}

fn random_row(world: &World, table: &Table, key: i64) -> Row {
    let value = |column_type: &MysqlType| {
        if world.chance(0.15) {
            return Value::Null;
        }
        match column_type {
            MysqlType::Int { .. } => Value::Int(i64::from(world.draw(|random| random.random::<i32>()))),
            MysqlType::BigInt { .. } => Value::Int(world.draw(|random| random.random::<i64>())),
            _ => Value::Text("x".repeat(world.below(12) as usize)),
        }
    };
    let others = table.definition.columns.iter().skip(1).map(|column| value(&column.column_type));
    std::iter::once(Value::Int(key)).chain(others).collect()
}

fn first_tables(world: &World, scenario: &Scenario) -> Tables {
    let mut tables = Tables::new();
    for number in 1..=scenario.tables {
        let name = format!("t{number}");
        let mut table = Table::new(&name, &[("v", "int"), ("s", "varchar(20)")]);
        let rows = world.below(scenario.keys);
        let keys: BTreeSet<i64> = (0..rows).map(|_| world.below(scenario.keys) as i64).collect();
        for key in keys {
            let row = random_row(world, &table, key);
            table.rows.insert(key, row);
        }
        tables.insert(name, table);
    }
    for name in ["bank1", "bank2"] {
        let mut table = Table::new(name, &[("balance", "bigint")]);
        for key in 0..10 {
            table.rows.insert(key, vec![Value::Int(key), Value::Int(1000)]);
        }
        tables.insert(name.to_owned(), table);
    }
    tables
}
