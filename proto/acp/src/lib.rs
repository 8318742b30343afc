//! The wire of `harness/acp/1`: JSON-RPC messages decoded strictly, the API token's form and, behind a feature, the
//! bounded WebSocket client. It holds no policy: it says what a message is, never whether it may be obeyed.

mod answer;
mod approval;
mod code;
mod grants;
mod limit;
mod method;
mod number;
mod params;
mod patch;
mod rpc;
mod strict;
mod text;
pub mod token;

#[cfg(feature = "client")]
pub mod client;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use answer::{
    AgentCapabilities, AttachAnswer, CancelAnswer, Counted, InitializeAnswer, NewAnswer, OpenAsk,
    PromptAnswer, PromptStatus, RespondAnswer, Usage,
};
pub use approval::{Approval, Base64, NotAnApproval, SignatureHex};
pub use code::Code;
pub use grants::{
    GrantListAnswer, GrantListParams, GrantRevokeAnswer, GrantRevokeParams, Moment, RunGrant,
};
pub use limit::{
    AGENT_NAME, MAX_CONTENT, MAX_DELIVERY, MAX_FINAL_TEXT, MAX_GRANTS, MAX_MESSAGE, MAX_MODELS,
    MAX_PATCH_PATHS, MAX_PATCH_TEXT, MAX_PENDING, MAX_QUEUED, MAX_SESSIONS, PATH, PROTOCOL_VERSION,
};
pub use method::{
    Attach, Call, CallRefused, Cancel, GrantList, GrantRevoke, Initialize, Malformed, Method,
    NewSession, PatchRead, PatchUndo, Prompt, Respond, SESSION_EVENT,
};
pub use number::{Cursor, OutOfRange, Positive, Seq};
pub use params::{
    AttachParams, AttachTarget, CancelParams, ClientCapabilities, Decision, InitializeParams,
    NewParams, OnDisconnect, PatchReadParams, PatchUndoParams, PromptParams, RespondParams, Scope,
};
pub use patch::{PatchFormat, PatchPage};
pub use rpc::{
    Failure, Inbound, Refusal, Request, RequestId, SessionEvent, decode_inbound, decode_request,
    encode_event, encode_failure, encode_request, encode_success,
};
pub use serde_json::value::RawValue;
pub use text::{
    ActionName, ClientName, Content, FinalText, Id, Length, ModelName, NotKebab, Note, PatchText,
    Person, ProtocolVersion, SubjectText, TaskId, Text, Version, WorkspaceName,
};
