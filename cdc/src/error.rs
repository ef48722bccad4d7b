//! What can go wrong in capture: one table of stable codes, and the error that carries one of them.
//!
//! A code never changes its meaning. Each has a page in the book that is made from the table below, so its texts are
//! written for the person who reads them while something is down: what happened, what it means for the data, what to do.

use std::error::Error as StdError;
use std::fmt;

/// What happens after an error of a kind, without anybody's help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The work is tried again at once; nothing outside has to change for it to succeed.
    Now,
    /// The work is tried again after a growing pause.
    Backoff,
    /// Trying again cannot help: somebody has to act, then resume.
    Never,
}

/// One row of the table of codes.
#[derive(Debug)]
pub struct CodeInfo {
    /// The number behind `TG`, unique and never reused.
    pub number: u16,
    /// The kind of error in a few words.
    pub title: &'static str,
    /// What it means for the mirrored data.
    pub meaning: &'static str,
    /// What to do, where an error says nothing more specific.
    pub hint: &'static str,
    /// What happens next by itself.
    pub retry: Retry,
    /// The five characters a PostgreSQL client sees.
    pub sqlstate: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $sqlstate:literal, $retry:ident, $title:literal, $meaning:literal, $hint:literal;)*) => {
        /// A stable error code. `Display` prints it as `TG0107`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The table's row of this code.
            pub fn info(self) -> &'static CodeInfo {
                match self {
                    $(Code::$name => {
                        const INFO: CodeInfo = CodeInfo {
                            number: $number,
                            title: $title,
                            meaning: $meaning,
                            hint: $hint,
                            retry: Retry::$retry,
                            sqlstate: $sqlstate,
                        };
                        &INFO
                    })*
                }
            }
        }
    };
}

codes! {
    // Reaching the server.
    WrongPassword = 101, "28P01", Never, "the database server refused the user or the password",
        "Nothing is lost. What was captured stays readable; new changes wait in the server's binlog until the login works again or the binlog is purged.",
        "Check user, password and the host part of the account ('cdc'@'%'). Set the account's password on the server to the one that the source has, or correct the environment variable or file of its secret; then RESUME SOURCE. Else DROP SOURCE and CREATE SOURCE with the right password.";
    Unreachable = 102, "08001", Backoff, "the database server cannot be reached",
        "Nothing is lost. Capture tries again by itself; changes wait in the server's binlog meanwhile.",
        "Check that the server runs, that hostname and port are right, and that no firewall is between.";
    UnknownHost = 103, "08001", Backoff, "the database server's host name is not known",
        "Nothing is lost. Capture tries again by itself.",
        "Check the spelling of hostname and the name service of this machine.";
    TlsFailed = 104, "08001", Never, "no encrypted connection to the database server could be made",
        "Nothing is lost. Nothing was sent in the clear instead.",
        "Check the options ssl-mode and ssl-ca; 'ssl-mode' = 'required' encrypts without checking the certificate.";
    ConnectionLost = 105, "08006", Backoff, "the connection to the database server was lost",
        "Nothing is lost. Capture connects again and goes on from the last checkpoint.",
        "If it happens again and again, look at the server's error log, at net_write_timeout, and at proxies that close idle connections.";
    ServerIdTaken = 106, "55006", Backoff, "another replica uses the same server id",
        "Nothing is lost. Two readers with one server id throw each other out, so capture steps back and tries again slowly.",
        "Every replica and every source needs a server id of its own: change the other reader's, or DROP SOURCE and CREATE SOURCE with another server-id. A range, as '5400-5408', lets capture choose the next id by itself.";
    PositionPurged = 107, "55000", Never, "the binlog position that is needed was purged",
        "Changes between the last checkpoint and the oldest binlog are gone on the server. The mirrored tables stay readable as of the last checkpoint, but cannot go on from it.",
        "DROP SOURCE and CREATE SOURCE start again with a new snapshot. Keep binlogs longer (binlog_expire_logs_seconds).";
    OtherServer = 108, "55000", Never, "the server is not the one that was captured, or its binlog was reset",
        "The stored position means nothing on this server, so capture stopped before reading anything from it. The mirrored tables stay as of the last checkpoint.",
        "Bring the old server back under the source's hostname, then RESUME SOURCE; else DROP SOURCE and CREATE SOURCE.";
    BinlogOff = 109, "55000", Never, "the server writes no binlog",
        "Changes cannot be captured. Nothing was started.",
        "Start the server with log_bin and a server_id; on a managed service switch binary logging or backups on.";
    BinlogFormat = 110, "55000", Never, "binlog_format is not ROW",
        "Statements in the binlog do not say which rows they changed, so capturing them would lose changes. Nothing was started.",
        "SET GLOBAL binlog_format = 'ROW', then let applications reconnect: running sessions keep their old value.";
    RowImage = 111, "55000", Never, "binlog_row_image is not FULL",
        "The binlog leaves out columns that a statement did not touch, so rows could not be rebuilt from it. Nothing was started.",
        "SET GLOBAL binlog_row_image = 'FULL', then let applications reconnect.";
    RowMetadata = 112, "01000", Never, "binlog_row_metadata is not FULL",
        "Capture works, but the binlog carries no column names: an ALTER that is not seen as a statement is found by types and column counts only.",
        "SET GLOBAL binlog_row_metadata = 'FULL' makes every change self-describing. It costs a few bytes per change.";
    PartialJson = 113, "55000", Never, "binlog_row_value_options contains PARTIAL_JSON",
        "Updates of JSON columns are logged as differences only, which cannot be applied to a mirror without its old document.",
        "SET GLOBAL binlog_row_value_options = '', then let applications reconnect.";
    MissingRight = 114, "42501", Never, "the capturing user lacks a right",
        "Nothing is lost. What needs the right was not started, or has stopped.",
        "Run the GRANT statement of the detail as an administrator, then repeat CREATE SOURCE, or RESUME SOURCE for a source that is there already.";
    NoTableMatched = 115, "42P01", Never, "no table matches",
        "Nothing is captured.",
        "Check the patterns against SHOW TABLES on the server: 'shop.*' is every table of shop, 'shop.orders' is one. Tables the user may not see do not exist for it.";
    NoPrimaryKey = 116, "42P16", Never, "the table has no primary key",
        "The table is left out: without a key, rows that look alike cannot be told apart.",
        "ALTER TABLE … ADD PRIMARY KEY on the server, or name a unique NOT NULL key with KEY (…) in the table rule.";
    UnsupportedType = 117, "0A000", Never, "the table has a column of a type that cannot be mirrored",
        "The table is left out, so that no column is silently missing.",
        "Leave the table out by name, or change the column's type.";
    TooManyConnections = 118, "53300", Backoff, "the server has no free connection",
        "Nothing is lost. Capture tries again by itself.",
        "Raise max_connections; capture uses one connection for the stream, one that asks for the log's end, and one for each parallel read of a snapshot (snapshot.parallelism).";
    ServerVersion = 119, "0A000", Never, "the server's version is not supported",
        "Nothing was started.",
        "MySQL 5.7 or newer, or MariaDB 10.4 or newer.";

    // Reading the log.
    EventNotUnderstood = 120, "0A000", Never, "the binlog holds an event that is not understood",
        "The event may change rows, so what it may concern stopped right before it, a table where that is known and else the source: nothing is skipped. The mirrored tables stay readable as of the last checkpoint.",
        "A table that has stopped: RESYNC SOURCE … TABLE … reads it again behind the event. A source that has stopped: RESUME SOURCE with a version that knows the event, or DROP SOURCE and CREATE SOURCE to start again behind it with a new snapshot.";
    DdlNotUnderstood = 121, "0A000", Never, "a schema change is not understood",
        "The table stopped right before the statement. Other tables go on.",
        "RESYNC SOURCE … TABLE … reads the table again with its present definition; readers keep its old state meanwhile.";
    MinimalImage = 122, "55000", Never, "the binlog holds a change without a full row image",
        "A session wrote with binlog_row_image = MINIMAL or NOBLOB. The table stopped right before that change, since the missing columns are not in the log.",
        "Find what sets binlog_row_image in its session; then RESYNC SOURCE … TABLE … reads the table again.";
    StatementDml = 123, "55000", Never, "the binlog holds a data change as a statement",
        "A session wrote with binlog_format = STATEMENT or MIXED. The tables concerned stopped right before it, since the statement does not say which rows it changed.",
        "Find what sets binlog_format in its session; then RESYNC SOURCE … TABLE … reads the table again.";
    ChecksumMismatch = 124, "XX001", Backoff, "an event of the binlog fails its checksum",
        "The event was not used. Capture reads it again from the last checkpoint; if it fails again, the server's binlog file is damaged.",
        "Look at the server's disk; SHOW BINLOG EVENTS on the file shows whether the server can read it itself.";
    SchemaMismatch = 125, "55000", Never, "a row in the binlog does not fit the table's known columns",
        "The table stopped right before that row, so that no value lands in a wrong column. Other tables go on.",
        "RESYNC SOURCE … TABLE … reads the table again with its present definition; readers keep its old state meanwhile.";
    KeyNotStorable = 126, "22023", Never, "a primary key value cannot be stored",
        "The table stopped: a key that becomes NULL or meets another key after conversion would merge rows that are different.",
        "Change the value on the server (a zero date, for one); then RESYNC SOURCE … TABLE … reads the table again.";
    ValueNotStorable = 127, "22023", Never, "a value cannot be stored",
        "The table stopped right before the row.",
        "Change the value on the server; then RESYNC SOURCE … TABLE … reads the table again.";
    PayloadNotUnpacked = 128, "XX001", Never, "a compressed transaction of the binlog cannot be unpacked",
        "Capture stopped right before the transaction: nothing is skipped.",
        "Switch binlog_transaction_compression (MariaDB: log_bin_compress) off on the server; then DROP SOURCE and CREATE SOURCE start again behind the transaction.";

    // Reading tables.
    TableGone = 130, "42P01", Never, "the table is not on the server any more",
        "What was mirrored of it stays readable.",
        "Nothing to do if it was meant. A table that was created again under the name is read by RESYNC SOURCE … TABLE …; one that was renamed is captured by DROP SOURCE and CREATE SOURCE.";
    QueryFailed = 131, "58000", Backoff, "the server refused a query",
        "Nothing is lost. The query is tried again by itself.",
        "The detail is the server's own message.";
    CascadesNotLogged = 132, "01000", Never, "foreign keys change rows that the binlog does not show",
        "Rows that ON DELETE or ON UPDATE CASCADE and SET NULL change on the server are not in its binlog: the mirror keeps their old state.",
        "Leave out the tables that are changed so, or update to MySQL 9.6 or newer, which logs such changes.";
    TableChanged = 133, "55000", Now, "the table's definition changed while it was read",
        "Nothing is lost: what was read is thrown away and read again with the new definition.",
        "Nothing to do.";
    NotVisible = 134, "57014", Backoff, "a transaction did not become visible in time",
        "Nothing is lost. Capture waits for it again.",
        "Look for a transaction that hangs in its commit on the server, semi-synchronous replication without a replica for one.";

    // Definitions.
    InvalidDefinition = 140, "22023", Never, "an option of the source is not valid",
        "Nothing was started.",
        "The detail names the option and what it may be.";
    InvalidPattern = 141, "22023", Never, "a table pattern is not valid",
        "Nothing was started.",
        r"Write db.table, db.*, or an anchored regular expression: '^shop\.(orders|items)$'. Flink CDC's 'shop.order_\.*' is accepted.";
    KeyUnknown = 143, "42703", Never, "a key column does not exist",
        "The table is left out.",
        "Check the column names of KEY (…).";

    // The object store and the other servers.
    StoreUnavailable = 150, "58030", Backoff, "the object store cannot be reached",
        "Nothing is lost. Nothing becomes visible until the store answers; capture tries again by itself.",
        "Check the store's address, its credentials and its status page.";
    StoreCorrupt = 151, "XX001", Never, "an object in the store is damaged",
        "What depends on the object cannot be read. Nothing was overwritten.",
        "Restore the named object from a backup or an object version, then RESUME SOURCE. Without a copy, RESYNC SOURCE … TABLE … reads the table again from the database; for the source's own objects, DROP SOURCE and CREATE SOURCE.";
    StoreFull = 152, "53100", Backoff, "the object store has no space left",
        "Nothing is lost. Capture goes on by itself when there is space.",
        "Free space, or raise the quota; DROP SOURCE … PURGE DATA removes what is not needed.";
    CommitUnknown = 153, "08007", Backoff, "the outcome of a checkpoint is not known",
        "The checkpoint is durable or it is not; capture reads it back and goes on from what it finds. No change is applied twice.",
        "Nothing to do, unless it repeats: then look at the store.";
    StoreLate = 154, "01000", Never, "the object store answers late",
        "Nothing is lost. Readers stay at the newest checkpoint until the store has answered.",
        "Nothing to do if it passes: the request is tried again by itself, for as long as it takes. If not, look at the store's address and status page, and at the network between.";
    Fenced = 155, "40001", Backoff, "another server has taken over this source",
        "What this server had not committed is thrown away, and captured by the other one.",
        "If nobody meant it, look for two servers with the same store and clocks or pauses of more than the lease.";
    StoreDenied = 156, "42501", Never, "the object store refuses access",
        "Nothing is lost. Nothing can be written.",
        "Check the credentials and the policy: objects are read, created conditionally, listed and deleted.";
    StoreUnconditional = 157, "0A000", Never, "the object store does not honour conditional creates",
        "Two servers could overwrite each other's checkpoints on it. Nothing but a probe was written, and nothing was started.",
        "Use a store that answers a PUT with 'If-None-Match: *' by 412 when the object exists: S3 and most that speak its protocol do so in their present versions.";
    LocalCacheLost = 158, "58030", Backoff, "a file of the local cache directory is lost or damaged",
        "No data is lost. Capture begins again from the last checkpoint, and makes the file anew from the data files of the store.",
        "Nothing to do, unless it repeats: then look at the disk that the directory of --cache is on.";

    // The job itself.
    Internal = 160, "XX000", Never, "an internal assumption does not hold",
        "The job stopped before anything doubtful became durable.",
        "Please report it with the log around this message. RESUME SOURCE tries again from the last checkpoint.";
    Stopped = 161, "57P01", Now, "the job is being stopped",
        "Nothing is lost. RESUME SOURCE goes on from the last checkpoint.",
        "Nothing to do.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TG{:04}", self.info().number)
    }
}

/// An error of capture, in PostgreSQL's form: message, detail, hint, and a stable code.
#[derive(Debug)]
pub struct Error {
    /// The kind.
    pub code: Code,
    /// What happened, in one line.
    pub message: String,
    /// Facts: names, positions, the server's own words.
    pub detail: Option<String>,
    /// What to do in this very case. [`Error::hint`] falls back to the code's.
    pub hint: Option<String>,
    /// What happens next by itself; the code's class unless the error knows better.
    pub retry: Retry,
    /// The cause.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What fallible functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a kind with its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: None, retry: code.info().retry, source: None }
    }

    /// Adds facts.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Replaces the code's hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Replaces the code's retry class.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do: the error's own hint, else the code's.
    pub fn hint(&self) -> &str {
        self.hint.as_deref().unwrap_or(self.code.info().hint)
    }

    /// The five characters a PostgreSQL client sees.
    pub fn sqlstate(&self) -> &'static str {
        self.code.info().sqlstate
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_number_of_its_own_and_complete_texts() {
        let mut numbers = BTreeSet::new();
        for code in Code::ALL {
            let info = code.info();
            assert!(numbers.insert(info.number), "{code} twice");
            assert!(info.sqlstate.len() == 5 && info.sqlstate.bytes().all(|b| b.is_ascii_alphanumeric()), "{code}");
            assert!(
                !info.title.ends_with('.') && info.title.starts_with(|c: char| c.is_lowercase()),
                "{code}: a title is no sentence"
            );
            assert!(info.meaning.ends_with('.') && info.hint.ends_with('.'), "{code}: meaning and hint are sentences");
        }
        assert_eq!(Code::PositionPurged.to_string(), "TG0107");
    }

    #[test]
    fn the_cause_is_kept_and_the_hint_falls_back_to_the_codes() {
        let error =
            Error::new(Code::Unreachable, "db1:3306 does not answer").with_source(std::io::Error::other("refused"));
        assert_eq!(error.to_string(), "db1:3306 does not answer [TG0102]");
        assert_eq!(error.hint(), Code::Unreachable.info().hint);
        assert_eq!(error.retry, Retry::Backoff);
        assert_eq!(StdError::source(&error).map(ToString::to_string).as_deref(), Some("refused"));
        assert_eq!(error.with_hint("look").hint(), "look");
    }
}
