//! What a server writes, taken from the engine's one stream: its output goes to whoever reads the protocol, of its
//! error stream the end is kept for a failure's account. It reads no message and keeps nothing beyond that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use sandbox_init::{Nonce, Sieve};
use tokio::io::{AsyncRead, AsyncWriteExt as _, DuplexStream};
use tracing::warn;
use transport::{Chain, TaskTracker};

use crate::engine::{Frame, Frames, Stream};

/// Between the engine and the reader of messages.
const BUFFER: usize = 64 * 1024;
const KEPT: usize = 2 * 1024;

/// The end of what a server wrote beside the protocol.
#[derive(Debug, Default)]
pub(super) struct Errors(Mutex<VecDeque<u8>>);

impl Errors {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = bytes.len().saturating_sub(KEPT);
        kept.extend(&bytes[from..]);
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
    }

    /// Whatever it is, as text.
    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

/// The reading end. The task goes with the container's stream, or with its reader.
pub(super) fn pump(
    frames: Frames,
    nonce: Nonce,
    errors: Arc<Errors>,
    tracker: &TaskTracker,
) -> impl AsyncRead + Unpin + Send + 'static {
    let (near, far) = tokio::io::duplex(BUFFER);
    tracker.spawn(pass(frames, nonce, errors, far));
    near
}

async fn pass(mut frames: Frames, nonce: Nonce, errors: Arc<Errors>, mut to: DuplexStream) {
    let (mut stdout, mut stderr) = (Sieve::new(nonce), Sieve::new(nonce));
    while let Some(frame) = frames.next().await {
        match frame {
            Ok(Frame { stream: Stream::Stdout, bytes }) => {
                let bytes = stdout.pass(&bytes);
                // Nobody reads any more.
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Ok(Frame { stream: Stream::Stderr, bytes }) => errors.push(&stderr.pass(&bytes)),
            Err(error) => {
                return warn!(error = %Chain(&error), "the output of a tool server broke off");
            }
        }
        // The first process has said on both that the server ended.
        if stdout.is_whole() && stderr.is_whole() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Errors, KEPT};

    #[test]
    fn of_what_goes_beside_the_protocol_the_end_is_kept() {
        let errors = Errors::default();
        errors.push(b"first\n");
        errors.push(&[b'x'; 3 * KEPT]);
        assert_eq!(errors.text(), "x".repeat(KEPT));
        errors.push(b"\xff\n");
        assert_eq!(errors.text(), "x".repeat(KEPT - 2) + "\u{fffd}\n");
    }
}
