//! MySQL and MariaDB: connections, the catalog, pages of a snapshot, the binlog, schema changes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};

pub mod binlog;
pub mod catalog;
pub mod charset;
pub mod connect;
pub(crate) mod ddl;
pub(crate) mod metadata_lock;
pub mod server;
pub mod snapshot;
pub mod types;
pub mod value;
pub mod wire;

/// The two families of servers. They differ in GTIDs, in the binlog's events and in many statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// MySQL and what is built from it (Percona Server, Aurora, RDS).
    Mysql,
    /// MariaDB.
    MariaDb,
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavor::Mysql => "MySQL",
            Flavor::MariaDb => "MariaDB",
        })
    }
}

/// What a server says about itself when a connection is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// MySQL or MariaDB.
    pub flavor: Flavor,
    /// The version in the server's own words, `9.7.4` or `10.11.19-MariaDB-log`.
    pub version: String,
    /// MySQL's `server_uuid`; MariaDB has none.
    pub server_uuid: Option<String>,
    /// The server's own id in replication.
    pub server_id: u32,
    /// Whether transactions carry GTIDs.
    pub gtid: bool,
    /// How table names compare: 0 by case, 1 and 2 without.
    pub lower_case_table_names: u8,
}

impl ServerInfo {
    /// Whether both are the same server. Behind one name may be several, one after the other or at once, and what one of
    /// them says of its log and of its rows means nothing on another.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.flavor, self.server_id, &self.server_uuid) == (other.flavor, other.server_id, &other.server_uuid)
    }

    /// Errors: [`Code::ConnectionLost`] if this is another server than `expected`: whoever began with that one has to
    /// begin again.
    pub fn must_be(&self, expected: &Self) -> Result<()> {
        if self.is_same_server(expected) {
            return Ok(());
        }
        let name = |info: &Self| match &info.server_uuid {
            Some(uuid) => format!("{} {} with server_id {} ({uuid})", info.flavor, info.version, info.server_id),
            None => format!("{} {} with server_id {}", info.flavor, info.version, info.server_id),
        };
        Err(Error::new(Code::ConnectionLost, "the server is another one than a moment ago").with_detail(format!(
            "It was {}, and is {}. All connections of a source have to lead to one server.",
            name(expected),
            name(self)
        )))
    }

    /// Whether table names ignore case.
    pub fn folds_case(&self) -> bool {
        self.lower_case_table_names != 0
    }

    /// Major, minor and patch number; zeros for what the version does not say.
    pub fn version_numbers(&self) -> (u16, u16, u16) {
        // Old MariaDB versions put a false MySQL version in front, for clients that cannot count to ten.
        let version = self.version.strip_prefix("5.5.5-").unwrap_or(&self.version);
        let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        (next(), next(), next())
    }
}
