//! What callers are told: a code, a stable reason and a sentence; never a value of an event, never a cause.

use std::time::Duration;

use transport::{Code, Public};

/// Why a call is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the request is malformed: {what}")]
    Request { what: &'static str },
    #[error("the request has too many entries or bytes; send at most {entries} entries at once")]
    TooMany { entries: usize },
    #[error("entry {at} is refused: {refusal}")]
    Entry { at: usize, refusal: event::Refusal },
    #[error("entry {at} is malformed: {what}")]
    EntryForm { at: usize, what: &'static str },
    #[error("entry {at} was checked by older redaction rules than those of the ledger")]
    RedactorTooOld { at: usize },
    #[error("entry {at} cannot be checked")]
    Panicked { at: usize },
    #[error("entry {at} is about another session than its stream")]
    EntrySession { at: usize },
    #[error("entry {at} names another tenant than its session's other entries")]
    EntryTenant { at: usize },
    #[error("entry {at} is not the next of its stream; that is {expected}")]
    Sequence { at: usize, expected: u64 },
    #[error("entry {at} has the id of another entry that is stored")]
    Event { at: usize },
    #[error("the ledger's queue is full")]
    Backpressure,
    #[error("the entries could not be stored, or it is not known whether they were")]
    Persistence,
    #[error("the ledger has halted: its store is not what it was")]
    Halted,
    #[error("the ledger is stopping")]
    Stopping,
    #[error("there is no such entry")]
    NotFound,
    #[error("a read on behalf of a person needs the context {}", receipt::OBO_KEY)]
    OboRequired,
    #[error("the on-behalf-of context is malformed")]
    OboMalformed,
    #[error("the on-behalf-of context is not valid: {invalid}")]
    OboInvalid { invalid: receipt::Invalid },
    #[error("the on-behalf-of context is for another {what}")]
    OboMismatch { what: OboMember },
    #[error("the person has none of the roles auditor and operator")]
    OboRole,
    #[error("this peer does not write events")]
    NotAWriter,
    #[error("the ledger cannot be read")]
    Read(#[source] sqlx::Error),
    #[error("the ledger holds something that cannot be read")]
    Corrupt,
}

/// What an on-behalf-of context is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OboMember {
    Issuer,
    Audience,
    Method,
    Session,
    Tenant,
}

impl std::fmt::Display for OboMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Method => "method",
            Self::Session => "session",
            Self::Tenant => "tenant",
        })
    }
}

impl Public for Refused {
    const DOMAIN: &'static str = "audit-svc";

    fn code(&self) -> Code {
        match self {
            Self::Request { .. }
            | Self::TooMany { .. }
            | Self::EntryForm { .. }
            | Self::RedactorTooOld { .. }
            | Self::Panicked { .. }
            | Self::EntrySession { .. }
            | Self::EntryTenant { .. } => Code::InvalidArgument,
            Self::Entry { refusal, .. } => match refusal {
                event::Refusal::WriterNotAllowed { .. } => Code::PermissionDenied,
                event::Refusal::NotCanonical
                | event::Refusal::Schema(_)
                | event::Refusal::Redaction(_)
                | event::Refusal::Unredacted { .. } => Code::InvalidArgument,
            },
            Self::Sequence { .. } | Self::Halted => Code::FailedPrecondition,
            Self::Event { .. } => Code::AlreadyExists,
            Self::Backpressure => Code::ResourceExhausted,
            Self::Persistence | Self::Stopping => Code::Unavailable,
            Self::NotFound => Code::NotFound,
            Self::OboRequired | Self::OboMalformed | Self::OboInvalid { .. } => {
                Code::Unauthenticated
            }
            Self::OboMismatch { .. } | Self::OboRole | Self::NotAWriter => Code::PermissionDenied,
            Self::Read(_) | Self::Corrupt => Code::Internal,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Request { .. } => "REQUEST_MALFORMED",
            Self::TooMany { .. } => "APPEND_TOO_LARGE",
            Self::Entry { refusal, .. } => refusal.reason(),
            Self::EntryForm { .. } => "ENTRY_MALFORMED",
            Self::RedactorTooOld { .. } | Self::Panicked { .. } => "EVENT_REDACTION_FAILED",
            Self::EntrySession { .. } => "ENTRY_SESSION_MISMATCH",
            Self::EntryTenant { .. } => "ENTRY_TENANT_MISMATCH",
            Self::Sequence { .. } => "AUDIT_SEQUENCE_CONFLICT",
            Self::Event { .. } => "AUDIT_EVENT_CONFLICT",
            Self::Backpressure => "AUDIT_BACKPRESSURE",
            Self::Persistence => "AUDIT_PERSISTENCE_FAILED",
            Self::Halted => "AUDIT_INTEGRITY_HALT",
            Self::Stopping => "STOPPING",
            Self::NotFound => "ENTRY_NOT_FOUND",
            Self::OboRequired => "OBO_REQUIRED",
            Self::OboMalformed => "OBO_MALFORMED",
            Self::OboInvalid { invalid } => match invalid {
                receipt::Invalid::Signature => "OBO_SIGNATURE_INVALID",
                receipt::Invalid::Signer(_) => "OBO_SIGNER_UNTRUSTED",
                receipt::Invalid::Denied => "OBO_SIGNER_DENIED",
                receipt::Invalid::Expired => "OBO_EXPIRED",
                receipt::Invalid::NotYetValid => "OBO_NOT_YET_VALID",
                receipt::Invalid::Payload(_) => "OBO_PAYLOAD_MALFORMED",
            },
            Self::OboMismatch { what } => match what {
                OboMember::Issuer => "OBO_ISSUER_MISMATCH",
                OboMember::Audience => "OBO_AUDIENCE_MISMATCH",
                OboMember::Method => "OBO_METHOD_MISMATCH",
                OboMember::Session => "OBO_SESSION_MISMATCH",
                OboMember::Tenant => "OBO_TENANT_MISMATCH",
            },
            Self::OboRole => "ROLE_NOT_ALLOWED",
            Self::NotAWriter => "WRITER_NOT_ALLOWED",
            Self::Read(_) => "AUDIT_READ_FAILED",
            Self::Corrupt => "AUDIT_INTEGRITY_HALT",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Backpressure | Self::Persistence => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl From<Refused> for tonic::Status {
    fn from(refused: Refused) -> Self {
        transport::to_status(&refused)
    }
}
