//! TABLE_MAP: the columns that the row events after it have.

use std::fmt;

use super::error::DecodeError;
use super::reader::{Cut, Reader};

#[cfg(test)]
mod tests;

/// The table that row events with this number are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap {
    /// The number that row events use. It means something only until the statement ends.
    pub table_id: u64,
    /// The table's database.
    pub database: String,
    /// The table's name.
    pub table: String,
    /// Column types and metadata, read when a decoder is compiled. Equal bytes mean equal columns.
    pub(super) definition: Vec<u8>,
}

impl TableMap {
    pub(super) fn parse(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let table_id = reader.u48()?;
        let _flags = reader.u16()?;
        let mut name = || -> Result<String, Cut> {
            let name = String::from_utf8_lossy(reader.short_bytes()?).into_owned();
            reader.u8()?;
            Ok(name)
        };
        let (database, table) = (name()?, name()?);
        Ok(Self { table_id, database, table, definition: reader.rest().to_vec() })
    }

    /// Whether a decoder compiled for the other map decodes this one's rows as well.
    pub fn same_columns(&self, other: &Self) -> bool {
        self.definition == other.definition
    }

    pub(super) fn columns(&self) -> Result<Vec<MapColumn>, DecodeError> {
        let mut reader = Reader::new(&self.definition);
        let width = usize::try_from(reader.length()?).map_err(|_| Cut)?;
        let kinds = reader.bytes(width)?;
        let mut meta = Reader::new(reader.length_bytes()?);
        let mut columns = Vec::with_capacity(width);
        for kind in kinds {
            columns.push(MapColumn::read(*kind, &mut meta)?);
        }
        let nullable = reader.bytes(width.div_ceil(8))?;
        for (column, nullable) in columns.iter_mut().zip(bits(nullable, 0)) {
            column.nullable = nullable;
        }
        while !reader.is_empty() {
            let field = reader.u8()?;
            let value = Reader::new(reader.length_bytes()?);
            read_metadata(field, value, &mut columns)?;
        }
        Ok(columns)
    }
}

/// The bits of a bitmap from `bit` of its first byte on: from the lowest if 0; the optional metadata starts with the highest.
fn bits(bytes: &[u8], bit: u8) -> impl Iterator<Item = bool> + '_ {
    bytes.iter().flat_map(move |byte| (0..8).map(move |i| byte & (1 << if bit == 0 { i } else { bit - i }) != 0))
}

/// A column as a table map has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapColumn {
    /// The type, ENUM and SET told apart from CHAR.
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    pub(super) unsigned: Option<bool>,
    /// The collation's number.
    pub(super) collation: Option<u32>,
    pub(super) name: Option<Vec<u8>>,
    /// The labels of ENUM and SET, in the column's charset.
    pub(super) labels: Option<Vec<Vec<u8>>>,
}

/// A column's type in the log, with what its metadata says about the form of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tiny,
    Short,
    Int24,
    Long,
    LongLong,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year,
    Date,
    /// TIME, DATETIME and TIMESTAMP as they were stored before MySQL 5.6.
    OldTime,
    OldDateTime,
    OldTimestamp,
    Time {
        fsp: u8,
    },
    DateTime {
        fsp: u8,
    },
    Timestamp {
        fsp: u8,
    },
    Bit {
        bits: u16,
    },
    Enum {
        bytes: u8,
    },
    Set {
        bytes: u8,
    },
    /// CHAR and BINARY, of at most so many bytes.
    String {
        bytes: u16,
    },
    /// VARCHAR and VARBINARY, of at most so many bytes.
    Varchar {
        bytes: u16,
    },
    /// TEXT and BLOB, with so many bytes of length.
    Blob {
        length_bytes: u8,
    },
    Json {
        length_bytes: u8,
    },
    Geometry {
        length_bytes: u8,
    },
    Vector {
        length_bytes: u8,
    },
    CompressedBlob {
        length_bytes: u8,
    },
    CompressedVarchar {
        bytes: u16,
    },
}

impl Kind {
    /// The kinds that SIGNEDNESS has a bit for.
    fn is_number(self) -> bool {
        matches!(
            self,
            Self::Tiny
                | Self::Short
                // A year is stored as an unsigned tiny integer.
                | Self::Year
                | Self::Int24
                | Self::Long
                | Self::LongLong
                | Self::Float
                | Self::Double
                | Self::Decimal { .. }
        )
    }

    /// The kinds that have a charset of their own.
    fn is_text(self) -> bool {
        matches!(
            self,
            Self::String { .. }
                | Self::Varchar { .. }
                | Self::Blob { .. }
                | Self::CompressedBlob { .. }
                | Self::CompressedVarchar { .. }
        )
    }

    fn is_labelled(self) -> bool {
        matches!(self, Self::Enum { .. } | Self::Set { .. })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tiny => f.write_str("tinyint"),
            Self::Short => f.write_str("smallint"),
            Self::Int24 => f.write_str("mediumint"),
            Self::Long => f.write_str("int"),
            Self::LongLong => f.write_str("bigint"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Year => f.write_str("year"),
            Self::Date => f.write_str("date"),
            Self::OldTime => f.write_str("time of the old format"),
            Self::OldDateTime => f.write_str("datetime of the old format"),
            Self::OldTimestamp => f.write_str("timestamp of the old format"),
            Self::Time { fsp } => write!(f, "time({fsp})"),
            Self::DateTime { fsp } => write!(f, "datetime({fsp})"),
            Self::Timestamp { fsp } => write!(f, "timestamp({fsp})"),
            Self::Bit { bits } => write!(f, "bit({bits})"),
            Self::Enum { bytes } => write!(f, "enum of {bytes} bytes"),
            Self::Set { bytes } => write!(f, "set of {bytes} bytes"),
            Self::String { bytes } => write!(f, "char or binary of {bytes} bytes"),
            Self::Varchar { bytes } => write!(f, "varchar or varbinary of {bytes} bytes"),
            Self::Blob { length_bytes } => write!(f, "text or blob with {length_bytes} bytes of length"),
            Self::Json { .. } => f.write_str("json"),
            Self::Geometry { .. } => f.write_str("geometry"),
            Self::Vector { .. } => f.write_str("vector"),
            Self::CompressedBlob { .. } => f.write_str("compressed text or blob"),
            Self::CompressedVarchar { .. } => f.write_str("compressed varchar or varbinary"),
        }
    }
}

impl MapColumn {
    fn read(kind: u8, meta: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fsp = |meta: &mut Reader<'_>| match meta.u8()? {
            fsp @ 0..=6 => Ok(fsp),
            other => Err(DecodeError::Malformed(format!("{other} digits of a second"))),
        };
        let length_bytes = |meta: &mut Reader<'_>| match meta.u8()? {
            n @ 1..=4 => Ok(n),
            other => Err(DecodeError::Malformed(format!("{other} bytes of length"))),
        };
        let kind = match kind {
            1 => Kind::Tiny,
            2 => Kind::Short,
            3 => Kind::Long,
            4 => {
                meta.u8()?;
                Kind::Float
            }
            5 => {
                meta.u8()?;
                Kind::Double
            }
            7 => Kind::OldTimestamp,
            8 => Kind::LongLong,
            9 => Kind::Int24,
            10 | 14 => Kind::Date,
            11 => Kind::OldTime,
            12 => Kind::OldDateTime,
            13 => Kind::Year,
            15 | 253 => Kind::Varchar { bytes: meta.u16()? },
            16 => {
                let (bits, bytes) = (meta.u8()?, meta.u8()?);
                let bits = u16::from(bytes) * 8 + u16::from(bits);
                if bits == 0 || bits > 64 {
                    return Err(DecodeError::Malformed(format!("BIT of {bits} bits")));
                }
                Kind::Bit { bits }
            }
            17 => Kind::Timestamp { fsp: fsp(meta)? },
            18 => Kind::DateTime { fsp: fsp(meta)? },
            19 => Kind::Time { fsp: fsp(meta)? },
            140 => Kind::CompressedBlob { length_bytes: length_bytes(meta)? },
            141 => Kind::CompressedVarchar { bytes: meta.u16()? },
            242 => Kind::Vector { length_bytes: length_bytes(meta)? },
            245 => Kind::Json { length_bytes: length_bytes(meta)? },
            246 => {
                let (precision, scale) = (meta.u8()?, meta.u8()?);
                if precision == 0 || precision > 65 || scale > precision {
                    return Err(DecodeError::Malformed(format!("DECIMAL({precision}, {scale})")));
                }
                Kind::Decimal { precision, scale }
            }
            249..=252 => Kind::Blob { length_bytes: length_bytes(meta)? },
            247 | 248 | 254 => string(kind, meta.u8()?, meta.u8()?)?,
            255 => Kind::Geometry { length_bytes: length_bytes(meta)? },
            other => return Err(DecodeError::Malformed(format!("a column of type number {other}"))),
        };
        Ok(Self { kind, nullable: false, unsigned: None, collation: None, name: None, labels: None })
    }
}

/// CHAR, BINARY, ENUM and SET share a type. The metadata's first byte is the real one, unless a length above 255 took two of its bits
/// (inverted) for the length's highest.
fn string(kind: u8, first: u8, second: u8) -> Result<Kind, DecodeError> {
    if kind == 254 && first & 0x30 != 0x30 {
        return Ok(Kind::String { bytes: u16::from(second) | u16::from((first & 0x30) ^ 0x30) << 4 });
    }
    let labelled = |most: u8| match second {
        n @ 1..=8 if n <= most => Ok(n),
        other => Err(DecodeError::Malformed(format!("an ENUM or SET of {other} bytes"))),
    };
    match if kind == 254 { first } else { kind } {
        247 => Ok(Kind::Enum { bytes: labelled(2)? }),
        248 => Ok(Kind::Set { bytes: labelled(8)? }),
        253 | 254 => Ok(Kind::String { bytes: u16::from(second) }),
        other => Err(DecodeError::Malformed(format!("a string column of type number {other}"))),
    }
}

/// The fields behind the types (`Optional_metadata_field_type` in MySQL's `rows_event.h`).
fn read_metadata(field: u8, mut value: Reader<'_>, columns: &mut [MapColumn]) -> Result<(), DecodeError> {
    match field {
        1 => {
            let numbers = columns.iter_mut().filter(|c| c.kind.is_number());
            for (column, unsigned) in numbers.zip(bits(value.rest(), 7)) {
                column.unsigned = Some(unsigned);
            }
        }
        2 | 10 => {
            // One default, and pairs of a position and a charset for the columns that differ.
            let applies = |c: &MapColumn| if field == 2 { c.kind.is_text() } else { c.kind.is_labelled() };
            let default = collation(&mut value)?;
            for column in columns.iter_mut().filter(|c| applies(c)) {
                column.collation = Some(default);
            }
            while !value.is_empty() {
                let position = usize::try_from(value.length()?).map_err(|_| Cut)?;
                let other = collation(&mut value)?;
                let column = columns.iter_mut().filter(|c| applies(c)).nth(position);
                column.ok_or(Cut)?.collation = Some(other);
            }
        }
        3 | 11 => {
            let applies = |c: &MapColumn| if field == 3 { c.kind.is_text() } else { c.kind.is_labelled() };
            for column in columns.iter_mut().filter(|c| applies(c)) {
                column.collation = Some(collation(&mut value)?);
            }
        }
        4 => {
            for column in columns.iter_mut() {
                column.name = Some(value.length_bytes()?.to_vec());
            }
        }
        5 | 6 => {
            let applies = |k: Kind| matches!((field, k), (5, Kind::Set { .. }) | (6, Kind::Enum { .. }));
            for column in columns.iter_mut().filter(|c| applies(c.kind)) {
                let mut labels = Vec::new();
                for _ in 0..value.length()? {
                    labels.push(value.length_bytes()?.to_vec());
                }
                column.labels = Some(labels);
            }
        }
        // Geometry types, keys, visibility, vector sizes: they do not change how values are read.
        _ => {}
    }
    Ok(())
}

fn collation(value: &mut Reader<'_>) -> Result<u32, Cut> {
    u32::try_from(value.length()?).map_err(|_| Cut)
}
