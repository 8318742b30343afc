//! How asks, calls and runs end.

use serde::{Deserialize, Serialize};

use crate::approval::Scope;
use crate::budget::Metric;
use crate::id::{Reason, Subject};

/// Where a no comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenySource {
    Operator,
    Timeout,
    Cancel,
    Disconnect,
    MissingResolver,
    MalformedAnswer,
    SessionEnd,
    Policy,
    System,
}

impl DenySource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Timeout => "timeout",
            Self::Cancel => "cancel",
            Self::Disconnect => "disconnect",
            Self::MissingResolver => "missing_resolver",
            Self::MalformedAnswer => "malformed_answer",
            Self::SessionEnd => "session_end",
            Self::Policy => "policy",
            Self::System => "system",
        }
    }
}

/// How an ask was settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Resolution {
    Allowed { by: Subject, scope: Scope },
    Denied { source: DenySource, by: Option<Subject> },
}

/// Why a run must end before the model has said its last word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Halt {
    Canceled { by: Subject },
    Disconnected,
    SessionEnded,
    OverBudget(Metric),
    Failed(Reason),
}

impl Outcome {
    /// How a call ends that was a child's to answer.
    pub(crate) fn of_child(&self) -> CallEnd {
        match self {
            Self::Completed => CallEnd::Succeeded,
            Self::Halted(Halt::Canceled { .. } | Halt::Disconnected | Halt::SessionEnded) => {
                CallEnd::Stopped
            }
            Self::Halted(Halt::OverBudget(_) | Halt::Failed(_)) => CallEnd::Failed,
        }
    }
}

impl Halt {
    /// What an ask that is still open is told.
    pub(crate) fn denies(&self) -> Resolution {
        let (source, by) = match self {
            Self::Canceled { by } => (DenySource::Cancel, Some(by.clone())),
            Self::Disconnected => (DenySource::Disconnect, None),
            Self::SessionEnded => (DenySource::SessionEnd, None),
            Self::OverBudget(_) | Self::Failed(_) => (DenySource::System, None),
        };
        Resolution::Denied { source, by }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Completed,
    Halted(Halt),
}

/// How a tool call ended; exactly one per call. What the model is told about it is the shell's to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallEnd {
    Succeeded,
    Failed,
    /// The executor stopped it, asked to or not.
    Stopped,
    Denied {
        source: DenySource,
    },
    /// The executor would not plan it or would not run it.
    Refused {
        reason: Reason,
    },
    /// It was lost, and nothing that matters can have come of it.
    Lost {
        reason: Reason,
    },
    /// It cannot be taken back, it may have run, and nobody settled which.
    Unknown,
    /// An operator said that it ran.
    MarkedDone {
        by: Subject,
    },
    /// An operator said that it did not run.
    MarkedFailed {
        by: Subject,
    },
    /// It had begun but not yet run when the run had to end.
    Abandoned {
        why: Halt,
    },
    /// It had not even begun: no [`crate::Fact::CallStarted`] precedes this end.
    Skipped {
        why: Halt,
    },
}
