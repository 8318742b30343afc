//! The reading half: bytes to messages under a time limit. It never waits for anything but the peer.
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::Limits;
use super::frame::{self, Violation};
use super::message::{Assembler, Incoming};

const CHUNK: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Reader<R> {
    io: R,
    buffer: BytesMut,
    assembler: Assembler,
    /// Since when a frame or message is incomplete.
    began: Option<Instant>,
    limits: Limits,
}

/// Why there is nothing more to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Violation(Violation),
    /// The peer is gone without a goodbye.
    Gone,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R, limits: Limits) -> Self {
        Self {
            io,
            buffer: BytesMut::with_capacity(CHUNK),
            assembler: Assembler::default(),
            began: None,
            limits,
        }
    }

    /// The next message. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Incoming, Ended> {
        loop {
            while let Some(frame) = frame::take(&mut self.buffer).map_err(Ended::Violation)? {
                let complete = self.assembler.push(frame).map_err(Ended::Violation)?;
                if !self.assembler.is_partial() {
                    self.began = None;
                }
                if let Some(incoming) = complete {
                    return Ok(incoming);
                }
            }
            if self.buffer.is_empty() && !self.assembler.is_partial() {
                self.began = None;
            } else {
                self.began.get_or_insert_with(Instant::now);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Ended> {
        self.buffer.reserve(CHUNK);
        let read = self.io.read_buf(&mut self.buffer);
        let read = match self.began {
            Some(began) => timeout_at(began + self.limits.incomplete, read)
                .await
                .map_err(|_| Ended::Violation(Violation::Incomplete))?,
            None => read.await,
        };
        match read {
            Ok(0) | Err(_) => Err(Ended::Gone),
            Ok(_) => Ok(()),
        }
    }

    /// Takes what the peer still sends until it hangs up: closing on unread bytes would cut it off before it has read
    /// why. Nothing of it is decoded.
    pub(crate) async fn hear_out(&mut self) {
        let rest = async {
            loop {
                self.buffer.clear();
                if !self.io.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
                    return;
                }
            }
        };
        // However it ends, the connection is over; there is nobody left to tell.
        drop(timeout(self.limits.drain, rest).await);
    }
}
