//! One captured table while its job runs: definition, buffer of changes, decoders, progress of its snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use tidegate_storage::paimon::{CHANGELOG_INPUT, CHANGELOG_PRODUCER, Field, TableSchema};

use super::state::{RangeState, TablePhase, TableState, XaCommit};
use super::status::{ErrorInfo, RangeStatus, TableProgress, TableStatus};
use crate::error::{Code, Error};
use crate::mysql::binlog::{RowDecoder, TableMap};
use crate::mysql::snapshot::{KeyRange, KeyValue};
use crate::mysql::types::MysqlTable;
use crate::rows::RowBuffer;
use crate::source::position::{FilePosition, Position};

/// Index of a table in its job; stable while the job runs.
pub(super) type TableIndex = usize;

pub(super) struct CapturedTable {
    /// `schema.table` as queried.
    pub(super) name: String,
    pub(super) mysql: Arc<MysqlTable>,
    pub(super) schema: Arc<TableSchema>,
    pub(super) phase: Phase,
    pub(super) buckets: u32,
    pub(super) estimated_rows: u64,
    pub(super) rows_read: u64,
    pub(super) changes: u64,
    /// Changes decoded and not yet handed to the applier, in log order.
    pub(super) buffer: RowBuffer,
    /// Length of the buffer when the open transaction began: what a ROLLBACK cuts back to.
    pub(super) transaction_start: usize,
    /// Counts schema changes seen in the stream. A page read under another count is read again.
    pub(super) generation: u64,
    /// The log's end when a read was refused for good, until a page succeeds or the definition changes.
    pub(super) refused: Option<FilePosition>,
    /// What is waited for before the table is read: all transactions up to a position, and some others.
    pub(super) since: Option<Position>,
    pub(super) awaited: Vec<XaCommit>,
    /// Somebody wants the table to be read again, which has not begun.
    pub(super) resync: bool,
    /// Whether the state differs from what the last checkpoint holds.
    pub(super) changed: bool,
    decoders: HashMap<u64, (TableMap, RowDecoder)>,
}

pub(super) enum Phase {
    Pending,
    Snapshot(Vec<RangeRun>),
    Streaming,
    Error(ErrorInfo),
}

/// A key range being read.
pub(super) struct RangeRun {
    /// What the next checkpoint will hold: `after` moves when a page is handed to the applier, not when it is read.
    pub(super) state: RangeState,
    /// Set to stop the reader; pages that carry a cancelled token are dropped.
    pub(super) token: Arc<ReadToken>,
}

/// Ties a reader and its pages to one attempt at a range.
#[derive(Debug, Default)]
pub(super) struct ReadToken(AtomicBool);

impl ReadToken {
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl CapturedTable {
    pub(super) fn new(name: String, mysql: MysqlTable, schema: Arc<TableSchema>, buckets: u32, estimated: u64) -> Self {
        Self {
            name,
            mysql: Arc::new(mysql),
            buffer: RowBuffer::new(&schema),
            schema,
            phase: Phase::Pending,
            buckets,
            estimated_rows: estimated,
            rows_read: 0,
            changes: 0,
            transaction_start: 0,
            generation: 0,
            refused: None,
            since: None,
            awaited: Vec::new(),
            resync: false,
            changed: true,
            decoders: HashMap::new(),
        }
    }

    /// Takes a table up where a checkpoint left it.
    pub(super) fn resume(name: String, state: TableState, schema: Arc<TableSchema>) -> Self {
        let mut table = Self::new(name, state.mysql, schema, state.buckets, state.estimated_rows);
        table.rows_read = state.rows_read;
        table.awaited = state.awaited;
        table.resync = state.resync;
        table.changed = false;
        table.phase = match state.phase {
            TablePhase::Pending => Phase::Pending,
            TablePhase::Streaming => Phase::Streaming,
            TablePhase::Error { error } => Phase::Error(error),
            TablePhase::Snapshot { ranges } => {
                Phase::Snapshot(ranges.into_iter().map(|state| RangeRun { state, token: Arc::default() }).collect())
            }
        };
        table
    }

    pub(super) fn is_captured(&self) -> bool {
        !matches!(self.phase, Phase::Error(_))
    }

    pub(super) fn is_loading(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Snapshot(_))
    }

    /// What a checkpoint cut now holds of the table. `frozen` is the applier's to add.
    pub(super) fn state(&self) -> TableState {
        TableState {
            mysql: (*self.mysql).clone(),
            phase: match &self.phase {
                Phase::Pending => TablePhase::Pending,
                Phase::Streaming => TablePhase::Streaming,
                Phase::Error(error) => TablePhase::Error { error: error.clone() },
                Phase::Snapshot(runs) => TablePhase::Snapshot { ranges: merge_done(runs.iter().map(|r| &r.state)) },
            },
            buckets: self.buckets,
            estimated_rows: self.estimated_rows,
            rows_read: self.rows_read,
            frozen: None,
            awaited: self.awaited.clone(),
            resync: self.resync,
        }
    }

    pub(super) fn status(&self) -> TableStatus {
        let mut status = TableStatus {
            name: self.name.clone(),
            origin: format!("{}.{}", self.mysql.database, self.mysql.name),
            state: TableProgress::Streaming,
            rows_read: self.rows_read,
            estimated_rows: self.estimated_rows.max(self.rows_read),
            ranges_total: 0,
            ranges_done: 0,
            ranges: Vec::new(),
            changes: self.changes,
            error: None,
        };
        match &self.phase {
            _ if self.resync => status.state = TableProgress::Pending,
            Phase::Pending => status.state = TableProgress::Pending,
            Phase::Streaming => {}
            Phase::Error(error) => {
                status.state = TableProgress::Error;
                status.error = Some(error.clone());
            }
            Phase::Snapshot(runs) => {
                status.state = TableProgress::Snapshot;
                status.ranges_total = runs.len() as u32;
                status.ranges_done = runs.iter().filter(|r| r.state.done).count() as u32;
                status.ranges = runs.iter().map(|r| range_status(&r.state)).collect();
            }
        }
        status
    }

    /// The decoder of a table map, compiled once as long as the server repeats the same map.
    pub(super) fn decoder(&mut self, map: TableMap) -> Result<(), Error> {
        if let Some((known, _)) = self.decoders.get(&map.table_id)
            && known.same_columns(&map)
        {
            return Ok(());
        }
        let decoder = RowDecoder::compile(&map, &self.mysql, &self.schema).map_err(|mismatch| {
            Error::new(
                Code::SchemaMismatch,
                format!("row events of {}.{} no longer fit its known definition", self.mysql.database, self.mysql.name),
            )
            .with_detail(mismatch.to_string())
        })?;
        // A server gives a table a new id at each schema change and restart; old ids do not come back.
        if self.decoders.len() > 16 {
            self.decoders.clear();
        }
        self.decoders.insert(map.table_id, (map, decoder));
        Ok(())
    }

    /// The decoder and the buffer it fills, for a table id whose map was seen.
    pub(super) fn decoding(&mut self, table_id: u64) -> Option<(&RowDecoder, &mut RowBuffer)> {
        let (_, decoder) = self.decoders.get(&table_id)?;
        Some((decoder, &mut self.buffer))
    }

    /// The table goes on with another definition. The buffer has been handed over before.
    pub(super) fn redefine(&mut self, mysql: MysqlTable, schema: Arc<TableSchema>) {
        self.buffer = RowBuffer::new(&schema);
        self.transaction_start = 0;
        self.mysql = Arc::new(mysql);
        self.schema = schema;
        self.decoders.clear();
        self.generation += 1;
        self.refused = None;
        self.changed = true;
    }

    /// Stops all readers of the table; their pages will be dropped.
    pub(super) fn cancel_reads(&self) {
        if let Phase::Snapshot(runs) = &self.phase {
            runs.iter().for_each(|r| r.token.cancel());
        }
    }

    pub(super) fn plan(&mut self, ranges: Vec<KeyRange>) {
        let runs = ranges
            .into_iter()
            .map(|range| RangeRun { state: RangeState { range, after: None, done: false }, token: Arc::default() });
        self.phase = Phase::Snapshot(runs.collect());
        self.since = None;
        self.awaited.clear();
        self.changed = true;
    }
}

/// Finished ranges that lie side by side become one, so that a checkpoint does not carry thousands of them.
fn merge_done<'a>(ranges: impl Iterator<Item = &'a RangeState>) -> Vec<RangeState> {
    let mut merged: Vec<RangeState> = Vec::new();
    for state in ranges {
        if let Some(last) = merged.last_mut()
            && last.done
            && state.done
            && last.range.upper == state.range.lower
        {
            last.range.upper.clone_from(&state.range.upper);
            continue;
        }
        merged.push(state.clone());
    }
    merged
}

fn range_status(state: &RangeState) -> RangeStatus {
    let text = |key: &Option<Vec<KeyValue>>| {
        key.as_ref().map(|values| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    RangeStatus {
        id: state.range.id,
        lower: text(&state.range.lower),
        upper: text(&state.range.upper),
        after: text(&state.after),
        done: state.done,
    }
}

/// The mirror's first schema of a table. Key columns are NOT NULL; all others may be NULL, since a value that cannot
/// be represented (a zero date) is NULL whatever MySQL declares. `changelog`: other engines will follow the table.
pub(super) fn first_schema(table: &MysqlTable, changelog: bool) -> Result<TableSchema, Error> {
    let mut fields = Vec::with_capacity(table.columns.len());
    for (id, column) in table.columns.iter().enumerate() {
        let data_type = column.column_type.data_type().map_err(|why| {
            Error::new(
                Code::UnsupportedType,
                format!("column {} of {}.{} cannot be mirrored", column.name, table.database, table.name),
            )
            .with_detail(why)
        })?;
        fields.push(Field {
            id: id as i32,
            name: column.name.clone(),
            data_type,
            nullable: !table.primary_key.iter().any(|k| k.eq_ignore_ascii_case(&column.name)),
            description: Some(column.comment.clone()).filter(|c| !c.is_empty()),
            initial_default: None,
        });
    }
    Ok(TableSchema {
        id: 0,
        highest_field_id: fields.len() as i32 - 1,
        fields,
        primary_keys: table.primary_key.clone(),
        options: changelog.then(|| (CHANGELOG_PRODUCER.to_owned(), CHANGELOG_INPUT.to_owned())).into_iter().collect(),
        comment: None,
        time_millis: 0,
    })
}

/// Buckets for a table of about this many rows: a bucket's deletion vectors are rewritten together at each commit, so
/// it should hold no more than some two million rows; small tables do best with one.
pub(super) fn buckets_for(estimated_rows: u64) -> u32 {
    u32::try_from(estimated_rows.div_ceil(2_000_000).clamp(1, 64)).unwrap_or(64)
}
