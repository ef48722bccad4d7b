//! Manifests: which files a table version has.
//!
//! A snapshot names two *manifest lists* (everything before, and this commit's changes), which name *manifests*, whose
//! entries add and remove data files. The *index manifest* names the index files (deletion vectors) of all buckets.
//! Numbers are signed, as they are in the files.

use arrow::array::new_null_array;
use serde::{Deserialize, Serialize};

use super::avro::{self, Decoder, Encoder, Record};
use super::binary_row;
use super::data_type::DataType;
use crate::error::{Error, Result};

/// `_VERSION` of manifest and manifest list records.
const MANIFEST_VERSION: i32 = 2;
/// `_VERSION` of index manifest records.
const INDEX_MANIFEST_VERSION: i32 = 1;
/// `_INDEX_TYPE` of deletion vectors.
pub const DELETION_VECTORS: &str = "DELETION_VECTORS";

/// Whether an entry adds a file to the table or takes it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub enum FileKind {
    /// The file is live from this commit on.
    Add,
    /// The file is no longer live.
    Delete,
}

impl From<FileKind> for i32 {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Add => 0,
            FileKind::Delete => 1,
        }
    }
}

impl TryFrom<i32> for FileKind {
    type Error = String;

    fn try_from(kind: i32) -> Result<Self, String> {
        match kind {
            0 => Ok(Self::Add),
            1 => Ok(Self::Delete),
            kind => Err(format!("{kind} is no file kind")),
        }
    }
}

/// How a data file came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub enum FileSource {
    /// Written from new rows.
    Append,
    /// Written from other files.
    Compact,
}

impl From<FileSource> for i32 {
    fn from(source: FileSource) -> Self {
        match source {
            FileSource::Append => 0,
            FileSource::Compact => 1,
        }
    }
}

impl TryFrom<i32> for FileSource {
    type Error = String;

    fn try_from(source: i32) -> Result<Self, String> {
        match source {
            0 => Ok(Self::Append),
            1 => Ok(Self::Compact),
            source => Err(format!("{source} is no file source")),
        }
    }
}

/// Smallest and largest values and NULL counts of some columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimpleStats {
    /// Smallest values, as a serialised binary row ([`super::binary_row::serialize`]).
    #[serde(rename = "_MIN_VALUES", with = "apache_avro::serde_avro_bytes")]
    pub min_values: Vec<u8>,
    /// Largest values, as a serialised binary row.
    #[serde(rename = "_MAX_VALUES", with = "apache_avro::serde_avro_bytes")]
    pub max_values: Vec<u8>,
    /// Number of NULLs in each column, where known.
    #[serde(rename = "_NULL_COUNTS", default)]
    pub null_counts: Option<Vec<Option<i64>>>,
}

impl SimpleStats {
    /// Statistics of no columns.
    pub fn empty() -> Self {
        let row = super::binary_row::EMPTY_ROW.to_vec();
        Self { min_values: row.clone(), max_values: row, null_counts: Some(Vec::new()) }
    }

    /// Whether [`Self::without_bytes`] changes statistics of columns of these types.
    pub fn concern_bytes(types: &[DataType]) -> bool {
        types.iter().any(is_bytes)
    }

    /// The same statistics without bounds of byte strings. Paimon's predicates compare bytes as signed numbers
    /// (`CompareUtils`), so with bounds its readers skip files that hold what they look for; its own files have none.
    ///
    /// `types` are those of the columns. Errors: [`Error::Corrupt`] if the bounds are not of these types; `object` is
    /// what they belong to.
    pub fn without_bytes(&self, object: &str, types: &[DataType]) -> Result<Self> {
        let bare = |row: &[u8]| {
            let mut values = binary_row::decode(object, types, row)?;
            for (value, data_type) in values.iter_mut().zip(types) {
                if is_bytes(data_type) {
                    *value = new_null_array(&data_type.arrow(), 1);
                }
            }
            binary_row::serialize(types, &values, 0)
        };
        Ok(Self {
            min_values: bare(&self.min_values)?,
            max_values: bare(&self.max_values)?,
            null_counts: self.null_counts.clone(),
        })
    }

    fn encode(&self, out: &mut Encoder) {
        out.bytes(&self.min_values);
        out.bytes(&self.max_values);
        out.optional(self.null_counts.as_deref(), |out, counts| {
            out.array(counts, |out, count| out.optional(*count, Encoder::long));
        });
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            min_values: from.vec()?,
            max_values: from.vec()?,
            null_counts: from.optional(|from| from.array(|from| from.optional(Decoder::long)))?,
        })
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes)
}

/// A data file (`_FILE`, all 21 fields).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFileMeta {
    /// Name in the bucket's directory.
    #[serde(rename = "_FILE_NAME")]
    pub file_name: String,
    /// Size in bytes.
    #[serde(rename = "_FILE_SIZE")]
    pub file_size: i64,
    /// Rows in the file, deleted ones included.
    #[serde(rename = "_ROW_COUNT")]
    pub row_count: i64,
    /// First key, as a serialised binary row; never shortened.
    #[serde(rename = "_MIN_KEY", with = "apache_avro::serde_avro_bytes")]
    pub min_key: Vec<u8>,
    /// Last key, as a serialised binary row; never shortened.
    #[serde(rename = "_MAX_KEY", with = "apache_avro::serde_avro_bytes")]
    pub max_key: Vec<u8>,
    /// Statistics of the key columns.
    #[serde(rename = "_KEY_STATS")]
    pub key_stats: SimpleStats,
    /// Statistics of the columns in `value_stats_cols`.
    #[serde(rename = "_VALUE_STATS")]
    pub value_stats: SimpleStats,
    /// Smallest sequence number.
    #[serde(rename = "_MIN_SEQUENCE_NUMBER")]
    pub min_sequence_number: i64,
    /// Largest sequence number.
    #[serde(rename = "_MAX_SEQUENCE_NUMBER")]
    pub max_sequence_number: i64,
    /// Schema the file was written with.
    #[serde(rename = "_SCHEMA_ID")]
    pub schema_id: i64,
    /// Level of the sorted run the file belongs to.
    #[serde(rename = "_LEVEL")]
    pub level: i32,
    /// Files that belong to this one.
    #[serde(rename = "_EXTRA_FILES")]
    pub extra_files: Vec<String>,
    /// When the file was written, in milliseconds since 1970.
    #[serde(rename = "_CREATION_TIME", default)]
    pub creation_time: Option<i64>,
    /// Rows that are deletes; always 0 in files written here.
    #[serde(rename = "_DELETE_ROW_COUNT", default)]
    pub delete_row_count: Option<i64>,
    /// An index small enough to be kept here.
    #[serde(rename = "_EMBEDDED_FILE_INDEX", default, with = "apache_avro::serde_avro_bytes_opt")]
    pub embedded_file_index: Option<Vec<u8>>,
    /// How the file came to be.
    #[serde(rename = "_FILE_SOURCE", default)]
    pub file_source: Option<FileSource>,
    /// Columns with statistics: `None` is all columns of the schema, an empty list none.
    #[serde(rename = "_VALUE_STATS_COLS", default)]
    pub value_stats_cols: Option<Vec<String>>,
    /// Where the file lies, if not in the bucket's directory.
    #[serde(rename = "_EXTERNAL_PATH", default)]
    pub external_path: Option<String>,
    /// Row id of the first row, with row tracking.
    #[serde(rename = "_FIRST_ROW_ID", default)]
    pub first_row_id: Option<i64>,
    /// Columns the file has, if not all.
    #[serde(rename = "_WRITE_COLS", default)]
    pub write_cols: Option<Vec<String>>,
    /// Sequence numbers of those columns.
    #[serde(rename = "_WRITE_COLS_SEQUENCES", default)]
    pub write_cols_sequences: Option<Vec<i64>>,
}

impl DataFileMeta {
    /// A file of one row for tests.
    #[cfg(test)]
    pub(crate) fn sample(file_name: &str) -> Self {
        Self {
            file_name: file_name.to_owned(),
            file_size: 1,
            row_count: 1,
            min_key: Vec::new(),
            max_key: Vec::new(),
            key_stats: SimpleStats::empty(),
            value_stats: SimpleStats::empty(),
            min_sequence_number: 0,
            max_sequence_number: 0,
            schema_id: 0,
            level: 5,
            extra_files: Vec::new(),
            creation_time: None,
            delete_row_count: None,
            embedded_file_index: None,
            file_source: None,
            value_stats_cols: None,
            external_path: None,
            first_row_id: None,
            write_cols: None,
            write_cols_sequences: None,
        }
    }

    fn encode(&self, out: &mut Encoder) {
        let strings = |out: &mut Encoder, items: &[String]| out.array(items, |out, item| out.string(item));
        out.string(&self.file_name);
        out.long(self.file_size);
        out.long(self.row_count);
        out.bytes(&self.min_key);
        out.bytes(&self.max_key);
        self.key_stats.encode(out);
        self.value_stats.encode(out);
        out.long(self.min_sequence_number);
        out.long(self.max_sequence_number);
        out.long(self.schema_id);
        out.int(self.level);
        strings(out, &self.extra_files);
        out.optional(self.creation_time, Encoder::long);
        out.optional(self.delete_row_count, Encoder::long);
        out.optional(self.embedded_file_index.as_deref(), Encoder::bytes);
        out.optional(self.file_source.map(i32::from), Encoder::int);
        out.optional(self.value_stats_cols.as_deref(), strings);
        out.optional(self.external_path.as_deref(), Encoder::string);
        out.optional(self.first_row_id, Encoder::long);
        out.optional(self.write_cols.as_deref(), strings);
        out.optional(self.write_cols_sequences.as_deref(), |out, items| out.array(items, |out, item| out.long(*item)));
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let strings = |from: &mut Decoder<'_>| from.array(Decoder::string);
        Some(Self {
            file_name: from.string()?,
            file_size: from.long()?,
            row_count: from.long()?,
            min_key: from.vec()?,
            max_key: from.vec()?,
            key_stats: SimpleStats::decode(from)?,
            value_stats: SimpleStats::decode(from)?,
            min_sequence_number: from.long()?,
            max_sequence_number: from.long()?,
            schema_id: from.long()?,
            level: from.int()?,
            extra_files: strings(from)?,
            creation_time: from.optional(Decoder::long)?,
            delete_row_count: from.optional(Decoder::long)?,
            embedded_file_index: from.optional(Decoder::vec)?,
            file_source: from.optional(|from| FileSource::try_from(from.int()?).ok())?,
            value_stats_cols: from.optional(strings)?,
            external_path: from.optional(Decoder::string)?,
            first_row_id: from.optional(Decoder::long)?,
            write_cols: from.optional(strings)?,
            write_cols_sequences: from.optional(|from| from.array(Decoder::long))?,
        })
    }
}

/// One change of the set of live files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ManifestEntry {
    #[serde(rename = "_VERSION")]
    version: i32,
    /// Add or delete.
    #[serde(rename = "_KIND")]
    pub kind: FileKind,
    /// The partition, as a serialised binary row; the empty row in tables without partitions.
    #[serde(rename = "_PARTITION", with = "apache_avro::serde_avro_bytes")]
    pub partition: Vec<u8>,
    /// The bucket.
    #[serde(rename = "_BUCKET")]
    pub bucket: i32,
    /// Number of buckets when the file was written.
    #[serde(rename = "_TOTAL_BUCKETS")]
    pub total_buckets: i32,
    /// The file.
    #[serde(rename = "_FILE")]
    pub file: DataFileMeta,
}

impl ManifestEntry {
    /// An entry of a table without partitions.
    pub fn new(kind: FileKind, bucket: u32, total_buckets: u32, file: DataFileMeta) -> Self {
        let partition = super::binary_row::EMPTY_ROW.to_vec();
        Self {
            version: MANIFEST_VERSION,
            kind,
            partition,
            bucket: bucket as i32,
            total_buckets: total_buckets as i32,
            file,
        }
    }
}

impl Record for ManifestEntry {
    const SCHEMA: &'static str = include_str!("avro/manifest.avsc");
    const WHAT: &'static str = "manifest";

    fn encode(&self, out: &mut Encoder) {
        out.int(self.version);
        out.int(self.kind.into());
        out.bytes(&self.partition);
        out.int(self.bucket);
        out.int(self.total_buckets);
        self.file.encode(out);
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            version: from.int()?,
            kind: FileKind::try_from(from.int()?).ok()?,
            partition: from.vec()?,
            bucket: from.int()?,
            total_buckets: from.int()?,
            file: DataFileMeta::decode(from)?,
        })
    }
}

/// A manifest, as a manifest list names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ManifestFileMeta {
    #[serde(rename = "_VERSION")]
    version: i32,
    /// Name in the `manifest` directory.
    #[serde(rename = "_FILE_NAME")]
    pub file_name: String,
    /// Size in bytes.
    #[serde(rename = "_FILE_SIZE")]
    pub file_size: i64,
    /// Entries that add a file.
    #[serde(rename = "_NUM_ADDED_FILES")]
    pub num_added_files: i64,
    /// Entries that remove a file.
    #[serde(rename = "_NUM_DELETED_FILES")]
    pub num_deleted_files: i64,
    /// Statistics of the partition columns.
    #[serde(rename = "_PARTITION_STATS")]
    pub partition_stats: SimpleStats,
    /// Schema when the manifest was written.
    #[serde(rename = "_SCHEMA_ID")]
    pub schema_id: i64,
    /// Smallest bucket among the entries.
    #[serde(rename = "_MIN_BUCKET", default)]
    pub min_bucket: Option<i32>,
    /// Largest bucket among the entries.
    #[serde(rename = "_MAX_BUCKET", default)]
    pub max_bucket: Option<i32>,
    /// Smallest level among the entries.
    #[serde(rename = "_MIN_LEVEL", default)]
    pub min_level: Option<i32>,
    /// Largest level among the entries.
    #[serde(rename = "_MAX_LEVEL", default)]
    pub max_level: Option<i32>,
    /// Smallest row id, with row tracking.
    #[serde(rename = "_MIN_ROW_ID", default)]
    pub min_row_id: Option<i64>,
    /// Largest row id, with row tracking.
    #[serde(rename = "_MAX_ROW_ID", default)]
    pub max_row_id: Option<i64>,
}

impl ManifestFileMeta {
    /// What a manifest list says of a manifest with `entries`, stored as `file_name` in `file_size` bytes.
    pub fn of(file_name: String, file_size: usize, schema_id: u64, entries: &[ManifestEntry]) -> Self {
        let added = entries.iter().filter(|entry| entry.kind == FileKind::Add).count();
        let buckets = || entries.iter().map(|entry| entry.bucket);
        let levels = || entries.iter().map(|entry| entry.file.level);
        Self {
            version: MANIFEST_VERSION,
            file_name,
            file_size: file_size as i64,
            num_added_files: added as i64,
            num_deleted_files: (entries.len() - added) as i64,
            partition_stats: SimpleStats::empty(),
            schema_id: schema_id as i64,
            min_bucket: buckets().min(),
            max_bucket: buckets().max(),
            min_level: levels().min(),
            max_level: levels().max(),
            min_row_id: None,
            max_row_id: None,
        }
    }
}

impl Record for ManifestFileMeta {
    const SCHEMA: &'static str = include_str!("avro/manifest_list.avsc");
    const WHAT: &'static str = "manifest list";

    fn encode(&self, out: &mut Encoder) {
        out.int(self.version);
        out.string(&self.file_name);
        out.long(self.file_size);
        out.long(self.num_added_files);
        out.long(self.num_deleted_files);
        self.partition_stats.encode(out);
        out.long(self.schema_id);
        for number in [self.min_bucket, self.max_bucket, self.min_level, self.max_level] {
            out.optional(number, Encoder::int);
        }
        for number in [self.min_row_id, self.max_row_id] {
            out.optional(number, Encoder::long);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        Some(Self {
            version: from.int()?,
            file_name: from.string()?,
            file_size: from.long()?,
            num_added_files: from.long()?,
            num_deleted_files: from.long()?,
            partition_stats: SimpleStats::decode(from)?,
            schema_id: from.long()?,
            min_bucket: from.optional(Decoder::int)?,
            max_bucket: from.optional(Decoder::int)?,
            min_level: from.optional(Decoder::int)?,
            max_level: from.optional(Decoder::int)?,
            min_row_id: from.optional(Decoder::long)?,
            max_row_id: from.optional(Decoder::long)?,
        })
    }
}

/// Where the deletion vector of one data file lies in an index file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionVectorMeta {
    /// The data file.
    #[serde(rename = "f0")]
    pub data_file: String,
    /// Offset of the vector's size field in the index file; the first is 1.
    #[serde(rename = "f1")]
    pub offset: i32,
    /// The vector's size: magic number and bitmap.
    #[serde(rename = "f2")]
    pub length: i32,
    /// Number of deleted rows. Counts pushed down to the metadata rely on it.
    #[serde(rename = "_CARDINALITY", default)]
    pub cardinality: Option<i64>,
}

/// An index over row ids, which tables of this crate do not have; carried for completeness of the record.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct GlobalIndexMeta {
    #[serde(rename = "_ROW_RANGE_START")]
    row_range_start: i64,
    #[serde(rename = "_ROW_RANGE_END")]
    row_range_end: i64,
    #[serde(rename = "_INDEX_FIELD_ID")]
    index_field_id: i32,
    #[serde(rename = "_EXTRA_FIELD_IDS", default)]
    extra_field_ids: Option<Vec<i32>>,
    #[serde(rename = "_INDEX_META", default, with = "apache_avro::serde_avro_bytes_opt")]
    index_meta: Option<Vec<u8>>,
    #[serde(rename = "_SOURCE_META", default, with = "apache_avro::serde_avro_bytes_opt")]
    source_meta: Option<Vec<u8>>,
}

/// An index file: here always the deletion vectors of one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IndexManifestEntry {
    #[serde(rename = "_VERSION")]
    version: i32,
    /// Add or delete; the list is a full one, so always [`FileKind::Add`].
    #[serde(rename = "_KIND")]
    pub kind: FileKind,
    /// The partition, as a serialised binary row.
    #[serde(rename = "_PARTITION", with = "apache_avro::serde_avro_bytes")]
    pub partition: Vec<u8>,
    /// The bucket.
    #[serde(rename = "_BUCKET")]
    pub bucket: i32,
    /// [`DELETION_VECTORS`] or another type.
    #[serde(rename = "_INDEX_TYPE")]
    pub index_type: String,
    /// Name in the `index` directory.
    #[serde(rename = "_FILE_NAME")]
    pub file_name: String,
    /// Size in bytes.
    #[serde(rename = "_FILE_SIZE")]
    pub file_size: i64,
    /// Number of vectors in the file.
    #[serde(rename = "_ROW_COUNT")]
    pub row_count: i64,
    /// The vectors in the file.
    #[serde(rename = "_DELETIONS_VECTORS_RANGES", default)]
    pub deletion_vectors: Option<Vec<Option<DeletionVectorMeta>>>,
    #[serde(rename = "_EXTERNAL_PATH", default)]
    external_path: Option<String>,
    #[serde(rename = "_GLOBAL_INDEX", default)]
    global_index: Option<GlobalIndexMeta>,
}

impl IndexManifestEntry {
    /// The deletion vectors of `bucket`, stored as `file_name` in `file_size` bytes.
    pub fn deletion_vectors(
        bucket: u32,
        file_name: String,
        file_size: usize,
        vectors: Vec<DeletionVectorMeta>,
    ) -> Self {
        Self {
            version: INDEX_MANIFEST_VERSION,
            kind: FileKind::Add,
            partition: super::binary_row::EMPTY_ROW.to_vec(),
            bucket: bucket as i32,
            index_type: DELETION_VECTORS.to_owned(),
            file_name,
            file_size: file_size as i64,
            row_count: vectors.len() as i64,
            deletion_vectors: Some(vectors.into_iter().map(Some).collect()),
            external_path: None,
            global_index: None,
        }
    }

    /// The vectors in the file.
    pub fn vectors(&self) -> impl Iterator<Item = &DeletionVectorMeta> {
        self.deletion_vectors.iter().flatten().flatten()
    }
}

impl Record for IndexManifestEntry {
    const SCHEMA: &'static str = include_str!("avro/index_manifest.avsc");
    const WHAT: &'static str = "index manifest";

    fn encode(&self, out: &mut Encoder) {
        out.int(self.version);
        out.int(self.kind.into());
        out.bytes(&self.partition);
        out.int(self.bucket);
        out.string(&self.index_type);
        out.string(&self.file_name);
        out.long(self.file_size);
        out.long(self.row_count);
        out.optional(self.deletion_vectors.as_deref(), |out, vectors| {
            out.array(vectors, |out, vector| {
                out.optional(vector.as_ref(), |out, vector| {
                    out.string(&vector.data_file);
                    out.int(vector.offset);
                    out.int(vector.length);
                    out.optional(vector.cardinality, Encoder::long);
                });
            });
        });
        out.optional(self.external_path.as_deref(), Encoder::string);
        out.optional(self.global_index.as_ref(), |out, index| {
            out.long(index.row_range_start);
            out.long(index.row_range_end);
            out.int(index.index_field_id);
            out.optional(index.extra_field_ids.as_deref(), |out, ids| out.array(ids, |out, id| out.int(*id)));
            out.optional(index.index_meta.as_deref(), Encoder::bytes);
            out.optional(index.source_meta.as_deref(), Encoder::bytes);
        });
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let vector = |from: &mut Decoder<'_>| {
            Some(DeletionVectorMeta {
                data_file: from.string()?,
                offset: from.int()?,
                length: from.int()?,
                cardinality: from.optional(Decoder::long)?,
            })
        };
        let global_index = |from: &mut Decoder<'_>| {
            Some(GlobalIndexMeta {
                row_range_start: from.long()?,
                row_range_end: from.long()?,
                index_field_id: from.int()?,
                extra_field_ids: from.optional(|from| from.array(Decoder::int))?,
                index_meta: from.optional(Decoder::vec)?,
                source_meta: from.optional(Decoder::vec)?,
            })
        };
        Some(Self {
            version: from.int()?,
            kind: FileKind::try_from(from.int()?).ok()?,
            partition: from.vec()?,
            bucket: from.int()?,
            index_type: from.string()?,
            file_name: from.string()?,
            file_size: from.long()?,
            row_count: from.long()?,
            deletion_vectors: from.optional(|from| from.array(|from| from.optional(vector)))?,
            external_path: from.optional(Decoder::string)?,
            global_index: from.optional(global_index)?,
        })
    }
}

/// The bytes of a manifest.
pub fn encode_manifest(entries: &[ManifestEntry]) -> Vec<u8> {
    avro::encode(entries)
}

/// Reads a manifest. `object` is its path.
pub fn decode_manifest(object: &str, bytes: &[u8]) -> Result<Vec<ManifestEntry>> {
    check_version(object, avro::decode(object, bytes)?, MANIFEST_VERSION, |entry: &ManifestEntry| entry.version)
}

/// The bytes of a manifest list.
pub fn encode_manifest_list(manifests: &[ManifestFileMeta]) -> Vec<u8> {
    avro::encode(manifests)
}

/// Reads a manifest list. `object` is its path.
pub fn decode_manifest_list(object: &str, bytes: &[u8]) -> Result<Vec<ManifestFileMeta>> {
    check_version(object, avro::decode(object, bytes)?, MANIFEST_VERSION, |manifest: &ManifestFileMeta| {
        manifest.version
    })
}

/// The bytes of an index manifest.
pub fn encode_index_manifest(entries: &[IndexManifestEntry]) -> Vec<u8> {
    avro::encode(entries)
}

/// Reads an index manifest. `object` is its path.
pub fn decode_index_manifest(object: &str, bytes: &[u8]) -> Result<Vec<IndexManifestEntry>> {
    check_version(object, avro::decode(object, bytes)?, INDEX_MANIFEST_VERSION, |entry: &IndexManifestEntry| {
        entry.version
    })
}

fn check_version<T>(object: &str, records: Vec<T>, supported: i32, version: impl Fn(&T) -> i32) -> Result<Vec<T>> {
    match records.iter().map(version).find(|version| *version != supported) {
        Some(other) => Err(Error::invalid(format!("object {object} has records of version {other}, not {supported}"))),
        None => Ok(records),
    }
}

#[cfg(test)]
mod tests;
