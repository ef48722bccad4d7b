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
mod types;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList, TableProvider};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_pg_catalog::pg_catalog::{PgCatalogSchemaProvider, PgCatalogStaticTables};

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
        self.0.build_table_by_name(name)?.map(|table| table.try_into_table_provider()).transpose()
    }
}

/// Adds PostgreSQL's functions and type names.
pub(crate) fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    functions::register(builder).with_type_planner(Arc::new(PgOidTypePlanner))
}
