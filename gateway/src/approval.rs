//! A person's answer to an ask: claimed first, signed for the winner, recorded, handed over. What is signed is the
//! digest of the plan that this client was sent, never one that somebody states.
mod person;
mod settled;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event::id::{CallId, PermissionId, RunId, SessionId};
use event::{Data, Digest, Executor, PermissionRequested, ReceiptSigned, canon};
use proto::agent::v1 as wire;
use proto::agent::v1::claim_permission_response::Result as Claimed;
use proto::agent::v1::resolve_permission_response::Result as Resolved;
use receipt::{Payload, Plan, Receipt, Requirement, Scope, Signed, SignedApproval, plan_digest};
use serde_json::Value;
use tracing::{error, info};
use transport::Chain;

use crate::Desk;
use crate::authn::Person;
use crate::grant::{self, moment};
use crate::peers::Key;
use crate::record::record;
use crate::refusal::{Refusal, refused};
use crate::sign;

pub(crate) use settled::Settled;

/// Seconds within which an allow for one call must be used.
const ONCE: u64 = 60 * 60;

/// An ask as it was forwarded: everything a receipt says about it comes from the plan's own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) permission: PermissionId,
    pub(crate) plan_digest: Digest,
    /// The patch that the plan names, where it imports one.
    pub(crate) patch: Option<Digest>,
    pub(crate) session: SessionId,
    run: RunId,
    call: CallId,
    action_digest: Digest,
    executor: Executor,
    scopes: Vec<Scope>,
    /// Whose allows it needs.
    approval: Vec<Requirement>,
}

/// The event is not an ask that could be shown to anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAnAsk {
    #[error("the plan is malformed")]
    Plan,
    #[error("the plan belongs to another session, run or call")]
    Foreign,
    #[error("the stated digest is not that of the plan")]
    Digest,
    #[error("the plan offers no scope")]
    Scope,
}

impl Ask {
    /// Reads an ask of `session`. The event's bytes are canonical, so the plan's are what they hold.
    pub(crate) fn read(
        session: SessionId,
        requested: &PermissionRequested,
    ) -> Result<Self, NotAnAsk> {
        let bytes = canon::to_bytes(&requested.plan).map_err(|_| NotAnAsk::Plan)?;
        let plan = Plan::parse(&bytes).map_err(|_| NotAnAsk::Plan)?;
        let same_call = requested.call_id.is_none_or(|call| call == plan.call);
        let same_run = requested.child_run_id.is_none_or(|run| run == plan.run);
        if requested.session_id != session || plan.session != session || !same_call || !same_run {
            return Err(NotAnAsk::Foreign);
        }
        let plan_digest = plan_digest(&bytes);
        if plan_digest != requested.plan_digest {
            return Err(NotAnAsk::Digest);
        }
        if plan.scopes.is_empty() {
            return Err(NotAnAsk::Scope);
        }
        let action_digest = plan.action_digest().map_err(|_| NotAnAsk::Plan)?;
        let Plan { run, call, executor, scopes, patch, approval, .. } = plan;
        let (permission, patch) = (requested.permission_id, patch.map(|patch| patch.digest));
        Ok(Self {
            permission,
            plan_digest,
            patch,
            session,
            run,
            call,
            action_digest,
            executor,
            scopes,
            approval,
        })
    }
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Absent: the first scope that the plan offers.
    Allow(Option<Scope>),
    Deny,
    /// Nothing that can be read; it denies.
    Malformed(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// The digest that the person's client says it displayed.
    pub(crate) displayed: Option<Digest>,
    pub(crate) note: String,
    /// The person's own signature, carried to the executor.
    pub(crate) approval: Option<SignedApproval>,
}

/// An allow that is not yet enough: how many there are, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) have: u32,
    pub(crate) need: u32,
}

impl From<wire::Counted> for Counted {
    fn from(wire::Counted { have, need }: wire::Counted) -> Self {
        Self { have, need }
    }
}

/// Settles the ask or counts towards it, or says why this answer does neither. `requester` is whose session it is. Who
/// cannot count may still say no.
pub(crate) async fn answer(
    desk: &Desk,
    person: &Person,
    requester: &str,
    ask: &Ask,
    answer: Answer,
) -> Result<Option<Counted>, Refusal> {
    let Answer { verdict, displayed, note, approval } = answer;
    if displayed.is_some_and(|displayed| displayed != ask.plan_digest) {
        return Err(Refusal::PlanMismatch);
    }
    match verdict {
        Verdict::Allow(scope) => {
            let scope =
                scope.or_else(|| ask.scopes.first().copied()).ok_or(Refusal::ScopeNotOffered)?;
            if !ask.scopes.contains(&scope) {
                return Err(Refusal::ScopeNotOffered);
            }
            person::may_allow(ask, person, requester, scope, approval.as_ref(), sign::now())?;
            allow(desk, person, ask, scope, note, approval).await
        }
        Verdict::Deny => {
            deny(desk, person, ask, wire::DenySource::Operator, note).await?;
            Ok(None)
        }
        Verdict::Malformed(detail) => {
            deny(desk, person, ask, wire::DenySource::MalformedAnswer, String::new()).await?;
            Err(Refusal::Malformed(detail))
        }
    }
}

async fn deny(
    desk: &Desk,
    person: &Person,
    ask: &Ask,
    source: wire::DenySource,
    note: String,
) -> Result<(), Refusal> {
    claim(desk, person, ask, wire::Decision::Deny, wire::Scope::Unspecified, source, note).await?;
    info!(session = %ask.session, permission = %ask.permission, decision = "deny", "ask answered");
    Ok(())
}

async fn allow(
    desk: &Desk,
    person: &Person,
    ask: &Ask,
    scope: Scope,
    note: String,
    approval: Option<SignedApproval>,
) -> Result<Option<Counted>, Refusal> {
    let wire_scope = match scope {
        Scope::Once => wire::Scope::Once,
        Scope::Run => wire::Scope::Run,
    };
    let source = wire::DenySource::Unspecified;
    claim(desk, person, ask, wire::Decision::Allow, wire_scope, source, note).await?;
    // From here on the row is leased to this person: whatever fails, the same answer may be given again.
    let receipt = Receipt { approval, ..receipt(desk, person, ask, scope).await? };
    let signed = desk.sign.receipt(&receipt).map_err(|malformed| {
        error!(error = %Chain(&malformed), "a receipt cannot be signed");
        Refusal::Internal
    })?;
    record(&desk.audit, person, ask.session, recorded(&receipt, &signed)?).await?;
    let resolved = desk.agent.resolve(person, ask.session, ask.permission, &signed).await;
    let counted = match resolved.map_err(|fault| refused("agent-svc", fault))?.result {
        Some(Resolved::ThroughSeq(_)) => None,
        Some(Resolved::Counted(counted)) => Some(Counted::from(counted)),
        // A cancel ends a claimed allow, too.
        Some(Resolved::Lost(lost)) => {
            return Err(Refusal::PermissionResolved(Settled::read(lost)));
        }
        None => return Err(Refusal::Internal),
    };
    info!(session = %ask.session, permission = %ask.permission, decision = "allow", scope = scope.as_str(), receipt = %receipt.id, "ask answered");
    Ok(counted)
}

async fn claim(
    desk: &Desk,
    person: &Person,
    ask: &Ask,
    decision: wire::Decision,
    scope: wire::Scope,
    source: wire::DenySource,
    note: String,
) -> Result<(), Refusal> {
    let request = wire::ClaimPermissionRequest {
        session_id: ask.session.to_string(),
        permission_id: ask.permission.to_string(),
        decision: decision.into(),
        scope: scope.into(),
        plan_digest: ask.plan_digest.as_bytes().to_vec(),
        note,
        source: source.into(),
    };
    let claimed = desk.agent.claim(person, ask.session, ask.permission, &request).await;
    match claimed.map_err(|fault| refused("agent-svc", fault))?.result {
        Some(Claimed::Won(wire::Won { lease_until_ms: _ })) => Ok(()),
        Some(Claimed::AlreadyCounted(counted)) => Err(Refusal::AlreadyCounted(counted.into())),
        Some(Claimed::Lost(lost)) => Err(Refusal::PermissionResolved(Settled::read(lost))),
        None => Err(Refusal::Internal),
    }
}

async fn receipt(
    desk: &Desk,
    person: &Person,
    ask: &Ask,
    scope: Scope,
) -> Result<Receipt, Refusal> {
    let iat = sign::now();
    let exp = match scope {
        Scope::Once => iat + ONCE,
        // As long as the session itself may act.
        Scope::Run => {
            let found = desk.agent.session(person, Key::Session(ask.session)).await;
            let found = found
                .map_err(|fault| refused("agent-svc", fault))?
                .session
                .ok_or(Refusal::Internal)?;
            grant::held(desk, person, ask.session, found.grant)?.1.exp
        }
    };
    Ok(person::receipt(ask, person, scope, iat, exp))
}

/// The receipt as the ledger keeps it: readable, and complete enough to be verified from there.
fn recorded(receipt: &Receipt, signed: &Signed) -> Result<Data, Refusal> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(&signed.payload) else {
        return Err(Refusal::Internal);
    };
    members.insert("signature".to_owned(), hex::encode(&signed.signature).into());
    members.insert(
        "chain".to_owned(),
        signed.chain.iter().map(|der| pem(der)).collect::<String>().into(),
    );
    Ok(Data::from(ReceiptSigned {
        permission_id: receipt.permission,
        session_id: receipt.session,
        run_id: receipt.run,
        call_id: receipt.call,
        scope: receipt.scope,
        plan_digest: receipt.plan,
        action_digest: receipt.action,
        subject: receipt.subject.clone(),
        expires_at: moment(receipt.exp()),
        receipt_id: receipt.id,
        receipt: Value::Object(members),
    }))
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().copied().map(char::from));
        lines.push('\n');
    }
    lines + "-----END CERTIFICATE-----\n"
}
