//! The writing half: a queue that is bounded in bytes, and one owner of the socket that notices when nobody takes them.
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::{Farewell, Limits};

/// Messages that may wait, beside the limit in bytes.
const QUEUE: usize = 1024;

/// Where messages to the peer are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    most: u32,
}

#[derive(Debug)]
enum Queued {
    Frame { opcode: OpCode, payload: Bytes, room: Option<OwnedSemaphorePermit> },
    Farewell(Bytes),
}

/// The socket takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closing")]
pub(crate) struct Closing;

impl Outbound {
    /// Waits for room. The writer bounds that wait: it gives up on a peer that takes nothing.
    pub(crate) async fn text(&self, text: String) -> Result<(), Closing> {
        let size = u32::try_from(text.len()).unwrap_or(u32::MAX).min(self.most);
        let room = self.room.clone().acquire_many_owned(size).await.map_err(|_| Closing)?;
        self.frame(OpCode::Data(Data::Text), Bytes::from(text), Some(room)).await
    }

    pub(crate) async fn ping(&self) -> Result<(), Closing> {
        self.frame(OpCode::Control(Control::Ping), Bytes::new(), None).await
    }

    /// A pong matters only to a peer that reads; it never waits behind a full queue.
    pub(crate) fn pong(&self, payload: Bytes) {
        let pong = Queued::Frame { opcode: OpCode::Control(Control::Pong), payload, room: None };
        match self.queue.try_send(pong) {
            Ok(())
            | Err(mpsc::error::TrySendError::Full(_) | mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    /// The last message: the close frame, after what is queued.
    pub(crate) async fn close(&self, code: Option<u16>, reason: &str) -> Result<(), Closing> {
        self.queue.send(Queued::Farewell(close_payload(code, reason))).await.map_err(|_| Closing)
    }

    /// Returns once nothing more is written.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    async fn frame(
        &self,
        opcode: OpCode,
        payload: Bytes,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Closing> {
        self.queue.send(Queued::Frame { opcode, payload, room }).await.map_err(|_| Closing)
    }
}

#[derive(Debug)]
pub(crate) struct Writer<W> {
    io: W,
    queue: mpsc::Receiver<Queued>,
    limits: Limits,
}

/// How writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The close frame was sent.
    Farewell,
    /// The peer took nothing for too long; it was told, if it takes that.
    Slow,
    Broken,
}

enum Stopped {
    /// With what is left of the frame that was being written.
    Stalled(Box<dyn Buf + Send>),
    Broken,
}

pub(crate) fn channel<W>(io: W, limits: Limits) -> (Outbound, Writer<W>) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let most = u32::try_from(limits.outbound).unwrap_or(u32::MAX);
    let room = Arc::new(Semaphore::new(limits.outbound));
    (Outbound { queue: sender, room, most }, Writer { io, queue, limits })
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes until the farewell, until the peer stalls, or until every [`Outbound`] is dropped.
    pub(crate) async fn run(mut self) -> Written {
        while let Some(next) = self.queue.recv().await {
            let written = match next {
                Queued::Frame { opcode, payload, room } => {
                    let written = self.write(frame(opcode, payload)).await;
                    drop(room);
                    written
                }
                Queued::Farewell(payload) => {
                    return self.say_goodbye(Bytes::new(), payload, Written::Farewell).await;
                }
            };
            match written {
                Ok(()) => {}
                Err(Stopped::Stalled(rest)) => {
                    self.take_no_more();
                    let payload = close_payload(Some(Farewell::SLOW.code), Farewell::SLOW.reason);
                    return self.say_goodbye(rest, payload, Written::Slow).await;
                }
                Err(Stopped::Broken) => return Written::Broken,
            }
        }
        Written::Broken
    }

    /// Whoever waits for room learns at once that there will be none.
    fn take_no_more(&mut self) {
        self.queue.close();
        while let Ok(unsent) = self.queue.try_recv() {
            drop(unsent);
        }
    }

    async fn write(&mut self, mut bytes: impl Buf + Send + 'static) -> Result<(), Stopped> {
        while bytes.has_remaining() {
            match timeout(self.limits.stall, self.io.write_buf(&mut bytes)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => return Err(Stopped::Broken),
                Err(_) => return Err(Stopped::Stalled(Box::new(bytes))),
            }
        }
        match timeout(self.limits.stall, self.io.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Stopped::Broken),
            Err(_) => Err(Stopped::Stalled(Box::new(Bytes::new()))),
        }
    }

    /// A frame that was begun is finished first, or the close frame would be read as part of it.
    async fn say_goodbye(&mut self, mut rest: impl Buf, payload: Bytes, done: Written) -> Written {
        let mut close = frame(OpCode::Control(Control::Close), payload);
        let goodbye = async {
            self.io.write_all_buf(&mut rest).await?;
            self.io.write_all_buf(&mut close).await?;
            self.io.flush().await?;
            // The peer hears the end of the stream as well; its own goodbye is still read.
            self.io.shutdown().await
        };
        match (timeout(self.limits.drain, goodbye).await, done) {
            (Ok(Ok(())), done) | (_, done @ Written::Slow) => done,
            (Ok(Err(_)) | Err(_), Written::Farewell | Written::Broken) => Written::Broken,
        }
    }
}

fn frame(opcode: OpCode, payload: Bytes) -> impl Buf + Send + 'static {
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    let mut head = Vec::with_capacity(10);
    // Writing to memory cannot fail.
    let formatted = header.format(payload.len() as u64, &mut head);
    debug_assert!(formatted.is_ok());
    Bytes::from(head).chain(payload)
}

fn close_payload(code: Option<u16>, reason: &str) -> Bytes {
    let Some(code) = code else { return Bytes::new() };
    let mut payload = code.to_be_bytes().to_vec();
    // A control frame holds 125 bytes.
    payload
        .extend_from_slice(&reason.as_bytes()[..reason.len().min(reason.floor_char_boundary(123))]);
    Bytes::from(payload)
}
