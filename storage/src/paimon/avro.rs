//! Avro object container files as manifests are stored in: records of one schema, compressed with zstd.
//!
//! The schemas are fixed, so records are encoded by hand, in the schema's field order, and decoded likewise where a file
//! has the very same schema. Files of other writers, who add and leave out fields, are decoded by the schema that they
//! bring along, by name.
//!
//! Avro has no checksum. Each block is a zstd frame with one, which every reader verifies, and the file's metadata
//! holds a CRC32 of all the rest, which this crate verifies: of the file with zeros in the CRC's own place.

mod decoder;

use std::ops::Range;

use apache_avro::Reader;
use serde::de::DeserializeOwned;

pub(super) use self::decoder::Decoder;
use crate::error::{Error, Result};
use crate::zstd_contexts;

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_LENGTH: usize = 16;
/// Metadata key of our checksum; readers ignore keys they do not know.
const CHECKSUM: &str = "tidegate.crc32";
/// Where the checksum's digits go.
const NO_CHECKSUM: &str = "00000000";
/// Records a block, so that a reader need not hold a large manifest uncompressed.
const BLOCK_RECORDS: usize = 4096;

/// A record that can be written in its fixed schema.
pub(super) trait Record: DeserializeOwned {
    /// The Avro schema, as JSON.
    const SCHEMA: &'static str;
    /// What the file is called in errors.
    const WHAT: &'static str;

    /// Appends the record's fields in the schema's order.
    fn encode(&self, out: &mut Encoder);

    /// The record of the next values, in the same order.
    fn decode(from: &mut Decoder<'_>) -> Option<Self>;
}

/// Appends Avro values.
#[derive(Debug, Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn int(&mut self, value: i32) {
        self.long(i64::from(value));
    }

    /// Variable-length, zig-zag: small numbers of either sign are short.
    pub(super) fn long(&mut self, value: i64) {
        let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
        while rest >= 0x80 {
            self.0.push((rest as u8 & 0x7f) | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.long(value.len() as i64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn string(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// A union of null and a type, in this order.
    pub(super) fn optional<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.long(0),
            Some(value) => {
                self.long(1);
                encode(self, value);
            }
        }
    }

    pub(super) fn array<T>(&mut self, items: &[T], mut encode: impl FnMut(&mut Self, &T)) {
        if !items.is_empty() {
            self.long(items.len() as i64);
            for item in items {
                encode(self, item);
            }
        }
        self.long(0);
    }
}

/// The schema as it stands in files.
fn schema_text<T: Record>() -> impl Iterator<Item = u8> {
    T::SCHEMA.bytes().filter(|byte| !byte.is_ascii_whitespace())
}

/// The bytes of a file with `records`, which may be none.
pub(super) fn encode<T: Record>(records: &[T]) -> Vec<u8> {
    let schema: Vec<u8> = schema_text::<T>().collect();
    let mut blocks = Vec::new();
    for records in records.chunks(BLOCK_RECORDS) {
        let mut data = Encoder::default();
        for record in records {
            record.encode(&mut data);
        }
        blocks.push((records.len(), zstd_contexts::compress(&data.0)));
    }
    let sync = sync_marker(&schema, &blocks);
    let mut body = Encoder::default();
    for (count, data) in &blocks {
        body.long(*count as i64);
        body.bytes(data);
        body.0.extend_from_slice(&sync);
    }
    let mut file = Encoder(MAGIC.to_vec());
    file.array(
        &[("avro.codec", b"zstandard".as_slice()), ("avro.schema", &schema), (CHECKSUM, NO_CHECKSUM.as_bytes())],
        |file, (key, value)| {
            file.string(key);
            file.bytes(value);
        },
    );
    // The digits are the last value, behind which only the array's end stands.
    let digits = file.0.len() - 1 - NO_CHECKSUM.len();
    file.0.extend_from_slice(&sync);
    file.0.extend_from_slice(&body.0);
    let checksum = format!("{:08x}", crc32fast::hash(&file.0));
    file.0[digits..digits + NO_CHECKSUM.len()].copy_from_slice(checksum.as_bytes());
    file.0
}

/// What separates blocks. Any value will do; taking it from the content makes equal records equal files.
fn sync_marker(schema: &[u8], blocks: &[(usize, Vec<u8>)]) -> [u8; SYNC_LENGTH] {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new_with_prefix(schema);
    for (_, data) in blocks {
        digest.update(data);
    }
    let mut sync = [0; SYNC_LENGTH];
    sync.copy_from_slice(&digest.finalize()[..SYNC_LENGTH]);
    sync
}

/// The records of a file. `object` is its path.
pub(super) fn decode<T: Record>(object: &str, bytes: &[u8]) -> Result<Vec<T>> {
    verify(bytes).map_err(|what| not_one::<T>(object, what))?;
    let is_own = |header: &Header<'_>| {
        header.value("avro.schema").is_some_and(|schema| schema_text::<T>().eq(schema.iter().copied()))
            && header.value("avro.codec") == Some(b"zstandard".as_slice())
    };
    match Header::read(bytes).filter(is_own) {
        Some(header) => decode_own(&header).ok_or_else(|| not_one::<T>(object, "its records are cut short or damaged")),
        None => decode_by_its_schema(object, bytes),
    }
}

/// The records of any file, at many times the cost.
pub(super) fn decode_by_its_schema<T: Record>(object: &str, bytes: &[u8]) -> Result<Vec<T>> {
    let reader = Reader::new(bytes).map_err(|error| not_one::<T>(object, &error.to_string()))?;
    reader
        .map(|value| value.and_then(|value| apache_avro::from_value(&value)))
        .map(|record| record.map_err(|error| not_one::<T>(object, &error.to_string())))
        .collect()
}

fn not_one<T: Record>(object: &str, what: &str) -> Error {
    Error::corrupt(object, format!("not a {}: {what}", T::WHAT))
}

/// Verifies our checksum, if the file has one.
fn verify(file: &[u8]) -> Result<(), &'static str> {
    let Some(digits) = checksum_digits(file).ok_or("its header is cut short or damaged")? else { return Ok(()) };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file[..digits.start]);
    hasher.update(NO_CHECKSUM.as_bytes());
    hasher.update(&file[digits.end..]);
    let actual = format!("{:08x}", hasher.finalize());
    if file[digits] == *actual.as_bytes() { Ok(()) } else { Err("its checksum does not match its content") }
}

/// Where the checksum stands in the metadata, if there is one; nothing if the metadata cannot be read.
fn checksum_digits(file: &[u8]) -> Option<Option<Range<usize>>> {
    let header = Header::read(file)?;
    let value = header.value(CHECKSUM);
    // Both are parts of the file.
    Some(value.map(|value| {
        let start = value.as_ptr().addr() - file.as_ptr().addr();
        start..start + value.len()
    }))
}

/// What stands before the blocks of a file.
struct Header<'a> {
    metadata: Vec<(&'a [u8], &'a [u8])>,
    sync: &'a [u8],
    blocks: Decoder<'a>,
}

impl<'a> Header<'a> {
    fn read(file: &'a [u8]) -> Option<Self> {
        let mut rest = Decoder(file.strip_prefix(MAGIC)?);
        let metadata = rest.array(|rest| Some((rest.bytes()?, rest.bytes()?)))?;
        let sync = rest.raw(SYNC_LENGTH)?;
        Some(Self { metadata, sync, blocks: rest })
    }

    /// The value of a key; the last one, should there be several.
    fn value(&self, key: &str) -> Option<&'a [u8]> {
        self.metadata.iter().rev().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| *value)
    }
}

/// The records of a file that this crate has written, whose schema is therefore known.
fn decode_own<T: Record>(header: &Header<'_>) -> Option<Vec<T>> {
    let mut blocks = header.blocks;
    let mut records = Vec::new();
    while !blocks.is_empty() {
        let (count, compressed) = (blocks.long()?, blocks.bytes()?);
        if blocks.raw(SYNC_LENGTH)? != header.sync {
            return None;
        }
        let data = zstd_contexts::decompress(compressed).ok()?;
        let mut data = Decoder(&data);
        for _ in 0..count {
            records.push(T::decode(&mut data)?);
        }
        if !data.is_empty() {
            return None;
        }
    }
    Some(records)
}
