//! Keys as bytes, their hashes and buckets: what Java computes is kept in `rows.json`, and computed again.
//!
//! `TIDEGATE_WRITE_ROWS=1 cargo test -p tidegate-storage --test conformance rows` writes the file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_storage::paimon::{DataType, binary_row, bucket};

use crate::engines::JAVA;
use crate::keys::key_types;
use crate::texts::{array, hex, lines, unhex};
use crate::values::keys;

const BUCKETS: [u32; 3] = [2, 7, 1024];

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/rows.json")
}

/// What Java says about some keys of every type.
fn computed() -> Vec<Value> {
    let of_types = |types: Vec<DataType>| {
        let names: Vec<_> = types.iter().map(|data_type| format!("{data_type} NOT NULL")).collect();
        let keys = keys(&types, 24);
        let request = json!({ "do": "rows", "types": names, "rows": keys, "buckets": BUCKETS });
        let answer = JAVA.ask(&request).unwrap();
        let rows = keys.iter().zip(answer["rows"].as_array().unwrap()).map(|(key, row)| {
            assert_eq!(row["hash"], row["row_hash"], "Java's two ways to the hash differ");
            json!([key, row["bytes"], row["hash"], row["buckets"]])
        });
        let types: Vec<_> = types.iter().map(DataType::to_string).collect();
        json!({ "types": types, "rows": rows.collect::<Vec<_>>() })
    };
    key_types().into_iter().map(of_types).collect()
}

fn kept() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(file()).unwrap()).unwrap()
}

#[test]
fn java_computes_the_rows_that_are_kept() {
    let computed = computed();
    if std::env::var_os("TIDEGATE_WRITE_ROWS").is_some() {
        let of_types = |types: &Value| {
            let rows = types["rows"].as_array().unwrap().iter().map(|row| format!("   {row}"));
            format!(" {{\"types\": {}, \"rows\": [\n{}]}}", types["types"], rows.collect::<Vec<_>>().join(",\n"))
        };
        let all: Vec<_> = computed.iter().map(of_types).collect();
        std::fs::write(file(), format!("[\n{}\n]\n", all.join(",\n"))).unwrap();
    }
    assert_eq!(computed, kept());
}

#[test]
fn keys_have_the_bytes_hashes_and_buckets_that_are_kept() {
    let mut count = 0;
    for of_types in kept() {
        let names: Vec<String> = serde_json::from_value(of_types["types"].clone()).unwrap();
        let types: Vec<DataType> = names.iter().map(|name| name.parse().unwrap()).collect();
        for row in of_types["rows"].as_array().unwrap() {
            let (key, bytes, hash, buckets): (Vec<String>, String, i32, Vec<u32>) =
                serde_json::from_value(row.clone()).unwrap();
            let columns: Vec<_> = types
                .iter()
                .zip(&key)
                .map(|(data_type, value)| array(data_type, std::iter::once(Some(value.as_str()))))
                .collect();
            let encoded = binary_row::encode(&types, &columns, 0).unwrap();
            assert_eq!(hex(&encoded), bytes, "{types:?} {key:?}");
            assert_eq!(binary_row::hash(&encoded), hash, "{types:?} {key:?}");
            for (number, wanted) in BUCKETS.into_iter().zip(buckets) {
                assert_eq!(bucket::buckets_of(&types, &columns, number).unwrap(), [wanted], "{types:?} {key:?}");
            }
            let serialized = [&(types.len() as u32).to_be_bytes()[..], &unhex(&bytes)].concat();
            let decoded = binary_row::decode("row", &types, &serialized).unwrap();
            assert_eq!(lines(&decoded), [key.iter().cloned().map(Some).collect::<Vec<_>>()], "{types:?}");
            count += 1;
        }
    }
    assert!(count > 500, "{count}");
}
