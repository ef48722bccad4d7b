//! A flipped byte in any object is an error that names the object, or changes nothing that is read.

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::checkpoint::{CheckpointLog, CheckpointRecord, CommitOutcome, TableCommit};
use crate::store;
use crate::table::commit::read_snapshot;
use crate::table::layout::Layout;
use crate::table::names::Names;
use crate::table::read::rows;
use crate::{Error, ErrorKind, Result};

const SOURCE: Uuid = Uuid::from_u128(11);
/// Objects up to this size are damaged at every byte, larger ones at as many.
const EVERY_BYTE: usize = 160;

/// What can be read of a source with one table.
#[derive(Debug, PartialEq)]
struct Seen {
    checkpoint: u64,
    position: Value,
    fields: Vec<(i32, String, String)>,
    rows: BTreeMap<Vec<String>, Row>,
    /// As the writer counts them from the keys.
    row_count: u64,
    published: Option<Snapshot>,
}

async fn see(store: &StoreRef, published: Option<u64>) -> Result<Seen> {
    let log = CheckpointLog::new(Arc::clone(store), SOURCE);
    let Some(state) = log.recover().await? else { return Err(Error::invalid("there is no checkpoint")) };
    let table = state.tables.get("shop.orders").ok_or_else(|| Error::invalid("the table is gone"))?;
    let snapshot = table.snapshot.as_ref().ok_or_else(|| Error::invalid("the snapshot is gone"))?;
    let path = Path::from(table.path.as_str());
    let version = TableVersion::load(store, &path, &snapshot.json).await?;
    let ctx = context_on(Arc::clone(store));
    let names = Arc::new(Names::new(&crate::random::SystemRandom));
    let schemas = Arc::clone(&version.schemas);
    let layout = Layout::new(ctx.clone(), path.clone(), names, small_options(2), Arc::clone(&version.schema), schemas)?;
    let mut all = BTreeMap::new();
    for file in &version.files {
        let batches: Vec<RecordBatch> = rows(&layout, &file.path, &file.meta).await?.try_collect().await?;
        let read = batches.iter().flat_map(|batch| rows_of(&version.schema, batch));
        for (position, (key, row)) in read.enumerate() {
            if !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(position as u32)) {
                all.insert(key, row);
            }
        }
    }
    let writer = TableWriter::open(ctx, path, &snapshot.json, true, small_options(2)).await?;
    let fields = version.schema.fields.iter();
    Ok(Seen {
        checkpoint: state.number,
        position: state.position,
        fields: fields.map(|field| (field.id, field.name.clone(), field.data_type.to_string())).collect(),
        rows: all,
        row_count: writer.row_count(),
        published: match published {
            // The name of the digest itself may be damaged: then it is a property that nobody asks for.
            Some(id) => Some(Snapshot { properties: None, ..read_snapshot(store, &layout, id).await? }),
            None => None,
        },
    })
}

/// A table of several commits, two schemas, files and deletion vectors, with its checkpoints.
async fn source() -> (StoreRef, u64) {
    let mut trial = Trial::new(5, &[DataType::BigInt], small_options(2)).await;
    let log = CheckpointLog::new(Arc::clone(&trial.ctx.store), SOURCE);
    for number in 1..=4_u64 {
        let first = number as i64 * 20;
        trial.apply(&(first..first + 30).collect::<Vec<_>>(), |_| RowKind::Upsert);
        trial.apply(&[first + 1, first + 5, first - 3], |_| RowKind::Delete);
        if number == 3 {
            trial.evolve().await;
        }
        let prepared = trial.writer.prepare(number, BTreeMap::new()).await.unwrap();
        let record = CheckpointRecord {
            format: 1,
            source: SOURCE,
            number,
            epoch: 1,
            owner: Uuid::from_u128(1),
            committed_at_ms: 1000 * number as i64,
            full: number == 2,
            position: number.into(),
            capture: Value::Null,
            tables: vec![TableCommit {
                name: "shop.orders".to_owned(),
                path: trial.path.to_string(),
                visible: true,
                snapshot: Some(prepared.snapshot.clone()),
                capture: Value::Null,
            }],
            dropped: Vec::new(),
        };
        assert!(matches!(log.commit(&record).await.unwrap(), CommitOutcome::Committed));
        trial.writer.committed(true);
        publish(&trial.ctx.store, &trial.path, &prepared.snapshot).await.unwrap().require().unwrap();
    }
    (Arc::clone(&trial.ctx.store), 4)
}

async fn objects(store: &StoreRef) -> Vec<Path> {
    let mut paths: Vec<Path> = store.list(None).map_ok(|object| object.location).try_collect().await.unwrap();
    paths.sort();
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_anywhere_is_named_or_changes_nothing() {
    let (store, published) = source().await;
    let intact = see(&store, Some(published)).await.unwrap();
    assert!(intact.rows.len() > 70 && intact.row_count == intact.rows.len() as u64, "{}", intact.rows.len());
    let mut random = StdRng::seed_from_u64(17);
    let mut named: BTreeSet<String> = BTreeSet::new();
    for path in objects(&store).await {
        let bytes = store::read(&*store, &path).await.unwrap();
        let every = bytes.len() <= EVERY_BYTE;
        for place in 0..bytes.len().min(EVERY_BYTE) {
            let at = if every { place } else { random.random_range(0..bytes.len()) };
            let bits =
                if random.random_bool(0.8) { 1_u8 << random.random_range(0..8) } else { random.random_range(1..=255) };
            let mut flipped = bytes.to_vec();
            flipped[at] ^= bits;
            store.put(&path, flipped.into()).await.unwrap();
            let limit = std::time::Duration::from_secs(60);
            let seen = tokio::time::timeout(limit, see(&store, Some(published))).await;
            match seen.unwrap_or_else(|_| panic!("byte {at} of {path} ^ {bits}: reading does not end")) {
                Ok(seen) => assert!(seen == intact, "byte {at} of {path} ^ {bits} was read as {seen:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} of {path} ^ {bits}: {error}");
                    assert!(error.to_string().contains(path.as_ref()), "byte {at} of {path} ^ {bits}: {error}");
                    named.insert(kind(&path));
                }
            }
        }
        store.put(&path, bytes.into()).await.unwrap();
    }
    assert_eq!(see(&store, Some(published)).await.unwrap(), intact);
    let kinds = ["checkpoint", "data", "index", "index-manifest", "manifest", "manifest-list", "schema", "snapshot"];
    assert_eq!(named.iter().map(String::as_str).collect::<Vec<_>>(), kinds);
}

/// What an object is, from its name.
fn kind(path: &Path) -> String {
    let words = path.filename().unwrap().split('-').take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
    words.collect::<Vec<_>>().join("-")
}
