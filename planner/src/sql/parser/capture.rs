//! Statements about secrets, connections and sources.

use sqlparser::tokenizer::Token;

use crate::error::SqlError;
use crate::sql::cursor::Cursor;
use crate::sql::statement::{
    CreateConnection, CreateSecret, CreateSource, DroppedData, Name, ObjectKind, OptionSetting, OptionValue,
    SecretValue, Selection, Statement, TableRule,
};
use crate::sql::tokens::{identifier, string_value};

fn if_not_exists(cursor: &mut Cursor<'_>) -> bool {
    cursor.accept(&["IF", "NOT", "EXISTS"])
}

pub(super) fn create_secret(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["CREATE", "SECRET"])?;
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.name("the name of the secret")?;
    let value = if cursor.accept(&["AS"]) {
        SecretValue::Literal(cursor.string("the secret's text in quotes")?)
    } else if cursor.is_next("WITH") {
        let position = cursor.position();
        secret_backend(&with_options(cursor)?, position)?
    } else {
        return Err(cursor.unexpected("AS or WITH"));
    };
    Ok(Statement::CreateSecret(CreateSecret { name, if_not_exists, value }))
}

/// `WITH (backend = 'env', name = 'SHOP_PASSWORD')` or `WITH (backend = 'file', path = '…')`.
fn secret_backend(options: &[OptionSetting], position: usize) -> Result<SecretValue, SqlError> {
    let hint =
        "Write WITH (backend = 'env', name = 'SHOP_PASSWORD') or WITH (backend = 'file', path = '/run/secrets/shop').";
    let mut backend = None;
    let mut place = None;
    for option in options {
        let OptionValue::Text(text) = &option.value else {
            return Err(SqlError::syntax("a secret cannot be made of another secret").at(option.value_position));
        };
        match option.name.to_lowercase().as_str() {
            "backend" => backend = Some(text.to_lowercase()),
            "name" | "path" => place = Some(text.clone()),
            other => {
                return Err(SqlError::syntax(format!("unknown option \"{other}\" of a secret"))
                    .with_hint(hint)
                    .at(option.name_position));
            }
        }
    }
    match (backend.as_deref(), place) {
        (Some("env"), Some(name)) => Ok(SecretValue::Environment(name)),
        (Some("file"), Some(path)) => Ok(SecretValue::File(path)),
        _ => Err(SqlError::syntax("a secret needs its backend and where it is there").with_hint(hint).at(position)),
    }
}

pub(super) fn create_connection(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["CREATE", "CONNECTION"])?;
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.name("the name of the connection")?;
    let options = if cursor.accept(&["TO"]) {
        cursor.expect(&["MYSQL"])?;
        cursor.list(option)?
    } else if cursor.is_next("WITH") {
        let position = cursor.position();
        let mut options = with_options(cursor)?;
        let kind = options.iter().position(|option| option.name.eq_ignore_ascii_case("type"));
        let Some(kind) = kind.map(|kind| options.remove(kind)) else {
            return Err(SqlError::syntax("a connection needs its type").with_hint("Add type = 'mysql'.").at(position));
        };
        if !matches!(&kind.value, OptionValue::Text(text) if text.eq_ignore_ascii_case("mysql")) {
            return Err(SqlError::unsupported("the only type of connection is 'mysql'").at(kind.value_position));
        }
        options
    } else {
        return Err(cursor.unexpected("TO MYSQL or WITH"));
    };
    Ok(Statement::CreateConnection(CreateConnection { name, if_not_exists, options }))
}

/// What follows `CREATE SOURCE`.
pub(super) fn create_source(cursor: &mut Cursor<'_>) -> Result<CreateSource, SqlError> {
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.name("the name of the source")?;
    let mut source = CreateSource {
        name,
        if_not_exists,
        connection: None,
        selection: Selection::Options,
        rules: Vec::new(),
        options: Vec::new(),
    };
    if cursor.accept(&["FROM"]) {
        cursor.expect(&["MYSQL", "CONNECTION"])?;
        source.connection = Some(cursor.name("the name of a connection")?);
        source.selection = selection(cursor)?;
    } else if !cursor.is_next("WITH") {
        return Err(cursor.unexpected("FROM MYSQL CONNECTION or WITH"));
    }
    while !cursor.at_end() {
        if cursor.is_next("WITH") {
            source.options.extend(with_options(cursor)?);
        } else if cursor.is_next("TABLES") && source.rules.is_empty() {
            cursor.advance();
            source.rules = cursor.list(table_rule)?;
        } else {
            return Err(cursor.unexpected("TABLES, WITH or the end of the statement"));
        }
    }
    Ok(source)
}

fn selection(cursor: &mut Cursor<'_>) -> Result<Selection, SqlError> {
    if !cursor.accept(&["FOR"]) {
        return Ok(Selection::Options);
    }
    if cursor.accept(&["ALL", "TABLES"]) {
        Ok(Selection::AllTables)
    } else if cursor.accept(&["SCHEMAS"]) {
        Ok(Selection::Schemas(cursor.list(written_name)?))
    } else if cursor.accept(&["TABLES"]) {
        Ok(Selection::Tables(cursor.list(|cursor| {
            let pattern = pattern(cursor)?;
            let target = if cursor.accept(&["AS"]) { Some(target(cursor, &pattern)?) } else { None };
            Ok(TableRule { pattern, target, key: None })
        })?))
    } else {
        Err(cursor.unexpected("ALL TABLES, SCHEMAS or TABLES"))
    }
}

/// `pattern [INTO target] [KEY (column, …)]`; the other parts of the grammar are refused by name.
fn table_rule(cursor: &mut Cursor<'_>) -> Result<TableRule, SqlError> {
    let mut rule = TableRule { pattern: pattern(cursor)?, target: None, key: None };
    loop {
        if rule.target.is_none() && cursor.accept(&["INTO"]) {
            rule.target = Some(target(cursor, &rule.pattern)?);
        } else if rule.key.is_none() && cursor.accept(&["KEY"]) {
            rule.key = Some(cursor.list(written_name)?);
        } else {
            break;
        }
    }
    for (word, what) in [
        ("SELECT", "a projection of a captured table (SELECT)"),
        ("WHERE", "a filter on a captured table (WHERE)"),
        ("ON", "ON DELETE"),
        ("WITH", "an option of a single table (WITH)"),
    ] {
        if cursor.is_next(word) {
            return Err(SqlError::unsupported(format!("{what} is not supported yet"))
                .with_hint("Capture the table whole, and select from the mirrored table.")
                .at(cursor.position()));
        }
    }
    Ok(rule)
}

/// MySQL's names keep their case.
fn written_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let position = cursor.position();
    let value = match cursor.peek().map(|lexeme| &lexeme.token) {
        Some(Token::Word(word)) => Some(word.value.clone()),
        Some(token) => string_value(token).map(str::to_owned),
        None => None,
    };
    match value {
        Some(value) if !value.is_empty() => {
            cursor.advance();
            Ok(value)
        }
        Some(_) => Err(SqlError::syntax("a name cannot be empty").at(position)),
        None => Err(cursor.unexpected("a name")),
    }
}

/// A string, or `db.table` with `*` where anything may stand, as written.
fn pattern(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let position = cursor.position();
    if cursor.peek().is_some_and(|lexeme| string_value(&lexeme.token).is_some()) {
        let pattern = cursor.string("a pattern")?;
        return if pattern.trim().is_empty() {
            Err(SqlError::syntax("a table pattern cannot be empty").at(position))
        } else {
            Ok(pattern)
        };
    }
    let first = cursor.peek().ok_or_else(|| cursor.unexpected("a table pattern"))?;
    let mut end = first.start;
    let mut text = String::new();
    while let Some(lexeme) = cursor.peek().filter(|lexeme| lexeme.start == end) {
        match &lexeme.token {
            Token::Word(word) => text.push_str(&word.value),
            Token::Number(digits, _) => text.push_str(digits),
            Token::Period => text.push('.'),
            Token::Mul => text.push('*'),
            _ => break,
        }
        end = lexeme.end;
        cursor.advance();
    }
    if text.is_empty() {
        return Err(cursor.unexpected("a table pattern such as shop.orders, shop.* or 'shop.order_\\.*'"));
    }
    if !text.contains('.') {
        return Err(SqlError::syntax(format!("table pattern \"{text}\" names no database"))
            .with_hint(format!("Write database.table, or database.* for all tables: {text}.*"))
            .at(position));
    }
    Ok(text)
}

/// `table` (in the schema of the pattern's database) or `schema.table`.
fn target(cursor: &mut Cursor<'_>, pattern: &str) -> Result<(String, String), SqlError> {
    let first = cursor.name("the name of a table")?;
    if cursor.accept_token(&Token::Period) {
        let table = cursor.name("the name of a table")?;
        return Ok((first.value, table.value));
    }
    match pattern.split_once('.') {
        Some((database, _)) if database.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '$') => {
            Ok((database.to_owned(), first.value))
        }
        _ => Err(SqlError::syntax(format!(
            "target \"{}\" needs a schema: the pattern can match many databases",
            first.value
        ))
        .with_hint(format!("Write schema.{}.", first.value))
        .at(first.position)),
    }
}

fn with_options(cursor: &mut Cursor<'_>) -> Result<Vec<OptionSetting>, SqlError> {
    cursor.expect(&["WITH"])?;
    cursor.list(option)
}

/// `name = value`. A name may have dots and dashes in it, quoted or not.
fn option(cursor: &mut Cursor<'_>) -> Result<OptionSetting, SqlError> {
    let name_position = cursor.position();
    let name = match cursor.peek().map(|lexeme| &lexeme.token) {
        Some(token) if string_value(token).is_some() => cursor.string("an option")?,
        Some(Token::Word(word)) if word.quote_style.is_some() => {
            cursor.advance();
            word.value.clone()
        }
        Some(Token::Word(_)) => cursor
            .run_of("an option", |token| {
                matches!(token, Token::Word(_) | Token::Number(..) | Token::Period | Token::Minus)
            })?
            .to_owned(),
        _ => return Err(cursor.unexpected("the name of an option")),
    };
    if !cursor.accept_token(&Token::Eq) {
        return Err(cursor.unexpected("\"=\""));
    }
    let value_position = cursor.position();
    let next_is_name = cursor.peek_at(1).is_some_and(|lexeme| {
        !matches!(lexeme.token, Token::Comma | Token::RParen) && identifier(&lexeme.token).is_some()
    });
    let value = if cursor.is_next("SECRET") && next_is_name {
        cursor.advance();
        OptionValue::Secret(cursor.name("the name of a secret")?.value)
    } else if cursor.peek().is_some_and(|lexeme| string_value(&lexeme.token).is_some()) {
        OptionValue::Text(cursor.string("a value")?)
    } else {
        let written = cursor.run_of("a value: text in quotes, a number, true, false or SECRET name", |token| {
            matches!(token, Token::Word(_) | Token::Number(..) | Token::Minus | Token::Period)
        })?;
        OptionValue::Text(written.to_owned())
    };
    if !cursor.peek().is_some_and(|lexeme| matches!(lexeme.token, Token::Comma | Token::RParen)) {
        return Err(cursor.unexpected("\",\" or \")\""));
    }
    Ok(OptionSetting { name, name_position, value, value_position })
}

fn object_kind(cursor: &mut Cursor<'_>) -> Result<ObjectKind, SqlError> {
    if cursor.accept(&["SOURCE"]) {
        Ok(ObjectKind::Source)
    } else if cursor.accept(&["CONNECTION"]) {
        Ok(ObjectKind::Connection)
    } else if cursor.accept(&["SECRET"]) {
        Ok(ObjectKind::Secret)
    } else {
        Err(cursor.unexpected("SOURCE, CONNECTION or SECRET"))
    }
}

fn named_object(cursor: &mut Cursor<'_>, kind: ObjectKind) -> Result<Name, SqlError> {
    cursor.name(&format!("the name of a {}", kind.noun()))
}

pub(super) fn drop_object(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["DROP"])?;
    let kind = object_kind(cursor)?;
    let if_exists = cursor.accept(&["IF", "EXISTS"]);
    let name = named_object(cursor, kind)?;
    let mut data = DroppedData::Keep;
    if kind == ObjectKind::Source {
        if cursor.accept(&["PURGE", "DATA"]) {
            data = DroppedData::Purge;
        } else {
            cursor.accept(&["KEEP", "DATA"]);
        }
    }
    if cursor.is_next("CASCADE") {
        return Err(SqlError::unsupported("DROP … CASCADE is not supported yet").at(cursor.position()));
    }
    cursor.accept(&["RESTRICT"]);
    Ok(Statement::Drop { kind, name, if_exists, data })
}

pub(super) fn show_create(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["SHOW", "CREATE"])?;
    let kind = match cursor.word_at(0).as_deref() {
        Some("SINK" | "TABLE" | "SECRET") | None => return Err(cursor.unexpected("SOURCE or CONNECTION")),
        Some(_) => object_kind(cursor)?,
    };
    let name = named_object(cursor, kind)?;
    Ok(Statement::ShowCreate { kind, name })
}
