//! One reader of a session's stream: what is still asked, then every acknowledged entry after its cursor, from the ledger
//! and then live, then the outcome. A reader that does not read is detached.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use proto::agent::v1 as wire;
use proto::agent::v1::subscribe_response::Message;
use proto::audit::v1::Stored;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;
use tracing::{debug, error, warn};
use transport::{Chain, Fault, to_status};

use crate::feed::{Feed, Flow, Following};
use crate::live::Attached;
use crate::peers;
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::session;
use crate::store::Session;

/// Entries on their way to a reader.
const WINDOW: usize = 64;

/// The messages of one subscription; when it ends early, the last item says why.
#[derive(Debug)]
pub(crate) struct Entries {
    messages: mpsc::Receiver<wire::SubscribeResponse>,
    end: Option<oneshot::Receiver<Status>>,
}

impl Stream for Entries {
    type Item = Result<wire::SubscribeResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.messages.poll_recv(cx) {
            Poll::Ready(Some(message)) => return Poll::Ready(Some(Ok(message))),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => (),
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let ended = match Pin::new(end).poll(cx) {
            Poll::Ready(ended) => ended,
            Poll::Pending => return Poll::Pending,
        };
        self.end = None;
        // Without a word the stream ended as it should.
        Poll::Ready(ended.map(Err).ok())
    }
}

/// Where a session's entries come from.
enum Origin {
    Live(Arc<crate::live::Live>),
    /// Nothing is added any more.
    Ledger {
        stream: peers::Stream,
        feed: Feed,
    },
}

impl Origin {
    fn feed(&self) -> &Feed {
        match self {
            Self::Live(live) => &live.feed,
            Self::Ledger { feed, .. } => feed,
        }
    }

    fn stream(&self) -> &peers::Stream {
        match self {
            Self::Live(live) => &live.stream,
            Self::Ledger { stream, .. } => stream,
        }
    }
}

pub(crate) async fn subscribe(
    runtime: &Arc<Runtime>,
    session: Session,
    after_seq: Option<u64>,
    can_answer: bool,
) -> Result<Entries, Refusal> {
    let id = session.owner.session;
    let origin = match (runtime.sessions.get(id), &session.outcome) {
        (Some(live), _) => Origin::Live(live),
        (None, Some(outcome)) => {
            let feed = Feed::new(session.through_seq);
            feed.end(session.last_seq, outcome.clone());
            Origin::Ledger { stream: session::stream(&session), feed }
        }
        (None, None) => return Err(Refusal::Recovering),
    };
    let through = origin.feed().through();
    if after_seq > through {
        return Err(Refusal::Invalid {
            field: "after_seq",
            expected: "nothing that late was sent",
        });
    }
    let attached = match &origin {
        Origin::Live(live) if can_answer => {
            runtime.store.attend(id).await?;
            Some(live.attach(&runtime.clock))
        }
        Origin::Live(_) | Origin::Ledger { .. } => None,
    };
    let asked = runtime.store.open_asks(id, through).await?;
    let requested = asked.into_iter().map(|(seq, _, event)| wire::Entry { seq, event }).collect();
    let open = wire::OpenAsks { through_seq: through, requested };
    let (sender, messages) = mpsc::channel(WINDOW);
    let (ended, end) = oneshot::channel();
    let reader = Reader { runtime: Arc::clone(runtime), origin, sender, _attached: attached };
    runtime.tracker.spawn(async move {
        let shutdown = reader.runtime.shutdown.clone();
        let result = tokio::select! {
            result = reader.read(open, after_seq.map_or(0, |seq| seq + 1)) => result,
            () = shutdown.cancelled() => Err(Gone::Refused(Refusal::Stopping)),
        };
        match result {
            Ok(()) => (),
            Err(Gone::Left) => debug!(session = %id, "subscriber left"),
            Err(Gone::Refused(refusal)) => {
                warn!(session = %id, error = %Chain(&refusal), "subscriber detached");
                drop(ended.send(to_status(&refusal)));
            }
        }
    });
    Ok(Entries { messages, end: Some(end) })
}

/// Why a reader gets no more.
enum Gone {
    Left,
    Refused(Refusal),
}

impl From<Refusal> for Gone {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Reader {
    runtime: Arc<Runtime>,
    origin: Origin,
    sender: mpsc::Sender<wire::SubscribeResponse>,
    _attached: Option<Attached>,
}

impl Reader {
    async fn read(&self, open: wire::OpenAsks, mut next: u64) -> Result<(), Gone> {
        self.send(Message::OpenAsks(open)).await?;
        let mut progress = self.origin.feed().progress();
        loop {
            let seen = progress.borrow_and_update().clone();
            match self.origin.feed().following(next, WINDOW) {
                Following::Entries(entries) => {
                    for (seq, body) in entries {
                        self.send_entry(seq, body.to_vec()).await?;
                        next = seq + 1;
                    }
                    continue;
                }
                Following::InLedger { before } => {
                    next = self.read_ledger(next, before).await?;
                    continue;
                }
                Following::Nothing => (),
            }
            match seen.flow {
                Flow::Ended { last, outcome } if last.is_none_or(|last| next > last) => {
                    return self.send(Message::Outcome(crate::api::outcome(&outcome))).await;
                }
                Flow::Frozen => return Err(Refusal::StreamFrozen.into()),
                Flow::Parked => return Err(Refusal::SessionDamaged.into()),
                Flow::Going | Flow::Ended { .. } => (),
            }
            tokio::select! {
                changed = progress.changed() => changed.map_err(|_| Gone::Left)?,
                () = self.sender.closed() => return Err(Gone::Left),
            }
        }
    }

    /// Sends what the ledger has from `next` on, and returns what follows. The ledger may be ahead of what this process
    /// knows to be acknowledged; that is left for later.
    async fn read_ledger(&self, next: u64, before: u64) -> Result<u64, Gone> {
        let audit = &self.runtime.peers.audit;
        let unavailable = |fault: Fault| {
            warn!(reason = fault.reason, "ledger cannot be read");
            Refusal::AuditUnavailable
        };
        let mut stored =
            audit.read(self.origin.stream(), next.checked_sub(1)).await.map_err(unavailable)?;
        let mut next = next;
        while next < before {
            let entry = stored.message().await.map_err(|status| unavailable(status.into()))?;
            let Some(Stored { seq, event, .. }) = entry.filter(|entry| entry.seq == next) else {
                error!(session = %self.origin.stream().session, seq = next, "ledger has a gap");
                return Err(Refusal::LedgerGap.into());
            };
            self.send_entry(seq, event).await?;
            next = seq + 1;
        }
        Ok(next)
    }

    async fn send_entry(&self, seq: u64, event: Vec<u8>) -> Result<(), Gone> {
        self.send(Message::Entry(wire::Entry { seq, event })).await
    }

    async fn send(&self, message: Message) -> Result<(), Gone> {
        let message = wire::SubscribeResponse { message: Some(message) };
        match self.sender.send_timeout(message, self.runtime.spans.stall).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(Refusal::SubscriberSlow.into()),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(Gone::Left),
        }
    }
}
