//! PostgreSQL's names of result columns that were given none: `count`, `?column?`.

use datafusion::sql::parser::Statement as QueryStatement;
use sqlparser::ast::{self, Expr, SelectItem, SetExpr, Statement};

/// The names of a query's columns. Empty if the text does not tell how many there are.
pub(super) fn column_names(statement: &QueryStatement) -> Vec<String> {
    let QueryStatement::Statement(statement) = statement else { return Vec::new() };
    let Statement::Query(query) = statement.as_ref() else { return Vec::new() };
    of_set(&query.body).unwrap_or_default()
}

fn of_set(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => select.projection.iter().map(of_item).collect(),
        SetExpr::Query(query) => of_set(&query.body),
        // The first part names the columns.
        SetExpr::SetOperation { left, .. } => of_set(left),
        SetExpr::Values(values) => {
            let columns = values.rows.first()?.len();
            Some((1..=columns).map(|number| format!("column{number}")).collect())
        }
        _ => None,
    }
}

fn of_item(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(expression) => Some(named(expression).unwrap_or_else(|| "?column?".to_owned())),
        _ => None,
    }
}

/// As PostgreSQL's `FigureColname`.
fn named(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => names.last().map(folded),
        Expr::Function(function) => match function.name.0.last()? {
            ast::ObjectNamePart::Identifier(name) => Some(folded(name)),
            ast::ObjectNamePart::Function(_) => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::Cast { expr: inner, data_type, .. } => named(inner).or_else(|| Some(type_name(data_type))),
        Expr::Case { else_result, .. } => else_result.as_deref().and_then(named).or_else(|| Some("case".to_owned())),
        Expr::Value(value) => matches!(value.value, ast::Value::Boolean(_)).then(|| "bool".to_owned()),
        Expr::TypedString(typed) => Some(type_name(&typed.data_type)),
        Expr::Interval(_) => Some("interval".to_owned()),
        Expr::Extract { .. } => Some("extract".to_owned()),
        Expr::Substring { .. } => Some("substring".to_owned()),
        Expr::Position { .. } => Some("position".to_owned()),
        Expr::Overlay { .. } => Some("overlay".to_owned()),
        Expr::Trim { .. } => Some("btrim".to_owned()),
        Expr::Ceil { .. } => Some("ceil".to_owned()),
        Expr::Floor { .. } => Some("floor".to_owned()),
        Expr::AtTimeZone { .. } => Some("timezone".to_owned()),
        Expr::Exists { .. } => Some("exists".to_owned()),
        Expr::Array(_) => Some("array".to_owned()),
        Expr::Subquery(query) => {
            let SetExpr::Select(select) = query.body.as_ref() else { return None };
            match select.projection.first()? {
                SelectItem::UnnamedExpr(expression) => named(expression),
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn folded(name: &ast::Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn type_name(data_type: &ast::DataType) -> String {
    let written = data_type.to_string().to_lowercase();
    let word = written.split(['(', ' ']).next().unwrap_or_default();
    match word {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "real" => "float4",
        "double" | "float" => "float8",
        "boolean" => "bool",
        "decimal" => "numeric",
        "character" | "char" if written.contains("varying") => "varchar",
        "character" | "char" => "bpchar",
        "timestamp" if written.contains("with time zone") => "timestamptz",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql;

    fn names(text: &str) -> Vec<String> {
        match sql::parse(text).unwrap().remove(0).statement {
            sql::statement::Statement::Query(statement) => column_names(&statement),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_are_named_as_in_postgresql() {
        assert_eq!(
            names(
                "SELECT count(*), SUM(a) + 1, 1, 'x', true, a::int, '1'::bigint, (lower(b)), CASE WHEN a THEN 1 END FROM t"
            ),
            ["count", "?column?", "?column?", "?column?", "bool", "a", "int8", "lower", "case"]
        );
        assert_eq!(names("SELECT max(a) FROM t UNION SELECT b FROM u"), ["max"]);
        assert_eq!(names("SELECT (SELECT min(a) FROM t), EXTRACT(year FROM d)"), ["min", "extract"]);
        assert_eq!(names("VALUES (1, 2)"), ["column1", "column2"]);
        assert_eq!(names("SELECT A, t.\"B\", c AS D, c AS d FROM t"), ["a", "B", "d", "d"]);
        assert!(names("SELECT *, count(*) FROM t").is_empty());
        assert!(names("EXPLAIN SELECT count(*) FROM t").is_empty());
    }
}
