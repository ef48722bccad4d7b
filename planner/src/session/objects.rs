//! Secrets, connections and what is the same for all objects: DROP and SHOW CREATE.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidegate_storage::checkpoint::{CheckpointLog, retire, retired_path};
use uuid::Uuid;

use super::execute::{Session, place};
use super::outcome::{Notice, Outcome, RowsTag};
use crate::catalog::{SourceEntry, StoredOption, StoredValue, create_connection_text, create_source_text};
use crate::error::{SqlError, sqlstate};
use crate::sql::statement::{CreateConnection, CreateSecret, DroppedData, Name, ObjectKind};

pub(super) fn undefined(kind: ObjectKind, name: &Name) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("{} \"{}\" does not exist", kind.noun(), name.value))
        .with_hint(format!("SHOW {}S lists those there are.", kind.keyword()))
        .at(name.position)
}

pub(super) fn duplicate(kind: ObjectKind, name: &Name) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("{} \"{}\" already exists", kind.noun(), name.value))
        .at(name.position)
}

pub(super) fn skipped(kind: ObjectKind, name: &Name) -> Notice {
    Notice::info(format!("{} \"{}\" already exists, skipping", kind.noun(), name.value))
}

impl Session {
    pub(super) async fn create_secret(&mut self, create: &CreateSecret) -> Result<Outcome, SqlError> {
        let entry = self.engine.maker().secret(create)?;
        let name = &create.name;
        let created = self.engine.catalog.change(|catalog| {
            if catalog.secrets.contains_key(&name.value) {
                return if create.if_not_exists { Ok(false) } else { Err(duplicate(ObjectKind::Secret, name)) };
            }
            catalog.secrets.insert(name.value.clone(), entry.clone());
            Ok(true)
        });
        let tag = "CREATE SECRET";
        Ok(if created.await? {
            Outcome::command(tag)
        } else {
            Outcome::noticed(tag, skipped(ObjectKind::Secret, name))
        })
    }

    pub(super) async fn create_connection(&mut self, create: &CreateConnection) -> Result<Outcome, SqlError> {
        let entry = self.engine.maker().connection(create)?;
        let name = &create.name;
        let created = self.engine.catalog.change(|catalog| {
            if catalog.connections.contains_key(&name.value) {
                return if create.if_not_exists { Ok(false) } else { Err(duplicate(ObjectKind::Connection, name)) };
            }
            require_secrets(&entry.options, |secret| catalog.secrets.contains_key(secret))
                .map_err(|error| place(error, name.position))?;
            catalog.connections.insert(name.value.clone(), entry.clone());
            Ok(true)
        });
        let tag = "CREATE CONNECTION";
        Ok(if created.await? {
            Outcome::command(tag)
        } else {
            Outcome::noticed(tag, skipped(ObjectKind::Connection, name))
        })
    }

    pub(super) async fn drop_object(
        &mut self,
        kind: ObjectKind,
        name: &Name,
        if_exists: bool,
        data: DroppedData,
    ) -> Result<Outcome, SqlError> {
        let tag = format!("DROP {}", kind.keyword());
        let in_use = |users: Vec<String>| {
            if users.is_empty() {
                return Ok(());
            }
            let error = format!("cannot drop {} \"{}\" because other objects depend on it", kind.noun(), name.value);
            Err(SqlError::new(sqlstate::DEPENDENT_OBJECTS, error)
                .with_detail(format!("Used by {}.", users.join(", ")))
                .with_hint("Drop those first.")
                .at(name.position))
        };
        let dropped = self.engine.catalog.change(|catalog| {
            let mut source = None;
            let found = match kind {
                ObjectKind::Secret => {
                    in_use(catalog.users_of_secret(&name.value))?;
                    catalog.secrets.remove(&name.value).is_some()
                }
                ObjectKind::Connection => {
                    in_use(catalog.users_of_connection(&name.value))?;
                    catalog.connections.remove(&name.value).is_some()
                }
                ObjectKind::Source => {
                    source = catalog.sources.remove(&name.value);
                    source.is_some()
                }
            };
            if found || if_exists { Ok((found, source)) } else { Err(undefined(kind, name)) }
        });
        let (found, source) = dropped.await?;
        if !found {
            let notice = Notice::info(format!("{} \"{}\" does not exist, skipping", kind.noun(), name.value));
            return Ok(Outcome::noticed(tag, notice));
        }
        let Some(source) = source else { return Ok(Outcome::command(tag)) };
        self.engine.jobs.stop(source.id).await;
        self.engine.forget(source.id);
        // Other servers on the store may have read the catalog before: the mark tells them.
        retire(&self.engine.store, source.id).await.map_err(|error| {
            SqlError::new(sqlstate::IO_ERROR, format!("the source could not be marked as dropped: {error}"))
        })?;
        match data {
            DroppedData::Keep => Ok(Outcome::noticed(tag, kept(&source))),
            DroppedData::Purge => {
                self.purge(source.id).await.map_err(|error| {
                    error.with_hint(format!(
                        "The source is dropped; objects below \"sources/{}\" can be deleted by hand.",
                        source.id
                    ))
                })?;
                Ok(Outcome::command(tag))
            }
        }
    }

    /// Deletes the mirrored tables of a source, then its checkpoints, which know where the tables are.
    async fn purge(&self, source: Uuid) -> Result<(), SqlError> {
        let failed = |error: &dyn std::error::Error| {
            SqlError::new(sqlstate::IO_ERROR, format!("the source's data cannot be deleted: {error}"))
        };
        let store = &self.engine.store;
        let log = CheckpointLog::new(store.clone(), source);
        let state = log.recover().await.map_err(|error| failed(&error))?;
        let mut prefixes: Vec<Path> =
            state.iter().flat_map(|state| state.tables.values()).map(|table| Path::from(table.path.as_str())).collect();
        prefixes.push(Path::from(format!("sources/{source}")));
        for prefix in prefixes {
            let objects: Vec<_> =
                store.list(Some(&prefix)).try_collect().await.map_err(|error: object_store::Error| failed(&error))?;
            for object in objects.into_iter().filter(|object| object.location != retired_path(source)) {
                match store.delete(&object.location).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed(&error)),
                }
            }
        }
        Ok(())
    }

    pub(super) fn show_create(&self, kind: ObjectKind, name: &Name) -> Result<Outcome, SqlError> {
        let catalog = self.engine.catalog.current();
        let text = match kind {
            ObjectKind::Source => {
                catalog.sources.get(&name.value).map(|source| create_source_text(&name.value, source))
            }
            ObjectKind::Connection => {
                catalog.connections.get(&name.value).map(|connection| create_connection_text(&name.value, connection))
            }
            ObjectKind::Secret => None,
        };
        let text = text.ok_or_else(|| undefined(kind, name))?;
        Outcome::texts(&["name", "create_statement"], &[vec![name.value.clone(), text]], RowsTag::Named("SHOW"))
    }
}

fn kept(source: &SourceEntry) -> Notice {
    Notice::info("the mirrored data is kept in the store").with_detail(format!(
        "The source's checkpoints are below \"sources/{}\". DROP SOURCE … PURGE DATA deletes checkpoints and tables.",
        source.id
    ))
}

/// That every secret an object names is there.
pub(super) fn require_secrets(options: &[StoredOption], exists: impl Fn(&str) -> bool) -> Result<(), SqlError> {
    for option in options {
        if let StoredValue::Secret(secret) = &option.value
            && !exists(secret)
        {
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("secret \"{secret}\" does not exist"))
                .with_hint(format!("CREATE SECRET {secret} AS '…';")));
        }
    }
    Ok(())
}
