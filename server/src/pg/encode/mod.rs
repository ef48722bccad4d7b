//! Arrow record batches as rows of the protocol, in text and binary format.
//!
//! A column is prepared once per batch ([`cell::Cell`]): its array is downcast, and rare physical types are cast to
//! common ones. A row is then one pass over its columns into the output buffer, without an allocation.

mod cell;
mod datetime;
mod number;
#[cfg(test)]
mod tests;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use bytes::{BufMut, BytesMut};
use pgwire::api::Type;
use tidegate_planner::error::{SqlError, sqlstate};

use super::message;
use cell::Cell;
pub(crate) use datetime::Zone;

/// The format of a value on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

impl Format {
    /// The format with a protocol code.
    pub(crate) fn from_code(code: i16) -> Result<Self, SqlError> {
        match code {
            0 => Ok(Self::Text),
            1 => Ok(Self::Binary),
            other => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid format code: {other}"))),
        }
    }
}

/// The formats of a Bind message spread over `count` values: none given is text, one given is for all.
pub(crate) fn spread_formats(codes: &[i16], count: usize, what: &str) -> Result<Vec<Format>, SqlError> {
    match codes {
        [] => Ok(vec![Format::Text; count]),
        [one] => Ok(vec![Format::from_code(*one)?; count]),
        many if many.len() == count => many.iter().map(|code| Format::from_code(*code)).collect(),
        many => Err(SqlError::new(
            super::errors::PROTOCOL_VIOLATION,
            format!("bind message has {} {what} formats but {count} {what}s", many.len()),
        )),
    }
}

/// What the session's settings say about the text of values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) zone: Zone,
    /// `bytea_output = escape`: the older form of `bytea`, with octal digits.
    pub(crate) escape_bytes: bool,
}

/// A column of a result: how it is announced and how it is written.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    pg_type: Type,
    type_modifier: i32,
    format: Format,
}

impl Column {
    /// Whether values of both are written the same way.
    pub(crate) fn same_type(&self, other: &Self) -> bool {
        self.pg_type.oid() == other.pg_type.oid() && self.format == other.format
    }
}

/// The columns of a result with this schema.
pub(crate) fn columns(schema: &Schema, formats: &[Format]) -> Vec<Column> {
    schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| Column {
            name: field.name().clone(),
            pg_type: pg_type(field),
            type_modifier: type_modifier(field.data_type()),
            format: formats.get(index).copied().unwrap_or(Format::Text),
        })
        .collect()
}

/// The PostgreSQL type that a field is announced as. What has no counterpart is text.
pub(crate) fn pg_type(field: &FieldRef) -> Type {
    match field.data_type() {
        DataType::Null | DataType::Map(..) | DataType::Union(..) => Type::TEXT,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal256(..) => Type::NUMERIC,
        DataType::Dictionary(_, value) => pg_type(&unnamed(value)),
        DataType::RunEndEncoded(_, value) => pg_type(&unnamed(value.data_type())),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => match element.data_type() {
            // PostgreSQL's arrays of arrays have the type of the innermost element.
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => pg_type(element),
            _ => array_of(&pg_type(element)),
        },
        DataType::Struct(_) => Type::RECORD,
        // An alias of a number (`oid`, `regclass`) or the one-byte "char" says so in the field's metadata; a name that
        // is there as text already stays text.
        data_type if data_type.is_string() && !arrow_pg::datatypes::is_pg_char_field(field) => Type::TEXT,
        _ => arrow_pg::datatypes::field_into_pg_type(field).unwrap_or(Type::TEXT),
    }
}

fn unnamed(data_type: &DataType) -> FieldRef {
    std::sync::Arc::new(arrow::datatypes::Field::new("", data_type.clone(), true))
}

fn array_of(element: &Type) -> Type {
    match *element {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::OID => Type::OID_ARRAY,
        Type::CHAR => Type::CHAR_ARRAY,
        Type::RECORD => Type::RECORD_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}

/// `numeric(p, s)` has a modifier, other types none.
fn type_modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale >= 0 =>
        {
            (i32::from(*precision) << 16 | i32::from(*scale)) + 4
        }
        _ => -1,
    }
}

/// Bytes of a fixed-width type, -1 for others (`pg_type.typlen`).
fn type_length(pg_type: &Type) -> i16 {
    match *pg_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::INTERVAL => 16,
        _ => -1,
    }
}

/// Writes a RowDescription.
pub(crate) fn row_description(columns: &[Column], buf: &mut BytesMut) {
    message::write(buf, b'T', |buf| {
        buf.put_u16(columns.len() as u16);
        for column in columns {
            message::put_string(buf, &column.name);
            buf.put_u32(0); // table
            buf.put_u16(0); // column of that table
            buf.put_u32(column.pg_type.oid());
            buf.put_i16(type_length(&column.pg_type));
            buf.put_i32(column.type_modifier);
            buf.put_i16(match column.format {
                Format::Text => 0,
                Format::Binary => 1,
            });
        }
    });
}

/// A batch that is ready to be written row by row.
pub(crate) struct Rows {
    cells: Vec<(Cell, Format)>,
    count: usize,
    style: Style,
}

impl Rows {
    pub(crate) fn new(batch: &RecordBatch, columns: &[Column], style: Style) -> Result<Self, SqlError> {
        if batch.num_columns() != columns.len() {
            return Err(SqlError::internal(format!(
                "a batch of {} columns in a result of {}",
                batch.num_columns(),
                columns.len()
            )));
        }
        let cells = columns
            .iter()
            .enumerate()
            .map(|(index, column)| Ok((Cell::prepare(batch.column(index), &column.pg_type)?, column.format)))
            .collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Self { cells, count: batch.num_rows(), style })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends row `row` as a DataRow; on an error nothing of it stays in the buffer.
    pub(crate) fn write(&self, row: usize, buf: &mut BytesMut) -> Result<(), SqlError> {
        let start = buf.len();
        buf.put_u8(b'D');
        buf.put_u32(0);
        buf.put_u16(self.cells.len() as u16);
        for (cell, format) in &self.cells {
            if let Err(error) = cell.write_field(row, *format, self.style, buf) {
                buf.truncate(start);
                return Err(error);
            }
        }
        let Ok(length) = i32::try_from(buf.len() - start - 1) else {
            buf.truncate(start);
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a row is too large for one message"));
        };
        buf[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}
