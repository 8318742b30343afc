//! Allows for the run that are taken back: here at once, and at their executor as soon as it can be told. Nothing here can
//! widen what is allowed.

use std::sync::Arc;
use std::time::Duration;

use event::id::ReceiptId;
use receipt::Executor;
use tracing::{error, info, warn};
use transport::Chain;

use crate::answer;
use crate::obo::Caller;
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::{Revoking, Session};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It stood no more.
    Nothing,
    /// Here and at its executor.
    Back,
    /// Its executor does not know yet; it is told again until it does.
    Here,
}

/// Takes one person's allow for the run back. The same request again is the same.
pub(crate) async fn revoke(
    runtime: &Runtime,
    session: &Session,
    caller: &Caller,
    receipt: ReceiptId,
) -> Result<Taken, Refusal> {
    let id = session.owner.session;
    let Some(revoking) = runtime.store.revoke_grant(id, receipt, &caller.subject).await? else {
        return Ok(Taken::Nothing);
    };
    info!(session = %id, %receipt, by = caller.subject, "a standing allow was taken back");
    if let Err(refusal) = answer::fold(runtime, id).await {
        // The row says so, and the driver reads it before it goes on; what it attaches until then is refused.
        warn!(session = %id, error = %Chain(&refusal), "the run does not know yet");
    }
    match tell(runtime, revoking).await {
        true => Ok(Taken::Back),
        false => {
            runtime.revocations.notify_one();
            Ok(Taken::Here)
        }
    }
}

/// Whether the executor knows, and is known to.
async fn tell(runtime: &Runtime, revoking: Revoking) -> bool {
    let Revoking { owner, run, receipt, executor } = revoking;
    let told = match executor {
        Executor::SandboxSvc => runtime.peers.sandbox.revoke(owner, run, receipt).await,
        // It offers no tool, so no allow stands there.
        Executor::ModelSvc => Ok(()),
    };
    if let Err(fault) = told {
        warn!(session = %owner.session, %receipt, reason = fault.reason, "executor does not know of a revocation yet");
        return false;
    }
    match runtime.store.revoked(receipt).await {
        Ok(()) => true,
        Err(cause) => {
            error!(session = %owner.session, %receipt, error = %Chain(&cause), "revocation cannot be recorded");
            false
        }
    }
}

/// Tells executors what they could not be told, those of earlier processes first; for as long as the process runs.
pub(crate) async fn carry(runtime: Arc<Runtime>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let waiting = match runtime.store.revoking().await {
            Ok(waiting) => Some(waiting),
            Err(cause) => {
                error!(error = %Chain(&cause), "revocations cannot be read");
                None
            }
        };
        let nothing = waiting.as_ref().is_some_and(Vec::is_empty);
        for revoking in waiting.into_iter().flatten() {
            tell(&runtime, revoking).await;
        }
        if nothing {
            runtime.revocations.notified().await;
            pause = FIRST_PAUSE;
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
