//! The schema `sys`: what is defined, what runs, how far it is, and what is wrong.
//!
//! A view is one file. It declares its columns once, with their types and what they mean; the Arrow schema and the reference
//! page (`docs/reference/sys.md`) are both made from that. Times end in `_at`, durations in `_ms`, sizes in `_bytes`; values
//! of a fixed set are in kebab-case.

mod checkpoint_tables;
mod checkpoints;
mod compactions;
mod connections;
mod errors;
mod files;
mod job_tables;
mod jobs;
mod provider;
mod reference;
mod secrets;
mod settings;
mod snapshot_holds;
mod snapshot_ranges;
mod source_positions;
mod sources;
mod store_caches;
mod store_requests;
mod table_snapshots;
mod tables;

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use tidegate_cdc::capture::{JobStatus, SourceView};
use tidegate_storage::store::StoreRef;
use tidegate_storage::store::caching::CacheWatch;
use tidegate_storage::store::measured::Statistics;
use uuid::Uuid;

pub use provider::{SysSchema, SysSource};
pub use reference::reference_page;

use crate::catalog::Catalog;
use crate::error::SqlError;

/// The types that columns of system views have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Text,
    BigInt,
    Double,
    Boolean,
    Timestamp,
}

impl ColumnType {
    fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::BigInt => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::BigInt => "bigint",
            Self::Double => "double precision",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamp with time zone",
        }
    }
}

/// One column of a view.
pub(crate) struct Column {
    name: &'static str,
    column_type: ColumnType,
    nullable: bool,
    doc: &'static str,
}

pub(crate) const fn column(name: &'static str, column_type: ColumnType, doc: &'static str) -> Column {
    Column { name, column_type, nullable: false, doc }
}

pub(crate) const fn nullable(name: &'static str, column_type: ColumnType, doc: &'static str) -> Column {
    Column { name, column_type, nullable: true, doc }
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Text(String),
    BigInt(i64),
    Double(f64),
    Boolean(bool),
    /// Milliseconds since 1970.
    Timestamp(i64),
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Uuid> for Cell {
    fn from(value: Uuid) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::BigInt(value.into())
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::BigInt(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::BigInt(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::BigInt(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A point in time, or none.
pub(crate) fn time(at_ms: impl Into<Option<i64>>) -> Cell {
    at_ms.into().map_or(Cell::Null, Cell::Timestamp)
}

/// A source and what is known of it at one moment.
#[derive(Debug, Clone)]
pub struct SourceState {
    pub id: Uuid,
    pub name: String,
    /// `None` while no job runs.
    pub status: Option<Arc<JobStatus>>,
    /// The view that the statement reads.
    pub view: Option<Arc<SourceView>>,
}

/// A setting and its value in the session.
#[derive(Debug, Clone)]
pub struct SettingState {
    pub name: &'static str,
    pub value: String,
    pub default: String,
    pub doc: &'static str,
}

/// What the views are made from: the state of everything when the statement began.
#[derive(Debug, Clone)]
pub struct SysState {
    pub now_ms: i64,
    pub store: StoreRef,
    pub statistics: Arc<Statistics>,
    pub object_cache: Option<CacheWatch>,
    pub catalog: Arc<Catalog>,
    /// In the order of names.
    pub sources: Vec<SourceState>,
    pub settings: Vec<SettingState>,
}

/// One system view.
#[async_trait]
pub(crate) trait SysView: Send + Sync {
    fn name(&self) -> &'static str;
    fn doc(&self) -> &'static str;
    fn columns(&self) -> &'static [Column];
    /// The rows, each with one cell per column.
    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError>;
}

/// All of them, in the order of the reference page.
pub(crate) fn views() -> &'static [&'static dyn SysView] {
    &[
        &sources::Sources,
        &jobs::Jobs,
        &job_tables::JobTables,
        &table_snapshots::TableSnapshots,
        &snapshot_holds::SnapshotHolds,
        &snapshot_ranges::SnapshotRanges,
        &source_positions::SourcePositions,
        &tables::Tables,
        &files::Files,
        &compactions::Compactions,
        &checkpoints::Checkpoints,
        &checkpoint_tables::CheckpointTables,
        &errors::Errors,
        &store_requests::StoreRequests,
        &store_caches::StoreCaches,
        &secrets::Secrets,
        &connections::Connections,
        &settings::Settings,
    ]
}

pub(crate) fn schema_of(columns: &[Column]) -> SchemaRef {
    let fields = columns.iter().map(|column| Field::new(column.name, column.column_type.arrow(), column.nullable));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Puts rows into columns.
pub(crate) fn batch_of(columns: &[Column], rows: &[Vec<Cell>]) -> Result<RecordBatch, SqlError> {
    let mismatch =
        |column: &Column| SqlError::internal(format!("a value of column \"{}\" is of another type", column.name));
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        macro_rules! collect {
            ($variant:ident, $array:ty, $convert:expr) => {{
                let values: Option<Vec<_>> = rows
                    .iter()
                    .map(|row| match row.get(index) {
                        Some(Cell::Null) => Some(None),
                        Some(Cell::$variant(value)) => Some(Some($convert(value))),
                        _ => None,
                    })
                    .collect();
                <$array>::from(values.ok_or_else(|| mismatch(column))?)
            }};
        }
        let array: ArrayRef = match column.column_type {
            ColumnType::Text => Arc::new(collect!(Text, StringArray, String::as_str)),
            ColumnType::BigInt => Arc::new(collect!(BigInt, Int64Array, |value: &i64| *value)),
            ColumnType::Double => Arc::new(collect!(Double, Float64Array, |value: &f64| *value)),
            ColumnType::Boolean => Arc::new(collect!(Boolean, BooleanArray, |value: &bool| *value)),
            ColumnType::Timestamp => Arc::new(
                collect!(Timestamp, TimestampMicrosecondArray, |value: &i64| value.saturating_mul(1000))
                    .with_timezone("UTC"),
            ),
        };
        arrays.push(array);
    }
    RecordBatch::try_new(schema_of(columns), arrays)
        .map_err(|error| SqlError::internal(format!("a system view could not be built: {error}")))
}

#[cfg(test)]
mod tests;
