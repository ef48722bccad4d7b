//! What DataFusion plans and runs.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use datafusion::common::ParamValues;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as QueryStatement;
use futures::{FutureExt, Stream, StreamExt};

use super::ParsedStatement;
use super::diagnose::diagnose;
use super::execute::{Description, Session, timed_out};
use super::names::column_names;
use super::outcome::{Outcome, RowsTag};
use crate::error::{SqlError, sqlstate};
use crate::pg_catalog::Compatibility;

/// Parameters of one statement: more than the protocol can count cannot be meant.
const MAX_PARAMETERS: usize = 65_535;

async fn plan(
    context: &SessionContext,
    parsed: &ParsedStatement,
    statement: &QueryStatement,
) -> Result<LogicalPlan, SqlError> {
    let mut statement = statement.clone();
    make_compatible(&mut statement);
    let plan = context
        .state()
        .statement_to_plan(statement)
        .await
        .map_err(|error| diagnose(&error, &parsed.text, parsed.offset))?;
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(&plan)
        .map_err(|_| {
            SqlError::new(
                sqlstate::READ_ONLY_TRANSACTION,
                "the statement would change data, and mirrored tables are read-only",
            )
            .at(parsed.offset + 1)
        })?;
    Ok(plan)
}

fn make_compatible(statement: &mut QueryStatement) {
    match statement {
        QueryStatement::Statement(statement) => Compatibility::rewrite(statement),
        QueryStatement::Explain(explain) => make_compatible(&mut explain.statement),
        _ => {}
    }
}

/// The types of `$1`, `$2`, … as far as the plan tells.
fn parameter_types(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>, SqlError> {
    let found = plan.get_parameter_types().map_err(SqlError::from)?;
    let counts = counting_parameters(plan)?;
    let casts = cast_parameters(plan)?;
    let mut types = Vec::new();
    for (name, data_type) in found {
        let number =
            name.trim_start_matches('$').parse::<usize>().ok().filter(|number| (1..=MAX_PARAMETERS).contains(number));
        let Some(number) = number else {
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter {name}")));
        };
        if types.len() < number {
            types.resize(number, None);
        }
        types[number - 1] = data_type
            .or_else(|| counts.contains(&name).then_some(DataType::Int64))
            .or_else(|| casts.get(&name).cloned());
    }
    Ok(types)
}

/// The parameters of LIMIT and OFFSET, which the planner gives no type.
fn counting_parameters(plan: &LogicalPlan) -> Result<BTreeSet<String>, SqlError> {
    let mut names = BTreeSet::new();
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expression in limit.skip.iter().chain(&limit.fetch) {
                expression.apply(|part| {
                    if let Expr::Placeholder(placeholder) = part {
                        names.insert(placeholder.id.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map_err(SqlError::from)?;
    Ok(names)
}

/// The parameters that stand right inside a cast: as in PostgreSQL, `$1::int4` is sent as an `int4`.
fn cast_parameters(plan: &LogicalPlan) -> Result<BTreeMap<String, DataType>, SqlError> {
    let mut types = BTreeMap::new();
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::Cast(cast) = part
                    && let Expr::Placeholder(placeholder) = cast.expr.as_ref()
                {
                    types.entry(placeholder.id.clone()).or_insert_with(|| cast.field.data_type().clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    visited.map_err(SqlError::from)?;
    Ok(types)
}

pub(super) async fn describe(
    session: &mut Session,
    parsed: &ParsedStatement,
    statement: &QueryStatement,
    given: &[Option<DataType>],
) -> Result<Description, SqlError> {
    let context = session.engine.runtime.clone().session(&session.tables(), &session.vars());
    let plan = plan(&context, parsed, statement).await?;
    let mut types = parameter_types(&plan)?;
    if types.len() < given.len() {
        types.resize(given.len(), None);
    }
    // The client's word goes first; a parameter whose type nothing says is text, as in PostgreSQL.
    let parameters: Vec<DataType> = types
        .into_iter()
        .enumerate()
        .map(|(index, inferred)| given.get(index).cloned().flatten().or(inferred).unwrap_or(DataType::Utf8))
        .collect();
    let plan = if parameters.is_empty() {
        plan
    } else {
        let nulls = parameters.iter().map(ScalarValue::try_from).collect::<Result<Vec<_>, _>>();
        let nulls = nulls.map_err(SqlError::from)?;
        bind(plan, nulls, parsed)?
    };
    let schema = renamed(Arc::new(plan.schema().as_arrow().clone()), statement);
    Ok(Description { parameters, schema: Some(schema) })
}

/// The schema with PostgreSQL's names.
fn renamed(schema: SchemaRef, statement: &QueryStatement) -> SchemaRef {
    let names = column_names(statement);
    if names.len() != schema.fields().len() {
        return schema;
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| match field.name() == &name {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_name(name)),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

fn bind(plan: LogicalPlan, values: Vec<ScalarValue>, parsed: &ParsedStatement) -> Result<LogicalPlan, SqlError> {
    let values = ParamValues::List(values.into_iter().map(ScalarAndMetadata::from).collect());
    plan.replace_params_with_values(&values).map_err(|error| diagnose(&error, &parsed.text, parsed.offset))
}

pub(super) async fn run(
    session: &mut Session,
    parsed: &ParsedStatement,
    statement: &QueryStatement,
    parameters: Vec<ScalarValue>,
    tag: RowsTag,
) -> Result<Outcome, SqlError> {
    let context = session.engine.runtime.clone().session(&session.tables(), &session.vars());
    let mut plan = plan(&context, parsed, statement).await?;
    let wanted = parameter_types(&plan)?.len();
    if wanted > parameters.len() {
        return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter ${wanted}")));
    }
    if wanted > 0 {
        plan = bind(plan, parameters, parsed)?;
    }
    let tag =
        if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) { RowsTag::Named("EXPLAIN") } else { tag };
    let state = context.state();
    let failed = |error: DataFusionError| diagnose(&error, &parsed.text, parsed.offset);
    let physical = state.create_physical_plan(&plan).await.map_err(failed)?;
    let stream = execute_stream(physical, state.task_ctx()).map_err(failed)?;
    let schema = renamed(stream.schema(), statement);
    let stream = Diagnosed { stream, schema, text: parsed.text.clone(), offset: parsed.offset };
    Ok(Outcome::Rows { schema: stream.schema(), stream: Box::pin(stream), tag, notices: Vec::new() })
}

/// Says the errors of a running query as [`SqlError`]s, and names its columns.
struct Diagnosed {
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
    text: String,
    offset: usize,
}

impl Stream for Diagnosed {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(context).map(|item| {
            item.map(|batch| {
                let batch = batch.and_then(|batch| with_schema(batch, &self.schema));
                batch.map_err(|error| DataFusionError::External(Box::new(diagnose(&error, &self.text, self.offset))))
            })
        })
    }
}

/// The same columns under other names; the length stands for itself where there are none.
fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}

impl RecordBatchStream for Diagnosed {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Ends a result with an error when the statement's time is over. The time to plan was counted on its own.
pub(super) fn limit(outcome: Outcome, timeout: Duration) -> Outcome {
    match outcome {
        Outcome::Rows { schema, stream, tag, notices } => {
            let stream = Limited { stream, over: false, deadline: Box::pin(tokio::time::sleep(timeout)), timeout };
            Outcome::Rows { schema, stream: Box::pin(stream), tag, notices }
        }
        command => command,
    }
}

struct Limited {
    stream: SendableRecordBatchStream,
    over: bool,
    deadline: Pin<Box<tokio::time::Sleep>>,
    timeout: Duration,
}

impl Stream for Limited {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.deadline.poll_unpin(context).is_ready() {
            self.over = true;
            return Poll::Ready(Some(Err(DataFusionError::External(Box::new(timed_out(self.timeout))))));
        }
        self.stream.poll_next_unpin(context)
    }
}

impl RecordBatchStream for Limited {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}
