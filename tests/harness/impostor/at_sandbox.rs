//! The impostor's calls to sandbox-svc: what agent-svc would send, with whatever a test puts in. It never repairs an
//! answer.

use anyhow::{Context as _, Result, bail};
use event::Digest;
use event::id::{CallId, ReceiptId, RunId};
use proto::common::v1 as common;
use proto::sandbox::v1 as sandbox;
use receipt::{Plan, Signed};
use serde_json::Value;
use transport::Fault;

use super::{Impostor, refused, wire};
use crate::PATIENCE;

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

/// One call as it is to be carried out.
#[derive(Debug)]
pub struct Order<'a> {
    pub call: CallId,
    pub tool: &'a str,
    pub arguments: &'a Value,
    pub plan: Digest,
    pub receipts: &'a [&'a Signed],
}

impl Impostor {
    pub async fn fence(&self) -> Result<(), Fault> {
        let signed = self.sign(&self.grant()).map_err(|error| refused(&error.to_string()))?;
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
        let request = transport::deadline::request(request, PATIENCE);
        Ok(self.client.clone().open_environment(request).await?.into_inner())
    }

    pub async fn close(&self) -> Result<(), Fault> {
        let request = sandbox::CloseEnvironmentRequest {
            owner: Some(self.owner()),
            run_id: self.run.to_string(),
        };
        let request = transport::deadline::request(request, PATIENCE);
        self.client.clone().close_environment(request).await?;
        Ok(())
    }

    pub async fn revoke(&self, run: RunId, receipt: ReceiptId) -> Result<(), Fault> {
        let request = sandbox::RevokeReceiptRequest {
            owner: Some(self.owner()),
            run_id: run.to_string(),
            receipt_id: receipt.to_string(),
        };
        let request = transport::deadline::request(request, PATIENCE);
        self.client.clone().revoke_receipt(request).await?;
        Ok(())
    }

    pub async fn plan(&self, call: CallId, tool: &str, arguments: &Value) -> Result<Asked> {
        let request = sandbox::PlanRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            tool: tool.to_owned(),
            arguments: arguments.to_string().into_bytes(),
        };
        let request = transport::deadline::request(request, PATIENCE);
        let answer = self.client.clone().plan(request).await.map_err(Fault::from)?;
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

    pub async fn execute(
        &self,
        call: CallId,
        tool: &str,
        arguments: &Value,
        plan: Digest,
        receipt: Option<&Signed>,
    ) -> Result<Outcome, Fault> {
        let receipts: Vec<&Signed> = receipt.into_iter().collect();
        self.execute_with(call, tool, arguments, plan, &receipts).await
    }

    /// With the receipts of several people.
    pub async fn execute_with(
        &self,
        call: CallId,
        tool: &str,
        arguments: &Value,
        plan: Digest,
        receipts: &[&Signed],
    ) -> Result<Outcome, Fault> {
        let order = Order { call, tool, arguments, plan, receipts };
        let finished = self.carry_out(&order, |_| ()).await?;
        Ok(Outcome::read(finished))
    }

    /// To its end, with a look at everything that comes on the way.
    pub async fn carry_out(
        &self,
        order: &Order<'_>,
        mut see: impl FnMut(&sandbox::execute_response::Message),
    ) -> Result<sandbox::Finished, Fault> {
        let Order { call, tool, arguments, plan, receipts } = order;
        let request = sandbox::ExecuteRequest {
            owner: Some(self.owner()),
            call: Some(self.call(*call)),
            tool: (*tool).to_owned(),
            arguments: arguments.to_string().into_bytes(),
            plan_digest: plan.as_bytes().to_vec(),
            after_output_offset: 0,
            receipts: receipts.iter().filter_map(|signed| signed.to_bytes().ok()).collect(),
        };
        let request = transport::deadline::request(request, PATIENCE);
        let mut stream = self.client.clone().execute(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            match message.message {
                Some(sandbox::execute_response::Message::Finished(finished)) => {
                    return Ok(finished);
                }
                Some(message) => see(&message),
                None => (),
            }
        }
        Err(refused("the stream ended without an outcome"))
    }
}

impl Outcome {
    pub fn read(finished: sandbox::Finished) -> Self {
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
