//! From statements to entries, and from entries to what captures.

use std::fmt::Display;
use std::time::Duration;

use tidegate_cdc::source::definition::{
    CaptureOptions, ConnectionOptions, OnPurged, SourceDefinition, TablePattern, TableRule,
};
use uuid::Uuid;

use super::sealing::{Entropy, Sealer};
use super::{
    Catalog, ConnectionEntry, SecretEntry, SecretPlace, SourceEntry, StoredOption, StoredRule, StoredSelection,
    StoredValue,
};
use crate::error::{SqlError, sqlstate};
use crate::sql::options::{self, KnownOption, OptionKind, Place};
use crate::sql::statement::{
    self, CreateConnection, CreateSecret, CreateSource, OptionSetting, OptionValue, SecretValue, Selection,
};

/// What entries are made with.
pub struct Maker<'a> {
    pub sealer: &'a Sealer,
    pub entropy: &'a dyn Entropy,
    pub now_ms: i64,
}

/// A random (version 4) UUID.
pub fn new_id(entropy: &dyn Entropy) -> Result<Uuid, SqlError> {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

impl Maker<'_> {
    pub fn secret(&self, create: &CreateSecret) -> Result<SecretEntry, SqlError> {
        let id = new_id(self.entropy)?;
        let place = match &create.value {
            SecretValue::Literal(text) => {
                SecretPlace::Sealed(self.sealer.seal(text, &secret_purpose(id), self.entropy)?)
            }
            SecretValue::Environment(name) => SecretPlace::Environment(name.clone()),
            SecretValue::File(path) => SecretPlace::File(path.clone()),
        };
        Ok(SecretEntry { id, created_at_ms: self.now_ms, place })
    }

    pub fn connection(&self, create: &CreateConnection) -> Result<ConnectionEntry, SqlError> {
        let id = new_id(self.entropy)?;
        let options = self.options(&create.options, Place::Connection, id)?;
        require(&options, &["hostname", "username"], create.name.position)?;
        Ok(ConnectionEntry { id, created_at_ms: self.now_ms, options })
    }

    pub fn source(&self, create: &CreateSource) -> Result<SourceEntry, SqlError> {
        let id = new_id(self.entropy)?;
        let place = if create.connection.is_some() { Place::SourceOfConnection } else { Place::Source };
        let options = self.options(&create.options, place, id)?;
        let position = create.name.position;
        let given = |name: &str| options.iter().any(|option| option.name == name);
        if place == Place::Source {
            require(&options, &["connector", "hostname", "username"], position)?;
        }
        if given("database-name") != given("table-name") {
            return Err(SqlError::syntax("\"database-name\" and \"table-name\" belong together")
                .with_hint("Give both, or tables = 'database.table'.")
                .at(position));
        }
        let selections = [given("tables"), given("table-name"), create.selection != Selection::Options];
        match selections.iter().filter(|selection| **selection).count() {
            0 if create.rules.is_empty() => {
                return Err(SqlError::syntax(format!("source \"{}\" names no tables", create.name.value))
                    .with_hint("Write tables = 'db.*', or name them with TABLES (…).")
                    .at(position));
            }
            0 | 1 => {}
            _ => {
                return Err(SqlError::syntax(format!(
                    "source \"{}\" selects its tables in more than one way",
                    create.name.value
                ))
                .with_hint("Use one of FOR …, the option \"tables\", or \"database-name\" with \"table-name\".")
                .at(position));
            }
        }
        let stored = |rules: &[statement::TableRule]| -> Vec<StoredRule> {
            rules
                .iter()
                .map(|rule| StoredRule {
                    pattern: rule.pattern.clone(),
                    target: rule.target.clone(),
                    key: rule.key.clone(),
                })
                .collect()
        };
        Ok(SourceEntry {
            id,
            created_at_ms: self.now_ms,
            paused: false,
            connection: create.connection.as_ref().map(|name| name.value.clone()),
            selection: match &create.selection {
                Selection::Options => StoredSelection::Options,
                Selection::AllTables => StoredSelection::AllTables,
                Selection::Schemas(schemas) => StoredSelection::Schemas(schemas.clone()),
                Selection::Tables(rules) => StoredSelection::Tables(stored(rules)),
            },
            rules: stored(&create.rules),
            options,
            targets: Vec::new(),
        })
    }

    fn options(&self, settings: &[OptionSetting], place: Place, owner: Uuid) -> Result<Vec<StoredOption>, SqlError> {
        let checked = options::check(settings, place)?;
        let stored = checked.into_iter().map(|(option, value)| self.option(option, value, owner));
        stored.collect()
    }

    fn option(&self, option: &KnownOption, value: OptionValue, owner: Uuid) -> Result<StoredOption, SqlError> {
        let value = match value {
            OptionValue::Secret(name) => StoredValue::Secret(name),
            OptionValue::Text(text) if option.kind == OptionKind::Password => {
                StoredValue::Sealed(self.sealer.seal(&text, &option_purpose(option.name, owner), self.entropy)?)
            }
            OptionValue::Text(text) => StoredValue::Text(text),
        };
        Ok(StoredOption { name: option.name.to_owned(), value })
    }
}

fn secret_purpose(id: Uuid) -> String {
    format!("text of secret {id}")
}

fn option_purpose(option: &str, owner: Uuid) -> String {
    format!("{option} of {owner}")
}

fn require(options: &[StoredOption], names: &[&str], position: usize) -> Result<(), SqlError> {
    for name in names {
        if !options.iter().any(|option| option.name == *name) {
            let hint = match *name {
                "connector" => "Add connector = 'mysql-cdc'.".to_owned(),
                name => format!("Add {name} = '…'."),
            };
            return Err(SqlError::syntax(format!("option \"{name}\" is missing")).with_hint(hint).at(position));
        }
    }
    Ok(())
}

/// Reads a secret's text from where it is.
pub fn secret_text(catalog: &Catalog, name: &str, sealer: &Sealer) -> Result<String, SqlError> {
    let entry = catalog.secrets.get(name).ok_or_else(|| {
        SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("secret \"{name}\" does not exist"))
            .with_hint(format!("CREATE SECRET {name} AS '…';"))
    })?;
    let unreadable = |what: String, error: &dyn Display| {
        SqlError::new(sqlstate::OBJECT_NOT_READY, format!("secret \"{name}\" cannot be read: {what}: {error}"))
    };
    match &entry.place {
        SecretPlace::Sealed(sealed) => sealer.open(sealed, &secret_purpose(entry.id)),
        SecretPlace::Environment(variable) => std::env::var(variable)
            .map_err(|error| unreadable(format!("environment variable \"{variable}\" of the server"), &error)),
        SecretPlace::File(path) => std::fs::read_to_string(path)
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
            .map_err(|error| unreadable(format!("file \"{path}\" on the server"), &error)),
    }
}

/// An option's texts, by canonical name.
struct Texts<'a> {
    catalog: &'a Catalog,
    sealer: &'a Sealer,
    options: &'a [StoredOption],
    owner: Uuid,
}

impl Texts<'_> {
    fn get(&self, name: &str) -> Result<Option<String>, SqlError> {
        let Some(option) = self.options.iter().find(|option| option.name == name) else { return Ok(None) };
        match &option.value {
            StoredValue::Text(text) => Ok(Some(text.clone())),
            StoredValue::Secret(secret) => secret_text(self.catalog, secret, self.sealer).map(Some),
            StoredValue::Sealed(sealed) => self.sealer.open(sealed, &option_purpose(name, self.owner)).map(Some),
        }
    }

    /// A value that was checked when the option was given; one that a later version of this program cannot read is an error.
    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, SqlError> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| {
            SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("option \"{name}\" has the value '{text}', which is not understood"),
            )
        })
    }
}

fn duration(text: &str) -> Option<Duration> {
    options::parse_duration(text).ok()
}

/// How to reach the server of a connection.
fn connection_options(texts: &Texts<'_>) -> Result<ConnectionOptions, SqlError> {
    let mut connection = ConnectionOptions::new(
        texts.get("hostname")?.unwrap_or_default(),
        texts.parsed("port", |text| text.parse().ok())?.unwrap_or(3306),
        texts.get("username")?.unwrap_or_default(),
        texts.get("password")?.unwrap_or_default(),
    );
    connection.ssl_mode = texts.parsed("ssl-mode", |text| text.parse().ok())?;
    connection.ssl_ca = texts.get("ssl-ca")?;
    if let Some(timeout) = texts.parsed("connect.timeout", duration)? {
        connection.connect_timeout = timeout;
    }
    Ok(connection)
}

/// All that capture needs to know of a source.
pub fn source_definition(
    catalog: &Catalog,
    name: &str,
    source: &SourceEntry,
    sealer: &Sealer,
) -> Result<SourceDefinition, SqlError> {
    let texts = Texts { catalog, sealer, options: &source.options, owner: source.id };
    let connection = match &source.connection {
        None => connection_options(&texts)?,
        Some(connection) => {
            let entry = catalog.connections.get(connection).ok_or_else(|| {
                SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("connection \"{connection}\" does not exist"))
            })?;
            connection_options(&Texts { catalog, sealer, options: &entry.options, owner: entry.id })?
        }
    };
    let defaults = CaptureOptions::default();
    let options = CaptureOptions {
        server_id: texts.parsed("server-id", |text| text.parse().ok())?,
        checkpoint_interval: texts.parsed("checkpoint.interval", duration)?.unwrap_or(defaults.checkpoint_interval),
        snapshot_parallelism: texts
            .parsed("snapshot.parallelism", |text| text.parse().ok())?
            .unwrap_or(defaults.snapshot_parallelism),
        page_rows: texts.parsed("scan.snapshot.fetch.size", |text| text.parse().ok())?.unwrap_or(defaults.page_rows),
        range_rows: texts
            .parsed("scan.incremental.snapshot.chunk.size", |text| text.parse().ok())?
            .unwrap_or(defaults.range_rows),
        heartbeat_interval: texts.parsed("heartbeat.interval", duration)?.unwrap_or(defaults.heartbeat_interval),
        on_purged: texts
            .parsed("on-purged", |text| match text.to_lowercase().as_str() {
                "error" => Some(OnPurged::Error),
                "resnapshot" => Some(OnPurged::Resnapshot),
                _ => None,
            })?
            .unwrap_or(defaults.on_purged),
        memory_bytes: texts
            .parsed("memory", |text| usize::try_from(options::parse_bytes(text)?).ok())?
            .unwrap_or(defaults.memory_bytes),
        buckets: texts.parsed("buckets", |text| text.parse().ok())?,
        changelog: texts.get("changelog-producer")?.is_some_and(|producer| producer.eq_ignore_ascii_case("input")),
        snapshot_time_retained: texts
            .parsed("snapshot.time-retained", duration)?
            .unwrap_or(defaults.snapshot_time_retained),
        snapshot_num_retained_min: texts
            .parsed("snapshot.num-retained.min", |text| text.parse().ok())?
            .unwrap_or(defaults.snapshot_num_retained_min),
        snapshot_num_retained_max: texts.parsed("snapshot.num-retained.max", |text| text.parse().ok())?,
    };
    let definition = SourceDefinition {
        id: source.id,
        name: name.to_owned(),
        connection,
        tables: table_rules(source, &texts)?,
        exclude: match texts.get("tables.exclude")? {
            Some(list) => patterns(&list)?,
            None => Vec::new(),
        },
        options,
    };
    definition.validate()?;
    Ok(definition)
}

/// The rules in the order in which they are tried: `TABLES (…)` first, since it is the more particular.
fn table_rules(source: &SourceEntry, texts: &Texts<'_>) -> Result<Vec<TableRule>, SqlError> {
    let mut rules = Vec::new();
    let mut add =
        |pattern: &str, target: &Option<(String, String)>, key: &Option<Vec<String>>| -> Result<(), SqlError> {
            for pattern in patterns(pattern)? {
                rules.push(TableRule { pattern, target: target.clone(), key: key.clone() });
            }
            Ok(())
        };
    for rule in &source.rules {
        add(&rule.pattern, &rule.target, &rule.key)?;
    }
    match &source.selection {
        StoredSelection::Options => {}
        StoredSelection::AllTables => add("*.*", &None, &None)?,
        StoredSelection::Schemas(schemas) => {
            for schema in schemas {
                add(&format!("`{}`.*", schema.replace('`', "``")), &None, &None)?;
            }
        }
        StoredSelection::Tables(selected) => {
            for rule in selected {
                add(&rule.pattern, &rule.target, &rule.key)?;
            }
        }
    }
    if let Some(list) = texts.get("tables")? {
        add(&list, &None, &None)?;
    }
    if let (Some(database), Some(table)) = (texts.get("database-name")?, texts.get("table-name")?) {
        // Flink CDC joins the two expressions with a dot and matches the whole name.
        add(&format!("^(?:{database})\\.(?:{table})$"), &None, &None)?;
    }
    Ok(rules)
}

fn patterns(list: &str) -> Result<Vec<TablePattern>, SqlError> {
    TablePattern::parse_list(list).map_err(SqlError::from)
}
