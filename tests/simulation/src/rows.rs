//! The rows of a snapshot, read as directly as can be: nothing of what queries or merges read with is in between.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::{LiveFile, TableVersion};

/// A row: its values as texts under the names of their columns, without those that are NULL.
pub type Texts = BTreeMap<String, String>;
/// Rows by the text of their key, which is in the column `id`.
pub type Rows = BTreeMap<String, Texts>;

/// Data files that were decoded: for each row the texts of its values by the ids of their fields.
#[derive(Default)]
pub struct Files(BTreeMap<Path, Vec<BTreeMap<i32, Option<String>>>>);

impl Files {
    /// The rows of a version, each file of which is read once.
    ///
    /// # Errors
    /// What is not as the metadata says: sizes, numbers of rows, schemas, keys that are there twice.
    pub async fn rows(&mut self, store: &StoreRef, version: &TableVersion) -> Result<Rows, String> {
        let mut all = Rows::new();
        for file in &version.files {
            let is_dead = |row: usize| file.deleted.as_ref().is_some_and(|deleted| deleted.contains(row as u32));
            let rows = self.decoded(store, version, file).await.map_err(|error| format!("{}: {error}", file.path))?;
            for (_, row) in rows.iter().enumerate().filter(|(row, _)| !is_dead(*row)) {
                let value = |field: &tidegate_storage::paimon::Field| {
                    Some((field.name.clone(), row.get(&field.id).cloned().flatten()?))
                };
                let row: Texts = version.schema.fields.iter().filter_map(value).collect();
                let key = row.get("id").cloned().ok_or("a row without a key")?;
                if all.insert(key.clone(), row).is_some() {
                    return Err(format!("key {key} is live twice"));
                }
            }
        }
        if all.len() as u64 != version.row_count() {
            return Err(format!("{} rows are {} by the metadata", all.len(), version.row_count()));
        }
        Ok(all)
    }

    async fn decoded(
        &mut self,
        store: &StoreRef,
        version: &TableVersion,
        file: &LiveFile,
    ) -> Result<&[BTreeMap<i32, Option<String>>], String> {
        if !self.0.contains_key(&file.path) {
            let schema = version.schemas.get(&(file.meta.schema_id as u64)).ok_or("its schema is missing")?;
            let bytes = store::read(&**store, &file.path).await.map_err(|error| error.to_string())?;
            if bytes.len() as i64 != file.meta.file_size {
                return Err("its size is not what the manifest says".to_owned());
            }
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|builder| builder.build());
            let mut rows = Vec::new();
            for batch in reader.map_err(|error| error.to_string())? {
                let batch = batch.map_err(|error| error.to_string())?;
                let columns: Vec<(i32, Vec<Option<String>>)> = schema
                    .fields
                    .iter()
                    .map(|field| Ok((field.id, texts(batch.column_by_name(&field.name).ok_or("a column is missing")?))))
                    .collect::<Result<_, String>>()?;
                rows.extend((0..batch.num_rows()).map(|row| {
                    columns.iter().map(|(id, values)| (*id, values[row].clone())).collect::<BTreeMap<_, _>>()
                }));
            }
            if rows.len() as i64 != file.meta.row_count {
                return Err("its number of rows is not what the manifest says".to_owned());
            }
            self.0.insert(file.path.clone(), rows);
        }
        Ok(&self.0[&file.path])
    }
}

/// The texts of a column's values.
pub fn texts(column: &ArrayRef) -> Vec<Option<String>> {
    let options = FormatOptions::default();
    let Ok(format) = ArrayFormatter::try_new(column.as_ref(), &options) else { return vec![None; column.len()] };
    (0..column.len()).map(|row| column.is_valid(row).then(|| format.value(row).to_string())).collect()
}
