use super::*;

fn pattern(text: &str) -> TablePattern {
    text.parse().unwrap_or_else(|error: Error| panic!("{text}: {error} {:?}", error.detail))
}

fn hits(text: &str, names: &[&str]) -> Vec<String> {
    let pattern = pattern(text);
    names
        .iter()
        .filter(|name| name.split_once('.').is_some_and(|(database, table)| pattern.matches(database, table, false)))
        .map(|name| (*name).to_owned())
        .collect()
}

#[test]
fn names_and_stars() {
    let names = ["shop.orders", "shop.order_1", "shop.orders2", "shops.orders", "a.shop.orders"];
    assert_eq!(hits("shop.orders", &names), ["shop.orders"]);
    assert_eq!(hits(" shop.* ", &names), ["shop.orders", "shop.order_1", "shop.orders2"]);
    assert_eq!(hits("shop.order_*", &names), ["shop.order_1"]);
    assert_eq!(hits("*.orders", &names), ["shop.orders", "shops.orders"]);
    assert_eq!(hits("s*p.o*s", &names), ["shop.orders"]);
    assert_eq!(hits("db.a$b", &["db.a$b", "db.a"]), ["db.a$b"], "a dollar sign is a letter of names");
}

#[test]
fn flink_cdc_patterns() {
    let names = ["db1.order_a", "db2.order_", "db3.order_a", "db1.app_order_1", "db1.xorder_1", "db1.orders"];
    assert_eq!(hits(r"db[1-2].order_\.*", &names), ["db1.order_a", "db2.order_"]);
    assert_eq!(hits(r"db1.(app_|x)order_\d+", &names), ["db1.app_order_1", "db1.xorder_1"]);
    assert_eq!(hits(r"db1.\.*", &names), ["db1.order_a", "db1.app_order_1", "db1.xorder_1", "db1.orders"]);
    assert_eq!(hits(r"\.*.order_\.*", &names), ["db1.order_a", "db2.order_", "db3.order_a"]);
    assert_eq!(hits(r"db1.\.{6}", &names), ["db1.orders"]);
}

#[test]
fn ordinary_regular_expressions_are_anchored() {
    let names = ["shop.orders", "shop.items", "shop.orders_old", "xshop.orders"];
    assert_eq!(hits(r"^shop\.(orders|items)$", &names), ["shop.orders", "shop.items"]);
    assert_eq!(hits(r"shop\.(orders|items)", &names), ["shop.orders", "shop.items"]);
    assert_eq!(hits(r"shop\..*", &names), ["shop.orders", "shop.items", "shop.orders_old"]);
    assert_eq!(hits(r".*\.orders", &names), ["shop.orders", "xshop.orders"]);
    assert_eq!(hits(r"s.*\.o.*", &names), ["shop.orders", "shop.orders_old"]);
    assert_eq!(hits(r"^.*\.orders$", &names), ["shop.orders", "xshop.orders"]);
}

#[test]
fn quoted_names_are_taken_as_they_are() {
    assert!(pattern("`my.db`.`a*b`").matches("my.db", "a*b", false));
    assert!(!pattern("`my.db`.`a*b`").matches("my.db", "axb", false));
    assert!(pattern(r#""a""b".t"#).matches("a\"b", "t", false));
    let exact = TablePattern::exact("we`ird", "a.b");
    assert_eq!(exact.table(), Some(("we`ird", "a.b")));
    assert_eq!(pattern(&exact.to_string()), exact);
    assert!(pattern(&exact.to_string()).matches("we`ird", "a.b", false));
}

#[test]
fn case_counts_only_where_the_server_says_so() {
    for text in ["Shop.Orders", "Shop.Ord*", r"^Shop\.Orders$", "`Shop`.`Orders`"] {
        assert!(!pattern(text).matches("shop", "orders", false), "{text}");
        assert!(pattern(text).matches("shop", "orders", true), "{text}");
    }
}

#[test]
fn lists_are_parted_at_commas_outside_of_brackets() {
    let list = TablePattern::parse_list(r"a.b, c.x{1,2}, `d,e`.f, g.[,;]h,").unwrap_or_default();
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["a.b", "c.x{1,2}", "`d,e`.f", "g.[,;]h"]);
    assert!(TablePattern::parse_list(" , ").is_err());
}

#[test]
fn bad_patterns_say_why() {
    for (text, word) in [
        ("orders", "database"),
        ("a.b.c", "more than one dot"),
        ("a.", "empty"),
        (".b", "empty"),
        ("a.b(", "regular expression"),
        ("^a($", "regular expression"),
    ] {
        let error = text.parse::<TablePattern>().expect_err(text);
        assert_eq!(error.code, Code::InvalidPattern);
        assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(word)), "{text}: {:?}", error.detail);
    }
}

fn definition() -> SourceDefinition {
    SourceDefinition {
        id: Uuid::from_u128(0x1234_5678_9abc_def0_1122_3344_5566_7788),
        name: "shop".to_owned(),
        connection: ConnectionOptions::new("db1", 3306, "cdc", "sesame"),
        tables: vec![TableRule::new(pattern("shop.*"))],
        exclude: vec![pattern("shop.tmp_*")],
        options: CaptureOptions::default(),
    }
}

#[test]
fn the_first_rule_holds_exclusions_win_and_system_schemas_are_never_captured() {
    let mut definition = definition();
    definition.tables.insert(
        0,
        TableRule { pattern: pattern("shop.orders"), target: Some(("mirror".to_owned(), "o".to_owned())), key: None },
    );
    definition.tables.push(TableRule::new(pattern("*.*")));
    assert_eq!(definition.target_of("shop", "orders", false), Some(("mirror".to_owned(), "o".to_owned())));
    assert_eq!(definition.target_of("shop", "items", false), Some(("shop".to_owned(), "items".to_owned())));
    assert!(!definition.matches("shop", "tmp_1", false));
    assert!(definition.matches("crm", "x", false));
    for schema in ["mysql", "sys", "information_schema", "PERFORMANCE_SCHEMA"] {
        assert!(!definition.matches(schema, "user", false));
    }
}

#[test]
fn a_definition_survives_json_without_its_password() {
    let definition = definition();
    let json = serde_json::to_string(&definition).unwrap_or_default();
    assert!(!json.contains("sesame") && !format!("{definition:?}").contains("sesame"));
    let mut read: SourceDefinition = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}"));
    read.connection.password = "sesame".to_owned();
    assert_eq!(read, definition);
}

#[test]
fn server_ids() {
    assert_eq!(
        "5400-5408".parse::<ServerIds>().ok().map(|ids| (ids.first, ids.last, ids.count())),
        Some((5400, 5408, 9))
    );
    assert_eq!("7".parse::<ServerIds>().ok().map(|ids| ids.to_string()), Some("7".to_owned()));
    for text in ["0", "9-3", "x", "1-", "4294967296"] {
        assert!(text.parse::<ServerIds>().is_err(), "{text}");
    }
    let mut definition = definition();
    let derived = definition.server_ids();
    assert_eq!(derived, definition.server_ids(), "the same for the same source");
    assert!(derived.first >= 0x8000_0000 && derived.count() == 1);
    definition.id = Uuid::from_u128(1);
    assert_ne!(derived, definition.server_ids());
}

#[test]
fn options_out_of_range_are_refused() {
    assert!(definition().validate().is_ok());
    let spoil: [fn(&mut SourceDefinition); 8] = [
        |d| d.connection.hostname.clear(),
        |d| d.connection.port = 0,
        |d| d.connection.username.clear(),
        |d| d.tables.clear(),
        |d| d.options.snapshot_parallelism = 0,
        |d| d.options.page_rows = 0,
        |d| d.options.heartbeat_interval = Duration::ZERO,
        |d| d.options.buckets = Some(0),
    ];
    for (i, spoil) in spoil.iter().enumerate() {
        let mut definition = definition();
        spoil(&mut definition);
        assert_eq!(definition.validate().map_err(|error| error.code), Err(Code::InvalidDefinition), "{i}");
    }
}
