use async_trait::async_trait;
use tidegate_storage::table::Holder;

use super::ColumnType::{BigInt, Text};
use super::{Cell, Column, SysState, SysView, column, nullable};
use crate::error::SqlError;

pub(super) struct SnapshotHolds;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column(
        "holder",
        Text,
        "`tag`, `consumer` (a reader of another engine that keeps its progress with the table), `branch`, or `query` (a transaction or query of this server).",
    ),
    nullable("holder_name", Text, "Name of the tag, consumer or branch."),
    column(
        "snapshot",
        BigInt,
        "Number of the oldest snapshot that is needed. For all but a tag, every later one stays as well.",
    ),
];

#[async_trait]
impl SysView for SnapshotHolds {
    fn name(&self) -> &'static str {
        "snapshot_holds"
    }

    fn doc(&self) -> &'static str {
        "One row for whatever keeps an old snapshot of a table from being deleted."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.status.iter().flat_map(|status| &status.retention) {
                let (schema_name, table_name) = table.name.split_once('.').unwrap_or(("", &table.name));
                for hold in &table.holds {
                    let (holder, name) = match &hold.holder {
                        Holder::Tag(name) => ("tag", Some(name)),
                        Holder::Consumer(name) => ("consumer", Some(name)),
                        Holder::Branch(name) => ("branch", Some(name)),
                        Holder::Reader => ("query", None),
                    };
                    rows.push(vec![
                        source.id.into(),
                        source.name.as_str().into(),
                        schema_name.into(),
                        table_name.into(),
                        holder.into(),
                        name.cloned().into(),
                        hold.snapshot_id.into(),
                    ]);
                }
            }
        }
        Ok(rows)
    }
}
