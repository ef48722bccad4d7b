//! Dates, times and intervals in PostgreSQL's text (DateStyle ISO, IntervalStyle postgres) and binary formats.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Offset, TimeZone};

use super::number::{integer_text, padded};

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary dates begin.
const EPOCH_DAYS: i64 = 10_957;
const DAY_MICROS: i64 = 86_400_000_000;
const EPOCH_MICROS: i64 = EPOCH_DAYS * DAY_MICROS;

/// A session's time zone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Zone {
    Utc,
    Named(Tz),
}

impl Zone {
    /// A zone by name (`Europe/Berlin`) or offset (`+02:00`); UTC when there is none of that name.
    pub(crate) fn parse(name: &str) -> Self {
        match name {
            "UTC" | "Etc/UTC" | "GMT" | "utc" | "Zulu" | "Z" => Self::Utc,
            name => Tz::from_str(name).map_or(Self::Utc, Self::Named),
        }
    }

    /// Seconds east of Greenwich at an instant.
    fn offset_seconds(self, micros: i64) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Named(zone) => DateTime::from_timestamp_micros(micros)
                .map_or(0, |instant| zone.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc()),
        }
    }
}

/// Year, month and day of a day number since 1970-01-01 in the proleptic Gregorian calendar
/// (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

/// Writes the date; true when ` BC` must follow at the very end.
fn date_digits(days: i64, buf: &mut BytesMut) -> bool {
    let (year, month, day) = civil(days);
    let before_christ = year <= 0;
    padded(if before_christ { 1 - year } else { year } as u64, 4, buf);
    buf.put_u8(b'-');
    padded(month, 2, buf);
    buf.put_u8(b'-');
    padded(day, 2, buf);
    before_christ
}

pub(crate) fn date_text(days: i64, buf: &mut BytesMut) {
    if date_digits(days, buf) {
        buf.put_slice(b" BC");
    }
}

/// Days since 2000-01-01.
pub(crate) fn date_binary(days: i32) -> i32 {
    days.saturating_sub(EPOCH_DAYS as i32)
}

/// Time of day in microseconds, without trailing zeros behind the point.
pub(crate) fn time_text(micros: u64, buf: &mut BytesMut) {
    let seconds = micros / 1_000_000;
    padded(seconds / 3600, 2, buf);
    buf.put_u8(b':');
    padded(seconds / 60 % 60, 2, buf);
    buf.put_u8(b':');
    padded(seconds % 60, 2, buf);
    fraction(micros % 1_000_000, buf);
}

fn fraction(micros: u64, buf: &mut BytesMut) {
    if micros != 0 {
        buf.put_u8(b'.');
        padded(micros, 6, buf);
        while buf.last() == Some(&b'0') {
            buf.truncate(buf.len() - 1);
        }
    }
}

/// A timestamp without time zone, from microseconds since 1970.
pub(crate) fn timestamp_text(micros: i64, buf: &mut BytesMut) {
    let before_christ = timestamp_digits(micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS), buf);
    if before_christ {
        buf.put_slice(b" BC");
    }
}

fn timestamp_digits(days: i64, micros: i64, buf: &mut BytesMut) -> bool {
    let before_christ = date_digits(days, buf);
    buf.put_u8(b' ');
    time_text(micros as u64, buf);
    before_christ
}

/// A timestamp with time zone, from microseconds since 1970 in UTC, as the clock of `zone` shows it.
pub(crate) fn timestamptz_text(micros: i64, zone: Zone, buf: &mut BytesMut) {
    let offset = zone.offset_seconds(micros);
    let local = i128::from(micros) + i128::from(offset) * 1_000_000;
    let day = i128::from(DAY_MICROS);
    let before_christ = timestamp_digits(local.div_euclid(day) as i64, local.rem_euclid(day) as i64, buf);
    buf.put_u8(if offset < 0 { b'-' } else { b'+' });
    let offset = u64::from(offset.unsigned_abs());
    padded(offset / 3600, 2, buf);
    if offset % 3600 != 0 {
        buf.put_u8(b':');
        padded(offset / 60 % 60, 2, buf);
        if offset % 60 != 0 {
            buf.put_u8(b':');
            padded(offset % 60, 2, buf);
        }
    }
    if before_christ {
        buf.put_slice(b" BC");
    }
}

/// Microseconds since 2000-01-01; `None` outside 64 bits.
pub(crate) fn timestamp_binary(micros: i64) -> Option<i64> {
    micros.checked_sub(EPOCH_MICROS)
}

/// `1 year 2 mons -3 days +04:05:06.7`: each part with its sign, the plus only behind a negative part.
pub(crate) fn interval_text(months: i32, days: i32, micros: i64, buf: &mut BytesMut) {
    let mut first = true;
    let mut after_negative = false;
    for (value, unit) in [(months / 12, " year"), (months % 12, " mon"), (days, " day")] {
        if value == 0 {
            continue;
        }
        if !first {
            buf.put_u8(b' ');
        }
        if after_negative && value > 0 {
            buf.put_u8(b'+');
        }
        integer_text(i64::from(value), buf);
        buf.put_slice(unit.as_bytes());
        if value != 1 {
            buf.put_u8(b's');
        }
        first = false;
        after_negative = value < 0;
    }
    if first || micros != 0 {
        if !first {
            buf.put_u8(b' ');
        }
        if micros < 0 {
            buf.put_u8(b'-');
        } else if after_negative {
            buf.put_u8(b'+');
        }
        time_text(micros.unsigned_abs(), buf);
    }
}
