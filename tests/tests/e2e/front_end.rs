//! What a user sees in psql.

use std::io::{Read, Write};

use tidegate_tests::{
    gate::Gate,
    pg::{Pg, psql},
    servers::{Kind, Server},
};

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_in_psql() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, status VARCHAR(10), amount DECIMAL(10,2))",
            "INSERT INTO shop.orders VALUES (1, 'new', 10.50), (2, 'paid', 20.25), (3, 'paid', 1)",
            "CREATE TABLE shop.no_key (v INT)",
        ])
        .await;
    let gate = Gate::start().await;
    let run = |script: String| psql(gate.port, &script);
    let expect = |script: &str, words: &[&str]| {
        let output = psql(gate.port, script);
        let text = said(&output);
        assert!(output.status.success(), "{script}: {text}");
        for word in words {
            assert!(text.contains(word), "{script}: no {word:?} in {text}");
        }
        text
    };
    expect("SELECT 1", &["1"]);
    expect("CREATE SECRET shop_pw AS 'cdc-secret'", &[]);
    let options = format!(
        "connector = 'mysql-cdc', hostname = '127.0.0.1', port = {}, username = 'cdc', password = SECRET shop_pw, tables = 'shop.*'",
        server.port
    );
    let plan = said(&run(format!("EXPLAIN CREATE SOURCE shop WITH ({options})")));
    for word in ["orders", "no_key", "binlog"] {
        assert!(plan.contains(word), "EXPLAIN does not name {word}: {plan}");
    }
    let created = said(&run(format!("CREATE SOURCE shop WITH ({options})")));
    assert!(created.contains("NOTICE") && created.contains("no primary key"), "{created}");
    expect("WAIT FOR SOURCE shop SNAPSHOT TIMEOUT '60 seconds'", &[]);
    expect(
        "SELECT status, count(*), sum(amount) FROM shop.orders GROUP BY status ORDER BY status",
        &["new|1|10.50", "paid|2|21.25"],
    );
    for (script, word) in [
        ("SHOW SOURCES", "shop"),
        ("SHOW JOBS", "shop"),
        ("SHOW TABLES", "orders"),
        ("SHOW CHECKPOINTS", "1"),
        ("SHOW SECRETS", "shop_pw"),
        ("SELECT * FROM sys.sources", "shop"),
        ("SELECT * FROM sys.jobs", "streaming"),
        ("SELECT * FROM sys.job_tables", "orders"),
        ("SELECT * FROM sys.source_positions", "shop"),
        ("SELECT * FROM sys.checkpoint_tables", "orders"),
        ("SELECT count(*) FROM sys.snapshot_ranges", "0"),
        ("SELECT count(*) FROM sys.errors", "0"),
        ("\\dt shop.*", "orders"),
        ("\\dn", "shop"),
        ("\\l", "tidegate"),
        ("\\d shop.orders", "amount"),
    ] {
        expect(script, &[word]);
    }
    let definition = expect("SHOW CREATE SOURCE shop", &["mysql-cdc"]);
    let everything =
        [definition, expect("SELECT * FROM sys.secrets", &[]), expect("SELECT * FROM sys.sources", &[])].concat();
    assert!(!everything.contains("cdc-secret"), "a secret is shown: {everything}");

    expect("PAUSE SOURCE shop", &[]);
    server.execute(&["INSERT INTO shop.orders VALUES (4, 'new', 0.01)"]).await;
    expect("SELECT count(*) FROM shop.orders", &["3"]);
    expect("RESUME SOURCE shop", &[]);
    gate.catch_up("shop").await;
    expect("SELECT count(*) FROM shop.orders", &["4"]);
    let gtid = {
        server.execute(&["UPDATE shop.orders SET status = 'paid' WHERE id = 4"]).await;
        server.gtid_set().await
    };
    expect(&format!("WAIT FOR SOURCE shop GTID '{gtid}' TIMEOUT '30 seconds'"), &[]);
    expect("SELECT status FROM shop.orders WHERE id = 4", &["paid"]);
    expect("CHECKPOINT SOURCE shop", &[]);

    // Read-only, and errors that point at their place.
    let pg = gate.connect().await;
    pg.error("INSERT INTO shop.orders VALUES (9, 'x', 1)").await.assert_names(&["read-only"]);
    let wrong = pg.error("SELECT no_such FROM shop.orders").await;
    assert_eq!(wrong.sqlstate, "42703", "{wrong:?}");
    assert_eq!(pg.error("SELEC 1").await.sqlstate, "42601");
    assert_eq!(pg.error("SELECT * FROM shop.nothing").await.sqlstate, "42P01");
    pg.execute("BEGIN").await;
    pg.error("SELECT 1 / 0 FROM shop.no_such_table").await;
    assert_eq!(pg.error("SELECT 1").await.sqlstate, "25P02");
    pg.execute("ROLLBACK").await;

    expect("DROP SOURCE shop", &[]);
    assert!(!said(&run("SHOW SOURCES".to_owned())).contains("mysql-cdc"));
}

/// The extended protocol: parameters, and several connections at once that do not share a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_and_separate_transactions() {
    let server = Server::start(Kind::MariaDb, &[]).await;
    server
        .execute(&[
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, v BIGINT)",
            "INSERT INTO shop.t VALUES (1, 10), (2, 20)",
        ])
        .await;
    let gate = Gate::start().await;
    gate.mirror("shop", &server, "shop.t").await;
    let pg = gate.connect().await;
    let statement = pg.client.prepare("SELECT v FROM shop.t WHERE id = $1").await.expect("a statement can be prepared");
    for (id, v) in [(1_i32, 10_i64), (2, 20)] {
        let row = pg.client.query_one(&statement, &[&id]).await.expect("a prepared statement can be run");
        assert_eq!(row.get::<_, i64>(0), v);
    }
    assert!(pg.client.query_opt(&statement, &[&3_i32]).await.expect("no row is no error").is_none());

    // A block keeps its checkpoint while another connection moves on.
    pg.execute("BEGIN").await;
    assert_eq!(pg.number("SELECT sum(v) FROM shop.t").await, 30);
    server.execute(&["UPDATE shop.t SET v = v + 1"]).await;
    gate.catch_up("shop").await;
    assert_eq!(gate.connect().await.number("SELECT sum(v) FROM shop.t").await, 32);
    assert_eq!(pg.number("SELECT sum(v) FROM shop.t").await, 30);
    pg.execute("COMMIT").await;
    assert_eq!(pg.number("SELECT sum(v) FROM shop.t").await, 32);
}

/// Bytes that are no protocol end their own connection and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_messages_end_their_own_connection() {
    let gate = Gate::start().await;
    let startup: Vec<u8> = {
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        body.extend(b"user\0tidegate\0database\0tidegate\0\0");
        let mut message = u32::try_from(body.len() + 4).expect("short").to_be_bytes().to_vec();
        message.extend(body);
        message
    };
    let after_startup: &[&[u8]] = &[
        b"Q\x00\x00\x00\x00",
        b"Q\x7f\xff\xff\xffselect 1",
        b"Q\xff\xff\xff\xffselect 1",
        b"Z\x00\x00\x00\x04",
        b"\x00\x00\x00\x00\x00",
        b"Q\x00\x00\x00\x0dselect \xff\x00",
        b"P\x00\x00\x00\x06\x00\x00",
        b"B\x00\x00\x00\x0a\x00\x00\xff\xff\x00\x00",
        b"E\x00\x00\x00\x09none\x00",
        b"D\x00\x00\x00\x06X\x00",
    ];
    let mut attempts: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        b"\x00\x00\x00\x08\x00\x00\x00\x00".to_vec(),
        b"\x7f\xff\xff\xff\x00\x03\x00\x00".to_vec(),
        b"\x00\x00\x00\x04".to_vec(),
    ];
    attempts.extend(after_startup.iter().map(|bytes| [startup.as_slice(), bytes].concat()));
    for attempt in attempts {
        let port = gate.port;
        tokio::task::spawn_blocking(move || {
            let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).expect("tidegate listens");
            socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout can be set");
            let _ = socket.write_all(&attempt);
            let mut answer = [0; 4096];
            let _ = socket.read(&mut answer);
        })
        .await
        .expect("the client does not panic");
        let pg = Pg::try_connect(gate.port).await.expect("tidegate goes on");
        assert_eq!(pg.number("SELECT 1").await, 1);
    }
}
