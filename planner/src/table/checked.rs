//! Faults of data files, told by the names of the file and the table.
//!
//! The Parquet source knows neither which table it reads nor, once it decodes pages, which file. [`CheckedSource`] is that source
//! with every error of a file wrapped in a [`FileError`]; all else is passed through. That the bytes are those that were written is
//! checked below, by the store ([`tidegate_storage::store::checked`]).

use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use tidegate_storage::store::checked::{DamagedFile, FOOTER_BYTES};

use super::deletions::DeletedRows;

/// A data file that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("data file {file} of table {table} is missing")]
    Missing { table: Arc<str>, file: String, source: DataFusionError },
    #[error("data file {file} of table {table} is corrupt: {source}")]
    Corrupt { table: Arc<str>, file: String, source: DataFusionError },
    #[error("data file {file} of table {table} cannot be read: {source}")]
    Unreadable { table: Arc<str>, file: String, source: DataFusionError },
}

impl FileError {
    /// The SQLSTATE that PostgreSQL uses for such a fault.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::Corrupt { .. } => "XX001",
            Self::Unreadable { .. } => "58030",
        }
    }

    /// Finds the file error below `error`, if that is what it comes from.
    pub fn find(error: &DataFusionError) -> Option<&Self> {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = match error.downcast_ref::<DataFusionError>() {
                Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
                Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
                Some(DataFusionError::Context(_, inner)) => Some(inner.as_ref()),
                _ => error.source(),
            };
        }
        None
    }
}

/// Which file an error came from. Errors of the query itself (its memory, an overflow) stay as they are.
#[derive(Debug, Clone)]
struct Named {
    table: Arc<str>,
    file: Arc<str>,
}

impl Named {
    fn wrap(&self, error: DataFusionError) -> DataFusionError {
        if FileError::find(&error).is_some() {
            return error;
        }
        let (table, file) = (Arc::clone(&self.table), self.file.to_string());
        let wrapped = match store_error(&error) {
            Some(object_store::Error::NotFound { .. }) => FileError::Missing { table, file, source: error },
            Some(store) if DamagedFile::find(store).is_some() => FileError::Corrupt { table, file, source: error },
            Some(_) => FileError::Unreadable { table, file, source: error },
            None if is_format_error(&error) => FileError::Corrupt { table, file, source: error },
            None => return error,
        };
        DataFusionError::External(Box::new(wrapped))
    }
}

fn store_error(error: &DataFusionError) -> Option<&object_store::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<object_store::Error>() {
            return Some(found);
        }
        next = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::ObjectStore(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::ParquetError(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Context(_, inner)) => Some(inner.as_ref()),
            Some(DataFusionError::ArrowError(inner, _)) => Some(inner.as_ref()),
            _ => match error.downcast_ref::<ParquetError>() {
                Some(ParquetError::External(inner)) => Some(inner.as_ref()),
                _ => match error.downcast_ref::<datafusion::arrow::error::ArrowError>() {
                    Some(datafusion::arrow::error::ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
                    _ => error.source(),
                },
            },
        };
    }
    None
}

fn is_format_error(error: &DataFusionError) -> bool {
    use datafusion::arrow::error::ArrowError;
    match error {
        DataFusionError::ParquetError(_) => true,
        DataFusionError::ArrowError(error, _) => matches!(
            error.as_ref(),
            ArrowError::ParquetError(_)
                | ArrowError::ExternalError(_)
                | ArrowError::InvalidArgumentError(_)
                | ArrowError::ParseError(_)
                | ArrowError::SchemaError(_)
        ),
        // The opener compares the rows of the deletion vector's selection with the file's footer.
        DataFusionError::Execution(message) => message.contains("Parquet") || message.contains("parquet"),
        DataFusionError::Shared(inner) => is_format_error(inner),
        DataFusionError::Context(_, inner) => is_format_error(inner),
        _ => false,
    }
}

/// Readers of files that hand on an error of the store as what it is, also where a footer is read: DataFusion's reader makes a text
/// of it there.
#[derive(Debug)]
pub(crate) struct CheckedReaders {
    store: Arc<dyn ObjectStore>,
    inner: Arc<dyn ParquetFileReaderFactory>,
}

impl CheckedReaders {
    /// The readers of `inner`, which read from `store`.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, inner: Arc<dyn ParquetFileReaderFactory>) -> Self {
        Self { store, inner }
    }
}

impl ParquetFileReaderFactory for CheckedReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        footer: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let object = file.object_meta.clone();
        let inner = self.inner.create_reader(partition, file, footer, metrics)?;
        Ok(Box::new(CheckedReader { store: Arc::clone(&self.store), object, inner }))
    }
}

struct CheckedReader {
    store: Arc<dyn ObjectStore>,
    object: ObjectMeta,
    inner: Box<dyn AsyncFileReader + Send>,
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            if let Ok(metadata) = self.inner.get_metadata(options).await {
                return Ok(metadata);
            }
            let size = self.object.size;
            let end = size.saturating_sub(FOOTER_BYTES as u64)..size;
            match self.store.get_range(&self.object.location, end).await {
                // The store is well, and if it was not before, the footer is at hand now.
                Ok(_) => self.inner.get_metadata(options).await,
                Err(error) => Err(ParquetError::External(Box::new(error))),
            }
        }
        .boxed()
    }
}

/// The Parquet source of one table, with named errors.
#[derive(Clone)]
pub(crate) struct CheckedSource {
    table: Arc<str>,
    /// Which columns of the table the rows of every file are sorted by.
    key: Arc<[usize]>,
    inner: Arc<dyn FileSource>,
}

impl CheckedSource {
    pub(crate) fn new(table: Arc<str>, key: Arc<[usize]>, inner: Arc<dyn FileSource>) -> Self {
        Self { table, key, inner }
    }

    /// The columns of the key, as places in the table's columns, in key order.
    pub(crate) fn key(&self) -> &[usize] {
        &self.key
    }

    fn with(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self { table: Arc::clone(&self.table), key: Arc::clone(&self.key), inner })
    }
}

impl FileSource for CheckedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        // Parquet refuses this: it is read by morsels.
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let inner = self.inner.create_morselizer(store, config, partition)?;
        Ok(Box::new(CheckedMorselizer { table: Arc::clone(&self.table), inner }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        self.with(self.inner.with_batch_size(batch_size))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, t: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(t, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_filters(filters, config)?;
        Ok(FilterPushdownPropagation {
            filters: pushed.filters,
            updated_node: pushed.updated_node.map(|node| self.with(node)),
        })
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(match self.inner.try_pushdown_sort(order, properties)? {
            SortOrderPushdownResult::Exact { inner } => SortOrderPushdownResult::Exact { inner: self.with(inner) },
            SortOrderPushdownResult::Inexact { inner } => SortOrderPushdownResult::Inexact { inner: self.with(inner) },
            SortOrderPushdownResult::Unsupported => SortOrderPushdownResult::Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_projection(projection)?.map(|inner| self.with(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

#[derive(Debug)]
struct CheckedMorselizer {
    table: Arc<str>,
    inner: Box<dyn Morselizer>,
}

impl Morselizer for CheckedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let named = Named { table: Arc::clone(&self.table), file: file.object_meta.location.as_ref().into() };
        let inner = DeletedRows::select(file).and_then(|file| self.inner.plan_file(file));
        let inner = inner.map_err(|error| named.wrap(error))?;
        Ok(Box::new(CheckedPlanner { named, inner }))
    }
}

#[derive(Debug)]
struct CheckedPlanner {
    named: Named,
    inner: Box<dyn MorselPlanner>,
}

impl MorselPlanner for CheckedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { named, inner } = *self;
        let Some(mut plan) = inner.plan().map_err(|error| named.wrap(error))? else {
            return Ok(None);
        };
        let morsels = plan.take_morsels().into_iter();
        let planners = plan.take_ready_planners().into_iter();
        let mut checked = MorselPlan::new()
            .with_morsels(
                morsels
                    .map(|inner| Box::new(CheckedMorsel { named: named.clone(), inner }) as Box<dyn Morsel>)
                    .collect(),
            )
            .with_planners(
                planners
                    .map(|inner| Box::new(Self { named: named.clone(), inner }) as Box<dyn MorselPlanner>)
                    .collect(),
            );
        if let Some(pending) = plan.take_pending_planner() {
            checked.set_pending_planner(async move {
                match pending.await {
                    Ok(inner) => Ok(Box::new(Self { named, inner }) as Box<dyn MorselPlanner>),
                    Err(error) => Err(named.wrap(error)),
                }
            });
        }
        Ok(Some(checked))
    }
}

struct CheckedMorsel {
    named: Named,
    inner: Box<dyn Morsel>,
}

impl Debug for CheckedMorsel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Morsel for CheckedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { named, inner } = *self;
        // Decoders of encodings and codecs may panic on bytes that no writer made.
        AssertUnwindSafe(inner.into_stream())
            .catch_unwind()
            .map(move |batch| match batch {
                Ok(batch) => batch.map_err(|error| named.wrap(error)),
                Err(panic) => {
                    let what = panic.downcast_ref::<String>().map(String::as_str);
                    let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the decoder panicked");
                    Err(named.wrap(ParquetError::General(what.to_owned()).into()))
                }
            })
            .boxed()
    }
}
