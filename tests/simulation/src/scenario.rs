//! What a world is like: drawn from its seed, so that some are calm and some are not.

use std::time::Duration;

use rand::Rng;
use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::source::definition::CaptureOptions;
use tidegate_storage::table::TableOptions;

use crate::mysql::engine::Variant;
use crate::store::Conditions;
use crate::world::World;

/// What a world is like. A time of zero between events of a kind means that there are none.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// When capture begins.
    pub begins_after: Duration,
    /// The server.
    pub variant: Variant,
    /// Tables beside the two banks.
    pub tables: u64,
    /// Keys are below this number.
    pub keys: u64,
    /// XA transactions that were prepared before capture begins.
    pub prepared: u64,
    /// Machines that want the source.
    pub hosts: usize,
    /// How the source is captured.
    pub options: CaptureOptions,
    /// How its tables are laid out.
    pub layout: TableOptions,
    /// How long things happen.
    pub lasts: Duration,
    /// How likely the way to the store is a slow one when it is bad.
    pub slow: f64,
    /// How bad the way to the store is at its worst, from 0 to 1.
    pub storms: f64,
    /// The longest time that a transaction is in the log and not visible.
    pub longest_lag: Duration,
    /// The longest time that an event is on its way from the server.
    pub stream_lag: Duration,
    /// The longest time that a page waits to be read, and then to be sent.
    pub page_lag: Duration,
    /// How many of the transactions do something at their end and undo it.
    pub undone: f64,
    /// The mean times between events.
    pub writes_every: Duration,
    /// XA transactions that are prepared, and end later.
    pub xa_every: Duration,
    /// Schema changes.
    pub schema_changes_every: Duration,
    /// New files of the log.
    pub rotates_every: Duration,
    /// Lost connections.
    pub drops_every: Duration,
    /// Restarts of the server.
    pub restarts_every: Duration,
    /// Other servers in the place of the server.
    pub failovers_every: Duration,
    /// When there is another server for the first time, so soon that tables are still being read.
    pub failover_after: Duration,
    /// Deletions of files of the log.
    pub purges_every: Duration,
    /// Processes that end at once.
    pub crashes_every: Duration,
    /// Processes that stand still for longer than a lease lasts.
    pub freezes_every: Duration,
    /// Each process stands still when it is about to write its first checkpoint of rows, and when it takes over what others
    /// have written.
    pub freezes_first: bool,
    /// Jobs that are told to stop.
    pub stops_every: Duration,
    /// Tables that somebody wants merged.
    pub compactions_every: Duration,
    /// Tables that somebody wants read again.
    pub resyncs_every: Duration,
    /// Tags and consumers.
    pub holders_every: Duration,
    /// When an object in the store is damaged.
    pub damage_after: Duration,
}

impl Scenario {
    /// Draws what a world is like.
    pub fn draw(world: &World) -> Self {
        let variants = [
            Variant { flavor: Flavor::Mysql, gtid: true, unordered: world.chance(0.5) },
            Variant { flavor: Flavor::MariaDb, gtid: true, unordered: false },
            Variant { flavor: Flavor::Mysql, gtid: false, unordered: false },
        ];
        let ms = |low: u64, high: u64| world.between(Duration::from_millis(low), Duration::from_millis(high));
        let sometimes = |probability: f64, low: u64, high: u64| {
            if world.chance(probability) { ms(low, high) } else { Duration::ZERO }
        };
        // A server may be replaced while tables are read for the first time.
        let replaced = world.chance(0.1);
        let hosts = if world.chance(0.3) { 2 + usize::from(world.chance(0.2)) } else { 1 };
        // Several servers may fight for the source over a slow way to a store that keeps little of what is old.
        let fought_over = hosts > 1 && world.chance(0.3);
        // Little memory, and pages that take much of it.
        let short = world.chance(0.2);
        let packed = short && world.chance(0.5);
        let keys = if packed { 300 } else { [12, 60, 300][world.below(3) as usize] };
        Self {
            begins_after: if replaced { ms(300, 2000) } else { sometimes(0.25, 300, 3000) },
            variant: variants[world.below(3) as usize],
            tables: if packed { 3 } else { 1 + world.below(3) },
            keys,
            prepared: if world.chance(0.15) { 1 + world.below(2) } else { 0 },
            hosts,
            options: CaptureOptions {
                checkpoint_interval: ms(60, 400),
                snapshot_parallelism: if packed { 3 } else { 1 + world.below(3) as usize },
                page_rows: if packed { 150 } else { 2 + world.below(keys) as usize },
                range_rows: if packed { 100 } else { 3 + world.below(keys) },
                memory_bytes: match (packed, short) {
                    (true, _) => 16 << world.below(2) << 10,
                    (false, true) => 32 << world.below(4) << 10,
                    (false, false) => 4 << 20,
                },
                buckets: world.chance(0.7).then(|| 1 + world.below(3) as u32),
                changelog: world.chance(0.2),
                snapshot_time_retained: if fought_over { ms(500, 1000) } else { ms(500, 8000) },
                snapshot_num_retained_min: if fought_over { 1 } else { 1 + world.below(4) as usize },
                ..CaptureOptions::default()
            },
            layout: TableOptions {
                rows_per_file: 4 + world.below(100) as usize,
                inline_merge_rows: world.below(60),
                dead_share: world.draw(|random| random.random_range(0.1..0.6)),
                ..TableOptions::default()
            },
            lasts: if fought_over { ms(16_000, 30_000) } else { ms(4000, 16_000) },
            slow: if fought_over { 0.6 } else { 0.2 },
            storms: if fought_over || world.chance(0.6) { world.draw(|random| random.random::<f64>()) } else { 0.0 },
            longest_lag: if world.chance(0.25) { ms(400, 3000) } else { ms(1, 400) },
            page_lag: if replaced || world.chance(if fought_over { 0.6 } else { 0.3 }) {
                ms(10, 500)
            } else {
                Duration::ZERO
            },
            // Pages wait for the log that is on its way.
            stream_lag: if packed || world.chance(0.3) { ms(5, 400) } else { Duration::from_millis(4) },
            undone: if world.chance(0.5) { 0.08 } else { 0.0 },
            writes_every: if fought_over { ms(10, 40) } else { ms(8, 80) },
            xa_every: sometimes(0.2, 200, 3000),
            schema_changes_every: sometimes(0.4, 800, 5000),
            rotates_every: sometimes(0.5, 500, 5000),
            drops_every: sometimes(0.3, 1500, 8000),
            restarts_every: sometimes(0.2, 3000, 10_000),
            failovers_every: sometimes(0.15, 2000, 8000),
            failover_after: if replaced { ms(20, 500) } else { Duration::ZERO },
            purges_every: sometimes(0.4, 500, 3000),
            crashes_every: sometimes(if fought_over { 0.2 } else { 0.6 }, 700, 6000),
            freezes_every: match (fought_over, hosts) {
                (true, _) => ms(1500, 4000),
                (false, 1) => sometimes(0.1, 1500, 8000),
                (false, _) => sometimes(0.5, 1500, 8000),
            },
            freezes_first: fought_over && world.chance(0.4),
            stops_every: sometimes(0.2, 2000, 8000),
            compactions_every: if fought_over { ms(100, 400) } else { sometimes(0.3, 300, 3000) },
            resyncs_every: sometimes(0.15, 700, 6000),
            holders_every: sometimes(0.3, 200, 2000),
            // A store that is damaged explains too much of what could be seen there.
            damage_after: sometimes(if fought_over { 0.0 } else { 0.2 }, 300, 10_000),
        }
    }

    /// Other options than those that a source has, of the kind that may change.
    pub fn redraw(&self, world: &World, options: &mut CaptureOptions) {
        let ms = |low: u64, high: u64| world.between(Duration::from_millis(low), Duration::from_millis(high));
        options.checkpoint_interval = ms(60, 400);
        options.snapshot_parallelism = 1 + world.below(3) as usize;
        options.page_rows = 2 + world.below(self.keys) as usize;
        options.range_rows = 3 + world.below(self.keys);
        options.snapshot_time_retained = ms(500, 8000);
        options.snapshot_num_retained_min = 1 + world.below(4) as usize;
    }

    /// How the way to the store is for a while.
    pub fn weather(&self, world: &World) -> Conditions {
        let mut conditions = Conditions {
            slowest: world.between(Duration::from_millis(1), Duration::from_millis(30)),
            ..Conditions::default()
        };
        if self.storms == 0.0 || world.chance(0.5) {
            return conditions;
        }
        let bad = || world.draw(|random| random.random::<f64>()) * self.storms * 0.08;
        conditions.refused = bad();
        conditions.answer_lost = bad();
        conditions.silent = bad() * 0.1;
        conditions.late = bad() * 0.5;
        conditions.twice = bad();
        conditions.full = world.chance(self.storms * 0.05);
        conditions.cut_off = world.chance(self.storms * 0.08);
        if world.chance(self.storms * 0.3) {
            conditions.sour = Some(["/checkpoint/", "/snapshot/", "/owner/", "/manifest/"][world.below(4) as usize]);
        }
        if world.chance(self.slow) {
            conditions.slowest = world.between(Duration::from_millis(30), Duration::from_millis(800));
        }
        conditions
    }
}
