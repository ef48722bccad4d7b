//! Tables that are read again because somebody asked for it, each beside its old state, which readers keep until the new one
//! is complete.
//!
//! A table may have stopped long ago, and what is known of its definition may be as old. The definition is therefore read from
//! the server while it is locked, together with the log's end: from that place on the stream's schema changes are followed
//! again. The table begins anew when the stream is there. Should the stream be further already, then the definition counts
//! only if no statement came in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_storage::paimon::TableSchema;
use tracing::{info, warn};

use super::coordinator::{Coordinator, RETRY_READ};
use super::pages::{ReadJob, Reader};
use super::status::ErrorInfo;
use super::table::{TableIndex, first_schema};
use crate::error::{Code, Error, Retry};
use crate::mysql::server::Asked;
use crate::mysql::types::MysqlTable;
use crate::source::position::FilePosition;

/// MariaDB leaves out of a list what is just being renamed by an ALTER TABLE; a table that is in none of so many is gone.
const LISTS: u32 = 4;
const LIST_PAUSE: Duration = Duration::from_millis(23);

/// The tables of a job that are to be read again.
#[derive(Default)]
pub(super) struct Resyncs {
    tables: BTreeMap<TableIndex, Resync>,
    /// Counts the questions, so that a late answer is not taken for that of the next.
    questions: u64,
}

enum Resync {
    /// The definition is being read. So many statements had been seen when it was asked for.
    Asked { question: u64, statements: u64 },
    /// The stream has not reached it yet.
    Waiting(Definition),
}

/// A table as it is at a place in the log.
pub(super) struct Definition {
    pub(super) mysql: MysqlTable,
    pub(super) estimated_rows: u64,
    pub(super) at: FilePosition,
}

impl Coordinator<'_> {
    /// Somebody wants tables to be read again. The wish is part of the next checkpoint.
    pub(super) fn resync(&mut self, names: &[String]) {
        for index in 0..self.tables.len() {
            let Some(table) = self.tables.get_mut(index).filter(|table| names.contains(&table.name)) else { continue };
            info!(table = table.name, "the table is to be read again");
            table.resync = true;
            table.changed = true;
            self.cuts.dirty = true;
            self.cuts.live_dirty = true;
            self.start_resync(index);
        }
        // Whoever asks next how far the tables are has to see it.
        self.report();
    }

    /// Asks for the definition of a table that is to be read again.
    pub(super) fn start_resync(&mut self, index: TableIndex) {
        let Some(job) = self.definition_job(index) else { return };
        self.readers.submit(job);
    }

    fn definition_job(&mut self, index: TableIndex) -> Option<ReadJob> {
        let table = self.tables.get(index).filter(|table| table.resync)?;
        self.resyncs.questions += 1;
        let question = self.resyncs.questions;
        self.resyncs.tables.insert(index, Resync::Asked { question, statements: self.stream.statements });
        Some(ReadJob::Define { table: index, question, mysql: Arc::clone(&table.mysql) })
    }

    /// What came of asking.
    pub(super) fn defined(&mut self, index: TableIndex, answers: u64, definition: Result<Definition, Error>) {
        let Some(table) = self.tables.get_mut(index) else { return };
        let Some(Resync::Asked { question, statements }) = self.resyncs.tables.get(&index) else { return };
        if answers != *question {
            return;
        }
        match definition {
            Ok(definition) => {
                let is_passed = self.stream.reached.as_ref().is_some_and(|reached| definition.at < *reached);
                if is_passed && *statements != self.stream.statements {
                    self.start_resync(index);
                } else {
                    self.resyncs.tables.insert(index, Resync::Waiting(definition));
                }
            }
            Err(error) => {
                warn!(table = table.name, code = %error.code, %error, "the table cannot be read again now");
                self.status.record(ErrorInfo::new(&error, Some(&table.name), self.clock.now_ms()));
                if error.retry == Retry::Never {
                    self.give_up_resync(index);
                } else if let Some(job) = self.definition_job(index) {
                    self.readers.submit_later(job, RETRY_READ);
                }
            }
        }
    }

    fn give_up_resync(&mut self, index: TableIndex) {
        self.resyncs.tables.remove(&index);
        if let Some(table) = self.tables.get_mut(index) {
            table.resync = false;
            table.changed = true;
        }
        self.cuts.dirty = true;
    }

    /// Lets tables begin anew whose definitions the stream has reached. Between two transactions only.
    pub(super) async fn begin_resyncs(&mut self) -> Result<(), Error> {
        if self.resyncs.tables.is_empty() {
            return Ok(());
        }
        let Some(reached) = self.stream.reached.clone() else { return Ok(()) };
        let is_due = |resync: &mut Resync| matches!(resync, Resync::Waiting(definition) if definition.at <= reached);
        let due: Vec<_> = self.resyncs.tables.extract_if(.., |_, resync| is_due(resync)).collect();
        for (index, resync) in due {
            let Resync::Waiting(definition) = resync else { continue };
            self.begin_resync(index, definition).await?;
        }
        Ok(())
    }

    async fn begin_resync(&mut self, index: TableIndex, definition: Definition) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        let schema = match first_schema(&definition.mysql, self.options.changelog) {
            Ok(schema) => schema,
            Err(error) => {
                self.status.record(ErrorInfo::new(&error, Some(&table.name), self.clock.now_ms()));
                self.give_up_resync(index);
                return Ok(());
            }
        };
        info!(table = table.name, position = %self.position, "the table is read again");
        table.resync = false;
        table.estimated_rows = definition.estimated_rows;
        self.read_from_here(index, definition.mysql, schema).await
    }

    /// Reads all rows of a table as they are at the stream's position. The stream does not repeat what it has passed: pages
    /// have to see it.
    pub(super) async fn read_from_here(
        &mut self,
        index: TableIndex,
        mysql: MysqlTable,
        schema: TableSchema,
    ) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        table.since = Some(self.position.clone());
        table.awaited.extend(self.stream.commits.iter().cloned());
        // The table may be among those of a transaction that was prepared before: its commit is like an unknown one's.
        self.source.prepared.clear();
        self.restart_table(index, mysql, schema, true).await
    }
}

impl Reader {
    /// The definition of a table, and where the log ends while it holds.
    pub(super) async fn define(&mut self, table: &MysqlTable) -> Result<Definition, Error> {
        let name = (table.database.clone(), table.name.clone());
        let lock = match self.server.lock_definitions(&self.expected, std::slice::from_ref(&name)).await {
            Ok(Asked::Locked(lock)) => Some(lock),
            // It may not be there any more, which the lists tell.
            Ok(Asked::Missed(error)) => {
                self.listed(table).await?;
                return Err(error.with_retry(Retry::Backoff));
            }
            Err(error) => return Err(error),
        };
        let definition = self.define_locked(table).await;
        if let Some(lock) = lock {
            lock.release().await;
        }
        definition
    }

    async fn define_locked(&mut self, table: &MysqlTable) -> Result<Definition, Error> {
        let (key, estimated_rows) = self.listed(table).await?;
        let (conn, info) = self.connected().await?;
        let loaded = conn.load_tables(info, &table.database, &[&table.name]).await?;
        let mut mysql = loaded.into_iter().next().ok_or_else(|| gone(table))?;
        if let Some(key) = key {
            mysql.primary_key = key;
        }
        let at = conn.log_end(info).await?;
        Ok(Definition { mysql, estimated_rows, at })
    }

    /// The key of a table and how many rows it has about.
    async fn listed(&mut self, table: &MysqlTable) -> Result<(Option<Vec<String>>, u64), Error> {
        for list in 0..LISTS {
            if list > 0 {
                tokio::time::sleep(LIST_PAUSE).await;
            }
            let definition = Arc::clone(&self.definition);
            let (conn, info) = self.connected().await?;
            let listed = conn.list_tables(info, &definition).await?;
            let is_it = |database: &str, name: &str| (database, name) == (table.database.as_str(), table.name.as_str());
            if let Some(found) = listed.into_iter().find(|found| is_it(&found.database, &found.name)) {
                return match found.left_out {
                    None => Ok((found.key, found.estimated_rows)),
                    Some(why) => Err(Error::new(
                        Code::NoTableMatched,
                        format!("table {}.{} cannot be captured as it is now", table.database, table.name),
                    )
                    .with_detail(why)),
                };
            }
        }
        Err(gone(table))
    }
}

fn gone(table: &MysqlTable) -> Error {
    Error::new(Code::TableGone, format!("table {}.{} is not on the server", table.database, table.name))
}
