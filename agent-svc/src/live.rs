//! A session that is not over, as handlers reach it: they leave a command, wake its tasks, or read along. They never
//! change it.

use std::sync::Arc;

use event::id::RunId;
use kernel::Limits;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock::{Clock, Millis};
use crate::feed::Feed;
use crate::peers;
use crate::refusal::Refusal;
use crate::wish::Wish;

/// What a handler asks of a session's driver. Answers to asks are rows, not commands.
#[derive(Debug)]
pub(crate) enum Command {
    Prompt {
        wish: Wish,
        requested: Limits,
        reply: oneshot::Sender<Result<RunId, Refusal>>,
    },
    /// The reply says whether there was anything to cancel.
    Cancel {
        by: String,
        reply: oneshot::Sender<bool>,
    },
    /// Replies when every answer that was there is folded.
    Fold {
        reply: oneshot::Sender<()>,
    },
    /// The grant was renewed and both executors know.
    Renewed,
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) stream: peers::Stream,
    pub(crate) inbox: mpsc::Sender<Command>,
    /// An ask was answered.
    pub(crate) answered: Notify,
    /// The outbox has grown.
    pub(crate) outgoing: Notify,
    pub(crate) feed: Feed,
    presence: watch::Sender<Presence>,
}

/// Who is attached and could answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) attached: usize,
    /// Somebody was, at some time, in this process or an earlier one.
    pub(crate) attended: bool,
    /// When the last one left, or when this process began to look.
    pub(crate) since: Millis,
}

impl Live {
    pub(crate) fn new(
        stream: peers::Stream,
        inbox: mpsc::Sender<Command>,
        through: Option<u64>,
        attended: bool,
        now: Millis,
    ) -> Arc<Self> {
        Arc::new(Self {
            stream,
            inbox,
            answered: Notify::new(),
            outgoing: Notify::new(),
            feed: Feed::new(through),
            presence: watch::Sender::new(Presence { attached: 0, attended, since: now }),
        })
    }

    /// Leaves a command for the session's driver.
    pub(crate) async fn tell(&self, command: Command) -> Result<(), Refusal> {
        self.inbox.send(command).await.map_err(|_| self.unheard())
    }

    /// Why a command is not answered.
    pub(crate) fn unheard(&self) -> Refusal {
        if self.feed.is_parked() { Refusal::SessionDamaged } else { Refusal::Recovering }
    }

    pub(crate) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// Counts as present until dropped.
    pub(crate) fn attach(self: &Arc<Self>, clock: &Clock) -> Attached {
        self.presence.send_modify(|presence| {
            presence.attached += 1;
            presence.attended = true;
        });
        Attached { live: Arc::clone(self), clock: clock.clone() }
    }
}

/// Somebody who can answer is reading along.
#[derive(Debug)]
pub(crate) struct Attached {
    live: Arc<Live>,
    clock: Clock,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let now = self.clock.millis();
        self.live.presence.send_modify(|presence| {
            presence.attached = presence.attached.saturating_sub(1);
            presence.since = now;
        });
    }
}
