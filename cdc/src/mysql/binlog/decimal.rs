//! The packed form of DECIMAL (`strings/decimal.cc`, `decimal2bin`).
//!
//! The integer and the fractional part are cut into groups of nine digits, starting at the point; a full group takes four bytes with the
//! highest first, a shorter one as few as its digits need. The first bit is inverted, and all bits of a negative number are.

use super::error::ValueError;
use crate::rows::TextSink;

#[cfg(test)]
mod tests;

/// Bytes for a group of so many digits.
const GROUP_BYTES: [u8; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const POWERS: [u32; 10] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
const GROUP: u8 = 9;

/// The layout of a DECIMAL(precision, scale).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Digits in the group in front of the full ones.
    head: u8,
    int_groups: u8,
    frac_groups: u8,
    /// Digits in the group behind the full ones.
    tail: u8,
}

impl Packed {
    pub(super) fn new(precision: u8, scale: u8) -> Self {
        let integer = precision.saturating_sub(scale);
        Self { head: integer % GROUP, int_groups: integer / GROUP, frac_groups: scale / GROUP, tail: scale % GROUP }
    }

    pub(super) fn size(self) -> usize {
        let partial = |digits: u8| usize::from(GROUP_BYTES[usize::from(digits % 10)]);
        partial(self.head) + 4 * usize::from(self.int_groups) + 4 * usize::from(self.frac_groups) + partial(self.tail)
    }

    /// Calls `group` with the value and the number of digits of each group; returns whether the number is negative.
    #[inline]
    fn groups(self, bytes: &[u8], mut group: impl FnMut(u32, u8)) -> Result<bool, ValueError> {
        let negative = bytes.first().is_none_or(|b| b & 0x80 == 0);
        let mask = if negative { 0xff } else { 0 };
        let mut flip = 0x80;
        let mut rest = bytes;
        let mut read = |digits: u8| -> Result<(), ValueError> {
            let width = usize::from(GROUP_BYTES[usize::from(digits % 10)]);
            let (head, tail) = rest.split_at_checked(width).ok_or(ValueError::Cut)?;
            rest = tail;
            let mut value = 0_u32;
            for byte in head {
                value = value << 8 | u32::from(byte ^ mask ^ flip);
                flip = 0;
            }
            if value >= POWERS[usize::from(digits % 10)] {
                return Err(ValueError::Bad("the packed decimal has more digits than its type".to_owned()));
            }
            group(value, digits);
            Ok(())
        };
        if self.head > 0 {
            read(self.head)?;
        }
        for _ in 0..self.int_groups + self.frac_groups {
            read(GROUP)?;
        }
        if self.tail > 0 {
            read(self.tail)?;
        }
        Ok(negative)
    }

    /// The digits as one integer. At most 38 digits fit.
    #[inline]
    pub(super) fn integer(self, bytes: &[u8]) -> Result<i128, ValueError> {
        let digits = self.head + GROUP * (self.int_groups + self.frac_groups) + self.tail;
        if digits <= 18 {
            let mut value = 0_i64;
            let negative = self.groups(bytes, |v, digits| {
                value = value * i64::from(POWERS[usize::from(digits % 10)]) + i64::from(v);
            })?;
            return Ok(i128::from(if negative { -value } else { value }));
        }
        let mut value = 0_i128;
        let mut overflow = false;
        let negative = self.groups(bytes, |v, digits| {
            let next = value.checked_mul(i128::from(POWERS[usize::from(digits % 10)]));
            match next.and_then(|n| n.checked_add(i128::from(v))) {
                Some(next) => value = next,
                None => overflow = true,
            }
        })?;
        if overflow {
            return Err(ValueError::Bad("more than 38 digits".to_owned()));
        }
        Ok(if negative { -value } else { value })
    }

    /// The number as the server prints it: all digits of the fraction, no zeros in front of the integer part.
    pub(super) fn text(self, bytes: &[u8], out: &mut TextSink<'_>) -> Result<(), ValueError> {
        // Decimals in JSON have up to 81 digits.
        let mut digits = [b'0'; 96];
        let mut length = 0;
        let negative = self.groups(bytes, |mut value, count| {
            let count = usize::from(count);
            if let Some(place) = digits.get_mut(length..length + count) {
                for digit in place.iter_mut().rev() {
                    *digit = b'0' + (value % 10) as u8;
                    value /= 10;
                }
            }
            length += count;
        })?;
        let digits = digits.get(..length).ok_or(ValueError::Cut)?;
        let scale = usize::from(GROUP * self.frac_groups + self.tail);
        let (integer, fraction) = digits.split_at_checked(length - scale.min(length)).ok_or(ValueError::Cut)?;
        let zeros = integer.iter().take_while(|d| **d == b'0').count();
        let integer = integer.get(zeros..).unwrap_or_default();
        if negative && digits.iter().any(|d| *d != b'0') {
            out.push('-');
        }
        if integer.is_empty() {
            out.push('0');
        }
        for digit in integer {
            out.push(char::from(*digit));
        }
        if !fraction.is_empty() {
            out.push('.');
            for digit in fraction {
                out.push(char::from(*digit));
            }
        }
        Ok(())
    }
}
