//! A server for one test, and ways to talk to it.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::config::ServeOptions;
use tidegate::server::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls};

/// A query that takes minutes, whatever the machine.
pub(crate) const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 200000) AS a(i), generate_series(1, 200000) AS b(j) WHERE (i + j) % 7 = 3";

pub(crate) fn options() -> ServeOptions {
    ServeOptions::new("memory:", SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub(crate) async fn start() -> Server {
    Server::start(options()).await.expect("the server starts")
}

pub(crate) fn config(server: &Server) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address().port()).user("tester").dbname("tidegate");
    config
}

pub(crate) async fn connect(server: &Server) -> Client {
    connect_with(&config(server)).await.expect("a connection")
}

pub(crate) async fn connect_with(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The SQLSTATE of an error that came from the server.
pub(crate) fn sqlstate(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", tokio_postgres::error::SqlState::code)
}

/// Fails a test that hangs.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// A client that writes and reads bytes itself.
pub(crate) struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    pub(crate) async fn open(server: &Server) -> Self {
        Self { stream: TcpStream::connect(server.address()).await.expect("a socket"), buffer: Vec::new() }
    }

    /// A connection that is ready for queries.
    pub(crate) async fn ready(server: &Server) -> Self {
        let mut raw = Self::open(server).await;
        raw.send(&startup(&[("user", "tester")])).await;
        loop {
            match raw.message().await {
                Some((b'Z', _)) => return raw,
                Some((b'E', body)) => panic!("refused: {}", String::from_utf8_lossy(&body)),
                Some(_) => {}
                None => panic!("closed during the start"),
            }
        }
    }

    /// The server may have closed the socket already: what it said before that is what counts.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn byte(&mut self) -> Option<u8> {
        self.stream.read_u8().await.ok()
    }

    /// The next message, `None` at the end of the connection.
    pub(crate) async fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut chunk = [0; 4096];
        loop {
            if self.buffer.len() >= 5 {
                let length = u32::from_be_bytes(self.buffer[1..5].try_into().expect("four bytes")) as usize + 1;
                if self.buffer.len() >= length {
                    let rest = self.buffer.split_off(length);
                    let message = std::mem::replace(&mut self.buffer, rest);
                    return Some((message[0], message[5..].to_vec()));
                }
            }
            match soon("an answer", self.stream.read(&mut chunk)).await {
                Ok(count @ 1..) => self.buffer.extend_from_slice(&chunk[..count]),
                _ => return None,
            }
        }
    }

    /// Ends the writing half, and reads to the end of what comes.
    pub(crate) async fn drain(&mut self) {
        let _ = self.stream.shutdown().await;
        let mut chunk = [0; 4096];
        while matches!(self.stream.read(&mut chunk).await, Ok(1..)) {}
    }

    /// The kinds of the messages up to ReadyForQuery or the end.
    pub(crate) async fn kinds(&mut self) -> String {
        let mut kinds = String::new();
        while let Some((kind, _)) = self.message().await {
            kinds.push(kind as char);
            if kind == b'Z' {
                break;
            }
        }
        kinds
    }

    /// The severity and SQLSTATE of the next error.
    pub(crate) async fn error(&mut self) -> Option<(String, String)> {
        while let Some((kind, body)) = self.message().await {
            if kind == b'E' {
                let field = |wanted: u8| {
                    body.split(|byte| *byte == 0)
                        .find(|field| field.first() == Some(&wanted))
                        .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
                        .unwrap_or_default()
                };
                return Some((field(b'V'), field(b'C')));
            }
        }
        None
    }
}

/// A startup packet.
pub(crate) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (3_u32 << 16).to_be_bytes().to_vec();
    for (name, value) in parameters {
        for text in [name, value] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend_from_slice(&body);
    packet
}

/// A message of an established connection.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}
