//! Tables of the model: definitions, rows, and what statements and transactions do to them.

use std::collections::BTreeMap;

use tidegate_cdc::mysql::types::{MysqlColumn, MysqlTable, MysqlType};

/// The database of all tables.
pub const DATABASE: &str = "shop";

/// A value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// NULL.
    Null,
    /// A number of any width.
    Int(i64),
    /// A text.
    Text(String),
}

impl Value {
    /// As a checker compares it.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Int(value) => Some(value.to_string()),
            Self::Text(text) => Some(text.clone()),
        }
    }
}

/// The values of a row, in the order of the columns; the first is the key.
pub type Row = Vec<Value>;

/// The key of a row.
pub fn key_of(row: &Row) -> i64 {
    match row.first() {
        Some(Value::Int(key)) => *key,
        other => unreachable!("a key is a number, not {other:?}"),
    }
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// As `information_schema` has it.
    pub definition: MysqlTable,
    /// The rows by their keys.
    pub rows: BTreeMap<i64, Row>,
}

impl Table {
    /// An empty table with the key `id` and other columns, each with its type in SQL.
    pub fn new(name: &str, columns: &[(&str, &str)]) -> Self {
        let mut all = vec![MysqlColumn { nullable: false, ..column("id", "bigint") }];
        all.extend(columns.iter().map(|(name, column_type)| column(name, column_type)));
        let definition = MysqlTable {
            database: DATABASE.to_owned(),
            name: name.to_owned(),
            columns: all,
            primary_key: vec!["id".to_owned()],
        };
        Self { definition, rows: BTreeMap::new() }
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<String> {
        self.definition.columns.iter().map(|column| column.name.clone()).collect()
    }
}

/// A nullable column without a default.
pub fn column(name: &str, column_type: &str) -> MysqlColumn {
    MysqlColumn {
        name: name.to_owned(),
        column_type: MysqlType::parse(column_type, Some("utf8mb4"), Some("utf8mb4_general_ci")),
        nullable: true,
        comment: String::new(),
        default: None,
        generated: false,
        invisible: false,
    }
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new row.
    Insert(Row),
    /// The row before and after; the key may differ.
    Update(Row, Row),
    /// The row that goes.
    Delete(Row),
}

/// What a schema change does.
#[derive(Debug, Clone, PartialEq)]
pub enum Schema {
    /// A column behind the others, with one value for the rows that there are.
    Add(MysqlColumn, Value),
    /// The column of this index goes.
    Drop(usize),
    /// The column of this index gets another name.
    Rename(usize, String),
    /// The column of this index gets another type that holds all of its values.
    Widen(usize, MysqlType),
    /// All rows go.
    Truncate,
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Changes of rows of a table.
    Rows(String, Vec<Change>),
    /// A schema change of a table.
    Schema(String, Schema),
}

/// Tables by name.
pub type Tables = BTreeMap<String, Table>;

/// Carries out what a transaction did.
pub fn apply(tables: &mut Tables, effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::Rows(name, changes) => {
                let table = tables.get_mut(name).expect("transactions change tables that exist");
                for change in changes {
                    match change {
                        Change::Insert(row) => {
                            let before = table.rows.insert(key_of(row), row.clone());
                            assert!(before.is_none(), "a key is inserted once");
                        }
                        Change::Update(old, new) => {
                            assert_eq!(table.rows.remove(&key_of(old)).as_ref(), Some(old));
                            assert!(table.rows.insert(key_of(new), new.clone()).is_none());
                        }
                        Change::Delete(old) => assert_eq!(table.rows.remove(&key_of(old)).as_ref(), Some(old)),
                    }
                }
            }
            Effect::Schema(name, schema) => change_schema(tables.get_mut(name).expect("it exists"), schema),
        }
    }
}

fn change_schema(table: &mut Table, schema: &Schema) {
    match schema {
        Schema::Add(column, value) => {
            table.definition.columns.push(column.clone());
            table.rows.values_mut().for_each(|row| row.push(value.clone()));
        }
        Schema::Drop(index) => {
            table.definition.columns.remove(*index);
            table.rows.values_mut().for_each(|row| drop(row.remove(*index)));
        }
        Schema::Rename(index, name) => table.definition.columns[*index].name.clone_from(name),
        Schema::Widen(index, column_type) => table.definition.columns[*index].column_type = column_type.clone(),
        Schema::Truncate => table.rows.clear(),
    }
}
