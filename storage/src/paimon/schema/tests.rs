use super::*;

fn new_field(name: &str, data_type: DataType, nullable: bool) -> NewField {
    NewField { name: name.into(), data_type, nullable, description: None }
}

fn orders() -> TableSchema {
    let fields = vec![
        new_field("id", DataType::Int, false),
        new_field("status", DataType::Varchar(10), true),
        new_field("amount", DataType::Decimal { precision: 12, scale: 2 }, true),
    ];
    TableSchema::new(fields, vec!["id".into()], TableSchema::default_options(4, 8), Some("Bestellungen".into()), 1)
        .unwrap()
}

fn add(name: &str, position: ColumnPosition) -> SchemaChange {
    SchemaChange::AddColumn { field: new_field(name, DataType::String, true), position, initial_default: None }
}

fn names(schema: &TableSchema) -> Vec<&str> {
    schema.fields.iter().map(|field| field.name.as_str()).collect()
}

#[test]
fn json_survives_a_round_trip() {
    let mut schema = orders();
    schema.fields[1].description = Some("of the order".into());
    assert_eq!(TableSchema::from_json("schema-0", schema.to_json().as_bytes()).unwrap(), schema);
    assert_eq!(schema.buckets().unwrap(), 4);
}

#[test]
fn field_ids_are_kept_by_renames_and_never_used_again() {
    let schema = orders();
    let next = schema
        .evolve(
            &[
                add("note", ColumnPosition::After("id".into())),
                SchemaChange::DropColumn { name: "amount".into() },
                SchemaChange::RenameColumn { from: "status".into(), to: "state".into() },
                add("amount", ColumnPosition::First),
                SchemaChange::Move { name: "note".into(), position: ColumnPosition::Last },
            ],
            2,
        )
        .unwrap();
    assert_eq!((next.id, next.highest_field_id, next.time_millis), (1, 4, 2));
    assert_eq!(names(&next), ["amount", "id", "state", "note"]);
    assert_eq!(next.fields.iter().map(|field| field.id).collect::<Vec<_>>(), [4, 0, 1, 3]);
    // The column with the largest id goes; the one added next must not get its id.
    let last =
        next.evolve(&[SchemaChange::DropColumn { name: "amount".into() }, add("x", ColumnPosition::Last)], 3).unwrap();
    assert_eq!(last.field("x").unwrap().id, 5);
}

#[test]
fn a_renamed_key_column_stays_the_key() {
    let next = orders().evolve(&[SchemaChange::RenameColumn { from: "id".into(), to: "order_id".into() }], 2).unwrap();
    assert_eq!(next.primary_keys, ["order_id"]);
    let file_schema = next.file_schema();
    assert_eq!(file_schema.field(0).name(), "_KEY_order_id");
    assert_eq!(file_schema.field(0).metadata()[FIELD_ID], "1073741823");
}

#[test]
fn changes_that_need_rows_written_anew_are_refused() {
    let change_type =
        |name: &str, data_type, nullable| SchemaChange::ChangeType { name: name.into(), data_type, nullable };
    for (change, what) in [
        (SchemaChange::DropColumn { name: "id".into() }, "part of the primary key"),
        (change_type("id", DataType::BigInt, false), "part of the primary key"),
        (change_type("status", DataType::Varchar(9), true), "written anew"),
        (change_type("amount", DataType::Decimal { precision: 12, scale: 3 }, true), "written anew"),
        (change_type("status", DataType::String, false), "NOT NULL"),
        (change_type("id", DataType::Int, true), "nullable"),
        (SchemaChange::DropColumn { name: "nothing".into() }, "no column \"nothing\""),
        (add("status", ColumnPosition::Last), "not unique"),
        (SchemaChange::RenameColumn { from: "status".into(), to: "amount".into() }, "not unique"),
        (add("x", ColumnPosition::After("y".into())), "no column \"y\""),
        (SchemaChange::RenameColumn { from: "status".into(), to: "_KEY_x".into() }, "reserved"),
        (
            SchemaChange::AddColumn {
                field: new_field("x", DataType::Int, false),
                position: ColumnPosition::Last,
                initial_default: None,
            },
            "NOT NULL",
        ),
        (
            SchemaChange::AddColumn {
                field: new_field("x", DataType::Timestamp(3), true),
                position: ColumnPosition::Last,
                initial_default: None,
            },
            "4 to 6 digits",
        ),
    ] {
        let error = orders().evolve(std::slice::from_ref(&change), 2).expect_err(what).to_string();
        assert!(error.contains(what), "{change:?}: {error}");
    }
    // Nor may two columns have one name in between.
    let exchanged = [
        SchemaChange::RenameColumn { from: "status".into(), to: "amount".into() },
        SchemaChange::RenameColumn { from: "amount".into(), to: "status".into() },
    ];
    assert!(orders().evolve(&exchanged, 2).unwrap_err().to_string().contains("not unique"));
    let wider = [
        change_type("status", DataType::String, true),
        change_type("amount", DataType::Decimal { precision: 14, scale: 4 }, true),
    ];
    assert!(orders().evolve(&wider, 2).is_ok());
}

fn add_with(name: &str, data_type: DataType, default: &str) -> SchemaChange {
    SchemaChange::AddColumn {
        field: new_field(name, data_type, true),
        position: ColumnPosition::Last,
        initial_default: Some(default.into()),
    }
}

fn initial_default<'a>(schema: &'a TableSchema, name: &str) -> Option<&'a str> {
    schema.field(name).unwrap().initial_default.as_deref()
}

#[test]
fn an_initial_default_follows_its_column() {
    let text = "it's \"new\" \\ \u{1f600}\n";
    let added = orders()
        .evolve(
            &[
                add_with("price", DataType::Float, "0.1"),
                add_with("note", DataType::String, text),
                add_with("gone", DataType::Int, "5"),
            ],
            2,
        )
        .unwrap();
    let json = added.to_digested_json();
    // As options, by the columns' ids; the fields are as Paimon's own programs write them.
    assert!(json.contains("\"tidegate.initial-default.3\": \"0.1\""), "{json}");
    assert!(!json.contains("defaultValue"), "{json}");
    let read = TableSchema::from_json("schema-1", json.as_bytes()).unwrap();
    assert_eq!(read, added);
    assert!(!read.options.keys().any(|key| key.contains("initial-default")));

    let change_type = SchemaChange::ChangeType { name: "cost".into(), data_type: DataType::Double, nullable: true };
    let moved = SchemaChange::Move { name: "cost".into(), position: ColumnPosition::First };
    let next = read
        .evolve(
            &[
                SchemaChange::RenameColumn { from: "price".into(), to: "cost".into() },
                change_type,
                moved,
                SchemaChange::DropColumn { name: "gone".into() },
                add("gone", ColumnPosition::Last),
            ],
            3,
        )
        .unwrap();
    // The bits that a stored FLOAT has as a DOUBLE.
    assert_eq!(initial_default(&next, "cost"), Some("0.10000000149011612"));
    assert_eq!(initial_default(&next, "note"), Some(text));
    // Another column of the same name has nothing of the one that was dropped.
    assert_eq!(initial_default(&next, "gone"), None);
    let json = next.to_json();
    assert_eq!(TableSchema::from_json("schema-2", json.as_bytes()).unwrap(), next);
    assert!(!json.contains("initial-default.5"), "{json}");
}

#[test]
fn an_initial_default_is_a_value_of_its_column() {
    let error = orders().evolve(&[add_with("x", DataType::TinyInt, "128")], 2).unwrap_err().to_string();
    assert!(error.contains("\"x\"") && error.contains("\"128\"") && error.contains("TINYINT"), "{error}");
    // In a file it is damage.
    let json = orders().evolve(&[add_with("x", DataType::TinyInt, "12")], 2).unwrap().to_json();
    let json = json.replace("\"tidegate.initial-default.3\": \"12\"", "\"tidegate.initial-default.3\": \"12x\"");
    let error = TableSchema::from_json("t/schema/schema-1", json.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("column \"x\""), "{error}");
    // Spelt in another way it is the same schema.
    let spelt = |text: &str| orders().evolve(&[add_with("x", DataType::Double, text)], 2).unwrap();
    assert_eq!(spelt("5"), spelt("5.0"));
}

#[test]
fn nested_columns_are_refused_by_name_and_type() {
    let nested = r#"{"type": "ARRAY", "element": "INT"}"#;
    let json = orders().to_json().replace("\"VARCHAR(10)\"", nested);
    let error = TableSchema::from_json("t/schema/schema-0", json.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{error}");
    let error = error.to_string();
    assert!(error.contains("column \"status\"") && error.contains("ARRAY") && error.contains("nested"), "{error}");
}

#[test]
fn a_table_needs_a_sound_key() {
    let fields = || vec![new_field("id", DataType::Int, false), new_field("x", DataType::Int, true)];
    for keys in [vec![], vec!["x"], vec!["id", "id"], vec!["y"]] {
        let keys = keys.into_iter().map(str::to_owned).collect();
        assert!(TableSchema::new(fields(), keys, BTreeMap::new(), None, 0).is_err());
    }
}

#[test]
fn foreign_schemas_are_told_apart_from_damaged_ones() {
    let json = orders().to_json();
    let partitioned = json.replace("\"partitionKeys\": []", "\"partitionKeys\": [\"status\"]");
    for (json, kind) in [
        (partitioned, crate::ErrorKind::Invalid),
        (json.replace("\"version\": 3", "\"version\": 4"), crate::ErrorKind::Invalid),
        (json.replace("VARCHAR(10)", "ARRAY<INT>"), crate::ErrorKind::Invalid),
        (json.replace("\"id\": 2,", "\"id\": 1,"), crate::ErrorKind::Corrupt),
        (json[..json.len() - 1].to_owned(), crate::ErrorKind::Corrupt),
    ] {
        let error = TableSchema::from_json("t/schema/schema-0", json.as_bytes()).expect_err(&json);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("t/schema/schema-0"), "{error}");
    }
}

#[test]
fn every_flipped_bit_of_a_schema_is_found_or_harmless() {
    let schema = orders().evolve(&[add_with("x", DataType::Int, "7")], 2).unwrap();
    let schema = TableSchema { id: 7, ..schema };
    let json = schema.to_digested_json();
    assert_eq!(TableSchema::from_json("s", json.as_bytes()).unwrap(), schema);
    for at in 0..json.len() {
        for bit in 0..8 {
            let mut flipped = json.clone().into_bytes();
            flipped[at] ^= 1 << bit;
            match TableSchema::from_json("t/schema/schema-7", &flipped) {
                // Only the number and the name of the digest are not covered by it; the number is compared with that
                // in the file's name.
                Ok(read) => {
                    let mut read = TableSchema { id: 7, ..read };
                    read.options.retain(|key, _| schema.options.contains_key(key));
                    assert_eq!(read, schema, "bit {bit} of byte {at}");
                }
                Err(error) => assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "bit {bit} of byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn a_digest_that_was_copied_into_another_schema_is_not_about_it() {
    let schema = TableSchema { id: 7, ..orders() };
    let json = schema.to_digested_json().replace("\"id\": 7", "\"id\": 8");
    assert_eq!(TableSchema::from_json("s", json.as_bytes()).unwrap().id, 8);
    // The same number in another program's JSON.
    let value: serde_json::Value = serde_json::from_str(&schema.to_digested_json()).unwrap();
    assert_eq!(TableSchema::from_json("s", value.to_string().as_bytes()).unwrap().id, 7);
}
