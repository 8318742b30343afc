//! How a session ended, as clients are told and as the database keeps it. It never decides that it ended.

use event::id::RunId;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Absent when the session ended before its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RunId>,
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
    pub(crate) steps: u32,
    pub(crate) tool_calls: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Completed { final_text: String },
    Failed { reason: String, note: String },
    Canceled { note: String },
    BudgetExceeded { metric: String },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}
