//! JSON-RPC 2.0 envelopes: one object per message, no batches. What is inside parameters, results and events is kept
//! as the bytes that came and is never rewritten.
use std::fmt;

use event::id::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::limit::{MAX_ERROR_MESSAGE, MAX_ID, MAX_SAFE};
use crate::method::SESSION_EVENT;
use crate::number::Seq;
use crate::strict::{self, Object};

/// The id of a request: a string of at most 256 bytes or a safe integer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "AnyId")]
#[serde(untagged)]
pub enum RequestId {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyId {
    Number(i64),
    Text(String),
}

impl TryFrom<AnyId> for RequestId {
    type Error = &'static str;
    fn try_from(id: AnyId) -> Result<Self, Self::Error> {
        match id {
            AnyId::Number(number) if number.unsigned_abs() <= MAX_SAFE => Ok(Self::Number(number)),
            AnyId::Text(text) if text.len() <= MAX_ID => Ok(Self::Text(text)),
            AnyId::Number(_) | AnyId::Text(_) => {
                Err("must be a string of at most 256 bytes or a safe integer")
            }
        }
    }
}

/// A request as it came; its parameters are read once its method may be called.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: RequestId,
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

/// A message that is no request. It is answered under the id that could be read of it, or under none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub id: Option<RequestId>,
    pub failure: Failure,
}

/// What a request failed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    message: String,
}

impl Failure {
    /// The message is cut to what the wire carries.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_ERROR_MESSAGE {
            message.truncate(message.floor_char_boundary(MAX_ERROR_MESSAGE));
        }
        Self { code, message }
    }

    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.message, self.code.symbol())
    }
}

impl std::error::Error for Failure {}

/// One event of a session, as the gateway forwards it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionEvent {
    pub session_id: SessionId,
    pub seq: Seq,
    /// The event byte for byte as it is in the ledger.
    pub event: Box<RawValue>,
}

/// What a client receives.
#[derive(Debug)]
pub enum Inbound {
    Answer {
        id: RequestId,
        result: Result<Box<RawValue>, Failure>,
    },
    /// An answer to something that had no readable id.
    Stray(Failure),
    Event(SessionEvent),
}

/// Reads one message from a client.
pub fn decode_request(text: &str) -> Result<Request, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Members {
        jsonrpc: Two,
        id: RequestId,
        method: String,
        #[serde(default, deserialize_with = "strict::present")]
        params: Option<Box<RawValue>>,
    }
    match serde_json::from_str::<Object<Members>>(text) {
        Ok(Object(Members { jsonrpc: Two, id, method, params })) => {
            Ok(Request { id, method, params })
        }
        Err(error) => Err(refuse(text, &error)),
    }
}

/// Text that is not JSON is a parse error, JSON that is not a request an invalid request.
fn refuse(text: &str, error: &serde_json::Error) -> Refusal {
    #[derive(Deserialize)]
    struct Address {
        id: RequestId,
    }
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Refusal { id: None, failure: Failure::new(Code::Parse, "the message is not JSON") };
    }
    let id = serde_json::from_str::<Object<Address>>(text).ok().map(|Object(Address { id })| id);
    Refusal { id, failure: Failure::new(Code::InvalidRequest, format!("not a request: {error}")) }
}

/// Reads one message from the gateway.
pub fn decode_inbound(text: &str) -> Result<Inbound, NotInbound> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Members {
        jsonrpc: Two,
        #[serde(default, deserialize_with = "strict::present")]
        id: Option<Option<RequestId>>,
        #[serde(default, deserialize_with = "strict::present")]
        result: Option<Box<RawValue>>,
        #[serde(default, deserialize_with = "strict::present")]
        error: Option<Object<ErrorMembers>>,
        #[serde(default, deserialize_with = "strict::present")]
        method: Option<String>,
        #[serde(default, deserialize_with = "strict::present")]
        params: Option<Object<SessionEvent>>,
    }
    let Object(Members { jsonrpc: Two, id, result, error, method, params }) =
        serde_json::from_str(text)?;
    let error = error.map(|Object(error)| Failure::try_from(error)).transpose()?;
    match (id, result, error, method.as_deref(), params) {
        (Some(Some(id)), Some(result), None, None, None) => {
            Ok(Inbound::Answer { id, result: Ok(result) })
        }
        (Some(Some(id)), None, Some(error), None, None) => {
            Ok(Inbound::Answer { id, result: Err(error) })
        }
        (Some(None), None, Some(error), None, None) => Ok(Inbound::Stray(error)),
        (None, None, None, Some(SESSION_EVENT), Some(Object(event))) => Ok(Inbound::Event(event)),
        _ => Err(NotInbound::Shape),
    }
}

/// The message is none that the dialect knows.
#[derive(Debug, thiserror::Error)]
pub enum NotInbound {
    #[error("the message does not have the members of its kind")]
    Members(#[from] serde_json::Error),
    #[error("the message is neither an answer nor an event")]
    Shape,
    #[error("the error's number and symbol do not belong together")]
    Code,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorMembers {
    code: i64,
    message: String,
    #[serde(deserialize_with = "strict::object")]
    data: ErrorData,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorData {
    code: String,
}

impl TryFrom<ErrorMembers> for Failure {
    type Error = NotInbound;
    fn try_from(members: ErrorMembers) -> Result<Self, NotInbound> {
        let ErrorMembers { code, message, data } = members;
        let code = Code::find(code, &data.code).ok_or(NotInbound::Code)?;
        match message.len() <= MAX_ERROR_MESSAGE {
            true => Ok(Self { code, message }),
            false => Err(NotInbound::Shape),
        }
    }
}

/// The member `jsonrpc`, which has one value.
struct Two;

impl<'de> Deserialize<'de> for Two {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match String::deserialize(source)?.as_str() {
            "2.0" => Ok(Self),
            _ => Err(serde::de::Error::custom("jsonrpc must be \"2.0\"")),
        }
    }
}

impl Serialize for Two {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str("2.0")
    }
}

pub fn encode_request<P: Serialize>(
    id: &RequestId,
    method: &str,
    params: &P,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Members<'a, P> {
        jsonrpc: Two,
        id: &'a RequestId,
        method: &'a str,
        params: &'a P,
    }
    serde_json::to_string(&Members { jsonrpc: Two, id, method, params })
}

pub fn encode_success<R: Serialize>(id: &RequestId, result: &R) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Members<'a, R> {
        jsonrpc: Two,
        id: &'a RequestId,
        result: &'a R,
    }
    serde_json::to_string(&Members { jsonrpc: Two, id, result })
}

pub fn encode_failure(id: Option<&RequestId>, failure: &Failure) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Members<'a> {
        jsonrpc: Two,
        id: Option<&'a RequestId>,
        error: ErrorMembers,
    }
    let data = ErrorData { code: failure.code.symbol().to_owned() };
    let error =
        ErrorMembers { code: failure.code.number(), message: failure.message.clone(), data };
    serde_json::to_string(&Members { jsonrpc: Two, id, error })
}

pub fn encode_event(event: &SessionEvent) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Members<'a> {
        jsonrpc: Two,
        method: &'static str,
        params: &'a SessionEvent,
    }
    serde_json::to_string(&Members { jsonrpc: Two, method: SESSION_EVENT, params: event })
}
