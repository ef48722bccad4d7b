//! What a capture has made durable. Nothing of it is to be asked for again.

use std::collections::BTreeMap;

use tidegate_cdc::capture::RangeState;
use tidegate_cdc::mysql::snapshot::KeyValue;

use super::engine::Mysql;

/// What the last checkpoint holds.
#[derive(Debug, Default, Clone)]
pub struct Durable {
    /// So many transactions.
    pub transactions: usize,
    /// The ranges of each table's snapshot; none if it is complete.
    pub ranges: BTreeMap<String, Vec<RangeState>>,
}

impl Mysql {
    /// From now on this is not to be asked for again.
    pub fn set_durable(&self, durable: Durable) {
        self.lock().durable = durable;
    }
}

impl Durable {
    /// Whether a page behind a key, of the range up to another one, is in the checkpoint.
    pub(super) fn has_page(&self, table: &str, after: Option<i64>, up_to: Option<i64>) -> bool {
        let end = |key: &Option<Vec<KeyValue>>| key.as_deref().map(number);
        self.ranges.get(table).is_some_and(|ranges| {
            let of_range = |state: &&RangeState| end(&state.range.upper) == up_to;
            ranges.is_empty() || ranges.iter().filter(of_range).any(|state| state.done || end(&state.after) > after)
        })
    }
}

/// The number that a key is.
pub(super) fn number(key: &[KeyValue]) -> i64 {
    match key {
        [KeyValue::Int(number)] => *number,
        other => unreachable!("a key is one number, not {other:?}"),
    }
}
