use async_trait::async_trait;

use super::ColumnType::Text;
use super::{Cell, Column, SysState, SysView, column};
use crate::error::SqlError;

pub(super) struct Settings;

const COLUMNS: &[Column] = &[
    column("name", Text, "Name of the setting."),
    column("value", Text, "Its value in this session."),
    column("default_value", Text, "Its value in a new session."),
    column("description", Text, "What it does."),
];

#[async_trait]
impl SysView for Settings {
    fn name(&self) -> &'static str {
        "settings"
    }

    fn doc(&self) -> &'static str {
        "One row for each setting of the session, to be changed with `SET`."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let rows = state.settings.iter().map(|setting| {
            vec![setting.name.into(), setting.value.clone().into(), setting.default.clone().into(), setting.doc.into()]
        });
        Ok(rows.collect())
    }
}
