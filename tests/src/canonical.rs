//! Rows as canonical text, so that MySQL's tables and their mirrors can be compared value by value.
//!
//! MySQL is read over its binary protocol, which gives numbers and floats exactly; Tidegate over PostgreSQL's text protocol, as psql would. Each
//! side is brought into one text according to the column's type in MySQL.

use std::collections::BTreeMap;

use mysql_async::{Conn, Row, Value, prelude::Queryable};

use crate::{
    pg::{Pg, TextRow},
    servers::Server,
};

/// How a column's values are brought into canonical text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Integers, decimals, strings, labels: the text itself.
    Text,
    Float,
    Double,
    Bytes,
    Boolean,
    Bits,
    Date,
    Time {
        fraction_digits: usize,
    },
    Moment,
    Json,
}

/// A column of the compared table.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    form: Form,
}

/// What MySQL says of a table.
#[derive(Debug, Clone)]
pub struct Shape {
    pub database: String,
    pub table: String,
    pub columns: Vec<Column>,
    pub key: Vec<usize>,
}

/// The rows of a table by their keys, both as canonical text.
pub type Rows = BTreeMap<String, String>;

impl Shape {
    pub async fn load(conn: &mut Conn, database: &str, table: &str) -> Self {
        let rows: Vec<(String, String, String, Option<u32>, String)> = conn
            .exec(
                "SELECT column_name, data_type, column_type, datetime_precision, column_key FROM information_schema.columns
                 WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position",
                (database, table),
            )
            .await
            .expect("the columns can be listed");
        assert!(!rows.is_empty(), "MySQL has no table {database}.{table}");
        let mut columns = Vec::new();
        let mut key = Vec::new();
        for (i, (name, data_type, column_type, precision, column_key)) in rows.into_iter().enumerate() {
            let form = match data_type.to_lowercase().as_str() {
                "float" => Form::Float,
                "double" => Form::Double,
                "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Form::Bytes,
                "bit" if column_type.eq_ignore_ascii_case("bit(1)") => Form::Boolean,
                "bit" => Form::Bits,
                "date" => Form::Date,
                "time" => Form::Time { fraction_digits: precision.unwrap_or(0) as usize },
                "datetime" | "timestamp" => Form::Moment,
                "json" => Form::Json,
                // MariaDB's JSON is a text with a check: it is what was written.
                _ => Form::Text,
            };
            if column_key == "PRI" {
                key.push(i);
            }
            columns.push(Column { name, form });
        }
        Self { database: database.to_owned(), table: table.to_owned(), columns, key }
    }

    fn list(&self, quote: char) -> String {
        let names = self.columns.iter().map(|column| format!("{quote}{}{quote}", column.name));
        names.collect::<Vec<_>>().join(", ")
    }

    /// The table as MySQL has it.
    pub async fn mysql_rows(&self, conn: &mut Conn) -> Rows {
        let sql = format!("SELECT {} FROM `{}`.`{}`", self.list('`'), self.database, self.table);
        let rows: Vec<Row> = conn.exec(sql, ()).await.expect("MySQL's table can be read");
        let texts = rows.into_iter().map(|row| {
            let values = row.unwrap();
            self.columns.iter().zip(values).map(|(column, value)| column.form.of_mysql(value)).collect::<TextRow>()
        });
        self.keyed("MySQL", texts)
    }

    /// The table as Tidegate has it.
    pub async fn mirror_rows(&self, pg: &Pg) -> Rows {
        let sql = format!("SELECT {} FROM \"{}\".\"{}\"", self.list('"'), self.database, self.table);
        let rows = pg.rows(&sql).await;
        let texts = rows.into_iter().map(|row| {
            self.columns
                .iter()
                .zip(row)
                .map(|(column, value)| value.map(|value| column.form.of_mirror(&column.name, &value)))
                .collect::<TextRow>()
        });
        self.keyed("Tidegate", texts)
    }

    /// Brings rows that another reader gave as PostgreSQL's text into canonical form.
    pub fn canonical_rows(&self, reader: &str, rows: Vec<TextRow>) -> Rows {
        let texts = rows.into_iter().map(|row| {
            self.columns
                .iter()
                .zip(row)
                .map(|(column, value)| value.map(|value| column.form.of_mirror(&column.name, &value)))
                .collect::<TextRow>()
        });
        self.keyed(reader, texts)
    }

    fn keyed(&self, reader: &str, rows: impl Iterator<Item = TextRow>) -> Rows {
        let mut keyed = Rows::new();
        for row in rows {
            let key = self.key.iter().map(|i| text(row[*i].as_deref())).collect::<Vec<_>>().join(" | ");
            let values = row.iter().map(|value| text(value.as_deref())).collect::<Vec<_>>().join(" | ");
            if let Some(other) = keyed.insert(key.clone(), values.clone()) {
                panic!("{reader} has the key {key} of {}.{} twice: {other} and {values}", self.database, self.table);
            }
        }
        keyed
    }
}

fn text(value: Option<&str>) -> String {
    // A string could hold the word NULL: mark the absent value by what no escaped string starts with.
    value.map_or_else(|| "\\N".to_owned(), |value| value.escape_default().to_string())
}

impl Form {
    fn of_mysql(self, value: Value) -> Option<String> {
        Some(match (self, value) {
            (_, Value::NULL) => return None,
            (Self::Bytes | Self::Bits, Value::Bytes(bytes)) => hex(&bytes),
            (Self::Boolean, Value::Bytes(bytes)) => (bytes.last().copied().unwrap_or(0) & 1 == 1).to_string(),
            (Self::Json, Value::Bytes(bytes)) => canonical_json(&String::from_utf8_lossy(&bytes)),
            (_, Value::Bytes(bytes)) => String::from_utf8(bytes).unwrap_or_else(|bad| hex(bad.as_bytes())),
            (_, Value::Int(number)) => number.to_string(),
            (_, Value::UInt(number)) => number.to_string(),
            (_, Value::Float(number)) => format!("{number:?}"),
            (_, Value::Double(number)) => format!("{number:?}"),
            // Neither a zero date nor one with a zero month or day is a day: the mirror has NULL.
            (Self::Date | Self::Moment, Value::Date(_, month, day, ..)) if month == 0 || day == 0 => return None,
            (Self::Date, Value::Date(year, month, day, ..)) => format!("{year:04}-{month:02}-{day:02}"),
            (_, Value::Date(year, month, day, hour, minute, second, micros)) => {
                format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}")
            }
            (form, Value::Time(negative, days, hours, minutes, seconds, micros)) => {
                let sign = if negative { "-" } else { "" };
                let hours = days * 24 + u32::from(hours);
                let whole = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
                match form {
                    Self::Time { fraction_digits } if fraction_digits > 0 => {
                        format!("{whole}.{}", &format!("{micros:06}")[..fraction_digits.min(6)])
                    }
                    _ => whole,
                }
            }
        })
    }

    fn of_mirror(self, column: &str, value: &str) -> String {
        let bad = |what: &str| -> String { panic!("column {column}: {value:?} is not {what}") };
        match self {
            Self::Text | Self::Date | Self::Time { .. } => value.to_owned(),
            Self::Float => value.parse::<f32>().map_or_else(|_| bad("a float"), |number| format!("{number:?}")),
            Self::Double => value.parse::<f64>().map_or_else(|_| bad("a double"), |number| format!("{number:?}")),
            Self::Bytes | Self::Bits => {
                value.strip_prefix("\\x").map_or_else(|| bad("bytes in hexadecimal"), str::to_owned)
            }
            Self::Boolean => match value {
                "t" => "true".to_owned(),
                "f" => "false".to_owned(),
                _ => bad("a boolean"),
            },
            Self::Moment => {
                let local = value.strip_suffix("+00").or_else(|| value.strip_suffix("+00:00")).unwrap_or(value);
                let (whole, fraction) = local.split_once('.').unwrap_or((local, ""));
                format!("{whole}.{fraction:0<6}")
            }
            Self::Json => canonical_json(value),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON with sorted keys and no blanks; what is no JSON stays as it is and will differ.
fn canonical_json(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

/// Panics with the first differences when two readers see a table differently.
#[track_caller]
pub fn assert_same(what: &str, (left_name, left): (&str, &Rows), (right_name, right): (&str, &Rows)) {
    if left == right {
        return;
    }
    let mut lines = Vec::new();
    for (key, row) in left {
        match right.get(key) {
            None => lines.push(format!("{key}: only {left_name} has {row}")),
            Some(other) if other != row => lines.push(format!("{key}: {left_name} {row}\n      {right_name} {other}")),
            Some(_) => {}
        }
    }
    lines.extend(
        right
            .iter()
            .filter(|(key, _)| !left.contains_key(*key))
            .map(|(key, row)| format!("{key}: only {right_name} has {row}")),
    );
    let count = lines.len();
    lines.truncate(12);
    panic!(
        "{what}: {count} differences, {left_name} has {} rows and {right_name} {}\n    {}",
        left.len(),
        right.len(),
        lines.join("\n    ")
    );
}

/// Compares tables of one database row by row; nothing may write to them meanwhile, and the mirror must have caught up.
pub async fn assert_tables_equal(server: &Server, pg: &Pg, database: &str, tables: &[&str]) {
    let mut conn = server.connect().await;
    for table in tables {
        let shape = Shape::load(&mut conn, database, table).await;
        let mysql = shape.mysql_rows(&mut conn).await;
        let mirror = shape.mirror_rows(pg).await;
        assert_same(&format!("{database}.{table} on {:?}", server.kind), ("MySQL", &mysql), ("Tidegate", &mirror));
        let count = pg.number(&format!("SELECT count(*) FROM \"{database}\".\"{table}\"")).await;
        assert_eq!(count, i64::try_from(mysql.len()).expect("few rows"), "count(*) of {database}.{table}");
    }
    let _ = conn.disconnect().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_meet_in_one_text() {
        assert_eq!(
            Form::Moment.of_mysql(Value::Date(2024, 2, 29, 23, 59, 59, 1)).as_deref(),
            Some("2024-02-29 23:59:59.000001")
        );
        assert_eq!(Form::Moment.of_mirror("c", "2024-02-29 23:59:59.000001+00"), "2024-02-29 23:59:59.000001");
        assert_eq!(Form::Moment.of_mirror("c", "2024-02-29 23:59:59.5"), "2024-02-29 23:59:59.500000");
        assert_eq!(Form::Moment.of_mysql(Value::Date(0, 0, 0, 0, 0, 0, 0)), None);
        assert_eq!(Form::Date.of_mysql(Value::Date(2024, 1, 0, 0, 0, 0, 0)), None);
        let time = Form::Time { fraction_digits: 3 };
        assert_eq!(time.of_mysql(Value::Time(true, 34, 22, 59, 59, 120_000)).as_deref(), Some("-838:59:59.120"));
        assert_eq!(Form::Float.of_mysql(Value::Float(0.1)).as_deref(), Some("0.1"));
        assert_eq!(Form::Float.of_mirror("c", "0.1"), "0.1");
        assert_eq!(
            Form::Double.of_mirror("c", "1e+300"),
            Form::Double.of_mysql(Value::Double(1e300)).expect("a number")
        );
        assert_eq!(Form::Json.of_mirror("c", "{\"b\": 1, \"a\": [1.5, null]}"), "{\"a\":[1.5,null],\"b\":1}");
    }

    #[test]
    #[should_panic(expected = "2 differences")]
    fn differences_are_counted() {
        let left = Rows::from([("1".to_owned(), "a".to_owned()), ("2".to_owned(), "b".to_owned())]);
        let right = Rows::from([
            ("1".to_owned(), "x".to_owned()),
            ("2".to_owned(), "b".to_owned()),
            ("3".to_owned(), "c".to_owned()),
        ]);
        assert_same("t", ("MySQL", &left), ("Tidegate", &right));
    }
}
