//! A session, and where its statements go.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;

use super::engine::Engine;
use super::outcome::{Notice, Outcome, RowsTag, text_schema};
use super::settings::Settings;
use super::transaction::{Transaction, TransactionStatus};
use super::{ParsedStatement, query, show};
use crate::context::SessionVars;
use crate::error::{SqlError, sqlstate};
use crate::sql;
use crate::sql::statement::{DiscardKind, SettingValue, Statement};
use crate::table::MirrorCatalog;

/// Who connects, and to what.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    pub user: String,
    pub database: String,
    pub application_name: String,
    /// The number that `pg_backend_pid()` answers and that cancels are addressed to.
    pub backend_pid: i32,
}

/// What a statement takes and gives.
#[derive(Debug, Clone)]
pub struct Description {
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// `None` if it gives no rows.
    pub schema: Option<SchemaRef>,
}

/// One connection's state. Statements of one session run one after the other.
#[derive(Debug)]
pub struct Session {
    pub(super) engine: Arc<Engine>,
    pub(super) options: SessionOptions,
    pub(super) settings: Settings,
    pub(super) transaction: Transaction,
}

impl Session {
    pub(super) fn new(engine: Arc<Engine>, options: SessionOptions) -> Self {
        let settings = Settings::new(&options.user, &options.application_name);
        Self { engine, options, settings, transaction: Transaction::default() }
    }

    /// The settings as they are now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A setting from the start-up message.
    pub fn set_at_start(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.settings.set_at_start(name, value)
    }

    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction.status()
    }

    /// Tells the session that a statement failed after [`Session::execute`] had answered: while its rows were sent, or in the front end.
    pub fn fail_transaction(&mut self) {
        self.transaction.fail();
    }

    /// Parses a text of any number of statements. A fault in one refuses all, and fails a transaction.
    pub fn parse(&mut self, text: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        sql::parse(text).inspect_err(|_| self.transaction.fail())
    }

    /// What a statement takes and gives. `given` are the types of parameters that the client has said, in order.
    pub async fn describe(
        &mut self,
        statement: &ParsedStatement,
        given: &[Option<DataType>],
    ) -> Result<Description, SqlError> {
        let description = self.described(statement, given).await;
        description.inspect_err(|_| self.transaction.fail())
    }

    async fn described(
        &mut self,
        parsed: &ParsedStatement,
        given: &[Option<DataType>],
    ) -> Result<Description, SqlError> {
        self.refuse_if_failed(&parsed.statement)?;
        let columns = |columns: &[&str]| Description { parameters: Vec::new(), schema: Some(text_schema(columns)) };
        Ok(match &parsed.statement {
            Statement::Query(statement) => query::describe(self, parsed, statement, given).await?,
            Statement::Show { kind, from, filter } => {
                let query = show::query(*kind, from.as_ref(), filter.as_ref())?;
                query.locate(query::describe(self, &query.parsed, query.statement()?, given).await)?
            }
            Statement::ExplainSource { .. } => columns(&["QUERY PLAN"]),
            Statement::VerifyStorage(_) => columns(super::verify::COLUMNS),
            Statement::ShowCreate { .. } => columns(&["name", "create_statement"]),
            Statement::ShowAll => columns(&["name", "setting", "description"]),
            Statement::ShowSetting(name) => {
                let (column, _) = self.settings.show(&name.value).map_err(|error| place(error, name.position))?;
                columns(&[&column])
            }
            _ => Description { parameters: Vec::new(), schema: None },
        })
    }

    /// Runs a statement. Dropping the future cancels it; rows come as they are made.
    pub async fn execute(
        &mut self,
        parsed: &ParsedStatement,
        parameters: Vec<ScalarValue>,
    ) -> Result<Outcome, SqlError> {
        let timeout = self.settings.timeout("statement_timeout");
        let outcome = match timeout {
            None => self.run(parsed, parameters).await,
            Some(timeout) => match tokio::time::timeout(timeout, self.run(parsed, parameters)).await {
                Ok(outcome) => outcome.map(|outcome| query::limit(outcome, timeout)),
                Err(_) => Err(timed_out(timeout)),
            },
        };
        outcome.inspect_err(|_| self.transaction.fail())
    }

    async fn run(&mut self, parsed: &ParsedStatement, parameters: Vec<ScalarValue>) -> Result<Outcome, SqlError> {
        self.refuse_if_failed(&parsed.statement)?;
        match &parsed.statement {
            Statement::Query(statement) => query::run(self, parsed, statement, parameters, RowsTag::Select).await,
            Statement::Show { kind, from, filter } => {
                if let Some(name) = from {
                    self.source(name)?;
                }
                let query = show::query(*kind, from.as_ref(), filter.as_ref())?;
                let outcome =
                    query::run(self, &query.parsed, query.statement()?, parameters, RowsTag::Named("SHOW")).await;
                query.locate(outcome)
            }
            Statement::ReadOnly(command) => Err(read_only(command).at(parsed.offset + 1)),

            Statement::Begin { .. } => Ok(self.transaction.begin(&self.settings)),
            Statement::Commit => Ok(self.transaction.commit(&mut self.settings)),
            Statement::Rollback => Ok(self.transaction.rollback(&mut self.settings)),
            Statement::Savepoint(name) => self.transaction.savepoint(name, &self.settings),
            Statement::Release(name) => self.transaction.release(name),
            Statement::RollbackTo(name) => self.transaction.rollback_to(name, &mut self.settings),

            Statement::Set { name, value, local } => {
                self.set(&name.value, value, *local).map_err(|error| place(error, name.position))
            }
            Statement::Reset(name) => {
                self.settings.reset(&name.value).map_err(|error| place(error, name.position))?;
                Ok(Outcome::command("RESET"))
            }
            Statement::ResetAll => {
                self.settings.reset_all();
                Ok(Outcome::command("RESET"))
            }
            Statement::ShowSetting(name) => {
                let (column, value) = self.settings.show(&name.value).map_err(|error| place(error, name.position))?;
                Outcome::texts(&[&column], &[vec![value]], RowsTag::Named("SHOW"))
            }
            Statement::ShowAll => {
                let rows: Vec<_> = super::settings::described()
                    .map(|(name, default, doc)| {
                        vec![name.to_owned(), self.settings.get(name).unwrap_or(default).to_owned(), doc.to_owned()]
                    })
                    .collect();
                Outcome::texts(&["name", "setting", "description"], &rows, RowsTag::Named("SHOW"))
            }
            Statement::Discard(kind) => self.discard(*kind),
            Statement::Deallocate(name) => {
                Ok(Outcome::command(if name.is_some() { "DEALLOCATE" } else { "DEALLOCATE ALL" }))
            }
            Statement::Unlisten => Ok(Outcome::command("UNLISTEN")),

            Statement::CreateSecret(create) => self.outside_block("CREATE SECRET")?.create_secret(create).await,
            Statement::CreateConnection(create) => {
                self.outside_block("CREATE CONNECTION")?.create_connection(create).await
            }
            Statement::CreateSource(create) => self.outside_block("CREATE SOURCE")?.create_source(create).await,
            Statement::ExplainSource { format, source } => self.explain_source(*format, source).await,
            Statement::Drop { kind, name, if_exists, data } => {
                self.outside_block(&format!("DROP {}", kind.keyword()))?
                    .drop_object(*kind, name, *if_exists, *data)
                    .await
            }
            Statement::ShowCreate { kind, name } => self.show_create(*kind, name),
            Statement::Pause(name) => self.outside_block("PAUSE SOURCE")?.pause(name).await,
            Statement::Resume(name) => self.outside_block("RESUME SOURCE")?.resume(name).await,
            Statement::Resync { source, table } => {
                self.outside_block("RESYNC SOURCE")?.resync(source, table.as_ref()).await
            }
            Statement::Checkpoint(name) => self.checkpoint(name.as_ref()).await,
            Statement::CompactTable { schema, table } => {
                self.outside_block("COMPACT TABLE")?.compact_table(schema.as_ref(), table).await
            }
            Statement::VerifyStorage(source) => self.verify_storage(source.as_ref()).await,
            Statement::Wait { source, target, timeout } => {
                if self.transaction.pinned().is_some() {
                    return Err(SqlError::new(
                        sqlstate::ACTIVE_TRANSACTION,
                        "WAIT FOR must come before the first query of a transaction",
                    )
                    .with_hint("The transaction keeps the checkpoint of its first query: COMMIT, then wait."));
                }
                self.wait(source, target, *timeout).await
            }
        }
    }

    /// In a failed block, only its end is run.
    fn refuse_if_failed(&self, statement: &Statement) -> Result<(), SqlError> {
        let ends = matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
        if self.transaction.status() == TransactionStatus::Failed && !ends {
            return Err(SqlError::new(
                sqlstate::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    /// Definitions take effect at once, which no transaction could take back.
    fn outside_block(&mut self, command: &str) -> Result<&mut Self, SqlError> {
        if self.transaction.is_open() {
            return Err(SqlError::new(
                sqlstate::ACTIVE_TRANSACTION,
                format!("{command} cannot run inside a transaction block"),
            ));
        }
        Ok(self)
    }

    fn set(&mut self, name: &str, value: &SettingValue, local: bool) -> Result<Outcome, SqlError> {
        if local && !self.transaction.is_open() {
            let warning =
                Notice::warning(sqlstate::NO_ACTIVE_TRANSACTION, "SET LOCAL can only be used in transaction blocks");
            return Ok(Outcome::noticed("SET", warning));
        }
        let before = self.settings.get(name).map(str::to_owned);
        match value {
            SettingValue::Default => self.settings.reset(name)?,
            SettingValue::Text(text) => self.settings.set(name, text)?,
        }
        if local {
            self.transaction.note_local(&name.to_lowercase(), before);
        }
        Ok(Outcome::command("SET"))
    }

    fn discard(&mut self, kind: DiscardKind) -> Result<Outcome, SqlError> {
        Ok(Outcome::command(match kind {
            DiscardKind::All => {
                self.outside_block("DISCARD ALL")?.settings.reset_all();
                "DISCARD ALL"
            }
            DiscardKind::Plans => "DISCARD PLANS",
            DiscardKind::Sequences => "DISCARD SEQUENCES",
            DiscardKind::Temporary => "DISCARD TEMP",
        }))
    }

    /// The tables that a statement reads: those of the transaction, else the newest.
    pub(super) fn tables(&mut self) -> Arc<MirrorCatalog> {
        if let Some(pinned) = self.transaction.pinned() {
            return pinned.clone();
        }
        let catalog = self.engine.newest(&self.options.database);
        self.transaction.pin(&catalog);
        catalog
    }

    pub(super) fn vars(&self) -> Arc<SessionVars> {
        Arc::new(SessionVars {
            user: self.options.user.clone(),
            backend_pid: self.options.backend_pid,
            search_path: self.settings.search_path(&self.options.user),
            time_zone: self.settings.get("timezone").unwrap_or("UTC").to_owned(),
            settings: self.settings.values().clone(),
            server_start_ms: self.engine.started_at_ms,
            statement_start_ms: self.engine.clock.now_ms(),
        })
    }
}

/// Points an error at a place of the text unless it already points at one.
pub(super) fn place(error: SqlError, position: usize) -> SqlError {
    if error.position.is_some() { error } else { error.at(position) }
}

pub(super) fn timed_out(timeout: Duration) -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
        .with_detail(format!("statement_timeout is {} ms.", timeout.as_millis()))
}

fn read_only(command: &str) -> SqlError {
    SqlError::new(sqlstate::READ_ONLY_TRANSACTION, format!("cannot execute {command}: mirrored tables are read-only"))
        .with_hint("Write to the MySQL server: the change appears here with the next checkpoint.")
}

#[cfg(test)]
mod tests;
