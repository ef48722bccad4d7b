//! The world: one time, one source of chance, and what happens in it, in order.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_storage::clock::Clock;

/// The time of day at which every world begins, in milliseconds since 1970.
const BEGINNING_MS: i64 = 1_800_000_000_000;
/// Lines of the trace that are kept.
const KEPT_LINES: usize = 400;

type Action = Box<dyn FnOnce() + Send>;

/// A world. Clones are the same one.
#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

struct Inner {
    now: Duration,
    random: StdRng,
    /// What happens, by time and then by the order in which it was arranged.
    arranged: BTreeMap<(Duration, u64), Action>,
    arrangements: u64,
    trace: Trace,
    violation: Option<String>,
    /// What is excused if this is named, and whether that has been.
    excuse: Option<String>,
    excused: bool,
}

impl World {
    /// The world of a seed. `aloud` prints what happens.
    pub fn new(seed: u64, aloud: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: Duration::ZERO,
            random: StdRng::seed_from_u64(seed),
            arranged: BTreeMap::new(),
            arrangements: 0,
            trace: Trace { digest: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), count: 0, aloud },
            violation: None,
            excuse: None,
            excused: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// Draws by chance.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.lock().random)
    }

    /// Whether something of this probability comes true.
    pub fn chance(&self, probability: f64) -> bool {
        self.draw(|random| random.random_bool(probability.clamp(0.0, 1.0)))
    }

    /// A time between two.
    pub fn between(&self, low: Duration, high: Duration) -> Duration {
        self.draw(|random| random.random_range(low..=high.max(low)))
    }

    /// A number below another.
    pub fn below(&self, end: u64) -> u64 {
        self.draw(|random| random.random_range(0..end.max(1)))
    }

    /// Lets something happen after a while.
    pub fn after(&self, pause: Duration, action: impl FnOnce() + Send + 'static) {
        let mut inner = self.lock();
        inner.arrangements += 1;
        let key = (inner.now + pause, inner.arrangements);
        inner.arranged.insert(key, Box::new(action));
    }

    /// Lets time pass up to `until`, and everything happen that was arranged for it.
    pub fn advance(&self, until: Duration) {
        loop {
            let mut inner = self.lock();
            let next = inner.arranged.first_entry().filter(|entry| entry.key().0 <= until);
            let Some(next) = next else {
                inner.now = inner.now.max(until);
                return;
            };
            let ((at, _), action) = next.remove_entry();
            inner.now = inner.now.max(at);
            drop(inner);
            action();
        }
    }

    /// Nothing that was arranged happens any more. What is arranged holds the world: without this it would never go.
    pub fn end(&self) {
        let arranged = std::mem::take(&mut self.lock().arranged);
        drop(arranged);
    }

    /// Notes what happens; equal worlds note the same.
    pub fn note(&self, line: fmt::Arguments<'_>) {
        let mut inner = self.lock();
        let now = inner.now;
        inner.trace.note(now, line);
    }

    /// Notes that something is not as it must be. The first such thing ends the run.
    pub fn violate(&self, what: impl Into<String>) {
        let what = what.into();
        let mut inner = self.lock();
        if inner.excuse.as_ref().is_some_and(|name| what.contains(name)) {
            inner.excused = true;
            drop(inner);
            self.note(format_args!("excused: {what}"));
        } else {
            drop(inner);
            self.violate_in_any_case(what);
        }
    }

    /// Notes that something is not as it must be, whatever it names.
    pub fn violate_in_any_case(&self, what: String) {
        self.note(format_args!("VIOLATION: {what}"));
        self.lock().violation.get_or_insert(what);
    }

    /// From now on it is right that something ends with an error, if the error names this.
    pub fn excuse(&self, name: &str) {
        self.lock().excuse = Some(name.to_owned());
    }

    /// Whether something has ended with such an error.
    pub fn is_excused(&self) -> bool {
        self.lock().excused
    }

    /// What is not as it must be.
    pub fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// A digest of all that happened.
    pub fn digest(&self) -> u64 {
        self.lock().trace.digest
    }

    /// How many lines were noted.
    pub fn steps(&self) -> u64 {
        self.lock().trace.count
    }

    /// The last things that happened.
    pub fn last_lines(&self) -> Vec<String> {
        self.lock().trace.lines.iter().cloned().collect()
    }

    /// A clock of this world that is `ahead_ms` ahead of the right time.
    pub fn clock(&self, ahead_ms: i64) -> Arc<dyn Clock> {
        Arc::new(WorldClock { world: self.clone(), ahead_ms })
    }

    /// The right time of day, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        BEGINNING_MS + i64::try_from(self.now().as_millis()).unwrap_or(i64::MAX)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Notes in the trace, as `println!` prints.
#[macro_export]
macro_rules! note {
    ($world:expr, $($text:tt)*) => { $world.note(format_args!($($text)*)) };
}

struct Trace {
    digest: u64,
    lines: VecDeque<String>,
    count: u64,
    aloud: bool,
}

impl Trace {
    fn note(&mut self, now: Duration, line: fmt::Arguments<'_>) {
        let line = format!("{:>10.3} {line}", now.as_secs_f64() * 1000.0);
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.count += 1;
        if self.aloud {
            #[allow(clippy::print_stdout, reason = "it was asked for")]
            {
                println!("{line}");
            }
        }
        if self.lines.len() >= KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

#[derive(Debug)]
struct WorldClock {
    world: World,
    ahead_ms: i64,
}

impl Clock for WorldClock {
    fn now_ms(&self) -> i64 {
        self.world.now_ms() + self.ahead_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_their_times_and_then_of_their_arrangement() {
        let world = World::new(1, false);
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (after, name) in [(20, "c"), (10, "a"), (10, "b"), (30, "late")] {
            let seen = Arc::clone(&seen);
            world.after(Duration::from_millis(after), move || seen.lock().unwrap().push(name));
        }
        world.advance(Duration::from_millis(25));
        assert_eq!(*seen.lock().unwrap(), ["a", "b", "c"]);
        assert_eq!(world.now(), Duration::from_millis(25));
    }

    #[test]
    fn a_world_that_has_ended_goes() {
        let world = World::new(1, false);
        let held = Arc::new(());
        let (inside, in_it) = (world.clone(), Arc::clone(&held));
        world.after(Duration::from_secs(3600), move || drop((inside, in_it)));
        world.end();
        assert_eq!((Arc::strong_count(&held), Arc::strong_count(&world.0)), (1, 1));
    }

    #[test]
    fn a_seed_tells_what_chance_brings() {
        let draws = |seed| (0..5).map(|_| World::new(seed, false).below(1000)).collect::<Vec<_>>();
        assert_eq!(draws(3), draws(3));
        assert_ne!(World::new(3, false).below(1 << 40), World::new(4, false).below(1 << 40));
    }
}
