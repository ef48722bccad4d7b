//! What a connection sends: a buffer that is filled by its session and emptied by its socket.

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// A chunk goes to the socket when the buffer has grown to this many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that wait for a slow socket, before whatever produces them waits too.
const WAITING_CHUNKS: usize = 4;

/// The socket is closed: there is nobody to send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// The sending half, owned by the session.
#[derive(Debug)]
pub(crate) struct Output {
    buffer: BytesMut,
    chunks: mpsc::Sender<Bytes>,
}

impl Output {
    /// An output, and the chunks that its socket has to write.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (chunks, receiver) = mpsc::channel(WAITING_CHUNKS);
        (Self { buffer: BytesMut::new(), chunks }, receiver)
    }

    /// Another output to the same socket, for a last word when the session that owns this one has failed.
    pub(crate) fn again(&self) -> Self {
        Self { buffer: BytesMut::new(), chunks: self.chunks.clone() }
    }

    /// Where messages are appended. Only whole messages may be in it when something is awaited.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Hands everything to the socket; waits while that is behind. Nothing is lost if the wait is given up.
    pub(crate) async fn flush(&mut self) -> Result<(), Gone> {
        if self.buffer.is_empty() {
            return if self.chunks.is_closed() { Err(Gone) } else { Ok(()) };
        }
        let place = self.chunks.reserve().await.map_err(|_| Gone)?;
        place.send(self.buffer.split().freeze());
        Ok(())
    }

    /// As [`Self::flush`], once enough is there to be worth a write.
    pub(crate) async fn flush_if_large(&mut self) -> Result<(), Gone> {
        if self.buffer.len() >= CHUNK_BYTES { self.flush().await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn giving_up_a_flush_keeps_the_bytes_in_order() {
        let (mut output, mut chunks) = Output::new();
        let mut context = Context::from_waker(Waker::noop());
        for part in 0..=WAITING_CHUNKS as u8 {
            output.buffer().extend_from_slice(&[part]);
            let polled = pin!(output.flush()).poll(&mut context);
            assert_eq!(polled.is_pending(), part == WAITING_CHUNKS as u8);
        }
        for part in 0..WAITING_CHUNKS as u8 {
            assert_eq!(chunks.try_recv().ok().as_deref(), Some(&[part][..]));
        }
        output.buffer().extend_from_slice(b"x");
        assert_eq!(pin!(output.flush()).poll(&mut context), Poll::Ready(Ok(())));
        assert_eq!(chunks.try_recv().ok().as_deref(), Some(&[WAITING_CHUNKS as u8, b'x'][..]));
        drop(chunks);
        assert_eq!(pin!(output.flush()).poll(&mut context), Poll::Ready(Err(Gone)));
    }
}
