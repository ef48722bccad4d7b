//! The clauses of an `ALTER TABLE`, which count as one step, in an order in which they can be taken one by one.
//!
//! `DROP`, `RENAME`, `CHANGE` and `MODIFY` name columns as they were called before the statement, `AFTER` as they are
//! called behind it: `RENAME COLUMN a TO b, RENAME COLUMN b TO a` exchanges two names, and `ADD b INT, DROP b` makes a
//! new column of a name that there was. Additions and moves happen in the order in which they are written. (Tried with
//! MySQL 9.7 and MariaDB 10.11; the manual does not say it.)

use super::parse::Clause;
use crate::mysql::types::{MysqlTable, same_name};

/// The same clauses: what is dropped first, then new names, then everything else by the new names.
pub(super) fn one_by_one(table: &MysqlTable, clauses: &[Clause]) -> Vec<Clause> {
    let (mut drops, mut renames, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for clause in clauses {
        match clause {
            // Asked before anything else happens: `DROP b, ADD IF NOT EXISTS b` adds nothing.
            Clause::AddColumn { column, if_not_exists: true, .. } if table.column_index(&column.name).is_some() => {}
            Clause::DropColumn { .. } => drops.push(clause.clone()),
            Clause::RenameColumn { from, to } => renames.push((from.clone(), to.clone())),
            Clause::ChangeColumn { from, column, place, if_exists }
                if !same_name(from, &column.name) && table.column_index(from).is_some() =>
            {
                renames.push((from.clone(), column.name.clone()));
                rest.push(Clause::ChangeColumn {
                    from: column.name.clone(),
                    column: column.clone(),
                    place: place.clone(),
                    if_exists: *if_exists,
                });
            }
            other => rest.push(other.clone()),
        }
    }
    let dropped = |name: &str| {
        let is = |clause: &Clause| matches!(clause, Clause::DropColumn { name: gone, .. } if same_name(gone, name));
        drops.iter().any(is)
    };
    let names = table.columns.iter().map(|column| column.name.clone()).filter(|name| !dropped(name)).collect();
    let renames = without_clashes(names, renames);
    drops.into_iter().chain(renames).chain(rest).collect()
}

/// Renames in an order in which no column takes a name that another one still has. Where names go round in a circle, one
/// column has a name in between that no column can have: the servers allow no NUL in one.
fn without_clashes(mut names: Vec<String>, mut renames: Vec<(String, String)>) -> Vec<Clause> {
    let mut ordered = Vec::with_capacity(renames.len());
    while !renames.is_empty() {
        let is_free = |from: &str, to: &str| !names.iter().any(|name| same_name(name, to) && !same_name(name, from));
        let (from, to) = match renames.iter().position(|(from, to)| is_free(from, to)) {
            Some(free) => renames.remove(free),
            None => {
                let (from, to) = renames.remove(0);
                let between = format!("{from}\0");
                // A name that nobody gives up is refused when it is taken; the servers do not log such a statement.
                if renames.iter().any(|(other, _)| same_name(other, &to)) {
                    renames.push((between.clone(), to));
                    (from, between)
                } else {
                    (from, to)
                }
            }
        };
        for name in names.iter_mut().filter(|name| same_name(name, &from)) {
            name.clone_from(&to);
        }
        ordered.push(Clause::RenameColumn { from, to });
    }
    ordered
}
