//! Who may connect: anyone where the server is only reachable from its own machine, else users with a password.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use bytes::Bytes;
use pgwire::api::auth::Password;
use pgwire::api::auth::sasl::scram::{
    SCRAM_ITERATIONS, ScramServerAuth, ScramServerAuthWaitingForClientFinal, gen_salted_password,
};
use tidegate_planner::error::{SqlError, sqlstate};

use super::errors::PROTOCOL_VIOLATION;
use super::message::Body;

/// The name of the mechanism in the AuthenticationSASL message.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// How a connection proves its user.
#[derive(Debug)]
pub(crate) enum Authentication {
    /// It need not.
    Trust,
    /// SCRAM-SHA-256 with the users of the password file.
    Scram(Users),
}

/// Users and their salted passwords; the passwords themselves are not kept.
pub(crate) struct Users {
    users: HashMap<String, Verifier>,
    /// Unknown users are answered as known ones are: a salt that stays the same, and a password that nobody has.
    unknown: RandomState,
}

struct Verifier {
    salt: Vec<u8>,
    salted: Vec<u8>,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("count", &self.users.len()).finish_non_exhaustive()
    }
}

/// Why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordFileError {
    #[error("cannot read the password file {path}")]
    Read { path: String, source: std::io::Error },
    #[error("the password file {path} can be read by others; make it readable by its owner only (chmod 600)")]
    Readable { path: String },
    #[error("the password file {path} has no `user:password` in line {line}")]
    Line { path: String, line: usize },
    #[error("the password file {path} names no user")]
    Empty { path: String },
}

impl Users {
    /// Reads `user:password` lines; empty lines and lines that begin with `#` are passed over.
    pub(crate) fn read(path: &Path) -> Result<Self, PasswordFileError> {
        let shown = path.display().to_string();
        let read = |source| PasswordFileError::Read { path: shown.clone(), source };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            if std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o077 != 0 {
                return Err(PasswordFileError::Readable { path: shown });
            }
        }
        Self::parse(&std::fs::read_to_string(path).map_err(read)?, &shown)
    }

    fn parse(text: &str, path: &str) -> Result<Self, PasswordFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(':') {
                Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                    users.insert(user.to_owned(), Verifier::new(password));
                }
                _ => return Err(PasswordFileError::Line { path: path.to_owned(), line: index + 1 }),
            }
        }
        if users.is_empty() {
            return Err(PasswordFileError::Empty { path: path.to_owned() });
        }
        Ok(Self { users, unknown: RandomState::new() })
    }

    /// Begins an exchange: the server-first message, and what checks the client-final one.
    pub(crate) fn begin(&self, user: &str, initial: Bytes) -> Result<(String, Exchange), SqlError> {
        let malformed = || SqlError::new(PROTOCOL_VIOLATION, "malformed SASL response");
        let mut body = Body::new(initial);
        let mechanism = body.string().ok().flatten().ok_or_else(malformed)?;
        if mechanism != MECHANISM {
            return Err(SqlError::new(PROTOCOL_VIOLATION, "client selected an invalid SASL authentication mechanism"));
        }
        let length = usize::try_from(body.i32().map_err(|_| malformed())?).map_err(|_| malformed())?;
        let first = body.bytes(length).map_err(|_| malformed())?;
        let password = match self.users.get(user) {
            Some(verifier) => Password::new(Some(verifier.salt.clone()), verifier.salted.clone()),
            None => {
                let salt = [self.unknown.hash_one((user, 0)), self.unknown.hash_one((user, 1))].map(u64::to_be_bytes);
                Password::new(Some(salt.concat()), [random_bytes(), random_bytes()].concat())
            }
        };
        let (server_first, waiting) =
            ScramServerAuth::new().on_client_first_message(&first, password).map_err(|_| malformed())?;
        Ok((server_first, Exchange { user: user.to_owned(), waiting }))
    }
}

/// An exchange that waits for the client's proof.
pub(crate) struct Exchange {
    user: String,
    waiting: ScramServerAuthWaitingForClientFinal,
}

impl Exchange {
    /// The server-final message, if the proof is right.
    pub(crate) fn finish(&self, client_final: &[u8]) -> Result<String, SqlError> {
        self.waiting.on_client_final_message(client_final).map_err(|_| {
            SqlError::new(
                sqlstate::INVALID_PASSWORD,
                format!("password authentication failed for user \"{}\"", self.user),
            )
        })
    }
}

impl Verifier {
    fn new(password: &str) -> Self {
        let salt = random_bytes();
        Self { salt: salt.to_vec(), salted: gen_salted_password(password, &salt, SCRAM_ITERATIONS) }
    }
}

fn random_bytes() -> [u8; 16] {
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_lines() {
        let users = Users::parse("# staff\nann:a:b\n\nbob:secret\n", "f").expect("valid");
        assert_eq!(users.users.len(), 2);
        assert!(matches!(Users::parse("ann\n", "f"), Err(PasswordFileError::Line { line: 1, .. })));
        assert!(matches!(Users::parse("a:b\n:x\n", "f"), Err(PasswordFileError::Line { line: 2, .. })));
        assert!(matches!(Users::parse("# none\n", "f"), Err(PasswordFileError::Empty { .. })));
        assert!(!format!("{users:?}").contains("secret"));
    }

    #[test]
    fn malformed_exchanges_are_errors() {
        let users = Users::parse("ann:x\n", "f").expect("valid");
        for initial in [
            &b""[..],
            b"PLAIN\0\0\0\0\x01x",
            b"SCRAM-SHA-256\0\xff\xff\xff\xff",
            b"SCRAM-SHA-256\0\0\0\0\x09n,,n",
            b"SCRAM-SHA-256\0\0\0\0\x01\xff",
            b"SCRAM-SHA-256\0\0\0\0\x00",
        ] {
            assert!(users.begin("ann", Bytes::copy_from_slice(initial)).is_err(), "{initial:?}");
        }
        let initial = b"SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=nonc";
        for user in ["ann", "nobody"] {
            let (_, exchange) = users.begin(user, Bytes::copy_from_slice(initial)).expect("well formed");
            for answer in [&b""[..], b"c=biws", b"c=biws,r=x,p=AAAA", b"\xff"] {
                assert_eq!(exchange.finish(answer).map_err(|error| error.sqlstate), Err("28P01"));
            }
        }
    }
}
