//! Statements through a real driver, which sends parameters and takes results in binary form.

use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, pin_mut};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::{ToSql, Type};

use crate::support::{Raw, connect, message, soon, sqlstate, start};

#[tokio::test(flavor = "multi_thread")]
async fn values_go_there_and_back() {
    let server = start().await;
    let client = connect(&server).await;
    async fn same<T>(client: &tokio_postgres::Client, kind: &str, value: T)
    where
        T: ToSql + Sync + PartialEq + std::fmt::Debug + for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let row = client.query_one(&format!("SELECT $1::{kind}"), &[&value]).await.expect(kind);
        assert_eq!(row.get::<_, T>(0), value, "{kind}");
    }
    same(&client, "int2", i16::MIN).await;
    same(&client, "int4", i32::MIN).await;
    same(&client, "int8", i64::MAX).await;
    same(&client, "float4", 0.1_f32).await;
    same(&client, "float8", -1.0e-300_f64).await;
    same(&client, "boolean", true).await;
    same(&client, "text", "nöt ASCII".to_owned()).await;
    same(&client, "text", String::new()).await;
    same(&client, "bytea", vec![0_u8, 255, 92]).await;
    same(&client, "int8", None::<i64>).await;
    same(&client, "text", None::<String>).await;
    let instant = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_946_400_000_001);
    same(&client, "timestamp", instant).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_runs_many_times() {
    let server = start().await;
    let client = connect(&server).await;
    let statement = client.prepare("SELECT $1::int8 * 2 AS twice, 'x' AS mark").await.expect("prepared");
    assert_eq!(statement.params(), [Type::INT8]);
    let columns: Vec<_> =
        statement.columns().iter().map(|column| (column.name().to_owned(), column.type_().clone())).collect();
    assert_eq!(columns, [("twice".to_owned(), Type::INT8), ("mark".to_owned(), Type::TEXT)]);
    for value in 0..100_i64 {
        let row = client.query_one(&statement, &[&value]).await.expect("runs");
        assert_eq!(row.get::<_, i64>("twice"), value * 2);
    }
    // Many at the same time on one connection: answered in order.
    let calls = (0..50_i64).map(|value| {
        let (client, statement) = (&client, &statement);
        async move { client.query_one(statement, &[&value]).await.map(|row| row.get::<_, i64>(0)) }
    });
    for (value, answer) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer.expect("runs"), value as i64 * 2);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_in_one_text() {
    let server = start().await;
    let client = connect(&server).await;
    let messages = client.simple_query("SELECT 1 AS a; SELECT 2 AS a, NULL AS b;").await.expect("both run");
    let rows: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get("a").map(str::to_owned)),
            _ => None,
        })
        .collect();
    assert_eq!(rows, [Some("1".to_owned()), Some("2".to_owned())]);
    // The one that fails ends them; the one before has been answered.
    let mut raw = Raw::ready(&server).await;
    raw.send(&message(b'Q', b"SELECT 1; SELECT nothing_of_that_name; SELECT 3\0")).await;
    assert_eq!(raw.kinds().await, "TDCEZ");
    raw.send(&message(b'Q', b"SELECT 1; SELEC 2\0")).await;
    assert_eq!(raw.kinds().await, "EZ", "a text that cannot be parsed runs nothing");
    raw.send(&message(b'Q', b" ;; -- nothing\n\0")).await;
    assert_eq!(raw.kinds().await, "IZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_give_as_many_rows_as_are_asked_for() {
    let server = start().await;
    let mut client = connect(&server).await;
    let transaction = client.transaction().await.expect("a transaction");
    let portal =
        transaction.bind("SELECT i FROM generate_series(1, 10) AS g(i) ORDER BY i", &[]).await.expect("a portal");
    let mut seen = Vec::new();
    for expected in [3, 3, 3, 1, 0] {
        let rows = transaction.query_portal(&portal, 3).await.expect("rows");
        assert_eq!(rows.len(), expected);
        seen.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    transaction.commit().await.expect("commits");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_fields_and_the_connection_goes_on() {
    let server = start().await;
    let client = connect(&server).await;
    for wrong in ["SELEC 1", "SELECT nope", "SELECT 1; SELECT 2"] {
        let error = client.query(wrong, &[]).await.expect_err(wrong);
        let fields = error.as_db_error().expect("an error of the server");
        assert_eq!(fields.severity(), "ERROR");
        assert!(fields.code().code().starts_with("42"), "{wrong}: {fields:?}");
        assert!(!fields.message().is_empty());
    }
    assert_eq!(client.query_one("SELECT 1", &[]).await.expect("goes on").len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_transaction_refuses_until_its_end() {
    let server = start().await;
    let client = connect(&server).await;
    client.batch_execute("BEGIN").await.expect("begins");
    client.batch_execute("SELECT nope").await.expect_err("no such column");
    let error = client.query("SELECT 1", &[]).await.expect_err("refused");
    assert_eq!(sqlstate(&error), "25P02");
    client.batch_execute("ROLLBACK").await.expect("ends");
    client.query("SELECT 1", &[]).await.expect("goes on");

    let mut raw = Raw::ready(&server).await;
    for (sql, status) in [("BEGIN", b'T'), ("SELECT 1", b'T'), ("SELECT nope", b'E'), ("ROLLBACK", b'I')] {
        raw.send(&message(b'Q', format!("{sql}\0").as_bytes())).await;
        let ready = loop {
            match raw.message().await {
                Some((b'Z', body)) => break body,
                Some(_) => {}
                None => panic!("the connection ended"),
            }
        };
        assert_eq!(ready, [status], "{sql}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_leave_before_the_query_ends() {
    let server = start().await;
    let client = connect(&server).await;
    // More rows than would fit in memory, were they collected.
    let rows = client
        .query_raw::<_, &str, _>("SELECT i, 'some text beside it' AS t FROM generate_series(1, 4000000000) AS g(i)", [])
        .await
        .expect("starts");
    pin_mut!(rows);
    for expected in 1..=100_000_i64 {
        let row = soon("a row", rows.next()).await.expect("more rows").expect("a row");
        assert_eq!(row.get::<_, i64>(0), expected);
    }
    client.cancel_token().cancel_query(tokio_postgres::NoTls).await.expect("cancels");
    let error = soon("the end", async {
        loop {
            if let Err(error) = rows.next().await.expect("an error at the end") {
                return error;
            }
        }
    })
    .await;
    assert_eq!(sqlstate(&error), "57014");
    assert_eq!(client.query_one("SELECT 1", &[]).await.expect("goes on").len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rows_arrive_whatever_the_formats() {
    let server = start().await;
    let client = connect(&server).await;
    let rows = client
        .query("SELECT i, CAST(i AS text) AS t FROM generate_series(1, 100000) AS g(i)", &[])
        .await
        .expect("rows in binary");
    assert_eq!(rows.len(), 100_000);
    assert!(rows.iter().all(|row| row.get::<_, i64>(0).to_string() == row.get::<_, String>(1)));
    let messages = client.simple_query("SELECT i FROM generate_series(1, 100000) AS g(i)").await.expect("rows in text");
    let sum: i64 = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).and_then(|text| text.parse::<i64>().ok()),
            _ => None,
        })
        .sum();
    assert_eq!(sum, 5_000_050_000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_the_extended_protocol_skips_to_the_next_sync() {
    let server = start().await;
    let mut raw = Raw::ready(&server).await;
    let parse = |sql: &str| message(b'P', format!("\0{sql}\0\0\0").as_bytes());
    let bind = message(b'B', b"\0\0\0\0\0\0\0\0");
    let execute = message(b'E', b"\0\0\0\0\0");
    let sync = message(b'S', b"");
    raw.send(&[parse("SELECT nope"), bind.clone(), execute.clone(), sync.clone()].concat()).await;
    assert_eq!(raw.kinds().await, "EZ");
    raw.send(&[parse("SELECT 1"), bind.clone(), execute.clone(), sync.clone()].concat()).await;
    assert_eq!(raw.kinds().await, "12DCZ");
    raw.send(&[parse(""), bind.clone(), message(b'D', b"P\0"), execute.clone(), sync.clone()].concat()).await;
    assert_eq!(raw.kinds().await, "12nIZ");
    // A statement that does not exist, closed and bound.
    raw.send(&[message(b'C', b"Sghost\0"), message(b'B', b"\0ghost\0\0\0\0\0\0\0"), sync.clone()].concat()).await;
    assert_eq!(raw.kinds().await, "3EZ");
    // One that was closed is gone, and its name is free again.
    let named = message(b'P', b"s\0SELECT 1\0\0\0");
    raw.send(&[named.clone(), named.clone(), sync.clone()].concat()).await;
    assert_eq!(raw.kinds().await, "1EZ");
    raw.send(&[message(b'C', b"Ss\0"), named, message(b'D', b"Ss\0"), sync].concat()).await;
    assert_eq!(raw.kinds().await, "31tTZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_are_reported() {
    let server = start().await;
    let mut raw = Raw::ready(&server).await;
    raw.send(&message(b'Q', b"SET TimeZone = 'Europe/Berlin'\0")).await;
    let mut told = Vec::new();
    while let Some((kind, body)) = raw.message().await {
        match kind {
            b'S' => told.push(String::from_utf8_lossy(&body).into_owned()),
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(told, ["TimeZone\0Europe/Berlin\0"]);
    raw.send(&message(b'Q', b"SELECT CAST('2026-07-01T10:00:00Z' AS timestamptz)\0")).await;
    let row = loop {
        match raw.message().await {
            Some((b'D', body)) => break body,
            Some((b'E', body)) => panic!("{}", String::from_utf8_lossy(&body)),
            Some(_) => {}
            None => panic!("the connection ended"),
        }
    };
    assert_eq!(String::from_utf8_lossy(&row[6..]), "2026-07-01 12:00:00+02");
    server.stop().await;
}
