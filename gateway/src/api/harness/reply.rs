//! Answers and events as the dialect's text. It cuts nothing: what does not fit a message becomes an internal error.
use acp::{
    Code, Failure, FinalText, PromptAnswer, PromptStatus, RawValue, RequestId, Seq, SessionEvent,
    Usage, encode_event, encode_failure, encode_success,
};
use event::id::SessionId;
use proto::agent::v1::outcome::State;
use proto::agent::v1::{Completed, Outcome};
use serde::Serialize;
use tracing::error;
use transport::Chain;

use crate::manifests;
use crate::refusal::Refusal;

pub(super) fn success<T: Serialize>(id: &RequestId, result: &T) -> String {
    match encode_success(id, result) {
        Ok(text) if text.len() <= acp::MAX_DELIVERY => text,
        Ok(_) | Err(_) => {
            error!("an answer does not fit a message");
            failure(Some(id), &internal())
        }
    }
}

pub(super) fn failure(id: Option<&RequestId>, failure: &Failure) -> String {
    // Strings and numbers can always be written.
    encode_failure(id, failure).unwrap_or_default()
}

/// `None` when the event does not fit a message, or its number no JSON reader.
pub(super) fn event(session_id: SessionId, seq: u64, text: String) -> Option<String> {
    let event = SessionEvent {
        session_id,
        seq: Seq::try_from(seq).ok()?,
        event: RawValue::from_string(text).ok()?,
    };
    encode_event(&event).ok().filter(|text| text.len() <= acp::MAX_DELIVERY)
}

pub(super) fn prompt(id: &RequestId, outcome: &Outcome) -> String {
    match prompt_answer(outcome) {
        Some(answer) => success(id, &answer),
        None => {
            error!("an outcome does not fit an answer");
            failure(Some(id), &internal())
        }
    }
}

/// Why a run failed is in its events; the answer only tells that it did.
fn prompt_answer(outcome: &Outcome) -> Option<PromptAnswer> {
    let Outcome { run_id: _, state, usage, steps: _, tool_calls: _ } = outcome;
    let (status, text) = match state.as_ref()? {
        State::Completed(Completed { final_text }) => {
            (PromptStatus::Completed, final_text.as_str())
        }
        State::Failed(_) | State::Canceled(_) | State::BudgetExceeded(_) => {
            (PromptStatus::Failed, "")
        }
    };
    let usage = match usage {
        Some(usage) => Usage::new(usage.prompt_tokens, usage.completion_tokens)?,
        None => Usage::default(),
    };
    Some(PromptAnswer { status, events: (), final_text: FinalText::new(text).ok()?, usage })
}

fn internal() -> Failure {
    Failure::new(Code::Internal, "internal error")
}

/// The dialect's words for a refusal.
pub(super) fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::Forbidden
        | Refusal::OnlyWatches
        | Refusal::NotAnApprover(_)
        | Refusal::AlreadyCounted(_) => Code::Forbidden,
        Refusal::SessionNotFound => Code::SessionNotFound,
        Refusal::SessionAlreadyRun => Code::SessionAlreadyRun,
        Refusal::PermissionNotFound => Code::PermissionNotFound,
        Refusal::PermissionResolved(_) => Code::PermissionResolved,
        Refusal::PlanMismatch => Code::PlanMismatch,
        Refusal::ScopeNotOffered
        | Refusal::NoModel
        | Refusal::NoPatch
        | Refusal::ModelNotAllowed
        | Refusal::HoldNotAllowed
        | Refusal::ApprovalMissing
        | Refusal::ApprovalMismatch
        | Refusal::ApprovalExpired
        | Refusal::Malformed(_)
        | Refusal::HoldsSecret
        | Refusal::Manifest(
            manifests::Error::Unknown { .. }
            | manifests::Error::Unnamed
            | manifests::Error::Faults { .. },
        )
        | Refusal::Peer { .. } => Code::InvalidParams,
        Refusal::Unavailable(_)
        | Refusal::LedgerUnwritable
        | Refusal::Lapsed
        | Refusal::TooSlow
        | Refusal::RunLost => Code::Unavailable,
        Refusal::Manifest(
            error @ (manifests::Error::Read { .. }
            | manifests::Error::None { .. }
            | manifests::Error::Name { .. }
            | manifests::Error::Id { .. }
            | manifests::Error::NoDefault { .. }),
        ) => {
            error!(error = %Chain(error), "a manifest cannot be used");
            return internal();
        }
        Refusal::Internal => return internal(),
    };
    Failure::new(code, refusal.to_string())
}
