use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use serde_json::{Value, json};

use super::super::record::{FORMAT, PreparedSnapshot, TableCommit};
use super::*;
use crate::ErrorKind;
use crate::store::faulty::{Fault, Faulty, Operation};
use crate::store::retrying::{RetryPolicy, Retrying};

const SOURCE: Uuid = Uuid::from_u128(7);

fn record(owner: u128, number: u64, full: bool, tables: &[&str]) -> CheckpointRecord {
    let table = |name: &&str| TableCommit {
        name: (*name).to_owned(),
        path: format!("tables/{name}"),
        visible: true,
        snapshot: Some(PreparedSnapshot { id: number, json: "{}".into() }),
        capture: Value::Null,
    };
    CheckpointRecord {
        format: FORMAT,
        source: SOURCE,
        number,
        epoch: 1,
        owner: Uuid::from_u128(owner),
        committed_at_ms: 1000 * number as i64,
        full,
        position: json!(number),
        capture: Value::Null,
        tables: tables.iter().map(table).collect(),
        dropped: vec![],
    }
}

/// As many attempts as usual, in less time.
fn quick() -> RetryPolicy {
    RetryPolicy {
        timeout: Duration::from_millis(100),
        first_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(2),
        ..RetryPolicy::default()
    }
}

fn faulty() -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(InMemory::new())))
}

fn log(store: &Arc<Faulty>) -> CheckpointLog {
    CheckpointLog::new(Arc::clone(store) as StoreRef, SOURCE)
}

async fn unknown(log: &CheckpointLog, record: &CheckpointRecord) -> Error {
    match log.commit(record).await.unwrap() {
        CommitOutcome::Unknown(error) => {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            error
        }
        other => panic!("nobody can know that it is {other:?}"),
    }
}

async fn commit(log: &CheckpointLog, record: &CheckpointRecord) {
    assert!(matches!(log.commit(record).await.unwrap(), CommitOutcome::Committed));
}

#[tokio::test]
async fn the_newest_state_is_found_from_the_last_full_record_on() {
    let store = faulty();
    let log = log(&store);
    assert!(log.recover().await.unwrap().is_none());
    commit(&log, &record(1, 1, true, &["a"])).await;
    commit(&log, &record(1, 2, false, &["b"])).await;
    commit(&log, &record(1, 3, true, &["b", "c"])).await;
    for number in 4..=12 {
        commit(&log, &record(1, number, false, &["d"])).await;
    }
    let reads = store.count(Operation::Get);
    let state = CheckpointLog::new(Arc::clone(&store) as StoreRef, SOURCE).recover().await.unwrap().unwrap();
    assert_eq!((state.number, state.position), (12, json!(12)));
    assert_eq!(state.tables.keys().collect::<Vec<_>>(), ["b", "c", "d"]);
    assert_eq!(state.tables["d"].snapshot.as_ref().unwrap().id, 12);
    assert_eq!(store.count(Operation::Get) - reads, 10, "nothing before the full record is read");
    let recent: Vec<_> = log.list_recent(3).await.unwrap().into_iter().map(|record| record.number).collect();
    assert_eq!(recent, [12, 11, 10]);
}

#[tokio::test]
async fn of_two_writers_one_wins_each_number() {
    let store = faulty();
    let (one, two) = (log(&store), log(&store));
    let mut won = [0, 0];
    for number in 1..=50 {
        let (left, right) = (record(1, number, number == 1, &["a"]), record(2, number, number == 1, &["b"]));
        // Every other time, the one that comes first is held up on its way.
        store.inject(Operation::Create, "checkpoint-", Fault::Delay(Duration::from_millis(1)), number as u32 % 2);
        let outcomes = tokio::join!(one.commit(&left), two.commit(&right));
        let winner = match (outcomes.0.unwrap(), outcomes.1.unwrap()) {
            (CommitOutcome::Committed, CommitOutcome::Conflicted(other)) => {
                assert_eq!(*other, left);
                0
            }
            (CommitOutcome::Conflicted(other), CommitOutcome::Committed) => {
                assert_eq!(*other, right);
                1
            }
            both => panic!("checkpoint {number}: {both:?}"),
        };
        won[winner] += 1;
        assert_eq!(one.read(number).await.unwrap().owner, Uuid::from_u128(winner as u128 + 1));
    }
    assert_eq!(won, [25, 25]);
}

#[tokio::test]
async fn a_lost_answer_is_looked_up() {
    let store = faulty();
    let log = log(&store);
    store.inject(Operation::Create, "checkpoint-", Fault::LoseAnswer, 1);
    commit(&log, &record(1, 1, true, &[])).await;
    // The other writer was first, and the loser's answer is lost on top.
    commit(&log, &record(2, 2, false, &[])).await;
    store.inject(Operation::Create, "checkpoint-", Fault::LoseAnswer, 1);
    let outcome = log.commit(&record(1, 2, false, &[])).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Conflicted(other) if other.owner == Uuid::from_u128(2)));
}

#[tokio::test]
async fn what_cannot_be_found_out_is_said_to_be_unknown() {
    let store = faulty();
    let log = log(&store);
    // Carried out, but neither the answer nor the object can be had.
    store.inject(Operation::Create, "checkpoint-", Fault::LoseAnswer, 1);
    store.inject(Operation::Get, "checkpoint-", Fault::Refuse, 1);
    let error = unknown(&log, &record(1, 1, true, &[])).await;
    assert!(error.to_string().contains(log.path(1).as_ref()));
    // Not carried out, as far as can be seen: it may still be on its way.
    store.inject(Operation::Create, "checkpoint-", Fault::Refuse, 1);
    unknown(&log, &record(1, 2, false, &[])).await;
    // Reading finds out, and committing the same again is fine.
    assert_eq!(log.read(1).await.unwrap().number, 1);
    commit(&log, &record(1, 1, true, &[])).await;
    commit(&log, &record(1, 2, false, &[])).await;
}

#[tokio::test]
async fn a_retrying_store_commits_through_faults() {
    let store = faulty();
    let retrying: StoreRef = Arc::new(Retrying::new(Arc::clone(&store) as StoreRef, quick()));
    let log = CheckpointLog::new(retrying, SOURCE);
    for (number, fault) in (1..).zip([Fault::Refuse, Fault::LoseAnswer, Fault::Hang]) {
        store.inject(Operation::Create, "checkpoint-", fault, 3);
        commit(&log, &record(1, number, true, &[])).await;
    }
    // An answer is lost, and before the create is tried again another writer takes the number.
    commit(&self::log(&store), &record(2, 4, true, &[])).await;
    store.inject(Operation::Create, "checkpoint-", Fault::LoseAnswer, 2);
    assert!(matches!(log.commit(&record(1, 4, true, &[])).await.unwrap(), CommitOutcome::Conflicted(_)));
}

#[tokio::test]
async fn a_full_store_is_said_to_be_full() {
    let store = faulty();
    store.inject(Operation::Create, "checkpoint-", Fault::Full, 1);
    let error = log(&store).commit(&record(1, 1, true, &[])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
}

#[tokio::test]
async fn a_damaged_or_missing_record_is_named() {
    let store = faulty();
    let log = log(&store);
    commit(&log, &record(1, 1, true, &[])).await;
    commit(&log, &record(1, 2, false, &["a"])).await;
    commit(&log, &record(1, 3, false, &["a"])).await;
    store.flip_bit(&log.path(2), 200).await.unwrap();
    let error = log.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(log.path(2).as_ref()), "{error}");
    store.delete(&log.path(2)).await.unwrap();
    let error = log.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("missing"), "{error}");
    // A record under another's name is not taken for it.
    store.copy(&log.path(1), &log.path(2)).await.unwrap();
    assert!(log.recover().await.unwrap_err().to_string().contains("it holds checkpoint 1"));
}

#[tokio::test]
async fn a_record_that_follows_on_nothing_is_refused() {
    let store = faulty();
    let log = log(&store);
    assert_eq!(log.commit(&record(1, 0, true, &[])).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(log.commit(&record(1, 2, true, &[])).await.unwrap_err().kind(), ErrorKind::Invalid);
    commit(&log, &record(1, 1, true, &[])).await;
    assert_eq!(log.commit(&record(1, 3, true, &[])).await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut foreign = record(1, 2, true, &[]);
    foreign.source = Uuid::from_u128(8);
    assert_eq!(log.commit(&foreign).await.unwrap_err().kind(), ErrorKind::Invalid);
    // Without having read anything, a log looks for the record before.
    commit(&self::log(&store), &record(1, 2, true, &[])).await;
}

#[tokio::test]
async fn only_what_nothing_builds_on_expires() {
    let store = faulty();
    let log = log(&store);
    for number in 1..=9 {
        commit(&log, &record(1, number, number % 3 == 1, &["a"])).await;
    }
    // Written at 1000 times the number; 7 is the newest full one.
    assert_eq!(log.expire(3500).await.unwrap(), 3);
    assert_eq!(log.expire(i64::MAX).await.unwrap(), 3);
    assert_eq!(log.expire(i64::MAX).await.unwrap(), 0);
    let numbers: Vec<_> = log.list_recent(99).await.unwrap().into_iter().map(|record| record.number).collect();
    assert_eq!(numbers, [9, 8, 7]);
    assert_eq!(log.recover().await.unwrap().unwrap().number, 9);
}

#[tokio::test]
async fn a_record_whose_number_has_expired_is_not_committed() {
    let store = faulty();
    let (late, log) = (log(&store), log(&store));
    commit(&late, &record(1, 1, true, &["a"])).await;
    commit(&log, &record(1, 1, true, &["a"])).await;
    for number in 2..=9 {
        commit(&log, &record(2, number, number % 3 == 1, &["a"])).await;
    }
    log.expire(i64::MAX).await.unwrap();
    // It went to sleep before the others came.
    match late.commit(&record(1, 2, false, &["b"])).await.unwrap() {
        CommitOutcome::Conflicted(newest) => assert_eq!(newest.number, 9),
        other => panic!("a number was given twice: {other:?}"),
    }
    assert_eq!(log.recover().await.unwrap().unwrap().number, 9);
    assert_eq!(log.expire(i64::MAX).await.unwrap(), 1, "what leads nowhere expires");
    // Nor does the very first one, which has none before it.
    let first = self::log(&store);
    match first.commit(&record(1, 1, true, &["b"])).await.unwrap() {
        CommitOutcome::Conflicted(newest) => assert_eq!(newest.number, 9),
        other => panic!("a number was given twice: {other:?}"),
    }
    assert_eq!(log.recover().await.unwrap().unwrap().number, 9);
    assert_eq!(log.expire(i64::MAX).await.unwrap(), 1);
    let numbers: Vec<_> = log.list_recent(99).await.unwrap().into_iter().map(|record| record.number).collect();
    assert_eq!(numbers, [9, 8, 7]);
    // Whether it counts is not known as long as that cannot be looked for.
    store.inject(Operation::Get, "checkpoint-00000000000000000009", Fault::Refuse, u32::MAX);
    unknown(&log, &record(2, 10, true, &["a"])).await;
    store.heal();
    commit(&log, &record(2, 10, true, &["a"])).await;
}

#[tokio::test]
async fn a_number_that_does_not_exist_is_an_error() {
    let store = faulty();
    let log = log(&store);
    crate::store::write(&*store, &log.path(0), bytes::Bytes::from_static(b"x")).await.unwrap();
    let error = log.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("checkpoint-00000000000000000000"), "{error}");
}

/// Writers that take over from each other, over a store that fails at random: whatever was called committed is there,
/// and each number is one writer's.
#[tokio::test]
async fn what_was_called_committed_is_there_whatever_fails() {
    use rand::{Rng, SeedableRng};
    for seed in 0..20 {
        let store = faulty();
        let writer = |owner: u128| {
            let store = Arc::clone(&store);
            async move {
                let mut random = rand::rngs::StdRng::seed_from_u64(seed * 1000 + owner as u64);
                let retrying: StoreRef = Arc::new(Retrying::new(Arc::clone(&store) as StoreRef, quick()));
                let log = CheckpointLog::new(retrying, SOURCE);
                let mut committed = Vec::new();
                let mut next = None;
                while committed.len() < 15 {
                    let number = match next {
                        Some(number) => number,
                        // A fresh start, as after a conflict or an unknown outcome.
                        None => match log.recover().await {
                            Ok(state) => state.map_or(1, |state| state.number + 1),
                            Err(error) => {
                                assert_ne!(error.kind(), ErrorKind::Corrupt, "{error}");
                                continue;
                            }
                        },
                    };
                    let operation = if random.random_bool(0.7) { Operation::Create } else { Operation::Get };
                    let fault = match random.random_range(0..6) {
                        0 => Fault::Refuse,
                        1 | 2 => Fault::LoseAnswer,
                        3 => Fault::Full,
                        _ => Fault::Delay(Duration::from_micros(random.random_range(0..500))),
                    };
                    store.inject(operation, "checkpoint-", fault, random.random_range(0..7));
                    next = match log.commit(&record(owner, number, number % 8 == 1, &["a"])).await {
                        Ok(CommitOutcome::Committed) => {
                            committed.push(number);
                            Some(number + 1)
                        }
                        Ok(CommitOutcome::Conflicted(other)) => {
                            assert_ne!(other.owner, Uuid::from_u128(owner), "its own record is no conflict");
                            None
                        }
                        Ok(CommitOutcome::Unknown(_)) => None,
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable), "{error}");
                            None
                        }
                    };
                    tokio::task::yield_now().await;
                }
                (owner, committed)
            }
        };
        let writers = tokio::join!(writer(1), writer(2), writer(3));
        store.heal();
        let log = log(&store);
        for (owner, committed) in [writers.0, writers.1, writers.2] {
            for number in committed {
                assert_eq!(
                    log.read(number).await.unwrap().owner,
                    Uuid::from_u128(owner),
                    "seed {seed}, checkpoint {number}"
                );
            }
        }
        let newest = log.recover().await.unwrap().unwrap().number;
        assert!(newest >= 45, "seed {seed}");
        for number in 1..=newest {
            log.read(number).await.unwrap();
        }
    }
}
