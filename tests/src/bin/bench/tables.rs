//! The tables of the benchmark, and what is written to them.

use mysql_async::prelude::Queryable;
use tidegate_tests::servers::Server;

/// The database of the benchmark.
pub(crate) const DATABASE: &str = "bench";
/// The table that is read, changed and queried.
pub(crate) const TABLE: &str = "orders";

/// Makes the tables and fills the large one with rows of about 117 bytes.
pub(crate) async fn fill(server: &Server, rows: u64) {
    let mut conn = server.connect().await;
    let statements = [
        format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4"),
        format!(
            "CREATE TABLE {DATABASE}.{TABLE} (id BIGINT NOT NULL PRIMARY KEY, customer_id INT NOT NULL, product_id INT NOT NULL, quantity INT NOT NULL,
             amount DECIMAL(12,2) NOT NULL, status VARCHAR(10) NOT NULL, note VARCHAR(60), created_at DATETIME NOT NULL)"
        ),
        format!("CREATE TABLE {DATABASE}.probe (id BIGINT NOT NULL PRIMARY KEY)"),
        format!("CREATE TABLE {DATABASE}.digits (d INT NOT NULL PRIMARY KEY)"),
        format!("INSERT INTO {DATABASE}.digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)"),
    ];
    for statement in statements {
        conn.query_drop(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let step = 100_000;
    for first in (0..rows).step_by(step) {
        let count = (rows - first).min(step as u64);
        let statement = format!(
            "INSERT INTO {DATABASE}.{TABLE}
             SELECT n, n * 7919 % 200000, n * 104729 % 5000, 1 + n % 9, (n * 37 % 1000000) / 100,
               ELT(1 + n % 4, 'new', 'paid', 'shipped', 'returned'), CONCAT('note number ', n * 31 % 977, ' of the customer, left at the door'),
               '2024-01-01' + INTERVAL n % 31536000 SECOND
             FROM (SELECT {first} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
                   FROM {DATABASE}.digits a, {DATABASE}.digits b, {DATABASE}.digits c, {DATABASE}.digits e, {DATABASE}.digits f) s
             WHERE n < {first} + {count} ORDER BY n"
        );
        conn.query_drop(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn.query_drop(format!("ANALYZE TABLE {DATABASE}.{TABLE}")).await.expect("the table can be analysed");
    let _ = conn.disconnect().await;
}

/// Writes about `changes` row changes in transactions of about 1,000 rows: half updates, a quarter inserts, a quarter deletes. Returns how many.
pub(crate) async fn write_backlog(server: &Server, changes: u64) -> u64 {
    let mut conn = server.connect().await;
    let (last, rows): (i64, i64) = conn
        .query_first(format!("SELECT MAX(id), COUNT(*) FROM {DATABASE}.{TABLE}"))
        .await
        .expect("the table can be read")
        .expect("one row");
    let mut written = 0;
    let mut next = last + 1;
    let mut at = 0_i64;
    while written < changes {
        // Strides through the table, so that changes hit all of its files.
        at = (at + 500_009) % rows;
        let statements = [
            "START TRANSACTION".to_owned(),
            format!("UPDATE {DATABASE}.{TABLE} SET quantity = quantity + 1, status = 'changed' WHERE id BETWEEN {at} AND {}", at + 499),
            format!(
                "INSERT INTO {DATABASE}.{TABLE} SELECT {next} + a.d + 10 * b.d + 100 * c.d, 1, 2, 3, 4.5, 'added', 'added while it was paused', '2025-01-01'
                 FROM {DATABASE}.digits a, {DATABASE}.digits b, {DATABASE}.digits c WHERE a.d + 10 * b.d + 100 * c.d < 250"
            ),
            format!("DELETE FROM {DATABASE}.{TABLE} WHERE id BETWEEN {} AND {}", at + 500, at + 749),
            "COMMIT".to_owned(),
        ];
        for statement in statements {
            conn.query_drop(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
            written += conn.affected_rows();
        }
        next += 250;
    }
    let _ = conn.disconnect().await;
    written
}
