//! Digests of snapshot and schema files, which are JSON.
//!
//! Both have a map of texts in which readers expect entries they do not know: a snapshot's properties, a schema's
//! options. There the file's number and a CRC32 of its bytes stand under [`KEY`], computed with zeros in the CRC's own
//! place. The number is there because writers copy options from one schema to the next: an entry with another number
//! than the file's is not about the file.

use std::collections::BTreeMap;

use crc32fast::Hasher;

/// The key of the entry.
const KEY: &str = "tidegate.crc32";
/// The entry as far as its number, in the form in which this crate writes JSON.
const ENTRY: &str = "\"tidegate.crc32\": \"";
/// Digits of a CRC.
const DIGITS: usize = 8;
const NO_CRC: &str = "00000000";

/// Adds the entry to `entries`, which go into file `number`. Its CRC is set by [`seal`].
pub(super) fn add(entries: &mut BTreeMap<String, String>, number: u64) {
    entries.insert(KEY.to_owned(), format!("{number} {NO_CRC}"));
}

/// Sets the CRC in the file of which [`add`] was told.
pub(super) fn seal(mut json: String, number: u64) -> String {
    let entry = format!("{ENTRY}{number} {NO_CRC}\"");
    if let Some(at) = json.find(&entry) {
        let digits = at + entry.len() - 1 - DIGITS;
        let crc = crc(json.as_bytes(), digits).unwrap_or(0);
        json.replace_range(digits..digits + DIGITS, &format!("{crc:08x}"));
    }
    json
}

/// Verifies file `number` by its entry, which is taken out of `entries`. A file without one is another writer's.
///
/// Errors: the bytes are not those that were written.
pub(super) fn verify(json: &[u8], number: u64, entries: &mut BTreeMap<String, String>) -> Result<(), &'static str> {
    let Some(value) = entries.get(KEY) else { return Ok(()) };
    let Some((of, expected)) = value.split_once(' ') else { return Err("its digest cannot be read") };
    if of != number.to_string() {
        return Ok(());
    }
    let entry = format!("{ENTRY}{value}\"");
    let at = json.windows(entry.len()).position(|window| window == entry.as_bytes());
    // Another program's way to write JSON: the entry was copied, and tells nothing about these bytes.
    let Some(at) = at else { return Ok(()) };
    let digits = at + entry.len() - 1 - expected.len();
    let right = expected.len() == DIGITS && crc(json, digits).is_some_and(|crc| expected == format!("{crc:08x}"));
    if !right {
        return Err("its digest does not match its content");
    }
    entries.remove(KEY);
    Ok(())
}

fn crc(json: &[u8], digits: usize) -> Option<u32> {
    let mut hasher = Hasher::new();
    hasher.update(json.get(..digits)?);
    hasher.update(NO_CRC.as_bytes());
    hasher.update(json.get(digits.checked_add(DIGITS)?..)?);
    Some(hasher.finalize())
}
