//! A column's type as written → the form of `information_schema.columns.column_type`.

use std::fmt::Write as _;

use super::parse::{ColumnDef, Reader};
use super::tokens::Token;

impl Reader<'_> {
    pub(super) fn column_type(&mut self, column: &mut ColumnDef) -> Option<()> {
        let first = self.word()?;
        let national = first == "national" || first == "nchar" || first == "nvarchar";
        let name = match first.as_str() {
            "integer" | "int4" => "int",
            "int1" => "tinyint",
            "int2" => "smallint",
            "int3" | "middleint" => "mediumint",
            "int8" => "bigint",
            "bool" | "boolean" => {
                column.column_type = "tinyint(1)".to_owned();
                return Some(());
            }
            "serial" => {
                column.column_type = "bigint unsigned".to_owned();
                column.not_null = true;
                column.auto_increment = true;
                return Some(());
            }
            "dec" | "numeric" | "fixed" | "number" => "decimal",
            "real" | "float8" => "double",
            "float4" => "float",
            "double" => {
                self.eat("precision");
                "double"
            }
            "character" | "char" | "nchar" => {
                if self.eat("varying") {
                    "varchar"
                } else {
                    "char"
                }
            }
            "varcharacter" | "nvarchar" | "varchar2" => "varchar",
            "national" => {
                let base = self.word()?;
                let varying = self.eat("varying");
                if varying || base == "varchar" || base == "varcharacter" { "varchar" } else { "char" }
            }
            "long" => {
                if self.eat("varbinary") {
                    "mediumblob"
                } else {
                    let _ = self.eat("varchar") || self.eat_all(&["char", "varying"]);
                    "mediumtext"
                }
            }
            "geomcollection" => "geometrycollection",
            other => other,
        }
        .to_owned();
        let arguments = self.arguments()?;
        let (mut unsigned, mut zerofill, mut byte) = (false, false, false);
        loop {
            if self.eat("unsigned") {
                unsigned = true;
            } else if self.eat("zerofill") {
                (unsigned, zerofill) = (true, true);
            } else if self.eat("signed") {
            } else if self.eat("byte") {
                byte = true;
            } else if self.eat("ascii") {
                column.charset = Some("latin1".to_owned());
            } else if self.eat("unicode") {
                column.charset = Some("ucs2".to_owned());
            } else if self.eat("binary") {
                // The _bin collation of the column's charset: only the order changes.
            } else if self.eat_all(&["character", "set"]) || self.eat("charset") {
                self.eat_sign('=');
                column.charset = Some(self.name()?.to_ascii_lowercase());
            } else {
                break;
            }
        }
        if national {
            column.charset.get_or_insert_with(|| "utf8mb3".to_owned());
        }
        byte |= column.charset.as_deref() == Some("binary");
        column.column_type = column_type(&name, &arguments, unsigned, zerofill, byte)?;
        Some(())
    }

    /// `( … )` behind a type name: numbers, or the quoted labels of ENUM and SET.
    fn arguments(&mut self) -> Option<Vec<Argument>> {
        let mut arguments = Vec::new();
        if !self.eat_sign('(') {
            return Some(arguments);
        }
        loop {
            match self.peek()? {
                Token::Text(text) => arguments.push(Argument::Label(text.clone())),
                Token::Word(word) => arguments.push(Argument::Number(word.parse().ok()?)),
                _ => return None,
            }
            self.at += 1;
            if self.eat_sign(')') {
                return Some(arguments);
            }
            if !self.eat_sign(',') {
                return None;
            }
        }
    }
}

enum Argument {
    Number(u64),
    Label(String),
}

fn column_type(name: &str, arguments: &[Argument], unsigned: bool, zerofill: bool, byte: bool) -> Option<String> {
    let number = |i: usize| match arguments.get(i) {
        Some(Argument::Number(n)) => Some(*n),
        _ => None,
    };
    let sized = |n: Option<u64>, or: u64| n.unwrap_or(or);
    let mut text = match name {
        "tinyint" => number(0).map_or_else(|| name.to_owned(), |n| format!("{name}({n})")),
        "smallint" | "mediumint" | "int" | "bigint" | "date" | "json" | "tinyblob" | "mediumblob" | "longblob"
        | "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
        | "geometrycollection" | "uuid" | "inet4" | "inet6" => name.to_owned(),
        "year" => "year".to_owned(),
        "decimal" => format!("decimal({},{})", sized(number(0), 10), sized(number(1), 0)),
        "float" => match (number(0), number(1)) {
            (Some(precision), None) => if precision > 24 { "double" } else { "float" }.to_owned(),
            (Some(precision), Some(scale)) => format!("float({precision},{scale})"),
            _ => name.to_owned(),
        },
        "double" => match (number(0), number(1)) {
            (Some(precision), Some(scale)) => format!("double({precision},{scale})"),
            _ => name.to_owned(),
        },
        "bit" => format!("bit({})", sized(number(0), 1)),
        "char" if byte => format!("binary({})", sized(number(0), 1)),
        "varchar" if byte => format!("varbinary({})", number(0)?),
        "tinytext" if byte => "tinyblob".to_owned(),
        "mediumtext" if byte => "mediumblob".to_owned(),
        "longtext" if byte => "longblob".to_owned(),
        "char" | "binary" => format!("{name}({})", sized(number(0), 1)),
        "varchar" | "varbinary" => format!("{name}({})", number(0)?),
        "tinytext" | "mediumtext" | "longtext" => name.to_owned(),
        "text" | "blob" => {
            // TEXT(n) becomes the smallest kind that holds n characters (of up to four bytes for text).
            let kind = if byte { "blob" } else { name };
            let unit = if kind == "text" { 4 } else { 1 };
            match number(0) {
                Some(n) if n * unit < 1 << 8 => format!("tiny{kind}"),
                Some(n) if n * unit >= 1 << 24 => format!("long{kind}"),
                Some(n) if n * unit >= 1 << 16 => format!("medium{kind}"),
                _ => kind.to_owned(),
            }
        }
        "time" | "datetime" | "timestamp" => match number(0) {
            Some(0) | None => name.to_owned(),
            Some(fsp) => format!("{name}({fsp})"),
        },
        "vector" => format!("vector({})", sized(number(0), 2048)),
        "enum" | "set" => {
            let mut text = format!("{name}(");
            for (i, argument) in arguments.iter().enumerate() {
                let Argument::Label(label) = argument else { return None };
                let comma = if i == 0 { "" } else { "," };
                write!(text, "{comma}'{}'", label.replace('\'', "''")).ok()?;
            }
            text.push(')');
            text
        }
        _ => return None,
    };
    if unsigned {
        text.push_str(" unsigned");
    }
    if zerofill {
        text.push_str(" zerofill");
    }
    Some(text)
}
