//! Several operations on one key become one outcome.

use std::collections::HashMap;

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

/// Keys whose rows were deleted while the table is being loaded, each with the number of the loading.
pub(crate) type Tombstones = HashMap<Key, u32>;

/// Which rows of a flush were applied during which loading of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loadings {
    /// From which row on each holds; the first is row 0. Number 0 is none.
    marks: Vec<(u32, u32)>,
}

impl Default for Loadings {
    fn default() -> Self {
        Self { marks: vec![(0, 0)] }
    }
}

impl Loadings {
    /// From `row` on.
    pub(crate) fn mark(&mut self, row: u32, loading: u32) {
        self.marks.retain(|(start, _)| *start < row);
        self.marks.push((row, loading));
    }

    /// Whether any row was applied while the table was being loaded.
    pub(crate) fn any(&self) -> bool {
        self.marks.iter().any(|(_, loading)| *loading > 0)
    }

    /// During which loading a row was applied.
    pub(crate) fn of(&self, row: u32) -> u32 {
        if let [(_, loading)] = self.marks.as_slice() {
            return *loading;
        }
        let next = self.marks.partition_point(|(start, _)| *start <= row);
        next.checked_sub(1).map_or(0, |index| self.marks[index].1)
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
/// of `groups`; deleted keys are added to `tombstones` while the table is being loaded.
pub(crate) fn resolve(
    groups: &Groups,
    sorted: &[u32],
    kinds: &[RowKind],
    places: &[Option<Place>],
    loadings: &Loadings,
    tombstones: &mut Tombstones,
) -> Outcome {
    let mut outcome = Outcome { rows: Vec::with_capacity(groups.len()), replaced: Vec::new() };
    for (index, place) in places.iter().enumerate() {
        let rows = &sorted[groups.starts[index] as usize..groups.starts[index + 1] as usize];
        let key = groups.keys.at(index);
        let mut state = match place {
            Some(_) => State::Old,
            None => State::Absent,
        };
        // The loading in which the key was last deleted.
        let mut deleted = None;
        for row in rows {
            state = match (kinds[*row as usize], state) {
                (RowKind::Upsert, _) => State::New { row: *row, page: false },
                (RowKind::Delete, _) => {
                    deleted = Some(loadings.of(*row)).filter(|loading| *loading > 0).or(deleted);
                    State::Absent
                }
                (RowKind::InsertAbsent, State::Absent) => {
                    let loading = loadings.of(*row);
                    if loading > 0 && deleted.or_else(|| buried(tombstones, key)) == Some(loading) {
                        State::Absent
                    } else {
                        State::New { row: *row, page: true }
                    }
                }
                (RowKind::InsertAbsent | RowKind::UpdateBefore, state) => state,
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
        if let Some(loading) = deleted {
            tombstones.insert(key.to_owned(), loading);
        }
    }
    outcome
}

fn buried(tombstones: &Tombstones, key: KeyRef<'_>) -> Option<u32> {
    if tombstones.is_empty() { None } else { tombstones.get(&key.to_owned()).copied() }
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
    /// remembered as deleted. `buried` is none if the table is not being loaded.
    fn one(live: bool, buried: Option<bool>, kinds: &[RowKind]) -> (Option<(u32, bool)>, bool, bool) {
        let mut loadings = Loadings::default();
        loadings.mark(0, u32::from(buried.is_some()));
        let mut tombstones = Tombstones::new();
        if buried == Some(true) {
            tombstones.insert(Key::Int(7), 1);
        }
        one_of(live, &loadings, &mut tombstones, kinds)
    }

    fn one_of(
        live: bool,
        loadings: &Loadings,
        tombstones: &mut Tombstones,
        kinds: &[RowKind],
    ) -> (Option<(u32, bool)>, bool, bool) {
        let keys = Keys::Int(vec![7; kinds.len()]);
        let sorted: Vec<u32> = (0..kinds.len() as u32).collect();
        let groups = Groups::new(&keys, &sorted).unwrap();
        let places = [live.then_some(Place { file: 1, row: 2 })];
        let outcome = resolve(&groups, &sorted, kinds, &places, loadings, tombstones);
        let replaced = outcome.replaced == [Place { file: 1, row: 2 }];
        (outcome.rows.first().copied(), replaced, !tombstones.is_empty())
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
        assert_eq!(one(true, None, &[D, I]), (Some((1, true)), true, false));
    }

    #[test]
    fn deletes_of_an_earlier_loading_do_not_count() {
        let mut loadings = Loadings::default();
        loadings.mark(1, 4);
        loadings.mark(3, 0);
        loadings.mark(3, 5);
        assert_eq!((0..5).map(|row| loadings.of(row)).collect::<Vec<_>>(), [0, 4, 4, 5, 5]);
        let mut tombstones = Tombstones::new();
        assert_eq!(one_of(false, &loadings, &mut tombstones, &[D, I]), (Some((1, true)), false, false));
        assert_eq!(one_of(false, &loadings, &mut tombstones, &[D, D, I]), (None, false, true));
        assert_eq!(one_of(false, &loadings, &mut tombstones, &[U, U, D, I]), (Some((3, true)), false, true));
        assert_eq!(one_of(false, &loadings, &mut tombstones, &[U, U, U, D, I]), (None, false, true));
        assert_eq!(tombstones[&Key::Int(7)], 5);
    }
}
