use async_trait::async_trait;

use super::ColumnType::{BigInt, Boolean, Text};
use super::{Cell, Column, SysState, SysView, column, nullable};
use crate::error::SqlError;

pub(super) struct Tables;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column("origin", Text, "The table in MySQL, as `database.table`."),
    column("queryable", Boolean, "Whether it can be queried: its first snapshot is complete."),
    nullable("row_count", BigInt, "Rows it has, exactly."),
    nullable("file_count", BigInt, "Data files it consists of."),
    nullable("size_bytes", BigInt, "Size of these files."),
    nullable("bucket_count", BigInt, "Buckets its keys are spread over."),
    nullable("path", Text, "Its directory in the store, readable by any Paimon reader."),
    column("primary_key", Text, "Columns of its key, separated by commas."),
];

#[async_trait]
impl SysView for Tables {
    fn name(&self) -> &'static str {
        "tables"
    }

    fn doc(&self) -> &'static str {
        "One row for each mirrored table, as the statement's checkpoint has it."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.view.iter().flat_map(|view| &view.tables) {
                let version = table.version.as_deref();
                let size = |version: &tidegate_storage::table::TableVersion| {
                    version.files.iter().map(|file| u64::try_from(file.meta.file_size).unwrap_or(0)).sum::<u64>()
                };
                let key = version.map_or(&table.mysql.primary_key, |version| &version.schema.primary_keys);
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    table.schema_name.as_str().into(),
                    table.table_name.as_str().into(),
                    format!("{}.{}", table.mysql.database, table.mysql.name).into(),
                    table.visible.into(),
                    version.map(|version| version.row_count()).into(),
                    version.map(|version| version.files.len()).into(),
                    version.map(size).into(),
                    version.map(|version| version.buckets).into(),
                    version.map(|version| version.path.to_string()).into(),
                    key.join(", ").into(),
                ]);
            }
        }
        Ok(rows)
    }
}
