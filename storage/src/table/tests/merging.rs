//! Merges that are asked for, and the local disk that the keys are kept on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::table::levels::TOP;
use crate::table::{MergeReason, MergeState};

fn with_disk(store: StoreRef, disk: &Arc<MemoryDisk>) -> WriterContext {
    let resources = Resources { keys: KeyCache::new(disk.clone(), 1000), ..Resources::default() };
    WriterContext { resources: Arc::new(resources), ..context_on(store) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_merge_leaves_one_run_without_dead_rows() {
    let (ctx, path) = (context(), Path::from("t"));
    let options = TableOptions { buckets: 2, rows_per_file: 6000, inline_merge_rows: 0, ..TableOptions::default() };
    let mut writer = TableWriter::create(ctx, path, schema(&[DataType::BigInt]), options).await.unwrap();
    upsert(&mut writer, 0..20_000, 0, RowKind::Upsert);
    let mut commit = 1;
    writer.prepare(commit, BTreeMap::new()).await.unwrap();
    writer.committed(true);
    upsert(&mut writer, 100..900, 1, RowKind::Upsert);
    upsert(&mut writer, 500..600, 1, RowKind::Delete);

    let merges = Arc::clone(writer.merges());
    let asked = tokio::spawn(async move { merges.merge_all().await });
    let mut last = None;
    while !asked.is_finished() {
        // Rows that come meanwhile are kept.
        commit += 1;
        upsert(&mut writer, [commit as i64 * 7], commit, RowKind::Upsert);
        last = Some(writer.prepare(commit, BTreeMap::new()).await.unwrap());
        writer.committed(true);
        writer.buckets().iter().for_each(super::super::bucket::Bucket::check);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(asked.await.unwrap());
    let version = last.unwrap().version;
    assert_eq!(version.row_count(), 19_900);
    let large: Vec<_> = version.files.iter().filter(|file| file.meta.row_count > 1000).collect();
    assert_eq!(large.len(), 4, "two files for each bucket");
    assert!(large.iter().all(|file| file.meta.level == TOP));
    let full = writer.merges().merges().into_iter().filter(|merge| merge.reason == MergeReason::Request);
    let full: Vec<_> = full.collect();
    assert_eq!(full.len(), 2);
    for merge in full {
        assert_eq!(merge.state, MergeState::Done);
        assert!(merge.output.rows > 9000 && merge.output.files == 2 && merge.input.files >= 2, "{merge:?}");
    }
    let written = writer.merges().written();
    assert_eq!(written.applied_rows, 20_900 + commit - 1);
    assert!(written.merged.rows >= 19_900);
}

/// Prepares until nothing is left to do and no merge runs, as a mirror without work does.
async fn settle(writer: &mut TableWriter, commit: &mut u64) {
    let runs = |writer: &TableWriter| writer.merges().merges().iter().any(|merge| merge.ended_ms.is_none());
    while writer.is_dirty() || runs(writer) {
        if writer.is_dirty() {
            *commit += 1;
            writer.prepare(*commit, BTreeMap::new()).await.unwrap();
            writer.committed(true);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_at_rest_loses_dead_rows_that_a_busy_one_keeps() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let ctx = WriterContext { clock: clock.clone(), ..context() };
    let options = TableOptions { rows_per_file: 50_000, inline_merge_rows: 0, ..TableOptions::default() };
    let mut writer = TableWriter::create(ctx, Path::from("t"), schema(&[DataType::BigInt]), options).await.unwrap();
    upsert(&mut writer, 0..20_000, 0, RowKind::Upsert);
    let mut commit = 0;
    settle(&mut writer, &mut commit).await;
    let dead = |writer: &TableWriter| writer.buckets()[0].files.iter().map(|file| file.deleted.len()).sum::<u64>();
    upsert(&mut writer, (0..20_000).step_by(10), 1, RowKind::Upsert);
    settle(&mut writer, &mut commit).await;
    assert_eq!(dead(&writer), 2000, "a tenth is below the share for which files are rewritten");

    clock.advance(9_000);
    assert!(!writer.is_dirty());
    clock.advance(2_000);
    assert!(writer.is_dirty());
    settle(&mut writer, &mut commit).await;
    assert_eq!(dead(&writer), 0);
    let reasons: Vec<_> = writer.merges().merges().into_iter().map(|merge| (merge.reason, merge.state)).collect();
    assert_eq!(reasons, [(MergeReason::DeadRows, MergeState::Done)]);

    // Few dead rows are left alone, and so is a table that is being loaded.
    upsert(&mut writer, 0..900, 2, RowKind::Upsert);
    settle(&mut writer, &mut commit).await;
    clock.advance(60_000);
    settle(&mut writer, &mut commit).await;
    assert_eq!(dead(&writer), 900);
    writer.begin_loading();
    upsert(&mut writer, (5..20_000).step_by(10), 3, RowKind::Upsert);
    settle(&mut writer, &mut commit).await;
    clock.advance(60_000);
    settle(&mut writer, &mut commit).await;
    assert!(dead(&writer) > 2000);
}

/// On a source without work the merge that was asked for is the only reason to prepare anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_merge_that_fails_begins_again_without_rows_coming() {
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let ctx = context_on(store.clone());
    let options = TableOptions { inline_merge_rows: 0, ..TableOptions::default() };
    let mut writer = TableWriter::create(ctx, Path::from("t"), schema(&[DataType::BigInt]), options).await.unwrap();
    let mut commit = 0;
    for (version, keys) in (0..).zip([0..700, 100..150]) {
        upsert(&mut writer, keys, version, RowKind::Upsert);
        settle(&mut writer, &mut commit).await;
    }
    assert!(!writer.buckets()[0].is_merged());
    store.inject(Operation::Put, "bucket-0", Fault::Refuse, u32::MAX);
    let merges = Arc::clone(writer.merges());
    let asked = tokio::spawn(async move { merges.merge_all().await });
    let failed = |writer: &TableWriter| {
        let merges = writer.merges().merges();
        merges.iter().any(|merge| merge.reason == MergeReason::Request && matches!(merge.state, MergeState::Failed(_)))
    };
    // While the store refuses, something is always left to do.
    while !failed(&writer) {
        if writer.is_dirty() {
            commit += 1;
            writer.prepare(commit, BTreeMap::new()).await.unwrap();
            writer.committed(true);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!asked.is_finished());
    store.heal();
    settle(&mut writer, &mut commit).await;
    assert!(asked.await.unwrap());
    assert!(writer.buckets()[0].is_merged());
    assert_eq!(writer.row_count(), 700);
}

#[tokio::test]
async fn a_full_merge_of_nothing_is_done_at_once_and_one_of_a_writer_that_goes_is_not() {
    let (ctx, path) = (context(), Path::from("t"));
    let mut writer =
        TableWriter::create(ctx, path, schema(&[DataType::BigInt]), TableOptions::default()).await.unwrap();
    let merges = Arc::clone(writer.merges());
    let asked = tokio::spawn(async move { merges.merge_all().await });
    tokio::task::yield_now().await;
    assert!(writer.is_dirty());
    writer.prepare(1, BTreeMap::new()).await.unwrap();
    assert!(asked.await.unwrap());

    let merges = Arc::clone(writer.merges());
    let asked = tokio::spawn(async move { merges.merge_all().await });
    tokio::task::yield_now().await;
    drop(writer);
    assert!(!asked.await.unwrap());
}

#[tokio::test]
async fn a_writer_finds_its_keys_on_the_local_disk_or_makes_them_anew() {
    let (disk, path) = (Arc::new(MemoryDisk::default()), Path::from("shop/t"));
    let store = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let ctx = with_disk(store.clone(), &disk);
    let key_type = [DataType::Varchar(40)];
    let mut writer = TableWriter::create(ctx.clone(), path.clone(), schema(&key_type), small_options(1)).await.unwrap();
    upsert(&mut writer, 0..500, 1, RowKind::Upsert);
    let json = writer.prepare(1, BTreeMap::new()).await.unwrap().snapshot.json;
    writer.committed(true);
    drop(writer);

    // Data files cannot be read, and need not be.
    disk.files.lock().unwrap().insert("shop/t/data-of-old.parquet.keys".to_owned(), vec![1]);
    store.inject(Operation::Get, "bucket-0", Fault::Refuse, u32::MAX);
    let open = || TableWriter::open(ctx.clone(), path.clone(), &json, true, small_options(1));
    let writer = open().await.unwrap();
    assert_eq!(writer.row_count(), 500);
    let files = writer.buckets()[0].files.len();
    assert_eq!(disk.files.lock().unwrap().len(), files, "what belongs to no file is removed");
    drop(writer);
    store.heal();

    // Half of the files are gone, one is cut, one has a flipped byte.
    let names: Vec<String> = disk.files.lock().unwrap().keys().cloned().collect();
    {
        let mut files = disk.files.lock().unwrap();
        names.iter().skip(2).step_by(2).for_each(|name| drop(files.remove(name)));
        files.get_mut(&names[0]).unwrap().truncate(20);
        files.get_mut(&names[1]).unwrap()[9] ^= 1;
    }
    let mut writer = open().await.unwrap();
    upsert(&mut writer, 0..500, 2, RowKind::Upsert);
    let error = writer.flush().await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::LocalCache);
    assert!(error.to_string().contains(&names[1]), "{error}");
    let mut writer = open().await.unwrap();
    upsert(&mut writer, 100..500, 2, RowKind::Upsert);
    let prepared = writer.prepare(2, BTreeMap::new()).await.unwrap();
    assert_eq!(prepared.version.row_count(), 500);
    assert_eq!(read_all(&ctx.store, &prepared.version).await.len(), 500);
    assert!(disk.reads.load(Ordering::Relaxed) > 0);
    // The files of what was replaced went with it.
    assert_eq!(disk.files.lock().unwrap().len(), writer.buckets()[0].files.len());
}
