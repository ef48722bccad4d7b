use async_trait::async_trait;

use super::ColumnType::{BigInt, Boolean, Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::error::SqlError;

pub(super) struct JobTables;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column("origin", Text, "The table in MySQL, as `database.table`."),
    column(
        "state",
        Text,
        "`pending` (its snapshot has not begun), `snapshot`, `streaming`, or `error` (it stands still, the others go on).",
    ),
    column("queryable", Boolean, "Whether it can be queried: its first snapshot is complete."),
    column("rows_read", BigInt, "Rows that its snapshot has read."),
    column("estimated_rows", BigInt, "Rows that it has by the server's own estimate."),
    column("ranges_done", BigInt, "Key ranges that are read."),
    column("ranges_total", BigInt, "Key ranges of its snapshot."),
    column("changes", BigInt, "Row changes read from the binlog since the job started."),
    nullable("error_code", Text, "Code of its error."),
    nullable("error", Text, "What is wrong."),
    nullable("hint", Text, "What to do."),
    nullable("error_at", Timestamp, "Since when."),
];

#[async_trait]
impl SysView for JobTables {
    fn name(&self) -> &'static str {
        "job_tables"
    }

    fn doc(&self) -> &'static str {
        "One row for each table that a running job captures."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            let Some(status) = &source.status else { continue };
            for table in &status.tables {
                let (schema_name, table_name) = table.name.split_once('.').unwrap_or(("", &table.name));
                let queryable = source.view.as_ref().is_some_and(|view| {
                    view.tables
                        .iter()
                        .any(|view| view.visible && view.schema_name == schema_name && view.table_name == table_name)
                });
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    schema_name.into(),
                    table_name.into(),
                    table.origin.as_str().into(),
                    table.state.as_str().into(),
                    queryable.into(),
                    table.rows_read.into(),
                    table.estimated_rows.into(),
                    table.ranges_done.into(),
                    table.ranges_total.into(),
                    table.changes.into(),
                    table.error.as_ref().map(|error| error.code.clone()).into(),
                    table.error.as_ref().map(|error| error.message.clone()).into(),
                    table.error.as_ref().and_then(|error| error.hint.clone()).into(),
                    time(table.error.as_ref().map(|error| error.at_ms)),
                ]);
            }
        }
        Ok(rows)
    }
}
