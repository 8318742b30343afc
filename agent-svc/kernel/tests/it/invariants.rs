//! What must hold of every record, whatever happened. Each is judged from the recorded facts alone.

use std::collections::{BTreeMap, BTreeSet};

use kernel::{
    Approved, Basis, Budget, Call, CallId, Choice, Effect, EffectClass, Event, Fact, Fresh, Input,
    Key, Metric, ModelEnd, PermissionId, Rejected, Resolution, Run, Scope, Seen, Status, Verdict,
    record,
};

use crate::world::{RUN, World};

pub(crate) fn hold(world: &World) {
    let stages = stages(&world.batches);
    let facts: Vec<&Fact> = world.record().map(|event| &event.fact).collect();
    folding_gives_the_same_run(world);
    every_stage_rests_on_an_effect(&stages);
    budgets_only_fall(&stages);
    no_effect_is_due_again_once_it_was_settled(&stages);
    nothing_runs_unapproved(world);
    calls_end_once_and_one_after_another(&facts, &world.run);
    asks_are_requested_once_and_resolved_once(&facts, &world.run);
    nothing_that_may_have_run_runs_again_by_itself(&facts);
    half_a_budget_is_warned_of_once(&facts);
    an_end_is_final(&facts);
    a_batch_cut_in_two_is_made_whole(world);
}

/// The run before the first batch and after each.
fn stages(batches: &[Vec<Event>]) -> Vec<Run> {
    let mut stages = vec![Run::new(RUN)];
    let mut run = Run::new(RUN);
    for batch in batches {
        for event in batch {
            run = run.apply(event.clone());
        }
        stages.push(run.clone());
    }
    stages
}

fn folding_gives_the_same_run(world: &World) {
    let read = world.record().map(|event| {
        let bytes = record::encode(event).expect("an event can be written");
        record::decode(&bytes).expect("what was written can be read")
    });
    assert_eq!(record::fold(RUN, read).expect("each event follows on those before it"), world.run);
}

fn every_stage_rests_on_an_effect(stages: &[Run]) {
    for run in stages {
        let rests = matches!(run.status(), Status::New | Status::Over(_));
        assert_eq!(run.due().count(), usize::from(!rests), "{run:?}");
    }
}

fn budgets_only_fall(stages: &[Run]) {
    let fallen = |from: Budget, to: Budget| {
        Metric::ALL.into_iter().all(|metric| to.of(metric) <= from.of(metric))
    };
    for pair in stages[1..].windows(2) {
        assert!(
            fallen(pair[0].left(), pair[1].left()),
            "{:?} -> {:?}",
            pair[0].left(),
            pair[1].left()
        );
        assert_eq!(pair[0].limits(), pair[1].limits());
    }
}

/// So a driver that starts what is newly due, and attaches to what was due before, does nothing twice.
fn no_effect_is_due_again_once_it_was_settled(stages: &[Run]) {
    let mut settled: BTreeSet<Key> = BTreeSet::new();
    let mut before: BTreeSet<Key> = BTreeSet::new();
    for run in stages {
        let now: BTreeSet<Key> = run.due().map(|effect| effect.key()).collect();
        settled.extend(before.difference(&now));
        assert!(settled.is_disjoint(&now), "due again: {now:?}");
        before = now;
    }
}

/// At every event, not only after every batch.
fn nothing_runs_unapproved(world: &World) {
    let mut run = Run::new(RUN);
    let mut recorded = Vec::new();
    for event in world.record() {
        run = run.apply(event.clone());
        recorded.push(&event.fact);
        for effect in run.due() {
            if let Effect::Execute(call) = effect {
                assert!(approved(&recorded, &call), "{call:?} in {recorded:?}");
            }
        }
    }
}

fn approved(recorded: &[&Fact], call: &Approved<Call>) -> bool {
    let judged = |wanted: Verdict| {
        recorded.iter().any(|fact| {
            matches!(fact, Fact::CallPlanned { call: id, plan, verdict }
                if *id == call.id && *plan == call.plan && *verdict == wanted)
        })
    };
    match call.basis() {
        Basis::Policy => judged(Verdict::Allow),
        Basis::Permission(permission) => {
            judged(Verdict::Ask)
                && !refused(recorded, permission)
                && asked_about(recorded, permission) == Some(&call.plan)
                && match allowed(recorded, permission) {
                    Some((asked, _)) => asked == call.id,
                    None => false,
                }
        }
        Basis::Grant(permission) => {
            judged(Verdict::Ask)
                && stood(recorded, permission, call.id)
                && match allowed(recorded, permission) {
                    Some((_, Scope::Run)) => {
                        call.plan.scopes.contains(&Scope::Run)
                            && asked_about(recorded, permission)
                                .is_some_and(|plan| plan.action == call.plan.action)
                    }
                    Some((_, Scope::Once)) | None => false,
                }
        }
    }
}

/// Whether the allow for the run had not been taken back when it was last used for this call.
fn stood(recorded: &[&Fact], wanted: PermissionId, by: CallId) -> bool {
    let used = recorded.iter().rposition(|fact| {
        matches!(fact, Fact::GrantUsed { call, permission } if (*call, *permission) == (by, wanted))
    });
    used.is_some_and(|used| {
        recorded[..used].iter().all(|fact| match fact {
            Fact::GrantRevoked { permission } | Fact::GrantRefused { permission, .. } => {
                *permission != wanted
            }
            _ => true,
        })
    })
}

/// The call that a permission was asked for, and how far a person allowed it.
fn allowed(recorded: &[&Fact], wanted: PermissionId) -> Option<(CallId, Scope)> {
    let asked = recorded.iter().find_map(|fact| match fact {
        Fact::PermissionRequested { permission, call, .. } if *permission == wanted => Some(*call),
        _ => None,
    })?;
    recorded.iter().find_map(|fact| match fact {
        Fact::PermissionResolved { permission, resolution: Resolution::Allowed { scope, .. } }
            if *permission == wanted =>
        {
            Some((asked, *scope))
        }
        _ => None,
    })
}

/// The plan that people were asked about under a permission: the call's last before the ask.
fn asked_about<'a>(recorded: &[&'a Fact], wanted: PermissionId) -> Option<&'a kernel::Plan> {
    let asked = recorded.iter().position(|fact| {
        matches!(fact, Fact::PermissionRequested { permission, .. } if *permission == wanted)
    })?;
    recorded[..asked].iter().rev().find_map(|fact| match fact {
        Fact::CallPlanned { plan, .. } => Some(plan),
        _ => None,
    })
}

/// Whether the executor did not take what was allowed under it.
fn refused(recorded: &[&Fact], wanted: PermissionId) -> bool {
    recorded
        .iter()
        .any(|fact| matches!(fact, Fact::GrantRefused { permission, .. } if *permission == wanted))
}

fn calls_end_once_and_one_after_another(facts: &[&Fact], run: &Run) {
    let mut open: Vec<CallId> = Vec::new();
    let mut begun: Option<CallId> = None;
    for fact in facts {
        match fact {
            Fact::ModelEnded { end: ModelEnd::Calls(calls), .. } => {
                assert_eq!(open, [], "a turn begins when the one before has ended");
                open.clone_from(calls);
            }
            Fact::CallStarted { call } => {
                assert_eq!((begun, open.first()), (None, Some(call)));
                begun = Some(*call);
            }
            Fact::CallEnded { call, end } => {
                assert_eq!(open.first(), Some(call));
                let skipped = matches!(end, kernel::CallEnd::Skipped { .. });
                assert_eq!(begun.take().is_none(), skipped, "{call:?} ended {end:?}");
                open.remove(0);
            }
            Fact::ModelAsked { .. } | Fact::Ended { .. } => assert_eq!(open, []),
            _ => (),
        }
    }
    if let Status::Ending(_) | Status::Over(_) = run.status() {
        assert_eq!(open, []);
    }
}

fn asks_are_requested_once_and_resolved_once(facts: &[&Fact], run: &Run) {
    let mut asked: Option<PermissionId> = None;
    let mut seen: BTreeSet<PermissionId> = BTreeSet::new();
    for pair in facts.windows(2) {
        match (pair[0], pair[1]) {
            (Fact::CallPlanned { verdict, .. }, next) => {
                let asks =
                    matches!(next, Fact::PermissionRequested { .. } | Fact::GrantUsed { .. });
                let warns = matches!(next, Fact::BudgetWarned { .. } | Fact::Halted { .. });
                assert!(warns || asks == (*verdict == Verdict::Ask), "{verdict:?} then {next:?}");
            }
            (Fact::PermissionRequested { permission, .. }, _) => {
                assert!(asked.replace(*permission).is_none() && seen.insert(*permission));
            }
            (Fact::PermissionResolved { permission, .. }, _) => {
                assert_eq!(asked.take(), Some(*permission));
            }
            (_, _) => (),
        }
    }
    let open = matches!(run.status(), Status::AwaitingPerson { .. });
    let last_resolves = matches!(facts.last(), Some(Fact::PermissionResolved { .. }));
    let last_asks = matches!(facts.last(), Some(Fact::PermissionRequested { .. }));
    assert_eq!(open, last_asks || (asked.is_some() && !last_resolves));
}

fn nothing_that_may_have_run_runs_again_by_itself(facts: &[&Fact]) {
    let mut class: BTreeMap<CallId, EffectClass> = BTreeMap::new();
    let mut unknown: BTreeSet<CallId> = BTreeSet::new();
    for fact in facts {
        match fact {
            Fact::CallPlanned { call, plan, .. } => {
                class.insert(*call, plan.class);
            }
            Fact::OutcomeUnknown { call, .. } => {
                assert_eq!(class.get(call), Some(&EffectClass::Irreversible));
                unknown.insert(*call);
            }
            Fact::OperatorDecided { call, choice: Choice::RunAgain, .. } => {
                assert!(unknown.remove(call));
            }
            Fact::CallRetried { call, .. } => assert!(!unknown.contains(call)),
            _ => (),
        }
    }
}

fn half_a_budget_is_warned_of_once(facts: &[&Fact]) {
    let mut warned = BTreeSet::new();
    for fact in facts {
        if let Fact::BudgetWarned { metric, used, limit } = fact {
            assert!(warned.insert(*metric) && used * 2 >= *limit);
        }
    }
}

fn an_end_is_final(facts: &[&Fact]) {
    let end = facts.iter().position(|fact| matches!(fact, Fact::Ended { .. }));
    let after = end.map_or(&[][..], |end| &facts[end + 1..]);
    assert!(matches!(after, [] | [Fact::EnvironmentClosed]), "{after:?}");
}

/// Batches are recorded whole. Were one not, the next look at the run would still set it right.
fn a_batch_cut_in_two_is_made_whole(world: &World) {
    let mut run = Run::new(RUN);
    for event in world.record() {
        run = run.apply(event.clone());
        let fresh = Fresh(u128::MAX);
        match run.decide(Input { at: event.at, fresh, seen: Seen::Tick }) {
            Ok(events) => {
                let whole = events.into_iter().fold(run.clone(), Run::apply);
                assert_eq!(whole.due().count(), 1, "{whole:?}");
            }
            Err(rejected) => assert_eq!(rejected, Rejected::Over),
        }
    }
}
