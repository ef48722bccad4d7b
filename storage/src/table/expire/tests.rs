use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use object_store::ObjectStoreExt;

use super::super::tests::{Trial, read_all, small_options};
use super::*;
use crate::paimon::DataType;
use crate::store::faulty::{Fault, Faulty, Operation};
use crate::table::TableVersion;

const DAY: i64 = 86_400_000;

/// Every object of the table below the directories that belong to snapshots.
async fn objects(store: &StoreRef, table: &Path) -> HashSet<Path> {
    let listed: Vec<ObjectMeta> = store.list(Some(table)).try_collect().await.unwrap();
    listed.into_iter().map(|object| object.location).filter(|path| is_of_snapshots(table, path)).collect()
}

/// What the published snapshots and the checkpoint need to be read.
async fn needed(store: &StoreRef, paths: &TablePaths, prepared: &[&str]) -> HashSet<Path> {
    let mut needed = Needed::default();
    for id in snapshot_ids(store, paths).await.unwrap() {
        needed.add_live(store, paths, &read_snapshot(store, &paths.snapshot(id)).await.unwrap()).await.unwrap();
    }
    for json in prepared {
        needed.add_live(store, paths, &Snapshot::from_json("prepared", json.as_bytes()).unwrap()).await.unwrap();
    }
    needed.0
}

type Rows = BTreeMap<Vec<String>, BTreeMap<i32, Option<String>>>;

/// Checks that each snapshot that can be found can be read, and is what it was.
async fn check_all(store: &StoreRef, table: &Path, seen: &BTreeMap<u64, Rows>) -> Vec<u64> {
    let paths = TablePaths::new(table.clone());
    let ids = snapshot_ids(store, &paths).await.unwrap();
    for id in &ids {
        let json = store::read(&**store, &paths.snapshot(*id)).await.unwrap();
        let version = TableVersion::load(store, table, std::str::from_utf8(&json).unwrap()).await.unwrap();
        assert_eq!(read_all(store, &version).await, seen[id], "snapshot {id}");
    }
    ids
}

/// A table after random operations: its store, where it is, and the rows of each published snapshot.
async fn history(seed: u64, steps: usize, store: StoreRef) -> (Trial, BTreeMap<u64, Rows>) {
    let mut trial = Trial::new_on(seed, &[DataType::BigInt], small_options(2), store).await;
    let mut seen = BTreeMap::new();
    let paths = TablePaths::new(trial.path.clone());
    for _ in 0..steps {
        trial.step().await;
        for id in snapshot_ids(&trial.ctx.store, &paths).await.unwrap() {
            if let Entry::Vacant(place) = seen.entry(id) {
                let json = store::read(&*trial.ctx.store, &paths.snapshot(id)).await.unwrap();
                let json = std::str::from_utf8(&json).unwrap();
                let version = TableVersion::load(&trial.ctx.store, &trial.path, json).await.unwrap();
                place.insert(read_all(&trial.ctx.store, &version).await);
            }
        }
    }
    (trial, seen)
}

fn keep(snapshots: usize) -> Retention {
    Retention { time_retained_ms: 0, min_snapshots: snapshots, orphan_age_ms: 0, ..Retention::default() }
}

fn far_future() -> i64 {
    // Objects in memory are as old as they really are.
    4_000_000_000_000
}

#[tokio::test]
async fn what_is_left_can_be_read_and_all_else_is_gone() {
    for seed in 0..12 {
        let (trial, seen) = history(seed, 150, crate::store::open("memory:", &[]).unwrap()).await;
        let (store, table) = (&trial.ctx.store, &trial.path);
        let paths = TablePaths::new(table.clone());
        let committed = trial.committed.as_ref().map(|(json, ..)| json.as_str());
        let total = seen.len();
        assert!(total > 5, "seed {seed} made {total} snapshots");
        for left in [total - 2, 3, 1] {
            let expired = expire_snapshots(store, table, far_future(), &keep(left), None).await.unwrap();
            assert_eq!(expired.holds, []);
            let ids = check_all(store, table, &seen).await;
            assert_eq!(ids.len(), left.max(1), "seed {seed}");
            assert_eq!(expired.earliest, ids.first().copied());
            let hint = store::read(&**store, &paths.earliest_hint()).await.unwrap();
            assert_eq!(hint, ids[0].to_string().as_bytes());
        }
        // Commits that were refused, and files that came and went between two snapshots, are orphans.
        let prepared: Vec<&str> = committed.into_iter().collect();
        remove_orphans(store, table, far_future(), &keep(1), &prepared).await.unwrap();
        check_all(store, table, &seen).await;
        let (left, named) = (objects(store, table).await, needed(store, &paths, &prepared).await);
        assert_eq!(left, named, "seed {seed}");
        // The writer goes on from there.
        drop(trial);
    }
}

#[tokio::test]
async fn expiry_takes_the_files_of_a_table_without_faults_exactly() {
    let store = crate::store::open("memory:", &[]).unwrap();
    let mut trial = Trial::new_on(3, &[DataType::BigInt], small_options(1), store).await;
    for round in 0..30_i64 {
        let keys: Vec<i64> = (0..40).map(|key| key * 3 % 90 + round % 4).collect();
        trial.apply(&keys, |_| super::super::RowKind::Upsert);
        trial.publish_next().await;
    }
    // Merges beside the writer have files of their own until they end.
    trial.writer.compact().await.unwrap();
    trial.publish_next().await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let paths = TablePaths::new(table.clone());
    expire_snapshots(store, table, far_future(), &keep(1), None).await.unwrap();
    let (left, named) = (objects(store, table).await, needed(store, &paths, &[]).await);
    assert_eq!(left, named, "nothing is left to an orphan hunt");
}

/// A request to create a snapshot may arrive long after its sender has gone on, and even after the snapshot has expired.
#[tokio::test]
async fn snapshots_that_come_when_they_have_expired_keep_nothing_from_expiring() {
    let (trial, seen) = history(5, 150, crate::store::open("memory:", &[]).unwrap()).await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let paths = TablePaths::new(table.clone());
    let ids = snapshot_ids(store, &paths).await.unwrap();
    let mut late = Vec::new();
    for id in [ids[0], ids[1], ids[3]] {
        late.push((paths.snapshot(id), store::read(&**store, &paths.snapshot(id)).await.unwrap()));
    }
    expire_snapshots(store, table, far_future(), &keep(4), None).await.unwrap();
    for left in [4, 3, 1] {
        for (path, json) in &late {
            store::write(&**store, path, json.clone()).await.unwrap();
        }
        let expired = expire_snapshots(store, table, far_future(), &keep(left), None).await.unwrap();
        assert_eq!(check_all(store, table, &seen).await, ids[ids.len() - left..]);
        assert_eq!(expired.earliest, Some(ids[ids.len() - left]));
    }
    // What is missing of the newest, or of one that is held, is damage.
    for (path, json) in &late {
        store::write(&**store, path, json.clone()).await.unwrap();
    }
    let newest = read_snapshot(store, &paths.snapshot(ids[ids.len() - 1])).await.unwrap();
    let error = expire_snapshots(store, table, far_future(), &keep(1), Some(ids[1])).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    store::delete(&**store, &paths.manifest(&newest.base_manifest_list)).await.unwrap();
    let error = expire_snapshots(store, table, far_future(), &keep(1), None).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_reader_keeps_its_files_though_the_file_of_its_snapshot_is_lost() {
    let (trial, _) = history(6, 150, crate::store::open("memory:", &[]).unwrap()).await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let paths = TablePaths::new(table.clone());
    let ids = snapshot_ids(store, &paths).await.unwrap();
    for &read in &ids[1..ids.len() - 1] {
        let snapshot = read_snapshot(store, &paths.snapshot(read)).await.unwrap();
        let mut needed = Needed::default();
        needed.add_live(store, &paths, &snapshot).await.unwrap();
        store::delete(&**store, &paths.snapshot(read)).await.unwrap();
        expire_snapshots(store, table, far_future(), &keep(1), Some(read)).await.unwrap();
        let there = objects(store, table).await;
        let gone: Vec<_> =
            needed.0.iter().filter(|path| path.as_ref().contains("bucket-") && !there.contains(path)).collect();
        assert_eq!(gone, Vec::<&Path>::new(), "snapshot {read}");
    }
}

#[tokio::test]
async fn age_and_count_decide() {
    let (trial, seen) = history(1, 150, crate::store::open("memory:", &[]).unwrap()).await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let now = 1_700_000_000_000 + DAY;
    let young = Retention { time_retained_ms: 2 * DAY, min_snapshots: 1, ..Retention::default() };
    let expired = expire_snapshots(store, table, now, &young, None).await.unwrap();
    assert_eq!((expired.snapshots, expired.objects), (0, 0), "all are younger than two days");
    let few = Retention { max_snapshots: 4, ..young };
    expire_snapshots(store, table, now, &few, None).await.unwrap();
    assert_eq!(check_all(store, table, &seen).await.len(), 4);
    let old = Retention { time_retained_ms: DAY, min_snapshots: 2, ..Retention::default() };
    expire_snapshots(store, table, now, &old, None).await.unwrap();
    assert_eq!(check_all(store, table, &seen).await.len(), 2);
}

#[tokio::test]
async fn tags_consumers_branches_and_readers_keep_what_they_need() {
    let (trial, seen) = history(2, 200, crate::store::open("memory:", &[]).unwrap()).await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let paths = TablePaths::new(table.clone());
    let ids = snapshot_ids(store, &paths).await.unwrap();
    let [tagged, read, consumed] = [ids[1], ids[3], ids[5]];
    let tag = table.clone().join("tag").join("tag-before");
    store.copy(&paths.snapshot(tagged), &tag).await.unwrap();
    let consumer = table.clone().join("consumer").join("consumer-job");
    store::write(&**store, &consumer, Bytes::from(format!("{{\"nextSnapshot\": {consumed}}}"))).await.unwrap();
    let branch = table.clone().join("branch").join("branch-test").join("snapshot").join("snapshot-1");
    store::write(&**store, &branch, Bytes::from_static(b"{}")).await.unwrap();

    let expired = expire_snapshots(store, table, far_future(), &keep(1), Some(read)).await.unwrap();
    assert_eq!(expired.snapshots, 0, "a branch keeps everything");
    assert!(expired.holds.contains(&Hold { holder: Holder::Branch("test".to_owned()), snapshot_id: ids[0] }));
    assert_eq!(remove_orphans(store, table, far_future(), &keep(1), &[]).await.unwrap(), Orphans::default());
    store.delete(&branch).await.unwrap();

    let expired = expire_snapshots(store, table, far_future(), &keep(1), Some(read)).await.unwrap();
    assert_eq!((expired.snapshots, expired.earliest), (3, Some(read)));
    let expired = expire_snapshots(store, table, far_future(), &keep(1), None).await.unwrap();
    assert_eq!((expired.snapshots, expired.earliest), (2, Some(consumed)));
    assert!(expired.holds.contains(&Hold { holder: Holder::Consumer("job".to_owned()), snapshot_id: consumed }));
    store.delete(&consumer).await.unwrap();
    expire_snapshots(store, table, far_future(), &keep(1), None).await.unwrap();
    let committed = trial.committed.as_ref().map(|(json, ..)| json.as_str());
    remove_orphans(store, table, far_future(), &keep(1), &committed.into_iter().collect::<Vec<_>>()).await.unwrap();
    assert_eq!(check_all(store, table, &seen).await.len(), 1);

    let json = store::read(&**store, &tag).await.unwrap();
    let version = TableVersion::load(store, table, std::str::from_utf8(&json).unwrap()).await.unwrap();
    assert_eq!(read_all(store, &version).await, seen[&tagged], "the tag's snapshot is whole");
}

#[tokio::test]
async fn an_expiry_that_is_cut_off_leaves_whole_snapshots_and_orphans() {
    for cut in 0..60 {
        let faulty = std::sync::Arc::new(Faulty::new(crate::store::open("memory:", &[]).unwrap()));
        let store = std::sync::Arc::clone(&faulty) as StoreRef;
        let (trial, seen) = history(4, 80, store).await;
        let (store, table) = (&trial.ctx.store, &trial.path);
        faulty.inject_after(Operation::Delete, "", Fault::Refuse, cut, u32::MAX);
        let ended = expire_snapshots(store, table, far_future(), &keep(2), None).await;
        check_all(store, table, &seen).await;
        faulty.heal();
        let whole = ended.is_ok();
        expire_snapshots(store, table, far_future(), &keep(2), None).await.unwrap();
        let committed = trial.committed.as_ref().map(|(json, ..)| json.as_str());
        let prepared: Vec<&str> = committed.into_iter().collect();
        remove_orphans(store, table, far_future(), &keep(2), &prepared).await.unwrap();
        check_all(store, table, &seen).await;
        let paths = TablePaths::new(table.clone());
        let (left, named) = (objects(store, table).await, needed(store, &paths, &prepared).await);
        assert_eq!(left, named, "cut off after {cut} deletes");
        if whole {
            return;
        }
    }
    panic!("the expiry never came to its end");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_expires_meanwhile_is_not_missing() {
    let inner = crate::store::open("memory:", &[]).unwrap();
    let faulty = std::sync::Arc::new(Faulty::new(std::sync::Arc::clone(&inner)));
    let store = std::sync::Arc::clone(&faulty) as StoreRef;
    let (trial, seen) = history(4, 150, std::sync::Arc::clone(&inner)).await;
    let prepared: Vec<&str> = trial.committed.iter().map(|(json, ..)| json.as_str()).collect();
    let whole: Vec<ObjectMeta> = inner.list(None).try_collect().await.unwrap();
    let mut contents = Vec::new();
    for object in &whole {
        contents.push((object.location.clone(), store::read(&*inner, &object.location).await.unwrap()));
    }
    let mut skip = 0;
    for hunts_orphans in [false, true] {
        loop {
            for (path, content) in &contents {
                store::write(&*inner, path, content.clone()).await.unwrap();
            }
            // One of the reads stands still until the other owner has expired all but one snapshot.
            faulty.inject_after(Operation::Get, "", Fault::Delay(Duration::from_secs(2)), skip, 1);
            let slow = async {
                if hunts_orphans {
                    remove_orphans(&store, &trial.path, far_future(), &keep(2), &prepared).await.map(|_| ())
                } else {
                    expire_snapshots(&store, &trial.path, far_future(), &keep(2), None).await.map(|_| ())
                }
            };
            let other = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                expire_snapshots(&inner, &trial.path, far_future(), &keep(1), None).await.map(|_| ())
            };
            let started = tokio::time::Instant::now();
            let (slow, other) = tokio::join!(slow, other);
            slow.unwrap_or_else(|error| panic!("read {skip}, orphans {hunts_orphans}: {error}"));
            other.unwrap();
            check_all(&inner, &trial.path, &seen).await;
            faulty.heal();
            if started.elapsed() < Duration::from_secs(2) {
                break;
            }
            skip += 1;
        }
        assert!(skip > 10, "{skip} reads stood still");
        skip = 0;
    }
}
