//! Tables with a changelog, followed by Java from snapshot to snapshot as a Flink job would.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_storage::paimon::{DataType, Snapshot};
use tidegate_storage::table::{RowKind, TableOptions, TableVersion};

use crate::engines::JAVA;
use crate::histories::{rows, value_types};
use crate::mirror::{Mirror, State, field, key_of};
use crate::texts::Line;
use crate::values::scatter;

async fn table(options: TableOptions) -> Mirror {
    let values = value_types().into_iter().map(|(name, data_type)| field(name, data_type, true));
    let id = field("id", DataType::BigInt, false);
    let asked = BTreeMap::from([("changelog-producer".to_owned(), "input".to_owned())]);
    Mirror::with(std::iter::once(id).chain(values).collect(), options, asked).await
}

fn keys(ids: impl Iterator<Item = u64>) -> Vec<Line> {
    ids.map(|id| vec![Some((id as i64 - 20).to_string())]).collect()
}

fn snapshot(mirror: &Mirror, id: u64) -> Snapshot {
    Snapshot::from_json("snapshot", mirror.snapshot_json(id).as_bytes()).unwrap()
}

/// Applies what Java says that snapshot `id` brings; every change must fit what it meets. Gives the number of changes.
fn follow(mirror: &Mirror, state: &mut State, id: u64) -> usize {
    let answer = JAVA.ask(&json!({ "do": "follow", "table": mirror.folder(), "from": id })).unwrap();
    assert_eq!(answer["next"], json!(id + 1));
    let changes: Vec<(String, Line)> = serde_json::from_value(answer["changes"].clone()).unwrap();
    for (kind, row) in &changes {
        let key = key_of(&state.schema, row);
        let met = match kind.as_str() {
            "+I" => state.rows.insert(key.clone(), row.clone()).is_none(),
            "+U" => state.rows.insert(key.clone(), row.clone()).is_none(),
            "-U" | "-D" => state.rows.remove(&key).as_ref() == Some(row),
            other => panic!("{other}"),
        };
        assert!(met, "snapshot {id}: {kind} of {key:?} does not fit what is there");
    }
    let after = &mirror.states[&id];
    assert_eq!(state.rows.len(), after.rows.len(), "snapshot {id}");
    assert!(state.rows == after.rows, "snapshot {id}");
    changes.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_lead_from_each_snapshot_to_the_next() {
    let options = TableOptions { buckets: 3, inline_merge_rows: 50, rows_per_file: 60, ..TableOptions::default() };
    let mut mirror = table(options).await;
    mirror.writer.begin_loading();
    mirror.apply(RowKind::InsertAbsent, &rows(0..200, 1));
    mirror.replace(&rows(50..60, 2));
    mirror.writer.end_loading();
    let first = mirror.commit().await;
    let mut followed = mirror.states[&first].clone();
    assert_eq!(snapshot(&mirror, first).changelog_manifest_list, None, "what is loaded is no change");

    let mut count = 0;
    for version in 3..9 {
        // Some keys change several times, and some rows come and go within one snapshot.
        for round in 0..3 {
            mirror.replace(&rows((0..25).map(|n| scatter(n + version * 100 + round) % 260), version * 10 + round));
            mirror.remove(&keys((0..9).map(|n| scatter(n + version * 77 + round) % 260)));
            if round == 1 {
                mirror.writer.flush().await.unwrap();
            }
        }
        if version == 6 {
            mirror.writer.compact().await.unwrap();
        }
        let id = mirror.commit().await;
        count += follow(&mirror, &mut followed, id);
    }
    assert!(count > 500, "{count}");

    // Snapshots that were never visible leave their changes to the one that is; also when the table is opened meanwhile.
    for version in 9..24 {
        mirror.replace(&rows((0..5).map(|n| scatter(n + version * 100) % 260), version));
        let kept = mirror.keep().await;
        if version == 16 {
            mirror.reopen_kept(&kept).await;
        }
    }
    mirror.remove(&keys(0..10));
    let id = mirror.commit().await;
    let changes = follow(&mirror, &mut followed, id);
    let version = mirror.load(id).await.unwrap();
    assert_eq!(version.row_count(), followed.rows.len() as u64);
    assert_eq!(snapshot(&mirror, id).changelog_record_count, Some(changes as i64));

    // A merge alone changes nothing.
    mirror.writer.compact().await.unwrap();
    let id = mirror.commit().await;
    assert_eq!(follow(&mirror, &mut followed, id), 0);
    // What follows a table that was opened again.
    mirror.reopen(id).await.unwrap();
    mirror.replace(&rows(100..150, 30));
    let id = mirror.commit().await;
    assert!(follow(&mirror, &mut followed, id) >= 50);
    let all = mirror.check_all().await;
    assert!(all.states > 8);
    let read: TableVersion = mirror.load(id).await.unwrap();
    assert!(read.files.iter().all(|file| file.meta.level > 0), "files of the changelog are none of the table's");
}
