use async_trait::async_trait;

use super::ColumnType::{BigInt, Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, nullable, time};
use crate::catalog::StoredValue;
use crate::error::SqlError;

pub(super) struct Connections;

const COLUMNS: &[Column] = &[
    column("id", Text, "Identity of the connection."),
    column("name", Text, "Name of the connection."),
    column("type", Text, "What it leads to: `mysql`."),
    nullable("hostname", Text, "Host of the server."),
    nullable("port", BigInt, "Port of the server."),
    nullable("username", Text, "User of the server."),
    column("used_by", Text, "Sources that use it, separated by commas."),
    column("created_at", Timestamp, "When it was created."),
];

#[async_trait]
impl SysView for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn doc(&self) -> &'static str {
        "One row for each connection."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let rows = state.catalog.connections.iter().map(|(name, entry)| {
            let text = |name: &str| {
                entry.options.iter().find(|option| option.name == name).and_then(|option| match &option.value {
                    StoredValue::Text(text) => Some(text.clone()),
                    _ => None,
                })
            };
            vec![
                entry.id.into(),
                name.as_str().into(),
                "mysql".into(),
                text("hostname").into(),
                text("port").map_or(Some(3306), |port| port.parse::<i64>().ok()).into(),
                text("username").into(),
                state.catalog.users_of_connection(name).join(", ").into(),
                time(entry.created_at_ms),
            ]
        });
        Ok(rows.collect())
    }
}
