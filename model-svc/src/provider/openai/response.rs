//! A chat completion as it came: read into typed members with every one of them optional, judged elsewhere. What it does not
//! know it ignores; what it knows has one type.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::classify::{ErrorBody, Evidence};
use crate::finalize::{Raw, RawCall, RawFinish, RawUsage};
use crate::turn::Usage;

pub(super) enum Read {
    /// To be judged.
    Answer(Raw),
    /// An error that came with a status of 200.
    Error(Evidence),
    /// Not a completion.
    Invalid,
}

#[derive(Deserialize)]
struct Completion {
    choices: Option<Vec<Choice>>,
    usage: Option<Counters>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    message: Option<Reply>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Reply {
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
    function_call: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    /// The text of an object. An object itself is another dialect.
    arguments: Option<String>,
}

/// Counters are read as they are, so that one that is no count is told from one that is missing.
#[derive(Deserialize)]
struct Counters {
    prompt_tokens: Option<serde_json::Value>,
    completion_tokens: Option<serde_json::Value>,
    total_tokens: Option<serde_json::Value>,
}

/// `model` is our name of it; what the provider calls it is its own affair.
pub(super) fn parse(model: &str, body: &[u8]) -> Read {
    let Ok(Completion { choices, usage, error }) = serde_json::from_slice::<Completion>(body)
    else {
        return Read::Invalid;
    };
    if let Some(error) = error {
        return Read::Error(Evidence::from(error));
    }
    let mut raw = Raw {
        model: model.to_owned(),
        request_id: None,
        finish: RawFinish::Unknown,
        text: String::new(),
        calls: Vec::new(),
        usage: usage.map_or(RawUsage::Missing, counted),
    };
    let mut choices = choices.unwrap_or_default().into_iter();
    // Anything but one choice at index 0 is no answer, but it is paid: it goes to judgement without a finish.
    if let (Some(choice), None) = (choices.next(), choices.next())
        && let Choice { index: None | Some(0), message: Some(reply), finish_reason } = choice
    {
        let Reply { content, refusal, tool_calls, function_call } = reply;
        raw.finish = match function_call {
            Some(IgnoredAny) => RawFinish::FunctionCall,
            None => finish(finish_reason.as_deref()),
        };
        // A refusal is the model's word to the person: it is shown like any other text.
        let text = refusal.filter(|refusal| !refusal.is_empty()).or_else(|| content.map(joined));
        raw.text = text.unwrap_or_default();
        raw.calls = tool_calls.unwrap_or_default().into_iter().map(call).collect();
    }
    Read::Answer(raw)
}

/// Text parts in their order; other parts are not text.
fn joined(content: Content) -> String {
    match content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts
            .into_iter()
            .filter(|part| part.kind.as_deref() == Some("text"))
            .filter_map(|part| part.text)
            .collect(),
    }
}

fn finish(reason: Option<&str>) -> RawFinish {
    match reason {
        Some("stop") => RawFinish::Stop,
        Some("tool_calls") => RawFinish::ToolCalls,
        Some("length") => RawFinish::Length,
        Some("content_filter") => RawFinish::ContentFilter,
        Some("function_call") => RawFinish::FunctionCall,
        Some("") | None => RawFinish::Missing,
        Some(_) => RawFinish::Unknown,
    }
}

fn call(Call { id, function }: Call) -> RawCall {
    let (name, arguments) = match function {
        Some(Function { name, arguments }) => (name, arguments),
        None => (None, None),
    };
    RawCall { id, name, arguments }
}

fn counted(counters: Counters) -> RawUsage {
    let Counters { prompt_tokens, completion_tokens, total_tokens } = counters;
    let count = |value: Option<serde_json::Value>| match value {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or(()),
    };
    match (count(prompt_tokens), count(completion_tokens), count(total_tokens)) {
        (Ok(None), Ok(None), Ok(None)) => RawUsage::Missing,
        (Ok(prompt), Ok(completion), Ok(total)) => RawUsage::Counted {
            prompt: prompt.unwrap_or(0),
            completion: completion.unwrap_or(0),
            total,
        },
        _ => RawUsage::Garbage,
    }
}

/// For an answer that nobody counted: at least one token, at most one a byte, and never more than was reserved.
pub(super) fn estimate(raw: &Raw, reserved: Usage) -> Usage {
    let calls = raw.calls.iter().map(|call| {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        length(&call.id) + length(&call.name) + length(&call.arguments)
    });
    let bytes = raw.text.len() + calls.sum::<usize>();
    let completion = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(1, reserved.completion.max(1));
    Usage { completion, ..reserved }
}

#[cfg(test)]
pub(super) fn fuzz_parse(body: &[u8]) {
    if let Read::Answer(raw) = parse("m", body) {
        let reserved = Usage { prompt: 1, completion: 1, estimated: true };
        let estimate = estimate(&raw, reserved);
        match crate::finalize::finalize(raw, estimate) {
            Ok(answer) => assert!(answer.usage.total() > 0),
            Err(failure) => assert!(failure.usage.is_some_and(|usage| usage.total() > 0)),
        }
    }
}

#[cfg(test)]
mod tests;
