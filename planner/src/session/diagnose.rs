//! DataFusion's errors as PostgreSQL would say them: SQLSTATE, message, hint, and the place in the text.

use arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use sqlparser::tokenizer::Location;

use crate::error::{SqlError, sqlstate};
use crate::sql::Positions;
use crate::table::FileError;

/// `offset` is the number of characters that stand before `text` in what was sent.
pub(super) fn diagnose(error: &DataFusionError, text: &str, offset: usize) -> SqlError {
    let mut diagnosed = SqlError::from_datafusion(error);
    if diagnosed.position.is_none() {
        let character = position_by_span(error, text).or_else(|| position_by_name(&diagnosed, text));
        diagnosed.position = character.map(|character| offset + character + 1);
    }
    diagnosed
}

/// The character (from 0) that a diagnostic of the planner points at.
fn position_by_span(error: &DataFusionError, text: &str) -> Option<usize> {
    let span = error.diagnostic()?.span?;
    Positions::new(text).character(Location { line: span.start.line, column: span.start.column })
}

/// The first place where the name that the message quotes stands as a word.
fn position_by_name(error: &SqlError, text: &str) -> Option<usize> {
    let named = [
        sqlstate::UNDEFINED_TABLE,
        sqlstate::UNDEFINED_COLUMN,
        sqlstate::UNDEFINED_FUNCTION,
        sqlstate::AMBIGUOUS_COLUMN,
        sqlstate::INVALID_SCHEMA_NAME,
    ];
    if !named.contains(&error.sqlstate) {
        return None;
    }
    let message = &error.message;
    let name = match message.split('"').nth(1) {
        Some(quoted) => quoted,
        None => message.split_whitespace().find(|word| word.contains('('))?.split('(').next()?,
    };
    let last = name.rsplit('.').next()?;
    [name, last].into_iter().find_map(|name| crate::sql::find_word(text, name))
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        Self::from_datafusion(&error)
    }
}

impl SqlError {
    /// An error of planning or running a query, without a position unless it had one.
    pub fn from_datafusion(error: &DataFusionError) -> Self {
        if let Some(file) = FileError::find(error) {
            return unreadable(file);
        }
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Self::from_datafusion(inner),
            DataFusionError::Shared(inner) => Self::from_datafusion(inner),
            DataFusionError::Collection(errors) => {
                errors.first().map_or_else(|| Self::internal("an error without a description"), Self::from_datafusion)
            }
            DataFusionError::External(inner) => external(inner.as_ref()),
            DataFusionError::ArrowError(inner, _) => arrow(inner),
            DataFusionError::SchemaError(inner, _) => schema(inner),
            DataFusionError::SQL(inner, _) => Self::syntax(inner.to_string()),
            DataFusionError::NotImplemented(message) => Self::unsupported(sentence(message)),
            DataFusionError::Plan(message) => plan(message),
            DataFusionError::Configuration(message) => Self::new(sqlstate::INVALID_PARAMETER_VALUE, sentence(message)),
            DataFusionError::Execution(message) => execution(message),
            DataFusionError::ExecutionJoin(inner) => Self::internal(format!("a part of the query failed: {inner}")),
            DataFusionError::ResourcesExhausted(message) => {
                Self::new(sqlstate::OUT_OF_MEMORY, "the query needs more memory than queries may use")
                    .with_detail(sentence(message))
                    .with_hint("Ask for less at once, or give the server more memory for queries.")
            }
            DataFusionError::ObjectStore(inner) => object_store(inner),
            DataFusionError::IoError(inner) => Self::new(sqlstate::IO_ERROR, inner.to_string()),
            DataFusionError::ParquetError(inner) => {
                Self::new(sqlstate::DATA_CORRUPTED, format!("a data file cannot be read: {inner}"))
            }
            DataFusionError::Internal(message) => Self::internal(sentence(message))
                .with_hint("This is a fault of the query engine: please report it with the statement."),
            other => Self::internal(sentence(&other.strip_backtrace())),
        }
    }
}

/// Errors that came through DataFusion from elsewhere.
fn external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
    if let Some(error) = error.downcast_ref::<SqlError>() {
        return error.clone();
    }
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return SqlError::from_datafusion(error);
    }
    if let Some(error) = error.downcast_ref::<ArrowError>() {
        return arrow(error);
    }
    if let Some(error) = error.downcast_ref::<object_store::Error>() {
        return object_store(error);
    }
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    SqlError::internal(message)
}

/// A data file that is away, damaged or out of reach.
fn unreadable(error: &FileError) -> SqlError {
    match error {
        FileError::Missing { .. } | FileError::Corrupt { .. } => SqlError::new(error.sqlstate(), error.to_string())
            .with_hint(
                "Restore the file from a copy of the store; else DROP SOURCE and CREATE SOURCE read its tables again.",
            ),
        FileError::Unreadable { table, file, source } => {
            let mut cause: &(dyn std::error::Error + 'static) = source;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            SqlError::new(
                error.sqlstate(),
                format!("table {table} cannot be read: the object store did not give out its data file {file}"),
            )
            .with_detail(format!(
                "The statement was given up after several attempts; the stored data is as it was. The last one failed so: {cause}"
            ))
            .with_hint("Try again; if it lasts, look at the store's address, status page and the network between.")
        }
    }
}

fn object_store(error: &object_store::Error) -> SqlError {
    match error {
        object_store::Error::NotFound { path, .. } => {
            SqlError::new(sqlstate::DATA_CORRUPTED, format!("the object \"{path}\" is missing in the store"))
        }
        other => SqlError::new(sqlstate::IO_ERROR, format!("the object store failed: {other}"))
            .with_detail("The statement was given up after several attempts. The stored data is as it was.")
            .with_hint("Try again; if it lasts, look at the store's address, status page and the network between."),
    }
}

fn arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => {
            SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range").with_detail(sentence(message))
        }
        ArrowError::CastError(message) | ArrowError::ParseError(message) => cast(message),
        ArrowError::ExternalError(inner) => external(inner.as_ref()),
        ArrowError::ComputeError(message) | ArrowError::InvalidArgumentError(message) => execution(message),
        ArrowError::IoError(message, _) => SqlError::new(sqlstate::IO_ERROR, message.clone()),
        ArrowError::NotYetImplemented(message) => SqlError::unsupported(sentence(message)),
        ArrowError::MemoryError(message) => SqlError::new(sqlstate::OUT_OF_MEMORY, sentence(message)),
        ArrowError::ParquetError(message) => {
            SqlError::new(sqlstate::DATA_CORRUPTED, format!("a data file cannot be read: {message}"))
        }
        other => SqlError::internal(other.to_string()),
    }
}

/// `Cannot cast string 'abc' to value of Int32 type`, `Error parsing timestamp from '…': …`.
fn cast(message: &str) -> SqlError {
    let lower = message.to_lowercase();
    let value = message.split('\'').nth(1);
    if ["timestamp", "date", "time", "interval"].iter().any(|kind| lower.contains(kind))
        && let Some(value) = value
    {
        return SqlError::new(
            sqlstate::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for a date or time: \"{value}\""),
        )
        .with_detail(sentence(message));
    }
    if lower.contains("overflow")
        || lower.contains("too large")
        || lower.contains("out of range")
        || lower.contains("can't cast value")
    {
        return SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range")
            .with_detail(sentence(message));
    }
    let target = message.split("value of ").nth(1).and_then(|rest| rest.split_whitespace().next());
    match (value, target) {
        (Some(value), Some(target)) => SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {}: \"{value}\"", type_name(target)),
        ),
        _ => SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, sentence(message)),
    }
}

/// Arrow's name of a type as PostgreSQL's.
fn type_name(arrow: &str) -> String {
    match arrow {
        "Int8" | "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Utf8" | "LargeUtf8" | "Utf8View" => "text",
        "Binary" | "LargeBinary" | "BinaryView" => "bytea",
        "Date32" | "Date64" => "date",
        other if other.starts_with("Decimal") => "numeric",
        other => return other.to_lowercase(),
    }
    .to_owned()
}

fn schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error =
                SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{}\" does not exist", column_name(field)));
            match nearest_column(field, valid_fields) {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            sqlstate::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", column_name(field)),
        ),
        SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new("42701", format!("column name \"{name}\" is used more than once"))
                .with_hint("Give the columns names of their own with AS.")
        }
        SchemaError::DuplicateQualifiedField { qualifier, name } => {
            SqlError::new("42701", format!("column name \"{qualifier}.{name}\" is used more than once"))
                .with_hint("Give the tables names of their own with AS.")
        }
    }
}

fn column_name(column: &Column) -> String {
    match &column.relation {
        Some(relation) => format!("{}.{}", relation.table(), column.name),
        None => column.name.clone(),
    }
}

fn nearest_column(field: &Column, valid: &[Column]) -> Option<String> {
    // MySQL's names keep their case, and unquoted names are folded.
    if let Some(other) =
        valid.iter().find(|other| other.name.eq_ignore_ascii_case(&field.name) && other.name != field.name)
    {
        return Some(format!("Write \"{}\" in double quotes: unquoted names are in lower case.", other.name));
    }
    let names = valid.iter().map(|column| column.name.as_str());
    let nearest = crate::sql::options::nearest(&field.name.to_lowercase(), names)?;
    Some(format!("Perhaps you meant the column \"{nearest}\"."))
}

fn plan(message: &str) -> SqlError {
    if let Some(name) = between(message, "table '", "' not found") {
        return undefined_table(name);
    }
    if let Some(name) = between(message, "Invalid function '", "'") {
        let error = SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name}() does not exist"));
        return match between(message, "Did you mean '", "'") {
            Some(nearest) => error.with_hint(format!("Did you mean {nearest}()?")),
            None => error,
        };
    }
    if let Some(name) = between(message, "failed to resolve schema: ", "\n")
        .or_else(|| message.strip_prefix("failed to resolve schema: "))
    {
        return SqlError::new(
            sqlstate::INVALID_SCHEMA_NAME,
            format!("schema \"{}\" does not exist", name.trim_matches('"')),
        );
    }
    let lower = message.to_lowercase();
    if lower.contains("no function matches the given name")
        || lower.contains("failed to coerce arguments")
        || lower.contains("does not support zero arguments")
    {
        let call = between(message, "No function matches the given name and argument types '", "'");
        let message = call.map_or_else(|| sentence(message), |call| format!("function {call} does not exist"));
        return SqlError::new(sqlstate::UNDEFINED_FUNCTION, message)
            .with_hint("No function of this name takes these arguments; a cast might help.");
    }
    if lower.contains("must appear in the group by")
        || lower.contains("must be in group by")
        || lower.contains("could not be resolved from available columns")
    {
        return SqlError::new(sqlstate::GROUPING_ERROR, sentence(message));
    }
    if lower.contains("cannot coerce")
        || lower.contains("cannot infer common")
        || lower.contains("type mismatch")
        || lower.contains("incompatible")
    {
        return SqlError::new(sqlstate::DATATYPE_MISMATCH, sentence(message));
    }
    if lower.contains("placeholder") || lower.contains("no value found for") {
        return SqlError::new(sqlstate::UNDEFINED_PARAMETER, sentence(message));
    }
    if lower.contains("not supported") || lower.contains("unsupported") || lower.contains("not implemented") {
        return SqlError::unsupported(sentence(message));
    }
    SqlError::syntax(sentence(message))
}

/// The planner names a table with its catalog: `db.schema.table`, or with the search path in the place of a schema that was not given.
fn undefined_table(name: &str) -> SqlError {
    let parts: Vec<&str> = name.split('.').collect();
    let name = match parts.as_slice() {
        [_, schema, table] if schema.starts_with('$') => (*table).to_owned(),
        [_, schema, table] => format!("{schema}.{table}"),
        _ => name.to_owned(),
    };
    let error = SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
    if name.contains('.') {
        error
            .with_hint("SHOW TABLES lists the tables there are; SHOW JOBS says which sources are still reading theirs.")
    } else {
        error.with_hint(format!(
            "Mirrored tables are in the schema of their MySQL database: write database.{name}, or SET search_path."
        ))
    }
}

fn execution(message: &str) -> SqlError {
    let lower = message.to_lowercase();
    let state = if lower.contains("divide by zero") || lower.contains("division by zero") {
        return SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero");
    } else if lower.contains("overflow") || lower.contains("out of range") {
        sqlstate::NUMERIC_VALUE_OUT_OF_RANGE
    } else if lower.contains("cast") || lower.contains("parsing") || lower.contains("parse") {
        return cast(message);
    } else if lower.contains("more than one row") || lower.contains("scalar subquery") {
        "21000"
    } else if lower.contains("cancel") {
        sqlstate::QUERY_CANCELED
    } else if lower.contains("invalid") {
        sqlstate::INVALID_PARAMETER_VALUE
    } else {
        sqlstate::INTERNAL_ERROR
    };
    SqlError::new(state, sentence(message))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// A message without DataFusion's prefixes, its backtrace, and the full stop at its end.
fn sentence(message: &str) -> String {
    let message = message.split("\n\nbacktrace:").next().unwrap_or(message);
    let message = message.split("\nThis issue was likely caused by a bug").next().unwrap_or(message);
    let mut message = message.trim();
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "Internal error: ",
        "This feature is not implemented: ",
        "Optimizer rule ",
    ] {
        message = message.strip_prefix(prefix).unwrap_or(message);
    }
    let mut chars = message.trim_end_matches('.').chars();
    match chars.next() {
        Some(first) if chars.as_str().starts_with(|c: char| c.is_lowercase() || c == ' ') => {
            first.to_lowercase().chain(chars).collect()
        }
        Some(first) => std::iter::once(first).chain(chars).collect(),
        None => "the query failed".to_owned(),
    }
}

#[cfg(test)]
mod tests;
