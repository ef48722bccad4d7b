//! How the plan of a scan is put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use object_store::ObjectMeta;
use tidegate_storage::store::checked::FOOTER_BYTES;
use tidegate_storage::table::{Candidate, TableVersion};

use super::checked::{CheckedReaders, CheckedSource};
use super::deletions::{DeletedRows, SelectionCache, chosen_rows};
use super::evolution::{ColumnMapping, MappedColumns, initial_defaults};
use super::key_filter::keys_asked_for;
use super::key_order::RunOf;
use super::statistics::{file_statistics, files_statistics, schema_id};

/// Under this URL the store of the mirrored tables is registered in a runtime environment. No client can name it.
pub const STORE_URL: &str = "tidegate://store/";

/// What scans keep from one query to the next. One for the process.
#[derive(Debug, Default)]
pub struct ScanCache {
    selections: Arc<SelectionCache>,
}

/// The plan that reads `version`, one column of `schema` after another as `projection` says.
#[allow(clippy::too_many_arguments)]
pub(super) fn scan(
    cache: &ScanCache,
    name: &Arc<str>,
    version: &TableVersion,
    schema: &SchemaRef,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let candidates = match keys_asked_for(filters, &version.schema, schema)? {
        Some(keys) => version.candidates(&keys).map_err(|error| DataFusionError::External(Box::new(error)))?,
        None => version.files.iter().map(|file| Candidate { file, rows: None }).collect(),
    };
    let mut by_mapping: BTreeMap<ColumnMapping, Vec<Candidate<'_>>> = BTreeMap::new();
    let mut mappings: BTreeMap<u64, ColumnMapping> = BTreeMap::new();
    for candidate in candidates.into_iter().filter(|candidate| candidate.file.row_count() > 0) {
        let file = candidate.file;
        let mapping = match schema_id(&file.meta).and_then(|id| Some((id, version.schemas.get(&id)?))) {
            Some((id, written)) => {
                mappings.entry(id).or_insert_with(|| ColumnMapping::new(&version.schema, written)).clone()
            }
            None => {
                return Err(DataFusionError::Execution(format!(
                    "data file {} of table {name} has schema {}, which the table does not have",
                    file.path, file.meta.schema_id
                )));
            }
        };
        by_mapping.entry(mapping).or_default().push(candidate);
    }
    let defaults = Arc::new(initial_defaults(&version.schema, schema)?);
    let mut plans = Vec::with_capacity(by_mapping.len());
    for (mapping, files) in by_mapping {
        let columns = MappedColumns { mapping, defaults: Arc::clone(&defaults) };
        plans.push(scan_files(cache, name, version, schema, state, projection, limit, columns, &files)?);
    }
    match plans.len() {
        0 => {
            let projected = match projection {
                Some(indices) => Arc::new(schema.project(indices)?),
                None => Arc::clone(schema),
            };
            Ok(Arc::new(EmptyExec::new(projected)))
        }
        1 => Ok(plans.swap_remove(0)),
        _ => UnionExec::try_new(plans),
    }
}

#[allow(clippy::too_many_arguments)]
fn scan_files(
    cache: &ScanCache,
    name: &Arc<str>,
    version: &TableVersion,
    schema: &SchemaRef,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
    columns: MappedColumns,
    files: &[Candidate<'_>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let url = ObjectStoreUrl::parse(STORE_URL)?;
    let runtime = state.runtime_env();
    let store = runtime.object_store(&url)?;
    let reader =
        CachedParquetFileReaderFactory::new(Arc::clone(&store), runtime.cache_manager.get_file_metadata_cache());
    let reader = CheckedReaders::new(store, Arc::new(reader));
    let source = ParquetSource::new(Arc::clone(schema))
        .with_table_parquet_options(state.default_table_options().parquet)
        .with_metadata_size_hint(FOOTER_BYTES)
        .with_parquet_file_reader_factory(Arc::new(reader));
    let source = CheckedSource::new(Arc::clone(name), version.schema.key_indices().into(), Arc::new(source));
    let mut partitioned = Vec::with_capacity(files.len());
    for file in files {
        partitioned.push(partitioned_file(cache, version, schema, file)?);
    }
    let mut statistics = files_statistics(version, files.iter().map(|candidate| candidate.file), schema);
    if files.iter().any(|candidate| candidate.rows.is_some()) {
        statistics = statistics.to_inexact();
    }
    let config = FileScanConfigBuilder::new(url, Arc::new(source))
        .with_file_groups(spread(partitioned, state.config().target_partitions()))
        .with_statistics(statistics)
        .with_expr_adapter(Some(Arc::new(columns)))
        .with_projection_indices(projection.cloned())?
        .with_limit(limit)
        .build();
    Ok(DataSourceExec::from_data_source(config))
}

fn partitioned_file(
    cache: &ScanCache,
    version: &TableVersion,
    schema: &SchemaRef,
    Candidate { file, rows: chosen }: &Candidate<'_>,
) -> Result<PartitionedFile> {
    let corrupt = |what: &str| DataFusionError::Execution(format!("data file {} has {what}", file.path));
    let mut statistics = file_statistics(version, file, schema);
    if let Some(chosen) = chosen {
        statistics.num_rows = Precision::Exact(chosen.len());
    }
    // The manifest knows the size, and a file's name is never used twice: neither a look at the store is needed, nor a date.
    let mut partitioned = PartitionedFile::new_from_meta(ObjectMeta {
        location: file.path.clone(),
        last_modified: DateTime::<Utc>::UNIX_EPOCH,
        size: u64::try_from(file.meta.file_size).map_err(|_| corrupt("a negative size"))?,
        e_tag: None,
        version: None,
    })
    .with_statistics(Arc::new(statistics));
    // Files of level 0, which other engines write, may overlap.
    if file.meta.level > 0 {
        partitioned = partitioned.with_extension(RunOf { bucket: file.bucket, level: file.meta.level });
    }
    let rows = u64::try_from(file.meta.row_count).map_err(|_| corrupt("a negative number of rows"))?;
    if let Some(chosen) = chosen {
        return Ok(partitioned.with_extension(chosen_rows(&file.path, rows, chosen)?));
    }
    if let Some(deleted) = file.deleted.as_ref().filter(|deleted| !deleted.is_empty()) {
        let (cache, deleted) = (Arc::clone(&cache.selections), Arc::clone(deleted));
        partitioned = partitioned.with_extension(DeletedRows { cache, rows, deleted });
    }
    Ok(partitioned)
}

/// Deals files out to `partitions`, the largest first to the one that has least, so that each core has as much to read.
/// DataFusion splits large files further.
fn spread(mut files: Vec<PartitionedFile>, partitions: usize) -> Vec<FileGroup> {
    files.sort_by_key(|file| std::cmp::Reverse(file.object_meta.size));
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = Vec::new();
    groups.resize_with(partitions.clamp(1, files.len().max(1)), Default::default);
    for file in files {
        if let Some((size, group)) = groups.iter_mut().min_by_key(|(size, _)| *size) {
            *size += file.object_meta.size;
            group.push(file);
        }
    }
    groups.into_iter().map(|(_, group)| FileGroup::new(group)).collect()
}
