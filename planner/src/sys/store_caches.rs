use async_trait::async_trait;

use super::ColumnType::{BigInt, Text};
use super::{Cell, Column, SysState, SysView, column};
use crate::error::SqlError;

pub(super) struct StoreCaches;

const COLUMNS: &[Column] = &[
    column("place", Text, "`memory` or `disk`."),
    column("used_bytes", BigInt, "Bytes that are kept there now."),
    column("hits", BigInt, "Blocks of objects that queries found there."),
    column("misses", BigInt, "Blocks that were looked for there and not found."),
];

#[async_trait]
impl SysView for StoreCaches {
    fn name(&self) -> &'static str {
        "store_caches"
    }

    fn doc(&self) -> &'static str {
        "One row for each place where this server keeps parts of objects at hand, if the store is not on the local disk."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let Some(cache) = &state.object_cache else { return Ok(Vec::new()) };
        let usage = cache.usage();
        let row = |place: &str, bytes: u64, hits: u64, misses: u64| {
            vec![place.into(), bytes.into(), hits.into(), misses.into()]
        };
        Ok(vec![
            row("memory", usage.memory_bytes, usage.memory_hits, usage.disk_hits + usage.misses),
            row("disk", usage.disk_bytes, usage.disk_hits, usage.misses),
        ])
    }
}
