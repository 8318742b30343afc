//! This service's own streams in the ledger: seals events, sends them in order, and lets callers wait until
//! one is acknowledged. What is not acknowledged stays in the store.

use std::time::Duration;

use event::id::{EventId, SessionId};
use event::{Actor, ActorKind, Data, Event, SealError};
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{AppendRequest, NewEntry, Redaction};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::{error, warn};
use transport::{Chain, Code, Fault, PeerChannel, Readiness};

use crate::store::{Outgoing, Record, Store, StoreError, Waiting};

/// The readiness condition.
pub(crate) const CONDITION: &str = "audit";
const BATCH: u32 = 64;
const APPEND_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Ledger {
    store: Store,
    channel: PeerChannel,
    ready: Readiness,
    /// Counts acknowledged batches.
    acknowledged: watch::Sender<u64>,
}

/// Why an append did not happen.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the outbox cannot be read or written")]
    Store(#[from] StoreError),
    #[error("audit-svc did not take the entries ({})", .0.reason)]
    Audit(Fault),
    #[error("audit-svc acknowledged something else than was sent")]
    Acknowledgement,
}

impl Ledger {
    pub(crate) fn new(store: Store, channel: PeerChannel, ready: Readiness) -> Self {
        ready.set(CONDITION, false);
        Self { store, channel, ready, acknowledged: watch::Sender::new(0) }
    }

    /// Sends what there is, forever; after `stop` only what is left, while `busy` says that more may come.
    pub(crate) async fn run(&self, stop: transport::CancellationToken, busy: impl Fn() -> bool) {
        let mut pause = FIRST_PAUSE;
        let mut reached = false;
        loop {
            // Judged before the sending, so that what the last call wrote is sent.
            let over = stop.is_cancelled() && !busy();
            // A ledger that starts after this service is asked for until it answers.
            if !reached {
                reached = self.channel.probe(APPEND_LIMIT).await.is_ok();
                self.ready.set(CONDITION, reached);
            }
            reached &= !self.send_all().await;
            pause = if reached { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            if over {
                return;
            }
            tokio::select! {
                () = self.store.added() => (),
                () = tokio::time::sleep(pause), if !reached || stop.is_cancelled() => (),
                () = stop.cancelled(), if !stop.is_cancelled() => (),
            }
        }
    }

    /// Whether something is left that could not be sent.
    async fn send_all(&self) -> bool {
        let streams = match self.store.streams_to_send().await {
            Ok(streams) => streams,
            Err(error) => {
                error!(error = %Chain(&error), "the outbox cannot be read");
                return true;
            }
        };
        let mut failed = false;
        for session in streams {
            match self.send(session).await {
                Ok(()) => self.ready.set(CONDITION, true),
                Err(error) => {
                    self.told(session, &error);
                    failed = true;
                }
            }
        }
        failed
    }

    async fn send(&self, session: SessionId) -> Result<(), SendError> {
        loop {
            let entries = self.store.to_send(session, BATCH).await?;
            let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
                return Ok(());
            };
            let (first, last) = (first.seq, last.seq);
            let request = AppendRequest { entries: entries.into_iter().map(new_entry).collect() };
            let request = transport::deadline::request(request, APPEND_LIMIT);
            let mut client = AuditServiceClient::new(self.channel.clone());
            let answer =
                client.append(request).await.map_err(|status| SendError::Audit(status.into()))?;
            let sequence = answer.get_ref().acks.iter().map(|ack| ack.seq);
            if !sequence.eq(first..=last) {
                return Err(SendError::Acknowledgement);
            }
            self.store.acknowledged(session, last).await?;
            self.acknowledged.send_modify(|count| *count += 1);
        }
    }

    /// A ledger that is away is waited for; one that says no to an entry needs a person.
    fn told(&self, session: SessionId, error: &SendError) {
        self.ready.set(CONDITION, false);
        match error {
            SendError::Audit(fault)
                if matches!(fault.code, Code::Unavailable | Code::DeadlineExceeded) =>
            {
                warn!(%session, reason = %fault.reason, "the ledger is not reachable; entries wait");
            }
            error => {
                error!(%session, error = %Chain(error), "the ledger does not take a stream's entries");
            }
        }
    }

    /// Resolves when everything through `place` is acknowledged. Has no limit of its own.
    pub(crate) async fn acknowledged(&self, place: Waiting) -> Result<(), StoreError> {
        let mut changes = self.acknowledged.subscribe();
        loop {
            changes.mark_unchanged();
            if self.store.is_acknowledged(place).await? {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                // The sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Seals one fact for a stream.
pub(crate) fn record(
    session: SessionId,
    tenant: &str,
    policy_rev: &str,
    data: impl Into<Data>,
) -> Result<Record, SealError> {
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::now_utc(),
        actor: Some(Actor { kind: ActorKind::Service, id: Some("sandbox-svc".to_owned()) }),
        data: data.into(),
    };
    Ok(Record {
        session,
        tenant: tenant.to_owned(),
        policy_rev: policy_rev.to_owned(),
        sealed: event::seal(&event)?,
    })
}

fn new_entry(outgoing: Outgoing) -> NewEntry {
    let Outgoing { session, seq, tenant, policy_rev, event, redactions } = outgoing;
    NewEntry {
        tenant,
        session_id: session.to_string(),
        seq: Some(seq),
        event,
        on_behalf_of: String::new(),
        policy_rev,
        redactor: event::redact::REVISION.to_owned(),
        redactions: redactions
            .into_iter()
            .map(|(path, rule, n)| Redaction { path, rule, n })
            .collect(),
    }
}
