//! The session of one connection: takes its messages in order and answers them.
//!
//! It runs on the runtime of the sessions, where statements are planned and rows are encoded; what queries compute, they
//! compute on a runtime of their own. Only a running statement can be interrupted: by a cancel request, its timeout, the
//! end of its client or of the server.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tidegate_planner::error::{SqlError, sqlstate};
use tidegate_planner::{Session, TransactionStatus};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::cancel::{Armed, Interrupt};
use super::encode::{Style, Zone};
use super::errors::{
    self, CHARACTER_NOT_IN_REPERTOIRE, IDLE_IN_TRANSACTION_TIMEOUT, IDLE_SESSION_TIMEOUT, PROTOCOL_VIOLATION, Severity,
};
use super::extended::{Portal, Prepared};
use super::message::{self, Frontend};
use super::output::Output;
use super::rows::Failure;

/// What the socket hands over.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A message, and its share of the bytes that may wait.
    Message(Frontend, OwnedSemaphorePermit),
    /// Bytes that are no message; nothing follows.
    Malformed(SqlError),
}

/// What ends a connection from outside.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// The server stops.
    pub(crate) shutdown: CancellationToken,
    /// The client has gone.
    pub(crate) hangup: CancellationToken,
}

/// The session's side of a connection.
pub(crate) struct Backend {
    pub(super) session: Session,
    /// Where its queries run.
    pub(super) queries: Handle,
    pub(super) output: Output,
    pub(super) interrupt: Arc<Interrupt>,
    pub(super) ends: Ends,
    pub(super) statements: HashMap<String, Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    /// After an error in the extended protocol, everything up to the next Sync is passed over.
    skipping: bool,
    /// The settings that the client was last told.
    reported: Vec<(&'static str, String)>,
}

/// Why a conversation is over.
enum Over {
    /// The client ended it.
    Ended,
    /// The client is told why.
    Fatal(SqlError),
}

impl Backend {
    pub(crate) fn new(
        session: Session,
        queries: Handle,
        output: Output,
        interrupt: Arc<Interrupt>,
        ends: Ends,
    ) -> Self {
        Self {
            session,
            queries,
            output,
            interrupt,
            ends,
            statements: HashMap::new(),
            portals: HashMap::new(),
            skipping: false,
            reported: Vec::new(),
        }
    }

    /// Answers messages until the connection is over. A panic ends this connection, and no other.
    pub(crate) async fn run(
        self,
        settings: BTreeMap<String, String>,
        identity: (i32, i32),
        incoming: mpsc::Receiver<Incoming>,
    ) {
        let mut last_word = self.output.again();
        let over = AssertUnwindSafe(self.converse(settings, identity, incoming)).catch_unwind().await;
        let fatal = match over {
            Ok(Over::Ended) => return,
            Ok(Over::Fatal(error)) => error,
            Err(_) => {
                error!("a statement ended in a fault of the program; its connection is closed");
                SqlError::internal("the statement ended in a fault of the server")
                    .with_hint("Other connections are not affected. The server's log has the place.")
            }
        };
        errors::error_response(&fatal, Severity::Fatal, last_word.buffer());
        let _ = last_word.flush().await;
    }

    async fn converse(
        mut self,
        settings: BTreeMap<String, String>,
        identity: (i32, i32),
        mut incoming: mpsc::Receiver<Incoming>,
    ) -> Over {
        for (name, value) in settings {
            if let Err(error) = self.session.set_at_start(&name, &value) {
                return Over::Fatal(error);
            }
        }
        let buffer = self.output.buffer();
        message::parameter_status(buffer, "is_superuser", "on");
        message::parameter_status(buffer, "in_hot_standby", "off");
        self.report_settings();
        message::backend_key_data(self.output.buffer(), identity.0, identity.1);
        let status = self.status();
        message::ready_for_query(self.output.buffer(), status);
        if self.output.flush().await.is_err() {
            return Over::Ended;
        }
        loop {
            let (message, _share) = match self.next(&mut incoming).await {
                Ok(Some(Incoming::Message(message, share))) => (message, share),
                Ok(Some(Incoming::Malformed(error))) => return self.fatal(error).await,
                Ok(None) => return Over::Ended,
                Err(error) => return self.fatal(error).await,
            };
            match self.answer(message).await {
                Ok(true) => {}
                Ok(false) | Err(Failure::Gone) => return Over::Ended,
                Err(Failure::Shutdown) => return self.fatal(errors::shutting_down()).await,
                Err(Failure::Sql(error)) => return self.fatal(error).await,
            }
        }
    }

    /// What was answered before goes out ahead of the last word.
    async fn fatal(&mut self, error: SqlError) -> Over {
        let _ = self.output.flush().await;
        Over::Fatal(error)
    }

    /// The next message; an error when the client has been idle for too long, or the server stops.
    async fn next(&mut self, incoming: &mut mpsc::Receiver<Incoming>) -> Result<Option<Incoming>, SqlError> {
        if let Ok(message) = incoming.try_recv() {
            return Ok(Some(message));
        }
        let (setting, sqlstate, what) = match self.session.transaction_status() {
            TransactionStatus::Idle => ("idle_session_timeout", IDLE_SESSION_TIMEOUT, "idle-session timeout"),
            _ => ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_TIMEOUT, "idle-in-transaction timeout"),
        };
        let patience = self.session.settings().timeout(setting);
        tokio::select! {
            message = incoming.recv() => Ok(message),
            () = self.ends.shutdown.cancelled() => Err(errors::shutting_down()),
            () = elapsed(patience) => {
                Err(SqlError::new(sqlstate, format!("terminating connection due to {what}")))
            }
        }
    }

    /// Answers one message; false when it was the last.
    async fn answer(&mut self, message: Frontend) -> Result<bool, Failure> {
        match message {
            Frontend::Terminate => return Ok(false),
            Frontend::Sync => {
                self.skipping = false;
                if self.session.transaction_status() == TransactionStatus::Idle {
                    // Outside a block, every Sync ends a transaction, and portals live in one.
                    self.portals.clear();
                }
                self.ready().await?;
            }
            _ if self.skipping => {}
            Frontend::Query(sql) => {
                let answered = self.simple_query(&sql).await;
                self.settle(answered)?;
                self.ready().await?;
            }
            Frontend::NotUtf8 { extended: false } => {
                self.settle(Err(not_utf8().into()))?;
                self.ready().await?;
            }
            Frontend::FunctionCall => {
                self.settle(Err(SqlError::unsupported("function calls by message are not supported").into()))?;
                self.ready().await?;
            }
            Frontend::Flush => self.output.flush().await?,
            Frontend::Copy => {}
            Frontend::Password(_) => {
                return Err(SqlError::new(PROTOCOL_VIOLATION, "unexpected password message").into());
            }
            extended => {
                let answered = self.extended(extended).await;
                if matches!(answered, Err(Failure::Sql(_))) {
                    self.skipping = true;
                }
                self.settle(answered)?;
                self.output.flush_if_large().await?;
            }
        }
        Ok(true)
    }

    async fn extended(&mut self, message: Frontend) -> Result<(), Failure> {
        match message {
            Frontend::Parse { name, sql, types } => self.parse(name, &sql, types).await,
            Frontend::Bind(bind) => self.bind(bind),
            Frontend::Describe { target, name } => self.describe(target, &name),
            Frontend::Execute { portal, max_rows } => self.execute(&portal, max_rows).await,
            Frontend::Close { target, name } => {
                self.close(target, &name);
                Ok(())
            }
            _ => Err(not_utf8().into()),
        }
    }

    /// Reports a statement's error; what ends the connection is passed on.
    fn settle(&mut self, answered: Result<(), Failure>) -> Result<(), Failure> {
        match answered {
            Err(Failure::Sql(error)) => {
                debug!(sqlstate = error.sqlstate, error = %error, "statement failed");
                self.session.fail_transaction();
                errors::error_response(&error, Severity::Error, self.output.buffer());
                Ok(())
            }
            other => other,
        }
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.report_settings();
        let status = self.status();
        message::ready_for_query(self.output.buffer(), status);
        self.output.flush().await?;
        Ok(())
    }

    fn status(&self) -> u8 {
        match self.session.transaction_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InTransaction => b'T',
            TransactionStatus::Failed => b'E',
        }
    }

    /// Tells the client the settings that it has not been told yet.
    fn report_settings(&mut self) {
        let now = self.session.settings().reported();
        if now == self.reported {
            return;
        }
        for setting in &now {
            if !self.reported.contains(setting) {
                message::parameter_status(self.output.buffer(), setting.0, &setting.1);
            }
        }
        self.reported = now;
    }

    /// How values look as text.
    pub(super) fn style(&self) -> Style {
        let settings = self.session.settings();
        Style {
            zone: Zone::parse(settings.get("timezone").unwrap_or("UTC")),
            escape_bytes: settings.get("bytea_output") == Some("escape"),
        }
    }

    /// The time a statement may take.
    pub(super) fn statement_timeout(&self) -> Option<Duration> {
        self.session.settings().timeout("statement_timeout")
    }
}

fn not_utf8() -> SqlError {
    SqlError::new(CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
}

async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Does the work of a session so that the tasks it starts run on `runtime`.
pub(super) async fn within<T>(runtime: &Handle, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let _entered = runtime.enter();
        work.as_mut().poll(context)
    })
    .await
}

/// Does the work of a statement until it is done or interrupted.
pub(super) async fn guarded<T>(
    armed: &Armed,
    timeout: Option<Duration>,
    ends: &Ends,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = armed.token().cancelled() => Err(errors::cancelled().into()),
        () = ends.hangup.cancelled() => Err(Failure::Gone),
        () = ends.shutdown.cancelled() => Err(Failure::Shutdown),
        () = elapsed(timeout) => Err(errors::timed_out().into()),
        done = work => done,
    }
}

/// Whether a notice of this severity is sent, by `client_min_messages`.
pub(super) fn is_wanted(severity: tidegate_planner::Severity, least: Option<&str>) -> bool {
    use tidegate_planner::Severity as Notice;
    match (severity, least.unwrap_or("notice")) {
        (Notice::Info, _) => true,
        (_, "error") => false,
        (Notice::Notice, "warning") => false,
        _ => true,
    }
}

/// The SQLSTATE of a message that came at the wrong time.
pub(super) fn out_of_place(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::OBJECT_NOT_READY, message)
}
