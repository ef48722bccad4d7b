//! Statements for DataFusion, and the refusal of those that would write.

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParserBuilder, Statement as QueryStatement};
use sqlparser::ast::{self, Statement as SqlStatement, TableFactor, Visit, Visitor};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Token};

use crate::error::SqlError;
use crate::sql::statement::Statement;
use crate::sql::tokens::{Lexeme, Positions, is_word};

pub(super) fn parse(positions: &Positions<'_>, tokens: &[Lexeme]) -> Result<Statement, SqlError> {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return Err(SqlError::syntax("syntax error at end of input"));
    };
    refuse_versions(tokens)?;
    let text = positions.slice(first.start, last.end);
    let mut statements = DFParserBuilder::new(text)
        .with_dialect(&PostgreSqlDialect {})
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| syntax_error(&error, positions, tokens, text))?;
    let statement = match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => statement,
        _ => return Err(SqlError::syntax("syntax error").at(first.start + 1)),
    };
    if let Some(command) = writing_command(&statement) {
        return Ok(Statement::ReadOnly(command));
    }
    if let QueryStatement::Statement(statement) = &statement {
        refuse_table_versions(statement).map_err(|error| error.at(first.start + 1))?;
    }
    Ok(Statement::Query(Box::new(statement)))
}

/// `FOR SYSTEM_TIME …` and `VERSION AS OF …`: an error, wherever they stand, since a clause that is read over would answer with the wrong rows.
fn refuse_versions(tokens: &[Lexeme]) -> Result<(), SqlError> {
    for (index, lexeme) in tokens.iter().enumerate() {
        let next = |ahead: usize, word| tokens.get(index + ahead).is_some_and(|lexeme| is_word(&lexeme.token, word));
        let versioned = (next(0, "FOR") && (next(1, "SYSTEM_TIME") || next(1, "SYSTEM_VERSION") || next(1, "VERSION")))
            || ((next(0, "VERSION") || next(0, "TIMESTAMP") || next(0, "SYSTEM_TIME"))
                && next(1, "AS")
                && next(2, "OF"));
        if versioned {
            return Err(time_travel().at(lexeme.start + 1));
        }
    }
    Ok(())
}

fn time_travel() -> SqlError {
    SqlError::unsupported("reading a table as of an earlier time or version is not supported yet")
        .with_hint("BEGIN … COMMIT keeps one checkpoint for several statements.")
}

/// Whatever spelling the parser took for a version of a table.
fn refuse_table_versions(statement: &SqlStatement) -> Result<(), SqlError> {
    struct Versions;
    impl Visitor for Versions {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> std::ops::ControlFlow<()> {
            match factor {
                TableFactor::Table { version: Some(_), .. } => std::ops::ControlFlow::Break(()),
                _ => std::ops::ControlFlow::Continue(()),
            }
        }
    }
    if statement.visit(&mut Versions).is_break() { Err(time_travel()) } else { Ok(()) }
}

/// The command's name, if the statement is not one that only reads.
fn writing_command(statement: &QueryStatement) -> Option<String> {
    match statement {
        QueryStatement::Statement(statement) => match statement.as_ref() {
            SqlStatement::Query(query) => query_writes(query),
            SqlStatement::Explain { statement, .. } => match statement.as_ref() {
                SqlStatement::Query(_) => None,
                other => Some(command_of(other)),
            },
            SqlStatement::ExplainTable { .. }
            | SqlStatement::ShowColumns { .. }
            | SqlStatement::ShowFunctions { .. } => None,
            other => Some(command_of(other)),
        },
        QueryStatement::Explain(explain) => writing_command(&explain.statement),
        QueryStatement::CreateExternalTable(_) => Some("CREATE EXTERNAL TABLE".to_owned()),
        QueryStatement::CopyTo(_) => Some("COPY".to_owned()),
        QueryStatement::Reset(_) => Some("RESET".to_owned()),
    }
}

fn query_writes(query: &ast::Query) -> Option<String> {
    match query.body.as_ref() {
        ast::SetExpr::Insert(_) => Some("INSERT".to_owned()),
        ast::SetExpr::Update(_) => Some("UPDATE".to_owned()),
        ast::SetExpr::Delete(_) => Some("DELETE".to_owned()),
        ast::SetExpr::Select(select) if select.into.is_some() => Some("SELECT INTO".to_owned()),
        _ => None,
    }
}

/// The first words of a statement, up to the first name: `CREATE TABLE`, `INSERT`.
fn command_of(statement: &SqlStatement) -> String {
    let text = statement.to_string();
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default().to_uppercase();
    match first.as_str() {
        "CREATE" | "DROP" | "ALTER" | "TRUNCATE" => {
            let second = words.find(|word| {
                !["OR", "REPLACE", "TEMPORARY", "TEMP", "UNIQUE", "IF", "MATERIALIZED"]
                    .contains(&word.to_uppercase().as_str())
            });
            match second {
                Some(second) => format!("{first} {}", second.to_uppercase()),
                None => first,
            }
        }
        _ => first,
    }
}

/// sqlparser's error as PostgreSQL would say it. Its text ends in `at Line: 1, Column: 8`.
fn syntax_error(error: &DataFusionError, positions: &Positions<'_>, tokens: &[Lexeme], text: &str) -> SqlError {
    let start = tokens.first().map_or(0, |lexeme| lexeme.start);
    let end = tokens.last().map_or(0, |lexeme| lexeme.end);
    let parser_error = match error.find_root() {
        DataFusionError::SQL(parser_error, _) => parser_error.as_ref().clone(),
        other => return SqlError::syntax(other.strip_backtrace()).at(start + 1),
    };
    let message = match parser_error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(crate::error::sqlstate::PROGRAM_LIMIT_EXCEEDED, "the statement is nested too deeply")
                .at(start + 1);
        }
    };
    let (reason, location) = split_location(&message);
    let own = Positions::new(text);
    let at = location.and_then(|location| own.character(location)).map_or(end, |character| start + character);
    // A word the parser only rejects once it has read on is best shown where reading on stopped making sense.
    let near = tokens.iter().find(|lexeme| lexeme.start >= at && lexeme.token != Token::EOF);
    let error = match near {
        Some(lexeme) => {
            let token = positions.slice(lexeme.start, lexeme.end);
            SqlError::syntax(format!("syntax error at or near \"{token}\"")).at(lexeme.start + 1)
        }
        None => SqlError::syntax("syntax error at end of input").at(end + 1),
    };
    match reason.strip_prefix("Expected: ").and_then(|reason| reason.split(", found:").next()) {
        Some(expected) => error.with_detail(format!("Expected {expected}.")),
        None => error.with_detail(format!("{reason}.")),
    }
}

fn split_location(message: &str) -> (&str, Option<Location>) {
    let Some((reason, location)) = message.rsplit_once(" at Line: ") else { return (message, None) };
    let location = location.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
    });
    (reason, location)
}
