use async_trait::async_trait;
use tidegate_cdc::source::position::Position;

use super::ColumnType::{BigInt, Text};
use super::{Cell, Column, SysState, SysView, column, nullable};
use crate::error::SqlError;

pub(super) struct SourcePositions;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column(
        "kind",
        Text,
        "`durable` (what the newest checkpoint covers, and where a restart goes on), `stream` (what has been read) or `server` (the end of the server's binlog when last asked).",
    ),
    nullable("checkpoint", BigInt, "Number of the checkpoint, for `durable`."),
    nullable("gtid_set", Text, "Transactions that are covered, where the server has GTIDs."),
    nullable("binlog_file", Text, "Binlog file."),
    nullable("binlog_offset", BigInt, "Offset in that file."),
    nullable("server_uuid", Text, "The MySQL server whose files these are."),
];

#[async_trait]
impl SysView for SourcePositions {
    fn name(&self) -> &'static str {
        "source_positions"
    }

    fn doc(&self) -> &'static str {
        "Where each source is in its server's binlog."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            let mut add = |kind: &str, checkpoint: Option<u64>, position: &Position| {
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    kind.into(),
                    checkpoint.into(),
                    position.gtid.as_ref().map(ToString::to_string).into(),
                    position.file.as_ref().map(|file| file.file.clone()).into(),
                    position.file.as_ref().map(|file| file.offset).into(),
                    position.server_uuid.clone().into(),
                ]);
            };
            if let Some(view) = source.view.as_ref().filter(|view| view.checkpoint > 0) {
                add("durable", Some(view.checkpoint), &view.position);
            }
            if let Some(status) = &source.status {
                add("stream", None, &status.position);
                if let Some(file) = &status.server_position {
                    add("server", None, &Position { file: Some(file.clone()), ..Position::default() });
                }
            }
        }
        Ok(rows)
    }
}
