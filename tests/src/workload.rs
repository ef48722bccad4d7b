//! Random writers: tables with each kind of key, changed in transactions over several of them, and a bank whose total never changes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use mysql_async::{Conn, prelude::Queryable};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::servers::{Kind, Server};

/// The database that the writers use.
pub const DATABASE: &str = "mix";

/// A table of the workload: its key's declaration and how the n-th key is written in SQL.
#[derive(Debug, Clone, Copy)]
pub struct KeyedTable {
    pub name: &'static str,
    key_columns: &'static str,
    key_names: &'static [&'static str],
    literal: fn(u32) -> Vec<String>,
}

/// A table for each kind of key.
pub const TABLES: &[KeyedTable] = &[
    KeyedTable {
        name: "k_int",
        key_columns: "id INT NOT NULL",
        key_names: &["id"],
        literal: |n| vec![(i64::from(n) - 500).to_string()],
    },
    KeyedTable {
        name: "k_auto",
        key_columns: "id BIGINT NOT NULL AUTO_INCREMENT",
        key_names: &["id"],
        literal: |n| vec![(u64::from(n) * 1_000_003 + 1).to_string()],
    },
    // Half of the keys are beyond the signed range.
    KeyedTable {
        name: "k_ubig",
        key_columns: "id BIGINT UNSIGNED NOT NULL",
        key_names: &["id"],
        literal: |n| vec![(u64::MAX / 2 - 300 + u64::from(n)).to_string()],
    },
    KeyedTable {
        name: "k_composite",
        key_columns: "part SMALLINT NOT NULL, label VARCHAR(20) COLLATE utf8mb4_unicode_ci NOT NULL, day DATE NOT NULL",
        key_names: &["part", "label", "day"],
        literal: |n| vec![(n % 3).to_string(), format!("'Ключ {}'", n % 50), format!("'2024-02-{:02}'", n % 29 + 1)],
    },
    // Keys whose case differs from one statement to the next are the same key to MySQL, with other bytes.
    KeyedTable {
        name: "k_ci",
        key_columns: "id VARCHAR(40) COLLATE utf8mb4_general_ci NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("'{}{}'", if n % 7 == 0 { "KEY ß " } else { "key ß " }, n / 2)],
    },
    KeyedTable {
        name: "k_binary",
        key_columns: "id BINARY(6) NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("x'{:04x}00'", n * 41 % 65_536)],
    },
    KeyedTable {
        name: "k_varbinary",
        key_columns: "id VARBINARY(16) NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("x'{:02x}{}'", n % 256, "ff".repeat((n % 7) as usize))],
    },
    KeyedTable {
        name: "k_decimal",
        key_columns: "id DECIMAL(20,4) NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("{}{}.{:04}", if n % 2 == 0 { "-" } else { "" }, n, n * 7 % 10_000)],
    },
    KeyedTable {
        name: "k_datetime",
        key_columns: "id DATETIME(6) NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("'{}-03-31 02:{:02}:00.{:06}'", 1000 + n % 3000, n % 60, n)],
    },
    KeyedTable {
        name: "k_timestamp",
        key_columns: "id TIMESTAMP(3) NOT NULL",
        key_names: &["id"],
        literal: |n| vec![format!("FROM_UNIXTIME({}.{:03})", 1_711_846_000 + n, n % 1000)],
    },
];

/// The names of [`TABLES`].
pub fn table_names() -> Vec<&'static str> {
    TABLES.iter().map(|table| table.name).collect()
}

impl KeyedTable {
    fn create_statement(&self) -> String {
        format!(
            "CREATE TABLE {DATABASE}.{} ({}, v BIGINT, s VARCHAR(60) CHARACTER SET utf8mb4, d DECIMAL(12,2), f DOUBLE, t DATETIME(6), b VARBINARY(20), PRIMARY KEY ({}))",
            self.name,
            self.key_columns,
            self.key_names.join(", ")
        )
    }

    fn condition(&self, n: u32) -> String {
        let parts = self.key_names.iter().zip((self.literal)(n));
        parts.map(|(name, literal)| format!("{name} = {literal}")).collect::<Vec<_>>().join(" AND ")
    }

    fn assignment(&self, n: u32) -> String {
        let parts = self.key_names.iter().zip((self.literal)(n));
        parts.map(|(name, literal)| format!("{name} = {literal}")).collect::<Vec<_>>().join(", ")
    }
}

fn random_values(rng: &mut StdRng) -> [String; 6] {
    let maybe = |rng: &mut StdRng, value: String| if rng.random_ratio(1, 8) { "NULL".to_owned() } else { value };
    let v = rng.random::<i64>().to_string();
    let s = ["plain", "naïve café", "日本語", "it''s", "", "🦀 crab", "tab\\tand\\nline"]
        .choose(rng)
        .copied()
        .unwrap_or_default();
    let s = format!("'{s} {}'", rng.random_range(0..1000));
    let d = format!("{}.{:02}", rng.random_range(-9_999_999_999_i64..=9_999_999_999), rng.random_range(0..100));
    let f = format!("{:e}", rng.random::<f64>() * 1e10 - 5e9);
    let t = format!(
        "'20{:02}-0{}-1{} 0{}:00:00.{:06}'",
        rng.random_range(10..40),
        rng.random_range(1..10),
        rng.random_range(0..10),
        rng.random_range(0..10),
        rng.random_range(0..1_000_000)
    );
    let b = format!("x'{:08x}00'", rng.random::<u32>());
    [maybe(rng, v), maybe(rng, s), maybe(rng, d), maybe(rng, f), maybe(rng, t), maybe(rng, b)]
}

/// How many accounts each of the two tables of the bank starts with.
pub const ACCOUNTS: u32 = 200;
const OPENING_BALANCE: i64 = 1_000;
/// Accounts that the writers open have numbers from here on.
const OPENED: u32 = 1_000_000;
/// What the two tables of the bank hold together at every moment.
pub const BANK_TOTAL: i64 = 2 * ACCOUNTS as i64 * OPENING_BALANCE;

/// What the writers do.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Keys that each table draws from.
    pub keys: u32,
    /// Rows that each table has before the writers start.
    pub initial_rows: u32,
    pub writers: u32,
    /// A pause after each transaction.
    pub pause: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: seed(), keys: 1_200, initial_rows: 800, writers: 2, pause: Duration::from_millis(2) }
    }
}

/// The seed of this run: from `TIDEGATE_TEST_SEED`, or a new one, printed so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("TIDEGATE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("TIDEGATE_TEST_SEED={seed}");
    seed
}

/// Writers at work. They go on until they are stopped.
#[derive(Debug)]
pub struct Writers {
    stop: Arc<AtomicBool>,
    transactions: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// Creates the tables, the bank and their first rows.
pub async fn prepare(server: &Server, plan: &Plan) {
    let mut conn = server.connect().await;
    let mut statements = vec![format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")];
    statements.extend(TABLES.iter().map(KeyedTable::create_statement));
    for (table, id) in [("bank_a", "INT"), ("bank_b", "BIGINT UNSIGNED")] {
        statements
            .push(format!("CREATE TABLE {DATABASE}.{table} (id {id} NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)"));
        let rows = (0..ACCOUNTS).map(|id| format!("({id},{OPENING_BALANCE})")).collect::<Vec<_>>().join(",");
        statements.push(format!("INSERT INTO {DATABASE}.{table} VALUES {rows}"));
    }
    let mut rng = StdRng::seed_from_u64(plan.seed);
    for table in TABLES {
        let mut rows = Vec::new();
        for n in 0..plan.initial_rows {
            let key = (table.literal)(rng.random_range(0..plan.keys.max(n + 1)));
            rows.push(format!("({}, {})", key.join(", "), random_values(&mut rng).join(", ")));
        }
        for rows in rows.chunks(200) {
            statements.push(format!("INSERT IGNORE INTO {DATABASE}.{} VALUES {}", table.name, rows.join(",")));
        }
    }
    for statement in statements {
        conn.query_drop(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let _ = conn.disconnect().await;
}

impl Writers {
    pub async fn start(server: &Server, plan: &Plan) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let transactions = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for writer in 0..plan.writers {
            let conn = server.connect().await;
            let rng = StdRng::seed_from_u64(plan.seed.wrapping_add(u64::from(writer) + 1));
            let work = Work { conn, rng, keys: plan.keys, kind: server.kind, next_account: OPENED * (writer + 1) };
            tasks.push(tokio::spawn(work.run(Arc::clone(&stop), Arc::clone(&transactions), plan.pause)));
        }
        Self { stop, transactions, tasks }
    }

    /// Transactions that have been committed so far.
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Lets the writers finish their transactions and ends them; returns the number of transactions.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a writer does not panic");
        }
        self.transactions.load(Ordering::Relaxed)
    }
}

struct Work {
    conn: Conn,
    rng: StdRng,
    keys: u32,
    kind: Kind,
    next_account: u32,
}

impl Work {
    async fn run(mut self, stop: Arc<AtomicBool>, transactions: Arc<AtomicU64>, pause: Duration) {
        while !stop.load(Ordering::Relaxed) {
            let transaction = if self.rng.random_ratio(1, 2) { self.transfer() } else { self.changes() };
            if self.commit(transaction).await {
                transactions.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(pause).await;
        }
        let _ = self.conn.disconnect().await;
    }

    /// Moves money between accounts of both tables; an account may be closed or opened on the way.
    fn transfer(&mut self) -> Vec<String> {
        let (from, to) = if self.rng.random() { ("bank_a", "bank_b") } else { ("bank_b", "bank_a") };
        let amount = self.rng.random_range(1..200);
        let (payer, payee) = (self.rng.random_range(0..ACCOUNTS), self.rng.random_range(0..ACCOUNTS));
        // Accounts below `OPENED` are never closed, so each statement finds the account that it names.
        match self.rng.random_range(0..4) {
            0 => {
                self.next_account += 1;
                let id = self.next_account;
                vec![
                    format!("UPDATE {DATABASE}.{from} SET balance = balance - {amount} WHERE id = {payer}"),
                    format!("INSERT INTO {DATABASE}.{to} VALUES ({id}, {amount})"),
                ]
            }
            1 => {
                // Close the newest account and pay its balance out on the other side.
                vec![
                    "SET @id = NULL, @left = NULL".to_owned(),
                    format!(
                        "SELECT id, balance INTO @id, @left FROM {DATABASE}.{from} WHERE id >= {OPENED} ORDER BY id LIMIT 1 FOR UPDATE"
                    ),
                    format!("UPDATE {DATABASE}.{to} SET balance = balance + COALESCE(@left, 0) WHERE id = {payee}"),
                    format!("DELETE FROM {DATABASE}.{from} WHERE id = @id"),
                ]
            }
            _ => vec![
                format!("UPDATE {DATABASE}.{from} SET balance = balance - {amount} WHERE id = {payer}"),
                format!("UPDATE {DATABASE}.{to} SET balance = balance + {amount} WHERE id = {payee}"),
            ],
        }
    }

    fn changes(&mut self) -> Vec<String> {
        let count = if self.rng.random_ratio(1, 20) { 40 } else { self.rng.random_range(1..6) };
        (0..count).map(|_| self.change()).collect()
    }

    fn change(&mut self) -> String {
        let table = TABLES.choose(&mut self.rng).expect("there are tables");
        let n = self.rng.random_range(0..self.keys);
        let name = format!("{DATABASE}.{}", table.name);
        let [v, s, d, f, t, b] = random_values(&mut self.rng);
        match self.rng.random_range(0..12) {
            0..=2 => {
                format!(
                    "INSERT IGNORE INTO {name} VALUES ({}, {v}, {s}, {d}, {f}, {t}, {b})",
                    (table.literal)(n).join(", ")
                )
            }
            3 => {
                format!("REPLACE INTO {name} VALUES ({}, {v}, {s}, {d}, {f}, {t}, {b})", (table.literal)(n).join(", "))
            }
            4 => format!(
                "INSERT INTO {name} VALUES ({}, {v}, {s}, {d}, {f}, {t}, {b}) ON DUPLICATE KEY UPDATE v = {v}, b = {b}",
                (table.literal)(n).join(", ")
            ),
            5..=7 => format!("UPDATE {name} SET v = {v}, s = {s}, t = {t} WHERE {}", table.condition(n)),
            8 => {
                format!("UPDATE {name} SET d = {d}, f = {f} WHERE {} OR {}", table.condition(n), table.condition(n + 1))
            }
            9 => {
                let to = self.rng.random_range(0..self.keys);
                format!("UPDATE IGNORE {name} SET {}, v = {v} WHERE {}", table.assignment(to), table.condition(n))
            }
            _ => format!("DELETE FROM {name} WHERE {}", table.condition(n)),
        }
    }

    /// Runs the statements as one transaction; one in ten is rolled back at its end, and whatever the server refuses is rolled back too.
    async fn commit(&mut self, statements: Vec<String>) -> bool {
        let end = if self.rng.random_ratio(1, 10) { "ROLLBACK" } else { "COMMIT" };
        let mut run = vec!["START TRANSACTION".to_owned()];
        run.extend(statements);
        run.push(end.to_owned());
        for statement in run {
            if let Err(error) = self.conn.query_drop(&statement).await {
                let refused = match &error {
                    // Lock wait timeout, deadlock, changed since read (MariaDB).
                    mysql_async::Error::Server(server) => matches!(server.code, 1205 | 1213 | 1020),
                    _ => false,
                };
                assert!(refused, "{:?}: {statement}: {error}", self.kind);
                self.conn.query_drop("ROLLBACK").await.expect("a refused transaction can be rolled back");
                return false;
            }
        }
        end == "COMMIT"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The invariant that the mirror is measured by holds at its source.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_bank_keeps_its_total_on_both_servers() {
        for kind in Kind::all() {
            let server = Server::start(kind, &[]).await;
            let plan = Plan::default();
            prepare(&server, &plan).await;
            let writers = Writers::start(&server, &plan).await;
            let mut conn = server.connect().await;
            // Which accounts are opened is chance: the test goes on until one was seen, and gives up long after that is due.
            let mut opened = 0;
            while writers.transactions() < 300 || (opened == 0 && writers.transactions() < 30_000) {
                let total: Option<i64> = conn
                    .query_first(format!(
                        "SELECT (SELECT CAST(SUM(balance) AS SIGNED) FROM {DATABASE}.bank_a) + (SELECT CAST(SUM(balance) AS SIGNED) FROM {DATABASE}.bank_b)"
                    ))
                    .await
                    .expect("the bank can be read");
                assert_eq!(total, Some(BANK_TOTAL));
                let now: Option<u64> = conn
                    .query_first(format!(
                        "SELECT (SELECT COUNT(*) FROM {DATABASE}.bank_a WHERE id >= {OPENED}) + (SELECT COUNT(*) FROM {DATABASE}.bank_b WHERE id >= {OPENED})"
                    ))
                    .await
                    .expect("the bank can be read");
                opened = opened.max(now.unwrap_or(0));
            }
            assert!(writers.stop().await >= 300);
            assert!(opened > 0, "no account was opened");
        }
    }
}
