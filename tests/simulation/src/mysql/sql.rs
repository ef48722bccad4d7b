//! Statements that do on a real server what was done to the model.

use super::table::{Change, DATABASE, Effect, Row, Table, Tables, Value, key_of};

/// A table with its rows.
pub fn create(table: &Table) -> Vec<String> {
    let definition = &table.definition;
    let column = |column: &tidegate_cdc::mysql::types::MysqlColumn| {
        format!("{} {}{}", column.name, column.column_type, if column.nullable { "" } else { " NOT NULL" })
    };
    let columns: Vec<String> = definition.columns.iter().map(column).collect();
    let create = format!(
        "CREATE TABLE {} ({}, PRIMARY KEY ({})) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci",
        definition.name,
        columns.join(", "),
        definition.primary_key.join(", ")
    );
    let rows: Vec<&Row> = table.rows.values().collect();
    std::iter::once(create).chain((!rows.is_empty()).then(|| insert(table, &rows))).collect()
}

/// The statements of a transaction that changes rows.
pub(super) fn changes(tables: &Tables, effects: &[Effect]) -> Vec<String> {
    let mut statements = Vec::new();
    for effect in effects {
        let Effect::Rows(name, changes) = effect else { continue };
        let table = &tables[name];
        for group in changes.chunk_by(|a, b| matches!((a, b), (Change::Insert(_), Change::Insert(_)))) {
            statements.push(match &group[0] {
                Change::Insert(_) => {
                    let rows = group.iter().filter_map(|change| match change {
                        Change::Insert(row) => Some(row),
                        _ => None,
                    });
                    insert(table, &rows.collect::<Vec<_>>())
                }
                Change::Update(old, new) => {
                    let names = table.names();
                    let set: Vec<String> =
                        names.iter().zip(new).map(|(name, value)| format!("{name} = {}", literal(value))).collect();
                    format!("UPDATE {name} SET {} WHERE id = {}", set.join(", "), key_of(old))
                }
                Change::Delete(row) => format!("DELETE FROM {name} WHERE id = {}", key_of(row)),
            });
        }
    }
    statements
}

fn insert(table: &Table, rows: &[&Row]) -> String {
    let row = |row: &&Row| format!("({})", row.iter().map(literal).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("INSERT INTO {} VALUES {}", table.definition.name, rows.join(", "))
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("'{text}'"),
    }
}

/// What makes a connection one on which those statements can be run.
pub fn begin() -> String {
    format!("USE {DATABASE}")
}
