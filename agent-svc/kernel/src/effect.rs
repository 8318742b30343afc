//! What a run wants done now. Each effect has a key that is the same after a restart.

use crate::approval::{Approved, Call};
use crate::budget::Budget;
use crate::id::{CallId, Digest, PermissionId, RunId, Time};
use crate::outcome::{Halt, Outcome};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Settled by `EnvironmentOpened` or `EnvironmentFailed`.
    OpenEnvironment { run: RunId },
    /// Settled by `ModelEnded`. `max_output_tokens` is what is left of the run's tokens.
    AskModel { call: CallId, step: u64, attempt: u32, max_output_tokens: u64 },
    /// Settled by `Planned` or `PlanRefused`.
    Plan { call: CallId, attempt: u32 },
    /// Settled by `Answered`, or by a `Tick` at its expiry.
    AskPerson { permission: PermissionId, call: CallId, plan: Digest, expires_at: Time },
    /// Settled by `Executed`, or by `Delegated` where the call was for a child.
    Execute(Approved<Call>),
    /// A child of this run is at work for the call, within `budget`. Settled by `ChildEnded`.
    RunChild { call: CallId, budget: Budget },
    /// End the child, for what ends this run. Settled by `ChildEnded`.
    StopChild { call: CallId, why: Halt },
    /// End what runs under this call and never start it. Settled by `Executed`.
    Stop { call: CallId, attempt: u32 },
    /// Settled by `OperatorDecided`.
    AskOperator { call: CallId, attempt: u32 },
    /// The run has its outcome: close the environment. Settled by `EnvironmentClosed`.
    Finish { run: RunId, outcome: Outcome },
}

/// What makes an effect the same effect, before and after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    OpenEnvironment(RunId),
    AskModel(CallId),
    Plan(CallId, u32),
    AskPerson(PermissionId),
    Execute(CallId, u32),
    RunChild(CallId),
    StopChild(CallId),
    Stop(CallId, u32),
    AskOperator(CallId, u32),
    Finish(RunId),
}

impl Effect {
    pub fn key(&self) -> Key {
        match self {
            Self::OpenEnvironment { run } => Key::OpenEnvironment(*run),
            Self::AskModel { call, .. } => Key::AskModel(*call),
            Self::Plan { call, attempt } => Key::Plan(*call, *attempt),
            Self::AskPerson { permission, .. } => Key::AskPerson(*permission),
            Self::Execute(call) => Key::Execute(call.id, call.attempt),
            Self::RunChild { call, .. } => Key::RunChild(*call),
            Self::StopChild { call, .. } => Key::StopChild(*call),
            Self::Stop { call, attempt } => Key::Stop(*call, *attempt),
            Self::AskOperator { call, attempt } => Key::AskOperator(*call, *attempt),
            Self::Finish { run, .. } => Key::Finish(*run),
        }
    }
}
