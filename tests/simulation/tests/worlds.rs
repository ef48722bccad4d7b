//! Worlds that are always looked at: the first seeds, some fresh ones, and those in which something was found once.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_simulation::run::{Outcome, run};

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
