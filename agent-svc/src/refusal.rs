//! Why a call is refused, as its caller reads it: a code and a stable reason. Causes stay in the log.

use std::time::Duration;

use transport::{Code, Fault, Public};

use crate::{obo, store};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the on-behalf-of context is refused: {0}")]
    Obo(#[from] obo::Refused),
    #[error("{field}: {expected}")]
    Invalid { field: &'static str, expected: &'static str },
    #[error("the grant is refused: {why}")]
    Grant { reason: String, why: String },
    #[error("the manifest is refused: {why}")]
    Manifest { reason: &'static str, why: String },
    #[error("the grant does not allow this model")]
    ModelUnknown,
    #[error("no such session")]
    SessionNotFound,
    #[error("the session id is taken by another request")]
    SessionConflict,
    #[error("the session has had its run")]
    SessionAlreadyRun,
    #[error("no such permission")]
    PermissionNotFound,
    #[error("the permission is resolved already")]
    PermissionResolved,
    #[error("no claim of this person waits for a receipt; claim the permission again")]
    PermissionNotClaimed,
    #[error("the digest is not that of the plan that is asked about")]
    PlanDigestMismatch,
    #[error("the plan does not offer this scope")]
    ScopeNotOffered,
    #[error("an allow of this person does not count here: {0}")]
    NotAnApprover(receipt::Unfit),
    #[error("the plan asks for the person's own signature, and the receipt has none")]
    ApprovalMissing,
    #[error("the receipt is refused: {why}")]
    Receipt { reason: String, why: String },
    #[error("{executor} refuses the session: {}", fault.message)]
    Executor { executor: &'static str, fault: Fault },
    #[error("the plan that is asked about names no patch")]
    PlanWithoutPatch,
    #[error("the session has had no run, and so there is no patch to read")]
    SessionWithoutRun,
    #[error("sandbox-svc does not show the patch: {}", .0.message)]
    Patch(Fault),
    #[error("sandbox-svc shows a patch that cannot be read")]
    PatchUnreadable,
    #[error("{executor} cannot be reached")]
    ExecutorUnavailable {
        executor: &'static str,
        #[source]
        fault: Fault,
    },
    #[error("audit-svc has not acknowledged in time")]
    AuditUnavailable,
    #[error("audit-svc refuses an entry of this session; its stream goes no further")]
    StreamFrozen,
    #[error("the subscriber does not read; attach again after the last entry it has")]
    SubscriberSlow,
    #[error("the service is stopping")]
    Stopping,
    #[error("the session is being recovered")]
    Recovering,
    #[error("what is stored of the session cannot be read; an operator has to look at it")]
    SessionDamaged,
    #[error("the state cannot be read or written")]
    State(#[from] store::Error),
    #[error("the ledger's answer does not continue the stream")]
    LedgerGap,
}

impl Public for Refusal {
    const DOMAIN: &'static str = "agent-svc";

    fn code(&self) -> Code {
        match self {
            Self::Obo(refused) => refused.code(),
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::Grant { .. }
            | Self::Manifest { .. }
            | Self::ModelUnknown
            | Self::SessionAlreadyRun
            | Self::PermissionResolved
            | Self::PermissionNotClaimed
            | Self::PlanDigestMismatch
            | Self::ScopeNotOffered
            | Self::Executor { .. }
            | Self::PlanWithoutPatch
            | Self::SessionWithoutRun
            | Self::Patch(_)
            | Self::StreamFrozen
            | Self::SessionDamaged => Code::FailedPrecondition,
            Self::Receipt { .. } | Self::NotAnApprover(_) | Self::ApprovalMissing => {
                Code::PermissionDenied
            }
            Self::SessionNotFound | Self::PermissionNotFound => Code::NotFound,
            Self::SessionConflict => Code::AlreadyExists,
            Self::SubscriberSlow => Code::ResourceExhausted,
            Self::ExecutorUnavailable { .. }
            | Self::AuditUnavailable
            | Self::Stopping
            | Self::Recovering => Code::Unavailable,
            Self::State(_) | Self::LedgerGap | Self::PatchUnreadable => Code::Internal,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Obo(refused) => refused.reason(),
            Self::Invalid { .. } => "REQUEST_INVALID",
            Self::Grant { reason, .. } | Self::Receipt { reason, .. } => reason,
            Self::Manifest { reason, .. } => reason,
            Self::ModelUnknown => "MODEL_UNKNOWN",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::SessionConflict => "SESSION_CONFLICT",
            Self::SessionAlreadyRun => "SESSION_ALREADY_RUN",
            Self::PermissionNotFound => "PERMISSION_NOT_FOUND",
            Self::PermissionResolved => "PERMISSION_RESOLVED",
            Self::PermissionNotClaimed => "PERMISSION_NOT_CLAIMED",
            Self::PlanDigestMismatch => "PLAN_DIGEST_MISMATCH",
            Self::ScopeNotOffered => "SCOPE_NOT_OFFERED",
            Self::NotAnApprover(_) => "NOT_AN_APPROVER",
            Self::ApprovalMissing => "APPROVAL_SIGNATURE_MISSING",
            Self::Executor { fault, .. } | Self::Patch(fault) => &fault.reason,
            Self::PlanWithoutPatch => "PLAN_WITHOUT_PATCH",
            Self::SessionWithoutRun => "SESSION_WITHOUT_RUN",
            Self::PatchUnreadable => "EXECUTOR_FAILED",
            Self::ExecutorUnavailable { .. } => "EXECUTOR_UNAVAILABLE",
            Self::AuditUnavailable => "AUDIT_UNAVAILABLE",
            Self::StreamFrozen => "STREAM_FROZEN",
            Self::SubscriberSlow => "SUBSCRIBER_SLOW",
            Self::Stopping => "STOPPING",
            Self::Recovering => "SESSION_RECOVERING",
            Self::SessionDamaged => "SESSION_DAMAGED",
            Self::State(_) => "STATE_UNAVAILABLE",
            Self::LedgerGap => "LEDGER_GAP",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ExecutorUnavailable { .. } | Self::AuditUnavailable | Self::Recovering => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }
}
