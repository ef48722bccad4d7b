//! Readers of the initial snapshot: some connections that take key ranges from a queue and hand pages back.

use std::sync::Arc;
use std::time::Duration;

use tidegate_storage::paimon::TableSchema;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::memory::{Held, MemoryUse, PERMIT_BYTES, permits, reserve, shares};
use super::resync::Definition;
use super::state::XaCommit;
use super::table::{ReadToken, TableIndex};
use crate::error::{Error, Retry};
use crate::mysql::ServerInfo;
use crate::mysql::connect::{VISIBILITY_TIMEOUT, wait_completed};
use crate::mysql::server::{PageConnection, SourceConnection, SourceServer};
use crate::mysql::snapshot::pages::{Page, PageSize, read_page};
use crate::mysql::snapshot::ranges::plan_ranges;
use crate::mysql::snapshot::{KeyRange, KeyValue};
use crate::mysql::types::MysqlTable;
use crate::source::definition::{CaptureOptions, SourceDefinition};
use crate::source::position::{FilePosition, Position};

/// What a reader does next.
pub(super) enum ReadJob {
    /// Cut a table into key ranges, once all is visible that was committed up to a position, and what it awaits.
    Plan {
        table: TableIndex,
        generation: u64,
        mysql: Arc<MysqlTable>,
        estimated_rows: u64,
        since: Option<Position>,
        awaited: Vec<XaCommit>,
    },
    /// Read the definition of a table.
    Define { table: TableIndex, question: u64, mysql: Arc<MysqlTable> },
    /// Read one range, page by page, from behind `after`.
    Range {
        table: TableIndex,
        range_index: usize,
        generation: u64,
        mysql: Arc<MysqlTable>,
        schema: Arc<TableSchema>,
        range: KeyRange,
        after: Option<Vec<KeyValue>>,
        token: Arc<ReadToken>,
    },
}

/// What comes back.
pub(super) enum ReadEvent {
    Planned {
        table: TableIndex,
        generation: u64,
        ranges: Vec<KeyRange>,
    },
    Defined {
        table: TableIndex,
        question: u64,
        definition: Box<Result<Definition, Error>>,
    },
    Page(ReadPage),
    Failed {
        table: TableIndex,
        generation: u64,
        range: Option<(usize, Arc<ReadToken>)>,
        error: Error,
        /// The log's end after a failure that will not pass, if the server told it.
        end: Option<FilePosition>,
    },
}

pub(super) struct ReadPage {
    pub(super) table: TableIndex,
    pub(super) range_index: usize,
    pub(super) generation: u64,
    pub(super) token: Arc<ReadToken>,
    pub(super) page: Page,
    /// Share of the memory for pages; held until the rows are in data files.
    pub(super) share: OwnedSemaphorePermit,
    pub(super) held: Held,
}

/// The pool. Dropping it ends the readers.
pub(super) struct Readers {
    jobs: mpsc::UnboundedSender<ReadJob>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Readers {
    pub(super) fn start(
        server: &Arc<dyn SourceServer>,
        info: &ServerInfo,
        definition: &SourceDefinition,
        budget: usize,
        memory: &Arc<MemoryUse>,
    ) -> (Self, mpsc::Receiver<ReadEvent>) {
        let options = &definition.options;
        let definition = Arc::new(definition.clone());
        let (jobs, queue) = mpsc::unbounded_channel();
        let (events, received) = mpsc::channel(4);
        let queue = Arc::new(Mutex::new(queue));
        let shares = shares(budget);
        let tasks = (0..options.snapshot_parallelism.max(1)).map(|_| {
            let reader = Reader {
                server: Arc::clone(server),
                definition: Arc::clone(&definition),
                expected: info.clone(),
                options: options.clone(),
                queue: Arc::clone(&queue),
                events: events.clone(),
                memory: Arc::clone(memory),
                shares: Arc::clone(&shares),
                budget,
                conn: None,
                rows: None,
            };
            AbortOnDropHandle::new(tokio::spawn(reader.run()))
        });
        (Self { jobs, _tasks: tasks.collect() }, received)
    }

    pub(super) fn submit(&self, job: ReadJob) {
        // The receiving side lives as long as the tasks this pool owns.
        let _ = self.jobs.send(job);
    }

    /// Submits a job after a pause, for one that failed.
    pub(super) fn submit_later(&self, job: ReadJob, pause: Duration) {
        let jobs = self.jobs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = jobs.send(job);
        });
    }
}

pub(super) struct Reader {
    pub(super) server: Arc<dyn SourceServer>,
    pub(super) definition: Arc<SourceDefinition>,
    /// The server whose log is followed: pages of another one would be of another time.
    pub(super) expected: ServerInfo,
    options: CaptureOptions,
    queue: Arc<Mutex<mpsc::UnboundedReceiver<ReadJob>>>,
    events: mpsc::Sender<ReadEvent>,
    memory: Arc<MemoryUse>,
    /// Shares of the memory for pages, which all readers have together.
    shares: Arc<Semaphore>,
    budget: usize,
    /// For all that is not a page.
    conn: Option<(Box<dyn SourceConnection>, ServerInfo)>,
    /// For pages.
    rows: Option<(Box<dyn PageConnection>, ServerInfo)>,
}

impl Reader {
    async fn run(mut self) {
        loop {
            // A connection that is idle for long would be closed by the server; it is made anew when work comes.
            let next = {
                let mut queue = self.queue.lock().await;
                match queue.try_recv() {
                    Ok(job) => Some(job),
                    Err(_) => match tokio::time::timeout(Duration::from_secs(10), queue.recv()).await {
                        Ok(Some(job)) => Some(job),
                        Ok(None) => return,
                        Err(_) => None,
                    },
                }
            };
            let Some(job) = next else {
                if let Some((conn, _)) = self.conn.take() {
                    conn.close().await;
                }
                if let Some((rows, _)) = self.rows.take() {
                    rows.close().await;
                }
                continue;
            };
            if !self.work(job).await {
                return;
            }
        }
    }

    /// Does one job; `false` when nobody listens any more.
    async fn work(&mut self, job: ReadJob) -> bool {
        match job {
            ReadJob::Define { table, question, mysql } => {
                let definition = self.define(&mysql).await;
                if let Err(error) = &definition {
                    self.after_failure(error).await;
                }
                self.events.send(ReadEvent::Defined { table, question, definition: Box::new(definition) }).await.is_ok()
            }
            ReadJob::Plan { table, generation, mysql, estimated_rows, since, awaited } => {
                let planned = self.plan(&mysql, estimated_rows, since.as_ref(), &awaited).await;
                let event = match planned {
                    Ok(ranges) => ReadEvent::Planned { table, generation, ranges },
                    Err(error) => {
                        let end = self.after_failure(&error).await;
                        ReadEvent::Failed { table, generation, range: None, error, end }
                    }
                };
                self.events.send(event).await.is_ok()
            }
            ReadJob::Range { table, range_index, generation, mysql, schema, range, mut after, token } => loop {
                if token.is_cancelled() {
                    return true;
                }
                // The share is taken before the page exists: what all readers hold stays within the budget.
                let mut share = reserve(&self.shares, self.budget, self.page_permits() * PERMIT_BYTES).await;
                let page = match self.page(&mysql, &schema, &range, after.as_deref()).await {
                    Ok(page) => page,
                    Err(error) => {
                        let end = self.after_failure(&error).await;
                        let range = Some((range_index, token));
                        let failed = ReadEvent::Failed { table, generation, range, error, end };
                        return self.events.send(failed).await.is_ok();
                    }
                };
                let held = self.memory.hold(page.batch.get_array_memory_size());
                self.fit(&mut share, page.batch.get_array_memory_size()).await;
                let done = page.end_of_range;
                after.clone_from(&page.last_key);
                let token = Arc::clone(&token);
                let event = ReadPage { table, range_index, generation, token, page, share, held };
                if self.events.send(ReadEvent::Page(event)).await.is_err() {
                    return false;
                }
                if done {
                    return true;
                }
            },
        }
    }

    /// The permits of a page while it is read: all readers together hold half of the memory for pages.
    fn page_permits(&self) -> usize {
        (permits(self.budget, self.budget) as usize / self.readers() / 2).max(1)
    }

    fn readers(&self) -> usize {
        self.options.snapshot_parallelism.max(1)
    }

    /// Makes a page's share what the page takes. Rows may be larger than they were expected to be: then the share grows,
    /// once others have given theirs back, but by no more than there is while all readers hold theirs and want more.
    async fn fit(&self, share: &mut OwnedSemaphorePermit, bytes: usize) {
        let needed = permits(self.budget, bytes) as usize;
        match share.num_permits().checked_sub(needed) {
            Some(spare) => drop(share.split(spare)),
            None => {
                let all = permits(self.budget, self.budget) as usize;
                let room = all.saturating_sub(self.readers() * self.page_permits());
                let more = room.min(needed - share.num_permits());
                if more > 0 {
                    share.merge(reserve(&self.shares, self.budget, more * PERMIT_BYTES).await);
                }
            }
        }
    }

    pub(super) async fn connected(&mut self) -> Result<&mut (Box<dyn SourceConnection>, ServerInfo), Error> {
        if self.conn.is_none() {
            let (conn, info) = self.server.connect().await?;
            info.must_be(&self.expected)?;
            self.conn = Some((conn, info));
        }
        Ok(self.conn.as_mut().expect("just connected"))
    }

    async fn connected_for_rows(&mut self) -> Result<&mut (Box<dyn PageConnection>, ServerInfo), Error> {
        if self.rows.is_none() {
            let (_, info) = self.connected().await?;
            let info = info.clone();
            self.rows = Some((self.server.connect_for_rows(&info).await?, info));
            // One connection for each reader: servers may allow few.
            if let Some((conn, _)) = self.conn.take() {
                conn.close().await;
            }
        }
        Ok(self.rows.as_mut().expect("just connected"))
    }

    async fn plan(
        &mut self,
        mysql: &MysqlTable,
        estimated_rows: u64,
        since: Option<&Position>,
        awaited: &[XaCommit],
    ) -> Result<Vec<KeyRange>, Error> {
        let range_rows = self.options.range_rows;
        let (conn, info) = self.connected().await?;
        if let Some(since) = since {
            conn.wait_visible(info, since, VISIBILITY_TIMEOUT).await?;
        }
        for commit in awaited {
            conn.wait_visible(info, &commit.position, VISIBILITY_TIMEOUT).await?;
            wait_completed(conn.as_mut(), info, &commit.xid, VISIBILITY_TIMEOUT).await?;
        }
        plan_ranges(conn.as_mut(), info, mysql, estimated_rows, range_rows).await
    }

    async fn page(
        &mut self,
        mysql: &MysqlTable,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        after: Option<&[KeyValue]>,
    ) -> Result<Page, Error> {
        // Columns may reserve twice of what their values take.
        let limit = PageSize { rows: self.options.page_rows, bytes: self.page_permits() * PERMIT_BYTES / 2 };
        let (conn, info) = self.connected_for_rows().await?;
        read_page(conn.as_mut(), info, mysql, schema, range, after, limit).await
    }

    /// A connection on which something failed may hold half a result: it is given up. After a failure that will not
    /// pass by itself, says where the log ends now.
    async fn after_failure(&mut self, error: &Error) -> Option<FilePosition> {
        self.conn = None;
        self.rows = None;
        if error.retry != Retry::Never {
            return None;
        }
        let (conn, info) = self.connected().await.ok()?;
        conn.log_end(info).await.ok()
    }
}
