//! The gRPC contract: one module per package, nothing handwritten. It never holds behaviour.

#![allow(
    clippy::disallowed_methods,
    reason = "generated clients word a failure that is not ours to word"
)]

/// The file descriptor set of everything below, for reflection and for the authorization matrix.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

/// Messages that several services share.
pub mod common {
    pub mod v1 {
        tonic::include_proto!("harness.common.v1");
    }
}

/// agent-svc: sessions, runs, permissions.
pub mod agent {
    pub mod v1 {
        tonic::include_proto!("harness.agent.v1");
    }
}

/// sandbox-svc: workspaces, environments, containers, patches.
pub mod sandbox {
    pub mod v1 {
        tonic::include_proto!("harness.sandbox.v1");
    }
}

/// model-svc: model turns and remote tools.
pub mod model {
    pub mod v1 {
        tonic::include_proto!("harness.model.v1");
    }
}

/// audit-svc: the ledger.
pub mod audit {
    pub mod v1 {
        tonic::include_proto!("harness.audit.v1");
    }
}
