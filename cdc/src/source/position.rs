//! Where in a server's history a mirror is: GTID sets of MySQL and of MariaDB, and positions in binlog files.
//!
//! Pure values: text forms as the servers print them, set arithmetic, no connection.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Why a text is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}")]
pub struct ParsePositionError {
    what: &'static str,
    text: String,
}

fn not_a(what: &'static str, text: &str) -> ParsePositionError {
    ParsePositionError { what, text: text.chars().take(80).collect() }
}

/// A byte offset in a numbered binlog file. Ordered by the file's number, then by offset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FilePosition {
    /// The file's name as the server lists it, `binlog.000042`.
    pub file: String,
    /// The offset of the next event, counted in 64 bits.
    pub offset: u64,
}

impl FilePosition {
    /// A position from its parts.
    pub fn new(file: impl Into<String>, offset: u64) -> Self {
        Self { file: file.into(), offset }
    }

    /// The name of the file before this one; `None` for the first, and for names without a number.
    pub fn file_before(&self) -> Option<String> {
        let (name, digits) = self.file.rsplit_once('.')?;
        let before = self.number()?.checked_sub(1).filter(|before| *before > 0)?;
        Some(format!("{name}.{before:0width$}", width = digits.len()))
    }

    /// The number behind the last dot of the file's name.
    fn number(&self) -> Option<u64> {
        self.file.rsplit_once('.').and_then(|(_, number)| number.parse().ok())
    }
}

impl Ord for FilePosition {
    fn cmp(&self, other: &Self) -> Ordering {
        // The number grows beyond its six digits, so names do not sort as text.
        self.number()
            .cmp(&other.number())
            .then_with(|| if self.number().is_some() { Ordering::Equal } else { self.file.cmp(&other.file) })
            .then_with(|| self.offset.cmp(&other.offset))
            .then_with(|| self.file.cmp(&other.file))
    }
}

impl PartialOrd for FilePosition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

impl FromStr for FilePosition {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (file, offset) = text.trim().rsplit_once(':').ok_or_else(|| not_a("binlog position", text))?;
        let offset = offset.parse().map_err(|_| not_a("binlog position", text))?;
        if file.is_empty() {
            return Err(not_a("binlog position", text));
        }
        Ok(Self::new(file, offset))
    }
}

/// Transaction numbers as sorted, disjoint, non-adjacent half-open intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // The common case by far: the next number of the last interval.
        if let Some(last) = self.0.last_mut()
            && start == last.1
        {
            last.1 = end;
            return;
        }
        let from = self.0.partition_point(|i| i.1 < start);
        let to = self.0.partition_point(|i| i.0 <= end);
        let (mut start, mut end) = (start, end);
        if from < to {
            start = start.min(self.0[from].0);
            end = end.max(self.0[to - 1].1);
        }
        self.0.splice(from..to, [(start, end)]);
    }

    fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|i| i.0 <= number);
        after > 0 && number < self.0[after - 1].1
    }

    fn contains_all(&self, other: &Self) -> bool {
        other.0.iter().all(|&(start, end)| {
            let after = self.0.partition_point(|i| i.0 <= start);
            after > 0 && end <= self.0[after - 1].1
        })
    }

    fn subtract(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for &(mut start, end) in &self.0 {
            while let Some(&&(cut_start, cut_end)) = cuts.peek() {
                if cut_end <= start {
                    cuts.next();
                    continue;
                }
                if cut_start >= end {
                    break;
                }
                if cut_start > start {
                    left.push((start, cut_start));
                }
                start = start.max(cut_end);
                if start >= end {
                    break;
                }
                cuts.next();
            }
            if start < end {
                left.push((start, end));
            }
        }
        Self(left)
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(start, end)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            if end - start == 1 {
                write!(f, "{start}")?;
            } else {
                write!(f, "{start}-{}", end - 1)?;
            }
        }
        Ok(())
    }
}

/// A set of MySQL transactions: for each server, and each tag within it, intervals of transaction numbers.
///
/// Printed in MySQL's canonical form, `3e11fa47-…:1-5:7:tag:1-3,4f22…:1`; parsed from any form MySQL accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MysqlGtidSet {
    // The empty tag sorts first, as MySQL prints it.
    groups: BTreeMap<(Uuid, String), Intervals>,
}

impl MysqlGtidSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set holds nothing.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds one transaction; an untagged one has the empty tag.
    pub fn add(&mut self, uuid: Uuid, tag: &str, number: u64) {
        self.insert(uuid, tag, number, number.saturating_add(1));
    }

    fn insert(&mut self, uuid: Uuid, tag: &str, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.groups.entry((uuid, tag.to_owned())) {
            Entry::Occupied(mut entry) => entry.get_mut().insert(start, end),
            Entry::Vacant(entry) => {
                entry.insert(Intervals(vec![(start, end)]));
            }
        }
    }

    /// Whether one transaction is in the set.
    pub fn contains_one(&self, uuid: Uuid, tag: &str, number: u64) -> bool {
        self.groups.get(&(uuid, tag.to_owned())).is_some_and(|intervals| intervals.contains(number))
    }

    /// Whether every transaction of the other set is in this one.
    pub fn contains(&self, other: &Self) -> bool {
        other.groups.iter().all(|(key, theirs)| self.groups.get(key).is_some_and(|ours| ours.contains_all(theirs)))
    }

    /// All transactions of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for ((uuid, tag), intervals) in &other.groups {
            for &(start, end) in &intervals.0 {
                all.insert(*uuid, tag, start, end);
            }
        }
        all
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut left = Self::new();
        for (key, ours) in &self.groups {
            let rest = match other.groups.get(key) {
                Some(theirs) => ours.subtract(theirs),
                None => ours.clone(),
            };
            if !rest.0.is_empty() {
                left.groups.insert(key.clone(), rest);
            }
        }
        left
    }

    /// What comes before the first gap, for each server and tag by itself.
    ///
    /// `settled` are transactions known to be long finished (the purged ones): gaps inside them and up to them are no
    /// transactions in flight, so they do not count.
    #[must_use]
    pub fn cut_at_first_gap(&self, settled: &Self) -> Self {
        let mut cut = Self::new();
        for (key, intervals) in &self.groups {
            let mut kept: Vec<(u64, u64)> = Vec::new();
            if let Some(old) = settled.groups.get(key) {
                let settled_end = old.0.last().map_or(1, |i| i.1);
                kept.extend(intervals.0.iter().copied().filter(|i| i.0 < settled_end));
            }
            if kept.is_empty()
                && let Some(&first) = intervals.0.first()
                && first.0 == 1
            {
                kept.push(first);
            }
            if !kept.is_empty() {
                cut.groups.insert(key.clone(), Intervals(kept));
            }
        }
        cut
    }

    /// Server, tag and half-open intervals, in canonical order.
    pub fn groups(&self) -> impl Iterator<Item = (Uuid, &str, &[(u64, u64)])> {
        self.groups.iter().map(|((uuid, tag), intervals)| (*uuid, tag.as_str(), intervals.0.as_slice()))
    }
}

impl fmt::Display for MysqlGtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for ((uuid, tag), intervals) in &self.groups {
            if last == Some(*uuid) {
                f.write_str(":")?;
            } else {
                if last.is_some() {
                    f.write_str(",")?;
                }
                write!(f, "{}:", uuid.hyphenated())?;
                last = Some(*uuid);
            }
            if tag.is_empty() {
                write!(f, "{intervals}")?;
            } else {
                write!(f, "{tag}:{intervals}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for MysqlGtidSet {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || not_a("MySQL GTID set", text);
        let mut set = Self::new();
        for group in text.split(',').map(str::trim).filter(|group| !group.is_empty()) {
            let mut items = group.split(':').map(str::trim);
            let uuid = items.next().and_then(|uuid| Uuid::try_parse(uuid).ok()).ok_or_else(err)?;
            let mut tag = String::new();
            let mut any = false;
            for item in items {
                if item.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                    if item.len() > 32 || !item.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                        return Err(err());
                    }
                    tag = item.to_ascii_lowercase();
                    any = false;
                    continue;
                }
                let (first, last) = match item.split_once('-') {
                    Some((first, last)) => (number(first).ok_or_else(err)?, number(last).ok_or_else(err)?),
                    None => {
                        let one = number(item).ok_or_else(err)?;
                        (one, one)
                    }
                };
                if first == 0 || last < first {
                    return Err(err());
                }
                set.insert(uuid, &tag, first, last + 1);
                any = true;
            }
            if !any {
                return Err(err());
            }
        }
        Ok(set)
    }
}

/// A transaction number: MySQL's largest is 2^63 - 1.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<u64>().ok().filter(|n| *n <= i64::MAX as u64)
}

/// A MariaDB position: the last transaction of each domain. It stands for every transaction up to there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MariaGtidSet {
    // domain → (server, sequence number)
    domains: BTreeMap<u32, (u32, u64)>,
}

impl MariaGtidSet {
    /// The empty position: before every transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no domain has a transaction.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Moves a domain on to a transaction. A smaller number than the domain has reached changes nothing.
    pub fn add(&mut self, domain: u32, server: u32, sequence: u64) {
        let last = self.domains.entry(domain).or_insert((server, sequence));
        if sequence >= last.1 {
            *last = (server, sequence);
        }
    }

    /// Whether a transaction lies at or before the position of its domain.
    pub fn contains_one(&self, domain: u32, sequence: u64) -> bool {
        self.domains.get(&domain).is_some_and(|&(_, last)| sequence <= last)
    }

    /// Whether every domain of the other is at or before this one.
    pub fn contains(&self, other: &Self) -> bool {
        other.domains.iter().all(|(domain, &(_, sequence))| self.contains_one(*domain, sequence))
    }

    /// The further of both in each domain.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (domain, &(server, sequence)) in &other.domains {
            all.add(*domain, server, sequence);
        }
        all
    }

    /// The domains in which this one is further than the other.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let domains =
            self.domains.iter().filter(|(domain, last)| !other.contains_one(**domain, last.1)).map(|(d, l)| (*d, *l));
        Self { domains: domains.collect() }
    }

    /// Domain, server and sequence number, by domain.
    pub fn domains(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.domains.iter().map(|(domain, &(server, sequence))| (*domain, server, sequence))
    }
}

impl fmt::Display for MariaGtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (domain, (server, sequence))) in self.domains.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{domain}-{server}-{sequence}")?;
        }
        Ok(())
    }
}

impl FromStr for MariaGtidSet {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut set = Self::new();
        for gtid in text.split(',').map(str::trim).filter(|gtid| !gtid.is_empty()) {
            let mut parts = gtid.split('-');
            let parsed = (|| {
                let domain = parts.next()?.parse().ok()?;
                let server = parts.next()?.parse().ok()?;
                let sequence = parts.next()?.parse().ok()?;
                parts.next().is_none().then_some((domain, server, sequence))
            })();
            let (domain, server, sequence) = parsed.ok_or_else(|| not_a("MariaDB GTID position", text))?;
            set.add(domain, server, sequence);
        }
        Ok(set)
    }
}

/// One transaction's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gtid {
    /// MySQL: server, tag (empty if none), number.
    Mysql { uuid: Uuid, tag: String, number: u64 },
    /// MariaDB: domain, server, sequence number.
    MariaDb { domain: u32, server: u32, sequence: u64 },
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gtid::Mysql { uuid, tag, number } if tag.is_empty() => write!(f, "{}:{number}", uuid.hyphenated()),
            Gtid::Mysql { uuid, tag, number } => write!(f, "{}:{tag}:{number}", uuid.hyphenated()),
            Gtid::MariaDb { domain, server, sequence } => write!(f, "{domain}-{server}-{sequence}"),
        }
    }
}

/// A set of transactions of either flavour. Sets of different flavours have nothing in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidSet {
    /// MySQL's interval set.
    Mysql(MysqlGtidSet),
    /// MariaDB's position.
    MariaDb(MariaGtidSet),
}

impl GtidSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        match self {
            GtidSet::Mysql(set) => set.is_empty(),
            GtidSet::MariaDb(set) => set.is_empty(),
        }
    }

    /// Adds one transaction; one of the other flavour is left out.
    pub fn add(&mut self, gtid: &Gtid) {
        match (self, gtid) {
            (GtidSet::Mysql(set), Gtid::Mysql { uuid, tag, number }) => set.add(*uuid, tag, *number),
            (GtidSet::MariaDb(set), Gtid::MariaDb { domain, server, sequence }) => {
                set.add(*domain, *server, *sequence);
            }
            _ => debug_assert!(false, "a transaction of the other flavour"),
        }
    }

    /// Whether one transaction is in it.
    pub fn contains_one(&self, gtid: &Gtid) -> bool {
        match (self, gtid) {
            (GtidSet::Mysql(set), Gtid::Mysql { uuid, tag, number }) => set.contains_one(*uuid, tag, *number),
            (GtidSet::MariaDb(set), Gtid::MariaDb { domain, sequence, .. }) => set.contains_one(*domain, *sequence),
            _ => false,
        }
    }

    /// Whether the other set lies within this one.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (GtidSet::Mysql(a), GtidSet::Mysql(b)) => a.contains(b),
            (GtidSet::MariaDb(a), GtidSet::MariaDb(b)) => a.contains(b),
            (_, other) => other.is_empty(),
        }
    }

    /// Both together; `None` for sets of different flavours.
    pub fn union(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (GtidSet::Mysql(a), GtidSet::Mysql(b)) => Some(GtidSet::Mysql(a.union(b))),
            (GtidSet::MariaDb(a), GtidSet::MariaDb(b)) => Some(GtidSet::MariaDb(a.union(b))),
            _ => None,
        }
    }

    /// What the other lacks; all of this one if the flavours differ.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        match (self, other) {
            (GtidSet::Mysql(a), GtidSet::Mysql(b)) => GtidSet::Mysql(a.subtract(b)),
            (GtidSet::MariaDb(a), GtidSet::MariaDb(b)) => GtidSet::MariaDb(a.subtract(b)),
            (a, _) => a.clone(),
        }
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GtidSet::Mysql(set) => set.fmt(f),
            GtidSet::MariaDb(set) => set.fmt(f),
        }
    }
}

const MYSQL_PREFIX: &str = "mysql:";
const MARIADB_PREFIX: &str = "mariadb:";

/// As text with the flavour in front, since an empty set does not tell which it is.
impl Serialize for GtidSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let prefix = match self {
            GtidSet::Mysql(_) => MYSQL_PREFIX,
            GtidSet::MariaDb(_) => MARIADB_PREFIX,
        };
        serializer.collect_str(&format_args!("{prefix}{self}"))
    }
}

impl<'de> Deserialize<'de> for GtidSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let set = if let Some(set) = text.strip_prefix(MYSQL_PREFIX) {
            set.parse().map(GtidSet::Mysql)
        } else if let Some(set) = text.strip_prefix(MARIADB_PREFIX) {
            set.parse().map(GtidSet::MariaDb)
        } else {
            Err(not_a("GTID set with its flavour", &text))
        };
        set.map_err(serde::de::Error::custom)
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(MysqlGtidSet, MariaGtidSet);

/// Where a source's mirror is. A position with a GTID set can go on at another server of the same history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// The transactions that are covered, where the server has GTIDs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid: Option<GtidSet>,
    /// The place in this server's binlog files, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePosition>,
    /// The server whose files `file` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_uuid: Option<String>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.gtid, &self.file) {
            (Some(gtid), Some(file)) if gtid.is_empty() => write!(f, "{file}"),
            (Some(gtid), _) => write!(f, "{gtid}"),
            (None, Some(file)) => write!(f, "{file}"),
            (None, None) => f.write_str("(start)"),
        }
    }
}

#[cfg(test)]
mod tests;
