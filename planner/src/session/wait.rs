//! `WAIT FOR SOURCE`: until a state is there, an error, or the time is over. Dropping the future ends the wait.

use std::time::Duration;

use tidegate_cdc::capture::{CaptureHandle, JobState, JobStatus, TableProgress};
use tidegate_cdc::mysql::connect::{connect, log_end};
use tidegate_cdc::source::position::{FilePosition, GtidSet};

use super::execute::Session;
use super::outcome::{Notice, Outcome};
use super::sources::not_running;
use crate::catalog::definition::source_definition;
use crate::error::{SqlError, sqlstate};
use crate::sql::statement::{Name, WaitTarget};

/// A job that has stopped cannot reach what is waited for; it is asked again after this time, since a job can also be put in its place.
const RECHECK: Duration = Duration::from_millis(500);

/// A target, with everything that had to be asked for.
enum Goal {
    Snapshot,
    File(FilePosition),
    Gtid(GtidSet),
    Checkpoint(u64),
}

impl Session {
    pub(super) async fn wait(
        &mut self,
        name: &Name,
        target: &WaitTarget,
        timeout: Option<Duration>,
    ) -> Result<Outcome, SqlError> {
        let entry = self.source(name)?;
        let handle = self.engine.jobs.handle(entry.id);
        let handle = handle.ok_or_else(|| not_running(&name.value, &entry))?;
        let waiting = async {
            let goal = self.goal(name, target, &handle).await?;
            reach(&name.value, &goal, &handle).await
        };
        match timeout {
            None => waiting.await,
            Some(timeout) => match tokio::time::timeout(timeout, waiting).await {
                Ok(outcome) => outcome,
                Err(_) => Err(SqlError::new(
                    sqlstate::QUERY_CANCELED,
                    format!("waiting for source \"{}\" took longer than {timeout:?}", name.value),
                )
                .with_detail(progress(&handle.status()))
                .with_hint("The source goes on by itself: wait again, or follow it with SHOW JOBS.")),
            },
        }
    }

    async fn goal(&self, name: &Name, target: &WaitTarget, handle: &CaptureHandle) -> Result<Goal, SqlError> {
        match target {
            WaitTarget::Snapshot => Ok(Goal::Snapshot),
            WaitTarget::Checkpoint(number) => Ok(Goal::Checkpoint(*number)),
            WaitTarget::Gtid(text, position) => {
                let set = gtid_set(text, &handle.status()).map_err(|reason| {
                    SqlError::new(
                        sqlstate::INVALID_TEXT_REPRESENTATION,
                        format!("'{text}' is not a GTID set: {reason}"),
                    )
                    .with_hint("On MySQL it is what @@gtid_executed shows, on MariaDB what @@gtid_binlog_pos shows.")
                    .at(*position)
                })?;
                Ok(Goal::Gtid(set))
            }
            WaitTarget::Current => {
                let catalog = self.engine.catalog.current();
                let entry = self.source(name)?;
                let definition = source_definition(&catalog, &name.value, &entry, &self.engine.sealer)?;
                let (mut connection, server) = connect(&definition.connection).await?;
                Ok(Goal::File(log_end(&mut connection, &server).await?))
            }
        }
    }
}

/// A set of the flavour that the source has, or of whichever it can be.
fn gtid_set(text: &str, status: &JobStatus) -> Result<GtidSet, String> {
    let mysql = || text.parse().map(GtidSet::Mysql);
    let maria = || text.parse().map(GtidSet::MariaDb);
    let parsed = match &status.position.gtid {
        Some(GtidSet::Mysql(_)) => mysql(),
        Some(GtidSet::MariaDb(_)) => maria(),
        None => mysql().or_else(|_| maria()),
    };
    parsed.map_err(|error| error.to_string())
}

async fn reach(source: &str, goal: &Goal, handle: &CaptureHandle) -> Result<Outcome, SqlError> {
    let mut statuses = handle.statuses();
    let mut views = handle.views();
    loop {
        let status = statuses.borrow_and_update().clone();
        let view = views.borrow_and_update().clone();
        let visible = match goal {
            Goal::Snapshot => snapshot_done(&status, |name| {
                view.tables
                    .iter()
                    .any(|table| table.complete && format!("{}.{}", table.schema_name, table.table_name) == name)
            }),
            Goal::Checkpoint(number) => view.checkpoint >= *number,
            Goal::File(file) => view.position.file.as_ref().is_some_and(|reached| reached >= file),
            Goal::Gtid(set) => view.position.gtid.as_ref().is_some_and(|reached| reached.contains(set)),
        };
        if visible {
            return Ok(reached(source, view.checkpoint, &status));
        }
        if status.state == JobState::Failed || status.state == JobState::Stopped {
            return Err(cannot(source, &status));
        }
        if matches!(goal, Goal::Gtid(_)) && status.state == JobState::Streaming && status.position.gtid.is_none() {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_READY,
                format!("the server of source \"{source}\" has no GTIDs"),
            )
            .with_hint("WAIT FOR SOURCE … CURRENT waits for all that is committed by now."));
        }
        // The stream is there, but the checkpoint that shows it is not: without changes it would come late.
        let streamed = match goal {
            Goal::Snapshot | Goal::Checkpoint(_) => false,
            Goal::File(file) => {
                status.position.file.as_ref().is_some_and(|reached| reached >= file)
                    || (status.lag_bytes == Some(0) && status.server_position.as_ref().is_some_and(|end| end >= file))
            }
            Goal::Gtid(set) => status.position.gtid.as_ref().is_some_and(|reached| reached.contains(set)),
        };
        if streamed {
            let number = match handle.checkpoint().await {
                Ok(number) => number,
                // The job was interrupted and tries again, or it has ended: the next round sees which.
                Err(_) => {
                    tokio::time::sleep(RECHECK).await;
                    continue;
                }
            };
            // The session whose stream was there may have ended meanwhile; the next one has answered from further back.
            if handle.status().session != status.session {
                continue;
            }
            // What the stream had reached is in this checkpoint, also when the server's log ends with an event that moves no position.
            views.wait_for(|view| view.checkpoint >= number).await.map_err(|_| cannot(source, &status))?;
            let view = views.borrow().clone();
            return Ok(reached(source, view.checkpoint, &status));
        }
        tokio::select! {
            changed = statuses.changed() => changed.map_err(|_| cannot(source, &status))?,
            changed = views.changed() => changed.map_err(|_| cannot(source, &status))?,
            () = tokio::time::sleep(RECHECK) => {}
        }
    }
}

/// Whether every table that can be read has been, and can be queried.
fn snapshot_done(status: &JobStatus, visible: impl Fn(&str) -> bool) -> bool {
    matches!(status.state, JobState::Streaming | JobState::Snapshot)
        && !status.tables.is_empty()
        && status.tables.iter().all(|table| match table.state {
            TableProgress::Streaming => visible(&table.name),
            TableProgress::Error => true,
            TableProgress::Pending | TableProgress::Snapshot => false,
        })
}

fn reached(source: &str, checkpoint: u64, status: &JobStatus) -> Outcome {
    let mut notices = vec![Notice::info(format!("source \"{source}\" is at checkpoint {checkpoint}"))];
    for table in status.tables.iter().filter(|table| table.state == TableProgress::Error) {
        let reason =
            table.error.as_ref().map_or_else(String::new, |error| format!(": {} [{}]", error.message, error.code));
        let mut warning = Notice::warning("01000", format!("table {} stands still{reason}", table.name));
        warning.hint = table.error.as_ref().and_then(|error| error.hint.clone());
        notices.push(warning);
    }
    Outcome::Command { tag: "WAIT".to_owned(), notices }
}

/// The job's own error, or that it has stopped.
fn cannot(source: &str, status: &JobStatus) -> SqlError {
    let last =
        status.errors.iter().rev().find(|error| error.table.is_none()).filter(|_| status.state == JobState::Failed);
    match last {
        Some(error) => SqlError {
            sqlstate: sqlstate::OBJECT_NOT_READY,
            code: Some(error.code.clone()),
            message: format!("source \"{source}\" has failed: {}", error.message),
            detail: error.detail.clone(),
            hint: error.hint.clone(),
            position: None,
        },
        None => SqlError::new(sqlstate::OBJECT_NOT_READY, format!("source \"{source}\" has stopped"))
            .with_hint("SHOW JOBS tells why."),
    }
}

fn progress(status: &JobStatus) -> String {
    let done = status.tables.iter().filter(|table| table.state == TableProgress::Streaming).count();
    let read: u64 = status.tables.iter().map(|table| table.rows_read).sum();
    let lag = status.lag_ms.map_or_else(String::new, |lag| format!(", {lag} ms behind"));
    format!(
        "It is {}: {done} of {} tables are complete, {read} rows were read; checkpoint {}{lag}.",
        status.state.as_str(),
        status.tables.len(),
        status.last_checkpoint
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cdc::capture::TableStatus;

    fn table(name: &str, state: TableProgress) -> TableStatus {
        TableStatus {
            name: name.to_owned(),
            origin: name.to_owned(),
            state,
            rows_read: 0,
            estimated_rows: 0,
            ranges_total: 0,
            ranges_done: 0,
            ranges: Vec::new(),
            changes: 0,
            error: None,
        }
    }

    #[test]
    fn a_snapshot_is_done_when_every_readable_table_can_be_queried() {
        let mut status = JobStatus { state: JobState::Streaming, ..JobStatus::default() };
        assert!(!snapshot_done(&status, |_| true), "a job that knows no tables yet");
        status.tables = vec![table("a.a", TableProgress::Streaming), table("a.b", TableProgress::Error)];
        assert!(snapshot_done(&status, |name| name == "a.a"));
        assert!(!snapshot_done(&status, |_| false), "not visible yet");
        status.tables.push(table("a.c", TableProgress::Pending));
        assert!(!snapshot_done(&status, |_| true));
        status.tables.pop();
        status.state = JobState::Starting;
        assert!(!snapshot_done(&status, |_| true));
    }

    #[test]
    fn a_set_is_read_in_the_flavour_of_the_server() {
        let mut status = JobStatus::default();
        assert!(matches!(gtid_set("0-1-5", &status), Ok(GtidSet::MariaDb(_))));
        let uuid = "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-77";
        assert!(matches!(gtid_set(uuid, &status), Ok(GtidSet::Mysql(_))));
        status.position.gtid = Some(GtidSet::MariaDb("0-1-5".parse().unwrap()));
        gtid_set(uuid, &status).unwrap_err();
        gtid_set("nonsense", &status).unwrap_err();
    }
}
