//! One ask and where it stands. An ask is a row: nothing waits in memory for its answer.

use event::id::{CallId, PermissionId, RunId};
use event::{Digest, Source};
use receipt::{Plan, Scope};

use crate::clock::Millis;

/// What is asked; it never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) id: PermissionId,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) plan: Plan,
    /// The plan as its executor made it.
    pub(crate) bytes: Vec<u8>,
    pub(crate) plan_digest: Digest,
    pub(crate) action_digest: Digest,
    pub(crate) expires_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) ask: Ask,
    pub(crate) requested_seq: u64,
    pub(crate) standing: Standing,
    /// The sequence number of its permission.resolved, once the run knows the answer.
    pub(crate) resolved_seq: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    /// An allow was claimed and its receipt is awaited.
    Leased {
        by: String,
        scope: Scope,
        note: Option<String>,
        until: Millis,
    },
    /// receipt: signed, as it came.
    Allowed {
        by: String,
        scope: Scope,
        note: Option<String>,
        claimed_at: Millis,
        receipt: Vec<u8>,
    },
    Denied {
        source: Source,
        by: Option<String>,
        note: Option<String>,
    },
}

impl Standing {
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Open | Self::Leased { .. } => false,
            Self::Allowed { .. } | Self::Denied { .. } => true,
        }
    }
}
