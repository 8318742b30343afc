//! What all sessions and handlers share. It holds no session's state and decides nothing.

use std::sync::Arc;
use std::time::Duration;

use transport::{CancellationToken, Readiness, TaskTracker};

use crate::clock::Clock;
use crate::failpoint::Records;
use crate::obo::Gate;
use crate::peers::Peers;
use crate::session::Sessions;
use crate::store::{Node, Store};

#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) store: Store,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
    pub(crate) node: Node,
    pub(crate) gate: Gate,
    pub(crate) sessions: Sessions,
    /// Held from a session's creation until it runs.
    pub(crate) opening: tokio::sync::Mutex<()>,
    /// Some executor does not know of a revocation.
    pub(crate) revocations: tokio::sync::Notify,
    pub(crate) records: Records,
    pub(crate) spans: Spans,
    pub(crate) ready: Readiness,
    pub(crate) tracker: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spans {
    /// A client that is gone for less is not gone.
    pub(crate) grace: Duration,
    /// A claimed allow waits this long for its receipt.
    pub(crate) lease: Duration,
    /// A session waits this long for its prompt.
    pub(crate) prompt: Duration,
    /// A subscriber may leave its stream unread for this long.
    pub(crate) stall: Duration,
    /// A handler waits this long for an acknowledgement, or for the session's driver.
    pub(crate) answer: Duration,
    /// Clients are told the outcome this long after the end, even if the environment is not closed yet.
    pub(crate) closing: Duration,
}

impl Spans {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            lease: Duration::from_secs(30),
            prompt: Duration::from_secs(5 * 60),
            stall: Duration::from_secs(10),
            answer: Duration::from_secs(10),
            closing: Duration::from_secs(30),
        }
    }
}

impl Runtime {
    /// Does something that must not stop half way when its caller goes away.
    pub(crate) async fn finish<T, F>(
        self: &Arc<Self>,
        work: F,
    ) -> Result<T, crate::refusal::Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, crate::refusal::Refusal>> + Send + 'static,
    {
        self.tracker.spawn(work).await.unwrap_or(Err(crate::refusal::Refusal::Stopping))
    }
}
