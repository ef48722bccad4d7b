//! Character sets of columns and statements, decoded the way the server converts them to UTF-8 for a client.
//!
//! Bytes that a character set does not define become `?`, as in the server's own conversion. Invalid UTF-8 is an error: the server hands
//! such bytes to clients unchanged, and text that is not text must not get into the mirror.

use crate::rows::{PushError, TextSink};

mod collations;
mod multi_byte;
mod single_byte;

#[cfg(test)]
mod tests;

pub use collations::charset_of_collation;
pub use multi_byte::MultiByte;

/// How text of one character set becomes UTF-8.
#[derive(Clone, Copy, Debug)]
pub enum TextDecoder {
    /// utf8mb4, utf8mb3: nothing to do.
    Utf8,
    /// One byte a character; the upper half of the table. ASCII below.
    Single(&'static [u16; 128]),
    /// One byte a character, not ASCII in the lower half.
    Full(&'static [u16; 256]),
    /// UTF-16, and UCS-2 within it.
    Utf16 {
        /// The byte order.
        little_endian: bool,
    },
    /// UTF-32, the highest byte first.
    Utf32,
    /// A character set of one to four bytes a character.
    Multi(&'static MultiByte),
}

impl TextDecoder {
    /// The decoder of a character set by the server's name for it; `None` if there is none.
    pub fn for_charset(name: &str) -> Option<Self> {
        Some(match name {
            "utf8mb4" | "utf8mb3" | "utf8" => Self::Utf8,
            "ucs2" | "utf16" => Self::Utf16 { little_endian: false },
            "utf16le" => Self::Utf16 { little_endian: true },
            "utf32" => Self::Utf32,
            _ => return single_byte::decoder(name).or_else(|| multi_byte::decoder(name)),
        })
    }

    /// Writes text as UTF-8.
    pub fn decode(self, bytes: &[u8], out: &mut TextSink<'_>) -> Result<(), PushError> {
        match self {
            Self::Utf8 => {
                out.push_str(std::str::from_utf8(bytes).map_err(|_| PushError::InvalidText)?);
            }
            Self::Single(table) => {
                for byte in bytes {
                    match byte.checked_sub(0x80).and_then(|upper| table.get(usize::from(upper))) {
                        Some(unit) => push_unit(out, *unit),
                        None => out.push(char::from(*byte)),
                    }
                }
            }
            Self::Full(table) => {
                for byte in bytes {
                    if *byte == 0 { out.push('\0') } else { push_unit(out, table[usize::from(*byte)]) }
                }
            }
            Self::Utf16 { little_endian } => {
                let (pairs, odd) = bytes.as_chunks::<2>();
                let units =
                    pairs.iter().map(|p| if little_endian { u16::from_le_bytes(*p) } else { u16::from_be_bytes(*p) });
                for unit in char::decode_utf16(units) {
                    out.push(unit.unwrap_or('?'));
                }
                if !odd.is_empty() {
                    out.push('?');
                }
            }
            Self::Utf32 => {
                let (quads, odd) = bytes.as_chunks::<4>();
                for quad in quads {
                    out.push(char::from_u32(u32::from_be_bytes(*quad)).unwrap_or('?'));
                }
                if !odd.is_empty() {
                    out.push('?');
                }
            }
            Self::Multi(tables) => tables.decode(bytes, out),
        }
        Ok(())
    }
}

/// Zero stands for a byte that the character set does not define.
fn push_unit(out: &mut TextSink<'_>, unit: u16) {
    out.push(if unit == 0 { '?' } else { char::from_u32(u32::from(unit)).unwrap_or('?') });
}

/// Whether two names mean one character set: `utf8` is an alias, for now of `utf8mb3`.
pub fn same_charset(a: &str, b: &str) -> bool {
    let canonical = |name| if name == "utf8" { "utf8mb3" } else { name };
    canonical(a) == canonical(b)
}

/// Text of a character set, with `?` or U+FFFD for what is invalid; `None` if the character set is not supported.
pub(crate) fn decode_lossy(charset: &str, bytes: &[u8]) -> Option<String> {
    let decoder = TextDecoder::for_charset(charset)?;
    if let TextDecoder::Utf8 = decoder {
        return Some(String::from_utf8_lossy(bytes).into_owned());
    }
    let mut data = Vec::with_capacity(bytes.len());
    decoder.decode(bytes, &mut TextSink::over(&mut data)).ok()?;
    String::from_utf8(data).ok()
}
