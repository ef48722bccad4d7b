//! The tables that a statement sees: those of one checkpoint of each source, the system views and PostgreSQL's catalogs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use tidegate_cdc::capture::{SourceView, TableView};

use super::{MirrorTable, ScanCache};
use crate::error::{SqlError, sqlstate};
use crate::pg_catalog::{InformationSchema, PgCatalog, Relations, StaticTables};

/// Name of the schema that unqualified names resolve in: a search along the session's `search_path`. It is not listed.
pub(crate) const SEARCH_PATH_SCHEMA: &str = "$search_path";

/// Schema of PostgreSQL's own catalogs.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// Schema of the standard's catalogs.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";
/// Schema of the system views.
pub(crate) const SYS: &str = "sys";
/// The schema that every PostgreSQL database has, empty here.
pub(crate) const PUBLIC: &str = "public";

/// A captured table under the name it is queried by.
#[derive(Debug, Clone)]
pub(crate) struct MirrorEntry {
    /// The source that captures it.
    pub(crate) source: Arc<str>,
    /// How much of its first snapshot has been read, while it cannot be queried yet.
    pub(crate) percent: Option<u8>,
    pub(crate) table: Option<Arc<MirrorTable>>,
}

/// One state of the database: immutable, shared by every statement that reads at the same checkpoints.
pub struct MirrorCatalog {
    database: String,
    schemas: BTreeMap<String, BTreeMap<String, MirrorEntry>>,
    sys: Option<Arc<dyn SchemaProvider>>,
    statics: Arc<StaticTables>,
    relations: OnceLock<Arc<Relations>>,
}

impl fmt::Debug for MirrorCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorCatalog").field("database", &self.database).finish_non_exhaustive()
    }
}

impl MirrorCatalog {
    /// The catalog of `database` over `views`, one of each source. `percent` says how much of a table (`schema.table`) that cannot
    /// be queried yet has been read. A name that two sources claim belongs to the first.
    pub(crate) fn new(
        database: impl Into<String>,
        views: &[Arc<SourceView>],
        percent: &dyn Fn(&SourceView, &TableView) -> Option<u8>,
        sys: Option<Arc<dyn SchemaProvider>>,
        cache: &Arc<ScanCache>,
        statics: &Arc<StaticTables>,
    ) -> Self {
        let mut schemas: BTreeMap<String, BTreeMap<String, MirrorEntry>> = BTreeMap::new();
        for view in views {
            let source: Arc<str> = view.source.as_str().into();
            for table in &view.tables {
                let version = table.version.as_ref().filter(|_| table.visible);
                let entry = MirrorEntry {
                    source: Arc::clone(&source),
                    percent: if version.is_none() { percent(view, table) } else { None },
                    table: version.map(|version| {
                        let name = format!("{}.{}", table.schema_name, table.table_name);
                        Arc::new(MirrorTable::new(name, Arc::clone(version), Arc::clone(cache)))
                    }),
                };
                schemas.entry(table.schema_name.clone()).or_default().entry(table.table_name.clone()).or_insert(entry);
            }
        }
        Self { database: database.into(), schemas, sys, statics: Arc::clone(statics), relations: OnceLock::new() }
    }

    /// The database's name, which is the catalog's.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The mirrored tables, by schema and name, those that are still loading too.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str, &MirrorEntry)> {
        self.schemas.iter().flat_map(|(schema, tables)| {
            tables.iter().map(move |(table, entry)| (schema.as_str(), table.as_str(), entry))
        })
    }

    pub(crate) fn sys(&self) -> Option<&Arc<dyn SchemaProvider>> {
        self.sys.as_ref()
    }

    pub(crate) fn statics(&self) -> &Arc<StaticTables> {
        &self.statics
    }

    /// What PostgreSQL's catalogs say of this database; made on first use.
    pub(crate) fn relations(&self) -> &Arc<Relations> {
        self.relations.get_or_init(|| Arc::new(Relations::of(self)))
    }

    fn mirror_schema_names(&self) -> impl Iterator<Item = &String> {
        self.schemas
            .iter()
            .filter(|(_, tables)| tables.values().any(|entry| entry.table.is_some()))
            .map(|(name, _)| name)
    }
}

/// A [`MirrorCatalog`] as one connection sees it: with the connection's search path.
#[derive(Debug)]
pub(crate) struct SessionCatalog {
    pub(crate) catalog: Arc<MirrorCatalog>,
    pub(crate) search_path: Vec<String>,
    pub(crate) vars: Arc<crate::context::SessionVars>,
}

impl SessionCatalog {
    fn named(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            PG_CATALOG => Some(Arc::new(PgCatalog::new(&self.catalog, &self.vars))),
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::new(&self.catalog))),
            SYS => self.catalog.sys.clone(),
            _ if name == PUBLIC || self.catalog.schemas.contains_key(name) => {
                Some(Arc::new(MirrorSchema { catalog: Arc::clone(&self.catalog), name: name.to_owned() }))
            }
            _ => None,
        }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.catalog.mirror_schema_names().cloned().collect();
        names.extend([PUBLIC, PG_CATALOG, INFORMATION_SCHEMA].map(str::to_owned));
        if self.catalog.sys.is_some() {
            names.push(SYS.to_owned());
        }
        names.sort();
        names.dedup();
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name != SEARCH_PATH_SCHEMA {
            return self.named(name);
        }
        // PostgreSQL looks into pg_catalog first unless the path says where.
        let explicit = self.search_path.iter().any(|schema| schema == PG_CATALOG);
        let first = (!explicit).then_some(PG_CATALOG);
        let path = first.into_iter().chain(self.search_path.iter().map(String::as_str));
        Some(Arc::new(SearchPath(path.filter_map(|name| self.named(name)).collect())))
    }
}

/// The first schema that has the name gives it.
#[derive(Debug)]
struct SearchPath(Vec<Arc<dyn SchemaProvider>>);

#[async_trait]
impl SchemaProvider for SearchPath {
    fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.iter().flat_map(|schema| schema.table_names()).collect();
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        for schema in &self.0 {
            if let Some(table) = schema.table(name).await? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.iter().any(|schema| schema.table_exist(name))
    }
}

/// The mirrored tables of one MySQL database.
#[derive(Debug)]
struct MirrorSchema {
    catalog: Arc<MirrorCatalog>,
    name: String,
}

impl MirrorSchema {
    fn entry(&self, table: &str) -> Option<&MirrorEntry> {
        self.catalog.schemas.get(&self.name)?.get(table)
    }
}

#[async_trait]
impl SchemaProvider for MirrorSchema {
    fn table_names(&self) -> Vec<String> {
        let tables = self.catalog.schemas.get(&self.name).into_iter().flatten();
        tables.filter(|(_, entry)| entry.table.is_some()).map(|(name, _)| name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.entry(name) {
            None => Ok(None),
            Some(MirrorEntry { table: Some(table), .. }) => Ok(Some(Arc::clone(table) as Arc<dyn TableProvider>)),
            Some(entry) => Err(DataFusionError::External(Box::new(still_loading(&self.name, name, entry)))),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }
}

fn still_loading(schema: &str, table: &str, entry: &MirrorEntry) -> SqlError {
    let progress = entry.percent.map(|percent| format!(" ({percent}%)")).unwrap_or_default();
    SqlError::new(sqlstate::OBJECT_NOT_READY, format!("table {schema}.{table} is still being loaded{progress}"))
        .with_hint(format!("WAIT FOR SOURCE {} SNAPSHOT waits until it can be queried.", quoted(&entry.source)))
}

/// A name as it must be written in SQL.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
