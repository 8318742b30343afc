//! Tool calls of a turn: one after another, retried where that is harmless, and one end each.

use kernel::{
    CallEnd, CallId, Choice, Effect, EffectClass, Fact, Finish, Halt, Key, MAX_CALLS_PER_TURN,
    ModelEnd, Outcome, PermissionId, Ran, Reason, Rejected, Report, Scope, Seen, Status, Time,
    Verdict,
};

use crate::world::{
    GONE, World, allowed, answered_with_plan, executed, lost, plan, planned, prompt, replied, said,
    staged, subject,
};

const CALL: CallId = CallId(0xc1);
const SECOND: CallId = CallId(0xc2);

fn executing(class: EffectClass) -> World {
    let mut world = World::calling(&[CALL, SECOND]);
    world.sees(planned(plan(CALL, 1, class), CALL, Verdict::Allow));
    world
}

#[test]
fn the_calls_of_a_turn_go_one_after_another_in_the_models_order() {
    let mut world = World::thinking(prompt());
    assert_eq!(
        world.sees(replied(2, 10, &[CALL, SECOND])),
        [
            Fact::ModelEnded {
                call: CallId(2),
                tokens: 10,
                end: ModelEnd::Calls(vec![CALL, SECOND])
            },
            Fact::CallStarted { call: CALL },
        ]
    );
    assert_eq!(world.due(), [Effect::Plan { call: CALL, attempt: 1 }]);
    assert_eq!(
        world.refuses(planned(staged(SECOND), SECOND, Verdict::Allow)),
        Rejected::NotOutstanding
    );
    world.sees(planned(staged(CALL), CALL, Verdict::Allow));
    assert_eq!(
        world.sees(executed(CALL, 1, Report::Failed)),
        [Fact::CallEnded { call: CALL, end: CallEnd::Failed }, Fact::CallStarted { call: SECOND }]
    );
}

#[test]
fn a_pure_call_that_is_allowed_ends_with_its_plan() {
    let mut world = World::calling(&[CALL, SECOND]);
    assert_eq!(
        world.sees(answered_with_plan(CALL, Finish::Succeeded)),
        [
            Fact::CallPlanned {
                call: CALL,
                plan: plan(CALL, 1, EffectClass::Pure),
                verdict: Verdict::Allow
            },
            Fact::CallEnded { call: CALL, end: CallEnd::Succeeded },
            Fact::CallStarted { call: SECOND },
        ]
    );
}

#[test]
fn a_result_that_comes_with_the_plan_of_an_effect_or_of_an_ask_counts_for_nothing() {
    for (class, verdict, due) in [
        (EffectClass::Staged, Verdict::Allow, Key::Execute(CALL, 1)),
        (EffectClass::Pure, Verdict::Ask, Key::AskPerson(PermissionId(4))),
    ] {
        let mut world = World::calling(&[CALL]);
        let Seen::Planned(mut early) = planned(plan(CALL, 1, class), CALL, verdict) else {
            unreachable!()
        };
        early.result = Some(Finish::Succeeded);
        world.sees(Seen::Planned(early));
        assert_eq!(world.due()[0].key(), due);
    }
}

#[test]
fn what_the_executor_refuses_is_told_to_the_model_and_not_tried_again() {
    let reason = Reason::of("PLAN_STALE");
    let mut world = executing(EffectClass::Staged);
    assert_eq!(
        world.sees(executed(CALL, 1, Report::Refused { reason: reason.clone() })),
        [
            Fact::CallEnded { call: CALL, end: CallEnd::Refused { reason } },
            Fact::CallStarted { call: SECOND }
        ]
    );
    let reason = Reason::of("PLAN_HOLDS_SECRET");
    assert_eq!(
        world.sees(Seen::PlanRefused { call: SECOND, reason: reason.clone() }),
        [
            Fact::CallEnded { call: SECOND, end: CallEnd::Refused { reason } },
            Fact::ModelAsked { call: CallId(6), step: 1, attempt: 1 },
        ]
    );
}

#[test]
fn a_lost_call_is_tried_twice_more_under_its_id_where_that_is_harmless() {
    let harmless = [
        (EffectClass::Pure, Ran::Maybe),
        (EffectClass::Idempotent, Ran::Maybe),
        (EffectClass::Staged, Ran::Maybe),
        (EffectClass::Irreversible, Ran::No),
    ];
    for (class, ran) in harmless {
        let mut world = executing(class);
        for attempt in [2, 3] {
            assert_eq!(
                world.sees(executed(CALL, attempt - 1, lost(ran))),
                [Fact::CallRetried { call: CALL, attempt, reason: GONE }]
            );
            assert_eq!(world.due()[0].key(), Key::Execute(CALL, attempt));
        }
        assert_eq!(
            world.sees(executed(CALL, 3, lost(ran))),
            [
                Fact::CallEnded { call: CALL, end: CallEnd::Lost { reason: GONE } },
                Fact::CallStarted { call: SECOND },
            ]
        );
    }
}

#[test]
fn the_report_of_an_attempt_that_is_no_longer_the_present_one_changes_nothing() {
    let mut world = executing(EffectClass::Staged);
    world.sees(executed(CALL, 1, lost(Ran::Maybe)));
    assert_eq!(world.refuses(executed(CALL, 1, Report::Succeeded)), Rejected::NotOutstanding);
}

#[test]
fn a_lost_irreversible_call_that_may_have_run_waits_for_an_operator() {
    let mut world = executing(EffectClass::Irreversible);
    assert_eq!(
        world.sees(executed(CALL, 1, lost(Ran::Maybe))),
        [Fact::OutcomeUnknown { call: CALL, attempt: 1, reason: GONE }]
    );
    assert_eq!(world.due(), [Effect::AskOperator { call: CALL, attempt: 1 }]);
    assert_eq!(world.run.status(), Status::NeedsOperator { call: CALL });
    assert_eq!(world.run.deadline(), None);
}

#[test]
fn an_operator_settles_an_unknown_outcome_in_four_ways() {
    let by = subject;
    let aborted = Halt::Failed(Reason::ABORTED_BY_OPERATOR);
    let on = Fact::CallStarted { call: SECOND };
    let ways = [
        (
            Choice::MarkDone,
            vec![Fact::CallEnded { call: CALL, end: CallEnd::MarkedDone { by: by() } }, on.clone()],
        ),
        (
            Choice::MarkFailed,
            vec![Fact::CallEnded { call: CALL, end: CallEnd::MarkedFailed { by: by() } }, on],
        ),
        (Choice::RunAgain, vec![]),
        (
            Choice::Abort,
            vec![
                Fact::CallEnded { call: CALL, end: CallEnd::Unknown },
                Fact::CallEnded { call: SECOND, end: CallEnd::Skipped { why: aborted.clone() } },
                Fact::Ended { outcome: Outcome::Halted(aborted) },
            ],
        ),
    ];
    for (choice, then) in ways {
        let mut world = executing(EffectClass::Irreversible);
        world.sees(executed(CALL, 1, lost(Ran::Maybe)));
        let mut expected = vec![Fact::OperatorDecided { call: CALL, by: by(), choice }];
        expected.extend(then);
        assert_eq!(world.sees(Seen::OperatorDecided { call: CALL, by: by(), choice }), expected);
    }
}

#[test]
fn what_an_operator_runs_again_is_a_further_attempt_on_the_same_approval() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(plan(CALL, 1, EffectClass::Irreversible), CALL, Verdict::Ask));
    world.sees(allowed(4, Scope::Once, Time(1_000)));
    let first = world.due();
    world.sees(executed(CALL, 1, lost(Ran::Maybe)));
    world.sees(Seen::OperatorDecided { call: CALL, by: subject(), choice: Choice::RunAgain });
    let (Some(Effect::Execute(first)), [Effect::Execute(again)]) =
        (first.first(), &world.due()[..])
    else {
        unreachable!("both attempts are due in their turn")
    };
    assert_eq!((again.id, again.attempt, &again.plan), (first.id, 2, &first.plan));
    assert_eq!(again.basis(), first.basis());
}

#[test]
fn a_turn_of_too_many_calls_or_of_none_ends_the_run_before_any_call() {
    let many: Vec<CallId> = (0..=MAX_CALLS_PER_TURN as u128).map(|n| CallId(0x1000 + n)).collect();
    for (calls, reason) in
        [(&many[..], Reason::MODEL_TOO_MANY_CALLS), (&many[..0], Reason::MODEL_NO_CALLS)]
    {
        let mut world = World::thinking(prompt());
        assert_eq!(
            world.sees(replied(2, 10, calls)),
            [
                Fact::ModelEnded {
                    call: CallId(2),
                    tokens: 10,
                    end: ModelEnd::Failed(reason.clone())
                },
                Fact::Ended { outcome: Outcome::Halted(Halt::Failed(reason)) },
            ]
        );
    }
    let mut world = World::thinking(prompt());
    world.sees(replied(2, 10, &many[..MAX_CALLS_PER_TURN]));
    assert_eq!(world.due(), [Effect::Plan { call: many[0], attempt: 1 }]);
}

#[test]
fn no_id_is_borne_twice() {
    let mut twice = World::thinking(prompt());
    assert_eq!(twice.refuses(replied(2, 10, &[CALL, CALL])), Rejected::IdReused { id: CALL.0 });
    assert_eq!(twice.refuses(replied(2, 10, &[CallId(2)])), Rejected::IdReused { id: 2 });

    let mut earlier = World::calling(&[CALL]);
    earlier.sees(answered_with_plan(CALL, Finish::Succeeded));
    assert_eq!(earlier.refuses(replied(4, 10, &[CALL])), Rejected::IdReused { id: CALL.0 });

    let mut brought = World::thinking(prompt());
    brought.inputs = 1;
    assert_eq!(brought.refuses(said(2, 10, ModelEnd::Stop)), Rejected::IdReused { id: 2 });
}
