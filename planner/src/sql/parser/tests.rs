use std::time::Duration;

use super::*;
use crate::sql::statement::{
    CreateSource, DroppedData, ObjectKind, OptionValue, SecretValue, Selection, SettingValue, TableRule,
};

fn one(text: &str) -> Statement {
    let mut parsed = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(parsed.len(), 1, "{text}");
    parsed.remove(0).statement
}

fn fault(text: &str) -> SqlError {
    match parse(text) {
        Err(error) => error,
        Ok(parsed) => panic!("{text} is {parsed:?}"),
    }
}

fn source(text: &str) -> CreateSource {
    match one(text) {
        Statement::CreateSource(source) => source,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn texts_are_split_at_semicolons_that_stand_free() {
    let parsed = parse(" ; select 'a;b' -- x;y\n; /* ; */ ;; select $$;$$; select \"a;b\" from t").unwrap();
    let texts: Vec<_> = parsed.iter().map(|parsed| (parsed.offset, parsed.text.as_str())).collect();
    assert_eq!(texts, [(3, "select 'a;b'"), (36, "select $$;$$"), (50, "select \"a;b\" from t")]);
    assert!(parse("").unwrap().is_empty());
    assert!(parse("-- nothing\n;;").unwrap().is_empty());
}

#[test]
fn offsets_count_characters_and_errors_point_into_the_whole_text() {
    let parsed = parse("select 'äöü'; select 1").unwrap();
    assert_eq!(parsed[1].offset, 14);
    let error = fault("select 'äöü';\nselect 1 +;");
    assert_eq!((error.sqlstate, error.position), ("42601", Some(25)));
    let error = fault("select 'é'; CREATE SOURCE s WITH (connector 'x')");
    assert_eq!(error.position, Some(45));
    assert_eq!(error.message, "syntax error at or near \"'x'\"");
    assert_eq!(error.detail.as_deref(), Some("Expected \"=\"."));
}

#[test]
fn sources_by_options() {
    let source = source(
        "CREATE SOURCE IF NOT EXISTS Shop WITH (
            connector = 'mysql-cdc', hostname = 'db1', port = 3306, \"username\" = 'cdc', password = SECRET shop_pw,
            tables = 'shop.*', server-id = 5400-5500, scan.snapshot.fetch.size = 1024,
            'heartbeat.interval' = '30s', checkpoint_interval = 500ms, tables.exclude = $$shop.tmp_\\.*$$
        );",
    );
    assert_eq!((source.name.value.as_str(), source.if_not_exists), ("shop", true));
    assert_eq!(source.selection, Selection::Options);
    let options: Vec<_> = source.options.iter().map(|option| (option.name.as_str(), &option.value)).collect();
    let text = |text: &str| OptionValue::Text(text.to_owned());
    assert_eq!(
        options,
        [
            ("connector", &text("mysql-cdc")),
            ("hostname", &text("db1")),
            ("port", &text("3306")),
            ("username", &text("cdc")),
            ("password", &OptionValue::Secret("shop_pw".to_owned())),
            ("tables", &text("shop.*")),
            ("server-id", &text("5400-5500")),
            ("scan.snapshot.fetch.size", &text("1024")),
            ("heartbeat.interval", &text("30s")),
            ("checkpoint_interval", &text("500ms")),
            ("tables.exclude", &text("shop.tmp_\\.*")),
        ]
    );
    assert_eq!(source.options[0].name_position, 53);
    assert_eq!(source.options[0].value_position, 65);
}

#[test]
fn sources_of_connections() {
    let all = source("create source s from mysql connection c for all tables");
    assert_eq!((all.connection.unwrap().value.as_str(), all.selection), ("c", Selection::AllTables));
    let schemas = source("create source s from mysql connection c for schemas (Shop, 'my db')");
    assert_eq!(schemas.selection, Selection::Schemas(vec!["Shop".to_owned(), "my db".to_owned()]));
    let tables = source(
        "create source s from mysql connection c for tables (shop.Orders AS o, shop.items as x.items) with (buckets = 4)",
    );
    let rule = |pattern: &str, schema: &str, table: &str| TableRule {
        pattern: pattern.to_owned(),
        target: Some((schema.to_owned(), table.to_owned())),
        key: None,
    };
    assert_eq!(
        tables.selection,
        Selection::Tables(vec![rule("shop.Orders", "shop", "o"), rule("shop.items", "x", "items")])
    );
    assert_eq!(tables.options.len(), 1);
}

#[test]
fn table_rules() {
    let source = source(
        "CREATE SOURCE s WITH (connector = 'mysql-cdc') TABLES (
            shop.order_* INTO shop.orders KEY (Id, \"Second\"), 'a.b_\\.*', *.*, `x`.`y`)"
            .replace('`', "\"")
            .as_str(),
    );
    let rules: Vec<_> =
        source.rules.iter().map(|rule| (rule.pattern.as_str(), rule.target.clone(), rule.key.clone())).collect();
    assert_eq!(
        rules,
        [
            (
                "shop.order_*",
                Some(("shop".to_owned(), "orders".to_owned())),
                Some(vec!["Id".to_owned(), "Second".to_owned()])
            ),
            ("a.b_\\.*", None, None),
            ("*.*", None, None),
            ("x.y", None, None),
        ]
    );
    for (rule, what) in [
        ("a.b SELECT id", "SELECT"),
        ("a.b WHERE id > 1", "WHERE"),
        ("a.b ON DELETE IGNORE", "ON DELETE"),
        ("a.b WITH (x = 1)", "WITH"),
    ] {
        let error = fault(&format!("CREATE SOURCE s WITH (connector = 'mysql-cdc') TABLES ({rule})"));
        assert_eq!((error.sqlstate, error.position), ("0A000", Some(60)), "{rule}");
        assert!(error.message.contains(what) && error.message.ends_with("is not supported yet"), "{}", error.message);
    }
}

#[test]
fn explaining_a_source() {
    for (text, expected) in [
        ("EXPLAIN CREATE SOURCE s WITH (a = b)", ExplainFormat::Text),
        ("explain (format json) create source s with (a = b)", ExplainFormat::Json),
    ] {
        match one(text) {
            Statement::ExplainSource { format, .. } => assert_eq!(format, expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(one("EXPLAIN SELECT 1"), Statement::Query(_)));
    assert_eq!(fault("EXPLAIN (FORMAT yaml) CREATE SOURCE s WITH (a = b)").position, Some(17));
}

#[test]
fn secrets_and_connections() {
    match one("CREATE SECRET pw AS 'it''s'") {
        Statement::CreateSecret(secret) => assert_eq!(secret.value, SecretValue::Literal("it's".to_owned())),
        other => panic!("{other:?}"),
    }
    match one("create secret if not exists pw with (backend = 'env', name = 'PW')") {
        Statement::CreateSecret(secret) => {
            assert!(secret.if_not_exists);
            assert_eq!(secret.value, SecretValue::Environment("PW".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    for text in
        ["CREATE CONNECTION c TO MYSQL (hostname = 'h')", "CREATE CONNECTION c WITH (type = 'mysql', hostname = 'h')"]
    {
        match one(text) {
            Statement::CreateConnection(connection) => {
                let names: Vec<_> = connection.options.iter().map(|option| option.name.as_str()).collect();
                assert_eq!(names, ["hostname"]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fault("CREATE CONNECTION c WITH (type = 'oracle')").sqlstate, "0A000");
    assert_eq!(fault("CREATE SECRET pw WITH (backend = 'vault', path = 'x')").sqlstate, "42601");
    let shown = format!("{:?}", one("CREATE SECRET pw AS 'topsecret'"));
    assert!(!shown.contains("topsecret"), "{shown}");
}

#[test]
fn dropping() {
    for (text, kind, if_exists, data) in [
        ("DROP SOURCE s", ObjectKind::Source, false, DroppedData::Keep),
        ("DROP SOURCE IF EXISTS s KEEP DATA", ObjectKind::Source, true, DroppedData::Keep),
        ("DROP SOURCE s PURGE DATA RESTRICT", ObjectKind::Source, false, DroppedData::Purge),
        ("DROP SECRET s", ObjectKind::Secret, false, DroppedData::Keep),
        ("DROP CONNECTION IF EXISTS s", ObjectKind::Connection, true, DroppedData::Keep),
    ] {
        match one(text) {
            Statement::Drop { kind: a, if_exists: b, data: c, .. } => {
                assert_eq!((a, b, c), (kind, if_exists, data), "{text}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fault("DROP SECRET s PURGE DATA").position, Some(15));
    assert_eq!(fault("DROP SOURCE s CASCADE").sqlstate, "0A000");
}

#[test]
fn waiting() {
    let hour = Some(Duration::from_secs(3600));
    for (text, expected, limit) in [
        ("WAIT FOR SOURCE s SNAPSHOT TIMEOUT '1 hour'", WaitTarget::Snapshot, hour),
        ("WAIT FOR SOURCE s SNAPSHOT TIMEOUT INTERVAL '1 hour'", WaitTarget::Snapshot, hour),
        ("WAIT FOR SOURCE s TIMEOUT 1h", WaitTarget::Current, hour),
        ("WAIT FOR SOURCE s CURRENT", WaitTarget::Current, None),
        ("WAIT FOR SOURCE s", WaitTarget::Current, None),
        ("WAIT FOR SOURCE s CHECKPOINT 42", WaitTarget::Checkpoint(42), None),
        ("WAIT FOR SOURCE s GTID '0-1-5'", WaitTarget::Gtid("0-1-5".to_owned(), 24), None),
    ] {
        match one(text) {
            Statement::Wait { target, timeout, .. } => assert_eq!((target, timeout), (expected, limit), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    for (text, position) in [
        ("WAIT FOR SOURCE s SOON", 19),
        ("WAIT FOR SOURCE s TIMEOUT '5'", 27),
        ("WAIT FOR SOURCE s CHECKPOINT x", 30),
        ("WAIT FOR SOURCE s GTID 5", 24),
        ("WAIT s", 6),
    ] {
        assert_eq!(fault(text).position, Some(position), "{text}");
    }
}

#[test]
fn showing() {
    for (text, expected) in [
        ("SHOW SOURCES", ShowKind::Sources),
        ("show jobs", ShowKind::Jobs),
        ("SHOW TABLES FROM s LIKE 'a%'", ShowKind::Tables),
        ("SHOW CHECKPOINTS FROM s", ShowKind::Checkpoints),
        ("SHOW SECRETS WHERE name = 'a'", ShowKind::Secrets),
        ("SHOW CONNECTIONS", ShowKind::Connections),
    ] {
        match one(text) {
            Statement::Show { kind, .. } => assert_eq!(kind, expected, "{text}"),
            other => panic!("{other:?}"),
        }
    }
    match one("SHOW JOBS WHERE state <> 'x' AND true") {
        Statement::Show { filter, .. } => {
            assert_eq!(filter, Some(ShowFilter::Where("state <> 'x' AND true".to_owned(), 17)));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(one("SHOW CREATE SOURCE s"), Statement::ShowCreate { kind: ObjectKind::Source, .. }));
    fault("SHOW CREATE SECRET s");
    assert_eq!(fault("SHOW JOBS now").position, Some(11));
    for (text, name) in [
        ("SHOW server_version", "server_version"),
        ("SHOW TIME ZONE", "timezone"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "transaction_isolation"),
        ("SHOW DateStyle", "datestyle"),
        ("SHOW my.setting", "my.setting"),
    ] {
        match one(text) {
            Statement::ShowSetting(found) => assert_eq!(found.value, name),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn setting() {
    let text = |text: &str| SettingValue::Text(text.to_owned());
    for (statement, name, value, is_local) in [
        ("SET a = 'b'", "a", text("b"), false),
        ("SET SESSION a TO b", "a", text("b"), false),
        ("SET LOCAL a TO DEFAULT", "a", SettingValue::Default, true),
        ("SET search_path TO shop, 'x', \"Y\"", "search_path", text("shop, x, Y"), false),
        ("SET extra_float_digits = -3", "extra_float_digits", text("-3"), false),
        ("SET TIME ZONE 'Europe/Berlin'", "timezone", text("Europe/Berlin"), false),
        ("SET NAMES 'utf8'", "client_encoding", text("utf8"), false),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "default_transaction_isolation",
            text("read committed"),
            false,
        ),
    ] {
        match one(statement) {
            Statement::Set { name: a, value: b, local } => {
                assert_eq!((a.value.as_str(), b, local), (name, value, is_local), "{statement}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fault("SET a").position, Some(6));
}

#[test]
fn transactions() {
    assert!(matches!(one("BEGIN"), Statement::Begin { .. }));
    assert!(matches!(one("begin transaction isolation level serializable, read only"), Statement::Begin { .. }));
    assert!(matches!(one("START TRANSACTION READ WRITE"), Statement::Begin { read_write: true }));
    assert!(matches!(one("END WORK"), Statement::Commit));
    assert!(matches!(one("ABORT"), Statement::Rollback));
    assert!(matches!(one("ROLLBACK AND NO CHAIN"), Statement::Rollback));
    assert!(matches!(one("ROLLBACK TO SAVEPOINT A"), Statement::RollbackTo(name) if name == "a"));
    assert!(matches!(one("RELEASE a"), Statement::Release(_)));
    assert!(matches!(one("DEALLOCATE PREPARE ALL"), Statement::Deallocate(None)));
    assert!(matches!(one("UNLISTEN *"), Statement::Unlisten));
    assert!(matches!(one("DISCARD ALL"), Statement::Discard(DiscardKind::All)));
    assert_eq!(fault("BEGIN FOO").position, Some(7));
}

#[test]
fn writing_is_told_by_its_command() {
    for (text, command) in [
        ("INSERT INTO t VALUES (1)", "INSERT"),
        ("UPDATE t SET a = 1", "UPDATE"),
        ("DELETE FROM t", "DELETE"),
        ("CREATE TABLE t (a int)", "CREATE TABLE"),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", "CREATE VIEW"),
        ("DROP TABLE t", "DROP TABLE"),
        ("TRUNCATE t", "TRUNCATE TABLE"),
    ] {
        match one(text) {
            Statement::ReadOnly(found) => {
                assert!(found.starts_with(command.split(' ').next().unwrap()), "{text}: {found}")
            }
            other => panic!("{text} is {other:?}"),
        }
    }
}

#[test]
fn versions_of_tables_are_never_read_over() {
    for text in [
        "SELECT * FROM shop.orders FOR SYSTEM_TIME AS OF '2026-01-01'",
        "SELECT * FROM shop.orders VERSION AS OF 42",
        "SELECT * FROM shop.orders o JOIN shop.items FOR SYSTEM_TIME AS OF '2026-01-01' i ON true",
        "SELECT * FROM (SELECT 1 FROM t TIMESTAMP AS OF 'x') a",
    ] {
        assert_eq!(fault(text).sqlstate, "0A000", "{text}");
    }
    one("SELECT version AS of_it, timestamp AS of2 FROM t");
}

#[test]
fn syntax_errors_of_queries_have_places() {
    for (text, position, message) in [
        ("SELEC 1", 1, "syntax error at or near \"SELEC\""),
        ("SELECT a b c FROM t", 12, "syntax error at or near \"c\""),
        ("SELECT 1 FROM t WHERE", 22, "syntax error at end of input"),
        ("SELECT (1", 10, "syntax error at end of input"),
    ] {
        let error = fault(text);
        assert_eq!(
            (error.sqlstate, error.position, error.message.as_str()),
            ("42601", Some(position), message),
            "{text}"
        );
    }
    let error = fault("SELECT 'abc");
    assert_eq!((error.sqlstate, error.position), ("42601", Some(8)));
    assert_eq!(fault("SELECT 1 FROM a; CREATE SINK x").sqlstate, "0A000");
    assert_eq!(fault("SELECT 1 FROM a; CREATE SINK x").position, Some(18));
}

#[test]
fn malformed_sources() {
    for (text, position) in [
        ("CREATE SOURCE", 14),
        ("CREATE SOURCE s", 16),
        ("CREATE SOURCE s FROM KAFKA", 22),
        ("CREATE SOURCE s WITH ()", 23),
        ("CREATE SOURCE s WITH (a = )", 27),
        ("CREATE SOURCE s WITH (a = 1,)", 29),
        ("CREATE SOURCE s WITH (a = 1", 28),
        ("CREATE SOURCE s WITH (a = 1 2)", 29),
        ("CREATE SOURCE s WITH (a = shop.*)", 32),
        ("CREATE SOURCE s WITH (a = 1) extra", 30),
        ("CREATE SOURCE s WITH (a = 1) TABLES (orders)", 38),
        ("CREATE SOURCE s WITH (a = 1) TABLES ('order_\\.*' INTO o)", 55),
    ] {
        let error = fault(text);
        assert_eq!((error.sqlstate, error.position), ("42601", Some(position)), "{text}: {error:?}");
    }
}

#[test]
fn a_table_to_compact_has_a_schema_or_not() {
    let name = |text: &str| Some(text.to_owned());
    for (text, schema, table) in [
        ("COMPACT TABLE orders", None, "orders"),
        ("compact table shop.orders;", name("shop"), "orders"),
        ("COMPACT TABLE \"My DB\".\"T\"", name("My DB"), "T"),
    ] {
        let Statement::CompactTable { schema: found, table: found_table } = one(text) else { panic!("{text}") };
        assert_eq!((found.map(|name| name.value), found_table.value.as_str()), (schema, table), "{text}");
    }
    for wrong in ["COMPACT TABLE", "COMPACT TABLE shop.", "COMPACT TABLE a b", "COMPACT orders"] {
        fault(wrong);
    }
}

#[test]
fn what_is_read_again_is_a_source_or_a_table_of_it() {
    for (text, source, schema, table) in [
        ("RESYNC SOURCE shop", "shop", None, None),
        ("resync source shop table orders;", "shop", None, Some("orders")),
        ("RESYNC SOURCE \"My\" TABLE shop.\"T\"", "My", Some("shop"), Some("T")),
    ] {
        let Statement::Resync { source: found, table: meant } = one(text) else { panic!("{text}") };
        let (found_schema, found_table) =
            meant.map_or((None, None), |(schema, table)| (schema.map(|schema| schema.value), Some(table.value)));
        let found = (found.value.as_str(), found_schema.as_deref(), found_table.as_deref());
        assert_eq!(found, (source, schema, table), "{text}");
    }
    for wrong in ["RESYNC", "RESYNC shop", "RESYNC SOURCE", "RESYNC SOURCE shop TABLE", "RESYNC SOURCE shop TABLE a b"]
    {
        fault(wrong);
    }
}
