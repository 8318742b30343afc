//! Between protobuf and this service's types. Every message is taken apart by name, so that a new member does not compile
//! until somebody has thought about it.

use event::Digest;
use event::canon;
use event::id::{CallId, RunId, SessionId};
use prost::Message as _;
use proto::common::v1 as common;
use proto::model::v1 as model;
use proto::model::v1::message::Message as WireMessage;
use receipt::Signed;

use crate::owner::Owner;
use crate::refusal::Refusal;
use crate::turn::{Answer, Failure, Finish, Message, Outcome, Tool, ToolCall, Turn, Usage};

const MAX_NODE: usize = 128;
const MAX_MODEL: usize = 256;
const REQUEST_DOMAIN: &str = "harness.completion.v1";

fn wrong(field: &'static str, expected: &'static str) -> Refusal {
    Refusal::Request { field, expected }
}

pub(super) fn owner(owner: Option<common::Owner>) -> Result<Owner, Refusal> {
    let common::Owner { session_id, node, epoch } =
        owner.ok_or_else(|| wrong("owner", "present"))?;
    let session = SessionId::parse(&session_id)
        .ok()
        .filter(|session| !session.is_nil())
        .ok_or_else(|| wrong("owner.session_id", "a UUID"))?;
    let named = (1..=MAX_NODE).contains(&node.len()) && !node.chars().any(char::is_control);
    if !named {
        return Err(wrong("owner.node", "a name of 1 to 128 bytes"));
    }
    if i64::try_from(epoch).is_err() {
        return Err(wrong("owner.epoch", "less than 2^63"));
    }
    Ok(Owner { session, node, epoch })
}

pub(super) fn fence(request: model::FenceRequest) -> Result<(Owner, Signed, Vec<u8>), Refusal> {
    let model::FenceRequest { owner: by, grant, manifest } = request;
    let common::Signed { payload, signature, chain } =
        grant.ok_or_else(|| wrong("grant", "present"))?;
    Ok((owner(by)?, Signed { payload, signature, chain }, manifest))
}

/// The ids of a call.
pub(super) struct Call {
    run: RunId,
    pub(super) call: CallId,
    attempt: u32,
    start_before_ms: i64,
}

pub(super) fn call_ids(call: Option<common::Call>) -> Result<Call, Refusal> {
    let common::Call { run_id, call_id: id, attempt, start_before_ms } =
        call.ok_or_else(|| wrong("call", "present"))?;
    let run = RunId::parse(&run_id).map_err(|_| wrong("call.run_id", "a UUID"))?;
    Ok(Call { run, call: call_id(&id)?, attempt, start_before_ms })
}

pub(super) fn call_id(text: &str) -> Result<CallId, Refusal> {
    CallId::parse(text).map_err(|_| wrong("call_id", "a UUID"))
}

pub(super) fn digest(bytes: &[u8]) -> Result<Digest, Refusal> {
    Digest::from_bytes(bytes).map_err(|_| wrong("plan_digest", "32 bytes"))
}

pub(super) fn turn(request: model::CompleteRequest) -> Result<(Owner, Turn), Refusal> {
    let digest = request_digest(&request);
    let model::CompleteRequest {
        owner: by,
        call: of,
        model,
        step,
        messages,
        tools,
        max_output_tokens,
    } = request;
    let owner = owner(by)?;
    let Call { run, call, attempt, start_before_ms } = call_ids(of)?;
    if !(1..=MAX_MODEL).contains(&model.len()) {
        return Err(wrong("model", "a name of 1 to 256 bytes"));
    }
    let messages = messages.into_iter().map(message).collect::<Result<_, _>>()?;
    let tools = tools.into_iter().map(tool).collect::<Result<_, _>>()?;
    let turn = Turn {
        call,
        run,
        attempt,
        start_before_ms,
        model,
        step,
        messages,
        tools,
        max_output_tokens,
        digest,
    };
    Ok((owner, turn))
}

/// Of what is asked and for which session, not of who asks and until when: a new owner asks for the same call.
fn request_digest(request: &model::CompleteRequest) -> Digest {
    let mut request = request.clone();
    if let Some(owner) = &mut request.owner {
        owner.node.clear();
        owner.epoch = 0;
    }
    if let Some(call) = &mut request.call {
        call.start_before_ms = 0;
    }
    Digest::of_parts(REQUEST_DOMAIN, &request.encode_to_vec())
}

fn message(message: model::Message) -> Result<Message, Refusal> {
    Ok(match message.message.ok_or_else(|| wrong("messages", "messages of a known kind"))? {
        WireMessage::System(model::Text { text }) => Message::System(text),
        WireMessage::User(model::Text { text }) => Message::User(text),
        WireMessage::Assistant(model::Assistant { text, calls, opaque }) => {
            if !opaque.is_empty() {
                return Err(wrong(
                    "messages.assistant.opaque",
                    "empty: no model here has made any",
                ));
            }
            let calls = calls.into_iter().map(tool_call).collect::<Result<_, _>>()?;
            Message::Assistant { text, calls }
        }
        // The words of the reply say whether it went well; a provider has no other place for it.
        WireMessage::Tool(model::ToolReply { provider_id, ok: _, content }) => {
            Message::Tool { id: provider_id, content }
        }
    })
}

fn tool_call(call: model::ToolCall) -> Result<ToolCall, Refusal> {
    let model::ToolCall { provider_id, name, arguments } = call;
    let arguments = String::from_utf8(arguments)
        .map_err(|_| wrong("messages.assistant.calls.arguments", "UTF-8"))?;
    Ok(ToolCall { id: provider_id, name, arguments })
}

fn tool(tool: common::Tool) -> Result<Tool, Refusal> {
    let common::Tool { name, description, input_schema } = tool;
    let input_schema = canon::parse_untrusted(&input_schema)
        .map_err(|_| wrong("tools.input_schema", "a JSON object"))?;
    Ok(Tool { name, description, input_schema })
}

pub(super) fn outcome(outcome: Outcome) -> model::CompleteResponse {
    match outcome {
        Outcome::Answered(found) => {
            response(model::complete_response::Message::Answer(answer(found)))
        }
        Outcome::Failed(failure) => failed(failure),
    }
}

pub(super) fn failed(failure: Failure) -> model::CompleteResponse {
    response(model::complete_response::Message::Failed(error(failure)))
}

fn response(message: model::complete_response::Message) -> model::CompleteResponse {
    model::CompleteResponse { message: Some(message) }
}

pub(super) fn state(outcome: Outcome) -> model::get_completion_response::State {
    match outcome {
        Outcome::Answered(found) => model::get_completion_response::State::Answer(answer(found)),
        Outcome::Failed(failure) => model::get_completion_response::State::Failed(error(failure)),
    }
}

fn answer(answer: Answer) -> model::Answer {
    let Answer { model, request_id, finish, text, calls, usage: cost } = answer;
    let finish = match finish {
        Finish::Stop => model::Finish::Stop,
        Finish::ToolCalls => model::Finish::ToolCalls,
        Finish::Length => model::Finish::Length,
    };
    let calls = calls.into_iter().map(|ToolCall { id, name, arguments }| model::ToolCall {
        provider_id: id,
        name,
        arguments: arguments.into_bytes(),
    });
    model::Answer {
        request_id: request_id.unwrap_or_default(),
        model,
        finish: finish.into(),
        text,
        calls: calls.collect(),
        opaque: Vec::new(),
        usage: Some(usage(cost)),
        usage_estimated: cost.estimated,
    }
}

fn error(failure: Failure) -> model::ModelError {
    let Failure { kind, retryable, usage: cost, retry_after, request_id, status } = failure;
    model::ModelError {
        kind: kind.as_str().to_owned(),
        retryable,
        billed: cost.is_some(),
        usage: cost.map(usage),
        retry_after_ms: retry_after
            .map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        request_id: request_id.unwrap_or_default(),
        status: status.map_or(0, u32::from),
    }
}

fn usage(usage: Usage) -> common::Usage {
    common::Usage {
        prompt_tokens: usage.prompt,
        completion_tokens: usage.completion,
        total_tokens: usage.total(),
    }
}

pub(super) fn refused(reason: &str) -> common::Refused {
    let detail = "no tool server is configured that has this tool".to_owned();
    common::Refused { reason: reason.to_owned(), detail }
}
