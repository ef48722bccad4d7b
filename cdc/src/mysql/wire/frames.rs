//! The protocol's packets, cut out of a stream of bytes.
//!
//! A packet is one frame or, from 16 MiB on, several: three bytes of length, a sequence number, the payload. A frame of the
//! largest length is followed by another one, be it empty.

use std::ops::Range;

/// The longest payload of one frame.
const MAX_FRAME: usize = 0xff_ffff;
const HEADER: usize = 4;
/// Bytes for which there is room before a read.
const READ_BYTES: usize = 256 << 10;

/// Bytes that are not the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFrame {
    #[error("a packet is out of order")]
    OutOfOrder,
    #[error("a packet is larger than the protocol allows")]
    TooLarge,
}

/// Bytes that have arrived, and which packet comes next.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    start: usize,
    sequence: u8,
}

impl Frames {
    /// Whether every byte that has arrived was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Begins a new exchange: sequence numbers start again.
    pub(super) fn restart(&mut self) {
        self.sequence = 0;
    }

    /// Appends the frames of a packet to `out`.
    pub(super) fn write(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let mut rest = payload;
        loop {
            let (frame, behind) = rest.split_at(rest.len().min(MAX_FRAME));
            out.extend_from_slice(&(frame.len() as u32).to_le_bytes()[..3]);
            out.push(self.sequence);
            out.extend_from_slice(frame);
            self.sequence = self.sequence.wrapping_add(1);
            rest = behind;
            if frame.len() < MAX_FRAME {
                return;
            }
        }
    }

    /// Where to read more bytes to; there is room for some. Gives up the packets that were taken.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        } else if self.bytes.capacity() - self.bytes.len() < READ_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        // After a packet of many megabytes the memory is handed back.
        if self.bytes.is_empty() && self.bytes.capacity() > 8 * READ_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.capacity() - self.bytes.len() < READ_BYTES {
            self.bytes.reserve(READ_BYTES);
        }
        &mut self.bytes
    }

    /// The next packet, if all of it has arrived; its payload is [`Self::payload`] until more bytes are asked for.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, BadFrame> {
        let (mut at, mut frames, mut len) = (self.start, 0_usize, 0_usize);
        loop {
            let Some((header, rest)) = self.bytes.get(at..).and_then(|bytes| bytes.split_first_chunk::<HEADER>())
            else {
                return Ok(None);
            };
            let [a, b, c, sequence] = *header;
            let frame = u32::from_le_bytes([a, b, c, 0]) as usize;
            if sequence != self.sequence.wrapping_add(frames as u8) {
                return Err(BadFrame::OutOfOrder);
            }
            if rest.len() < frame {
                return Ok(None);
            }
            at += HEADER + frame;
            frames += 1;
            len += frame;
            if len > super::MAX_PACKET {
                return Err(BadFrame::TooLarge);
            }
            if frame < MAX_FRAME {
                break;
            }
        }
        let first = self.start + HEADER;
        // Close the gaps that the headers of further frames leave.
        for frame in 1..frames {
            let from = first + frame * (HEADER + MAX_FRAME);
            self.bytes.copy_within(from..(from + MAX_FRAME).min(at), first + frame * MAX_FRAME);
        }
        self.sequence = self.sequence.wrapping_add(frames as u8);
        self.start = at;
        Ok(Some(first..first + len))
    }

    /// The payload of a packet.
    pub(super) fn payload(&self, packet: Range<usize>) -> &[u8] {
        self.bytes.get(packet).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(frames: &mut Frames) -> Option<Vec<u8>> {
        let range = frames.next().expect("well-formed")?;
        Some(frames.payload(range).to_vec())
    }

    #[test]
    fn packets_arrive_in_any_pieces() {
        let payloads: [Vec<u8>; 6] = [
            vec![1],
            Vec::new(),
            (0..MAX_FRAME).map(|i| i as u8).collect(),
            (0..MAX_FRAME * 2 + 5).map(|i| (i / 7) as u8).collect(),
            vec![9; MAX_FRAME - 1],
            vec![2, 3],
        ];
        let (mut sender, mut bytes) = (Frames::default(), Vec::new());
        for payload in &payloads {
            sender.write(payload, &mut bytes);
        }
        for piece in [1_000_003, MAX_FRAME, MAX_FRAME + 4, usize::MAX] {
            let (mut receiver, mut seen) = (Frames::default(), Vec::new());
            for part in bytes.chunks(piece.min(bytes.len())) {
                receiver.room().extend_from_slice(part);
                while let Some(payload) = packet(&mut receiver) {
                    seen.push(payload);
                }
            }
            assert!(seen == payloads, "in pieces of {piece}");
        }
    }

    #[test]
    fn small_packets_arrive_byte_by_byte() {
        let (mut sender, mut bytes) = (Frames::default(), Vec::new());
        sender.write(b"one", &mut bytes);
        sender.write(b"two", &mut bytes);
        let (mut receiver, mut seen) = (Frames::default(), Vec::new());
        for byte in bytes {
            receiver.room().push(byte);
            seen.extend(packet(&mut receiver));
        }
        assert_eq!(seen, [b"one", b"two"]);
    }

    #[test]
    fn a_packet_out_of_order_is_an_error() {
        let mut frames = Frames::default();
        frames.room().extend_from_slice(&[1, 0, 0, 7, 0]);
        assert_eq!(frames.next(), Err(BadFrame::OutOfOrder));
    }
}
