//! One run, driven as agent-svc drives it, and what it is told.

use std::path::PathBuf;

use event::Digest;
use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::finished::Outcome;
use proto::sandbox::v1::plan_response;
use receipt::{Executor, Plan, Receipt, Scope, Signed};
use transport::Fault;

use super::world::{LIMIT, TENANT, World};
use crate::planner::Planned;
use crate::session::{now_ms, now_secs};

/// One run, driven as agent-svc drives it.
#[derive(Clone)]
pub(super) struct Run<'a> {
    pub(super) world: &'a World,
    pub(super) session: SessionId,
    pub(super) owner: common::Owner,
    pub(super) run: RunId,
}

/// A planned call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) tool: String,
    pub(super) arguments: Vec<u8>,
    pub(super) plan: Plan,
    pub(super) bytes: Vec<u8>,
    pub(super) result: Option<serde_json::Value>,
}

impl Call {
    pub(super) fn digest(&self) -> Digest {
        receipt::plan_digest(&self.bytes)
    }
}

/// What an Execute said.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) started: Option<Vec<u8>>,
    pub(super) output: Vec<wire::Output>,
    pub(super) finished: wire::Finished,
}

impl Told {
    pub(super) fn text(&self) -> String {
        let bytes: Vec<u8> = self.output.iter().flat_map(|output| output.bytes.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&self.finished.result_json).unwrap()
    }

    /// The reason of a refusal, or how it ended.
    pub(super) fn end(&self) -> String {
        match self.finished.outcome.as_ref().unwrap() {
            Outcome::Exited(exited) => format!("exited {}", exited.code),
            Outcome::TimedOut(_) => "timed_out".to_owned(),
            Outcome::OutputLimit(_) => "output_limit".to_owned(),
            Outcome::OomKilled(_) => "oom_killed".to_owned(),
            Outcome::Canceled(_) => "canceled".to_owned(),
            Outcome::StartFailed(failed) => format!("start_failed {}", failed.cause),
            Outcome::Lost(lost) => format!("lost {}", lost.may_have_run),
            Outcome::Done(_) => "done".to_owned(),
            Outcome::Refused(refused) => refused.reason.clone(),
        }
    }
}

impl Told {
    /// The sentence of a refusal.
    pub(super) fn detail(&self) -> &str {
        match self.finished.outcome.as_ref().unwrap() {
            Outcome::Refused(refused) => &refused.detail,
            other => panic!("{other:?}"),
        }
    }
}

impl Run<'_> {
    pub(super) async fn open(&self) -> Result<wire::OpenEnvironmentResponse, Fault> {
        let request = wire::OpenEnvironmentRequest {
            owner: Some(self.owner.clone()),
            run_id: self.run.to_string(),
        };
        let request = transport::deadline::request(request, LIMIT);
        Ok(self.world.client.clone().open_environment(request).await?.into_inner())
    }

    pub(super) async fn close(&self) -> Result<(), Fault> {
        let request = wire::CloseEnvironmentRequest {
            owner: Some(self.owner.clone()),
            run_id: self.run.to_string(),
        };
        let request = transport::deadline::request(request, LIMIT);
        self.world.client.clone().close_environment(request).await?;
        Ok(())
    }

    pub(super) fn target(&self, call: CallId) -> common::Call {
        common::Call {
            run_id: self.run.to_string(),
            call_id: call.to_string(),
            attempt: 1,
            start_before_ms: now_ms() + 30_000,
        }
    }

    /// Plans a call; a refusal comes back as its reason.
    pub(super) async fn try_plan(
        &self,
        tool: &str,
        arguments: &serde_json::Value,
    ) -> Result<Call, String> {
        self.plan_or_refusal(tool, arguments).await.map_err(|refused| refused.reason)
    }

    /// Plans a call; a refusal comes back with its sentence.
    pub(super) async fn plan_or_refusal(
        &self,
        tool: &str,
        arguments: &serde_json::Value,
    ) -> Result<Call, common::Refused> {
        let (id, arguments) = (CallId::new(), arguments.to_string().into_bytes());
        let request = wire::PlanRequest {
            owner: Some(self.owner.clone()),
            call: Some(self.target(id)),
            tool: tool.to_owned(),
            arguments: arguments.clone(),
        };
        let request = transport::deadline::request(request, LIMIT);
        let answer = self.world.client.clone().plan(request).await;
        let answer = answer.map_err(|status| common::Refused {
            reason: Fault::from(status).reason,
            detail: String::new(),
        });
        let answer = answer?.into_inner();
        match answer.outcome.unwrap() {
            plan_response::Outcome::Refused(refused) => Err(refused),
            plan_response::Outcome::Planned(wire::Planned { plan: bytes, result }) => Ok(Call {
                id,
                tool: tool.to_owned(),
                arguments,
                plan: Plan::parse(&bytes).unwrap(),
                bytes,
                result: result.map(|result| serde_json::from_slice(&result.json).unwrap()),
            }),
        }
    }

    pub(super) async fn plan(&self, tool: &str, arguments: serde_json::Value) -> Call {
        self.try_plan(tool, &arguments).await.unwrap()
    }

    /// A plan as the service itself has it.
    pub(super) async fn planned(&self, tool: &str, arguments: &serde_json::Value) -> Planned {
        let sandbox = self.world.sandbox();
        let session = sandbox.sessions.known(self.session).await.unwrap();
        let environment = sandbox.environment(self.session, self.run).unwrap();
        let arguments = arguments.to_string().into_bytes();
        let call = (self.run, CallId::new());
        let plan = sandbox.make_plan(&session, &environment, call, tool, &arguments);
        plan.await.unwrap()
    }

    pub(super) async fn plan_exec(&self, argv: &[&str]) -> Call {
        self.plan("process.exec", serde_json::json!({ "argv": argv })).await
    }

    pub(super) fn order(&self, call: &Call, receipt: Option<&Signed>) -> wire::ExecuteRequest {
        wire::ExecuteRequest {
            owner: Some(self.owner.clone()),
            call: Some(self.target(call.id)),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            plan_digest: call.digest().as_bytes().to_vec(),
            after_output_offset: 0,
            receipts: receipt.iter().map(|signed| signed.to_bytes().unwrap()).collect(),
        }
    }

    /// With everybody's receipts.
    pub(super) async fn execute_with(&self, call: &Call, receipts: &[&Receipt]) -> Told {
        let signed = |receipt: &&Receipt| self.world.sign(*receipt).to_bytes().unwrap();
        let receipts = receipts.iter().map(signed).collect();
        let order = wire::ExecuteRequest { receipts, ..self.order(call, None) };
        self.send(order).await.unwrap()
    }

    pub(super) async fn revoke(&self, receipt: ReceiptId) -> Result<(), Fault> {
        let request = wire::RevokeReceiptRequest {
            owner: Some(self.owner.clone()),
            run_id: self.run.to_string(),
            receipt_id: receipt.to_string(),
        };
        let request = transport::deadline::request(request, LIMIT);
        self.world.client.clone().revoke_receipt(request).await?;
        Ok(())
    }

    pub(super) async fn stream(
        &self,
        order: wire::ExecuteRequest,
    ) -> Result<tonic::Streaming<wire::ExecuteResponse>, Fault> {
        let request = transport::deadline::request(order, LIMIT);
        Ok(self.world.client.clone().execute(request).await?.into_inner())
    }

    /// Everything that an Execute says.
    pub(super) async fn send(&self, order: wire::ExecuteRequest) -> Result<Told, Fault> {
        read(self.stream(order).await?).await
    }

    pub(super) async fn execute(&self, call: &Call, receipt: Option<&Signed>) -> Told {
        self.send(self.order(call, receipt)).await.unwrap()
    }

    /// Plans and runs a command that nobody is asked about.
    pub(super) async fn exec(&self, argv: &[&str]) -> Told {
        let call = self.plan_exec(argv).await;
        self.execute(&call, None).await
    }

    pub(super) async fn sh(&self, script: &str) -> Told {
        self.exec(&["sh", "-c", script]).await
    }

    pub(super) async fn cancel(&self, call: CallId) -> bool {
        let request =
            wire::CancelRequest { owner: Some(self.owner.clone()), call_id: call.to_string() };
        let request = transport::deadline::request(request, LIMIT);
        self.world.client.clone().cancel(request).await.unwrap().into_inner().was_running
    }

    pub(super) async fn look_up(&self, call: CallId) -> wire::get_execution_response::State {
        let request = wire::GetExecutionRequest {
            owner: Some(self.owner.clone()),
            call_id: call.to_string(),
        };
        let request = transport::deadline::request(request, LIMIT);
        self.world.client.clone().get_execution(request).await.unwrap().into_inner().state.unwrap()
    }

    /// A receipt for exactly this call.
    pub(super) fn receipt(&self, call: &Call, scope: Scope) -> Receipt {
        let now = now_secs();
        Receipt {
            id: ReceiptId::new(),
            tenant: TENANT.to_owned(),
            session: self.session,
            run: self.run,
            call: call.id,
            permission: PermissionId::new(),
            plan: call.digest(),
            action: call.plan.action_digest().unwrap(),
            scope,
            subject: "ada".to_owned(),
            roles: [receipt::Role::Operator].into(),
            approval: None,
            audience: Executor::SandboxSvc,
            iat: now,
            exp: now + 600,
        }
    }

    pub(super) fn approve(&self, call: &Call) -> Signed {
        self.world.sign(&self.receipt(call, Scope::Once))
    }

    pub(super) fn stream_id(&self) -> String {
        self.session.to_string()
    }

    /// Where the private copy is on this host.
    pub(super) fn copy(&self) -> PathBuf {
        self.world.sandbox().environment(self.session, self.run).unwrap().place.copy()
    }
}

pub(super) async fn read(
    mut stream: tonic::Streaming<wire::ExecuteResponse>,
) -> Result<Told, Fault> {
    let (mut started, mut output) = (None, Vec::new());
    loop {
        match stream.message().await?.expect("a finish comes last").message.unwrap() {
            Message::Started(wire::Started { data }) => started = Some(data),
            Message::Output(piece) => output.push(piece),
            Message::Finished(finished) => return Ok(Told { started, output, finished }),
        }
    }
}
