//! The one task that owns the socket: sends calls, matches answers, hands on events. It keeps at most the dialect's
//! number of calls and events, and ends with a close code that says which rule was broken.
use std::collections::HashMap;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, error::ProtocolError};

use super::open::Socket;
use super::{CallError, Closed, Limits};
use crate::limit::MAX_PENDING;
use crate::rpc::{Inbound, RequestId, SessionEvent, decode_inbound};

pub(super) type Reply = oneshot::Sender<Result<Box<RawValue>, CallError>>;

#[derive(Debug)]
pub(super) enum Command {
    Call { id: i64, text: String, reply: Reply },
    Close,
}

pub(super) struct Driver {
    socket: Socket,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<SessionEvent>,
    report: watch::Sender<Option<Closed>>,
    pending: HashMap<i64, Reply>,
    /// An event for which the queue had no room, and until when that may last.
    held: Option<(SessionEvent, Instant)>,
    heard: Instant,
    limits: Limits,
}

impl Driver {
    pub(super) fn new(
        socket: Socket,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<SessionEvent>,
        report: watch::Sender<Option<Closed>>,
        limits: Limits,
    ) -> Self {
        let (pending, held, heard) = (HashMap::new(), None, Instant::now());
        Self { socket, commands, events, report, pending, held, heard, limits }
    }

    pub(super) async fn run(mut self) {
        let Err(closed) = self.serve().await;
        let told =
            !closed.by_peer && closed.code != Closed::TRANSPORT && self.say_why(&closed).await;
        // Waiting calls read the report once their reply is dropped, so it is written first.
        self.report.send_replace(Some(closed));
        self.pending.clear();
        if told {
            self.hear_out().await;
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, Closed> {
        let mut alive = interval(self.limits.silence / 3);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let until = self.held.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Call { id, text, reply }) => self.call(id, text, reply).await?,
                    Some(Command::Close) | None => return Err(Closed::ours(Closed::NORMAL, "done")),
                },
                message = self.socket.next(), if self.held.is_none() => self.receive(message)?,
                room = self.events.clone().reserve_owned(), if self.held.is_some() => {
                    if let (Ok(room), Some((event, _))) = (room, self.held.take()) {
                        room.send(event);
                    }
                }
                () = sleep_until(until), if self.held.is_some() => {
                    return Err(Closed::ours(Closed::UNREAD, "events are not read"));
                }
                _ = alive.tick() => self.check_alive().await?,
            }
        }
    }

    async fn call(&mut self, id: i64, text: String, reply: Reply) -> Result<(), Closed> {
        if self.pending.len() >= MAX_PENDING {
            // The caller may be gone already, and then nobody needs to know.
            drop(reply.send(Err(CallError::TooManyPending)));
            return Ok(());
        }
        self.pending.insert(id, reply);
        self.write(Message::text(text)).await
    }

    fn receive(&mut self, message: Option<Result<Message, SocketError>>) -> Result<(), Closed> {
        self.heard = Instant::now();
        match message {
            Some(Ok(Message::Text(text))) => self.handle(text.as_str()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Binary(_))) => Err(Closed::ours(Closed::BINARY, "binary message")),
            Some(Ok(Message::Close(frame))) => Err(match frame {
                Some(CloseFrame { code, reason }) => {
                    Closed { code: code.into(), reason: reason.as_str().to_owned(), by_peer: true }
                }
                None => Closed { code: Closed::NO_CODE, reason: String::new(), by_peer: true },
            }),
            Some(Err(SocketError::Capacity(_))) => {
                Err(Closed::ours(Closed::TOO_LARGE, "message too large"))
            }
            Some(Err(SocketError::Utf8(_))) => {
                Err(Closed::ours(Closed::BAD_TEXT, "text is not UTF-8"))
            }
            Some(Err(SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                Err(Closed::cut())
            }
            Some(Err(SocketError::Protocol(_))) => {
                Err(Closed::ours(Closed::PROTOCOL, "not WebSocket"))
            }
            Some(Err(_)) | None => Err(Closed::cut()),
        }
    }

    fn handle(&mut self, text: &str) -> Result<(), Closed> {
        let bad = |reason| Closed::ours(Closed::BAD_MESSAGE, reason);
        match decode_inbound(text) {
            Ok(Inbound::Answer { id: RequestId::Number(id), result }) => {
                let reply = self.pending.remove(&id).ok_or_else(|| bad("answer to no request"))?;
                // Whoever asked may have stopped waiting.
                drop(reply.send(result.map_err(CallError::Refused)));
                Ok(())
            }
            Ok(Inbound::Answer { .. }) => Err(bad("answer to no request")),
            Ok(Inbound::Stray(_)) => Err(bad("the gateway could not read a request")),
            Ok(Inbound::Event(event)) => {
                if let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event) {
                    self.held = Some((event, Instant::now() + self.limits.unread));
                }
                Ok(())
            }
            Err(_) => Err(bad("neither an answer nor an event")),
        }
    }

    async fn check_alive(&mut self) -> Result<(), Closed> {
        // While an event is held nothing is read, so silence proves nothing.
        if self.held.is_none() && self.heard.elapsed() > self.limits.silence {
            return Err(Closed::ours(Closed::TRANSPORT, "the gateway is silent"));
        }
        self.write(Message::Ping(Vec::new().into())).await
    }

    async fn write(&mut self, message: Message) -> Result<(), Closed> {
        match timeout(self.limits.silence, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed::cut()),
        }
    }

    async fn say_why(&mut self, closed: &Closed) -> bool {
        let frame =
            CloseFrame { code: CloseCode::from(closed.code), reason: closed.reason.clone().into() };
        matches!(timeout(self.limits.drain, self.socket.close(Some(frame))).await, Ok(Ok(())))
    }

    /// Takes what the peer still sends until it hangs up: closing on unread bytes would cut it off before it has read
    /// why. What it sends no longer matters, so it is not decoded.
    async fn hear_out(&mut self) {
        let rest = async {
            let mut bytes = [0; 4096];
            while self.socket.get_mut().read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        };
        // However it ends, the connection is over; there is nobody left to tell.
        drop(timeout(self.limits.drain, rest).await);
    }
}
