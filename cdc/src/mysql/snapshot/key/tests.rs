use super::*;
use crate::mysql::types::{MysqlColumn, TextCharset};

fn column(name: &str, column_type: &str, charset: Option<&str>, collation: Option<&str>) -> MysqlColumn {
    MysqlColumn {
        name: name.to_owned(),
        column_type: MysqlType::parse(column_type, charset, collation),
        nullable: false,
        comment: String::new(),
        default: None,
        generated: false,
        invisible: false,
    }
}

fn table(columns: Vec<MysqlColumn>, key: &[&str]) -> MysqlTable {
    MysqlTable {
        database: "d".to_owned(),
        name: "t".to_owned(),
        columns,
        primary_key: key.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn key(column_type: &str, charset: Option<&str>, collation: Option<&str>) -> KeyColumn {
    let table = table(vec![column("k", column_type, charset, collation)], &["k"]);
    KeyColumn::of(&table).unwrap_or_else(|error| panic!("{error}")).remove(0)
}

#[test]
fn each_type_is_compared_as_the_server_orders_it() {
    let after = |column_type, charset, collation| condition(&[key(column_type, charset, collation)], Side::After).0;
    assert_eq!(after("bigint unsigned", None, None), "`k` > ?");
    assert_eq!(after("enum('b','a')", Some("latin1"), None), "CAST(`k` AS UNSIGNED) > ?");
    assert_eq!(after("set('b','a')", Some("latin1"), None), "CAST(`k` AS UNSIGNED) > ?");
    assert_eq!(after("bit(64)", None, None), "CAST(`k` AS UNSIGNED) > ?");
    assert_eq!(after("year(4)", None, None), "CAST(`k` AS UNSIGNED) > ?");
    assert_eq!(after("decimal(12,3)", None, None), "`k` > CAST(? AS DECIMAL(12,3))");
    assert_eq!(after("varbinary(9)", None, None), "`k` > UNHEX(?)");
    assert_eq!(after("timestamp(3)", None, None), "`k` > CAST(? AS DATETIME(6))");
    assert_eq!(after("varchar(9)", Some("utf8mb4"), Some("utf8mb4_0900_ai_ci")), "`k` > ? COLLATE utf8mb4_0900_ai_ci");
    assert_eq!(
        after("char(9)", Some("latin1"), Some("latin1_swedish_ci")),
        "`k` > CONVERT(? USING latin1) COLLATE latin1_swedish_ci"
    );
}

#[test]
fn composite_keys_compare_column_by_column() {
    let columns = ["a", "b", "c"].map(|name| column(name, "int", None, None)).to_vec();
    let key = KeyColumn::of(&table(columns, &["a", "b", "c"])).unwrap_or_default();
    let (sql, order) = condition(&key, Side::After);
    assert_eq!(sql, "`a` >= ? AND (`a` > ? OR (`a` = ? AND (`b` > ? OR (`b` = ? AND `c` > ?))))");
    assert_eq!(order, [0, 0, 0, 1, 1, 2]);
    let (sql, _) = condition(&key, Side::UpTo);
    assert_eq!(sql, "`a` <= ? AND (`a` < ? OR (`a` = ? AND (`b` < ? OR (`b` = ? AND `c` <= ?))))");
    let bound = [KeyValue::Int(1), KeyValue::Int(2), KeyValue::Int(3)];
    let values = parameters(&bound, &order).unwrap_or_default();
    assert_eq!(values, [1, 1, 1, 2, 2, 3].map(Value::Int));
    assert!(parameters(&bound[..2], &order).is_err());
}

#[test]
fn a_table_without_a_key_and_a_key_without_a_column_are_errors() {
    let columns = vec![column("a", "int", None, None), column("g", "geometry", None, None)];
    let code = |key: &[&str]| KeyColumn::of(&table(columns.clone(), key)).map_err(|error| error.code);
    assert_eq!(code(&[]).err(), Some(Code::NoPrimaryKey));
    assert_eq!(code(&["x"]).err(), Some(Code::KeyUnknown));
    assert_eq!(code(&["g"]).err(), Some(Code::UnsupportedType));
    assert!(code(&["A"]).is_ok(), "column names ignore case");
}

#[test]
fn bounds_survive_json_exactly() {
    let bound = vec![
        KeyValue::Int(i64::MIN),
        KeyValue::Uint(u64::MAX),
        KeyValue::Double(f64::from(0.1_f32)),
        KeyValue::Text("süß\0".to_owned()),
        KeyValue::Bytes(vec![0, 0xff, 0x7f]),
    ];
    let range = KeyRange { id: 3, lower: Some(bound), upper: None };
    let json = serde_json::to_string(&range).unwrap_or_default();
    assert_eq!(serde_json::from_str::<KeyRange>(&json).ok(), Some(range), "{json}");
    assert!(serde_json::from_str::<KeyValue>(r#"{"bytes":"0"}"#).is_err());
    assert!(serde_json::from_str::<KeyValue>(r#"{"bytes":"0g"}"#).is_err());
}

#[test]
fn selected_values_become_bounds() {
    let of = |column_type: &str, value: Value| KeyValue::from_selected(&key(column_type, None, None), &value);
    assert_eq!(of("date", Value::Date(2024, 2, 29, 0, 0, 0, 0)), Some(KeyValue::Text("2024-02-29".to_owned())));
    assert_eq!(
        of("datetime(6)", Value::Date(1, 2, 3, 4, 5, 6, 7)),
        Some(KeyValue::Text("0001-02-03 04:05:06.000007".to_owned()))
    );
    assert_eq!(of("time", Value::Time(true, 34, 22, 59, 59, 0)), Some(KeyValue::Text("-838:59:59.000000".to_owned())));
    assert_eq!(of("varbinary(3)", Value::Bytes(vec![0xff])), Some(KeyValue::Bytes(vec![0xff])));
    assert_eq!(of("float", Value::Float(0.1)), Some(KeyValue::Double(f64::from(0.1_f32))));
    assert_eq!(of("int", Value::NULL), None);
    let text = KeyColumn {
        name: "`k`".to_owned(),
        form: Form::Text { charset: TextCharset::default().charset, collation: String::new() },
    };
    assert_eq!(KeyValue::from_selected(&text, &Value::Bytes(vec![0xff])), None, "text that is none is no bound");
}
