//! What the model is shown, message by message. Each of its calls is answered exactly once; nothing here is redacted, so
//! nothing here leaves the service but to model-svc.

use manifest::{Delivery, Manifest, Profile};
use proto::model::v1::{Assistant, Message, Text, ToolCall, ToolReply, message};

/// What all messages of a run may add up to.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;

pub(crate) fn system(manifest: &Manifest) -> Message {
    let delivery = match manifest.delivery {
        Delivery::PullRequest => "a pull request",
        Delivery::Merge => "a merge",
        Delivery::Artifact => "an artifact",
        Delivery::None => "nothing beyond your answer",
    };
    let text = format!(
        "You work on the task \"{}\" with the tools you are given. They act on a private copy of the workspace; the \
         workspace itself changes only when a reviewed patch is imported. A tool call may need a person's approval, \
         and may be refused: then go on without it or say why you cannot.\n\n\
         Goal: {}\n\nAccepted when:\n{}\n\nYou may modify:\n{}\n\nTo be delivered: {delivery}.",
        manifest.title,
        manifest.goal,
        list(&manifest.acceptance),
        list(&manifest.allowed_paths),
    );
    Message { message: Some(message::Message::System(Text { text })) }
}

/// For a child: what its parent is shown, and what is different.
pub(crate) fn child(parent: &Message, profile: Profile) -> Message {
    let Some(message::Message::System(Text { text })) = &parent.message else {
        return parent.clone();
    };
    let text = format!(
        "{text}\n\nAnother run has handed you a part of its work, as its {profile}. You have only the tools you are \
         given, and the same private copy. The next message is what it wants of you. Your last answer is all that it \
         is told."
    );
    Message { message: Some(message::Message::System(Text { text })) }
}

fn list(items: &[String]) -> String {
    let lines: Vec<_> = items.iter().map(|item| format!("- {item}")).collect();
    lines.join("\n")
}

pub(crate) fn user(text: String) -> Message {
    Message { message: Some(message::Message::User(Text { text })) }
}

pub(crate) fn assistant(text: String, calls: Vec<ToolCall>, opaque: Vec<u8>) -> Message {
    Message { message: Some(message::Message::Assistant(Assistant { text, calls, opaque })) }
}

pub(crate) fn tool(provider_id: String, ok: bool, content: String) -> Message {
    Message { message: Some(message::Message::Tool(ToolReply { provider_id, ok, content })) }
}

/// The model's last word.
pub(crate) fn last_word(messages: &[Message]) -> Option<&str> {
    messages.iter().rev().find_map(|message| match &message.message {
        Some(message::Message::Assistant(Assistant { text, .. })) => Some(text.as_str()),
        _ => None,
    })
}
