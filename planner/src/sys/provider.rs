//! System views as DataFusion tables. Rows are made when a view is scanned.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tidegate_cdc::capture::SourceView;
use tidegate_storage::clock::Clock;
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::caching::CacheWatch;
use tidegate_storage::store::measured::Statistics;

use super::{SettingState, SourceState, SysState, SysView, batch_of, schema_of, views};
use crate::catalog::store::CatalogStore;
use crate::context::StatementScope;
use crate::jobs::Jobs;
use crate::session::settings;

/// Where the views' rows come from.
#[derive(Clone)]
pub struct SysSource {
    pub store: StoreRef,
    /// What is asked of the store.
    pub statistics: Arc<Statistics>,
    /// What is kept of the tables' objects, if anything is.
    pub object_cache: Option<CacheWatch>,
    pub clock: Arc<dyn Clock>,
    pub catalog: Arc<CatalogStore>,
    pub jobs: Arc<dyn Jobs>,
    /// What the statement reads of each source.
    pub views: Vec<Arc<SourceView>>,
}

/// The schema `sys`. The views tell of the moment in which they are scanned, but for the tables, which are those of the statement's
/// checkpoints.
#[derive(Clone)]
pub struct SysSchema {
    source: Arc<SysSource>,
}

impl std::fmt::Debug for SysSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SysSchema").finish_non_exhaustive()
    }
}

impl SysSchema {
    pub fn new(source: SysSource) -> Self {
        Self { source: Arc::new(source) }
    }
}

impl SysSource {
    fn state(&self, session: &dyn Session) -> SysState {
        let catalog = self.catalog.current();
        let sources = catalog.sources.iter().map(|(name, entry)| SourceState {
            id: entry.id,
            name: name.clone(),
            status: self.jobs.handle(entry.id).map(|handle| handle.status()),
            view: self.views.iter().find(|view| view.source_id == entry.id).cloned(),
        });
        let scope = session.config_options().extensions.get::<StatementScope>();
        let settings = settings::described().map(|(name, default, doc)| SettingState {
            name,
            value: scope.and_then(|scope| scope.vars.settings.get(name)).map_or(default, String::as_str).to_owned(),
            default: default.to_owned(),
            doc,
        });
        SysState {
            now_ms: self.clock.now_ms(),
            store: self.store.clone(),
            statistics: Arc::clone(&self.statistics),
            object_cache: self.object_cache.clone(),
            sources: sources.collect(),
            settings: settings.collect(),
            catalog,
        }
    }
}

#[async_trait]
impl SchemaProvider for SysSchema {
    fn table_names(&self) -> Vec<String> {
        views().iter().map(|view| view.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let view = views().iter().find(|view| view.name() == name);
        Ok(view.map(|view| Arc::new(SysTable { view: *view, source: self.source.clone() }) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        views().iter().any(|view| view.name() == name)
    }
}

struct SysTable {
    view: &'static dyn SysView,
    source: Arc<SysSource>,
}

impl std::fmt::Debug for SysTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SysTable(sys.{})", self.view.name())
    }
}

#[async_trait]
impl TableProvider for SysTable {
    fn schema(&self) -> SchemaRef {
        schema_of(self.view.columns())
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let state = self.source.state(session);
        let rows = self.view.rows(&state).await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let batch = batch_of(self.view.columns(), &rows).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let schema = batch.schema();
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], schema, projection.cloned())?)
    }
}
