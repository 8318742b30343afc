//! What the gateway signs: grants, receipts and on-behalf-of contexts. Their kinds are a closed set, each
//! with its own signing domain, so that one can never be taken for another.

use std::collections::BTreeSet;
use std::fmt;

use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use event::{Digest, Executor, Scope};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::approval::SignedApproval;
use crate::canonical::{self, Malformed};

const MAX_BYTES: usize = 64 * 1024;
const MINUTE: u64 = 60;
pub(crate) const HOUR: u64 = 60 * MINUTE;

/// A signed kind. The certificate is judged at `iat`, so the life after it is bounded: a key whose
/// certificate has run out cannot sign anything that lasts.
pub trait Payload: Serialize + DeserializeOwned + sealed::Sealed {
    const DOMAIN: &'static str;
    /// The longest life, in seconds.
    const MAX_LIFE: u64;

    /// Signed at, Unix seconds.
    fn iat(&self) -> u64;
    /// Valid before, Unix seconds.
    fn exp(&self) -> u64;

    /// The canonical bytes that are signed.
    fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        lifetime(self)?;
        canonical::encode(self)
    }

    /// Strict: the bytes must be those that `to_bytes` writes. Says nothing about who signed them.
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let payload: Self = canonical::decode(bytes, MAX_BYTES)?;
        lifetime(&payload)?;
        Ok(payload)
    }
}

fn lifetime<P: Payload>(payload: &P) -> Result<(), Malformed> {
    lasts(payload.iat(), payload.exp(), P::MAX_LIFE)
}

pub(crate) fn lasts(iat: u64, exp: u64, most: u64) -> Result<(), Malformed> {
    match exp.checked_sub(iat) {
        Some(life) if (1..=most).contains(&life) => Ok(()),
        Some(_) | None => Err(Malformed::Lifetime),
    }
}

/// What a session may do, and with what: signed when it is opened, renewed with new times only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub session: SessionId,
    pub tenant: String,
    pub subject: String,
    pub manifest_id: String,
    /// Digest of the manifest file's bytes.
    pub manifest: Digest,
    pub workspace: String,
    pub models: Vec<String>,
    pub on_disconnect: OnDisconnect,
    pub iat: u64,
    pub exp: u64,
}

impl Payload for Grant {
    const DOMAIN: &'static str = "harness.grant.v1";
    const MAX_LIFE: u64 = 12 * HOUR;

    fn iat(&self) -> u64 {
        self.iat
    }

    fn exp(&self) -> u64 {
        self.exp
    }
}

/// One person's allow, bound to one plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    pub id: ReceiptId,
    pub tenant: String,
    pub session: SessionId,
    pub run: RunId,
    pub call: CallId,
    pub permission: PermissionId,
    /// Digest of the plan that was shown.
    pub plan: Digest,
    pub action: Digest,
    pub scope: Scope,
    /// Who allowed it.
    pub subject: String,
    /// That person's roles when it was signed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
    /// The person's own signature, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<SignedApproval>,
    /// The plan's executor.
    pub audience: Executor,
    pub iat: u64,
    pub exp: u64,
}

impl Payload for Receipt {
    const DOMAIN: &'static str = "harness.receipt.v1";
    const MAX_LIFE: u64 = 12 * HOUR;

    fn iat(&self) -> u64 {
        self.iat
    }

    fn exp(&self) -> u64 {
        self.exp
    }
}

/// For whom the gateway makes one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Obo {
    /// SPIFFE id of the calling gateway; must be the mTLS peer.
    pub issuer: String,
    pub audience: Audience,
    pub tenant: String,
    pub subject: String,
    pub roles: Vec<Role>,
    /// Full gRPC path of the call, such as `/harness.agent.v1.AgentService/Prompt`.
    pub method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<PermissionId>,
    pub id: OboId,
    pub iat: u64,
    pub exp: u64,
}

impl Payload for Obo {
    const DOMAIN: &'static str = "harness.obo.v1";
    const MAX_LIFE: u64 = MINUTE;

    fn iat(&self) -> u64 {
        self.iat
    }

    fn exp(&self) -> u64 {
        self.exp
    }
}

/// What happens to open asks when the last client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    Deny,
    Hold,
}

/// Who reads an on-behalf-of context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    AgentSvc,
    AuditSvc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
    Auditor,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Auditor => "auditor",
        }
    }
}

/// Names one on-behalf-of context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OboId(Uuid);

impl OboId {
    /// A new id that sorts by time.
    #[expect(clippy::new_without_default, reason = "a default would be random")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for OboId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Grant {}
    impl Sealed for super::Receipt {}
    impl Sealed for super::Obo {}
}
