//! Data files become rows of the newest schema.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::key_index::{KeySet, KeySetBuilder};
use super::layout::{Layout, get};
use crate::error::{Error, Result};
use crate::paimon::{DataFileMeta, TableSchema};
use crate::store::StoreRef;
use crate::store::checked::Checked;

/// Rows decoded at a time, unless they are large.
const BATCH_ROWS: usize = 8192;
/// Bytes decoded at a time, about.
const BATCH_BYTES: i64 = 4 << 20;

/// How the columns of one file become those of the newest schema. A column is known by its field id; its name may have
/// changed.
#[derive(Debug)]
struct Mapping {
    /// Names in the file of the columns to read.
    names: Vec<String>,
    /// For each column of the newest schema where its values come from.
    sources: Vec<Source>,
    schema: SchemaRef,
}

#[derive(Debug)]
enum Source {
    /// The file's column of this index among the names.
    File(usize),
    /// The column was added later, with this one value for the rows that there were.
    Constant(ArrayRef),
    /// The column was added later, without a default.
    Null,
}

impl Mapping {
    fn new(file: &TableSchema, newest: &TableSchema, schema: SchemaRef) -> Result<Self> {
        let mut names = Vec::new();
        let mut sources = Vec::with_capacity(newest.fields.len());
        for field in &newest.fields {
            let old = file.fields.iter().find(|old| old.id == field.id);
            sources.push(match (old, field.initial_value()?) {
                (Some(old), _) => {
                    names.push(old.name.clone());
                    Source::File(names.len() - 1)
                }
                (None, Some(value)) => Source::Constant(value),
                (None, None) => Source::Null,
            });
        }
        Ok(Self { names, sources, schema })
    }

    fn apply(&self, object: &str, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self.sources.iter().zip(self.schema.fields()).map(|(source, field)| match source {
            Source::Null => Ok(new_null_array(field.data_type(), rows)),
            Source::Constant(value) => take(value, &UInt32Array::from_value(0, rows), None)
                .map_err(|error| Error::invalid(format!("a default cannot be repeated: {error}"))),
            Source::File(source) => {
                let name = &self.names[*source];
                let column = batch
                    .column_by_name(name)
                    .ok_or_else(|| Error::corrupt(object, format!("it has no column {name:?}")))?;
                widen(object, column, field.data_type())
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| Error::corrupt(object, format!("its rows do not fit the table: {error}")))
    }
}

/// The values of `column` in a type that can hold them all.
fn widen(object: &str, column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to, &options)
        .map_err(|error| Error::corrupt(object, format!("a column cannot be read as {to}: {error}")))
}

fn read_error(object: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<object_store::Error>() {
            Ok(error) => Error::from_store(object, "read", *error),
            Err(source) => {
                Error::from_store(object, "read", object_store::Error::Generic { store: "data file", source })
            }
        },
        error => Error::corrupt(object, error.to_string()),
    }
}

/// Files up to this size are read with one request.
const READ_WHOLE: u64 = 4 << 20;

/// A data file as the Parquet reader wants it.
struct FileReader {
    store: StoreRef,
    path: Path,
    size: u64,
    whole: Option<Bytes>,
}

impl FileReader {
    fn part(&self, range: Range<u64>) -> Option<Result<Bytes, ParquetError>> {
        let whole = self.whole.as_ref()?;
        let beyond = || ParquetError::EOF("a range lies behind the end of the file".to_owned());
        if range.start > range.end || range.end > whole.len() as u64 {
            return Some(Err(beyond()));
        }
        Some(Ok(whole.slice(range.start as usize..range.end as usize)))
    }
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move {
            match self.part(range.clone()) {
                Some(part) => part,
                None => Ok(self.store.get_range(&self.path, range).await?),
            }
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move {
            match ranges.iter().map(|range| self.part(range.clone())).collect::<Option<Vec<_>>>() {
                Some(parts) => parts.into_iter().collect(),
                None => Ok(self.store.get_ranges(&self.path, &ranges).await?),
            }
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let size = self.size;
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            Ok(Arc::new(reader.load_and_finish(&mut *self, size).await?))
        }
        .boxed()
    }
}

/// Opens a data file and reads the columns called `names`.
async fn columns(
    layout: &Layout,
    path: &Path,
    meta: &DataFileMeta,
    names: &[String],
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let object = path.to_string();
    let size = u64::try_from(meta.file_size).map_err(|_| Error::corrupt(&object, "its size is negative"))?;
    let store: StoreRef = Arc::new(Checked::new(Arc::clone(layout.store())));
    let whole = if size <= READ_WHOLE { Some(get(&store, path).await?) } else { None };
    if whole.as_ref().is_some_and(|bytes| bytes.len() as u64 != size) {
        return Err(Error::corrupt(&object, format!("it has not the {size} bytes that the manifest says")));
    }
    let reader = FileReader { store, path: path.clone(), size, whole };
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|error| read_error(&object, error))?;
    let rows = builder.metadata().file_metadata().num_rows();
    if rows != meta.row_count {
        return Err(Error::corrupt(&object, format!("it has {rows} rows and the manifest says {}", meta.row_count)));
    }
    let bytes: i64 = builder.metadata().row_groups().iter().map(|group| group.total_byte_size()).sum();
    let of_bytes = BATCH_BYTES.saturating_mul(rows) / bytes.max(1);
    let batch_rows = usize::try_from(of_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
    // By index: a mask by name would take a point in a column's name for the way into a nested one.
    let roots = builder.parquet_schema().root_schema().get_fields().iter().enumerate();
    let wanted = roots.filter(|(_, root)| names.iter().any(|name| name == root.name())).map(|(index, _)| index);
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    let stream = builder
        .with_projection(mask)
        .with_batch_size(batch_rows)
        .build()
        .map_err(|error| read_error(&object, error))?;
    Ok(stream.map_err(move |error| read_error(&object, error)).boxed())
}

fn file_schema<'a>(layout: &'a Layout, path: &Path, meta: &DataFileMeta) -> Result<&'a Arc<TableSchema>> {
    let id = u64::try_from(meta.schema_id).ok();
    id.and_then(|id| layout.schemas.get(&id))
        .ok_or_else(|| Error::corrupt(path.as_ref(), format!("its schema {} does not exist", meta.schema_id)))
}

/// All rows of a data file, in its order, deleted ones included, as batches of the newest schema.
pub(crate) async fn rows(
    layout: &Layout,
    path: &Path,
    meta: &DataFileMeta,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let schema = file_schema(layout, path, meta)?;
    let mapping = Mapping::new(schema, &layout.schema, Arc::clone(&layout.arrow_schema))?;
    let stream = columns(layout, path, meta, &mapping.names).await?;
    let object = path.to_string();
    Ok(stream.map(move |batch| mapping.apply(&object, &batch?)).boxed())
}

/// The keys of a data file: as they are on the local disk, or else from its key columns. They must ascend: the key
/// index and every merge rely on it.
pub(crate) async fn keys(layout: &Layout, path: &Path, meta: &DataFileMeta) -> Result<KeySet> {
    let object = path.as_ref();
    let name = layout.key_file(&meta.file_name);
    let cache = &layout.ctx.resources.keys;
    let rows = usize::try_from(meta.row_count).map_err(|_| Error::corrupt(object, "its number of rows is negative"))?;
    if let Some(found) = KeySet::find(cache, &name, rows) {
        return Ok(found);
    }
    let schema = file_schema(layout, path, meta)?;
    let names = &schema.primary_keys;
    let mut stream = columns(layout, path, meta, names).await?;
    let mut keys = KeySetBuilder::new(cache, layout.codec.empty());
    while let Some(batch) = stream.try_next().await? {
        let arrays = names.iter().zip(layout.codec.types()).map(|(name, data_type)| {
            let column = batch.column_by_name(name);
            widen(
                object,
                column.ok_or_else(|| Error::corrupt(object, format!("it has no column {name:?}")))?,
                data_type,
            )
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let corrupt = |error: Error| Error::corrupt(object, error.to_string());
        let more = layout.codec.encode(&arrays).map_err(corrupt)?;
        keys.push(&more, 0..more.len()).map_err(corrupt)?;
    }
    if keys.len() != rows {
        return Err(Error::corrupt(object, "it has not as many rows as the manifest says"));
    }
    if rows == 0 {
        return Err(Error::corrupt(object, "it has no rows"));
    }
    keys.finish(name)
}
