//! Answers to asks: claimed by compare-and-set, and an allow proven by its receipt. The rows decide who was first; this
//! decides only whether an answer is about what was asked, whether its person may count, and how far all of them go.

use event::id::{PermissionId, SessionId};
use event::{Digest, Source};
use receipt::{Payload as _, Receipt, Requirement, Scope, Signed};
use tokio::sync::oneshot;
use tracing::info;

use crate::clock::Millis;
use crate::live::Command;
use crate::obo::Caller;
use crate::permission::{Permission, Standing};
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::store::{self, Claimed, Counted, NewReceipt, Resolved, Session, Tally};

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
    Won {
        until: Millis,
    },
    Lost(Standing),
    /// This person's allow counts already, and it takes others.
    AlreadyCounted(Counted),
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
            may_count(&asked, session, caller)?;
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
        Claimed::Counted(counted) => Ok(Answered::AlreadyCounted(counted)),
        Claimed::Unknown => Err(Refusal::PermissionNotFound),
    }
}

/// What became of a claimed allow whose receipt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The run knows it, through this sequence number.
    Folded(u64),
    /// It is kept and told in the stream, and it takes others.
    Counted(Counted),
    /// Something else had ended the ask.
    Lost(Standing),
}

/// Keeps the receipt of a claimed allow, and settles the ask where it is enough.
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
    counts(&receipt, &asked, session)?;
    let bytes = signed
        .to_bytes()
        .map_err(|_| refused("PAYLOAD_MALFORMED", "it cannot be written down".to_owned()))?;
    let key = (session.owner.session, permission);
    let (by, now) = (caller.subject.as_str(), runtime.clock.millis());
    let new = NewReceipt {
        id: receipt.id,
        scope: receipt.scope,
        body: &bytes,
        expires_at: moment(receipt.exp),
    };
    let (requirements, requester) = (&asked.ask.plan.approval, session.subject.as_str());
    let tally = |bodies: &[Vec<u8>]| tally(requirements, requester, bodies);
    match runtime.store.resolve(key, by, new, tally, now).await? {
        Resolved::Allowed => folded(runtime, session, permission).await.map(Settled::Folded),
        Resolved::Counted(counted) => told(runtime, session, permission, counted).await,
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

/// Whether an allow of this person could count for anything.
fn may_count(asked: &Permission, session: &Session, caller: &Caller) -> Result<(), Refusal> {
    let Caller { subject, roles, tenant: _ } = caller;
    match receipt::unfit(&asked.ask.plan.approval, subject, roles, &session.subject) {
        Some(unfit) => Err(Refusal::NotAnApprover(unfit)),
        None => Ok(()),
    }
}

/// A receipt that counts for nothing would leave its person unable to give a better one.
fn counts(receipt: &Receipt, asked: &Permission, session: &Session) -> Result<(), Refusal> {
    let Receipt { subject, roles, approval, .. } = receipt;
    let fitting =
        |requirement: &&Requirement| requirement.fits(subject, roles, &session.subject).is_ok();
    let requirements = &asked.ask.plan.approval;
    if let Some(unfit) = receipt::unfit(requirements, subject, roles, &session.subject) {
        return Err(Refusal::NotAnApprover(unfit));
    }
    match approval.is_none() && requirements.iter().filter(fitting).any(|it| it.signature) {
        true => Err(Refusal::ApprovalMissing),
        false => Ok(()),
    }
}

/// What receipts of one ask come to. It is an allow for the run only where those for the run are enough by themselves.
fn tally(
    requirements: &[Requirement],
    requester: &str,
    bodies: &[Vec<u8>],
) -> Result<Tally, store::Error> {
    const DAMAGED: store::Error = store::Error::Corrupt { what: "receipt" };
    let read = |body: &Vec<u8>| {
        let signed = Signed::parse(body).map_err(|_| DAMAGED)?;
        Receipt::parse(&signed.payload).map_err(|_| DAMAGED)
    };
    let mut receipts = bodies.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let progress = receipt::progress(requirements, requester, &receipts);
    let counted = Counted { have: progress.have, need: progress.need };
    if !progress.is_complete() {
        return Ok(Tally::Short(counted));
    }
    receipts.retain(|receipt| receipt.scope == Scope::Run);
    let scope = match receipt::progress(requirements, requester, &receipts).is_complete() {
        true => Scope::Run,
        false => Scope::Once,
    };
    Ok(Tally::Enough { scope, counted })
}

/// Unix seconds as the database has moments.
fn moment(unix: u64) -> Millis {
    Millis(i64::try_from(unix).unwrap_or(i64::MAX).saturating_mul(1000))
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
    fold(runtime, id).await?;
    let found = runtime.store.permission(id, permission).await?;
    found.and_then(|permission| permission.resolved_seq).ok_or(Refusal::Recovering)
}

/// Waits until the stream tells that the allow counts. What ended the ask in the meantime is told instead.
async fn told(
    runtime: &Runtime,
    session: &Session,
    permission: PermissionId,
    counted: Counted,
) -> Result<Settled, Refusal> {
    let id = session.owner.session;
    if !runtime.store.untold(permission).await?.is_empty() {
        fold(runtime, id).await?;
    }
    let found = runtime.store.permission(id, permission).await?;
    match found.map(|permission| permission.standing) {
        Some(standing @ Standing::Denied { .. }) => Ok(Settled::Lost(standing)),
        Some(_) if runtime.store.untold(permission).await?.is_empty() => {
            Ok(Settled::Counted(counted))
        }
        Some(_) => Err(Refusal::Recovering),
        None => Err(Refusal::PermissionNotFound),
    }
}

/// Has the session's driver look at its rows, and waits until it has.
pub(crate) async fn fold(runtime: &Runtime, id: SessionId) -> Result<(), Refusal> {
    let Some(live) = runtime.sessions.get(id) else { return Ok(()) };
    // Should the caller of this not wait, the driver learns of it all the same.
    live.answered.notify_one();
    let (reply, told) = oneshot::channel();
    let asked = async {
        live.tell(Command::Fold { reply }).await?;
        told.await.map_err(|_| live.unheard())
    };
    tokio::time::timeout(runtime.spans.answer, asked).await.map_err(|_| Refusal::Recovering)?
}
