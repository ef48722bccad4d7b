//! Compression of small objects. What zstd needs for it is larger than most of them and costs more to set up than to use, so
//! it is kept from one to the next.

use std::io;
use std::sync::{Mutex, PoisonError};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// Manifests and records are small and read again soon.
const LEVEL: i32 = 1;
/// So many of each kind are kept; more are used when more are needed at once.
const KEPT: usize = 8;
/// What has held more than this is not kept: its tables grow with what it compressed.
const KEPT_BYTES: usize = 4 << 20;
/// The largest content that is decompressed.
const MAX_CONTENT: usize = 1 << 30;
/// The most content of a block of a frame, and the least that a block takes in it (RFC 8878, 3.1.1.2).
const BLOCK_CONTENT: usize = 128 << 10;
const BLOCK_HEADER: usize = 3;

static COMPRESSORS: Mutex<Vec<Compressor<'static>>> = Mutex::new(Vec::new());
static DECOMPRESSORS: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

fn borrow<T, R>(kept: &Mutex<Vec<T>>, make: impl FnOnce() -> T, bytes: usize, work: impl FnOnce(&mut T) -> R) -> R {
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    let found = lock().pop();
    let mut context = found.unwrap_or_else(make);
    let result = work(&mut context);
    let mut kept = lock();
    if kept.len() < KEPT && bytes <= KEPT_BYTES {
        kept.push(context);
    }
    result
}

/// One frame, which says how large its content is and has a checksum.
pub(crate) fn compress(content: &[u8]) -> Vec<u8> {
    let make = || {
        let mut compressor = Compressor::new(LEVEL).expect("the level is in zstd's range");
        compressor.include_checksum(true).expect("a frame may always have a checksum");
        compressor
    };
    let compressed = borrow(&COMPRESSORS, make, content.len(), |compressor| compressor.compress(content));
    compressed.expect("the output buffer is sized by zstd's own bound")
}

/// The content of a frame. Errors if it is none, is damaged, or says that more is in it than can be, or than a gigabyte.
pub(crate) fn decompress(frame: &[u8]) -> io::Result<Vec<u8>> {
    // Only what was compressed in one go says how large it is.
    let Some(size) = zstd_safe::get_frame_content_size(frame).ok().flatten() else {
        return zstd::stream::decode_all(frame);
    };
    let possible = (frame.len() / BLOCK_HEADER).saturating_mul(BLOCK_CONTENT).min(MAX_CONTENT);
    let size = usize::try_from(size).ok().filter(|size| *size <= possible);
    let size = size.ok_or_else(|| io::Error::other("it says that more is in it than can be, or than a gigabyte"))?;
    let make = || Decompressor::new().expect("a context without a dictionary can be made");
    borrow(&DECOMPRESSORS, make, frame.len(), |decompressor| decompressor.decompress(frame, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_comes_back_and_damage_does_not() {
        for length in [0, 1, 1000, 300_000] {
            let content: Vec<u8> = (0..length as u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
            let compressed = compress(&content);
            assert_eq!(decompress(&compressed).unwrap(), content);
            for place in [0, compressed.len() / 2, compressed.len() - 1] {
                let mut damaged = compressed.clone();
                damaged[place] ^= 4;
                assert!(decompress(&damaged).is_ok_and(|found| found == content) || decompress(&damaged).is_err());
            }
            assert!(decompress(&compressed[..compressed.len() - 1]).is_err());
            // A context is as good as new after an error.
            assert_eq!(decompress(&compressed).unwrap(), content);
        }
    }

    #[test]
    fn frames_of_unknown_size_are_read_and_lies_about_it_take_no_memory() {
        let streamed = zstd::stream::encode_all(&b"content"[..], 1).unwrap();
        assert_eq!(decompress(&streamed).unwrap(), b"content");
        // Headers that promise 2^62 bytes and, in one block, 2^29.
        for promised in [1_u64 << 62, 1 << 29] {
            let huge = [&[0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58][..], &promised.to_le_bytes(), &[1, 0, 0]].concat();
            assert!(decompress(&huge).is_err_and(|error| error.to_string().contains("more is in it than can be")));
        }
        // The most that can be in few bytes.
        let zeros = vec![0; 10 << 20];
        assert_eq!(decompress(&compress(&zeros)).unwrap(), zeros);
    }
}
