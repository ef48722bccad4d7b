use async_trait::async_trait;

use super::ColumnType::{BigInt, Boolean, Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::catalog::{SourceEntry, StoredValue};
use crate::error::SqlError;

pub(super) struct Sources;

const COLUMNS: &[Column] = &[
    column(
        "id",
        Text,
        "Identity of the source. It names the source's objects in the store, and a source that is created again has another.",
    ),
    column("name", Text, "Name of the source."),
    column("connector", Text, "What it reads: `mysql-cdc`."),
    nullable("connection", Text, "Name of the connection it uses, if it uses one."),
    nullable("hostname", Text, "Host of the MySQL server."),
    nullable("port", BigInt, "Port of the MySQL server."),
    column("paused", Boolean, "Whether it was paused with `PAUSE SOURCE`."),
    column("table_count", BigInt, "Tables that it captures now."),
    column("created_at", Timestamp, "When it was created."),
];

#[async_trait]
impl SysView for Sources {
    fn name(&self) -> &'static str {
        "sources"
    }

    fn doc(&self) -> &'static str {
        "One row for each source. `sys.jobs` says how it is doing."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let row = |(name, entry): (&String, &SourceEntry)| {
            let connection = entry.connection.as_ref().and_then(|connection| state.catalog.connections.get(connection));
            let options = connection.map_or(&entry.options, |connection| &connection.options);
            let text = |name: &str| {
                options.iter().find(|option| option.name == name).and_then(|option| match &option.value {
                    StoredValue::Text(text) => Some(text.clone()),
                    _ => None,
                })
            };
            let known = state.sources.iter().find(|source| source.id == entry.id);
            let tables = known.map_or(0, |source| match (&source.status, &source.view) {
                (Some(status), _) => status.tables.len(),
                (None, Some(view)) => view.tables.len(),
                (None, None) => 0,
            });
            vec![
                entry.id.into(),
                name.as_str().into(),
                "mysql-cdc".into(),
                entry.connection.clone().into(),
                text("hostname").into(),
                text("port").map_or(Some(3306), |port| port.parse::<i64>().ok()).into(),
                entry.paused.into(),
                tables.into(),
                time(entry.created_at_ms),
            ]
        };
        Ok(state.catalog.sources.iter().map(row).collect())
    }
}
