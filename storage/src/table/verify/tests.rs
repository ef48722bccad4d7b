use futures::TryStreamExt;
use object_store::ObjectMeta;

use super::super::tests::{Trial, small_options};
use super::*;
use crate::paimon::DataType;
use crate::store;
use crate::table::{Retention, expire_snapshots, remove_orphans};

async fn trial() -> Trial {
    let store = store::open("memory:", &[]).unwrap();
    let mut trial = Trial::new_on(8, &[DataType::BigInt], small_options(2), store).await;
    for round in 0..12_i64 {
        let keys: Vec<i64> = (0..60).map(|key| key * 7 % 90 + round % 3).collect();
        trial.apply(&keys, |_| super::super::RowKind::Upsert);
        trial.publish_next().await;
    }
    trial.writer.compact().await.unwrap();
    trial.publish_next().await;
    let keep = Retention { time_retained_ms: 0, min_snapshots: 4, orphan_age_ms: 0, ..Retention::default() };
    let (store, table) = (&trial.ctx.store, &trial.path);
    expire_snapshots(store, table, 4_000_000_000_000, &keep, None).await.unwrap();
    remove_orphans(store, table, 4_000_000_000_000, &keep, &[]).await.unwrap();
    trial
}

#[tokio::test]
async fn every_object_is_read_and_each_damage_named() {
    let trial = trial().await;
    let (store, table) = (&trial.ctx.store, &trial.path);
    let whole = verify_table(store, table, &[]).await.unwrap();
    assert_eq!(whole.damages, []);
    let objects: Vec<ObjectMeta> = store.list(Some(table)).try_collect().await.unwrap();
    let hint = |object: &ObjectMeta| matches!(object.location.filename(), Some("LATEST" | "EARLIEST"));
    let objects: Vec<_> = objects.into_iter().filter(|object| !hint(object)).collect();
    assert_eq!(whole.bytes, objects.iter().map(|object| object.size).sum::<u64>(), "everything is read once");
    assert_eq!(whole.objects, objects.len() as u64);
    for object in &objects {
        let path = &object.location;
        let bytes = store::read(&**store, path).await.unwrap();
        store.delete(path).await.unwrap();
        let found = verify_table(store, table, &[]).await.unwrap();
        // A schema or a snapshot that is gone leaves no trace that it was there.
        let silent = ["schema", "snapshot"].iter().any(|part| path.as_ref().contains(&format!("/{part}/")));
        let named = found.damages.iter().any(|damage| damage.object == path.as_ref() && damage.problem == MISSING);
        assert!(named || silent, "{path}: {:?}", found.damages);

        let mut damaged = bytes.to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        store::write(&**store, path, damaged.into()).await.unwrap();
        let found = verify_table(store, table, &[]).await.unwrap();
        assert!(found.damages.iter().any(|damage| damage.object == path.as_ref()), "{path}: {:?}", found.damages);
        store::write(&**store, path, bytes.slice(..bytes.len() - 1)).await.unwrap();
        let found = verify_table(store, table, &[]).await.unwrap();
        assert!(found.damages.iter().any(|damage| damage.object == path.as_ref()), "{path}: {:?}", found.damages);
        store::write(&**store, path, bytes).await.unwrap();
    }
    assert_eq!(verify_table(store, table, &[]).await.unwrap(), whole);
}
