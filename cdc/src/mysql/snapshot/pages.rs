//! One page of a table: a single SELECT by key order, fetched whole, straight into columns.

use std::sync::Arc;

use arrow::array::RecordBatch;
use mysql_async::{DriverError, Value};
use tidegate_storage::paimon::TableSchema;
use tidegate_storage::table::RowKind;

use super::key::{KeyColumn, KeyRange, KeyValue, Side, condition, parameters, quote};
use crate::error::{Code, Error, Result};
use crate::mysql::ServerInfo;
use crate::mysql::connect::query_failed;
use crate::mysql::server::{PageConnection, TakeRow};
use crate::mysql::types::{MysqlTable, MysqlType};
use crate::mysql::value::{DateTimeParts, date_days, write_time};
use crate::mysql::wire::RowConn;
use crate::mysql::wire::row::{BadRow, Cell, Cells, Form};
use crate::rows::{ColumnBuffer, PushError, RowBuffer};
use crate::source::position::FilePosition;

/// Bytes of rows after which no page takes more, however many were asked for.
const PAGE_BYTES: usize = 64 << 20;

/// The most that a page takes. A row that exceeds the bytes is its last one.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    /// Rows.
    pub rows: usize,
    /// Bytes of the rows as they are sent.
    pub bytes: usize,
}

impl PageSize {
    /// So many rows, however large they are.
    pub fn rows(rows: usize) -> Self {
        Self { rows, bytes: PAGE_BYTES }
    }
}

/// Rows of a key range, read at one moment.
#[derive(Debug)]
pub struct Page {
    /// The log's end before the page was read.
    pub low: FilePosition,
    /// The log's end after the page was read: nothing that the page shows lies behind it.
    pub high: FilePosition,
    /// The rows, in key order, with the columns of the schema.
    pub batch: RecordBatch,
    /// The key of the last row; `None` if there is no row.
    pub last_key: Option<Vec<KeyValue>>,
    /// Whether the range has no more rows.
    pub end_of_range: bool,
}

/// Reads the rows of a range behind a key, at most as many as the limit says.
///
/// The statement stays prepared on the connection. Columns of the schema are looked up in the table by name; columns that
/// only one of both has are an error ([`Code::TableChanged`] if the server has no such column any more).
pub async fn read_page(
    conn: &mut dyn PageConnection,
    server: &ServerInfo,
    table: &MysqlTable,
    schema: &Arc<TableSchema>,
    range: &KeyRange,
    after: Option<&[KeyValue]>,
    limit: PageSize,
) -> Result<Page> {
    let low = conn.log_end(server).await?;
    let (batch, last_key, end_of_range) = select(conn, table, schema, range, after, limit).await?;
    let high = conn.log_end(server).await?;
    Ok(Page { low, high, batch, last_key, end_of_range })
}

async fn select(
    conn: &mut dyn PageConnection,
    table: &MysqlTable,
    schema: &Arc<TableSchema>,
    range: &KeyRange,
    after: Option<&[KeyValue]>,
    limit: PageSize,
) -> Result<(RecordBatch, Option<Vec<KeyValue>>, bool)> {
    let name = format!("{}.{}", table.database, table.name);
    let plan = Plan::new(table, schema)?;
    let most = limit.bytes.min(PAGE_BYTES);
    let limit = conn.page_limits().get(&name).map_or(limit.rows, |fitting| limit.rows.min(*fitting)).max(1);
    let query = plan.query(table, after.or(range.lower.as_deref()), range.upper.as_deref(), limit);

    let mut rows = Rows {
        name: &name,
        plan: &plan,
        buffer: RowBuffer::new(schema),
        forms: Vec::new(),
        last: Vec::new(),
        seen: 0,
        bytes: 0,
        most,
        failed: None,
    };
    conn.select(&query, &mut |forms, row| rows.take(forms, row)).await?;

    let Rows { mut buffer, forms, last, seen, failed, .. } = rows;
    if let Some(error) = failed {
        return Err(error);
    }
    let taken = buffer.len();
    if taken < seen {
        // Next time only as many rows as will be kept.
        conn.page_limits().insert(name.clone(), taken.max(1));
    }
    let last_key = if taken == 0 { None } else { Some(plan.key_of(&name, &forms, &last)?) };
    let (batch, _) = buffer.take().map_err(|error| {
        Error::new(Code::ValueNotStorable, format!("a page of {name} does not fit into columns")).with_source(error)
    })?;
    // Rows that were left out are still to come.
    Ok((batch, last_key, taken == seen && seen < limit))
}

const NO_SUCH_KEY: u16 = 1176;
const FORCE_PRIMARY: &str = " FORCE INDEX (PRIMARY)";

/// The rows of one page: those of a table behind one key and up to another, in key order.
#[derive(Debug)]
pub struct PageQuery<'a> {
    /// The table.
    pub table: &'a MysqlTable,
    /// The values of a row in SQL: quoted columns, and expressions that a bound is made of.
    pub selected: &'a [String],
    /// The key.
    pub key: &'a [KeyColumn],
    /// The key that all rows are behind.
    pub after: Option<&'a [KeyValue]>,
    /// The last key.
    pub up_to: Option<&'a [KeyValue]>,
    /// The most rows.
    pub limit: usize,
}

impl PageQuery<'_> {
    pub(crate) async fn run(&self, conn: &mut RowConn, take: TakeRow<'_>) -> Result<()> {
        let (sql, parameters) = self.statement()?;
        let mut outcome = conn.select(&sql, &parameters, take).await;
        if let Err(mysql_async::Error::Server(error)) = &outcome
            && error.code == NO_SUCH_KEY
        {
            // The key was given by hand, and there is no primary one.
            let sql = sql.replacen(FORCE_PRIMARY, "", 1);
            outcome = conn.select(&sql, &parameters, take).await;
        }
        let name = format!("{}.{}", self.table.database, self.table.name);
        outcome.map_err(|error| query_failed(&format!("a page of {name} could not be read"), error))
    }

    fn statement(&self) -> Result<(String, Vec<Value>)> {
        let (filter, values) = within(self.key, self.after, self.up_to)?;
        let from = format!("{}.{}", quote(&self.table.database), quote(&self.table.name));
        let order: Vec<String> = self.table.primary_key.iter().map(|name| quote(name)).collect();
        Ok((
            format!(
                "SELECT {} FROM {from}{FORCE_PRIMARY}{filter} ORDER BY {} LIMIT {}",
                self.selected.join(", "),
                order.join(", "),
                self.limit
            ),
            values,
        ))
    }
}

/// What is selected from a table, and how the values become columns.
struct Plan<'a> {
    columns: Vec<Column<'a>>,
    key: Vec<KeyColumn>,
    /// For each key column, which selected value is its bound.
    key_places: Vec<usize>,
    /// The values of a row in SQL, the columns first.
    selected: Vec<String>,
}

struct Column<'a> {
    name: &'a str,
    column_type: &'a MysqlType,
    is_key: bool,
}

impl<'a> Plan<'a> {
    fn new(table: &'a MysqlTable, schema: &TableSchema) -> Result<Self> {
        let key = KeyColumn::of(table)?;
        let mut columns = Vec::with_capacity(schema.fields.len());
        let mut selected = Vec::with_capacity(schema.fields.len() + key.len());
        for field in &schema.fields {
            let column =
                table.column_index(&field.name).and_then(|index| table.columns.get(index)).ok_or_else(|| {
                    Error::new(
                        Code::SchemaMismatch,
                        format!("{}.{} has no column `{}`", table.database, table.name, field.name),
                    )
                })?;
            selected.push(quote(&column.name));
            columns.push(Column { name: &column.name, column_type: &column.column_type, is_key: !field.nullable });
        }
        let mut key_places = Vec::with_capacity(key.len());
        for (name, column) in table.primary_key.iter().zip(&key) {
            let own = columns.iter().position(|c| c.name.to_lowercase() == name.to_lowercase());
            key_places.push(match own {
                Some(place) if !column.is_ordinal() => place,
                _ => {
                    selected.push(column.selected());
                    selected.len() - 1
                }
            });
        }
        Ok(Self { columns, key, key_places, selected })
    }

    fn query<'q>(
        &'q self,
        table: &'q MysqlTable,
        after: Option<&'q [KeyValue]>,
        up_to: Option<&'q [KeyValue]>,
        limit: usize,
    ) -> PageQuery<'q> {
        PageQuery { table, selected: &self.selected, key: &self.key, after, up_to, limit }
    }

    /// The key of a row.
    fn key_of(&self, table: &str, forms: &[Form], row: &[u8]) -> Result<Vec<KeyValue>> {
        let values = self.values(forms, row).map_err(|error| malformed(table, error))?;
        self.key
            .iter()
            .zip(&self.key_places)
            .map(|(column, &place)| {
                values.get(place).and_then(|cell| KeyValue::from_selected(column, &cell.to_value())).ok_or_else(|| {
                    Error::new(Code::KeyNotStorable, format!("a key of {table} cannot be used as a bound"))
                })
            })
            .collect()
    }

    fn values<'r>(&self, forms: &'r [Form], row: &'r [u8]) -> std::result::Result<Vec<Cell<'r>>, BadRow> {
        let mut cells = Cells::new(forms, row)?;
        forms.iter().map(|_| cells.next()).collect()
    }
}

/// The condition of the rows between two bounds, with its parameters.
pub(super) fn within(
    key: &[KeyColumn],
    lower: Option<&[KeyValue]>,
    upper: Option<&[KeyValue]>,
) -> Result<(String, Vec<Value>)> {
    let mut filter = String::new();
    let mut values = Vec::new();
    for (bound, side) in [(lower, Side::After), (upper, Side::UpTo)] {
        let Some(bound) = bound else { continue };
        let (sql, order) = condition(key, side);
        filter.push_str(if filter.is_empty() { " WHERE " } else { " AND " });
        filter.push_str(&format!("({sql})"));
        values.extend(parameters(bound, &order)?);
    }
    Ok((filter, values))
}

/// Takes rows as they arrive. After an error, or when the page is large enough, the rest is only counted.
struct Rows<'a> {
    name: &'a str,
    plan: &'a Plan<'a>,
    buffer: RowBuffer,
    forms: Vec<Form>,
    /// The last row that was taken, as it came.
    last: Vec<u8>,
    seen: usize,
    bytes: usize,
    most: usize,
    failed: Option<Error>,
}

impl Rows<'_> {
    fn take(&mut self, forms: &[Form], row: &[u8]) {
        self.seen += 1;
        // Once a row was left out, all behind it are: the page ends with the last one taken.
        if self.failed.is_some() || self.seen - self.buffer.len() > 1 || self.bytes > self.most {
            return;
        }
        if self.forms.is_empty() {
            self.forms = forms.to_vec();
        }
        match self.push(forms, row) {
            Ok(()) => {
                self.buffer.end_row(RowKind::InsertAbsent);
                self.bytes += row.len();
                self.last.clear();
                self.last.extend_from_slice(row);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn push(&mut self, forms: &[Form], row: &[u8]) -> Result<()> {
        let bad = |error| malformed(self.name, error);
        let mut cells = Cells::new(forms, row).map_err(bad)?;
        for (i, column) in self.plan.columns.iter().enumerate() {
            let cell = cells.next().map_err(bad)?;
            push(self.buffer.column_mut(i), column.column_type, cell)
                .map_err(|error| refused(self.name, column, error))?;
        }
        // Behind the columns are values that only serve as bounds.
        for _ in self.plan.columns.len()..forms.len() {
            cells.next().map_err(bad)?;
        }
        cells.end().map_err(bad)
    }
}

fn malformed(table: &str, error: BadRow) -> Error {
    let error = DriverError::UnexpectedPacket { payload: error.to_string().into_bytes() };
    query_failed(&format!("a page of {table} could not be read"), error.into())
}

fn refused(table: &str, column: &Column<'_>, error: PushError) -> Error {
    let code = if column.is_key { Code::KeyNotStorable } else { Code::ValueNotStorable };
    Error::new(code, format!("a value of {table}, column `{}`, cannot be stored", column.name))
        .with_detail(format!("The reason: {error}."))
}

/// Pushes a selected value in the form that the log's row images give it as well.
fn push(out: &mut ColumnBuffer, column_type: &MysqlType, cell: Cell<'_>) -> Result<(), PushError> {
    match cell {
        Cell::Null => out.push_null(),
        Cell::Int(value) => out.push_i64(value),
        Cell::UInt(value) => out.push_u64(value),
        Cell::Float(value) => out.push_f32(value),
        Cell::Double(value) => out.push_f64(value),
        Cell::Bytes(bytes) => match column_type {
            MysqlType::Decimal { precision, scale, .. } if *precision <= 38 => {
                out.push_decimal(decimal(bytes, *scale).ok_or(PushError::OutOfRange)?)
            }
            MysqlType::Bit { length: 1 } => out.push_bool(bytes.iter().any(|byte| *byte != 0)),
            MysqlType::Binary { length } => out.push_padded(bytes, *length as usize),
            _ => out.push_bytes(bytes),
        },
        Cell::Date(year, month, day, hour, minute, second, micros) => {
            let (year, month, day) = (u32::from(year), u32::from(month), u32::from(day));
            if *column_type == MysqlType::Date {
                return match date_days(year, month, day) {
                    Some(days) => out.push_date(days),
                    None => out.push_null(),
                };
            }
            let parts = DateTimeParts {
                year,
                month,
                day,
                hour: u32::from(hour),
                minute: u32::from(minute),
                second: u32::from(second),
                micros,
            };
            match parts.micros_since_epoch() {
                Some(micros) => out.push_micros(micros),
                None => out.push_null(),
            }
        }
        Cell::Time(negative, days, hours, minutes, seconds, micros) => {
            let MysqlType::Time { fsp } = column_type else { return Err(PushError::WrongType) };
            let hours = days.saturating_mul(24).saturating_add(u32::from(hours));
            let (minutes, seconds) = (u32::from(minutes), u32::from(seconds));
            out.push_text_with(|text| {
                write_time(text, negative, hours, minutes, seconds, micros, *fsp);
                Ok(())
            })
        }
    }
}

/// The digits of a decimal as the server spells it, as an integer at the column's scale.
fn decimal(text: &[u8], scale: u8) -> Option<i128> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let mut value: i128 = 0;
    let mut fraction: Option<u8> = None;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
                if let Some(places) = &mut fraction {
                    *places += 1;
                }
            }
            b'.' if fraction.is_none() => fraction = Some(0),
            _ => return None,
        }
    }
    let missing = scale.checked_sub(fraction.unwrap_or(0))?;
    value = value.checked_mul(10_i128.checked_pow(u32::from(missing))?)?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests;
