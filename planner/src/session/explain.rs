//! `EXPLAIN CREATE SOURCE`: the checks and the tables, without creating anything.

use serde_json::json;
use tidegate_cdc::source::examine::{CheckStatus, Examination};

use super::execute::Session;
use super::outcome::{Outcome, RowsTag};
use crate::error::SqlError;
use crate::sql::statement::{CreateSource, ExplainFormat};

impl Session {
    pub(super) async fn explain_source(
        &mut self,
        format: ExplainFormat,
        create: &CreateSource,
    ) -> Result<Outcome, SqlError> {
        let (_, _, examination) = self.examined(create).await?;
        let lines = match format {
            ExplainFormat::Text => text(&create.name.value, &examination),
            ExplainFormat::Json => {
                let value = json(&create.name.value, &examination);
                let text = serde_json::to_string_pretty(&value)
                    .map_err(|error| SqlError::internal(format!("the explanation cannot be encoded: {error}")))?;
                vec![text]
            }
        };
        let rows: Vec<_> = lines.into_iter().map(|line| vec![line]).collect();
        Outcome::texts(&["QUERY PLAN"], &rows, RowsTag::Named("EXPLAIN"))
    }
}

fn word(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Passed => "ok",
        CheckStatus::Warning => "warning",
        CheckStatus::Failed => "failed",
    }
}

fn text(name: &str, examination: &Examination) -> Vec<String> {
    let mut lines = vec![format!("Source {name}: {}", examination.server.version), "  Checks".to_owned()];
    for check in &examination.checks {
        let detail = if check.detail.is_empty() { String::new() } else { format!(": {}", check.detail) };
        lines.push(format!("    {:<8} {}{detail}", word(check.status), check.name));
        if check.status != CheckStatus::Passed
            && let Some(hint) = &check.hint
        {
            lines.push(format!("             {hint}"));
        }
    }
    let captured: Vec<_> = examination.tables.iter().filter(|table| table.left_out.is_none()).collect();
    let rows: u64 = captured.iter().map(|table| table.estimated_rows).sum();
    lines.push(format!("  Tables captured: {} (about {rows} rows)", captured.len()));
    for table in captured {
        let key = table.key.as_ref().map_or_else(String::new, |key| format!(", key ({})", key.join(", ")));
        lines.push(format!(
            "    {}.{} -> {}.{}: about {} rows{key}",
            table.database, table.name, table.target_schema, table.target_table, table.estimated_rows
        ));
    }
    let left_out: Vec<_> =
        examination.tables.iter().filter_map(|table| Some((table, table.left_out.as_ref()?))).collect();
    if !left_out.is_empty() {
        lines.push(format!("  Tables left out: {}", left_out.len()));
        for (table, reason) in left_out {
            lines.push(format!("    {}.{}: {reason}", table.database, table.name));
        }
    }
    lines
}

fn json(name: &str, examination: &Examination) -> serde_json::Value {
    let checks: Vec<_> = examination
        .checks
        .iter()
        .map(|check| json!({"name": check.name, "status": word(check.status), "detail": check.detail, "hint": check.hint}))
        .collect();
    let tables: Vec<_> = examination
        .tables
        .iter()
        .map(|table| {
            json!({
                "database": table.database,
                "table": table.name,
                "target": format!("{}.{}", table.target_schema, table.target_table),
                "estimated_rows": table.estimated_rows,
                "key": table.key,
                "left_out": table.left_out,
            })
        })
        .collect();
    json!({
        "source": name,
        "server_version": examination.server.version,
        "gtid": examination.server.gtid,
        "checks": checks,
        "tables": tables,
    })
}
