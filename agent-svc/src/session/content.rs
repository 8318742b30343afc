//! What came along with an input that the kernel does not see: words, plans, results. Bounded before it gets here.

use event::id::CallId;
use event::{Digest, FinishReason, SandboxStopped, ToolError};
use proto::model::v1::{Message, ToolCall};
use receipt::Plan;
use serde_json::Value;

use crate::outcome::Usage;
use crate::withheld::Withheld;

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// The input says it all.
    Bare,
    Prompt {
        system: Message,
        content: String,
    },
    /// The private copy was made, without these.
    Copied(Withheld),
    Answer(Box<Answer>),
    /// A model call came to nothing, and what it cost.
    NoAnswer {
        usage: Usage,
        retryable: bool,
    },
    Plan(Box<Planned>),
    /// A refusal, for people.
    Detail(String),
    Result(Box<Outcome>),
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
