//! Transactions and settings.

use sqlparser::tokenizer::Token;

use crate::error::SqlError;
use crate::sql::cursor::Cursor;
use crate::sql::statement::{Name, SettingValue, Statement};
use crate::sql::tokens::string_value;

pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let Some(first) = cursor.word_at(0) else { return Ok(None) };
    let statement = match first.as_str() {
        "BEGIN" => {
            cursor.advance();
            noise(cursor);
            Statement::Begin { read_write: transaction_modes(cursor)? }
        }
        "START" => {
            cursor.advance();
            cursor.expect(&["TRANSACTION"])?;
            Statement::Begin { read_write: transaction_modes(cursor)? }
        }
        "COMMIT" | "END" => {
            cursor.advance();
            noise(cursor);
            chain(cursor)?;
            Statement::Commit
        }
        "ABORT" | "ROLLBACK" => {
            cursor.advance();
            noise(cursor);
            if first == "ROLLBACK" && cursor.accept(&["TO"]) {
                cursor.accept(&["SAVEPOINT"]);
                Statement::RollbackTo(cursor.name("the name of a savepoint")?.value)
            } else {
                chain(cursor)?;
                Statement::Rollback
            }
        }
        "SAVEPOINT" => {
            cursor.advance();
            Statement::Savepoint(cursor.name("the name of a savepoint")?.value)
        }
        "RELEASE" => {
            cursor.advance();
            cursor.accept(&["SAVEPOINT"]);
            Statement::Release(cursor.name("the name of a savepoint")?.value)
        }
        "SET" => set(cursor)?,
        "RESET" => {
            cursor.advance();
            if cursor.accept(&["ALL"]) { Statement::ResetAll } else { Statement::Reset(setting_name(cursor)?) }
        }
        _ => return Ok(None),
    };
    Ok(Some(statement))
}

fn noise(cursor: &mut Cursor<'_>) {
    let _ = cursor.accept(&["WORK"]) || cursor.accept(&["TRANSACTION"]);
}

fn chain(cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
    if cursor.accept(&["AND", "NO", "CHAIN"]) {
        return Ok(());
    }
    if cursor.is_next("AND") {
        return Err(SqlError::unsupported("AND CHAIN is not supported").at(cursor.position()));
    }
    Ok(())
}

/// All isolation levels are the same here: a transaction sees one checkpoint. Says whether READ WRITE was asked for.
fn transaction_modes(cursor: &mut Cursor<'_>) -> Result<bool, SqlError> {
    let mut read_write = false;
    while !cursor.at_end() {
        if cursor.accept(&["ISOLATION", "LEVEL"]) {
            isolation_level(cursor)?;
        } else if cursor.accept(&["READ", "WRITE"]) {
            read_write = true;
        } else if !(cursor.accept(&["READ", "ONLY"])
            || cursor.accept(&["NOT", "DEFERRABLE"])
            || cursor.accept(&["DEFERRABLE"]))
        {
            return Err(cursor.unexpected("ISOLATION LEVEL, READ ONLY, READ WRITE or the end of the statement"));
        }
        cursor.accept_token(&Token::Comma);
    }
    Ok(read_write)
}

fn isolation_level(cursor: &mut Cursor<'_>) -> Result<&'static str, SqlError> {
    for (words, level) in [
        (&["SERIALIZABLE"][..], "serializable"),
        (&["REPEATABLE", "READ"][..], "repeatable read"),
        (&["READ", "COMMITTED"][..], "read committed"),
        (&["READ", "UNCOMMITTED"][..], "read uncommitted"),
    ] {
        if cursor.accept(words) {
            return Ok(level);
        }
    }
    Err(cursor.unexpected("SERIALIZABLE, REPEATABLE READ, READ COMMITTED or READ UNCOMMITTED"))
}

fn set(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.advance();
    let at = |name: &str, position| Name { value: name.to_owned(), position };
    if cursor.accept(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) || cursor.accept(&["TRANSACTION"]) {
        let position = cursor.position();
        if cursor.accept(&["ISOLATION", "LEVEL"]) {
            let level = isolation_level(cursor)?;
            let name = at("default_transaction_isolation", position);
            return Ok(Statement::Set { name, value: SettingValue::Text(level.to_owned()), local: false });
        }
        let read_write = transaction_modes(cursor)?;
        let value = SettingValue::Text(if read_write { "off" } else { "on" }.to_owned());
        return Ok(Statement::Set { name: at("default_transaction_read_only", position), value, local: false });
    }
    let local = cursor.accept(&["LOCAL"]);
    if !local {
        cursor.accept(&["SESSION"]);
    }
    let position = cursor.position();
    if cursor.accept(&["TIME", "ZONE"]) {
        let value = if cursor.accept(&["LOCAL"]) { SettingValue::Default } else { setting_value(cursor)? };
        return Ok(Statement::Set { name: at("timezone", position), value, local });
    }
    if cursor.accept(&["NAMES"]) {
        let value = setting_value(cursor)?;
        return Ok(Statement::Set { name: at("client_encoding", position), value, local });
    }
    let name = setting_name(cursor)?;
    if !(cursor.accept_token(&Token::Eq) || cursor.accept(&["TO"])) {
        return Err(cursor.unexpected("TO or \"=\""));
    }
    let value = setting_value(cursor)?;
    Ok(Statement::Set { name, value, local })
}

/// `DEFAULT`, or values joined by commas.
fn setting_value(cursor: &mut Cursor<'_>) -> Result<SettingValue, SqlError> {
    if cursor.accept(&["DEFAULT"]) {
        return Ok(SettingValue::Default);
    }
    let mut values = Vec::new();
    loop {
        let value = match cursor.peek().map(|lexeme| &lexeme.token) {
            Some(token) if string_value(token).is_some() => cursor.string("a value")?,
            Some(Token::Word(word)) => {
                cursor.advance();
                word.value.clone()
            }
            Some(Token::DoubleQuotedString(value)) => {
                cursor.advance();
                value.clone()
            }
            _ => cursor
                .run_of("a value", |token| matches!(token, Token::Number(..) | Token::Minus | Token::Plus))?
                .to_owned(),
        };
        values.push(value);
        if !cursor.accept_token(&Token::Comma) {
            return Ok(SettingValue::Text(values.join(", ")));
        }
    }
}

/// A setting's name in lower case, with dots if it has any.
fn setting_name(cursor: &mut Cursor<'_>) -> Result<Name, SqlError> {
    let mut name = cursor.name("the name of a setting")?;
    while cursor.accept_token(&Token::Period) {
        name.value = format!("{}.{}", name.value, cursor.name("the name of a setting")?.value);
    }
    name.value = name.value.to_lowercase();
    Ok(name)
}

/// `SHOW name`, with PostgreSQL's spellings of several words.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.advance();
    let position = cursor.position();
    let named = |name: &str| Statement::ShowSetting(Name { value: name.to_owned(), position });
    if cursor.accept(&["ALL"]) {
        Ok(Statement::ShowAll)
    } else if cursor.accept(&["TIME", "ZONE"]) {
        Ok(named("timezone"))
    } else if cursor.accept(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        Ok(named("transaction_isolation"))
    } else if cursor.accept(&["SESSION", "AUTHORIZATION"]) {
        Ok(named("session_authorization"))
    } else {
        Ok(Statement::ShowSetting(setting_name(cursor)?))
    }
}
