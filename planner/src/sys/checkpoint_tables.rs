use async_trait::async_trait;

use super::ColumnType::{BigInt, Boolean, Text};
use super::{Cell, Column, SysState, SysView, checkpoints, column, nullable};
use crate::error::SqlError;

pub(super) struct CheckpointTables;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("checkpoint", BigInt, "Number of the checkpoint."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column(
        "queryable",
        Boolean,
        "Whether the table can be queried at this checkpoint: its first snapshot is complete.",
    ),
    nullable("snapshot_id", BigInt, "The table's snapshot in its own (Paimon) numbering."),
    column("path", Text, "The table's directory in the store."),
];

#[async_trait]
impl SysView for CheckpointTables {
    fn name(&self) -> &'static str {
        "checkpoint_tables"
    }

    fn doc(&self) -> &'static str {
        "The tables that each of the newest 100 checkpoints changed, newest first."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for record in checkpoints::recent(state, source).await? {
                for table in &record.tables {
                    let (schema_name, table_name) = table.name.split_once('.').unwrap_or(("", &table.name));
                    rows.push(vec![
                        source.id.into(),
                        source.name.as_str().into(),
                        record.number.into(),
                        schema_name.into(),
                        table_name.into(),
                        table.visible.into(),
                        table.snapshot.as_ref().map(|snapshot| snapshot.id).into(),
                        table.path.as_str().into(),
                    ]);
                }
            }
        }
        Ok(rows)
    }
}
