//! A run: where it stands, what is outstanding, and what of it others may see. Changes only through `apply`.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::approval::{Approved, Call, Plan};
use crate::budget::{Account, Budget};
use crate::effect::Effect;
use crate::id::{CallId, Digest, Millis, PermissionId, RunId, Time};
use crate::outcome::{CallEnd, Halt, Outcome, Resolution};

/// One prompt until its terminal event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub(crate) id: RunId,
    /// The time of the last event.
    pub(crate) now: Time,
    pub(crate) phase: Phase,
    pub(crate) account: Account,
    /// Turns of its own model, which a child's are not.
    pub(crate) turns: u64,
    pub(crate) ask_timeout: Millis,
    /// What a person gave it to do; with any, the run asks no model and ends after them.
    pub(crate) given: Vec<CallId>,
    /// Set once something says that the run must end; never unset.
    pub(crate) halt: Option<Halt>,
    /// Every id that a call or a permission of this run has borne.
    pub(crate) ids: BTreeSet<u128>,
    pub(crate) resolved: BTreeMap<PermissionId, Resolution>,
    /// What a person allowed for the whole run, by action digest.
    pub(crate) grants: BTreeMap<Digest, PermissionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    New,
    Opening,
    /// The model is to be asked next, in this attempt. A batch never ends here.
    Ready {
        attempt: u32,
    },
    Thinking(ModelCall),
    /// The model has had its last word. A batch never ends here.
    Answered,
    Calling(Turn),
    Closing(Outcome),
    Over(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelCall {
    pub(crate) call: CallId,
    pub(crate) step: u64,
    pub(crate) attempt: u32,
}

/// The tool calls of one model turn, or those that a person gave, strictly one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) current: Current,
    pub(crate) rest: VecDeque<CallId>,
}

/// The call whose turn it is. A batch never ends in `Next`, `Judged` or `Decided`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Current {
    Next(CallId),
    /// In the attempt for which the plan is meant.
    Planning(CallId, u32),
    Judged(Call),
    Asking(Asking),
    /// Only its end remains to be recorded.
    Decided(CallId, CallEnd),
    Executing(Approved<Call>),
    Stopping(Approved<Call>),
    /// A child is at work for it. The clock stands still: the child has its own.
    Delegating(Approved<Call>),
    Unknown(Approved<Call>),
}

impl Current {
    pub(crate) fn id(&self) -> CallId {
        match self {
            Self::Next(call) | Self::Planning(call, _) | Self::Decided(call, _) => *call,
            Self::Judged(call) => call.id,
            Self::Asking(asking) => asking.call.id,
            Self::Executing(call)
            | Self::Stopping(call)
            | Self::Delegating(call)
            | Self::Unknown(call) => call.id,
        }
    }

    /// Whether its execution has been due, so that an executor may have begun.
    pub(crate) fn may_run(&self) -> bool {
        match self {
            Self::Executing(_) | Self::Stopping(_) | Self::Delegating(_) | Self::Unknown(_) => true,
            Self::Next(_)
            | Self::Planning(..)
            | Self::Judged(_)
            | Self::Asking(_)
            | Self::Decided(..) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) permission: PermissionId,
    pub(crate) call: Call,
    pub(crate) expires_at: Time,
}

/// Where a run stands, for those who look at it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status<'a> {
    New,
    Running,
    AwaitingPerson {
        permission: PermissionId,
        call: CallId,
        plan: &'a Plan,
        expires_at: Time,
    },
    NeedsOperator {
        call: CallId,
    },
    /// The run must end, and what executes is being stopped first. A further reason to end changes nothing.
    Stopping {
        call: CallId,
    },
    /// The outcome stands; the environment is still to be closed.
    Ending(&'a Outcome),
    Over(&'a Outcome),
}

impl Run {
    pub fn new(id: RunId) -> Self {
        Self {
            id,
            now: Time::default(),
            phase: Phase::New,
            account: Account::default(),
            turns: 0,
            ask_timeout: Millis::default(),
            given: Vec::new(),
            halt: None,
            ids: BTreeSet::new(),
            resolved: BTreeMap::new(),
            grants: BTreeMap::new(),
        }
    }

    pub fn id(&self) -> RunId {
        self.id
    }

    /// What is outstanding now.
    pub fn due(&self) -> impl Iterator<Item = Effect> {
        let effect = match &self.phase {
            Phase::New | Phase::Ready { .. } | Phase::Answered | Phase::Over(_) => None,
            Phase::Opening => Some(Effect::OpenEnvironment { run: self.id }),
            Phase::Thinking(ModelCall { call, step, attempt }) => Some(Effect::AskModel {
                call: *call,
                step: *step,
                attempt: *attempt,
                max_output_tokens: self.left().tokens,
            }),
            Phase::Calling(Turn { current: Current::Delegating(call), .. }) => {
                Some(match &self.halt {
                    None => Effect::RunChild { call: call.id, budget: self.for_a_child() },
                    Some(why) => Effect::StopChild { call: call.id, why: why.clone() },
                })
            }
            Phase::Calling(turn) => turn.current.due(),
            Phase::Closing(outcome) => {
                Some(Effect::Finish { run: self.id, outcome: outcome.clone() })
            }
        };
        effect.into_iter()
    }

    /// When the run needs a `Tick`, unless something else happens before.
    pub fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Calling(Turn { current: Current::Asking(asking), .. }) => {
                Some(asking.expires_at)
            }
            Phase::Calling(Turn {
                current: Current::Stopping(_) | Current::Delegating(_) | Current::Unknown(_),
                ..
            })
            | Phase::New
            | Phase::Closing(_)
            | Phase::Over(_) => None,
            Phase::Opening
            | Phase::Ready { .. }
            | Phase::Thinking(_)
            | Phase::Answered
            | Phase::Calling(_) => self.account.runs_out_at(),
        }
    }

    pub fn status(&self) -> Status<'_> {
        match &self.phase {
            Phase::New => Status::New,
            Phase::Calling(Turn {
                current: Current::Asking(Asking { permission, call, expires_at }),
                ..
            }) => Status::AwaitingPerson {
                permission: *permission,
                call: call.id,
                plan: &call.plan,
                expires_at: *expires_at,
            },
            Phase::Calling(Turn { current: Current::Unknown(call), .. }) => {
                Status::NeedsOperator { call: call.id }
            }
            Phase::Calling(Turn { current: Current::Stopping(call), .. }) => {
                Status::Stopping { call: call.id }
            }
            Phase::Calling(Turn { current: Current::Delegating(call), .. })
                if self.halt.is_some() =>
            {
                Status::Stopping { call: call.id }
            }
            Phase::Opening
            | Phase::Ready { .. }
            | Phase::Thinking(_)
            | Phase::Answered
            | Phase::Calling(_) => Status::Running,
            Phase::Closing(outcome) => Status::Ending(outcome),
            Phase::Over(outcome) => Status::Over(outcome),
        }
    }

    /// Whether a person, and not a model, gave it what it does.
    pub fn is_given(&self) -> bool {
        !self.given.is_empty()
    }

    pub fn limits(&self) -> Budget {
        self.account.limit()
    }

    /// What has been used, as of the last event.
    pub fn used(&self) -> Budget {
        self.account.used(self.now)
    }

    /// What is left, as of the last event.
    pub fn left(&self) -> Budget {
        self.account.left(self.now)
    }

    /// What a child may use: all that is left, but for the turn in which its answer is read.
    fn for_a_child(&self) -> Budget {
        let left = self.left();
        Budget { steps: left.steps.saturating_sub(1), ..left }
    }

    /// The permissions whose allow for the run stands.
    pub fn standing(&self) -> impl Iterator<Item = PermissionId> {
        self.grants.values().copied()
    }

    pub fn resolution(&self, permission: PermissionId) -> Option<&Resolution> {
        self.resolved.get(&permission)
    }
}

impl Current {
    fn due(&self) -> Option<Effect> {
        match self {
            Self::Next(_) | Self::Judged(_) | Self::Decided(..) | Self::Delegating(_) => None,
            Self::Planning(call, attempt) => Some(Effect::Plan { call: *call, attempt: *attempt }),
            Self::Asking(Asking { permission, call, expires_at }) => Some(Effect::AskPerson {
                permission: *permission,
                call: call.id,
                plan: call.plan.digest,
                expires_at: *expires_at,
            }),
            Self::Executing(call) => Some(Effect::Execute(call.clone())),
            Self::Stopping(call) => Some(Effect::Stop { call: call.id, attempt: call.attempt }),
            Self::Unknown(call) => {
                Some(Effect::AskOperator { call: call.id, attempt: call.attempt })
            }
        }
    }
}
