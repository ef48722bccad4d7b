//! A table written by others, read and written again: what this crate writes must be the same, byte for byte where the
//! format leaves no choice.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType as Arrow, Int8Type, Int32Type, Int64Type};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use roaring::RoaringBitmap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tidegate_storage::paimon::data_file::{self, Age};
use tidegate_storage::paimon::manifest::{
    decode_index_manifest, decode_manifest, decode_manifest_list, encode_index_manifest, encode_manifest,
    encode_manifest_list,
};
use tidegate_storage::paimon::{
    DataFileMeta, DataType, FileKind, Snapshot, TableSchema, binary_row, bucket, deletion_vector,
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn read(relative: &str) -> Vec<u8> {
    let path = golden().join("orders").join(relative);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn names(directory: &str, prefix: &str) -> Vec<String> {
    let files = std::fs::read_dir(golden().join("orders").join(directory)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    // `manifest-<uuid>` but not `manifest-list-<uuid>`.
    let mut names: Vec<_> =
        names.filter(|name| name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with("list"))).collect();
    names.sort();
    assert!(!names.is_empty(), "there is a {directory}/{prefix}");
    names
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(golden().join("expected.json")).unwrap()).unwrap()
}

fn snapshot(id: u64) -> Snapshot {
    Snapshot::from_json("snapshot", &read(&format!("snapshot/snapshot-{id}"))).unwrap()
}

fn schemas() -> BTreeMap<u64, TableSchema> {
    (0..3).map(|id| (id, TableSchema::from_json("schema", &read(&format!("schema/schema-{id}"))).unwrap())).collect()
}

/// Live files of a snapshot and their buckets, the base's changes applied before the delta's.
fn live_files(snapshot: &Snapshot) -> BTreeMap<String, (u32, DataFileMeta)> {
    let mut live = BTreeMap::new();
    for list in [&snapshot.base_manifest_list, &snapshot.delta_manifest_list] {
        for manifest in decode_manifest_list(list, &read(&format!("manifest/{list}"))).unwrap() {
            let name = &manifest.file_name;
            for entry in decode_manifest(name, &read(&format!("manifest/{name}"))).unwrap() {
                match entry.kind {
                    FileKind::Add => {
                        let file = (entry.bucket as u32, entry.file);
                        assert!(live.insert(file.1.file_name.clone(), file).is_none());
                    }
                    FileKind::Delete => assert!(live.remove(&entry.file.file_name).is_some()),
                }
            }
        }
    }
    live
}

fn deletion_vectors(snapshot: &Snapshot) -> HashMap<String, RoaringBitmap> {
    let Some(name) = &snapshot.index_manifest else { return HashMap::new() };
    let entries = decode_index_manifest(name, &read(&format!("manifest/{name}"))).unwrap();
    let vectors = entries.iter().flat_map(|entry| {
        let bytes = read(&format!("index/{}", entry.file_name));
        deletion_vector::decode_index_file(&entry.file_name, &bytes, entry.vectors()).unwrap()
    });
    vectors.collect()
}

fn read_parquet(bytes: Vec<u8>) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn data_file(bucket: u32, name: &str) -> RecordBatch {
    read_parquet(read(&format!("bucket-{bucket}/{name}")))
}

/// The uncompressed records of an Avro file, and its schema.
fn avro_content(file: &[u8]) -> (Vec<u8>, Value) {
    fn long(rest: &mut &[u8]) -> i64 {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = rest[0];
            *rest = &rest[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
    }
    fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
        let length = long(rest) as usize;
        let (taken, tail) = rest.split_at(length);
        *rest = tail;
        taken
    }
    let mut rest = file.strip_prefix(b"Obj\x01").unwrap();
    let mut metadata = HashMap::new();
    loop {
        let count = long(&mut rest);
        if count == 0 {
            break;
        }
        for _ in 0..count {
            metadata.insert(take(&mut rest), take(&mut rest));
        }
    }
    assert_eq!(metadata[&b"avro.codec"[..]], b"zstandard");
    let schema = serde_json::from_slice(metadata[&b"avro.schema"[..]]).unwrap();
    let (sync, mut rest) = rest.split_at(16);
    let mut content = Vec::new();
    while !rest.is_empty() {
        long(&mut rest);
        content.extend(zstd::stream::decode_all(take(&mut rest)).unwrap());
        rest = rest.strip_prefix(sync).expect("a block ends with the sync marker");
    }
    (content, schema)
}

#[test]
fn schemas_and_snapshots_are_written_as_they_were_read() {
    for (id, schema) in schemas() {
        assert_eq!(schema.id, id);
        let (ours, theirs): (Value, Value) = (
            serde_json::from_str(&schema.to_json()).unwrap(),
            serde_json::from_slice(&read(&format!("schema/schema-{id}"))).unwrap(),
        );
        assert_eq!(ours, theirs);
    }
    for id in 1..=7 {
        let ours: Value = serde_json::from_str(&snapshot(id).to_json()).unwrap();
        let theirs: Value = serde_json::from_slice(&read(&format!("snapshot/snapshot-{id}"))).unwrap();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn evolving_the_first_schema_gives_the_later_ones() {
    use tidegate_storage::paimon::{ColumnPosition, NewField, SchemaChange};
    let schemas = schemas();
    let note = NewField { name: "note".into(), data_type: DataType::String, nullable: true, description: None };
    let add = SchemaChange::AddColumn { field: note, position: ColumnPosition::Last, initial_default: None };
    let second = schemas[&0].evolve(&[add], schemas[&1].time_millis).unwrap();
    assert_eq!(second, schemas[&1]);
    let rename = SchemaChange::RenameColumn { from: "customer_id".into(), to: "cust_id".into() };
    assert_eq!(second.evolve(&[rename], schemas[&2].time_millis).unwrap(), schemas[&2]);
}

#[test]
fn manifests_are_written_as_they_were_read() {
    type Rewrite = fn(&str, &[u8]) -> Vec<u8>;
    let kinds: [(&str, Rewrite); 3] = [
        ("manifest-", |name, bytes| encode_manifest(&decode_manifest(name, bytes).unwrap())),
        ("manifest-list-", |name, bytes| encode_manifest_list(&decode_manifest_list(name, bytes).unwrap())),
        ("index-manifest-", |name, bytes| encode_index_manifest(&decode_index_manifest(name, bytes).unwrap())),
    ];
    for (prefix, rewrite) in kinds {
        for name in names("manifest", prefix) {
            let theirs = read(&format!("manifest/{name}"));
            let ours = rewrite(&name, &theirs);
            let ((our_content, our_schema), (their_content, their_schema)) =
                (avro_content(&ours), avro_content(&theirs));
            assert_eq!(our_content, their_content, "{name}");
            assert_eq!(our_schema, without_namespaces(their_schema), "{name}");
            assert_eq!(rewrite(&name, &ours), ours, "{name}: our own file is read as it was written");
        }
    }
}

/// fastavro writes `{"__fastavro_parsed__": true, …}` and spelt-out names; the names are what counts.
fn without_namespaces(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(key, _)| !key.starts_with("__"))
                .map(|(key, value)| (key, without_namespaces(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_namespaces).collect()),
        other => other,
    }
}

#[test]
fn deletion_vector_files_have_the_same_bytes() {
    for name in names("manifest", "index-manifest-") {
        for entry in decode_index_manifest(&name, &read(&format!("manifest/{name}"))).unwrap() {
            let theirs = read(&format!("index/{}", entry.file_name));
            let vectors = deletion_vector::decode_index_file(&entry.file_name, &theirs, entry.vectors()).unwrap();
            assert!(!vectors.is_empty());
            let borrowed: Vec<_> = vectors.iter().map(|(file, bitmap)| (file.clone(), bitmap)).collect();
            let (ours, metas) = deletion_vector::encode_index_file(&borrowed).unwrap();
            assert_eq!(ours, theirs, "{}", entry.file_name);
            assert!(metas.iter().eq(entry.vectors()), "{}", entry.file_name);
        }
    }
}

#[test]
fn hashes_are_those_that_all_readers_agree_on() {
    for vector in expected()["hash_vectors"].as_array().unwrap() {
        let key = vector[0].as_i64().unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![key]));
        let row = binary_row::encode(&[DataType::BigInt], std::slice::from_ref(&column), 0).unwrap();
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, vector[1].as_str().unwrap());
        assert_eq!(i64::from(binary_row::hash(&row)), vector[2].as_i64().unwrap(), "hash of {key}");
        let buckets = bucket::buckets_of(&[DataType::BigInt], &[column], 2).unwrap();
        assert_eq!(u64::from(buckets[0]), vector[3].as_u64().unwrap(), "bucket of {key}");
    }
}

#[test]
fn keys_statistics_and_buckets_follow_from_the_rows() {
    let schemas = schemas();
    let mut with_statistics = 0;
    for id in 1..=7 {
        for (name, (bucket, meta)) in live_files(&snapshot(id)) {
            let rows = data_file(bucket, &name);
            assert_eq!(rows.num_rows() as i64, meta.row_count);
            let key = [Arc::clone(rows.column(0))];
            let types = [DataType::BigInt];
            assert_eq!(binary_row::serialize(&types, &key, 0).unwrap(), meta.min_key, "{name}");
            assert_eq!(binary_row::serialize(&types, &key, rows.num_rows() - 1).unwrap(), meta.max_key, "{name}");
            assert!(bucket::buckets_of(&types, &key, 2).unwrap().iter().all(|b| *b == bucket), "{name}");
            if meta.value_stats_cols.is_none() {
                with_statistics += 1;
                let fields = &schemas[&(meta.schema_id as u64)].fields;
                let types: Vec<_> = fields.iter().map(|field| field.data_type.clone()).collect();
                for serialized in [&meta.value_stats.min_values, &meta.value_stats.max_values] {
                    let values = binary_row::decode(&name, &types, serialized).unwrap();
                    assert_eq!(&binary_row::serialize(&types, &values, 0).unwrap(), serialized, "{name}");
                }
            }
        }
    }
    assert!(with_statistics > 10, "{with_statistics}");
}

#[test]
fn the_files_less_the_vectors_are_the_rows() {
    let expected = expected();
    for wanted in expected["snapshots"].as_array().unwrap() {
        let id = wanted["snapshot"].as_u64().unwrap();
        let snapshot = snapshot(id);
        let vectors = deletion_vectors(&snapshot);
        let live = live_files(&snapshot);
        assert!(vectors.keys().all(|file| live.contains_key(file)));
        let mut lines = BTreeMap::new();
        for (name, (bucket, meta)) in &live {
            let deleted = vectors.get(name).cloned().unwrap_or_default();
            let rows = data_file(*bucket, name);
            // By field id, as a reader finds columns that were renamed or added.
            let columns: Vec<_> =
                wanted["field_ids"].as_array().unwrap().iter().map(|id| column(&rows, id.as_i64().unwrap())).collect();
            for row in (0..meta.row_count as u32).filter(|row| !deleted.contains(*row)) {
                let line: Vec<_> = columns.iter().map(|column| text(column.as_ref(), row as usize)).collect();
                let key = line[0].parse::<i64>().unwrap();
                assert!(lines.insert(key, line.join("|")).is_none(), "key {key} is live twice");
            }
        }
        assert_eq!(lines.len() as u64, wanted["rows"].as_u64().unwrap());
        let joined = lines.into_values().collect::<Vec<_>>().join("\n");
        let digest: String = Sha256::digest(joined).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, wanted["sha256"].as_str().unwrap(), "snapshot {id}");
    }
}

fn column(rows: &RecordBatch, field_id: i64) -> Option<ArrayRef> {
    let id = field_id.to_string();
    let index =
        rows.schema().fields().iter().position(|field| field.metadata().get("PARQUET:field_id") == Some(&id))?;
    let array = rows.column(index);
    Some(match array.data_type() {
        Arrow::Timestamp(..) => cast(array, &Arrow::Int64).unwrap(),
        _ => Arc::clone(array),
    })
}

fn text(column: Option<&ArrayRef>, row: usize) -> String {
    let Some(column) = column.filter(|column| column.is_valid(row)) else { return "NULL".into() };
    match column.data_type() {
        Arrow::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        Arrow::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        Arrow::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        Arrow::Decimal128(..) => column.as_primitive::<arrow::datatypes::Decimal128Type>().value(row).to_string(),
        Arrow::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        other => panic!("{other}"),
    }
}

#[test]
fn data_files_are_written_with_the_same_columns_and_rows() {
    let schemas = schemas();
    let live = live_files(&snapshot(7));
    for (name, (bucket, meta)) in &live {
        let schema = &schemas[&(meta.schema_id as u64)];
        let theirs = read(&format!("bucket-{bucket}/{name}"));
        let rows = read_parquet(theirs.clone());
        let rows = RecordBatch::try_new(schema.file_schema(), rows.columns().to_vec()).unwrap();
        for age in [Age::New, Age::Young, Age::Restless, Age::Old] {
            let ours = data_file::encode(name, schema, age, std::slice::from_ref(&rows)).unwrap();
            assert_eq!(read_parquet(ours.clone()).columns(), rows.columns());
            let columns = |bytes: Vec<u8>| {
                let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
                let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
                fields.iter().map(|field| format!("{field:?}")).collect::<Vec<_>>()
            };
            assert_eq!(columns(ours), columns(theirs.clone()), "{name}");
        }
    }
}
