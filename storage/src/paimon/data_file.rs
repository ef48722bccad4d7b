//! Parquet files of rows: how they are written.
//!
//! A file holds the columns of [`TableSchema::file_schema`], sorted by key. What a commit brings is merged after a few
//! more, and is not compressed: that would be work within the commit. Files of young runs are rewritten
//! soon and compressed for speed; files of the oldest run stay and are compressed for size.
//!
//! Every byte of a file is covered by a digest in its footer ([`super::block_digest`]), which readers verify
//! ([`crate::store::checked`]). Parquet's page checksums are not written: the `parquet` crate cannot.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::block_digest::{self, DigestingSink};
use super::schema::{KEY_PREFIX, SEQUENCE_NUMBER, TableSchema, VALUE_KIND};
use crate::error::{Error, Result};

/// How long a file is going to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It came with the last commit, and will be merged after a few more.
    New,
    /// It will be merged soon.
    Young,
    /// It belongs to the oldest run, but to a part of it that changes so much that it will be rewritten soon.
    Restless,
    /// It belongs to the oldest run.
    Old,
}

/// Rows in a row group: the unit of a parallel scan, and what a writer holds in memory.
const ROW_GROUP_ROWS: usize = 128 * 1024;
/// The same in files of runs: a merge reads many of them at one time, and holds a row group of each.
const RUN_ROW_GROUP_ROWS: usize = 32 * 1024;
/// Rows in a page at most: the unit in which a filtered scan skips rows.
const PAGE_ROWS: usize = 8 * 1024;
/// Bytes of a string that statistics keep.
const STATISTICS_LENGTH: usize = 64;

/// How a file of `schema` is written. The columns named `distinct` hardly repeat a value, so that a dictionary of them
/// would cost time and save nothing.
pub fn writer_properties(schema: &TableSchema, age: Age, distinct: &[&str]) -> WriterProperties {
    let compression = match age {
        Age::New => Compression::UNCOMPRESSED,
        Age::Young | Age::Restless => Compression::LZ4_RAW,
        Age::Old => Compression::ZSTD(ZstdLevel::default()),
    };
    let row_group_rows = match age {
        Age::New | Age::Young => RUN_ROW_GROUP_ROWS,
        Age::Restless | Age::Old => ROW_GROUP_ROWS,
    };
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("{} version {}", block_digest::CREATED_BY, env!("CARGO_PKG_VERSION")))
        .set_compression(compression)
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(STATISTICS_LENGTH))
        .set_column_index_truncate_length(Some(STATISTICS_LENGTH));
    // Keys and sequence numbers do not repeat, and what only the writer reads needs no page index.
    for name in schema.primary_keys.iter().map(String::as_str).chain(distinct.iter().copied()) {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    let keys = schema.primary_keys.iter().map(|key| format!("{KEY_PREFIX}{key}"));
    for name in keys.chain([SEQUENCE_NUMBER.to_owned()]) {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name.as_str()), false)
            .set_column_statistics_enabled(ColumnPath::from(name.as_str()), EnabledStatistics::Chunk);
    }
    // The kind is the same in every row: compression alone makes it vanish, and building a dictionary costs more.
    properties
        .set_column_dictionary_enabled(ColumnPath::from(VALUE_KIND), false)
        .set_column_statistics_enabled(ColumnPath::from(VALUE_KIND), EnabledStatistics::Chunk)
        .build()
}

/// Writes one data file.
pub struct DataFileWriter<W: Write + Send> {
    object: String,
    schema: SchemaRef,
    writer: ArrowWriter<DigestingSink<W>>,
    rows: u64,
}

impl<W: Write + Send> DataFileWriter<W> {
    /// Begins a file of `schema` in `sink`. `object` is its path, for errors; `distinct` are the columns that hardly
    /// repeat a value.
    pub fn new(object: impl Into<String>, sink: W, schema: &TableSchema, age: Age, distinct: &[&str]) -> Result<Self> {
        let object = object.into();
        let file_schema = schema.file_schema();
        let options = ArrowWriterOptions::new()
            .with_properties(writer_properties(schema, age, distinct))
            // The Arrow schema follows from the table's; a copy in each file is of no use.
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(DigestingSink::new(sink), Arc::clone(&file_schema), options)
            .map_err(|e| write_error(&object, e))?;
        Ok(Self { object, schema: file_schema, writer, rows: 0 })
    }

    /// The columns that batches must have.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends rows, which must go on in key order.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|e| write_error(&self.object, e))
    }

    /// Where the bytes go. What is there already may be taken away.
    pub fn sink_mut(&mut self) -> &mut W {
        self.writer.inner_mut().inner_mut()
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// About how large the file is by now.
    pub fn estimated_bytes(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    /// Ends the file and hands back the sink.
    pub fn finish(self) -> Result<W> {
        Ok(self.finish_sized()?.0)
    }

    /// Ends the file and hands back the sink and the file's size in bytes.
    pub fn finish_sized(mut self) -> Result<(W, u64)> {
        let object = self.object;
        self.writer.flush().map_err(|e| write_error(&object, e))?;
        self.writer.sync().map_err(|e| sink_error(&object, e))?;
        // What comes now are the indexes and the footer; they are held back until they are digested too.
        let digests = self.writer.inner_mut().end_data();
        self.writer.append_key_value_metadata(KeyValue::new(block_digest::KEY.to_owned(), digests));
        let sink = self.writer.into_inner().map_err(|e| write_error(&object, e))?;
        sink.finish().map_err(|e| sink_error(&object, e))
    }
}

/// The bytes of a file with these rows, in the order of [`TableSchema::file_schema`].
pub fn encode(object: &str, schema: &TableSchema, age: Age, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut writer = DataFileWriter::new(object, Vec::new(), schema, age, &[])?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()
}

fn sink_error(object: &str, error: std::io::Error) -> Error {
    write_error(object, ParquetError::External(Box::new(error)))
}

fn write_error(object: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => {
            Error::from_store(object, "written", object_store::Error::Generic { store: "data file", source })
        }
        error => Error::invalid(format!("rows for object {object} cannot be written as Parquet: {error}")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
