//! Smaller worlds in which the same is found: what a world has is left out, one thing at a time, as long as something is
//! still not as it must be.

use std::time::Duration;

use crate::run::{Outcome, run_shaped};
use crate::scenario::Scenario;

type LeaveOut = fn(&mut Scenario);

/// What can be left out of a world, by name.
pub const PARTS: [(&str, LeaveOut); 26] = [
    ("crashes", |scenario| scenario.crashes_every = Duration::ZERO),
    ("freezes", |scenario| {
        scenario.freezes_every = Duration::ZERO;
        scenario.freezes_first = false;
    }),
    ("stops", |scenario| scenario.stops_every = Duration::ZERO),
    ("failovers", |scenario| {
        scenario.failovers_every = Duration::ZERO;
        scenario.failover_after = Duration::ZERO;
    }),
    ("beginning", |scenario| scenario.begins_after = Duration::ZERO),
    ("restarts", |scenario| scenario.restarts_every = Duration::ZERO),
    ("drops", |scenario| scenario.drops_every = Duration::ZERO),
    ("purges", |scenario| scenario.purges_every = Duration::ZERO),
    ("rotates", |scenario| scenario.rotates_every = Duration::ZERO),
    ("schema-changes", |scenario| scenario.schema_changes_every = Duration::ZERO),
    ("storms", |scenario| scenario.storms = 0.0),
    ("compactions", |scenario| scenario.compactions_every = Duration::ZERO),
    ("resyncs", |scenario| scenario.resyncs_every = Duration::ZERO),
    ("holders", |scenario| scenario.holders_every = Duration::ZERO),
    ("damage", |scenario| scenario.damage_after = Duration::ZERO),
    ("hosts", |scenario| scenario.hosts = 1),
    ("tables", |scenario| scenario.tables = 1),
    ("undone", |scenario| scenario.undone = 0.0),
    ("prepared", |scenario| scenario.prepared = 0),
    ("xa", |scenario| scenario.xa_every = Duration::ZERO),
    ("changelog", |scenario| scenario.options.changelog = false),
    ("disorder", |scenario| scenario.variant.unordered = false),
    ("lag", |scenario| {
        scenario.longest_lag = Duration::from_millis(1);
        scenario.stream_lag = Duration::from_millis(1);
        scenario.page_lag = Duration::ZERO;
    }),
    ("short-memory", |scenario| scenario.options.memory_bytes = 4 << 20),
    ("keys", |scenario| scenario.keys = scenario.keys.min(12)),
    ("parallelism", |scenario| scenario.options.snapshot_parallelism = 1),
];

/// Leaves parts out.
///
/// # Errors
/// The name of a part that there is not.
pub fn leave_out(scenario: &mut Scenario, names: &[String]) -> Result<(), String> {
    for name in names {
        let (_, leave_out) =
            PARTS.iter().find(|(part, _)| part == name).ok_or_else(|| format!("a world has no part {name}"))?;
        leave_out(scenario);
    }
    Ok(())
}

/// A world in which something is not as it must be, as small as it was found: what was left out, and what came of it.
/// Without a part the same seed gives another course of things, so that `tries` seeds from it on are looked at each time.
/// `report` is told of each step.
pub fn shrink(
    outcome: Outcome,
    without: &[String],
    tries: u64,
    mut report: impl FnMut(&str),
) -> (Vec<String>, Outcome) {
    let (mut smallest, mut left_out) = (outcome, without.to_vec());
    loop {
        let before = left_out.len();
        for (part, _) in PARTS {
            if left_out.iter().any(|name| name == part) {
                continue;
            }
            let names: Vec<String> = left_out.iter().cloned().chain([part.to_owned()]).collect();
            let found = (smallest.seed..smallest.seed + tries).find_map(|seed| {
                let outcome = run_shaped(seed, false, |scenario| leave_out(scenario, &names).unwrap_or_default());
                outcome.violation.is_some().then_some(outcome)
            });
            match found {
                Some(outcome) => {
                    report(&format!("without {part}: seed {} still fails", outcome.seed));
                    (smallest, left_out) = (outcome, names);
                }
                None => report(&format!("without {part}: nothing in {tries} worlds")),
            }
        }
        if left_out.len() == before {
            return (left_out, smallest);
        }
    }
}
