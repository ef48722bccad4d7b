//! Runs worlds: some seeds, or as many as fit into a time. Prints what was not as it must be, and how to see it again.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use tidegate_simulation::run::{Outcome, run_shaped};
use tidegate_simulation::shrink::{PARTS, leave_out, shrink};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Runs capture and storage in worlds of one thread, each with a seed")]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, unless there is a time.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Seconds after which no further world begins.
    #[arg(long)]
    seconds: Option<u64>,
    /// Worlds at a time; unset means one for each processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print everything that happens.
    #[arg(long)]
    trace: bool,
    /// Run each world twice and compare what happened.
    #[arg(long)]
    twice: bool,
    /// Go on after a world in which something was not as it must be.
    #[arg(long)]
    keep_going: bool,
    /// What worlds are without: crashes, storms, hosts and so on, separated by commas.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Leave out of a world in which something was not as it must be whatever can be left out, looking at so many seeds
    /// for each part.
    #[arg(long, value_name = "SEEDS")]
    shrink: Option<u64>,
}

impl Arguments {
    fn run(&self, seed: u64, aloud: bool) -> Outcome {
        run_shaped(seed, aloud, |scenario| leave_out(scenario, &self.without).unwrap_or_default())
    }

    /// The command for one of the worlds.
    fn command(&self, seed: u64, without: &[String]) -> String {
        let without = if without.is_empty() { String::new() } else { format!(" --without {}", without.join(",")) };
        format!("cargo run -p tidegate-simulation --bin simulate -- --seed {seed}{without} --trace")
    }
}

#[derive(Default)]
struct Sum {
    worlds: u64,
    steps: u64,
    checkpoints: u64,
    compared: u64,
    transactions: u64,
    crashes: u64,
    followed: u64,
    damaged: u64,
    named: u64,
    simulated: Duration,
    digest: u64,
    failed: Vec<Outcome>,
}

#[allow(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    if let Some(unknown) = arguments.without.iter().find(|name| !PARTS.iter().any(|(part, _)| part == name)) {
        let parts: Vec<&str> = PARTS.iter().map(|(part, _)| *part).collect();
        println!("a world has no part {unknown}; it has {}", parts.join(", "));
        return ExitCode::FAILURE;
    }
    let began = Instant::now();
    let next = AtomicU64::new(arguments.seed);
    let failed = AtomicBool::new(false);
    let sum = Mutex::new(Sum::default());
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = match arguments.seconds {
                        Some(seconds) => began.elapsed() >= Duration::from_secs(seconds),
                        None => seed - arguments.seed >= arguments.seeds,
                    };
                    if is_over || failed.load(Ordering::Relaxed) && !arguments.keep_going {
                        return;
                    }
                    let mut outcome = arguments.run(seed, arguments.trace);
                    if arguments.twice && outcome.violation.is_none() {
                        let again = arguments.run(seed, false);
                        if again.digest != outcome.digest {
                            outcome.violation = Some("the same seed gave another world".to_owned());
                        }
                    }
                    failed.fetch_or(outcome.violation.is_some(), Ordering::Relaxed);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.worlds += 1;
                    sum.steps += outcome.steps;
                    sum.checkpoints += outcome.checkpoints;
                    sum.compared += outcome.compared;
                    sum.transactions += outcome.transactions as u64;
                    sum.crashes += outcome.crashes;
                    sum.followed += outcome.followed;
                    sum.damaged += u64::from(outcome.damaged);
                    sum.named += u64::from(outcome.damage_named);
                    sum.simulated += outcome.simulated;
                    // Whatever the order in which the worlds end.
                    sum.digest ^= outcome.digest.wrapping_mul(outcome.seed | 1);
                    if let Some(violation) = &outcome.violation {
                        println!("seed {seed}: {violation}");
                        sum.failed.push(outcome);
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} worlds, {} checkpoints, {} tables compared, {} changelogs followed, {} transactions, {} processes ended at \
         once, {} objects damaged of which {} were met and named; {:.0} s simulated in {seconds:.1} s, {:.0} steps/s; \
         digest {:016x}",
        sum.worlds,
        sum.checkpoints,
        sum.compared,
        sum.followed,
        sum.transactions,
        sum.crashes,
        sum.damaged,
        sum.named,
        sum.simulated.as_secs_f64(),
        sum.steps as f64 / seconds,
        sum.digest,
    );
    let Some(first) = sum.failed.into_iter().min_by_key(|outcome| outcome.steps) else { return ExitCode::SUCCESS };
    if !arguments.trace {
        for line in &first.last_lines {
            println!("{line}");
        }
    }
    println!("to see it again: {}", arguments.command(first.seed, &arguments.without));
    if let Some(tries) = arguments.shrink {
        let (without, smallest) = shrink(first, &arguments.without, tries, |step| println!("{step}"));
        println!("{}", smallest.violation.unwrap_or_default());
        println!("in a smaller world: {}", arguments.command(smallest.seed, &without));
    }
    ExitCode::FAILURE
}
