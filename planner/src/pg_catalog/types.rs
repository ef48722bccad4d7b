//! Types of columns, as PostgreSQL numbers and names them.

use datafusion::arrow::datatypes::DataType as Arrow;
use tidegate_storage::paimon::DataType;

/// A column's type: the type's object id and its modifier (length, precision), -1 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PgType {
    pub(crate) oid: i32,
    pub(crate) modifier: i32,
}

pub(crate) const BOOL: i32 = 16;
pub(crate) const BYTEA: i32 = 17;
pub(crate) const NAME: i32 = 19;
pub(crate) const INT8: i32 = 20;
pub(crate) const INT2: i32 = 21;
pub(crate) const INT4: i32 = 23;
pub(crate) const TEXT: i32 = 25;
pub(crate) const OID: i32 = 26;
pub(crate) const FLOAT4: i32 = 700;
pub(crate) const FLOAT8: i32 = 701;
pub(crate) const BPCHAR: i32 = 1042;
pub(crate) const VARCHAR: i32 = 1043;
pub(crate) const DATE: i32 = 1082;
pub(crate) const TIME: i32 = 1083;
pub(crate) const TIMESTAMP: i32 = 1114;
pub(crate) const TIMESTAMPTZ: i32 = 1184;
pub(crate) const INTERVAL: i32 = 1186;
pub(crate) const NUMERIC: i32 = 1700;
const TEXT_ARRAY: i32 = 1009;
const INT2_ARRAY: i32 = 1005;
const INT4_ARRAY: i32 = 1007;
const INT8_ARRAY: i32 = 1016;

/// Bytes of a length word, which modifiers of lengths include.
const HEADER: i32 = 4;

impl PgType {
    const fn plain(oid: i32) -> Self {
        Self { oid, modifier: -1 }
    }

    fn with_length(oid: i32, length: u32) -> Self {
        Self { oid, modifier: i32::try_from(length).map_or(-1, |length| length.saturating_add(HEADER)) }
    }

    fn numeric(precision: u8, scale: i8) -> Self {
        Self { oid: NUMERIC, modifier: ((i32::from(precision) << 16) | (i32::from(scale) & 0xffff)) + HEADER }
    }

    /// The type of a mirrored column.
    pub(crate) fn of_column(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::plain(BOOL),
            DataType::TinyInt | DataType::SmallInt => Self::plain(INT2),
            DataType::Int => Self::plain(INT4),
            DataType::BigInt => Self::plain(INT8),
            DataType::Float => Self::plain(FLOAT4),
            DataType::Double => Self::plain(FLOAT8),
            DataType::Decimal { precision, scale } => Self::numeric(*precision, *scale),
            DataType::Char(length) => Self::with_length(BPCHAR, *length),
            DataType::Varchar(length) => Self::with_length(VARCHAR, *length),
            DataType::String => Self::plain(TEXT),
            DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => Self::plain(BYTEA),
            DataType::Date => Self::plain(DATE),
            DataType::Timestamp(_) => Self::plain(TIMESTAMP),
            DataType::TimestampLtz(_) => Self::plain(TIMESTAMPTZ),
        }
    }

    /// The type in which a result column of an Arrow type is sent.
    pub(crate) fn of_arrow(data_type: &Arrow) -> Self {
        match data_type {
            Arrow::Boolean => Self::plain(BOOL),
            Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 => Self::plain(INT2),
            Arrow::Int32 | Arrow::UInt16 => Self::plain(INT4),
            Arrow::Int64 | Arrow::UInt32 => Self::plain(INT8),
            Arrow::UInt64 => Self::plain(NUMERIC),
            Arrow::Float16 | Arrow::Float32 => Self::plain(FLOAT4),
            Arrow::Float64 => Self::plain(FLOAT8),
            Arrow::Decimal128(precision, scale) | Arrow::Decimal256(precision, scale) => {
                Self::numeric(*precision, *scale)
            }
            Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => Self::plain(BYTEA),
            Arrow::Date32 | Arrow::Date64 => Self::plain(DATE),
            Arrow::Time32(_) | Arrow::Time64(_) => Self::plain(TIME),
            Arrow::Timestamp(_, None) => Self::plain(TIMESTAMP),
            Arrow::Timestamp(_, Some(_)) => Self::plain(TIMESTAMPTZ),
            Arrow::Interval(_) | Arrow::Duration(_) => Self::plain(INTERVAL),
            Arrow::List(item) | Arrow::LargeList(item) => match item.data_type() {
                Arrow::Int8 | Arrow::Int16 => Self::plain(INT2_ARRAY),
                Arrow::Int32 => Self::plain(INT4_ARRAY),
                Arrow::Int64 => Self::plain(INT8_ARRAY),
                _ => Self::plain(TEXT_ARRAY),
            },
            Arrow::Dictionary(_, value) => Self::of_arrow(value),
            _ => Self::plain(TEXT),
        }
    }

    /// Bytes of a value, -1 if they vary (`pg_type.typlen`).
    pub(crate) fn length(self) -> i16 {
        match self.oid {
            BOOL => 1,
            INT2 => 2,
            INT4 | FLOAT4 | DATE | OID => 4,
            INT8 | FLOAT8 | TIME | TIMESTAMP | TIMESTAMPTZ => 8,
            INTERVAL => 16,
            NAME => 64,
            _ => -1,
        }
    }

    /// Whether the type has a collation, which is then `default` (100).
    pub(crate) fn collation(self) -> i32 {
        if matches!(self.oid, TEXT | VARCHAR | BPCHAR | TEXT_ARRAY) { 100 } else { 0 }
    }

    /// What `information_schema` calls the type: without its modifier.
    pub(crate) fn standard_name(self) -> String {
        if self.oid == TEXT_ARRAY || self.oid == INT2_ARRAY || self.oid == INT4_ARRAY || self.oid == INT8_ARRAY {
            return "ARRAY".to_owned();
        }
        format_type(self.oid, None)
    }

    /// The name in `pg_type`.
    pub(crate) fn internal_name(self) -> &'static str {
        TYPES.iter().find(|(oid, _, _)| *oid == self.oid).map_or("text", |(_, internal, _)| internal)
    }

    /// Digits of a numeric type, in `information_schema`'s sense.
    pub(crate) fn numeric_precision(self) -> Option<i32> {
        match self.oid {
            INT2 => Some(16),
            INT4 => Some(32),
            INT8 => Some(64),
            FLOAT4 => Some(24),
            FLOAT8 => Some(53),
            NUMERIC if self.modifier >= HEADER => Some((self.modifier - HEADER) >> 16),
            _ => None,
        }
    }

    /// Digits after the point.
    pub(crate) fn numeric_scale(self) -> Option<i32> {
        match self.oid {
            INT2 | INT4 | INT8 => Some(0),
            NUMERIC if self.modifier >= HEADER => Some((self.modifier - HEADER) & 0xffff),
            _ => None,
        }
    }

    /// Characters at most.
    pub(crate) fn character_length(self) -> Option<i32> {
        (matches!(self.oid, VARCHAR | BPCHAR) && self.modifier >= HEADER).then(|| self.modifier - HEADER)
    }
}

/// (object id, name in `pg_type`, name that is shown).
const TYPES: &[(i32, &str, &str)] = &[
    (BOOL, "bool", "boolean"),
    (BYTEA, "bytea", "bytea"),
    (18, "char", "\"char\""),
    (NAME, "name", "name"),
    (INT8, "int8", "bigint"),
    (INT2, "int2", "smallint"),
    (22, "int2vector", "int2vector"),
    (INT4, "int4", "integer"),
    (24, "regproc", "regproc"),
    (TEXT, "text", "text"),
    (OID, "oid", "oid"),
    (27, "tid", "tid"),
    (28, "xid", "xid"),
    (29, "cid", "cid"),
    (30, "oidvector", "oidvector"),
    (114, "json", "json"),
    (194, "pg_node_tree", "pg_node_tree"),
    (FLOAT4, "float4", "real"),
    (FLOAT8, "float8", "double precision"),
    (705, "unknown", "unknown"),
    (1000, "_bool", "boolean[]"),
    (1001, "_bytea", "bytea[]"),
    (1003, "_name", "name[]"),
    (INT2_ARRAY, "_int2", "smallint[]"),
    (INT4_ARRAY, "_int4", "integer[]"),
    (TEXT_ARRAY, "_text", "text[]"),
    (1015, "_varchar", "character varying[]"),
    (INT8_ARRAY, "_int8", "bigint[]"),
    (1021, "_float4", "real[]"),
    (1022, "_float8", "double precision[]"),
    (1028, "_oid", "oid[]"),
    (1033, "aclitem", "aclitem"),
    (1034, "_aclitem", "aclitem[]"),
    (BPCHAR, "bpchar", "character"),
    (VARCHAR, "varchar", "character varying"),
    (DATE, "date", "date"),
    (TIME, "time", "time without time zone"),
    (TIMESTAMP, "timestamp", "timestamp without time zone"),
    (1115, "_timestamp", "timestamp without time zone[]"),
    (1182, "_date", "date[]"),
    (TIMESTAMPTZ, "timestamptz", "timestamp with time zone"),
    (1185, "_timestamptz", "timestamp with time zone[]"),
    (INTERVAL, "interval", "interval"),
    (1231, "_numeric", "numeric[]"),
    (1266, "timetz", "time with time zone"),
    (NUMERIC, "numeric", "numeric"),
    (2205, "regclass", "regclass"),
    (2206, "regtype", "regtype"),
    (2249, "record", "record"),
    (2275, "cstring", "cstring"),
    (2276, "any", "\"any\""),
    (2277, "anyarray", "anyarray"),
    (2278, "void", "void"),
    (2279, "trigger", "trigger"),
    (2281, "internal", "internal"),
    (2950, "uuid", "uuid"),
    (3802, "jsonb", "jsonb"),
];

/// PostgreSQL's `format_type`: how the type is written in SQL.
pub(crate) fn format_type(oid: i32, modifier: Option<i32>) -> String {
    if oid == 0 {
        return "-".to_owned();
    }
    let Some((_, _, shown)) = TYPES.iter().find(|(known, _, _)| *known == oid) else {
        return "???".to_owned();
    };
    let modifier = modifier.unwrap_or(-1);
    if modifier < 0 {
        return (*shown).to_owned();
    }
    match oid {
        // `character` alone would mean `character(1)`.
        BPCHAR | VARCHAR if modifier >= HEADER => format!("{shown}({})", modifier - HEADER),
        NUMERIC if modifier >= HEADER => {
            let modifier = modifier - HEADER;
            format!("numeric({},{})", modifier >> 16, modifier & 0xffff)
        }
        TIME => format!("time({modifier}) without time zone"),
        TIMESTAMP => format!("timestamp({modifier}) without time zone"),
        TIMESTAMPTZ => format!("timestamp({modifier}) with time zone"),
        _ => (*shown).to_owned(),
    }
}

/// The object id of a type's name, as written in SQL or as `pg_type` has it.
pub(crate) fn type_oid(name: &str) -> Option<i32> {
    let name = name.trim().trim_start_matches("pg_catalog.");
    let plain = name.split('(').next().unwrap_or(name).trim();
    TYPES.iter().find(|(_, internal, shown)| *internal == plain || *shown == plain).map(|(oid, _, _)| *oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_postgresql_writes_them() {
        let shown = |data_type| {
            let pg = PgType::of_column(&data_type);
            format_type(pg.oid, Some(pg.modifier))
        };
        assert_eq!(shown(DataType::Decimal { precision: 12, scale: 2 }), "numeric(12,2)");
        assert_eq!(shown(DataType::Decimal { precision: 20, scale: 0 }), "numeric(20,0)");
        assert_eq!(shown(DataType::Varchar(20)), "character varying(20)");
        assert_eq!(shown(DataType::TinyInt), "smallint");
        assert_eq!(shown(DataType::Timestamp(6)), "timestamp without time zone");
        assert_eq!(shown(DataType::TimestampLtz(6)), "timestamp with time zone");
        assert_eq!(shown(DataType::Bytes), "bytea");
        assert_eq!(format_type(TIMESTAMP, Some(3)), "timestamp(3) without time zone");
        assert_eq!(format_type(999_999, None), "???");
        assert_eq!(type_oid("character varying(20)"), Some(VARCHAR));
        assert_eq!(type_oid("pg_catalog.int4"), Some(INT4));
    }
}
