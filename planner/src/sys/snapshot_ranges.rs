use async_trait::async_trait;

use super::ColumnType::{BigInt, Text};
use super::{Cell, Column, SysState, SysView, column, nullable};
use crate::error::SqlError;

pub(super) struct SnapshotRanges;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column("range_id", BigInt, "Number of the range within its table."),
    column("state", Text, "`pending`, `reading` or `read`."),
    nullable("lower_bound", Text, "Key that the range begins behind; null for the beginning of the table."),
    nullable("upper_bound", Text, "Last key of the range; null for the end of the table."),
    nullable("last_key", Text, "Key of the last row that was read; null before the first."),
];

#[async_trait]
impl SysView for SnapshotRanges {
    fn name(&self) -> &'static str {
        "snapshot_ranges"
    }

    fn doc(&self) -> &'static str {
        "One row for each key range of a snapshot that runs. Ranges vanish when their table is complete."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.status.iter().flat_map(|status| &status.tables) {
                let (schema_name, table_name) = table.name.split_once('.').unwrap_or(("", &table.name));
                for range in &table.ranges {
                    let progress = match (range.done, &range.after) {
                        (true, _) => "read",
                        (false, Some(_)) => "reading",
                        (false, None) => "pending",
                    };
                    rows.push(vec![
                        source.id.into(),
                        source.name.as_str().into(),
                        schema_name.into(),
                        table_name.into(),
                        range.id.into(),
                        progress.into(),
                        range.lower.clone().into(),
                        range.upper.clone().into(),
                        range.after.clone().into(),
                    ]);
                }
            }
        }
        Ok(rows)
    }
}
