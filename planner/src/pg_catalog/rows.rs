//! Catalog tables, column by column.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int16Builder, Int32Array, Int32Builder, Int64Array, ListBuilder,
    StringArray, StringBuilder, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion_pg_catalog::pg_catalog::oid_field::OID_ALIAS_KEY;

/// Fills a table with one row for each of `rows`.
pub(super) struct Fill<'a, R> {
    rows: &'a [R],
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
}

impl<'a, R> Fill<'a, R> {
    pub(super) fn new(rows: &'a [R]) -> Self {
        Self { rows, fields: Vec::new(), columns: Vec::new() }
    }

    fn column(mut self, field: Field, column: ArrayRef) -> Self {
        self.fields.push(field);
        self.columns.push(column);
        self
    }

    /// An object id. They are sent as PostgreSQL's `oid`.
    pub(super) fn oid(self, name: &str, value: impl Fn(&'a R) -> i32) -> Self {
        let values: Int32Array = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(oid_field(name), Arc::new(values))
    }

    pub(super) fn int2(self, name: &str, value: impl Fn(&'a R) -> i16) -> Self {
        let values: Int16Array = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Int16, false), Arc::new(values))
    }

    pub(super) fn int4(self, name: &str, value: impl Fn(&'a R) -> i32) -> Self {
        let values: Int32Array = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Int32, false), Arc::new(values))
    }

    pub(super) fn int4_or_null(self, name: &str, value: impl Fn(&'a R) -> Option<i32>) -> Self {
        let values: Int32Array = self.rows.iter().map(value).collect();
        self.column(Field::new(name, DataType::Int32, true), Arc::new(values))
    }

    pub(super) fn int8(self, name: &str, value: impl Fn(&'a R) -> i64) -> Self {
        let values: Int64Array = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Int64, false), Arc::new(values))
    }

    pub(super) fn float4(self, name: &str, value: impl Fn(&'a R) -> f32) -> Self {
        let values: Float32Array = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Float32, false), Arc::new(values))
    }

    pub(super) fn bool(self, name: &str, value: impl Fn(&'a R) -> bool) -> Self {
        let values: BooleanArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Boolean, false), Arc::new(values))
    }

    pub(super) fn text<T: AsRef<str>>(self, name: &str, value: impl Fn(&'a R) -> T) -> Self {
        let values: StringArray = self.rows.iter().map(|row| Some(value(row))).collect();
        self.column(Field::new(name, DataType::Utf8, false), Arc::new(values))
    }

    pub(super) fn text_or_null<T: AsRef<str>>(self, name: &str, value: impl Fn(&'a R) -> Option<T>) -> Self {
        let values: StringArray = self.rows.iter().map(value).collect();
        self.column(Field::new(name, DataType::Utf8, true), Arc::new(values))
    }

    pub(super) fn timestamptz(self, name: &str, micros: impl Fn(&'a R) -> Option<i64>) -> Self {
        let values: TimestampMicrosecondArray = self.rows.iter().map(micros).collect();
        self.column(
            Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Arc::new(values.with_timezone("UTC")),
        )
    }

    /// `int2[]` or `int2vector`.
    pub(super) fn int2s(self, name: &str, value: impl Fn(&'a R) -> Option<Vec<i16>>) -> Self {
        let mut values = ListBuilder::new(Int16Builder::new());
        for row in self.rows {
            values.append_option(value(row).map(|items| items.into_iter().map(Some)));
        }
        self.column(
            Field::new_list(name, Field::new_list_field(DataType::Int16, true), true),
            Arc::new(values.finish()),
        )
    }

    /// `oid[]` or `oidvector`.
    pub(super) fn oids(self, name: &str, value: impl Fn(&'a R) -> Option<Vec<i32>>) -> Self {
        let mut values = ListBuilder::new(Int32Builder::new());
        for row in self.rows {
            values.append_option(value(row).map(|items| items.into_iter().map(Some)));
        }
        self.column(
            Field::new_list(name, Field::new_list_field(DataType::Int32, true), true),
            Arc::new(values.finish()),
        )
    }

    /// `text[]`, all NULL (access rights, options: there are none).
    pub(super) fn no_texts(self, name: &str) -> Self {
        let mut values = ListBuilder::new(StringBuilder::new());
        for _ in self.rows {
            values.append_null();
        }
        self.column(Field::new_list(name, Field::new_list_field(DataType::Utf8, true), true), Arc::new(values.finish()))
    }

    /// A column that is always NULL.
    pub(super) fn null(self, name: &str, data_type: DataType) -> Self {
        let values = new_null_array(&data_type, self.rows.len());
        self.column(Field::new(name, data_type, true), values)
    }

    pub(super) fn batch(self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.columns, &options)?)
    }
}

pub(super) fn oid_field(name: &str) -> Field {
    Field::new(name, DataType::Int32, false)
        .with_metadata(HashMap::from([(OID_ALIAS_KEY.to_owned(), "oid".to_owned())]))
}

pub(super) fn table(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}
