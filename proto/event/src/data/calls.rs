//! Tool calls as the agent sees them, and as the executor that acted attests them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Digest;
use crate::id::{CallId, PermissionId, RunId};

/// `input` is an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolCall {
    pub call_id: CallId,
    pub tool: String,
    pub input: Value,
}

/// An `error` never stands beside `ok`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolResult {
    pub call_id: CallId,
    pub tool: String,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<ToolError>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolError {
    pub code: String,
    pub message: String,
}

/// Nobody can say whether the effect happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolOutcomeUnknown {
    pub call_id: CallId,
    pub attempt: u32,
    pub executor: Executor,
    pub may_have_run: bool,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Executor {
    SandboxSvc,
    ModelSvc,
}

impl Executor {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxSvc => "sandbox-svc",
            Self::ModelSvc => "model-svc",
        }
    }
}

/// What a second execution would do, from harmless to harmful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    Pure,
    Idempotent,
    Staged,
    Irreversible,
}

impl EffectClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::Staged => "staged",
            Self::Irreversible => "irreversible",
        }
    }
}

/// The executor is about to act; acknowledged before it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallStarted {
    pub call_id: CallId,
    pub run_id: RunId,
    pub attempt: u32,
    pub tool: String,
    pub effect_class: EffectClass,
    pub plan_digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub permission_id: Option<PermissionId>,
    pub rules: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallFinished {
    pub call_id: CallId,
    pub attempt: u32,
    pub status: CallStatus,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub result_digest: Option<Digest>,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    Completed,
    Failed,
    Canceled,
    TimedOut,
    OutputLimit,
    OomKilled,
    StartFailed,
    Lost,
}

/// `session_id` is what the caller claimed, proven or not, in whatever form it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallRefused {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_id: Option<CallId>,
    pub session_id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    pub stage: Stage,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan_digest: Option<Digest>,
    /// Where the world is not what was approved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub differs: Option<Differs>,
}

/// Expected and found, by digest; what was or is not there has none. Without a path it is the plan as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Differs {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expected: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual: Option<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Fence,
    Plan,
    Execute,
}

/// `offset` and `bytes` count what the command wrote; `text` holds it with invalid UTF-8 as U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallOutput {
    pub call_id: CallId,
    pub stream: OutputStream,
    pub offset: u64,
    pub bytes: u64,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxStarted {
    pub run_id: RunId,
    pub call_id: CallId,
    pub attempt: u32,
    pub container_name: String,
    pub image: String,
    pub network: SandboxNetwork,
    pub mounts: Vec<Mount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    None,
    Enabled,
}

/// `source` is absent for a private copy: its place on the host says nothing to anybody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    pub target: String,
    pub mode: MountMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountMode {
    Ro,
    Rw,
}

/// Written only after the container is proven to be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxStopped {
    pub run_id: RunId,
    pub call_id: CallId,
    pub attempt: u32,
    pub container_name: String,
    pub status: SandboxStatus,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    Completed,
    Failed,
    Canceled,
}

/// One decision of the broker about one connection of a command. The host is as the command wrote it, escaped and
/// cut where it is no name. Bytes are absent where nothing was connected, or where nobody could count any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressDecision {
    pub run_id: RunId,
    pub call_id: CallId,
    pub attempt: u32,
    pub host: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    pub decision: EgressVerdict,
    /// The rule of the plan that covers the host; absent where it was not looked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Why it was denied, or how the connection ended.
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_up: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_down: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressVerdict {
    Allow,
    Deny,
}

impl EgressVerdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}
