//! A Tidegate process under test.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    await_state::{Deadline, await_value},
    guard::GuardedProcess,
    pg::Pg,
    servers::{Server, free_port},
};

/// A server on a store of its own. Dropping it kills it and fails the test if it logged a warning or an error that the test did not announce.
#[derive(Debug)]
pub struct Gate {
    pub port: u16,
    store: String,
    store_options: Vec<(String, String)>,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    options: Vec<String>,
    allowed: Vec<String>,
    process: Option<GuardedProcess>,
    /// Absent where several processes share one folder and this is not the one that owns it.
    _owned: Option<tempfile::TempDir>,
}

impl Gate {
    /// Starts a server on an empty store in a temporary folder.
    pub async fn start() -> Self {
        let mut gate = Self::prepare_anywhere();
        gate.resume().await;
        gate
    }

    /// A server whose folder goes when the value is dropped, not started yet.
    pub fn prepare_anywhere() -> Self {
        let folder =
            tempfile::Builder::new().prefix("tidegate-store-").tempdir().expect("a temporary folder can be made");
        let mut gate = Self::prepare(folder.path());
        gate._owned = Some(folder);
        gate
    }

    /// A server on the store in `folder/store`, not started yet.
    pub fn prepare(folder: &Path) -> Self {
        Self {
            port: free_port(),
            store: folder.join("store").to_string_lossy().into_owned(),
            store_options: Vec::new(),
            folder: folder.to_owned(),
            environment: Vec::new(),
            options: Vec::new(),
            allowed: Vec::new(),
            process: None,
            _owned: None,
        }
    }

    /// Another server on the same store.
    pub fn sibling(&self) -> Self {
        let mut sibling = Self::prepare(&self.folder);
        sibling.store.clone_from(&self.store);
        sibling.store_options.clone_from(&self.store_options);
        sibling.options.clone_from(&self.options);
        sibling
    }

    /// Sets an environment variable for the next start.
    pub fn environment(&mut self, name: &str, value: &str) -> &mut Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a command line option for the next start.
    pub fn option(&mut self, option: &str) -> &mut Self {
        self.options.push(option.to_owned());
        self
    }

    /// Puts the store elsewhere, from the next start on.
    pub fn store_at(&mut self, url: &str) -> &mut Self {
        url.clone_into(&mut self.store);
        self
    }

    /// Puts the store into a bucket, with these options, from the next start on. The key of the secrets stays in the folder.
    pub fn store_in_s3(&mut self, url: &str, options: &[(String, String)]) -> &mut Self {
        self.store_at(url);
        self.store_options = options.to_vec();
        let key = self.folder.join("secrets.key");
        self.option("--key-file").option(&key.to_string_lossy())
    }

    /// Announces that log lines of level WARN or ERROR which contain `text` are part of the test.
    pub fn expect_in_log(&mut self, text: &str) -> &mut Self {
        self.allowed.push(text.to_owned());
        self
    }

    /// Starts the process, again if it was there before, and waits until it answers.
    pub async fn resume(&mut self) {
        self.launch();
        let deadline = Deadline::after(Duration::from_secs(60));
        loop {
            let refusal = match Pg::try_connect(self.port).await {
                Ok(_) => return,
                Err(refusal) => refusal,
            };
            let ended = self.process.as_mut().and_then(GuardedProcess::exited);
            if ended.is_some() || deadline.passed() {
                panic!("tidegate does not answer ({ended:?}): {refusal}\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts the process without waiting for it.
    pub fn launch(&mut self) {
        self.process = None;
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).expect("the folder is writable");
        let mut command = Command::new(binary());
        command
            .arg("serve")
            .arg("--store")
            .arg(&self.store)
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--cache")
            .arg(self.cache_path())
            .args(&self.options)
            .args(
                self.store_options
                    .iter()
                    .flat_map(|(name, value)| ["--store-option".to_owned(), format!("{name}={value}")]),
            )
            .env("TIDEGATE_LOG", std::env::var("TIDEGATE_TEST_LOG").unwrap_or_else(|_| "info".to_owned()))
            .env("NO_COLOR", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        let folder = self._owned.as_ref().map(tempfile::TempDir::path);
        self.process = Some(GuardedProcess::spawn(&mut command, folder).expect("the tidegate binary can be started"));
    }

    /// Ends the process as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Asks the process to stop and waits for it; panics if it does not stop in time.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            assert!(
                process.wait(Duration::from_secs(30)).is_some(),
                "tidegate does not stop on SIGTERM\n{}",
                self.log()
            );
        }
    }

    /// Whether the process runs still.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.exited().is_none())
    }

    pub fn process(&self) -> &GuardedProcess {
        self.process.as_ref().expect("tidegate runs")
    }

    pub async fn connect(&self) -> Pg {
        match Pg::try_connect(self.port).await {
            Ok(pg) => pg,
            Err(error) => panic!("no connection to tidegate: {error}\n{}", self.log()),
        }
    }

    /// The folder of the store, where it is one; else its URL.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Where the store is not a folder: what it takes to open it.
    pub fn store_options(&self) -> &[(String, String)] {
        &self.store_options
    }

    /// Waits until a process that is not to start has ended, and returns what it printed.
    pub async fn refusal(&mut self) -> String {
        self.launch();
        await_value("tidegate to end", Duration::from_secs(60), || {
            let ended = self.process.as_mut().and_then(GuardedProcess::exited);
            std::future::ready(ended.map(|_| ()).ok_or("it runs"))
        })
        .await;
        self.log()
    }

    /// The directory for what the server keeps on the local disk.
    pub fn cache_path(&self) -> PathBuf {
        self.folder.join(format!("cache-{}", self.port))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join(format!("tidegate-{}.log", self.port))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Declares a source of these tables and waits until its snapshot is complete.
    pub async fn mirror(&self, name: &str, server: &Server, tables: &str) {
        self.create_source(name, server, tables, "").await;
        self.connect().await.execute(&format!("WAIT FOR SOURCE {name} SNAPSHOT TIMEOUT '300 seconds'")).await;
    }

    /// Declares a source; `more` adds options, each after a comma.
    pub async fn create_source(&self, name: &str, server: &Server, tables: &str, more: &str) {
        let options = server.source_options();
        let statement = format!("CREATE SOURCE {name} WITH ({options}, tables = '{tables}'{more})");
        self.connect().await.execute(&statement).await;
    }

    /// Waits until everything that the server has committed by now can be read.
    pub async fn catch_up(&self, name: &str) {
        self.connect().await.execute(&format!("WAIT FOR SOURCE {name} CURRENT TIMEOUT '300 seconds'")).await;
    }

    fn unexpected_log_lines(&self) -> Vec<String> {
        self.log()
            .lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked at"))
            .filter(|line| !self.allowed.iter().any(|text| line.contains(text)))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.process = None;
        if std::thread::panicking() {
            let log = self.log();
            let tail = log.lines().rev().take(60).collect::<Vec<_>>();
            eprintln!("the end of tidegate's log (port {}):", self.port);
            for line in tail.iter().rev() {
                eprintln!("  {line}");
            }
            if std::env::var_os("TIDEGATE_TEST_KEEP").is_some()
                && let Some(folder) = self._owned.take()
            {
                eprintln!("the store is kept in {}", folder.keep().display());
            }
            return;
        }
        let unexpected = self.unexpected_log_lines();
        assert!(unexpected.is_empty(), "tidegate logged what nobody expected:\n{}", unexpected.join("\n"));
    }
}

/// The binary that cargo built beside the tests.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TIDEGATE_BINARY") {
        return path.into();
    }
    // A test runs from `<target>/<profile>/deps`, a binary of this crate from `<target>/<profile>`.
    let me = std::env::current_exe().expect("the test knows its own path");

    me.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("tidegate"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no tidegate binary beside {}: run `cargo build` first", me.display()))
}

impl Gate {
    /// All rows of a system view as one text, for searching.
    pub async fn system_view(&self, view: &str) -> String {
        let rows = self.connect().await.rows(&format!("SELECT * FROM sys.{view}")).await;
        let lines = rows
            .iter()
            .map(|row| row.iter().map(|value| value.as_deref().unwrap_or("")).collect::<Vec<_>>().join(" | "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Waits until a row of a system view holds all of `words`.
    pub async fn await_in_view(&self, view: &str, words: &[&str]) {
        await_value(&format!("sys.{view} to say {words:?}"), Duration::from_secs(60), || async {
            let text = self.system_view(view).await;
            let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
            if found { Ok(()) } else { Err(text) }
        })
        .await;
    }
}
