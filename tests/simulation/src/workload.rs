//! What happens in the database: transactions, transfers between the banks, schema changes, XA transactions.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng;
use tidegate_cdc::mysql::binlog::Xid;
use tidegate_cdc::mysql::types::MysqlType;

use crate::mysql::table::{Change, DATABASE, Effect, Row, Schema, Table, Tables, Value, column};
use crate::run::Run;
use crate::scenario::Scenario;
use crate::world::World;

impl Run {
    /// How long a transaction is in the log before it is seen.
    pub(crate) fn lag(&self) -> Duration {
        if self.world.chance(0.7) {
            self.world.between(Duration::ZERO, Duration::from_millis(3))
        } else {
            self.world.between(Duration::ZERO, self.scenario.longest_lag)
        }
    }

    pub(crate) fn write(&mut self) {
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
            if self.world.chance(self.scenario.undone / 3.0) {
                return self.mysql.roll_back(&effects, self.lag());
            }
            let undone = if self.world.chance(self.scenario.undone) { self.undone(&effects) } else { Vec::new() };
            self.mysql.commit(effects, &undone, self.lag());
        }
    }

    /// What the transaction did on top of its effects and undid.
    fn undone(&self, effects: &[Effect]) -> Vec<Effect> {
        let change = |effect: &Effect| match effect {
            Effect::Rows(name, changes) => {
                let (Change::Insert(row) | Change::Update(_, row)) = changes.last()? else { return None };
                Some(Effect::Rows(name.clone(), vec![Change::Delete(row.clone())]))
            }
            Effect::Schema(..) => None,
        };
        effects.iter().filter_map(change).collect()
    }

    /// Moves money from an account of one bank to one of the other.
    fn transfer(&self) -> Vec<Effect> {
        let amount = 1 + self.world.below(100) as i64;
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
            if matches!(&change, Change::Update(old, new) if old == new) {
                // No server logs that.
                continue;
            }
            let mut one = Tables::from([(name.to_owned(), table)]);
            crate::mysql::table::apply(&mut one, &[Effect::Rows(name.to_owned(), vec![change.clone()])]);
            table = one.remove(name).expect("it was just put there");
            changes.push(change);
        }
        changes
    }

    pub(crate) fn prepare(&mut self) {
        self.names += 1;
        let xid = Xid { format: 1, global: format!("xa{}", self.names).into_bytes(), branch: Vec::new() };
        let names: Vec<String> =
            self.mysql.with_tables(|tables| tables.keys().filter(|name| name.starts_with('t')).cloned().collect());
        let mut effects = Vec::new();
        for name in names {
            let changes = if effects.is_empty() || self.world.chance(0.5) { self.changes(&name) } else { Vec::new() };
            if !changes.is_empty() && self.mysql.is_open(&name) {
                effects.push(Effect::Rows(name, changes));
            }
        }
        if !effects.is_empty() {
            self.mysql.prepare(&xid, effects);
            self.prepared.push(xid);
        }
    }

    pub(crate) fn change_schema(&mut self) {
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

pub(crate) fn first_tables(world: &World, scenario: &Scenario) -> Tables {
    let mut tables = Tables::new();
    for number in 1..=scenario.tables {
        let name = format!("t{number}");
        let mut table = Table::new(&name, &[("v", "int"), ("s", "varchar(20)")]);
        let many = scenario.options.memory_bytes < 64 << 10;
        let rows = if many { 2 * scenario.keys } else { world.below(scenario.keys) };
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
