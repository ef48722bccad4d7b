//! From a new socket to a connection that may run statements: encryption requests, the startup packet, the proof of
//! the user.

use std::collections::BTreeMap;

use bytes::BytesMut;
use tidegate_planner::error::{SqlError, sqlstate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::auth::{self, Authentication, Users};
use super::errors::{INVALID_AUTHORIZATION, PROTOCOL_VIOLATION, Severity, error_response};
use super::message::{self, Frontend, Opening, ProtocolError};

/// The longest message before a user is known.
const MAX_PASSWORD_BYTES: usize = 10_000;

/// AuthenticationRequest codes.
const AUTH_OK: u32 = 0;
const AUTH_SASL: u32 = 10;
const AUTH_SASL_CONTINUE: u32 = 11;
const AUTH_SASL_FINAL: u32 = 12;

/// A socket with what was read ahead and what is not written yet.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) input: BytesMut,
    pub(crate) output: BytesMut,
}

/// Why a connection does not come about.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The client is told.
    Told(SqlError),
    /// There is nobody to tell.
    Gone,
}

impl From<SqlError> for Refused {
    fn from(error: SqlError) -> Self {
        Self::Told(error)
    }
}

impl From<ProtocolError> for Refused {
    fn from(error: ProtocolError) -> Self {
        Self::Told(SqlError::new(PROTOCOL_VIOLATION, error.0))
    }
}

impl From<std::io::Error> for Refused {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new() }
    }

    async fn read_more(&mut self) -> Result<(), Refused> {
        if self.stream.read_buf(&mut self.input).await? == 0 { Err(Refused::Gone) } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Refused> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// The first packet that is not an encryption request. Encryption is refused, which leaves it to the client to go on.
    pub(crate) async fn opening(&mut self) -> Result<Opening, Refused> {
        let (mut ssl_asked, mut gss_asked) = (false, false);
        loop {
            match message::decode_opening(&mut self.input)? {
                None => self.read_more().await?,
                Some(Opening::Ssl) if !ssl_asked => {
                    ssl_asked = true;
                    self.refuse_encryption().await?;
                }
                Some(Opening::Gss) if !gss_asked => {
                    gss_asked = true;
                    self.refuse_encryption().await?;
                }
                Some(Opening::Ssl | Opening::Gss) => {
                    return Err(SqlError::new(PROTOCOL_VIOLATION, "encryption was asked for twice").into());
                }
                Some(opening) => return Ok(opening),
            }
        }
    }

    async fn refuse_encryption(&mut self) -> Result<(), Refused> {
        // What was sent behind the request came in the clear and unasked: it could be forged.
        if !self.input.is_empty() {
            return Err(
                SqlError::new(PROTOCOL_VIOLATION, "received unencrypted data after an encryption request").into()
            );
        }
        self.output.extend_from_slice(b"N");
        self.flush().await
    }

    /// Answers the startup packet up to AuthenticationOk.
    pub(crate) async fn authenticate(
        &mut self,
        client: &Client,
        authentication: &Authentication,
    ) -> Result<(), Refused> {
        if client.negotiates {
            message::negotiate_version(&mut self.output, &client.unknown_options);
        }
        if let Authentication::Scram(users) = authentication {
            self.scram(&client.user, users).await?;
        }
        message::authentication(&mut self.output, AUTH_OK, b"");
        Ok(())
    }

    async fn scram(&mut self, user: &str, users: &Users) -> Result<(), Refused> {
        let mechanisms = [auth::MECHANISM.as_bytes(), b"\0\0"].concat();
        message::authentication(&mut self.output, AUTH_SASL, &mechanisms);
        let initial = self.password().await?;
        let (server_first, exchange) = users.begin(user, initial)?;
        message::authentication(&mut self.output, AUTH_SASL_CONTINUE, server_first.as_bytes());
        let proof = self.password().await?;
        let server_final = exchange.finish(&proof)?;
        message::authentication(&mut self.output, AUTH_SASL_FINAL, server_final.as_bytes());
        Ok(())
    }

    async fn password(&mut self) -> Result<bytes::Bytes, Refused> {
        self.flush().await?;
        loop {
            match message::decode(&mut self.input, MAX_PASSWORD_BYTES)? {
                Some(Frontend::Password(password)) => return Ok(password),
                Some(Frontend::Terminate) => return Err(Refused::Gone),
                Some(_) => return Err(SqlError::new(PROTOCOL_VIOLATION, "expected SASL response").into()),
                None => self.read_more().await?,
            }
        }
    }

    /// Tells why the connection ends.
    pub(crate) async fn refuse(mut self, error: &SqlError) {
        self.output.clear();
        error_response(error, Severity::Fatal, &mut self.output);
        if self.flush().await.is_ok() {
            close(self.stream).await;
        }
    }
}

/// Closes a socket so that its last message arrives: what the client has still sent is read and dropped, as closing
/// with unread input would reset the connection and take the message with it.
pub(crate) async fn close(mut stream: TcpStream) {
    const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);
    if stream.shutdown().await.is_ok() {
        let mut scrap = vec![0; 16 * 1024];
        let drain = async { while matches!(stream.read(&mut scrap).await, Ok(1..)) {} };
        let _ = tokio::time::timeout(PATIENCE, drain).await;
    }
}

/// What a startup packet says about its client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) user: String,
    pub(crate) database: String,
    /// Settings for the session, by name in lower case.
    pub(crate) settings: BTreeMap<String, String>,
    /// A newer minor version, or options of the protocol, were asked for.
    negotiates: bool,
    unknown_options: Vec<String>,
}

impl Client {
    pub(crate) fn new(minor: u16, parameters: Vec<(String, String)>) -> Result<Self, SqlError> {
        let (mut user, mut database) = (None, None);
        let mut settings = BTreeMap::new();
        let mut unknown_options = Vec::new();
        for (name, value) in parameters {
            match name.as_str() {
                "user" => user = Some(value),
                "database" => database = Some(value),
                "options" => settings.extend(command_line_settings(&value)?),
                "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
                "replication" => {
                    return Err(SqlError::unsupported("replication connections are not supported"));
                }
                name if name.starts_with("_pq_.") => unknown_options.push(name.to_owned()),
                name => {
                    settings.insert(name.to_ascii_lowercase(), value);
                }
            }
        }
        let user = user.filter(|user| !user.is_empty()).ok_or_else(|| {
            SqlError::new(INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
        })?;
        if let Some(encoding) = settings.get("client_encoding") {
            let folded: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect();
            if !matches!(folded.to_ascii_uppercase().as_str(), "UTF8" | "UNICODE" | "SQLASCII" | "AUTO") {
                return Err(SqlError::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("client encoding \"{encoding}\" is not supported"),
                )
                .with_hint("Set client_encoding to UTF8."));
            }
        }
        let database = database.filter(|database| !database.is_empty()).unwrap_or_else(|| user.clone());
        Ok(Self { user, database, settings, negotiates: minor > 0 || !unknown_options.is_empty(), unknown_options })
    }
}

/// `-c name=value` and `--name=value`, split as PostgreSQL does: at blanks, with a backslash before one that is meant.
fn command_line_settings(options: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = vec![String::new()];
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match (c, words.last_mut()) {
            ('\\', Some(word)) => word.extend(chars.next()),
            (c, Some(word)) if !c.is_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c").or_else(|| word.strip_prefix("--")) {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_owned()),
            None => None,
        };
        match setting.as_deref().and_then(|setting| setting.split_once('=')) {
            Some((name, value)) => settings.push((name.replace('-', "_").to_ascii_lowercase(), value.to_owned())),
            None => {
                return Err(SqlError::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("invalid command-line argument for server process: {word}"),
                ));
            }
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(parameters: &[(&str, &str)]) -> Result<Client, &'static str> {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Client::new(0, parameters).map_err(|error| error.sqlstate)
    }

    #[test]
    fn the_user_is_the_database_unless_said() {
        let plain = client(&[("user", "ann")]).expect("valid");
        assert_eq!((plain.user.as_str(), plain.database.as_str()), ("ann", "ann"));
        assert!(!plain.negotiates);
        assert_eq!(client(&[("database", "d")]), Err("28000"));
        assert_eq!(client(&[("user", "")]), Err("28000"));
        assert_eq!(client(&[("user", "a"), ("replication", "database")]), Err("0A000"));
        assert_eq!(client(&[("user", "a"), ("client_encoding", "LATIN1")]), Err("22023"));
        assert!(client(&[("user", "a"), ("client_encoding", "utf-8")]).is_ok());
    }

    #[test]
    fn settings_of_the_command_line() {
        let given =
            client(&[("user", "a"), ("options", r"-c DateStyle=ISO --statement-timeout=5s -csearch_path=a\ b")])
                .expect("valid");
        let expected = [("datestyle", "ISO"), ("search_path", "a b"), ("statement_timeout", "5s")];
        assert_eq!(given.settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(client(&[("user", "a"), ("options", "-x")]), Err("42601"));
        assert_eq!(client(&[("user", "a"), ("options", "-c")]), Err("42601"));
    }

    #[test]
    fn unknown_protocol_options_are_negotiated() {
        let given = client(&[("user", "a"), ("_pq_.command", "1")]).expect("valid");
        assert!(given.negotiates);
        assert_eq!(given.unknown_options, ["_pq_.command"]);
        assert!(Client::new(2, vec![("user".into(), "a".into())]).expect("valid").negotiates);
    }
}
