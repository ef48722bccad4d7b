use async_trait::async_trait;

use super::ColumnType::{BigInt, Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::error::SqlError;

pub(super) struct Files;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column("path", Text, "The data file in the store."),
    column("bucket", BigInt, "The bucket whose keys it holds."),
    column(
        "level",
        BigInt,
        "Its level. The highest one has the rows that have been merged most; each other level is one sorted run.",
    ),
    column("row_count", BigInt, "Rows in the file that are live."),
    column("dead_rows", BigInt, "Rows in the file that were replaced or deleted."),
    column("size_bytes", BigInt, "Its size."),
    column("schema_number", BigInt, "The version of the table's schema that it was written with."),
    nullable("created_at", Timestamp, "When it was written."),
];

#[async_trait]
impl SysView for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn doc(&self) -> &'static str {
        "One row for each data file of a mirrored table, as the statement's checkpoint has it."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.view.iter().flat_map(|view| &view.tables) {
                for file in table.version.iter().flat_map(|version| &version.files) {
                    rows.push(vec![
                        source.id.into(),
                        source.name.as_str().into(),
                        table.schema_name.as_str().into(),
                        table.table_name.as_str().into(),
                        file.path.to_string().into(),
                        file.bucket.into(),
                        i64::from(file.meta.level).into(),
                        file.row_count().into(),
                        file.deleted.as_ref().map_or(0, |deleted| deleted.len()).into(),
                        file.meta.file_size.into(),
                        file.meta.schema_id.into(),
                        time(file.meta.creation_time),
                    ]);
                }
            }
        }
        Ok(rows)
    }
}
