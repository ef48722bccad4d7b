use object_store::memory::InMemory;

use super::*;
use crate::ErrorKind;
use crate::clock::ManualClock;
use crate::store::faulty::{Fault, Faulty, Operation};

const SOURCE: Uuid = Uuid::from_u128(7);

struct World {
    store: Arc<Faulty>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        Self { store: Arc::new(Faulty::new(Arc::new(InMemory::new()))), clock: Arc::new(ManualClock::new(1_000_000)) }
    }

    fn store(&self) -> StoreRef {
        Arc::clone(&self.store) as StoreRef
    }

    async fn try_acquire(&self, owner: u128, dead: bool) -> Result<Claim> {
        self.try_watching(owner, dead, &mut LeaseWatch::default()).await
    }

    async fn try_watching(&self, owner: u128, dead: bool, watched: &mut LeaseWatch) -> Result<Claim> {
        let me = Holder {
            owner: Uuid::from_u128(owner),
            host: "host".into(),
            pid: owner as u32,
            process_start: 5,
            address: "127.0.0.1:5432".into(),
            since_ms: 0,
            renewed_at_ms: 0,
        };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Lease::acquire(self.store(), SOURCE, me, clock, &move |_| dead, watched).await
    }

    async fn acquire(&self, owner: u128) -> Lease {
        match self.try_acquire(owner, false).await.unwrap() {
            Claim::Acquired(lease) => lease,
            Claim::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    async fn held(&self, owner: u128) -> Holder {
        match self.try_acquire(owner, false).await.unwrap() {
            Claim::Held(holder) => holder,
            Claim::Acquired(lease) => panic!("acquired {lease:?}"),
        }
    }

    async fn objects(&self) -> Vec<String> {
        let listed: Vec<_> = self.store.list(None).try_collect().await.unwrap();
        listed.iter().map(|object| object.location.filename().unwrap().trim_start_matches('0').to_owned()).collect()
    }
}

#[tokio::test]
async fn a_lease_holds_while_it_is_renewed_and_no_longer() {
    let world = World::new();
    let mut lease = world.acquire(1).await;
    assert_eq!(lease.epoch(), 1);
    for _ in 0..3 {
        world.clock.advance(LEASE_TTL_MS - 1);
        assert!(!lease.may_have_lapsed());
        assert_eq!(world.held(2).await.owner, Uuid::from_u128(1));
        lease.renew().await.unwrap();
    }
    let holder = Lease::current(&world.store(), SOURCE, &*world.clock).await.unwrap().unwrap();
    assert_eq!((holder.since_ms, holder.renewed_at_ms), (1_000_000, world.clock.now_ms()));
    world.clock.advance(LEASE_TTL_MS);
    assert!(lease.may_have_lapsed());
    assert!(Lease::current(&world.store(), SOURCE, &*world.clock).await.unwrap().is_none());
    let second = world.acquire(2).await;
    assert_eq!(second.epoch(), 2);
    let error = lease.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(world.held(1).await.owner, Uuid::from_u128(2));
}

#[tokio::test]
async fn a_released_lease_is_free_at_once() {
    let world = World::new();
    world.acquire(1).await.release().await.unwrap();
    assert!(Lease::current(&world.store(), SOURCE, &*world.clock).await.unwrap().is_none());
    assert_eq!(world.acquire(2).await.epoch(), 2);
}

#[tokio::test]
async fn a_dead_holder_is_replaced_at_once() {
    let world = World::new();
    let lease = world.acquire(1).await;
    let claim = world.try_acquire(2, true).await.unwrap();
    assert!(matches!(claim, Claim::Acquired(lease) if lease.epoch() == 2));
    // What was thought dead gives back only what is its own.
    lease.release().await.unwrap();
    assert_eq!(world.held(3).await.owner, Uuid::from_u128(2));
}

#[tokio::test]
async fn of_many_who_try_one_succeeds() {
    let world = World::new();
    for round in 1..=5 {
        // All have looked who holds the source before the first tries to create the next epoch.
        world.store.inject(Operation::Create, "owner", Fault::Delay(std::time::Duration::from_millis(5)), 8);
        let attempts = futures::future::join_all((1..=8).map(|owner| world.try_acquire(owner, false))).await;
        let epochs: Vec<_> = attempts
            .into_iter()
            .filter_map(|claim| match claim.unwrap() {
                Claim::Acquired(lease) => Some(lease.epoch()),
                Claim::Held(_) => None,
            })
            .collect();
        assert_eq!(epochs, [round]);
        world.clock.advance(LEASE_TTL_MS);
    }
}

#[tokio::test]
async fn an_owner_replaced_long_ago_notices() {
    let world = World::new();
    let mut first = world.acquire(1).await;
    for owner in 2..=5 {
        world.clock.advance(LEASE_TTL_MS);
        world.acquire(owner).await;
    }
    assert_eq!(world.objects().await, ["4", "5"], "epochs long over are deleted");
    assert_eq!(first.renew().await.unwrap_err().kind(), ErrorKind::Conflict);
    first.release().await.unwrap();
    assert_eq!(world.held(1).await.owner, Uuid::from_u128(5));
}

/// An attempt of which one request takes long; meanwhile others take the source, one after the other, and what they
/// replace is forgotten.
async fn an_attempt_is_overtaken(operation: Operation) {
    let world = World::new();
    world.acquire(1).await;
    world.clock.advance(LEASE_TTL_MS);
    world.store.inject(operation, "owner", Fault::Delay(std::time::Duration::from_millis(50)), 1);
    let late = world.try_acquire(9, false);
    let others = async {
        tokio::task::yield_now().await;
        for owner in 2..=4 {
            world.acquire(owner).await;
            world.clock.advance(LEASE_TTL_MS);
        }
        world.clock.advance(-1);
    };
    let (late, ()) = tokio::join!(late, others);
    assert!(matches!(late.unwrap(), Claim::Held(holder) if holder.owner == Uuid::from_u128(4)));
}

#[tokio::test]
async fn an_attempt_that_comes_late_does_not_succeed() {
    // It has read epoch 1, and creates epoch 2 when 2 was deleted.
    an_attempt_is_overtaken(Operation::Create).await;
}

#[tokio::test]
async fn an_epoch_that_is_over_before_it_is_read_is_no_damage() {
    // It has listed epoch 1, and reads it when it was deleted.
    an_attempt_is_overtaken(Operation::Get).await;
}

#[tokio::test]
async fn a_lost_answer_is_looked_up() {
    let world = World::new();
    world.store.inject(Operation::Create, "owner", Fault::LoseAnswer, 1);
    assert_eq!(world.acquire(1).await.epoch(), 1);
}

#[tokio::test]
async fn a_damaged_lease_is_named() {
    let world = World::new();
    world.acquire(1).await;
    let path = epoch_path(&source_directory(SOURCE).join("owner"), 1);
    store::write(&*world.store, &path, "{".into()).await.unwrap();
    let error = world.try_acquire(2, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(path.as_ref()), "{error}");
}

/// A clock that was years ahead, or a digit that was damaged.
#[tokio::test]
async fn a_stamp_from_the_future_holds_a_source_only_while_it_changes() {
    let world = World::new();
    world.clock.advance(1_000_000_000_000);
    let mut lease = world.acquire(1).await;
    world.clock.advance(-1_000_000_000_000);
    let mut watched = LeaseWatch::default();
    for _ in 0..4 {
        assert!(matches!(world.try_watching(2, false, &mut watched).await.unwrap(), Claim::Held(_)));
        world.clock.advance(LEASE_TTL_MS - 1);
        lease.renew().await.unwrap();
    }
    assert!(matches!(world.try_watching(2, false, &mut watched).await.unwrap(), Claim::Held(_)));
    world.clock.advance(LEASE_TTL_MS - 1);
    assert!(matches!(world.try_watching(2, false, &mut watched).await.unwrap(), Claim::Held(_)));
    world.clock.advance(1);
    let Claim::Acquired(second) = world.try_watching(2, false, &mut watched).await.unwrap() else {
        panic!("the source is held for years")
    };
    assert_eq!(second.epoch(), 2);
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Conflict);
}
