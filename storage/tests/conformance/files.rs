//! The rows of a version, read from its files without any engine: what a reader has to do, and no more.

use std::cmp::Ordering;
use std::path::Path;

use arrow::array::ArrayRef;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tidegate_storage::paimon::{DataType, TableSchema, binary_row};
use tidegate_storage::table::{LiveFile, TableVersion};

use crate::engines::{At, JAVA, set_at};
use crate::texts::{Line, lines, widened};
use crate::values::compare;

/// The live rows of every file, as rows of the version's schema. `warehouse` is the folder of the store.
pub(crate) fn rows(warehouse: &Path, version: &TableVersion) -> Vec<Line> {
    version.files.iter().flat_map(|file| rows_of(warehouse, version, file)).collect()
}

fn rows_of(warehouse: &Path, version: &TableVersion, file: &LiveFile) -> Vec<Line> {
    let schema = &version.schemas[&(file.meta.schema_id as u64)];
    let bytes = std::fs::read(warehouse.join(file.path.as_ref())).unwrap();
    assert_eq!(bytes.len() as i64, file.meta.file_size, "{}", file.path);
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
    let mut all = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let columns: Vec<ArrayRef> = schema
            .fields
            .iter()
            .map(|field| batch.column_by_name(&field.name).unwrap_or_else(|| panic!("{}: {}", file.path, field.name)))
            .cloned()
            .collect();
        let kinds = batch.column_by_name("_VALUE_KIND").unwrap();
        assert!(lines(std::slice::from_ref(kinds)).iter().all(|kind| kind[0].as_deref() == Some("0")), "{}", file.path);
        all.extend(lines(&columns));
    }
    assert_eq!(all.len() as i64, file.meta.row_count, "{}", file.path);
    check_order(file, schema, &all);
    let dead = |row: usize| file.deleted.as_ref().is_some_and(|deleted| deleted.contains(row as u32));
    let live = all.into_iter().enumerate().filter(|(row, _)| !dead(*row)).map(|(_, line)| line);
    live.map(|line| as_of(&line, schema, &version.schema)).collect()
}

/// Keys ascend, and the file's description names the first and the last.
fn check_order(file: &LiveFile, schema: &TableSchema, rows: &[Line]) {
    let (types, keys) = (schema.key_types(), schema.key_indices());
    let key = |row: &Line| -> Line { keys.iter().map(|index| row[*index].clone()).collect() };
    for pair in rows.windows(2) {
        assert_eq!(compare_keys(&types, &key(&pair[0]), &key(&pair[1])), Ordering::Less, "{}: {pair:?}", file.path);
    }
    assert_eq!(decoded(&types, &file.meta.min_key), key(&rows[0]), "{}", file.path);
    assert_eq!(decoded(&types, &file.meta.max_key), key(&rows[rows.len() - 1]), "{}", file.path);
}

pub(crate) fn compare_keys(types: &[DataType], a: &[Option<String>], b: &[Option<String>]) -> Ordering {
    let columns = types.iter().zip(a.iter().zip(b));
    columns
        .map(|(data_type, (a, b))| compare(data_type, a.as_ref().unwrap(), b.as_ref().unwrap()))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn decoded(types: &[DataType], row: &[u8]) -> Line {
    lines(&binary_row::decode("row", types, row).unwrap()).remove(0)
}

/// A row that was written with schema `from`, as a row of `to`.
pub(crate) fn as_of(line: &Line, from: &TableSchema, to: &TableSchema) -> Line {
    let value = |field: &tidegate_storage::paimon::Field| {
        let index = from.fields.iter().position(|old| old.id == field.id)?;
        Some(widened(&from.fields[index].data_type, &field.data_type, line[index].as_deref()?))
    };
    to.fields.iter().map(value).collect()
}

/// Java must find in the manifests and index files what this crate finds in them. `folder` is the table's.
pub(crate) fn check_manifests(folder: &Path, at: At<'_>, version: &TableVersion) {
    let mut request = json!({ "do": "files", "table": folder });
    set_at(&mut request, at);
    let mut theirs: Vec<Value> = serde_json::from_value(JAVA.ask(&request).unwrap()["files"].take()).unwrap();
    let by_name = |file: &Value| file["name"].as_str().unwrap().to_owned();
    theirs.sort_by_key(by_name);
    let mut ours: Vec<Value> = version.files.iter().map(|file| described(version, file)).collect();
    ours.sort_by_key(by_name);
    assert_eq!(ours.len(), theirs.len(), "{}", folder.display());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{}", folder.display());
    }
}

fn described(version: &TableVersion, file: &LiveFile) -> Value {
    let types = version.schemas[&(file.meta.schema_id as u64)].key_types();
    let meta = &file.meta;
    json!({
        "name": meta.file_name,
        "bucket": file.bucket,
        "total_buckets": version.buckets,
        "level": meta.level,
        "size": meta.file_size,
        "rows": meta.row_count,
        "deletes": meta.delete_row_count,
        "schema": meta.schema_id,
        "sequences": [meta.min_sequence_number, meta.max_sequence_number],
        "min_key": decoded(&types, &meta.min_key),
        "max_key": decoded(&types, &meta.max_key),
        "min_stats": decoded(&types, &meta.key_stats.min_values),
        "max_stats": decoded(&types, &meta.key_stats.max_values),
        "deleted": file.deleted.iter().flat_map(|deleted| deleted.iter()).collect::<Vec<_>>(),
    })
}
