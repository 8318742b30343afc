//! What the shell saw; every value here is already parsed and verified by the shell.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::approval::{Plan, Scope, Verdict};
use crate::budget::{Budget, Limits};
use crate::id::{CallId, Fresh, Millis, PermissionId, Reason, Subject, Time};
use crate::outcome::{CallEnd, Outcome};

/// One observation, with the time it was made and an id nothing has borne before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub at: Time,
    pub fresh: Fresh,
    pub seen: Seen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first input of a run.
    Prompted(Prompt),
    EnvironmentOpened,
    EnvironmentFailed {
        reason: Reason,
    },
    /// The end of a model call. `tokens` is what it cost in all, or a conservative estimate.
    ModelEnded {
        call: CallId,
        tokens: u64,
        end: ModelEnd,
    },
    Planned(Planned),
    /// The executor would not plan the call.
    PlanRefused {
        call: CallId,
        reason: Reason,
    },
    Answered {
        permission: PermissionId,
        answer: Answer,
    },
    /// An allow for the run was taken back.
    Revoked {
        permission: PermissionId,
    },
    /// What became of an attempt to execute a call.
    Executed {
        call: CallId,
        attempt: u32,
        report: Report,
    },
    /// The executor has let a child of this run begin, for this call.
    Delegated {
        call: CallId,
        attempt: u32,
    },
    /// The child is over; `used` is all that it used of its budget.
    ChildEnded {
        call: CallId,
        used: Budget,
        outcome: Outcome,
    },
    /// What an operator decided about a call whose outcome is unknown.
    OperatorDecided {
        call: CallId,
        by: Subject,
        choice: Choice,
    },
    Canceled {
        by: Subject,
    },
    /// The last one who could answer is gone, and the session does not hold.
    Disconnected,
    SessionEnded,
    /// The shell cannot go on with this run.
    Failed {
        reason: Reason,
    },
    /// Time has passed: [`crate::Run::deadline`] says when the next one is needed.
    Tick,
    EnvironmentClosed,
}

/// The terms of a run. Of each limit the smallest counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What the service allows at most; finite by type.
    pub ceiling: Budget,
    pub manifest: Limits,
    pub requested: Limits,
    /// How long an ask stays open.
    pub ask_timeout: Millis,
    /// What a person gave the run to do, under ids the shell minted; a model decides where there are none.
    pub calls: Vec<CallId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelEnd {
    /// The model's last word.
    Stop,
    /// The calls of this turn in the model's order, under ids the shell minted.
    Calls(Vec<CallId>),
    /// Cut off by a length limit.
    Length,
    /// The provider ended the answer with an error.
    Error,
    /// Nothing was asked: what is left of the tokens would not have paid for it.
    OverBudget,
    /// The call failed; it is not repeated.
    Failed(Reason),
    /// Nobody knows what became of the call; a new attempt follows.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub call: CallId,
    pub plan: Plan,
    pub verdict: Verdict,
    /// What was decided about each part. The strictest of these and `verdict` counts.
    pub parts: Vec<Verdict>,
    /// A pure call that is allowed in all its parts may be answered with its plan; in any other case it is ignored.
    pub result: Option<Finish>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Succeeded,
    Failed,
}

impl Finish {
    pub(crate) fn end(self) -> CallEnd {
        match self {
            Self::Succeeded => CallEnd::Succeeded,
            Self::Failed => CallEnd::Failed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An allow whose receipt the shell has verified. `claimed_at` is when the claim was won.
    Allow {
        by: Subject,
        scope: Scope,
        claimed_at: Time,
    },
    Deny(No),
}

/// A no to one ask, after which the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum No {
    Operator {
        by: Subject,
    },
    MalformedAnswer {
        by: Subject,
    },
    /// Nobody is there who could answer.
    MissingResolver,
    System,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    Succeeded,
    Failed,
    /// The executor stopped it before it was done.
    Stopped,
    /// The executor would not run it, and would not the next time either. It did not run.
    Refused {
        reason: Reason,
    },
    /// The executor does not take the approval that came along. It did not run, and with another approval it might.
    Unadmitted {
        reason: Reason,
    },
    /// The attempt came to nothing that anyone can vouch for; trying again is allowed where it is harmless.
    Lost {
        ran: Ran,
        reason: Reason,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    No,
    Maybe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    MarkDone,
    MarkFailed,
    RunAgain,
    Abort,
}
