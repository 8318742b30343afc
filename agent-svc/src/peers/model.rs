//! model-svc: model turns, and remote tools by plan and execution.

use event::Digest;
use event::id::CallId;
use proto::common::v1::Tool;
use proto::model::v1 as model;
use proto::model::v1::model_service_client::ModelServiceClient;
use receipt::Signed;
use tonic::Streaming;
use transport::{Fault, PeerChannel, deadline};

use super::{LONG, MAX_MESSAGE, SHORT, STREAM, Target, call, owner, signed};
use crate::store::Owner;

#[derive(Debug, Clone)]
pub(crate) struct Model(ModelServiceClient<PeerChannel>);

/// One model turn, each attempt under a call id of its own.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) model: String,
    pub(crate) step: u32,
    pub(crate) attempt: u32,
    pub(crate) messages: Vec<model::Message>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) max_output_tokens: u64,
}

impl Model {
    pub(super) fn new(channel: PeerChannel) -> Self {
        Self(
            ModelServiceClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
    }

    pub(super) async fn fence(
        &self,
        by: Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Vec<Tool>, Fault> {
        let request = model::FenceRequest {
            owner: Some(owner(by)),
            grant: Some(signed(grant)),
            manifest: manifest.to_vec(),
        };
        Ok(self.0.clone().fence(deadline::request(request, SHORT)).await?.into_inner().tools)
    }

    /// Dropping the stream cancels the turn.
    pub(crate) async fn complete(
        &self,
        by: Owner,
        target: Target,
        turn: &Turn,
    ) -> Result<Streaming<model::CompleteResponse>, Fault> {
        let Turn { model, step, attempt: _, messages, tools, max_output_tokens } = turn.clone();
        let request = model::CompleteRequest {
            owner: Some(owner(by)),
            call: Some(call(target)),
            model,
            step,
            messages,
            tools,
            max_output_tokens,
        };
        Ok(self.0.clone().complete(deadline::request(request, STREAM)).await?.into_inner())
    }

    pub(crate) async fn completion(
        &self,
        by: Owner,
        id: CallId,
    ) -> Result<model::GetCompletionResponse, Fault> {
        let request =
            model::GetCompletionRequest { owner: Some(owner(by)), call_id: id.to_string() };
        Ok(self.0.clone().get_completion(deadline::request(request, SHORT)).await?.into_inner())
    }

    pub(crate) async fn plan(
        &self,
        by: Owner,
        target: Target,
        tool: &str,
        arguments: &[u8],
    ) -> Result<model::PlanResponse, Fault> {
        let request = model::PlanRequest {
            owner: Some(owner(by)),
            call: Some(call(target)),
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
        };
        Ok(self.0.clone().plan(deadline::request(request, LONG)).await?.into_inner())
    }

    /// The same call id attaches to what runs already.
    pub(crate) async fn execute(
        &self,
        by: Owner,
        target: Target,
        (tool, arguments): (&str, &[u8]),
        plan: Digest,
        receipt: Option<&Signed>,
    ) -> Result<Streaming<model::ExecuteResponse>, Fault> {
        let request = model::ExecuteRequest {
            owner: Some(owner(by)),
            call: Some(call(target)),
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
            plan_digest: plan.as_bytes().to_vec(),
            receipt: receipt.map(signed),
        };
        Ok(self.0.clone().execute(deadline::request(request, STREAM)).await?.into_inner())
    }
}
