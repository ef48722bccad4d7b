//! The client side of the Postgres protocol: a connection with text results, and psql itself.

use std::{
    future::poll_fn,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

/// One row, each value in PostgreSQL's text form.
pub type TextRow = Vec<Option<String>>;

/// A connection to Tidegate.
#[derive(Debug)]
pub struct Pg {
    pub client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

/// An error as a client receives it.
#[derive(Debug, Clone, Default)]
pub struct PgError {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl Pg {
    /// Opens a connection, or says why that is impossible now.
    pub async fn try_connect(port: u16) -> Result<Self, String> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("tidegate").dbname("tidegate").application_name("tests");
        let (client, mut connection) = config.connect(NoTls).await.map_err(|error| format!("{error:?}"))?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&notices);
        tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) => {
                        let text = [Some(notice.message()), notice.detail(), notice.hint()];
                        let text = text.into_iter().flatten().collect::<Vec<_>>().join("\n");
                        sink.lock().expect("no holder panics").push(text);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        });
        Ok(Self { client, notices })
    }

    /// The notices received so far.
    pub fn notices(&self) -> Vec<String> {
        self.notices.lock().expect("no holder panics").clone()
    }

    /// Runs a statement over the simple protocol.
    pub async fn try_rows(&self, sql: &str) -> Result<Vec<TextRow>, PgError> {
        let messages = self.client.simple_query(sql).await.map_err(|error| PgError::from(&error))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect::<TextRow>())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    pub async fn rows(&self, sql: &str) -> Vec<TextRow> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{sql}\n{error:?}"),
        }
    }

    pub async fn execute(&self, sql: &str) {
        self.rows(sql).await;
    }

    /// The only value of the only row.
    pub async fn value(&self, sql: &str) -> Option<String> {
        let rows = self.rows(sql).await;
        assert!(rows.len() == 1 && rows[0].len() == 1, "{sql}: not one value but {rows:?}");
        rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten()
    }

    pub async fn number(&self, sql: &str) -> i64 {
        let value = self.value(sql).await;
        value
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{sql}: not a number but {value:?}"))
    }

    /// The error that a statement must end with.
    pub async fn error(&self, sql: &str) -> PgError {
        match self.try_rows(sql).await {
            Ok(rows) => panic!("{sql}: no error but {rows:?}"),
            Err(error) => error,
        }
    }
}

impl From<&tokio_postgres::Error> for PgError {
    fn from(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => Self {
                sqlstate: db.code().code().to_owned(),
                message: db.message().to_owned(),
                detail: db.detail().unwrap_or_default().to_owned(),
                hint: db.hint().unwrap_or_default().to_owned(),
            },
            None => Self { message: format!("{error:?}"), ..Self::default() },
        }
    }
}

impl PgError {
    /// Everything that a user sees, for searching.
    pub fn text(&self) -> String {
        format!("{} {}\n{}\n{}", self.sqlstate, self.message, self.detail, self.hint)
    }

    /// Panics unless the error names all of `words`, whatever the case, and tells the user something beyond the bare fact.
    #[track_caller]
    pub fn assert_names(&self, words: &[&str]) {
        let text = self.text().to_lowercase();
        for word in words {
            assert!(text.contains(&word.to_lowercase()), "the error does not name {word:?}: {self:?}");
        }
    }
}

/// Runs a script through psql, unaligned and without its own settings file.
pub fn psql(port: u16, script: &str) -> Output {
    Command::new("psql")
        .args([
            "-X",
            "-A",
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-U",
            "tidegate",
            "-d",
            "tidegate",
            "-c",
            script,
        ])
        .output()
        .expect("psql is installed")
}
