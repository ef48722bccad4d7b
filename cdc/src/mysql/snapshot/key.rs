//! Key values as bounds of SELECTs, in forms whose comparison by the server agrees with its ORDER BY.

use std::fmt;

use mysql_async::Value;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Code, Error, Result};
use crate::mysql::types::{MysqlTable, MysqlType};

/// One column of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyValue {
    /// A signed number; also a YEAR.
    Int(i64),
    /// An unsigned number; also the number of an ENUM, SET or BIT value.
    Uint(u64),
    /// FLOAT and DOUBLE. FLOAT values are exact in it.
    Double(f64),
    /// Text, and DECIMAL, DATE, TIME, DATETIME and TIMESTAMP (in UTC) in the server's own spelling.
    Text(String),
    /// BINARY and VARBINARY.
    Bytes(#[serde(serialize_with = "to_hex", deserialize_with = "from_hex")] Vec<u8>),
}

/// As operators see it.
impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
            Self::Bytes(value) => write!(f, "0x{}", hex(value)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn to_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect::<Option<Vec<u8>>>();
    bytes.filter(|_| odd.is_empty()).ok_or_else(|| serde::de::Error::custom("not hexadecimal"))
}

/// A part of a table by its key, both bounds in key order. An open bound has no end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The number of the range within its table.
    pub id: u32,
    /// Behind this key, which is not in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<Vec<KeyValue>>,
    /// Up to this key, which is in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<Vec<KeyValue>>,
}

impl KeyRange {
    /// The range of a whole table.
    pub fn whole() -> Self {
        Self { id: 0, lower: None, upper: None }
    }
}

/// How a key column is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// As a number.
    Number,
    /// As the number behind a label or a bit string: `ORDER BY` goes by it, comparisons with text do not.
    Ordinal,
    /// As a number, but not with the column itself: a server reads small numbers compared with a YEAR as two-digit years.
    Year,
    /// As a number in floating point.
    Float,
    /// As text in the column's own character set and collation.
    Text { charset: String, collation: String },
    /// Byte by byte.
    Bytes,
    /// As a decimal of the column's own shape.
    Decimal { precision: u8, scale: u8 },
    /// As text that the server takes for a time: MySQL compares `CAST(? AS TIME)` as if it were behind every equal value.
    Time,
    /// As a date, or a date and a time.
    Temporal(&'static str),
}

/// A key column in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// Quoted.
    name: String,
    form: Form,
}

/// A name between backticks.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

impl KeyColumn {
    /// The columns of a table's key.
    pub(crate) fn of(table: &MysqlTable) -> Result<Vec<Self>> {
        if table.primary_key.is_empty() {
            return Err(Error::new(
                Code::NoPrimaryKey,
                format!("{}.{} has no primary key", table.database, table.name),
            ));
        }
        table.primary_key.iter().map(|name| Self::new(table, name)).collect()
    }

    fn new(table: &MysqlTable, name: &str) -> Result<Self> {
        let column = table.column_index(name).and_then(|index| table.columns.get(index)).ok_or_else(|| {
            Error::new(Code::KeyUnknown, format!("{}.{} has no column `{name}`", table.database, table.name))
        })?;
        let form = match &column.column_type {
            MysqlType::TinyInt { .. }
            | MysqlType::SmallInt { .. }
            | MysqlType::MediumInt { .. }
            | MysqlType::Int { .. }
            | MysqlType::BigInt { .. } => Form::Number,
            MysqlType::Year => Form::Year,
            MysqlType::Enum { .. } | MysqlType::Set { .. } | MysqlType::Bit { .. } => Form::Ordinal,
            MysqlType::Float { .. } | MysqlType::Double { .. } => Form::Float,
            MysqlType::Decimal { precision, scale, .. } => Form::Decimal { precision: *precision, scale: *scale },
            MysqlType::Char { text, .. } | MysqlType::Varchar { text, .. } | MysqlType::Text { text, .. } => {
                Form::Text { charset: text.charset.clone(), collation: text.collation.clone() }
            }
            MysqlType::Binary { .. } | MysqlType::Varbinary { .. } | MysqlType::Blob { .. } => Form::Bytes,
            MysqlType::Date => Form::Temporal("DATE"),
            MysqlType::Time { .. } => Form::Time,
            MysqlType::DateTime { .. } | MysqlType::Timestamp { .. } => Form::Temporal("DATETIME(6)"),
            MysqlType::Json | MysqlType::Other(_) => {
                return Err(Error::new(
                    Code::UnsupportedType,
                    format!("{}.{}: column `{name}` cannot be a key", table.database, table.name),
                ));
            }
        };
        Ok(Self { name: quote(&column.name), form })
    }

    /// What is selected to get the value of a bound.
    pub(crate) fn selected(&self) -> String {
        match self.form {
            // Not `+0`, which is a DOUBLE and has no room for 64 bits.
            Form::Ordinal => format!("CAST({} AS UNSIGNED)", self.name),
            _ => self.name.clone(),
        }
    }

    /// Whether the bound's value is another than the column's own.
    pub(crate) fn is_ordinal(&self) -> bool {
        self.form == Form::Ordinal
    }

    /// The side of a comparison that is the column.
    fn compared(&self) -> String {
        match self.form {
            Form::Ordinal | Form::Year => format!("CAST({} AS UNSIGNED)", self.name),
            _ => self.name.clone(),
        }
    }

    /// The side of a comparison that is the bound.
    fn bound(&self) -> String {
        match &self.form {
            Form::Number | Form::Ordinal | Form::Year | Form::Float | Form::Time => "?".to_owned(),
            Form::Text { charset, collation } => {
                let value = match charset.as_str() {
                    "utf8mb4" | "" => "?".to_owned(),
                    charset => format!("CONVERT(? USING {charset})"),
                };
                if collation.is_empty() { value } else { format!("{value} COLLATE {collation}") }
            }
            // Bytes as a parameter would have to be text of the connection.
            Form::Bytes => "UNHEX(?)".to_owned(),
            Form::Decimal { precision, scale } => format!("CAST(? AS DECIMAL({precision},{scale}))"),
            Form::Temporal(name) => format!("CAST(? AS {name})"),
        }
    }
}

/// The side of a bound on which a row must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Behind it.
    After,
    /// Before it, or it.
    UpTo,
}

/// The condition that a row's key is on a side of a bound, and which of the bound's columns its parameters are.
///
/// Not a row constructor, `(a, b) > (?, ?)`: servers do not use an index for that.
pub(crate) fn condition(key: &[KeyColumn], side: Side) -> (String, Vec<usize>) {
    let (strict, last) = match side {
        Side::After => (">", ">"),
        Side::UpTo => ("<", "<="),
    };
    let mut order = Vec::new();
    let mut sql = String::new();
    if key.len() > 1 {
        // The range for the index's first column, which old optimisers do not find in what follows.
        sql.push_str(&format!("{} {strict}= {} AND ", key[0].compared(), key[0].bound()));
        order.push(0);
    }
    let mut closing = String::new();
    for (i, column) in key.iter().enumerate() {
        let (compared, bound) = (column.compared(), column.bound());
        if i + 1 == key.len() {
            sql.push_str(&format!("{compared} {last} {bound}"));
            order.push(i);
        } else {
            sql.push_str(&format!("({compared} {strict} {bound} OR ({compared} = {bound} AND "));
            order.extend([i, i]);
            closing.push_str("))");
        }
    }
    (sql + &closing, order)
}

/// The parameters of a condition.
pub(crate) fn parameters(bound: &[KeyValue], order: &[usize]) -> Result<Vec<Value>> {
    order
        .iter()
        .map(|&i| {
            bound
                .get(i)
                .map(KeyValue::parameter)
                .ok_or_else(|| Error::new(Code::Internal, "a bound has fewer values than the key has columns"))
        })
        .collect()
}

impl KeyValue {
    fn parameter(&self) -> Value {
        match self {
            KeyValue::Int(value) => Value::Int(*value),
            KeyValue::Uint(value) => Value::UInt(*value),
            KeyValue::Double(value) => Value::Double(*value),
            KeyValue::Text(text) => Value::Bytes(text.clone().into_bytes()),
            KeyValue::Bytes(bytes) => Value::Bytes(hex(bytes).into_bytes()),
        }
    }

    /// The bound that a selected value is; `None` for NULL and for bytes where text is due.
    pub(crate) fn from_selected(column: &KeyColumn, value: &Value) -> Option<Self> {
        Some(match value {
            Value::NULL => return None,
            Value::Int(value) => KeyValue::Int(*value),
            Value::UInt(value) => KeyValue::Uint(*value),
            Value::Float(value) => KeyValue::Double(f64::from(*value)),
            Value::Double(value) => KeyValue::Double(*value),
            Value::Bytes(bytes) if column.form == Form::Bytes => KeyValue::Bytes(bytes.clone()),
            Value::Bytes(bytes) => KeyValue::Text(String::from_utf8(bytes.clone()).ok()?),
            Value::Date(year, month, day, hour, minute, second, micros) => {
                let date = format!("{year:04}-{month:02}-{day:02}");
                KeyValue::Text(match column.form {
                    Form::Temporal("DATE") => date,
                    _ => format!("{date} {hour:02}:{minute:02}:{second:02}.{micros:06}"),
                })
            }
            Value::Time(negative, days, hours, minutes, seconds, micros) => {
                let sign = if *negative { "-" } else { "" };
                let hours = u64::from(*days) * 24 + u64::from(*hours);
                KeyValue::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}"))
            }
        })
    }
}

#[cfg(test)]
mod tests;
