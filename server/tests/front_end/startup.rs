//! How a connection comes about, and how it does not.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use tidegate::server::{Server, StartError};

use crate::support::{Raw, config, connect, connect_with, options, soon, sqlstate, start, startup};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

#[tokio::test(flavor = "multi_thread")]
async fn encryption_is_refused_in_a_byte() {
    let server = start().await;
    let mut raw = Raw::open(&server).await;
    raw.send(&GSS_REQUEST).await;
    assert_eq!(raw.byte().await, Some(b'N'));
    raw.send(&SSL_REQUEST).await;
    assert_eq!(raw.byte().await, Some(b'N'));
    raw.send(&startup(&[("user", "tester")])).await;
    assert!(raw.kinds().await.starts_with('R'));
    // What comes behind a request without waiting for the answer may have been put there by someone else.
    let mut raw = Raw::open(&server).await;
    raw.send(&[&SSL_REQUEST[..], &startup(&[("user", "tester")])].concat()).await;
    assert_eq!(raw.error().await, Some(("FATAL".into(), "08P01".into())));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_tells_what_clients_look_for() {
    let server = start().await;
    let mut raw = Raw::open(&server).await;
    raw.send(&startup(&[("user", "tester"), ("application_name", "front end test")])).await;
    let mut told = std::collections::BTreeMap::new();
    let mut key = false;
    while let Some((kind, body)) = raw.message().await {
        match kind {
            b'S' => {
                let text = String::from_utf8(body).expect("UTF-8");
                let mut parts = text.split('\0').map(str::to_owned);
                told.insert(parts.next().expect("a name"), parts.next().expect("a value"));
            }
            b'K' => key = body.len() == 8,
            b'Z' => break,
            _ => {}
        }
    }
    assert!(key, "a key for cancel requests");
    for name in ["server_version", "client_encoding", "DateStyle", "TimeZone", "integer_datetimes", "is_superuser"] {
        assert!(told.contains_key(name), "{name} in {told:?}");
    }
    assert!(told["server_version"].starts_with("16."));
    assert_eq!(told["client_encoding"], "UTF8");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_connections_is_limited() {
    let mut two = options();
    two.max_connections = 2;
    let server = Server::start(two).await.expect("starts");
    let first = connect(&server).await;
    let _second = connect(&server).await;
    let error = connect_with(&config(&server)).await.expect_err("full");
    assert_eq!(sqlstate(&error), "53300");
    drop(first);
    soon("a free place", async {
        while connect_with(&config(&server)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_asked_for_when_there_are_some() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "ann:correct horse").expect("written");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).expect("mode");
    let mut guarded = options();
    guarded.password_file = Some(file.path().to_owned());
    let server = Server::start(guarded.clone()).await.expect("starts");
    let mut ann = config(&server);
    ann.user("ann").password("correct horse");
    connect_with(&ann).await.expect("let in").query_one("SELECT 1", &[]).await.expect("answered");
    ann.password("battery staple");
    assert_eq!(sqlstate(&connect_with(&ann).await.expect_err("wrong password")), "28P01");
    ann.user("bob").password("correct horse");
    assert_eq!(sqlstate(&connect_with(&ann).await.expect_err("unknown user")), "28P01");
    server.stop().await;

    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).expect("mode");
    assert!(matches!(Server::start(guarded).await, Err(StartError::PasswordFile(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_an_error_that_names_it() {
    let server = start().await;
    let mut same = options();
    same.listen = server.address();
    match Server::start(same).await {
        Err(error @ StartError::Listen { .. }) => assert!(error.to_string().contains(&server.address().to_string())),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two servers on one port"),
    }
    server.stop().await;
}
