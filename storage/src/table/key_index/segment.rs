//! A part of a file's sorted keys: what is held in memory, written to the local disk and read back as one.

use super::packed::{PackedBytes, PackedInts};
use crate::error::Result;
use crate::table::keys::{Key, Keys};

/// The packed keys of some rows that lie behind each other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Segment {
    Ints(PackedInts),
    Bytes(PackedBytes),
}

impl Segment {
    /// Of `keys[from..to]`, which ascend.
    pub(crate) fn new(keys: &Keys, from: usize, to: usize) -> Result<Self> {
        Ok(match keys {
            Keys::Int(keys) => Self::Ints(PackedInts::new(&keys[from..to])),
            Keys::Bytes(keys) => Self::Bytes(PackedBytes::new(keys, from, to)?),
        })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ints(keys) => keys.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    /// The key at `index`, copied.
    pub(crate) fn at(&self, index: usize) -> Key {
        match self {
            Self::Ints(keys) => Key::Int(keys.at(index)),
            Self::Bytes(keys) => {
                let mut key = Vec::new();
                keys.append(index, &mut key);
                Key::Bytes(key.into())
            }
        }
    }

    /// Appends the key at `index` to keys of the same form.
    pub(crate) fn append(&self, index: usize, out: &mut Keys) -> Result<()> {
        match (self, out) {
            (Self::Ints(keys), Keys::Int(out)) => {
                out.push(keys.at(index));
                Ok(())
            }
            (_, out) => out.push(self.at(index).as_ref()),
        }
    }

    /// All keys, as a list that compares fast.
    pub(crate) fn unpack(&self) -> Result<Keys> {
        match self {
            Self::Ints(keys) => {
                let mut out = Vec::new();
                keys.unpack(&mut out);
                Ok(Keys::Int(out))
            }
            Self::Bytes(keys) => {
                let mut out = crate::table::keys::ByteKeys::default();
                let mut key = Vec::new();
                for index in 0..keys.len() {
                    key.clear();
                    keys.append(index, &mut key);
                    out.push(&key)?;
                }
                Ok(Keys::Bytes(out))
            }
        }
    }

    /// Calls `found(needle's index, position)` for each of the ascending `needles[from..to]` that is in the segment.
    pub(crate) fn look_up(&self, needles: &Keys, from: usize, to: usize, found: &mut impl FnMut(usize, usize)) {
        match (self, needles) {
            (Self::Ints(keys), Keys::Int(needles)) => keys.look_up(needles, from, to, found),
            (Self::Bytes(keys), Keys::Bytes(needles)) => keys.look_up(needles, from, to, found),
            // Keys of one table have one form.
            _ => {}
        }
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Ints(keys) => keys.bytes(),
            Self::Bytes(keys) => keys.bytes(),
        }
    }

    /// Appends the segment's bytes to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ints(keys) => {
                out.push(0);
                keys.write(out);
            }
            Self::Bytes(keys) => {
                out.push(1);
                keys.write(out);
            }
        }
    }

    /// What [`Segment::write`] wrote; none if that is not what `bytes` hold.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (form, mut rest) = bytes.split_first()?;
        let segment = match form {
            0 => Self::Ints(PackedInts::read(&mut rest)?),
            1 => Self::Bytes(PackedBytes::read(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(segment)
    }
}
