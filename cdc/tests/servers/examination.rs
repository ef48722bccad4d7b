//! What is found out about a database before it is captured, and how connections log in.

use tidegate_cdc::error::Code;
use tidegate_cdc::mysql::catalog::list_tables;
use tidegate_cdc::mysql::connect::{connect, connect_for_rows};
use tidegate_cdc::source::definition::{
    CaptureOptions, ConnectionOptions, SourceDefinition, SslMode, TablePattern, TableRule,
};
use tidegate_cdc::source::examine::{CheckStatus, examine};

use super::server::{Kind, Server};

fn definition(connection: ConnectionOptions, tables: &str) -> SourceDefinition {
    SourceDefinition {
        id: uuid::Uuid::from_u128(7),
        name: "shop".to_owned(),
        connection,
        tables: TablePattern::parse_list(tables).expect("patterns").into_iter().map(TableRule::new).collect(),
        exclude: Vec::new(),
        options: CaptureOptions::default(),
    }
}

#[tokio::test]
async fn the_examination_finds_tables_and_says_why_some_are_left_out() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        server
            .execute(&[
                "CREATE TABLE shop.orders (id INT, part INT, v VARCHAR(10), PRIMARY KEY (part, id))",
                "CREATE TABLE shop.nokey (id INT, u INT NOT NULL, UNIQUE KEY (u))",
                "CREATE TABLE shop.shape (id INT PRIMARY KEY, g GEOMETRY)",
                "CREATE TABLE shop.prefix (t VARCHAR(300), PRIMARY KEY (t(10)))",
                "CREATE TABLE shop.other (id INT PRIMARY KEY)",
                "CREATE VIEW shop.seen AS SELECT * FROM shop.orders",
                "INSERT INTO shop.orders VALUES (1, 1, 'x'), (2, 1, 'y')",
                "ANALYZE TABLE shop.orders",
            ])
            .await;
        let found = examine(&definition(server.capturer(), "shop.*")).await.expect("an examination");
        assert!(found.failure().is_none(), "{kind:?}: {:?}", found.checks);
        let mut tables: Vec<_> =
            found.tables.iter().map(|t| (t.name.as_str(), t.left_out.clone().unwrap_or_default())).collect();
        tables.sort();
        let names: Vec<_> = tables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["nokey", "orders", "other", "prefix", "shape"], "{kind:?}: no views");
        for (name, word) in [
            ("nokey", "no primary key"),
            ("shape", "column `g`"),
            ("prefix", "beginning"),
            ("orders", ""),
            ("other", ""),
        ] {
            let reason = &tables.iter().find(|(n, _)| *n == name).expect("the table").1;
            assert!(reason.contains(word) && reason.is_empty() == word.is_empty(), "{kind:?} {name}: {reason}");
        }
        let orders = found.tables.iter().find(|t| t.name == "orders").expect("orders");
        assert_eq!(orders.key, Some(vec!["part".to_owned(), "id".to_owned()]));
        assert_eq!(orders.estimated_rows, 2);

        let mut keyed = definition(server.capturer(), "shop.nokey");
        keyed.tables[0].key = Some(vec!["U".to_owned()]);
        let (mut conn, info) = connect(&server.capturer()).await.expect("a connection");
        let tables = list_tables(&mut conn, &info, &keyed).await.expect("tables");
        assert_eq!(tables[0].key, Some(vec!["u".to_owned()]));
        assert_eq!(tables[0].left_out, None);
        keyed.tables[0].key = Some(vec!["id".to_owned()]);
        let tables = list_tables(&mut conn, &info, &keyed).await.expect("tables");
        assert!(tables[0].left_out.is_some(), "a key that nothing enforces");
        conn.close().await;

        let none = examine(&definition(server.capturer(), "shop.ord")).await.expect("an examination");
        assert_eq!(none.failure().map(|error| error.code), Some(Code::NoTableMatched));
    }
}

#[tokio::test]
async fn missing_rights_and_wrong_settings_are_named() {
    for kind in Kind::all() {
        let server = Server::start(
            kind,
            &["--binlog-row-image=MINIMAL", "--binlog-format=MIXED", "--binlog-row-metadata=MINIMAL"],
        )
        .await;
        server
            .execute(&[
                "CREATE TABLE shop.t (id INT PRIMARY KEY)",
                "CREATE TABLE shop.secret (id INT PRIMARY KEY, x INT)",
                "CREATE USER weak@'%' IDENTIFIED BY 'weak'",
                "GRANT SELECT ON shop.t TO weak@'%'",
                "GRANT SELECT (id) ON shop.secret TO weak@'%'",
            ])
            .await;
        let weak = ConnectionOptions::new("127.0.0.1", server.port, "weak", "weak");
        let found = examine(&definition(weak, "shop.*")).await.expect("an examination");
        let failed: Vec<_> =
            found.checks.iter().filter(|c| c.status == CheckStatus::Failed).filter_map(|check| check.code).collect();
        for code in [Code::BinlogFormat, Code::RowImage, Code::MissingRight] {
            assert!(failed.contains(&code), "{kind:?}: {code} in {:?}", found.checks);
        }
        let grants: Vec<_> = found.checks.iter().filter_map(|check| check.hint.as_deref()).collect();
        assert!(
            grants.iter().any(|hint| hint.contains("GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%'")),
            "{kind:?}: {grants:?}"
        );
        assert!(
            grants.iter().any(|hint| hint.contains("GRANT REPLICATION CLIENT ON *.* TO 'weak'@'%'")),
            "{kind:?}: {grants:?}"
        );
        assert!(found.checks.iter().any(|check| check.code == Some(Code::RowMetadata)));
        let captured: Vec<_> = found.captured().map(|table| table.name.as_str()).collect();
        assert_eq!(captured, ["t"], "{kind:?}");

        let wrong = ConnectionOptions::new("127.0.0.1", server.port, "weak", "guess");
        assert_eq!(connect(&wrong).await.map_err(|error| error.code).err(), Some(Code::WrongPassword), "{kind:?}");
        let mut nowhere = ConnectionOptions::new("127.0.0.1", 1, "weak", "weak");
        assert_eq!(connect(&nowhere).await.map_err(|error| error.code).err(), Some(Code::Unreachable));
        nowhere.hostname = "no-such-host.invalid".to_owned();
        assert_eq!(connect(&nowhere).await.map_err(|error| error.code).err(), Some(Code::UnknownHost));
    }
}

/// The connection for rows logs in wherever the other one does, and fails for the same reasons.
#[tokio::test]
async fn both_connections_log_in_alike() {
    for kind in Kind::all() {
        let server = Server::start(kind, &[]).await;
        let mut users = vec![("native", "secret"), ("nobody_knows", "")];
        match kind {
            Kind::Mysql => {
                users.push(("sha2", "s\u{e9}cret"));
                server
                    .execute(&[
                        "CREATE USER sha2@'%' IDENTIFIED WITH caching_sha2_password BY 's\u{e9}cret'",
                        "CREATE USER native@'%' IDENTIFIED BY 'secret'",
                        "CREATE USER nobody_knows@'%' IDENTIFIED BY ''",
                    ])
                    .await;
            }
            Kind::MariaDb => {
                server
                    .execute(&[
                        "CREATE USER native@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')",
                        "CREATE USER nobody_knows@'%' IDENTIFIED BY ''",
                    ])
                    .await;
            }
        }
        let (conn, info) = connect(&server.capturer()).await.expect("a connection");
        conn.close().await;
        for (user, password) in users {
            for mode in [
                None,
                Some(SslMode::Disabled),
                Some(SslMode::Preferred),
                Some(SslMode::Required),
                Some(SslMode::VerifyIdentity),
            ] {
                for password in [password, "guess"] {
                    let mut options = ConnectionOptions::new("127.0.0.1", server.port, user, password);
                    options.ssl_mode = mode;
                    // The server forgets which passwords it has seen.
                    server.execute(&["FLUSH PRIVILEGES"]).await;
                    let mut cipher = None;
                    let rows = match connect_for_rows(&options, &info).await {
                        Ok(mut conn) => {
                            let answer =
                                conn.query("SELECT CONCAT('\u{e9}', CURRENT_USER())").await.expect("an answer");
                            assert_eq!(answer[0][0].1.as_deref(), Some(format!("\u{e9}{user}@%").as_str()));
                            let shown = conn.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await.expect("an answer");
                            cipher = shown[0][1].1.clone().filter(|cipher| !cipher.is_empty());
                            conn.close().await;
                            None
                        }
                        Err(error) => Some(error.code),
                    };
                    let is_right = password != "guess";
                    match mode {
                        None | Some(SslMode::Disabled) => {
                            assert_eq!(rows, (!is_right).then_some(Code::WrongPassword), "{kind:?}: {user} {mode:?}");
                            assert_eq!(cipher, None, "{kind:?}: {user} {mode:?}");
                        }
                        Some(SslMode::Required) if rows.is_none() => assert!(cipher.is_some(), "{kind:?}: {user}"),
                        _ => {}
                    }
                    server.execute(&["FLUSH PRIVILEGES"]).await;
                    let library = match connect(&options).await {
                        Ok((conn, _)) => {
                            conn.close().await;
                            None
                        }
                        Err(error) => Some(error.code),
                    };
                    assert_eq!(rows, library, "{kind:?}: {user} with {password:?} and {mode:?}");
                }
            }
        }
        let mut elsewhere = info.clone();
        elsewhere.server_id += 1;
        let refused = connect_for_rows(&server.capturer(), &elsewhere).await.map_err(|error| error.code);
        assert_eq!(refused.err(), Some(Code::ConnectionLost), "{kind:?}: another server");
    }
}
