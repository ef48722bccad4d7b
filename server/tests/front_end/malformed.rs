//! Bytes that are not the protocol: an error for their connection, nothing for the others.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::support::{Raw, connect, message, soon, start, startup};

fn violation() -> Option<(String, String)> {
    Some(("FATAL".into(), "08P01".into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_end_their_connection() {
    let server = start().await;
    let bystander = connect(&server).await;
    for (what, bytes) in [
        ("an unknown kind", message(b'?', b"")),
        ("a length below its own size", b"Q\0\0\0\x03".to_vec()),
        ("a text without an end", message(b'Q', b"SELECT 1")),
        ("bytes behind the end", message(b'Q', b"SELECT 1\0more")),
        ("a Bind that is cut short", message(b'B', b"\0\0\0\x01\0\0\0\x01\0\0\x01\0abc")),
        ("a Parse with more types than it holds", message(b'P', b"\0SELECT 1\0\xff\xff")),
        ("a password that nobody asked for", message(b'p', b"secret\0")),
    ] {
        let mut raw = Raw::ready(&server).await;
        raw.send(&bytes).await;
        assert_eq!(raw.error().await, violation(), "{what}");
        assert_eq!(raw.message().await, None, "{what}");
    }
    bystander.query_one("SELECT 1", &[]).await.expect("not affected");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_message_is_refused_by_its_length() {
    let server = start().await;
    let mut raw = Raw::ready(&server).await;
    let mut huge = b"Q".to_vec();
    huge.extend_from_slice(&(1_u32 << 30).to_be_bytes());
    huge.extend_from_slice(&[b'x'; 100_000]);
    raw.send(&huge).await;
    assert_eq!(raw.error().await, violation());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_message_below_the_limit_is_taken() {
    let server = start().await;
    let client = connect(&server).await;
    let text = "x".repeat(8 << 20);
    let row = client.query_one("SELECT $1::text", &[&text]).await.expect("answered");
    assert_eq!(row.get::<_, String>(0).len(), text.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf8_is_an_error_of_the_statement() {
    let server = start().await;
    let mut raw = Raw::ready(&server).await;
    raw.send(&message(b'Q', b"SELECT '\xff'\0")).await;
    assert_eq!(raw.error().await, Some(("ERROR".into(), "22021".into())));
    assert_eq!(raw.kinds().await, "Z");
    raw.send(&message(b'Q', b"SELECT 1\0")).await;
    assert_eq!(raw.kinds().await, "TDCZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_protocols_are_turned_away() {
    let server = start().await;
    for greeting in [
        &b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"[..],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"\0\0\0\x08\0\x02\0\0",
    ] {
        let mut raw = Raw::open(&server).await;
        raw.send(greeting).await;
        assert_eq!(raw.error().await, violation());
        assert_eq!(raw.message().await, None);
    }
    server.stop().await;
}

/// A conversation with every kind of message.
fn conversation() -> Vec<u8> {
    [
        message(b'Q', b"SELECT 1; SELECT 'two'\0"),
        message(b'P', b"s\0SELECT $1::int4 + 1\0\0\x01\0\0\0\x17"),
        message(b'D', b"Ss\0"),
        message(b'B', b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"),
        message(b'D', b"Pp\0"),
        message(b'E', b"p\0\0\0\0\x01"),
        message(b'H', b""),
        message(b'C', b"Pp\0"),
        message(b'S', b""),
        message(b'c', b""),
        message(b'Q', b"SELECT 3\0"),
        message(b'X', b""),
    ]
    .concat()
}

/// Random bytes, before and behind a valid start, and valid conversations with random faults: the server answers others
/// all the while, and every one of these connections ends.
#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_hurt_nobody_else() {
    let server = start().await;
    let bystander = connect(&server).await;
    let mut random = StdRng::seed_from_u64(20_261_129);
    for round in 0..400 {
        let mut raw = Raw::open(&server).await;
        let bytes = match round % 4 {
            0 => (0..random.random_range(1..200)).map(|_| random.random()).collect(),
            1 => {
                let noise: Vec<u8> = (0..random.random_range(1..200)).map(|_| random.random()).collect();
                [startup(&[("user", "noise")]), noise].concat()
            }
            2 => {
                let mut bytes = [startup(&[("user", "noise")]), conversation()].concat();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] = random.random();
                }
                bytes
            }
            _ => {
                let mut bytes = [startup(&[("user", "noise")]), conversation()].concat();
                bytes.truncate(random.random_range(1..bytes.len()));
                bytes
            }
        };
        raw.send(&bytes).await;
        // No more will come: the server must not wait for the rest of a message for ever.
        soon("the end of a connection", raw.drain()).await;
        if round % 20 == 0 {
            soon("the bystander", bystander.query_one("SELECT 1", &[])).await.expect("not affected");
        }
    }
    bystander.query_one("SELECT 1", &[]).await.expect("not affected");
    server.stop().await;
}
