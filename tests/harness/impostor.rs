//! Speaks to sandbox-svc with agent-svc's own certificate, as a taken-over agent-svc could. Its grants and receipts
//! are signed by a certificate that the mesh's authority issued, so that only what a test changes is wrong.

use anyhow::{Context as _, Result, bail};
use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use event::{Digest, Executor, Scope};
use harness::pki::Subject;
use proto::common::v1 as common;
use proto::sandbox::v1 as sandbox;
use proto::sandbox::v1::sandbox_service_client::SandboxServiceClient;
use receipt::{Grant, OnDisconnect, Plan, Receipt, Signed, Signer};
use serde_json::Value;
use transport::{Fault, PeerChannel, Service};

use crate::{PATIENCE, Rig};

/// What planning gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Planned { plan: Box<Plan>, bytes: Vec<u8>, result: Option<Value> },
    Refused(String),
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Exited(i32),
    Done,
    Refused(String),
    Other(String),
}

#[derive(Debug)]
pub struct Impostor {
    pub client: SandboxServiceClient<PeerChannel>,
    pub session: SessionId,
    pub run: RunId,
    pub epoch: u64,
    signer: Signer,
    manifest: Vec<u8>,
    manifest_id: String,
}

impl Impostor {
    /// A new session of the manifest `task`; nothing is fenced yet.
    pub fn enter(rig: &Rig, task: &str) -> Result<Self> {
        let context = rig.identity(&Subject::Service {
            service: Service::AgentSvc,
            instance: "impostor".to_owned(),
        })?;
        let channel = transport::channel::connect(
            &context,
            &rig.endpoint(Service::SandboxSvc)?,
            Service::SandboxSvc,
        );
        let files = rig.store()?.issue(
            &Subject::Receipts { instance: "suite".to_owned() },
            &harness::pki::Hosts::default(),
            1,
        )?;
        let file =
            |name: &str| files.iter().find(|file| file.name == name).context("an issued file");
        Ok(Self {
            client: SandboxServiceClient::new(channel),
            session: SessionId::new(),
            run: RunId::new(),
            epoch: 1,
            signer: Signer::from_pem(&file("receipt.crt")?.bytes, &file("receipt.key")?.bytes)?,
            manifest: rig.manifest(task)?.to_vec(),
            manifest_id: task.to_owned(),
        })
    }

    pub fn owner(&self) -> common::Owner {
        common::Owner {
            session_id: self.session.to_string(),
            node: "impostor".to_owned(),
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
        Ok(self.signer.sign(payload)?)
    }

    pub async fn fence(&self) -> Result<(), Fault> {
        let signed =
            self.signer.sign(&self.grant()).map_err(|error| refused(&error.to_string()))?;
        self.fence_with(&signed).await
    }

    pub async fn fence_with(&self, grant: &Signed) -> Result<(), Fault> {
        let request = sandbox::FenceRequest {
            owner: Some(self.owner()),
            grant: Some(wire(grant)),
            manifest: self.manifest.clone(),
        };
        self.client.clone().fence(transport::deadline::request(request, PATIENCE)).await?;
        Ok(())
    }

    pub async fn open(&self) -> Result<sandbox::OpenEnvironmentResponse, Fault> {
        let request = sandbox::OpenEnvironmentRequest {
            owner: Some(self.owner()),
            run_id: self.run.to_string(),
        };
        Ok(self
            .client
            .clone()
            .open_environment(transport::deadline::request(request, PATIENCE))
            .await?
            .into_inner())
    }

    pub async fn close(&self) -> Result<(), Fault> {
        let request = sandbox::CloseEnvironmentRequest {
            owner: Some(self.owner()),
            run_id: self.run.to_string(),
        };
        self.client
            .clone()
            .close_environment(transport::deadline::request(request, PATIENCE))
            .await?;
        Ok(())
    }

    pub fn call(&self, call: CallId) -> common::Call {
        common::Call {
            run_id: self.run.to_string(),
            call_id: call.to_string(),
            attempt: 1,
            start_before_ms: i64::try_from(now() * 1000 + 300_000).unwrap_or(i64::MAX),
        }
    }

    pub async fn plan(&self, call: CallId, tool: &str, arguments: &Value) -> Result<Asked> {
        let request = sandbox::PlanRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            tool: tool.to_owned(),
            arguments: arguments.to_string().into_bytes(),
        };
        let answer = self
            .client
            .clone()
            .plan(transport::deadline::request(request, PATIENCE))
            .await
            .map_err(Fault::from)?;
        match answer.into_inner().outcome.context("an outcome")? {
            sandbox::plan_response::Outcome::Planned(sandbox::Planned { plan, result }) => {
                Ok(Asked::Planned {
                    plan: Box::new(Plan::parse(&plan)?),
                    bytes: plan,
                    result: result
                        .map(|result| serde_json::from_slice(&result.json))
                        .transpose()?,
                })
            }
            sandbox::plan_response::Outcome::Refused(common::Refused { reason, detail: _ }) => {
                Ok(Asked::Refused(reason))
            }
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

    pub async fn execute(
        &self,
        call: CallId,
        tool: &str,
        arguments: &Value,
        plan: Digest,
        receipt: Option<&Signed>,
    ) -> Result<Outcome, Fault> {
        let request = sandbox::ExecuteRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            tool: tool.to_owned(),
            arguments: arguments.to_string().into_bytes(),
            plan_digest: plan.as_bytes().to_vec(),
            after_output_offset: 0,
            receipts: receipt.iter().filter_map(|signed| signed.to_bytes().ok()).collect(),
        };
        let mut stream = self
            .client
            .clone()
            .execute(transport::deadline::request(request, PATIENCE))
            .await?
            .into_inner();
        while let Some(message) = stream.message().await? {
            if let Some(sandbox::execute_response::Message::Finished(finished)) = message.message {
                return Ok(Outcome::read(finished));
            }
        }
        Err(refused("the stream ended without an outcome"))
    }

    /// A plan that must exist.
    pub async fn planned(
        &self,
        call: CallId,
        tool: &str,
        arguments: &Value,
    ) -> Result<(Plan, Vec<u8>)> {
        match self.plan(call, tool, arguments).await? {
            Asked::Planned { plan, bytes, result: _ } => Ok((*plan, bytes)),
            Asked::Refused(reason) => bail!("{tool} was refused: {reason}"),
        }
    }
}

impl Outcome {
    fn read(finished: sandbox::Finished) -> Self {
        use sandbox::finished::Outcome as Wire;
        match finished.outcome {
            Some(Wire::Exited(sandbox::Exited { code })) => Self::Exited(code),
            Some(Wire::Done(common::Empty {})) => Self::Done,
            Some(Wire::Refused(common::Refused { reason, detail: _ })) => Self::Refused(reason),
            Some(other) => Self::Other(format!("{other:?}")),
            None => Self::Other("nothing".to_owned()),
        }
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
