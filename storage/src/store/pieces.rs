//! The bytes of an object that is being made, which grow without being copied.

use std::io;

use bytes::Bytes;

/// Bytes of a full piece. The size of a part of a large object is a multiple of it.
pub(crate) const PIECE: usize = 1 << 20;

/// Takes bytes as they come. Memory is what was written and less than a piece more.
#[derive(Debug, Default)]
pub struct Pieces {
    full: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    /// Hands out the first `count` pieces as soon as so many are full.
    pub fn take_full(&mut self, count: usize) -> Option<Vec<Bytes>> {
        (count > 0 && self.full.len() >= count).then(|| self.full.drain(..count).collect())
    }

    /// The bytes, in full pieces and the rest.
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.open.shrink_to_fit();
            self.full.push(self.open.into());
        }
        self.full
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.is_empty() {
            self.open.reserve_exact(PIECE);
        }
        let taken = bytes.len().min(PIECE - self.open.len());
        self.open.extend_from_slice(&bytes[..taken]);
        if self.open.len() == PIECE {
            self.full.push(std::mem::take(&mut self.open).into());
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts what is larger than a piece.
pub(crate) fn cut(mut bytes: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(bytes.len().div_ceil(PIECE));
    while !bytes.is_empty() {
        pieces.push(bytes.split_to(PIECE.min(bytes.len())));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn pieces_are_full_but_for_the_last() {
        let all: Vec<u8> = (0..PIECE * 3 + 17).map(|n| n as u8).collect();
        let mut pieces = Pieces::default();
        all.chunks(100_003).for_each(|chunk| pieces.write_all(chunk).unwrap());
        let pieces = pieces.finish();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, PIECE, 17]);
        assert_eq!(pieces.concat(), all);
        assert_eq!(cut(all.clone().into()), pieces);
        let mut pieces = Pieces::default();
        pieces.write_all(&all).unwrap();
        assert_eq!(pieces.take_full(4), None);
        assert_eq!(pieces.take_full(2).unwrap().concat(), all[..2 * PIECE]);
        assert_eq!(pieces.finish().concat(), all[2 * PIECE..]);
        assert!(Pieces::default().finish().is_empty());
    }
}
