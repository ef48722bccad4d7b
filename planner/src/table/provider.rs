//! One version of a mirrored table as a DataFusion table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, Result, Statistics};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tidegate_storage::table::TableVersion;

use super::evolution::query_schema;
use super::scan::{ScanCache, scan};
use super::statistics::table_statistics;

/// One version of one mirrored table. Cheap to make; the version never changes under a query.
#[derive(Debug)]
pub struct MirrorTable {
    name: Arc<str>,
    version: Arc<TableVersion>,
    schema: SchemaRef,
    constraints: Constraints,
    cache: Arc<ScanCache>,
}

impl MirrorTable {
    /// `name` is the table's as queried (`shop.orders`). Files are read from the store that is registered for
    /// [`super::STORE_URL`] in the runtime environment of the query.
    pub fn new(name: impl Into<Arc<str>>, version: Arc<TableVersion>, cache: Arc<ScanCache>) -> Self {
        let schema = query_schema(&version.schema.arrow_schema());
        // The columns' order in the key does not matter here: it says which sets of columns are unique.
        let constraints = match version.schema.key_indices() {
            key if key.is_empty() => Constraints::default(),
            key => Constraints::new_unverified(vec![Constraint::PrimaryKey(key)]),
        };
        Self { name: name.into(), version, schema, constraints, cache }
    }

    /// The version that is read.
    pub fn version(&self) -> &Arc<TableVersion> {
        &self.version
    }
}

#[async_trait]
impl TableProvider for MirrorTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        scan(&self.cache, &self.name, &self.version, &self.schema, state, projection, filters, limit)
    }

    /// Filters stay above the scan in the logical plan; the physical optimizer moves them into the Parquet source, which alone
    /// knows whether it applies all of a filter or only prunes by it.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(table_statistics(&self.version, &self.schema))
    }
}
