//! A running query's rows on their way to the client.
//!
//! The query is driven by a task on the runtime of the queries, and hands its batches over. A session must stay able to
//! react at once, and an operator may compute for seconds between two points where it could be interrupted.

use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt as _;
use tidegate_planner::error::SqlError;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio_util::task::AbortOnDropHandle;

use super::encode::{Column, Rows, Style};
use super::output::{Gone, Output};

/// Why a message could not be answered as usual.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The statement failed; the connection goes on.
    Sql(SqlError),
    /// The client has gone.
    Gone,
    /// The server stops.
    Shutdown,
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<Gone> for Failure {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

/// Where a query stands after some of its rows were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All rows are sent.
    Finished { rows: usize },
    /// As many rows as were asked for are sent; there may be more.
    Suspended,
}

/// How long finished rows may wait for more to come along.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// Batches that are ready before the query waits for them to be sent.
const WAITING_BATCHES: usize = 1;

/// A task that drives a query. It ends when it is dropped, at the next point where the query can be interrupted.
struct Driver {
    batches: mpsc::Receiver<Result<RecordBatch, SqlError>>,
    task: AbortOnDropHandle<()>,
}

impl Driver {
    fn start(queries: &Handle, mut stream: SendableRecordBatchStream) -> Self {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES);
        let task = queries.spawn(async move {
            while let Some(batch) = stream.next().await {
                let batch = batch.map_err(SqlError::from);
                let failed = batch.is_err();
                if sender.send(batch).await.is_err() || failed {
                    break;
                }
            }
        });
        Self { batches, task: AbortOnDropHandle::new(task) }
    }

    /// The next batch, after what waits in the output has left if there is none yet.
    async fn next(&mut self, output: &mut Output) -> Result<Option<RecordBatch>, Failure> {
        let next = match self.batches.try_recv() {
            Ok(batch) => Some(batch),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                if !output.buffer().is_empty() && self.batches.is_empty() {
                    // Only if the client would have to wait otherwise: the end of a short result goes out in one piece.
                    tokio::select! {
                        biased;
                        batch = self.batches.recv() => return self.received(batch).await,
                        () = tokio::time::sleep(SHORT_WAIT) => output.flush().await?,
                    }
                }
                self.batches.recv().await
            }
        };
        self.received(next).await
    }

    async fn received(&mut self, next: Option<Result<RecordBatch, SqlError>>) -> Result<Option<RecordBatch>, Failure> {
        match next {
            Some(batch) => Ok(Some(batch?)),
            // The end, unless the task broke off: that must not look like fewer rows.
            None => match (&mut self.task).await {
                Ok(()) => Ok(None),
                Err(_) => Err(SqlError::internal("the query ended in a fault of the server")
                    .with_hint("The server's log has the place.")
                    .into()),
            },
        }
    }
}

/// A query that runs, and the batch that is being sent.
pub(crate) struct Cursor {
    /// Dropped when it ends, so that what it holds is freed at once.
    driver: Option<Driver>,
    columns: Vec<Column>,
    style: Style,
    batch: Option<Rows>,
    next: usize,
}

impl Cursor {
    pub(crate) fn new(queries: &Handle, stream: SendableRecordBatchStream, columns: Vec<Column>, style: Style) -> Self {
        Self { driver: Some(Driver::start(queries, stream)), columns, style, batch: None, next: 0 }
    }

    /// The announcement of the rows.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Sends up to `limit` rows (0: all). Rows leave as they come: nothing waits in the buffer while the query computes.
    pub(crate) async fn send(&mut self, limit: usize, output: &mut Output) -> Result<Progress, Failure> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut sent = 0;
        loop {
            if let Some(batch) = &self.batch {
                while self.next < batch.len() && sent < limit {
                    batch.write(self.next, output.buffer())?;
                    self.next += 1;
                    sent += 1;
                    output.flush_if_large().await?;
                }
                if sent == limit {
                    return Ok(Progress::Suspended);
                }
            }
            self.batch = None;
            self.next = 0;
            let Some(driver) = &mut self.driver else {
                return Ok(Progress::Finished { rows: sent });
            };
            match driver.next(output).await? {
                Some(batch) => self.batch = Some(Rows::new(&batch, &self.columns, self.style)?),
                None => self.driver = None,
            }
        }
    }
}
