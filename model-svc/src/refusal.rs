//! Facts about a caller that end its call: a code, a stable reason, a sentence; causes stay in the log. Facts about a model
//! call are no refusals of this kind: they are answers.

use manifest::Faults;
use receipt::Invalid;
use transport::{Code, Public};

use crate::store;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the request is not well-formed: {field} must be {expected}")]
    Request { field: &'static str, expected: &'static str },
    #[error("the session is not known here; call Fence first")]
    SessionUnknown,
    #[error("another owner has the session")]
    FenceStale,
    #[error("the session's grant has expired; renew it by Fence")]
    GrantExpired,
    #[error("the grant is refused: {0}")]
    Grant(#[source] Invalid),
    #[error("the grant is for another session")]
    GrantSessionMismatch,
    #[error("the session is registered under another grant")]
    GrantConflict,
    #[error("the manifest is not the one that the grant names")]
    ManifestMismatch,
    #[error("the manifest is not valid: {0}")]
    ManifestInvalid(Faults),
    #[error("the model {model} is not configured here")]
    ModelUnknown { model: String },
    #[error("the manifest does not allow the model {model}")]
    ModelNotAllowed { model: String },
    #[error("this service has no usable CA")]
    NoTrust(#[source] receipt::NoTrust),
    #[error("the state cannot be read or written")]
    State(#[from] store::Error),
    #[error("an event cannot be written down")]
    Event(#[from] event::SealError),
    #[error("the call ended without an outcome")]
    Lost,
}

impl Public for Refusal {
    const DOMAIN: &'static str = "model-svc";

    fn code(&self) -> Code {
        match self {
            Self::Request { .. } => Code::InvalidArgument,
            Self::SessionUnknown => Code::NotFound,
            Self::FenceStale
            | Self::GrantExpired
            | Self::GrantConflict
            | Self::ManifestMismatch
            | Self::ManifestInvalid(_)
            | Self::ModelUnknown { .. }
            | Self::ModelNotAllowed { .. } => Code::FailedPrecondition,
            Self::Grant(_) | Self::GrantSessionMismatch => Code::PermissionDenied,
            Self::NoTrust(_) | Self::State(_) | Self::Event(_) | Self::Lost => Code::Internal,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Request { .. } => "REQUEST_INVALID",
            Self::SessionUnknown => "SESSION_UNKNOWN",
            Self::FenceStale => "FENCE_STALE",
            Self::GrantExpired => "GRANT_EXPIRED",
            Self::Grant(invalid) => match invalid {
                Invalid::Signature => "GRANT_SIGNATURE_INVALID",
                Invalid::Signer(_) => "GRANT_SIGNER_UNTRUSTED",
                Invalid::Denied => "GRANT_SIGNER_DENIED",
                Invalid::Expired => "GRANT_EXPIRED",
                Invalid::NotYetValid => "GRANT_NOT_YET_VALID",
                Invalid::Payload(_) => "GRANT_PAYLOAD_MALFORMED",
            },
            Self::GrantSessionMismatch => "GRANT_SESSION_MISMATCH",
            Self::GrantConflict => "GRANT_CONFLICT",
            Self::ManifestMismatch => "MANIFEST_MISMATCH",
            Self::ManifestInvalid(_) => "MANIFEST_INVALID",
            Self::ModelUnknown { .. } => "MODEL_UNKNOWN",
            Self::ModelNotAllowed { .. } => "MODEL_NOT_ALLOWED",
            Self::NoTrust(_) => "TRUST_UNAVAILABLE",
            Self::State(_) => "STATE_UNAVAILABLE",
            Self::Event(_) => "EVENT_REDACTION_FAILED",
            Self::Lost => "CALL_LOST",
        }
    }
}

impl Refusal {
    /// Whether the ledger should know: a refusal of what someone tried, not a failure of ours or a malformed message.
    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(self.code(), Code::Internal | Code::InvalidArgument)
    }
}

impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        transport::to_status(&refusal)
    }
}
