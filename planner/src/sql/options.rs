//! The options of sources and connections: which there are, what they mean, and what is said about those that are refused.
//!
//! Names fold case and `.`, `-`, `_`. Flink CDC's names of its MySQL source are known: those that have a meaning here are
//! accepted under that name, the others are refused with the reason, so that none is silently without effect.

use std::time::Duration;

use super::statement::{OptionSetting, OptionValue};
use crate::error::{SqlError, sqlstate};

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    Text,
    /// Text that must not be shown.
    Password,
    /// A whole number from .. to.
    Integer(u64, u64),
    Duration,
    /// `64MiB`, `64 mb`, or a number of bytes.
    Bytes,
    /// `5400`, or `5400-5500`.
    ServerId,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// An option that is understood.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownOption {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub kind: OptionKind,
    /// Whether it belongs to a connection (and to a source that names none) or to a source alone.
    pub of_connection: bool,
}

const fn connection(name: &'static str, aliases: &'static [&'static str], kind: OptionKind) -> KnownOption {
    KnownOption { name, aliases, kind, of_connection: true }
}

const fn source(name: &'static str, aliases: &'static [&'static str], kind: OptionKind) -> KnownOption {
    KnownOption { name, aliases, kind, of_connection: false }
}

pub const KNOWN: &[KnownOption] = &[
    connection("hostname", &["host"], OptionKind::Text),
    connection("port", &[], OptionKind::Integer(1, 65_535)),
    connection("username", &["user"], OptionKind::Text),
    connection("password", &[], OptionKind::Password),
    connection("ssl-mode", &["sslmode"], OptionKind::OneOf(&["disabled", "preferred", "required", "verify-identity"])),
    connection("ssl-ca", &[], OptionKind::Text),
    connection("connect.timeout", &[], OptionKind::Duration),
    source("connector", &[], OptionKind::OneOf(&["mysql-cdc", "mysql"])),
    source("tables", &[], OptionKind::Text),
    source("tables.exclude", &[], OptionKind::Text),
    source("database-name", &[], OptionKind::Text),
    source("table-name", &[], OptionKind::Text),
    source("server-id", &[], OptionKind::ServerId),
    source("scan.incremental.snapshot.chunk.size", &["snapshot.range-rows"], OptionKind::Integer(1, u64::MAX)),
    source("scan.snapshot.fetch.size", &["snapshot.page-rows"], OptionKind::Integer(1, 1_000_000)),
    source("snapshot.parallelism", &["parallelism"], OptionKind::Integer(1, 64)),
    source("scan.startup.mode", &[], OptionKind::OneOf(&["initial"])),
    source("scan.incremental.snapshot.enabled", &[], OptionKind::OneOf(&["true"])),
    source("schema-change.enabled", &["include-schema-changes"], OptionKind::OneOf(&["true"])),
    source("heartbeat.interval", &[], OptionKind::Duration),
    source("checkpoint.interval", &[], OptionKind::Duration),
    source("on-purged", &[], OptionKind::OneOf(&["error"])),
    source("memory", &["memory.bytes"], OptionKind::Bytes),
    source("buckets", &[], OptionKind::Integer(1, 4096)),
    source("changelog-producer", &[], OptionKind::OneOf(&["none", "input"])),
    source("snapshot.time-retained", &[], OptionKind::Duration),
    source("snapshot.num-retained.min", &[], OptionKind::Integer(1, 1_000_000)),
    source("snapshot.num-retained.max", &[], OptionKind::Integer(1, 1_000_000_000)),
];

/// Options that Flink CDC has and this does not, and why; a name that ends in `.` stands for all that begin with it.
const REFUSED: &[(&str, &str)] = &[
    (
        "server-time-zone",
        "TIMESTAMP values are read in UTC as instants, whatever the server's time zone: leave it out.",
    ),
    ("scan.incremental.snapshot.chunk.key-column", "Ranges are read over the whole primary key: leave it out."),
    ("chunk-key.even-distribution.factor.upper-bound", "Ranges are cut by the server's own key order: leave it out."),
    ("chunk-key.even-distribution.factor.lower-bound", "Ranges are cut by the server's own key order: leave it out."),
    ("chunk-meta.group.size", "There are no split messages here: leave it out."),
    ("scan.startup.specific-offset.", "Every source starts with a snapshot: leave it out."),
    ("scan.startup.timestamp-millis", "Every source starts with a snapshot: leave it out."),
    ("connect.max-retries", "A source reconnects until it is paused or dropped: leave it out."),
    ("connection.pool.size", "Connections are as many as snapshot.parallelism, and one for the binlog: leave it out."),
    ("jdbc.properties.", "There is no JDBC here: leave it out."),
    ("debezium.", "There is no Debezium here: leave it out."),
    ("scan.incremental.close-idle-reader.enabled", "Readers end with the snapshot: leave it out."),
    (
        "scan.newly-added-table.enabled",
        "It is not supported yet: a source captures the tables that match when it is created.",
    ),
    (
        "scan.binlog.newly-added-table.enabled",
        "It is not supported yet: a source captures the tables that match when it is created.",
    ),
    ("scan.parse.online.schema.changes.enabled", "It is not supported yet."),
    ("include-comments.enabled", "Comments are always carried over: leave it out."),
    ("treat-tinyint1-as-boolean.enabled", "TINYINT(1) is a TINYINT, so that no value is lost: leave it out."),
    ("tinyint1.as.boolean", "TINYINT(1) is a TINYINT, so that no value is lost: leave it out."),
    ("use.legacy.json.format", "JSON has one text, from the snapshot and from the binlog: leave it out."),
    ("scan.incremental.snapshot.unbounded-chunk-first.enabled", "Ranges are bounded by pages: leave it out."),
    ("scan.incremental.snapshot.backfill.skip", "There is no backfill to skip: leave it out."),
    ("scan.read-changelog-as-append-only.enabled", "Mirrored tables hold the current rows: leave it out."),
    ("metadata.list", "It is not supported yet."),
    ("type", "It belongs to CREATE CONNECTION … WITH; a source has connector = 'mysql-cdc'."),
];

/// A name without its separators, in lower case.
pub fn fold(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '.' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The option of this name, under any of its spellings.
pub fn known(name: &str) -> Option<&'static KnownOption> {
    let folded = fold(name);
    KNOWN.iter().find(|option| fold(option.name) == folded || option.aliases.iter().any(|alias| fold(alias) == folded))
}

/// Where options stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Connection,
    /// A source that says itself how to connect.
    Source,
    /// A source `FROM MYSQL CONNECTION`.
    SourceOfConnection,
}

/// Checks names and values, and that nothing is given twice. Answers the settings under their canonical names.
pub fn check(settings: &[OptionSetting], place: Place) -> Result<Vec<(&'static KnownOption, OptionValue)>, SqlError> {
    let mut checked: Vec<(&'static KnownOption, OptionValue)> = Vec::with_capacity(settings.len());
    for setting in settings {
        let option = known(&setting.name).ok_or_else(|| refusal(setting, place))?;
        match place {
            Place::Connection if !option.of_connection => {
                return Err(SqlError::syntax(format!(
                    "\"{}\" is an option of a source, not of a connection",
                    option.name
                ))
                .at(setting.name_position));
            }
            Place::SourceOfConnection if option.of_connection => {
                return Err(SqlError::syntax(format!("\"{}\" comes from the source's connection", option.name))
                    .with_hint("Leave it out, or create another connection.")
                    .at(setting.name_position));
            }
            _ => {}
        }
        if checked.iter().any(|(other, _)| *other == option) {
            return Err(
                SqlError::syntax(format!("option \"{}\" is given twice", option.name)).at(setting.name_position)
            );
        }
        if let OptionValue::Text(text) = &setting.value {
            check_value(option, text).map_err(|(reason, hint)| {
                let error = SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, reason).at(setting.value_position);
                if hint.is_empty() { error } else { error.with_hint(hint) }
            })?;
        } else if option.kind != OptionKind::Password {
            return Err(SqlError::syntax(format!("option \"{}\" cannot be a secret: it is shown", option.name))
                .at(setting.value_position));
        }
        checked.push((option, setting.value.clone()));
    }
    Ok(checked)
}

fn refusal(setting: &OptionSetting, place: Place) -> SqlError {
    let folded = fold(&setting.name);
    let reason = REFUSED
        .iter()
        .find(|(name, _)| if name.ends_with('.') { folded.starts_with(&fold(name)) } else { folded == fold(name) });
    if let Some((_, reason)) = reason {
        return SqlError::unsupported(format!("option \"{}\" has no effect here", setting.name))
            .with_hint(*reason)
            .at(setting.name_position);
    }
    let error = SqlError::syntax(format!("unknown option \"{}\"", setting.name)).at(setting.name_position);
    let candidates = KNOWN
        .iter()
        .filter(|option| place != Place::Connection || option.of_connection)
        .flat_map(|option| std::iter::once(&option.name).chain(option.aliases));
    match nearest(&folded, candidates.copied()) {
        Some(name) => error.with_hint(format!("Did you mean \"{name}\"?")),
        None => {
            let names: Vec<_> = KNOWN
                .iter()
                .filter(|option| option.of_connection == (place == Place::Connection) || place == Place::Source)
                .map(|option| option.name)
                .collect();
            error.with_hint(format!("The options are {}.", names.join(", ")))
        }
    }
}

/// The candidate with the fewest edits to the name, if they are few.
pub fn nearest<'a>(folded: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (folded.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (edits(folded, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, by characters, with a swap of neighbours counted as one edit.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

/// The reason and a hint, if a value is not one that the option takes.
fn check_value(option: &KnownOption, text: &str) -> Result<(), (String, String)> {
    let name = option.name;
    let wrong = |what: &str| format!("option \"{name}\" is {what}, not '{text}'");
    match option.kind {
        OptionKind::Password => Ok(()),
        OptionKind::Text if text.trim().is_empty() => Err((format!("option \"{name}\" is empty"), String::new())),
        OptionKind::Text => Ok(()),
        OptionKind::Integer(from, to) => match text.parse::<u64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(()),
            _ if to == u64::MAX => Err((wrong(&format!("a whole number of at least {from}")), String::new())),
            _ => Err((wrong(&format!("a whole number from {from} to {to}")), String::new())),
        },
        OptionKind::Duration => match parse_duration(text) {
            Ok(_) => Ok(()),
            Err(reason) => Err((
                format!("option \"{name}\" is a duration, and in '{text}' {reason}"),
                "Write a number and a unit: '500ms', '30s', '2 hours'.".to_owned(),
            )),
        },
        OptionKind::Bytes => match parse_bytes(text) {
            Some(_) => Ok(()),
            None => Err((wrong("a number of bytes"), "Write '256MiB', '1GiB' or a plain number.".to_owned())),
        },
        OptionKind::ServerId => match parse_server_id(text) {
            Some(_) => Ok(()),
            None => Err((wrong("a number or a range"), "Write '5400' or '5400-5408'.".to_owned())),
        },
        OptionKind::OneOf(values) if values.iter().any(|value| value.eq_ignore_ascii_case(text)) => Ok(()),
        OptionKind::OneOf(values) => {
            let values: Vec<_> = values.iter().map(|value| format!("'{value}'")).collect();
            Err((wrong(&values.join(" or ")), String::new()))
        }
    }
}

/// `5400` or `5400-5408`; ids begin at 1.
pub fn parse_server_id(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: u32 = first.trim().parse().ok()?;
    let last: u32 = last.trim().parse().ok()?;
    (first > 0 && first <= last).then_some((first, last))
}

/// A number of bytes with an optional unit. `kb`, `mb` and `gb` are powers of 1024, as in PostgreSQL's settings.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_lowercase().as_str() {
        "" | "b" | "bytes" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// `500ms`, `1s`, `2 hours`, `1h 30min`, `00:05:00`. The error is the reason, to follow "in '…'".
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("there is nothing".to_owned());
    }
    if let Some(clock) = parse_clock(trimmed) {
        return Ok(clock);
    }
    let mut total = 0_f64;
    let mut rest = trimmed;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: f64 = number.parse().map_err(|_| format!("\"{rest}\" is not a number and a unit"))?;
        let milliseconds = match unit.to_lowercase().as_str() {
            "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
            "m" | "min" | "mins" | "minute" | "minutes" => 60e3,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600e3,
            "d" | "day" | "days" => 86_400e3,
            "" => return Err("the unit is missing".to_owned()),
            other => return Err(format!("\"{other}\" is no unit")),
        };
        total += number * milliseconds;
        rest = after.trim_start_matches([' ', ',']);
    }
    // A hundred years: far beyond any use, and far below what timers can take.
    if total > 3.2e12 {
        return Err("there is more than a hundred years".to_owned());
    }
    Duration::try_from_secs_f64(total / 1e3).map_err(|error| error.to_string())
}

/// `hours:minutes:seconds`.
fn parse_clock(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let hours: u64 = parts.next()?.parse().ok()?;
    let minutes: u64 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds: u64 = parts.next()?.parse().ok().filter(|seconds| *seconds < 60)?;
    if parts.next().is_some() || hours > 876_000 {
        return None;
    }
    Some(Duration::from_secs(hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests;
