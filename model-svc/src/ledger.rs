//! This service's own streams in the ledger: entries leave the outbox in order, each again under the same event id until
//! audit-svc has acknowledged it. It decides when to try again, never what is said.

use std::sync::Arc;
use std::time::Duration;

use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{AppendRequest, NewEntry, Redaction};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::{error, warn};
use transport::{CancellationToken, Chain, Code, Fault, PeerChannel, Readiness, deadline};

use crate::store::{self, Store, Waiting};

const APPEND: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const BATCH_ROWS: u32 = 64;
const BATCH_BYTES: usize = 1024 * 1024;
const READY: &str = "audit";

#[derive(Debug)]
pub(crate) struct Ledger {
    store: Arc<Store>,
    channel: PeerChannel,
    client: AuditServiceClient<PeerChannel>,
    ready: Readiness,
    wake: Notify,
    /// Every entry up to this id is acknowledged or refused.
    through: watch::Sender<i64>,
}

/// An entry did not get into the ledger in time, or never will.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAcknowledged {
    #[error("audit-svc has not acknowledged the entry in time")]
    InTime,
    #[error("audit-svc refuses the entry")]
    Refused,
    #[error("the state cannot be read")]
    State(#[from] store::Error),
}

/// What to do after an attempt to append.
enum Next {
    Go,
    OneByOne,
    Pause(Duration),
}

impl Ledger {
    pub(crate) fn new(store: Arc<Store>, channel: PeerChannel, ready: Readiness) -> Self {
        ready.set(READY, false);
        Self {
            store,
            client: AuditServiceClient::new(channel.clone()),
            channel,
            ready,
            wake: Notify::new(),
            through: watch::Sender::new(0),
        }
    }

    /// Something was put into the outbox.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns once the ledger holds the entry.
    pub(crate) async fn acknowledged(
        &self,
        entry: i64,
        within: Duration,
    ) -> Result<(), NotAcknowledged> {
        self.wake();
        let mut through = self.through.subscribe();
        let passed = timeout(within, through.wait_for(|through| *through >= entry)).await;
        // The sender lives in `self`, so that its end is no case of its own.
        if !matches!(passed, Ok(Ok(_))) {
            return Err(NotAcknowledged::InTime);
        }
        drop(passed);
        match self.store.outbox_holds(entry).await? {
            true => Err(NotAcknowledged::Refused),
            false => Ok(()),
        }
    }

    /// Empties the outbox until `shutdown`, and then as far as it goes without waiting.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut rows = BATCH_ROWS;
        self.reach(&shutdown).await;
        loop {
            let next = match self.store.outbox_batch(rows, BATCH_BYTES).await {
                Ok(batch) if batch.is_empty() => {
                    rows = BATCH_ROWS;
                    tokio::select! {
                        () = self.wake.notified() => continue,
                        () = shutdown.cancelled() => return,
                    }
                }
                Ok(batch) => self.append(&batch).await,
                Err(error) => {
                    error!(error = %Chain(&error), "the outbox cannot be read");
                    Next::Pause(pause)
                }
            };
            match next {
                Next::Go => {
                    pause = FIRST_PAUSE;
                }
                Next::OneByOne => rows = 1,
                Next::Pause(at_least) => {
                    tokio::select! {
                        () = tokio::time::sleep(pause.max(at_least)) => {}
                        () = shutdown.cancelled() => return,
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Returns once audit-svc has been reached: nothing can be asked of this service before.
    async fn reach(&self, shutdown: &CancellationToken) {
        let mut pause = FIRST_PAUSE;
        while let Err(fault) = self.channel.probe(PROBE).await {
            warn!(error = %fault, "audit-svc cannot be reached yet");
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = shutdown.cancelled() => return,
            }
        }
        self.ready.set(READY, true);
    }

    async fn append(&self, batch: &[Waiting]) -> Next {
        let entries = batch.iter().map(entry).collect();
        let request = deadline::request(AppendRequest { entries }, APPEND);
        match self.client.clone().append(request).await.map_err(Fault::from) {
            Ok(_) => {
                self.ready.set(READY, true);
                match self.store.outbox_ack(batch).await {
                    Ok(()) => {
                        self.advance(batch);
                        Next::Go
                    }
                    // They go again under the same ids.
                    Err(error) => {
                        error!(error = %Chain(&error), "the outbox cannot be emptied");
                        Next::Pause(FIRST_PAUSE)
                    }
                }
            }
            Err(fault) if is_final(&fault) => self.refuse(batch, &fault).await,
            Err(fault) => {
                self.ready.set(READY, false);
                warn!(error = %fault, entries = batch.len(), "audit-svc does not take entries");
                Next::Pause(fault.retry_after.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE))
            }
        }
    }

    /// One entry of the batch is at fault; alone, it shows itself and does not hold up the others.
    async fn refuse(&self, batch: &[Waiting], fault: &Fault) -> Next {
        let [only] = batch else { return Next::OneByOne };
        error!(error = %fault, entry = only.id, "audit-svc refuses an entry for good");
        match self.store.outbox_refused(only.id, &fault.reason).await {
            Ok(()) => {
                self.advance(batch);
                Next::Go
            }
            Err(error) => {
                error!(error = %Chain(&error), "a refused entry cannot be set aside");
                Next::Pause(FIRST_PAUSE)
            }
        }
    }

    fn advance(&self, batch: &[Waiting]) {
        if let Some(last) = batch.last() {
            self.through.send_modify(|through| *through = (*through).max(last.id));
        }
    }
}

/// The same bytes will never be taken.
fn is_final(fault: &Fault) -> bool {
    matches!(fault.code, Code::InvalidArgument | Code::AlreadyExists)
}

fn entry(waiting: &Waiting) -> NewEntry {
    NewEntry {
        tenant: waiting.tenant.clone(),
        session_id: waiting.session.clone(),
        seq: None,
        event: waiting.body.clone(),
        on_behalf_of: waiting.on_behalf_of.clone(),
        policy_rev: waiting.policy_rev.clone(),
        redactor: waiting.redactor.clone(),
        redactions: waiting
            .redactions
            .iter()
            .map(|found| Redaction {
                path: found.path.clone(),
                rule: found.rule.clone(),
                n: found.n,
            })
            .collect(),
    }
}
