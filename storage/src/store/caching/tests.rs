use object_store::ObjectStoreExt;
use object_store::memory::InMemory;

use super::super::Operation;
use super::super::measured::{Measured, Statistics};
use super::*;
use crate::local_disk::LocalDirectory;

const PATH: &str = "db/t/bucket-0/data-1.parquet";

/// A store with one object of so many bytes, and what is asked of it.
async fn store(size: u64) -> (StoreRef, Arc<Statistics>, Vec<u8>) {
    let bytes: Vec<u8> = (0..size).map(|n| (n / 3 + n / 1000) as u8).collect();
    let inner: StoreRef = Arc::new(InMemory::new());
    for path in [PATH, "db/t/snapshot/snapshot-1"] {
        inner.put(&Path::from(path), bytes.clone().into()).await.unwrap();
    }
    let (measured, statistics) = Measured::new(inner);
    (Arc::new(measured), statistics, bytes)
}

fn in_memory(inner: StoreRef, memory_bytes: usize) -> (Caching, CacheWatch) {
    Caching::new(inner, CacheOptions { memory_bytes, disk: None })
}

fn requests(statistics: &Statistics) -> u64 {
    statistics.of(Operation::Get).requests
}

#[tokio::test]
async fn every_range_is_what_the_object_has_and_is_fetched_once() {
    let size = BLOCK * 3 + 1000;
    let (inner, statistics, bytes) = store(size).await;
    let (store, watch) = in_memory(Arc::clone(&inner), 64 << 20);
    let path = Path::from(PATH);
    // The first read learns the size, and fetches no more than is asked for.
    let end = store.get_opts(&path, GetOptions::new().with_range(Some(GetRange::Suffix(10)))).await.unwrap();
    assert_eq!((end.range.clone(), end.meta.size), (size - 10..size, size));
    assert_eq!(end.bytes().await.unwrap(), &bytes[size as usize - 10..]);

    let edges = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK, size - 1, size];
    for from in edges {
        for to in edges.into_iter().filter(|to| *to > from) {
            let expected = &bytes[from as usize..to as usize];
            assert_eq!(store.get_range(&path, from..to).await.unwrap(), expected, "{from}..{to}");
            let both = store.get_ranges(&path, &[from..to, 0..1]).await.unwrap();
            assert_eq!((&both[0][..], &both[1][..]), (expected, &bytes[..1]));
        }
    }
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
    let offset = store.get_opts(&path, GetOptions::new().with_range(Some(GetRange::Offset(BLOCK)))).await.unwrap();
    assert_eq!(offset.bytes().await.unwrap(), &bytes[BLOCK as usize..]);
    let usage = watch.usage();
    assert_eq!(usage.misses, 4);
    assert!(usage.memory_hits > 100 && usage.memory_bytes >= size, "{usage:?}");
    assert_eq!(requests(&statistics), 1 + 4);

    // A range behind the end is the store's to refuse.
    assert!(store.get_range(&path, size..size + 1).await.is_err());
    let beyond = [0..1, size - 1..size + 1];
    let theirs = inner.get_ranges(&path, &beyond).await.ok();
    assert_eq!(store.get_ranges(&path, &beyond).await.ok(), theirs);
}

#[tokio::test]
async fn what_changes_is_never_kept() {
    let (inner, statistics, bytes) = store(1000).await;
    let (store, watch) = in_memory(inner, 64 << 20);
    let snapshot = Path::from("db/t/snapshot/snapshot-1");
    for _ in 0..3 {
        assert_eq!(store.get(&snapshot).await.unwrap().bytes().await.unwrap(), bytes);
    }
    assert_eq!((requests(&statistics), watch.usage()), (3, CacheUse::default()));
    let conditional = GetOptions { if_match: Some("other".into()), ..GetOptions::new() };
    store.get(&Path::from(PATH)).await.unwrap().bytes().await.unwrap();
    assert!(store.get_opts(&Path::from(PATH), conditional).await.is_err());
    for path in ["t/schema/schema-0", "t/snapshot/LATEST", "catalog/1", "manifest", "t/bucket/x"] {
        assert!(!never_changes(&Path::from(path)), "{path}");
    }
    for path in ["t/manifest/manifest-1", "t/index/index-2", "t/bucket-17/data-3.parquet"] {
        assert!(never_changes(&Path::from(path)), "{path}");
    }
}

#[tokio::test]
async fn memory_is_bounded() {
    let size = BLOCK * 20;
    let (inner, _, bytes) = store(size).await;
    let (store, watch) = in_memory(inner, 5 * BLOCK as usize);
    let path = Path::from(PATH);
    store.get_range(&path, 0..1).await.unwrap();
    for round in 0..3 {
        for from in (0..size - 100).step_by(BLOCK as usize / 2) {
            let expected = &bytes[from as usize..from as usize + 100];
            assert_eq!(store.get_range(&path, from..from + 100).await.unwrap(), expected, "{round}");
        }
        assert!(watch.usage().memory_bytes <= 5 * BLOCK);
    }
}

/// Waits until what is being written to the disk is there.
async fn on_disk(watch: &CacheWatch, bytes: u64) {
    while watch.usage().disk_bytes < bytes {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_on_the_disk_outlive_the_process_and_are_verified() {
    let size = BLOCK * 4;
    let (inner, statistics, bytes) = store(size).await;
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn LocalDisk> = Arc::new(LocalDirectory::new(folder.path()));
    let open = |limit| {
        let options = CacheOptions { memory_bytes: 0, disk: Some((Arc::clone(&disk), limit)) };
        Caching::new(Arc::clone(&inner), options)
    };
    let path = Path::from(PATH);
    let (store, watch) = open(64 << 20);
    store.get_range(&path, 0..1).await.unwrap();
    assert_eq!(store.get_range(&path, 0..size).await.unwrap(), bytes);
    on_disk(&watch, size).await;
    drop(store);

    let before = requests(&statistics);
    let (store, watch) = open(64 << 20);
    store.get_range(&path, 5..6).await.unwrap();
    assert_eq!(store.get_range(&path, 0..size).await.unwrap(), bytes);
    // The first read learnt the size from the store.
    assert_eq!((requests(&statistics) - before, watch.usage().disk_hits, watch.usage().misses), (1, 4, 0));

    // A byte of each file is changed: everything is fetched anew, and written anew.
    let directory = folder.path().join(DIRECTORY);
    for file in std::fs::read_dir(&directory).unwrap() {
        let file = file.unwrap().path();
        let mut content = std::fs::read(&file).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        std::fs::write(&file, content).unwrap();
    }
    assert_eq!(store.get_range(&path, 0..size).await.unwrap(), bytes);
    assert_eq!((watch.usage().disk_hits, watch.usage().misses), (4, 4));
    on_disk(&watch, size).await;
    // And when the directory is gone altogether.
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(store.get_range(&path, 0..size).await.unwrap(), bytes);
    on_disk(&watch, size).await;
    drop(store);

    // Less room than an earlier process had.
    let (_, watch) = open(2 * BLOCK);
    assert!(watch.usage().disk_bytes <= 2 * BLOCK);
    assert!(std::fs::read_dir(&directory).unwrap().count() <= 2);
}
