//! The changelog of a table: every change as it came, for engines that follow the table from snapshot to snapshot.
//!
//! A table has one if its option `changelog-producer` is `input`. Each flush then writes the rows it was given once more,
//! with what was done to them, as a file of the bucket that only the next snapshot's changelog list names. The rows of a
//! key stand in the order in which they came.
//!
//! What is applied while the table is being loaded is left out: nobody follows a table that is not there yet, and who
//! begins to follow one reads a snapshot first.

use std::sync::Arc;

use arrow::array::Int8Array;

use super::RowKind;
use super::bucket::FlushInput;
use super::layout::Layout;
use super::run::{KeyBounds, NewFile, file_batch};
use crate::error::Result;
use crate::paimon::data_file::{Age, DataFileWriter};
use crate::paimon::{DataFileMeta, FileSource};
use crate::store::Pieces;

/// Rows encoded at a time.
const CHUNK_ROWS: usize = 32 * 1024;

/// What `_VALUE_KIND` says of a row.
#[derive(Debug, Clone, Copy)]
enum Change {
    Insert = 0,
    UpdateBefore = 1,
    UpdateAfter = 2,
    Delete = 3,
}

/// Writes the changes among a bucket's rows. Nothing if there are none.
pub(crate) async fn write(
    layout: &Layout,
    bucket: u32,
    input: &FlushInput,
    sequence: i64,
) -> Result<Option<Arc<DataFileMeta>>> {
    let FlushInput { pending, keys, kinds, changes, .. } = input;
    if changes.is_empty() {
        return Ok(None);
    }
    let sorted = keys.sort(changes.clone());
    let name = layout.names.changelog_file();
    let mut writer = DataFileWriter::new(name.as_str(), Pieces::default(), &layout.schema, Age::Young, &[])?;
    let mut bounds = KeyBounds::default();
    let mut before = None;
    let mut deletions = 0;
    for rows in sorted.chunks(CHUNK_ROWS) {
        let mut changes = Vec::with_capacity(rows.len());
        for row in rows {
            let change = match kinds[*row as usize] {
                RowKind::Upsert if before == Some((RowKind::UpdateBefore, keys.at(*row as usize))) => {
                    Change::UpdateAfter
                }
                RowKind::Upsert | RowKind::InsertAbsent => Change::Insert,
                RowKind::UpdateBefore => Change::UpdateBefore,
                RowKind::Delete => Change::Delete,
            };
            deletions += i64::from(matches!(change, Change::UpdateBefore | Change::Delete));
            before = Some((kinds[*row as usize], keys.at(*row as usize)));
            changes.push(change as i8);
        }
        let batch = pending.gather(rows)?;
        let key_arrays = layout.key_arrays(&batch);
        bounds.add(&key_arrays)?;
        writer.write(&file_batch(&writer, &key_arrays, sequence, Int8Array::from(changes), &batch)?)?;
    }
    let (pieces, size) = writer.finish_sized()?;
    layout.put_pieces(&layout.paths.data_file(bucket, &name), pieces).await?;
    let file = NewFile { name, size, rows: sorted.len(), deletions, bounds, sequence, level: 0 };
    Ok(Some(Arc::new(file.meta(layout, FileSource::Append)?)))
}
