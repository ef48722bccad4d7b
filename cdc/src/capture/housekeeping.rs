//! What is old goes while a job runs: snapshots of its tables, its checkpoint records, and orphans.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidegate_storage::checkpoint::CheckpointLog;
use tidegate_storage::clock::Clock;
use tidegate_storage::store::StoreRef;
use tidegate_storage::table::{Holder, Retention, TableVersion, expire_snapshots, remove_orphans};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use super::held;
use super::job::StatusBoard;
use super::state::SourceState;
use super::status::{ErrorInfo, TableRetention};
use super::view::{SourceView, TableView};
use crate::error::{Code, Error};

/// Between two rounds at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Between two rounds at least.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// Tables without a new snapshot are looked at so often at least: what they have gets older.
const QUIET_TABLES_EVERY: Duration = Duration::from_secs(60);
/// Over how long the deletions of one table are spread at most.
const LONGEST_SPREAD: Duration = Duration::from_secs(4);
/// Checkpoint records stay at least so long: a writer that was fenced off has noticed by then.
const RECORDS_RETAINED_MS: i64 = 600_000;
/// From the start of a session until orphans are looked for: it lists every object, which is not for each reconnection.
const FIRST_ORPHANS_MS: i64 = 600_000;
/// Between two searches for orphans.
const ORPHANS_EVERY_MS: i64 = 86_400_000;

/// The versions that were shown to readers of this process, as long as one of them is on it.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<Versions>);

/// By table and snapshot. A snapshot is loaded anew by each session, and readers may be on any of its versions.
type Versions = BTreeMap<String, BTreeMap<u64, Vec<Weak<TableVersion>>>>;

/// Drops the versions that nobody is on.
fn forget(versions: &mut BTreeMap<u64, Vec<Weak<TableVersion>>>) {
    versions.retain(|_, versions| {
        versions.retain(|version| version.strong_count() > 0);
        !versions.is_empty()
    });
}

impl Shown {
    /// Remembers the versions of a view before readers get it.
    pub(super) fn note(&self, view: &SourceView) {
        let mut tables = self.lock();
        for version in view.tables.iter().filter_map(|table| table.version.as_ref()) {
            let versions = tables.entry(version.path.to_string()).or_default();
            let loaded = versions.entry(version.snapshot_id).or_default();
            if !loaded.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(version))) {
                loaded.push(Arc::downgrade(version));
            }
            if versions.len().is_multiple_of(64) {
                forget(versions);
            }
        }
    }

    /// The oldest snapshot of the table at `path` that a reader may be on.
    fn oldest(&self, path: &str) -> Option<u64> {
        let mut tables = self.lock();
        let versions = tables.get_mut(path)?;
        forget(versions);
        versions.keys().next().copied()
    }

    fn lock(&self) -> MutexGuard<'_, Versions> {
        // Every change under the lock is whole by itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Housekeeper {
    pub(super) store: StoreRef,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) source: String,
    pub(super) source_id: Uuid,
    pub(super) log: CheckpointLog,
    pub(super) retention: Retention,
    pub(super) shown: Arc<Shown>,
    pub(super) views: watch::Receiver<Arc<SourceView>>,
    pub(super) status: StatusBoard,
}

impl Housekeeper {
    /// Runs until it is dropped. What fails is tried again in the next round; nothing that is needed depends on it.
    pub(super) async fn run(self) {
        let retained = Duration::from_millis(u64::try_from(self.retention.time_retained_ms).unwrap_or(0));
        let pause = (retained / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut orphans_at = self.clock.now_ms() + FIRST_ORPHANS_MS;
        let mut records_expired: Option<Instant> = None;
        let mut tidied: HashMap<String, (u64, Instant)> = HashMap::new();
        loop {
            tokio::time::sleep(pause).await;
            let view = Arc::clone(&self.views.borrow());
            let orphans = self.clock.now_ms() >= orphans_at;
            // All of them in a quarter of the time until the next round.
            let tables = u32::try_from(view.tables.len()).unwrap_or(u32::MAX).max(1);
            let spread = (pause / 4 / tables).min(LONGEST_SPREAD);
            let retention = Retention { spread, ..self.retention.clone() };
            for table in &view.tables {
                let Some(version) = &table.version else { continue };
                let last = tidied.get(version.path.as_ref());
                let is_quiet = |(snapshot, at): &(u64, Instant)| {
                    *snapshot == version.snapshot_id && at.elapsed() < QUIET_TABLES_EVERY.min(retained / 10)
                };
                if !orphans && last.is_some_and(is_quiet) {
                    continue;
                }
                match self.tidy(table, version, &retention, orphans).await {
                    Ok(()) => drop(tidied.insert(version.path.to_string(), (version.snapshot_id, Instant::now()))),
                    Err(error) => self.report(&error, Some(table)),
                }
            }
            if orphans {
                if let Err(error) = self.tidy_held().await {
                    self.report(&error, None);
                }
                orphans_at = self.clock.now_ms().saturating_add(ORPHANS_EVERY_MS);
            }
            if records_expired.is_some_and(|at| at.elapsed() < QUIET_TABLES_EVERY.min(retained / 10)) {
                continue;
            }
            records_expired = Some(Instant::now());
            let before = self.clock.now_ms() - self.retention.time_retained_ms.max(RECORDS_RETAINED_MS);
            if let Err(error) = self.log.expire(before).await {
                self.report(&error.into(), None);
            }
        }
    }

    async fn tidy(
        &self,
        table: &TableView,
        version: &TableVersion,
        retention: &Retention,
        orphans: bool,
    ) -> Result<(), Error> {
        let path = &version.path;
        let oldest_read = self.shown.oldest(path.as_ref());
        let now = self.clock.now_ms();
        let expired = expire_snapshots(&self.store, path, now, retention, oldest_read).await?;
        let name = format!("{}.{}", table.schema_name, table.table_name);
        self.status.update(|status| {
            let entry = match status.retention.iter_mut().find(|entry| entry.name == name) {
                Some(entry) => entry,
                None => {
                    let entry = TableRetention { name: name.clone(), ..TableRetention::default() };
                    status.retention.push(entry);
                    status.retention.last_mut().expect("an entry was just added")
                }
            };
            entry.earliest_snapshot = expired.earliest;
            entry.latest_snapshot = version.snapshot_id;
            entry.expired_snapshots += expired.snapshots as u64;
            entry.deleted_objects += expired.objects as u64;
            // Whoever is on the newest snapshot holds nothing back.
            entry.holds = expired.holds;
            entry.holds.retain(|hold| hold.holder != Holder::Reader || hold.snapshot_id < version.snapshot_id);
        });
        if orphans && let Some(state) = self.log.recover().await? {
            let prepared = state.prepared_snapshots(path.as_ref());
            let removed = remove_orphans(&self.store, path, now, retention, &prepared).await?;
            if removed.objects > 0 {
                let (objects, bytes) = (removed.objects, removed.bytes);
                info!(
                    source = self.source,
                    table = name,
                    objects,
                    bytes,
                    "objects that nothing refers to were deleted"
                );
            }
        }
        Ok(())
    }

    /// Rows of XA transactions that no checkpoint refers to.
    async fn tidy_held(&self) -> Result<(), Error> {
        let Some(state) = self.log.recover().await? else { return Ok(()) };
        let source: SourceState = serde_json::from_value(state.capture).map_err(|error| {
            Error::new(Code::StoreCorrupt, format!("checkpoint {} is not understood", state.number)).with_source(error)
        })?;
        let needed = source.held.into_values().flat_map(|held| held.parts).map(|part| part.object).collect();
        let before = self.clock.now_ms() - self.retention.orphan_age_ms;
        let removed = held::remove_orphans(&self.store, self.source_id, &needed, before).await?;
        if removed > 0 {
            info!(
                source = self.source,
                objects = removed,
                "rows of XA transactions that nothing refers to were deleted"
            );
        }
        Ok(())
    }

    fn report(&self, error: &Error, table: Option<&TableView>) {
        let name = table.map(|table| format!("{}.{}", table.schema_name, table.table_name));
        warn!(source = self.source, table = name, code = %error.code, %error, "what is old could not be deleted; it is tried again");
        self.status.record(ErrorInfo::new(error, name.as_deref(), self.clock.now_ms()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(snapshot_id: u64) -> Arc<TableVersion> {
        let schema = tidegate_storage::paimon::TableSchema {
            id: 0,
            highest_field_id: 0,
            fields: Vec::new(),
            primary_keys: Vec::new(),
            options: BTreeMap::new(),
            comment: None,
            time_millis: 0,
        };
        Arc::new(TableVersion {
            path: "shop/orders".into(),
            schema: Arc::new(schema),
            schemas: Arc::default(),
            snapshot_id,
            buckets: 1,
            files: Vec::new(),
        })
    }

    fn view(version: &Arc<TableVersion>) -> SourceView {
        let table = TableView {
            schema_name: "shop".to_owned(),
            table_name: "orders".to_owned(),
            visible: true,
            complete: true,
            version: Some(Arc::clone(version)),
            mysql: crate::mysql::types::MysqlTable {
                database: "shop".to_owned(),
                name: "orders".to_owned(),
                columns: Vec::new(),
                primary_key: Vec::new(),
            },
            merges: None,
        };
        SourceView { tables: vec![Arc::new(table)], ..SourceView::empty("shop", uuid::Uuid::nil()) }
    }

    #[test]
    fn a_version_counts_as_long_as_somebody_has_it() {
        let shown = Shown::default();
        let versions: Vec<_> = (1..=200).map(version).collect();
        versions.iter().for_each(|version| shown.note(&view(version)));
        assert_eq!(shown.oldest("shop/orders"), Some(1));
        assert_eq!(shown.oldest("shop/others"), None);
        let reader = Arc::clone(&versions[41]);
        let newest = versions.last().cloned();
        drop(versions);
        assert_eq!(shown.oldest("shop/orders"), Some(42));
        drop(reader);
        assert_eq!(shown.oldest("shop/orders"), Some(200));
        drop(newest);
        assert_eq!(shown.oldest("shop/orders"), None);
    }

    #[test]
    fn a_version_counts_though_its_snapshot_was_loaded_again() {
        let shown = Shown::default();
        let before = version(7);
        shown.note(&view(&before));
        shown.note(&view(&version(7)));
        shown.note(&view(&version(8)));
        assert_eq!(shown.oldest("shop/orders"), Some(7));
        drop(before);
        assert_eq!(shown.oldest("shop/orders"), None);
    }
}
