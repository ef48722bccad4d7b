//! The seam to a server: everything that capture asks one for.
//!
//! What is behind it is SQL and sockets, and is tested against real servers. What is before it, from the pages of a snapshot
//! to the checkpoints, knows these traits alone and runs as well on a server that a test has thought up, with a clock of its
//! own and with every fault there is.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;

use super::ServerInfo;
use super::binlog::stream::{EventStream, open_stream};
use super::catalog::{self, MatchedTable};
use super::connect::{self, Conn};
use super::metadata_lock::MetadataLock;
use super::snapshot::pages::PageQuery;
use super::snapshot::ranges;
use super::snapshot::{KeyColumn, KeyValue};
use super::types::MysqlTable;
use super::wire::RowConn;
use super::wire::row::Form;
use crate::error::{Error, Result};
use crate::source::definition::{ConnectionOptions, SourceDefinition};
use crate::source::position::{FilePosition, GtidSet, Position};

/// How a job reaches the server of a source.
pub type ServerOf = Arc<dyn Fn(&ConnectionOptions) -> Arc<dyn SourceServer> + Send + Sync>;

/// A server, to which connections can be made.
#[async_trait]
pub trait SourceServer: Debug + Send + Sync {
    /// A connection for all but pages, and what the server says of itself.
    async fn connect(&self) -> Result<(Box<dyn SourceConnection>, ServerInfo)>;

    /// A connection for pages to the server that `info` describes.
    async fn connect_for_rows(&self, info: &ServerInfo) -> Result<Box<dyn PageConnection>>;

    /// The binlog of the server that `info` describes from a position on; see [`open_stream`].
    async fn open_stream(
        &self,
        info: &ServerInfo,
        position: &Position,
        server_id: u32,
        heartbeat: Duration,
    ) -> Result<EventStream>;

    /// Keeps the definitions of tables on the server that `info` describes as they are, each given as its database and its name, until the lock is released
    /// or dropped.
    async fn lock_definitions(&self, info: &ServerInfo, tables: &[(String, String)]) -> Result<Asked>;
}

/// What came of asking for the locks.
pub enum Asked {
    /// The definitions stand still.
    Locked(Box<dyn DefinitionLock>),
    /// A table is being changed, or is not there any more. Asking again, perhaps for other tables, may succeed.
    Missed(Error),
}

/// Definitions of tables that stand still.
#[async_trait]
pub trait DefinitionLock: Send + Sync {
    /// Lets them change again.
    async fn release(self: Box<Self>);
}

/// What SELECTs see.
#[derive(Debug, Clone)]
pub struct Visible {
    /// A prefix of the log, all of which they see.
    pub prefix: Position,
    /// All transactions that they see, where more are known than the prefix has.
    pub beyond: Option<GtidSet>,
}

/// A connection for questions.
#[async_trait]
pub trait SourceConnection: Send + Sync {
    /// A prefix of the log whose every transaction is visible to SELECTs from now on.
    async fn start_position(&mut self, info: &ServerInfo) -> Result<Visible>;

    /// The end of the log: nothing that a SELECT has seen lies behind it.
    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition>;

    /// Waits until every transaction of the position is visible to SELECTs.
    async fn wait_visible(&mut self, info: &ServerInfo, position: &Position, patience: Duration) -> Result<()>;

    /// The prepared XA transactions of which the position does not say whether a SELECT sees them.
    async fn prepared(&mut self, info: &ServerInfo) -> Result<Vec<String>>;

    /// The tables that a definition matches, with the reason for each that is not captured.
    async fn list_tables(&mut self, info: &ServerInfo, definition: &SourceDefinition) -> Result<Vec<MatchedTable>>;

    /// The definitions of tables of one database; tables that do not exist are missing in the answer.
    async fn load_tables(&mut self, info: &ServerInfo, database: &str, names: &[&str]) -> Result<Vec<MysqlTable>>;

    /// The smallest and the largest key of a table with one key column; NULL in an empty table.
    async fn key_ends(&mut self, table: &MysqlTable) -> Result<Option<(Value, Value)>>;

    /// The key of the row that is `rows` rows behind a key, or behind the table's beginning: its values, or `None` behind
    /// the end.
    async fn key_behind(
        &mut self,
        table: &MysqlTable,
        key: &[KeyColumn],
        after: Option<&[KeyValue]>,
        rows: u64,
    ) -> Result<Option<Vec<Value>>>;

    /// Says good-bye to the server.
    async fn close(self: Box<Self>);
}

/// A connection for pages.
#[async_trait]
pub trait PageConnection: Send + Sync {
    /// The end of the log, as [`SourceConnection::log_end`].
    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition>;

    /// Runs the query, and hands over each row: the forms of its values, and the packet they are in.
    async fn select(&mut self, query: &PageQuery<'_>, take: TakeRow<'_>) -> Result<()>;

    /// Rows that fit into a page, of tables whose rows are too large for the limit asked for.
    fn page_limits(&mut self) -> &mut HashMap<String, usize>;

    /// Says good-bye to the server.
    async fn close(self: Box<Self>);
}

/// Takes a row of the binary protocol.
pub type TakeRow<'a> = &'a mut (dyn FnMut(&[Form], &[u8]) + Send);

/// A server in the network.
#[derive(Debug)]
pub struct NetworkServer {
    options: ConnectionOptions,
}

impl NetworkServer {
    pub fn new(options: ConnectionOptions) -> Self {
        Self { options }
    }

    /// Every source's server is in the network.
    pub fn of_options() -> ServerOf {
        Arc::new(|options| Arc::new(Self::new(options.clone())))
    }
}

#[async_trait]
impl SourceServer for NetworkServer {
    async fn connect(&self) -> Result<(Box<dyn SourceConnection>, ServerInfo)> {
        let (conn, info) = connect::connect(&self.options).await?;
        Ok((Box::new(conn), info))
    }

    async fn connect_for_rows(&self, info: &ServerInfo) -> Result<Box<dyn PageConnection>> {
        Ok(Box::new(connect::connect_for_rows(&self.options, info).await?))
    }

    async fn open_stream(
        &self,
        info: &ServerInfo,
        position: &Position,
        server_id: u32,
        heartbeat: Duration,
    ) -> Result<EventStream> {
        open_stream(&self.options, info, position, server_id, heartbeat).await
    }

    async fn lock_definitions(&self, info: &ServerInfo, tables: &[(String, String)]) -> Result<Asked> {
        MetadataLock::ask(&self.options, info, tables).await
    }
}

#[async_trait]
impl SourceConnection for Conn {
    async fn start_position(&mut self, info: &ServerInfo) -> Result<Visible> {
        connect::start_position(self, info).await
    }

    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition> {
        connect::log_end(self, info).await
    }

    async fn wait_visible(&mut self, info: &ServerInfo, position: &Position, patience: Duration) -> Result<()> {
        connect::wait_visible(self, info, position, patience).await
    }

    async fn prepared(&mut self, info: &ServerInfo) -> Result<Vec<String>> {
        connect::prepared(self, info).await
    }

    async fn list_tables(&mut self, info: &ServerInfo, definition: &SourceDefinition) -> Result<Vec<MatchedTable>> {
        catalog::list_tables(self, info, definition).await
    }

    async fn load_tables(&mut self, info: &ServerInfo, database: &str, names: &[&str]) -> Result<Vec<MysqlTable>> {
        catalog::load_tables(self, info, database, names).await
    }

    async fn key_ends(&mut self, table: &MysqlTable) -> Result<Option<(Value, Value)>> {
        ranges::key_ends(self, table).await
    }

    async fn key_behind(
        &mut self,
        table: &MysqlTable,
        key: &[KeyColumn],
        after: Option<&[KeyValue]>,
        rows: u64,
    ) -> Result<Option<Vec<Value>>> {
        ranges::key_behind(self, table, key, after, rows).await
    }

    async fn close(self: Box<Self>) {
        Conn::close(*self).await;
    }
}

#[async_trait]
impl PageConnection for RowConn {
    async fn log_end(&mut self, info: &ServerInfo) -> Result<FilePosition> {
        connect::log_end_for_rows(self, info).await
    }

    async fn select(&mut self, query: &PageQuery<'_>, take: TakeRow<'_>) -> Result<()> {
        query.run(self, take).await
    }

    fn page_limits(&mut self) -> &mut HashMap<String, usize> {
        RowConn::page_limits(self)
    }

    async fn close(self: Box<Self>) {
        RowConn::close(*self).await;
    }
}
