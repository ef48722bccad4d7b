//! Reads a store without the server: its checkpoints, and the tables' Parquet files with their deletion vectors.

use std::sync::Arc;

use arrow::{
    array::{AsArray, BooleanArray, Int64Array, RecordBatch},
    compute::{filter_record_batch, sum},
    datatypes::Int64Type,
};
use object_store::ObjectStoreExt;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use tidegate_storage::{
    checkpoint::{CheckpointLog, CheckpointState, PreparedSnapshot, TableCommit},
    store::{self, StoreRef},
    table::{LiveFile, TableVersion},
};
use uuid::Uuid;

use crate::{
    gate::Gate,
    workload::{BANK_TOTAL, DATABASE},
};

async fn open(gate: &Gate, source: Option<&str>) -> (StoreRef, CheckpointLog) {
    let filter = source.map(|name| format!(" WHERE name = '{name}'")).unwrap_or_default();
    let id =
        gate.connect().await.value(&format!("SELECT id FROM sys.sources{filter}")).await.expect("a source has an id");
    let store = store::open(gate.store(), gate.store_options()).expect("the store can be opened");
    let log = CheckpointLog::new(Arc::clone(&store), Uuid::parse_str(&id).expect("an id is a UUID"));
    (store, log)
}

/// The newest checkpoint of the only source.
pub async fn newest(gate: &Gate) -> CheckpointState {
    let (_, log) = open(gate, None).await;
    log.recover().await.expect("the checkpoints can be read").expect("there is a checkpoint")
}

/// Walks all checkpoints of a source and sums the bank in each in which both of its tables are visible.
pub async fn assert_bank_total_at_every_checkpoint(gate: &Gate, source: &str) {
    let (store, log) = open(gate, Some(source)).await;
    let mut records = log.list_recent(usize::MAX).await.expect("the checkpoints can be read");
    records.reverse();
    let last = records.last().expect("there is a checkpoint").number;
    // The oldest ones may have expired; what is left is without gaps and starts with a full one.
    assert!(records[0].full || records[0].number == 1, "checkpoint {} is the oldest and not full", records[0].number);
    let mut tables: [Option<TableCommit>; 2] = [None, None];
    let mut sums: [Option<(PreparedSnapshot, i64)>; 2] = [None, None];
    let mut seen = 0;
    for (i, record) in records.iter().enumerate() {
        assert_eq!(record.number, records[0].number + i as u64, "checkpoints have no gaps");
        let number = record.number;
        for commit in &record.tables {
            for (i, table) in ["bank_a", "bank_b"].iter().enumerate() {
                if commit.name == format!("{DATABASE}.{table}") {
                    tables[i] = Some(commit.clone());
                }
            }
        }
        let mut total = 0;
        let mut complete = true;
        for (table, sum) in tables.iter().zip(&mut sums) {
            let Some(TableCommit { path, visible: true, snapshot: Some(snapshot), .. }) = table else {
                complete = false;
                continue;
            };
            if sum.as_ref().is_none_or(|(known, _)| known.id != snapshot.id || known.json != snapshot.json) {
                *sum = Some((snapshot.clone(), column_sum(&store, path, &snapshot.json, "balance").await));
            }
            total += sum.as_ref().map_or(0, |(_, sum)| *sum);
        }
        if complete {
            seen += 1;
            assert_eq!(total, BANK_TOTAL, "the bank in checkpoint {number} of {last}");
        }
    }
    assert!(seen > 1, "the bank is complete in {seen} of {last} checkpoints");
}

/// Hands the live rows of a table, as of the newest checkpoint, to `visit`, one batch after another.
pub async fn for_each_batch(gate: &Gate, table: &str, mut visit: impl FnMut(RecordBatch)) {
    let (store, log) = open(gate, None).await;
    let state = log.recover().await.expect("the checkpoints can be read").expect("there is a checkpoint");
    let commit = state.tables.get(table).unwrap_or_else(|| panic!("no checkpoint has {table}"));
    let snapshot = commit.snapshot.as_ref().expect("the table has a snapshot");
    let version = load(&store, &commit.path, &snapshot.json).await;
    let columns: Vec<String> = version.schema.fields.iter().map(|field| field.name.clone()).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    for file in &version.files {
        read_live_rows(&store, file, &columns, &mut visit).await;
    }
}

async fn load(store: &StoreRef, path: &str, snapshot_json: &str) -> TableVersion {
    TableVersion::load(store, &path.into(), snapshot_json).await.expect("a snapshot can be loaded")
}

async fn read_live_rows(store: &StoreRef, file: &LiveFile, columns: &[&str], visit: &mut impl FnMut(RecordBatch)) {
    let bytes = store.get(&file.path).await.expect("a data file is there").bytes().await.expect("it can be read");
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a data file is Parquet");
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    let mut position = 0_u32;
    for batch in builder.with_projection(mask).build().expect("a data file can be read") {
        let batch = batch.expect("a data file can be decoded");
        let rows = u32::try_from(batch.num_rows()).expect("a batch is small");
        let live: BooleanArray = (position..position + rows)
            .map(|row| Some(file.deleted.as_ref().is_none_or(|deleted| !deleted.contains(row))))
            .collect();
        position += rows;
        visit(filter_record_batch(&batch, &live).expect("rows can be filtered"));
    }
}

/// The sum of a BIGINT column over the live rows of a table's snapshot.
async fn column_sum(store: &StoreRef, path: &str, snapshot_json: &str, column: &str) -> i64 {
    let version = load(store, path, snapshot_json).await;
    let mut total = 0;
    let mut rows = 0;
    for file in &version.files {
        let mut add = |batch: RecordBatch| {
            let values: &Int64Array = batch.column(0).as_primitive::<Int64Type>();
            rows += batch.num_rows() as u64;
            total += sum(values).unwrap_or(0);
        };
        read_live_rows(store, file, &[column], &mut add).await;
    }
    assert_eq!(rows, version.row_count(), "the snapshot of {path} counts its rows");
    total
}
