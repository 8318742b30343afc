//! Random schedules: a world that answers what is due, says what is not, dies and comes back.

use std::collections::BTreeMap;

use kernel::{
    Answer, Budget, Call, CallId, Choice, Effect, EffectClass, Event, Fact, Finish, Halt, Key,
    Limits, Metric, Millis, ModelEnd, No, Outcome, PermissionId, Planned, Ran, Reason, Report, Run,
    Scope, Seen, Time, Verdict, record,
};
use proptest::prelude::*;

use crate::invariants;
use crate::world::{GONE, RUN, World, executed, limited, plan, prompt, replied, said, subject};

/// One step of a schedule: what kind of thing happens, which of its kind, and how much later.
#[derive(Clone, Copy, Debug)]
struct Move {
    kind: Kind,
    which: u8,
    later: u16,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// What is due gets an answer.
    Fitting,
    /// Something is said that nobody waits for, or not any more.
    Stray,
    /// Something ends the run.
    Halt,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let kind =
        prop_oneof![30 => Just(Kind::Fitting), 6 => Just(Kind::Stray), 1 => Just(Kind::Halt)];
    let one = (kind, any::<u8>(), 0..20_000_u16).prop_map(|(kind, which, later)| Move {
        kind,
        which,
        later,
    });
    prop::collection::vec(one, 1..160)
}

fn limits() -> impl Strategy<Value = Limits> {
    let some = |most: u64| prop_oneof![2 => Just(None), 1 => (0..most).prop_map(Some)];
    (some(10), some(20), some(800), some(900_000)).prop_map(
        |(steps, tool_calls, tokens, wall_time)| Limits {
            steps,
            tool_calls,
            tokens,
            wall_time: wall_time.map(Millis),
        },
    )
}

impl World {
    /// What the shell would see of this step.
    fn witness(&self, Move { kind, which, .. }: Move) -> Seen {
        match kind {
            Kind::Fitting => self.fitting(which),
            Kind::Stray => self.stray(which),
            Kind::Halt => halt(which),
        }
    }

    fn fitting(&self, which: u8) -> Seen {
        match self.run.due().next() {
            None => Seen::Tick,
            Some(Effect::OpenEnvironment { .. }) if which == 0 => {
                Seen::EnvironmentFailed { reason: GONE }
            }
            Some(Effect::OpenEnvironment { .. }) => Seen::EnvironmentOpened,
            Some(Effect::AskModel { call, .. }) => self.model_end(call, which),
            Some(Effect::Plan { call, .. }) => judge(call, which),
            Some(Effect::AskPerson { permission, expires_at, .. }) => {
                answer(permission, expires_at, which)
            }
            Some(Effect::Execute(call))
                if which % 5 == 4 && call.plan.class == EffectClass::Idempotent =>
            {
                Seen::Delegated { call: call.id, attempt: call.attempt }
            }
            Some(Effect::Execute(call)) => executed(call.id, call.attempt, report(which)),
            Some(Effect::RunChild { call, .. } | Effect::StopChild { call, .. }) => {
                child_ended(call, which)
            }
            Some(Effect::Stop { call, attempt }) => executed(call, attempt, report(which)),
            Some(Effect::AskOperator { call, .. }) => {
                Seen::OperatorDecided { call, by: subject(), choice: choice(which) }
            }
            Some(Effect::Finish { .. }) => Seen::EnvironmentClosed,
        }
    }

    fn model_end(&self, call: CallId, which: u8) -> Seen {
        let tokens = u64::from(which);
        match which % 16 {
            0 => said(call.0, tokens, ModelEnd::Stop),
            1 => said(call.0, tokens, ModelEnd::Length),
            2 => said(call.0, tokens, ModelEnd::Failed(Reason::of("MODEL_TIMEOUT"))),
            3 | 4 => said(call.0, tokens, ModelEnd::Lost),
            5 => replied(call.0, tokens, &[]),
            6 => said(call.0, tokens, ModelEnd::OverBudget),
            many => {
                let calls: Vec<CallId> = (0..u128::from(many % 4) + 1)
                    .map(|n| CallId((self.inputs + 1) << 32 | n))
                    .collect();
                replied(call.0, tokens, &calls)
            }
        }
    }

    /// An input about something that was outstanding once, or never.
    fn stray(&self, which: u8) -> Seen {
        let call = self.earlier(which, |fact| match fact {
            Fact::ModelAsked { call, .. } | Fact::CallStarted { call } => Some(*call),
            _ => None,
        });
        let permission = self.earlier(which, |fact| match fact {
            Fact::PermissionRequested { permission, .. } => Some(*permission),
            _ => None,
        });
        let call = call.unwrap_or(CallId(0xdead));
        match which % 10 {
            0 => Seen::Prompted(prompt()),
            1 => Seen::EnvironmentOpened,
            2 => replied(call.0, 1, &[CallId(0xbeef)]),
            3 => judge(call, which),
            4 => answer(permission.unwrap_or(PermissionId(0xdead)), Time(u64::MAX), which / 9),
            5 => executed(call, u32::from(which) % 3 + 1, report(which / 9)),
            6 => Seen::OperatorDecided { call, by: subject(), choice: choice(which / 9) },
            7 => Seen::EnvironmentClosed,
            8 if which >= 128 => child_ended(call, which),
            8 if which >= 96 => Seen::Delegated { call, attempt: u32::from(which) % 3 + 1 },
            8 => Seen::Revoked { permission: permission.unwrap_or(PermissionId(0xdead)) },
            _ => Seen::Tick,
        }
    }

    fn earlier<T>(&self, which: u8, pick: impl Fn(&Fact) -> Option<T>) -> Option<T> {
        let mut all: Vec<T> = self.record().filter_map(|event| pick(&event.fact)).collect();
        match all.len() {
            0 => None,
            len => Some(all.swap_remove(usize::from(which) % len)),
        }
    }
}

fn judge(call: CallId, which: u8) -> Seen {
    let class = [
        EffectClass::Pure,
        EffectClass::Idempotent,
        EffectClass::Staged,
        EffectClass::Irreversible,
    ];
    let verdict = [Verdict::Allow, Verdict::Ask, Verdict::Ask, Verdict::Deny];
    if which % 16 == 15 {
        return Seen::PlanRefused { call, reason: Reason::of("PLAN_TOO_LARGE") };
    }
    Seen::Planned(Planned {
        call,
        plan: plan(call, which % 3, class[usize::from(which) % 4]),
        verdict: verdict[usize::from(which / 4) % 4],
        parts: vec![verdict[usize::from(which / 16) % 4]],
        result: which.is_multiple_of(2).then_some(Finish::Succeeded),
    })
}

fn answer(permission: PermissionId, expires_at: Time, which: u8) -> Seen {
    let by = subject();
    let answer = match which % 8 {
        0..3 => Answer::Allow { by, scope: Scope::Run, claimed_at: Time(0) },
        3 | 4 => Answer::Allow { by, scope: Scope::Once, claimed_at: Time(0) },
        5 => Answer::Allow { by, scope: Scope::Once, claimed_at: expires_at },
        6 => Answer::Deny(No::Operator { by }),
        _ => Answer::Deny(No::MissingResolver),
    };
    Seen::Answered { permission, answer }
}

fn report(which: u8) -> Report {
    match which % 8 {
        0..3 => Report::Succeeded,
        3 => Report::Failed,
        4 => Report::Stopped,
        5 if which >= 128 => Report::Refused { reason: Reason::of("HOST_CHANGED") },
        5 => Report::Unadmitted { reason: Reason::of("RECEIPT_REVOKED") },
        6 => Report::Lost { ran: Ran::No, reason: GONE },
        _ => Report::Lost { ran: Ran::Maybe, reason: GONE },
    }
}

fn child_ended(call: CallId, which: u8) -> Seen {
    let some = u64::from(which % 4);
    let used = Budget {
        steps: some,
        tool_calls: some,
        tokens: 100 * some,
        wall_time: Millis(1000 * some),
    };
    let outcome = match which % 4 {
        0 | 1 => Outcome::Completed,
        2 => Outcome::Halted(Halt::OverBudget(Metric::Tokens)),
        _ => Outcome::Halted(Halt::Canceled { by: subject() }),
    };
    Seen::ChildEnded { call, used, outcome }
}

fn choice(which: u8) -> Choice {
    [Choice::MarkDone, Choice::MarkFailed, Choice::RunAgain, Choice::Abort][usize::from(which) % 4]
}

fn halt(which: u8) -> Seen {
    match which % 4 {
        0 => Seen::Canceled { by: subject() },
        1 => Seen::Disconnected,
        2 => Seen::SessionEnded,
        _ => Seen::Failed { reason: Reason::of("EVENT_REDACTION_FAILED") },
    }
}

/// Where the service dies in a step.
#[derive(Clone, Copy, Debug)]
enum Death {
    None,
    /// What it saw is forgotten, though an effect may have been had.
    BeforeTheRecord,
    AfterTheRecord,
}

/// An executor that keeps what it did by the effect's key, and so attaches instead of doing it twice.
#[derive(Debug, Default)]
struct Executor {
    known: BTreeMap<Key, Report>,
    /// The attempts of each call that really changed something.
    changed: BTreeMap<CallId, u32>,
}

impl Executor {
    fn execute(&mut self, key: Key, call: &Call, which: u8) -> Report {
        if let Some(report) = self.known.get(&key) {
            return report.clone();
        }
        let report = report(which);
        let changes = !matches!(
            report,
            Report::Refused { .. } | Report::Unadmitted { .. } | Report::Lost { ran: Ran::No, .. }
        );
        if changes && call.plan.class == EffectClass::Irreversible {
            *self.changed.entry(call.id).or_default() += 1;
        }
        self.known.insert(key, report.clone());
        report
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_invariant_holds_whatever_happens(limits in limits(), moves in moves()) {
        let mut world = World::new();
        world.sees(Seen::Prompted(limited(limits)));
        for step in moves {
            world.later(u64::from(step.later));
            let before = world.run.clone();
            let seen = world.witness(step);
            if !world.takes(seen) {
                prop_assert_eq!(&world.run, &before);
            }
        }
        invariants::hold(&world);
    }

    #[test]
    fn a_run_that_is_over_accepts_nothing(moves in moves(), strays in moves()) {
        let mut world = World::new();
        world.sees(Seen::Prompted(prompt()));
        for step in moves {
            let seen = world.witness(step);
            world.takes(seen);
        }
        if world.run.due().all(|effect| !matches!(effect, Effect::Finish { .. })) {
            world.takes(Seen::Canceled { by: subject() });
        }
        while world.run.due().next().is_some() {
            let seen = world.fitting(1);
            world.sees(seen);
        }
        for step in strays {
            let seen = world.witness(step);
            world.refuses(seen);
        }
    }

    #[test]
    fn from_every_prefix_recovery_finds_the_same_effects_under_the_same_ids(limits in limits(), moves in moves()) {
        let mut world = World::new();
        world.sees(Seen::Prompted(limited(limits)));
        let mut live: Vec<Vec<Effect>> = vec![world.due()];
        for step in moves {
            world.later(u64::from(step.later));
            let seen = world.witness(step);
            if world.takes(seen) {
                live.push(world.due());
            }
        }
        for (batches, due) in (1..).zip(live) {
            let prefix: Vec<Event> = world.batches[..batches].iter().flatten().cloned().collect();
            let recovered = record::fold(RUN, prefix).expect("a prefix of a record is a record");
            prop_assert_eq!(recovered.due().collect::<Vec<_>>(), due);
        }
    }

    #[test]
    fn a_service_that_dies_anywhere_changes_what_cannot_be_taken_back_at_most_once(
        moves in moves(),
        deaths in prop::collection::vec(
            prop_oneof![
                4 => Just(Death::None),
                1 => Just(Death::BeforeTheRecord),
                1 => Just(Death::AfterTheRecord),
            ],
            160,
        ),
    ) {
        let mut world = World::new();
        world.sees(Seen::Prompted(prompt()));
        let mut executor = Executor::default();
        let mut ordered = BTreeMap::<CallId, u32>::new();
        for (step, death) in moves.into_iter().zip(deaths) {
            world.later(u64::from(step.later));
            let due = world.run.due().next();
            let seen = match (step.kind, due) {
                (Kind::Fitting, Some(Effect::Execute(call))) => {
                    let report = executor.execute(Key::Execute(call.id, call.attempt), &call, step.which);
                    executed(call.id, call.attempt, report)
                }
                (Kind::Fitting, Some(Effect::Stop { call, attempt })) => {
                    let known = executor.known.get(&Key::Execute(call, attempt));
                    executed(call, attempt, known.cloned().unwrap_or(Report::Stopped))
                }
                _ => world.witness(step),
            };
            let again = match &seen {
                Seen::OperatorDecided { call, choice: Choice::RunAgain, .. } => Some(*call),
                _ => None,
            };
            let recorded = !matches!(death, Death::BeforeTheRecord) && world.takes(seen);
            if recorded && let Some(call) = again {
                *ordered.entry(call).or_default() += 1;
            }
            if !matches!(death, Death::None) {
                world.run = recovered(&world);
            }
        }
        for (call, changed) in executor.changed {
            let orders = ordered.get(&call).copied().unwrap_or(0);
            prop_assert!(changed <= 1 + orders, "{call:?} changed something {changed} times");
        }
    }
}

fn recovered(world: &World) -> Run {
    let run = record::fold(RUN, world.record().cloned()).expect("the record is whole");
    assert_eq!(run, world.run);
    run
}
