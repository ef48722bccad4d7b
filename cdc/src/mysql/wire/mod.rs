//! A connection that hands over rows as they lie in the socket's buffer.
//!
//! `mysql_async` makes an object of every value of every row, which costs as much as all else that a snapshot does with it.
//! Its types, its errors and the packets of `mysql_common` are used here; only the way of a row is another one.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use mysql_async::{Column, DriverError, Error, ServerError, Value};
use mysql_common::io::ParseBuf;
use mysql_common::packets::ComStmtExecuteRequestBuilder;
use mysql_common::proto::MySerialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use self::frames::Frames;
use self::login::Login;
use self::row::{Form, length};
use self::tls::Trust;
use super::server::TakeRow;
use crate::source::definition::{ConnectionOptions, SslMode};

mod frames;
mod login;
pub mod row;
mod tls;

/// The largest packet of the protocol; a server that sends larger rows does not exist.
const MAX_PACKET: usize = 1 << 30;

/// Statements kept prepared on a connection: one for each table and form of page that it reads.
const PREPARED_STATEMENTS: usize = 256;

type Result<T> = std::result::Result<T, Error>;

/// What a connection goes over.
trait Transport: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin> Transport for T {}

/// A connection of its own for the rows of pages.
#[derive(Debug)]
pub struct RowConn {
    stream: Box<dyn Transport>,
    frames: Frames,
    /// Bytes to send, kept for their memory.
    out: Vec<u8>,
    statements: HashMap<String, u32>,
    /// Rows that fit into a page, of tables whose rows are too large for the limit asked for.
    page_limits: HashMap<String, usize>,
}

/// A row of a statement in the text protocol: names and values.
pub type TextRow = Vec<(String, Option<String>)>;

impl RowConn {
    fn new(stream: Box<dyn Transport>) -> Self {
        Self {
            stream,
            frames: Frames::default(),
            out: Vec::new(),
            statements: HashMap::new(),
            page_limits: HashMap::new(),
        }
    }

    /// Connects to one of the addresses, encrypted as the options say; `mode` is what they come to for these addresses.
    pub(super) async fn open(options: &ConnectionOptions, addresses: &[SocketAddr], mode: SslMode) -> Result<Self> {
        let open = async |tls: Option<Trust<'_>>| {
            let socket = TcpStream::connect(addresses).await?;
            socket.set_nodelay(true)?;
            let alive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
            socket2::SockRef::from(&socket).set_tcp_keepalive(&alive)?;
            let login = Login { host: &options.hostname, user: &options.username, password: &options.password, tls };
            Self::log_in(Box::new(socket), login).await
        };
        match mode {
            SslMode::Disabled => open(None).await,
            SslMode::Preferred => match open(Some(Trust::Anybody)).await {
                Err(error) if super::connect::is_tls(&error) => open(None).await,
                opened => opened,
            },
            SslMode::Required => open(Some(Trust::Anybody)).await,
            SslMode::VerifyIdentity => open(Some(Trust::Authorities(options.ssl_ca.as_deref().map(Path::new)))).await,
        }
    }

    /// Says good-bye to the server. A connection that is only dropped is closed without a word, which servers count as
    /// aborted.
    pub async fn close(mut self) {
        const COM_QUIT: u8 = 0x01;
        // The connection is given up either way.
        let _ = tokio::time::timeout(Duration::from_secs(1), async {
            self.command(&[COM_QUIT]).await?;
            Ok::<_, Error>(self.stream.shutdown().await?)
        })
        .await;
    }

    pub(crate) fn page_limits(&mut self) -> &mut HashMap<String, usize> {
        &mut self.page_limits
    }

    /// Runs a statement in the text protocol. Its rows, if it has any, must be few.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>> {
        const COM_QUERY: u8 = 0x03;
        let mut command = vec![COM_QUERY];
        command.extend_from_slice(sql.as_bytes());
        self.command(&command).await?;
        let mut names = Vec::new();
        for column in self.columns().await? {
            names.push(column.name_str().into_owned());
        }
        let mut rows = Vec::new();
        if names.is_empty() {
            return Ok(rows);
        }
        loop {
            let packet = self.packet().await?;
            let packet = self.frames.payload(packet);
            if is_end(packet)? {
                return Ok(rows);
            }
            rows.push(text_row(&names, packet).ok_or_else(|| unexpected(packet))?);
        }
    }

    /// Runs a statement, which is prepared once and stays so, and hands over each row: the forms of its values, and the
    /// packet they are in.
    pub(crate) async fn select(&mut self, sql: &str, parameters: &[Value], take: TakeRow<'_>) -> Result<()> {
        let id = match self.statements.get(sql) {
            Some(id) => *id,
            None => self.prepare(sql).await?,
        };
        let (request, too_long) = ComStmtExecuteRequestBuilder::new(id).build(parameters);
        if too_long {
            return Err(DriverError::PacketTooLarge.into());
        }
        let mut command = Vec::new();
        request.serialize(&mut command);
        self.command(&command).await?;
        let columns = self.columns().await?;
        let forms: Vec<Form> = columns.iter().map(|column| Form::of(column.column_type(), column.flags())).collect();
        if forms.is_empty() {
            return Err(unexpected(&[]));
        }
        loop {
            let packet = self.packet().await?;
            let packet = self.frames.payload(packet);
            if is_end(packet)? {
                return Ok(());
            }
            take(&forms, packet);
        }
    }

    async fn prepare(&mut self, sql: &str) -> Result<u32> {
        const COM_STMT_PREPARE: u8 = 0x16;
        const COM_STMT_CLOSE: u8 = 0x19;
        if self.statements.len() >= PREPARED_STATEMENTS {
            for (_, id) in std::mem::take(&mut self.statements) {
                let mut command = vec![COM_STMT_CLOSE];
                command.extend_from_slice(&id.to_le_bytes());
                // This command has no answer.
                self.command(&command).await?;
            }
        }
        let mut command = vec![COM_STMT_PREPARE];
        command.extend_from_slice(sql.as_bytes());
        self.command(&command).await?;
        let packet = self.packet().await?;
        let packet = self.frames.payload(packet);
        let (id, columns, parameters) = match *packet {
            [0x00, a, b, c, d, e, f, g, h, ..] => {
                (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]))
            }
            [0xff, ..] => return Err(server_error(packet)),
            _ => return Err(unexpected(packet)),
        };
        for descriptions in [parameters, columns] {
            // Nothing follows where there is nothing to describe, not even an end.
            let packets = if descriptions == 0 { 0 } else { u32::from(descriptions) + 1 };
            for _ in 0..packets {
                self.packet().await?;
            }
        }
        self.statements.insert(sql.to_owned(), id);
        Ok(id)
    }

    /// The columns of the answer to a statement; none if it has no rows.
    async fn columns(&mut self) -> Result<Vec<Column>> {
        let packet = self.packet().await?;
        let mut packet = self.frames.payload(packet);
        let count = match packet.first() {
            Some(0x00) => return Ok(Vec::new()),
            Some(0xff) => return Err(server_error(packet)),
            _ => length(&mut packet).filter(|_| packet.is_empty()).ok_or_else(|| unexpected(packet))?,
        };
        let mut columns = Vec::new();
        for _ in 0..count {
            let packet = self.packet().await?;
            let packet = self.frames.payload(packet);
            columns.push(ParseBuf(packet).parse::<Column>(()).map_err(|_| unexpected(packet))?);
        }
        let packet = self.packet().await?;
        let packet = self.frames.payload(packet);
        if is_end(packet)? { Ok(columns) } else { Err(unexpected(packet)) }
    }

    async fn command(&mut self, payload: &[u8]) -> Result<()> {
        self.frames.restart();
        self.send(payload).await
    }

    async fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.out.clear();
        self.frames.write(payload, &mut self.out);
        self.stream.write_all(&self.out).await?;
        Ok(self.stream.flush().await?)
    }

    /// The next packet of the server.
    #[inline]
    async fn packet(&mut self) -> Result<Range<usize>> {
        loop {
            match self.frames.next() {
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) => {}
                Err(error) => return Err(std::io::Error::other(error).into()),
            }
            if self.stream.read_buf(self.frames.room()).await? == 0 {
                return Err(DriverError::ConnectionClosed.into());
            }
        }
    }
}

/// Whether a packet ends a list of rows or columns; an error if it says that the server failed.
fn is_end(packet: &[u8]) -> Result<bool> {
    match packet {
        [0xff, ..] => Err(server_error(packet)),
        // A row of text may begin with the same byte, if its first value is longer than 16 MiB.
        [0xfe, ..] => Ok(packet.len() < 9),
        _ => Ok(false),
    }
}

fn text_row(names: &[String], mut packet: &[u8]) -> Option<TextRow> {
    let mut row = Vec::with_capacity(names.len());
    for name in names {
        let value = if let [0xfb, rest @ ..] = packet {
            packet = rest;
            None
        } else {
            let len = length(&mut packet)?;
            let (bytes, rest) = packet.split_at_checked(len)?;
            packet = rest;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        row.push((name.clone(), value));
    }
    packet.is_empty().then_some(row)
}

/// What a server says in a packet of an error.
fn server_error(packet: &[u8]) -> Error {
    let [0xff, low, high, message @ ..] = packet else { return unexpected(packet) };
    let (state, message) = match message {
        [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
        message => (&b"HY000"[..], message),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Error::Server(ServerError { code: u16::from_le_bytes([*low, *high]), message: text(message), state: text(state) })
}

fn unexpected(packet: &[u8]) -> Error {
    DriverError::UnexpectedPacket { payload: packet.iter().take(64).copied().collect() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_text() {
        let names = ["a".to_owned(), "b".to_owned()];
        let row = |a: Option<&str>, b: Option<&str>| {
            Some(vec![("a".to_owned(), a.map(str::to_owned)), ("b".to_owned(), b.map(str::to_owned))])
        };
        assert_eq!(text_row(&names, &[1, b'1', 0xfb]), row(Some("1"), None));
        assert_eq!(text_row(&names, &[0xfb, 0]), row(None, Some("")));
        assert_eq!(text_row(&names, &[0xfb, 1]), None, "cut off");
        assert_eq!(text_row(&names, &[0xfb, 0xfb, 0]), None, "a byte too many");
    }

    #[test]
    fn errors_with_and_without_a_state() {
        let shown = |packet: &[u8]| match server_error(packet) {
            Error::Server(error) => (error.code, error.state, error.message),
            other => panic!("{other}"),
        };
        let with = shown(b"\xff\x15\x04#28000Access denied");
        assert_eq!(with, (1045, "28000".to_owned(), "Access denied".to_owned()));
        let without = shown(b"\xff\x69\x04Host is blocked");
        assert_eq!(without, (1129, "HY000".to_owned(), "Host is blocked".to_owned()));
    }
}
