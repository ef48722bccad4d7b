//! Numbers in PostgreSQL's text and binary formats.

use std::fmt::Write as _;

use arrow::datatypes::i256;
use bytes::{BufMut, BytesMut};

const DIGIT_PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819202122232425262728293031323334353637383940\
4142434445464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990\
919293949596979899";

/// A fixed buffer that digits are written into from the end.
struct Digits<const N: usize> {
    bytes: [u8; N],
    start: usize,
}

impl<const N: usize> Digits<N> {
    fn new() -> Self {
        Self { bytes: [0; N], start: N }
    }

    fn push_u64(&mut self, mut value: u64) {
        while value >= 100 {
            self.pair((value % 100) as usize);
            value /= 100;
        }
        if value >= 10 {
            self.pair(value as usize);
        } else {
            self.start -= 1;
            self.bytes[self.start] = b'0' + value as u8;
        }
    }

    fn pair(&mut self, value: usize) {
        self.start -= 2;
        self.bytes[self.start..self.start + 2].copy_from_slice(&DIGIT_PAIRS[value * 2..value * 2 + 2]);
    }

    fn push_u128(&mut self, mut value: u128) {
        const CHUNK: u128 = 10_u128.pow(18);
        while value >= CHUNK {
            let before = self.start;
            self.push_u64((value % CHUNK) as u64);
            while before - self.start < 18 {
                self.start -= 1;
                self.bytes[self.start] = b'0';
            }
            value /= CHUNK;
        }
        self.push_u64(value as u64);
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// A whole number in decimal digits.
pub(crate) fn integer_text(value: i64, buf: &mut BytesMut) {
    if value < 0 {
        buf.put_u8(b'-');
    }
    unsigned_text(value.unsigned_abs(), buf);
}

/// A whole number without a sign in decimal digits.
pub(crate) fn unsigned_text(value: u64, buf: &mut BytesMut) {
    let mut digits = Digits::<20>::new();
    digits.push_u64(value);
    buf.put_slice(digits.as_slice());
}

/// `value` in exactly `width` digits (more if it does not fit).
pub(crate) fn padded(value: u64, width: usize, buf: &mut BytesMut) {
    let mut digits = Digits::<20>::new();
    digits.push_u64(value);
    let text = digits.as_slice();
    buf.put_bytes(b'0', width.saturating_sub(text.len()));
    buf.put_slice(text);
}

/// The shortest text that reads back as the same `double precision`.
pub(crate) fn float8_text(value: f64, buf: &mut BytesMut) {
    if special(value.is_nan(), value.is_infinite(), value < 0.0, buf) {
        return;
    }
    let mut text = StackText::<40>::new();
    let _ = write!(text, "{value:e}");
    float_text(text.as_str(), 15, buf);
}

/// The shortest text that reads back as the same `real`.
pub(crate) fn float4_text(value: f32, buf: &mut BytesMut) {
    if special(value.is_nan(), value.is_infinite(), value < 0.0, buf) {
        return;
    }
    let mut text = StackText::<40>::new();
    let _ = write!(text, "{value:e}");
    float_text(text.as_str(), 6, buf);
}

fn special(nan: bool, infinite: bool, negative: bool, buf: &mut BytesMut) -> bool {
    if nan {
        buf.put_slice(b"NaN");
    } else if infinite {
        buf.put_slice(if negative { b"-Infinity" } else { b"Infinity" });
    }
    nan || infinite
}

/// Lays out `d.ddde±x`, the shortest digits, as PostgreSQL does: plain for exponents from -4 to below `plain_below`
/// (its 6 or 15 digits of precision), else with an exponent of at least two digits.
fn float_text(shortest: &str, plain_below: i32, buf: &mut BytesMut) {
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    buf.put_slice(sign.as_bytes());
    if exponent < -4 || exponent >= plain_below {
        buf.put_slice(mantissa.as_bytes());
        buf.put_u8(b'e');
        buf.put_u8(if exponent < 0 { b'-' } else { b'+' });
        padded(u64::from(exponent.unsigned_abs()), 2, buf);
    } else if exponent < 0 {
        buf.put_slice(b"0.");
        buf.put_bytes(b'0', exponent.unsigned_abs() as usize - 1);
        buf.put_slice(whole.as_bytes());
        buf.put_slice(fraction.as_bytes());
    } else {
        let point = exponent as usize;
        buf.put_slice(whole.as_bytes());
        if fraction.len() <= point {
            buf.put_slice(fraction.as_bytes());
            buf.put_bytes(b'0', point - fraction.len());
        } else {
            let (before, after) = fraction.split_at(point);
            buf.put_slice(before.as_bytes());
            buf.put_u8(b'.');
            buf.put_slice(after.as_bytes());
        }
    }
}

/// Text on the stack; what does not fit is an error of `write!`.
struct StackText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> StackText<N> {
    fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl<const N: usize> std::fmt::Write for StackText<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let target = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        target.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// `unscaled` · 10^-`scale` as text, with all `scale` digits behind the point.
pub(crate) fn decimal_text(unscaled: i128, scale: i8, buf: &mut BytesMut) {
    let mut digits = Digits::<40>::new();
    digits.push_u128(unscaled.unsigned_abs());
    decimal_digits_text(unscaled < 0, digits.as_slice(), scale, buf);
}

/// As [`decimal_text`], of 256 bits.
pub(crate) fn decimal256_text(unscaled: i256, scale: i8, buf: &mut BytesMut) {
    let text = unscaled.to_string();
    decimal_digits_text(text.starts_with('-'), text.trim_start_matches('-').as_bytes(), scale, buf);
}

fn decimal_digits_text(negative: bool, digits: &[u8], scale: i8, buf: &mut BytesMut) {
    if negative {
        buf.put_u8(b'-');
    }
    let Ok(scale) = usize::try_from(scale) else {
        buf.put_slice(digits);
        if digits != b"0" {
            buf.put_bytes(b'0', usize::from(scale.unsigned_abs()));
        }
        return;
    };
    if scale == 0 {
        buf.put_slice(digits);
    } else if digits.len() > scale {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        buf.put_slice(whole);
        buf.put_u8(b'.');
        buf.put_slice(fraction);
    } else {
        buf.put_slice(b"0.");
        buf.put_bytes(b'0', scale - digits.len());
        buf.put_slice(digits);
    }
}

/// `unscaled` · 10^-`scale` in `numeric`'s binary format: digits of base 10000 around the decimal point.
pub(crate) fn decimal_binary(unscaled: i128, scale: i8, buf: &mut BytesMut) {
    let mut digits = Digits::<40>::new();
    digits.push_u128(unscaled.unsigned_abs());
    decimal_digits_binary(unscaled < 0, digits.as_slice(), scale, buf);
}

/// As [`decimal_binary`], of 256 bits.
pub(crate) fn decimal256_binary(unscaled: i256, scale: i8, buf: &mut BytesMut) {
    let text = unscaled.to_string();
    decimal_digits_binary(text.starts_with('-'), text.trim_start_matches('-').as_bytes(), scale, buf);
}

fn decimal_digits_binary(negative: bool, digits: &[u8], scale: i8, buf: &mut BytesMut) {
    let digits: &[u8] = if digits == b"0" { b"" } else { digits };
    // Position of the decimal point, counted in digits from the left.
    let point = digits.len() as i32 - i32::from(scale);
    // Weight of the first base-10000 digit, and how many zeros stand before the first digit inside it.
    let weight = (point - 1).div_euclid(4);
    let lead = (weight + 1) * 4 - point;
    let digit_at = |index: i32| -> u16 {
        usize::try_from(index).ok().and_then(|index| digits.get(index)).map_or(0, |digit| u16::from(digit - b'0'))
    };
    let groups = (digits.len() as i32 + lead + 3) / 4;
    let group = |index: i32| {
        let first = index * 4 - lead;
        digit_at(first) * 1000 + digit_at(first + 1) * 100 + digit_at(first + 2) * 10 + digit_at(first + 3)
    };
    let mut used = groups;
    while used > 0 && group(used - 1) == 0 {
        used -= 1;
    }
    buf.put_i16(used as i16);
    buf.put_i16(if used == 0 { 0 } else { weight as i16 });
    buf.put_u16(if negative { 0x4000 } else { 0 });
    buf.put_i16(i16::from(scale.max(0)));
    for index in 0..used {
        buf.put_u16(group(index));
    }
}
