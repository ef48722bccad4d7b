//! Definitions as the statements that make them. A secret's text is never part of it.

use super::{ConnectionEntry, SourceEntry, StoredOption, StoredRule, StoredSelection, StoredValue};

pub fn create_source_text(name: &str, source: &SourceEntry) -> String {
    let mut text = format!("CREATE SOURCE {}", quoted_name(name));
    if let Some(connection) = &source.connection {
        text.push_str(&format!(" FROM MYSQL CONNECTION {}", quoted_name(connection)));
        match &source.selection {
            StoredSelection::Options => {}
            StoredSelection::AllTables => text.push_str(" FOR ALL TABLES"),
            StoredSelection::Schemas(schemas) => {
                let schemas: Vec<_> = schemas.iter().map(|schema| quoted_text(schema)).collect();
                text.push_str(&format!(" FOR SCHEMAS ({})", schemas.join(", ")));
            }
            StoredSelection::Tables(rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| rule_text(rule, "AS")).collect();
                text.push_str(&format!(" FOR TABLES ({})", rules.join(", ")));
            }
        }
    }
    let with =
        if source.options.is_empty() { String::new() } else { format!(" WITH {}", options_text(&source.options)) };
    let tables = if source.rules.is_empty() {
        String::new()
    } else {
        let rules: Vec<_> = source.rules.iter().map(|rule| format!("    {}", rule_text(rule, "INTO"))).collect();
        format!(" TABLES (\n{}\n)", rules.join(",\n"))
    };
    // Without a connection the grammar has WITH first.
    if source.connection.is_some() { text + &tables + &with } else { text + &with + &tables }
}

pub fn create_connection_text(name: &str, connection: &ConnectionEntry) -> String {
    format!("CREATE CONNECTION {} TO MYSQL {}", quoted_name(name), options_text(&connection.options))
}

fn options_text(options: &[StoredOption]) -> String {
    let lines: Vec<_> = options
        .iter()
        .map(|option| {
            let name = if option.name.contains(['.', '-']) { quoted_text(&option.name) } else { option.name.clone() };
            let value = match &option.value {
                StoredValue::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
                    text.clone()
                }
                StoredValue::Text(text) => quoted_text(text),
                StoredValue::Secret(secret) => format!("SECRET {}", quoted_name(secret)),
                StoredValue::Sealed(_) => "'***'".to_owned(),
            };
            format!("    {name} = {value}")
        })
        .collect();
    format!("(\n{}\n)", lines.join(",\n"))
}

fn rule_text(rule: &StoredRule, into: &str) -> String {
    let mut text = quoted_text(&rule.pattern);
    if let Some((schema, table)) = &rule.target {
        text.push_str(&format!(" {into} {}.{}", quoted_name(schema), quoted_name(table)));
    }
    if let Some(key) = &rule.key {
        let columns: Vec<_> = key.iter().map(|column| quoted_name(column)).collect();
        text.push_str(&format!(" KEY ({})", columns.join(", ")));
    }
    text
}

fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as it must be written: plain if it is in lower case and no keyword could be meant by it.
pub fn quoted_name(name: &str) -> String {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
