//! Reading Avro values by hand, where the schema is the one that this crate writes.

/// Takes Avro values from the front of some bytes. `None` is that the bytes end too early, or are not of the type.
#[derive(Debug, Clone, Copy)]
pub(in crate::paimon) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(in crate::paimon) fn long(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
            }
        }
        None
    }

    pub(in crate::paimon) fn int(&mut self) -> Option<i32> {
        self.long()?.try_into().ok()
    }

    pub(in crate::paimon) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.long()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(in crate::paimon) fn vec(&mut self) -> Option<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    pub(in crate::paimon) fn string(&mut self) -> Option<String> {
        self.vec().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// A union of null and a type, in this order.
    pub(in crate::paimon) fn optional<T>(&mut self, decode: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.long()? {
            0 => Some(None),
            1 => decode(self).map(Some),
            _ => None,
        }
    }

    pub(in crate::paimon) fn array<T>(&mut self, mut decode: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        loop {
            let count = match self.long()? {
                0 => return Some(items),
                // A negative count is followed by the size of the block.
                count if count < 0 => {
                    self.long()?;
                    count.checked_neg()?
                }
                count => count,
            };
            for _ in 0..count {
                items.push(decode(self)?);
            }
        }
    }

    /// So many bytes as they are.
    pub(super) fn raw(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
