//! The state of a transaction block, as PostgreSQL has it. What it keeps together is the checkpoints that are read.

use std::sync::Arc;

use super::outcome::{Notice, Outcome};
use super::settings::Settings;
use crate::error::{SqlError, sqlstate};
use crate::table::MirrorCatalog;

/// What the front end says when it is ready for the next query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    InTransaction,
    /// A statement failed; only the end of the block, or a savepoint, is waited for.
    Failed,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    settings: Settings,
}

#[derive(Debug)]
struct Block {
    failed: bool,
    /// What the statements of the block read, from the first that read anything.
    pinned: Option<Arc<MirrorCatalog>>,
    /// Settings to go back to on ROLLBACK.
    before: Settings,
    /// Settings of `SET LOCAL`, with the value each has again at the end.
    local: Vec<(String, Option<String>)>,
    savepoints: Vec<Savepoint>,
}

/// The transaction of one session.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    block: Option<Block>,
}

impl Transaction {
    pub(super) fn status(&self) -> TransactionStatus {
        match &self.block {
            None => TransactionStatus::Idle,
            Some(block) if block.failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::InTransaction,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.block.is_some()
    }

    /// A statement failed.
    pub(super) fn fail(&mut self) {
        if let Some(block) = &mut self.block {
            block.failed = true;
        }
    }

    pub(super) fn pinned(&self) -> Option<&Arc<MirrorCatalog>> {
        self.block.as_ref()?.pinned.as_ref()
    }

    /// Keeps what the block's first reading statement saw.
    pub(super) fn pin(&mut self, catalog: &Arc<MirrorCatalog>) {
        if let Some(block) = &mut self.block {
            block.pinned.get_or_insert_with(|| catalog.clone());
        }
    }

    /// Remembers what a setting was before `SET LOCAL`.
    pub(super) fn note_local(&mut self, name: &str, value: Option<String>) {
        if let Some(block) = &mut self.block
            && !block.local.iter().any(|(noted, _)| noted == name)
        {
            block.local.push((name.to_owned(), value));
        }
    }

    pub(super) fn begin(&mut self, settings: &Settings) -> Outcome {
        if self.block.is_some() {
            let warning = Notice::warning(sqlstate::ACTIVE_TRANSACTION, "there is already a transaction in progress");
            return Outcome::noticed("BEGIN", warning);
        }
        self.block = Some(Block {
            failed: false,
            pinned: None,
            before: settings.clone(),
            local: Vec::new(),
            savepoints: Vec::new(),
        });
        Outcome::command("BEGIN")
    }

    pub(super) fn commit(&mut self, settings: &mut Settings) -> Outcome {
        match self.block.take() {
            None => Outcome::noticed("COMMIT", no_transaction()),
            Some(block) if block.failed => {
                *settings = block.before;
                Outcome::command("ROLLBACK")
            }
            Some(block) => {
                for (name, value) in block.local {
                    settings.restore(&name, value);
                }
                Outcome::command("COMMIT")
            }
        }
    }

    pub(super) fn rollback(&mut self, settings: &mut Settings) -> Outcome {
        match self.block.take() {
            None => Outcome::noticed("ROLLBACK", no_transaction()),
            Some(block) => {
                *settings = block.before;
                Outcome::command("ROLLBACK")
            }
        }
    }

    pub(super) fn savepoint(&mut self, name: &str, settings: &Settings) -> Result<Outcome, SqlError> {
        let block = self.block.as_mut().ok_or_else(|| outside("SAVEPOINT"))?;
        block.savepoints.push(Savepoint { name: name.to_owned(), settings: settings.clone() });
        Ok(Outcome::command("SAVEPOINT"))
    }

    pub(super) fn release(&mut self, name: &str) -> Result<Outcome, SqlError> {
        let block = self.block.as_mut().ok_or_else(|| outside("RELEASE SAVEPOINT"))?;
        let at = newest(&block.savepoints, name)?;
        block.savepoints.truncate(at);
        Ok(Outcome::command("RELEASE"))
    }

    pub(super) fn rollback_to(&mut self, name: &str, settings: &mut Settings) -> Result<Outcome, SqlError> {
        let block = self.block.as_mut().ok_or_else(|| outside("ROLLBACK TO SAVEPOINT"))?;
        let at = newest(&block.savepoints, name)?;
        block.savepoints.truncate(at + 1);
        if let Some(savepoint) = block.savepoints.last() {
            *settings = savepoint.settings.clone();
        }
        block.failed = false;
        Ok(Outcome::command("ROLLBACK"))
    }
}

fn newest(savepoints: &[Savepoint], name: &str) -> Result<usize, SqlError> {
    savepoints
        .iter()
        .rposition(|savepoint| savepoint.name == name)
        .ok_or_else(|| SqlError::new(sqlstate::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
}

fn no_transaction() -> Notice {
    Notice::warning(sqlstate::NO_ACTIVE_TRANSACTION, "there is no transaction in progress")
}

fn outside(command: &str) -> SqlError {
    SqlError::new(sqlstate::NO_ACTIVE_TRANSACTION, format!("{command} can only be used in transaction blocks"))
}

#[cfg(test)]
mod tests;
