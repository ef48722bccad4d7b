//! The examination of a source before it starts: can the server be captured, may the user do it, and what is captured.

use mysql_async::Row;
use mysql_async::prelude::Queryable;

use crate::error::{Code, Error, Result};
use crate::mysql::catalog::{MatchedTable, list_tables, unlogged_cascades};
use crate::mysql::connect::{Conn, ask, connect, log_end, query_failed};
use crate::mysql::{Flavor, ServerInfo};
use crate::source::definition::SourceDefinition;

mod grants;

pub use grants::Grants;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStatus {
    /// As it should be.
    Passed,
    /// Capture works, but something is worth knowing.
    Warning,
    /// Capture cannot start.
    Failed,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, `binlog_format` for one.
    pub name: String,
    /// The outcome.
    pub status: CheckStatus,
    /// What was found.
    pub detail: String,
    /// What to do about it, unless it passed.
    pub hint: Option<String>,
    /// The code of the error it would be.
    pub code: Option<Code>,
}

impl Check {
    fn passed(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: CheckStatus::Passed, detail: detail.into(), hint: None, code: None }
    }

    fn found(name: &str, status: CheckStatus, code: Code, detail: impl Into<String>) -> Self {
        let hint = Some(code.info().hint.to_owned());
        Self { name: name.to_owned(), status, detail: detail.into(), hint, code: Some(code) }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What an examination found.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The server.
    pub server: ServerInfo,
    /// Everything that was looked at.
    pub checks: Vec<Check>,
    /// The tables that the rules match, those left out included.
    pub tables: Vec<MatchedTable>,
}

impl Examination {
    /// The first reason why capture cannot start.
    pub fn failure(&self) -> Option<Error> {
        let check = self.checks.iter().find(|check| check.status == CheckStatus::Failed)?;
        let code = check.code.unwrap_or(Code::Internal);
        let mut error = Error::new(code, code.info().title).with_detail(check.detail.clone());
        error.hint.clone_from(&check.hint);
        Some(error)
    }

    /// What is worth knowing although capture can start.
    pub fn warnings(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.status == CheckStatus::Warning)
    }

    /// The tables that are captured.
    pub fn captured(&self) -> impl Iterator<Item = &MatchedTable> {
        self.tables.iter().filter(|table| table.left_out.is_none())
    }
}

/// Looks at everything a source needs. An error means that the looking itself failed; what is wrong with the server is in
/// the checks.
pub async fn examine(definition: &SourceDefinition) -> Result<Examination> {
    definition.validate()?;
    let (mut conn, server) = connect(&definition.connection).await?;
    let examination = examine_on(&mut conn, &server, definition).await;
    conn.close().await;
    examination
}

async fn examine_on(conn: &mut Conn, server: &ServerInfo, definition: &SourceDefinition) -> Result<Examination> {
    let mut checks = vec![Check::passed("server", format!("{} {}", server.flavor, server.version))];
    let settings = Settings::read(conn).await?;
    settings.check(server, &mut checks);
    let grants = Grants::read(conn).await?;
    check_rights(conn, server, &grants, &settings, definition, &mut checks).await?;
    let mut tables = list_tables(conn, server, definition).await?;
    for table in &mut tables {
        if table.left_out.is_none() && !grants.roles && !grants.allows_select(&table.database, &table.name) {
            table.left_out = Some("the user may not SELECT from it".to_owned());
        }
    }
    check_tables(&tables, definition, &mut checks);
    let cascades = unlogged_cascades(conn, server, definition).await?;
    if !cascades.is_empty() {
        let shown: Vec<&str> = cascades.iter().take(5).map(String::as_str).collect();
        let more = if cascades.len() > shown.len() {
            format!(" and {} more", cascades.len() - shown.len())
        } else {
            String::new()
        };
        let detail = format!("Foreign keys with actions that the binlog does not show: {}{more}.", shown.join(", "));
        checks.push(Check::found("foreign keys", CheckStatus::Warning, Code::CascadesNotLogged, detail));
    }
    Ok(Examination { server: server.clone(), checks, tables })
}

/// The server's settings that matter, as `SHOW GLOBAL VARIABLES` has them. One that a server does not know is unset.
#[derive(Debug, Default)]
struct Settings(Vec<(String, String)>);

const SETTINGS: &str = "'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_row_value_options', \
    'gtid_mode', 'server_id', 'binlog_expire_logs_seconds', 'expire_logs_days', 'binlog_order_commits', \
    'max_binlog_total_size'";

impl Settings {
    async fn read(conn: &mut Conn) -> Result<Self> {
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({SETTINGS})");
        ask(conn, "the server's settings could not be read", &sql).await.map(Self)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn check(&self, server: &ServerInfo, checks: &mut Vec<Check>) {
        use CheckStatus::{Failed, Warning};
        let is = |name: &str, wanted: &str| self.get(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        let says = |name: &str| format!("{name} = {}", self.get(name).unwrap_or("(unknown)"));
        if is("log_bin", "ON") {
            checks.push(Check::passed("log_bin", says("log_bin")));
        } else {
            checks.push(Check::found("log_bin", Failed, Code::BinlogOff, says("log_bin")));
        }
        if server.server_id == 0 {
            checks.push(Check::found(
                "server_id",
                Failed,
                Code::BinlogOff,
                "server_id = 0: the server refuses replicas.",
            ));
        }
        for (name, wanted, code) in
            [("binlog_format", "ROW", Code::BinlogFormat), ("binlog_row_image", "FULL", Code::RowImage)]
        {
            match self.get(name) {
                Some(value) if value.eq_ignore_ascii_case(wanted) => checks.push(Check::passed(name, says(name))),
                // MySQL has announced to drop binlog_format: then there is only ROW.
                None => checks.push(Check::passed(name, format!("{name} is not a setting of this server"))),
                Some(_) => checks.push(Check::found(name, Failed, code, says(name))),
            }
        }
        if is("binlog_row_metadata", "FULL") {
            checks.push(Check::passed("binlog_row_metadata", says("binlog_row_metadata")));
        } else {
            let detail = format!(
                "{}. Columns are then known from the server's catalog and the schema changes in the log, and checked by type and number.",
                says("binlog_row_metadata")
            );
            checks.push(Check::found("binlog_row_metadata", Warning, Code::RowMetadata, detail));
        }
        if self
            .get("binlog_row_value_options")
            .is_some_and(|options| options.to_ascii_uppercase().contains("PARTIAL_JSON"))
        {
            let detail = says("binlog_row_value_options");
            checks.push(Check::found("binlog_row_value_options", Failed, Code::PartialJson, detail));
        }
        if server.flavor == Flavor::Mysql && !server.gtid {
            checks.push(
                Check::found(
                    "gtid_mode",
                    Warning,
                    Code::OtherServer,
                    format!(
                        "{}. Without GTIDs the source cannot move to another server when this one fails.",
                        says("gtid_mode")
                    ),
                )
                .with_hint("Switch gtid_mode ON, step by step as the manual says, for failover."),
            );
        }
        self.check_retention(checks);
    }

    /// Binlogs that are kept for less than a day leave no time to repair anything.
    fn check_retention(&self, checks: &mut Vec<Check>) {
        let number = |name: &str| self.get(name).and_then(|value| value.parse::<f64>().ok());
        let seconds = match (number("binlog_expire_logs_seconds"), number("expire_logs_days")) {
            (Some(seconds), _) if seconds > 0.0 => seconds,
            (_, Some(days)) if days > 0.0 => days * 86_400.0,
            _ => return,
        };
        if seconds < 86_400.0 {
            checks.push(
                Check::found("binlog retention", CheckStatus::Warning, Code::PositionPurged, format!(
                    "Binlogs are purged after {seconds} seconds: a longer interruption of capture needs a new snapshot."
                ))
                .with_hint("Raise binlog_expire_logs_seconds to a few days."),
            );
        }
    }
}

async fn check_rights(
    conn: &mut Conn,
    server: &ServerInfo,
    grants: &Grants,
    settings: &Settings,
    definition: &SourceDefinition,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let user = grants.user.clone().unwrap_or_else(|| format!("'{}'", definition.connection.username));
    let missing = |right: &str| {
        Check::found("rights", CheckStatus::Failed, Code::MissingRight, format!("GRANT {right} ON *.* TO {user};"))
            .with_hint(format!("Run as an administrator: GRANT {right} ON *.* TO {user};"))
    };
    let mut complete = true;
    if !grants.allows_globally(&["REPLICATION SLAVE"]) {
        complete = false;
        if grants.roles {
            checks.push(
                Check::found(
                    "rights",
                    CheckStatus::Warning,
                    Code::MissingRight,
                    "Whether a role gives REPLICATION SLAVE could not be seen.",
                )
                .with_hint(format!("If the stream does not start: GRANT REPLICATION SLAVE ON *.* TO {user};")),
            );
        } else {
            checks.push(missing("REPLICATION SLAVE"));
        }
    }
    if settings.get("log_bin").is_some_and(|on| on.eq_ignore_ascii_case("ON")) {
        match log_end(conn, server).await {
            Ok(end) => {
                checks.push(Check::passed("binlog position", end.to_string()));
                check_filters(conn, server, checks).await?;
            }
            Err(error) if error.code == Code::MissingRight => {
                complete = false;
                checks.push(missing("REPLICATION CLIENT"));
            }
            Err(error) => return Err(error),
        }
    }
    if complete {
        checks.push(Check::passed("rights", "REPLICATION SLAVE, REPLICATION CLIENT"));
    }
    Ok(())
}

/// Databases that the server keeps out of its binlog.
async fn check_filters(conn: &mut Conn, server: &ServerInfo, checks: &mut Vec<Check>) -> Result<()> {
    let statement = if server.flavor == Flavor::Mysql && server.version_numbers() >= (8, 2, 0) {
        "SHOW BINARY LOG STATUS"
    } else {
        "SHOW MASTER STATUS"
    };
    let row: Option<Row> = conn
        .query_first(statement)
        .await
        .map_err(|error| query_failed("the binlog's filters could not be read", error))?;
    let Some(row) = row else { return Ok(()) };
    for (column, meaning) in [("Binlog_Do_DB", "only these databases"), ("Binlog_Ignore_DB", "all databases but these")]
    {
        let databases: String = row.get_opt(column).and_then(|value| value.ok()).unwrap_or_default();
        if !databases.is_empty() {
            checks.push(
                Check::found(
                    "binlog filters",
                    CheckStatus::Warning,
                    Code::BinlogOff,
                    format!("The binlog holds {meaning}: {databases}. Changes of other tables cannot be captured."),
                )
                .with_hint("Remove binlog_do_db and binlog_ignore_db from the server's configuration."),
            );
        }
    }
    Ok(())
}

fn check_tables(tables: &[MatchedTable], definition: &SourceDefinition, checks: &mut Vec<Check>) {
    let captured = tables.iter().filter(|table| table.left_out.is_none()).count();
    let left_out: Vec<String> = tables
        .iter()
        .filter_map(|table| {
            table.left_out.as_ref().map(|reason| format!("{}.{} ({reason})", table.database, table.name))
        })
        .collect();
    if captured == 0 {
        let patterns: Vec<String> = definition.tables.iter().map(|rule| rule.pattern.to_string()).collect();
        let detail = if left_out.is_empty() {
            format!("Nothing on the server matches {}.", patterns.join(", "))
        } else {
            format!("All tables that match are left out: {}.", left_out.join(", "))
        };
        checks.push(Check::found("tables", CheckStatus::Failed, Code::NoTableMatched, detail));
    } else {
        checks.push(Check::passed("tables", format!("{captured} tables are captured")));
        if !left_out.is_empty() {
            let shown = left_out.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
            let more = if left_out.len() > 10 { format!(" and {} more", left_out.len() - 10) } else { String::new() };
            checks.push(
                Check::found("tables left out", CheckStatus::Warning, Code::NoPrimaryKey, format!("{shown}{more}"))
                    .with_hint("A table needs a primary key, and columns of types that can be mirrored."),
            );
        }
    }
}
