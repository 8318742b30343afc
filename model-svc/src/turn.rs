//! One model turn as this service sees it: what is asked, what came back, what went wrong. No dialect of a provider and no
//! wire type reaches in here.

use std::fmt;
use std::time::Duration;

use event::Digest;
use event::id::{CallId, RunId};
use serde::{Deserialize, Serialize};

/// A turn that is to be asked. Never logged: it holds the conversation.
#[derive(Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) attempt: u32,
    /// Unix milliseconds after which it must not begin.
    pub(crate) start_before_ms: i64,
    pub(crate) model: String,
    /// Counted from 0 within the run.
    pub(crate) step: u32,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<Tool>,
    /// Zero leaves it to the model's own limit.
    pub(crate) max_output_tokens: u64,
    /// Of all the above but the deadline: the same call is the same request.
    pub(crate) digest: Digest,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("call", &self.call)
            .field("model", &self.model)
            .field("step", &self.step)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq)]
pub(crate) enum Message {
    System(String),
    User(String),
    Assistant { text: String, calls: Vec<ToolCall> },
    Tool { id: String, content: String },
}

#[derive(Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: String,
    /// A JSON object.
    pub(crate) input_schema: serde_json::Value,
}

/// `arguments` is the text of a JSON object as the provider wrote it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// Not the provider's own count, but at least as much.
    pub(crate) estimated: bool,
}

impl Usage {
    pub(crate) fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finish {
    Stop,
    ToolCalls,
    Length,
}

/// What a call came to; the same for everyone who asks again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Answered(Answer),
    Failed(Failure),
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Our name of the model, not the provider's.
    pub(crate) model: String,
    /// The provider's name for the request.
    pub(crate) request_id: Option<String>,
    pub(crate) finish: Finish,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) usage: Usage,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("model", &self.model)
            .field("request_id", &self.request_id)
            .field("finish", &self.finish)
            .field("calls", &self.calls.len())
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

/// Nothing a provider wrote is in it but its status and a request id of harmless characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the model call failed ({})", kind.as_str())]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// Whether asking again, as a new call, may help.
    pub(crate) retryable: bool,
    /// What it cost; absent when the provider has nothing to bill.
    pub(crate) usage: Option<Usage>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) request_id: Option<String>,
    /// Of the provider's answer, where it was not success.
    #[serde(default)]
    pub(crate) status: Option<u16>,
}

impl Failure {
    pub(crate) fn new(kind: Kind) -> Self {
        let retryable = matches!(
            kind,
            Kind::Aborted
                | Kind::Timeout
                | Kind::Transport
                | Kind::RateLimited
                | Kind::AuditUnavailable
                | Kind::StartTooLate
                | Kind::InDoubt
        );
        Self { kind, retryable, usage: None, retry_after: None, request_id: None, status: None }
    }

    pub(crate) fn billed(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }

    pub(crate) fn retryable(self, retryable: bool) -> Self {
        Self { retryable, ..self }
    }
}

/// Stable names of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    InvalidRequest,
    Aborted,
    Timeout,
    Transport,
    Auth,
    RateLimited,
    Http,
    InvalidResponse,
    UnsupportedResponse,
    ContentFiltered,
    BudgetExceeded,
    ModelUnknown,
    CallConflict,
    StartTooLate,
    AuditUnavailable,
    InDoubt,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "MODEL_INVALID_REQUEST",
            Self::Aborted => "MODEL_ABORTED",
            Self::Timeout => "MODEL_TIMEOUT",
            Self::Transport => "MODEL_TRANSPORT_ERROR",
            Self::Auth => "MODEL_AUTH_ERROR",
            Self::RateLimited => "MODEL_RATE_LIMITED",
            Self::Http => "MODEL_HTTP_ERROR",
            Self::InvalidResponse => "MODEL_INVALID_RESPONSE",
            Self::UnsupportedResponse => "MODEL_UNSUPPORTED_RESPONSE",
            Self::ContentFiltered => "MODEL_CONTENT_FILTERED",
            Self::BudgetExceeded => "BUDGET_EXCEEDED",
            Self::ModelUnknown => "MODEL_UNKNOWN",
            Self::CallConflict => "CALL_CONFLICT",
            Self::StartTooLate => "START_DEADLINE_PASSED",
            Self::AuditUnavailable => "AUDIT_UNAVAILABLE",
            Self::InDoubt => "MODEL_IN_DOUBT",
        }
    }
}
