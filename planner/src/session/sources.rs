//! Sources: CREATE, PAUSE, RESUME, RESYNC, CHECKPOINT.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cdc::capture::{JobState, TableView};
use tidegate_cdc::error::Code;
use tidegate_cdc::mysql::catalog::MatchedTable;
use tidegate_cdc::source::definition::SourceDefinition;
use tidegate_cdc::source::examine::{Examination, examine};

use super::execute::{Session, place};
use super::objects::{duplicate, require_secrets, skipped, undefined};
use super::outcome::{Notice, Outcome};
use crate::catalog::definition::source_definition;
use crate::catalog::{Catalog, SourceEntry, quoted_name};
use crate::error::{SqlError, sqlstate};
use crate::sql::statement::{CreateSource, Name, ObjectKind};

/// How long the examination of a server may take beyond connecting to it.
const EXAMINATION: Duration = Duration::from_secs(60);

/// How long a job that has just begun may take until it shows its tables.
const RECOVERY: Duration = Duration::from_secs(10);

/// Tables that a notice names one by one.
const NAMED_TABLES: usize = 20;

impl Session {
    pub(super) fn source(&self, name: &Name) -> Result<SourceEntry, SqlError> {
        let catalog = self.engine.catalog.current();
        catalog.sources.get(&name.value).cloned().ok_or_else(|| undefined(ObjectKind::Source, name))
    }

    /// What a source would be, examined against the live server.
    pub(super) async fn examined(
        &self,
        create: &CreateSource,
    ) -> Result<(SourceEntry, SourceDefinition, Examination), SqlError> {
        self.engine.catalog.refresh().await?;
        let catalog = self.engine.catalog.current();
        let entry = self.engine.maker().source(create)?;
        require(&catalog, create, &entry)?;
        let definition = source_definition(&catalog, &create.name.value, &entry, &self.engine.sealer)
            .map_err(|error| place(error, create.name.position))?;
        let limit = definition.connection.connect_timeout.saturating_add(EXAMINATION);
        let examination = match tokio::time::timeout(limit, examine(&definition)).await {
            Ok(examination) => examination?,
            Err(_) => {
                let connection = &definition.connection;
                return Err(SqlError::new(
                    sqlstate::CONNECTION_FAILURE,
                    format!(
                        "the server {}:{} did not answer within {} s",
                        connection.hostname,
                        connection.port,
                        limit.as_secs()
                    ),
                )
                .with_hint("Look at the load of the server and at the network between."));
            }
        };
        Ok((entry, definition, examination))
    }

    pub(super) async fn create_source(&mut self, create: &CreateSource) -> Result<Outcome, SqlError> {
        let name = &create.name;
        let tag = "CREATE SOURCE";
        self.engine.catalog.refresh().await?;
        if self.engine.catalog.current().sources.contains_key(&name.value) {
            return if create.if_not_exists {
                Ok(Outcome::noticed(tag, skipped(ObjectKind::Source, name)))
            } else {
                Err(duplicate(ObjectKind::Source, name))
            };
        }
        let (mut entry, definition, examination) = self.examined(create).await?;
        if let Some(failure) = examination.failure() {
            return Err(failure.into());
        }
        let captured = captured(&examination, &name.value)?;
        entry.targets =
            captured.iter().map(|table| (table.target_schema.clone(), table.target_table.clone())).collect();
        let inserted = self.engine.catalog.change(|catalog| {
            if catalog.sources.contains_key(&name.value) {
                return if create.if_not_exists { Ok(false) } else { Err(duplicate(ObjectKind::Source, name)) };
            }
            require(catalog, create, &entry)?;
            refuse_taken(catalog, &entry, &captured, name)?;
            catalog.sources.insert(name.value.clone(), entry.clone());
            Ok(true)
        });
        if !inserted.await? {
            return Ok(Outcome::noticed(tag, skipped(ObjectKind::Source, name)));
        }
        self.engine.jobs.start(definition);
        let mut notices = warnings(&examination);
        notices.push(created(&examination, captured.len(), &name.value));
        Ok(Outcome::Command { tag: tag.to_owned(), notices })
    }

    pub(super) async fn pause(&mut self, name: &Name) -> Result<Outcome, SqlError> {
        let id = self.set_paused(name, true).await?;
        match id {
            (source, true) => {
                self.engine.stop(&name.value, source.id).await;
                Ok(Outcome::command("PAUSE SOURCE"))
            }
            (_, false) => {
                let notice = Notice::info(format!("source \"{}\" is paused already", name.value));
                Ok(Outcome::noticed("PAUSE SOURCE", notice))
            }
        }
    }

    /// Starts a paused source, or one whose job failed.
    pub(super) async fn resume(&mut self, name: &Name) -> Result<Outcome, SqlError> {
        let (source, changed) = self.set_paused(name, false).await?;
        let state = self.engine.jobs.handle(source.id).map(|handle| handle.status().state);
        if !changed && state.is_some_and(|state| !matches!(state, JobState::Failed | JobState::Stopped)) {
            let notice = Notice::info(format!("source \"{}\" is running already", name.value));
            return Ok(Outcome::noticed("RESUME SOURCE", notice));
        }
        if state.is_some() {
            self.engine.stop(&name.value, source.id).await;
        }
        let catalog = self.engine.catalog.current();
        self.engine.start(&catalog, &name.value, &source)?;
        Ok(Outcome::command("RESUME SOURCE"))
    }

    /// Has the tables of a source, or one of them, read again beside their old state.
    pub(super) async fn resync(
        &mut self,
        name: &Name,
        table: Option<&(Option<Name>, Name)>,
    ) -> Result<Outcome, SqlError> {
        let entry = self.source(name)?;
        let handle = self.engine.jobs.handle(entry.id).ok_or_else(|| not_running(&name.value, &entry))?;
        let is_meant = |view: &TableView| {
            table.is_none_or(|(schema, table)| {
                view.table_name == table.value && schema.as_ref().is_none_or(|schema| view.schema_name == schema.value)
            })
        };
        // A job that has just begun shows its tables in a moment.
        let mut views = handle.views();
        let shown = tokio::time::timeout(RECOVERY, views.wait_for(|view| view.checkpoint > 0)).await;
        let Ok(Ok(view)) = shown.map(|shown| shown.map(|view| Arc::clone(&view))) else {
            return Err(not_begun(&name.value));
        };
        let meant = view.tables.iter().filter(|view| is_meant(view));
        let tables: Vec<String> = meant.map(|view| format!("{}.{}", view.schema_name, view.table_name)).collect();
        match (table, tables.as_slice()) {
            (None, []) => return Err(not_begun(&name.value)),
            (Some((schema, table)), []) => {
                return Err(SqlError::new(
                    sqlstate::UNDEFINED_TABLE,
                    format!("source \"{}\" has no table {}", name.value, quoted_name(&table.value)),
                )
                .with_hint("SELECT table_name FROM sys.job_tables lists them.")
                .at(schema.as_ref().unwrap_or(table).position));
            }
            (Some((_, table)), [first, second, ..]) => {
                return Err(SqlError::new(
                    sqlstate::AMBIGUOUS_TABLE,
                    format!("source \"{}\" has several tables {}", name.value, quoted_name(&table.value)),
                )
                .with_hint(format!("Name its schema as well, as in {first} or {second}."))
                .at(table.position));
            }
            _ => {}
        }
        let count = tables.len();
        let checkpoint = handle.resync(tables).await?;
        let (what, them) = if count == 1 { ("1 table is", "it") } else { (&*format!("{count} tables are"), "they") };
        let notice = Notice::info(format!(
            "{what} read again; readers keep the old state until the new one is complete (checkpoint {checkpoint})"
        ));
        let name = quoted_name(&name.value);
        let hint =
            format!("WAIT FOR SOURCE {name} SNAPSHOT waits until {them} {}.", if count == 1 { "is" } else { "are" });
        Ok(Outcome::noticed("RESYNC SOURCE", Notice { hint: Some(hint), ..notice }))
    }

    /// The source, and whether that changed it.
    async fn set_paused(&self, name: &Name, paused: bool) -> Result<(SourceEntry, bool), SqlError> {
        let change = self.engine.catalog.change(|catalog| {
            let source = catalog.sources.get_mut(&name.value).ok_or_else(|| undefined(ObjectKind::Source, name))?;
            let changed = source.paused != paused;
            source.paused = paused;
            Ok((source.clone(), changed))
        });
        change.await
    }

    /// Makes what has been read durable, and tells the number of the checkpoint.
    pub(super) async fn checkpoint(&mut self, name: Option<&Name>) -> Result<Outcome, SqlError> {
        let catalog = self.engine.catalog.current();
        let sources: Vec<(String, SourceEntry)> = match name {
            Some(name) => vec![(name.value.clone(), self.source(name)?)],
            None => catalog.sources.iter().map(|(name, source)| (name.clone(), source.clone())).collect(),
        };
        let mut notices = Vec::new();
        for (source, entry) in sources {
            match self.engine.jobs.handle(entry.id) {
                Some(handle) => {
                    let number = handle.checkpoint().await?;
                    notices.push(Notice::info(format!("source \"{source}\" is at checkpoint {number}")));
                }
                None if name.is_some() => return Err(not_running(&source, &entry)),
                None => {}
            }
        }
        Ok(Outcome::Command { tag: "CHECKPOINT".to_owned(), notices })
    }
}

pub(super) fn not_running(name: &str, entry: &SourceEntry) -> SqlError {
    let what = if entry.paused { "is paused" } else { "is not running" };
    SqlError::new(sqlstate::OBJECT_NOT_READY, format!("source \"{name}\" {what}"))
        .with_hint(format!("RESUME SOURCE {};", quoted_name(name)))
}

fn not_begun(name: &str) -> SqlError {
    SqlError::new(sqlstate::OBJECT_NOT_READY, format!("source \"{name}\" has no table yet"))
        .with_hint("SHOW JOBS tells how far it is. What is captured for the first time need not be read again.")
}

/// A mirrored table has one source.
fn refuse_taken(
    catalog: &Catalog,
    entry: &SourceEntry,
    captured: &[&MatchedTable],
    name: &Name,
) -> Result<(), SqlError> {
    let Some((other, (schema, table))) = catalog.taken(&entry.targets) else { return Ok(()) };
    let error = SqlError::new(
        sqlstate::DUPLICATE_OBJECT,
        format!("table {schema}.{table} is mirrored by source \"{other}\" already"),
    )
    .at(name.position);
    let origin = captured.iter().find(|origin| origin.target_schema == *schema && origin.target_table == *table);
    Err(match origin {
        Some(origin) => error.with_hint(format!(
            "Leave it out with 'tables.exclude' = '{0}.{1}', or mirror it elsewhere with TABLES ({0}.{1} INTO {2}.{1}).",
            origin.database,
            origin.name,
            quoted_name(&name.value)
        )),
        None => error,
    })
}

/// That the connection and the secrets that a source names are there.
fn require(catalog: &Catalog, create: &CreateSource, entry: &SourceEntry) -> Result<(), SqlError> {
    if let Some(connection) = &create.connection
        && !catalog.connections.contains_key(&connection.value)
    {
        return Err(undefined(ObjectKind::Connection, connection));
    }
    require_secrets(&entry.options, |secret| catalog.secrets.contains_key(secret)).map_err(|error| {
        let position =
            create.options.iter().find(|option| matches!(option.value, crate::sql::statement::OptionValue::Secret(_)));
        place(error, position.map_or(create.name.position, |option| option.value_position))
    })
}

/// The tables that would be captured; there must be one.
fn captured<'a>(examination: &'a Examination, name: &str) -> Result<Vec<&'a MatchedTable>, SqlError> {
    let captured: Vec<_> = examination.tables.iter().filter(|table| table.left_out.is_none()).collect();
    if captured.is_empty() {
        let error = SqlError::new(sqlstate::UNDEFINED_TABLE, format!("source \"{name}\" would capture no table"));
        return Err(if examination.tables.is_empty() {
            error.with_detail("No table of the server matches.").with_hint(
                "Check the patterns: 'shop.*' is every table of shop. Tables that the user may not see do not exist for it.",
            )
        } else {
            error.with_detail(left_out(examination)).with_hint("EXPLAIN CREATE SOURCE … shows every table and check.")
        });
    }
    Ok(captured)
}

fn left_out(examination: &Examination) -> String {
    let reasons: Vec<String> = examination
        .tables
        .iter()
        .filter_map(|table| Some(format!("{}.{}: {}", table.database, table.name, table.left_out.as_ref()?)))
        .collect();
    let more = reasons.len().saturating_sub(NAMED_TABLES);
    let mut text = reasons.into_iter().take(NAMED_TABLES).collect::<Vec<_>>().join("\n");
    if more > 0 {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

fn warnings(examination: &Examination) -> Vec<Notice> {
    examination
        .warnings()
        // The tables that are left out are told with those that are captured.
        .filter(|check| check.code != Some(Code::NoPrimaryKey))
        .map(|check| Notice {
            hint: check.hint.clone(),
            ..Notice::warning("01000", format!("{}: {}", check.name, check.detail))
        })
        .collect()
}

fn created(examination: &Examination, captured: usize, name: &str) -> Notice {
    let skipped: Vec<_> = examination.tables.iter().filter_map(|table| table.left_out.as_deref()).collect();
    let name = quoted_name(name);
    let tables = if captured == 1 { "1 table".to_owned() } else { format!("{captured} tables") };
    let aside = match skipped.as_slice() {
        [] => String::new(),
        [first, rest @ ..] if rest.iter().all(|reason| reason == first) => {
            format!(" ({} left out: {first})", skipped.len())
        }
        _ => format!(" ({} left out)", skipped.len()),
    };
    let notice =
        Notice::info(format!("capturing {tables}{aside}; follow with SHOW JOBS, or WAIT FOR SOURCE {name} SNAPSHOT"));
    if skipped.is_empty() { notice } else { notice.with_detail(left_out(examination)) }
}
