//! Tables whose columns came, went, moved, were renamed and widened, with files of every schema on the way.

use serde_json::json;
use tidegate_storage::paimon::{ColumnPosition, DataType, SchemaChange};
use tidegate_storage::table::{RowKind, TableOptions};

use crate::engines::At;
use crate::foreign::java;
use crate::mirror::{Mirror, field};
use crate::texts::Line;
use crate::values::{borders, scatter, value};

fn decimal(precision: u8, scale: i8) -> DataType {
    DataType::Decimal { precision, scale }
}

/// Every way in which a column may be widened, in steps that one column takes.
fn widenings() -> Vec<(&'static str, Vec<DataType>)> {
    use DataType::*;
    vec![
        ("tiny", vec![TinyInt, SmallInt, Int, BigInt]),
        ("tiny_big", vec![TinyInt, BigInt]),
        ("tiny_float", vec![TinyInt, Float, Double]),
        ("small_double", vec![SmallInt, Double]),
        ("small_int", vec![SmallInt, Int]),
        ("int_double", vec![Int, Double]),
        ("int_big", vec![Int, BigInt]),
        ("float", vec![Float, Double]),
        ("tiny_decimal", vec![TinyInt, decimal(5, 1)]),
        ("int_decimal", vec![Int, decimal(10, 0), decimal(20, 3)]),
        ("big_decimal", vec![BigInt, decimal(38, 10)]),
        ("price", vec![decimal(9, 2), decimal(12, 2), decimal(18, 4), decimal(30, 4)]),
        ("code", vec![Char(5), Varchar(20), String]),
        ("name", vec![Varchar(10), Varchar(100), String]),
        ("digest", vec![Binary(4), Varbinary(8), Bytes]),
        ("bits", vec![Varbinary(3), Bytes]),
        ("at", vec![Timestamp(4), Timestamp(6)]),
        ("since", vec![TimestampLtz(4), TimestampLtz(6)]),
        ("day", vec![Date, Timestamp(6)]),
    ]
}

/// Rows of the table's newest schema; the key is `id`, whatever it is called and wherever it is.
fn rows(mirror: &Mirror, ids: impl IntoIterator<Item = u64>, version: u64) -> Vec<Line> {
    let schema = mirror.schema();
    let key = schema.key_indices()[0];
    let row = |id: u64| {
        let column = |(n, field): (usize, &tidegate_storage::paimon::Field)| {
            if n == key {
                return Some(id.to_string());
            }
            let salt = id * 1000 + version * 31 + field.id as u64;
            let borders = borders(&field.data_type);
            let kept = !scatter(salt).is_multiple_of(9);
            kept.then(|| borders.get(id as usize % 30).cloned().unwrap_or_else(|| value(&field.data_type, salt)))
        };
        schema.fields.iter().enumerate().map(column).collect()
    };
    ids.into_iter().map(row).collect()
}

async fn change(mirror: &mut Mirror, changes: &[SchemaChange], version: u64) {
    if !changes.is_empty() {
        mirror.evolve(changes).await;
    }
    let upserts = rows(mirror, (0..40).map(|n| scatter(n + version * 100) % 120), version);
    mirror.apply(RowKind::Upsert, &upserts);
    let deletes = rows(mirror, [version, version * 2, version * 3], version);
    mirror.apply(RowKind::Delete, &deletes);
    mirror.commit().await;
}

/// Java rewrites files of every schema, and the writer goes on with those.
async fn compact_by_java(mirror: &mut Mirror) {
    let id = java(mirror, json!({ "do": "compact", "full": true }));
    let state = mirror.state();
    assert_eq!(mirror.load(id).await.unwrap().schemas.len(), 1, "Java has rewritten everything");
    mirror.check(At::Snapshot(id), id, &state).await;
    mirror.states.insert(id, state);
    mirror.reopen(id).await.unwrap();
    change(mirror, &[], 30).await;
    mirror.writer.compact().await.unwrap();
    change(mirror, &[], 31).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_widened() {
    let fields = widenings().into_iter().map(|(name, types)| field(name, types[0].clone(), true));
    let id = field("id", DataType::BigInt, false);
    let options = TableOptions { buckets: 2, compaction: false, ..TableOptions::default() };
    let mut mirror = Mirror::new(std::iter::once(id).chain(fields).collect(), options).await;
    let first = rows(&mirror, 0..100, 1);
    mirror.apply(RowKind::Upsert, &first);
    mirror.commit().await;
    for step in 1..4 {
        let widened = widenings().into_iter().filter_map(|(name, types)| {
            let data_type = types.get(step)?.clone();
            Some(SchemaChange::ChangeType { name: name.to_owned(), data_type, nullable: true })
        });
        change(&mut mirror, &widened.collect::<Vec<_>>(), step as u64 + 1).await;
    }
    let last = *mirror.states.keys().last().unwrap();
    assert_eq!(mirror.load(last).await.unwrap().schemas.len(), 4, "there are files of every schema");
    compact_by_java(&mut mirror).await;
    let compared = mirror.check_all().await;
    println!("{} states with {} rows", compared.states, compared.rows);
    assert_eq!(compared.states, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_come_go_move_and_are_renamed() {
    let fields = vec![
        field("a", DataType::Int, true),
        field("id", DataType::BigInt, false),
        field("b", DataType::String, true),
        field("c", DataType::Timestamp(6), true),
        field("d", decimal(12, 2), true),
    ];
    let options = TableOptions { buckets: 2, compaction: false, rows_per_file: 30, ..TableOptions::default() };
    let mut mirror = Mirror::new(fields, options).await;
    let first = rows(&mirror, 0..100, 1);
    mirror.apply(RowKind::Upsert, &first);
    mirror.commit().await;
    let add = |name: &str, data_type, position| SchemaChange::AddColumn {
        field: field(name, data_type, true),
        position,
        initial_default: None,
    };
    let rename = |from: &str, to: &str| SchemaChange::RenameColumn { from: from.to_owned(), to: to.to_owned() };
    let drop = |name: &str| SchemaChange::DropColumn { name: name.to_owned() };
    let to = |name: &str, position| SchemaChange::Move { name: name.to_owned(), position };
    let after = |name: &str| ColumnPosition::After(name.to_owned());
    let steps: Vec<Vec<SchemaChange>> = vec![
        vec![add("e", DataType::Date, ColumnPosition::First)],
        vec![add("f", DataType::Bytes, after("a")), add("g", decimal(30, 5), ColumnPosition::Last)],
        vec![rename("b", "words")],
        // Two columns change names; a third takes the name of one that is gone, with another type.
        vec![rename("a", "x"), rename("c", "a"), rename("x", "c"), drop("d")],
        vec![add("d", DataType::String, ColumnPosition::Last)],
        // The key too.
        vec![rename("id", "number")],
        vec![to("number", ColumnPosition::Last), to("words", ColumnPosition::First)],
        vec![drop("e"), drop("f"), drop("g"), to("d", ColumnPosition::First)],
        vec![add("e", DataType::Boolean, after("d"))],
    ];
    for (version, changes) in (2..).zip(&steps) {
        change(&mut mirror, changes, version).await;
    }
    let last = *mirror.states.keys().last().unwrap();
    assert!(mirror.load(last).await.unwrap().schemas.len() >= 8);
    compact_by_java(&mut mirror).await;
    let compared = mirror.check_all().await;
    println!("{} states with {} rows", compared.states, compared.rows);
    assert_eq!(compared.states, 13);
    assert!(mirror.check_filters(&["c", "words", "a", "number", "d", "e"]) > 50);
}
