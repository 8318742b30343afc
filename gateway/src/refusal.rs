//! Why a person's request is refused, before any dialect gives it a code. What a peer says about its own troubles
//! stays in the log; what it says about the request is passed on.
use tracing::{error, warn};
use transport::{Code, Fault};

use crate::approval::{Counted, Settled};
use crate::manifests;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("your role does not include this; an operator or admin may")]
    Forbidden,
    #[error("this connection only watches; connect with permissioning to answer")]
    OnlyWatches,
    #[error("no such session")]
    SessionNotFound,
    #[error("the session has had its run; open another one")]
    SessionAlreadyRun,
    #[error("no such permission")]
    PermissionNotFound,
    #[error("{0}")]
    PermissionResolved(Settled),
    #[error("{0} (NOT_AN_APPROVER); the ask stays open")]
    NotAnApprover(String),
    #[error("your allow counts already, {} of {}; somebody else has to allow this, too", .0.have, .0.need)]
    AlreadyCounted(Counted),
    #[error(
        "the plan asks for your own signature, and the answer has none (APPROVAL_SIGNATURE_MISSING); the ask stays open"
    )]
    ApprovalMissing,
    #[error(
        "your signature is under something else than this answer (APPROVAL_MISMATCH); the ask stays open"
    )]
    ApprovalMismatch,
    #[error(
        "your signature is not valid now; check your clock and sign again (APPROVAL_EXPIRED); the ask stays open"
    )]
    ApprovalExpired,
    #[error("the answer took too long and lapsed; answer again")]
    Lapsed,
    #[error(
        "the digest is not that of the plan which was sent on this connection; the ask stays open"
    )]
    PlanMismatch,
    #[error("the plan does not offer this scope; the ask stays open")]
    ScopeNotOffered,
    #[error("the plan that is asked about names no patch")]
    NoPatch,
    #[error(transparent)]
    Manifest(manifests::Error),
    #[error("name a model: the manifest lists none")]
    NoModel,
    #[error("the manifest does not allow this model")]
    ModelNotAllowed,
    #[error("the manifest says that asks are denied when the last client leaves")]
    HoldNotAllowed,
    #[error("the answer says neither allow nor deny as it must ({0}); the ask was denied")]
    Malformed(String),
    /// A peer's own words about the request.
    #[error("{message} ({reason})")]
    Peer { reason: String, message: String },
    #[error("{0} does not answer; try again")]
    Unavailable(&'static str),
    /// It answers; what it writes to does not.
    #[error(
        "audit-svc cannot write the ledger, and nothing is done unrecorded; see its log and the room on its disk"
    )]
    LedgerUnwritable,
    #[error("events are not taken in time")]
    TooSlow,
    #[error("the run can be followed no longer; attach to it to see how it ended")]
    RunLost,
    #[error("a name in the request looks like a secret and cannot be recorded; choose another")]
    HoldsSecret,
    #[error("internal error")]
    Internal,
}

/// Whose fault it is, for the sentence that says who does not answer.
pub(crate) fn refused(peer: &'static str, fault: Fault) -> Refusal {
    let Fault { code, reason, message, .. } = fault;
    match (code, reason.as_str()) {
        (Code::Unavailable, "AUDIT_PERSISTENCE_FAILED") => {
            error!(peer, reason, "the ledger cannot be written");
            Refusal::LedgerUnwritable
        }
        (Code::Unavailable, "AUDIT_UNAVAILABLE") => Refusal::Unavailable("audit-svc"),
        (Code::Unavailable, "EXECUTOR_UNAVAILABLE") => {
            Refusal::Unavailable("sandbox-svc or model-svc")
        }
        (Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted, _) => {
            warn!(peer, reason, "a peer does not answer");
            Refusal::Unavailable(peer)
        }
        (Code::NotFound, "PERMISSION_NOT_FOUND") => Refusal::PermissionNotFound,
        (Code::NotFound, _) => Refusal::SessionNotFound,
        (_, "SESSION_ALREADY_RUN") => Refusal::SessionAlreadyRun,
        (_, "PERMISSION_RESOLVED") => Refusal::PermissionResolved(Settled::unknown()),
        (_, "PERMISSION_NOT_CLAIMED") => Refusal::Lapsed,
        (_, "PLAN_DIGEST_MISMATCH") => Refusal::PlanMismatch,
        (_, "SCOPE_NOT_OFFERED") => Refusal::ScopeNotOffered,
        (Code::PermissionDenied, "ROLE_NOT_ALLOWED") => Refusal::Forbidden,
        (Code::PermissionDenied, "NOT_AN_APPROVER") => Refusal::NotAnApprover(message),
        (Code::PermissionDenied, "APPROVAL_SIGNATURE_MISSING") => Refusal::ApprovalMissing,
        (Code::FailedPrecondition | Code::InvalidArgument | Code::AlreadyExists, _) => {
            Refusal::Peer { reason, message }
        }
        (Code::PermissionDenied | Code::Unauthenticated | Code::Internal, _) => {
            error!(peer, reason, message, "a peer refuses what the gateway sends");
            Refusal::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_without_room_is_not_told_as_a_service_that_is_away() {
        let fault = |reason: &str| Fault {
            code: Code::Unavailable,
            reason: reason.to_owned(),
            message: String::new(),
            retry_after: None,
        };
        let told = |reason: &str| refused("audit-svc", fault(reason)).to_string();
        assert!(told("AUDIT_PERSISTENCE_FAILED").contains("disk"));
        assert_eq!(told("AUDIT_UNAVAILABLE"), "audit-svc does not answer; try again");
    }
}
