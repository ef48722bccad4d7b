//! Snapshots that are held, tagged and expired.

use serde_json::json;
use tidegate_storage::paimon::DataType;
use tidegate_storage::table::{Retention, RowKind, TableOptions, expire_snapshots, remove_orphans, verify_table};

use crate::engines::{At, JAVA, PYPAIMON};
use crate::mirror::{Mirror, field};
use crate::texts::Line;
use crate::values::{scatter, value};

fn rows(ids: impl IntoIterator<Item = u64>, version: u64) -> Vec<Line> {
    let row = |id: u64| vec![Some(id.to_string()), Some(value(&DataType::String, id * 100 + version))];
    ids.into_iter().map(row).collect()
}

async fn commit(mirror: &mut Mirror, version: u64) -> u64 {
    mirror.apply(RowKind::Upsert, &rows((0..20).map(|n| scatter(n + version * 100) % 200), version));
    mirror.apply(RowKind::Delete, &rows((0..8).map(|n| scatter(n + version * 77) % 200), version));
    if version.is_multiple_of(4) {
        mirror.writer.compact().await.unwrap();
    }
    mirror.commit().await
}

/// Makes a commit while no merge runs, nor begins: an orphan hunt that spares nothing for its age would take the files
/// of one for orphans.
async fn commit_at_rest(mirror: &mut Mirror, version: u64) -> u64 {
    mirror.apply(RowKind::Upsert, &rows((0..20).map(|n| scatter(n + version * 100) % 200), version));
    mirror.writer.compact().await.unwrap();
    let id = mirror.commit().await;
    let running = mirror.writer.merges().merges().into_iter().find(|merge| merge.ended_ms.is_none());
    assert_eq!(running, None);
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_read_and_what_is_expired_is_not() {
    let fields = vec![field("id", DataType::Int, false), field("text", DataType::String, true)];
    let options = TableOptions { buckets: 2, rows_per_file: 40, ..TableOptions::default() };
    let mut mirror = Mirror::new(fields, options).await;
    mirror.apply(RowKind::Upsert, &rows(0..150, 0));
    mirror.commit().await;
    for version in 1..11 {
        commit(&mut mirror, version).await;
    }
    commit_at_rest(&mut mirror, 11).await;
    // A tag is a copy of the snapshot's file; Java makes another.
    let folder = mirror.folder();
    std::fs::create_dir(folder.join("tag")).unwrap();
    std::fs::copy(folder.join("snapshot/snapshot-3"), folder.join("tag/tag-third")).unwrap();
    JAVA.ask(&json!({ "do": "tag", "table": folder, "name": "by Java", "snapshot": 6 })).unwrap();

    let retention = Retention { min_snapshots: 4, time_retained_ms: 1, orphan_age_ms: 0, ..Retention::default() };
    let now = mirror.clock.as_ref();
    let now = tidegate_storage::clock::Clock::now_ms(now) + 3_600_000;
    let expired = expire_snapshots(&mirror.store, &mirror.path, now, &retention, None).await.unwrap();
    assert_eq!((expired.snapshots, expired.earliest), (8, Some(9)));
    assert!(expired.objects > 0);
    remove_orphans(&mirror.store, &mirror.path, i64::MAX, &retention, &[]).await.unwrap();

    let all = std::mem::take(&mut mirror.states);
    for (tag, id) in [("third", 3), ("by Java", 6)] {
        mirror.check(At::Tag(tag), id, &all[&id]).await;
    }
    for engine in [&*JAVA, &*PYPAIMON] {
        for id in [1, 8] {
            let read = engine.read(&folder, At::Snapshot(id), &[]);
            assert!(read.is_err(), "{} reads snapshot {id}, which is gone: {read:?}", engine.name);
        }
        let newest = engine.read(&folder, At::Newest, &[]).unwrap();
        assert_eq!(newest.rows.len(), all[&12].rows.len(), "{}", engine.name);
    }
    mirror.states = all.into_iter().filter(|(id, _)| *id > 8).collect();
    // The table goes on.
    for version in 12..14 {
        commit(&mut mirror, version).await;
    }
    let compared = mirror.check_all().await;
    println!("{} states with {} rows, and 2 tags", compared.states, compared.rows);
    assert_eq!(compared.states, 6);
    let verified = verify_table(&mirror.store, &mirror.path, &[]).await.unwrap();
    assert_eq!(verified.damages, [], "of {} objects", verified.objects);
}
