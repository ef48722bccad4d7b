//! Data files of an older schema, read as the current one.
//!
//! Columns are the same if their field ids are (Paimon's rule): a rename keeps the id, a dropped and added column has a new one.
//! So a file's column is found by the id, and its name in the file is only how the Parquet reader asks for it.
//!
//! A column that a file does not have is one value in all of it: the column's initial default, or NULL. Expressions see that
//! value as a literal, in projections and in filters alike, so that statistics of the file are never asked about it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory, replace_columns_with_literals,
};
use tidegate_storage::paimon::TableSchema;

/// How the columns of a table are named in the files of one schema, where the two names differ.
///
/// Files with equal mappings are scanned together: adding and dropping columns or widening a type does not set a schema apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ColumnMapping {
    /// (name in the file, current name), for columns that were renamed since.
    renamed: Vec<(String, String)>,
    /// Names in the file that now belong to another column, or to none.
    hidden: Vec<String>,
}

impl ColumnMapping {
    pub(crate) fn new(current: &TableSchema, file: &TableSchema) -> Self {
        let by_id: HashMap<i32, &str> = current.fields.iter().map(|field| (field.id, field.name.as_str())).collect();
        let mut mapping = Self::default();
        for field in &file.fields {
            match by_id.get(&field.id) {
                Some(name) if *name == field.name => {}
                Some(name) => mapping.renamed.push((field.name.clone(), (*name).to_owned())),
                None if current.fields.iter().any(|other| other.name == field.name) => {
                    mapping.hidden.push(field.name.clone());
                }
                None => {}
            }
        }
        mapping.renamed.sort();
        mapping.hidden.sort();
        mapping
    }

    /// What the column called `name` in the file is called now.
    fn current_name<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if self.hidden.iter().any(|hidden| hidden == name) {
            return None;
        }
        Some(self.renamed.iter().find(|(file, _)| file == name).map_or(name, |(_, current)| current))
    }
}

/// What columns have in files that were written before them, by the columns' current names; NULL where there is none.
pub(crate) type InitialDefaults = HashMap<String, ScalarValue>;

/// The initial defaults of `current`, in the types that queries see.
pub(crate) fn initial_defaults(current: &TableSchema, query: &Schema) -> Result<InitialDefaults> {
    let mut defaults = InitialDefaults::new();
    for (field, seen) in current.fields.iter().zip(query.fields()) {
        let value = field.initial_value().map_err(|error| DataFusionError::External(Box::new(error)))?;
        if let Some(value) = value {
            let value = ScalarValue::try_from_array(&value, 0)?.cast_to(seen.data_type())?;
            defaults.insert(field.name.clone(), value);
        }
    }
    Ok(defaults)
}

/// Makes DataFusion's own adapter (casts, NULLs for missing columns) see a file under the table's current names, after
/// columns that are missing and have an initial default have become that.
#[derive(Debug)]
pub(crate) struct MappedColumns {
    pub(crate) mapping: ColumnMapping,
    pub(crate) defaults: Arc<InitialDefaults>,
}

impl PhysicalExprAdapterFactory for MappedColumns {
    fn create(&self, logical: SchemaRef, physical: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let fields: Vec<Field> = physical
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| {
                // No MySQL column can have this name: MySQL allows no NUL in one.
                let Some(name) = self.mapping.current_name(field.name()) else {
                    return field.as_ref().clone().with_name(format!("\0{index}"));
                };
                match logical.field_with_name(name) {
                    // The adapter casts wherever two fields differ, if only by the field id that Parquet keeps in the metadata
                    // or by nullability; such a cast would hide the column from pruning and pushed filters.
                    Ok(wanted) if wanted.data_type() == field.data_type() => wanted.clone(),
                    _ => field.as_ref().clone().with_name(name),
                }
            })
            .collect();
        let seen: SchemaRef = Arc::new(Schema::new(fields));
        let missing = |name: &str| seen.field_with_name(name).is_err();
        let defaults = self.defaults.iter().filter(|(name, _)| missing(name));
        let defaults = defaults.map(|(name, value)| (name.clone(), value.clone())).collect();
        let inner = DefaultPhysicalExprAdapterFactory.create(logical, Arc::clone(&seen))?;
        Ok(Arc::new(MappedAdapter { inner, physical, defaults }))
    }
}

#[derive(Debug)]
struct MappedAdapter {
    inner: Arc<dyn PhysicalExprAdapter>,
    physical: SchemaRef,
    /// Of the columns that the file does not have.
    defaults: InitialDefaults,
}

impl PhysicalExprAdapter for MappedAdapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        self.inner
            .rewrite(replace_columns_with_literals(expr, &self.defaults)?)?
            .transform(|expr| {
                let Some(column) = expr.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(expr));
                };
                let field = self.physical.fields().get(column.index()).ok_or_else(|| {
                    DataFusionError::Internal(format!("column {} lies outside of its file", column.name()))
                })?;
                if field.name() == column.name() {
                    return Ok(Transformed::no(expr));
                }
                Ok(Transformed::yes(Arc::new(Column::new(field.name(), column.index())) as Arc<dyn PhysicalExpr>))
            })
            .data()
    }
}

/// A table's schema as queries see it: text and bytes as views, which compare and group without copies. The field ids
/// in the metadata are the files' own affair.
pub(crate) fn query_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            other => other.clone(),
        })
        .zip(schema.fields())
        .map(|(data_type, field)| Field::new(field.name(), data_type, field.is_nullable()))
        .collect();
    Arc::new(Schema::new(fields))
}
