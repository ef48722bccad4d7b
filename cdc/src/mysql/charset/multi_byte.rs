//! Character sets of one to four bytes a character, as the servers convert them to Unicode.
//!
//! The servers' tables differ from those of the web's encodings in characters that are in use (the wave dash of EUC-JP and Shift-JIS, most of
//! a row of Big5), so these were read from the servers: GB 18030 from MySQL 9.7, the others from MariaDB 10.11. `multi_byte.zst` holds them one
//! after another, as little-endian 16 bit units with 0 for what is not defined: the upper half of the single bytes, the pairs from 0x8000 on,
//! and then for EUC-JP the pairs behind a byte 0x8f, for GB 18030 the four-byte characters of the basic plane in order.

use std::sync::LazyLock;

use super::TextDecoder;
use crate::rows::TextSink;

/// The tables of one character set.
#[derive(Debug)]
pub struct MultiByte {
    upper: Vec<u16>,
    pairs: Vec<u16>,
    /// Pairs behind 0x8f.
    triples: Vec<u16>,
    /// Four bytes.
    quads: Vec<u16>,
}

const NAMES: [&str; 9] = ["gbk", "gb2312", "big5", "sjis", "cp932", "ujis", "eucjpms", "euckr", "gb18030"];
const PAIRS: usize = 0x8000;
/// Four-byte characters of GB 18030 in the basic plane, and the place of the first one outside.
const QUADS: usize = 39_420;
const SUPPLEMENTARY: u32 = 189_000;

static TABLES: LazyLock<Vec<MultiByte>> = LazyLock::new(|| {
    let packed = include_bytes!("multi_byte.zst");
    let bytes = zstd::decode_all(&packed[..]).expect("the tables are a part of the program and unpack");
    let mut units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let mut section = |length| units.by_ref().take(length).collect::<Vec<u16>>();
    NAMES
        .iter()
        .map(|name| MultiByte {
            upper: section(0x80),
            pairs: section(PAIRS),
            triples: section(if matches!(*name, "ujis" | "eucjpms") { PAIRS } else { 0 }),
            quads: section(if *name == "gb18030" { QUADS } else { 0 }),
        })
        .collect()
});

/// The decoder of a character set by its name.
pub(super) fn decoder(name: &str) -> Option<TextDecoder> {
    let place = NAMES.iter().position(|n| *n == name)?;
    TABLES.get(place).map(TextDecoder::Multi)
}

impl MultiByte {
    /// Writes text; a character that is not defined becomes one `?`.
    pub(super) fn decode(&self, mut bytes: &[u8], out: &mut TextSink<'_>) {
        while let Some((first, rest)) = bytes.split_first() {
            let (length, unit) = match first.checked_sub(0x80) {
                None => (1, u32::from(*first)),
                Some(upper) => match self.upper.get(usize::from(upper)) {
                    Some(unit) if *unit != 0 => (1, u32::from(*unit)),
                    _ => self.longer(*first, rest),
                },
            };
            let undefined = unit == 0 && *first != 0;
            out.push(if undefined { '?' } else { char::from_u32(unit).unwrap_or('?') });
            bytes = bytes.get(length..).unwrap_or_default();
        }
    }

    /// The length of a character of more than one byte, and its code point or 0.
    fn longer(&self, first: u8, rest: &[u8]) -> (usize, u32) {
        match rest {
            [a, b, ..] if first == 0x8f && !self.triples.is_empty() => (3, pair(&self.triples, *a, *b)),
            [b @ 0x30..=0x39, c @ 0x81..=0xfe, d @ 0x30..=0x39, ..] if !self.quads.is_empty() => {
                let place = (u32::from(first - 0x80).saturating_sub(1) * 10 + u32::from(b - 0x30)) * 1260
                    + u32::from(c - 0x81) * 10
                    + u32::from(d - 0x30);
                let unit = match place.checked_sub(SUPPLEMENTARY) {
                    Some(beyond) => 0x1_0000 + beyond,
                    None => self.quads.get(place as usize).copied().map_or(0, u32::from),
                };
                (4, unit)
            }
            [second, ..] => (2, pair(&self.pairs, first, *second)),
            [] => (1, 0),
        }
    }
}

fn pair(table: &[u16], first: u8, second: u8) -> u32 {
    let place = usize::from(u16::from_be_bytes([first, second])).checked_sub(PAIRS);
    place.and_then(|i| table.get(i)).copied().map_or(0, u32::from)
}
