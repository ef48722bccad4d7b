use async_trait::async_trait;

use super::ColumnType::{Text, Timestamp};
use super::{Cell, Column, SysState, SysView, column, time};
use crate::catalog::SecretPlace;
use crate::error::SqlError;

pub(super) struct Secrets;

const COLUMNS: &[Column] = &[
    column("id", Text, "Identity of the secret."),
    column("name", Text, "Name of the secret."),
    column("backend", Text, "Where its text is: `catalog` (encrypted in the store), `env` or `file` (of the server)."),
    column("used_by", Text, "What uses it, separated by commas."),
    column("created_at", Timestamp, "When it was created."),
];

#[async_trait]
impl SysView for Secrets {
    fn name(&self) -> &'static str {
        "secrets"
    }

    fn doc(&self) -> &'static str {
        "One row for each secret. Its text is never shown."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let rows = state.catalog.secrets.iter().map(|(name, entry)| {
            let backend = match entry.place {
                SecretPlace::Sealed(_) => "catalog",
                SecretPlace::Environment(_) => "env",
                SecretPlace::File(_) => "file",
            };
            vec![
                entry.id.into(),
                name.as_str().into(),
                backend.into(),
                state.catalog.users_of_secret(name).join(", ").into(),
                time(entry.created_at_ms),
            ]
        });
        Ok(rows.collect())
    }
}
