//! Lines of JSON-RPC over two byte streams. A line that is no message of the protocol ends the conversation; what a
//! server asks of its client is refused here and goes no further.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use transport::TaskTracker;

/// The longest line.
const LINE: usize = event::canon::MAX_BYTES;
const PIECE: usize = 16 * 1024;
/// Messages between the streams and their reader.
const WAITING: usize = 16;
/// Of JSON-RPC.
const METHOD_NOT_FOUND: i64 = -32601;

/// Why a server is not listened to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the server closed its output")]
    Closed,
    #[error("the server wrote a line longer than {LINE} bytes")]
    LineTooLong,
    #[error("the server wrote a line that is no message of the protocol")]
    NotProtocol,
    #[error("the server wrote more than it may during one call")]
    TooMuch,
    #[error("the server asks faster than it reads the answers")]
    Flooding,
}

/// What may still be written before the call is over.
#[derive(Debug, Default)]
pub(super) struct Allowance(AtomicU64);

impl Allowance {
    pub(super) fn renew(&self, bytes: u64) {
        self.0.store(bytes, Ordering::SeqCst);
    }

    fn take(&self, bytes: usize) -> Result<(), Broken> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let taken =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(bytes));
        taken.map(|_| ()).map_err(|_| Broken::TooMuch)
    }
}

/// Both directions, as the protocol's library wants them.
pub(super) struct Wire {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    outgoing: mpsc::Sender<Vec<u8>>,
}

/// What both sides of a conversation know of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    pub(super) broken: Arc<OnceLock<Broken>>,
    pub(super) allowance: Arc<Allowance>,
}

#[derive(Debug, thiserror::Error)]
#[error("the server's input is closed")]
pub(super) struct InputClosed;

impl Wire {
    /// The tasks end with the streams, or when this is dropped.
    pub(super) fn open(
        reader: impl AsyncRead + Unpin + Send + 'static,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        shared: &Shared,
        tracker: &TaskTracker,
    ) -> Self {
        let (messages, incoming) = mpsc::channel(WAITING);
        let (outgoing, lines) = mpsc::channel(WAITING);
        let (shared, answers) = (shared.clone(), outgoing.clone());
        tracker.spawn(async move {
            let mut lines_in = Lines { reader, held: Vec::new(), allowance: shared.allowance };
            tokio::select! {
                broken = listen(&mut lines_in, &messages, &answers) => {
                    // The first cause stays.
                    shared.broken.get_or_init(|| broken);
                }
                () = messages.closed() => (),
            }
        });
        tracker.spawn(speak(writer, lines));
        Self { incoming, outgoing }
    }
}

impl rmcp::transport::Transport<RoleClient> for Wire {
    type Error = InputClosed;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), InputClosed>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let mut line = serde_json::to_vec(&item).map_err(|_| InputClosed)?;
            line.push(b'\n');
            outgoing.send(line).await.map_err(|_| InputClosed)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), InputClosed> {
        self.incoming.close();
        Ok(())
    }
}

async fn speak(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        // Whoever waits for an answer sees that the other stream ends, or has a clock.
        if written.await.is_err() {
            return;
        }
    }
}

async fn listen<R: AsyncRead + Unpin>(
    lines: &mut Lines<R>,
    messages: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    answers: &mpsc::Sender<Vec<u8>>,
) -> Broken {
    loop {
        let heard = match lines.next().await {
            Ok(line) => read(&line),
            Err(broken) => return broken,
        };
        match heard {
            Ok(Heard::Nothing) => (),
            Ok(Heard::Answer(message)) => {
                if messages.send(*message).await.is_err() {
                    return Broken::Closed;
                }
            }
            Ok(Heard::Asked(line)) => {
                if answers.try_send(line).is_err() {
                    return Broken::Flooding;
                }
            }
            Err(broken) => return broken,
        }
    }
}

enum Heard {
    Answer(Box<RxJsonRpcMessage<RoleClient>>),
    /// With what it is answered.
    Asked(Vec<u8>),
    /// A notification: it changes nothing that is believed.
    Nothing,
}

fn read(line: &[u8]) -> Result<Heard, Broken> {
    let value = event::canon::parse_untrusted(line).map_err(|_| Broken::NotProtocol)?;
    if value["jsonrpc"] != "2.0" {
        return Err(Broken::NotProtocol);
    }
    match (value.get("method").and_then(Value::as_str), value.get("id")) {
        (Some(_), None) => Ok(Heard::Nothing),
        (Some(method), Some(id)) => {
            let mut answer = json!({ "jsonrpc": "2.0", "id": id });
            match method {
                "ping" => answer["result"] = json!({}),
                _ => {
                    let message = "this client offers nothing to a server";
                    answer["error"] = json!({ "code": METHOD_NOT_FOUND, "message": message });
                }
            }
            Ok(Heard::Asked(format!("{answer}\n").into_bytes()))
        }
        (None, _) => {
            let message = serde_json::from_value(value).map_err(|_| Broken::NotProtocol)?;
            Ok(Heard::Answer(Box::new(message)))
        }
    }
}

/// Lines of a stream, none of them longer than a message may be.
struct Lines<R> {
    reader: R,
    /// Read, and behind the last line that was given out.
    held: Vec<u8>,
    allowance: Arc<Allowance>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    async fn next(&mut self) -> Result<Vec<u8>, Broken> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.held[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.held.len();
            if searched > LINE {
                return Err(Broken::LineTooLong);
            }
            self.held.reserve(PIECE);
            match self.reader.read_buf(&mut self.held).await {
                Ok(0) | Err(_) => return Err(Broken::Closed),
                Ok(bytes) => self.allowance.take(bytes)?,
            }
        }
    }
}
