//! Key ranges: parts of a table that are read in parallel.

use mysql_async::{Row, Value};

use super::key::{KeyColumn, KeyRange, KeyValue, quote};
use super::pages::within;
use crate::error::{Code, Error, Result};
use crate::mysql::ServerInfo;
use crate::mysql::connect::{Conn, ask_with};
use crate::mysql::server::SourceConnection;
use crate::mysql::types::{MysqlTable, MysqlType};

/// More ranges than this help nobody.
const MOST_RANGES: u64 = 4096;

/// Divides a table into ranges of about `range_rows` rows. Together they hold every key, the ones to come included.
///
/// The first range is open to below and the last to above. A table of one integer key is divided evenly between its
/// smallest and its largest key; other keys are found by walking the index.
pub async fn plan_ranges(
    conn: &mut dyn SourceConnection,
    _server: &ServerInfo,
    table: &MysqlTable,
    estimated_rows: u64,
    range_rows: u64,
) -> Result<Vec<KeyRange>> {
    let range_rows = range_rows.max(1);
    let key = KeyColumn::of(table)?;
    if estimated_rows <= range_rows {
        return Ok(vec![KeyRange::whole()]);
    }
    let wanted = estimated_rows.div_ceil(range_rows).min(MOST_RANGES);
    let bounds = match single_integer(table) {
        Some(unsigned) => even_bounds(conn, table, unsigned, wanted).await?,
        None => probed_bounds(conn, table, &key, estimated_rows.div_ceil(wanted).max(range_rows), wanted).await?,
    };
    Ok(ranges_between(bounds))
}

fn ranges_between(bounds: Vec<Vec<KeyValue>>) -> Vec<KeyRange> {
    let uppers = bounds.iter().cloned().map(Some).chain([None]);
    let lowers = std::iter::once(None).chain(bounds.iter().cloned().map(Some));
    (0..).zip(lowers.zip(uppers)).map(|(id, (lower, upper))| KeyRange { id, lower, upper }).collect()
}

/// Whether the key is one integer column; if so, whether it is unsigned.
fn single_integer(table: &MysqlTable) -> Option<bool> {
    let [name] = table.primary_key.as_slice() else { return None };
    let column = table.columns.get(table.column_index(name)?)?;
    match column.column_type {
        MysqlType::TinyInt { unsigned }
        | MysqlType::SmallInt { unsigned }
        | MysqlType::MediumInt { unsigned }
        | MysqlType::Int { unsigned }
        | MysqlType::BigInt { unsigned } => Some(unsigned),
        _ => None,
    }
}

fn from(table: &MysqlTable) -> String {
    format!("{}.{}", quote(&table.database), quote(&table.name))
}

async fn even_bounds(
    conn: &mut dyn SourceConnection,
    table: &MysqlTable,
    unsigned: bool,
    ranges: u64,
) -> Result<Vec<Vec<KeyValue>>> {
    let ends = conn.key_ends(table).await?;
    let number = |value: Value| match value {
        Value::Int(value) => Some(i128::from(value)),
        Value::UInt(value) => Some(i128::from(value)),
        _ => None,
    };
    let Some((Some(low), Some(high))) = ends.map(|(low, high)| (number(low), number(high))) else {
        return Ok(Vec::new());
    };
    even_split(low, high, ranges)
        .into_iter()
        .map(|bound| {
            let value = if unsigned {
                u64::try_from(bound).map(KeyValue::Uint)
            } else {
                i64::try_from(bound).map(KeyValue::Int)
            };
            value
                .map(|value| vec![value])
                .map_err(|error| Error::new(Code::Internal, "a key lies outside of its type").with_source(error))
        })
        .collect()
}

/// The upper bounds of all parts but the last, of a span of whole numbers.
fn even_split(low: i128, high: i128, parts: u64) -> Vec<i128> {
    let span = high - low + 1;
    let parts = i128::from(parts).min(span).max(1);
    (1..parts).map(|i| low + span * i / parts - 1).collect()
}

async fn probed_bounds(
    conn: &mut dyn SourceConnection,
    table: &MysqlTable,
    key: &[KeyColumn],
    range_rows: u64,
    ranges: u64,
) -> Result<Vec<Vec<KeyValue>>> {
    let mut bounds: Vec<Vec<KeyValue>> = Vec::new();
    while (bounds.len() as u64) + 1 < ranges {
        // Each probe goes on from the last one, so all of them together walk the index once.
        let Some(row) = conn.key_behind(table, key, bounds.last().map(Vec::as_slice), range_rows).await? else { break };
        let bound = key.iter().zip(row).map(|(column, value)| KeyValue::from_selected(column, &value)).collect();
        match bound {
            Some(bound) => bounds.push(bound),
            // A key that is no bound is found again, and reported, when its page is read.
            None => break,
        }
    }
    Ok(bounds)
}

/// The smallest and the largest key of a table with one key column.
pub(crate) async fn key_ends(conn: &mut Conn, table: &MysqlTable) -> Result<Option<(Value, Value)>> {
    let column = table.primary_key.first().map(|name| quote(name)).unwrap_or_default();
    let sql = format!("SELECT MIN({column}), MAX({column}) FROM {}", from(table));
    Ok(ask_with(conn, &planning(table), &sql, Vec::new()).await?.into_iter().next())
}

/// The key that is so many rows behind another, or behind the beginning.
pub(crate) async fn key_behind(
    conn: &mut Conn,
    table: &MysqlTable,
    key: &[KeyColumn],
    after: Option<&[KeyValue]>,
    rows: u64,
) -> Result<Option<Vec<Value>>> {
    let selected: Vec<String> = key.iter().map(KeyColumn::selected).collect();
    let order: Vec<String> = table.primary_key.iter().map(|name| quote(name)).collect();
    let (filter, values) = within(key, after, None)?;
    let sql = format!(
        "SELECT {} FROM {}{filter} ORDER BY {} LIMIT 1 OFFSET {}",
        selected.join(", "),
        from(table),
        order.join(", "),
        rows.saturating_sub(1),
    );
    let rows: Vec<Row> = ask_with(conn, &planning(table), &sql, values).await?;
    Ok(rows.into_iter().next().map(Row::unwrap))
}

/// The message of an error while ranges are planned.
fn planning(table: &MysqlTable) -> String {
    format!("{}.{} could not be divided into ranges", table.database, table.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_cover_the_span() {
        assert_eq!(even_split(1, 10, 3), [3, 6]);
        assert_eq!(even_split(5, 5, 4), []);
        assert_eq!(even_split(1, 2, 9), [1]);
        let most = i128::from(u64::MAX);
        assert_eq!(even_split(0, most, 2), [most / 2]);
        let least = i128::from(i64::MIN);
        assert_eq!(even_split(least, i128::from(i64::MAX), 2), [-1]);
    }

    #[test]
    fn ranges_join_without_gaps_and_are_open_at_both_ends() {
        let bounds = vec![vec![KeyValue::Int(3)], vec![KeyValue::Int(6)]];
        let ranges = ranges_between(bounds);
        assert_eq!(ranges.len(), 3);
        assert_eq!((ranges[0].lower.clone(), ranges[2].upper.clone()), (None, None));
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].upper, pair[1].lower);
            assert_eq!(pair[0].id + 1, pair[1].id);
        }
        assert_eq!(ranges_between(Vec::new()), [KeyRange::whole()]);
    }
}
