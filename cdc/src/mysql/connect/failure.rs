//! What an error of the server or of the connection means.

use std::error::Error as StdError;

use mysql_async::{DriverError, IoError};

use crate::error::{Code, Error, Retry};
use crate::source::definition::ConnectionOptions;

/// Whether encryption is what failed.
pub(crate) fn is_tls(error: &mysql_async::Error) -> bool {
    match error {
        mysql_async::Error::Io(IoError::Tls(_))
        | mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => true,
        // The TLS library hands its errors through as I/O errors of this kind.
        mysql_async::Error::Io(IoError::Io(io)) => io.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// The deepest cause says what happened; the layers above only wrap it.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// An error while a connection was being made.
pub(super) fn connect_failed(options: &ConnectionOptions, error: mysql_async::Error) -> Error {
    let server = format!("{}:{}", options.hostname, options.port);
    if is_tls(&error) {
        return Error::new(Code::TlsFailed, format!("no encrypted connection to {server}"))
            .with_detail(sentence(&innermost(&error)))
            .with_source(error);
    }
    match &error {
        mysql_async::Error::Io(_) => Error::new(Code::Unreachable, format!("{server} cannot be reached"))
            .with_detail(sentence(&innermost(&error)))
            .with_source(error),
        mysql_async::Error::Driver(driver) => {
            let code = match driver {
                DriverError::ConnectionClosed => Code::Unreachable,
                DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled => Code::WrongPassword,
                _ => Code::QueryFailed,
            };
            Error::new(code, format!("the log-in at {server} failed"))
                .with_detail(sentence(&driver.to_string()))
                .with_source(error)
        }
        mysql_async::Error::Server(_) => query_failed(&format!("the log-in at {server} failed"), error),
        _ => Error::new(Code::InvalidDefinition, format!("{server} is no address of a server"))
            .with_detail(sentence(&error.to_string()))
            .with_source(error),
    }
}

/// The server's own words, as a sentence.
pub(crate) fn server_message(error: &mysql_async::ServerError) -> String {
    format!("The server says: {} (error {}).", error.message.trim_end_matches('.'), error.code)
}

fn sentence(text: &str) -> String {
    let mut chars = text.trim().trim_end_matches('.').chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// An error of a statement, with what could not be done because of it.
pub(crate) fn query_failed(what: &str, error: mysql_async::Error) -> Error {
    let (code, retry, detail) = match &error {
        mysql_async::Error::Server(server) => {
            let (code, retry) = classify(server.code);
            (code, retry, server_message(server))
        }
        mysql_async::Error::Io(_) | mysql_async::Error::Driver(DriverError::ConnectionClosed) => {
            (Code::ConnectionLost, None, sentence(&innermost(&error)))
        }
        mysql_async::Error::Driver(DriverError::PacketOutOfOrder | DriverError::UnexpectedPacket { .. }) => {
            (Code::ConnectionLost, None, "The server's answer was not understood.".to_owned())
        }
        _ => (Code::QueryFailed, None, sentence(&innermost(&error))),
    };
    let mut failed = Error::new(code, what).with_detail(detail).with_source(error);
    if let Some(retry) = retry {
        failed.retry = retry;
    }
    failed
}

/// Server error numbers: "Server Error Message Reference" of the MySQL manual, and MariaDB's own above 1900.
fn classify(code: u16) -> (Code, Option<Retry>) {
    match code {
        // Access denied, host not allowed, unknown plugin, password expired, account locked.
        1045 | 1130 | 1251 | 1524 | 1698 | 1820 | 1862 | 3118 | 4151 => (Code::WrongPassword, None),
        // Host blocked after too many errors: time and FLUSH HOSTS help.
        1129 => (Code::Unreachable, None),
        1040 | 1203 | 1226 => (Code::TooManyConnections, None),
        1044 | 1142 | 1143 | 1227 | 1370 => (Code::MissingRight, None),
        1049 | 1051 | 1146 => (Code::TableGone, None),
        // Unknown column, definition changed, statement to be prepared again.
        1054 | 1412 | 1615 => (Code::TableChanged, None),
        // Shutdown, broken or killed connections, idle for too long.
        1053 | 1079 | 1080 | 1152 | 1154..=1161 | 1184 | 1927 | 3169 | 4031 => (Code::ConnectionLost, None),
        // A lock timeout or a deadlock: the next try may get through at once.
        1205 | 1213 => (Code::QueryFailed, Some(Retry::Now)),
        // Not allowed with these options, syntax: a try again gives the same.
        1064 | 1235 | 1290 => (Code::QueryFailed, Some(Retry::Never)),
        _ => (Code::QueryFailed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, message: &str) -> mysql_async::Error {
        mysql_async::ServerError { code, message: message.to_owned(), state: "HY000".to_owned() }.into()
    }

    #[test]
    fn server_errors_become_codes_with_the_servers_words() {
        let error = query_failed("a page could not be read", server(1146, "Table 'shop.x' doesn't exist"));
        assert_eq!(error.code, Code::TableGone);
        assert_eq!(error.detail.as_deref(), Some("The server says: Table 'shop.x' doesn't exist (error 1146)."));
        assert_eq!(query_failed("x", server(1205, "")).retry, Retry::Now);
        assert_eq!(query_failed("x", server(1064, "")).retry, Retry::Never);
        assert_eq!(query_failed("x", server(4711, "")).retry, Retry::Backoff);
    }

    #[test]
    fn a_broken_connection_is_no_failed_query() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(query_failed("x", broken.into()).code, Code::ConnectionLost);
        assert_eq!(query_failed("x", DriverError::ConnectionClosed.into()).code, Code::ConnectionLost);
    }
}
