//! Sessions, runs, model turns and their outcome.

use serde::{Deserialize, Serialize};

use crate::id::{RunId, SessionId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionCreated {
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workspace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentStarted {
    pub agent_id: String,
    pub session_id: SessionId,
    /// The run that began this one, as whose child it works.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent_run_id: Option<RunId>,
    /// Of a child: what it may do at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task_id: Option<String>,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentStopped {
    pub agent_id: String,
    /// The run that began this one. Absent at the end of a run that nobody else waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent_run_id: Option<RunId>,
    pub status: AgentStatus,
    pub steps: u32,
    pub tool_calls: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    Completed,
    Failed,
    Canceled,
    BudgetExceeded,
}

/// `message_count` is at least 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelRequest {
    pub request_id: String,
    pub model: String,
    pub message_count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelResponse {
    pub request_id: String,
    pub model: String,
    pub finish_reason: FinishReason,
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    ToolCalls,
    Length,
    Error,
}

/// `total_tokens` is the sum of the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
}

impl Usage {
    pub(super) fn adds_up(&self) -> bool {
        self.prompt_tokens.checked_add(self.completion_tokens) == Some(self.total_tokens)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageDelta {
    pub request_id: String,
    pub index: u32,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskUpdated {
    pub task_id: String,
    pub phase: TaskPhase,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskPhase {
    Planned,
    Running,
    Verifying,
    Delivered,
    Blocked,
}

/// `pct` is `used` in whole percent of `limit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetWarning {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task_id: Option<String>,
    pub metric: BudgetMetric,
    pub used: u64,
    pub limit: u64,
    pub pct: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMetric {
    Tokens,
    ToolCalls,
    Steps,
}

/// A run's private copy holds files that are like credentials, because the host's configuration says so. `total` counts
/// them; `files` names the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentCarried {
    pub run_id: RunId,
    pub workspace: String,
    pub total: u64,
    pub files: Vec<CarriedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CarriedFile {
    pub path: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunRecorded {
    pub run_id: RunId,
    pub task_id: String,
    pub status: ReportStatus,
    pub report_path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    Passed,
    Failed,
    Blocked,
}

/// The data of the type `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stage: Option<String>,
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retryable: Option<bool>,
}
