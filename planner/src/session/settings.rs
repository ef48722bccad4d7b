//! The settings of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{SqlError, sqlstate};
use crate::sql::options::{fold, nearest, parse_duration};

/// What a setting takes.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Boolean,
    Integer(i64, i64),
    /// Milliseconds, or a number with a unit; 0 is none.
    Milliseconds,
    OneOf(&'static [&'static str]),
    TimeZone,
    /// ISO, with an order of day and month that only matters for input.
    DateStyle,
    /// Only these values have a meaning here; others are refused as not supported.
    Only(&'static [&'static str]),
    /// `SHOW` alone.
    Fixed,
}

/// A setting: its name in lower case, its spelling in protocol messages, and whether clients are told when it changes.
struct Setting {
    name: &'static str,
    spelling: &'static str,
    default: &'static str,
    kind: Kind,
    reported: bool,
    doc: &'static str,
}

const fn setting(name: &'static str, default: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { name, spelling: name, default, kind, reported: false, doc }
}

const fn reported(
    name: &'static str,
    spelling: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { name, spelling, default, kind, reported: true, doc }
}

const ISOLATION: Kind = Kind::OneOf(&["serializable", "repeatable read", "read committed", "read uncommitted"]);
const LEVELS: Kind = Kind::OneOf(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning", "error",
]);

const SETTINGS: &[Setting] = &[
    reported("application_name", "application_name", "", Kind::Text, "Name of the client program."),
    setting("bytea_output", "hex", Kind::OneOf(&["hex", "escape"]), "Text form of bytea values."),
    reported(
        "client_encoding",
        "client_encoding",
        "UTF8",
        Kind::Only(&["utf8", "utf-8", "unicode"]),
        "Encoding of texts: UTF8.",
    ),
    setting("client_min_messages", "notice", LEVELS, "Least severe notices that are sent."),
    setting("constraint_exclusion", "partition", Kind::Text, "Without effect; accepted for clients that set it."),
    reported(
        "datestyle",
        "DateStyle",
        "ISO, MDY",
        Kind::DateStyle,
        "Form of dates in text: ISO, with the order of ambiguous input.",
    ),
    setting("default_tablespace", "", Kind::Text, "Without effect; accepted for clients that set it."),
    setting(
        "default_transaction_deferrable",
        "off",
        Kind::Boolean,
        "Without effect: no transaction waits for another.",
    ),
    setting(
        "default_transaction_isolation",
        "repeatable read",
        ISOLATION,
        "Without effect: every transaction sees one checkpoint of each source.",
    ),
    reported(
        "default_transaction_read_only",
        "default_transaction_read_only",
        "on",
        Kind::Boolean,
        "Without effect: mirrored tables are never written to.",
    ),
    setting(
        "extra_float_digits",
        "1",
        Kind::Integer(-15, 3),
        "Digits of floating-point numbers in text; they are always exact.",
    ),
    setting(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::Milliseconds,
        "How long a transaction may stay idle before the connection is closed; 0 for ever.",
    ),
    setting(
        "idle_session_timeout",
        "0",
        Kind::Milliseconds,
        "How long a session may stay idle before the connection is closed; 0 for ever.",
    ),
    reported("integer_datetimes", "integer_datetimes", "on", Kind::Fixed, "Times are integers in binary form."),
    reported("intervalstyle", "IntervalStyle", "postgres", Kind::Only(&["postgres"]), "Form of intervals in text."),
    setting("jit", "off", Kind::Boolean, "Without effect; accepted for clients that set it."),
    setting("lc_collate", "C", Kind::Fixed, "Texts are ordered by their bytes."),
    setting("lc_ctype", "C.UTF-8", Kind::Fixed, "Kinds of characters are Unicode's."),
    setting("lc_messages", "C", Kind::Text, "Messages are in English."),
    setting("lc_monetary", "C", Kind::Text, "Without effect; accepted for clients that set it."),
    setting("lc_numeric", "C", Kind::Text, "Without effect; accepted for clients that set it."),
    setting("lc_time", "C", Kind::Text, "Without effect; accepted for clients that set it."),
    setting("lock_timeout", "0", Kind::Milliseconds, "Without effect: there are no locks."),
    setting("max_identifier_length", "63", Kind::Fixed, "Longest name that clients should use."),
    setting("row_security", "on", Kind::Boolean, "Without effect; accepted for clients that set it."),
    setting("search_path", "\"$user\", public", Kind::Text, "Schemas in which names without a schema are looked up."),
    reported("server_encoding", "server_encoding", "UTF8", Kind::Fixed, "Encoding of stored texts."),
    reported(
        "server_version",
        "server_version",
        crate::context::SERVER_VERSION,
        Kind::Fixed,
        "PostgreSQL version whose behaviour is followed.",
    ),
    setting("server_version_num", "160006", Kind::Fixed, "The same as a number."),
    reported("session_authorization", "session_authorization", "", Kind::Fixed, "Name of the user."),
    reported(
        "standard_conforming_strings",
        "standard_conforming_strings",
        "on",
        Kind::Only(&["on", "true", "yes", "1"]),
        "A backslash in '…' is a character like others.",
    ),
    setting("statement_timeout", "0", Kind::Milliseconds, "How long a statement may take; 0 for ever."),
    setting("synchronize_seqscans", "on", Kind::Boolean, "Without effect; accepted for clients that set it."),
    reported(
        "timezone",
        "TimeZone",
        "UTC",
        Kind::TimeZone,
        "Time zone in which times with time zone are shown and read.",
    ),
    setting("transaction_deferrable", "off", Kind::Boolean, "Without effect: no transaction waits for another."),
    setting(
        "transaction_isolation",
        "repeatable read",
        ISOLATION,
        "Every transaction sees one checkpoint of each source.",
    ),
    setting("transaction_read_only", "on", Kind::Boolean, "Mirrored tables are never written to."),
    setting("xmloption", "content", Kind::Text, "Without effect; accepted for clients that set it."),
];

/// The values of a session's settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// By name in lower case; settings of extensions (`app.user`) among them.
    values: BTreeMap<String, String>,
    /// What `RESET` goes back to: what the connection began with.
    initial: BTreeMap<String, String>,
}

impl Settings {
    /// Defaults, and what the start of the connection says.
    pub fn new(user: &str, application_name: &str) -> Self {
        let mut values: BTreeMap<String, String> =
            SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.default.to_owned())).collect();
        values.insert("session_authorization".to_owned(), user.to_owned());
        values.insert("application_name".to_owned(), application_name.to_owned());
        Self { initial: values.clone(), values }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(&name.to_lowercase()).map(String::as_str)
    }

    /// All settings by name.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// What clients are told at the start and whenever it changes, in the spelling of the protocol.
    pub fn reported(&self) -> Vec<(&'static str, String)> {
        SETTINGS
            .iter()
            .filter(|setting| setting.reported)
            .map(|setting| (setting.spelling, self.get(setting.name).unwrap_or_default().to_owned()))
            .collect()
    }

    /// The schemas of `search_path`, with the user's for `$user`.
    pub fn search_path(&self, user: &str) -> Vec<String> {
        let path = self.get("search_path").unwrap_or_default();
        path.split(',')
            .map(|part| match part.trim().strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
                Some(quoted) => quoted.replace("\"\"", "\""),
                None => part.trim().to_lowercase(),
            })
            .filter(|schema| !schema.is_empty())
            .map(|schema| if schema == "$user" { user.to_owned() } else { schema })
            .collect()
    }

    /// A time limit in milliseconds; `None` for none.
    pub fn timeout(&self, name: &str) -> Option<Duration> {
        let milliseconds: u64 = self.get(name)?.parse().ok()?;
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }

    /// `SET name = value`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let name = name.to_lowercase();
        let value = match find(&name) {
            Some(setting) => checked(setting, value)?,
            // A name with a dot is an extension's or an application's own, as in PostgreSQL.
            None if name.contains('.') => value.to_owned(),
            None => return Err(unknown(&name)),
        };
        if name == "default_transaction_isolation" {
            self.values.insert("transaction_isolation".to_owned(), value.clone());
        }
        self.values.insert(name, value);
        Ok(())
    }

    /// `RESET name`, or `SET name TO DEFAULT`.
    pub fn reset(&mut self, name: &str) -> Result<(), SqlError> {
        let name = name.to_lowercase();
        match find(&name) {
            Some(setting) if matches!(setting.kind, Kind::Fixed) => return Err(fixed(setting)),
            None if !name.contains('.') => return Err(unknown(&name)),
            _ => {}
        }
        let initial = self.initial.get(&name).cloned();
        self.restore(&name, initial);
        Ok(())
    }

    pub fn reset_all(&mut self) {
        self.values.clone_from(&self.initial);
    }

    /// Puts back an earlier value, which was none for a setting that was not there.
    pub(super) fn restore(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(value) => self.values.insert(name.to_owned(), value),
            None => self.values.remove(name),
        };
    }

    /// `SHOW name`: the column's name and the value.
    pub fn show(&self, name: &str) -> Result<(String, String), SqlError> {
        let name = name.to_lowercase();
        let value = self.values.get(&name).ok_or_else(|| unknown(&name))?;
        let column = find(&name).map_or(name.clone(), |setting| setting.spelling.to_owned());
        Ok((column, value.clone()))
    }

    /// A setting of the start-up message; ones that are not known are left out, since clients send what other servers have.
    pub fn set_at_start(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        match self.set(name, value) {
            Err(error) if error.sqlstate == sqlstate::UNDEFINED_OBJECT => Ok(()),
            other => {
                self.initial.clone_from(&self.values);
                other
            }
        }
    }
}

/// Name, default and meaning of every setting.
pub(crate) fn described() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SETTINGS.iter().map(|setting| (setting.name, setting.default, setting.doc))
}

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

fn unknown(name: &str) -> SqlError {
    if name == "checkpoint" {
        return SqlError::unsupported("reading at an earlier checkpoint is not supported yet")
            .with_hint("BEGIN … COMMIT keeps one checkpoint for several statements.");
    }
    let error = SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""));
    match nearest(&fold(name), SETTINGS.iter().map(|setting| setting.name)) {
        Some(nearest) => error.with_hint(format!("Did you mean \"{nearest}\"?")),
        None => error.with_hint("SHOW ALL lists the settings there are."),
    }
}

fn fixed(setting: &Setting) -> SqlError {
    SqlError::new("55P02", format!("parameter \"{}\" cannot be changed", setting.spelling))
}

fn checked(setting: &Setting, value: &str) -> Result<String, SqlError> {
    let wrong = || {
        SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{}\": \"{value}\"", setting.spelling),
        )
    };
    let lower = value.trim().to_lowercase();
    match setting.kind {
        Kind::Fixed => Err(fixed(setting)),
        Kind::Text => Ok(value.to_owned()),
        Kind::Boolean => match lower.as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".to_owned()),
            _ => Err(wrong().with_hint("Write on or off.")),
        },
        Kind::Integer(from, to) => match lower.parse::<i64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(number.to_string()),
            _ => Err(wrong().with_hint(format!("It is a whole number from {from} to {to}."))),
        },
        Kind::Milliseconds => match lower.parse::<u32>() {
            Ok(number) => Ok(number.to_string()),
            Err(_) => parse_duration(&lower)
                .map(|duration| duration.as_millis().to_string())
                .map_err(|_| wrong().with_hint("Write milliseconds, or a number and a unit: '30s', '5min'.")),
        },
        Kind::OneOf(values) if values.contains(&lower.as_str()) => Ok(lower),
        Kind::OneOf(values) => Err(wrong().with_hint(format!("Available values: {}.", values.join(", ")))),
        Kind::Only(values) if values.contains(&lower.as_str()) => Ok(setting.default.to_owned()),
        Kind::Only(_) => Err(SqlError::unsupported(format!(
            "parameter \"{}\" can only be {}, not \"{value}\"",
            setting.spelling, setting.default
        ))),
        Kind::DateStyle => {
            let mut order = "MDY";
            for part in lower.split(',').map(str::trim) {
                match part {
                    "iso" => {}
                    "mdy" | "us" | "noneuropean" => order = "MDY",
                    "dmy" | "euro" | "european" => order = "DMY",
                    "ymd" => order = "YMD",
                    "sql" | "postgres" | "german" => {
                        return Err(SqlError::unsupported(format!("dates are shown in ISO style only, not in {part}")));
                    }
                    _ => return Err(wrong().with_hint("Write 'ISO', or 'ISO, DMY'.")),
                }
            }
            Ok(format!("ISO, {order}"))
        }
        Kind::TimeZone => time_zone(value.trim()).ok_or_else(|| {
            wrong().with_hint("Write a name such as 'Europe/Berlin', an offset such as '+02:00', or 'UTC'.")
        }),
    }
}

/// A zone as Arrow's kernels take it: an IANA name, or `+hh:mm`.
fn time_zone(value: &str) -> Option<String> {
    if ["utc", "gmt", "z", "zulu", "etc/utc", "default", "local", "localtime"].contains(&value.to_lowercase().as_str())
    {
        return Some("UTC".to_owned());
    }
    // A bare number is hours to the east, as in PostgreSQL's `SET TIME ZONE -7`.
    if let Ok(hours) = value.parse::<i32>() {
        return (-15..=15)
            .contains(&hours)
            .then(|| format!("{}{:02}:00", if hours < 0 { '-' } else { '+' }, hours.abs()));
    }
    value.parse::<arrow::array::timezone::Tz>().ok().map(|_| value.to_owned())
}

#[cfg(test)]
mod tests;
