//! Worlds that are always looked at: the first seeds, some fresh ones, and those in which something was found once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_cdc::mysql::Flavor;
use tidegate_simulation::mysql::engine::Variant;
use tidegate_simulation::run::{Outcome, run, run_shaped};
use tidegate_simulation::scenario::Scenario;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn check(outcome: &Outcome) {
    if let Some(violation) = &outcome.violation {
        let lines = outcome.last_lines.join("\n");
        panic!(
            "{lines}\nseed {}: {violation}\nto see it again: cargo run -p tidegate-simulation --bin simulate -- --seed {} --trace",
            outcome.seed, outcome.seed
        );
    }
}

#[test]
fn the_first_worlds_are_as_they_must_be() {
    let outcomes: Vec<Outcome> = (1..=60).map(|seed| run(seed, false)).collect();
    outcomes.iter().for_each(check);
    // They are worlds in which something happens.
    assert!(outcomes.iter().map(|outcome| outcome.checkpoints).sum::<u64>() > 500);
    assert!(outcomes.iter().map(|outcome| outcome.crashes).sum::<u64>() > 20);
}

#[test]
fn fresh_worlds_are_as_they_must_be() {
    #[allow(clippy::disallowed_methods, reason = "each run looks at other worlds; a failing one says which")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for seed in 0..60 {
        check(&run((now << 16) + seed, false));
    }
}

#[test]
fn equal_seeds_give_equal_worlds() {
    for seed in 1000..1012 {
        assert_eq!(run(seed, false).digest, run(seed, false).digest, "seed {seed}");
    }
}

/// Some worlds of a kind in which something was found once.
fn look_at(seeds: std::ops::Range<u64>, shape: impl Fn(&mut Scenario)) {
    for seed in seeds {
        check(&run_shaped(seed, false, &shape));
    }
}

/// A source that begins while an XA transaction is being committed: MariaDB's position is behind it, a SELECT does not see
/// it, and the stream will not tell of it.
#[test]
fn a_source_begins_while_an_xa_transaction_is_committed() {
    look_at(2000..2040, |scenario| {
        scenario.variant = Variant { flavor: Flavor::MariaDb, gtid: true, unordered: false };
        scenario.prepared = 2;
        scenario.hosts = 1;
        scenario.longest_lag = Duration::from_secs(2);
        scenario.crashes_every = Duration::from_millis(400);
        scenario.lasts = Duration::from_secs(6);
    });
}

/// Servers on standby read what the one that captures deletes.
#[test]
fn servers_on_standby_follow_one_that_expires_quickly() {
    look_at(3000..3040, |scenario| {
        scenario.hosts = 3;
        scenario.crashes_every = Duration::ZERO;
        scenario.options.snapshot_time_retained = Duration::from_millis(500);
        scenario.options.snapshot_num_retained_min = 1;
        scenario.options.checkpoint_interval = Duration::from_millis(60);
        scenario.lasts = Duration::from_secs(8);
    });
}

/// Sessions end and begin again while readers go on in the same process.
#[test]
fn readers_outlive_sessions() {
    look_at(4000..4040, |scenario| {
        scenario.hosts = 1;
        scenario.crashes_every = Duration::ZERO;
        scenario.stops_every = Duration::ZERO;
        scenario.drops_every = Duration::from_millis(900);
        scenario.options.snapshot_time_retained = Duration::from_millis(500);
        scenario.options.snapshot_num_retained_min = 1;
        scenario.lasts = Duration::from_secs(10);
    });
}

/// Requests that are never answered hold nothing up for good.
#[test]
fn requests_that_are_never_answered() {
    look_at(5000..5040, |scenario| {
        scenario.storms = 1.0;
        scenario.lasts = Duration::from_secs(5);
    });
}

/// An object is damaged, and processes begin anew: a published snapshot that was cut short was taken for another writer's.
#[test]
fn damaged_objects_are_named() {
    let mut named = 0;
    for seed in 6000..6060 {
        let outcome = run_shaped(seed, false, |scenario| {
            scenario.damage_after = Duration::from_secs(1);
            scenario.crashes_every = Duration::from_secs(1);
            scenario.lasts = Duration::from_secs(6);
        });
        check(&outcome);
        named += u64::from(outcome.damage_named);
    }
    assert!(named > 10, "somebody reads what was damaged");
}

/// Replicas take over, some before they have everything and many while tables are read, and logs are deleted up to what was
/// captured. Pages that came from the new server went with the log of the old one once.
#[test]
fn another_server_takes_over() {
    for flavor in [Flavor::Mysql, Flavor::MariaDb] {
        look_at(7000..7030, |scenario| {
            scenario.variant = Variant { flavor, gtid: true, unordered: false };
            scenario.prepared = 0;
            scenario.xa_every = Duration::ZERO;
            scenario.failovers_every = Duration::from_millis(700);
            scenario.keys = 300;
            scenario.options.page_rows = 4;
            scenario.options.range_rows = 30;
            scenario.purges_every = Duration::from_millis(500);
            scenario.rotates_every = Duration::from_millis(500);
            scenario.lasts = Duration::from_secs(8);
        });
    }
}

/// What is undone and logged all the same does not count, whatever happens around it.
#[test]
fn transactions_that_undo_a_part() {
    look_at(8000..8030, |scenario| {
        scenario.undone = 0.5;
        scenario.lasts = Duration::from_secs(6);
    });
}

/// The server is a replica that catches up with schema changes while definitions are read under locks.
#[test]
fn a_replica_catches_up_while_a_source_begins() {
    look_at(8200..8260, |scenario| {
        scenario.variant = Variant { flavor: Flavor::MariaDb, gtid: true, unordered: false };
        scenario.begins_after = Duration::from_millis(600);
        scenario.failover_after = Duration::from_millis(100);
        scenario.schema_changes_every = Duration::from_millis(100);
        scenario.lasts = Duration::from_secs(4);
    });
}

/// A transaction that is undone is so large that part of it was written before.
#[test]
fn transactions_that_are_undone_when_they_are_written() {
    look_at(8100..8140, |scenario| {
        scenario.undone = 0.5;
        scenario.options.memory_bytes = 16 << 10;
        scenario.tables = 3;
        scenario.lasts = Duration::from_secs(6);
    });
}

/// Processes stand still between listing the leases and reading the newest one, which is over and forgotten then.
#[test]
fn leases_change_while_processes_stand_still() {
    look_at(9000..9040, |scenario| {
        scenario.hosts = 3;
        scenario.freezes_every = Duration::from_millis(600);
        scenario.crashes_every = Duration::from_millis(400);
        scenario.damage_after = Duration::ZERO;
        scenario.lasts = Duration::from_secs(10);
    });
}

/// Requests to create snapshots arrive when these have expired: nothing of such a table expired any more once.
#[test]
fn snapshots_that_come_late_do_not_stop_expiry() {
    look_at(10_000..10_040, |scenario| {
        scenario.storms = 1.0;
        scenario.options.snapshot_time_retained = Duration::from_millis(300);
        scenario.options.snapshot_num_retained_min = 1;
        scenario.options.checkpoint_interval = Duration::from_millis(60);
        scenario.damage_after = Duration::ZERO;
        scenario.lasts = Duration::from_secs(10);
    });
}

/// A source begins while schema changes become visible before transactions that are in the log before them: the stream told of
/// a column once that the definition had already.
#[test]
fn schema_changes_are_visible_before_what_is_before_them() {
    look_at(11_000..11_060, |scenario| {
        scenario.variant = Variant { flavor: Flavor::Mysql, gtid: true, unordered: true };
        scenario.hosts = 1;
        scenario.prepared = 0;
        scenario.longest_lag = Duration::from_secs(2);
        scenario.writes_every = Duration::from_millis(12);
        scenario.schema_changes_every = Duration::from_millis(60);
        scenario.damage_after = Duration::ZERO;
        scenario.lasts = Duration::from_secs(2);
    });
}

/// Records of checkpoints arrive after their senders have ended, and the log is deleted up to them at once: a session that had
/// recovered before them ended for good once.
#[test]
fn checkpoints_that_come_late_count() {
    look_at(12_000..12_040, |scenario| {
        scenario.hosts = 1;
        scenario.storms = 1.0;
        scenario.crashes_every = Duration::from_millis(500);
        scenario.rotates_every = Duration::from_millis(100);
        scenario.purges_every = Duration::from_millis(20);
        scenario.damage_after = Duration::ZERO;
        scenario.lasts = Duration::from_secs(6);
    });
}

/// A process stands still in the midst of its work, another one takes the source over and deletes what has become old: when the
/// first one moves again, it does not find what it reads. It failed for good once.
#[test]
fn what_another_server_has_expired_is_not_damage() {
    look_at(13_000..13_040, |scenario| {
        scenario.hosts = 2;
        scenario.freezes_every = Duration::from_millis(1500);
        scenario.crashes_every = Duration::ZERO;
        scenario.stops_every = Duration::ZERO;
        scenario.compactions_every = Duration::from_millis(150);
        scenario.resyncs_every = Duration::from_millis(2000);
        scenario.damage_after = Duration::ZERO;
        scenario.options.snapshot_time_retained = Duration::from_millis(500);
        scenario.options.snapshot_num_retained_min = 1;
        scenario.writes_every = Duration::from_millis(10);
        scenario.lasts = Duration::from_secs(12);
    });
}
