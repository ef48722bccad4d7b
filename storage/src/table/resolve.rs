//! Several operations on one key become one outcome.

use std::collections::HashSet;

use super::RowKind;
use super::keys::{Key, KeyRef, Keys};

/// Where a live row is: index of the file among the bucket's files, position in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) row: u32,
}

/// The keys of sorted rows, each once, and which rows have it.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Ascending, each key once.
    pub(crate) keys: Keys,
    /// For each key the index of its first row among the sorted rows, then their number.
    pub(crate) starts: Vec<u32>,
}

impl Groups {
    /// Of `sorted` rows, whose keys are in `keys`.
    pub(crate) fn new(keys: &Keys, sorted: &[u32]) -> crate::Result<Self> {
        let mut starts = Vec::with_capacity(sorted.len() + 1);
        for (index, row) in sorted.iter().enumerate() {
            if index == 0 || keys.at(sorted[index - 1] as usize) != keys.at(*row as usize) {
                starts.push(index as u32);
            }
        }
        let distinct = keys.gather(starts.iter().map(|start| sorted[*start as usize]))?;
        starts.push(sorted.len() as u32);
        Ok(Self { keys: distinct, starts })
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// What a flush does to one bucket.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Rows that now stand for their keys, in key order; `true` for a snapshot page's.
    pub(crate) rows: Vec<(u32, bool)>,
    /// Rows that no longer do.
    pub(crate) replaced: Vec<Place>,
}

/// Runs every key's operations in order, starting from where its row is now. `places` has the live place of each key
/// of `groups`; `tombstones` are the keys deleted since loading began, if it is still going on.
pub(crate) fn resolve(
    groups: &Groups,
    sorted: &[u32],
    kinds: &[RowKind],
    places: &[Option<Place>],
    tombstones: &mut Option<HashSet<Key>>,
) -> Outcome {
    let mut outcome = Outcome { rows: Vec::with_capacity(groups.len()), replaced: Vec::new() };
    for (index, place) in places.iter().enumerate() {
        let rows = &sorted[groups.starts[index] as usize..groups.starts[index + 1] as usize];
        let key = groups.keys.at(index);
        let mut state = match place {
            Some(_) => State::Old,
            None => State::Absent,
        };
        let mut buried = None;
        for row in rows {
            state = match (kinds[*row as usize], state) {
                (RowKind::Upsert, _) => State::New { row: *row, page: false },
                (RowKind::Delete, _) => {
                    buried = Some(true);
                    State::Absent
                }
                (RowKind::InsertAbsent, State::Absent) => {
                    let buried = *buried.get_or_insert_with(|| is_buried(tombstones.as_ref(), key));
                    if buried { State::Absent } else { State::New { row: *row, page: true } }
                }
                (RowKind::InsertAbsent, state) => state,
            };
        }
        match state {
            State::Old => {}
            State::New { row, page } => {
                outcome.rows.push((row, page));
                outcome.replaced.extend(place);
            }
            State::Absent => outcome.replaced.extend(place),
        }
        if let (Some(true), Some(tombstones)) = (buried, tombstones.as_mut()) {
            tombstones.insert(key.to_owned());
        }
    }
    outcome
}

fn is_buried(tombstones: Option<&HashSet<Key>>, key: KeyRef<'_>) -> bool {
    tombstones.is_some_and(|keys| !keys.is_empty() && keys.contains(&key.to_owned()))
}

#[derive(Clone, Copy)]
enum State {
    /// The key's row is where it was before the flush.
    Old,
    /// The key's row is this one of the flush.
    New { row: u32, page: bool },
    /// The key has no row.
    Absent,
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: RowKind = RowKind::Upsert;
    const D: RowKind = RowKind::Delete;
    const I: RowKind = RowKind::InsertAbsent;

    /// What happens to one key: the row that stands for it in the end, whether its old row is replaced, whether it is
    /// remembered as deleted.
    fn one(live: bool, buried: Option<bool>, kinds: &[RowKind]) -> (Option<(u32, bool)>, bool, bool) {
        let keys = Keys::Int(vec![7; kinds.len()]);
        let sorted: Vec<u32> = (0..kinds.len() as u32).collect();
        let groups = Groups::new(&keys, &sorted).unwrap();
        let places = [live.then_some(Place { file: 1, row: 2 })];
        let mut tombstones = buried.map(|buried| buried.then_some(Key::Int(7)).into_iter().collect());
        let outcome = resolve(&groups, &sorted, kinds, &places, &mut tombstones);
        let replaced = outcome.replaced == [Place { file: 1, row: 2 }];
        (outcome.rows.first().copied(), replaced, tombstones.is_some_and(|keys| !keys.is_empty()))
    }

    #[test]
    fn the_last_change_of_a_key_wins() {
        assert_eq!(one(false, None, &[U]), (Some((0, false)), false, false));
        assert_eq!(one(true, None, &[U, U]), (Some((1, false)), true, false));
        assert_eq!(one(true, None, &[U, D]), (None, true, false));
        assert_eq!(one(true, None, &[D, U]), (Some((1, false)), true, false));
        assert_eq!(one(false, None, &[D]), (None, false, false));
    }

    #[test]
    fn a_page_fills_only_what_the_log_has_not_touched() {
        assert_eq!(one(false, Some(false), &[I]), (Some((0, true)), false, false));
        assert_eq!(one(true, Some(false), &[I]), (None, false, false));
        assert_eq!(one(false, Some(true), &[I]), (None, false, true));
        assert_eq!(one(false, Some(false), &[D, I]), (None, false, true));
        assert_eq!(one(false, Some(false), &[I, D]), (None, false, true));
        assert_eq!(one(false, Some(false), &[I, U]), (Some((1, false)), false, false));
        assert_eq!(one(false, Some(false), &[U, I]), (Some((0, false)), false, false));
        assert_eq!(one(false, Some(false), &[I, I]), (Some((0, true)), false, false));
        assert_eq!(one(true, Some(false), &[D, I, U, D, I]), (None, true, true));
        assert_eq!(one(false, Some(true), &[U, I]), (Some((0, false)), false, true));
    }

    #[test]
    fn deletes_are_forgotten_when_nothing_is_loaded() {
        assert_eq!(one(true, None, &[D]), (None, true, false));
        // Within one flush a delete still stands before a page's row.
        assert_eq!(one(true, None, &[D, I]), (None, true, false));
    }
}
