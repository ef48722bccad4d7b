//! PostgreSQL's catalogs, as clients ask them: `pg_catalog`, `information_schema`, and the functions that go with them.
//!
//! What does not depend on the database (types, functions, operators, …) comes from `datafusion-pg-catalog`'s static tables; what
//! does is made here from the mirrored tables, so that keys, types and comments are right. To read: [`relations`] (the
//! tables of the database as PostgreSQL would number them), [`rows`] (how a catalog table is filled), [`tables`] (which there
//! are), [`information_schema`], [`functions`], [`rewrite`] (what DataFusion's planner would not take as it is written).

mod functions;
mod information_schema;
mod relations;
mod rewrite;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;

use datafusion::arrow::array::{Int32Array, RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_pg_catalog::pg_catalog::{PgCatalogSchemaProvider, PgCatalogStaticTables, PgCatalogTable};

pub(crate) use information_schema::InformationSchema;
pub(crate) use relations::Relations;
pub use rewrite::Compatibility;
pub(crate) use tables::PgCatalog;

/// The tables of PostgreSQL that are the same in every database.
#[derive(Debug)]
pub(crate) struct StaticTables(PgCatalogSchemaProvider<Arc<dyn CatalogProviderList>, EmptyContextProvider>);

impl StaticTables {
    pub(crate) fn load() -> Result<Self> {
        let tables = Arc::new(PgCatalogStaticTables::try_new()?);
        // The list of catalogs is what its dynamic tables are made from, which are all replaced here.
        let nothing: Arc<dyn CatalogProviderList> = Arc::new(MemoryCatalogProviderList::new());
        Ok(Self(PgCatalogSchemaProvider::try_new(nothing, tables, EmptyContextProvider)?))
    }

    fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(found) = self.0.build_table_by_name(name)? else { return Ok(None) };
        // Columns that psql asks for by these names: those of releases before 17, and the system column of the table's own id.
        let added = match name {
            "pg_collation" => Field::new("colliculocale", DataType::Utf8, true),
            "pg_language" => rows::oid_field("tableoid"),
            _ => return found.try_into_table_provider().map(Some),
        };
        let PgCatalogTable::Static(found) = found else { return Ok(None) };
        let fields = found.schema().fields().iter().cloned().chain([Arc::new(added)]).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let mut batches = Vec::with_capacity(found.data().len());
        for batch in found.data() {
            let mut columns = batch.columns().to_vec();
            columns.push(match name {
                "pg_collation" => new_null_array(&DataType::Utf8, batch.num_rows()),
                _ => Arc::new(Int32Array::from(vec![2612; batch.num_rows()])),
            });
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
        }
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![batches])?)))
    }
}

/// Adds PostgreSQL's functions and type names.
pub(crate) fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    functions::register(builder).with_type_planner(Arc::new(PgOidTypePlanner))
}
