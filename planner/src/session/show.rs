//! `SHOW JOBS` and its like: selections from the system views.

use datafusion::sql::parser::{DFParser, Statement as QueryStatement};
use sqlparser::dialect::PostgreSqlDialect;

use super::ParsedStatement;
use crate::error::SqlError;
use crate::sql;
use crate::sql::statement::{Name, ShowFilter, ShowKind, Statement};

/// A query made from a statement, and where the part that the user wrote stands in both.
#[derive(Debug)]
pub(super) struct ShowQuery {
    pub(super) parsed: ParsedStatement,
    /// Characters before the condition in the query, and its position in what the user sent.
    condition: Option<(usize, usize)>,
}

impl ShowQuery {
    pub(super) fn statement(&self) -> Result<&QueryStatement, SqlError> {
        match &self.parsed.statement {
            Statement::Query(statement) => Ok(statement),
            _ => Err(SqlError::internal("SHOW was not made a query")),
        }
    }

    /// Moves the position of an error from the query to what the user sent.
    pub(super) fn locate<T>(&self, result: Result<T, SqlError>) -> Result<T, SqlError> {
        result.map_err(|error| locate(error, self.condition))
    }
}

fn locate(mut error: SqlError, condition: Option<(usize, usize)>) -> SqlError {
    error.position = match (error.position, condition) {
        (Some(position), Some((before, written))) => position.checked_sub(before + 1).map(|offset| written + offset),
        _ => None,
    };
    error
}

pub(super) fn query(kind: ShowKind, from: Option<&Name>, filter: Option<&ShowFilter>) -> Result<ShowQuery, SqlError> {
    let (columns, view, name, source, order) = match kind {
        ShowKind::Secrets => ("name, backend, used_by, created_at", "secrets", "name", None, "name"),
        ShowKind::Connections => {
            ("name, type, hostname, port, username, used_by, created_at", "connections", "name", None, "name")
        }
        ShowKind::Sources => (
            "name, connector, hostname, port, table_count, paused, created_at",
            "sources",
            "name",
            Some("name"),
            "name",
        ),
        ShowKind::Jobs => (
            "name, state, table_count, round(snapshot_progress * 100) AS snapshot_percent, snapshot_eta_at, lag_ms, \
             last_checkpoint, last_checkpoint_at, error, hint",
            "jobs",
            "name",
            Some("name"),
            "name",
        ),
        ShowKind::Tables => (
            "schema_name, table_name, source, queryable, row_count, size_bytes, primary_key",
            "tables",
            "table_name",
            Some("source"),
            "schema_name, table_name",
        ),
        ShowKind::Checkpoints => (
            "source, checkpoint, committed_at, table_count, coalesce(gtid_set, binlog_file || ':' || binlog_offset::text) AS position",
            "checkpoints",
            "source",
            Some("source"),
            "source, checkpoint DESC",
        ),
    };
    let mut conditions = Vec::new();
    if let Some(from) = from {
        let Some(source) = source else {
            return Err(SqlError::syntax("FROM is not a part of this SHOW").at(from.position));
        };
        conditions.push(format!("{source} = {}", quoted(&from.value)));
    }
    if let Some(ShowFilter::Like(pattern)) = filter {
        conditions.push(format!("{name} LIKE {}", quoted(pattern)));
    }
    let mut text = format!("SELECT {columns} FROM sys.{view}");
    if !conditions.is_empty() {
        text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    let mut condition = None;
    if let Some(ShowFilter::Where(written, position)) = filter {
        text.push_str(if conditions.is_empty() { " WHERE (" } else { " AND (" });
        condition = Some((text.chars().count(), *position));
        // A comment at the end of the condition ends with the line.
        text.push_str(&format!("{written}\n)"));
    }
    text.push_str(&format!(" ORDER BY {order}"));
    let parsed = sql::parse(&text).map_err(|error| locate(error, condition))?;
    if let Some(ShowFilter::Where(written, position)) = filter
        && DFParser::parse_sql_into_expr_with_dialect(written, &PostgreSqlDialect {}).is_err()
    {
        return Err(SqlError::syntax("the condition of SHOW is not one expression").at(*position));
    }
    let one = <[ParsedStatement; 1]>::try_from(parsed).ok().map(|[parsed]| parsed);
    match one {
        Some(parsed) if matches!(parsed.statement, Statement::Query(_)) => Ok(ShowQuery { parsed, condition }),
        _ => Err(SqlError::syntax("the condition of SHOW is not one expression")),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_their_place() {
        let written = ShowFilter::Where("name = 'a' AND bogus(".to_owned(), 17);
        let error = query(ShowKind::Jobs, None, Some(&written)).unwrap_err();
        assert_eq!(error.sqlstate, "42601");
        // What is wrong stands behind the condition, in the query's own part.
        assert!(error.position.is_none_or(|position| position >= 17));
        let error = query(ShowKind::Jobs, None, Some(&ShowFilter::Where("name = = 2".to_owned(), 17))).unwrap_err();
        assert_eq!(error.position, Some(24));
    }

    #[test]
    fn a_condition_cannot_leave_its_place() {
        for condition in ["true) UNION SELECT 1 -- ", "true); DROP SOURCE shop; SELECT (1"] {
            query(ShowKind::Jobs, None, Some(&ShowFilter::Where(condition.to_owned(), 17))).unwrap_err();
        }
    }

    #[test]
    fn each_kind_is_a_query() {
        let from = Name { value: "it's".to_owned(), position: 11 };
        for kind in [ShowKind::Sources, ShowKind::Jobs, ShowKind::Tables, ShowKind::Checkpoints] {
            query(kind, Some(&from), Some(&ShowFilter::Like("a'%".to_owned()))).unwrap();
        }
        for kind in [ShowKind::Secrets, ShowKind::Connections] {
            query(kind, None, Some(&ShowFilter::Like("a%".to_owned()))).unwrap();
            assert_eq!(query(kind, Some(&from), None).unwrap_err().position, Some(11));
        }
    }
}
