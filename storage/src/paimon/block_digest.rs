//! Digests by which every byte of a data file is verified, whichever part of it is read.
//!
//! The `parquet` crate verifies checksums of pages and cannot write them. So the file as a whole is digested: all that
//! lies before the indexes and the footer (the *data*) in blocks of one size, each with a CRC32 of its own, and the
//! rest (the *tail*) with one CRC32. The digests stand in the footer's key-value metadata, where other readers ignore
//! them, under the key [`KEY`]:
//!
//! ```text
//! 1 <bytes of a block> <bytes of data> <CRC32 of the tail> <CRC32 of each block>
//! ```
//!
//! CRCs are eight hexadecimal digits each, those of the blocks without anything between them. The tail's CRC is that
//! of the tail with eight zeros in its own place.
//!
//! A reader finds the digests by searching the file's end for the key, before anything there is decoded: the key-value
//! metadata come behind all that could hold a user's value.

use std::io::{self, Write};
use std::ops::Range;

use crc32fast::Hasher;
use parquet::file::metadata::ParquetMetaDataReader;

/// The key in the footer's key-value metadata.
pub(crate) const KEY: &str = "tidegate.crc32";
/// What the `created_by` of our files begins with.
pub(crate) const CREATED_BY: &str = "tidegate";

/// Bytes of a block. What is read is widened to whole blocks, so a block is small beside a page or two; a file of
/// 128 MiB has 32 KiB of digests.
pub(crate) const BLOCK_BYTES: u64 = 32 << 10;

const VERSION: &str = "1";
/// Digits of a CRC.
const DIGITS: usize = 8;
const NO_CRC: &[u8; DIGITS] = b"00000000";

/// The magic number at a file's end, and the footer's length before it.
const MAGIC: &[u8; 4] = b"PAR1";
const TRAILER: usize = 8;

/// The digests of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockDigests {
    /// Bytes of the file.
    size: u64,
    /// Bytes of a block; never 0.
    block: u64,
    /// Bytes of data; the tail begins there.
    data: u64,
    blocks: Vec<u32>,
    tail_crc: u32,
    /// Where in the file the digits of the tail's CRC stand.
    tail_digits: u64,
}

/// What the end of a file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The file has digests. Those of its tail are verified.
    Digested(BlockDigests),
    /// Another writer's file, which has none.
    Foreign,
    /// So many bytes of the file's end are needed to say.
    Longer(u64),
}

impl End {
    /// Reads `end`, the last bytes of a file of `size` bytes.
    ///
    /// Errors: what is wrong with the file.
    pub(crate) fn read(size: u64, end: &[u8]) -> Result<Self, &'static str> {
        let trailer = end.last_chunk::<TRAILER>().ok_or("it is too short for a Parquet file")?;
        let (length, magic) = trailer.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err("it does not end as a Parquet file does");
        }
        let first = size.checked_sub(end.len() as u64).ok_or("it is shorter than what was read of it")?;
        if let Some(digests) = BlockDigests::find(size, first, end) {
            let tail = size - digests.data;
            if tail > end.len() as u64 {
                return Ok(Self::Longer(tail));
            }
            digests.verify_tail(&end[end.len() - tail as usize..])?;
            return Ok(Self::Digested(digests));
        }
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        let footer = length as usize + TRAILER;
        if footer as u64 > size {
            return Err("its footer is longer than the file");
        }
        if footer > end.len() {
            return Ok(Self::Longer(footer as u64));
        }
        let footer = &end[end.len() - footer..end.len() - TRAILER];
        let footer = ParquetMetaDataReader::decode_metadata(footer).map_err(|_| "its footer cannot be decoded")?;
        let footer = footer.file_metadata();
        let ours = footer.created_by().is_some_and(|name| name.starts_with(CREATED_BY));
        let digested = footer.key_value_metadata().is_some_and(|entries| entries.iter().any(|entry| entry.key == KEY));
        if ours || digested { Err("its digests are missing or cannot be read") } else { Ok(Self::Foreign) }
    }
}

impl BlockDigests {
    /// The last digests in `end`, the last bytes of a file of `size` bytes from `first` on.
    fn find(size: u64, first: u64, end: &[u8]) -> Option<Self> {
        let at = end.windows(KEY.len()).rposition(|window| window == KEY.as_bytes())? + KEY.len();
        // In Thrift's compact protocol: the next field, a string, its length.
        let (field, mut rest) = end.get(at..)?.split_first()?;
        if *field != 0x18 {
            return None;
        }
        let mut length = 0usize;
        for shift in (0..35).step_by(7) {
            let (byte, after) = rest.split_first()?;
            rest = after;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let start = end.len() - rest.len();
        let value = std::str::from_utf8(rest.get(..length)?).ok()?;
        let [version, block, data, tail_crc, blocks] = value.split(' ').collect::<Vec<_>>()[..] else { return None };
        let (block, data): (u64, u64) = (block.parse().ok()?, data.parse().ok()?);
        let tail_digits = first + (start + value.len() - blocks.len() - 1 - tail_crc.len()) as u64;
        let fits = version == VERSION
            && block > 0
            && data <= tail_digits
            && tail_crc.len() == DIGITS
            && blocks.len() as u64 == data.div_ceil(block).checked_mul(DIGITS as u64)?;
        if !fits {
            return None;
        }
        let crc = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        Some(Self {
            size,
            block,
            data,
            blocks: blocks.as_bytes().chunks(DIGITS).map(crc).collect::<Option<_>>()?,
            tail_crc: crc(tail_crc.as_bytes())?,
            tail_digits,
        })
    }

    /// Bytes that the digests take in memory.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + size_of_val(self.blocks.as_slice())
    }

    /// The part around `offset` that has a digest of its own: a block, or the tail.
    fn part_of(&self, offset: u64) -> Range<u64> {
        if offset >= self.data {
            return self.data..self.size;
        }
        let start = offset - offset % self.block;
        start..start.saturating_add(self.block).min(self.data)
    }

    /// The smallest range around `range`, which must lie in the file and not be empty, that can be verified.
    pub(crate) fn widen(&self, range: &Range<u64>) -> Range<u64> {
        self.part_of(range.start).start..self.part_of(range.end - 1).end
    }

    /// The first offset from `offset` on where a range that can be verified begins: in the middle of the tail there
    /// is none, and it is the file's end.
    pub(crate) fn next_border(&self, offset: u64) -> u64 {
        let part = self.part_of(offset);
        if part.start == offset { offset } else { part.end }
    }

    /// Verifies `bytes`, which lie from `start` on and are a range that [`Self::widen`] gives.
    ///
    /// Errors: the part whose bytes are not those that were written.
    pub(crate) fn verify(&self, mut start: u64, mut bytes: &[u8]) -> Result<(), Range<u64>> {
        while !bytes.is_empty() {
            let part = self.part_of(start);
            let length = usize::try_from(part.end - start).unwrap_or(usize::MAX);
            let Some((now, later)) = bytes.split_at_checked(length) else { return Err(part) };
            let right = if start >= self.data {
                self.verify_tail(now).is_ok()
            } else {
                let expected = usize::try_from(start / self.block).ok().and_then(|index| self.blocks.get(index));
                expected == Some(&crc32fast::hash(now))
            };
            if !right {
                return Err(part);
            }
            (start, bytes) = (part.end, later);
        }
        Ok(())
    }

    fn verify_tail(&self, tail: &[u8]) -> Result<(), &'static str> {
        let wrong = "its indexes and footer are not what was written";
        let digits = usize::try_from(self.tail_digits - self.data).map_err(|_| wrong)?;
        let crc = tail_crc(tail, digits).ok_or(wrong)?;
        // The digits themselves are compared too: they are part of the tail.
        let written = tail.get(digits..digits + DIGITS) == Some(format!("{:08x}", self.tail_crc).as_bytes());
        if written && crc == self.tail_crc { Ok(()) } else { Err(wrong) }
    }
}

/// The CRC of a tail whose own digits stand at `digits`.
fn tail_crc(tail: &[u8], digits: usize) -> Option<u32> {
    let mut hasher = Hasher::new();
    hasher.update(tail.get(..digits)?);
    hasher.update(NO_CRC);
    hasher.update(tail.get(digits.checked_add(DIGITS)?..)?);
    Some(hasher.finalize())
}

/// A sink that digests a file on its way to another sink.
///
/// Data go through at once; the tail is held back until its CRC is known.
#[derive(Debug)]
pub(crate) struct DigestingSink<W> {
    inner: W,
    /// Bytes written so far.
    length: u64,
    /// The block that is not full yet, and its bytes.
    block: Hasher,
    filled: u64,
    /// Digits of the blocks that are full.
    blocks: String,
    /// The tail, once the data have ended.
    tail: Option<Vec<u8>>,
}

impl<W: Write> DigestingSink<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, length: 0, block: Hasher::new(), filled: 0, blocks: String::new(), tail: None }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Ends the data. The footer must have what is returned as the value of [`KEY`].
    pub(crate) fn end_data(&mut self) -> String {
        if self.filled > 0 {
            self.end_block();
        }
        self.tail = Some(Vec::new());
        let no_crc = "0".repeat(DIGITS);
        format!("{VERSION} {BLOCK_BYTES} {} {no_crc} {}", self.length, self.blocks)
    }

    fn digest(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK_BYTES - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.update(now);
            self.filled += now.len() as u64;
            bytes = later;
            if self.filled == BLOCK_BYTES {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        use std::fmt::Write;
        let crc = std::mem::take(&mut self.block).finalize();
        // Writing to a string does not fail.
        let _ = write!(self.blocks, "{crc:08x}");
        self.filled = 0;
    }

    /// Writes the tail with its CRC and hands back the inner sink and the number of bytes in all.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        let mut tail = self.tail.take().unwrap_or_default();
        let missing = || io::Error::other("the footer has no digests");
        let size = self.length + tail.len() as u64;
        let found = BlockDigests::find(size, self.length, &tail).ok_or_else(missing)?;
        let digits = usize::try_from(found.tail_digits - self.length).map_err(io::Error::other)?;
        let crc = tail_crc(&tail, digits).ok_or_else(missing)?;
        tail[digits..digits + DIGITS].copy_from_slice(format!("{crc:08x}").as_bytes());
        self.inner.write_all(&tail)?;
        self.inner.flush()?;
        Ok((self.inner, size))
    }
}

impl<W: Write> Write for DigestingSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tail) = &mut self.tail {
            tail.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let written = self.inner.write(bytes)?;
        self.digest(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
