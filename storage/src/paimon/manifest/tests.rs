use super::*;
use crate::paimon::binary_row::EMPTY_ROW;

fn file(n: i32) -> DataFileMeta {
    DataFileMeta {
        file_name: format!("data-{n}.parquet"),
        file_size: 1 << (n % 40),
        row_count: i64::from(n),
        min_key: vec![0, 0, 0, 1, n as u8],
        max_key: vec![],
        key_stats: SimpleStats {
            min_values: vec![1],
            max_values: vec![2],
            null_counts: Some(vec![Some(0), None, Some(7)]),
        },
        value_stats: SimpleStats::empty(),
        min_sequence_number: -1,
        max_sequence_number: i64::MAX,
        schema_id: 3,
        level: n % 8,
        extra_files: vec!["a".into(), "b".into()],
        creation_time: Some(1_767_225_600_000),
        delete_row_count: None,
        embedded_file_index: Some(vec![9; 300]),
        file_source: Some(FileSource::Compact),
        value_stats_cols: Some(vec![]),
        external_path: None,
        first_row_id: Some(i64::MIN),
        write_cols: Some(vec!["x".into()]),
        write_cols_sequences: None,
    }
}

fn entries(count: i32) -> Vec<ManifestEntry> {
    let kind = |n| if n % 3 == 0 { FileKind::Delete } else { FileKind::Add };
    (0..count).map(|n| ManifestEntry::new(kind(n), n as u32 % 4, 4, file(n))).collect()
}

#[test]
fn records_survive_a_round_trip() {
    // None, one block, and more than one.
    for count in [0, 1, 7, 5000] {
        let entries = entries(count);
        assert_eq!(decode_manifest("m", &encode_manifest(&entries)).unwrap(), entries);
    }
    let vectors = DeletionVectorMeta { data_file: "d".into(), offset: 1, length: 22, cardinality: Some(5) };
    let index = vec![IndexManifestEntry::deletion_vectors(1, "index-0".into(), 31, vec![vectors])];
    assert_eq!(decode_index_manifest("i", &encode_index_manifest(&index)).unwrap(), index);
}

#[test]
fn both_ways_of_reading_give_the_same() {
    let entries = entries(5000);
    let bytes = encode_manifest(&entries);
    assert_eq!(avro::decode_by_its_schema::<ManifestEntry>("m", &bytes).unwrap(), entries);
    let list = vec![ManifestFileMeta::of("manifest-0".into(), 99, 3, &entries)];
    let bytes = encode_manifest_list(&list);
    assert_eq!(avro::decode_by_its_schema::<ManifestFileMeta>("l", &bytes).unwrap(), list);
    let vector = |cardinality| DeletionVectorMeta { data_file: "d".into(), offset: 1, length: 22, cardinality };
    let mut index = IndexManifestEntry::deletion_vectors(1, "index-0".into(), 31, vec![vector(Some(5)), vector(None)]);
    for global_index in [
        None,
        Some(GlobalIndexMeta {
            row_range_start: -3,
            row_range_end: i64::MAX,
            index_field_id: 7,
            extra_field_ids: Some(vec![1, -1]),
            index_meta: Some(vec![0, 255]),
            source_meta: None,
        }),
    ] {
        index.global_index = global_index;
        let bytes = encode_index_manifest(std::slice::from_ref(&index));
        assert_eq!(decode_index_manifest("i", &bytes).unwrap(), [index.clone()]);
        assert_eq!(avro::decode_by_its_schema::<IndexManifestEntry>("i", &bytes).unwrap(), [index.clone()]);
    }
}

#[test]
fn a_list_sums_up_its_manifests() {
    let entries = entries(7);
    let meta = ManifestFileMeta::of("manifest-0".into(), 99, 3, &entries);
    assert_eq!((meta.num_added_files, meta.num_deleted_files), (4, 3));
    assert_eq!(
        (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level),
        (Some(0), Some(3), Some(0), Some(6))
    );
    assert_eq!(meta.partition_stats.min_values, EMPTY_ROW);
    assert_eq!(decode_manifest_list("l", &encode_manifest_list(std::slice::from_ref(&meta))).unwrap(), [meta]);
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let entries = entries(3);
    let mut bytes = encode_manifest(&entries);
    for offset in 0..bytes.len() {
        for bit in [0, 5, 7] {
            bytes[offset] ^= 1 << bit;
            match decode_manifest("t/manifest/manifest-7", &bytes) {
                // The name of the checksum, or of what only other readers look for.
                Ok(decoded) => assert_eq!(decoded, entries, "bit {bit} of byte {offset}"),
                Err(error) => {
                    assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "bit {bit} of byte {offset}: {error}");
                    assert!(error.to_string().contains("t/manifest/manifest-7"), "{error}");
                }
            }
            bytes[offset] ^= 1 << bit;
        }
    }
    for length in 0..bytes.len() {
        assert!(decode_manifest("m", &bytes[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn one_kind_of_manifest_is_not_read_as_another() {
    let bytes = encode_manifest(&entries(1));
    assert_eq!(decode_manifest_list("m", &bytes).unwrap_err().kind(), crate::ErrorKind::Corrupt);
    assert_eq!(decode_index_manifest("m", &bytes).unwrap_err().kind(), crate::ErrorKind::Corrupt);
}

#[test]
fn records_of_a_later_version_are_refused() {
    let mut entries = entries(1);
    entries[0].version = 3;
    let error = decode_manifest("m", &encode_manifest(&entries)).unwrap_err();
    assert_eq!(error.to_string(), "object m has records of version 3, not 2");
}

#[test]
fn bounds_of_byte_strings_are_left_out() {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Int64Array};

    let types = [DataType::BigInt, DataType::Varbinary(20)];
    let row = |number: i64, bytes: Option<&[u8]>| {
        let columns: [ArrayRef; 2] =
            [Arc::new(Int64Array::from(vec![number])), Arc::new(BinaryArray::from_opt_vec(vec![bytes]))];
        binary_row::serialize(&types, &columns, 0).unwrap()
    };
    let null_counts = Some(vec![Some(0), Some(0)]);
    let whole = SimpleStats {
        min_values: row(-1, Some(b"a")),
        max_values: row(7, Some(&[0xff; 20])),
        null_counts: null_counts.clone(),
    };
    let bare = SimpleStats { min_values: row(-1, None), max_values: row(7, None), null_counts };
    assert_eq!(whole.without_bytes("file", &types).unwrap(), bare);
    assert_eq!(bare.without_bytes("file", &types).unwrap(), bare);
    assert!(SimpleStats::concern_bytes(&types) && !SimpleStats::concern_bytes(&types[..1]));
    assert!(whole.without_bytes("file", &types[..1]).unwrap_err().to_string().contains("file"));
}
