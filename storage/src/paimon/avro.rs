//! Avro object container files as manifests are stored in: records of one schema, compressed with zstd.
//!
//! The schemas are fixed, so records are encoded by hand, in the schema's field order. They are decoded by the
//! schema a file brings along, by name: other writers add and leave out fields.
//!
//! Avro has no checksum. Each block is a zstd frame with one, which every reader verifies, and the file's metadata
//! holds a CRC32 of all the rest, which this crate verifies: of the file with zeros in the CRC's own place.

use std::ops::Range;

use apache_avro::Reader;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_LENGTH: usize = 16;
/// Metadata key of our checksum; readers ignore keys they do not know.
const CHECKSUM: &str = "tidegate.crc32";
/// Where the checksum's digits go.
const NO_CHECKSUM: &str = "00000000";
/// Records a block, so that a reader need not hold a large manifest uncompressed.
const BLOCK_RECORDS: usize = 4096;
const COMPRESSION_LEVEL: i32 = 1;

/// A record that can be written in its fixed schema.
pub(super) trait Record: DeserializeOwned {
    /// The Avro schema, as JSON.
    const SCHEMA: &'static str;
    /// What the file is called in errors.
    const WHAT: &'static str;

    /// Appends the record's fields in the schema's order.
    fn encode(&self, out: &mut Encoder);
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

/// The bytes of a file with `records`, which may be none.
pub(super) fn encode<T: Record>(records: &[T]) -> Vec<u8> {
    let schema: String = T::SCHEMA.chars().filter(|c| !c.is_whitespace()).collect();
    let mut blocks = Vec::new();
    for records in records.chunks(BLOCK_RECORDS) {
        let mut data = Encoder::default();
        for record in records {
            record.encode(&mut data);
        }
        blocks.push((records.len(), compress(&data.0)));
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
        &[("avro.codec", "zstandard"), ("avro.schema", schema.as_str()), (CHECKSUM, NO_CHECKSUM)],
        |file, (key, value)| {
            file.string(key);
            file.bytes(value.as_bytes());
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

fn compress(data: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL).expect("the level is in zstd's range");
    compressor.include_checksum(true).expect("a frame may always have a checksum");
    compressor.compress(data).expect("the output buffer is sized by zstd's own bound")
}

/// What separates blocks. Any value will do; taking it from the content makes equal records equal files.
fn sync_marker(schema: &str, blocks: &[(usize, Vec<u8>)]) -> [u8; SYNC_LENGTH] {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new_with_prefix(schema.as_bytes());
    for (_, data) in blocks {
        digest.update(data);
    }
    let mut sync = [0; SYNC_LENGTH];
    sync.copy_from_slice(&digest.finalize()[..SYNC_LENGTH]);
    sync
}

/// The records of a file. `object` is its path.
pub(super) fn decode<T: Record>(object: &str, bytes: &[u8]) -> Result<Vec<T>> {
    let corrupt = |what: String| Error::corrupt(object, format!("not a {}: {what}", T::WHAT));
    verify(bytes).map_err(|what| corrupt(what.to_owned()))?;
    let reader = Reader::new(bytes).map_err(|e| corrupt(e.to_string()))?;
    reader
        .map(|value| value.and_then(|value| apache_avro::from_value(&value)).map_err(|e| corrupt(e.to_string())))
        .collect()
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
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut digits = None;
    loop {
        let mut count = long(&mut rest)?;
        if count == 0 {
            return Some(digits);
        }
        if count < 0 {
            long(&mut rest)?; // a negative count is followed by the block's size
            count = count.checked_neg()?;
        }
        for _ in 0..count {
            let (key, value) = (block(&mut rest)?, block(&mut rest)?);
            if key == CHECKSUM.as_bytes() {
                let end = file.len() - rest.len();
                digits = Some(end - value.len()..end);
            }
        }
    }
}

fn long(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
        }
    }
    None
}

fn block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(long(rest)?).ok()?;
    let (block, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(block)
}
