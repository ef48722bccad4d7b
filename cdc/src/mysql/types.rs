//! MySQL and MariaDB column types as the data dictionary spells them, and the column types of the mirrored table.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_storage::paimon::DataType;

#[cfg(test)]
mod tests;

/// Character set and collation of a text column, by their server names. Empty when the server did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TextCharset {
    /// For example `utf8mb4`.
    pub charset: String,
    /// For example `utf8mb4_0900_ai_ci`.
    pub collation: String,
}

impl TextCharset {
    /// From the two columns of `information_schema.COLUMNS`; a charset missing there is taken from the collation's name.
    pub fn new(charset: Option<&str>, collation: Option<&str>) -> Self {
        let collation = collation.unwrap_or_default().to_ascii_lowercase();
        let charset = match charset {
            Some(name) if !name.is_empty() => name.to_ascii_lowercase(),
            _ => collation.split('_').next().unwrap_or_default().to_owned(),
        };
        Self { charset, collation }
    }
}

/// The sizes in which TEXT and BLOB come; the size is the width of the length in front of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LobSize {
    /// TINYTEXT, TINYBLOB: up to 255 bytes.
    Tiny,
    /// TEXT, BLOB: up to 64 KiB.
    Regular,
    /// MEDIUMTEXT, MEDIUMBLOB: up to 16 MiB.
    Medium,
    /// LONGTEXT, LONGBLOB: up to 4 GiB.
    Long,
}

impl LobSize {
    fn prefix(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Regular => "",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// How many bytes hold the length of a value in a row image.
    pub fn length_bytes(self) -> u8 {
        match self {
            Self::Tiny => 1,
            Self::Regular => 2,
            Self::Medium => 3,
            Self::Long => 4,
        }
    }
}

/// The type of a MySQL or MariaDB column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MysqlType {
    /// TINYINT, BOOLEAN.
    TinyInt { unsigned: bool },
    /// SMALLINT.
    SmallInt { unsigned: bool },
    /// MEDIUMINT.
    MediumInt { unsigned: bool },
    /// INT.
    Int { unsigned: bool },
    /// BIGINT.
    BigInt { unsigned: bool },
    /// DECIMAL(precision, scale), precision up to 65.
    Decimal { precision: u8, scale: u8, unsigned: bool },
    /// FLOAT, four bytes.
    Float { unsigned: bool },
    /// DOUBLE, eight bytes.
    Double { unsigned: bool },
    /// CHAR(length), length in characters.
    Char { length: u32, text: TextCharset },
    /// VARCHAR(length), length in characters.
    Varchar { length: u32, text: TextCharset },
    /// TINYTEXT to LONGTEXT. MariaDB's JSON is a LONGTEXT.
    Text { size: LobSize, text: TextCharset },
    /// BINARY(length), padded with zero bytes.
    Binary { length: u32 },
    /// VARBINARY(length).
    Varbinary { length: u32 },
    /// TINYBLOB to LONGBLOB.
    Blob { size: LobSize },
    /// DATE.
    Date,
    /// TIME(fsp).
    Time { fsp: u8 },
    /// DATETIME(fsp).
    DateTime { fsp: u8 },
    /// TIMESTAMP(fsp).
    Timestamp { fsp: u8 },
    /// YEAR.
    Year,
    /// ENUM with its labels in order; the first has index 1.
    Enum { labels: Vec<String>, text: TextCharset },
    /// SET with its labels in order; the first is bit 0.
    Set { labels: Vec<String>, text: TextCharset },
    /// BIT(length), length in bits.
    Bit { length: u8 },
    /// MySQL's binary JSON.
    Json,
    /// A type that is not mirrored, as the server spells it.
    Other(String),
}

/// A column of a captured table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlColumn {
    /// The name as it was written in the definition.
    pub name: String,
    /// Its type.
    pub column_type: MysqlType,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// The column's comment; empty if it has none.
    #[serde(default)]
    pub comment: String,
    /// The default as `information_schema.COLUMNS.COLUMN_DEFAULT` gives it.
    #[serde(default)]
    pub default: Option<String>,
    /// Whether the server computes the value (VIRTUAL and STORED generated columns).
    #[serde(default)]
    pub generated: bool,
    /// Whether `SELECT *` leaves the column out.
    #[serde(default)]
    pub invisible: bool,
}

/// A captured table, at one version of its definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlTable {
    /// The database it is in.
    pub database: String,
    /// Its name.
    pub name: String,
    /// All columns in the table's order, as they stand in row events.
    pub columns: Vec<MysqlColumn>,
    /// The names of the key columns, in key order.
    pub primary_key: Vec<String>,
}

impl MysqlTable {
    /// The position of a column; names of columns are compared without case, as the server does.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| same_name(&c.name, name))
    }
}

/// Whether two column names are the same to the server.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

impl MysqlType {
    /// Reads `information_schema.COLUMNS.COLUMN_TYPE`, or the type as a DDL statement spells it. A type that is not known becomes
    /// [`MysqlType::Other`].
    pub fn parse(column_type: &str, charset: Option<&str>, collation: Option<&str>) -> Self {
        parse(column_type, &TextCharset::new(charset, collation)).unwrap_or_else(|| Self::Other(column_type.to_owned()))
    }

    /// The mirrored column's type, or why the column cannot be mirrored.
    pub fn data_type(&self) -> Result<DataType, String> {
        Ok(match self {
            Self::TinyInt { unsigned: false } => DataType::TinyInt,
            Self::TinyInt { unsigned: true } | Self::SmallInt { unsigned: false } => DataType::SmallInt,
            Self::SmallInt { unsigned: true } | Self::MediumInt { .. } | Self::Int { unsigned: false } | Self::Year => {
                DataType::Int
            }
            Self::Int { unsigned: true } | Self::BigInt { unsigned: false } => DataType::BigInt,
            Self::BigInt { unsigned: true } => DataType::Decimal { precision: 20, scale: 0 },
            Self::Decimal { precision, scale, .. } if *precision <= 38 => {
                DataType::Decimal { precision: *precision, scale: *scale as i8 }
            }
            Self::Float { .. } => DataType::Float,
            Self::Double { .. } => DataType::Double,
            // The mirror's shortest VARCHAR has one character.
            Self::Char { length, .. } | Self::Varchar { length, .. } => DataType::Varchar((*length).max(1)),
            Self::Binary { length: 0 } => DataType::Varbinary(1),
            Self::Binary { length } => DataType::Binary(*length),
            Self::Varbinary { length } => DataType::Varbinary((*length).max(1)),
            Self::Blob { .. } => DataType::Bytes,
            Self::Date => DataType::Date,
            Self::DateTime { .. } => DataType::Timestamp(6),
            Self::Timestamp { .. } => DataType::TimestampLtz(6),
            Self::Bit { length: 1 } => DataType::Boolean,
            Self::Bit { length } => DataType::Varbinary(u32::from(*length).div_ceil(8).max(1)),
            Self::Decimal { .. }
            | Self::Text { .. }
            | Self::Time { .. }
            | Self::Enum { .. }
            | Self::Set { .. }
            | Self::Json => DataType::String,
            Self::Other(name) => return Err(format!("columns of type {name} are not supported")),
        })
    }

    /// The charset of a column that holds text.
    pub fn text_charset(&self) -> Option<&TextCharset> {
        match self {
            Self::Char { text, .. }
            | Self::Varchar { text, .. }
            | Self::Text { text, .. }
            | Self::Enum { text, .. }
            | Self::Set { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether values are signed numbers; `None` if the type is not a number.
    pub fn is_unsigned(&self) -> Option<bool> {
        match self {
            Self::TinyInt { unsigned }
            | Self::SmallInt { unsigned }
            | Self::MediumInt { unsigned }
            | Self::Int { unsigned }
            | Self::BigInt { unsigned }
            | Self::Decimal { unsigned, .. }
            | Self::Float { unsigned }
            | Self::Double { unsigned } => Some(*unsigned),
            _ => None,
        }
    }
}

/// The type as the server spells it, without charset; labels are only counted.
impl fmt::Display for MysqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = |f: &mut fmt::Formatter<'_>, name: &str, fsp: u8| match fsp {
            0 => f.write_str(name),
            _ => write!(f, "{name}({fsp})"),
        };
        match self {
            Self::TinyInt { .. } => f.write_str("tinyint")?,
            Self::SmallInt { .. } => f.write_str("smallint")?,
            Self::MediumInt { .. } => f.write_str("mediumint")?,
            Self::Int { .. } => f.write_str("int")?,
            Self::BigInt { .. } => f.write_str("bigint")?,
            Self::Decimal { precision, scale, .. } => write!(f, "decimal({precision},{scale})")?,
            Self::Float { .. } => f.write_str("float")?,
            Self::Double { .. } => f.write_str("double")?,
            Self::Char { length, .. } => write!(f, "char({length})")?,
            Self::Varchar { length, .. } => write!(f, "varchar({length})")?,
            Self::Text { size, .. } => write!(f, "{}text", size.prefix())?,
            Self::Binary { length } => write!(f, "binary({length})")?,
            Self::Varbinary { length } => write!(f, "varbinary({length})")?,
            Self::Blob { size } => write!(f, "{}blob", size.prefix())?,
            Self::Date => f.write_str("date")?,
            Self::Time { fsp } => fraction(f, "time", *fsp)?,
            Self::DateTime { fsp } => fraction(f, "datetime", *fsp)?,
            Self::Timestamp { fsp } => fraction(f, "timestamp", *fsp)?,
            Self::Year => f.write_str("year")?,
            Self::Enum { labels, .. } => write!(f, "enum of {} labels", labels.len())?,
            Self::Set { labels, .. } => write!(f, "set of {} labels", labels.len())?,
            Self::Bit { length } => write!(f, "bit({length})")?,
            Self::Json => f.write_str("json")?,
            Self::Other(name) => f.write_str(name)?,
        }
        if self.is_unsigned() == Some(true) { f.write_str(" unsigned") } else { Ok(()) }
    }
}

fn parse(column_type: &str, text: &TextCharset) -> Option<MysqlType> {
    let source = column_type.trim();
    let word_end = source.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(source.len());
    let (word, mut rest) = source.split_at(word_end);
    let mut word = word.to_ascii_lowercase();
    rest = rest.trim_start();
    // Types of two words.
    for (first, second, is) in [
        ("double", "precision", "double"),
        ("long", "varchar", "mediumtext"),
        ("long", "varbinary", "mediumblob"),
        ("character", "varying", "varchar"),
        ("char", "varying", "varchar"),
        ("national", "varchar", "varchar"),
        ("national", "char", "char"),
        ("national", "character", "char"),
        ("char", "byte", "binary"),
    ] {
        if word == first && rest.get(..second.len()).is_some_and(|r| r.eq_ignore_ascii_case(second)) {
            word = is.to_owned();
            rest = rest[second.len()..].trim_start();
            break;
        }
    }
    if word == "enum" || word == "set" {
        let labels = parse_labels(rest)?;
        let text = text.clone();
        return Some(if word == "enum" { MysqlType::Enum { labels, text } } else { MysqlType::Set { labels, text } });
    }
    let mut arguments: Vec<u32> = Vec::new();
    if let Some(inside) = rest.strip_prefix('(') {
        let (list, after) = inside.split_once(')')?;
        for argument in list.split(',') {
            arguments.push(argument.trim().parse().ok()?);
        }
        rest = after;
    }
    let attributes = rest.to_ascii_lowercase();
    let has = |name: &str| attributes.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == name);
    if has("compressed") {
        // MariaDB keeps such values packed in the row images too.
        return None;
    }
    // ZEROFILL makes a column UNSIGNED.
    let unsigned = has("unsigned") || has("zerofill");
    let first = arguments.first().copied();
    let fsp = || first.map_or(Some(0), |f| u8::try_from(f).ok().filter(|f| *f <= 6));
    let is_binary = text.charset == "binary";
    let lob = |size| {
        if is_binary { MysqlType::Blob { size } } else { MysqlType::Text { size, text: text.clone() } }
    };
    Some(match word.as_str() {
        "tinyint" | "bool" | "boolean" | "int1" => MysqlType::TinyInt { unsigned },
        "smallint" | "int2" => MysqlType::SmallInt { unsigned },
        "mediumint" | "int3" | "middleint" => MysqlType::MediumInt { unsigned },
        "int" | "integer" | "int4" => MysqlType::Int { unsigned },
        "bigint" | "int8" => MysqlType::BigInt { unsigned },
        "serial" => MysqlType::BigInt { unsigned: true },
        "decimal" | "dec" | "numeric" | "fixed" => {
            let precision = u8::try_from(first.unwrap_or(10)).ok().filter(|p| *p <= 65)?;
            let scale = u8::try_from(arguments.get(1).copied().unwrap_or(0)).ok().filter(|s| *s <= precision)?;
            MysqlType::Decimal { precision: if precision == 0 { 10 } else { precision }, scale, unsigned }
        }
        "float" if arguments.len() == 1 && first > Some(24) => MysqlType::Double { unsigned },
        "float" | "float4" => MysqlType::Float { unsigned },
        "double" | "real" | "float8" => MysqlType::Double { unsigned },
        "char" | "character" | "nchar" if is_binary => MysqlType::Binary { length: first.unwrap_or(1) },
        "char" | "character" | "nchar" => MysqlType::Char { length: first.unwrap_or(1), text: text.clone() },
        "varchar" | "nvarchar" | "varcharacter" if is_binary => MysqlType::Varbinary { length: first? },
        "varchar" | "nvarchar" | "varcharacter" => MysqlType::Varchar { length: first?, text: text.clone() },
        "tinytext" => lob(LobSize::Tiny),
        "text" => lob(text_size(first, text)),
        "mediumtext" | "long" => lob(LobSize::Medium),
        "longtext" => lob(LobSize::Long),
        "binary" => MysqlType::Binary { length: first.unwrap_or(1) },
        "varbinary" => MysqlType::Varbinary { length: first? },
        "tinyblob" => MysqlType::Blob { size: LobSize::Tiny },
        "blob" => MysqlType::Blob { size: blob_size(first.map(u64::from)) },
        "mediumblob" => MysqlType::Blob { size: LobSize::Medium },
        "longblob" => MysqlType::Blob { size: LobSize::Long },
        "date" => MysqlType::Date,
        "time" => MysqlType::Time { fsp: fsp()? },
        "datetime" => MysqlType::DateTime { fsp: fsp()? },
        "timestamp" => MysqlType::Timestamp { fsp: fsp()? },
        "year" => MysqlType::Year,
        "bit" => MysqlType::Bit { length: u8::try_from(first.unwrap_or(1)).ok().filter(|n| (1..=64).contains(n))? },
        "json" => MysqlType::Json,
        _ => return None,
    })
}

/// `BLOB(n)` is the smallest kind that holds n bytes.
fn blob_size(bytes: Option<u64>) -> LobSize {
    match bytes {
        None | Some(0) => LobSize::Regular,
        Some(n) if n < 1 << 8 => LobSize::Tiny,
        Some(n) if n < 1 << 16 => LobSize::Regular,
        Some(n) if n < 1 << 24 => LobSize::Medium,
        Some(_) => LobSize::Long,
    }
}

/// `TEXT(n)` is the smallest kind that holds n characters.
fn text_size(characters: Option<u32>, text: &TextCharset) -> LobSize {
    let width = match text.charset.as_str() {
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        "utf8" | "utf8mb3" | "ujis" | "eucjpms" => 3,
        "ucs2" | "gbk" | "gb2312" | "big5" | "sjis" | "cp932" | "euckr" => 2,
        _ => 1,
    };
    blob_size(characters.map(|n| u64::from(n) * width))
}

/// Reads `('a','it''s','x,y')`. The server doubles quotes and writes NUL, newline, carriage return and backslash with a backslash.
fn parse_labels(list: &str) -> Option<Vec<String>> {
    let mut labels = Vec::new();
    let mut chars = list.trim_start().strip_prefix('(')?.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next()? != '\'' {
            return None;
        }
        let mut label = String::new();
        loop {
            match chars.next()? {
                '\'' if chars.next_if_eq(&'\'').is_some() => label.push('\''),
                '\'' => break,
                '\\' => match chars.next()? {
                    '0' => label.push('\0'),
                    'n' => label.push('\n'),
                    'r' => label.push('\r'),
                    't' => label.push('\t'),
                    'b' => label.push('\u{8}'),
                    'Z' => label.push('\u{1a}'),
                    other => label.push(other),
                },
                other => label.push(other),
            }
        }
        labels.push(label);
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.next()? {
            ',' => {}
            ')' => return Some(labels),
            _ => return None,
        }
    }
}
