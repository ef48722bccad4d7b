//! Functions that write names and values as SQL.

use datafusion::common::{Result, ScalarValue, exec_err};

use super::{Call, Definition, Returns, function, shown, text, texts};
use crate::pg_catalog::relations::name_parts;
use crate::pg_catalog::types::{PgType, format_type};
use crate::table::quoted;

pub(super) const FUNCTIONS: &[Definition] = &[
    function("quote_ident", Returns::Text, |call| text(quoted(&call.text(0)?))),
    function("quote_literal", Returns::Text, |call| text(literal(&call.text(0)?))),
    function("quote_nullable", Returns::Text, |call| match call.args.first() {
        Some(value) if !value.is_null() => text(literal(&shown(value))),
        _ => text("NULL"),
    })
    .lenient(),
    function("parse_ident", Returns::Texts, |call| texts(&name_parts(&call.text(0)?))),
    function("format", Returns::Text, format).lenient(),
    function("pg_typeof", Returns::Text, |call| match call.args.first() {
        Some(ScalarValue::Null) | None => text("unknown"),
        Some(value) => text(format_type(PgType::of_arrow(&value.data_type()).oid, None)),
    })
    .lenient(),
];

fn literal(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// PostgreSQL's `format`: `%s`, `%I`, `%L`, `%%`, each also with a position (`%1$s`).
fn format(call: &Call<'_>) -> Result<ScalarValue> {
    if call.args.first().is_none_or(ScalarValue::is_null) {
        return Ok(ScalarValue::Utf8(None));
    }
    let template = call.text(0)?;
    let mut result = String::with_capacity(template.len());
    let mut chars = template.chars().peekable();
    let mut next = 1;
    while let Some(c) = chars.next() {
        if c != '%' {
            result.push(c);
            continue;
        }
        let mut position = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            position.push(digit);
        }
        if !position.is_empty() && chars.next_if_eq(&'$').is_none() {
            return exec_err!("format() knows no widths");
        }
        let kind = chars.next();
        if kind == Some('%') {
            result.push('%');
            continue;
        }
        let at = position.parse().unwrap_or(next);
        next = at + 1;
        let Some(value) = call.args.get(at) else {
            return exec_err!("too few arguments for format()");
        };
        match kind {
            Some('s') => result.push_str(&shown(value)),
            Some('L') if value.is_null() => result.push_str("NULL"),
            Some('L') => result.push_str(&literal(&shown(value))),
            Some('I') if value.is_null() => return exec_err!("null values cannot be formatted as an SQL identifier"),
            Some('I') => result.push_str(&quoted(&shown(value))),
            Some(other) => return exec_err!("unrecognized format() type specifier \"{other}\""),
            None => return exec_err!("unterminated format() type specifier"),
        }
    }
    text(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(args: &[&str]) -> Result<String> {
        let args: Vec<ScalarValue> = args.iter().map(|arg| ScalarValue::from(*arg)).collect();
        Ok(shown(&format(&Call { name: "format", args: &args, scope: None })?))
    }

    #[test]
    fn format_writes_names_and_literals() {
        assert_eq!(
            formatted(&["%I.%I = %L, %s%%", "shop", "Order", "it's", "5"]).unwrap(),
            "shop.\"Order\" = 'it''s', 5%"
        );
        assert_eq!(formatted(&["%2$s %1$s %s", "a", "b"]).unwrap(), "b a b");
        assert!(formatted(&["%s"]).unwrap_err().to_string().contains("too few arguments"));
        assert!(formatted(&["%x", "a"]).unwrap_err().to_string().contains("specifier \"x\""));
    }

    #[test]
    fn backslashes_make_an_escape_string() {
        assert_eq!(literal(r"a\b"), r"E'a\\b'");
    }
}
