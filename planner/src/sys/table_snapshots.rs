use async_trait::async_trait;

use super::ColumnType::{BigInt, Text};
use super::{Cell, Column, SysState, SysView, column, nullable};
use crate::error::SqlError;

pub(super) struct TableSnapshots;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    nullable("earliest_snapshot", BigInt, "Number of the oldest snapshot that other engines can still read."),
    column("latest_snapshot", BigInt, "Number of the newest one when this was looked at."),
    column("expired_snapshots", BigInt, "Snapshots deleted since the job started."),
    column("deleted_objects", BigInt, "Objects deleted with them: data files, manifests, deletion vectors."),
];

#[async_trait]
impl SysView for TableSnapshots {
    fn name(&self) -> &'static str {
        "table_snapshots"
    }

    fn doc(&self) -> &'static str {
        "One row for each table of a running job: what is kept of its past."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.status.iter().flat_map(|status| &status.retention) {
                let (schema_name, table_name) = table.name.split_once('.').unwrap_or(("", &table.name));
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    schema_name.into(),
                    table_name.into(),
                    table.earliest_snapshot.into(),
                    table.latest_snapshot.into(),
                    table.expired_snapshots.into(),
                    table.deleted_objects.into(),
                ]);
            }
        }
        Ok(rows)
    }
}
