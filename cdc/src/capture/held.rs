//! Rows of XA transactions that are prepared: what they changed counts from their XA COMMIT on, which may come much later, in
//! another session of the job, or never. The rows are in the log before XA PREPARE and nowhere else, so that they are put
//! into objects of the source, which the next checkpoint refers to. Until XA COMMIT or XA ROLLBACK the server has locked
//! the rows and the definitions of their tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, Int8Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int8Type, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use object_store::path::Path;
use tidegate_storage::checkpoint::{digest, source_directory};
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::RowKind;
use tidegate_storage::{Error as StorageError, ErrorKind};
use tracing::{info, warn};
use uuid::Uuid;

use super::coordinator::Coordinator;
use super::state::{HeldPart, HeldTransaction, XaCommit};
use super::status::ErrorInfo;
use super::table::{CapturedTable, TableIndex};
use super::view::is_superseded;
use crate::error::{Code, Error};

/// The name of the column that says what a row is.
const KIND: &str = "_kind";

/// What a job holds of XA transactions beside its state.
pub(super) struct HeldRows {
    store: StoreRef,
    source: Uuid,
    directory: Path,
    /// Makes the names of objects differ from those of other sessions.
    epoch: u64,
    /// The checkpoint that the session began with.
    known: u64,
    written: u64,
    /// The rows of the open transaction that were put into objects, if it is an XA transaction.
    open: Option<HeldTransaction>,
    /// Objects that the next checkpoint does not refer to, and those of the one under way.
    unneeded: Vec<Path>,
    unneeded_by_cut: Vec<Path>,
}

/// Where the rows of prepared transactions of a source are.
pub(super) fn directory(source: Uuid) -> Path {
    source_directory(source).join("prepared")
}

impl HeldRows {
    pub(super) fn new(store: StoreRef, source: Uuid, epoch: u64, known: u64) -> Self {
        let directory = directory(source);
        Self {
            store,
            source,
            directory,
            epoch,
            known,
            written: 0,
            open: None,
            unneeded: Vec::new(),
            unneeded_by_cut: Vec::new(),
        }
    }

    /// A transaction begins, which is none of XA as far as is known.
    pub(super) fn begin(&mut self) {
        self.give_up();
    }

    /// It is one.
    pub(super) fn xa_start(&mut self) {
        self.open = Some(HeldTransaction::default());
    }

    /// Whether the open transaction is one of XA.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Rows of the open transaction are not held, as their table has stopped. It may be captured again when they are
    /// committed.
    pub(super) fn misses(&mut self, table: &str) {
        if let Some(open) = &mut self.open {
            open.missed.insert(table.to_owned());
        }
    }

    /// The rows of the open transaction do not count.
    pub(super) fn give_up(&mut self) {
        if let Some(open) = self.open.take() {
            self.drop_parts(&open);
        }
    }

    fn drop_parts(&mut self, transaction: &HeldTransaction) {
        self.unneeded.extend(transaction.parts.iter().map(|part| self.directory.clone().join(part.object.as_str())));
    }

    /// A checkpoint is cut.
    pub(super) fn cut(&mut self) {
        self.unneeded_by_cut.append(&mut self.unneeded);
    }

    /// The checkpoint that was cut is durable: no other will refer to what it does not need.
    pub(super) fn durable(&mut self) {
        let paths = std::mem::take(&mut self.unneeded_by_cut);
        if paths.is_empty() {
            return;
        }
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            for path in paths {
                if let Err(error) = store::delete(&*store, &path).await {
                    warn!(%path, %error, "rows of an XA transaction that has ended could not be deleted; they go within two days");
                }
            }
        });
    }

    async fn put(&mut self, table: &CapturedTable, batch: &RecordBatch, kinds: &[RowKind]) -> Result<HeldPart, Error> {
        let bytes = encode(batch, kinds).map_err(|error| {
            Error::new(Code::Internal, format!("the rows of an XA transaction on table {} cannot be held", table.name))
                .with_source(error)
        })?;
        self.written += 1;
        let object = format!("{}-{}", self.epoch, self.written);
        let digest = digest(&bytes);
        store::create_own(&*self.store, &self.directory.clone().join(object.as_str()), bytes.into()).await?;
        Ok(HeldPart { table: table.name.clone(), schema: table.schema.id, object, digest })
    }

    /// The rows of a part, or an error that says that they are lost.
    async fn get(&self, part: &HeldPart) -> Result<(RecordBatch, Vec<RowKind>), StorageError> {
        let path = self.directory.clone().join(part.object.as_str());
        let bytes = store::read(&*self.store, &path).await?;
        if digest(&bytes) != part.digest {
            return Err(StorageError::corrupt(path.as_ref(), "its digest does not match its content"));
        }
        decode(&bytes).map_err(|error| StorageError::corrupt(path.as_ref(), error.to_string()))
    }
}

impl Coordinator<'_> {
    /// Rows of the open transaction have to leave their buffer: to the writers, or into an object if it is one of XA.
    pub(super) async fn hand_over_early(&mut self, index: TableIndex) -> Result<(), Error> {
        self.stream.hands_over(index);
        if self.xa.is_open() { self.hold(index).await } else { self.hand_over(index).await }
    }

    /// Puts a table's rows of the open transaction into an object, and hands over those before them.
    async fn hold(&mut self, index: TableIndex) -> Result<(), Error> {
        let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
        let start = table.transaction_start;
        if table.buffer.len() <= start {
            return Ok(());
        }
        let (batch, mut kinds) = self.take(index)?;
        let held = kinds.split_off(start);
        if start > 0 {
            self.send(index, batch.slice(0, start), kinds).await?;
        }
        let Some(table) = self.tables.get(index) else { return Ok(()) };
        let part = self.xa.put(table, &batch.slice(start, held.len()), &held).await?;
        if let Some(open) = &mut self.xa.open {
            open.parts.push(part);
        }
        Ok(())
    }

    /// All rows of the open transaction, held.
    async fn hold_all(&mut self) -> Result<HeldTransaction, Error> {
        for index in 0..self.tables.len() {
            self.hold(index).await?;
        }
        Ok(self.xa.open.take().unwrap_or_default())
    }

    /// The rows of the open transaction count only once XA COMMIT is seen.
    pub(super) async fn xa_prepare(&mut self, xid: String) -> Result<(), Error> {
        if !self.xa.is_open() {
            // Nothing said that it would be prepared: rows that were handed over are written already. They are not to be
            // seen before XA COMMIT, and are missed then.
            let handed_over = self.stream.handed_over();
            self.cannot_cut_back(handed_over.clone());
            self.xa.xa_start();
            self.cannot_cut_back(handed_over);
        }
        let held = self.hold_all().await?;
        self.source.held.insert(xid, held);
        self.cuts.dirty = true;
        self.end_transaction();
        Ok(())
    }

    /// XA COMMIT ... ONE PHASE: the rows of the open transaction count at once.
    pub(super) async fn xa_one_phase(&mut self) -> Result<(), Error> {
        if self.xa.open.as_ref().is_some_and(|open| !open.parts.is_empty() || !open.missed.is_empty()) {
            let held = self.hold_all().await?;
            self.end_transaction();
            let position = self.position.clone();
            return self.xa_applies(held, &XaCommit { xid: String::new(), position }).await;
        }
        self.xa.open = None;
        self.end_transaction();
        Ok(())
    }

    /// An XA transaction that was held has ended.
    pub(super) async fn xa_ended(&mut self, held: HeldTransaction, commit: Option<&XaCommit>) -> Result<(), Error> {
        self.cuts.dirty = true;
        match commit {
            Some(commit) => self.xa_applies(held, commit).await,
            None => {
                self.xa.drop_parts(&held);
                Ok(())
            }
        }
    }

    /// What was held counts from here on. Of tables whose rows were not held, or are lost, all rows are read again.
    async fn xa_applies(&mut self, held: HeldTransaction, commit: &XaCommit) -> Result<(), Error> {
        let mut again: BTreeSet<String> = held.missed.clone();
        for part in &held.parts {
            let Some(index) = self.tables.iter().position(|t| t.name == part.table && t.is_captured()) else {
                continue;
            };
            let Some(table) = self.tables.get(index) else { continue };
            if again.contains(&part.table) {
                continue;
            }
            if table.schema.id != part.schema {
                again.insert(part.table.clone());
                continue;
            }
            let (batch, kinds) = match self.xa.get(part).await {
                Ok(rows) => rows,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
                        && !is_superseded(&self.xa.store, self.xa.source, self.xa.epoch, self.xa.known).await? =>
                {
                    let error = Error::from(error);
                    warn!(table = part.table, code = %error.code, %error, "the rows of an XA transaction are lost; its table is read again");
                    self.status.record(ErrorInfo::new(&error, Some(&part.table), self.clock.now_ms()));
                    again.insert(part.table.clone());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let live = !table.is_loading();
            let Ok(batch) = batch.with_schema(table.schema.arrow_schema()) else {
                again.insert(part.table.clone());
                continue;
            };
            self.cuts.dirty = true;
            self.cuts.live_dirty |= live;
            self.hand_over(index).await?;
            self.send(index, batch, kinds).await?;
        }
        for index in 0..self.tables.len() {
            let Some(table) = self.tables.get_mut(index) else { continue };
            if !table.is_captured() || !again.contains(&table.name) {
                continue;
            }
            info!(
                table = table.name,
                "an XA transaction whose rows are not held was committed; the table is read again"
            );
            table.awaited.push(commit.clone());
            let (mysql, schema) = ((*table.mysql).clone(), (*table.schema).clone());
            self.restart_table(index, mysql, schema, true).await?;
        }
        self.xa.drop_parts(&held);
        Ok(())
    }
}

/// The objects of a source's directory that nothing refers to and that are older than `before_ms`: of sessions that broke off.
pub(super) async fn remove_orphans(
    store: &StoreRef,
    source: Uuid,
    needed: &BTreeSet<String>,
    before_ms: i64,
) -> Result<usize, Error> {
    use futures::TryStreamExt;
    let directory = directory(source);
    let listed: Vec<_> = store
        .list(Some(&directory))
        .try_collect()
        .await
        .map_err(|error| StorageError::from_store(directory.as_ref(), "listed", error))?;
    let mut removed = 0;
    for object in listed {
        let is_needed = object.location.filename().is_some_and(|name| needed.contains(name));
        if !is_needed && object.last_modified.timestamp_millis() < before_ms {
            store::delete(&**store, &object.location).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn encode(batch: &RecordBatch, kinds: &[RowKind]) -> Result<Vec<u8>, ArrowError> {
    let kinds: Int8Array = kinds.iter().map(|kind| code(*kind)).collect::<Vec<_>>().into();
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(KIND, DataType::Int8, false)));
    let schema = Arc::new(Schema::new(fields));
    let columns = batch.columns().iter().cloned().chain([Arc::new(kinds) as _]).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn decode(bytes: &[u8]) -> Result<(RecordBatch, Vec<RowKind>), ArrowError> {
    let batch = StreamReader::try_new(bytes, None)?.next();
    let mut batch = batch.ok_or_else(|| ArrowError::IpcError("there are no rows".to_owned()))??;
    let place = batch.schema().index_of(KIND)?;
    let kinds = batch.remove_column(place);
    let kinds =
        kinds.as_primitive_opt::<Int8Type>().and_then(|codes| codes.values().iter().map(|c| kind(*c)).collect());
    Ok((batch, kinds.ok_or_else(|| ArrowError::IpcError("a row is of no kind".to_owned()))?))
}

fn code(kind: RowKind) -> i8 {
    match kind {
        RowKind::Upsert => 0,
        RowKind::Delete => 1,
        RowKind::UpdateBefore => 2,
        RowKind::InsertAbsent => 3,
    }
}

fn kind(code: i8) -> Option<RowKind> {
    [RowKind::Upsert, RowKind::Delete, RowKind::UpdateBefore, RowKind::InsertAbsent]
        .into_iter()
        .find(|k| self::code(*k) == code)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn rows_come_back_as_they_were_held() {
        let schema =
            Schema::new(vec![Field::new("id", DataType::Int8, false), Field::new("name", DataType::Utf8, true)]);
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(Int8Array::from(vec![1, 2, 3, 4])),
            Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("d")])),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let kinds = [RowKind::UpdateBefore, RowKind::Upsert, RowKind::Delete, RowKind::InsertAbsent];
        // A part of a batch is written without the rest.
        let bytes = encode(&batch.slice(1, 3), &kinds[1..]).unwrap();
        let (rows, kinds_of_rows) = decode(&bytes).unwrap();
        assert_eq!((rows, kinds_of_rows), (batch.slice(1, 3), kinds[1..].to_vec()));
        assert!(decode(&bytes[..20]).is_err());
    }
}
