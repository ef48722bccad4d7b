use datafusion::common::DFSchema;
use datafusion::common::TableReference;

use super::*;

fn said(error: DataFusionError) -> (&'static str, String) {
    let error = SqlError::from(error);
    (error.sqlstate, error.message)
}

#[test]
fn messages_of_planning() {
    for (message, state, expected) in [
        ("table 'tidegate.shop.orders' not found", "42P01", "relation \"shop.orders\" does not exist"),
        ("table 'tidegate.$search_path.orders' not found", "42P01", "relation \"orders\" does not exist"),
        ("Invalid function 'abss'.\nDid you mean 'abs'?", "42883", "function abss() does not exist"),
        ("Cannot coerce arithmetic expression Utf8 + Date32 to valid types", "42804", ""),
    ] {
        let (found, text) = said(DataFusionError::Plan(message.to_owned()));
        assert_eq!(found, state, "{message}");
        if !expected.is_empty() {
            assert_eq!(text, expected);
        }
    }
}

#[test]
fn messages_of_running() {
    let cast = |message: &str| DataFusionError::ArrowError(Box::new(ArrowError::CastError(message.to_owned())), None);
    for (error, state, expected) in [
        (
            cast("Cannot cast string 'abc' to value of Int32 type"),
            "22P02",
            "invalid input syntax for type integer: \"abc\"",
        ),
        (DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None), "22012", "division by zero"),
        (
            DataFusionError::External(Box::new(SqlError::new("25P02", "inner"))).context("while reading"),
            "25P02",
            "inner",
        ),
        (
            DataFusionError::Shared(std::sync::Arc::new(DataFusionError::Execution("Divide by zero".to_owned()))),
            "22012",
            "division by zero",
        ),
    ] {
        assert_eq!(said(error), (state, expected.to_owned()));
    }
    assert_eq!(said(DataFusionError::NotImplemented("x".to_owned())).0, "0A000");
    assert_eq!(said(DataFusionError::ResourcesExhausted("x".to_owned())).0, "53200");
}

#[test]
fn unknown_columns_have_a_place_and_a_suggestion() {
    let schema = DFSchema::try_from_qualified_schema(
        TableReference::bare("t"),
        &arrow::datatypes::Schema::new(vec![
            arrow::datatypes::Field::new("status", arrow::datatypes::DataType::Utf8, true),
            arrow::datatypes::Field::new("OrderId", arrow::datatypes::DataType::Int64, true),
        ]),
    )
    .unwrap();
    let unknown = |name: &str| {
        let error = datafusion::common::unqualified_field_not_found(name, &schema);
        diagnose(&error, &format!("select 'statsu' -- {name}\n, {name} from t"), 10)
    };
    let error = unknown("statuss");
    assert_eq!((error.sqlstate, error.message.as_str()), ("42703", "column \"statuss\" does not exist"));
    assert_eq!(error.hint.as_deref(), Some("Perhaps you meant the column \"status\"."));
    assert_eq!(error.position, Some(10 + "select 'statsu' -- statuss\n, ".len() + 1));
    assert!(unknown("orderid").hint.unwrap().contains("\"OrderId\" in double quotes"));
}
