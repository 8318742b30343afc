//! A model that says what a test wrote for each step. What it has answered it remembers, as model-svc does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proto::common::v1 as common;
use proto::model::v1 as wire;
use proto::model::v1::model_service_server::ModelService;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use transport::TaskTracker;

use super::sandbox::Fences;

/// What it says in one step.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    Say(&'static str),
    Call(Vec<(&'static str, serde_json::Value)>),
    Raw(Box<wire::Answer>),
    Fail(&'static str),
    /// The same, with the provider's status and name of the request.
    Reply(&'static str, u32, &'static str),
    /// It answers only once the test lets it.
    Wait(&'static str),
    /// The same, and when nobody waits any more it gives up and says so.
    Abort(&'static str),
}

/// One call of one tool.
pub(crate) fn call(tool: &'static str, arguments: serde_json::Value) -> Turn {
    Turn::Call(vec![(tool, arguments)])
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) fences: Fences,
    pub(crate) gate: watch::Sender<bool>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) script: Vec<Turn>,
    /// What it says where the first message is this.
    pub(crate) asked_for: BTreeMap<&'static str, Vec<Turn>>,
    /// How often each call reached a provider.
    pub(crate) asked: BTreeMap<String, u32>,
    pub(crate) requests: Vec<wire::CompleteRequest>,
    known: BTreeMap<String, Known>,
}

#[derive(Debug, Clone)]
enum Known {
    Running,
    Answered(wire::Answer),
    Failed(wire::ModelError),
    InDoubt,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            fences: Fences::default(),
            gate: watch::Sender::new(false),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn script(&self, turns: impl Into<Vec<Turn>>) {
        self.state.lock().unwrap().script = turns.into();
    }

    /// What it says to a child of this task.
    pub(crate) fn child(&self, task: &'static str, turns: impl Into<Vec<Turn>>) {
        self.state.lock().unwrap().asked_for.insert(task, turns.into());
    }

    /// A call that is asked about, and a last word.
    pub(crate) fn one_call(&self) {
        let arguments = serde_json::json!({ "argv": ["true"] });
        self.script([Turn::Call(vec![("process.exec", arguments)]), Turn::Say("done")]);
    }

    /// The attempt that each request says it is.
    pub(crate) fn attempts(&self) -> Vec<u32> {
        let state = self.state.lock().unwrap();
        state.requests.iter().map(|request| request.call.as_ref().unwrap().attempt).collect()
    }

    /// Nobody waits for an answer any more.
    pub(crate) async fn once_left(&self) {
        super::mesh::eventually("the caller has left", || {
            let state = self.state.lock().unwrap();
            !state.known.values().any(|known| matches!(known, Known::Running))
        })
        .await;
    }

    /// What the model was shown with its latest request.
    pub(crate) fn shown(&self) -> Vec<wire::Message> {
        self.state.lock().unwrap().requests.last().unwrap().messages.clone()
    }
}

fn first_word(request: &wire::CompleteRequest) -> String {
    let user = request.messages.iter().find_map(|message| match &message.message {
        Some(wire::message::Message::User(wire::Text { text })) => Some(text.clone()),
        _ => None,
    });
    user.unwrap_or_default()
}

fn usage() -> common::Usage {
    common::Usage { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
}

fn said(text: &str) -> wire::Answer {
    wire::Answer {
        model: "scripted".to_owned(),
        finish: wire::Finish::Stop.into(),
        text: text.to_owned(),
        usage: Some(usage()),
        ..wire::Answer::default()
    }
}

fn called(calls: &[(&str, serde_json::Value)]) -> wire::Answer {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| wire::ToolCall {
        provider_id: format!("call-{at}"),
        name: (*name).to_owned(),
        arguments: arguments.to_string().into_bytes(),
    });
    wire::Answer { finish: wire::Finish::ToolCalls.into(), calls: calls.collect(), ..said("") }
}

fn aborted() -> wire::ModelError {
    wire::ModelError {
        kind: "MODEL_ABORTED".to_owned(),
        retryable: true,
        billed: true,
        usage: Some(usage()),
        ..wire::ModelError::default()
    }
}

fn failed(kind: &str, status: u32, request_id: &str) -> wire::ModelError {
    let (kind, request_id) = (kind.to_owned(), request_id.to_owned());
    wire::ModelError { kind, status, request_id, ..wire::ModelError::default() }
}

/// Each call of a turn is answered once, and nothing is answered that was not called.
fn assert_paired(messages: &[wire::Message]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message.message.as_ref().unwrap() {
            wire::message::Message::Assistant(assistant) => {
                assert!(open.is_empty(), "a call was not answered: {open:?}");
                open.extend(assistant.calls.iter().map(|call| call.provider_id.as_str()));
            }
            wire::message::Message::Tool(reply) => {
                let at = open.iter().position(|id| *id == reply.provider_id).expect("an open call");
                open.remove(at);
            }
            wire::message::Message::System(_) | wire::message::Message::User(_) => (),
        }
    }
    assert!(open.is_empty(), "a call was not answered: {open:?}");
}

#[tonic::async_trait]
impl ModelService for Model {
    async fn fence(
        &self,
        request: Request<wire::FenceRequest>,
    ) -> Result<Response<wire::FenceResponse>, Status> {
        let owner = request.into_inner().owner.unwrap();
        let epoch = self.fences.raise(&owner)?;
        Ok(Response::new(wire::FenceResponse { epoch, ..wire::FenceResponse::default() }))
    }

    async fn list_models(
        &self,
        _: Request<wire::ListModelsRequest>,
    ) -> Result<Response<wire::ListModelsResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }

    type CompleteStream = ReceiverStream<Result<wire::CompleteResponse, Status>>;

    async fn complete(
        &self,
        request: Request<wire::CompleteRequest>,
    ) -> Result<Response<Self::CompleteStream>, Status> {
        let request = request.into_inner();
        self.fences.check(request.owner.as_ref().unwrap())?;
        assert_paired(&request.messages);
        let call = request.call.as_ref().unwrap().call_id.clone();
        let step = usize::try_from(request.step).unwrap();
        let first = first_word(&request);
        let turn = {
            let mut state = self.state.lock().unwrap();
            *state.asked.entry(call.clone()).or_default() += 1;
            state.requests.push(request);
            state.known.insert(call.clone(), Known::Running);
            let script = state.asked_for.get(first.as_str());
            script.unwrap_or(&state.script).get(step).cloned().unwrap_or(Turn::Say("done"))
        };
        let (sender, receiver) = mpsc::channel(16);
        let (state, mut gate) = (Arc::clone(&self.state), self.gate.subscribe());
        self.tasks.spawn(async move {
            let send = |message| {
                let sender = sender.clone();
                async move {
                    let message = wire::CompleteResponse { message: Some(message) };
                    sender.send(Ok(message)).await.is_ok()
                }
            };
            let settle = |known| state.lock().unwrap().known.insert(call.clone(), known);
            let fail = |error: wire::ModelError| {
                settle(Known::Failed(error.clone()));
                let told = send(wire::complete_response::Message::Failed(error));
                async move {
                    told.await;
                }
            };
            let left = match turn {
                Turn::Wait(_) => Some(Known::InDoubt),
                Turn::Abort(_) => Some(Known::Failed(aborted())),
                Turn::Say(_) | Turn::Call(_) | Turn::Raw(_) | Turn::Fail(_) | Turn::Reply(..) => {
                    None
                }
            };
            let answer = match turn {
                Turn::Say(text) | Turn::Wait(text) | Turn::Abort(text) => said(text),
                Turn::Call(calls) => called(&calls),
                Turn::Raw(answer) => *answer,
                Turn::Fail(kind) => return fail(failed(kind, 0, "")).await,
                Turn::Reply(kind, status, id) => return fail(failed(kind, status, id)).await,
            };
            if let Some(left) = left {
                tokio::select! {
                    opened = gate.wait_for(|open| *open) => drop(opened),
                    () = sender.closed() => {
                        settle(left);
                        return;
                    }
                }
            }
            for word in answer.text.split_inclusive(' ') {
                let delta = wire::Text { text: word.to_owned() };
                send(wire::complete_response::Message::Delta(delta)).await;
            }
            settle(Known::Answered(answer.clone()));
            send(wire::complete_response::Message::Answer(answer)).await;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_completion(
        &self,
        request: Request<wire::GetCompletionRequest>,
    ) -> Result<Response<wire::GetCompletionResponse>, Status> {
        use wire::get_completion_response::State;
        let wire::GetCompletionRequest { owner, call_id } = request.into_inner();
        self.fences.check(&owner.unwrap())?;
        let known = self.state.lock().unwrap().known.get(&call_id).cloned();
        let state = match known {
            None => State::NotFound(common::Empty {}),
            Some(Known::Running) => State::Running(common::Empty {}),
            Some(Known::Answered(answer)) => State::Answer(answer),
            Some(Known::Failed(error)) => State::Failed(error),
            Some(Known::InDoubt) => State::InDoubt(common::Empty {}),
        };
        Ok(Response::new(wire::GetCompletionResponse { state: Some(state) }))
    }

    async fn plan(
        &self,
        _: Request<wire::PlanRequest>,
    ) -> Result<Response<wire::PlanResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }

    type ExecuteStream = ReceiverStream<Result<wire::ExecuteResponse, Status>>;

    async fn execute(
        &self,
        _: Request<wire::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        Err(Status::unimplemented("not played"))
    }
}
