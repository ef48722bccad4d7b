//! PostgreSQL's functions about the catalog and the session.
//!
//! They are registered once for the process; what they say about this database and this connection they find in the
//! [`StatementScope`] of the configuration they are called with. None of them is on a hot path, so they work row by row.

mod catalog;
mod session;
mod text;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion_pg_catalog::pg_catalog::array_bounds_udf::{create_array_lower_udf, create_array_upper_udf};

pub(super) use catalog::index_definition;

use crate::context::StatementScope;

/// Adds all of them to what a session knows.
pub(super) fn register(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let functions = builder.scalar_functions().get_or_insert_default();
    for definition in [catalog::FUNCTIONS, session::FUNCTIONS, text::FUNCTIONS].into_iter().flatten() {
        functions.push(Arc::new(ScalarUDF::new_from_impl(RowFunction { definition, signature: any_arguments() })));
    }
    functions.push(Arc::new(create_array_upper_udf()));
    functions.push(Arc::new(create_array_lower_udf()));
    functions.push(Arc::new(AsyncScalarUDF::new(Arc::new(session::Sleep::new())).into_scalar_udf()));
    builder
}

/// Arguments as they come: PostgreSQL's functions are overloaded, and clients pass literals of any type.
pub(super) fn any_arguments() -> Signature {
    Signature::user_defined(Volatility::Stable)
}

/// A function of one row.
#[derive(Debug)]
struct Definition {
    name: &'static str,
    aliases: &'static [&'static str],
    returns: Returns,
    /// Whether a NULL argument makes the result NULL without a call.
    strict: bool,
    call: fn(&Call<'_>) -> Result<ScalarValue>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Returns {
    Text,
    Texts,
    Bool,
    Int4,
    Int8,
    Oid,
    Timestamptz,
}

impl Returns {
    fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Texts => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            Self::Bool => DataType::Boolean,
            Self::Int4 | Self::Oid => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Timestamptz => {
                DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()))
            }
        }
    }
}

const fn function(name: &'static str, returns: Returns, call: fn(&Call<'_>) -> Result<ScalarValue>) -> Definition {
    Definition { name, aliases: &[], returns, strict: true, call }
}

impl Definition {
    const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The function sees NULL arguments.
    const fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

/// The arguments of one row.
struct Call<'a> {
    name: &'static str,
    args: &'a [ScalarValue],
    scope: Option<&'a StatementScope>,
}

impl Call<'_> {
    fn scope(&self) -> Result<&StatementScope> {
        match self.scope {
            Some(scope) => Ok(scope),
            None => exec_err!("{} needs a connection", self.name),
        }
    }

    fn text(&self, index: usize) -> Result<String> {
        match self.args.get(index) {
            Some(value) => Ok(shown(value)),
            None => exec_err!("function {} lacks its argument {}", self.name, index + 1),
        }
    }

    /// An integer or an object id, also one that is written as text.
    fn int(&self, index: usize) -> Result<i64> {
        let text = self.text(index)?;
        match text.trim().parse() {
            Ok(number) => Ok(number),
            Err(_) => exec_err!("invalid input syntax for type integer: \"{text}\""),
        }
    }

    /// An object id; 0, which no object has, if it is out of range.
    fn oid(&self, index: usize) -> Result<i32> {
        Ok(i32::try_from(self.int(index)?).unwrap_or_default())
    }

    fn bool(&self, index: usize) -> bool {
        match self.args.get(index) {
            Some(ScalarValue::Boolean(Some(value))) => *value,
            Some(value) => matches!(shown(value).to_ascii_lowercase().as_str(), "t" | "true" | "on" | "1" | "yes"),
            None => false,
        }
    }
}

/// A value as text; NULL is empty.
fn shown(value: &ScalarValue) -> String {
    match value.try_as_str() {
        Some(text) => text.unwrap_or_default().to_owned(),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    }
}

fn text(value: impl Into<String>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(Some(value.into())))
}

fn text_or_null(value: Option<impl Into<String>>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(value.map(Into::into)))
}

fn texts(values: &[String]) -> Result<ScalarValue> {
    let values: Vec<ScalarValue> = values.iter().map(|value| ScalarValue::Utf8(Some(value.clone()))).collect();
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8)))
}

#[derive(Debug)]
struct RowFunction {
    definition: &'static Definition,
    signature: Signature,
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn aliases(&self) -> &[String] {
        // Aliases live as long as the definition; the trait asks for owned strings.
        static ALIASES: std::sync::OnceLock<std::collections::HashMap<&'static str, Vec<String>>> =
            std::sync::OnceLock::new();
        let all = ALIASES.get_or_init(|| {
            [catalog::FUNCTIONS, session::FUNCTIONS, text::FUNCTIONS]
                .into_iter()
                .flatten()
                .map(|function| (function.name, function.aliases.iter().map(|alias| (*alias).to_owned()).collect()))
                .collect()
        });
        all.get(self.definition.name).map_or(&[], Vec::as_slice)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.definition.returns.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scope = args.config_options.extensions.get::<StatementScope>();
        let one = |values: &[ScalarValue]| -> Result<ScalarValue> {
            if self.definition.strict && values.iter().any(ScalarValue::is_null) {
                return ScalarValue::try_from(&self.definition.returns.data_type());
            }
            (self.definition.call)(&Call { name: self.definition.name, args: values, scope })
        };
        let mut scalars = Vec::with_capacity(args.args.len());
        for arg in &args.args {
            match arg {
                ColumnarValue::Scalar(value) => scalars.push(value.clone()),
                ColumnarValue::Array(_) => break,
            }
        }
        if scalars.len() == args.args.len() {
            return Ok(ColumnarValue::Scalar(one(&scalars)?));
        }
        let columns: Vec<ArrayRef> = ColumnarValue::values_to_arrays(&args.args)?;
        let mut results = Vec::with_capacity(args.number_rows);
        let mut row = Vec::with_capacity(columns.len());
        for index in 0..args.number_rows {
            row.clear();
            for column in &columns {
                row.push(ScalarValue::try_from_array(column, index)?);
            }
            results.push(one(&row)?);
        }
        if results.is_empty() {
            let empty = datafusion::arrow::array::new_empty_array(&self.definition.returns.data_type());
            return Ok(ColumnarValue::Array(empty));
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(results)?))
    }
}
