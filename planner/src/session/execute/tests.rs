use std::sync::atomic::{AtomicU64, Ordering};

use arrow::util::pretty::pretty_format_batches;
use async_trait::async_trait;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use tidegate_cdc::capture::CaptureHandle;
use tidegate_cdc::source::definition::SourceDefinition;
use tidegate_storage::clock::ManualClock;
use uuid::Uuid;

use super::*;
use crate::catalog::sealing::Entropy;
use crate::context::RuntimeOptions;
use crate::jobs::Jobs;
use crate::session::EngineOptions;

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SqlError> {
        bytes.fill(u8::try_from(self.0.fetch_add(1, Ordering::SeqCst) % 251).unwrap());
        Ok(())
    }
}

/// No job ever runs.
struct NoJobs;

#[async_trait]
impl Jobs for NoJobs {
    fn start(&self, _definition: SourceDefinition) {}
    async fn stop(&self, _source: Uuid) {}
    fn handle(&self, _source: Uuid) -> Option<CaptureHandle> {
        None
    }
    fn handles(&self) -> Vec<CaptureHandle> {
        Vec::new()
    }
}

async fn session() -> Session {
    let engine = Engine::open(EngineOptions {
        statistics: Arc::default(),
        store: Arc::new(InMemory::new()),
        clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        entropy: Arc::new(Counter::default()),
        jobs: Arc::new(NoJobs),
        key_file: "unused".into(),
        key: Some("07".repeat(32)),
        runtime: RuntimeOptions { target_partitions: 1, ..RuntimeOptions::default() },
    })
    .await
    .unwrap();
    engine.session(SessionOptions {
        user: "ada".to_owned(),
        database: "tidegate".to_owned(),
        application_name: "test".to_owned(),
        backend_pid: 7,
    })
}

/// Runs every statement of a text; the last one's tag or rows.
async fn run(session: &mut Session, text: &str) -> Result<String, SqlError> {
    let mut answer = String::new();
    for statement in session.parse(text)? {
        answer = match session.execute(&statement, Vec::new()).await? {
            Outcome::Command { tag, .. } => tag,
            Outcome::Rows { stream, .. } => {
                let batches: Vec<_> = stream.try_collect().await?;
                pretty_format_batches(&batches).unwrap().to_string()
            }
        };
    }
    Ok(answer)
}

async fn state_of(session: &mut Session, text: &str) -> &'static str {
    match run(session, text).await {
        Ok(answer) => panic!("{text} answers {answer}"),
        Err(error) => error.sqlstate,
    }
}

#[tokio::test]
async fn failed_blocks_take_nothing_but_their_end() {
    let mut session = session().await;
    run(&mut session, "BEGIN; SELECT 1").await.unwrap();
    assert_eq!(session.transaction_status(), TransactionStatus::InTransaction);
    assert_eq!(state_of(&mut session, "SELECT nothing").await, "42703");
    assert_eq!(session.transaction_status(), TransactionStatus::Failed);
    for text in ["SELECT 1", "SHOW timezone", "SET timezone = 'UTC'", "SAVEPOINT a", "BEGIN", "SHOW JOBS"] {
        assert_eq!(state_of(&mut session, text).await, "25P02", "{text}");
    }
    assert_eq!(run(&mut session, "COMMIT").await.unwrap(), "ROLLBACK");
    run(&mut session, "SELECT 1").await.unwrap();

    run(&mut session, "BEGIN; SAVEPOINT a").await.unwrap();
    assert_eq!(state_of(&mut session, "SELEC 1").await, "42601");
    assert_eq!(session.transaction_status(), TransactionStatus::Failed);
    run(&mut session, "ROLLBACK TO a; SELECT 1; COMMIT").await.unwrap();
}

#[tokio::test]
async fn definitions_stay_out_of_blocks() {
    let mut session = session().await;
    for text in ["CREATE SECRET s AS 'x'", "DROP SECRET s", "PAUSE SOURCE s", "DISCARD ALL"] {
        run(&mut session, "BEGIN").await.unwrap();
        assert_eq!(state_of(&mut session, text).await, "25001", "{text}");
        run(&mut session, "ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn secrets_and_connections_come_and_go() {
    let mut session = session().await;
    assert_eq!(run(&mut session, "CREATE SECRET pw AS 'geheim'").await.unwrap(), "CREATE SECRET");
    assert_eq!(state_of(&mut session, "CREATE SECRET pw AS 'x'").await, "42710");
    run(&mut session, "CREATE SECRET IF NOT EXISTS pw AS 'x'").await.unwrap();
    assert_eq!(
        state_of(&mut session, "CREATE CONNECTION c TO MYSQL (host = 'h', user = 'u', password = SECRET q)").await,
        "42704"
    );
    run(&mut session, "CREATE CONNECTION c TO MYSQL (host = 'h', user = 'u', password = SECRET pw)").await.unwrap();
    let error = run(&mut session, "DROP SECRET pw").await.unwrap_err();
    assert_eq!((error.sqlstate, error.detail.as_deref()), ("2BP01", Some("Used by connection \"c\".")));
    let shown = run(&mut session, "SHOW CREATE CONNECTION c").await.unwrap();
    assert!(shown.contains("password = SECRET pw"), "{shown}");
    let shown = run(&mut session, "SHOW SECRETS LIKE 'p%'").await.unwrap();
    assert!(shown.contains("connection \"c\"") && !shown.contains("geheim"), "{shown}");
    run(&mut session, "DROP CONNECTION c; DROP SECRET pw; DROP SECRET IF EXISTS pw").await.unwrap();
    let error = run(&mut session, "DROP SECRET pw").await.unwrap_err();
    assert_eq!((error.sqlstate, error.position), ("42704", Some(13)));
}

#[tokio::test]
async fn sources_that_do_not_exist() {
    let mut session = session().await;
    for text in [
        "PAUSE SOURCE s",
        "RESUME SOURCE s",
        "DROP SOURCE s",
        "SHOW CREATE SOURCE s",
        "CHECKPOINT SOURCE s",
        "WAIT FOR SOURCE s",
        "SHOW TABLES FROM s",
        "CREATE SOURCE s FROM MYSQL CONNECTION c FOR ALL TABLES",
    ] {
        assert_eq!(state_of(&mut session, text).await, "42704", "{text}");
    }
    assert_eq!(run(&mut session, "CHECKPOINT").await.unwrap(), "CHECKPOINT");
}

#[tokio::test]
async fn an_unreachable_server_creates_nothing() {
    let mut session = session().await;
    let text = "CREATE SOURCE s WITH (connector = 'mysql-cdc', hostname = '127.0.0.1', port = 1, username = 'u', password = 'p',
        tables = 'shop.*', connect.timeout = '2s')";
    let error = run(&mut session, text).await.unwrap_err();
    assert_eq!(error.sqlstate, "08001");
    assert!(error.code.is_some() && error.hint.is_some(), "{error:?}");
    assert!(session.engine.definitions().sources.is_empty());
}

#[tokio::test]
async fn writing_is_refused() {
    let mut session = session().await;
    for text in [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE t",
    ] {
        let error = run(&mut session, text).await.unwrap_err();
        assert_eq!((error.sqlstate, error.hint.is_some()), ("25006", true), "{text}");
    }
}

#[tokio::test]
async fn errors_of_queries_have_state_and_place() {
    let mut session = session().await;
    for (text, state, position) in [
        ("SELECT * FROM shop.orders", "42P01", Some(15)),
        ("SELECT 1; SELECT 'é', * FROM orders", "42P01", Some(30)),
        ("SELECT name, nme FROM sys.jobs", "42703", Some(14)),
        ("SELECT frobnicate(1)", "42883", Some(8)),
        ("SELECT 1/0", "22012", None),
        ("SELECT 'abc'::int", "22P02", None),
        ("SELECT $1::int", "42P02", None),
        ("SHOW JOBS WHERE bogus = 1", "42703", Some(17)),
        ("SHOW JOBS WHERE state = = 1", "42601", Some(25)),
        ("SHOW nonsense", "42704", Some(6)),
    ] {
        let error = run(&mut session, text).await.unwrap_err();
        assert_eq!((error.sqlstate, error.position), (state, position), "{text}: {error:?}");
    }
}

#[tokio::test]
async fn settings_are_set_and_shown() {
    let mut session = session().await;
    run(&mut session, "SET TIME ZONE 'Europe/Berlin'; SET application_name TO demo").await.unwrap();
    assert!(run(&mut session, "SHOW TimeZone").await.unwrap().contains("Europe/Berlin"));
    let row = run(&mut session, "SELECT value FROM sys.settings WHERE name = 'application_name'").await.unwrap();
    assert!(row.contains("demo"), "{row}");
    run(&mut session, "BEGIN; SET LOCAL application_name = 'inner'; COMMIT").await.unwrap();
    assert!(run(&mut session, "SHOW application_name").await.unwrap().contains("demo"));
    run(&mut session, "DISCARD ALL").await.unwrap();
    assert!(run(&mut session, "SHOW application_name").await.unwrap().contains("test"));
    assert!(run(&mut session, "SHOW ALL").await.unwrap().contains("standard_conforming_strings"));
}

#[tokio::test]
async fn statements_are_described() {
    let mut session = session().await;
    for (text, given, parameters, columns) in [
        ("SELECT 1 AS one", vec![], vec![], Some(vec!["one"])),
        (
            "SELECT name FROM sys.jobs WHERE lag_ms > $1 LIMIT $2",
            vec![],
            vec![DataType::Int64, DataType::Int64],
            Some(vec!["name"]),
        ),
        ("SELECT $1 AS x", vec![], vec![DataType::Utf8], Some(vec!["x"])),
        ("SELECT $1 AS x", vec![Some(DataType::Int32)], vec![DataType::Int32], Some(vec!["x"])),
        ("SELECT count(*), 1, 1 FROM sys.jobs", vec![], vec![], Some(vec!["count", "?column?", "?column?"])),
        ("SHOW timezone", vec![], vec![], Some(vec!["TimeZone"])),
        ("SHOW SECRETS", vec![], vec![], Some(vec!["name", "backend", "used_by", "created_at"])),
        ("BEGIN", vec![], vec![], None),
    ] {
        let statement = session.parse(text).unwrap().remove(0);
        let description =
            session.describe(&statement, &given).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(description.parameters, parameters, "{text}");
        let names = description
            .schema
            .map(|schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>());
        assert_eq!(names, columns.map(|columns| columns.into_iter().map(str::to_owned).collect()), "{text}");
    }
}

#[tokio::test]
async fn parameters_are_bound() {
    let mut session = session().await;
    let statement = session.parse("SELECT $1::bigint + $2::bigint AS sum").unwrap().remove(0);
    let values = vec![ScalarValue::Int64(Some(40)), ScalarValue::Int64(Some(2))];
    let Outcome::Rows { stream, .. } = session.execute(&statement, values).await.unwrap() else { panic!() };
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    assert!(pretty_format_batches(&batches).unwrap().to_string().contains("42"));
    assert_eq!(session.execute(&statement, vec![ScalarValue::Int64(Some(1))]).await.unwrap_err().sqlstate, "42P02");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_end_with_their_time() {
    let mut session = session().await;
    run(&mut session, "SET statement_timeout = 50").await.unwrap();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) AS t(n) WHERE n % 7 = 3";
    assert_eq!(state_of(&mut session, endless).await, "57014");
}
