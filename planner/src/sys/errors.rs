use async_trait::async_trait;

use super::ColumnType::{Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::error::SqlError;

pub(super) struct Errors;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("occurred_at", Timestamp, "When it happened."),
    column("code", Text, "Its code; each has a page in the book."),
    nullable("table_name", Text, "The table it stopped, as `schema.table`; null when it is the whole job's."),
    column("message", Text, "What happened."),
    nullable("detail", Text, "More of it."),
    nullable("hint", Text, "What to do."),
];

#[async_trait]
impl SysView for Errors {
    fn name(&self) -> &'static str {
        "errors"
    }

    fn doc(&self) -> &'static str {
        "The newest errors of running jobs, newest first, those that passed by themselves among them."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for error in source.status.iter().flat_map(|status| status.errors.iter().rev()) {
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    time(error.at_ms),
                    error.code.as_str().into(),
                    error.table.clone().into(),
                    error.message.as_str().into(),
                    error.detail.clone().into(),
                    error.hint.clone().into(),
                ]);
            }
        }
        Ok(rows)
    }
}
