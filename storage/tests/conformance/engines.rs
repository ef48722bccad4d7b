//! The other engines: one process of each serves all tests.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::texts::Line;

/// Another engine, as a process that answers a line with a line.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

pub(crate) static PYPAIMON: LazyLock<Engine> = LazyLock::new(|| {
    let mut command = Command::new(installed("pypaimon.sh"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/engine.py"));
    Engine::start("pypaimon", command)
});

pub(crate) static JAVA: LazyLock<Engine> = LazyLock::new(|| {
    let mut command = Command::new("java");
    // Most of a short life is spent starting: compiling little and collecting with one thread is the fastest.
    command.args(["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &installed("java.sh"), "PaimonEngine"]);
    Engine::start("Java", command)
});

/// What a script of `tests/servers` prints.
fn installed(script: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/servers").join(script);
    let output = Command::new("bash").arg(&path).output().expect("bash can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script} failed; tests/servers/install.sh installs what it needs: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A table at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At<'a> {
    Newest,
    Snapshot(u64),
    Tag(&'a str),
}

/// The rows of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) columns: Vec<String>,
    /// Java's are in the order of the key, as Paimon compares keys.
    pub(crate) rows: Vec<Line>,
}

/// A column, one of `=`, `>=` and `<`, and a value.
pub(crate) type Condition = (String, &'static str, String);

impl Engine {
    fn start(name: &'static str, mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let answers = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        Self { name, process: Mutex::new(Process { child, answers }) }
    }

    /// The answer to a request, or what went wrong.
    pub(crate) fn ask(&self, request: &Value) -> Result<Value, String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = process.child.stdin.as_mut().expect("a pipe was asked for");
        writeln!(requests, "{request}").unwrap_or_else(|error| panic!("{} has ended: {error}", self.name));
        let mut line = String::new();
        process.answers.read_line(&mut line).unwrap();
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{} answered {line:?}: {error}", self.name));
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(answer),
        }
    }

    /// The rows of the table in the folder `table`, those that meet all of `filter`.
    pub(crate) fn read(&self, table: &Path, at: At<'_>, filter: &[Condition]) -> Result<Read, String> {
        let mut request = json!({ "do": "read", "table": table });
        set_at(&mut request, at);
        if !filter.is_empty() {
            request["filter"] = json!(filter);
        }
        let answer = self.ask(&request)?;
        Ok(Read {
            columns: serde_json::from_value(answer["columns"].clone()).unwrap(),
            rows: serde_json::from_value(answer["rows"].clone()).unwrap(),
        })
    }
}

/// Says in a request which state of the table is meant.
pub(crate) fn set_at(request: &mut Value, at: At<'_>) {
    match at {
        At::Newest => {}
        At::Snapshot(id) => request["snapshot"] = json!(id),
        At::Tag(name) => request["tag"] = json!(name),
    }
}
