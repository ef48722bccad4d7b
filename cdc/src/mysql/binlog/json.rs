//! MySQL's binary JSON, printed as the server prints it in a SELECT (`sql-common/json_binary.h`, `Json_wrapper::to_string`).
//!
//! ```text
//! document  = type:1 value                           (an empty document is `null`)
//! container = count size entries… data…              2 bytes each in small ones, 4 in large ones; offsets count from the container's start
//! entry     = key: offset, length:2                  (objects: all keys' entries first)
//!             value: type:1, offset or the value     (literals and numbers that fit stand in the entry itself)
//! ```

use std::fmt::Write;

use super::decimal::Packed;
use super::error::ValueError;
use super::reader::{Cut, Reader};
use crate::mysql::value::{write_number, write_time};
use crate::rows::TextSink;

#[cfg(test)]
mod tests;

/// The server nests documents at most 100 deep.
const DEPTH: u32 = 101;

/// Prints a document.
pub(super) fn write(document: &[u8], out: &mut TextSink<'_>) -> Result<(), ValueError> {
    let Some((kind, value)) = document.split_first() else {
        out.push_str("null");
        return Ok(());
    };
    // Each byte belongs to one value only. More output than that means offsets that point to the same data again and again.
    let mut printer = Printer { out, budget: document.len() };
    printer.value(*kind, value, DEPTH)
}

struct Printer<'a, 'b> {
    out: &'a mut TextSink<'b>,
    budget: usize,
}

fn bad(what: &str) -> ValueError {
    ValueError::Bad(format!("malformed JSON: {what}"))
}

impl Printer<'_, '_> {
    fn spend(&mut self, bytes: usize) -> Result<(), ValueError> {
        self.budget = self.budget.checked_sub(bytes).ok_or_else(|| bad("overlapping values"))?;
        Ok(())
    }

    /// Prints the value that starts at the first of `bytes`.
    fn value(&mut self, kind: u8, bytes: &[u8], depth: u32) -> Result<(), ValueError> {
        self.spend(1)?;
        let mut reader = Reader::new(bytes);
        match kind {
            0..=3 => {
                let depth = depth.checked_sub(1).ok_or_else(|| bad("nested too deeply"))?;
                self.container(kind & 2 == 0, kind & 1 != 0, bytes, depth)?;
            }
            4 => self.out.push_str(match reader.u8()? {
                0 => "null",
                1 => "true",
                2 => "false",
                _ => return Err(bad("an unknown literal")),
            }),
            5 => self.number(reader.u16()?.cast_signed()),
            6 => self.number(reader.u16()?),
            7 => self.number(reader.u32()?.cast_signed()),
            8 => self.number(reader.u32()?),
            9 => self.number(reader.u64()?.cast_signed()),
            10 => self.number(reader.u64()?),
            11 => write_double(self.out, f64::from_le_bytes(reader.array()?)),
            12 => {
                let length = length(&mut reader)?;
                self.string(reader.bytes(length)?)?;
            }
            15 => {
                let field_type = reader.u8()?;
                let length = length(&mut reader)?;
                self.opaque(field_type, reader.bytes(length)?)?;
            }
            _ => return Err(bad("an unknown type")),
        }
        Ok(())
    }

    fn number(&mut self, value: impl std::fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.out, "{value}");
    }

    fn container(&mut self, object: bool, large: bool, bytes: &[u8], depth: u32) -> Result<(), ValueError> {
        let mut reader = Reader::new(bytes);
        let offset = |reader: &mut Reader<'_>| -> Result<usize, Cut> {
            if large { reader.u32().map(|n| n as usize) } else { reader.u16().map(usize::from) }
        };
        let (count, size) = (offset(&mut reader)?, offset(&mut reader)?);
        // Offsets must stay inside of the container.
        let bytes = bytes.get(..size).ok_or(Cut)?;
        let mut keys = Reader::new(bytes.get(if large { 8 } else { 4 }..).ok_or(Cut)?);
        let key_size = if large { 6 } else { 4 };
        let mut values = keys;
        if object {
            values.bytes(count.checked_mul(key_size).ok_or(Cut)?)?;
        }
        self.out.push(if object { '{' } else { '[' });
        for index in 0..count {
            if index > 0 {
                self.out.push_str(", ");
            }
            if object {
                let start = offset(&mut keys)?;
                let length = usize::from(keys.u16()?);
                let key = bytes.get(start..).and_then(|b| b.get(..length)).ok_or(Cut)?;
                self.string(key)?;
                self.out.push_str(": ");
            }
            let kind = values.u8()?;
            let inline = matches!(kind, 4..=6) || (large && matches!(kind, 7 | 8));
            if inline {
                self.value(kind, values.rest(), depth)?;
                offset(&mut values)?;
            } else {
                let start = offset(&mut values)?;
                self.value(kind, bytes.get(start..).ok_or(Cut)?, depth)?;
            }
        }
        self.out.push(if object { '}' } else { ']' });
        Ok(())
    }

    /// A string in quotes.
    fn string(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        self.spend(bytes.len())?;
        let text = std::str::from_utf8(bytes).map_err(|_| bad("a string that is not UTF-8"))?;
        self.out.push('"');
        let mut plain = 0;
        for (index, byte) in text.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            // Bytes below 0x80 are whole characters, so the text can be cut here.
            self.out.push_str(text.get(plain..index).unwrap_or_default());
            plain = index + 1;
            match byte {
                b'"' => self.out.push_str("\\\""),
                b'\\' => self.out.push_str("\\\\"),
                0x08 => self.out.push_str("\\b"),
                0x0c => self.out.push_str("\\f"),
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                other => {
                    let _ = write!(self.out, "\\u{other:04x}");
                }
            }
        }
        self.out.push_str(text.get(plain..).unwrap_or_default());
        self.out.push('"');
        Ok(())
    }

    /// A value of an SQL type that JSON does not have.
    fn opaque(&mut self, field_type: u8, bytes: &[u8]) -> Result<(), ValueError> {
        self.spend(bytes.len())?;
        match field_type {
            // DECIMAL: precision, scale and the packed digits. Inside of JSON the server counts whole words, up to nine.
            246 => {
                let mut reader = Reader::new(bytes);
                let (precision, scale) = (reader.u8()?, reader.u8()?);
                if precision > 81 || scale > precision {
                    return Err(bad("a decimal of too many digits"));
                }
                let packed = Packed::new(precision, scale);
                packed.text(reader.bytes(packed.size())?, self.out)
            }
            // DATE, DATETIME, TIMESTAMP, TIME: one number, the microseconds in its lowest 24 bits.
            7 | 10 | 12 => {
                let packed = u64::from_le_bytes(bytes.try_into().map_err(|_| Cut)?);
                let (whole, micros) = (packed >> 24, (packed & 0xff_ffff) as u32);
                let (date, time) = ((whole >> 17) as u32, (whole & 0x1_ffff) as u32);
                self.out.push('"');
                write_number(self.out, (date >> 5) / 13, 4);
                self.out.push('-');
                write_number(self.out, (date >> 5) % 13, 2);
                self.out.push('-');
                write_number(self.out, date & 31, 2);
                if field_type != 10 {
                    self.out.push(' ');
                    write_time(self.out, false, time >> 12, time >> 6 & 0x3f, time & 0x3f, micros.min(999_999), 6);
                }
                self.out.push('"');
                Ok(())
            }
            11 => {
                let packed = i64::from_le_bytes(bytes.try_into().map_err(|_| Cut)?);
                let magnitude = packed.unsigned_abs();
                let (whole, micros) = ((magnitude >> 24) as u32, (magnitude & 0xff_ffff) as u32);
                let (hours, minutes, seconds) = (whole >> 12 & 0x3ff, whole >> 6 & 0x3f, whole & 0x3f);
                self.out.push('"');
                write_time(self.out, packed < 0, hours, minutes, seconds, micros.min(999_999), 6);
                self.out.push('"');
                Ok(())
            }
            _ => {
                let _ = write!(self.out, "\"base64:type{field_type}:");
                write_base64(self.out, bytes);
                self.out.push('"');
                Ok(())
            }
        }
    }
}

/// Seven bits a byte, the lowest first; at most five bytes.
fn length(reader: &mut Reader<'_>) -> Result<usize, ValueError> {
    let mut length = 0_u64;
    for shift in (0..35).step_by(7) {
        let byte = reader.u8()?;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(length).map_err(|_| ValueError::Cut);
        }
    }
    Err(bad("a length of more than five bytes"))
}

/// Prints a number as `my_gcvt` in `strings/dtoa.cc` does: the shortest digits that give the number back, in plain notation while the point
/// is at most 15 digits away. A number without a fraction gets `.0`.
fn write_double(out: &mut TextSink<'_>, value: f64) {
    /// `MAX_DECPT_FOR_F_FORMAT`.
    const PLAIN: i32 = 15;
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value.is_sign_negative() {
        out.push('-');
    }
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The point stands in front of the digit with this index.
    let point = exponent + 1;
    if point > -PLAIN && (point <= PLAIN || count > point) {
        if point <= 0 {
            out.push_str("0.");
            for _ in point..0 {
                out.push('0');
            }
            out.push_str(&digits);
        } else if point >= count {
            out.push_str(&digits);
            for _ in count..point {
                out.push('0');
            }
            out.push_str(".0");
        } else {
            let (integer, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
            out.push_str(integer);
            out.push('.');
            out.push_str(fraction);
        }
        return;
    }
    let (first, more) = digits.split_at(1.min(digits.len()));
    out.push_str(first);
    if !more.is_empty() {
        out.push('.');
        out.push_str(more);
    }
    let _ = write!(out, "e{exponent}");
}

/// Base64 with a line break after each 76 characters, escaped, as the server has it.
fn write_base64(out: &mut TextSink<'_>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (index, group) in bytes.chunks(3).enumerate() {
        if index > 0 && index % 19 == 0 {
            out.push_str("\\n");
        }
        let bits = group.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
}
