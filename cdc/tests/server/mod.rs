//! Private MariaDB and MySQL servers: an own data directory and port each, killed when the value is dropped.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};
use tidegate_cdc::source::definition::ConnectionOptions;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    Mysql,
}

impl Kind {
    /// The servers of this machine: MariaDB, and MySQL where it has been unpacked.
    pub(crate) fn all() -> Vec<Self> {
        let mysql = std::env::var_os("TIDEGATE_MYSQL_HOME").map(PathBuf::from).or_else(|| {
            std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/tidegate/mysql/complete"))
        });
        let mut kinds = vec![Self::MariaDb];
        if mysql.is_some_and(|home| home.exists()) {
            kinds.push(Self::Mysql);
        }
        match std::env::var("TIDEGATE_TEST_SERVER").as_deref() {
            Ok("mysql") => kinds.retain(|kind| *kind == Self::Mysql),
            Ok("mariadb") => kinds.retain(|kind| *kind == Self::MariaDb),
            _ => {}
        }
        kinds
    }
}

/// A running server with an empty database `shop`.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    process: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server that is ready for capture; options (`--name=value`) override its settings.
    pub(crate) async fn start(kind: Kind, options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-cdc-").tempdir().expect("a temporary folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        // Tests of several packages use this file.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let script = folders.find_map(|f| Some(f.join("tests/servers/run.sh")).filter(|s| s.exists())).expect("run.sh");
        let output = File::create(folder.path().join("output")).expect("a file");
        let process = Command::new("bash")
            .arg(script)
            .arg(if kind == Kind::Mysql { "mysql" } else { "mariadb" })
            .arg(folder.path())
            .arg(port.to_string())
            .args(options)
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .process_group(0)
            .spawn()
            .expect("bash can be started");
        let mut server = Self { port, process, folder };
        let deadline = Instant::now() + Duration::from_secs(180);
        loop {
            match server.writer().await {
                Ok(mut conn) => {
                    conn.query_drop("CREATE DATABASE IF NOT EXISTS shop").await.expect("a database");
                    let _ = conn.disconnect().await;
                    return server;
                }
                Err(error) => {
                    let ended = server.process.try_wait().expect("a child");
                    assert!(ended.is_none() && Instant::now() < deadline, "{error}\n{}", server.log());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn log(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        read("output") + &read("server.log")
    }

    pub(crate) async fn writer(&self) -> mysql_async::Result<Conn> {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some("tester"))
            .pass(Some("tester"))
            .prefer_socket(false);
        Conn::new(options).await
    }

    /// Runs statements, with all rights, over one connection.
    pub(crate) async fn execute(&self, statements: &[&str]) {
        let mut conn = self.writer().await.expect("a connection");
        for statement in statements {
            conn.query_drop(*statement)
                .await
                .unwrap_or_else(|error| panic!("{}: {error}", &statement[..statement.len().min(200)]));
        }
        let _ = conn.disconnect().await;
    }

    /// The folder of the server's data.
    #[allow(dead_code, reason = "not every test binary does")]
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The rows of a query, with all values as texts.
    #[allow(dead_code, reason = "not every test binary does")]
    pub(crate) async fn rows(&self, query: &str) -> Vec<Vec<Option<String>>> {
        let mut conn = self.writer().await.expect("a connection");
        let rows: Vec<Row> = conn.query(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        let _ = conn.disconnect().await;
        let values = |row: Row| row.unwrap().into_iter().map(mysql_async::from_value::<Option<String>>).collect();
        rows.into_iter().map(values).collect()
    }

    /// The statements in the current file of the log.
    #[allow(dead_code, reason = "not every test binary does")]
    pub(crate) async fn log_statements(&self) -> Vec<String> {
        let mut conn = self.writer().await.expect("a connection");
        let files: Vec<Row> = conn.query("SHOW BINARY LOGS").await.expect("the files");
        let file: String = files.last().and_then(|row| row.get("Log_name")).expect("a file");
        let events: Vec<Row> = conn.query(format!("SHOW BINLOG EVENTS IN '{file}'")).await.expect("the events");
        let _ = conn.disconnect().await;
        let statement = |row: &Row| {
            let kind: String = row.get("Event_type")?;
            row.get::<String, _>("Info").filter(|_| kind == "Query")
        };
        events.iter().filter_map(statement).collect()
    }

    /// The connection of a user with the rights of capture and no others.
    #[allow(dead_code, reason = "not every test binary does")]
    pub(crate) fn capturer(&self) -> ConnectionOptions {
        ConnectionOptions::new("127.0.0.1", self.port, "cdc", "cdc-secret")
    }

    /// Sends a signal to the server.
    #[allow(dead_code, reason = "not every test binary does")]
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.process.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The group: the server may run below a loader or the script.
        let _ = Command::new("kill").arg("-KILL").arg("--").arg(format!("-{}", self.process.id())).status();
        let _ = self.process.wait();
    }
}
