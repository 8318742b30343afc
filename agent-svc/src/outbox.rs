//! Carries a session's recorded events to audit-svc, oldest first, and lets the feed know what is acknowledged. A row
//! leaves the database before anyone is told about it.

use std::time::Duration;

use tracing::{error, warn};
use transport::{Chain, Code, Fault};

use crate::live::Live;
use crate::runtime::Runtime;
use crate::store::Waiting;

/// The condition that events get where they belong.
const LEDGER: &str = "ledger";
const BATCH_ROWS: u32 = 64;
const BATCH_BYTES: usize = 1024 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What became of one batch.
enum Sent {
    Nothing,
    Acknowledged,
    /// It may succeed the next time.
    Failed,
    /// The ledger does not take the oldest entry, now or later.
    Refused,
}

/// Runs for as long as the session does.
pub(crate) async fn carry(runtime: &Runtime, live: &Live) {
    let mut pause = FIRST_PAUSE;
    let mut rows = BATCH_ROWS;
    loop {
        match send(runtime, live, rows).await {
            Sent::Nothing => live.outgoing.notified().await,
            Sent::Acknowledged => {
                pause = FIRST_PAUSE;
                rows = BATCH_ROWS;
            }
            Sent::Failed => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            // One entry spoils its batch, so the others are sent alone first.
            Sent::Refused if rows > 1 => rows = 1,
            Sent::Refused => return live.feed.freeze(),
        }
    }
}

async fn send(runtime: &Runtime, live: &Live, rows: u32) -> Sent {
    let session = live.stream.session;
    let batch = match runtime.store.outbox_batch(session, rows, BATCH_BYTES).await {
        Ok(batch) if batch.is_empty() => return Sent::Nothing,
        Ok(batch) => batch,
        Err(cause) => {
            error!(%session, error = %Chain(&cause), "outbox cannot be read");
            return Sent::Failed;
        }
    };
    match runtime.peers.audit.append(&live.stream, &batch).await {
        Ok(acks) if covers(&acks, live, &batch) => {
            runtime.ready.set(LEDGER, true);
            acknowledge(runtime, live, batch).await
        }
        Ok(_) => {
            error!(%session, "ledger acknowledged something else than was sent");
            Sent::Refused
        }
        Err(fault) if is_refusal(&fault) => {
            error!(%session, reason = fault.reason, rows, "ledger refuses an entry");
            Sent::Refused
        }
        Err(fault) => {
            warn!(%session, reason = fault.reason, "ledger does not take entries now");
            runtime.ready.set(LEDGER, false);
            Sent::Failed
        }
    }
}

fn covers(acks: &[(String, u64)], live: &Live, batch: &[Waiting]) -> bool {
    let session = live.stream.session.to_string();
    acks.len() == batch.len()
        && acks.iter().zip(batch).all(|((of, seq), sent)| *of == session && *seq == sent.seq)
}

async fn acknowledge(runtime: &Runtime, live: &Live, batch: Vec<Waiting>) -> Sent {
    let session = live.stream.session;
    let sent: Vec<_> = batch.iter().map(|waiting| (waiting.seq, waiting.hash)).collect();
    if let Err(cause) = runtime.store.outbox_ack(session, &sent).await {
        error!(%session, error = %Chain(&cause), "outbox cannot be emptied");
        return Sent::Failed;
    }
    live.feed.acknowledge(batch.into_iter().map(|waiting| waiting.body));
    Sent::Acknowledged
}

/// Whether the same bytes would be refused again. What is about this service, its time or its certificate is not.
fn is_refusal(fault: &Fault) -> bool {
    match fault.code {
        Code::InvalidArgument | Code::AlreadyExists => true,
        Code::FailedPrecondition => fault.reason == "AUDIT_SEQUENCE_CONFLICT",
        Code::PermissionDenied => fault.reason == "WRITER_NOT_ALLOWED",
        Code::NotFound
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::DeadlineExceeded
        | Code::Unavailable
        | Code::Internal => false,
    }
}
