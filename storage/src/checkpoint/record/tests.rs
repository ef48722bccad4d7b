use serde_json::json;

use super::*;

fn table(name: &str, snapshot: u64) -> TableCommit {
    TableCommit {
        name: name.into(),
        path: format!("tables/{name}"),
        visible: snapshot > 1,
        snapshot: Some(PreparedSnapshot { id: snapshot, json: format!("{{\"id\": {snapshot}}}") }),
        capture: json!({ "ranges": [snapshot] }),
    }
}

fn record(number: u64, full: bool, tables: Vec<TableCommit>, dropped: &[&str]) -> CheckpointRecord {
    CheckpointRecord {
        format: FORMAT,
        source: Uuid::from_u128(1),
        number,
        epoch: 2,
        owner: Uuid::from_u128(3),
        committed_at_ms: 1000 + number as i64,
        full,
        position: json!({ "file": "binlog.000001", "offset": u64::MAX }),
        capture: json!({ "number": number }),
        tables,
        dropped: dropped.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn small_and_large_records_survive_a_round_trip() {
    for tables in [0, 1, 1000] {
        let record = record(7, true, (0..tables).map(|n| table(&format!("shop.t{n}"), n)).collect(), &["shop.x"]);
        let bytes = record.encode();
        assert_eq!(CheckpointRecord::decode("c", &bytes).unwrap(), record);
        assert_eq!(bytes.starts_with(b"tidegate-checkpoint 1 json+zstd "), tables == 1000);
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for tables in [1, 100] {
        let mut bytes = record(7, false, (0..tables).map(|n| table(&format!("shop.t{n}"), n)).collect(), &[]).encode();
        for offset in 0..bytes.len() {
            for bit in [0, 3, 7] {
                bytes[offset] ^= 1 << bit;
                let error =
                    CheckpointRecord::decode("sources/s/checkpoint/checkpoint-7", &bytes).expect_err("a flipped bit");
                assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "bit {bit} of byte {offset}");
                assert!(error.to_string().contains("checkpoint-7"), "{error}");
                bytes[offset] ^= 1 << bit;
            }
        }
        for length in 0..bytes.len() {
            assert!(CheckpointRecord::decode("c", &bytes[..length]).is_err(), "cut at {length}");
        }
    }
}

#[test]
fn a_record_of_a_later_program_is_not_called_corrupt() {
    let mut later = record(1, true, vec![], &[]);
    later.format = FORMAT + 1;
    let error = CheckpointRecord::decode("c", &later.encode()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{error}");
}

#[test]
fn changes_add_up_to_the_newest_state() {
    let mut state = CheckpointState::new(record(64, true, vec![table("a", 1), table("b", 1), table("c", 1)], &[]));
    // A table that is dropped and made again in one checkpoint is there afterwards.
    state.apply(record(65, false, vec![table("b", 2), table("d", 1)], &["a", "d"]));
    assert_eq!(state.number, 65);
    assert_eq!(state.capture, json!({ "number": 65 }));
    assert_eq!(state.tables.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
    assert_eq!(state.tables["b"], table("b", 2));
    state.apply(record(66, true, vec![table("e", 1)], &[]));
    assert_eq!(state.tables.keys().collect::<Vec<_>>(), ["e"], "a full record leaves nothing of what was before");
}
