//! What clients ask: the parameters of every method, strict and within their limits.
use event::Digest;
use event::id::{RunId, SessionId};
use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::number::{Cursor, Positive, Seq};
use crate::patch::PatchFormat;
use crate::strict;
use crate::text::{
    ClientName, Content, Id, ModelName, Note, ProtocolVersion, TaskId, Version, WorkspaceName,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitializeParams {
    pub protocol_version: ProtocolVersion,
    pub client_name: ClientName,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub client_version: Option<Version>,
    #[serde(deserialize_with = "strict::object")]
    pub capabilities: ClientCapabilities,
}

/// What a client can do; absent means no. `sessions` offers to speak our extension: attaching, watching, holding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCapabilities {
    #[serde(default)]
    pub streaming: bool,
    #[serde(default)]
    pub permissioning: bool,
    #[serde(default)]
    pub sessions: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewParams {
    pub workspace: WorkspaceName,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub model: Option<ModelName>,
    /// Only for a client that offered `sessions`.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub on_disconnect: Option<OnDisconnect>,
}

/// What becomes of open asks when the last client that can answer has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    Deny,
    Hold,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromptParams {
    pub session_id: Id,
    pub content: Content,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_model_tokens: Option<Positive>,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_tool_calls: Option<Positive>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RespondParams {
    pub session_id: Id,
    pub permission_id: Id,
    pub decision: Decision,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub note: Option<Note>,
    /// The digest of the plan that was displayed; stated, it must be that of the plan that was forwarded.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub plan_digest: Option<Digest>,
    /// How far an allow reaches; absent means the first scope that the plan offers.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub scope: Option<Scope>,
    /// The person's own signature under an allow, where the plan asks for one.
    #[serde(default, deserialize_with = "signed", skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

fn signed<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Approval>, D::Error> {
    strict::object(source).map(Some)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Once,
    Run,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelParams {
    pub session_id: Id,
}

/// The session's run, which asks no model: what this other run imported is to be taken back. Only for a client that
/// offered `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchUndoParams {
    pub session_id: Id,
    /// Whose import it was.
    pub run_id: RunId,
    /// Which one; absent means the newest.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub digest: Option<Digest>,
}

/// Only for a client that offered `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchReadParams {
    pub session_id: Id,
    /// An open ask that was shown on this connection; absent means a patch of the session's run, whether or not it has
    /// ended: what it would import now, or what it imported as long as that is kept.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub permission_id: Option<Id>,
    /// Which patch of the run; absent means the present one, or the newest that was imported. Never with an ask.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub digest: Option<Digest>,
    /// Only these and what is below them, with all that they need. Never with an ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<WorkspaceName>,
    /// How the text is to be written; absent means for people.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub format: Option<PatchFormat>,
    /// In bytes, where an earlier page ended; absent means the beginning.
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub offset: Option<Seq>,
}

/// Only for a client that offered `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AttachMembers", into = "AttachMembers")]
pub struct AttachParams {
    pub target: AttachTarget,
    /// Events after this one are sent; absent means all.
    pub after_seq: Option<Cursor>,
}

/// A session by its own id or by that of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachTarget {
    Session(Id),
    Run(Id),
}

impl AttachParams {
    #[must_use]
    pub fn session(id: SessionId) -> Self {
        Self { target: AttachTarget::Session(id.into()), after_seq: None }
    }

    #[must_use]
    pub fn run(id: RunId) -> Self {
        Self { target: AttachTarget::Run(id.into()), after_seq: None }
    }

    #[must_use]
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after_seq: Some(cursor), ..self }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AttachMembers {
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    session_id: Option<Id>,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    run_id: Option<Id>,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    after_seq: Option<Cursor>,
}

impl TryFrom<AttachMembers> for AttachParams {
    type Error = &'static str;
    fn try_from(members: AttachMembers) -> Result<Self, Self::Error> {
        let AttachMembers { session_id, run_id, after_seq } = members;
        let target = match (session_id, run_id) {
            (Some(id), None) => AttachTarget::Session(id),
            (None, Some(id)) => AttachTarget::Run(id),
            (None, None) | (Some(_), Some(_)) => return Err("give either sessionId or runId"),
        };
        Ok(Self { target, after_seq })
    }
}

impl From<AttachParams> for AttachMembers {
    fn from(params: AttachParams) -> Self {
        let AttachParams { target, after_seq } = params;
        let (session_id, run_id) = match target {
            AttachTarget::Session(id) => (Some(id), None),
            AttachTarget::Run(id) => (None, Some(id)),
        };
        Self { session_id, run_id, after_seq }
    }
}
