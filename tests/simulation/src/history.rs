//! Random histories of a server alone, to be repeated on a real one.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::mysql::engine::Variant;
use crate::mysql::sql;
use crate::run::Run;
use crate::scenario::Scenario;
use crate::world::World;

/// What a real server has done before a history begins.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    /// Its name.
    pub uuid: Uuid,
    /// Its transactions.
    pub transactions: u64,
    /// The number of the file of the log that it has just begun.
    pub file: usize,
}

/// A history.
#[derive(Debug)]
pub struct History {
    /// What is done, by the statements of a connection each.
    pub script: Vec<Vec<String>>,
    /// The events of each file of the log.
    pub files: Vec<Vec<Vec<u8>>>,
    /// What every table holds at the end, by name, in the order of the keys.
    pub rows: BTreeMap<String, Vec<Vec<Option<String>>>>,
}

/// A server whose history has not begun.
pub struct Beginning(Run);

impl Beginning {
    /// The server of a seed.
    pub fn new(seed: u64, variant: Variant) -> Self {
        let world = World::new(seed, false);
        let mut scenario = Scenario::draw(&world);
        (scenario.variant, scenario.hosts, scenario.prepared) = (variant, 0, 0);
        Self(Run::new(world, scenario))
    }

    /// The statements that make the tables that there are.
    pub fn tables(&self) -> Vec<String> {
        self.0.mysql.with_tables(|tables| tables.values().flat_map(sql::create).collect())
    }

    /// Lets so many things happen.
    pub fn go_on(self, before: Before, steps: usize) -> History {
        let Self(mut run) = self;
        run.mysql.records(before.uuid, before.transactions, before.file);
        for _ in 0..steps {
            match run.world.below(16) {
                0 | 1 => run.change_schema(),
                2 => run.mysql.rotate(),
                3 => run.prepare(),
                4 if !run.prepared.is_empty() => {
                    let xid = run.prepared.remove(0);
                    run.mysql.commit_prepared(&xid, Duration::ZERO);
                }
                5 if !run.prepared.is_empty() => {
                    let xid = run.prepared.remove(0);
                    run.mysql.roll_back_prepared(&xid, Duration::ZERO);
                }
                _ => run.write(),
            }
            // Until everything is visible.
            run.world.advance(run.world.now() + Duration::from_secs(10));
        }
        for xid in std::mem::take(&mut run.prepared) {
            run.mysql.commit_prepared(&xid, Duration::ZERO);
        }
        run.mysql.rotate();
        let (script, files) = run.mysql.recorded();
        let rows = run.mysql.with_tables(|tables| {
            let rows = tables.iter().map(|(name, table)| {
                let rows = table.rows.values().map(|row| row.iter().map(crate::mysql::table::Value::text).collect());
                (name.clone(), rows.collect())
            });
            rows.collect()
        });
        History { script, files, rows }
    }
}
