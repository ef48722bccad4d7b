//! Transactions in the stream: where they begin and end, and what of them does not count after all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tracing::warn;

use super::coordinator::Coordinator;
use super::state::XaCommit;
use super::table::TableIndex;
use crate::error::Error;
use crate::mysql::ddl;
use crate::source::position::{FilePosition, Gtid};

/// Where the stream is, between and inside transactions.
#[derive(Default)]
pub(super) struct StreamState {
    /// Behind the last event, heartbeats included; for comparison with the HIGH of pages.
    pub(super) reached: Option<FilePosition>,
    pub(super) in_transaction: bool,
    /// GTID of the open transaction.
    gtid: Option<Gtid>,
    /// BEGIN or XA START was seen: the transaction ends with XID, COMMIT or ROLLBACK, not with its first statement.
    pub(super) explicit: bool,
    /// Which captured table each table id of the open transaction means.
    pub(super) ids: BTreeMap<u64, TableIndex>,
    /// Tables of which rows of the open transaction were handed over already, so that they cannot be cut back.
    handed_over: BTreeSet<TableIndex>,
    /// What the open transaction can be cut back to, oldest first.
    savepoints: Vec<Savepoint>,
    /// Tables of which rows that do not count were written: what counts of them is read when the transaction is over.
    again: BTreeSet<TableIndex>,
    pub(super) last_event_at_ms: Option<i64>,
    /// Counts statements that may have changed a table's definition.
    pub(super) statements: u64,
    /// The last XA COMMITs, which a SELECT may not see yet.
    pub(super) commits: VecDeque<XaCommit>,
}

/// So many XA COMMITs are remembered; each takes some milliseconds.
const COMMITS: usize = 64;

impl StreamState {
    pub(super) fn at(file: Option<FilePosition>) -> Self {
        Self { reached: file, ..Self::default() }
    }

    /// Tables of which rows of the open transaction were handed over, which are forgotten.
    pub(super) fn handed_over(&mut self) -> BTreeSet<TableIndex> {
        std::mem::take(&mut self.handed_over)
    }

    /// Rows of a table are handed over in the middle of a transaction.
    pub(super) fn hands_over(&mut self, table: TableIndex) {
        self.handed_over.insert(table);
        for savepoint in &mut self.savepoints {
            savepoint.handed_over.insert(table);
        }
    }
}

/// A place in the open transaction.
struct Savepoint {
    /// In small letters: names differ by more than that.
    name: String,
    /// How many rows each table's buffer held.
    lengths: Vec<usize>,
    /// Tables of which rows were handed over since.
    handed_over: BTreeSet<TableIndex>,
}

impl Coordinator<'_> {
    pub(super) fn begin(&mut self, gtid: Option<Gtid>) {
        self.stream.in_transaction = true;
        self.stream.explicit = false;
        self.stream.gtid = gtid;
        self.stream.handed_over.clear();
        self.stream.savepoints.clear();
        self.xa.begin();
        for table in &mut self.tables {
            table.transaction_start = table.buffer.len();
        }
    }

    /// The transaction is over: what it changed counts from here on.
    pub(super) fn end_transaction(&mut self) {
        self.stream.in_transaction = false;
        self.stream.explicit = false;
        self.stream.ids.clear();
        // A set that is begun here would not hold what came before; where the position has none, the file counts.
        if let (Some(gtid), Some(set)) = (self.stream.gtid.take(), &mut self.position.gtid) {
            set.add(&gtid);
        }
        self.position.file.clone_from(&self.stream.reached);
    }

    pub(super) async fn query(&mut self, database: &str, sql: &str) -> Result<(), Error> {
        let text = sql.trim_start();
        let word = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        match word.to_ascii_uppercase().as_str() {
            "BEGIN" => {
                if !self.stream.in_transaction {
                    // Servers without GTIDs open a transaction with BEGIN alone.
                    self.begin(None);
                }
                self.stream.explicit = true;
                return Ok(());
            }
            "COMMIT" => {
                self.end_transaction();
                return Ok(());
            }
            "SAVEPOINT" => {
                self.savepoint(name_behind(text, &["SAVEPOINT"]));
                return Ok(());
            }
            "ROLLBACK" => {
                let to = name_behind(text, &["ROLLBACK", "WORK", "TO", "SAVEPOINT"]);
                if to.is_empty() {
                    self.rolled_back();
                } else {
                    self.rolled_back_to(&to);
                }
                return Ok(());
            }
            "RELEASE" => return Ok(()),
            "XA" => {
                match text.split_whitespace().nth(1).unwrap_or_default().to_ascii_uppercase().as_str() {
                    "START" | "BEGIN" => {
                        if !self.stream.in_transaction {
                            self.begin(None);
                        }
                        self.stream.explicit = true;
                        self.xa.xa_start();
                    }
                    // XA END is followed by XA PREPARE; XA COMMIT and XA ROLLBACK of prepared rows stand alone.
                    "END" => {}
                    verb => self.xa_ends(verb == "COMMIT", text).await?,
                }
                return Ok(());
            }
            _ => {}
        }
        // A statement of its own: schema change or a data change that should have been row events.
        self.stream.statements += 1;
        let statement = ddl::parse(sql, database);
        self.statement(statement, sql).await?;
        if !self.stream.explicit {
            self.end_transaction();
        }
        Ok(())
    }

    /// The whole transaction does not count.
    fn rolled_back(&mut self) {
        let mut handed_over = std::mem::take(&mut self.stream.handed_over);
        if self.xa.is_open() {
            // What left the buffers was held, and goes.
            self.xa.give_up();
            handed_over.clear();
        }
        for table in &mut self.tables {
            table.buffer.truncate(table.transaction_start);
        }
        self.cannot_cut_back(handed_over);
        self.end_transaction();
    }

    fn savepoint(&mut self, name: String) {
        let lengths = self.tables.iter().map(|table| table.buffer.len()).collect();
        // A savepoint takes the place of one of the same name.
        self.stream.savepoints.retain(|savepoint| savepoint.name != name);
        self.stream.savepoints.push(Savepoint { name, lengths, handed_over: BTreeSet::new() });
    }

    /// What came behind a savepoint does not count. Servers log it nevertheless, and the statement behind it, when a
    /// transaction has done something that cannot be undone, such as creating a temporary table.
    fn rolled_back_to(&mut self, name: &str) {
        let savepoints = &mut self.stream.savepoints;
        let Some(at) = savepoints.iter().rposition(|savepoint| savepoint.name == name) else {
            // It is older than the first row, or unknown: what it undoes is everything.
            for table in &mut self.tables {
                table.buffer.truncate(table.transaction_start);
            }
            if self.xa.is_open() {
                self.xa.give_up();
                self.xa.xa_start();
                self.stream.handed_over.clear();
            }
            let handed_over = self.stream.handed_over.clone();
            return self.cannot_cut_back(handed_over);
        };
        savepoints.truncate(at + 1);
        let Some(savepoint) = savepoints.last_mut() else { return };
        let handed_over = std::mem::take(&mut savepoint.handed_over);
        for (table, length) in self.tables.iter_mut().zip(&savepoint.lengths) {
            table.buffer.truncate(*length);
        }
        self.cannot_cut_back(handed_over);
    }

    /// Rows of tables were handed over that do not count any more. What of the transaction counts is in no other place than
    /// the server once it is over, or, if it is prepared for XA, once it is committed.
    pub(super) fn cannot_cut_back(&mut self, tables: BTreeSet<TableIndex>) {
        if self.xa.is_open() {
            for table in tables.iter().filter_map(|index| self.tables.get(*index)) {
                self.xa.misses(&table.name);
            }
        } else {
            self.stream.again.extend(tables);
        }
    }

    /// Lets tables be read again of which too much was written. Between two transactions only.
    pub(super) async fn read_undone_again(&mut self) -> Result<(), Error> {
        for index in std::mem::take(&mut self.stream.again) {
            let Some(table) = self.tables.get_mut(index).filter(|table| table.is_captured()) else { continue };
            warn!(
                table = table.name,
                "part of a large transaction was logged, written and then rolled back; the table is read again"
            );
            let (mysql, schema) = ((*table.mysql).clone(), (*table.schema).clone());
            self.read_from_here(index, mysql, schema).await?;
        }
        Ok(())
    }

    /// XA COMMIT or XA ROLLBACK. What a commit of a transaction that was prepared before the capture began changed was in no
    /// page and is in no event, so that every table is read again. The commit is in the log before a SELECT sees it, and no
    /// later event would correct a page that missed it: pages wait for it.
    async fn xa_ends(&mut self, commits: bool, statement: &str) -> Result<(), Error> {
        let xid = statement.split_whitespace().nth(2).unwrap_or_default().to_ascii_lowercase();
        let known = self.source.prepared.remove(&xid);
        let held = self.source.held.remove(&xid);
        self.end_transaction();
        let commit = XaCommit { xid, position: self.position.clone() };
        if commits {
            self.stream.commits.push_back(commit.clone());
            if self.stream.commits.len() > COMMITS {
                self.stream.commits.pop_front();
            }
        }
        if let Some(held) = held {
            return self.xa_ended(held, commits.then_some(&commit)).await;
        }
        if known || !commits {
            return Ok(());
        }
        warn!("an XA transaction that was prepared before the capture began was committed; its tables are read again");
        for index in 0..self.tables.len() {
            let Some(table) = self.tables.get_mut(index).filter(|t| t.is_captured()) else { continue };
            table.awaited.push(commit.clone());
            let (mysql, schema) = ((*table.mysql).clone(), (*table.schema).clone());
            self.restart_table(index, mysql, schema, true).await?;
        }
        Ok(())
    }
}

/// The name behind some words of a statement, of which any may be missing; empty if there is none. In small letters.
fn name_behind(statement: &str, words: &[&str]) -> String {
    let mut rest = statement.trim();
    for word in words {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').unwrap_or(rest.len());
        let (first, behind) = rest.split_at(end);
        if first.eq_ignore_ascii_case(word) {
            rest = behind.trim_start();
        }
    }
    if rest.starts_with("/*") {
        return String::new();
    }
    let name = rest.trim_end_matches([';', ' ']);
    let name = match name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) {
        Some(quoted) => quoted.replace("``", "`"),
        None => name.to_owned(),
    };
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::name_behind;

    #[test]
    fn names_of_savepoints_are_read_however_they_are_written() {
        let rollback = ["ROLLBACK", "WORK", "TO", "SAVEPOINT"];
        for (statement, name) in [
            ("ROLLBACK", ""),
            ("rollback work", ""),
            ("ROLLBACK /* xid=0 */", ""),
            ("ROLLBACK TO `First one`", "first one"),
            ("ROLLBACK TO SAVEPOINT s_1", "s_1"),
            ("rollback work to savepoint `a``b`;", "a`b"),
            ("ROLLBACK TO `savepoint`", "savepoint"),
            ("ROLLBACK TO to_do", "to_do"),
        ] {
            assert_eq!(name_behind(statement, &rollback), name, "{statement}");
        }
        assert_eq!(name_behind("SAVEPOINT `S`", &["SAVEPOINT"]), "s");
    }
}
