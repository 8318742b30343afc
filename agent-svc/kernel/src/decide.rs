//! Which events follow from an input. Changes nothing: the events do, once they are recorded.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use crate::approval::{Approved, Basis, Call, EffectClass, Verdict};
use crate::event::{Event, Fact};
use crate::id::{CallId, Fresh, PermissionId, Reason, Time};
use crate::input::{Answer, Input, ModelEnd, No, Planned, Prompt, Ran, Report, Seen};
use crate::outcome::{CallEnd, DenySource, Halt, Resolution};
use crate::rejected::Rejected;
use crate::run::{Asking, Current, Phase, Run, Turn};
use crate::{MAX_CALLS_PER_TURN, RETRIES};

impl Run {
    /// The events that follow from this input, to be recorded together; none at all is a good answer.
    pub fn decide(&self, input: Input) -> Result<Vec<Event>, Rejected> {
        let Input { at, fresh, seen } = input;
        let at = at.max(self.now);
        let first = self.follows(at, fresh, seen)?;
        let mut draft = Draft { run: self.clone(), at, events: Vec::new() };
        for fact in first {
            draft.push(fact);
        }
        while let Some(fact) = draft.run.next(at, fresh) {
            draft.push(fact);
        }
        Ok(draft.events)
    }

    /// What the input says outright; `next` adds what follows from that.
    fn follows(&self, at: Time, fresh: Fresh, seen: Seen) -> Result<Vec<Fact>, Rejected> {
        self.admits(&seen)?;
        self.unused([fresh.0])?;
        match (seen, &self.phase) {
            (Seen::Prompted(prompt), Phase::New) => self.started_by(fresh, prompt),
            (Seen::EnvironmentOpened, Phase::Opening) => Ok(vec![Fact::EnvironmentOpened]),
            (Seen::EnvironmentFailed { reason }, Phase::Opening) => {
                Ok(vec![Fact::EnvironmentFailed { reason }])
            }
            (Seen::ModelEnded { call, tokens, end }, Phase::Thinking(asked))
                if asked.call == call =>
            {
                let end = self.usable(fresh, end)?;
                Ok(vec![Fact::ModelEnded { call, tokens, end }])
            }
            (Seen::Answered { permission, answer }, phase) => {
                self.answer(phase, at, permission, answer)
            }
            (Seen::Revoked { permission }, _) if self.has_grant(permission) => {
                Ok(vec![Fact::GrantRevoked { permission }])
            }
            (Seen::Revoked { .. }, _) => Ok(Vec::new()),
            (Seen::Canceled { by }, _) => Ok(self.halted(Halt::Canceled { by })),
            (Seen::Disconnected, _) => Ok(self.halted(Halt::Disconnected)),
            (Seen::SessionEnded, _) => Ok(self.halted(Halt::SessionEnded)),
            (Seen::Failed { reason }, _) => Ok(self.halted(Halt::Failed(reason))),
            (Seen::Tick, phase) => Ok(expired(phase, at)),
            (Seen::EnvironmentClosed, Phase::Closing(_)) => Ok(vec![Fact::EnvironmentClosed]),
            (seen, Phase::Calling(turn)) => about_call(&turn.current, seen),
            _ => Err(Rejected::NotOutstanding),
        }
    }

    /// Whether the run, as old as it is, takes such an input at all.
    fn admits(&self, seen: &Seen) -> Result<(), Rejected> {
        match (&self.phase, seen) {
            // Who answers too late learns who was first, even after the run.
            (_, Seen::Answered { permission, .. }) if self.resolved.contains_key(permission) => {
                Ok(())
            }
            (Phase::New, Seen::Prompted(_)) | (Phase::Closing(_), Seen::EnvironmentClosed) => {
                Ok(())
            }
            (Phase::New, _) => Err(Rejected::NotStarted),
            (Phase::Closing(_) | Phase::Over(_), _) => Err(Rejected::Over),
            (_, Seen::Prompted(_)) => Err(Rejected::AlreadyStarted),
            (_, _) => Ok(()),
        }
    }

    fn unused(&self, ids: impl IntoIterator<Item = u128>) -> Result<(), Rejected> {
        match ids.into_iter().find(|id| self.ids.contains(id)) {
            Some(id) => Err(Rejected::IdReused { id }),
            None => Ok(()),
        }
    }

    /// The end of a model call as the run can use it.
    fn usable(&self, fresh: Fresh, end: ModelEnd) -> Result<ModelEnd, Rejected> {
        let ModelEnd::Calls(calls) = end else { return Ok(end) };
        match calls.len() {
            0 => Ok(ModelEnd::Failed(Reason::MODEL_NO_CALLS)),
            1..=MAX_CALLS_PER_TURN => {
                self.distinct(fresh, &calls)?;
                Ok(ModelEnd::Calls(calls))
            }
            _ => Ok(ModelEnd::Failed(Reason::MODEL_TOO_MANY_CALLS)),
        }
    }

    /// Ids that nothing else bears.
    fn distinct(&self, fresh: Fresh, calls: &[CallId]) -> Result<(), Rejected> {
        self.unused(calls.iter().map(|call| call.0))?;
        let mut seen = BTreeSet::from([CallId(fresh.0)]);
        match calls.iter().find(|call| !seen.insert(**call)) {
            Some(twice) => Err(Rejected::IdReused { id: twice.0 }),
            None => Ok(()),
        }
    }

    fn started_by(&self, fresh: Fresh, prompt: Prompt) -> Result<Vec<Fact>, Rejected> {
        let Prompt { ceiling, manifest, requested, ask_timeout, calls } = prompt;
        let budget = ceiling.clamped(&manifest).clamped(&requested);
        self.distinct(fresh, &calls)?;
        Ok(vec![Fact::Started { budget, ask_timeout, calls }])
    }

    /// A run that must end already need not be told twice.
    fn halted(&self, why: Halt) -> Vec<Fact> {
        match self.halt {
            Some(_) => Vec::new(),
            None => vec![Fact::Halted { why }],
        }
    }

    fn answer(
        &self,
        phase: &Phase,
        at: Time,
        permission: PermissionId,
        answer: Answer,
    ) -> Result<Vec<Fact>, Rejected> {
        if let Some(resolution) = self.resolved.get(&permission) {
            return Err(Rejected::AlreadyResolved { permission, resolution: resolution.clone() });
        }
        match phase {
            Phase::Calling(Turn { current: Current::Asking(asking), .. })
                if asking.permission == permission =>
            {
                let resolution = asking.resolution(at, answer)?;
                Ok(vec![Fact::PermissionResolved { permission, resolution }])
            }
            _ => Err(Rejected::UnknownPermission { permission }),
        }
    }
}

impl Asking {
    fn resolution(&self, at: Time, answer: Answer) -> Result<Resolution, Rejected> {
        match answer {
            Answer::Allow { scope, .. } if !self.call.plan.scopes.contains(&scope) => {
                Err(Rejected::ScopeNotOffered { scope })
            }
            Answer::Allow { claimed_at, .. } if claimed_at.min(at) >= self.expires_at => {
                Err(Rejected::Expired { permission: self.permission })
            }
            Answer::Allow { by, scope, .. } => Ok(Resolution::Allowed { by, scope }),
            Answer::Deny(no) => {
                let (source, by) = match no {
                    No::Operator { by } => (DenySource::Operator, Some(by)),
                    No::MalformedAnswer { by } => (DenySource::MalformedAnswer, Some(by)),
                    No::MissingResolver => (DenySource::MissingResolver, None),
                    No::System => (DenySource::System, None),
                };
                Ok(Resolution::Denied { source, by })
            }
        }
    }
}

/// Time alone ends an ask; every other limit is the account's.
fn expired(phase: &Phase, at: Time) -> Vec<Fact> {
    match phase {
        Phase::Calling(Turn { current: Current::Asking(asking), .. })
            if at >= asking.expires_at =>
        {
            let resolution = Resolution::Denied { source: DenySource::Timeout, by: None };
            vec![Fact::PermissionResolved { permission: asking.permission, resolution }]
        }
        _ => Vec::new(),
    }
}

fn about_call(current: &Current, seen: Seen) -> Result<Vec<Fact>, Rejected> {
    match (current, seen) {
        (Current::Planning(call, _), Seen::Planned(planned)) if planned.call == *call => {
            Ok(judged(planned))
        }
        (Current::Planning(planning, _), Seen::PlanRefused { call, reason })
            if call == *planning =>
        {
            Ok(vec![Fact::CallEnded { call, end: CallEnd::Refused { reason } }])
        }
        (Current::Executing(running), Seen::Executed { call, attempt, report })
            if (call, attempt) == (running.id, running.attempt) =>
        {
            Ok(vec![executed(running, report)])
        }
        (Current::Stopping(running), Seen::Executed { call, attempt, report })
            if (call, attempt) == (running.id, running.attempt) =>
        {
            Ok(vec![stopped(running, report)])
        }
        (Current::Executing(running), Seen::Delegated { call, attempt })
            if (call, attempt) == (running.id, running.attempt) =>
        {
            Ok(vec![Fact::Delegated { call }])
        }
        // No child is begun for a run that must end.
        (Current::Stopping(running), Seen::Delegated { call, attempt })
            if (call, attempt) == (running.id, running.attempt) =>
        {
            Ok(vec![Fact::CallEnded { call, end: CallEnd::Stopped }])
        }
        (Current::Delegating(delegated), Seen::ChildEnded { call, used, outcome })
            if call == delegated.id =>
        {
            Ok(vec![Fact::ChildEnded { call, used, outcome }])
        }
        (Current::Unknown(unknown), Seen::OperatorDecided { call, by, choice })
            if call == unknown.id =>
        {
            Ok(vec![Fact::OperatorDecided { call, by, choice }])
        }
        _ => Err(Rejected::NotOutstanding),
    }
}

fn judged(planned: Planned) -> Vec<Fact> {
    let Planned { call, plan, verdict, parts, result } = planned;
    let verdict = parts.into_iter().fold(verdict, Verdict::max);
    let class = plan.class;
    let mut facts = vec![Fact::CallPlanned { call, plan, verdict }];
    if let (Verdict::Allow, EffectClass::Pure, Some(finish)) = (verdict, class, result) {
        facts.push(Fact::CallEnded { call, end: finish.end() });
    }
    facts
}

fn executed(running: &Approved<Call>, report: Report) -> Fact {
    match report {
        Report::Unadmitted { reason } => match running.basis() {
            // A person has to answer before the next attempt, so this has an end.
            Basis::Permission(permission) | Basis::Grant(permission) => {
                let attempt = running.attempt.saturating_add(1);
                Fact::GrantRefused { call: running.id, attempt, permission, reason }
            }
            Basis::Policy => Fact::CallEnded { call: running.id, end: CallEnd::Refused { reason } },
        },
        Report::Lost { ran, reason }
            if running.attempt <= RETRIES && harmless_again(running, ran) =>
        {
            Fact::CallRetried { call: running.id, attempt: running.attempt + 1, reason }
        }
        report => stopped(running, report),
    }
}

/// The end of a call that is not tried again.
fn stopped(running: &Approved<Call>, report: Report) -> Fact {
    let end = match report {
        Report::Lost { ran, reason } if !harmless_again(running, ran) => {
            return Fact::OutcomeUnknown { call: running.id, attempt: running.attempt, reason };
        }
        Report::Succeeded => CallEnd::Succeeded,
        Report::Failed => CallEnd::Failed,
        Report::Stopped => CallEnd::Stopped,
        Report::Refused { reason } | Report::Unadmitted { reason } => CallEnd::Refused { reason },
        Report::Lost { reason, .. } => CallEnd::Lost { reason },
    };
    Fact::CallEnded { call: running.id, end }
}

/// Only what cannot be taken back and may have run must not run again.
fn harmless_again(running: &Approved<Call>, ran: Ran) -> bool {
    ran == Ran::No || running.plan.class != EffectClass::Irreversible
}

/// The run as it will be, growing by one event at a time.
struct Draft {
    run: Run,
    at: Time,
    events: Vec<Event>,
}

impl Draft {
    fn push(&mut self, fact: Fact) {
        let event = Event { at: self.at, fact };
        self.run.follow(event.clone());
        self.events.push(event);
    }
}
