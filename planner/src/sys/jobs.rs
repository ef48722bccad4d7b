use async_trait::async_trait;
use tidegate_cdc::capture::{JobState, JobStatus, TableProgress};

use super::ColumnType::{BigInt, Double, Text, Timestamp};
use super::{Cell, Column, SourceState, SysState, SysView, column, nullable, time};
use crate::catalog::SourceEntry;
use crate::error::SqlError;

pub(super) struct Jobs;

const COLUMNS: &[Column] = &[
    column("id", Text, "Identity of the source that the job captures."),
    column("name", Text, "Name of the source."),
    column(
        "state",
        Text,
        "`starting`, `snapshot` (tables are being read for the first time), `streaming` (all tables follow the binlog), `retrying` (after a fault that may pass), `standby` (another server captures the source), `paused`, `failed` (somebody has to act) or `stopped`.",
    ),
    column("table_count", BigInt, "Tables that are captured."),
    column("error_table_count", BigInt, "Tables that stopped with an error; the others go on."),
    column("snapshot_rows", BigInt, "Rows read so far by the snapshots of tables that are not complete yet."),
    column("snapshot_estimated_rows", BigInt, "Rows that these tables have by the server's own estimate."),
    nullable("snapshot_progress", Double, "Share of the snapshot that is done, from 0 to 1; null when none runs."),
    nullable(
        "snapshot_eta_at",
        Timestamp,
        "When the snapshot will be complete if it goes on at its average speed; null when none runs or nothing has been read.",
    ),
    nullable(
        "lag_ms",
        BigInt,
        "How old the newest checkpoint's state is beside the server's: 0 when it is level with the end of the server's binlog.",
    ),
    nullable("lag_bytes", BigInt, "Bytes of binlog between the stream and the end of the server's binlog."),
    column("changes", BigInt, "Row changes read from the binlog since the job started."),
    nullable("last_checkpoint", BigInt, "Number of the newest checkpoint; null before the first."),
    nullable("last_checkpoint_at", Timestamp, "When it was made durable."),
    nullable("last_event_at", Timestamp, "Commit time, on the server, of the last transaction that was read."),
    nullable("holder", Text, "The server that captures the source, when it is not this one."),
    nullable(
        "error_code",
        Text,
        "Code of the error that the job, or else one of its tables, is in; while the object store leaves a request unanswered, of that.",
    ),
    nullable("error", Text, "What is wrong."),
    nullable("hint", Text, "What to do."),
    nullable("started_at", Timestamp, "When the job was started in this server."),
];

#[async_trait]
impl SysView for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn doc(&self) -> &'static str {
        "One row for each source: is it running, how far is the snapshot and when will it be done, how far is it behind, what is wrong and what to do."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let row = |(name, entry): (&String, &SourceEntry)| {
            let source = state.sources.iter().find(|source| source.id == entry.id);
            job_row(name, entry, source, state.now_ms)
        };
        Ok(state.catalog.sources.iter().map(row).collect())
    }
}

/// How far the tables that are being read are.
#[derive(Debug, Default, PartialEq)]
struct SnapshotProgress {
    rows: u64,
    estimated: u64,
    share: Option<f64>,
    eta_at_ms: Option<i64>,
}

fn snapshot_progress(status: &JobStatus, now_ms: i64) -> SnapshotProgress {
    let reading = status
        .tables
        .iter()
        .filter(|table| matches!(table.state, TableProgress::Pending | TableProgress::Snapshot))
        .collect::<Vec<_>>();
    if reading.is_empty() {
        return SnapshotProgress::default();
    }
    let rows: u64 = reading.iter().map(|table| table.rows_read).sum();
    // The server's estimate can be less than what was already read; it then is no help for that table.
    let estimated: u64 = reading.iter().map(|table| table.estimated_rows.max(table.rows_read)).sum();
    let share = if estimated == 0 { 0.0 } else { rows as f64 / estimated as f64 };
    let eta_at_ms = status.snapshot_started_at_ms.filter(|_| share > 0.0).map(|started| {
        let elapsed = now_ms.saturating_sub(started).max(0) as f64;
        now_ms.saturating_add((elapsed * (1.0 - share) / share) as i64)
    });
    SnapshotProgress { rows, estimated, share: Some(share), eta_at_ms }
}

fn job_row(name: &str, entry: &SourceEntry, source: Option<&SourceState>, now_ms: i64) -> Vec<Cell> {
    let stopped = JobStatus { state: JobState::Stopped, ..JobStatus::default() };
    let running = source.and_then(|source| source.status.as_deref());
    let status = running.unwrap_or(&stopped);
    let view = source.and_then(|source| source.view.as_deref());
    let progress = snapshot_progress(status, now_ms);
    let failed_tables = status.tables.iter().filter(|table| table.state == TableProgress::Error).count();
    // A job that has not recovered yet knows less than the view it will recover.
    let table_count = status.tables.len().max(view.map_or(0, |view| view.tables.len()));
    let job_fault = matches!(status.state, JobState::Failed | JobState::Retrying | JobState::Standby)
        .then(|| status.errors.iter().rev().find(|error| error.table.is_none()))
        .flatten();
    // What it waits for now is more than what it waited for before.
    let job_fault = status.store_late.as_ref().or(job_fault);
    let fault = job_fault.or_else(|| status.tables.iter().find_map(|table| table.error.as_ref()));
    let seen = view.map_or((0, None), |view| (view.checkpoint, Some(view.committed_at_ms)));
    let checkpoint = match (status.last_checkpoint, status.last_checkpoint_at_ms) {
        (number, at) if number > seen.0 || (number == seen.0 && at.is_some()) => (number, at),
        _ => seen,
    };
    vec![
        entry.id.into(),
        name.into(),
        if entry.paused { "paused" } else { status.state.as_str() }.into(),
        table_count.into(),
        failed_tables.into(),
        progress.rows.into(),
        progress.estimated.into(),
        progress.share.into(),
        time(progress.eta_at_ms),
        status.lag_ms.into(),
        status.lag_bytes.into(),
        status.changes_total.into(),
        (checkpoint.0 > 0).then_some(checkpoint.0).into(),
        time(checkpoint.1.filter(|_| checkpoint.0 > 0)),
        time(status.last_event_at_ms),
        status.holder.as_ref().map(|holder| format!("{} (process {})", holder.host, holder.pid)).into(),
        fault.map(|fault| fault.code.clone()).into(),
        fault.map(|fault| fault.message.clone()).into(),
        fault.and_then(|fault| fault.hint.clone()).into(),
        time(running.map(|status| status.started_at_ms)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cdc::capture::TableStatus;

    fn table(state: TableProgress, rows_read: u64, estimated_rows: u64) -> TableStatus {
        TableStatus {
            name: "shop.orders".to_owned(),
            origin: "shop.orders".to_owned(),
            state,
            rows_read,
            estimated_rows,
            ranges_total: 1,
            ranges_done: 0,
            ranges: Vec::new(),
            changes: 0,
            error: None,
        }
    }

    #[test]
    fn progress_counts_only_tables_that_are_being_read() {
        let mut status = JobStatus { snapshot_started_at_ms: Some(1_000), ..JobStatus::default() };
        status.tables = vec![
            table(TableProgress::Streaming, 900, 900),
            table(TableProgress::Snapshot, 250, 600),
            table(TableProgress::Pending, 0, 400),
        ];
        let progress = snapshot_progress(&status, 2_000);
        assert_eq!((progress.rows, progress.estimated, progress.share), (250, 1_000, Some(0.25)));
        assert_eq!(progress.eta_at_ms, Some(5_000));
    }

    #[test]
    fn progress_without_estimates_or_rows_promises_nothing() {
        let mut status = JobStatus { snapshot_started_at_ms: Some(1_000), ..JobStatus::default() };
        assert_eq!(snapshot_progress(&status, 2_000), SnapshotProgress::default());
        status.tables = vec![table(TableProgress::Snapshot, 0, 0)];
        let progress = snapshot_progress(&status, 2_000);
        assert_eq!((progress.share, progress.eta_at_ms), (Some(0.0), None));
        status.tables = vec![table(TableProgress::Snapshot, 500, 10)];
        assert_eq!(snapshot_progress(&status, 2_000).share, Some(1.0));
    }
}
