//! Which service may write which type of event. The identity comes from a certificate, never from here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A service that has a stream of its own in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    Gateway,
    AgentSvc,
    SandboxSvc,
    ModelSvc,
}

/// The name is not that of a service that writes events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a service that writes events")]
pub struct NotAWriter;

impl Writer {
    pub const ALL: [Self; 4] = [Self::Gateway, Self::AgentSvc, Self::SandboxSvc, Self::ModelSvc];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::AgentSvc => "agent-svc",
            Self::SandboxSvc => "sandbox-svc",
            Self::ModelSvc => "model-svc",
        }
    }

    /// Whether events of this type may stand in this service's streams; unknown types stand in none.
    pub fn may_write(self, kind: &str) -> bool {
        self.kinds().contains(&kind)
    }

    const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Gateway => &["grant.issued", "receipt.signed", "receipt.revoked"],
            Self::AgentSvc => &[
                "session.created",
                "agent.started",
                "agent.stopped",
                "model.request",
                "model.response",
                "message.delta",
                "tool.call",
                "tool.result",
                "tool.outcome_unknown",
                "task.updated",
                "budget.warning",
                "policy.decision",
                "permission.requested",
                "permission.counted",
                "permission.resolved",
                "call.output",
                "sandbox.started",
                "sandbox.stopped",
                "run.recorded",
                "error",
            ],
            Self::SandboxSvc => &[
                "call.started",
                "call.finished",
                "call.refused",
                "environment.carried",
                "sandbox.started",
                "sandbox.stopped",
                "egress.decision",
            ],
            Self::ModelSvc => &["call.started", "call.finished", "call.refused"],
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Writer {
    type Err = NotAWriter;

    fn from_str(text: &str) -> Result<Self, NotAWriter> {
        Self::ALL.into_iter().find(|writer| writer.as_str() == text).ok_or(NotAWriter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    #[test]
    fn the_table_and_the_catalogue_name_the_same_types() {
        for kind in Data::KINDS {
            assert!(
                Writer::ALL.iter().any(|writer| writer.may_write(kind)),
                "nobody writes {kind}"
            );
        }
        for writer in Writer::ALL {
            for kind in writer.kinds() {
                assert!(
                    Data::KINDS.contains(kind),
                    "{writer} writes {kind}, which is not in the catalogue"
                );
            }
        }
    }

    #[test]
    fn only_the_gateway_signs_and_it_writes_nothing_else() {
        let writers = |kind| {
            Writer::ALL.into_iter().filter(|writer| writer.may_write(kind)).collect::<Vec<_>>()
        };
        assert_eq!(writers("receipt.signed"), [Writer::Gateway]);
        assert_eq!(writers("receipt.revoked"), [Writer::Gateway]);
        assert_eq!(writers("permission.resolved"), [Writer::AgentSvc]);
        assert_eq!(writers("permission.counted"), [Writer::AgentSvc]);
        assert_eq!(writers("call.started"), [Writer::SandboxSvc, Writer::ModelSvc]);
        assert_eq!(writers("sandbox.started"), [Writer::AgentSvc, Writer::SandboxSvc]);
        assert_eq!(writers("egress.decision"), [Writer::SandboxSvc]);
        assert_eq!(writers("no.such.type"), []);
    }

    #[test]
    fn names_read_back() {
        for writer in Writer::ALL {
            assert_eq!(writer.as_str().parse(), Ok(writer));
        }
        assert_eq!("audit-svc".parse::<Writer>(), Err(NotAWriter));
    }
}
