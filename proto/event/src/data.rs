//! The catalogue: one strict type per event type. It decides what data may look like, never what is redacted.

mod calls;
mod permissions;
mod runs;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use calls::*;
pub use permissions::*;
pub use runs::*;

use crate::canon::{self, NotCanonical};
use crate::id::SessionId;
use crate::seal::OpenError;

/// A member has no JSON form (a moment outside of the years 0 to 9999).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a member has no JSON form")]
pub struct NotJson;

macro_rules! catalogue {
    ($($kind:literal => $name:ident),+ $(,)?) => {
        /// What an event says, by its type.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Data {
            $($name($name)),+
        }

        impl Data {
            /// Every type of the catalogue, as on the wire.
            pub const KINDS: &[&str] = &[$($kind),+];

            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$name(_) => $kind),+ }
            }

            /// The data as JSON, not yet redacted.
            pub fn to_value(&self) -> Result<Value, NotJson> {
                match self { $(Self::$name(data) => to_json(data)),+ }
            }

            fn decode(kind: &str, value: &Value) -> Result<Self, OpenError> {
                match kind {
                    $($kind => from_json($kind, value).map(Self::$name),)+
                    _ => Err(OpenError::Type),
                }
            }
        }

        $(impl From<$name> for Data {
            fn from(data: $name) -> Self {
                Self::$name(data)
            }
        })+
    };
}

catalogue! {
    "session.created" => SessionCreated,
    "agent.started" => AgentStarted,
    "agent.stopped" => AgentStopped,
    "model.request" => ModelRequest,
    "model.response" => ModelResponse,
    "message.delta" => MessageDelta,
    "tool.call" => ToolCall,
    "tool.result" => ToolResult,
    "tool.outcome_unknown" => ToolOutcomeUnknown,
    "task.updated" => TaskUpdated,
    "budget.warning" => BudgetWarning,
    "policy.decision" => PolicyDecision,
    "permission.requested" => PermissionRequested,
    "permission.counted" => PermissionCounted,
    "permission.resolved" => PermissionResolved,
    "grant.issued" => GrantIssued,
    "receipt.signed" => ReceiptSigned,
    "receipt.revoked" => ReceiptRevoked,
    "call.started" => CallStarted,
    "call.finished" => CallFinished,
    "call.refused" => CallRefused,
    "call.output" => CallOutput,
    "sandbox.started" => SandboxStarted,
    "sandbox.stopped" => SandboxStopped,
    "egress.decision" => EgressDecision,
    "environment.carried" => EnvironmentCarried,
    "run.recorded" => RunRecorded,
    "error" => Failure,
}

impl Data {
    /// Decodes data that travels apart from its event; as strict as an event's own.
    pub fn parse(kind: &str, bytes: &[u8]) -> Result<Self, OpenError> {
        Self::from_value(kind, &canon::parse(bytes).map_err(OpenError::Json)?)
    }

    /// The canonical bytes of data that travels apart from its event.
    pub fn to_bytes(&self) -> Result<Vec<u8>, NotCanonical> {
        canon::to_bytes(&self.to_value().map_err(|NotJson| NotCanonical::NoForm)?)
    }

    pub(crate) fn from_value(kind: &str, value: &Value) -> Result<Self, OpenError> {
        let data = Self::decode(kind, value)?;
        match data.fault() {
            None => Ok(data),
            Some(fault) => Err(OpenError::Data { kind: data.kind(), detail: fault.to_owned() }),
        }
    }

    /// The session the data is about, where the data says so as a fact (a claim is not one).
    pub fn session_id(&self) -> Option<SessionId> {
        match self {
            Self::SessionCreated(data) => Some(data.session_id),
            Self::AgentStarted(data) => Some(data.session_id),
            Self::PermissionRequested(data) => Some(data.session_id),
            Self::PermissionCounted(data) => Some(data.session_id),
            Self::PermissionResolved(data) => Some(data.session_id),
            Self::GrantIssued(data) => Some(data.session_id),
            Self::ReceiptSigned(data) => Some(data.session_id),
            Self::ReceiptRevoked(data) => Some(data.session_id),
            Self::Failure(data) => data.session_id,
            _ => None,
        }
    }

    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::ToolCall(data) => Some(&data.tool),
            Self::ToolResult(data) => Some(&data.tool),
            Self::CallStarted(data) => Some(&data.tool),
            Self::CallRefused(data) => data.tool.as_deref(),
            _ => None,
        }
    }

    /// What was decided: the effect of a rule, or a person's answer.
    pub fn decision(&self) -> Option<&'static str> {
        match self {
            Self::PolicyDecision(data) => Some(data.effect.as_str()),
            Self::PermissionResolved(data) => Some(data.decision.as_str()),
            Self::EgressDecision(data) => Some(data.decision.as_str()),
            _ => None,
        }
    }

    /// What the types alone cannot say.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Self::ModelRequest(data) if data.message_count == 0 => {
                Some("expected messageCount > 0")
            }
            Self::ModelResponse(data) if !data.usage.adds_up() => {
                Some("expected totalTokens to be the sum")
            }
            Self::ToolCall(data) if !data.input.is_object() => {
                Some("expected input to be an object")
            }
            Self::ToolResult(data) if data.ok && data.error.is_some() => {
                Some("expected no error beside ok")
            }
            Self::PermissionCounted(data) if data.have >= data.need => {
                Some("expected have to be below need")
            }
            Self::PermissionRequested(data) if !data.plan.is_object() => {
                Some("expected plan to be an object")
            }
            Self::ReceiptSigned(data) if !data.receipt.is_object() => {
                Some("expected receipt to be an object")
            }
            _ => None,
        }
    }
}

pub(crate) fn to_json<T: Serialize>(data: &T) -> Result<Value, NotJson> {
    serde_json::to_value(data).map_err(|_| NotJson)
}

fn from_json<T>(kind: &'static str, value: &Value) -> Result<T, OpenError>
where
    T: DeserializeOwned + Serialize,
{
    let schema = |detail: String| OpenError::Data { kind, detail };
    let data = T::deserialize(value).map_err(|error| schema(detail(&error)))?;
    // An optional member that is given as null reads like an absent one: a second form of the same data.
    match to_json(&data) {
        Ok(again) if again == *value => Ok(data),
        Ok(_) | Err(NotJson) => Err(schema("a member is not in its one form".to_owned())),
    }
}

/// What a decoder expected, without what it found: the latter may be anybody's secret.
pub(crate) fn detail(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if text.starts_with("missing field `") => text,
        None => "a member has the wrong form".to_owned(),
    }
}
