//! What is recorded: one fact with its time. Facts are the whole state; nothing else is kept.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::approval::{Plan, Verdict};
use crate::budget::{Budget, Metric};
use crate::id::{CallId, Millis, PermissionId, Reason, Subject, Time};
use crate::input::{Choice, ModelEnd};
use crate::outcome::{CallEnd, Halt, Outcome, Resolution};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at: Time,
    pub fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fact {
    /// `calls` are what the run is for, where a person gave them: then it asks no model.
    Started {
        budget: Budget,
        ask_timeout: Millis,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<CallId>,
    },
    EnvironmentOpened,
    EnvironmentFailed {
        reason: Reason,
    },
    /// A model turn, counted from 0, in an attempt counted from 1.
    ModelAsked {
        call: CallId,
        step: u64,
        attempt: u32,
    },
    ModelEnded {
        call: CallId,
        tokens: u64,
        end: ModelEnd,
    },
    /// The call's turn has come: it is being planned.
    CallStarted {
        call: CallId,
    },
    /// `verdict` is the strictest of the plan and its parts.
    CallPlanned {
        call: CallId,
        plan: Plan,
        verdict: Verdict,
    },
    PermissionRequested {
        permission: PermissionId,
        call: CallId,
        expires_at: Time,
    },
    PermissionResolved {
        permission: PermissionId,
        resolution: Resolution,
    },
    /// An earlier allow for the run covers this call; nobody is asked.
    GrantUsed {
        call: CallId,
        permission: PermissionId,
    },
    /// What an earlier allow for the run covered is covered no more.
    GrantRevoked {
        permission: PermissionId,
    },
    /// The executor does not take the allow that the attempt before this one rested on, whether people were asked for this
    /// call or earlier. It covers nothing any more, and the call is planned anew.
    GrantRefused {
        call: CallId,
        attempt: u32,
        permission: PermissionId,
        reason: Reason,
    },
    /// The attempt before this one was lost.
    CallRetried {
        call: CallId,
        attempt: u32,
        reason: Reason,
    },
    /// The attempt cannot be taken back and may have run: an operator has to say.
    OutcomeUnknown {
        call: CallId,
        attempt: u32,
        reason: Reason,
    },
    OperatorDecided {
        call: CallId,
        by: Subject,
        choice: Choice,
    },
    /// The call is a child's to answer: a run of its own, under the id of the call.
    Delegated {
        call: CallId,
    },
    /// The child is over, and `used` counts here too.
    ChildEnded {
        call: CallId,
        used: Budget,
        outcome: Outcome,
    },
    CallEnded {
        call: CallId,
        end: CallEnd,
    },
    /// Half of a budget is gone; once per metric.
    BudgetWarned {
        metric: Metric,
        used: u64,
        limit: u64,
    },
    /// The run must end; what is outstanding is wound up first.
    Halted {
        why: Halt,
    },
    Ended {
        outcome: Outcome,
    },
    EnvironmentClosed,
}
