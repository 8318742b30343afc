//! Who may call which method, by exact path. What a caller then gets to see is decided in `reach`.

use transport::Service::{AgentSvc, Gateway, ModelSvc, SandboxSvc};
use transport::authz::{Caller, Row};

pub(crate) const SERVICE: &str = "harness.audit.v1.AuditService";
pub(crate) const QUERY: &str = "/harness.audit.v1.AuditService/Query";
pub(crate) const PROVE: &str = "/harness.audit.v1.AuditService/Prove";
pub(crate) const CHECKPOINT: &str = "/harness.audit.v1.AuditService/Checkpoint";
pub(crate) const EXPORT: &str = "/harness.audit.v1.AuditService/Export";

const WRITERS: &[Caller] = &[
    Caller::Service(Gateway),
    Caller::Service(AgentSvc),
    Caller::Service(SandboxSvc),
    Caller::Service(ModelSvc),
];
/// Those that number their own streams read them back; the gateway reads on behalf of a person only.
const STREAM_OWNERS: &[Caller] = &[Caller::Service(AgentSvc), Caller::Service(SandboxSvc)];
const READERS: &[Caller] = &[Caller::Service(Gateway), Caller::Auditor];

/// The whole table of audit-svc.
pub const CALLERS: &[Row] = &[
    Row { method: "/harness.audit.v1.AuditService/Append", callers: WRITERS },
    Row { method: "/harness.audit.v1.AuditService/ReadStream", callers: STREAM_OWNERS },
    Row { method: QUERY, callers: READERS },
    Row { method: PROVE, callers: READERS },
    Row { method: CHECKPOINT, callers: READERS },
    Row { method: EXPORT, callers: READERS },
];
