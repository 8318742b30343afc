//! What rules decided, what people were asked, what they answered, and what the gateway signed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::Digest;
use crate::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use crate::stamp;

/// What a rule says about an action; the strictest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Ask,
    Deny,
}

impl Effect {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Whose rules say something about an action, the widest reach first; the strictest decides, none widens what another
/// narrows. `System` is what no file can turn off: bad subjects, `.git`, `allowed_paths`, protected paths, interpreters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    Organisation,
    Tenant,
    Manifest,
    System,
}

impl Layer {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Organisation => "organisation",
            Self::Tenant => "tenant",
            Self::Manifest => "manifest",
            Self::System => "system",
        }
    }
}

/// A rule that has something to say about an action, whether or not it decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Matched {
    pub layer: Layer,
    pub rule: String,
    pub effect: Effect,
}

/// How far an allow reaches: one call, or the same action for the rest of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Once,
    Run,
}

impl Scope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

impl Decision {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Who or what settled an ask. An allow has the source `operator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Operator,
    Timeout,
    Cancel,
    Disconnect,
    MissingResolver,
    MalformedAnswer,
    SessionEnd,
    Policy,
    System,
}

impl Source {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Timeout => "timeout",
            Self::Cancel => "cancel",
            Self::Disconnect => "disconnect",
            Self::MissingResolver => "missing_resolver",
            Self::MalformedAnswer => "malformed_answer",
            Self::SessionEnd => "session_end",
            Self::Policy => "policy",
            Self::System => "system",
        }
    }
}

/// One per part of a plan, in the plan's order. `matching` is every rule that had something to say, and absent where that
/// is the deciding one alone; `receipt_id` names the standing allow that answered an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyDecision {
    pub call_id: CallId,
    pub plan_digest: Digest,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    pub effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub layer: Option<Layer>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub justification: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub matching: Vec<Matched>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub manifest_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receipt_id: Option<ReceiptId>,
}

/// `plan` is the plan itself, an object; `scope` is the first that it offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionRequested {
    pub permission_id: PermissionId,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    pub scope: Scope,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    pub plan: Value,
    pub plan_digest: Digest,
    #[serde(with = "stamp")]
    pub expires_at: OffsetDateTime,
    /// The run that asks, where it is a child of the session's run. The plan names it too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub child_run_id: Option<RunId>,
    /// Of that child.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub profile: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionResolved {
    pub permission_id: PermissionId,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    pub scope: Scope,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    pub decision: Decision,
    pub source: Source,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// An allow that is not yet enough: of what is asked of people, the part that lacks most has `have` of `need`. The ask
/// stays open to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionCounted {
    pub permission_id: PermissionId,
    pub session_id: SessionId,
    pub by: String,
    pub have: u32,
    pub need: u32,
}

/// `renewal_of` is the digest of the grant that this one follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantIssued {
    pub session_id: SessionId,
    pub subject: String,
    pub manifest_digest: Digest,
    pub workspace: String,
    pub models: Vec<String>,
    #[serde(with = "stamp")]
    pub issued_at: OffsetDateTime,
    #[serde(with = "stamp")]
    pub expires_at: OffsetDateTime,
    pub grant_digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub renewal_of: Option<Digest>,
}

/// `receipt` holds the signed members, the signature as hex and the chain as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiptSigned {
    pub permission_id: PermissionId,
    pub session_id: SessionId,
    pub run_id: RunId,
    pub call_id: CallId,
    pub scope: Scope,
    pub plan_digest: Digest,
    pub action_digest: Digest,
    pub subject: String,
    #[serde(with = "stamp")]
    pub expires_at: OffsetDateTime,
    pub receipt_id: ReceiptId,
    pub receipt: Value,
}

/// A standing allow was taken back; from here on the executor is told that it admits nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiptRevoked {
    pub receipt_id: ReceiptId,
    pub session_id: SessionId,
    pub run_id: RunId,
    pub by: String,
}
