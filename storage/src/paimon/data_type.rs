//! Column types and their text form.

use std::fmt;
use std::str::FromStr;

use arrow::datatypes::{DataType as Arrow, TimeUnit};

use crate::error::Error;

/// A column's type, without its nullability. `Display` and `FromStr` use Paimon's type strings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DataType {
    /// `BOOLEAN`.
    Boolean,
    /// `TINYINT`: 8 bits, signed.
    TinyInt,
    /// `SMALLINT`: 16 bits, signed.
    SmallInt,
    /// `INT`: 32 bits, signed.
    Int,
    /// `BIGINT`: 64 bits, signed.
    BigInt,
    /// `FLOAT`: 32 bits.
    Float,
    /// `DOUBLE`: 64 bits.
    Double,
    /// `DECIMAL(precision, scale)`, precision 1 to 38.
    Decimal {
        /// All digits.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// `CHAR(n)`, in characters.
    Char(u32),
    /// `VARCHAR(n)`, in characters.
    Varchar(u32),
    /// `STRING`.
    String,
    /// `BINARY(n)`, in bytes.
    Binary(u32),
    /// `VARBINARY(n)`, in bytes.
    Varbinary(u32),
    /// `BYTES`.
    Bytes,
    /// `DATE`.
    Date,
    /// `TIMESTAMP(p)`: a wall-clock time without zone, `p` fractional digits (0 to 6 here).
    Timestamp(u8),
    /// `TIMESTAMP(p) WITH LOCAL TIME ZONE`: an instant.
    TimestampLtz(u8),
}

impl DataType {
    /// The Arrow type of the column's values in memory.
    pub fn arrow(&self) -> Arrow {
        match self {
            Self::Boolean => Arrow::Boolean,
            Self::TinyInt => Arrow::Int8,
            Self::SmallInt => Arrow::Int16,
            Self::Int => Arrow::Int32,
            Self::BigInt => Arrow::Int64,
            Self::Float => Arrow::Float32,
            Self::Double => Arrow::Float64,
            Self::Decimal { precision, scale } => Arrow::Decimal128(*precision, *scale),
            Self::Char(_) | Self::Varchar(_) | Self::String => Arrow::Utf8,
            Self::Binary(_) | Self::Varbinary(_) | Self::Bytes => Arrow::Binary,
            Self::Date => Arrow::Date32,
            Self::Timestamp(_) => Arrow::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampLtz(_) => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// Whether values stored as this type are the same values when they are read as `to`: wider numbers, longer
    /// strings, dates as midnight. Anything else needs the rows to be written anew.
    pub fn widens_to(&self, to: &Self) -> bool {
        use DataType::*;
        /// Decimal digits before and behind the point that a type holds.
        fn digits(data_type: &DataType) -> Option<(i16, i16)> {
            match data_type {
                TinyInt => Some((3, 0)),
                SmallInt => Some((5, 0)),
                Int => Some((10, 0)),
                BigInt => Some((19, 0)),
                Decimal { precision, scale } => Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale))),
                _ => None,
            }
        }
        match (self, to) {
            (from, to) if from == to => true,
            (TinyInt, SmallInt | Int | BigInt) | (SmallInt, Int | BigInt) | (Int, BigInt) => true,
            (from, Decimal { .. }) => match (digits(from), digits(to)) {
                (Some(from), Some(to)) => from.0 <= to.0 && from.1 <= to.1,
                _ => false,
            },
            (TinyInt | SmallInt, Float) | (TinyInt | SmallInt | Int | Float, Double) => true,
            (Char(n) | Varchar(n), Varchar(m)) => n <= m,
            (Char(_) | Varchar(_), String) => true,
            (Binary(n) | Varbinary(n), Varbinary(m)) => n <= m,
            (Binary(_) | Varbinary(_), Bytes) => true,
            (Timestamp(p), Timestamp(q)) | (TimestampLtz(p), TimestampLtz(q)) => p <= q,
            (Date, Timestamp(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::TinyInt => f.write_str("TINYINT"),
            Self::SmallInt => f.write_str("SMALLINT"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal { precision, scale } => write!(f, "DECIMAL({precision}, {scale})"),
            Self::Char(n) => write!(f, "CHAR({n})"),
            Self::Varchar(n) => write!(f, "VARCHAR({n})"),
            Self::String => f.write_str("STRING"),
            Self::Binary(n) => write!(f, "BINARY({n})"),
            Self::Varbinary(n) => write!(f, "VARBINARY({n})"),
            Self::Bytes => f.write_str("BYTES"),
            Self::Date => f.write_str("DATE"),
            Self::Timestamp(p) => write!(f, "TIMESTAMP({p})"),
            Self::TimestampLtz(p) => write!(f, "TIMESTAMP({p}) WITH LOCAL TIME ZONE"),
        }
    }
}

impl FromStr for DataType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| Error::invalid(format!("column type {text:?} is not supported")))
    }
}

/// The length Paimon writes for `STRING` and `BYTES` when they are spelt as `VARCHAR` and `VARBINARY`.
const MAX_LENGTH: u32 = i32::MAX as u32;

fn parse(text: &str) -> Option<DataType> {
    let text = text.trim().to_ascii_uppercase();
    let (name, arguments, rest) = match text.find('(') {
        Some(open) => {
            let close = open + text[open..].find(')')?;
            let arguments: Option<Vec<u32>> = text[open + 1..close].split(',').map(|n| n.trim().parse().ok()).collect();
            (text[..open].trim(), arguments?, text[close + 1..].trim())
        }
        None => match text.split_once(' ') {
            Some((name, rest)) => (name, Vec::new(), rest.trim()),
            None => (text.as_str(), Vec::new(), ""),
        },
    };
    let one = |default: u32| match arguments.as_slice() {
        [] => Some(default),
        [n] => Some(*n),
        _ => None,
    };
    let fraction = || one(6).filter(|p| *p <= 6).and_then(|p| u8::try_from(p).ok());
    let parsed = match (name, rest) {
        ("TIMESTAMP", "" | "WITHOUT TIME ZONE") => return fraction().map(DataType::Timestamp),
        ("TIMESTAMP", "WITH LOCAL TIME ZONE") | ("TIMESTAMP_LTZ", "") => return fraction().map(DataType::TimestampLtz),
        ("DECIMAL" | "NUMERIC" | "DEC", "") => {
            let (precision, scale) = match arguments.as_slice() {
                [] => (10, 0),
                [p] => (*p, 0),
                [p, s] => (*p, *s),
                _ => return None,
            };
            if !(1..=38).contains(&precision) || scale > precision {
                return None;
            }
            return Some(DataType::Decimal {
                precision: u8::try_from(precision).ok()?,
                scale: i8::try_from(scale).ok()?,
            });
        }
        ("CHAR", "") => return one(1).map(DataType::Char),
        ("VARCHAR", "") => {
            return one(1).map(|n| if n == MAX_LENGTH { DataType::String } else { DataType::Varchar(n) });
        }
        ("BINARY", "") => return one(1).map(DataType::Binary),
        ("VARBINARY", "") => {
            return one(1).map(|n| if n == MAX_LENGTH { DataType::Bytes } else { DataType::Varbinary(n) });
        }
        ("BOOLEAN", "") => DataType::Boolean,
        ("TINYINT", "") => DataType::TinyInt,
        ("SMALLINT", "") => DataType::SmallInt,
        ("INT" | "INTEGER", "") => DataType::Int,
        ("BIGINT", "") => DataType::BigInt,
        ("FLOAT", "") => DataType::Float,
        ("DOUBLE", "" | "PRECISION") => DataType::Double,
        ("STRING", "") => DataType::String,
        ("BYTES", "") => DataType::Bytes,
        ("DATE", "") => DataType::Date,
        _ => return None,
    };
    arguments.is_empty().then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_strings_survive_a_round_trip() {
        for text in [
            "BOOLEAN",
            "TINYINT",
            "SMALLINT",
            "INT",
            "BIGINT",
            "FLOAT",
            "DOUBLE",
            "DECIMAL(20, 0)",
            "DECIMAL(38, 38)",
            "CHAR(3)",
            "VARCHAR(255)",
            "STRING",
            "BINARY(16)",
            "VARBINARY(7)",
            "BYTES",
            "DATE",
            "TIMESTAMP(0)",
            "TIMESTAMP(6)",
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        ] {
            assert_eq!(text.parse::<DataType>().expect(text).to_string(), text);
        }
        assert_eq!("varchar(2147483647)".parse::<DataType>().unwrap(), DataType::String);
        assert_eq!("TIMESTAMP_LTZ(6)".parse::<DataType>().unwrap(), DataType::TimestampLtz(6));
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        for text in [
            "",
            "ROW<a INT>",
            "DECIMAL(39, 0)",
            "DECIMAL(3, 4)",
            "TIMESTAMP(9)",
            "INT(",
            "INT(4)",
            "CHAR(1, 2)",
            "INT NOT",
            "DATE)(",
        ] {
            let error = text.parse::<DataType>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
