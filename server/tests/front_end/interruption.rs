//! What ends a statement, or a connection, before it is done.

use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::support::{ENDLESS, Raw, config, connect, connect_with, message, options, soon, sqlstate, start};
use tidegate::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_request_ends_the_statement_within_a_second() {
    let server = start().await;
    let client = connect(&server).await;
    let cancel = client.cancel_token();
    for simple in [true, false] {
        let running = async {
            if simple {
                client.simple_query(ENDLESS).await.map(drop)
            } else {
                client.query(ENDLESS, &[]).await.map(drop)
            }
        };
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cancel.cancel_query(NoTls).await.expect("a cancel request");
            Instant::now()
        };
        let (ended, asked) = soon("the cancelled statement", async { tokio::join!(running, cancelling) }).await;
        assert_eq!(sqlstate(&ended.expect_err("cancelled")), "57014");
        assert!(asked.elapsed() < Duration::from_secs(1), "took {:?}", asked.elapsed());
    }
    // One that comes when nothing runs does not hit the next statement.
    cancel.cancel_query(NoTls).await.expect("a cancel request");
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.query_one("SELECT 1", &[]).await.expect("goes on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_statement_fails_its_transaction() {
    let server = start().await;
    let client = connect(&server).await;
    client.batch_execute("BEGIN").await.expect("begins");
    let cancel = client.cancel_token();
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel_query(NoTls).await.expect("a cancel request");
    };
    let (ended, ()) = soon("the statement", async { tokio::join!(client.simple_query(ENDLESS), cancelling) }).await;
    assert_eq!(sqlstate(&ended.expect_err("cancelled")), "57014");
    assert_eq!(sqlstate(&client.simple_query("SELECT 1").await.expect_err("refused")), "25P02");
    client.batch_execute("ROLLBACK").await.expect("ends");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_timeout_ends_a_statement() {
    let server = start().await;
    let client = connect(&server).await;
    client.batch_execute("SET statement_timeout = '300'").await.expect("set");
    for simple in [true, false] {
        let began = Instant::now();
        let ended = soon("the statement", async {
            if simple {
                client.simple_query(ENDLESS).await.map(drop)
            } else {
                client.query(ENDLESS, &[]).await.map(drop)
            }
        });
        assert_eq!(sqlstate(&ended.await.expect_err("timed out")), "57014");
        assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    }
    client.batch_execute("SET statement_timeout = '0'").await.expect("set");
    client.query_one("SELECT 1", &[]).await.expect("goes on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_is_closed_after_its_timeout() {
    let server = start().await;
    let mut raw = Raw::ready(&server).await;
    raw.send(&message(b'Q', b"SET idle_session_timeout = '200'\0")).await;
    assert_eq!(raw.kinds().await, "CZ");
    assert_eq!(raw.error().await, Some(("FATAL".into(), "57P05".into())));
    assert_eq!(raw.message().await, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_takes_its_query_along() {
    let mut one = options();
    one.max_connections = 1;
    let server = Server::start(one).await.expect("starts");
    let mut raw = Raw::ready(&server).await;
    raw.send(&message(b'Q', format!("{ENDLESS}\0").as_bytes())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(raw);
    // Its place is free only when nothing of it runs any more.
    soon("the place of the client that went", async {
        while let Err(error) = connect_with(&config(&server)).await {
            assert_eq!(sqlstate(&error), "53300");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_queries_leave_room_for_small_ones() {
    let server = start().await;
    let mut heavy = Vec::new();
    for _ in 0..3 {
        let client = connect(&server).await;
        let cancel = client.cancel_token();
        let running = tokio::spawn(async move { client.simple_query(ENDLESS).await.map(drop) });
        heavy.push((cancel, running));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let client = connect(&server).await;
    for _ in 0..5 {
        let began = Instant::now();
        soon("a small query", client.query_one("SELECT 1", &[])).await.expect("answered");
        assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    }
    for (cancel, running) in heavy {
        cancel.cancel_query(NoTls).await.expect("a cancel request");
        soon("a heavy query", running).await.expect("ends").expect_err("cancelled");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_says_goodbye() {
    let server = start().await;
    let mut idle = Raw::ready(&server).await;
    let mut busy = Raw::ready(&server).await;
    busy.send(&message(b'Q', format!("{ENDLESS}\0").as_bytes())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    soon("the server's end", server.stop()).await;
    for raw in [&mut idle, &mut busy] {
        assert_eq!(raw.error().await, Some(("FATAL".into(), "57P01".into())));
        assert_eq!(raw.message().await, None);
    }
}
