//! A run under test with its record, and short names for what it is fed.

use kernel::{
    Answer, Budget, CallId, Digest, Effect, EffectClass, Event, Fact, Finish, Fresh, Input, Limits,
    Millis, ModelEnd, No, PermissionId, Plan, Planned, Prompt, Ran, Reason, Rejected, Report, Run,
    RunId, Scope, Seen, Subject, Time, Verdict,
};

pub(crate) const RUN: RunId = RunId(0xa);
pub(crate) const ASK_TIMEOUT: Millis = Millis(120_000);
pub(crate) const GONE: Reason = Reason::of("EXECUTION_LOST");

/// A run and its record, one batch per accepted input. The n-th input brings along the id n.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) run: Run,
    pub(crate) batches: Vec<Vec<Event>>,
    pub(crate) now: Time,
    pub(crate) inputs: u128,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { run: Run::new(RUN), batches: Vec::new(), now: Time(1_000), inputs: 0 }
    }

    /// A run whose model is being asked for the first time, under the id 2.
    pub(crate) fn thinking(prompt: Prompt) -> Self {
        let mut world = Self::new();
        world.sees(Seen::Prompted(prompt));
        world.sees(Seen::EnvironmentOpened);
        world
    }

    /// A run whose first turn has these calls, the first of which is being planned.
    pub(crate) fn calling(calls: &[CallId]) -> Self {
        let mut world = Self::thinking(prompt());
        world.sees(replied(2, 10, calls));
        world
    }

    pub(crate) fn attempt(&mut self, seen: Seen) -> Result<Vec<Event>, Rejected> {
        self.inputs += 1;
        let events = self.run.decide(Input { at: self.now, fresh: Fresh(self.inputs), seen })?;
        for event in &events {
            self.run = self.run.clone().apply(event.clone());
        }
        self.batches.push(events.clone());
        Ok(events)
    }

    /// Whether the input was acceptable; if so it is recorded and applied.
    pub(crate) fn takes(&mut self, seen: Seen) -> bool {
        self.attempt(seen).is_ok()
    }

    /// The facts that an acceptable input leads to, recorded and applied.
    pub(crate) fn sees(&mut self, seen: Seen) -> Vec<Fact> {
        let events = self.attempt(seen).expect("the input is acceptable");
        events.into_iter().map(|event| event.fact).collect()
    }

    pub(crate) fn refuses(&mut self, seen: Seen) -> Rejected {
        self.attempt(seen).expect_err("the input is refused")
    }

    pub(crate) fn later(&mut self, millis: u64) -> &mut Self {
        self.now.0 += millis;
        self
    }

    pub(crate) fn due(&self) -> Vec<Effect> {
        self.run.due().collect()
    }

    pub(crate) fn record(&self) -> impl Iterator<Item = &Event> {
        self.batches.iter().flatten()
    }
}

pub(crate) fn ceiling() -> Budget {
    Budget { steps: 8, tool_calls: 100, tokens: 10_000, wall_time: Millis(600_000) }
}

pub(crate) fn prompt() -> Prompt {
    Prompt {
        ceiling: ceiling(),
        manifest: Limits::default(),
        requested: Limits::default(),
        ask_timeout: ASK_TIMEOUT,
        calls: Vec::new(),
    }
}

pub(crate) fn limited(manifest: Limits) -> Prompt {
    Prompt { manifest, ..prompt() }
}

pub(crate) fn subject() -> Subject {
    Subject("ada".to_owned())
}

pub(crate) fn replied(call: u128, tokens: u64, calls: &[CallId]) -> Seen {
    Seen::ModelEnded { call: CallId(call), tokens, end: ModelEnd::Calls(calls.to_vec()) }
}

pub(crate) fn said(call: u128, tokens: u64, end: ModelEnd) -> Seen {
    Seen::ModelEnded { call: CallId(call), tokens, end }
}

/// A plan whose action is `action` and which is otherwise the call's own.
pub(crate) fn plan(call: CallId, action: u8, class: EffectClass) -> Plan {
    let mut digest = [action; 32];
    digest[..16].copy_from_slice(&call.0.to_be_bytes());
    let scopes = match class {
        EffectClass::Irreversible => vec![Scope::Once],
        EffectClass::Pure | EffectClass::Idempotent | EffectClass::Staged => {
            vec![Scope::Once, Scope::Run]
        }
    };
    Plan { digest: Digest(digest), action: Digest([action; 32]), class, scopes }
}

pub(crate) fn staged(call: CallId) -> Plan {
    plan(call, 1, EffectClass::Staged)
}

pub(crate) fn planned(plan: Plan, call: CallId, verdict: Verdict) -> Seen {
    Seen::Planned(Planned { call, plan, verdict, parts: vec![verdict], result: None })
}

pub(crate) fn answered_with_plan(call: CallId, finish: Finish) -> Seen {
    Seen::Planned(Planned {
        call,
        plan: plan(call, 1, EffectClass::Pure),
        verdict: Verdict::Allow,
        parts: vec![Verdict::Allow],
        result: Some(finish),
    })
}

pub(crate) fn allowed(permission: u128, scope: Scope, claimed_at: Time) -> Seen {
    let answer = Answer::Allow { by: subject(), scope, claimed_at };
    Seen::Answered { permission: PermissionId(permission), answer }
}

pub(crate) fn refused(permission: u128) -> Seen {
    let answer = Answer::Deny(No::Operator { by: subject() });
    Seen::Answered { permission: PermissionId(permission), answer }
}

pub(crate) fn executed(call: CallId, attempt: u32, report: Report) -> Seen {
    Seen::Executed { call, attempt, report }
}

pub(crate) fn lost(ran: Ran) -> Report {
    Report::Lost { ran, reason: GONE }
}
