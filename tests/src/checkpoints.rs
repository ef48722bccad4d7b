//! Reads a store without the server: its checkpoints, and the tables' Parquet files with their deletion vectors.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, Int64Array},
    datatypes::Int64Type,
};
use bytes::Bytes;
use object_store::ObjectStoreExt;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use tidegate_storage::{
    checkpoint::{CheckpointLog, CheckpointState, PreparedSnapshot, TableCommit},
    store::{self, StoreRef},
    table::TableVersion,
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
    let store = store::open(gate.store(), &[]).expect("the store can be opened");
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

/// The sum of a BIGINT column over the live rows of a table's snapshot.
async fn column_sum(store: &StoreRef, path: &str, snapshot_json: &str, column: &str) -> i64 {
    let version = TableVersion::load(store, &path.into(), snapshot_json).await.expect("a snapshot can be loaded");
    let mut sum = 0;
    let mut rows = 0;
    for file in &version.files {
        let bytes: Bytes =
            store.get(&file.path).await.expect("a data file is there").bytes().await.expect("it can be read");
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a data file is Parquet");
        let mask = ProjectionMask::columns(builder.parquet_schema(), [column]);
        let mut position = 0_u32;
        for batch in builder.with_projection(mask).build().expect("a data file can be read") {
            let batch = batch.expect("a data file can be decoded");
            let values: &Int64Array = batch.column(0).as_primitive::<Int64Type>();
            for i in 0..values.len() {
                let dead = file.deleted.as_ref().is_some_and(|deleted| deleted.contains(position));
                if !dead {
                    sum += values.value(i);
                    rows += 1;
                }
                position += 1;
            }
        }
    }
    assert_eq!(rows, version.row_count(), "the snapshot of {path} counts its rows");
    sum
}
