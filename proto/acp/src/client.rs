//! The bounded WebSocket client: one connection, many calls, one stream of events. It never reconnects, never decides
//! an ask, and gives up loudly rather than buffer without limit.
mod driver;
mod endpoint;
mod error;
mod grants;
mod open;
mod patch;

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

pub use endpoint::{Bearer, Endpoint, EndpointRefused};
pub use error::{CallError, Closed, ConnectError};
pub use patch::PatchText;

use crate::limit::{MAX_PENDING, MAX_QUEUED};
use crate::method::Method;
use crate::rpc::{Failure, RequestId, SessionEvent, encode_request};
use driver::{Command, Driver};

/// Where to connect and as whom.
#[derive(Debug)]
pub struct Options {
    pub endpoint: Endpoint,
    /// The CA bundle, PEM, that vouches for the gateway's certificate. Not used with plain `ws`.
    pub ca_pem: Vec<u8>,
    pub bearer: Bearer,
    pub limits: Limits,
}

/// How long and how much. The defaults are the dialect's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the WebSocket is open.
    pub connect: Duration,
    /// Without a byte from the peer, though it is asked for a sign of life three times in between.
    pub silence: Duration,
    /// While the reader of events takes none although they are queued.
    pub unread: Duration,
    /// For saying goodbye.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(90),
            unread: Duration::from_secs(10),
            drain: Duration::from_secs(1),
        }
    }
}

/// An open connection. Dropping it cuts the connection; [`Self::close`] says goodbye first.
#[derive(Debug)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    closed: watch::Receiver<Option<Closed>>,
    next: AtomicI64,
    driver: JoinSet<()>,
    drain: Duration,
}

/// The events of all sessions of a connection, in the order they came. It ends when the connection does.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<SessionEvent>);

impl Client {
    pub async fn connect(options: Options) -> Result<(Self, Events), ConnectError> {
        let Options { endpoint, ca_pem, bearer, limits } = options;
        let opening = open::open(&endpoint, &ca_pem, &bearer);
        let socket = tokio::time::timeout(limits.connect, opening)
            .await
            .map_err(|_| ConnectError::Timeout)??;
        let (commands, command_queue) = mpsc::channel(MAX_PENDING);
        let (events, event_queue) = mpsc::channel(MAX_QUEUED);
        let (report, closed) = watch::channel(None);
        let mut driver = JoinSet::new();
        driver.spawn(Driver::new(socket, command_queue, events, report, limits).run());
        let client =
            Self { commands, closed, next: AtomicI64::new(1), driver, drain: limits.drain };
        Ok((client, Events(event_queue)))
    }

    /// Calls a method and waits for its answer. Dropping the future forgets the answer; it does not undo the call.
    pub async fn call<M: Method>(&self, params: M::Params) -> Result<M::Answer, CallError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let text =
            encode_request(&RequestId::Number(id), M::NAME, &params).map_err(CallError::Encode)?;
        if text.len() > crate::MAX_MESSAGE {
            return Err(CallError::TooLarge);
        }
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Call { id, text, reply }).await.is_err() {
            return Err(CallError::Closed(self.closed().await));
        }
        let answered = match M::TIMEOUT {
            Some(limit) => {
                tokio::time::timeout(limit, answer).await.map_err(|_| CallError::Timeout)?
            }
            None => answer.await,
        };
        match answered {
            Ok(Ok(result)) => {
                serde_json::from_str::<crate::strict::Object<M::Answer>>(result.get())
                    .map(|crate::strict::Object(answer)| answer)
                    .map_err(CallError::InvalidAnswer)
            }
            Ok(Err(refused)) => Err(refused),
            Err(_) => Err(CallError::Closed(self.closed().await)),
        }
    }

    /// Waits until the connection has ended and tells how.
    pub async fn closed(&self) -> Closed {
        let mut closed = self.closed.clone();
        let ended = closed.wait_for(Option::is_some).await.ok().and_then(|state| state.clone());
        ended.unwrap_or_else(Closed::cut)
    }

    /// Says goodbye and waits for the peer's, briefly.
    pub async fn close(mut self) -> Closed {
        if self.commands.send(Command::Close).await.is_ok() {
            // The driver bounds its own goodbye; a second more is for being scheduled.
            let joined =
                tokio::time::timeout(self.drain + Duration::from_secs(1), self.driver.join_next())
                    .await;
            if joined.is_err() {
                self.driver.abort_all();
            }
        }
        self.closed.borrow().clone().unwrap_or_else(Closed::cut)
    }
}

impl Events {
    /// The next event, or `None` once the connection has ended.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        self.0.recv().await
    }
}

impl futures::Stream for Events {
    type Item = SessionEvent;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        self.0.poll_recv(cx)
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}
