use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use tidegate_storage::paimon::Field;

use super::*;

fn schema(types: &[(DataType, bool)]) -> Arc<TableSchema> {
    let fields = types.iter().enumerate().map(|(i, (data_type, nullable))| Field {
        id: i as i32,
        name: format!("c{i}"),
        data_type: data_type.clone(),
        nullable: *nullable,
        description: None,
        initial_default: None,
    });
    Arc::new(TableSchema {
        id: 0,
        fields: fields.collect(),
        highest_field_id: 0,
        primary_keys: vec!["c0".to_owned()],
        options: Default::default(),
        comment: None,
        time_millis: 0,
    })
}

fn all_types() -> Vec<(DataType, bool)> {
    [
        DataType::Boolean,
        DataType::TinyInt,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::Float,
        DataType::Double,
        DataType::Decimal { precision: 20, scale: 2 },
        DataType::Varchar(10),
        DataType::String,
        DataType::Binary(3),
        DataType::Bytes,
        DataType::Date,
        DataType::Timestamp(6),
        DataType::TimestampLtz(6),
    ]
    .into_iter()
    .map(|t| (t, true))
    .collect()
}

/// Pushes a value that the column takes.
fn push_some(column: &mut ColumnBuffer) {
    let pushed = [
        column.push_bool(true),
        column.push_i64(7),
        column.push_f32(1.5),
        column.push_f64(2.5),
        column.push_str("text"),
        column.push_padded(b"b", 3),
        column.push_date(1),
        column.push_micros(1),
    ];
    assert_eq!(pushed.iter().filter(|p| p.is_ok()).count(), 1, "{column:?}");
}

#[test]
fn every_type_with_nulls_and_truncation() {
    let mut rows = RowBuffer::new(&schema(&all_types()));
    for i in 0..100 {
        for c in 0..rows.width() {
            if i % 3 == 1 { rows.column_mut(c).push_null().unwrap() } else { push_some(rows.column_mut(c)) }
        }
        rows.end_row(RowKind::Upsert);
    }
    rows.truncate(80);
    // A row that breaks off midway.
    push_some(rows.column_mut(0));
    push_some(rows.column_mut(9));
    rows.truncate(80);
    assert!((80 * 80..80 * 120).contains(&rows.bytes()));
    let (batch, kinds) = rows.take().unwrap();
    assert_eq!((batch.num_rows(), kinds.len(), rows.len()), (80, 80, 0));
    for column in batch.columns() {
        assert_eq!(column.null_count(), 27);
        assert!(column.is_null(1) && column.is_valid(2));
    }
    assert_eq!(batch.column(9).as_string::<i32>().value(78), "text");
    assert_eq!(batch.column(10).as_binary::<i32>().value(0), b"b\0\0");
    // The buffer goes on empty.
    for c in 0..rows.width() {
        push_some(rows.column_mut(c));
    }
    rows.end_row(RowKind::Delete);
    let (batch, kinds) = rows.take().unwrap();
    assert_eq!((batch.num_rows(), kinds), (1, vec![RowKind::Delete]));
    assert_eq!(batch.column(4).as_primitive::<Int64Type>().value(0), 7);
}

#[test]
fn the_first_null_after_a_truncation_to_nothing() {
    let mut rows = RowBuffer::new(&schema(&[(DataType::BigInt, true)]));
    rows.column_mut(0).push_i64(1).unwrap();
    rows.end_row(RowKind::Upsert);
    rows.truncate(0);
    rows.column_mut(0).push_null().unwrap();
    rows.end_row(RowKind::Upsert);
    let (batch, _) = rows.take().unwrap();
    assert!(batch.column(0).is_null(0));
}

#[test]
fn values_that_do_not_fit() {
    let mut rows = RowBuffer::new(&schema(&[
        (DataType::TinyInt, false),
        (DataType::Decimal { precision: 4, scale: 2 }, true),
        (DataType::String, true),
        (DataType::Decimal { precision: 20, scale: 0 }, true),
        (DataType::BigInt, true),
    ]));
    assert_eq!(rows.column_mut(0).push_i64(128), Err(PushError::OutOfRange));
    assert_eq!(rows.column_mut(0).push_null(), Err(PushError::Null));
    assert_eq!(rows.column_mut(0).push_str("x"), Err(PushError::WrongType));
    assert_eq!(rows.column_mut(1).push_decimal(10_000), Err(PushError::OutOfRange));
    assert_eq!(rows.column_mut(1).push_decimal(-9_999), Ok(()));
    assert_eq!(rows.column_mut(1).push_i64(100), Err(PushError::OutOfRange));
    assert_eq!(rows.column_mut(1).push_i64(99), Ok(()));
    assert_eq!(rows.column_mut(2).push_bytes(b"\xff"), Err(PushError::InvalidText));
    assert_eq!(rows.column_mut(3).push_u64(u64::MAX), Ok(()));
    assert_eq!(rows.column_mut(4).push_u64(u64::MAX), Err(PushError::OutOfRange));
    assert!(rows.column_mut(0).is_empty() && rows.column_mut(2).is_empty());
}

#[test]
fn text_that_fails_midway_leaves_nothing() {
    let mut column = ColumnBuffer::new(&DataType::String, true);
    column.push_str("first").unwrap();
    let failed = column.push_text_with(|out| {
        out.push_str("half");
        Err(PushError::InvalidText)
    });
    assert_eq!(failed, Err(PushError::InvalidText));
    column
        .push_text_with(|out| {
            out.push('ü');
            Ok::<(), PushError>(())
        })
        .unwrap();
    let array = column.take().unwrap();
    assert_eq!(array.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["first", "ü"]);
}

#[test]
fn columns_of_different_length_are_no_batch() {
    let mut rows = RowBuffer::new(&schema(&[(DataType::Int, true), (DataType::Int, true)]));
    rows.column_mut(0).push_i64(1).unwrap();
    assert!(rows.take().is_err());
    assert_eq!(rows.column_mut(0).len(), 0);
}
