//! Which tables a server has, and what they look like: a few queries for all tables, never one for each.

use std::collections::{BTreeMap, HashMap, HashSet};

use mysql_async::Value;

use crate::error::Result;
use crate::mysql::connect::{Conn, ask_with};
use crate::mysql::types::{MysqlColumn, MysqlTable, MysqlType};
use crate::mysql::{Flavor, ServerInfo};
use crate::source::definition::{SYSTEM_SCHEMAS, SourceDefinition};

/// A table that a source's rules match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedTable {
    /// The database on the server.
    pub database: String,
    /// The table's name on the server.
    pub name: String,
    /// The mirror's schema.
    pub target_schema: String,
    /// The mirror's name.
    pub target_table: String,
    /// Rows as the server's statistics have them; far off at times.
    pub estimated_rows: u64,
    /// The columns of the key.
    pub key: Option<Vec<String>>,
    /// Why the table is not captured; `None` if it is.
    pub left_out: Option<String>,
}

/// Loads a table's definition; `None` if there is no such table.
pub async fn load_table(
    conn: &mut Conn,
    server: &ServerInfo,
    database: &str,
    table: &str,
) -> Result<Option<MysqlTable>> {
    Ok(load_tables(conn, server, database, &[table]).await?.into_iter().next())
}

/// Loads the definitions of tables of one database, in one go. Tables that do not exist are missing in the answer.
pub async fn load_tables(
    conn: &mut Conn,
    server: &ServerInfo,
    database: &str,
    tables: &[&str],
) -> Result<Vec<MysqlTable>> {
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!("the tables of `{database}` could not be looked up");
    // Many names are cheaper to filter here than to send.
    let by_name = tables.len() <= 500;
    let mut filter = "table_schema = ?".to_owned();
    let mut parameters: Vec<Value> = vec![database.into()];
    if by_name {
        filter.push_str(&format!(" AND table_name IN ({})", placeholders(tables.len())));
        parameters.extend(tables.iter().map(|table| Value::from(*table)));
    }
    let wanted: HashSet<&str> = tables.iter().copied().collect();
    let is_wanted = |name: &str| {
        wanted.contains(name) || (server.folds_case() && tables.iter().any(|t| t.to_lowercase() == name.to_lowercase()))
    };

    let mut found: BTreeMap<String, MysqlTable> = BTreeMap::new();
    type ColumnRow = (String, String, String, String, String, Option<String>, String, Option<String>, Option<String>);
    let sql = format!(
        "SELECT table_name, column_name, column_type, is_nullable, column_comment, column_default, extra, \
                 character_set_name, collation_name FROM information_schema.columns WHERE {filter} \
                 ORDER BY table_name, ordinal_position"
    );
    let rows: Vec<ColumnRow> = ask_with(conn, &what, &sql, parameters.clone()).await?;
    for (table, name, column_type, nullable, comment, default, extra, charset, collation) in rows {
        if !is_wanted(&table) {
            continue;
        }
        let extra = extra.to_ascii_uppercase();
        let column = MysqlColumn {
            column_type: MysqlType::parse(&column_type, charset.as_deref(), collation.as_deref()),
            name,
            nullable: nullable.eq_ignore_ascii_case("YES"),
            comment,
            default,
            generated: extra.contains("VIRTUAL GENERATED") || extra.contains("STORED GENERATED"),
            invisible: extra.split_whitespace().any(|word| word == "INVISIBLE"),
        };
        found
            .entry(table.clone())
            .or_insert_with(|| MysqlTable {
                database: database.to_owned(),
                name: table,
                columns: Vec::new(),
                primary_key: Vec::new(),
            })
            .columns
            .push(column);
    }
    let sql = format!(
        "SELECT table_name, column_name FROM information_schema.statistics WHERE {filter} \
                 AND index_name = 'PRIMARY' ORDER BY table_name, seq_in_index"
    );
    let keys: Vec<(String, String)> = ask_with(conn, &what, &sql, parameters).await?;
    for (table, column) in keys {
        if let Some(table) = found.get_mut(&table) {
            table.primary_key.push(column);
        }
    }
    Ok(found.into_values().collect())
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// A filter over `information_schema` for what a definition can match at all, with its parameters.
struct Scope {
    filter: String,
    parameters: Vec<Value>,
}

impl Scope {
    fn of(definition: &SourceDefinition) -> Self {
        let databases: Option<Vec<&str>> = definition.tables.iter().map(|rule| rule.pattern.database()).collect();
        let tables: Option<Vec<&str>> =
            definition.tables.iter().map(|rule| rule.pattern.table().map(|(_, table)| table)).collect();
        let mut scope = Self { filter: String::new(), parameters: Vec::new() };
        match databases {
            Some(databases) => scope.add("table_schema IN", &databases),
            None => scope.add("table_schema NOT IN", &SYSTEM_SCHEMAS),
        }
        if let Some(tables) = tables.filter(|tables| tables.len() <= 1000) {
            scope.filter.push_str(" AND ");
            scope.add("table_name IN", &tables);
        }
        scope
    }

    fn add(&mut self, condition: &str, names: &[&str]) {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        self.filter.push_str(&format!("{condition} ({})", placeholders(names.len())));
        self.parameters.extend(names.iter().map(|name| Value::from(*name)));
    }
}

/// Types whose columns are mirrored whatever else they say; the other ones are looked at one by one.
const PLAIN_TYPES: &str = "'tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'float', 'double', 'char', \
    'varchar', 'tinytext', 'text', 'mediumtext', 'longtext', 'binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', \
    'longblob', 'date', 'time', 'datetime', 'timestamp', 'year', 'enum', 'set', 'bit', 'json'";

#[derive(Debug, Default)]
struct Index {
    columns: Vec<String>,
    nullable: bool,
    prefix: bool,
}

type TableName = (String, String);

/// The tables that a definition matches, with the reason for each that is not captured. Views are not listed.
pub async fn list_tables(
    conn: &mut Conn,
    server: &ServerInfo,
    definition: &SourceDefinition,
) -> Result<Vec<MatchedTable>> {
    let what = "the server's tables could not be listed";
    let fold = server.folds_case();
    let scope = Scope::of(definition);
    let filter = &scope.filter;
    let sql = format!(
        "SELECT table_schema, table_name, table_type, table_rows FROM information_schema.tables WHERE {filter} \
                 ORDER BY table_schema, table_name"
    );
    let rows: Vec<(String, String, String, Option<u64>)> = ask_with(conn, what, &sql, scope.parameters.clone()).await?;
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(database, table, kind, _)| {
            // Sequences and views hold no rows of their own.
            (kind == "BASE TABLE" || kind == "SYSTEM VERSIONED") && definition.matches(database, table, fold)
        })
        .collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let indexes = unique_indexes(conn, &scope).await?;
    let unsupported = unsupported_columns(conn, &scope).await?;

    let mut targets: HashMap<TableName, TableName> = HashMap::new();
    let mut matched = Vec::with_capacity(rows.len());
    for (database, name, kind, estimated_rows) in rows {
        let Some(rule) = definition.rule_for(&database, &name, fold) else { continue };
        let (target_schema, target_table) = rule.target.clone().unwrap_or_else(|| (database.clone(), name.clone()));
        let table = (database, name);
        let none = BTreeMap::new();
        let own = indexes.get(&table).unwrap_or(&none);
        let (key, mut left_out) = match (&rule.key, own.get("PRIMARY")) {
            (Some(key), _) => match usable_key(own, key) {
                Ok(key) => (Some(key), None),
                Err(reason) => (None, Some(reason)),
            },
            (None, Some(primary)) if primary.prefix => {
                (None, Some("the primary key covers only the beginning of a column".to_owned()))
            }
            (None, Some(primary)) => (Some(primary.columns.clone()), None),
            (None, None) => (None, Some("no primary key".to_owned())),
        };
        if kind == "SYSTEM VERSIONED" {
            left_out = Some("system-versioned tables log deletes as updates".to_owned());
        }
        if let Some(reason) = unsupported.get(&table) {
            left_out.get_or_insert_with(|| reason.clone());
        }
        if left_out.is_none() {
            let target = (target_schema.clone(), target_table.clone());
            if let Some((database, name)) = targets.get(&target) {
                left_out = Some(format!("`{database}`.`{name}` is mirrored under the same name"));
            } else {
                targets.insert(target, table.clone());
            }
        }
        let (database, name) = table;
        let estimated_rows = estimated_rows.unwrap_or(0);
        matched.push(MatchedTable { database, name, target_schema, target_table, estimated_rows, key, left_out });
    }
    Ok(matched)
}

/// A key given by hand must be one that the server enforces.
fn usable_key(indexes: &BTreeMap<String, Index>, key: &[String]) -> Result<Vec<String>, String> {
    let same = |index: &Index| {
        index.columns.len() == key.len()
            && key.iter().all(|name| index.columns.iter().any(|column| column.to_lowercase() == name.to_lowercase()))
    };
    let named = key.join(", ");
    match indexes.values().find(|index| same(index)) {
        None => Err(format!("no unique key has exactly the columns ({named})")),
        Some(index) if index.nullable => Err(format!("the key ({named}) allows NULL")),
        Some(index) if index.prefix => Err(format!("the key ({named}) covers only the beginning of a column")),
        Some(index) => Ok(index.columns.clone()),
    }
}

async fn unique_indexes(conn: &mut Conn, scope: &Scope) -> Result<HashMap<TableName, BTreeMap<String, Index>>> {
    let what = "the server's keys could not be listed";
    type Row = (String, String, String, Option<String>, Option<u64>, Option<String>);
    let sql = format!(
        "SELECT table_schema, table_name, index_name, column_name, sub_part, nullable \
                 FROM information_schema.statistics WHERE {} AND non_unique = 0 \
                 ORDER BY table_schema, table_name, index_name, seq_in_index",
        scope.filter
    );
    let rows: Vec<Row> = ask_with(conn, what, &sql, scope.parameters.clone()).await?;
    let mut tables: HashMap<TableName, BTreeMap<String, Index>> = HashMap::new();
    for (database, table, index, column, sub_part, nullable) in rows {
        let index = tables.entry((database, table)).or_default().entry(index).or_default();
        match column {
            Some(column) => index.columns.push(column),
            // A functional key part has no column: nothing that a row image could be found by.
            None => index.prefix = true,
        }
        index.prefix |= sub_part.is_some();
        index.nullable |= nullable.is_some_and(|nullable| nullable.eq_ignore_ascii_case("YES"));
    }
    Ok(tables)
}

async fn unsupported_columns(conn: &mut Conn, scope: &Scope) -> Result<HashMap<TableName, String>> {
    let what = "the server's columns could not be listed";
    type Row = (String, String, String, String, Option<String>, Option<String>);
    let sql = format!(
        "SELECT table_schema, table_name, column_name, column_type, character_set_name, collation_name \
                 FROM information_schema.columns WHERE {} AND (data_type NOT IN ({PLAIN_TYPES}) \
                 OR column_type LIKE '%COMPRESSED%') ORDER BY table_schema, table_name, ordinal_position",
        scope.filter
    );
    let rows: Vec<Row> = ask_with(conn, what, &sql, scope.parameters.clone()).await?;
    let mut tables = HashMap::new();
    for (database, table, column, column_type, charset, collation) in rows {
        let parsed = MysqlType::parse(&column_type, charset.as_deref(), collation.as_deref());
        if let Err(reason) = parsed.data_type() {
            tables.entry((database, table)).or_insert_with(|| format!("column `{column}`: {reason}"));
        }
    }
    Ok(tables)
}

/// Foreign keys of matched tables whose actions change rows that this server does not log.
pub(crate) async fn unlogged_cascades(
    conn: &mut Conn,
    server: &ServerInfo,
    definition: &SourceDefinition,
) -> Result<Vec<String>> {
    if server.flavor == Flavor::Mysql && server.version_numbers() >= (9, 6, 0) {
        return Ok(Vec::new());
    }
    let databases: Option<Vec<&str>> = definition.tables.iter().map(|rule| rule.pattern.database()).collect();
    let mut scope = Scope { filter: String::new(), parameters: Vec::new() };
    match databases {
        Some(databases) => scope.add("constraint_schema IN", &databases),
        None => scope.add("constraint_schema NOT IN", &SYSTEM_SCHEMAS),
    }
    let sql = format!(
        "SELECT constraint_schema, table_name, constraint_name FROM information_schema.referential_constraints \
                 WHERE {} AND (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL')) \
                 ORDER BY constraint_schema, table_name, constraint_name",
        scope.filter
    );
    let rows: Vec<(String, String, String)> =
        ask_with(conn, "the server's foreign keys could not be listed", &sql, scope.parameters.clone()).await?;
    let fold = server.folds_case();
    Ok(rows
        .into_iter()
        .filter(|(database, table, _)| definition.matches(database, table, fold))
        .map(|(database, table, name)| format!("{database}.{table} ({name})"))
        .collect())
}
