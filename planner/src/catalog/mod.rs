//! What is defined: secrets, connections and sources, kept in the object store.
//!
//! [`Catalog`] is the content of one version, a plain value. [`store`] keeps the versions, [`sealing`] the secrets' texts
//! from being read by those who can read the store, and [`definition`] turns a source's options into what captures.

pub mod definition;
mod describe;
pub mod sealing;
pub mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use describe::{create_connection_text, create_source_text, quoted_name};
pub use sealing::Sealed;

/// All definitions, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    pub secrets: BTreeMap<String, SecretEntry>,
    pub connections: BTreeMap<String, ConnectionEntry>,
    pub sources: BTreeMap<String, SourceEntry>,
}

/// Where a secret's text is: here and encrypted, or outside and read at each use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretPlace {
    Sealed(Sealed),
    Environment(String),
    File(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecretEntry {
    pub id: Uuid,
    pub created_at_ms: i64,
    pub place: SecretPlace,
}

/// An option's value as it is kept. A password in the statement's text is sealed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoredValue {
    Text(String),
    Secret(String),
    Sealed(Sealed),
}

/// An option under its canonical name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredOption {
    pub name: String,
    pub value: StoredValue,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionEntry {
    pub id: Uuid,
    pub created_at_ms: i64,
    pub options: Vec<StoredOption>,
}

/// One rule of a source's selection, as [`crate::sql::statement::TableRule`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRule {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<String>>,
}

/// What stood behind `FOR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoredSelection {
    Options,
    AllTables,
    Schemas(Vec<String>),
    Tables(Vec<StoredRule>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// Names the source's objects in the store. A name that is dropped and used again has another.
    pub id: Uuid,
    pub created_at_ms: i64,
    pub paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    pub selection: StoredSelection,
    pub rules: Vec<StoredRule>,
    pub options: Vec<StoredOption>,
    /// Schemas and names of the tables it was created with. No two sources mirror into one table.
    #[serde(default)]
    pub targets: Vec<(String, String)>,
}

impl Catalog {
    /// A table that another source mirrors into already, and that source.
    pub fn taken<'a>(&'a self, targets: &'a [(String, String)]) -> Option<(&'a str, &'a (String, String))> {
        self.sources.iter().find_map(|(name, source)| {
            let taken = targets.iter().find(|target| source.targets.contains(target))?;
            Some((name.as_str(), taken))
        })
    }

    pub fn source(&self, id: Uuid) -> Option<(&str, &SourceEntry)> {
        self.sources.iter().find(|(_, source)| source.id == id).map(|(name, source)| (name.as_str(), source))
    }

    /// What uses a secret, in words.
    pub fn users_of_secret(&self, secret: &str) -> Vec<String> {
        let uses = |options: &[StoredOption]| {
            options.iter().any(|option| matches!(&option.value, StoredValue::Secret(name) if name == secret))
        };
        let connections = self.connections.iter().filter(|(_, entry)| uses(&entry.options));
        let sources = self.sources.iter().filter(|(_, entry)| uses(&entry.options));
        connections
            .map(|(name, _)| format!("connection \"{name}\""))
            .chain(sources.map(|(name, _)| format!("source \"{name}\"")))
            .collect()
    }

    pub fn users_of_connection(&self, connection: &str) -> Vec<String> {
        self.sources
            .iter()
            .filter(|(_, entry)| entry.connection.as_deref() == Some(connection))
            .map(|(name, _)| format!("source \"{name}\""))
            .collect()
    }
}

#[cfg(test)]
mod tests;
