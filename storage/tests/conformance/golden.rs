//! The table in `tests/golden`, which neither this crate nor the engines wrote, as all of them read it.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::engines::{At, JAVA, PYPAIMON};

#[test]
fn the_golden_table_is_read_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let expected: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let snapshots = expected["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 7);
    for wanted in snapshots {
        let id = wanted["snapshot"].as_u64().unwrap();
        for engine in [&*JAVA, &*PYPAIMON] {
            let read = engine.read(&folder.join("orders"), At::Snapshot(id), &[]).unwrap();
            let mut lines: Vec<(i64, String)> = read
                .rows
                .iter()
                .map(|row| {
                    let texts: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
                    (texts[0].parse().unwrap(), texts.join("|"))
                })
                .collect();
            lines.sort();
            assert_eq!(lines.len() as u64, wanted["rows"].as_u64().unwrap(), "{}: snapshot {id}", engine.name);
            let joined = lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n");
            let digest = crate::texts::hex(&Sha256::digest(joined));
            assert_eq!(digest, wanted["sha256"].as_str().unwrap(), "{}: snapshot {id}", engine.name);
        }
    }
}
