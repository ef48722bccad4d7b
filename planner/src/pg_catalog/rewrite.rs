//! PostgreSQL's spellings that DataFusion's planner does not take, as ones that it does.
//!
//! Rules that hold for any query: schema-qualified functions and operators, `COLLATE`, `= ANY (…)`, `ARRAY(SELECT …)`, casts to
//! `regclass` and its kin. Rules for queries of the catalogs alone: scalar subqueries that are correlated without an aggregate
//! (a second row, an error in PostgreSQL, cannot come from a look-up by object id), and subqueries over the elements of an array
//! column (the catalogs' arrays of options and rights are always NULL here).

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, ObjectName, ObjectNamePart, OrderByKind, Query,
    Select, SelectItem, SetExpr, Statement, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::tables::is_empty_table;
use crate::table::{INFORMATION_SCHEMA, PG_CATALOG};

/// The rewriting of statements.
#[derive(Debug, Clone, Copy)]
pub struct Compatibility;

impl Compatibility {
    /// Rewrites `statement` in place. Every statement that DataFusion is to plan goes through it.
    pub fn rewrite(statement: &mut Statement) {
        let mut of_catalogs = MentionsCatalogs(false);
        let _ = Visit::visit(statement, &mut of_catalogs);
        let _ = VisitMut::visit(statement, &mut Rewrite { of_catalogs: of_catalogs.0 });
    }

    /// Whether a query asks PostgreSQL's catalogs about anything.
    pub fn asks_catalogs(statement: &Statement) -> bool {
        let mut of_catalogs = MentionsCatalogs(false);
        let _ = Visit::visit(statement, &mut of_catalogs);
        of_catalogs.0
    }
}

struct MentionsCatalogs(bool);

impl Visitor for MentionsCatalogs {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.0 |= is_catalog(relation);
        ControlFlow::Continue(())
    }
}

fn is_catalog(relation: &ObjectName) -> bool {
    let parts = lower_parts(relation);
    match parts.as_slice() {
        [name] => name.starts_with("pg_"),
        [.., schema, _] => schema == PG_CATALOG || schema == INFORMATION_SCHEMA,
        [] => false,
    }
}

fn lower_parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(ObjectNamePart::as_ident).map(|ident| ident.value.to_ascii_lowercase()).collect()
}

struct Rewrite {
    of_catalogs: bool,
}

impl VisitorMut for Rewrite {
    type Break = ();

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                show_reg_cast(expr);
            }
        }
        name_apart(&mut select.projection);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => strip_schema(name),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // Before the subqueries inside are looked at: what cannot be planned goes as a whole.
        if let Expr::Subquery(query) = expr
            && self.of_catalogs
            && finds_nothing(query)
        {
            *expr = null_of("TEXT");
        }
        if let Some(query) = array_subquery(expr) {
            if self.of_catalogs && finds_nothing(query) {
                *expr = null_of("TEXT[]");
            } else if let Some(aggregate) = as_aggregate(query) {
                *expr = aggregate;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let replaced = match expr {
            Expr::Collate { expr: inner, .. } => Some(take(inner)),
            Expr::BinaryOp { op, left, right } => {
                builtin_operator(op);
                array_operand(op, left, right);
                None
            }
            Expr::Function(function) => {
                strip_schema(&mut function.name);
                spell_out(function);
                None
            }
            Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("current_schema") =>
            {
                parse("current_schema()")
            }
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => Some(member(left, right, false)),
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => Some(member(left, right, true)),
            Expr::Cast { expr: inner, data_type, .. } => cast(inner, data_type),
            Expr::Subquery(query) if self.of_catalogs => {
                aggregate_lookup(query);
                None
            }
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expr = replaced;
        }
        ControlFlow::Continue(())
    }
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

/// An expression from its text.
fn parse(sql: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?.parse_expr().ok()
}

fn null_of(data_type: &str) -> Expr {
    parse(&format!("CAST(NULL AS {data_type})")).unwrap_or_else(|| Expr::Value(Value::Null.with_empty_span()))
}

fn call(name: &str, args: impl IntoIterator<Item = Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// DataFusion finds functions by their bare names.
fn strip_schema(name: &mut ObjectName) {
    let parts = lower_parts(name);
    if parts.len() == 2 && [PG_CATALOG, INFORMATION_SCHEMA, "public"].contains(&parts[0].as_str()) {
        name.0.remove(0);
    }
}

/// `current_user` and its like have no parentheses.
fn spell_out(function: &mut Function) {
    const BARE: &[&str] =
        &["current_user", "session_user", "user", "current_role", "current_catalog", "current_schema"];
    if matches!(function.args, FunctionArguments::None)
        && let [name] = lower_parts(&function.name).as_slice()
        && BARE.contains(&name.as_str())
    {
        function.name = ObjectName::from(vec![Ident::new(name.as_str())]);
        function.args =
            FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args: vec![], clauses: vec![] });
    }
}

/// `OPERATOR(pg_catalog.~)`.
fn builtin_operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(parts) = op else { return };
    let Some(name) = parts.last() else { return };
    *op = match name.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "||" => BinaryOperator::StringConcat,
        _ => return,
    };
}

/// `column = '{1,2}'` compares with an array.
fn array_operand(op: &BinaryOperator, left: &Expr, right: &mut Expr) {
    if !matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) || !matches!(left, Expr::CompoundIdentifier(_)) {
        return;
    }
    if let Some(items) = array_literal(right)
        && items.iter().all(|item| item.parse::<i64>().is_ok())
        && let Some(array) = parse(&format!("ARRAY[{}]", items.join(",")))
    {
        *right = array;
    }
}

/// The elements of `'{a,b}'`.
fn array_literal(expr: &Expr) -> Option<Vec<String>> {
    let Expr::Value(value) = expr else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut items = Vec::new();
    let mut item = String::new();
    let (mut quoted, mut chars) = (false, inner.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => item.extend(chars.next()),
            ',' if !quoted => items.push(std::mem::take(&mut item).trim().to_owned()),
            c => item.push(c),
        }
    }
    items.push(item.trim().to_owned());
    Some(items)
}

/// `left = ANY (right)`, or its negation `left <> ALL (right)`.
fn member(left: &mut Expr, right: &mut Expr, negated: bool) -> Expr {
    let left = Box::new(take(left));
    let right = match take(right) {
        Expr::Nested(inner) => *inner,
        other => other,
    };
    if let Expr::Subquery(subquery) = right {
        return Expr::InSubquery { expr: left, subquery, negated };
    }
    let items = match &right {
        Expr::Array(Array { elem, .. }) => Some(elem.clone()),
        Expr::Cast { expr, .. } => array_literal(expr).map(texts),
        other => array_literal(other).map(texts),
    };
    match items {
        Some(list) if list.is_empty() => Expr::Value(Value::Boolean(negated).with_empty_span()),
        Some(list) => Expr::InList { expr: left, list, negated },
        None => {
            let contains = call("array_has", [right, *left]);
            if negated {
                Expr::UnaryOp { op: sqlparser::ast::UnaryOperator::Not, expr: Box::new(contains) }
            } else {
                contains
            }
        }
    }
}

fn texts(items: Vec<String>) -> Vec<Expr> {
    items
        .into_iter()
        .map(|item| match item.parse::<i64>() {
            Ok(_) => Expr::Value(Value::Number(item, false).with_empty_span()),
            Err(_) => Expr::Value(Value::SingleQuotedString(item).with_empty_span()),
        })
        .collect()
}

/// The bare, lower-case name of a type that the parser does not know.
fn custom_name(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Regclass => Some("regclass".to_owned()),
        DataType::Custom(name, args) if args.is_empty() => lower_parts(name).pop(),
        _ => None,
    }
}

/// Object types whose names are looked up.
fn reg_type(data_type: &DataType) -> Option<&'static str> {
    let name = custom_name(data_type)?;
    ["regclass", "regtype", "regnamespace", "regrole"].into_iter().find(|known| *known == name)
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_literal(inner),
        Expr::Function(function) => {
            // What names are put together with: `(quote_ident(a) || '.' || b)::regclass`.
            lower_parts(&function.name).last().is_some_and(|name| name == "quote_ident" || name == "format")
        }
        Expr::BinaryOp { op: BinaryOperator::StringConcat, .. } => true,
        _ => false,
    }
}

/// What a cast becomes, if it is not to stay as it is.
fn cast(inner: &mut Expr, data_type: &mut DataType) -> Option<Expr> {
    if let Some(kind) = reg_type(data_type) {
        return is_literal(inner).then(|| call(&format!("{kind}_in"), [take(inner)]));
    }
    // An object id as text is the object's name.
    if is_text(data_type) {
        show_reg_cast(inner);
    }
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        if let Some(items) = array_literal(inner) {
            let items: Vec<String> = if is_text(element) || custom_name(element).is_some() {
                items.iter().map(|item| format!("'{}'", item.replace('\'', "''"))).collect()
            } else {
                items
            };
            if !items.is_empty() {
                *inner = parse(&format!("ARRAY[{}]", items.join(",")))?;
            }
        }
        if custom_name(element).is_some_and(|name| TEXT_LIKE.contains(&name.as_str())) {
            **element = DataType::Text;
        }
        return None;
    }
    let name = custom_name(data_type)?;
    if TEXT_LIKE.contains(&name.as_str()) {
        *data_type = DataType::Text;
        return None;
    }
    // Kept as they are: functions by name, vectors of numbers as lists.
    ["regproc", "regprocedure", "int2vector", "oidvector", "regconfig", "regcollation", "cardinal_number"]
        .contains(&name.as_str())
        .then(|| take(inner))
}

/// Types that are text to a client.
const TEXT_LIKE: &[&str] = &[
    "name",
    "char",
    "xid",
    "xid8",
    "cstring",
    "aclitem",
    "unknown",
    "sql_identifier",
    "character_data",
    "yes_or_no",
    "pg_node_tree",
    "inet",
    "citext",
];

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::String(_))
        || custom_name(data_type).is_some_and(|name| matches!(name.as_str(), "text" | "varchar" | "name"))
}

/// `oid::regclass` where it is shown: the name.
fn show_reg_cast(expr: &mut Expr) {
    if let Expr::Cast { expr: inner, data_type, .. } = expr
        && let Some(kind) = reg_type(data_type)
    {
        *expr = call(&format!("{kind}_out"), [take(inner)]);
    }
}

/// The query in `ARRAY(SELECT …)`.
fn array_subquery(expr: &mut Expr) -> Option<&mut Query> {
    let Expr::Function(function) = expr else { return None };
    let named = lower_parts(&function.name).last().is_some_and(|name| name == "array");
    match &mut function.args {
        FunctionArguments::Subquery(query) if named => Some(query),
        _ => None,
    }
}

/// `ARRAY(SELECT x FROM …)` as a scalar subquery. The order goes into the aggregate; without a limit nothing else depends on it.
fn as_aggregate(query: &mut Query) -> Option<Expr> {
    if query.limit_clause.is_some() || query.with.is_some() {
        return None;
    }
    let order = query.order_by.take();
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if select.distinct.is_some() || !is_ungrouped(select) || select.projection.len() != 1 {
        return None;
    }
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = &select.projection[0] else {
        return None;
    };
    let order = match order.map(|order| order.kind) {
        Some(OrderByKind::Expressions(exprs)) if !exprs.is_empty() => {
            let keys: Vec<String> = exprs
                .iter()
                .map(|key| match &key.expr {
                    // A position names the one value there is.
                    Expr::Value(_) => value.to_string(),
                    other => other.to_string(),
                })
                .collect();
            format!(" ORDER BY {}", keys.join(", "))
        }
        _ => String::new(),
    };
    let aggregate = parse(&format!("array_agg({value}{order})"))?;
    select.projection[0] = SelectItem::UnnamedExpr(aggregate);
    Some(Expr::Subquery(Box::new(query.clone())))
}

fn is_ungrouped(select: &Select) -> bool {
    select.having.is_none() && matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty())
}

/// Whether a subquery of a query of the catalogs has no rows whatever row of the query around it it looks at: it reads tables that
/// are empty here, or a column's own collation, which none has, or the elements of an array column.
fn finds_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let aggregates = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_aggregate(expr),
        _ => true,
    });
    let of_nothing = select.from.iter().any(|from| match &from.relation {
        TableFactor::Table { name, args: None, .. } => lower_parts(name)
            .last()
            .is_some_and(|name| is_empty_table(name) || (name == "pg_collation" && select.from.len() == 2)),
        _ => false,
    });
    over_array_column(query) || (!aggregates && (of_nothing || select.selection.as_ref().is_some_and(looks_into_array)))
}

/// `x = ANY (column)`.
fn looks_into_array(expr: &Expr) -> bool {
    struct Arrays(bool);
    impl Visitor for Arrays {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::AnyOp { right, .. } = expr {
                let right = match right.as_ref() {
                    Expr::Nested(inner) => inner,
                    other => other,
                };
                self.0 |= matches!(right, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            }
            ControlFlow::Continue(())
        }
    }
    let mut arrays = Arrays(false);
    let _ = expr.visit(&mut arrays);
    arrays.0
}

/// Whether a query reads the elements of a column of the query around it.
fn over_array_column(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
        .any(|factor| match factor {
            TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter().any(has_column),
            TableFactor::Table { args: Some(args), .. } => args.args.iter().any(arg_has_column),
            TableFactor::Function { args, .. } => args.iter().any(arg_has_column),
            _ => false,
        })
}

fn arg_has_column(arg: &FunctionArg) -> bool {
    matches!(
        arg,
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. }
            if has_column(expr)
    )
}

fn has_column(expr: &Expr) -> bool {
    struct Columns(bool);
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0 |= matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            ControlFlow::Continue(())
        }
    }
    let mut columns = Columns(false);
    let _ = expr.visit(&mut columns);
    columns.0
}

/// A look-up `(SELECT x FROM pg_… WHERE …)` as one that DataFusion can turn into a join.
fn aggregate_lookup(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if select.from.is_empty() || select.distinct.is_some() || !is_ungrouped(select) || select.projection.len() != 1 {
        return;
    }
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = &mut select.projection[0]
    else {
        return;
    };
    if has_aggregate(value) {
        return;
    }
    *value = call("first_value", [take(value)]);
    query.order_by = None;
    query.limit_clause = None;
}

fn has_aggregate(expr: &Expr) -> bool {
    const AGGREGATES: &[&str] = &[
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "array_agg",
        "string_agg",
        "first_value",
        "bool_or",
        "bool_and",
        "json_agg",
        "jsonb_agg",
        "every",
    ];
    struct Aggregates(bool);
    impl Visitor for Aggregates {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr {
                self.0 |= lower_parts(&function.name).last().is_some_and(|name| AGGREGATES.contains(&name.as_str()));
            }
            ControlFlow::Continue(())
        }
    }
    let mut aggregates = Aggregates(false);
    let _ = expr.visit(&mut aggregates);
    aggregates.0
}

/// Gives result columns that would have the same name names of their own, which DataFusion needs.
fn name_apart(projection: &mut [SelectItem]) {
    let mut seen = HashSet::new();
    for (position, item) in projection.iter_mut().enumerate() {
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            SelectItem::UnnamedExpr(expr) => planned_name(expr),
            _ => continue,
        };
        if !seen.insert(name)
            && let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
        {
            let alias = Ident::with_quote('"', format!("{}#{}", output_name(expr), position + 1));
            *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
        }
    }
}

/// What DataFusion calls a result column of this expression, as far as two are called alike.
fn planned_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => planned_name(inner),
        // All of them have one name.
        Expr::Subquery(_) => "(<subquery>)".to_owned(),
        // Qualified columns are told apart by their tables.
        expr => expr.to_string(),
    }
}

/// What PostgreSQL calls a result column of this expression.
fn output_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, |ident| ident.value.clone()),
        Expr::Function(function) => lower_parts(&function.name).pop().unwrap_or_default(),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => output_name(expr),
        _ => "?column?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        Compatibility::rewrite(&mut statements[0]);
        statements[0].to_string()
    }

    #[test]
    fn ordinary_queries_stay_as_they_are() {
        for sql in [
            "SELECT a, count(*) FROM shop.orders WHERE b = 'x' GROUP BY a",
            "SELECT (SELECT b FROM t WHERE t.id = o.id) FROM o",
            "SELECT a::TEXT FROM t WHERE x = '{1}'",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }

    #[test]
    fn postgresql_spellings_become_plain_ones() {
        for (sql, expected) in [
            ("SELECT pg_catalog.version()", "SELECT version()"),
            (
                "SELECT a FROM t WHERE b OPERATOR(pg_catalog.~) '^x$' COLLATE pg_catalog.default",
                "SELECT a FROM t WHERE b ~ '^x$'",
            ),
            ("SELECT a FROM t WHERE b = ANY('{1,2}')", "SELECT a FROM t WHERE b IN (1, 2)"),
            ("SELECT a FROM t WHERE b = ANY(ARRAY['x'])", "SELECT a FROM t WHERE b IN ('x')"),
            ("SELECT a FROM t WHERE b <> ALL(c)", "SELECT a FROM t WHERE NOT array_has(c, b)"),
            ("SELECT a FROM t WHERE b = ANY('{}')", "SELECT a FROM t WHERE false"),
            ("SELECT 'shop.orders'::regclass::oid", "SELECT regclass_in('shop.orders')::oid"),
            ("SELECT c.oid::pg_catalog.regclass FROM pg_class c", "SELECT regclass_out(c.oid) FROM pg_class c"),
            ("SELECT 1 WHERE c.t::regtype::text = 'x'", "SELECT 1 WHERE regtype_out(c.t)::TEXT = 'x'"),
            ("SELECT ARRAY(SELECT b FROM t ORDER BY 1)", "SELECT (SELECT array_agg(b ORDER BY b) FROM t)"),
            ("SELECT 1, 1", "SELECT 1, 1 AS \"?column?#2\""),
            (
                "SELECT (SELECT max(a) FROM t), (SELECT b FROM u)",
                "SELECT (SELECT max(a) FROM t), (SELECT b FROM u) AS \"?column?#2\"",
            ),
            ("SELECT a, a::INT FROM t", "SELECT a, a::INT AS \"a#2\" FROM t"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }

    #[test]
    fn look_ups_in_the_catalogs_can_be_joined() {
        assert_eq!(
            rewritten("SELECT (SELECT d.description FROM pg_description d WHERE d.objoid = c.oid) FROM pg_class c"),
            "SELECT (SELECT first_value(d.description) FROM pg_description d WHERE d.objoid = c.oid) FROM pg_class c"
        );
        assert_eq!(
            rewritten(
                "SELECT (SELECT d.adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND a.atthasdef) FROM pg_attribute a"
            ),
            "SELECT CAST(NULL AS TEXT) FROM pg_attribute a"
        );
        assert_eq!(
            rewritten("SELECT ARRAY(SELECT 'x' || o FROM unnest(c.reloptions) AS o) FROM pg_class c"),
            "SELECT CAST(NULL AS TEXT[]) FROM pg_class c"
        );
    }
}
