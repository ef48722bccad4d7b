//! Errors and notices as messages of the protocol.

use bytes::{BufMut, BytesMut};
use tidegate_planner::Notice;
use tidegate_planner::error::{SqlError, sqlstate};

use super::message::{put_string, write};

/// SQLSTATEs of the protocol itself (PostgreSQL manual, appendix A).
pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
pub(crate) const ADMIN_SHUTDOWN: &str = "57P01";
pub(crate) const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
pub(crate) const IDLE_SESSION_TIMEOUT: &str = "57P05";
pub(crate) const INVALID_AUTHORIZATION: &str = "28000";
pub(crate) const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
pub(crate) const INVALID_STATEMENT_NAME: &str = "26000";
pub(crate) const INVALID_CURSOR_NAME: &str = "34000";
pub(crate) const DUPLICATE_STATEMENT: &str = "42P05";
pub(crate) const DUPLICATE_CURSOR: &str = "42P03";
pub(crate) const INVALID_BINARY: &str = "22P03";

/// How much an error ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement.
    Error,
    /// The connection.
    Fatal,
}

/// Writes an ErrorResponse. The stable code stands behind the message, in brackets.
pub(crate) fn error_response(error: &SqlError, severity: Severity, buf: &mut BytesMut) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let position = error.position.map(|position| position.to_string());
    fields(
        buf,
        b'E',
        severity,
        error.sqlstate,
        &error.to_string(),
        error.detail.as_deref(),
        error.hint.as_deref(),
        position.as_deref(),
    );
}

/// Writes a NoticeResponse.
pub(crate) fn notice_response(notice: &Notice, buf: &mut BytesMut) {
    let (detail, hint) = (notice.detail.as_deref(), notice.hint.as_deref());
    fields(buf, b'N', notice.severity.as_str(), notice.sqlstate, &notice.message, detail, hint, None);
}

#[expect(clippy::too_many_arguments, reason = "one argument for each field of the message")]
fn fields(
    buf: &mut BytesMut,
    kind: u8,
    severity: &str,
    sqlstate: &str,
    message: &str,
    detail: Option<&str>,
    hint: Option<&str>,
    position: Option<&str>,
) {
    write(buf, kind, |buf| {
        let required = [(b'S', severity), (b'V', severity), (b'C', sqlstate), (b'M', message)];
        let optional = [(b'D', detail), (b'H', hint), (b'P', position)];
        for (field, value) in required {
            buf.put_u8(field);
            put_string(buf, value);
        }
        for (field, value) in optional {
            if let Some(value) = value {
                buf.put_u8(field);
                put_string(buf, value);
            }
        }
        buf.put_u8(0);
    });
}

/// The error of a statement that its client cancelled.
pub(crate) fn cancelled() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}

/// The error of a statement that ran longer than `statement_timeout`.
pub(crate) fn timed_out() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// What open connections are told when the server stops.
pub(crate) fn shutting_down() -> SqlError {
    SqlError::new(ADMIN_SHUTDOWN, "terminating connection: the server is shutting down")
}
