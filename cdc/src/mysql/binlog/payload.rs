//! TRANSACTION_PAYLOAD: a whole transaction in one compressed event.

use std::io::Read;

use super::error::DecodeError;
use super::event::EventHeader;
use super::reader::Reader;

#[cfg(test)]
mod tests;

/// A transaction whose events are inside one event.
#[derive(Clone, Copy, Debug)]
pub struct TransactionPayload<'a> {
    /// The size of the events inside.
    pub uncompressed_size: u64,
    zstd: bool,
    payload: &'a [u8],
}

impl<'a> TransactionPayload<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (mut size, mut algorithm, mut uncompressed) = (None, None, None);
        loop {
            let field = reader.length()?;
            if field == 0 {
                break;
            }
            let mut value = Reader::new(reader.length_bytes()?);
            match field {
                1 => size = Some(value.length()?),
                2 => algorithm = Some(value.length()?),
                3 => uncompressed = Some(value.length()?),
                _ => {}
            }
        }
        let payload = reader.rest();
        let size = size.unwrap_or(payload.len() as u64);
        let payload = usize::try_from(size).ok().and_then(|n| payload.get(..n)).ok_or(DecodeError::Truncated)?;
        let zstd = match algorithm {
            Some(0) => true,
            None | Some(255) => false,
            Some(other) => return Err(DecodeError::Compression(format!("algorithm {other}"))),
        };
        Ok(Self { uncompressed_size: uncompressed.unwrap_or(size), zstd, payload })
    }

    /// The events inside, unpacked one after another. They have no checksums, and their headers' `log_pos` means nothing.
    pub fn events(&self) -> Result<PayloadEvents<'a>, DecodeError> {
        let source: Box<dyn Read + Send + 'a> = if self.zstd {
            Box::new(zstd::stream::read::Decoder::with_buffer(self.payload).map_err(unpacking)?)
        } else {
            Box::new(self.payload)
        };
        Ok(PayloadEvents { source, left: self.uncompressed_size, failed: false })
    }
}

fn unpacking(error: std::io::Error) -> DecodeError {
    DecodeError::Compression(error.to_string())
}

/// The events of a compressed transaction. After an error there are no more.
pub struct PayloadEvents<'a> {
    source: Box<dyn Read + Send + 'a>,
    left: u64,
    failed: bool,
}

impl std::fmt::Debug for PayloadEvents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadEvents").field("left", &self.left).finish_non_exhaustive()
    }
}

impl PayloadEvents<'_> {
    fn read(&mut self) -> Result<(EventHeader, Vec<u8>), DecodeError> {
        let mut header = [0; EventHeader::SIZE];
        self.left = self.left.checked_sub(header.len() as u64).ok_or(DecodeError::Truncated)?;
        self.source.read_exact(&mut header).map_err(unpacking)?;
        let header = EventHeader::parse(&header);
        let size = u64::from(header.size).checked_sub(EventHeader::SIZE as u64).ok_or(DecodeError::Truncated)?;
        self.left = self.left.checked_sub(size).ok_or(DecodeError::Truncated)?;
        // The buffer grows with what is really there, not with what a header claims.
        let mut body = Vec::with_capacity(size.min(64 << 10) as usize);
        self.source.by_ref().take(size).read_to_end(&mut body).map_err(unpacking)?;
        if body.len() as u64 != size {
            return Err(DecodeError::Truncated);
        }
        Ok((header, body))
    }

    /// The stream must end where its announced size does.
    fn check_end(&mut self) -> Result<(), DecodeError> {
        match self.source.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(DecodeError::Compression("more bytes than announced".to_owned())),
            Err(error) => Err(unpacking(error)),
        }
    }
}

impl Iterator for PayloadEvents<'_> {
    type Item = Result<(EventHeader, Vec<u8>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = if self.left == 0 {
            self.failed = true;
            return self.check_end().err().map(Err);
        } else {
            self.read()
        };
        self.failed = result.is_err();
        Some(result)
    }
}
