//! Deletion vectors: which rows of a data file are no longer there.
//!
//! One index file holds the vectors of one bucket: a version byte, then for each vector its size (4 bytes), a magic
//! number (4 bytes) and a 32-bit Roaring bitmap in the portable form, and a CRC32 of magic number and bitmap (4
//! bytes). All numbers but the bitmap's are big endian. Vectors of 64 bits, which other engines may write, are read too.

use roaring::{RoaringBitmap, RoaringTreemap};

use super::manifest::DeletionVectorMeta;
use crate::error::{Error, Result};

const VERSION: u8 = 1;
const MAGIC: [u8; 4] = 1_581_511_376_u32.to_be_bytes();
/// What the 64-bit bitmaps begin with that other engines write if told so (`deletion-vectors.bitmap64`).
const MAGIC_64: [u8; 4] = 1_681_511_377_u32.to_le_bytes();
/// Bytes around a vector: its size before, its checksum behind.
const NUMBER: usize = 4;

/// The bytes of an index file with the vectors of these data files, and where each lies in it.
///
/// Errors: [`Error::Invalid`] if the file would grow beyond the 2 GiB its offsets can say.
pub fn encode_index_file(vectors: &[(String, &RoaringBitmap)]) -> Result<(Vec<u8>, Vec<DeletionVectorMeta>)> {
    let mut out = vec![VERSION];
    let mut metas = Vec::with_capacity(vectors.len());
    for (data_file, bitmap) in vectors {
        let mut bitmap = (*bitmap).clone();
        bitmap.optimize();
        let start = out.len();
        out.extend_from_slice(&[0; NUMBER]);
        out.extend_from_slice(&MAGIC);
        bitmap.serialize_into(&mut out).expect("writing to memory does not fail");
        let length = out.len() - start - NUMBER;
        let checksum = crc32fast::hash(&out[start + NUMBER..]);
        let too_large = |_| Error::invalid("a bucket's deletion vectors are larger than 2 GiB");
        let (offset, size) = (i32::try_from(start).map_err(too_large)?, i32::try_from(length).map_err(too_large)?);
        out[start..start + NUMBER].copy_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&checksum.to_be_bytes());
        metas.push(DeletionVectorMeta {
            data_file: data_file.clone(),
            offset,
            length: size,
            cardinality: Some(bitmap.len() as i64),
        });
    }
    Ok((out, metas))
}

/// The vectors that `metas` name, from the bytes of their index file. `object` is its path.
///
/// Errors: [`Error::Corrupt`] if anything about a vector is not as it was written.
pub fn decode_index_file<'a>(
    object: &str,
    bytes: &[u8],
    metas: impl IntoIterator<Item = &'a DeletionVectorMeta>,
) -> Result<Vec<(String, RoaringBitmap)>> {
    if bytes.first() != Some(&VERSION) {
        return Err(Error::corrupt(object, "it does not begin with the version of deletion vector files"));
    }
    metas
        .into_iter()
        .map(|meta| {
            let bitmap = decode(bytes, meta)
                .map_err(|what| Error::corrupt(object, format!("the deletion vector of {}: {what}", meta.data_file)))?;
            Ok((meta.data_file.clone(), bitmap))
        })
        .collect()
}

fn decode(bytes: &[u8], meta: &DeletionVectorMeta) -> Result<RoaringBitmap, &'static str> {
    let cut_short = "the file is shorter than the manifest says";
    let start = usize::try_from(meta.offset).map_err(|_| "its offset is negative")?;
    let length = usize::try_from(meta.length).map_err(|_| "its length is negative")?;
    let (size, rest) = bytes.get(start..).and_then(<[u8]>::split_first_chunk::<NUMBER>).ok_or(cut_short)?;
    let magic = *rest.first_chunk().ok_or(cut_short)?;
    // The lengths of 64-bit vectors count the numbers around them too.
    let around = if magic == MAGIC_64 { 2 * NUMBER } else { 0 };
    let length = length.checked_sub(around).ok_or(cut_short)?;
    if u32::from_be_bytes(*size) as usize != length {
        return Err("its size is not the manifest's");
    }
    let (payload, rest) = rest.split_at_checked(length).ok_or(cut_short)?;
    let checksum = rest.first_chunk::<NUMBER>().ok_or(cut_short)?;
    if crc32fast::hash(payload).to_be_bytes() != *checksum {
        return Err("its checksum does not match its content");
    }
    let mut bitmap = payload.get(MAGIC.len()..).ok_or(cut_short)?;
    let decoded = match magic {
        MAGIC => RoaringBitmap::deserialize_from(&mut bitmap).ok(),
        MAGIC_64 => RoaringTreemap::deserialize_from(&mut bitmap).ok().map(of_64_bits).transpose()?,
        _ => return Err("it does not begin with the magic number of a bitmap"),
    };
    let decoded = decoded.ok_or("its bitmap cannot be read")?;
    if !bitmap.is_empty() {
        return Err("there are bytes behind its bitmap");
    }
    if meta.cardinality.is_some_and(|cardinality| cardinality != decoded.len() as i64) {
        return Err("it has not as many rows as the manifest says");
    }
    Ok(decoded)
}

/// A file has fewer rows than 32 bits can count, however many bits other engines spend on them.
fn of_64_bits(wide: RoaringTreemap) -> Result<RoaringBitmap, &'static str> {
    let mut rows = RoaringBitmap::new();
    for (high, bitmap) in wide.bitmaps() {
        if high > 0 {
            return Err("it has rows that no file has");
        }
        rows |= bitmap;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;
