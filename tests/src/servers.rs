//! Real MySQL and MariaDB servers, each with a data directory and a port of its own.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use mysql_async::{Conn, Opts, OptsBuilder, Row, prelude::Queryable};

use crate::{await_state::Deadline, guard::GuardedProcess};

/// Which server a test runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mysql,
    MariaDb,
}

impl Kind {
    /// The servers to run a test on: both, or the one that `TIDEGATE_TEST_SERVER` names.
    pub fn all() -> Vec<Self> {
        match std::env::var("TIDEGATE_TEST_SERVER").as_deref() {
            Ok("mysql") => vec![Self::Mysql],
            Ok("mariadb") => vec![Self::MariaDb],
            _ => vec![Self::MariaDb, Self::Mysql],
        }
    }

    fn script_name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::MariaDb => "mariadb",
        }
    }
}

/// A MariaDB server under test.
#[derive(Debug)]
pub struct MariaDb;

impl MariaDb {
    pub async fn start(options: &[&str]) -> Server {
        Server::start(Kind::MariaDb, options).await
    }
}

/// A MySQL server under test.
#[derive(Debug)]
pub struct Mysql;

impl Mysql {
    pub async fn start(options: &[&str]) -> Server {
        Server::start(Kind::Mysql, options).await
    }
}

/// A running server. It is killed, and its folder removed, when the value is dropped or the test process ends in any other way.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub port: u16,
    options: Vec<String>,
    process: Option<GuardedProcess>,
    folder: tempfile::TempDir,
}

/// All rights; what a test's writers use.
pub const TESTER: (&str, &str) = ("tester", "tester");
/// The rights that capture needs and no others.
pub const CAPTURER: (&str, &str) = ("cdc", "cdc-secret");

impl Server {
    /// Starts a server that is ready for capture; `options` (`--name=value`) override its settings.
    pub async fn start(kind: Kind, options: &[&str]) -> Self {
        let folder =
            tempfile::Builder::new().prefix("tidegate-server-").tempdir().expect("a temporary folder can be made");
        let mut server = Self {
            kind,
            port: free_port(),
            options: options.iter().map(ToString::to_string).collect(),
            process: None,
            folder,
        };
        server.resume().await;
        server
    }

    /// Starts a stopped server again, on the same data and the same port.
    pub async fn resume(&mut self) {
        self.process = None;
        let output = File::create(self.folder.path().join("output")).expect("the folder is writable");
        let mut command = Command::new("bash");
        command
            .arg(script("run.sh"))
            .arg(self.kind.script_name())
            .arg(self.folder.path())
            .arg(self.port.to_string())
            .args(&self.options)
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output);
        let mut process = GuardedProcess::spawn(&mut command, Some(self.folder.path())).expect("bash can be started");
        // The very first start on a machine makes the template of the data directory.
        let deadline = Deadline::after(Duration::from_secs(180));
        loop {
            match Conn::new(self.opts(TESTER)).await {
                Ok(conn) => {
                    let _ = conn.disconnect().await;
                    break;
                }
                Err(error) => {
                    let ended = process.exited();
                    if ended.is_some() || deadline.passed() {
                        panic!("{:?} does not start ({ended:?}): {error}\n{}", self.kind, self.log());
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.process = Some(process);
    }

    /// Ends the server as a power cut of its process would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts the server down in order, as an operator would.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            process.wait(Duration::from_secs(60));
        }
    }

    /// Halts the server without closing a connection; `signal("CONT")` lets it go on.
    pub fn signal(&self, name: &str) {
        self.process.as_ref().expect("the server runs").signal(name);
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> String {
        ["output", "server.log"]
            .iter()
            .filter_map(|name| std::fs::read_to_string(self.folder.path().join(name)).ok())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Connection options over TCP for a user.
    pub fn opts(&self, (user, password): (&str, &str)) -> Opts {
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(user))
            .pass(Some(password))
            .prefer_socket(false)
            .into()
    }

    /// A connection with all rights, in UTC and utf8mb4.
    pub async fn connect(&self) -> Conn {
        let mut conn = Conn::new(self.opts(TESTER))
            .await
            .unwrap_or_else(|error| panic!("no connection to {:?}: {error}", self.kind));
        conn.query_drop("SET time_zone = '+00:00', NAMES utf8mb4").await.expect("a session can be set up");
        conn
    }

    /// Runs statements one after another over one connection.
    pub async fn execute(&self, statements: &[&str]) {
        let mut conn = self.connect().await;
        for statement in statements {
            conn.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        let _ = conn.disconnect().await;
    }

    /// The file and the offset at which the binlog ends.
    pub async fn log_end(&self) -> (String, u64) {
        let statement = match self.kind {
            Kind::Mysql => "SHOW BINARY LOG STATUS",
            Kind::MariaDb => "SHOW MASTER STATUS",
        };
        let mut conn = self.connect().await;
        let row: Row = conn.query_first(statement).await.expect("the status can be read").expect("the binlog is on");
        let _ = conn.disconnect().await;
        (row.get("File").expect("a column File"), row.get("Position").expect("a column Position"))
    }

    /// The value of a global variable.
    pub async fn variable(&self, name: &str) -> String {
        let mut conn = self.connect().await;
        let value: Option<String> =
            conn.query_first(format!("SELECT @@GLOBAL.{name}")).await.expect("the variable can be read");
        let _ = conn.disconnect().await;
        value.unwrap_or_default()
    }

    /// The GTID set that a reader of everything up to now has seen, in the server's own text.
    pub async fn gtid_set(&self) -> String {
        match self.kind {
            Kind::Mysql => self.variable("gtid_executed").await.replace('\n', ""),
            Kind::MariaDb => self.variable("gtid_current_pos").await,
        }
    }

    /// `CREATE SOURCE` options that reach this server with the rights of capture, without the closing parenthesis.
    pub fn source_options(&self) -> String {
        format!(
            "connector = 'mysql-cdc', hostname = '127.0.0.1', port = {}, username = '{}', password = '{}'",
            self.port, CAPTURER.0, CAPTURER.1
        )
    }
}

/// The path of a script beside the tests.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("servers").join(name)
}

/// A port of the loopback address that nothing listened on a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("the loopback address has a free port")
        .port()
}
