//! Speaks to sandbox-svc and model-svc with agent-svc's own certificate, as a taken-over agent-svc could. Its grants and
//! receipts are signed by a certificate that the mesh's authority issued, so that only what a test changes is wrong.

mod at_model;
mod at_sandbox;

use anyhow::Result;
use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use event::{Digest, Executor, Scope};
use harness::pki::Subject;
use proto::common::v1 as common;
use proto::model::v1::model_service_client::ModelServiceClient;
use proto::sandbox::v1::sandbox_service_client::SandboxServiceClient;
use receipt::{Grant, OnDisconnect, Plan, Receipt, Signed};
use transport::{Fault, PeerChannel, Service};

use crate::{Hand, Rig};

pub use at_model::Completed;
pub use at_sandbox::{Asked, Order, Outcome};

#[derive(Debug, Clone)]
pub struct Impostor {
    pub client: SandboxServiceClient<PeerChannel>,
    pub models: ModelServiceClient<PeerChannel>,
    pub session: SessionId,
    pub run: RunId,
    pub node: String,
    pub epoch: u64,
    pub manifest: Vec<u8>,
    pub hand: Hand,
    pub manifest_id: String,
}

impl Impostor {
    /// A new session of the manifest `task`; nothing is fenced yet.
    pub fn enter(rig: &Rig, task: &str) -> Result<Self> {
        let context = rig.identity(&Subject::Service {
            service: Service::AgentSvc,
            instance: "impostor".to_owned(),
        })?;
        let channel = |service| -> Result<PeerChannel> {
            Ok(transport::channel::connect(&context, &rig.endpoint(service)?, service))
        };
        Ok(Self {
            client: SandboxServiceClient::new(channel(Service::SandboxSvc)?),
            models: ModelServiceClient::new(channel(Service::ModelSvc)?),
            session: SessionId::new(),
            run: RunId::new(),
            node: "impostor".to_owned(),
            epoch: 1,
            manifest: rig.manifest(task)?.to_vec(),
            hand: Hand::gateway(rig, "suite")?,
            manifest_id: task.to_owned(),
        })
    }

    pub fn owner(&self) -> common::Owner {
        common::Owner {
            session_id: self.session.to_string(),
            node: self.node.clone(),
            epoch: self.epoch,
        }
    }

    pub fn grant(&self) -> Grant {
        let now = now();
        Grant {
            session: self.session,
            tenant: "default".to_owned(),
            subject: "suite".to_owned(),
            manifest_id: self.manifest_id.clone(),
            manifest: Digest::of(&self.manifest),
            workspace: "demo".to_owned(),
            models: vec!["scripted".to_owned()],
            on_disconnect: OnDisconnect::Hold,
            iat: now,
            exp: now + 3600,
        }
    }

    pub fn sign<P: receipt::Payload>(&self, payload: &P) -> Result<Signed> {
        self.hand.sign(payload)
    }

    pub fn call(&self, call: CallId) -> common::Call {
        common::Call {
            run_id: self.run.to_string(),
            call_id: call.to_string(),
            attempt: 1,
            start_before_ms: i64::try_from(now() * 1000 + 300_000).unwrap_or(i64::MAX),
        }
    }

    /// A receipt as the gateway would sign it for this plan.
    pub fn receipt(&self, plan: &Plan, bytes: &[u8], scope: Scope) -> Result<Receipt> {
        let now = now();
        Ok(Receipt {
            id: ReceiptId::new(),
            tenant: "default".to_owned(),
            session: self.session,
            run: self.run,
            call: plan.call,
            permission: PermissionId::new(),
            plan: receipt::plan_digest(bytes),
            action: plan.action_digest()?,
            scope,
            subject: "suite".to_owned(),
            roles: [receipt::Role::Operator].into(),
            approval: None,
            audience: Executor::SandboxSvc,
            iat: now,
            exp: now + 3600,
        })
    }
}

fn wire(signed: &Signed) -> common::Signed {
    let Signed { payload, signature, chain } = signed.clone();
    common::Signed { payload, signature, chain }
}

fn refused(message: &str) -> Fault {
    Fault {
        code: transport::Code::Internal,
        reason: "SUITE".to_owned(),
        message: message.to_owned(),
        retry_after: None,
    }
}

pub(crate) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
