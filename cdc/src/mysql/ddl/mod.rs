//! DDL from the binlog: text → clauses → a table's next definition. Pure: nothing here asks a server.
//!
//! [`parse`] reads the statements that can change a captured table (`ALTER TABLE`, `RENAME TABLE`, `TRUNCATE`, `DROP`,
//! `CREATE`), by a small reader of MySQL's and MariaDB's own grammar: the general SQL parsers refuse much of what
//! servers log (`ALGORITHM=INSTANT`, versioned comments, `ADD COLUMN (a INT, b INT)`), and a statement that is read
//! wrongly loses data. What it cannot read is [`Statement::NotUnderstood`], never guessed.
//! `order` brings the clauses of one statement into an order in which they can be taken one by one, [`apply`] changes a definition by them and says whether stored values were rewritten without row events.

mod apply;
mod column;
mod column_type;
mod order;
mod parse;
#[cfg(test)]
mod tests;
mod tokens;

#[cfg(test)]
pub(crate) use apply::Applied;
pub(crate) use apply::apply;
pub(crate) use parse::{Clause, Statement, TableName, parse};
