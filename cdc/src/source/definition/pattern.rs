//! Table patterns, in the spellings people bring with them.

use std::fmt;
use std::str::FromStr;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Code, Error, Result};

/// Which tables are meant: `shop.orders`, `shop.*`, `` `my db`.`a.b` ``, `^shop\.(orders|items)$`, or Flink CDC's
/// `db[1-2].order_\.*`, where `.` parts database and table and `\.` is any character.
///
/// Patterns are anchored: they match a whole name.
#[derive(Clone)]
pub struct TablePattern {
    text: String,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Parts {
        database: Name,
        table: Name,
    },
    /// Against `database.table`, exact and with the case folded.
    Whole(Regex, Regex),
}

#[derive(Clone)]
enum Name {
    Literal(String),
    Any,
    Pattern(Regex, Regex),
}

impl Name {
    fn matches(&self, name: &str, fold_case: bool) -> bool {
        match self {
            Name::Literal(literal) if fold_case => literal == name || literal.to_lowercase() == name.to_lowercase(),
            Name::Literal(literal) => literal == name,
            Name::Any => true,
            Name::Pattern(exact, folded) => if fold_case { folded } else { exact }.is_match(name),
        }
    }
}

fn invalid(text: &str, why: impl Into<String>) -> Error {
    Error::new(Code::InvalidPattern, format!("the table pattern `{text}` is not valid")).with_detail(why)
}

impl TablePattern {
    /// Whether a table is meant. `fold_case`: letters count the same in upper and lower case.
    pub fn matches(&self, database: &str, table: &str, fold_case: bool) -> bool {
        match &self.form {
            Form::Parts { database: d, table: t } => d.matches(database, fold_case) && t.matches(table, fold_case),
            Form::Whole(exact, folded) => {
                if fold_case { folded } else { exact }.is_match(&format!("{database}.{table}"))
            }
        }
    }

    /// The one database it can match, if there is only one.
    pub fn database(&self) -> Option<&str> {
        match &self.form {
            Form::Parts { database: Name::Literal(name), .. } => Some(name),
            _ => None,
        }
    }

    /// The one table it can match, if there is only one.
    pub fn table(&self) -> Option<(&str, &str)> {
        match &self.form {
            Form::Parts { database: Name::Literal(database), table: Name::Literal(table) } => Some((database, table)),
            _ => None,
        }
    }

    /// The pattern of exactly one table, whatever characters its name has.
    pub fn exact(database: &str, table: &str) -> Self {
        let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
        Self {
            text: format!("{}.{}", quote(database), quote(table)),
            form: Form::Parts { database: Name::Literal(database.to_owned()), table: Name::Literal(table.to_owned()) },
        }
    }

    /// Patterns of a comma-separated list. Commas within brackets, braces, parentheses and quotes part nothing.
    pub fn parse_list(text: &str) -> Result<Vec<Self>> {
        let mut patterns = Vec::new();
        let mut start = 0;
        for (at, c) in Scan::new(text) {
            if c == ',' {
                patterns.push(&text[start..at]);
                start = at + 1;
            }
        }
        patterns.push(&text[start..]);
        let patterns = patterns.into_iter().map(str::trim).filter(|part| !part.is_empty());
        let patterns: Vec<Self> = patterns.map(str::parse).collect::<Result<_>>()?;
        if patterns.is_empty() {
            return Err(invalid(text, "The list is empty."));
        }
        Ok(patterns)
    }
}

/// Characters of a pattern outside of brackets, quotes and escapes, with their byte offsets.
struct Scan<'a> {
    chars: std::str::CharIndices<'a>,
    depth: usize,
    class: bool,
    quote: Option<char>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { chars: text.char_indices(), depth: 0, class: false, quote: None }
    }
}

impl Iterator for Scan<'_> {
    type Item = (usize, char);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (at, c) = self.chars.next()?;
            if let Some(quote) = self.quote {
                if c == quote {
                    self.quote = None;
                }
                continue;
            }
            match c {
                '\\' => {
                    self.chars.next();
                }
                '`' | '"' if !self.class => self.quote = Some(c),
                '[' => self.class = true,
                ']' => self.class = false,
                _ if self.class => {}
                '(' | '{' => self.depth += 1,
                ')' | '}' => self.depth = self.depth.saturating_sub(1),
                _ if self.depth > 0 => {}
                _ => return Some((at, c)),
            }
        }
    }
}

/// The name inside quotes, if the text is one quoted name.
fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '`' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let doubled = format!("{quote}{quote}");
    let plain = inner.replace(&doubled, "\0");
    (!inner.is_empty() && !plain.contains(quote)).then(|| plain.replace('\0', &quote.to_string()))
}

fn compile(pattern: &str, whole: &str) -> Result<(Regex, Regex)> {
    let build = |fold| {
        RegexBuilder::new(&format!("^(?:{pattern})$"))
            .case_insensitive(fold)
            .dot_matches_new_line(true)
            .build()
            .map_err(|error| invalid(whole, format!("It is no regular expression: {}", last_line(&error.to_string()))))
    };
    Ok((build(false)?, build(true)?))
}

/// The regex crate explains an error over several lines; the last one says what it is.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}

/// The first `\.` that is a literal dot: one that no quantifier follows.
fn literal_dot(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] == b'\\' {
            if bytes[at + 1] == b'.' && !quantified(text, at + 1) {
                return Some(at);
            }
            at += 2;
        } else {
            at += 1;
        }
    }
    None
}

/// Whether a quantifier follows a character.
fn quantified(text: &str, at: usize) -> bool {
    matches!(text.as_bytes().get(at + 1), Some(b'*' | b'+' | b'?' | b'{'))
}

fn name(part: &str, flink: bool, whole: &str) -> Result<Name> {
    let part = part.trim();
    if part.is_empty() {
        return Err(invalid(whole, "The name before or behind the dot is empty."));
    }
    if let Some(name) = unquote(part) {
        return Ok(Name::Literal(name));
    }
    if flink {
        if !part.contains(['\\', '[', ']', '(', ')', '{', '}', '|', '+', '?', '^']) {
            // No regular expression: `*` is any run of characters, as in a shell. `$` is a letter of names.
            return match part {
                "*" => Ok(Name::Any),
                _ if part.contains('*') => {
                    let escaped: Vec<_> = part.split('*').map(regex::escape).collect();
                    let (exact, folded) = compile(&escaped.join(".*"), whole)?;
                    Ok(Name::Pattern(exact, folded))
                }
                _ => Ok(Name::Literal(part.to_owned())),
            };
        }
        let (exact, folded) = compile(&part.replace("\\.", "."), whole)?;
        return Ok(Name::Pattern(exact, folded));
    }
    let (exact, folded) = compile(part, whole)?;
    Ok(Name::Pattern(exact, folded))
}

impl FromStr for TablePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let form = if let Some(anchored) = text.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) {
            let (exact, folded) = compile(anchored, text)?;
            Form::Whole(exact, folded)
        } else {
            let dots: Vec<usize> = Scan::new(text).filter(|&(_, c)| c == '.').map(|(at, _)| at).collect();
            let escaped = literal_dot(text);
            match (escaped, dots.as_slice()) {
                (Some(escaped), dots) if dots.iter().all(|dot| *dot > escaped || quantified(text, *dot)) => {
                    Form::Parts {
                        database: name(&text[..escaped], false, text)?,
                        table: name(&text[escaped + 2..], false, text)?,
                    }
                }
                (_, &[dot]) => Form::Parts {
                    database: name(&text[..dot], true, text)?,
                    table: name(&text[dot + 1..], true, text)?,
                },
                (_, []) => return Err(invalid(text, "It names no database: a pattern is db.table.")),
                (_, _) => {
                    return Err(invalid(text, "It has more than one dot; only one parts database and table.")
                        .with_hint(r"Write \. for any character, as in 'db.order_\.*', or quote a name that has a dot: `db`.`a.b`."));
                }
            }
        };
        Ok(Self { text: text.to_owned(), form })
    }
}

impl PartialEq for TablePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TablePattern {}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TablePattern({})", self.text)
    }
}

impl Serialize for TablePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TablePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
