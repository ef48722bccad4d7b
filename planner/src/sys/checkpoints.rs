use async_trait::async_trait;
use tidegate_cdc::source::position::Position;
use tidegate_storage::checkpoint::{CheckpointLog, CheckpointRecord};

use super::ColumnType::{BigInt, Boolean, Text, Timestamp};
use super::{Cell, Column, SourceState, SysState, SysView, column, nullable, time};
use crate::error::{SqlError, sqlstate};

pub(super) struct Checkpoints;

/// Checkpoints that are shown of each source.
pub(super) const SHOWN: usize = 100;

const COLUMNS: &[Column] = &[
    column("source_id", Text, "Identity of the source."),
    column("source", Text, "Name of the source."),
    column("checkpoint", BigInt, "Number of the checkpoint. Numbers have no gaps."),
    column("committed_at", Timestamp, "When it was made durable."),
    column("table_count", BigInt, "Tables that it changed; in a full checkpoint, all tables."),
    column("is_full", Boolean, "Whether it names all tables, so that no earlier checkpoint is needed to read it."),
    column(
        "epoch",
        BigInt,
        "Which ownership of the source it was written in. It grows when another server takes over.",
    ),
    nullable("gtid_set", Text, "Transactions that it covers, where the server has GTIDs."),
    nullable("binlog_file", Text, "Binlog file that it has reached."),
    nullable("binlog_offset", BigInt, "Offset in that file."),
];

/// The newest checkpoints of a source, newest first.
pub(super) async fn recent(state: &SysState, source: &SourceState) -> Result<Vec<CheckpointRecord>, SqlError> {
    let log = CheckpointLog::new(state.store.clone(), source.id);
    let mut records = log.list_recent(SHOWN).await.map_err(|error| {
        SqlError::new(
            sqlstate::IO_ERROR,
            format!("the checkpoints of source \"{}\" cannot be read: {error}", source.name),
        )
    })?;
    records.sort_by_key(|record| std::cmp::Reverse(record.number));
    Ok(records)
}

#[async_trait]
impl SysView for Checkpoints {
    fn name(&self) -> &'static str {
        "checkpoints"
    }

    fn doc(&self) -> &'static str {
        "The newest 100 checkpoints of each source, newest first."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let mut rows = Vec::new();
        for source in &state.sources {
            for record in recent(state, source).await? {
                // A position that this version cannot read is shown as unknown; recovery is what complains about it.
                let position: Position = serde_json::from_value(record.position.clone()).unwrap_or_default();
                rows.push(vec![
                    source.id.into(),
                    source.name.as_str().into(),
                    record.number.into(),
                    time(record.committed_at_ms),
                    record.tables.len().into(),
                    record.full.into(),
                    record.epoch.into(),
                    position.gtid.as_ref().map(ToString::to_string).into(),
                    position.file.as_ref().map(|file| file.file.clone()).into(),
                    position.file.as_ref().map(|file| file.offset).into(),
                ]);
            }
        }
        Ok(rows)
    }
}
