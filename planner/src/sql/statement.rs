//! The statements, as the parser gives them. Names are folded as PostgreSQL folds them; a `position` counts characters from 1.

use std::time::Duration;

use datafusion::sql::parser::Statement as QueryStatement;

/// A name as written, and where.
#[derive(Debug, Clone)]
pub struct Name {
    pub value: String,
    pub position: usize,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The value of an option: text, or the name of a secret that holds it.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    Text(String),
    Secret(String),
}

/// `name = value` in `WITH (…)` or `TO MYSQL (…)`, the name as written.
#[derive(Debug, Clone)]
pub struct OptionSetting {
    pub name: String,
    pub name_position: usize,
    pub value: OptionValue,
    pub value_position: usize,
}

impl PartialEq for OptionSetting {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }
}

/// Where a secret's text is.
#[derive(Clone, PartialEq)]
pub enum SecretValue {
    Literal(String),
    /// An environment variable of the server.
    Environment(String),
    /// A file on the server's machine.
    File(String),
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("Literal(***)"),
            Self::Environment(name) => f.debug_tuple("Environment").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// One entry of `TABLES (…)` or `FOR TABLES (…)`.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRule {
    /// `db.table`, a glob, or an anchored regular expression.
    pub pattern: String,
    /// Schema and table to mirror into.
    pub target: Option<(String, String)>,
    /// The key to use instead of the primary key.
    pub key: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// By the options `tables`, or `database-name` and `table-name`, or by rules alone.
    Options,
    AllTables,
    Schemas(Vec<String>),
    Tables(Vec<TableRule>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateSource {
    pub name: Name,
    pub if_not_exists: bool,
    pub connection: Option<Name>,
    pub selection: Selection,
    pub rules: Vec<TableRule>,
    pub options: Vec<OptionSetting>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateConnection {
    pub name: Name,
    pub if_not_exists: bool,
    pub options: Vec<OptionSetting>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CreateSecret {
    pub name: Name,
    pub if_not_exists: bool,
    pub value: SecretValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Source,
    Connection,
    Secret,
}

impl ObjectKind {
    pub fn noun(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Connection => "connection",
            Self::Secret => "secret",
        }
    }

    pub fn keyword(self) -> &'static str {
        match self {
            Self::Source => "SOURCE",
            Self::Connection => "CONNECTION",
            Self::Secret => "SECRET",
        }
    }
}

/// What becomes of a dropped source's mirrored tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DroppedData {
    Keep,
    Purge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowKind {
    Secrets,
    Connections,
    Sources,
    Jobs,
    Tables,
    Checkpoints,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ShowFilter {
    Like(String),
    /// The condition as written; it starts at the given character.
    Where(String, usize),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WaitTarget {
    /// All tables have been read once.
    Snapshot,
    /// What the server has committed by now is visible.
    Current,
    /// These transactions are visible.
    Gtid(String, usize),
    Checkpoint(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardKind {
    All,
    Plans,
    Sequences,
    Temporary,
}

/// The value of `SET name = …`.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingValue {
    Default,
    Text(String),
}

#[derive(Debug, Clone)]
pub enum Statement {
    CreateSecret(CreateSecret),
    CreateConnection(CreateConnection),
    CreateSource(CreateSource),
    ExplainSource {
        format: ExplainFormat,
        source: CreateSource,
    },
    Drop {
        kind: ObjectKind,
        name: Name,
        if_exists: bool,
        data: DroppedData,
    },
    Show {
        kind: ShowKind,
        from: Option<Name>,
        filter: Option<ShowFilter>,
    },
    ShowCreate {
        kind: ObjectKind,
        name: Name,
    },
    Pause(Name),
    Resume(Name),
    /// `RESYNC SOURCE source [ TABLE [ schema. ] table ]`.
    Resync {
        source: Name,
        table: Option<(Option<Name>, Name)>,
    },
    Checkpoint(Option<Name>),
    /// `COMPACT TABLE [ schema. ] table`.
    CompactTable {
        schema: Option<Name>,
        table: Name,
    },
    /// `VERIFY STORAGE [ FOR SOURCE name ]`.
    VerifyStorage(Option<Name>),
    Wait {
        source: Name,
        target: WaitTarget,
        timeout: Option<Duration>,
    },
    Begin {
        read_write: bool,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    Set {
        name: Name,
        value: SettingValue,
        local: bool,
    },
    ShowSetting(Name),
    ShowAll,
    Reset(Name),
    ResetAll,
    Discard(DiscardKind),
    /// `DEALLOCATE name`, or `ALL`. Prepared statements belong to the front end.
    Deallocate(Option<String>),
    /// `UNLISTEN`: there are no channels, so nothing is left to do.
    Unlisten,
    /// A statement that would change data or define tables: its command, in capitals.
    ReadOnly(String),
    /// Anything else.
    Query(Box<QueryStatement>),
}
