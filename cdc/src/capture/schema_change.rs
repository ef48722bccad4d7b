//! What statements of the log do to captured tables: followed, read again, or stopped at.

use std::sync::Arc;

use tracing::info;

use super::applier::Work;
use super::coordinator::{Coordinator, applier_gone};
use super::table::{CapturedTable, TableIndex};
use crate::error::{Code, Error};
use crate::mysql::ddl::{self, Statement, TableName};

impl Coordinator<'_> {
    fn captured(&self, name: &TableName) -> Option<TableIndex> {
        self.index_of(&name.database, &name.table)
            .filter(|i| self.tables.get(*i).is_some_and(CapturedTable::is_captured))
    }

    pub(super) async fn statement(&mut self, statement: Statement, sql: &str) -> Result<(), Error> {
        match statement {
            Statement::Irrelevant | Statement::Create(_) => Ok(()),
            Statement::Alter { table, clauses } => {
                for clause in &clauses {
                    if let ddl::Clause::ExchangedWith(other) = clause
                        && let Some(index) = self.captured(other)
                        && let Some(table) = self.tables.get(index)
                    {
                        let (mysql, schema) = ((*table.mysql).clone(), (*table.schema).clone());
                        self.restart_table(index, mysql, schema, true).await?;
                    }
                }
                match self.captured(&table) {
                    Some(index) => self.alter(index, &clauses, sql).await,
                    None => Ok(()),
                }
            }
            Statement::Truncate(table) => match self.captured(&table) {
                Some(index) => self.truncated(index).await,
                None => Ok(()),
            },
            Statement::Drop(tables) => {
                for table in tables {
                    if let Some(index) = self.captured(&table) {
                        let error = Error::new(
                            Code::TableGone,
                            format!("table {}.{} was dropped", table.database, table.table),
                        );
                        self.stop_table(index, error).await?;
                    }
                }
                Ok(())
            }
            Statement::DropDatabase(database) => {
                let name = self.name_key(&database, "").0;
                let is_gone = |t: &CapturedTable| t.is_captured() && self.name_key(&t.mysql.database, "").0 == name;
                let gone: Vec<_> =
                    self.tables.iter().enumerate().filter(|(_, t)| is_gone(t)).map(|(index, _)| index).collect();
                for index in gone {
                    let error = Error::new(Code::TableGone, format!("database {database} was dropped"));
                    self.stop_table(index, error).await?;
                }
                Ok(())
            }
            Statement::Rename(pairs) => {
                for (from, to) in pairs {
                    for name in [&from, &to] {
                        if let Some(index) = self.captured(name) {
                            let what = format!(
                                "table {}.{} was renamed to {}.{}",
                                from.database, from.table, to.database, to.table
                            );
                            self.stop_table(index, not_followed(what, sql)).await?;
                        }
                    }
                }
                Ok(())
            }
            Statement::Dml { verb, names } => {
                for index in self.named(&names) {
                    let error = Error::new(
                        Code::StatementDml,
                        format!("the binlog holds a {verb} as a statement that names the table"),
                    );
                    self.stop_table(index, error).await?;
                }
                Ok(())
            }
            Statement::NotUnderstood { names } => {
                for index in self.named(&names) {
                    let what = "a statement that names the table was not understood".to_owned();
                    self.stop_table(index, not_followed(what, sql)).await?;
                }
                Ok(())
            }
        }
    }

    /// Captured tables whose name and database are among the words of a statement; its default database counts as one.
    fn named(&self, names: &[String]) -> Vec<TableIndex> {
        let is_named =
            |t: &CapturedTable| t.is_captured() && names.iter().any(|n| n.eq_ignore_ascii_case(&t.mysql.name));
        self.tables.iter().enumerate().filter(|(_, t)| is_named(t)).map(|(i, _)| i).collect()
    }

    async fn alter(&mut self, index: TableIndex, clauses: &[ddl::Clause], sql: &str) -> Result<(), Error> {
        let Some(table) = self.tables.get(index) else { return Ok(()) };
        let name = table.name.clone();
        let applied = match ddl::apply(&table.mysql, clauses, self.info.flavor) {
            Ok(applied) => applied,
            Err(why) => return self.stop_table(index, not_followed(why, sql)).await,
        };
        if applied.changes.is_empty() && applied.rewrites.is_none() && applied.table == *table.mysql {
            return Ok(());
        }
        let schema = if applied.changes.is_empty() {
            (*table.schema).clone()
        } else {
            match table.schema.evolve(&applied.changes, self.clock.now_ms()) {
                Ok(schema) => schema,
                Err(error) => return self.stop_table(index, not_followed(error.to_string(), sql)).await,
            }
        };
        info!(table = name, statement = sql, rewrites = applied.rewrites.as_deref(), "schema change");
        if applied.rewrites.is_some() {
            return self.restart_table(index, applied.table, schema, true).await;
        }
        self.hand_over(index).await?;
        let changed = !applied.changes.is_empty();
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        let live = !table.is_loading();
        table.redefine(applied.table, Arc::new(schema.clone()));
        if changed {
            self.work.send(Work::Evolve { table: index, schema }).await.map_err(applier_gone)?;
        }
        self.cuts.dirty = true;
        self.cuts.live_dirty |= live;
        // Pages read with the definition before are read again.
        self.start_reads(index);
        Ok(())
    }

    async fn truncated(&mut self, index: TableIndex) -> Result<(), Error> {
        let Some(table) = self.tables.get(index) else { return Ok(()) };
        info!(table = table.name, "TRUNCATE");
        let (mysql, schema) = ((*table.mysql).clone(), (*table.schema).clone());
        self.restart_table(index, mysql, schema, false).await
    }
}

fn not_followed(why: String, sql: &str) -> Error {
    const SHOWN: usize = 500;
    let statement: String = sql.chars().take(SHOWN).collect();
    Error::new(Code::DdlNotUnderstood, "a schema change cannot be followed")
        .with_detail(format!("{why}; the statement is: {statement}"))
}
