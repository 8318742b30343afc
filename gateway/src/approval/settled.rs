//! How an ask ended, in the words that whoever came too late is told.
use std::fmt;

use proto::agent::v1 as wire;

/// How an ask ended, for whoever came too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Allowed {
        by: String,
    },
    /// An allow whose receipt is still on its way.
    BeingAllowed {
        by: String,
    },
    Denied {
        by: String,
        source: &'static str,
    },
    Unknown,
}

impl Settled {
    pub(crate) fn unknown() -> Self {
        Self::Unknown
    }

    pub(super) fn read(lost: wire::Lost) -> Self {
        let (decision, source) = (lost.decision(), lost.source());
        let wire::Lost { by, settled, .. } = lost;
        match (decision, settled) {
            (wire::Decision::Allow, true) => Self::Allowed { by },
            (wire::Decision::Allow, false) => Self::BeingAllowed { by },
            (wire::Decision::Deny, _) => Self::Denied { by, source: source_name(source) },
            (wire::Decision::Unspecified, _) => Self::Unknown,
        }
    }
}

impl fmt::Display for Settled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed { by } => write!(out, "already resolved: allowed by {by}"),
            Self::BeingAllowed { by } => {
                write!(out, "already resolved: {by} has allowed it, and that is being recorded")
            }
            Self::Denied { by, source } if by.is_empty() => {
                write!(out, "already resolved: denied ({source})")
            }
            Self::Denied { by, source } => {
                write!(out, "already resolved: denied by {by} ({source})")
            }
            Self::Unknown => out.write_str("already resolved"),
        }
    }
}

fn source_name(source: wire::DenySource) -> &'static str {
    match source {
        wire::DenySource::Operator => "operator",
        wire::DenySource::Timeout => "timeout",
        wire::DenySource::Cancel => "cancel",
        wire::DenySource::Disconnect => "disconnect",
        wire::DenySource::MissingResolver => "missing_resolver",
        wire::DenySource::MalformedAnswer => "malformed_answer",
        wire::DenySource::SessionEnd => "session_end",
        wire::DenySource::Policy => "policy",
        wire::DenySource::System => "system",
        wire::DenySource::Unspecified => "unspecified",
    }
}
