//! `VERIFY STORAGE`: everything that is stored is read, and what is damaged is named.

use std::collections::BTreeMap;

use object_store::path::Path;
use tidegate_storage::checkpoint::{CheckpointLog, CheckpointState};
use tidegate_storage::table::{Damage, Verified, tables_of, verify_table};
use uuid::Uuid;

use super::Session;
use super::outcome::{Notice, Outcome, RowsTag};
use crate::error::SqlError;
use crate::sql::statement::Name;

/// The columns of the answer.
pub(super) const COLUMNS: &[&str] = &["part", "object", "problem"];

/// Where the mirrored tables are.
const WAREHOUSE: &str = "warehouse";

impl Session {
    /// Reads all objects, or those of one source. One row for each that is damaged or missing; a notice tells how much
    /// was read.
    pub(super) async fn verify_storage(&mut self, source: Option<&Name>) -> Result<Outcome, SqlError> {
        let store = self.engine.store.clone();
        let catalog = self.engine.catalog.current();
        let mut sources: BTreeMap<String, Uuid> =
            catalog.sources.iter().map(|(name, entry)| (name.clone(), entry.id)).collect();
        if let Some(name) = source {
            let id = self.source(name)?.id;
            sources.retain(|_, other| *other == id);
        }

        let mut report = Report::default();
        if source.is_none() {
            report.add("the catalog".to_owned(), self.engine.catalog.verify().await?);
        }
        let mut states = Vec::new();
        for (name, id) in &sources {
            let log = CheckpointLog::new(store.clone(), *id);
            let mut found = log.verify().await.map_err(unreadable)?;
            // Records that are damaged were named already; without them the tables' newest snapshots are not known.
            let known = found.damages.len();
            match found.note(log.recover().await).map_err(unreadable)? {
                Some(state) => states.extend(state),
                None if known > 0 => found.damages.truncate(known),
                None => {}
            }
            report.add(format!("source {name}"), found);
        }
        let mut tables: Vec<Path> = states.iter().flat_map(paths).collect();
        if source.is_none() {
            // Also what dropped sources have left.
            tables.extend(tables_of(&store, &Path::from(WAREHOUSE)).await.map_err(unreadable)?);
        }
        tables.sort_unstable();
        tables.dedup();
        for table in &tables {
            let prepared: Vec<&str> =
                states.iter().flat_map(|state| state.prepared_snapshots(table.as_ref())).collect();
            report.add(
                format!("table {}", name_of(table)),
                verify_table(&store, table, &prepared).await.map_err(unreadable)?,
            );
        }
        report.outcome(tables.len())
    }
}

/// The store itself failed.
fn unreadable(error: tidegate_storage::Error) -> SqlError {
    tidegate_cdc::error::Error::from(error).into()
}

fn paths(state: &CheckpointState) -> impl Iterator<Item = Path> {
    state.tables.values().filter(|table| table.snapshot.is_some()).map(|table| Path::from(table.path.as_str()))
}

/// `warehouse/<schema>.db/<table>` as it is queried.
fn name_of(path: &Path) -> String {
    let mut parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    let table = parts.pop().unwrap_or_default();
    let schema = parts.pop().unwrap_or_default();
    format!("{}.{table}", schema.strip_suffix(".db").unwrap_or(&schema))
}

#[derive(Default)]
struct Report {
    total: Verified,
    rows: Vec<Vec<String>>,
}

impl Report {
    fn add(&mut self, part: String, found: Verified) {
        let row = |Damage { object, problem }: &Damage| vec![part.clone(), object.clone(), problem.clone()];
        self.rows.extend(found.damages.iter().map(row));
        self.total.add(found);
    }

    fn outcome(self, tables: usize) -> Result<Outcome, SqlError> {
        let (objects, bytes) = (self.total.objects, self.total.bytes);
        let damaged = match self.rows.len() {
            0 => "all are whole".to_owned(),
            1 => "1 of them is damaged or missing".to_owned(),
            many => format!("{many} of them are damaged or missing"),
        };
        let read = format!("{objects} objects, {bytes} bytes, {tables} tables were read: {damaged}");
        let mut outcome = Outcome::texts(COLUMNS, &self.rows, RowsTag::Named("VERIFY STORAGE"))?;
        if let Outcome::Rows { notices, .. } = &mut outcome {
            notices.push(Notice::info(read));
        }
        Ok(outcome)
    }
}
