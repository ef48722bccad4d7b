//! What `SHOW GRANTS` says.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::mysql::connect::{Conn, ask};

/// The rights of the user that is logged in.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Grants {
    /// The account, quoted for a GRANT statement.
    pub user: Option<String>,
    /// Whether roles are granted, whose rights may not be shown.
    pub roles: bool,
    global: BTreeSet<String>,
    /// Database pattern, table if the right is for one, rights.
    scoped: Vec<(String, Option<String>, BTreeSet<String>)>,
}

impl Grants {
    pub(super) async fn read(conn: &mut Conn) -> Result<Self> {
        let what = "the user's rights could not be read";
        let lines: Vec<String> = ask(conn, what, "SHOW GRANTS").await?;
        let user: Vec<Option<String>> = ask(conn, what, "SELECT CURRENT_USER()").await?;
        let mut grants = Self::parse(lines.iter().map(String::as_str));
        grants.user = user.into_iter().next().flatten().and_then(|account| {
            let (name, host) = account.rsplit_once('@')?;
            let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
            Some(format!("{}@{}", quoted(name), quoted(host)))
        });
        Ok(grants)
    }

    /// Reads the lines of `SHOW GRANTS`.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut grants = Self::default();
        for line in lines {
            let Some(rest) = line.strip_prefix("GRANT ") else { continue };
            let Some((rights, rest)) = split_outside(rest, " ON ") else {
                // `GRANT role TO user`.
                grants.roles = true;
                continue;
            };
            let Some((object, _)) = split_outside(rest, " TO ") else { continue };
            let rights: BTreeSet<String> = split_rights(rights);
            if object == "*.*" {
                grants.global.extend(rights);
                continue;
            }
            let object =
                ["TABLE ", "FUNCTION ", "PROCEDURE "].iter().fold(object, |o, kind| o.strip_prefix(kind).unwrap_or(o));
            let Some((database, table)) = split_outside(object, ".") else { continue };
            let table = (table != "*").then(|| unquote(table));
            grants.scoped.push((unquote(database), table, rights));
        }
        grants
    }

    /// Whether one of the rights is given for everything.
    pub fn allows_globally(&self, rights: &[&str]) -> bool {
        self.global.contains("ALL PRIVILEGES") || rights.iter().any(|right| self.global.contains(*right))
    }

    /// Whether a table may be read.
    pub fn allows_select(&self, database: &str, table: &str) -> bool {
        let may = |rights: &BTreeSet<String>| rights.contains("SELECT") || rights.contains("ALL PRIVILEGES");
        may(&self.global)
            || self.scoped.iter().any(|(pattern, only, rights)| {
                let covers = match only {
                    // A table's database is a name; a database's own may be a pattern.
                    Some(only) => pattern == database && only.eq_ignore_ascii_case(table),
                    None => like(pattern.as_bytes(), database.as_bytes()),
                };
                covers && may(rights)
            })
    }
}

/// Splits at the first separator that lies outside of quotes.
fn split_outside<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '`' | '\'' | '"') => quote = Some(c),
            None if text[at..].starts_with(separator) => return Some((&text[..at], &text[at + separator.len()..])),
            None => {}
        }
    }
    None
}

/// Rights between commas; rights for single columns, `SELECT (a, b)`, are no rights for the table.
fn split_rights(text: &str) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    let mut depth = 0_usize;
    let mut start = 0;
    let mut take = |right: &str| {
        if !right.contains('(') {
            rights.insert(right.trim().to_ascii_uppercase());
        }
    };
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                take(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    take(&text[start..]);
    rights
}

fn unquote(name: &str) -> String {
    let quoted = name.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    quoted.map_or_else(|| name.to_owned(), |name| name.replace("``", "`"))
}

/// The pattern of a database in a grant: `%`, `_`, and a backslash before either.
fn like(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'%', rest @ ..] => (0..=text.len()).any(|skipped| like(rest, &text[skipped..])),
        [b'_', rest @ ..] => !text.is_empty() && like(rest, &text[1..]),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            text.first().is_some_and(|c| c.eq_ignore_ascii_case(literal)) && like(rest, &text[1..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_for_everything_for_databases_and_for_tables() {
        let grants = Grants::parse([
            "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `cdc`@`%` IDENTIFIED BY PASSWORD '*1 ON x'",
            "GRANT SELECT, INSERT ON `shop\\_1`.* TO `cdc`@`%`",
            "GRANT SELECT ON `log%`.* TO `cdc`@`%`",
            "GRANT SELECT ON `crm`.`customer ON x` TO `cdc`@`%`",
            "GRANT SELECT (`a`, `b`), INSERT ON `crm`.`secret` TO `cdc`@`%`",
        ]);
        assert!(grants.allows_globally(&["REPLICATION SLAVE"]) && !grants.allows_globally(&["SUPER"]));
        assert!(grants.allows_select("shop_1", "x") && !grants.allows_select("shopx1", "x"));
        assert!(grants.allows_select("logs", "x") && !grants.allows_select("blogs", "x"));
        assert!(grants.allows_select("crm", "customer ON x") && !grants.allows_select("crm", "other"));
        assert!(!grants.allows_select("crm", "secret"), "some columns are not the table");
        assert!(!grants.roles);
    }

    #[test]
    fn all_privileges_and_roles() {
        let all = Grants::parse(["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"]);
        assert!(all.allows_globally(&["REPLICATION SLAVE"]) && all.allows_select("a", "b"));
        let role = Grants::parse(["GRANT USAGE ON *.* TO `u`@`%`", "GRANT `reader`@`%` TO `u`@`%`"]);
        assert!(role.roles && !role.allows_select("a", "b"));
    }
}
