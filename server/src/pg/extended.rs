//! The extended query protocol: prepared statements and portals.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use tidegate_planner::error::SqlError;
use tidegate_planner::sql::statement::{DiscardKind, Statement};
use tidegate_planner::{Outcome, ParsedStatement, RowsTag};

use super::encode::{Column, Format, columns, row_description, spread_formats};
use super::errors::{
    DUPLICATE_CURSOR, DUPLICATE_STATEMENT, INVALID_CURSOR_NAME, INVALID_STATEMENT_NAME, PROTOCOL_VIOLATION,
};
use super::message::{Bare, Bind, Target, bare, command_complete, parameter_description};
use super::params;
use super::rows::{Cursor, Failure, Progress};
use super::session::{Backend, guarded, out_of_place, within};
use super::simple::{rows_tag, send_notices};

/// The protocol counts columns and parameters in 16 bits.
const MAX_PARAMETERS: usize = u16::MAX as usize;

/// A prepared statement.
pub(super) struct Prepared {
    /// `None` for a text without a statement.
    statement: Option<ParsedStatement>,
    parameters: Vec<Parameter>,
    /// The columns of its result, if it has one.
    result: Option<SchemaRef>,
}

/// A parameter: the type it is sent as, and the type its place asks for.
struct Parameter {
    oid: u32,
    inferred: Option<DataType>,
}

/// A statement with its parameters, at some point of its execution.
pub(super) struct Portal {
    prepared: Arc<Prepared>,
    parameters: Vec<ScalarValue>,
    formats: Vec<Format>,
    state: State,
}

enum State {
    Bound,
    Running {
        cursor: Box<Cursor>,
        tag: RowsTag,
    },
    /// Its rows are all sent.
    Exhausted {
        tag: RowsTag,
    },
    /// A command, which runs once.
    Ran,
}

impl Portal {
    fn columns(&self) -> Option<Vec<Column>> {
        self.prepared.result.as_ref().map(|schema| columns(schema, &self.formats))
    }
}

impl Backend {
    pub(super) async fn parse(&mut self, name: String, sql: &str, types: Vec<u32>) -> Result<(), Failure> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let error = SqlError::new(DUPLICATE_STATEMENT, format!("prepared statement \"{name}\" already exists"));
            return Err(error.into());
        }
        self.statements.remove("");
        let mut statements = self.session.parse(sql)?;
        if statements.len() > 1 {
            return Err(SqlError::syntax("cannot insert multiple commands into a prepared statement").into());
        }
        let prepared = match statements.pop() {
            None => Prepared { statement: None, parameters: Vec::new(), result: None },
            Some(statement) => {
                let armed = self.interrupt.arm();
                let given: Vec<_> = types.iter().map(|oid| params::given_type(*oid)).collect();
                let (timeout, session, queries) = (self.statement_timeout(), &mut self.session, &self.queries);
                let work = async { Ok(within(queries, session.describe(&statement, &given)).await?) };
                let description = guarded(&armed, timeout, &self.ends, work).await?;
                let count = description.parameters.len().max(types.len());
                if count > MAX_PARAMETERS {
                    return Err(SqlError::syntax("a statement can have at most 65535 parameters").into());
                }
                let mut inferred = description.parameters.into_iter();
                let mut chosen = types.into_iter();
                let parameters = (0..count)
                    .map(|_| {
                        let inferred = inferred.next();
                        let oid = params::announced_type(chosen.next().unwrap_or(0), inferred.as_ref());
                        Parameter { oid, inferred }
                    })
                    .collect();
                Prepared { statement: Some(statement), parameters, result: description.schema }
            }
        };
        self.statements.insert(name, Arc::new(prepared));
        bare(self.output.buffer(), Bare::ParseComplete);
        Ok(())
    }

    pub(super) fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let Bind { portal: name, statement, parameter_formats, parameters: values, result_formats } = bind;
        let prepared = Arc::clone(self.statement(&statement)?);
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(SqlError::new(DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")).into());
        }
        let count = prepared.parameters.len();
        if values.len() != count {
            let error = SqlError::new(
                PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {count}",
                    values.len()
                ),
            );
            return Err(error.into());
        }
        let formats = spread_formats(&parameter_formats, count, "parameter")?;
        let zone = self.session.settings().get("timezone").unwrap_or("UTC");
        let parameters = prepared
            .parameters
            .iter()
            .zip(&values)
            .zip(formats)
            .enumerate()
            .map(|(index, ((parameter, value), format))| {
                params::decode(index + 1, parameter.oid, parameter.inferred.as_ref(), format, value.as_ref(), zone)
            })
            .collect::<Result<_, _>>()?;
        let width = prepared.result.as_ref().map_or(0, |schema| schema.fields().len());
        // Formats for a statement without a result have no meaning, and are sent by some clients.
        let formats = if width == 0 { Vec::new() } else { spread_formats(&result_formats, width, "result")? };
        self.portals.insert(name, Portal { prepared, parameters, formats, state: State::Bound });
        bare(self.output.buffer(), Bare::BindComplete);
        Ok(())
    }

    pub(super) fn describe(&mut self, target: Target, name: &str) -> Result<(), Failure> {
        let columns = match target {
            Target::Statement => {
                let prepared = Arc::clone(self.statement(name)?);
                let types: Vec<_> = prepared.parameters.iter().map(|parameter| parameter.oid).collect();
                parameter_description(self.output.buffer(), &types);
                // The formats are not known before Bind: announced as text, as PostgreSQL does.
                prepared.result.as_ref().map(|schema| columns(schema, &[]))
            }
            Target::Portal => self.portals.get(name).ok_or_else(|| no_portal(name))?.columns(),
        };
        match columns {
            Some(columns) => row_description(&columns, self.output.buffer()),
            None => bare(self.output.buffer(), Bare::NoData),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: &str, max_rows: usize) -> Result<(), Failure> {
        // Taken out while it runs: one that fails is gone.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let answered = self.run_portal(name, &mut portal, max_rows).await;
        if answered.is_ok() {
            self.portals.insert(name.to_owned(), portal);
        }
        answered
    }

    async fn run_portal(&mut self, name: &str, portal: &mut Portal, max_rows: usize) -> Result<(), Failure> {
        let prepared = Arc::clone(&portal.prepared);
        let Some(statement) = &prepared.statement else {
            bare(self.output.buffer(), Bare::EmptyQuery);
            return Ok(());
        };
        let armed = self.interrupt.arm();
        let (timeout, style) = (self.statement_timeout(), self.style());
        let (session, output, queries) = (&mut self.session, &mut self.output, &self.queries);
        let announced = portal.columns();
        let state = &mut portal.state;
        let parameters = &mut portal.parameters;
        let formats = &portal.formats;
        let work = async {
            if matches!(state, State::Bound) {
                let executed = session.execute(statement, std::mem::take(parameters));
                *state = match within(queries, executed).await? {
                    Outcome::Command { tag, notices } => {
                        send_notices(session, &notices, output);
                        *state = State::Ran;
                        return Ok(Some(tag));
                    }
                    Outcome::Rows { schema, stream, tag, notices } => {
                        send_notices(session, &notices, output);
                        let columns = columns(&schema, formats);
                        if announced.as_ref().is_none_or(|announced| !same_types(announced, &columns)) {
                            return Err(SqlError::unsupported("cached plan must not change result type").into());
                        }
                        State::Running { cursor: Box::new(Cursor::new(queries, stream, columns, style)), tag }
                    }
                };
            }
            match state {
                State::Running { cursor, tag } => {
                    let tag = *tag;
                    match cursor.send(max_rows, output).await? {
                        Progress::Suspended => Ok(None),
                        Progress::Finished { rows } => {
                            *state = State::Exhausted { tag };
                            Ok(Some(rows_tag(tag, rows)))
                        }
                    }
                }
                State::Exhausted { tag } => Ok(Some(rows_tag(*tag, 0))),
                State::Bound | State::Ran => Err(out_of_place(format!("portal \"{name}\" cannot be run")).into()),
            }
        };
        let tag = guarded(&armed, timeout, &self.ends, work).await?;
        match tag {
            Some(tag) => {
                self.after_command(statement)?;
                command_complete(self.output.buffer(), &tag);
            }
            None => bare(self.output.buffer(), Bare::PortalSuspended),
        }
        Ok(())
    }

    /// Closing what does not exist is no error.
    pub(super) fn close(&mut self, target: Target, name: &str) {
        match target {
            Target::Statement => {
                if let Some(prepared) = self.statements.remove(name) {
                    self.portals.retain(|_, portal| !Arc::ptr_eq(&portal.prepared, &prepared));
                }
            }
            Target::Portal => {
                self.portals.remove(name);
            }
        }
        bare(self.output.buffer(), Bare::CloseComplete);
    }

    /// Commands that reach the prepared statements of the connection.
    pub(super) fn after_command(&mut self, statement: &ParsedStatement) -> Result<(), SqlError> {
        match &statement.statement {
            Statement::Discard(DiscardKind::All) => {
                self.statements.clear();
                self.portals.clear();
            }
            Statement::Deallocate(None) => self.statements.clear(),
            Statement::Deallocate(Some(name)) => {
                self.statement(name)?;
                self.statements.remove(name);
            }
            _ => {}
        }
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<&Arc<Prepared>, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            SqlError::new(INVALID_STATEMENT_NAME, message)
        })
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

fn same_types(announced: &[Column], actual: &[Column]) -> bool {
    announced.len() == actual.len() && announced.iter().zip(actual).all(|(a, b)| a.same_type(b))
}
