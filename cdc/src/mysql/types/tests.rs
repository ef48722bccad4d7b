use super::*;

fn plain(text: &str) -> MysqlType {
    MysqlType::parse(text, None, None)
}

fn utf8(text: &str) -> MysqlType {
    MysqlType::parse(text, Some("utf8mb4"), Some("utf8mb4_0900_ai_ci"))
}

fn charset() -> TextCharset {
    TextCharset::new(Some("utf8mb4"), Some("utf8mb4_0900_ai_ci"))
}

#[test]
fn numbers() {
    assert_eq!(plain("tinyint(1)"), MysqlType::TinyInt { unsigned: false });
    assert_eq!(plain("tinyint unsigned"), MysqlType::TinyInt { unsigned: true });
    assert_eq!(plain("mediumint(8) unsigned"), MysqlType::MediumInt { unsigned: true });
    assert_eq!(plain("INT(10) UNSIGNED ZEROFILL"), MysqlType::Int { unsigned: true });
    assert_eq!(plain("bigint zerofill"), MysqlType::BigInt { unsigned: true });
    assert_eq!(plain("decimal(10,2)"), MysqlType::Decimal { precision: 10, scale: 2, unsigned: false });
    assert_eq!(plain("decimal(65, 30) unsigned"), MysqlType::Decimal { precision: 65, scale: 30, unsigned: true });
    assert_eq!(plain("decimal(7)"), MysqlType::Decimal { precision: 7, scale: 0, unsigned: false });
    assert_eq!(plain("NUMERIC"), MysqlType::Decimal { precision: 10, scale: 0, unsigned: false });
    assert_eq!(plain("float(7,4)"), MysqlType::Float { unsigned: false });
    assert_eq!(plain("float(53)"), MysqlType::Double { unsigned: false });
    assert_eq!(plain("double precision unsigned"), MysqlType::Double { unsigned: true });
    assert_eq!(plain("bit(64)"), MysqlType::Bit { length: 64 });
    assert_eq!(plain("bit"), MysqlType::Bit { length: 1 });
    assert_eq!(plain("year(4)"), MysqlType::Year);
}

#[test]
fn text_and_bytes() {
    assert_eq!(utf8("varchar(255)"), MysqlType::Varchar { length: 255, text: charset() });
    assert_eq!(utf8("char"), MysqlType::Char { length: 1, text: charset() });
    assert_eq!(utf8("longtext"), MysqlType::Text { size: LobSize::Long, text: charset() });
    assert_eq!(utf8("text(64)"), MysqlType::Text { size: LobSize::Regular, text: charset() });
    assert_eq!(utf8("text(63)"), MysqlType::Text { size: LobSize::Tiny, text: charset() });
    assert_eq!(plain("varbinary(16)"), MysqlType::Varbinary { length: 16 });
    assert_eq!(plain("binary"), MysqlType::Binary { length: 1 });
    assert_eq!(plain("blob(70000)"), MysqlType::Blob { size: LobSize::Medium });
    assert_eq!(MysqlType::parse("varchar(5)", Some("binary"), Some("binary")), MysqlType::Varbinary { length: 5 });
    assert_eq!(TextCharset::new(None, Some("latin1_swedish_ci")).charset, "latin1");
    assert!(matches!(plain("varchar(10) /*M!100301 COMPRESSED*/"), MysqlType::Other(_)));
}

#[test]
fn times() {
    assert_eq!(plain("time"), MysqlType::Time { fsp: 0 });
    assert_eq!(plain("datetime(6)"), MysqlType::DateTime { fsp: 6 });
    assert_eq!(plain("timestamp(3)"), MysqlType::Timestamp { fsp: 3 });
    assert!(matches!(plain("time(7)"), MysqlType::Other(_)));
}

#[test]
fn labels_with_quotes_commas_and_backslashes() {
    let MysqlType::Enum { labels, .. } = utf8(r"enum('a','it''s','x,y',')','\\back','line\nend','','ü')") else {
        panic!("an enum")
    };
    assert_eq!(labels, ["a", "it's", "x,y", ")", "\\back", "line\nend", "", "ü"]);
    let MysqlType::Set { labels, .. } = utf8("set( 'a' , 'b' ) CHARACTER SET latin1") else { panic!("a set") };
    assert_eq!(labels, ["a", "b"]);
    for broken in ["enum(", "enum('a", "enum('a''", "enum('a' 'b')", "enum", "set('a',)", "enum(a)"] {
        assert!(matches!(utf8(broken), MysqlType::Other(_)), "{broken}");
    }
}

#[test]
fn a_type_that_is_not_known_says_so() {
    for name in
        ["geometry", "point", "vector(3)", "uuid", "inet6", "decimal(66)", "decimal(5,6)", "bit(65)", "varchar", ""]
    {
        let parsed = plain(name);
        assert_eq!(parsed, MysqlType::Other(name.to_owned()));
        assert!(parsed.data_type().unwrap_err().contains(name));
    }
}

#[test]
fn mirrored_types() {
    for (mysql, mirrored) in [
        ("tinyint", DataType::TinyInt),
        ("tinyint unsigned", DataType::SmallInt),
        ("smallint unsigned", DataType::Int),
        ("mediumint unsigned", DataType::Int),
        ("int unsigned", DataType::BigInt),
        ("bigint unsigned", DataType::Decimal { precision: 20, scale: 0 }),
        ("decimal(38,10)", DataType::Decimal { precision: 38, scale: 10 }),
        ("decimal(39,10)", DataType::String),
        ("char(0)", DataType::Varchar(1)),
        ("binary(0)", DataType::Varbinary(1)),
        ("binary(16)", DataType::Binary(16)),
        ("bit(1)", DataType::Boolean),
        ("bit(9)", DataType::Varbinary(2)),
        ("time(3)", DataType::String),
        ("datetime", DataType::Timestamp(6)),
        ("timestamp", DataType::TimestampLtz(6)),
        ("json", DataType::String),
    ] {
        assert_eq!(utf8(mysql).data_type().unwrap(), mirrored, "{mysql}");
    }
}

#[test]
fn the_spelling_of_a_type_reads_back() {
    for name in [
        "tinyint unsigned",
        "mediumint",
        "decimal(65,30)",
        "float unsigned",
        "varchar(10)",
        "mediumtext",
        "blob",
        "binary(3)",
        "time",
        "datetime(6)",
        "timestamp(3)",
        "year",
        "bit(10)",
        "json",
    ] {
        assert_eq!(utf8(name).to_string(), name);
    }
}
