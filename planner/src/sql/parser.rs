//! Statements from tokens. What is not ours goes to DataFusion's parser, in the PostgreSQL dialect.

mod capture;
mod query;
mod settings;

use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::statement::{DiscardKind, ExplainFormat, Name, ShowFilter, ShowKind, Statement, WaitTarget};
use super::tokens::{Lexeme, Positions, tokenize};
use crate::error::SqlError;

/// A statement, its own text, and how many characters stand before that text in what was sent.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub statement: Statement,
    pub text: String,
    pub offset: usize,
}

/// Splits a text at its semicolons and parses each statement; empty ones are left out. One error refuses the whole text, as in PostgreSQL.
pub fn parse(text: &str) -> Result<Vec<Parsed>, SqlError> {
    let positions = Positions::new(text);
    let lexemes = tokenize(&positions)?;
    let mut statements = Vec::new();
    for tokens in lexemes.split(|lexeme| lexeme.token == Token::SemiColon) {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { continue };
        statements.push(Parsed {
            statement: statement(&positions, tokens)?,
            text: positions.slice(first.start, last.end).to_owned(),
            offset: first.start,
        });
    }
    Ok(statements)
}

fn statement(positions: &Positions<'_>, tokens: &[Lexeme]) -> Result<Statement, SqlError> {
    let mut cursor = Cursor::new(positions, tokens);
    if let Some(statement) = own_statement(&mut cursor)? {
        cursor.expect_end()?;
        return Ok(statement);
    }
    query::parse(positions, tokens)
}

/// A statement of this program's own grammar, or `None` with the cursor anywhere.
fn own_statement(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let Some(first) = cursor.word_at(0) else { return Ok(None) };
    let second = cursor.word_at(1);
    let second = second.as_deref().unwrap_or_default();
    let statement = match (first.as_str(), second) {
        ("CREATE", "SECRET") => capture::create_secret(cursor)?,
        ("CREATE", "CONNECTION") => capture::create_connection(cursor)?,
        ("CREATE", "SOURCE") => {
            cursor.accept(&["CREATE", "SOURCE"]);
            Statement::CreateSource(capture::create_source(cursor)?)
        }
        ("DROP", "SOURCE" | "CONNECTION" | "SECRET") => capture::drop_object(cursor)?,
        ("CREATE" | "DROP" | "ALTER" | "PAUSE" | "RESUME" | "SHOW", "SINK" | "SINKS" | "PIPELINE")
        | ("ALTER", "SOURCE" | "CONNECTION" | "SECRET")
        | ("VERIFY", "TABLE") => return Err(not_yet(cursor, &format!("{first} {second}"))),
        ("SHOW", _) => show(cursor)?,
        ("PAUSE" | "RESUME", _) => pause_or_resume(cursor)?,
        ("RESYNC", _) => {
            cursor.advance();
            cursor.expect(&["SOURCE"])?;
            let source = cursor.name("the name of a source")?;
            let table = if cursor.accept(&["TABLE"]) { Some(table_name(cursor)?) } else { None };
            Statement::Resync { source, table }
        }
        ("CHECKPOINT", _) => {
            cursor.accept(&["CHECKPOINT"]);
            let source = if cursor.accept(&["SOURCE"]) { Some(cursor.name("the name of a source")?) } else { None };
            Statement::Checkpoint(source)
        }
        ("VERIFY", "STORAGE") => {
            cursor.accept(&["VERIFY", "STORAGE"]);
            let of_one = cursor.accept(&["FOR", "SOURCE"]);
            Statement::VerifyStorage(if of_one { Some(cursor.name("the name of a source")?) } else { None })
        }
        ("COMPACT", "TABLE") => {
            cursor.accept(&["COMPACT", "TABLE"]);
            let (schema, table) = table_name(cursor)?;
            Statement::CompactTable { schema, table }
        }
        ("WAIT", _) => wait(cursor)?,
        ("EXPLAIN", _) => match explain_source(cursor)? {
            Some(statement) => statement,
            None => return Ok(None),
        },
        ("DISCARD", _) => discard(cursor)?,
        ("DEALLOCATE", _) => {
            cursor.accept(&["DEALLOCATE"]);
            cursor.accept(&["PREPARE"]);
            let all = cursor.accept(&["ALL"]);
            Statement::Deallocate(if all { None } else { Some(cursor.name("the name of a prepared statement")?.value) })
        }
        ("UNLISTEN", _) => {
            cursor.accept(&["UNLISTEN"]);
            if !cursor.accept_token(&Token::Mul) {
                cursor.name("a channel")?;
            }
            Statement::Unlisten
        }
        (
            "PREPARE" | "EXECUTE" | "DECLARE" | "FETCH" | "CLOSE" | "COPY" | "LISTEN" | "NOTIFY" | "LOCK" | "VACUUM",
            _,
        ) => {
            return Err(not_yet(cursor, &first));
        }
        _ => return settings::parse(cursor),
    };
    Ok(Some(statement))
}

/// `schema.table`, or a table alone.
fn table_name(cursor: &mut Cursor<'_>) -> Result<(Option<Name>, Name), SqlError> {
    let first = cursor.name("the name of a table")?;
    if cursor.accept_token(&Token::Period) {
        return Ok((Some(first), cursor.name("the name of a table")?));
    }
    Ok((None, first))
}

fn not_yet(cursor: &Cursor<'_>, what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported yet")).at(cursor.position())
}

fn show(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if cursor.word_at(1).as_deref() == Some("CREATE") {
        return capture::show_create(cursor);
    }
    let kind = match cursor.word_at(1).as_deref() {
        Some("SECRETS") => ShowKind::Secrets,
        Some("CONNECTIONS") => ShowKind::Connections,
        Some("SOURCES") => ShowKind::Sources,
        Some("JOBS") => ShowKind::Jobs,
        Some("TABLES") => ShowKind::Tables,
        Some("CHECKPOINTS") => ShowKind::Checkpoints,
        _ => return settings::show(cursor),
    };
    cursor.advance();
    cursor.advance();
    let from = if cursor.accept(&["FROM"]) { Some(cursor.name("the name of a source")?) } else { None };
    let filter = if cursor.accept(&["LIKE"]) {
        Some(ShowFilter::Like(cursor.string("a pattern such as 'shop%'")?))
    } else if cursor.accept(&["WHERE"]) {
        let position = cursor.position();
        let first = cursor.peek().ok_or_else(|| cursor.unexpected("a condition"))?;
        let mut end = first.end;
        while let Some(lexeme) = cursor.advance() {
            end = lexeme.end;
        }
        Some(ShowFilter::Where(cursor.positions.slice(first.start, end).to_owned(), position))
    } else {
        None
    };
    if !cursor.at_end() {
        return Err(cursor.unexpected("FROM, LIKE, WHERE or the end of the statement"));
    }
    Ok(Statement::Show { kind, from, filter })
}

fn pause_or_resume(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let pause = cursor.is_next("PAUSE");
    cursor.advance();
    cursor.expect(&["SOURCE"])?;
    let name = cursor.name("the name of a source")?;
    if cursor.is_next("TABLE") {
        return Err(not_yet(cursor, "pausing a single table"));
    }
    Ok(if pause { Statement::Pause(name) } else { Statement::Resume(name) })
}

fn wait(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.advance();
    cursor.expect(&["FOR"])?;
    if cursor.is_next("SINK") {
        return Err(not_yet(cursor, "WAIT FOR SINK"));
    }
    cursor.expect(&["SOURCE"])?;
    let source = cursor.name("the name of a source")?;
    let target = if cursor.accept(&["SNAPSHOT"]) {
        WaitTarget::Snapshot
    } else if cursor.accept(&["GTID"]) {
        let position = cursor.position();
        WaitTarget::Gtid(cursor.string("a GTID set in quotes")?, position)
    } else if cursor.accept(&["CHECKPOINT"]) {
        WaitTarget::Checkpoint(cursor.number("the number of a checkpoint")?)
    } else {
        let named = cursor.accept(&["CURRENT"]);
        if !named && !cursor.at_end() && !cursor.is_next("TIMEOUT") {
            return Err(cursor.unexpected("SNAPSHOT, CURRENT, GTID, CHECKPOINT or TIMEOUT"));
        }
        WaitTarget::Current
    };
    let timeout = if cursor.accept(&["TIMEOUT"]) { Some(cursor.interval()?) } else { None };
    Ok(Statement::Wait { source, target, timeout })
}

/// `EXPLAIN [(FORMAT text | json)] CREATE SOURCE …`; `None` if something else is to be explained.
fn explain_source(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    cursor.advance();
    let mut format = ExplainFormat::Text;
    if cursor.peek().is_some_and(|lexeme| lexeme.token == Token::LParen) {
        let close = (0..).map_while(|ahead| cursor.peek_at(ahead)).position(|lexeme| lexeme.token == Token::RParen);
        let is_source = close.is_some_and(|close| {
            cursor.word_at(close + 1).as_deref() == Some("CREATE")
                && cursor.word_at(close + 2).as_deref() == Some("SOURCE")
        });
        if !is_source {
            return Ok(None);
        }
        cursor.advance();
        cursor.expect(&["FORMAT"])?;
        format = if cursor.accept(&["TEXT"]) {
            ExplainFormat::Text
        } else if cursor.accept(&["JSON"]) {
            ExplainFormat::Json
        } else {
            return Err(cursor.unexpected("TEXT or JSON"));
        };
        cursor.expect_token(&Token::RParen)?;
    }
    if !cursor.accept(&["CREATE", "SOURCE"]) {
        return Ok(None);
    }
    let source = capture::create_source(cursor)?;
    Ok(Some(Statement::ExplainSource { format, source }))
}

fn discard(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.advance();
    let kind = if cursor.accept(&["ALL"]) {
        DiscardKind::All
    } else if cursor.accept(&["PLANS"]) {
        DiscardKind::Plans
    } else if cursor.accept(&["SEQUENCES"]) {
        DiscardKind::Sequences
    } else if cursor.accept(&["TEMP"]) || cursor.accept(&["TEMPORARY"]) {
        DiscardKind::Temporary
    } else {
        return Err(cursor.unexpected("ALL, PLANS, SEQUENCES or TEMP"));
    };
    Ok(Statement::Discard(kind))
}

#[cfg(test)]
mod tests;
