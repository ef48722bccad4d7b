//! Keeps the definitions of tables as they are for a moment.
//!
//! What `information_schema` says of a table and what the log says of it are not changed at one instant: a schema change
//! is visible some time before or after it is in the log. A transaction that has read from a table holds a metadata
//! lock on it to its end (MySQL manual, "Metadata Locking"; MariaDB, "Metadata Locking"). Changes of rows do not mind.
//! A schema change needs the lock for itself when it is carried out, logged and made visible, and gives it back after
//! the last of the three. So while the lock is held, each schema change of the table is seen by all or by none.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;

use crate::error::{Code, Error, Result, Retry};
use crate::mysql::ServerInfo;
use crate::mysql::connect::{Conn, connect, query_failed};
use crate::mysql::server::{Asked, DefinitionLock};
use crate::mysql::snapshot::key::quote;
use crate::source::definition::ConnectionOptions;

/// How long a schema change that is being carried out is waited for, in seconds. Meanwhile whoever wants to use a table
/// on which another schema change waits for us has to wait too.
const PATIENCE_S: u32 = 3;

/// Tables of one statement; each is a name to parse and no row to read.
const AT_ONCE: usize = 100;

/// Metadata locks on tables, until it is dropped.
pub(crate) struct MetadataLock {
    conn: Conn,
}

impl MetadataLock {
    /// Locks tables, each as its database and its name, on a connection of its own: statements that the caller runs
    /// meanwhile may end a transaction. A table that cannot be read at all is left unlocked; whoever reads it says why.
    pub(crate) async fn ask(
        connection: &ConnectionOptions,
        server: &ServerInfo,
        tables: &[(String, String)],
    ) -> Result<Asked> {
        let (conn, now) = connect(connection).await?;
        now.must_be(server)?;
        let mut lock = Self { conn };
        match lock.lock(tables).await {
            Ok(()) => Ok(Asked::Locked(Box::new(lock))),
            Err(error) => {
                lock.give_back().await;
                if passes(&error) { Ok(Asked::Missed(error)) } else { Err(error) }
            }
        }
    }

    async fn lock(&mut self, tables: &[(String, String)]) -> Result<()> {
        self.run(&format!("SET SESSION lock_wait_timeout = {PATIENCE_S}")).await?;
        self.run("START TRANSACTION").await?;
        for tables in tables.chunks(AT_ONCE) {
            let selects: Vec<_> = tables
                .iter()
                .map(|(database, table)| format!("(SELECT 1 FROM {}.{} LIMIT 0)", quote(database), quote(table)))
                .collect();
            match self.run(&selects.join(" UNION ALL ")).await {
                Err(error) if is_of_a_table(&error) => {}
                locked => {
                    locked?;
                    continue;
                }
            }
            for (select, (database, table)) in selects.iter().zip(tables) {
                match self.run(select).await {
                    Err(error) if is_of_a_table(&error) => {
                        tracing::debug!(database, table, %error, "a table cannot be read and is not locked");
                    }
                    locked => locked?,
                }
            }
        }
        Ok(())
    }

    async fn run(&mut self, statement: &str) -> Result<()> {
        let what = "the definitions of the source's tables could not be kept still";
        self.conn.query_drop(statement).await.map_err(|error| query_failed(what, error))
    }

    async fn give_back(self) {
        // The server ends the transaction of a connection that is closed.
        self.conn.close().await;
    }
}

#[async_trait]
impl DefinitionLock for MetadataLock {
    async fn release(self: Box<Self>) {
        self.give_back().await;
    }
}

/// A table is gone, or is being changed for longer than we wait.
fn passes(error: &Error) -> bool {
    error.code == Code::TableGone || error.retry == Retry::Now
}

/// Neither that nor the connection's fault: the server refuses to read some table.
fn is_of_a_table(error: &Error) -> bool {
    !passes(error) && matches!(error.code, Code::QueryFailed | Code::MissingRight)
}
