use std::time::Duration;

use async_trait::async_trait;
use tidegate_storage::store::Operation;

use super::ColumnType::{BigInt, Double, Text};
use super::{Cell, Column, SysState, SysView, column};
use crate::error::SqlError;

pub(super) struct StoreRequests;

const COLUMNS: &[Column] = &[
    column(
        "operation",
        Text,
        "`create` (on the condition that there is none of the name), `put` (also parts of large objects), `get`, `list` or \
         `delete`.",
    ),
    column("requests", BigInt, "Requests that have ended since the server started. Attempts made again count once."),
    column(
        "errors",
        BigInt,
        "Those that failed or were given up. That an object is missing, or exists already, is no error.",
    ),
    column("object_bytes", BigInt, "Bytes of objects that were read or written."),
    column("mean_ms", Double, "Mean time of a request; for `get` and `list` until the last byte."),
    column("p50_ms", Double, "Half of them took no longer; rounded up to a power of two of microseconds."),
    column("p99_ms", Double, "99 of 100 took no longer; rounded up in the same way."),
    column("max_ms", Double, "The longest."),
];

fn ms(time: Duration) -> Cell {
    (time.as_micros() as f64 / 1000.0).into()
}

#[async_trait]
impl SysView for StoreRequests {
    fn name(&self) -> &'static str {
        "store_requests"
    }

    fn doc(&self) -> &'static str {
        "One row for each kind of request to the object store, of this server since it started."
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    async fn rows(&self, state: &SysState) -> Result<Vec<Vec<Cell>>, SqlError> {
        let rows = Operation::ALL.into_iter().map(|operation| {
            let figures = state.statistics.of(operation);
            let mean = figures.total.checked_div(u32::try_from(figures.requests).unwrap_or(u32::MAX));
            vec![
                operation.as_str().into(),
                figures.requests.into(),
                figures.errors.into(),
                figures.bytes.into(),
                ms(mean.unwrap_or_default()),
                ms(figures.median),
                ms(figures.p99),
                ms(figures.longest),
            ]
        });
        Ok(rows.collect())
    }
}
