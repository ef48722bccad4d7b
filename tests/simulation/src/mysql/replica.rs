//! Another server in the place of the one there was: a replica that was promoted, perhaps before it had everything.

use std::time::Duration;

use tidegate_cdc::mysql::Flavor;
use uuid::Uuid;

use super::engine::{Engine, Mysql};
use super::log::Logged;
use super::table::{Effect, apply};
use crate::note;

/// How long a replica that waits for a lock looks away.
const LOCK_PAUSE: Duration = Duration::from_millis(7);

impl Mysql {
    /// Another server takes the place of this one: it has the same transactions in a log of its own. The last `lacks` of
    /// them arrive one by one, with a pause before each, and until they are there nothing is changed.
    pub fn fail_over(&self, lacks: usize, pause: Duration) {
        let mut engine = self.lock();
        let gives_names = engine.variant.gtid || engine.variant.flavor == Flavor::MariaDb;
        if !engine.up || !gives_names || engine.lacking > 0 || !engine.prepared.is_empty() {
            return;
        }
        let (uuid, world) = (Uuid::from_u128(self.world.draw(rand::Rng::random)), self.world.clone());
        engine.become_replica(uuid, lacks, self.seconds(), move || world.chance(0.1));
        let lacks = engine.lacking;
        drop(engine);
        note!(self.world, "mysql is another server now, which lacks {lacks} transactions");
        self.changed();
        for place in 1..=lacks {
            let this = self.clone();
            self.world.after(pause * place as u32, move || this.let_arrive());
        }
    }

    /// The next transaction that was lacking is carried out here too, for which a schema change needs its tables' locks.
    fn let_arrive(&self) {
        let mut engine = self.lock();
        if engine.next_waits() {
            drop(engine);
            let this = self.clone();
            return self.world.after(LOCK_PAUSE, move || this.let_arrive());
        }
        engine.arrive();
        drop(engine);
        note!(self.world, "mysql gets a transaction that it lacked");
        self.changed();
    }

    /// Whether a process was told that this server lacks what it knows. It has to be asked once for each time.
    pub fn refused(&self, who: &str) -> bool {
        self.lock().refused.remove(who)
    }
}

impl Engine {
    fn become_replica(&mut self, uuid: Uuid, lacks: usize, timestamp: u32, ends_file: impl FnMut() -> bool) {
        self.recover();
        self.epoch += 1;
        self.shared.clear();
        self.uuid = uuid;
        self.server_id += 1;
        self.inherited = self.history.len();
        self.lacking = lacks.min(self.history.len());
        let has = self.length();
        self.copy_log(has, timestamp, ends_file);
        // A SELECT sees the past of what it saw on the server before.
        self.visible = has;
        self.ready.clear();
        self.seen = self.first.clone();
        for transaction in &mut self.history[..has] {
            apply(&mut self.seen, &transaction.effects);
        }
        for transaction in &mut self.history[has..] {
            transaction.carried_out = false;
            transaction.counts_early = false;
        }
    }

    /// Whether somebody has locked a definition that the next transaction changes.
    fn next_waits(&self) -> bool {
        let next = self.arriving.front().and_then(|events| events.first());
        let next = next.and_then(|event| self.history.get(event.number as usize - 1));
        next.is_some_and(|transaction| {
            transaction.effects.iter().any(|effect| match effect {
                Effect::Schema(table, _) => self.shared.get(table).is_some_and(|count| *count > 0),
                Effect::Rows(..) => false,
            })
        })
    }

    /// The next transaction that was lacking is there.
    fn arrive(&mut self) {
        let Some(events) = self.arriving.pop_front() else { return };
        let index = self.length();
        self.append_copies(events);
        self.lacking -= 1;
        self.ready.insert(index);
        self.reveal_ready();
    }

    fn append_copies(&mut self, events: Vec<Logged>) {
        for event in events {
            self.append_of(event.server_id, vec![event.body], event.number, event.timestamp);
            self.history[event.number as usize - 1].end = self.log_end();
        }
    }

    /// The first `has` transactions in the log of another server; the others are on their way to it.
    fn copy_log(&mut self, has: usize, timestamp: u32, mut ends_file: impl FnMut() -> bool) {
        let events = std::mem::take(&mut self.files).into_iter().flat_map(|file| file.events);
        let mut transactions: Vec<Vec<Logged>> = Vec::new();
        for event in events.filter(|event| event.number > 0) {
            match transactions.last_mut() {
                Some(last) if last.last().is_some_and(|before| before.number == event.number) => last.push(event),
                _ => transactions.push(vec![event]),
            }
        }
        (self.purged, self.in_log) = (0, 0);
        self.begin_file(timestamp);
        for transaction in transactions {
            if transaction.iter().any(|event| event.number > has as u64) {
                self.arriving.push_back(transaction);
                continue;
            }
            if ends_file() {
                self.rotate(timestamp);
            }
            self.append_copies(transaction);
        }
    }
}
