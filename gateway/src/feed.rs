//! A session's events on their way to one connection. It checks that they are what the ledger could hold, in order and
//! without gaps, and follows agent-svc through its restarts; it changes no byte.
use std::time::Duration;

use event::id::SessionId;
use event::{Data, canon};
use proto::agent::v1 as wire;
use proto::agent::v1::subscribe_response::Message;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::Streaming;
use tracing::{error, warn};
use transport::{Chain, Code, Fault};

use crate::Desk;
use crate::approval::{Ask, NotAnAsk};
use crate::authn::Person;
use crate::refusal::{Refusal, refused};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One event, byte for byte as it was acknowledged; UTF-8, because canonical JSON is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) text: String,
    /// Set when the event asks something.
    pub(crate) ask: Option<Ask>,
}

/// What reaches the connection.
#[derive(Debug)]
pub(crate) enum Fed {
    Entry(SessionId, Entry),
    Outcome(SessionId, Box<wire::Outcome>),
    /// The subscription has ended for good.
    Ended(SessionId, Refusal),
}

/// What a subscription starts with.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) through: Option<u64>,
    pub(crate) open: Vec<Entry>,
    pub(crate) feed: Feed,
}

/// An open subscription.
#[derive(Debug)]
pub(crate) struct Feed {
    session: SessionId,
    person: Person,
    can_answer: bool,
    /// The last event that was handed on.
    last: Option<u64>,
    stream: Streaming<wire::SubscribeResponse>,
}

/// agent-svc sent what it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Wrong {
    #[error("the event is not canonical or not in the catalogue")]
    Event,
    #[error("the ask cannot be shown")]
    Ask(#[source] NotAnAsk),
    #[error("the stream does not begin with the open asks")]
    Beginning,
    #[error("a sequence number is missing")]
    Gap,
    #[error("a message without content")]
    Empty,
}

enum Stopped {
    Fault(Fault),
    Wrong(Wrong),
    /// The connection does not want more.
    Unwanted,
    /// The outcome was handed on.
    Done,
    /// The stream ended before its outcome.
    Early,
}

/// Subscribes and reads the first message.
pub(crate) async fn open(
    desk: &Desk,
    person: &Person,
    session: SessionId,
    after: Option<u64>,
    can_answer: bool,
) -> Result<Opened, Refusal> {
    let mut stream = desk
        .agent
        .subscribe(person, session, after, can_answer)
        .await
        .map_err(|fault| refused("agent-svc", fault))?;
    let first = tokio::time::timeout(desk.limits.first_message, stream.message()).await;
    let first = first.map_err(|_| Refusal::Unavailable("agent-svc"))?;
    let first = first.map_err(|status| refused("agent-svc", Fault::from(status)))?;
    let (through, open) = opening(session, first).map_err(|wrong| {
        error!(%session, error = %Chain(&wrong), "agent-svc breaks the subscription's rules");
        Refusal::Internal
    })?;
    let feed = Feed { session, person: person.clone(), can_answer, last: after, stream };
    Ok(Opened { through, open, feed })
}

fn opening(
    session: SessionId,
    first: Option<wire::SubscribeResponse>,
) -> Result<(Option<u64>, Vec<Entry>), Wrong> {
    let Some(Message::OpenAsks(wire::OpenAsks { through_seq, requested })) =
        first.and_then(|first| first.message)
    else {
        return Err(Wrong::Beginning);
    };
    let open =
        requested.into_iter().map(|entry| read(session, entry)).collect::<Result<Vec<_>, _>>()?;
    match open.iter().all(|entry| entry.ask.is_some()) {
        true => Ok((through_seq, open)),
        false => Err(Wrong::Beginning),
    }
}

fn read(session: SessionId, entry: wire::Entry) -> Result<Entry, Wrong> {
    let wire::Entry { seq, event: bytes } = entry;
    // Canonical: the client, whatever its parser makes of repeated members, reads what is checked here.
    if !canon::is_canonical(&bytes) {
        return Err(Wrong::Event);
    }
    let event = event::open(&bytes).map_err(|_| Wrong::Event)?;
    let ask = match &event.data {
        Data::PermissionRequested(requested) => {
            Some(Ask::read(session, requested).map_err(Wrong::Ask)?)
        }
        _ => None,
    };
    let text = String::from_utf8(bytes).map_err(|_| Wrong::Event)?;
    Ok(Entry { seq, text, ask })
}

impl Feed {
    /// Hands everything on until the outcome, and subscribes again whenever agent-svc was lost in between.
    pub(crate) async fn run(mut self, desk: std::sync::Arc<Desk>, out: mpsc::Sender<Fed>) {
        let session = self.session;
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.last;
            let ended = match self.pump(&out).await {
                Stopped::Done | Stopped::Unwanted => return,
                Stopped::Wrong(wrong) => {
                    error!(%session, error = %Chain(&wrong), "agent-svc breaks the subscription's rules");
                    Refusal::Internal
                }
                Stopped::Early => Refusal::Unavailable("agent-svc"),
                Stopped::Fault(fault) => refused_or_lost(fault),
            };
            if !matches!(ended, Refusal::Unavailable(_)) {
                return hand_on(&out, Fed::Ended(session, ended)).await;
            }
            if self.last != before {
                pause = FIRST_PAUSE;
            }
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                match open(&desk, &self.person, session, self.last, self.can_answer).await {
                    Ok(Opened { feed, .. }) => {
                        self = feed;
                        break;
                    }
                    Err(Refusal::Unavailable(peer)) => {
                        warn!(%session, peer, "the subscription is lost");
                    }
                    Err(refusal) => return hand_on(&out, Fed::Ended(session, refusal)).await,
                }
                if out.is_closed() {
                    return;
                }
            }
        }
    }

    async fn pump(&mut self, out: &mpsc::Sender<Fed>) -> Stopped {
        loop {
            let next = tokio::select! {
                next = self.stream.message() => next,
                () = out.closed() => return Stopped::Unwanted,
            };
            let message = match next {
                Ok(Some(wire::SubscribeResponse { message: Some(message) })) => message,
                Ok(Some(wire::SubscribeResponse { message: None })) => {
                    return Stopped::Wrong(Wrong::Empty);
                }
                Ok(None) => return Stopped::Early,
                Err(status) => return Stopped::Fault(Fault::from(status)),
            };
            let fed = match message {
                Message::OpenAsks(_) => return Stopped::Wrong(Wrong::Beginning),
                Message::Outcome(outcome) => {
                    hand_on(out, Fed::Outcome(self.session, Box::new(outcome))).await;
                    return Stopped::Done;
                }
                Message::Entry(entry) => match self.in_order(entry) {
                    Ok(Some(entry)) => Fed::Entry(self.session, entry),
                    Ok(None) => continue,
                    Err(wrong) => return Stopped::Wrong(wrong),
                },
            };
            if out.send(fed).await.is_err() {
                return Stopped::Unwanted;
            }
        }
    }

    /// Nothing twice, nothing missing.
    fn in_order(&mut self, entry: wire::Entry) -> Result<Option<Entry>, Wrong> {
        let next = self.last.map_or(0, |last| last + 1);
        if entry.seq < next {
            return Ok(None);
        }
        if entry.seq > next {
            return Err(Wrong::Gap);
        }
        let entry = read(self.session, entry)?;
        self.last = Some(entry.seq);
        Ok(Some(entry))
    }
}

/// A deadline on a subscription only means that it is time for another one; a slow reader must be told.
fn refused_or_lost(fault: Fault) -> Refusal {
    match (fault.code, fault.reason.as_str()) {
        (Code::ResourceExhausted, _) => Refusal::TooSlow,
        (Code::Internal, _) => {
            error!(reason = fault.reason, "agent-svc ends a subscription");
            Refusal::Unavailable("agent-svc")
        }
        _ => refused("agent-svc", fault),
    }
}

/// The connection may be gone, and then there is nobody to tell.
async fn hand_on(out: &mpsc::Sender<Fed>, fed: Fed) {
    drop(out.send(fed).await);
}
