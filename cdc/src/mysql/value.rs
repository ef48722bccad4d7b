//! The forms that values take in the mirror, wherever they come from: a binlog event and a SELECT must give the same bytes.
//!
//! * DATE, DATETIME, TIMESTAMP: days or microseconds since 1970. A date with a part of zero, or a day that its month does not have, is NULL.
//! * TIME: the server's text, with as many digits of the second as the column has.
//! * ENUM: the label; the empty string for index 0. SET: the labels with commas between them, in the order of the definition.
//! * JSON: the server's text (on MariaDB the text that was stored).

use crate::rows::TextSink;

#[cfg(test)]
mod tests;

/// Days since 1970-01-01; `None` if the calendar has no such day.
#[inline]
pub fn date_days(year: u32, month: u32, day: u32) -> Option<i32> {
    const MONTH_DAYS: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let most = *MONTH_DAYS.get(usize::try_from(month).ok()?)?;
    if day == 0 || day > most || year > 9999 {
        return None;
    }
    if month == 2 && day == 29 && !(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last one.
    let (y, m) = if month <= 2 { (year as i32 - 1, month + 9) } else { (year as i32, month - 3) };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * m as i32 + 2) / 5 + day as i32 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// A date and a time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DateTimeParts {
    /// The year.
    pub year: u32,
    /// The month, from 1.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
    /// The hour.
    pub hour: u32,
    /// The minute.
    pub minute: u32,
    /// The second.
    pub second: u32,
    /// Microseconds.
    pub micros: u32,
}

impl DateTimeParts {
    /// Microseconds since 1970-01-01 00:00:00; `None` if the calendar has no such day or the day no such time.
    #[inline]
    pub fn micros_since_epoch(&self) -> Option<i64> {
        let days = date_days(self.year, self.month, self.day)?;
        if self.hour > 23 || self.minute > 59 || self.second > 59 || self.micros > 999_999 {
            return None;
        }
        let seconds = i64::from(days) * 86_400 + i64::from(self.hour * 3600 + self.minute * 60 + self.second);
        Some(seconds * 1_000_000 + i64::from(self.micros))
    }
}

/// Writes a TIME as the server does: `-838:59:59.000000`. `fsp` is the column's number of digits of the second.
pub fn write_time(
    out: &mut TextSink<'_>,
    negative: bool,
    hours: u32,
    minutes: u32,
    seconds: u32,
    micros: u32,
    fsp: u8,
) {
    if negative {
        out.push('-');
    }
    write_number(out, hours, 2);
    out.push(':');
    write_number(out, minutes, 2);
    out.push(':');
    write_number(out, seconds, 2);
    write_fraction(out, micros, fsp);
}

/// Writes the point and the digits of a fraction of a second.
pub(crate) fn write_fraction(out: &mut TextSink<'_>, micros: u32, fsp: u8) {
    if fsp > 0 {
        out.push('.');
        let fsp = u32::from(fsp.min(6));
        write_number(out, micros / 10_u32.pow(6 - fsp), fsp as usize);
    }
}

/// Writes a number with zeros in front up to a width.
pub(crate) fn write_number(out: &mut TextSink<'_>, value: u32, width: usize) {
    let mut digits = [b'0'; 10];
    let mut rest = value;
    let mut start = digits.len();
    while rest > 0 || digits.len() - start < width {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for digit in &digits[start..] {
        out.push(char::from(*digit));
    }
}

/// The label of an ENUM value: the empty string for index 0, `None` for an index that the type does not have.
pub fn enum_label(labels: &[String], index: u64) -> Option<&str> {
    match index {
        0 => Some(""),
        _ => labels.get(usize::try_from(index - 1).ok()?).map(String::as_str),
    }
}

/// Writes the labels of a SET value; false if it has a bit that the type does not have.
pub fn write_set(out: &mut TextSink<'_>, labels: &[String], bits: u64) -> bool {
    let mut first = true;
    for (bit, label) in labels.iter().enumerate().take(64) {
        if bits & (1 << bit) != 0 {
            if !first {
                out.push(',');
            }
            out.push_str(label);
            first = false;
        }
    }
    labels.len() >= 64 || bits >> labels.len() == 0
}
