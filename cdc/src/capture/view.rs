//! What readers see of a source: its tables as of one checkpoint.

use std::sync::Arc;

use tidegate_storage::checkpoint::{CheckpointLog, CheckpointState, TableCommit};
use tidegate_storage::store::StoreRef;
use tidegate_storage::table::{MergeLog, TableVersion};
use uuid::Uuid;

use super::state::{TablePhase, TableState};
use crate::error::{Code, Error, Retry};
use crate::mysql::types::MysqlTable;
use crate::source::position::Position;

/// How often a checkpoint that has become old while it was read gives way to a newer one.
const VIEW_ATTEMPTS: u32 = 8;

/// All tables of a source at one checkpoint. Immutable: a reader that holds it sees one source-transaction boundary.
#[derive(Debug, Clone)]
pub struct SourceView {
    pub source: String,
    pub source_id: Uuid,
    /// Number of the checkpoint, 0 before the first.
    pub checkpoint: u64,
    pub committed_at_ms: i64,
    pub position: Position,
    /// Sorted by schema and table name.
    pub tables: Vec<Arc<TableView>>,
}

/// One table of a [`SourceView`].
#[derive(Debug, Clone)]
pub struct TableView {
    pub schema_name: String,
    pub table_name: String,
    /// Whether the table may be queried: its snapshot is complete, or an older state is kept.
    pub visible: bool,
    /// Whether what readers see is the table at the view's position, and no older state.
    pub complete: bool,
    /// The rows; `None` while nothing complete exists.
    pub version: Option<Arc<TableVersion>>,
    /// The table's definition in MySQL at the view's position.
    pub mysql: MysqlTable,
    /// The merges of the table's files, where this process writes the table. They go on while the view stays.
    pub merges: Option<Arc<MergeLog>>,
}

impl SourceView {
    /// A view without tables, as it is before the first checkpoint.
    pub fn empty(source: impl Into<String>, source_id: Uuid) -> Self {
        Self {
            source: source.into(),
            source_id,
            checkpoint: 0,
            committed_at_ms: 0,
            position: Position::default(),
            tables: Vec::new(),
        }
    }
}

/// Reads the newest checkpoint of a source that no job of this process runs, so that a paused source stays readable.
///
/// `Ok(None)` when the source has no checkpoint yet.
pub async fn load_view(store: &StoreRef, source_id: Uuid, name: &str) -> Result<Option<SourceView>, Error> {
    newer_view(store, source_id, name, 0).await
}

/// Reads the newest checkpoint of a source if its number is above `known`.
///
/// Another server that captures the source deletes what has become old, perhaps while it is being read here: what is
/// missing then is no damage as long as there is a newer checkpoint.
pub(super) async fn newer_view(
    store: &StoreRef,
    source_id: Uuid,
    name: &str,
    known: u64,
) -> Result<Option<SourceView>, Error> {
    let log = CheckpointLog::new(store.clone(), source_id);
    let mut attempts = 0;
    loop {
        let Some(state) = log.recover().await?.filter(|state| state.number > known) else { return Ok(None) };
        let error = match view_of(store, source_id, name, &state).await {
            Ok(view) => return Ok(Some(view)),
            Err(error) if error.code == Code::StoreCorrupt => error,
            Err(error) => return Err(error),
        };
        if log.recover().await?.is_none_or(|newest| newest.number <= state.number) {
            return Err(error);
        }
        attempts += 1;
        if attempts >= VIEW_ATTEMPTS {
            return Err(error.with_retry(Retry::Backoff));
        }
    }
}

/// Whether another server than that of `epoch` has gone on with the source from checkpoint `known`. It deletes what has
/// become old: what is missing here then is not lost. Its epoch may be the lower one, as long as this one has written
/// nothing.
pub(super) async fn is_superseded(store: &StoreRef, source_id: Uuid, epoch: u64, known: u64) -> Result<bool, Error> {
    let newest = CheckpointLog::new(store.clone(), source_id).recover().await?;
    Ok(newest.is_some_and(|newest| newest.number > known && newest.epoch != epoch))
}

/// Loads every visible table of a recovered checkpoint.
async fn view_of(store: &StoreRef, source_id: Uuid, name: &str, state: &CheckpointState) -> Result<SourceView, Error> {
    let position = serde_json::from_value(state.position.clone()).map_err(|e| corrupt(state.number, "position", e))?;
    let mut tables = Vec::with_capacity(state.tables.len());
    for commit in state.tables.values() {
        tables.push(Arc::new(table_view(store, state.number, commit).await?));
    }
    Ok(SourceView {
        source: name.to_owned(),
        source_id,
        checkpoint: state.number,
        committed_at_ms: state.committed_at_ms,
        position,
        tables,
    })
}

async fn table_view(store: &StoreRef, checkpoint: u64, commit: &TableCommit) -> Result<TableView, Error> {
    let table: TableState =
        serde_json::from_value(commit.capture.clone()).map_err(|e| corrupt(checkpoint, &commit.name, e))?;
    let readable = table.readable_snapshot(commit);
    let version = match readable {
        Some(snapshot) => {
            Some(Arc::new(TableVersion::load(store, &commit.path.as_str().into(), &snapshot.json).await?))
        }
        None => None,
    };
    let (schema_name, table_name) = split_name(&commit.name);
    let complete = version.is_some() && table.phase == TablePhase::Streaming;
    let visible = version.is_some();
    Ok(TableView { schema_name, table_name, visible, complete, version, mysql: table.mysql, merges: None })
}

/// Splits `schema.table`; a schema name holds no dot, so the first one separates.
pub(super) fn split_name(name: &str) -> (String, String) {
    match name.split_once('.') {
        Some((schema, table)) => (schema.to_owned(), table.to_owned()),
        None => (String::new(), name.to_owned()),
    }
}

/// A checkpoint whose record is whole but whose part cannot be read.
pub(super) fn corrupt(checkpoint: u64, part: &str, error: serde_json::Error) -> Error {
    Error::new(Code::StoreCorrupt, format!("checkpoint {checkpoint} cannot be read: its part {part} is malformed"))
        .with_detail("It was written by a newer version, or by hand.")
        .with_source(error)
}
