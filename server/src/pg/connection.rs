//! One client's socket: bytes to messages on the way in, chunks to bytes on the way out.
//!
//! Sockets are served on a runtime of their own and do no work besides. Each has a session (`session.rs`) on another
//! runtime; between the two lie bounded queues, so that a client that does not read stops its query, and a client
//! that sends faster than its statements run is not read from.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidegate_planner::error::SqlError;
use tidegate_planner::{Engine, SessionOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug};

use super::auth::Authentication;
use super::cancel::{Interrupt, Registry};
use super::errors::{PROTOCOL_VIOLATION, TOO_MANY_CONNECTIONS, shutting_down};
use super::message::{self, Frontend, Opening};
use super::output::Output;
use super::session::{Backend, Ends, Incoming};
use super::startup::{Client, Refused, Wire, close};

/// The longest message that is taken.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Messages of one connection that wait for its session, in number and in bytes.
const WAITING_MESSAGES: usize = 64;

/// How long a client may take to say who it is.
const STARTUP_PATIENCE: Duration = Duration::from_secs(30);

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) engine: Arc<Engine>,
    pub(crate) authentication: Authentication,
    pub(crate) registry: Arc<Registry>,
    pub(crate) places: Arc<Semaphore>,
    /// Where sessions run, which plan statements and encode rows.
    pub(crate) sessions: Handle,
    /// Where queries run.
    pub(crate) queries: Handle,
    pub(crate) shutdown: CancellationToken,
}

/// Serves one socket to its end.
pub(crate) async fn serve(stream: TcpStream, context: Arc<Context>) {
    // Replies are written in chunks already; waiting to fill packets would only add latency.
    let _ = stream.set_nodelay(true);
    let mut wire = Wire::new(stream);
    let opened = tokio::select! {
        opened = tokio::time::timeout(STARTUP_PATIENCE, open(&mut wire, &context)) => opened.unwrap_or(Err(Refused::Gone)),
        () = context.shutdown.cancelled() => Err(Refused::Told(shutting_down())),
    };
    match opened {
        Ok(Some((client, place))) => converse(wire, client, &context, place).await,
        Ok(None) | Err(Refused::Gone) => {}
        Err(Refused::Told(error)) => {
            debug!(error = %error, sqlstate = error.sqlstate, "connection refused");
            wire.refuse(&error).await;
        }
    }
}

/// A client and its place among the connections; `None` after a cancel request.
async fn open(wire: &mut Wire, context: &Context) -> Result<Option<(Client, OwnedSemaphorePermit)>, Refused> {
    match wire.opening().await? {
        Opening::Cancel { pid, secret } => {
            context.registry.cancel(pid, secret);
            Ok(None)
        }
        Opening::Startup { minor, parameters } => {
            let client = Client::new(minor, parameters)?;
            let place = Arc::clone(&context.places)
                .try_acquire_owned()
                .map_err(|_| SqlError::new(TOO_MANY_CONNECTIONS, "sorry, too many clients already"))?;
            wire.authenticate(&client, &context.authentication).await?;
            Ok(Some((client, place)))
        }
        // Answered inside `opening`.
        Opening::Ssl | Opening::Gss => Ok(None),
    }
}

async fn converse(wire: Wire, client: Client, context: &Context, place: OwnedSemaphorePermit) {
    let Wire { mut stream, input, output: greeting } = wire;
    let interrupt = Arc::new(Interrupt::default());
    let registered = context.registry.register(rand::random(), Arc::clone(&interrupt));
    let span = tracing::info_span!("connection", pid = registered.pid, user = client.user, database = client.database);
    let session = context.engine.session(SessionOptions {
        user: client.user,
        database: client.database,
        application_name: client.settings.get("application_name").cloned().unwrap_or_default(),
        backend_pid: registered.pid,
    });
    let (mut output, chunks) = Output::new();
    output.buffer().extend_from_slice(&greeting);
    let (messages, incoming) = mpsc::channel(WAITING_MESSAGES);
    let ends = Ends { shutdown: context.shutdown.clone(), hangup: CancellationToken::new() };
    let backend = Backend::new(session, context.queries.clone(), output, interrupt, ends.clone());
    let identity = (registered.pid, registered.secret);
    let running = context.sessions.spawn(backend.run(client.settings, identity, incoming).instrument(span));

    let (reader, writer) = stream.split();
    let write = write_chunks(writer, chunks);
    let read = async {
        if !read_messages(reader, input, messages).await {
            // What the client has left running is of no use to anyone.
            ends.hangup.cancel();
        }
        std::future::pending::<()>().await;
    };
    // The session ends the conversation: its chunks end when it does.
    let delivered = tokio::select! {
        delivered = write => delivered,
        () = read => false,
    };
    if delivered {
        close(stream).await;
    } else {
        ends.hangup.cancel();
    }
    // The place is free again only when nothing of the connection runs any more.
    let _ = running.await;
    drop((place, registered));
}

/// Decodes messages until the client says goodbye (true) or goes without (false), or sends what is not a message.
async fn read_messages(mut reader: ReadHalf<'_>, mut input: BytesMut, messages: mpsc::Sender<Incoming>) -> bool {
    let budget = Arc::new(Semaphore::new(MAX_MESSAGE_BYTES));
    loop {
        let before = input.len();
        match message::decode(&mut input, MAX_MESSAGE_BYTES) {
            Ok(Some(message)) => {
                let last = message == Frontend::Terminate;
                let bytes = before - input.len();
                let Ok(permit) = Arc::clone(&budget).acquire_many_owned(bytes.min(MAX_MESSAGE_BYTES) as u32).await
                else {
                    return false;
                };
                if messages.send(Incoming::Message(message, permit)).await.is_err() || last {
                    return last;
                }
            }
            Ok(None) => match reader.read_buf(&mut input).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return false,
            },
            Err(error) => {
                let error = SqlError::new(PROTOCOL_VIOLATION, error.0);
                debug!(error = %error, "malformed message");
                let _ = messages.send(Incoming::Malformed(error)).await;
                // Reading on would find no messages. The session ends the conversation.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Writes chunks until there are no more (true) or the socket takes none (false).
async fn write_chunks(mut writer: WriteHalf<'_>, mut chunks: mpsc::Receiver<Bytes>) -> bool {
    while let Some(chunk) = chunks.recv().await {
        if writer.write_all(&chunk).await.is_err() {
            return false;
        }
    }
    true
}
