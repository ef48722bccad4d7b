//! Two writers race for the checkpoints of one source, over a store that loses answers, answers late and carries
//! requests out late or twice. What a writer was told is committed stays, each number has one owner, and each record
//! follows on the one before it.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tidegate_storage::checkpoint::{
    CheckpointLog, CheckpointRecord, CheckpointState, CommitOutcome, PreparedSnapshot, PublishOutcome, TableCommit,
    publish, record,
};
use tidegate_storage::paimon::TablePaths;
use tidegate_storage::store::faulty::{Fault, Faulty, Operation};
use tidegate_storage::store::retrying::{RetryPolicy, Retrying};
use tidegate_storage::store::{self, StoreRef};
use uuid::Uuid;

const SOURCE: Uuid = Uuid::from_u128(9);
const TABLE: &str = "warehouse/shop.db/orders";

/// What became of the attempts of both writers.
#[derive(Debug, Default)]
struct Tally {
    committed: u64,
    conflicted: u64,
    /// Conflicts with a record of the writer's own that it had given up.
    overtaken: u64,
    unknown: u64,
    failed: u64,
}

/// One writer: it recovers, commits until it is stopped by a conflict or a doubt, and recovers again.
struct Writer {
    owner: Uuid,
    faulty: Arc<Faulty>,
    store: StoreRef,
    random: StdRng,
    /// How long what is late is late, at most.
    pause: Duration,
    attempts: u64,
    acknowledged: BTreeMap<u64, CheckpointRecord>,
    tally: Tally,
}

impl Writer {
    fn new(seed: u64, owner: u128, store: StoreRef, pause: Duration) -> Self {
        let policy = RetryPolicy {
            timeout: Duration::from_secs(10),
            first_backoff: pause / 8,
            max_backoff: pause / 4,
            attempts: 3,
            ..RetryPolicy::default()
        };
        let faulty = Arc::new(Faulty::new(store));
        let store = Arc::new(Retrying::new(Arc::clone(&faulty), policy));
        Self {
            owner: Uuid::from_u128(owner),
            faulty,
            store,
            random: StdRng::seed_from_u64(seed ^ owner as u64),
            pause,
            attempts: 0,
            acknowledged: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// Lets some of the next requests go wrong. Three faults in a row use up all attempts.
    fn disturb(&mut self) {
        self.faulty.heal();
        let pause = self.pause.mul_f64(self.random.random());
        let fault = match self.random.random_range(0..8) {
            0 => Fault::Refuse,
            1 => Fault::LoseAnswer,
            2 | 3 => Fault::Late(pause),
            4 => Fault::Again(pause),
            5 => Fault::Delay(pause),
            _ => return,
        };
        let place = if self.random.random_bool(0.8) { "checkpoint-" } else { "snapshot-" };
        self.faulty.inject(Operation::Create, place, fault, self.random.random_range(1..5));
        if self.random.random_ratio(1, 4) {
            self.faulty.inject(Operation::Get, "checkpoint-", Fault::Refuse, self.random.random_range(1..5));
        }
    }

    async fn run(mut self, commits: usize) -> Self {
        while self.acknowledged.len() < commits {
            let log = CheckpointLog::new(Arc::clone(&self.store), SOURCE);
            let Ok(state) = log.recover().await else {
                self.tally.failed += 1;
                self.faulty.heal();
                continue;
            };
            self.follow(&log, state, commits).await;
        }
        self.faulty.heal();
        self.faulty.arrived().await;
        self
    }

    async fn follow(&mut self, log: &CheckpointLog, state: Option<CheckpointState>, commits: usize) {
        let (mut number, mut position) = (0, json!(null));
        if let Some(state) = state {
            (number, position) = (state.number, state.position);
            let snapshot = state.tables.into_values().find_map(|table| table.snapshot);
            if !self.publish(&snapshot.expect("every record has one")).await {
                return;
            }
        }
        while self.acknowledged.len() < commits {
            self.disturb();
            let record = self.record(number + 1, &position);
            match log.commit(&record).await {
                Ok(CommitOutcome::Committed) => self.tally.committed += 1,
                Ok(CommitOutcome::Conflicted(other)) => {
                    assert_ne!(*other, record, "its own record is no conflict");
                    let overtaken = other.owner == self.owner;
                    assert!(!overtaken || !self.acknowledged.contains_key(&record.number));
                    *if overtaken { &mut self.tally.overtaken } else { &mut self.tally.conflicted } += 1;
                    return;
                }
                Ok(CommitOutcome::Unknown(_)) => {
                    self.tally.unknown += 1;
                    return;
                }
                Err(error) => panic!("nothing was refused for good: {error}"),
            }
            (number, position) = (record.number, record.position.clone());
            let snapshot = record.tables[0].snapshot.clone().expect("it was just made");
            assert!(self.acknowledged.insert(number, record).is_none(), "checkpoint {number} was given twice");
            if !self.publish(&snapshot).await {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the snapshot is known to be published. It may be in doubt, but never another's.
    async fn publish(&mut self, snapshot: &PreparedSnapshot) -> bool {
        match publish(&self.store, &Path::from(TABLE), snapshot).await {
            Ok(PublishOutcome::Published) => true,
            Ok(PublishOutcome::Unknown(_)) => {
                self.tally.unknown += 1;
                false
            }
            Ok(PublishOutcome::Conflicted(error)) => panic!("two snapshots have one number: {error}"),
            Err(error) => panic!("nothing was refused for good: {error}"),
        }
    }

    /// A record like no other, that says which one it follows on.
    fn record(&mut self, number: u64, follows: &serde_json::Value) -> CheckpointRecord {
        self.attempts += 1;
        let position = json!([self.owner, self.attempts]);
        let snapshot = PreparedSnapshot { id: number, json: position.to_string() };
        CheckpointRecord {
            format: record::FORMAT,
            source: SOURCE,
            number,
            epoch: 1,
            owner: self.owner,
            committed_at_ms: 0,
            full: number % 16 == 1,
            position,
            capture: follows.clone(),
            tables: vec![TableCommit {
                name: "shop.orders".to_owned(),
                path: TABLE.to_owned(),
                visible: true,
                snapshot: Some(snapshot),
                capture: json!(null),
            }],
            dropped: vec![],
        }
    }
}

/// Lets two writers race on a store until each has made so many commits. `open` opens it, as each process does.
pub(crate) async fn race(name: &str, seed: u64, open: impl Fn() -> StoreRef, commits: usize, pause: Duration) {
    let run = |owner| tokio::spawn(Writer::new(seed, owner, open(), pause).run(commits));
    let (one, two) = tokio::join!(run(1), run(2));
    let writers = [one.unwrap(), two.unwrap()];
    let store = open();
    let log = CheckpointLog::new(Arc::clone(&store), SOURCE);
    let newest = log.recover().await.unwrap().unwrap().number;
    let mut records = BTreeMap::new();
    let mut follows = json!(null);
    for number in 1..=newest {
        let record = log.read(number).await.unwrap();
        assert_eq!(
            record.capture, follows,
            "seed {seed}: checkpoint {number} follows on another than the one before it"
        );
        follows = record.position.clone();
        records.insert(number, record);
    }
    for writer in &writers {
        println!(
            "{name}, seed {seed}: {newest} checkpoints, {} attempts of one writer: {:?}",
            writer.attempts, writer.tally
        );
        for (number, record) in &writer.acknowledged {
            assert_eq!(&records[number], record, "seed {seed}: checkpoint {number} was acknowledged, and is another");
        }
        assert!(writer.tally.conflicted > 0 && writer.tally.unknown > 0, "seed {seed}: {:?}", writer.tally);
    }
    let both = writers[0].acknowledged.keys().filter(|number| writers[1].acknowledged.contains_key(number)).count();
    assert_eq!(both, 0, "seed {seed}: numbers with two owners");
    let overtaken = writers.iter().map(|writer| writer.tally.overtaken).sum::<u64>();
    assert!(overtaken > 0, "seed {seed}: no write that was given up arrived later");
    let paths = TablePaths::new(Path::from(TABLE));
    for (number, record) in &records {
        // Of a record whose writer was in doubt until another had followed, the snapshot may be missing.
        let snapshot = record.tables[0].snapshot.as_ref().unwrap();
        if let Some(bytes) = store::read_optional(&*store, &paths.snapshot(*number)).await.unwrap() {
            assert_eq!(bytes, snapshot.json.as_bytes(), "seed {seed}: snapshot {number}");
        }
    }
    assert!(log.verify().await.unwrap().damages.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_race_in_memory() {
    for seed in 0..4 {
        let store: StoreRef = Arc::new(InMemory::new());
        race("memory", seed, || Arc::clone(&store), 300, Duration::from_millis(4)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_race_in_a_directory() {
    let memory = FilePath::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new().prefix("tidegate-race-").tempdir_in(parent).unwrap();
    let open = || store::open(directory.path().to_str().unwrap(), &[]).unwrap();
    race("directory", 1, open, 300, Duration::from_millis(8)).await;
}
