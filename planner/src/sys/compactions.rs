use async_trait::async_trait;
use tidegate_storage::table::MergeState;

use super::ColumnType::{BigInt, Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::error::SqlError;

pub(super) struct Compactions;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("schema_name", Text, "Schema of the mirrored table."),
    column("table_name", Text, "Name of the mirrored table."),
    column("number", BigInt, "Counts the merges of the table since its capture began or went on."),
    column("bucket", BigInt, "The bucket whose files are merged."),
    column(
        "reason",
        Text,
        "`runs` (several small runs become one), `dead-rows` (too many rows of a file are dead), `small-files`, or `request` (COMPACT TABLE).",
    ),
    column(
        "state",
        Text,
        "`waiting` (for a thread), `running`, `written` (it is part of the next checkpoint), `done` or `failed` (its input stays as it was).",
    ),
    column("level", BigInt, "Level of the files that are written."),
    column("input_files", BigInt, "Files that are read."),
    column("input_rows", BigInt, "Rows that are read, dead ones aside."),
    column("input_bytes", BigInt, "Size of the files that are read."),
    nullable("output_files", BigInt, "Files that were written."),
    nullable("output_rows", BigInt, "Rows that were written."),
    nullable("output_bytes", BigInt, "Size of the files that were written."),
    column("due_at", Timestamp, "When the merge became due."),
    nullable("ended_at", Timestamp, "When it ended."),
    nullable("error", Text, "Why it failed."),
];

#[async_trait]
impl SysView for Compactions {
    fn name(&self) -> &'static str {
        "compactions"
    }

    fn doc(&self) -> &'static str {
        "One row for each merge of table files that waits or runs in this server, and for those that ended last."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for table in source.view.iter().flat_map(|view| &view.tables) {
                for merge in table.merges.iter().flat_map(|merges| merges.merges()) {
                    let done = merge.state == MergeState::Done;
                    let error = match &merge.state {
                        MergeState::Failed(error) => Some(error.clone()),
                        _ => None,
                    };
                    rows.push(vec![
                        source.id.into(),
                        source.name.as_str().into(),
                        table.schema_name.as_str().into(),
                        table.table_name.as_str().into(),
                        merge.id.into(),
                        merge.bucket.into(),
                        merge.reason.as_str().into(),
                        merge.state.as_str().into(),
                        i64::from(merge.level).into(),
                        merge.input.files.into(),
                        merge.input.rows.into(),
                        merge.input.bytes.into(),
                        done.then_some(merge.output.files).into(),
                        done.then_some(merge.output.rows).into(),
                        done.then_some(merge.output.bytes).into(),
                        time(merge.due_ms),
                        time(merge.ended_ms),
                        error.into(),
                    ]);
                }
            }
        }
        Ok(rows)
    }
}
