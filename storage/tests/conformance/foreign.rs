//! Tables that Java has written to: compacted, updated, and left in states that this crate must refuse.

use serde_json::{Value, json};
use tidegate_storage::ErrorKind;
use tidegate_storage::checkpoint::{PreparedSnapshot, publish};
use tidegate_storage::paimon::manifest::{decode_index_manifest, encode_index_manifest};
use tidegate_storage::paimon::{DeletionVectorMeta, IndexManifestEntry, Snapshot, deletion_vector};
use tidegate_storage::table::{RowKind, TableOptions, verify_table};

use crate::engines::{At, JAVA, PYPAIMON};
use crate::histories::{rows, table, value_types};
use crate::mirror::Mirror;
use crate::texts::Line;
use crate::values::scatter;

/// Many levels with deletion vectors, in two buckets.
async fn layered() -> Mirror {
    let options = TableOptions { buckets: 2, compaction: false, rows_per_file: 100, ..TableOptions::default() };
    let mut mirror = table(options).await;
    mirror.apply(RowKind::Upsert, &rows(0..200, 1));
    mirror.commit().await;
    for version in 2..9 {
        change(&mut mirror, version).await;
    }
    mirror
}

async fn change(mirror: &mut Mirror, version: u64) -> u64 {
    mirror.apply(RowKind::Upsert, &rows((0..30).map(|n| scatter(n + version * 100) % 250), version));
    mirror.apply(RowKind::Delete, &rows((0..9).map(|n| scatter(n + version * 77) % 250), version));
    mirror.commit().await
}

/// Has Java do something to the table; the number of its last snapshot.
pub(crate) fn java(mirror: &Mirror, mut request: Value) -> u64 {
    request["table"] = json!(mirror.folder());
    // The snapshots are from a time when the test was not run yet, and Java expires the old ones with each commit.
    request["options"]["snapshot.time-retained"] = json!("36500 d");
    JAVA.ask(&request).unwrap_or_else(|error| panic!("{request}: {error}"))["snapshot"].as_u64().unwrap()
}

/// Has Java replace and delete rows, and the model too; the number of the last snapshot.
pub(crate) fn update(mirror: &mut Mirror, upserts: &[Line], deletes: &[Line], options: Value) -> u64 {
    let id = java(mirror, json!({ "do": "write", "upserts": upserts, "deletes": deletes, "options": options }));
    mirror.apply_to_model(RowKind::Upsert, upserts);
    mirror.apply_to_model(RowKind::Delete, deletes);
    id
}

fn update_some(mirror: &mut Mirror, version: u64, options: Value) -> u64 {
    let upserts = rows((0..40).map(|n| scatter(n + version * 100) % 250), version);
    let deletes = rows((0..12).map(|n| scatter(n + version * 77) % 250), version);
    update(mirror, &upserts, &deletes, options)
}

/// The table is as the model says at Java's snapshot, and its writer goes on from there.
async fn goes_on(mirror: &mut Mirror, id: u64, version: u64) {
    let state = mirror.state();
    mirror.check(At::Snapshot(id), id, &state).await;
    mirror.states.insert(id, state);
    mirror.reopen(id).await.unwrap();
    assert_eq!(mirror.writer.row_count(), mirror.state().rows.len() as u64);
    change(mirror, version).await;
    mirror.writer.compact().await.unwrap();
    change(mirror, version + 1).await;
}

async fn finish(mirror: &Mirror) {
    let compared = mirror.check_all().await;
    println!("{} states with {} rows", compared.states, compared.rows);
    let columns: Vec<_> = value_types().into_iter().map(|(name, _)| name).collect();
    assert!(mirror.check_filters(&columns[..4]) > 20);
    let verified = verify_table(&mirror.store, &mirror.path, &[]).await.unwrap();
    assert_eq!(verified.damages, [], "of {} objects", verified.objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_java_has_compacted_the_writer_goes_on() {
    let mut mirror = layered().await;
    let before = *mirror.states.keys().last().unwrap();
    let id = java(&mirror, json!({ "do": "compact", "full": true }));
    assert!(id > before);
    let version = mirror.load(id).await.unwrap();
    assert!(version.files.iter().all(|file| file.deleted.is_none()), "Java left deletion vectors: {version:?}");
    assert!(mirror.load(before).await.unwrap().files.iter().any(|file| file.deleted.is_some()));
    goes_on(&mut mirror, id, 9).await;
    // Once more, upon files of both.
    let id = java(&mirror, json!({ "do": "compact", "full": true }));
    goes_on(&mut mirror, id, 11).await;
    finish(&mirror).await;

    // Without being told otherwise Java keeps the last ten snapshots.
    let request = json!({ "do": "compact", "full": true, "table": mirror.folder() });
    let last = JAVA.ask(&request).unwrap()["snapshot"].as_u64().unwrap();
    mirror.states.insert(last, mirror.state());
    mirror.states.retain(|id, _| *id + 10 > last);
    assert_eq!(mirror.check_all().await.states, 10);
    assert!(!mirror.folder().join(format!("snapshot/snapshot-{}", last - 10)).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_java_has_updated_the_writer_goes_on() {
    let mut mirror = layered().await;
    // With compaction Java's rows become visible at once: it looks up what they replace.
    let compacting = json!({ "write-only": "false", "num-sorted-run.compaction-trigger": "3" });
    for version in [20, 30, 40] {
        let id = update_some(&mut mirror, version, compacting.clone());
        goes_on(&mut mirror, id, version + 1).await;
    }
    let some = mirror.states.keys().copied().collect::<Vec<_>>();
    assert!(
        some.windows(2).any(|pair| pair[1] - pair[0] == 2),
        "Java commits rows and their compaction apart: {some:?}"
    );
    finish(&mirror).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_java_has_not_merged_is_refused() {
    let mut mirror = layered().await;
    // The table says write-only: Java leaves its rows at level 0, where nobody sees them.
    let before = mirror.state();
    let id = update_some(&mut mirror, 20, json!({}));
    for engine in [&*JAVA, &*PYPAIMON] {
        let read = engine.read(&mirror.folder(), At::Newest, &[]).unwrap();
        assert_eq!(read.rows.len(), before.rows.len(), "{} sees level 0", engine.name);
    }
    let answer = JAVA.ask(&json!({ "do": "files", "table": mirror.folder() })).unwrap();
    let files = answer["files"].as_array().unwrap().iter().filter(|file| file["level"] == 0);
    let unmerged: Vec<&str> = files.map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(unmerged.len(), 2, "one in each bucket");
    let load = mirror.load(id).await.unwrap_err();
    let open = mirror.reopen(id).await.unwrap_err();
    for error in [load, open] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("is at level 0") && text.contains("compact the table"), "{text}");
        assert!(unmerged.iter().any(|name| text.contains(name)), "{text} names none of {unmerged:?}");
    }
    // What the error advises helps.
    let id = java(&mirror, json!({ "do": "compact", "full": true }));
    goes_on(&mut mirror, id, 21).await;
    finish(&mirror).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bitmaps_of_64_bits_are_read() {
    let options = TableOptions { buckets: 2, ..TableOptions::default() };
    let mut mirror = table(options).await;
    mirror.apply(RowKind::Upsert, &rows(0..200, 1));
    mirror.commit().await;
    let id = update_some(&mut mirror, 20, json!({ "write-only": "false", "deletion-vectors.bitmap64": "true" }));
    let mut wide = 0;
    for file in std::fs::read_dir(mirror.folder().join("index")).unwrap() {
        wide += usize::from(
            std::fs::read(file.unwrap().path()).unwrap()[5..].starts_with(&1_681_511_377_u32.to_le_bytes()),
        );
    }
    assert_eq!(wide, 2, "Java wrote 64-bit bitmaps for both buckets");
    // pypaimon cannot read them.
    let state = mirror.state();
    mirror.check_without(PYPAIMON.name, At::Snapshot(id), id, &state).await;
    mirror.reopen(id).await.unwrap();
    change(&mut mirror, 21).await;
    change(&mut mirror, 22).await;
    finish(&mirror).await;
}

/// Some writers make several index files of a bucket. Readers take them all; a writer that keeps one would lose the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_index_files_of_a_bucket_are_read_and_not_written_to() {
    let mut mirror = layered().await;
    let last = *mirror.states.keys().last().unwrap();
    let mut snapshot = Snapshot::from_json("snapshot", mirror.snapshot_json(last).as_bytes()).unwrap();
    let manifests = mirror.folder().join("manifest");
    let name = snapshot.index_manifest.clone().unwrap();
    let mut entries = Vec::new();
    for entry in decode_index_manifest(&name, &std::fs::read(manifests.join(&name)).unwrap()).unwrap() {
        let bytes = std::fs::read(mirror.folder().join("index").join(&entry.file_name)).unwrap();
        let metas: Vec<DeletionVectorMeta> = entry.vectors().cloned().collect();
        assert!(metas.len() > 1);
        for (n, half) in metas.chunks(metas.len().div_ceil(2)).enumerate() {
            let vectors = deletion_vector::decode_index_file(&entry.file_name, &bytes, half).unwrap();
            let borrowed: Vec<_> = vectors.iter().map(|(file, bitmap)| (file.clone(), bitmap)).collect();
            let (half, metas) = deletion_vector::encode_index_file(&borrowed).unwrap();
            let name = format!("{}-{n}", entry.file_name);
            std::fs::write(mirror.folder().join("index").join(&name), &half).unwrap();
            entries.push(IndexManifestEntry::deletion_vectors(entry.bucket as u32, name, half.len(), metas));
        }
    }
    let halves = format!("{name}-halves");
    std::fs::write(manifests.join(&halves), encode_index_manifest(&entries)).unwrap();
    snapshot.id = last + 1;
    snapshot.index_manifest = Some(halves);
    let prepared = PreparedSnapshot { id: snapshot.id, json: snapshot.to_digested_json() };
    publish(&mirror.store, &mirror.path, &prepared).await.unwrap().require().unwrap();

    let state = mirror.state();
    mirror.check(At::Newest, last + 1, &state).await;
    let error = mirror.reopen(last + 1).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("several files with deletion vectors") && text.contains("index/index-"), "{text}");
    // What the error advises helps.
    let id = java(&mirror, json!({ "do": "compact", "full": true }));
    goes_on(&mut mirror, id, 21).await;
}
