//! The log: files of events, each of which begins with what a reader has to know.

use std::collections::BTreeMap;

use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::source::position::{FilePosition, Gtid};
use uuid::Uuid;

use super::engine::{Engine, version_of};
use super::events::{self, Begin, Body, Statement};
use super::table::{Change, DATABASE, Effect};

pub(super) struct Logged {
    pub(super) body: Body,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The number of its transaction from 1 on; 0 for what belongs to none.
    pub(super) number: u64,
    pub(super) timestamp: u32,
    /// The server that wrote it first.
    pub(super) server_id: u32,
}

pub(super) struct LogFile {
    pub(super) name: String,
    pub(super) events: Vec<Logged>,
    pub(super) size: u64,
}

impl Engine {
    /// The number of the next transaction among those that have its server's name, or on MariaDB among all.
    pub(super) fn next_number(&self) -> u64 {
        let inherited = if self.variant.flavor == Flavor::Mysql { self.inherited } else { 0 };
        let base = if inherited == 0 { self.base } else { 0 };
        base + (self.history.len() - inherited) as u64 + 1
    }

    pub(super) fn begin<'a>(&self, timestamp: u32) -> Begin<'a> {
        Begin {
            flavor: self.variant.flavor,
            gtid: self.variant.gtid,
            uuid: self.uuid,
            number: self.next_number(),
            timestamp,
            standalone: false,
            ddl: false,
            prepares: None,
            completes: None,
        }
    }

    /// The name of a file of the log; each server has names of its own.
    pub(super) fn file_name(&self, number: usize) -> String {
        match self.server_id {
            1 => format!("binlog.{number:06}"),
            server => format!("replica{server}-bin.{number:06}"),
        }
    }

    pub(super) fn begin_file(&mut self, timestamp: u32) {
        let number = self.files.len() + self.first_file;
        let name = self.file_name(number);
        self.files.push(LogFile { name: name.clone(), events: Vec::new(), size: 4 });
        let head = match self.variant.flavor {
            Flavor::Mysql => vec![events::previous_gtids(&self.executed_in_log())],
            Flavor::MariaDb => {
                let last = self.in_log.checked_sub(1).and_then(|last| self.history[last].gtid.as_ref());
                let last = match last {
                    Some(Gtid::MariaDb { server, sequence, .. }) => Some((*server, *sequence)),
                    _ => (self.base > 0).then_some((1, self.base)),
                };
                vec![
                    events::gtid_list(last),
                    // The engines have committed all of the file before a little later.
                    events::binlog_checkpoint(&if number > 1 { self.file_name(number - 1) } else { name }),
                ]
            }
        };
        let flavor = self.variant.flavor;
        self.append_of(
            self.server_id,
            vec![events::format_description(flavor, version_of(flavor), timestamp)],
            0,
            timestamp,
        );
        self.append_of(self.server_id, head, 0, timestamp);
    }

    /// The numbers of the last transactions in the log, by the servers that wrote them.
    pub(super) fn executed_in_log(&self) -> Vec<(Uuid, u64)> {
        let mut last = BTreeMap::new();
        if self.base > 0 {
            last.insert(self.first_uuid, self.base);
        }
        for transaction in &self.history[..self.in_log] {
            if let Some(Gtid::Mysql { uuid, number, .. }) = &transaction.gtid {
                last.insert(*uuid, *number);
            }
        }
        last.into_iter().collect()
    }

    /// The statement that opens a transaction: it is logged with the first change.
    pub(super) fn opening(&self, sql: &str, effects: &[Effect]) -> Body {
        let first = effects.iter().find_map(|effect| match effect {
            Effect::Rows(_, changes) => changes.first(),
            Effect::Schema(..) => None,
        });
        let kind = match first {
            Some(Change::Update(..)) => Statement::ControlOfUpdate,
            _ => Statement::Control,
        };
        events::query(self.variant.flavor, kind, DATABASE, sql, 0)
    }

    /// A statement that is no schema change.
    pub(super) fn control(&self, sql: &str) -> Body {
        events::query(self.variant.flavor, Statement::Control, DATABASE, sql, 0)
    }

    pub(super) fn rotate(&mut self, timestamp: u32) {
        let next = self.file_name(self.files.len() + self.first_file);
        self.append_of(self.server_id, vec![events::rotate(&next, 4)], 0, timestamp);
        self.begin_file(timestamp);
    }

    /// Logs a transaction.
    pub(super) fn append(&mut self, begin: &Begin<'_>, mut bodies: Vec<Body>, number: u64) {
        bodies.insert(0, events::begin(begin, &bodies));
        self.append_of(self.server_id, bodies, number, begin.timestamp);
    }

    pub(super) fn append_of(&mut self, server_id: u32, bodies: Vec<Body>, number: u64, timestamp: u32) {
        self.in_log = self.in_log.max(number as usize);
        let file = self.files.last_mut().expect("there is always a file");
        for body in bodies {
            let (start, end) = (file.size, file.size + body.size());
            file.events.push(Logged { body, start, end, number, timestamp, server_id });
            file.size = end;
        }
    }

    pub(super) fn row_events(&mut self, effects: &[Effect]) -> Vec<Body> {
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
            let (flavor, definition) = (self.variant.flavor, &self.logged[name].definition);
            // One statement each.
            let records = self.script.is_some();
            let same = |a: &Change, b: &Change| match (a, b) {
                (Change::Insert(_), Change::Insert(_)) => true,
                // One change each, so that no other order comes of how a server finds the rows.
                _ => !records && std::mem::discriminant(a) == std::mem::discriminant(b),
            };
            for group in changes.chunk_by(same) {
                let group: Vec<&Change> = group.iter().collect();
                bodies.push(events::table_map(flavor, id, definition));
                bodies.push(events::rows(flavor, id, definition, &group, true));
            }
        }
        bodies
    }

    pub(super) fn log_end(&self) -> FilePosition {
        let file = self.files.last().expect("there is always a file");
        FilePosition::new(file.name.clone(), file.size)
    }
}
