//! What follows from a run's own state, without anyone saying so: warnings, ends, and whose turn it is.

use crate::RETRIES;
use crate::approval::{Call, Scope};
use crate::budget::Metric;
use crate::event::Fact;
use crate::id::{CallId, Fresh, PermissionId, Reason, Time};
use crate::outcome::{CallEnd, Halt, Outcome};
use crate::run::{Current, Phase, Run, Turn};

impl Run {
    /// The next fact that is due by itself, or none when the run rests on an effect.
    pub(crate) fn next(&self, at: Time, fresh: Fresh) -> Option<Fact> {
        match &self.phase {
            Phase::New | Phase::Closing(_) | Phase::Over(_) => return None,
            Phase::Opening
            | Phase::Ready { .. }
            | Phase::Thinking(_)
            | Phase::Answered
            | Phase::Calling(_) => (),
        }
        if let Some((metric, used, limit)) = self.account.warning(at) {
            return Some(Fact::BudgetWarned { metric, used, limit });
        }
        match &self.halt {
            Some(why) => self.wound_up(why),
            None if self.account.runs_out_at().is_some_and(|end| end <= at) => {
                Some(over(Metric::WallTime))
            }
            None => self.went_on(at, fresh),
        }
    }

    /// Each open call gets its end, then the run does. What executes is waited for.
    fn wound_up(&self, why: &Halt) -> Option<Fact> {
        let Phase::Calling(Turn { current, .. }) = &self.phase else {
            return Some(Fact::Ended { outcome: Outcome::Halted(why.clone()) });
        };
        let end = match current {
            Current::Next(_) => CallEnd::Skipped { why: why.clone() },
            Current::Planning(..) | Current::Judged(_) => CallEnd::Abandoned { why: why.clone() },
            Current::Decided(_, end) => end.clone(),
            Current::Unknown(_) => CallEnd::Unknown,
            Current::Asking(asking) => {
                return Some(Fact::PermissionResolved {
                    permission: asking.permission,
                    resolution: why.denies(),
                });
            }
            Current::Executing(_) | Current::Stopping(_) | Current::Delegating(_) => return None,
        };
        Some(Fact::CallEnded { call: current.id(), end })
    }

    fn went_on(&self, at: Time, fresh: Fresh) -> Option<Fact> {
        match &self.phase {
            Phase::Ready { attempt } => Some(self.asked_model(*attempt, fresh)),
            Phase::Answered if self.account.overspent(Metric::Tokens, at) => {
                Some(over(Metric::Tokens))
            }
            Phase::Answered => Some(Fact::Ended { outcome: Outcome::Completed }),
            Phase::Calling(Turn { current, .. }) => match current {
                Current::Next(call) => Some(self.started(*call, at)),
                Current::Judged(call) => Some(self.asked_person(call, at, fresh)),
                Current::Decided(call, end) => {
                    Some(Fact::CallEnded { call: *call, end: end.clone() })
                }
                Current::Planning(..)
                | Current::Asking(_)
                | Current::Executing(_)
                | Current::Stopping(_)
                | Current::Delegating(_)
                | Current::Unknown(_) => None,
            },
            Phase::New
            | Phase::Opening
            | Phase::Thinking(_)
            | Phase::Closing(_)
            | Phase::Over(_) => None,
        }
    }

    fn asked_model(&self, attempt: u32, fresh: Fresh) -> Fact {
        let left = self.left();
        if attempt > RETRIES + 1 {
            Fact::Halted { why: Halt::Failed(Reason::MODEL_LOST) }
        } else if attempt == 1 && left.steps == 0 {
            over(Metric::Steps)
        } else if left.tokens == 0 {
            over(Metric::Tokens)
        } else {
            let step = if attempt == 1 { self.turns } else { self.turns.saturating_sub(1) };
            Fact::ModelAsked { call: CallId(fresh.0), step, attempt }
        }
    }

    fn started(&self, call: CallId, at: Time) -> Fact {
        if self.account.overspent(Metric::Tokens, at) {
            over(Metric::Tokens)
        } else if self.left().tool_calls == 0 {
            over(Metric::ToolCalls)
        } else {
            Fact::CallStarted { call }
        }
    }

    fn asked_person(&self, call: &Call, at: Time, fresh: Fresh) -> Fact {
        match self.grants.get(&call.plan.action) {
            Some(permission) if call.plan.scopes.contains(&Scope::Run) => {
                Fact::GrantUsed { call: call.id, permission: *permission }
            }
            Some(_) | None => Fact::PermissionRequested {
                permission: PermissionId(fresh.0),
                call: call.id,
                expires_at: at.after(self.ask_timeout),
            },
        }
    }
}

fn over(metric: Metric) -> Fact {
    Fact::Halted { why: Halt::OverBudget(metric) }
}
