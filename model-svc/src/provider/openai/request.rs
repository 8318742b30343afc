//! A turn in this dialect's words. Only members that are listed here are ever sent.

use serde::{Deserialize, Serialize};

use super::Settings;
use super::names::Names;
use crate::turn::{Message, ToolCall, Turn};

/// What the provider calls the limit on output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MaxTokensField {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
}

#[derive(Serialize)]
struct Body<'t> {
    model: &'t str,
    stream: bool,
    messages: Vec<WireMessage<'t>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'t> {
    System {
        content: &'t str,
    },
    User {
        content: &'t str,
    },
    Assistant {
        content: Option<&'t str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'t>>,
    },
    Tool {
        tool_call_id: &'t str,
        content: &'t str,
    },
}

#[derive(Serialize)]
struct WireCall<'t> {
    id: &'t str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction<'t>,
}

#[derive(Serialize)]
struct CalledFunction<'t> {
    name: String,
    arguments: &'t str,
}

#[derive(Serialize)]
struct WireTool<'t> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: OfferedFunction<'t>,
}

#[derive(Serialize)]
struct OfferedFunction<'t> {
    name: String,
    description: &'t str,
    parameters: &'t serde_json::Value,
}

const FUNCTION: &str = "function";

/// `None` when the turn has no JSON form, which a parsed turn always has.
pub(super) fn body(turn: &Turn, settings: &Settings, output: u64) -> Option<Vec<u8>> {
    let (max_tokens, max_completion_tokens) = match settings.max_tokens_field {
        MaxTokensField::MaxTokens => (Some(output), None),
        MaxTokensField::MaxCompletionTokens => (None, Some(output)),
    };
    let tools = turn.tools.iter().map(|tool| WireTool {
        kind: FUNCTION,
        function: OfferedFunction {
            name: Names::wire(&tool.name),
            description: &tool.description,
            parameters: &tool.input_schema,
        },
    });
    serde_json::to_vec(&Body {
        model: &settings.upstream_model,
        stream: false,
        messages: turn.messages.iter().map(message).collect(),
        tools: tools.collect(),
        max_tokens,
        max_completion_tokens,
    })
    .ok()
}

fn message(message: &Message) -> WireMessage<'_> {
    match message {
        Message::System(content) => WireMessage::System { content },
        Message::User(content) => WireMessage::User { content },
        Message::Assistant { text, calls } => WireMessage::Assistant {
            content: if text.is_empty() { None } else { Some(text) },
            tool_calls: calls.iter().map(call).collect(),
        },
        Message::Tool { id, content } => WireMessage::Tool { tool_call_id: id, content },
    }
}

fn call(call: &ToolCall) -> WireCall<'_> {
    WireCall {
        id: &call.id,
        kind: FUNCTION,
        function: CalledFunction { name: Names::wire(&call.name), arguments: &call.arguments },
    }
}

const PER_REQUEST: usize = 64;
const PER_MESSAGE: usize = 16;
const PER_TOOL: usize = 32;

/// No tokenizer makes more tokens than there are bytes; the rest is for what the provider writes around them.
pub(super) fn input_bound(turn: &Turn) -> u64 {
    let messages = turn.messages.iter().map(|message| {
        PER_MESSAGE
            + match message {
                Message::System(text) | Message::User(text) => text.len(),
                Message::Assistant { text, calls } => {
                    let calls = calls.iter().map(|call| {
                        PER_MESSAGE + call.id.len() + call.name.len() + call.arguments.len()
                    });
                    text.len() + calls.sum::<usize>()
                }
                Message::Tool { id, content } => id.len() + content.len(),
            }
    });
    let tools = turn.tools.iter().map(|tool| {
        PER_TOOL + tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
    });
    let bytes = PER_REQUEST + messages.sum::<usize>() + tools.sum::<usize>();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
