//! From the state of the database to what DataFusion runs a statement in.
//!
//! One [`QueryRuntime`] for the process: the memory pool, disk for spilling, caches, and every function, registered once. A
//! connection has its [`SessionVars`]; a statement gets a [`SessionContext`] over the [`MirrorCatalog`] of the checkpoints it reads.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList, SchemaProvider};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionState;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate_cdc::capture::{SourceView, TableView};
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::caching::{CacheOptions, CacheWatch, Caching};
use tidegate_storage::store::checked::Checked;

use crate::pg_catalog::{self, StaticTables};
use crate::table::{KeyOrder, MirrorCatalog, MirrorTable, SEARCH_PATH_SCHEMA, STORE_URL, ScanCache, SessionCatalog};

/// The name that `version()` gives, after PostgreSQL's own which clients parse.
pub const SERVER_VERSION: &str = "16.6";

/// What queries may use, all of them together.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Bytes of operators that can grow (sorts, joins, groups). What does not fit is spilled to disk.
    pub memory_bytes: usize,
    /// Where to spill; the system's directory of temporary files if not given.
    pub spill_directory: Option<PathBuf>,
    /// Bytes on disk that spilling may take.
    pub spill_bytes: u64,
    /// Bytes of Parquet footers and page indexes that are kept.
    pub metadata_cache_bytes: usize,
    /// Parts of tables' objects that are kept at hand; nothing is if it is not given, as for a store on the local disk.
    pub object_cache: Option<CacheOptions>,
    /// Tasks that one query is spread over.
    pub target_partitions: usize,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            spill_directory: None,
            spill_bytes: 64 << 30,
            metadata_cache_bytes: 128 << 20,
            object_cache: None,
            target_partitions: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// What a connection brings to its statements, as its settings are when the statement starts.
#[derive(Debug, Clone)]
pub struct SessionVars {
    pub user: String,
    pub backend_pid: i32,
    /// Schemas for unqualified names, `$user` already replaced.
    pub search_path: Vec<String>,
    /// An IANA name or an offset (`+00:00`).
    pub time_zone: String,
    /// Values of `SHOW name` and `current_setting(name)`, names in lower case.
    pub settings: BTreeMap<String, String>,
    /// When the server started, and when this transaction and statement did: milliseconds since 1970.
    pub server_start_ms: i64,
    pub statement_start_ms: i64,
}

impl Default for SessionVars {
    fn default() -> Self {
        Self {
            user: "tidegate".to_owned(),
            backend_pid: 0,
            search_path: vec!["public".to_owned()],
            time_zone: "UTC".to_owned(),
            settings: BTreeMap::new(),
            server_start_ms: 0,
            statement_start_ms: 0,
        }
    }
}

/// Everything queries share.
pub struct QueryRuntime {
    env: Arc<RuntimeEnv>,
    cache: Arc<ScanCache>,
    objects: Option<CacheWatch>,
    statics: Arc<StaticTables>,
    base: SessionState,
}

impl std::fmt::Debug for QueryRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryRuntime").finish_non_exhaustive()
    }
}

impl QueryRuntime {
    /// A runtime whose tables lie in `store`.
    pub fn new(store: StoreRef, options: &RuntimeOptions) -> Result<Arc<Self>> {
        let spill = DiskManagerBuilder::default()
            .with_mode(match &options.spill_directory {
                Some(directory) => DiskManagerMode::Directories(vec![directory.clone()]),
                None => DiskManagerMode::OsTmpDirectory,
            })
            .with_max_temp_directory_size(options.spill_bytes);
        // Names the largest consumers in the error of a query that does not fit.
        let pool = TrackConsumersPool::new(
            FairSpillPool::new(options.memory_bytes),
            std::num::NonZeroUsize::MIN.saturating_add(4),
        );
        let env = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(spill)
            .with_metadata_cache_limit(options.metadata_cache_bytes)
            .build_arc()?;
        let (store, objects) = match &options.object_cache {
            Some(options) => {
                let (caching, watch) = Caching::new(store, options.clone());
                (Arc::new(caching) as StoreRef, Some(watch))
            }
            None => (store, None),
        };
        env.register_object_store(ObjectStoreUrl::parse(STORE_URL)?.as_ref(), Arc::new(Checked::new(store)));

        let mut config = SessionConfig::new()
            .with_target_partitions(options.target_partitions.max(1))
            .with_information_schema(false)
            .with_create_default_catalog_and_schema(false);
        let settings = config.options_mut();
        // Filters prune files, row groups and pages, and are then applied to whole batches: evaluating them row by row
        // inside the decoder made an aggregate over a range of customers twice as slow as the same on plain files.
        settings.execution.parquet.pushdown_filters = false;
        settings.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
        settings.sql_parser.parse_float_as_decimal = true;

        let statics = Arc::new(StaticTables::load()?);
        let builder =
            SessionStateBuilder::new().with_config(config).with_runtime_env(Arc::clone(&env)).with_default_features();
        let rules = KeyOrder::among(PhysicalOptimizer::new().rules);
        let base = pg_catalog::install(builder.with_physical_optimizer_rules(rules)).build();
        Ok(Arc::new(Self { env, cache: Arc::new(ScanCache::default()), objects, statics, base }))
    }

    /// The environment that plans are executed in.
    pub fn env(&self) -> &Arc<RuntimeEnv> {
        &self.env
    }

    /// What is kept of the tables' objects, if anything is.
    pub fn object_cache(&self) -> Option<&CacheWatch> {
        self.objects.as_ref()
    }

    /// One version of a table, to be read outside of a catalog.
    pub fn table(&self, name: &str, version: Arc<tidegate_storage::table::TableVersion>) -> MirrorTable {
        MirrorTable::new(name, version, Arc::clone(&self.cache))
    }

    /// The catalog of `database` over one view of each source; see [`MirrorCatalog`]. To be kept while the views stay the same.
    pub fn catalog(
        &self,
        database: impl Into<String>,
        views: &[Arc<SourceView>],
        percent: &dyn Fn(&SourceView, &TableView) -> Option<u8>,
        sys: Option<Arc<dyn SchemaProvider>>,
    ) -> Arc<MirrorCatalog> {
        Arc::new(MirrorCatalog::new(database, views, percent, sys, &self.cache, &self.statics))
    }

    /// What one statement is planned and run in.
    pub fn session(&self, catalog: &Arc<MirrorCatalog>, vars: &Arc<SessionVars>) -> SessionContext {
        let mut config =
            self.base.config().clone().with_default_catalog_and_schema(catalog.database(), SEARCH_PATH_SCHEMA);
        let settings = config.options_mut();
        settings.execution.time_zone = Some(vars.time_zone.clone());
        settings.extensions.insert(StatementScope { catalog: Arc::clone(catalog), vars: Arc::clone(vars) });
        let list = MemoryCatalogProviderList::new();
        list.register_catalog(
            catalog.database().to_owned(),
            Arc::new(SessionCatalog {
                catalog: Arc::clone(catalog),
                search_path: vars.search_path.clone(),
                vars: Arc::clone(vars),
            }),
        );
        let state = SessionStateBuilder::new_from_existing(self.base.clone())
            .with_config(config)
            .with_catalog_list(Arc::new(list))
            .build();
        SessionContext::new_with_state(state)
    }

    /// A session that plans and runs like any other, over the tables that its holder registers.
    pub fn bare_session(&self, config: SessionConfig) -> SessionContext {
        let rules = self.base.physical_optimizers().to_vec();
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&self.env))
            .with_default_features()
            .with_physical_optimizer_rules(rules);
        SessionContext::new_with_state(state.build())
    }
}

/// What functions that look at the catalog or the session (`pg_get_userbyid`, `current_setting`) find in the configuration they
/// are called with.
#[derive(Debug, Clone)]
pub(crate) struct StatementScope {
    pub(crate) catalog: Arc<MirrorCatalog>,
    pub(crate) vars: Arc<SessionVars>,
}

impl ConfigExtension for StatementScope {
    const PREFIX: &'static str = "tidegate";
}

impl ExtensionOptions for StatementScope {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("tidegate.{key} cannot be set")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
