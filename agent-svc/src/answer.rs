//! Answers to asks: claimed by compare-and-set, and an allow proven by its receipt. The rows decide who was first; this
//! decides only whether an answer is about what was asked.

use event::id::PermissionId;
use event::{Digest, Source};
use receipt::{Receipt, Scope, Signed};
use tokio::sync::oneshot;
use tracing::info;

use crate::clock::Millis;
use crate::live::Command;
use crate::obo::Caller;
use crate::permission::{Permission, Standing};
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::{Claimed, Resolved, Session};

pub(crate) struct Claim {
    pub(crate) permission: PermissionId,
    /// Of the plan that was forwarded to whoever answers.
    pub(crate) plan_digest: Digest,
    pub(crate) choice: Choice,
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Allow(Scope),
    Deny(Source),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answered {
    Won { until: Millis },
    Lost(Standing),
}

pub(crate) async fn claim(
    runtime: &Runtime,
    session: &Session,
    caller: &Caller,
    claim: Claim,
) -> Result<Answered, Refusal> {
    let Claim { permission, plan_digest, choice, note } = claim;
    let key = (session.owner.session, permission);
    let asked = asked(runtime, session, permission).await?;
    if asked.ask.plan_digest != plan_digest {
        return Err(Refusal::PlanDigestMismatch);
    }
    let (by, now) = (caller.subject.as_str(), runtime.clock.millis());
    let claimed = match choice {
        Choice::Allow(scope) if !asked.ask.plan.scopes.contains(&scope) => {
            return Err(Refusal::ScopeNotOffered);
        }
        Choice::Allow(scope) => {
            let until = now.plus(runtime.spans.lease);
            runtime.store.claim_allow(key, by, scope, note.as_deref(), (now, until)).await?
        }
        Choice::Deny(source) => {
            runtime.store.claim_deny(key, by, source, note.as_deref(), now).await?
        }
    };
    if let Some(live) = runtime.sessions.get(session.owner.session) {
        live.answered.notify_one();
    }
    match claimed {
        Claimed::Won { until } => {
            info!(session = %key.0, permission = %key.1, "permission claimed");
            Ok(Answered::Won { until })
        }
        Claimed::Lost(standing) => Ok(Answered::Lost(standing)),
        Claimed::Unknown => Err(Refusal::PermissionNotFound),
    }
}

/// What became of a claimed allow whose receipt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The run knows it, through this sequence number.
    Folded(u64),
    /// Something else had ended the ask.
    Lost(Standing),
}

/// Settles a claimed allow, once.
pub(crate) async fn resolve(
    runtime: &Runtime,
    session: &Session,
    caller: &Caller,
    permission: PermissionId,
    signed: &Signed,
) -> Result<Settled, Refusal> {
    let asked = asked(runtime, session, permission).await?;
    let receipt = runtime
        .gate
        .verify::<Receipt>(signed)
        .map_err(|invalid| refused(invalid.reason(), invalid.to_string()))?;
    fits(&receipt, &asked, session, caller)?;
    let bytes = signed
        .to_bytes()
        .map_err(|_| refused("PAYLOAD_MALFORMED", "it cannot be written down".to_owned()))?;
    let key = (session.owner.session, permission);
    let (by, scope, now) = (caller.subject.as_str(), receipt.scope, runtime.clock.millis());
    match runtime.store.resolve(key, by, scope, &bytes, now).await? {
        Resolved::Allowed => folded(runtime, session, permission).await.map(Settled::Folded),
        Resolved::Lost(standing) => Ok(Settled::Lost(standing)),
        Resolved::NotClaimed => Err(Refusal::PermissionNotClaimed),
        Resolved::Unknown => Err(Refusal::PermissionNotFound),
    }
}

async fn asked(
    runtime: &Runtime,
    session: &Session,
    permission: PermissionId,
) -> Result<Permission, Refusal> {
    let found = runtime.store.permission(session.owner.session, permission).await?;
    found.ok_or(Refusal::PermissionNotFound)
}

fn refused(reason: &str, why: String) -> Refusal {
    Refusal::Receipt { reason: format!("RECEIPT_{reason}"), why }
}

/// A receipt allows exactly what was asked, and nothing that is like it.
fn fits(
    receipt: &Receipt,
    asked: &Permission,
    session: &Session,
    caller: &Caller,
) -> Result<(), Refusal> {
    let ask = &asked.ask;
    let checks = [
        (receipt.session == session.owner.session, "SESSION_MISMATCH", "session"),
        (receipt.tenant == session.tenant, "TENANT_MISMATCH", "tenant"),
        (receipt.permission == ask.id, "PERMISSION_MISMATCH", "permission"),
        (receipt.run == ask.run, "RUN_MISMATCH", "run"),
        (receipt.call == ask.call, "CALL_MISMATCH", "call"),
        (receipt.plan == ask.plan_digest, "PLAN_MISMATCH", "plan"),
        (receipt.action == ask.action_digest, "ACTION_MISMATCH", "action"),
        (receipt.audience == ask.plan.executor, "AUDIENCE_MISMATCH", "executor"),
        (receipt.subject == caller.subject, "SUBJECT_MISMATCH", "person"),
        (ask.plan.scopes.contains(&receipt.scope), "SCOPE_MISMATCH", "scope"),
    ];
    match checks.into_iter().find(|(fits, ..)| !fits) {
        Some((_, reason, what)) => Err(refused(reason, format!("it is for another {what}"))),
        None => Ok(()),
    }
}

/// Waits until the run knows the answer.
async fn folded(
    runtime: &Runtime,
    session: &Session,
    permission: PermissionId,
) -> Result<u64, Refusal> {
    let id = session.owner.session;
    let found = runtime.store.permission(id, permission).await?;
    if let Some(seq) = found.and_then(|permission| permission.resolved_seq) {
        return Ok(seq);
    }
    if let Some(live) = runtime.sessions.get(id) {
        // Should the caller of this not wait, the driver learns of it all the same.
        live.answered.notify_one();
        let (reply, told) = oneshot::channel();
        let asked = async {
            live.tell(Command::Fold { reply }).await?;
            told.await.map_err(|_| live.unheard())
        };
        tokio::time::timeout(runtime.spans.answer, asked)
            .await
            .map_err(|_| Refusal::Recovering)??;
    }
    let found = runtime.store.permission(id, permission).await?;
    found.and_then(|permission| permission.resolved_seq).ok_or(Refusal::Recovering)
}
