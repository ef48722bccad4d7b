//! What all files of a table share at one time: where they lie and the schema rows are written with.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::path::Path;
use tokio::runtime::Handle;

use super::keys::KeyCodec;
use super::names::Names;
use super::{TableOptions, WriterContext};
use crate::error::{Error, Result};
use crate::paimon::{DataType, TablePaths, TableSchema};
use crate::store::on_runtime::OnRuntime;
use crate::store::{self, Pieces, StoreRef};

/// Shared by the flushes and merges of one table; replaced when its schema changes.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) ctx: WriterContext,
    pub(crate) paths: TablePaths,
    pub(crate) names: Arc<Names>,
    pub(crate) options: TableOptions,
    /// The newest schema.
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) arrow_schema: SchemaRef,
    /// Every schema that a live file was written with.
    pub(crate) schemas: Arc<BTreeMap<u64, Arc<TableSchema>>>,
    pub(crate) codec: Arc<KeyCodec>,
    /// Columns of the key, in key order.
    pub(crate) key_columns: Vec<usize>,
    pub(crate) key_types: Vec<DataType>,
    /// Whether changes are written to a changelog, too.
    pub(crate) changelog: bool,
}

impl Layout {
    pub(crate) fn new(
        ctx: WriterContext,
        path: Path,
        names: Arc<Names>,
        options: TableOptions,
        schema: Arc<TableSchema>,
        schemas: Arc<BTreeMap<u64, Arc<TableSchema>>>,
    ) -> Result<Self> {
        let key_types = schema.key_types();
        let codec = Arc::new(KeyCodec::new(key_types.iter().map(DataType::arrow).collect())?);
        Ok(Self {
            ctx,
            paths: TablePaths::new(path),
            names,
            options,
            arrow_schema: schema.arrow_schema(),
            schemas,
            codec,
            key_columns: schema.key_indices(),
            key_types,
            changelog: schema.has_changelog()?,
            schema,
        })
    }

    /// The same, for threads that stand back: requests are carried out by the current runtime.
    pub(crate) fn on_runtime(&self) -> Self {
        let store = Arc::new(OnRuntime::new(Arc::clone(&self.ctx.store), Handle::current()));
        Self { ctx: WriterContext { store, ..self.ctx.clone() }, ..self.clone() }
    }

    pub(crate) fn store(&self) -> &StoreRef {
        &self.ctx.store
    }

    /// The key columns of rows of the newest schema.
    pub(crate) fn key_arrays(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.key_columns.iter().map(|column| batch.column(*column).clone()).collect()
    }

    /// The name of the local file with the keys of a data file.
    pub(crate) fn key_file(&self, data_file: &str) -> String {
        format!("{}/{data_file}.keys", self.paths.root())
    }

    /// Writes a new object. Names are never used twice, so there is nothing to overwrite.
    pub(crate) async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        store::write(&**self.store(), path, Bytes::from(bytes)).await
    }

    /// Writes a new object that was made in pieces.
    pub(crate) async fn put_pieces(&self, path: &Path, pieces: Pieces) -> Result<()> {
        store::write_pieces(&**self.store(), path, pieces.finish()).await
    }
}

/// Reads a whole object.
pub(crate) async fn get(store: &StoreRef, path: &Path) -> Result<Bytes> {
    store::read(&**store, path).await
}

/// The numbers of the objects called `<prefix><n>` in a directory, ascending.
pub(crate) async fn numbers(store: &StoreRef, directory: &Path, prefix: &str) -> Result<Vec<u64>> {
    let listed = store
        .list_with_delimiter(Some(directory))
        .await
        .map_err(|error| Error::from_store(directory.as_ref(), "listed", error))?;
    let names = listed.objects.iter().filter_map(|object| object.location.filename());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
