//! Why a plan is not admitted, in words that callers act on. It judges nothing.

use crate::approval::Unproven;
use crate::requirement::Unfit;
use crate::verifier::Invalid;

/// The plan is not admitted: of the requirement that lacks most, `have` of `need` people count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{why} ({have} of {need})", .whose.as_ref().map(|it| format!("{it}: ")).unwrap_or_default())]
pub struct Shortfall {
    pub have: u32,
    pub need: u32,
    pub why: Why,
    /// Who is at fault, where a verified receipt says so.
    pub whose: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("the rules deny it, whoever allows it")]
    Denied,
    #[error("the plan asks and no receipt is attached")]
    NoReceipt,
    /// The first that does not count.
    #[error("a receipt does not count: {0}")]
    Fault(Fault),
    #[error("not enough different people have allowed it")]
    Count,
}

/// Why one receipt does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Invalid(Invalid),
    #[error("it was revoked")]
    Revoked,
    #[error("it is for another executor")]
    Audience,
    #[error("it is for another session")]
    Session,
    #[error("it is for another tenant")]
    Tenant,
    #[error("it is for another call")]
    Call,
    #[error("it is for another plan")]
    Plan,
    #[error("it is for another action")]
    Action,
    #[error("it is for another run")]
    Run,
    #[error("the plan does not offer its scope")]
    Scope,
    #[error(transparent)]
    Unfit(Unfit),
    #[error("it lacks the person's own signature")]
    SignatureMissing,
    #[error("the person's own signature does not fit: {0}")]
    SignatureInvalid(Unproven),
    #[error("the key is not listed for this person")]
    KeyUnknown,
    #[error("the person's own signature is under something else")]
    ApprovalMismatch,
    #[error("the person's own signature was not valid in time")]
    ApprovalExpired,
}

impl Shortfall {
    /// Stable, for callers and the record.
    pub fn reason(&self) -> &'static str {
        match &self.why {
            Why::Denied => "POLICY_DENIED",
            Why::NoReceipt => "RECEIPT_REQUIRED",
            Why::Fault(fault) => fault.reason(),
            Why::Count => "RECEIPT_COUNT_SHORT",
        }
    }
}

impl Fault {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(Invalid::Signature) => "RECEIPT_SIGNATURE_INVALID",
            Self::Invalid(Invalid::Signer(_)) => "RECEIPT_SIGNER_UNTRUSTED",
            Self::Invalid(Invalid::Denied) => "RECEIPT_SIGNER_DENIED",
            Self::Invalid(Invalid::Expired) => "RECEIPT_EXPIRED",
            Self::Invalid(Invalid::NotYetValid) => "RECEIPT_NOT_YET_VALID",
            Self::Invalid(Invalid::Payload(_)) => "RECEIPT_PAYLOAD_MALFORMED",
            Self::Revoked => "RECEIPT_REVOKED",
            Self::Audience => "RECEIPT_AUDIENCE_MISMATCH",
            Self::Session => "RECEIPT_SESSION_MISMATCH",
            Self::Tenant => "RECEIPT_TENANT_MISMATCH",
            Self::Call => "RECEIPT_CALL_MISMATCH",
            Self::Plan => "RECEIPT_PLAN_MISMATCH",
            Self::Action => "RECEIPT_ACTION_MISMATCH",
            Self::Run => "RECEIPT_RUN_MISMATCH",
            Self::Scope => "RECEIPT_SCOPE_MISMATCH",
            Self::Unfit(Unfit::Requester) => "RECEIPT_REQUESTER",
            Self::Unfit(Unfit::Role) => "RECEIPT_ROLE_MISMATCH",
            Self::SignatureMissing => "APPROVAL_SIGNATURE_MISSING",
            Self::SignatureInvalid(_) => "APPROVAL_SIGNATURE_INVALID",
            Self::KeyUnknown => "APPROVAL_KEY_UNKNOWN",
            Self::ApprovalMismatch => "APPROVAL_MISMATCH",
            Self::ApprovalExpired => "APPROVAL_EXPIRED",
        }
    }
}
