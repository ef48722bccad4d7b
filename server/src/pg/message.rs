//! The messages of the protocol, version 3.0: strict decoding of what clients send, and writing of what they get.
//!
//! Decoding is our own, not `pgwire`'s: a message is cut out by its length first, and every field is checked against
//! that message's end, so that a malformed one is an error of its connection and cannot reach into the next message.
//! Layouts: PostgreSQL manual, "Message Formats".

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Request codes that stand where a version would stand.
const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

/// PostgreSQL's own limit for a startup packet.
const MAX_STARTUP_BYTES: usize = 10_000;

/// The version that is spoken: 3.0.
pub(crate) const PROTOCOL_VERSION: u32 = 3 << 16;

/// Bytes that are not a message of the protocol. The connection cannot go on, as its framing is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ProtocolError(pub(crate) String);

impl ProtocolError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// What a new connection may begin with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Ssl,
    Gss,
    Cancel { pid: i32, secret: i32 },
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// A prepared statement or a portal, in Describe and Close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

/// The parameters of a Bind message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    /// None, one for all, or one for each parameter: 0 text, 1 binary.
    pub(crate) parameter_formats: Vec<i16>,
    pub(crate) parameters: Vec<Option<Bytes>>,
    pub(crate) result_formats: Vec<i16>,
}

/// A message of an established connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frontend {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe {
        target: Target,
        name: String,
    },
    Execute {
        portal: String,
        max_rows: usize,
    },
    Close {
        target: Target,
        name: String,
    },
    Flush,
    Sync,
    Terminate,
    /// Password, SASLInitialResponse or SASLResponse: which one depends on what was asked.
    Password(Bytes),
    /// CopyData, CopyDone and CopyFail: meaningless here, and ignored outside a COPY as PostgreSQL does.
    Copy,
    /// A well framed message whose text is not UTF-8: an error of the statement, not of the connection.
    NotUtf8 {
        extended: bool,
    },
    FunctionCall,
}

/// Takes one opening packet off `buf`; `None` until it is there in full.
pub(crate) fn decode_opening(buf: &mut BytesMut) -> Result<Option<Opening>, ProtocolError> {
    let Some(head) = buf.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if !(8..=MAX_STARTUP_BYTES).contains(&length) {
        return Err(ProtocolError::new("invalid length of startup packet"));
    }
    if buf.len() < length {
        return Ok(None);
    }
    let mut body = Body::new(buf.split_to(length).freeze().slice(4..));
    match body.u32()? {
        SSL_REQUEST => Ok(Some(Opening::Ssl)),
        GSSENC_REQUEST => Ok(Some(Opening::Gss)),
        CANCEL_REQUEST => {
            let (pid, secret) = (body.i32()?, body.i32()?);
            body.end()?;
            Ok(Some(Opening::Cancel { pid, secret }))
        }
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.string()?.ok_or_else(|| ProtocolError::new("startup packet is not UTF-8"))?;
                if name.is_empty() {
                    break;
                }
                let value = body.string()?.ok_or_else(|| ProtocolError::new("startup packet is not UTF-8"))?;
                parameters.push((name, value));
            }
            body.end()?;
            Ok(Some(Opening::Startup { minor: (version & 0xffff) as u16, parameters }))
        }
        version => Err(ProtocolError::new(format!(
            "unsupported frontend protocol {}.{}: server supports 3.0",
            version >> 16,
            version & 0xffff
        ))),
    }
}

/// Takes one message off `buf`; `None` until it is there in full. A message longer than `max_bytes` is refused by its
/// length, before it is read.
pub(crate) fn decode(buf: &mut BytesMut, max_bytes: usize) -> Result<Option<Frontend>, ProtocolError> {
    let Some(&[kind, a, b, c, d]) = buf.first_chunk::<5>() else { return Ok(None) };
    if !b"QPBDECHSXpdcfF".contains(&kind) {
        return Err(ProtocolError::new(format!("invalid frontend message type {kind}")));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length < 4 {
        return Err(ProtocolError::new("invalid message length"));
    }
    if length > max_bytes {
        return Err(ProtocolError::new(format!("a message of {length} bytes is longer than the limit of {max_bytes}")));
    }
    if buf.len() < length + 1 {
        return Ok(None);
    }
    let mut body = Body::new(buf.split_to(length + 1).freeze().slice(5..));
    let message = match kind {
        b'Q' => match body.string()? {
            Some(sql) => Frontend::Query(sql),
            None => Frontend::NotUtf8 { extended: false },
        },
        b'P' => {
            let (name, sql) = (body.string()?, body.string()?);
            let count = body.u16()?;
            let types = (0..count).map(|_| body.u32()).collect::<Result<Vec<_>, _>>()?;
            match (name, sql) {
                (Some(name), Some(sql)) => Frontend::Parse { name, sql, types },
                _ => Frontend::NotUtf8 { extended: true },
            }
        }
        b'B' => decode_bind(&mut body)?,
        b'D' | b'C' => {
            let target = match body.u8()? {
                b'S' => Target::Statement,
                b'P' => Target::Portal,
                other => {
                    return Err(ProtocolError::new(format!("invalid target {other} in a DESCRIBE or CLOSE message")));
                }
            };
            match body.string()? {
                Some(name) if kind == b'D' => Frontend::Describe { target, name },
                Some(name) => Frontend::Close { target, name },
                None => Frontend::NotUtf8 { extended: true },
            }
        }
        b'E' => {
            let portal = body.string()?;
            // Zero and negative numbers mean no limit.
            let max_rows = usize::try_from(body.i32()?).unwrap_or(0);
            match portal {
                Some(portal) => Frontend::Execute { portal, max_rows },
                None => Frontend::NotUtf8 { extended: true },
            }
        }
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'p' => Frontend::Password(body.rest()),
        b'F' => {
            body.rest();
            Frontend::FunctionCall
        }
        _ => {
            body.rest();
            Frontend::Copy
        }
    };
    body.end()?;
    Ok(Some(message))
}

fn decode_bind(body: &mut Body) -> Result<Frontend, ProtocolError> {
    let (portal, statement) = (body.string()?, body.string()?);
    let count = body.u16()?;
    let parameter_formats = (0..count).map(|_| body.i16()).collect::<Result<Vec<_>, _>>()?;
    let count = body.u16()?;
    let parameters = (0..count)
        .map(|_| match body.i32()? {
            -1 => Ok(None),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| ProtocolError::new("invalid parameter length in BIND"))?;
                body.bytes(length).map(Some)
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let count = body.u16()?;
    let result_formats = (0..count).map(|_| body.i16()).collect::<Result<Vec<_>, _>>()?;
    Ok(match (portal, statement) {
        (Some(portal), Some(statement)) => {
            Frontend::Bind(Bind { portal, statement, parameter_formats, parameters, result_formats })
        }
        _ => Frontend::NotUtf8 { extended: true },
    })
}

/// The rest of a message that was cut out by its length.
pub(crate) struct Body(Bytes);

impl Body {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<Bytes, ProtocolError> {
        if self.0.len() < length {
            return Err(ProtocolError::new("insufficient data left in message"));
        }
        Ok(self.0.split_to(length))
    }

    pub(crate) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    fn u8(&mut self) -> Result<u8, ProtocolError> {
        Ok(self.bytes(1)?.get_u8())
    }

    fn u16(&mut self) -> Result<u16, ProtocolError> {
        Ok(self.bytes(2)?.get_u16())
    }

    fn i16(&mut self) -> Result<i16, ProtocolError> {
        Ok(self.bytes(2)?.get_i16())
    }

    fn u32(&mut self) -> Result<u32, ProtocolError> {
        Ok(self.bytes(4)?.get_u32())
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ProtocolError> {
        Ok(self.bytes(4)?.get_i32())
    }

    /// A zero-terminated string; `None` when it is not UTF-8.
    pub(crate) fn string(&mut self) -> Result<Option<String>, ProtocolError> {
        let end =
            self.0.iter().position(|byte| *byte == 0).ok_or_else(|| ProtocolError::new("invalid string in message"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        Ok(String::from_utf8(text.into()).ok())
    }

    fn end(&self) -> Result<(), ProtocolError> {
        if self.0.is_empty() { Ok(()) } else { Err(ProtocolError::new("invalid message format")) }
    }
}

/// Writes one message: kind, length, then what `body` appends.
pub(crate) fn write(buf: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    buf.put_u8(kind);
    let at = buf.len();
    buf.put_u32(0);
    body(buf);
    let length = (buf.len() - at) as u32;
    buf[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes a zero-terminated string; what follows a zero byte inside it cannot be said and is left out.
pub(crate) fn put_string(buf: &mut BytesMut, text: &str) {
    buf.put_slice(text.split('\0').next().unwrap_or_default().as_bytes());
    buf.put_u8(0);
}

pub(crate) fn authentication(buf: &mut BytesMut, code: u32, data: &[u8]) {
    write(buf, b'R', |buf| {
        buf.put_u32(code);
        buf.put_slice(data);
    });
}

pub(crate) fn parameter_status(buf: &mut BytesMut, name: &str, value: &str) {
    write(buf, b'S', |buf| {
        put_string(buf, name);
        put_string(buf, value);
    });
}

pub(crate) fn backend_key_data(buf: &mut BytesMut, pid: i32, secret: i32) {
    write(buf, b'K', |buf| {
        buf.put_i32(pid);
        buf.put_i32(secret);
    });
}

pub(crate) fn negotiate_version(buf: &mut BytesMut, unknown_options: &[String]) {
    write(buf, b'v', |buf| {
        buf.put_u32(PROTOCOL_VERSION);
        buf.put_u32(unknown_options.len() as u32);
        for option in unknown_options {
            put_string(buf, option);
        }
    });
}

pub(crate) fn ready_for_query(buf: &mut BytesMut, status: u8) {
    write(buf, b'Z', |buf| buf.put_u8(status));
}

pub(crate) fn command_complete(buf: &mut BytesMut, tag: &str) {
    write(buf, b'C', |buf| put_string(buf, tag));
}

pub(crate) fn parameter_description(buf: &mut BytesMut, types: &[u32]) {
    write(buf, b't', |buf| {
        buf.put_u16(types.len() as u16);
        for oid in types {
            buf.put_u32(*oid);
        }
    });
}

/// The messages without a body: ParseComplete, BindComplete, CloseComplete, NoData, EmptyQueryResponse, PortalSuspended.
pub(crate) fn bare(buf: &mut BytesMut, kind: Bare) {
    write(buf, kind as u8, |_| {});
}

/// Kinds of messages that have no body.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Bare {
    ParseComplete = b'1',
    BindComplete = b'2',
    CloseComplete = b'3',
    NoData = b'n',
    EmptyQuery = b'I',
    PortalSuspended = b's',
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: u8, body: &[u8]) -> BytesMut {
        let mut buf = BytesMut::new();
        write(&mut buf, kind, |buf| buf.put_slice(body));
        buf
    }

    #[test]
    fn a_message_is_taken_only_when_complete() {
        let whole = framed(b'Q', b"select 1\0");
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(decode(&mut part, 1 << 20), Ok(None), "{cut} bytes");
            assert_eq!(part.len(), cut);
        }
        let mut two = whole;
        two.extend_from_slice(&framed(b'S', b""));
        assert_eq!(decode(&mut two, 1 << 20), Ok(Some(Frontend::Query("select 1".into()))));
        assert_eq!(decode(&mut two, 1 << 20), Ok(Some(Frontend::Sync)));
        assert!(two.is_empty());
    }

    #[test]
    fn fields_never_reach_into_the_next_message() {
        // A Bind that promises more parameters than it holds, followed by a Sync that must not be eaten.
        let mut bind = framed(b'B', b"\0\0\0\0\0\x02\0\0\0\x01x");
        bind.extend_from_slice(&framed(b'S', b""));
        assert!(decode(&mut bind, 1 << 20).is_err());
        assert!(decode(&mut framed(b'P', b"\0select 1\0\0\x05\0\0\0\x17"), 1 << 20).is_err());
        assert!(decode(&mut framed(b'Q', b"no end"), 1 << 20).is_err());
        assert!(decode(&mut framed(b'S', b"more"), 1 << 20).is_err());
        assert!(decode(&mut framed(b'D', b"Xname\0"), 1 << 20).is_err());
        assert!(decode(&mut framed(b'E', b"\0\0\0"), 1 << 20).is_err());
    }

    #[test]
    fn length_and_kind_are_checked_before_the_body_arrives() {
        assert!(decode(&mut BytesMut::from(&b"Q\0\0\0\x03"[..]), 1 << 20).is_err());
        assert!(decode(&mut BytesMut::from(&b"Q\x7f\xff\xff\xff"[..]), 1 << 20).is_err());
        assert!(decode(&mut BytesMut::from(&b"?\0\0\0\x04"[..]), 1 << 20).is_err());
    }

    #[test]
    fn text_that_is_not_utf8_keeps_the_framing() {
        let mut buf = framed(b'Q', b"\xff\0");
        buf.extend_from_slice(&framed(b'S', b""));
        assert_eq!(decode(&mut buf, 1 << 20), Ok(Some(Frontend::NotUtf8 { extended: false })));
        assert_eq!(decode(&mut buf, 1 << 20), Ok(Some(Frontend::Sync)));
    }

    #[test]
    fn openings() {
        let packet = |code: u32, body: &[u8]| {
            let mut buf = BytesMut::new();
            buf.put_u32(8 + body.len() as u32);
            buf.put_u32(code);
            buf.put_slice(body);
            buf
        };
        assert_eq!(decode_opening(&mut packet(SSL_REQUEST, b"")), Ok(Some(Opening::Ssl)));
        assert_eq!(
            decode_opening(&mut packet(CANCEL_REQUEST, b"\0\0\0\x07\xff\xff\xff\xfe")),
            Ok(Some(Opening::Cancel { pid: 7, secret: -2 }))
        );
        assert!(decode_opening(&mut packet(CANCEL_REQUEST, b"\0\0\0")).is_err());
        assert_eq!(
            decode_opening(&mut packet(PROTOCOL_VERSION | 2, b"user\0me\0database\0shop\0\0")),
            Ok(Some(Opening::Startup {
                minor: 2,
                parameters: vec![("user".into(), "me".into()), ("database".into(), "shop".into())],
            }))
        );
        assert!(decode_opening(&mut packet(PROTOCOL_VERSION, b"user\0me\0")).is_err());
        assert!(decode_opening(&mut packet(2 << 16, b"\0")).is_err());
        assert!(decode_opening(&mut BytesMut::from(&b"GET / HTTP/1.1\r\n"[..])).is_err());
        assert!(decode_opening(&mut BytesMut::from(&b"\x16\x03\x01\x02\0\x01\0"[..])).is_err());
    }
}
