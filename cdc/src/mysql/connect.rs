//! Connections in a fixed session, and the positions a server is at.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{FromRowError, OptsBuilder, Params, Row, SslOpts, Value};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{Code, Error, Result};
use crate::mysql::binlog::Xid;
use crate::mysql::server::{SourceConnection, Visible};
use crate::mysql::wire::RowConn;
use crate::mysql::{Flavor, ServerInfo};
use crate::source::definition::{ConnectionOptions, SslMode};
use crate::source::position::{FilePosition, GtidSet, MariaGtidSet, MysqlGtidSet, Position};

/// How long a transaction of the log may take to become visible before its waiter gives up and tries again.
pub(crate) const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(60);

mod failure;

pub(crate) use failure::{is_tls, query_failed, server_message};

/// A connection whose session is fixed: utf8mb4, UTC, REPEATABLE READ, read only, a known `sql_mode`.
#[derive(Debug)]
pub struct Conn {
    inner: mysql_async::Conn,
}

impl Conn {
    fn new(inner: mysql_async::Conn) -> Self {
        Self { inner }
    }

    /// Says good-bye to the server. A connection that is only dropped is closed without a word, which servers count as
    /// aborted.
    pub async fn close(self) {
        // The connection is given up either way.
        let _ = timeout(Duration::from_secs(1), self.inner.disconnect()).await;
    }

    pub(crate) fn into_inner(self) -> mysql_async::Conn {
        self.inner
    }
}

impl Deref for Conn {
    type Target = mysql_async::Conn;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

/// The rows of a statement, in the text protocol. `what` is the message of an error.
pub(crate) async fn ask<T: FromRow + Send + 'static>(conn: &mut Conn, what: &str, sql: &str) -> Result<Vec<T>> {
    let result = conn.query_iter(sql).await.map_err(|error| query_failed(what, error))?;
    understood(what, result.try_collect_and_drop().await.map_err(|error| query_failed(what, error))?)
}

/// The rows of a prepared statement.
pub(crate) async fn ask_with<T: FromRow + Send + 'static>(
    conn: &mut Conn,
    what: &str,
    sql: &str,
    parameters: Vec<Value>,
) -> Result<Vec<T>> {
    let parameters = if parameters.is_empty() { Params::Empty } else { Params::Positional(parameters) };
    let result = conn.exec_iter(sql, parameters).await.map_err(|error| query_failed(what, error))?;
    understood(what, result.try_collect_and_drop().await.map_err(|error| query_failed(what, error))?)
}

fn understood<T>(what: &str, rows: Vec<std::result::Result<T, FromRowError>>) -> Result<Vec<T>> {
    rows.into_iter().collect::<std::result::Result<_, _>>().map_err(|error| {
        Error::new(Code::QueryFailed, what)
            .with_detail("The server's answer has other columns than expected.")
            .with_source(error)
    })
}

/// The largest packet of the protocol; a server that sends larger rows or events does not exist.
const MAX_PACKET: usize = 1 << 30;

/// Connects, fixes the session, and asks the server who it is.
pub async fn connect(options: &ConnectionOptions) -> Result<(Conn, ServerInfo)> {
    let work = async {
        let mut conn = Conn::new(dial(options).await?);
        let info = who_is_there(&mut conn).await?;
        fix_session(&mut conn, &info).await?;
        Ok((conn, info))
    };
    in_time(options, work).await
}

/// Connects once more to a server that is known, for the rows of pages: in the same session, without an object for
/// every value.
pub async fn connect_for_rows(options: &ConnectionOptions, server: &ServerInfo) -> Result<RowConn> {
    let work = async {
        let (addresses, mode) = resolve(options).await?;
        let mut conn =
            RowConn::open(options, &addresses, mode).await.map_err(|error| failure::connect_failed(options, error))?;
        for statement in session_statements(server) {
            conn.query(&statement).await.map_err(session_failed)?;
        }
        // Behind one name may be several servers, whose logs are not the same.
        let rows = conn.query("SELECT CAST(@@server_id AS CHAR)").await.map_err(session_failed)?;
        let id = rows.first().and_then(|row| row.first()).and_then(|(_, id)| id.as_deref());
        if id != Some(server.server_id.to_string().as_str()) {
            return Err(Error::new(
                Code::ConnectionLost,
                format!("{}:{} is another server than a moment ago", options.hostname, options.port),
            ));
        }
        Ok(conn)
    };
    in_time(options, work).await
}

async fn in_time<T>(options: &ConnectionOptions, work: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(options.connect_timeout, work).await {
        Ok(connected) => connected,
        Err(_) => Err(Error::new(
            Code::Unreachable,
            format!("{}:{} did not answer within {:?}", options.hostname, options.port, options.connect_timeout),
        )),
    }
}

/// The addresses of a server, and whether a connection to them is encrypted.
async fn resolve(options: &ConnectionOptions) -> Result<(Vec<SocketAddr>, SslMode)> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((options.hostname.as_str(), options.port))
        .await
        .map_err(|error| {
            Error::new(Code::UnknownHost, format!("the host name `{}` is not known", options.hostname))
                .with_source(error)
        })?
        .collect();
    let loopback = addresses.iter().all(|address| address.ip().is_loopback());
    let mode = options.ssl_mode.unwrap_or(if loopback { SslMode::Disabled } else { SslMode::Preferred });
    Ok((addresses, mode))
}

/// A bare connection, encrypted as the options say.
async fn dial(options: &ConnectionOptions) -> Result<mysql_async::Conn> {
    let (addresses, mode) = resolve(options).await?;
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    let builder = OptsBuilder::default()
        .ip_or_hostname(options.hostname.clone())
        .resolved_ips(Some(addresses))
        .tcp_port(options.port)
        .user(Some(options.username.clone()))
        .pass(Some(options.password.clone()))
        // A socket of the same name may belong to another server.
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(30)))
        .max_allowed_packet(Some(MAX_PACKET))
        .wait_timeout(Some(28_800));
    let open = |ssl: Option<SslOpts>| mysql_async::Conn::new(builder.clone().ssl_opts(ssl));
    let unchecked =
        || SslOpts::default().with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true);
    let opened = match mode {
        SslMode::Disabled => open(None).await,
        SslMode::Preferred => match open(Some(unchecked())).await {
            Err(error) if failure::is_tls(&error) => open(None).await,
            opened => opened,
        },
        SslMode::Required => open(Some(unchecked())).await,
        SslMode::VerifyIdentity => {
            let roots = options.ssl_ca.iter().map(|file| PathBuf::from(file).into()).collect();
            open(Some(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(options.ssl_ca.is_some())))
                .await
        }
    };
    opened.map_err(|error| failure::connect_failed(options, error))
}

async fn who_is_there(conn: &mut Conn) -> Result<ServerInfo> {
    let what = "the server's variables could not be read";
    let rows: Vec<(String, String, u32, u8)> =
        ask(conn, what, "SELECT VERSION(), @@version_comment, @@server_id, @@lower_case_table_names").await?;
    let Some((version, comment, server_id, lower_case_table_names)) = rows.into_iter().next() else {
        return Err(Error::new(Code::QueryFailed, what));
    };
    let is_maria = |text: &str| text.to_ascii_lowercase().contains("mariadb");
    let flavor = if is_maria(&version) || is_maria(&comment) { Flavor::MariaDb } else { Flavor::Mysql };
    let (server_uuid, gtid) = match flavor {
        Flavor::MariaDb => (None, true),
        Flavor::Mysql => {
            let rows: Vec<(Option<String>, Option<String>)> =
                ask(conn, what, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_mode").await?;
            let (uuid, mode) = rows.into_iter().next().unwrap_or_default();
            // In the permissive modes some transactions have no GTID, so a set would not say what is covered.
            (uuid, mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ON")))
        }
    };
    let info = ServerInfo { flavor, version, server_uuid, server_id, gtid, lower_case_table_names };
    let oldest = match flavor {
        Flavor::Mysql => (5, 7, 0),
        Flavor::MariaDb => (10, 4, 0),
    };
    if info.version_numbers() < oldest {
        return Err(Error::new(Code::ServerVersion, format!("{flavor} {} is not supported", info.version)));
    }
    Ok(info)
}

/// Fixes what could change the meaning of a value.
async fn fix_session(conn: &mut Conn, server: &ServerInfo) -> Result<()> {
    for statement in session_statements(server) {
        conn.query_drop(statement).await.map_err(session_failed)?;
    }
    Ok(())
}

fn session_failed(error: mysql_async::Error) -> Error {
    query_failed("the session could not be set up", error)
}

/// Character set, time zone, modes, isolation, limits.
fn session_statements(server: &ServerInfo) -> [String; 3] {
    let common = "SET SESSION time_zone = '+00:00', sql_mode = 'NO_ENGINE_SUBSTITUTION', autocommit = 1, \
                  net_write_timeout = 600, net_read_timeout = 600, wait_timeout = 28800, lock_wait_timeout = 60, \
                  sql_select_limit = 18446744073709551615, group_concat_max_len = 1048576, sql_big_selects = 1";
    let own = match server.flavor {
        // Row counts as the storage engine knows them now, not as of the last day.
        Flavor::Mysql if server.version_numbers() >= (8, 0, 3) => {
            ", max_execution_time = 0, information_schema_stats_expiry = 0"
        }
        Flavor::Mysql => ", max_execution_time = 0",
        Flavor::MariaDb => ", max_statement_time = 0",
    };
    [
        "SET NAMES utf8mb4".to_owned(),
        format!("{common}{own}"),
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY".to_owned(),
    ]
}

/// The position a mirror may start from: a prefix of the log whose every transaction is visible to SELECTs from now on.
///
/// MySQL with GTIDs: what is executed, up to its first gap (without `binlog_order_commits` transactions become visible
/// out of order). MariaDB: the position a consistent snapshot would have. MySQL without GTIDs: `log_status`, which stops
/// commits for a moment to look; else the start of the current file, since a server begins a file only when all
/// transactions of the one before are committed in their engines.
pub async fn start_position(conn: &mut Conn, server: &ServerInfo) -> Result<Visible> {
    let server_uuid = server.server_uuid.clone();
    let mut beyond = None;
    let prefix = match server.flavor {
        Flavor::MariaDb => {
            let file = binlog_snapshot(conn).await?;
            let gtid = maria_gtid_at(conn, &file).await?.map(GtidSet::MariaDb);
            Position { gtid, file: Some(file), server_uuid }
        }
        Flavor::Mysql if server.gtid => {
            // First the file: a transaction that comes between the two is in the set and not before the file's position.
            let file = log_status(conn, server).await?;
            let (executed, purged) = executed_and_purged(conn).await?;
            let prefix = executed.cut_at_first_gap(&purged);
            beyond = (prefix != executed).then_some(GtidSet::Mysql(executed));
            Position { gtid: Some(GtidSet::Mysql(prefix)), file, server_uuid }
        }
        Flavor::Mysql => {
            let file = match log_status(conn, server).await? {
                Some(file) => file,
                None => {
                    // Where no new file can be begun, the start of the current one is early enough all the same.
                    let _ = begin_file(conn).await;
                    FilePosition::new(log_end(conn, server).await?.file, 4)
                }
            };
            Position { gtid: None, file: Some(file), server_uuid }
        }
    };
    Ok(Visible { prefix, beyond })
}

/// `gtid_executed` and `gtid_purged`; the purged ones are read first, so that all of them are executed.
async fn executed_and_purged(conn: &mut Conn) -> Result<(MysqlGtidSet, MysqlGtidSet)> {
    let purged = variable(conn, "gtid_purged").await?;
    let executed = variable(conn, "gtid_executed").await?;
    let parse = |text: Option<String>| {
        text.unwrap_or_default().parse::<MysqlGtidSet>().map_err(|error| {
            Error::new(Code::QueryFailed, "the server's GTID set was not understood").with_source(error)
        })
    };
    Ok((parse(executed)?, parse(purged)?))
}

/// Where the log is, with all transactions before it visible; `None` without the right `BACKUP_ADMIN`.
async fn log_status(conn: &mut Conn, server: &ServerInfo) -> Result<Option<FilePosition>> {
    if server.flavor != Flavor::Mysql || server.version_numbers() < (8, 0, 11) {
        return Ok(None);
    }
    let rows: Result<Vec<(Option<String>, Option<u64>)>> = ask(
        conn,
        "the log's status could not be read",
        "SELECT JSON_UNQUOTE(JSON_EXTRACT(LOCAL, '$.binary_log_file')), \
             CAST(JSON_EXTRACT(LOCAL, '$.binary_log_position') AS UNSIGNED) FROM performance_schema.log_status",
    )
    .await;
    match rows {
        Ok(rows) => Ok(match rows.into_iter().next() {
            Some((Some(file), Some(offset))) => Some(FilePosition::new(file, offset)),
            _ => None,
        }),
        // The right, or the performance schema itself, is missing.
        Err(error) if error.code != Code::ConnectionLost => Ok(None),
        Err(error) => Err(error),
    }
}

/// MariaDB: the binlog position that belongs to a snapshot taken now.
async fn binlog_snapshot(conn: &mut Conn) -> Result<FilePosition> {
    let what = "the snapshot's binlog position could not be read";
    let rows: Vec<(String, String)> = ask(conn, what, r"SHOW STATUS LIKE 'binlog_snapshot\_%'").await?;
    let value = |name: &str| rows.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    let file = value("Binlog_snapshot_file").filter(|file| !file.is_empty() && *file != "none");
    let offset = value("Binlog_snapshot_position").and_then(|offset| offset.parse().ok());
    match (file, offset) {
        (Some(file), Some(offset)) => Ok(FilePosition::new(file, offset)),
        _ => Err(Error::new(Code::BinlogOff, "the server has no binlog position")),
    }
}

/// MariaDB: the GTID position of a place in a binlog file; `None` if the server cannot say.
async fn maria_gtid_at(conn: &mut Conn, at: &FilePosition) -> Result<Option<MariaGtidSet>> {
    let what = "the GTID of a binlog position could not be read";
    let parameters = vec![at.file.as_str().into(), at.offset.into()];
    let rows: Vec<Option<String>> = ask_with(conn, what, "SELECT BINLOG_GTID_POS(?, ?)", parameters).await?;
    let Some(text) = rows.into_iter().next().flatten() else { return Ok(None) };
    text.parse().map(Some).map_err(|error| {
        Error::new(Code::QueryFailed, "the server's GTID position was not understood").with_source(error)
    })
}

/// The statement that shows the end of the log.
fn log_end_statement(server: &ServerInfo) -> &'static str {
    match server.flavor {
        Flavor::Mysql if server.version_numbers() >= (8, 2, 0) => "SHOW BINARY LOG STATUS",
        _ => "SHOW MASTER STATUS",
    }
}

/// The end of the log: nothing that a SELECT has seen lies behind it.
pub async fn log_end(conn: &mut Conn, server: &ServerInfo) -> Result<FilePosition> {
    let row: Option<Row> = conn
        .query_first(log_end_statement(server))
        .await
        .map_err(|error| query_failed("the end of the binlog could not be read", error))?;
    let row = row.ok_or_else(|| Error::new(Code::BinlogOff, "the server writes no binlog"))?;
    match (row.get_opt("File"), row.get_opt("Position")) {
        (Some(Ok(file)), Some(Ok(offset))) => Ok(FilePosition { file, offset }),
        _ => Err(Error::new(Code::QueryFailed, "the end of the binlog was not understood")),
    }
}

/// [`log_end`] over a connection for rows.
pub(crate) async fn log_end_for_rows(conn: &mut RowConn, server: &ServerInfo) -> Result<FilePosition> {
    let rows = conn
        .query(log_end_statement(server))
        .await
        .map_err(|error| query_failed("the end of the binlog could not be read", error))?;
    let row = rows.first().ok_or_else(|| Error::new(Code::BinlogOff, "the server writes no binlog"))?;
    let value = |name: &str| row.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).and_then(|(_, v)| v.as_deref());
    match (value("File"), value("Position").and_then(|offset| offset.parse().ok())) {
        (Some(file), Some(offset)) => Ok(FilePosition::new(file, offset)),
        _ => Err(Error::new(Code::QueryFailed, "the end of the binlog was not understood")),
    }
}

/// The transactions the server has executed, for comparing how far behind a mirror is.
pub async fn server_position(conn: &mut Conn, server: &ServerInfo) -> Result<Position> {
    let file = log_end(conn, server).await?;
    let gtid = match server.flavor {
        Flavor::Mysql if server.gtid => Some(GtidSet::Mysql(executed_and_purged(conn).await?.0)),
        Flavor::Mysql => None,
        Flavor::MariaDb => maria_variable(conn, "gtid_binlog_pos").await?.map(GtidSet::MariaDb),
    };
    Ok(Position { gtid, file: Some(file), server_uuid: server.server_uuid.clone() })
}

/// A global variable.
async fn variable(conn: &mut Conn, name: &str) -> Result<Option<String>> {
    let what = format!("the server's {name} could not be read");
    let rows: Vec<Option<String>> = ask(conn, &what, &format!("SELECT @@GLOBAL.{name}")).await?;
    Ok(rows.into_iter().next().flatten())
}

async fn maria_variable(conn: &mut Conn, name: &str) -> Result<Option<MariaGtidSet>> {
    variable(conn, name).await?.map(|text| text.parse()).transpose().map_err(|error| {
        Error::new(Code::QueryFailed, "the server's GTID position was not understood").with_source(error)
    })
}

/// Waits until every transaction of the position is visible to SELECTs.
pub async fn wait_visible(conn: &mut Conn, server: &ServerInfo, position: &Position, patience: Duration) -> Result<()> {
    let late = || Error::new(Code::NotVisible, format!("{position} did not become visible within {patience:?}"));
    if server.flavor == Flavor::Mysql
        && server.gtid
        && let Some(gtid) = &position.gtid
    {
        let parameters = vec![gtid.to_string().into(), patience.as_secs_f64().into()];
        let sql = "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)";
        let outcome: Vec<Option<i64>> = ask_with(conn, "the wait for transactions failed", sql, parameters).await?;
        return if outcome == [Some(0)] { Ok(()) } else { Err(late()) };
    }
    let mut poll = Poll::new(patience);
    while !is_visible(conn, server, position).await? {
        poll.pause().await.map_err(|_| late())?;
    }
    Ok(())
}

/// The pauses of something that is asked again and again, at first often.
struct Poll {
    deadline: Instant,
    pause: Duration,
}

impl Poll {
    fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, pause: Duration::from_millis(5) }
    }

    /// Fails when the patience has ended.
    async fn pause(&mut self) -> std::result::Result<(), Elapsed> {
        let pause = self.pause;
        self.pause = (pause * 2).min(Duration::from_millis(200));
        timeout_at(self.deadline, sleep(pause)).await
    }
}

/// The prepared XA transactions that a SELECT may see or not, whatever the position says, as statements of the log name
/// them, in lower case.
///
/// MariaDB moves the position of snapshots when an XA COMMIT is logged and lets the engines commit after that; the
/// transaction leaves XA RECOVER when they have (`trans_xa_commit` removes it last). On MySQL the position tells, and
/// there are none of them.
pub(crate) async fn prepared(conn: &mut Conn, server: &ServerInfo) -> Result<Vec<String>> {
    if server.flavor == Flavor::Mysql {
        return Ok(Vec::new());
    }
    let what = "the prepared XA transactions could not be read";
    let rows: Vec<(u32, usize, usize, Vec<u8>)> = ask(conn, what, "XA RECOVER").await?;
    Ok(rows.iter().map(xid_text).collect())
}

/// The name in a row of XA RECOVER: format, lengths of the two parts, the parts.
fn xid_text((format, global, branch, data): &(u32, usize, usize, Vec<u8>)) -> String {
    let (global, rest) = data.split_at(data.len().min(*global));
    let branch = rest.get(..*branch).unwrap_or(rest).to_vec();
    Xid { format: *format, global: global.to_vec(), branch }.to_string()
}

/// Waits until an XA transaction whose XA COMMIT is in the log is visible to SELECTs, its position being so already.
pub(crate) async fn wait_completed(
    conn: &mut dyn SourceConnection,
    server: &ServerInfo,
    xid: &str,
    patience: Duration,
) -> Result<()> {
    let mut poll = Poll::new(patience);
    while conn.prepared(server).await?.iter().any(|listed| listed == xid) {
        poll.pause().await.map_err(|_| {
            Error::new(Code::NotVisible, format!("the XA transaction {xid} did not become visible within {patience:?}"))
                .with_detail("Its XA COMMIT is in the binlog; XA RECOVER still lists it, or a later one of its name.")
        })?;
    }
    Ok(())
}

/// Begins a new binlog file. The server does so only when every transaction of the file before is committed in its engine,
/// so that a SELECT sees all that lies before the new one. Needs the right RELOAD.
async fn begin_file(conn: &mut Conn) -> Result<()> {
    conn.query_drop("FLUSH BINARY LOGS")
        .await
        .map_err(|error| query_failed("a new binlog file could not be begun", error))
}

async fn is_visible(conn: &mut Conn, server: &ServerInfo, position: &Position) -> Result<bool> {
    match (server.flavor, &position.file, &position.gtid) {
        // GTIDs first: files are another server's after a failover.
        (Flavor::MariaDb, _, Some(GtidSet::MariaDb(gtid))) => {
            let at = binlog_snapshot(conn).await?;
            Ok(maria_gtid_at(conn, &at).await?.is_some_and(|seen| seen.contains(gtid)))
        }
        (Flavor::MariaDb, Some(file), _) => Ok(binlog_snapshot(conn).await? >= *file),
        (Flavor::Mysql, Some(file), _) => match log_status(conn, server).await? {
            Some(seen) => Ok(seen >= *file),
            // Transactions of a file before the current one are all committed in their engines.
            None if FilePosition::new(log_end(conn, server).await?.file, 4) >= *file => Ok(true),
            None if begin_file(conn).await.is_ok() => Ok(true),
            None => Err(Error::new(Code::MissingRight, "what a SELECT sees cannot be compared with the binlog")
                .with_detail("Without GTIDs it takes performance_schema.log_status (GRANT BACKUP_ADMIN ON *.* TO the capturing user) or a new binlog file (GRANT RELOAD ON *.*).")
                .with_hint("Grant BACKUP_ADMIN, or switch gtid_mode on.")),
        },
        _ => Ok(true),
    }
}

/// Checks that the log can be read from a position on: that the server has its transactions, and still has the log of
/// all that comes behind.
pub async fn check_resumable(conn: &mut Conn, server: &ServerInfo, position: &Position) -> Result<()> {
    match (&position.gtid, &position.file) {
        (Some(GtidSet::Mysql(ours)), _) if server.flavor == Flavor::Mysql && server.gtid => {
            // Read before what is executed, so that a transaction that is just being committed is in one of them. The stream
            // has it already, and the server counts it as its own too when a stream is opened.
            let owned = owned(&variable(conn, "gtid_owned").await?.unwrap_or_default())?;
            let (executed, purged) = executed_and_purged(conn).await?;
            let foreign = ours.subtract(&executed).subtract(&owned);
            if !foreign.is_empty() {
                return Err(Error::new(Code::OtherServer, "the server lacks transactions that were captured")
                    .with_detail(format!("It has not executed {foreign}; it has {executed}.")));
            }
            let missing = purged.subtract(ours);
            if !missing.is_empty() {
                return Err(Error::new(Code::PositionPurged, "the binlog position that is needed was purged")
                    .with_detail(format!("Purged and not captured: {missing}. Captured: {ours}.")));
            }
            Ok(())
        }
        (Some(GtidSet::MariaDb(ours)), _) if server.flavor == Flavor::MariaDb => {
            let reached = maria_variable(conn, "gtid_binlog_pos").await?.unwrap_or_default();
            let foreign = ours.subtract(&reached);
            if !foreign.is_empty() {
                return Err(Error::new(Code::OtherServer, "the server lacks transactions that were captured")
                    .with_detail(format!("It has not logged {foreign}; it is at {reached}.")));
            }
            Ok(())
        }
        (Some(gtid), _) => Err(Error::new(Code::OtherServer, "the stored position is not one of this server")
            .with_detail(format!(
                "It is the GTID set {gtid}, and the server is {} {}{}.",
                server.flavor,
                server.version,
                if server.gtid { "" } else { " without GTIDs" }
            ))),
        (None, Some(file)) => {
            if position.server_uuid != server.server_uuid {
                return Err(Error::new(Code::OtherServer, "the stored position belongs to another server")
                    .with_detail(format!(
                        "It is {file} of {}; this server is {}. Without GTIDs, positions mean nothing elsewhere.",
                        position.server_uuid.as_deref().unwrap_or("a server without a UUID"),
                        server.server_uuid.as_deref().unwrap_or("one without a UUID"),
                    )));
            }
            check_file(conn, file).await
        }
        (None, None) => Ok(()),
    }
}

/// `gtid_owned`: transactions that have a GTID and are not committed yet, each with its connection. Nothing is between one
/// UUID's and the next, as in `uuid:5#9:4#17uuid:tag:1#12`.
fn owned(text: &str) -> Result<MysqlGtidSet> {
    const UUID: usize = 36;
    let mut owned: Vec<String> = Vec::new();
    let (mut uuid, mut tag) = ("", "");
    for part in text.split(':') {
        match part.split_once('#') {
            Some((number, connection)) => {
                owned.push(if tag.is_empty() { format!("{uuid}:{number}") } else { format!("{uuid}:{tag}:{number}") });
                // What is longer than a number of 32 bits has the next UUID at its end.
                if let Some((_, next)) =
                    connection.len().checked_sub(UUID).and_then(|at| connection.split_at_checked(at))
                {
                    (uuid, tag) = (next, "");
                }
            }
            None if uuid.is_empty() => uuid = part,
            None => tag = part,
        }
    }
    let found = if owned.is_empty() { text.to_owned() } else { owned.join(",") };
    found.parse().map_err(|error| {
        Error::new(Code::QueryFailed, "the server's GTIDs of transactions under way were not understood")
            .with_detail(format!("gtid_owned is {text:?}."))
            .with_source(error)
    })
}

async fn check_file(conn: &mut Conn, wanted: &FilePosition) -> Result<()> {
    let rows: Vec<Row> = conn
        .query("SHOW BINARY LOGS")
        .await
        .map_err(|error| query_failed("the binlog files could not be listed", error))?;
    // By name: the columns differ between versions.
    let mut files = rows.iter().filter_map(|row| {
        Some(FilePosition { file: row.get_opt("Log_name")?.ok()?, offset: row.get_opt("File_size")?.ok()? })
    });
    let oldest = files.next();
    let found = oldest.iter().cloned().chain(files).find(|end| end.file == wanted.file);
    match (found, oldest) {
        (Some(end), _) if wanted.offset <= end.offset => Ok(()),
        (Some(end), _) => Err(Error::new(Code::OtherServer, "the binlog was reset")
            .with_detail(format!("The position {wanted} lies behind the file's end at {}.", end.offset))),
        (None, Some(oldest)) if *wanted < FilePosition::new(oldest.file.clone(), 0) => {
            Err(Error::new(Code::PositionPurged, "the binlog position that is needed was purged")
                .with_detail(format!("It needs {wanted}; the oldest file is {}.", oldest.file)))
        }
        (None, _) => Err(Error::new(Code::OtherServer, "the binlog was reset")
            .with_detail(format!("There is no file {}.", wanted.file))),
    }
}

#[cfg(test)]
mod tests {
    use super::{owned, xid_text};

    #[test]
    fn transactions_under_way_are_a_set_without_their_connections() {
        let one = "80f91422-ed86-11f1-8c5e-02fc00000001";
        let other = "90f91422-ed86-11f1-8c5e-02fc00000001";
        for (text, set) in [
            (String::new(), String::new()),
            (format!("{one}:3017#8"), format!("{one}:3017")),
            (format!("{one}:9#17:5#9:4#1"), format!("{one}:4-5:9")),
            (format!("{one}:4#1{other}:7#1"), format!("{one}:4,{other}:7")),
            (format!("{one}:tag:4#17:5#6{other}:7#1234567{one}:8#2"), format!("{one}:tag:4-5,{other}:7,{one}:8")),
        ] {
            assert_eq!(owned(&text).unwrap(), set.parse().unwrap(), "{text}");
        }
        for wrong in ["no set", "4#17", "a:b:c", &format!("{one}:x#1")] {
            assert!(owned(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_of_xa_recover_are_named_as_the_log_names_them() {
        assert_eq!(xid_text(&(7, 5, 2, b"earlybr".to_vec())), "x'6561726c79',x'6272',7");
        assert_eq!(xid_text(&(1, 1, 0, b"a".to_vec())), "x'61',x'',1");
        // Parts that the data is too short for.
        assert_eq!(xid_text(&(1, 9, 4, b"a".to_vec())), "x'61',x'',1");
    }
}
