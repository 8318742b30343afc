//! Folds one recorded fact into a run. Never fails and never judges: what does not fit changes nothing.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem;

use crate::approval::{Approved, Call, Scope, Verdict};
use crate::budget::{Account, Metric};
use crate::event::{Event, Fact};
use crate::id::{CallId, PermissionId, Reason, Time};
use crate::input::{Choice, ModelEnd};
use crate::outcome::{CallEnd, DenySource, Halt, Outcome, Resolution};
use crate::run::{Asking, Current, ModelCall, Phase, Run, Turn};

impl Run {
    /// The run after this event. An event that cannot follow on what was before leaves it as it was.
    #[must_use]
    pub fn apply(mut self, event: Event) -> Self {
        self.follow(event);
        self
    }

    /// Takes the event in and says whether it could follow.
    pub(crate) fn follow(&mut self, event: Event) -> bool {
        let Event { at, fact } = event;
        let phase = mem::replace(&mut self.phase, Phase::New);
        match self.after(phase, at, fact) {
            Ok(phase) => {
                self.phase = phase;
                self.now = at;
                true
            }
            Err(phase) => {
                self.phase = *phase;
                false
            }
        }
    }

    fn after(&mut self, phase: Phase, at: Time, fact: Fact) -> Result<Phase, Box<Phase>> {
        match (phase, fact) {
            (Phase::New, Fact::Started { budget, ask_timeout, calls }) => {
                self.account = Account::open(budget, at);
                self.ask_timeout = ask_timeout;
                self.ids.extend(calls.iter().map(|call| call.0));
                self.given = calls;
                Ok(Phase::Opening)
            }
            (Phase::Opening, Fact::EnvironmentOpened) => Ok(match self.is_given() {
                true => self.turn(self.given.iter().copied().collect()),
                false => Phase::Ready { attempt: 1 },
            }),
            (phase @ Phase::Opening, Fact::EnvironmentFailed { reason }) => {
                self.halt = Some(Halt::Failed(reason));
                Ok(phase)
            }
            (Phase::Ready { .. }, Fact::ModelAsked { call, step, attempt }) => {
                self.ids.insert(call.0);
                if attempt == 1 {
                    self.account.use_step();
                    self.turns = self.turns.saturating_add(1);
                }
                Ok(Phase::Thinking(ModelCall { call, step, attempt }))
            }
            (Phase::Thinking(asked), Fact::ModelEnded { call, tokens, end })
                if asked.call == call =>
            {
                self.account.use_tokens(tokens);
                Ok(self.after_model(asked.attempt, end))
            }
            (
                phase @ (Phase::New | Phase::Closing(_) | Phase::Over(_)),
                Fact::BudgetWarned { .. } | Fact::Halted { .. } | Fact::GrantRevoked { .. },
            ) => Err(Box::new(phase)),
            (phase, Fact::BudgetWarned { metric, .. }) => {
                self.account.mark_warned(metric);
                Ok(phase)
            }
            (phase, Fact::GrantRevoked { permission }) if self.has_grant(permission) => {
                self.drop_grant(permission);
                Ok(phase)
            }
            (phase, Fact::Halted { why }) if self.halt.is_none() => {
                self.halt = Some(why);
                Ok(phase.stopped())
            }
            (phase, Fact::Ended { outcome }) if self.may_end(&phase, &outcome) => {
                self.account.stop_clock(at);
                Ok(Phase::Closing(outcome))
            }
            (Phase::Closing(outcome), Fact::EnvironmentClosed) => Ok(Phase::Over(outcome)),
            (Phase::Calling(turn), fact) => self.after_call(turn, at, fact),
            (phase, _) => Err(Box::new(phase)),
        }
    }

    fn after_model(&mut self, attempt: u32, end: ModelEnd) -> Phase {
        match end {
            ModelEnd::Stop => Phase::Answered,
            ModelEnd::Calls(calls) => {
                self.ids.extend(calls.iter().map(|call| call.0));
                self.turn(calls.into())
            }
            ModelEnd::Lost => Phase::Ready { attempt: attempt.saturating_add(1) },
            ModelEnd::Length if self.left().tokens == 0 => {
                self.cut_short(Halt::OverBudget(Metric::Tokens))
            }
            ModelEnd::OverBudget => self.cut_short(Halt::OverBudget(Metric::Tokens)),
            ModelEnd::Length => self.cut_short(Halt::Failed(Reason::MODEL_TRUNCATED)),
            ModelEnd::Error => self.cut_short(Halt::Failed(Reason::MODEL_ERROR)),
            ModelEnd::Failed(reason) => self.cut_short(Halt::Failed(reason)),
        }
    }

    /// On with the next call, or back to whoever gave them: the model, or a person who wants no more.
    fn turn(&self, mut calls: VecDeque<CallId>) -> Phase {
        match calls.pop_front() {
            Some(call) => Phase::Calling(Turn { current: Current::Next(call), rest: calls }),
            None if self.is_given() => Phase::Answered,
            None => Phase::Ready { attempt: 1 },
        }
    }

    fn cut_short(&mut self, why: Halt) -> Phase {
        self.halt = Some(why);
        Phase::Answered
    }

    fn may_end(&self, phase: &Phase, outcome: &Outcome) -> bool {
        match (phase, outcome, &self.halt) {
            (Phase::Answered, Outcome::Completed, None) => true,
            (
                Phase::Opening | Phase::Ready { .. } | Phase::Thinking(_) | Phase::Answered,
                Outcome::Halted(why),
                Some(halt),
            ) => why == halt,
            (_, _, _) => false,
        }
    }

    fn after_call(&mut self, turn: Turn, at: Time, fact: Fact) -> Result<Phase, Box<Phase>> {
        let Turn { current, rest } = turn;
        let followed = match fact {
            Fact::CallEnded { call, end } if call == current.id() && current.may_end(&end) => {
                return Ok(self.turn(rest));
            }
            fact if current.may_run() => self.after_running(current, at, fact),
            fact => self.after_judging(current, at, fact),
        };
        match followed {
            Ok(current) => Ok(Phase::Calling(Turn { current, rest })),
            Err(current) => Err(Box::new(Phase::Calling(Turn { current: *current, rest }))),
        }
    }

    fn after_judging(
        &mut self,
        current: Current,
        at: Time,
        fact: Fact,
    ) -> Result<Current, Box<Current>> {
        match (current, fact) {
            (Current::Next(id), Fact::CallStarted { call }) if call == id => {
                self.account.use_tool_call();
                Ok(Current::Planning(call, 1))
            }
            (Current::Planning(id, attempt), Fact::CallPlanned { call, plan, verdict })
                if call == id =>
            {
                let call = Call { id, attempt, plan };
                Ok(match verdict {
                    Verdict::Allow => Current::Executing(Approved::by_policy(call)),
                    Verdict::Ask => Current::Judged(call),
                    Verdict::Deny => {
                        Current::Decided(id, CallEnd::Denied { source: DenySource::Policy })
                    }
                })
            }
            (
                Current::Judged(waiting),
                Fact::PermissionRequested { permission, call, expires_at },
            ) if call == waiting.id => {
                self.account.stop_clock(at);
                self.ids.insert(permission.0);
                Ok(Current::Asking(Asking { permission, call: waiting, expires_at }))
            }
            (Current::Judged(waiting), Fact::GrantUsed { call, permission })
                if call == waiting.id
                    && self.grants.get(&waiting.plan.action) == Some(&permission) =>
            {
                Ok(Current::Executing(Approved::by_grant(waiting, permission)))
            }
            (Current::Asking(asking), Fact::PermissionResolved { permission, resolution })
                if permission == asking.permission =>
            {
                self.account.start_clock(at);
                self.resolved.insert(permission, resolution.clone());
                Ok(self.answered(asking, &resolution))
            }
            (current, _) => Err(Box::new(current)),
        }
    }

    fn after_running(
        &mut self,
        current: Current,
        at: Time,
        fact: Fact,
    ) -> Result<Current, Box<Current>> {
        match (current, fact) {
            (Current::Executing(running), Fact::CallRetried { call, attempt, .. })
                if call == running.id && attempt == running.attempt.saturating_add(1) =>
            {
                Ok(Current::Executing(running.again()))
            }
            (Current::Executing(running), Fact::GrantRefused { call, attempt, permission, .. })
                if call == running.id
                    && attempt == running.attempt.saturating_add(1)
                    && running.basis().permission() == Some(permission) =>
            {
                self.drop_grant(permission);
                Ok(Current::Planning(call, attempt))
            }
            (Current::Executing(running), Fact::Delegated { call }) if call == running.id => {
                self.account.stop_clock(at);
                Ok(Current::Delegating(running))
            }
            (Current::Delegating(delegated), Fact::ChildEnded { call, used, outcome })
                if call == delegated.id =>
            {
                self.account.charge(used);
                self.account.start_clock(at);
                Ok(Current::Decided(call, outcome.of_child()))
            }
            (
                Current::Executing(running) | Current::Stopping(running),
                Fact::OutcomeUnknown { call, attempt, .. },
            ) if call == running.id && attempt == running.attempt => {
                self.account.stop_clock(at);
                Ok(Current::Unknown(running))
            }
            (Current::Unknown(unknown), Fact::OperatorDecided { call, by, choice })
                if call == unknown.id =>
            {
                self.account.start_clock(at);
                Ok(match choice {
                    Choice::MarkDone => Current::Decided(call, CallEnd::MarkedDone { by }),
                    Choice::MarkFailed => Current::Decided(call, CallEnd::MarkedFailed { by }),
                    Choice::RunAgain => Current::Executing(unknown.again()),
                    Choice::Abort => {
                        self.halt = Some(Halt::Failed(Reason::ABORTED_BY_OPERATOR));
                        Current::Decided(call, CallEnd::Unknown)
                    }
                })
            }
            (current, _) => Err(Box::new(current)),
        }
    }

    pub(crate) fn has_grant(&self, permission: PermissionId) -> bool {
        self.grants.values().any(|standing| *standing == permission)
    }

    fn drop_grant(&mut self, permission: PermissionId) {
        self.grants.retain(|_, standing| *standing != permission);
    }

    fn answered(&mut self, asking: Asking, resolution: &Resolution) -> Current {
        let Asking { permission, call, .. } = asking;
        match resolution {
            Resolution::Allowed { scope, .. } => {
                if *scope == Scope::Run {
                    self.grants.insert(call.plan.action, permission);
                }
                Current::Executing(Approved::by_permission(call, permission))
            }
            Resolution::Denied { source, .. } => {
                Current::Decided(call.id, CallEnd::Denied { source: *source })
            }
        }
    }
}

impl Current {
    fn may_end(&self, end: &CallEnd) -> bool {
        match self {
            Self::Next(_) => matches!(end, CallEnd::Skipped { .. }),
            Self::Planning(..) => {
                matches!(end, CallEnd::Refused { .. } | CallEnd::Abandoned { .. })
            }
            Self::Judged(_) => matches!(end, CallEnd::Abandoned { .. }),
            Self::Asking(_) => false,
            Self::Decided(_, decided) => end == decided,
            Self::Executing(_) | Self::Stopping(_) => matches!(
                end,
                CallEnd::Succeeded
                    | CallEnd::Failed
                    | CallEnd::Stopped
                    | CallEnd::Refused { .. }
                    | CallEnd::Lost { .. }
            ),
            Self::Delegating(_) => false,
            Self::Unknown(_) => matches!(end, CallEnd::Unknown),
        }
    }
}

impl Phase {
    /// What runs is to be stopped.
    fn stopped(self) -> Self {
        match self {
            Self::Calling(Turn { current: Current::Executing(call), rest }) => {
                Self::Calling(Turn { current: Current::Stopping(call), rest })
            }
            phase => phase,
        }
    }
}
