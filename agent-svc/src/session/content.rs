//! What came along with an input that the kernel does not see: words, plans, results. Bounded before it gets here.

use event::id::CallId;
use event::{Digest, FinishReason, SandboxStopped, ToolError};
use proto::model::v1::{Message, ToolCall};
use receipt::Plan;
use serde_json::Value;

use crate::outcome::Usage;
use crate::withheld::Withheld;
use crate::work::Call;

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// The input says it all.
    Bare,
    Prompt {
        system: Message,
        content: String,
    },
    /// A run with this one call, as this person wishes.
    Given {
        by: String,
        id: CallId,
        call: Box<Call>,
    },
    /// The private copy was made, without these.
    Copied(Withheld),
    Answer(Box<Answer>),
    /// A model call came to nothing, and what it cost.
    NoAnswer {
        usage: Usage,
        retryable: bool,
        reply: Option<Reply>,
    },
    Plan(Box<Planned>),
    /// A refusal, for people.
    Detail(String),
    Result(Box<Outcome>),
    /// What a child came to, and what of a model it used.
    Child {
        usage: Usage,
        result: Box<Outcome>,
    },
    /// The ask's row was settled, with this note.
    Standing {
        note: Option<String>,
    },
    /// It cannot be recorded, so nobody is told.
    Withheld,
}

/// A model's answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) model: String,
    pub(crate) finish: FinishReason,
    pub(crate) text: String,
    pub(crate) calls: Vec<(CallId, ToolCall)>,
    pub(crate) opaque: Vec<u8>,
    pub(crate) usage: Usage,
}

/// A plan that holds what it should, and the result of a call that needed no more than that.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) bytes: Vec<u8>,
    /// The same, as an event holds it.
    pub(crate) shown: Value,
    pub(crate) digest: Digest,
    pub(crate) action_digest: Digest,
    pub(crate) result: Option<Value>,
}

/// What an execution came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) output: Option<Value>,
    /// Absent when all went well.
    pub(crate) error: Option<ToolError>,
    pub(crate) may_have_run: bool,
    pub(crate) duration_ms: Option<u64>,
    /// Present where a container is proven to be gone.
    pub(crate) stopped: Option<SandboxStopped>,
}

/// What is known of a provider's answer that was not success: no word of it, so that it may be told to anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    status: u16,
    request_id: String,
}

impl Reply {
    /// Nothing, where there was no such answer. An id that is not harmless is left out.
    pub(crate) fn read(status: u32, request_id: String) -> Option<Self> {
        let status = u16::try_from(status).ok().filter(|status| (100..=999).contains(status))?;
        let harmless = request_id.len() <= 128
            && request_id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
        let request_id = if harmless { request_id } else { String::new() };
        Some(Self { status, request_id })
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the provider answered with HTTP status {}", self.status)?;
        match self.request_id.as_str() {
            "" => Ok(()),
            id => write!(f, " (request {id})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn a_reply_tells_its_status_and_a_harmless_id() {
        let told = |status, id: &str| Reply::read(status, id.to_owned()).map(|it| it.to_string());
        let says = |text: &str| Some(text.to_owned());
        assert_eq!(told(0, "r-9"), None);
        assert_eq!(told(70_000, "r-9"), None);
        assert_eq!(told(503, ""), says("the provider answered with HTTP status 503"));
        assert_eq!(
            told(429, "r-9"),
            says("the provider answered with HTTP status 429 (request r-9)")
        );
        assert_eq!(told(401, "a b\n"), says("the provider answered with HTTP status 401"));
    }
}
