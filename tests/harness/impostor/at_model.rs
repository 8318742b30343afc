//! The impostor's calls to model-svc: turns, remote tools and the fence before them. It never repairs an answer.

use anyhow::{Context as _, Result, bail};
use event::Digest;
use event::id::CallId;
use proto::model::v1 as model;
use receipt::Signed;
use transport::Fault;

use super::{Impostor, refused, wire};
use crate::PATIENCE;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Completed {
    Said(String),
    Failed(String),
}

impl Impostor {
    pub async fn fence_models(&self, grant: &Signed) -> Result<(), Fault> {
        let request = model::FenceRequest {
            owner: Some(self.owner()),
            grant: Some(wire(grant)),
            manifest: self.manifest.clone(),
        };
        self.models.clone().fence(transport::deadline::request(request, PATIENCE)).await?;
        Ok(())
    }

    /// One turn with one sentence in it; `change` makes it wrong.
    pub async fn complete(
        &self,
        call: CallId,
        name: &str,
        change: impl FnOnce(&mut model::CompleteRequest),
    ) -> Result<Completed, Fault> {
        let text = model::Text { text: "go on".to_owned() };
        let mut request = model::CompleteRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            model: name.to_owned(),
            step: 0,
            messages: vec![model::Message { message: Some(model::message::Message::User(text)) }],
            tools: Vec::new(),
            max_output_tokens: 0,
        };
        change(&mut request);
        let request = transport::deadline::request(request, PATIENCE);
        let mut stream = self.models.clone().complete(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            match message.message {
                Some(model::complete_response::Message::Answer(answer)) => {
                    return Ok(Completed::Said(answer.text));
                }
                Some(model::complete_response::Message::Failed(failed)) => {
                    return Ok(Completed::Failed(failed.kind));
                }
                Some(_) | None => (),
            }
        }
        Err(refused("the stream ended without an outcome"))
    }

    /// Why no remote tool of this name is planned.
    pub async fn plan_remote(&self, call: CallId, tool: &str) -> Result<String> {
        let request = model::PlanRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            tool: tool.to_owned(),
            arguments: b"{}".to_vec(),
        };
        let request = transport::deadline::request(request, PATIENCE);
        let answer = self.models.clone().plan(request).await.map_err(Fault::from)?;
        match answer.into_inner().outcome.context("an outcome")? {
            model::plan_response::Outcome::Refused(refused) => Ok(refused.reason),
            model::plan_response::Outcome::Planned(_) => bail!("{tool} was planned"),
        }
    }

    /// Why no remote tool of this name is carried out, whatever is attached.
    pub async fn execute_remote(
        &self,
        call: CallId,
        tool: &str,
        plan: Digest,
        receipt: Option<&Signed>,
    ) -> Result<String> {
        let request = model::ExecuteRequest {
            owner: Some(self.owner()),
            call: Some(self.call(call)),
            tool: tool.to_owned(),
            arguments: b"{}".to_vec(),
            plan_digest: plan.as_bytes().to_vec(),
            receipt: receipt.map(wire),
        };
        let request = transport::deadline::request(request, PATIENCE);
        let stream = self.models.clone().execute(request).await.map_err(Fault::from)?;
        let first = stream.into_inner().message().await.map_err(Fault::from)?;
        match first.and_then(|response| response.message).context("a message")? {
            model::execute_response::Message::Finished(model::Finished {
                outcome: Some(model::finished::Outcome::Refused(refused)),
                ..
            }) => Ok(refused.reason),
            other => bail!("{tool} was not refused: {other:?}"),
        }
    }
}
