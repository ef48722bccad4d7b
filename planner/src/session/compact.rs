//! `COMPACT TABLE`: all files of a table are merged. Dropping the future ends the wait, not the merge.

use std::sync::Arc;

use tidegate_cdc::capture::{CaptureHandle, TableView};
use tidegate_storage::table::TableVersion;

use super::execute::Session;
use super::outcome::{Notice, Outcome};
use super::sources::not_running;
use crate::catalog::quoted_name;
use crate::error::{SqlError, sqlstate};
use crate::sql::statement::Name;

impl Session {
    /// Merges all files of a table, and answers when a checkpoint shows the outcome.
    pub(super) async fn compact_table(&mut self, schema: Option<&Name>, table: &Name) -> Result<Outcome, SqlError> {
        let (handle, view) = self.captured_table(schema, table)?;
        let name = format!("{}.{}", view.schema_name, view.table_name);
        let restarted = || {
            SqlError::new(
                sqlstate::OBJECT_NOT_READY,
                format!("table {name} was not compacted: its capture was interrupted meanwhile"),
            )
            .with_detail("Its rows are whole; what had been merged by then is done.")
            .with_hint(format!("SHOW JOBS tells how the source is; then COMPACT TABLE {name} again."))
        };
        let merges = view.merges.clone().ok_or_else(|| {
            SqlError::new(sqlstate::OBJECT_NOT_READY, format!("nothing writes table {name} now"))
                .with_detail("Its capture has stopped with an error, or its source is not running here.")
                .with_hint("SELECT * FROM sys.job_tables tells why.")
        })?;
        if !merges.merge_all().await {
            return Err(restarted());
        }
        let checkpoint = handle.checkpoint().await?;
        let after = handle.view();
        let after = after.tables.iter().find(|other| is_same(other, &view));
        let mut notices = Vec::new();
        if let (Some(before), Some(after)) = (&view.version, after.and_then(|table| table.version.as_ref())) {
            notices.push(Notice::info(format!(
                "{}; it was {} (checkpoint {checkpoint})",
                describe(after),
                describe(before)
            )));
        }
        Ok(Outcome::Command { tag: "COMPACT TABLE".to_owned(), notices })
    }

    /// A table by its name, and the job that writes it.
    fn captured_table(&self, schema: Option<&Name>, table: &Name) -> Result<(CaptureHandle, Arc<TableView>), SqlError> {
        let schemas = match schema {
            Some(schema) => vec![schema.value.clone()],
            None => self.settings.search_path(&self.options.user),
        };
        let catalog = self.engine.catalog.current();
        let mut stopped = None;
        for schema in &schemas {
            for (source, entry) in &catalog.sources {
                let Some(handle) = self.engine.jobs.handle(entry.id) else {
                    if entry.targets.iter().any(|(s, t)| s == schema && *t == table.value) {
                        stopped = Some(not_running(source, entry));
                    }
                    continue;
                };
                let view = handle.view();
                let found = view.tables.iter().find(|t| t.schema_name == *schema && t.table_name == table.value);
                if let Some(found) = found {
                    return Ok((handle, Arc::clone(found)));
                }
            }
        }
        let full = schema.map_or_else(
            || quoted_name(&table.value),
            |schema| format!("{}.{}", quoted_name(&schema.value), quoted_name(&table.value)),
        );
        Err(stopped.unwrap_or_else(|| {
            SqlError::new(sqlstate::UNDEFINED_TABLE, format!("no source mirrors a table {full}"))
                .with_hint("SELECT schema_name, table_name FROM sys.tables lists them.")
                .at(schema.unwrap_or(table).position)
        }))
    }
}

fn is_same(a: &TableView, b: &TableView) -> bool {
    a.schema_name == b.schema_name && a.table_name == b.table_name
}

fn describe(version: &TableVersion) -> String {
    let physical: u64 = version.files.iter().map(|file| u64::try_from(file.meta.row_count).unwrap_or(0)).sum();
    let bytes: u64 = version.files.iter().map(|file| u64::try_from(file.meta.file_size).unwrap_or(0)).sum();
    let dead = physical.saturating_sub(version.row_count());
    format!("{} files, {bytes} bytes, {dead} dead rows", version.files.len())
}
