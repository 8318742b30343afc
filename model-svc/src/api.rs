//! Where transport ends: requests are parsed into this service's own types by taking them apart, and answers are put
//! together. Nothing is decided here.

mod wire;

use std::pin::Pin;
use std::sync::Arc;

use event::Stage;
use futures::stream::{self, Stream};
use proto::common::v1 as common;
use proto::model::v1 as model;
use proto::model::v1::model_service_server::{ModelService, ModelServiceServer};
use tonic::{Request, Response, Status};
use transport::Service::AgentSvc;
use transport::authz::{Caller, Mismatch, Row, Table};

use crate::desk::{About, Desk, Reply, Standing};

const SERVICE: &str = "harness.model.v1.ModelService";
/// More than a provider is ever sent, so that what is too large for one is told by its own name.
const MAX_REQUEST: usize = 6 * 1024 * 1024;
const AGENT: &[Caller] = &[Caller::Service(AgentSvc)];

/// The whole table of model-svc.
pub const CALLERS: &[Row] = &[
    Row { method: "/harness.model.v1.ModelService/Fence", callers: AGENT },
    Row { method: "/harness.model.v1.ModelService/ListModels", callers: AGENT },
    Row { method: "/harness.model.v1.ModelService/Complete", callers: AGENT },
    Row { method: "/harness.model.v1.ModelService/GetCompletion", callers: AGENT },
    Row { method: "/harness.model.v1.ModelService/Plan", callers: AGENT },
    Row { method: "/harness.model.v1.ModelService/Execute", callers: AGENT },
];

pub(crate) fn table() -> Result<Table, Mismatch> {
    Table::new(CALLERS, proto::DESCRIPTORS, &[SERVICE])
}

pub(crate) fn server(desk: Arc<Desk>) -> ModelServiceServer<Api> {
    ModelServiceServer::new(Api { desk }).max_decoding_message_size(MAX_REQUEST)
}

#[derive(Debug)]
pub(crate) struct Api {
    desk: Arc<Desk>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A stream of one message, which is awaited when the stream is read.
fn only<T: 'static>(
    message: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Response<Streamed<T>> {
    Response::new(Box::pin(stream::once(message)))
}

#[tonic::async_trait]
impl ModelService for Api {
    async fn fence(
        &self,
        request: Request<model::FenceRequest>,
    ) -> Result<Response<model::FenceResponse>, Status> {
        let (owner, grant, manifest) = wire::fence(request.into_inner())?;
        let terms = self.desk.fence(&owner, &grant, &manifest).await?;
        Ok(Response::new(model::FenceResponse {
            epoch: owner.epoch,
            tools: Vec::new(),
            models: terms.models,
        }))
    }

    async fn list_models(
        &self,
        request: Request<model::ListModelsRequest>,
    ) -> Result<Response<model::ListModelsResponse>, Status> {
        let model::ListModelsRequest { owner } = request.into_inner();
        let models = self.desk.list_models(&wire::owner(owner)?).await?;
        Ok(Response::new(model::ListModelsResponse { models }))
    }

    type CompleteStream = Streamed<model::CompleteResponse>;

    async fn complete(
        &self,
        request: Request<model::CompleteRequest>,
    ) -> Result<Response<Self::CompleteStream>, Status> {
        let (owner, turn) = wire::turn(request.into_inner())?;
        match self.desk.complete(owner, turn).await? {
            Reply::NotBegun(failure) => Ok(only(async { Ok(wire::failed(failure)) })),
            Reply::Attached(mut attachment) => {
                attachment.begun().await.map_err(|refusal| transport::to_status(&*refusal))?;
                Ok(only(async move {
                    match attachment.outcome().await {
                        Ok(outcome) => Ok(wire::outcome((*outcome).clone())),
                        Err(refusal) => Err(transport::to_status(&*refusal)),
                    }
                }))
            }
        }
    }

    async fn get_completion(
        &self,
        request: Request<model::GetCompletionRequest>,
    ) -> Result<Response<model::GetCompletionResponse>, Status> {
        let model::GetCompletionRequest { owner, call_id } = request.into_inner();
        let owner = wire::owner(owner)?;
        let call = wire::call_id(&call_id)?;
        let state = match self.desk.standing(&owner, call).await? {
            Standing::Unknown => model::get_completion_response::State::NotFound(common::Empty {}),
            Standing::Running => model::get_completion_response::State::Running(common::Empty {}),
            Standing::Done(outcome) => wire::state(*outcome),
            Standing::InDoubt => model::get_completion_response::State::InDoubt(common::Empty {}),
        };
        Ok(Response::new(model::GetCompletionResponse { state: Some(state) }))
    }

    async fn plan(
        &self,
        request: Request<model::PlanRequest>,
    ) -> Result<Response<model::PlanResponse>, Status> {
        let model::PlanRequest { owner, call, tool, arguments: _ } = request.into_inner();
        let owner = wire::owner(owner)?;
        let call = Some(wire::call_ids(call)?.call);
        let about = About { stage: Stage::Plan, call, tool: Some(&tool), plan: None };
        let reason = self.desk.refuse_tool(&owner, &about).await?;
        let outcome = model::plan_response::Outcome::Refused(wire::refused(reason));
        Ok(Response::new(model::PlanResponse { outcome: Some(outcome) }))
    }

    type ExecuteStream = Streamed<model::ExecuteResponse>;

    async fn execute(
        &self,
        request: Request<model::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let model::ExecuteRequest { owner, call, tool, arguments: _, plan_digest, receipt: _ } =
            request.into_inner();
        let owner = wire::owner(owner)?;
        let call = Some(wire::call_ids(call)?.call);
        let plan = Some(wire::digest(&plan_digest)?);
        let about = About { stage: Stage::Execute, call, tool: Some(&tool), plan };
        let reason = self.desk.refuse_tool(&owner, &about).await?;
        let outcome = model::finished::Outcome::Refused(wire::refused(reason));
        let finished = model::Finished { outcome: Some(outcome), duration_ms: 0 };
        let message = model::execute_response::Message::Finished(finished);
        Ok(only(async { Ok(model::ExecuteResponse { message: Some(message) }) }))
    }
}
