//! A cursor over foreign bytes that never reads past their end.

/// The bytes ended before the value did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Cut> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Cut)?;
        self.0 = tail;
        Ok(head)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Cut> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Cut)?;
        self.0 = tail;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Cut> {
        self.array().map(|[b]| b)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Cut> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u24(&mut self) -> Result<u32, Cut> {
        self.array().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Cut> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u48(&mut self) -> Result<u64, Cut> {
        self.array().map(|[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Cut> {
        self.array().map(u64::from_le_bytes)
    }

    /// An integer as the protocol encodes lengths.
    pub(crate) fn length(&mut self) -> Result<u64, Cut> {
        match self.u8()? {
            n @ 0..=250 => Ok(u64::from(n)),
            252 => self.u16().map(u64::from),
            253 => self.u24().map(u64::from),
            254 => self.u64(),
            251 | 255 => Err(Cut),
        }
    }

    /// A length, and that many bytes.
    pub(crate) fn length_bytes(&mut self) -> Result<&'a [u8], Cut> {
        let length = self.length()?;
        self.bytes(usize::try_from(length).map_err(|_| Cut)?)
    }

    /// One byte of length, and that many bytes.
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], Cut> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }
}
