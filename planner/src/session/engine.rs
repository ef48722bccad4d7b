//! What all sessions share: the catalog, the jobs, the query runtime, and the newest state of the database.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_cdc::capture::{SourceView, TableView, load_view};
use tidegate_storage::clock::Clock;
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::measured::Statistics;
use uuid::Uuid;

use super::execute::{Session, SessionOptions};
use crate::catalog::definition::{Maker, source_definition};
use crate::catalog::sealing::{Entropy, Sealer};
use crate::catalog::store::CatalogStore;
use crate::catalog::{Catalog, SourceEntry};
use crate::context::{QueryRuntime, RuntimeOptions};
use crate::error::SqlError;
use crate::jobs::Jobs;
use crate::sys::{SysSchema, SysSource};
use crate::table::MirrorCatalog;

/// What an engine is made of.
pub struct EngineOptions {
    pub store: StoreRef,
    /// What is asked of the store.
    pub statistics: Arc<Statistics>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub jobs: Arc<dyn Jobs>,
    /// File with the key of the secrets. It is created if it does not exist, and lies outside the store.
    pub key_file: PathBuf,
    /// The key itself, as 64 hexadecimal digits, in place of the file.
    pub key: Option<String>,
    pub runtime: RuntimeOptions,
}

/// The newest catalog of tables, and the views it was made of.
struct Newest {
    views: Vec<Arc<SourceView>>,
    database: String,
    catalog: Arc<MirrorCatalog>,
}

/// The SQL side of a server.
pub struct Engine {
    pub(super) store: StoreRef,
    pub(super) statistics: Arc<Statistics>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) jobs: Arc<dyn Jobs>,
    pub(super) sealer: Sealer,
    pub(super) catalog: Arc<CatalogStore>,
    pub(super) runtime: Arc<QueryRuntime>,
    /// What sources without a job had at their last checkpoint.
    idle: Mutex<BTreeMap<Uuid, Arc<SourceView>>>,
    newest: Mutex<Option<Newest>>,
    pub(super) started_at_ms: i64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Reads the catalog and starts the sources that are not paused. A source that cannot be started keeps no other from it.
    pub async fn open(options: EngineOptions) -> Result<Arc<Self>, SqlError> {
        let sealer = match &options.key {
            Some(key) => Sealer::from_hex(key)?,
            None => Sealer::from_file(&options.key_file, options.entropy.as_ref())?,
        };
        let runtime = QueryRuntime::new(options.store.clone(), &options.runtime)
            .map_err(|error| SqlError::internal(format!("the query engine cannot be started: {error}")))?;
        let engine = Arc::new(Self {
            catalog: Arc::new(CatalogStore::open(options.store.clone()).await?),
            started_at_ms: options.clock.now_ms(),
            store: options.store,
            statistics: options.statistics,
            clock: options.clock,
            entropy: options.entropy,
            jobs: options.jobs,
            sealer,
            runtime,
            idle: Mutex::default(),
            newest: Mutex::new(None),
        });
        let catalog = engine.catalog.current();
        for (name, source) in &catalog.sources {
            // What is durable can be read from the first connection on, before the job has reached anything.
            engine.load_idle(name, source.id).await;
            if source.paused {
                continue;
            }
            if let Err(error) = engine.start(&catalog, name, source) {
                tracing::error!(source = name, error = %error, "a source cannot be started");
            }
        }
        Ok(engine)
    }

    /// A session for a new connection.
    pub fn session(self: &Arc<Self>, options: SessionOptions) -> Session {
        Session::new(self.clone(), options)
    }

    /// What is defined now.
    pub fn definitions(&self) -> Arc<Catalog> {
        self.catalog.current()
    }

    pub(super) fn maker(&self) -> Maker<'_> {
        Maker { sealer: &self.sealer, entropy: self.entropy.as_ref(), now_ms: self.clock.now_ms() }
    }

    /// Starts the job of a source.
    pub(super) fn start(&self, catalog: &Catalog, name: &str, source: &SourceEntry) -> Result<(), SqlError> {
        let definition = source_definition(catalog, name, source, &self.sealer)?;
        self.jobs.start(definition);
        Ok(())
    }

    /// Stops the job of a source; what it had last stays readable.
    pub(super) async fn stop(&self, name: &str, source: Uuid) {
        let view = self.jobs.handle(source).map(|handle| handle.view()).filter(|view| view.checkpoint > 0);
        if let Some(view) = view {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).insert(source, view);
        }
        self.jobs.stop(source).await;
        // The job's last checkpoint may have come after the view was taken.
        self.load_idle(name, source).await;
    }

    pub(super) fn forget(&self, source: Uuid) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }

    async fn load_idle(&self, name: &str, source: Uuid) {
        match load_view(&self.store, source, name).await {
            Ok(Some(view)) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).insert(source, Arc::new(view));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(source = name, error = %error, "the last checkpoint of a source cannot be read")
            }
        }
    }

    /// The newest view of each source, in the order of their names.
    pub(super) fn views(&self) -> Vec<Arc<SourceView>> {
        let catalog = self.catalog.current();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let view = |source: &SourceEntry| {
            let running = self.jobs.handle(source.id).map(|handle| handle.view());
            // A job that has not recovered yet knows less than what was there when it stopped.
            match running {
                Some(view) if view.checkpoint > 0 => Some(view),
                running => idle.get(&source.id).cloned().or(running),
            }
        };
        catalog.sources.values().filter_map(view).collect()
    }

    /// The tables as the newest checkpoints have them.
    pub(super) fn newest(&self, database: &str) -> Arc<MirrorCatalog> {
        let views = self.views();
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = newest.as_ref()
            && newest.database == database
            && newest.views.len() == views.len()
            && newest.views.iter().zip(&views).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return newest.catalog.clone();
        }
        let sys = SysSchema::new(SysSource {
            store: self.store.clone(),
            statistics: Arc::clone(&self.statistics),
            object_cache: self.runtime.object_cache().cloned(),
            clock: self.clock.clone(),
            catalog: self.catalog.clone(),
            jobs: self.jobs.clone(),
            views: views.clone(),
        });
        let percent = |view: &SourceView, table: &TableView| self.percent(view, table);
        let catalog = self.runtime.catalog(database, &views, &percent, Some(Arc::new(sys)));
        *newest = Some(Newest { views, database: database.to_owned(), catalog: catalog.clone() });
        catalog
    }

    /// How much of a table's first snapshot has been read.
    fn percent(&self, view: &SourceView, table: &TableView) -> Option<u8> {
        let status = self.jobs.handle(view.source_id)?.status();
        let name = format!("{}.{}", table.schema_name, table.table_name);
        let table = status.tables.iter().find(|table| table.name == name)?;
        let share = table.rows_read.saturating_mul(100).checked_div(table.estimated_rows)?;
        u8::try_from(share.min(99)).ok()
    }
}
