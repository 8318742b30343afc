//! What this service says to the ledger about a call: started, finished or refused; never what was asked or answered.

use event::id::{CallId, EventId, SessionId};
use event::{
    Actor, ActorKind, CallFinished, CallRefused, CallStarted, CallStatus, Data, Digest,
    EffectClass, Event, SealError, Stage,
};
use time::OffsetDateTime;

use crate::owner::Terms;
use crate::store::Entry;
use crate::turn::{Kind, Outcome, Turn};

/// The name under which a model call stands in the ledger.
pub(crate) const TOOL: &str = "model";
/// A claimed id longer than this is no id.
const MAX_CLAIM: usize = 200;

/// Whose stream an entry belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream<'t> {
    Session(SessionId, &'t Terms),
    /// Nobody has shown a grant for it.
    Unproven,
}

pub(crate) fn started(
    stream: Stream<'_>,
    turn: &Turn,
    at: OffsetDateTime,
) -> Result<Entry, SealError> {
    let data = CallStarted {
        call_id: turn.call,
        run_id: turn.run,
        attempt: turn.attempt,
        tool: TOOL.to_owned(),
        // It costs money, which does not come back.
        effect_class: EffectClass::Irreversible,
        plan_digest: turn.digest,
        permission_id: None,
        rules: Vec::new(),
    };
    entry(stream, Data::CallStarted(data), at)
}

/// `outcome` is absent when nobody lived to see it.
pub(crate) fn finished(
    stream: Stream<'_>,
    (call, attempt): (CallId, u32),
    outcome: Option<&Outcome>,
    took: std::time::Duration,
    at: OffsetDateTime,
) -> Result<Entry, SealError> {
    let status = match outcome {
        Some(Outcome::Answered(_)) => CallStatus::Completed,
        Some(Outcome::Failed(failure)) => match failure.kind {
            Kind::Aborted => CallStatus::Canceled,
            Kind::Timeout => CallStatus::TimedOut,
            Kind::AuditUnavailable | Kind::StartTooLate => CallStatus::StartFailed,
            _ => CallStatus::Failed,
        },
        None => CallStatus::Lost,
    };
    let data = CallFinished {
        call_id: call,
        attempt,
        status,
        result_digest: outcome.and_then(digest),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX).min(MAX_MILLIS),
    };
    entry(stream, Data::CallFinished(data), at)
}

/// More than any call takes, and within what canonical JSON carries.
const MAX_MILLIS: u64 = 1 << 53 >> 1;

/// What was refused and by which name; the claims in it are not proven.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused<'r> {
    pub(crate) stage: Stage,
    pub(crate) call: Option<CallId>,
    pub(crate) claimed_session: &'r str,
    pub(crate) tool: Option<&'r str>,
    pub(crate) plan: Option<Digest>,
    pub(crate) reason: &'r str,
}

pub(crate) fn refused(
    stream: Stream<'_>,
    refused: Refused<'_>,
    at: OffsetDateTime,
) -> Result<Entry, SealError> {
    let Refused { stage, call, claimed_session, tool, plan, reason } = refused;
    let cut = |text: &str| text[..text.floor_char_boundary(MAX_CLAIM)].to_owned();
    let data = CallRefused {
        call_id: call,
        session_id: cut(claimed_session),
        tool: tool.map(cut),
        stage,
        reason: reason.to_owned(),
        plan_digest: plan,
        differs: None,
    };
    entry(stream, Data::CallRefused(data), at)
}

/// Of the answer as it is kept: an auditor who is shown it can tell whether it is the one.
fn digest(outcome: &Outcome) -> Option<Digest> {
    match outcome {
        Outcome::Answered(answer) => serde_json::to_vec(answer)
            .ok()
            .map(|bytes| Digest::of_parts("harness.answer.v1", &bytes)),
        Outcome::Failed(_) => None,
    }
}

fn entry(stream: Stream<'_>, data: Data, at: OffsetDateTime) -> Result<Entry, SealError> {
    let event = Event {
        id: EventId::new(),
        at,
        actor: Some(Actor { kind: ActorKind::Service, id: Some("model-svc".to_owned()) }),
        data,
    };
    let sealed = event::seal(&event)?;
    Ok(match stream {
        Stream::Session(session, terms) => Entry {
            tenant: terms.tenant.clone(),
            session,
            id: event.id,
            sealed,
            on_behalf_of: terms.subject.clone(),
            policy_rev: terms.manifest.to_string(),
        },
        Stream::Unproven => Entry {
            tenant: String::new(),
            session: SessionId::nil(),
            id: event.id,
            sealed,
            on_behalf_of: String::new(),
            policy_rev: String::new(),
        },
    })
}
