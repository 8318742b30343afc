//! The gRPC surface: messages become typed requests here, and answers become messages. It decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use event::id::{CallId, NotAnId, ReceiptId, RunId, SessionId};
use event::{Digest, Stage};
use futures::stream::{BoxStream, StreamExt as _};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::sandbox_service_server::SandboxService;
use receipt::{MAX_RECEIPTS, Signed};
use tonic::{Request, Response, Status};
use transport::authz::{Caller, Row};
use transport::{Public as _, Service, to_status};

use crate::calls::{Answer, Order, Target};
use crate::error::Error;
use crate::patch_stream::{self, Form, Wanted};
use crate::sandbox::Sandbox;
use crate::session::{Owner, Session};
use crate::tool::Tool;
use crate::tree::{NotCarried, RelPath};

const AGENT: &[Caller] = &[Caller::Service(Service::AgentSvc)];

/// Who may call what: agent-svc, and nobody else.
pub const CALLERS: &[Row] = &[
    Row { method: "/harness.sandbox.v1.SandboxService/Fence", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/OpenEnvironment", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/CloseEnvironment", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/Plan", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/Execute", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/GetExecution", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/GetPatch", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/Cancel", callers: AGENT },
    Row { method: "/harness.sandbox.v1.SandboxService/RevokeReceipt", callers: AGENT },
];

pub(crate) const SERVICE: &str = "harness.sandbox.v1.SandboxService";
const WITHHELD_BYTES: usize = 1024 * 1024;
const MESSAGE_OVERHEAD: usize = 8;
const NODE_BYTES: usize = 128;
const TOOL_BYTES: usize = 128;
const CLAIM_CHARACTERS: usize = 64;
const PATHS: usize = 500;

#[derive(Debug, Clone)]
pub(crate) struct Api(pub(crate) Arc<Sandbox>);

type Responses<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl SandboxService for Api {
    async fn fence(
        &self,
        request: Request<wire::FenceRequest>,
    ) -> Result<Response<wire::FenceResponse>, Status> {
        let wire::FenceRequest { owner: claimed, grant, manifest } = request.into_inner();
        let claim = claimed.as_ref().map(|owner| owner.session_id.clone()).unwrap_or_default();
        let fenced = async {
            let owner = owner(claimed)?;
            let grant = signed(grant.ok_or(Error::Request("grant is missing"))?);
            let session = self.0.sessions.fence(&owner, &grant, &manifest).await?;
            let execution = &session.manifest.execution;
            let tools = Tool::offered(execution).map(|tool| tool.to_wire(execution));
            Ok(wire::FenceResponse { epoch: owner.epoch, tools: tools.collect() })
        };
        match fenced.await {
            Ok(response) => Ok(Response::new(response)),
            Err(error) => Err(self.refused_fence(&claim, error).await),
        }
    }

    async fn open_environment(
        &self,
        request: Request<wire::OpenEnvironmentRequest>,
    ) -> Result<Response<wire::OpenEnvironmentResponse>, Status> {
        let wire::OpenEnvironmentRequest { owner: claimed, run_id } = request.into_inner();
        let opened = async {
            let (owner, run) = (owner(claimed)?, run(&run_id)?);
            let session = self.0.held_for(&owner, Stage::Fence).await?;
            match self.0.open(&session, run).await {
                Ok(opened) => Ok(opened),
                Err(error) => Err(self.refused_run(&session, error).await),
            }
        };
        let opened = opened.await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::OpenEnvironmentResponse {
            base_digest: opened.base.as_bytes().to_vec(),
            withheld: withheld(opened.withheld),
        }))
    }

    async fn close_environment(
        &self,
        request: Request<wire::CloseEnvironmentRequest>,
    ) -> Result<Response<wire::CloseEnvironmentResponse>, Status> {
        let wire::CloseEnvironmentRequest { owner: claimed, run_id } = request.into_inner();
        let closed = async {
            let (owner, run) = (owner(claimed)?, run(&run_id)?);
            let session = self.0.held_for(&owner, Stage::Fence).await?;
            match self.0.close(session.id, run).await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.refused_run(&session, error).await),
            }
        };
        closed.await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::CloseEnvironmentResponse {}))
    }

    async fn plan(
        &self,
        request: Request<wire::PlanRequest>,
    ) -> Result<Response<wire::PlanResponse>, Status> {
        let wire::PlanRequest { owner: claimed, call, tool, arguments } = request.into_inner();
        let planned = async {
            let (owner, target) = (owner(claimed)?, target(call)?);
            self.0.plan(&owner, target, bounded(&tool)?, &arguments).await
        };
        let outcome = match planned.await.map_err(|error| to_status(&error))? {
            Answer::Planned { plan, result } => {
                let result = result.map(|json| common::ToolResult { json });
                wire::plan_response::Outcome::Planned(wire::Planned { plan, result })
            }
            Answer::Refused(refusal) => wire::plan_response::Outcome::Refused(common::Refused {
                reason: refusal.reason.as_str().to_owned(),
                detail: refusal.detail,
            }),
        };
        Ok(Response::new(wire::PlanResponse { outcome: Some(outcome) }))
    }

    type ExecuteStream = Responses<wire::ExecuteResponse>;

    async fn execute(
        &self,
        request: Request<wire::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let wire::ExecuteRequest {
            owner: claimed,
            call,
            tool,
            arguments,
            plan_digest,
            after_output_offset,
            receipts,
        } = request.into_inner();
        let executed = async {
            let (owner, target) = (owner(claimed)?, target(call)?);
            bounded(&tool)?;
            let plan_digest = Digest::from_bytes(&plan_digest)
                .map_err(|_| Error::Request("plan_digest is not 32 bytes"))?;
            let receipts = parse_receipts(&receipts)?;
            let order =
                Order { target, tool, arguments, plan_digest, receipts, after_output_offset };
            self.0.execute(&owner, order).await
        };
        let responses = executed.await.map_err(|error| to_status(&error))?;
        let responses = responses.map(|response| response.map_err(|error| to_status(&error)));
        Ok(Response::new(responses.boxed()))
    }

    async fn get_execution(
        &self,
        request: Request<wire::GetExecutionRequest>,
    ) -> Result<Response<wire::GetExecutionResponse>, Status> {
        let wire::GetExecutionRequest { owner: claimed, call_id } = request.into_inner();
        let found = async {
            let (owner, call) = (owner(claimed)?, call_id_of(&call_id)?);
            self.0.look_up(&owner, call).await
        };
        let state = match found.await.map_err(|error| to_status(&error))? {
            None => wire::get_execution_response::State::NotFound(common::Empty {}),
            Some(None) => wire::get_execution_response::State::Running(common::Empty {}),
            Some(Some(finished)) => wire::get_execution_response::State::Finished(finished),
        };
        Ok(Response::new(wire::GetExecutionResponse { state: Some(state) }))
    }

    type GetPatchStream = Responses<wire::GetPatchResponse>;

    async fn get_patch(
        &self,
        request: Request<wire::GetPatchRequest>,
    ) -> Result<Response<Self::GetPatchStream>, Status> {
        let wire::GetPatchRequest { owner: claimed, run_id, patch_digest, paths, form } =
            request.into_inner();
        let found = async {
            let (owner, run) = (owner(claimed)?, run(&run_id)?);
            let digest = match patch_digest.as_str() {
                "" => None,
                text => {
                    Some(text.parse().map_err(|_| Error::Request("patch_digest is no digest"))?)
                }
            };
            let session = self.0.held_for(&owner, Stage::Fence).await?;
            let form = match wire::PatchForm::try_from(form) {
                Ok(wire::PatchForm::Shown) => Form::Shown,
                Ok(wire::PatchForm::Git) => Form::Git,
                Ok(wire::PatchForm::Unspecified) | Err(_) => {
                    return Err(Error::Request("form is unknown"));
                }
            };
            let paths = paths_of(&paths)?;
            patch_stream::open(&self.0, &session, Wanted { run, digest, paths, form }).await
        };
        let parts = found.await.map_err(|error| to_status(&error))?;
        Ok(Response::new(parts.map(|part| part.map_err(|error| to_status(&error))).boxed()))
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        let wire::CancelRequest { owner: claimed, call_id } = request.into_inner();
        let canceled = async {
            let (owner, call) = (owner(claimed)?, call_id_of(&call_id)?);
            self.0.cancel(&owner, call).await
        };
        let was_running = canceled.await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::CancelResponse { was_running }))
    }

    async fn revoke_receipt(
        &self,
        request: Request<wire::RevokeReceiptRequest>,
    ) -> Result<Response<wire::RevokeReceiptResponse>, Status> {
        let wire::RevokeReceiptRequest { owner: claimed, run_id, receipt_id } =
            request.into_inner();
        let revoked = async {
            let (owner, run) = (owner(claimed)?, run(&run_id)?);
            let receipt: ReceiptId =
                receipt_id.parse().map_err(|_| Error::Request("receipt_id is no id"))?;
            let session = self.0.held_for(&owner, Stage::Fence).await?;
            match self.0.revoke(&session, run, receipt).await {
                Ok(()) => Ok(()),
                Err(error) => Err(self.refused_run(&session, error).await),
            }
        };
        revoked.await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::RevokeReceiptResponse {}))
    }
}

impl Api {
    /// A refused grant is on record, though nobody is proven.
    async fn refused_fence(&self, claim: &str, error: Error) -> Status {
        let told = match error {
            error @ (Error::Grant { .. } | Error::Session { .. } | Error::FenceStale) => {
                let claim = claim.chars().take(CLAIM_CHARACTERS).collect();
                self.recorded(None, claim, error).await
            }
            error => error,
        };
        to_status(&told)
    }

    /// What is refused about a run is on record in the session's stream.
    async fn refused_run(&self, session: &Session, error: Error) -> Error {
        match error {
            error @ (Error::GrantExpired
            | Error::RunUnknown
            | Error::EnvironmentLost(_)
            | Error::Session { .. }
            | Error::WorkspaceTooLarge(_)) => {
                self.recorded(Some(session), session.id.to_string(), error).await
            }
            error => error,
        }
    }

    /// What cannot be recorded is what the caller is told instead.
    async fn recorded(&self, proven: Option<&Session>, session_id: String, error: Error) -> Error {
        let refused = event::CallRefused {
            call_id: None,
            session_id,
            tool: None,
            stage: Stage::Fence,
            reason: error.reason().to_owned(),
            plan_digest: None,
            differs: None,
        };
        match self.0.refuse(proven, refused).await {
            Ok(_) => error,
            Err(unrecorded) => unrecorded,
        }
    }
}

/// As many as fit into an answer; a plan's snapshot says how many there are.
fn withheld(entries: Vec<NotCarried>) -> Vec<wire::Withheld> {
    let mut bytes = 0;
    let fits = |entry: &NotCarried| {
        bytes += entry.path.as_bytes().len() + entry.reason.as_str().len() + MESSAGE_OVERHEAD;
        bytes <= WITHHELD_BYTES
    };
    let message = |entry: NotCarried| wire::Withheld {
        path: entry.path.as_bytes().to_vec(),
        reason: entry.reason.as_str().to_owned(),
    };
    entries.into_iter().take_while(fits).map(message).collect()
}

fn paths_of(paths: &[Vec<u8>]) -> Result<BTreeSet<RelPath>, Error> {
    if paths.len() > PATHS {
        return Err(Error::Request("there are too many paths"));
    }
    let path = |bytes: &Vec<u8>| {
        RelPath::parse(bytes).map_err(|_| Error::Request("a path names no place in the workspace"))
    };
    paths.iter().map(path).collect()
}

fn owner(owner: Option<common::Owner>) -> Result<Owner, Error> {
    let common::Owner { session_id, node, epoch } =
        owner.ok_or(Error::Request("owner is missing"))?;
    let session =
        SessionId::parse(&session_id).map_err(|_| Error::Request("session_id is no id"))?;
    if session.is_nil() || node.is_empty() || node.len() > NODE_BYTES || epoch == 0 {
        return Err(Error::Request("owner names no session, node or epoch"));
    }
    Ok(Owner { session, node, epoch })
}

fn target(call: Option<common::Call>) -> Result<Target, Error> {
    let common::Call { run_id, call_id, attempt, start_before_ms } =
        call.ok_or(Error::Request("call is missing"))?;
    Ok(Target { run: run(&run_id)?, call: call_id_of(&call_id)?, attempt, start_before_ms })
}

fn run(text: &str) -> Result<RunId, Error> {
    let parsed: Result<RunId, NotAnId> = RunId::parse(text);
    parsed.ok().filter(|run| !run.is_nil()).ok_or(Error::Request("run_id is no id"))
}

fn call_id_of(text: &str) -> Result<CallId, Error> {
    let parsed: Result<CallId, NotAnId> = CallId::parse(text);
    parsed.ok().filter(|call| !call.is_nil()).ok_or(Error::Request("call_id is no id"))
}

fn bounded(tool: &str) -> Result<&str, Error> {
    if tool.len() > TOOL_BYTES { Err(Error::Request("tool is too long")) } else { Ok(tool) }
}

/// Not verified: what does not fit is told of when the plan is admitted.
fn parse_receipts(receipts: &[Vec<u8>]) -> Result<Vec<Signed>, Error> {
    if receipts.len() > MAX_RECEIPTS {
        return Err(Error::Request("there are too many receipts"));
    }
    let parse = |bytes: &Vec<u8>| {
        Signed::parse(bytes).map_err(|_| Error::Request("a receipt cannot be read"))
    };
    receipts.iter().map(parse).collect()
}

fn signed(signed: common::Signed) -> Signed {
    let common::Signed { payload, signature, chain } = signed;
    Signed { payload, signature, chain }
}
