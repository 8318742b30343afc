//! Runs that a person gave their calls: no model is asked, and what holds of calls holds of these.

use kernel::{
    Budget, CallEnd, CallId, DenySource, Effect, EffectClass, Fact, Limits, Outcome, PermissionId,
    Prompt, Rejected, Report, Resolution, Scope, Seen, Verdict, record,
};

use crate::world::{
    ASK_TIMEOUT, RUN, World, allowed, ceiling, executed, plan, planned, prompt, refused, subject,
};

const CALL: CallId = CallId(0xc1);

fn given(calls: &[CallId]) -> Prompt {
    Prompt { calls: calls.to_vec(), ..prompt() }
}

fn asking() -> World {
    let mut world = World::thinking(given(&[CALL]));
    world.sees(planned(plan(CALL, 1, EffectClass::Idempotent), CALL, Verdict::Ask));
    world
}

#[test]
fn ids_that_are_not_of_their_own_begin_nothing() {
    let mut world = World::new();
    let twice = world.refuses(Seen::Prompted(given(&[CALL, CALL])));
    assert_eq!(twice, Rejected::IdReused { id: CALL.0 });
    let fresh = world.refuses(Seen::Prompted(given(&[CallId(2)])));
    assert_eq!(fresh, Rejected::IdReused { id: 2 });
}

#[test]
fn a_denied_call_is_not_executed_and_the_run_ends_without_a_model() {
    let mut world = asking();
    let resolution = Resolution::Denied { source: DenySource::Operator, by: Some(subject()) };
    assert_eq!(
        world.sees(refused(3)),
        [
            Fact::PermissionResolved { permission: PermissionId(3), resolution },
            Fact::CallEnded { call: CALL, end: CallEnd::Denied { source: DenySource::Operator } },
            Fact::Ended { outcome: Outcome::Completed },
        ]
    );
    assert_eq!(world.run.used().steps, 0);
}

#[test]
fn the_calls_are_planned_asked_about_and_executed_in_their_order_and_then_the_run_ends() {
    let second = CallId(0xc2);
    let mut world = World::new();
    assert_eq!(
        world.sees(Seen::Prompted(given(&[CALL, second]))),
        [Fact::Started { budget: ceiling(), ask_timeout: ASK_TIMEOUT, calls: vec![CALL, second] }]
    );
    assert_eq!(
        world.sees(Seen::EnvironmentOpened),
        [Fact::EnvironmentOpened, Fact::CallStarted { call: CALL }]
    );
    assert_eq!(world.due(), [Effect::Plan { call: CALL, attempt: 1 }]);
    world.sees(planned(plan(CALL, 1, EffectClass::Idempotent), CALL, Verdict::Ask));
    assert!(matches!(world.due()[..], [Effect::AskPerson { call: CALL, .. }]));
    let now = world.now;
    world.sees(allowed(3, Scope::Once, now));
    assert!(matches!(world.due()[..], [Effect::Execute(_)]));
    assert_eq!(
        world.sees(executed(CALL, 1, Report::Succeeded)),
        [
            Fact::CallEnded { call: CALL, end: CallEnd::Succeeded },
            Fact::CallStarted { call: second },
        ]
    );
    world.sees(planned(plan(second, 1, EffectClass::Idempotent), second, Verdict::Deny));
    assert_eq!(world.due(), [Effect::Finish { run: RUN, outcome: Outcome::Completed }]);
    let used = world.run.used();
    assert_eq!(used, Budget { tool_calls: 2, ..Budget::default() });
}

#[test]
fn the_budget_of_calls_holds_for_them_too() {
    let limits = Limits { tool_calls: Some(0), ..Limits::default() };
    let mut world = World::new();
    world.sees(Seen::Prompted(Prompt { manifest: limits, ..given(&[CALL]) }));
    world.sees(Seen::EnvironmentOpened);
    assert!(matches!(world.due()[..], [Effect::Finish { outcome: Outcome::Halted(_), .. }]));
}

#[test]
fn a_record_of_such_a_run_folds_to_the_same_run() {
    let world = asking();
    let bytes: Vec<_> = world.record().map(|event| record::encode(event).unwrap()).collect();
    let events = bytes.iter().map(|bytes| record::decode(bytes).unwrap());
    assert_eq!(record::fold(RUN, events).unwrap(), world.run);
}
