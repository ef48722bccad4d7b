//! The definition of a source: the server, the tables, and how they are captured.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::error::{Code, Error, Result};

mod pattern;

pub use pattern::TablePattern;

/// Whether and how the connection is encrypted. The names are MySQL's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never.
    Disabled,
    /// If the server can; its certificate is not checked.
    Preferred,
    /// Always; the server's certificate is not checked.
    Required,
    /// Always; the certificate must come from a known authority and carry the host's name.
    VerifyIdentity,
}

impl FromStr for SslMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            "disabled" | "disable" => Ok(Self::Disabled),
            "preferred" | "prefer" => Ok(Self::Preferred),
            "required" | "require" => Ok(Self::Required),
            "verify-identity" | "verify-full" => Ok(Self::VerifyIdentity),
            _ => Err(Error::new(Code::InvalidDefinition, format!("ssl_mode `{text}` is not known"))
                .with_detail("It may be disabled, preferred, required or verify-identity.")),
        }
    }
}

/// How to reach a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionOptions {
    /// Host name or address.
    pub hostname: String,
    /// TCP port.
    pub port: u16,
    /// The capturing user.
    pub username: String,
    /// Its password; never printed and never serialised.
    #[serde(skip)]
    pub password: String,
    /// Encryption; unset means preferred, and disabled for a loopback address.
    #[serde(default)]
    pub ssl_mode: Option<SslMode>,
    /// A PEM file with the authorities that [`SslMode::VerifyIdentity`] trusts; unset means the public ones.
    #[serde(default)]
    pub ssl_ca: Option<String>,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
}

impl ConnectionOptions {
    /// Options for a server with the defaults for the rest.
    pub fn new(
        hostname: impl Into<String>,
        port: u16,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        Self {
            hostname: hostname.into(),
            port,
            username: username.into(),
            password: password.into(),
            ssl_mode: None,
            ssl_ca: None,
            connect_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for ConnectionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionOptions")
            .field("hostname", &self.hostname)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("password", &"…")
            .field("ssl_mode", &self.ssl_mode)
            .field("ssl_ca", &self.ssl_ca)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// Which tables are captured, and where their mirror is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRule {
    /// The tables on the server.
    pub pattern: TablePattern,
    /// Schema and name of the mirror; unset means those of the table.
    #[serde(default)]
    pub target: Option<(String, String)>,
    /// The key to use instead of the table's primary key.
    #[serde(default)]
    pub key: Option<Vec<String>>,
}

impl TableRule {
    /// A rule that keeps names and keys.
    pub fn new(pattern: TablePattern) -> Self {
        Self { pattern, target: None, key: None }
    }
}

/// The server ids a source may use towards its server: one, or one out of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerIds {
    /// The smallest.
    pub first: u32,
    /// The largest, inclusive.
    pub last: u32,
}

impl ServerIds {
    /// How many ids there are to choose from.
    pub fn count(&self) -> u32 {
        self.last - self.first + 1
    }
}

impl FromStr for ServerIds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(Self { first, last }),
            _ => Err(Error::new(Code::InvalidDefinition, format!("server_id `{text}` is not valid"))
                .with_detail("It is a number from 1 to 4294967295, or a range like 5400-5408.")),
        }
    }
}

impl fmt::Display for ServerIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl Serialize for ServerIds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What happens when the position that is needed was purged on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnPurged {
    /// The source stops with an error.
    #[default]
    Error,
    /// The source is read again from a new snapshot. Not built yet: `CREATE SOURCE` refuses it.
    Resnapshot,
}

/// How a source is captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureOptions {
    /// The id towards the server; unset means one derived from the source's identity.
    pub server_id: Option<ServerIds>,
    /// The longest time between a change's arrival and the checkpoint that shows it.
    pub checkpoint_interval: Duration,
    /// How many key ranges are read at a time.
    pub snapshot_parallelism: usize,
    /// Rows of one page, the unit of a snapshot's progress.
    pub page_rows: usize,
    /// Rows of one key range, the unit of its parallelism.
    pub range_rows: u64,
    /// The longest silence of the server before it says that it lives; three of them end the connection.
    pub heartbeat_interval: Duration,
    /// What happens when the position is gone.
    pub on_purged: OnPurged,
    /// Memory for changes that are not yet in files.
    pub memory_bytes: usize,
    /// Buckets of each table; unset means by estimated size.
    pub buckets: Option<u32>,
    /// Whether tables get a changelog, so that other engines can follow them.
    pub changelog: bool,
    /// How long a replaced snapshot of a table can still be read.
    pub snapshot_time_retained: Duration,
    /// So many of a table's newest snapshots stay, however old they are.
    pub snapshot_num_retained_min: usize,
    /// Of more snapshots than this the oldest go, however young they are.
    pub snapshot_num_retained_max: Option<usize>,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            server_id: None,
            checkpoint_interval: Duration::from_secs(1),
            snapshot_parallelism: 2,
            page_rows: 65_536,
            range_rows: 500_000,
            heartbeat_interval: Duration::from_secs(10),
            on_purged: OnPurged::Error,
            memory_bytes: 256 << 20,
            buckets: None,
            changelog: false,
            snapshot_time_retained: Duration::from_secs(3600),
            snapshot_num_retained_min: 10,
            snapshot_num_retained_max: None,
        }
    }
}

/// A source: everything that is needed to capture it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceDefinition {
    /// Its identity, under which its checkpoints are stored. It never changes.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The server.
    pub connection: ConnectionOptions,
    /// The tables. The first rule that matches a table is the one that holds.
    pub tables: Vec<TableRule>,
    /// Tables left out, whatever a rule says.
    #[serde(default)]
    pub exclude: Vec<TablePattern>,
    /// How it is captured.
    #[serde(default)]
    pub options: CaptureOptions,
}

/// Schemas of the servers themselves; never captured.
pub(crate) const SYSTEM_SCHEMAS: [&str; 4] = ["information_schema", "mysql", "performance_schema", "sys"];

impl SourceDefinition {
    /// The rule that holds for a table, if it is captured. `fold_case`: the server's table names ignore case
    /// (`lower_case_table_names` is not 0).
    pub fn rule_for(&self, database: &str, table: &str, fold_case: bool) -> Option<&TableRule> {
        if SYSTEM_SCHEMAS.iter().any(|schema| schema.eq_ignore_ascii_case(database))
            || self.exclude.iter().any(|pattern| pattern.matches(database, table, fold_case))
        {
            return None;
        }
        self.tables.iter().find(|rule| rule.pattern.matches(database, table, fold_case))
    }

    /// Whether a table is captured.
    pub fn matches(&self, database: &str, table: &str, fold_case: bool) -> bool {
        self.rule_for(database, table, fold_case).is_some()
    }

    /// Schema and name of a table's mirror.
    pub fn target_of(&self, database: &str, table: &str, fold_case: bool) -> Option<(String, String)> {
        let rule = self.rule_for(database, table, fold_case)?;
        Some(rule.target.clone().unwrap_or_else(|| (database.to_owned(), table.to_owned())))
    }

    /// The ids to use towards the server: the given ones, else one derived from the source's identity.
    pub fn server_ids(&self) -> ServerIds {
        self.options.server_id.unwrap_or_else(|| {
            // The upper half of the range: ids chosen by hand are small numbers.
            let (high, low) = self.id.as_u64_pair();
            let mixed = (high ^ low.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let id = 0x8000_0000 | u32::try_from(mixed >> 33).unwrap_or(1);
            // 2^32 - 1 is a legal id, but some servers keep it for themselves.
            let id = id.min(u32::MAX - 1);
            ServerIds { first: id, last: id }
        })
    }

    /// Checks what can be checked without the server.
    pub fn validate(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(Code::InvalidDefinition, message));
        let options = &self.options;
        if self.connection.hostname.trim().is_empty() {
            return invalid("hostname is empty".to_owned());
        }
        if self.connection.port == 0 {
            return invalid("port is 0".to_owned());
        }
        if self.connection.username.is_empty() {
            return invalid("username is empty".to_owned());
        }
        if self.tables.is_empty() {
            return Err(Error::new(Code::InvalidDefinition, "the source names no tables")
                .with_hint("Write tables = 'db.*', or name them with TABLES (…)."));
        }
        if self.connection.connect_timeout < Duration::from_millis(250) {
            return invalid("connect_timeout is below 250 ms".to_owned());
        }
        if options.checkpoint_interval < Duration::from_millis(10) {
            return invalid("checkpoint_interval is below 10 ms".to_owned());
        }
        if options.snapshot_parallelism == 0 || options.snapshot_parallelism > 64 {
            return invalid("snapshot_parallelism is not within 1 and 64".to_owned());
        }
        if options.page_rows == 0 || options.page_rows > 1_000_000 {
            return invalid("page_rows is not within 1 and 1000000".to_owned());
        }
        if options.range_rows == 0 {
            return invalid("range_rows is 0".to_owned());
        }
        if options.heartbeat_interval < Duration::from_millis(100)
            || options.heartbeat_interval > Duration::from_secs(3600)
        {
            return invalid("heartbeat_interval is not within 100 ms and 1 hour".to_owned());
        }
        if options.memory_bytes < 16 << 20 {
            return invalid("memory_bytes is below 16 MiB".to_owned());
        }
        if options.buckets.is_some_and(|buckets| buckets == 0 || buckets > 4096) {
            return invalid("buckets is not within 1 and 4096".to_owned());
        }
        let (min, max) = (options.snapshot_num_retained_min, options.snapshot_num_retained_max);
        if min == 0 || max.is_some_and(|max| max < min) {
            return invalid("snapshot_num_retained_min is 0 or above snapshot_num_retained_max".to_owned());
        }
        for rule in &self.tables {
            if rule.key.as_ref().is_some_and(Vec::is_empty) {
                return invalid(format!("the key of `{}` names no column", rule.pattern));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
