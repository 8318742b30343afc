//! Asks: their order, their ends, and who is told what.

use kernel::{
    Answer, Approved, Basis, Call, CallEnd, CallId, DenySource, Effect, EffectClass, Fact, Halt,
    Key, No, Outcome, PermissionId, Reason, Rejected, Report, Resolution, Run, Scope, Seen, Status,
    Time, Verdict,
};

use crate::world::{
    ASK_TIMEOUT, World, allowed, executed, plan, planned, refused, replied, staged, subject,
};

const CALL: CallId = CallId(0xc1);
const SECOND: CallId = CallId(0xc2);

/// A run that asks for `CALL` under the permission 4, at the time 1,000.
fn asking() -> World {
    let mut world = World::calling(&[CALL, SECOND]);
    world.sees(planned(staged(CALL), CALL, Verdict::Ask));
    world
}

fn executes(run: &Run) -> Option<Approved<Call>> {
    run.due().find_map(|effect| match effect {
        Effect::Execute(call) => Some(call),
        _ => None,
    })
}

#[test]
fn an_ask_is_judged_then_requested_and_nothing_runs_meanwhile() {
    let mut world = World::calling(&[CALL]);
    let expires_at = Time(world.now.0 + ASK_TIMEOUT.0);
    assert_eq!(
        world.sees(planned(staged(CALL), CALL, Verdict::Ask)),
        [
            Fact::CallPlanned { call: CALL, plan: staged(CALL), verdict: Verdict::Ask },
            Fact::PermissionRequested { permission: PermissionId(4), call: CALL, expires_at },
        ]
    );
    let ask = Effect::AskPerson {
        permission: PermissionId(4),
        call: CALL,
        plan: staged(CALL).digest,
        expires_at,
    };
    assert_eq!(world.due(), [ask]);
    assert_eq!(
        world.run.status(),
        Status::AwaitingPerson {
            permission: PermissionId(4),
            call: CALL,
            plan: &staged(CALL),
            expires_at
        }
    );
}

#[test]
fn an_allow_makes_the_call_due_with_the_permission_it_rests_on() {
    let mut world = asking();
    let resolution = Resolution::Allowed { by: subject(), scope: Scope::Once };
    assert_eq!(
        world.sees(allowed(4, Scope::Once, Time(2_000))),
        [Fact::PermissionResolved { permission: PermissionId(4), resolution }]
    );
    let approved = executes(&world.run).expect("the call is due");
    assert_eq!(*approved, Call { id: CALL, attempt: 1, plan: staged(CALL) });
    assert_eq!(approved.basis(), Basis::Permission(PermissionId(4)));
}

#[test]
fn a_no_goes_back_to_the_model_as_a_failed_call_and_the_run_goes_on() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(staged(CALL), CALL, Verdict::Ask));
    let source = DenySource::Operator;
    assert_eq!(
        world.sees(refused(4)),
        [
            Fact::PermissionResolved {
                permission: PermissionId(4),
                resolution: Resolution::Denied { source, by: Some(subject()) }
            },
            Fact::CallEnded { call: CALL, end: CallEnd::Denied { source } },
            Fact::ModelAsked { call: CallId(5), step: 1, attempt: 1 },
        ]
    );
}

#[test]
fn each_way_to_deny_one_ask_has_its_own_source() {
    let ways = [
        (No::Operator { by: subject() }, DenySource::Operator, Some(subject())),
        (No::MalformedAnswer { by: subject() }, DenySource::MalformedAnswer, Some(subject())),
        (No::MissingResolver, DenySource::MissingResolver, None),
        (No::System, DenySource::System, None),
    ];
    for (no, source, by) in ways {
        let mut world = asking();
        assert_eq!(
            world.sees(Seen::Answered { permission: PermissionId(4), answer: Answer::Deny(no) }),
            [
                Fact::PermissionResolved {
                    permission: PermissionId(4),
                    resolution: Resolution::Denied { source, by }
                },
                Fact::CallEnded { call: CALL, end: CallEnd::Denied { source } },
                Fact::CallStarted { call: SECOND },
            ]
        );
    }
}

#[test]
fn what_ends_the_run_denies_the_open_ask_with_its_own_source() {
    let ways = [
        (
            Seen::Canceled { by: subject() },
            Halt::Canceled { by: subject() },
            DenySource::Cancel,
            Some(subject()),
        ),
        (Seen::Disconnected, Halt::Disconnected, DenySource::Disconnect, None),
        (Seen::SessionEnded, Halt::SessionEnded, DenySource::SessionEnd, None),
    ];
    for (seen, why, source, by) in ways {
        let mut world = asking();
        assert_eq!(
            world.sees(seen),
            [
                Fact::Halted { why: why.clone() },
                Fact::PermissionResolved {
                    permission: PermissionId(4),
                    resolution: Resolution::Denied { source, by }
                },
                Fact::CallEnded { call: CALL, end: CallEnd::Denied { source } },
                Fact::CallEnded { call: SECOND, end: CallEnd::Skipped { why: why.clone() } },
                Fact::Ended { outcome: Outcome::Halted(why) },
            ]
        );
    }
}

#[test]
fn only_the_ask_itself_expires_and_only_when_its_time_has_come() {
    let mut world = asking();
    assert_eq!(world.run.deadline(), Some(Time(1_000 + ASK_TIMEOUT.0)));
    assert_eq!(world.later(ASK_TIMEOUT.0 - 1).sees(Seen::Tick), []);
    let source = DenySource::Timeout;
    assert_eq!(
        world.later(1).sees(Seen::Tick),
        [
            Fact::PermissionResolved {
                permission: PermissionId(4),
                resolution: Resolution::Denied { source, by: None }
            },
            Fact::CallEnded { call: CALL, end: CallEnd::Denied { source } },
            Fact::CallStarted { call: SECOND },
        ]
    );
}

#[test]
fn waiting_for_a_person_costs_no_wall_time() {
    let mut world = asking();
    let before = world.run.used();
    world.later(30 * 60_000).sees(allowed(4, Scope::Once, Time(2_000)));
    assert_eq!(world.run.used(), before);
    world.later(7).sees(executed(CALL, 1, Report::Succeeded));
    assert_eq!(world.run.used().wall_time.0, before.wall_time.0 + 7);
}

#[test]
fn the_second_answer_is_told_who_was_first_even_after_the_run() {
    let mut world = asking();
    world.sees(refused(4));
    let told = Rejected::AlreadyResolved {
        permission: PermissionId(4),
        resolution: Resolution::Denied { source: DenySource::Operator, by: Some(subject()) },
    };
    assert_eq!(world.refuses(allowed(4, Scope::Once, Time(2_000))), told);
    world.sees(Seen::Canceled { by: subject() });
    world.sees(Seen::EnvironmentClosed);
    assert_eq!(world.refuses(refused(4)), told);
}

#[test]
fn an_allow_counts_from_its_claim_not_from_its_receipt() {
    let expires_at = 1_000 + ASK_TIMEOUT.0;
    let mut late = asking();
    late.later(ASK_TIMEOUT.0);
    assert_eq!(
        late.refuses(allowed(4, Scope::Once, Time(expires_at))),
        Rejected::Expired { permission: PermissionId(4) }
    );
    late.sees(allowed(4, Scope::Once, Time(expires_at - 1)));
    assert!(executes(&late.run).is_some());
}

#[test]
fn an_unknown_permission_and_a_scope_that_was_not_offered_are_refused() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(plan(CALL, 1, EffectClass::Irreversible), CALL, Verdict::Ask));
    assert_eq!(
        world.refuses(refused(9)),
        Rejected::UnknownPermission { permission: PermissionId(9) }
    );
    assert_eq!(
        world.refuses(allowed(4, Scope::Run, Time(1_000))),
        Rejected::ScopeNotOffered { scope: Scope::Run }
    );
}

#[test]
fn an_allow_for_the_run_covers_the_same_action_and_no_other() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Run, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    assert_eq!(
        world.sees(planned(staged(SECOND), SECOND, Verdict::Ask)),
        [
            Fact::CallPlanned { call: SECOND, plan: staged(SECOND), verdict: Verdict::Ask },
            Fact::GrantUsed { call: SECOND, permission: PermissionId(4) },
        ]
    );
    let approved = executes(&world.run).expect("the call is due");
    assert_eq!(approved.basis(), Basis::Grant(PermissionId(4)));
    assert_eq!(world.run.standing().collect::<Vec<_>>(), [PermissionId(4)]);

    let other = CallId(0xc3);
    world.sees(executed(SECOND, 1, Report::Succeeded));
    world.sees(replied(8, 10, &[other]));
    world.sees(planned(plan(other, 2, EffectClass::Staged), other, Verdict::Ask));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(10)));
}

#[test]
fn an_allow_for_the_run_that_was_taken_back_covers_nothing() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Run, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    let (revoked, unknown) = (PermissionId(4), PermissionId(0xdead));
    assert_eq!(world.sees(Seen::Revoked { permission: unknown }), []);
    let facts = world.sees(Seen::Revoked { permission: revoked });
    assert_eq!(facts, [Fact::GrantRevoked { permission: revoked }]);
    assert_eq!(world.sees(Seen::Revoked { permission: revoked }), [], "once");
    assert_eq!(world.run.standing().next(), None);
    world.sees(planned(staged(SECOND), SECOND, Verdict::Ask));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(world.inputs)));
}

#[test]
fn a_call_whose_allow_for_the_run_the_executor_does_not_take_is_planned_and_asked_about_anew() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Run, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    world.sees(planned(staged(SECOND), SECOND, Verdict::Ask));
    let reason = Reason::of("RECEIPT_EXPIRED");
    let unadmitted = || Report::Unadmitted { reason: Reason::of("RECEIPT_EXPIRED") };
    assert_eq!(
        world.sees(executed(SECOND, 1, unadmitted())),
        [Fact::GrantRefused { call: SECOND, attempt: 2, permission: PermissionId(4), reason }]
    );
    assert_eq!(world.due()[0].key(), Key::Plan(SECOND, 2));
    world.sees(planned(staged(SECOND), SECOND, Verdict::Ask));
    let asked = world.inputs;
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(asked)));
    world.sees(allowed(asked, Scope::Run, Time(1_000)));
    assert_eq!(world.due()[0].key(), Key::Execute(SECOND, 2));
    let reason = Reason::of("RECEIPT_EXPIRED");
    assert_eq!(
        world.sees(executed(SECOND, 2, unadmitted())),
        [Fact::GrantRefused { call: SECOND, attempt: 3, permission: PermissionId(asked), reason }]
    );
    assert_eq!(world.run.standing().count(), 0, "what was just allowed for the run is gone, too");
}

#[test]
fn an_answer_that_the_executor_does_not_count_is_asked_for_again_and_a_no_ends_it() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Once, Time(1_000)));
    let reason = Reason::of("APPROVAL_KEY_UNKNOWN");
    let report = Report::Unadmitted { reason: reason.clone() };
    assert_eq!(
        world.sees(executed(CALL, 1, report)),
        [Fact::GrantRefused { call: CALL, attempt: 2, permission: PermissionId(4), reason }]
    );
    assert_eq!(world.due()[0].key(), Key::Plan(CALL, 2));
    world.sees(planned(staged(CALL), CALL, Verdict::Ask));
    let again = world.inputs;
    assert_ne!(PermissionId(again), PermissionId(4));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(again)));
    let facts = world.sees(refused(again));
    let end = CallEnd::Denied { source: DenySource::Operator };
    assert!(facts.contains(&Fact::CallEnded { call: CALL, end }), "{facts:?}");
}

#[test]
fn a_call_that_is_being_stopped_is_not_asked_about_again() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Once, Time(1_000)));
    world.sees(Seen::Canceled { by: subject() });
    let reason = Reason::of("APPROVAL_KEY_UNKNOWN");
    let facts = world.sees(executed(CALL, 1, Report::Unadmitted { reason: reason.clone() }));
    assert_eq!(facts[0], Fact::CallEnded { call: CALL, end: CallEnd::Refused { reason } });
}

#[test]
fn what_a_rule_allows_is_not_asked_about_because_the_executor_refuses_it() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(staged(CALL), CALL, Verdict::Allow));
    let reason = Reason::of("RECEIPT_REQUIRED");
    let facts = world.sees(executed(CALL, 1, Report::Unadmitted { reason: reason.clone() }));
    assert_eq!(facts[0], Fact::CallEnded { call: CALL, end: CallEnd::Refused { reason } });
}

#[test]
fn an_allow_once_covers_no_second_call() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Once, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    world.sees(planned(staged(SECOND), SECOND, Verdict::Ask));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(7)));
}

#[test]
fn an_allow_for_the_run_does_not_cover_a_plan_that_offers_only_once() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Run, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    world.sees(planned(plan(SECOND, 1, EffectClass::Irreversible), SECOND, Verdict::Ask));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(7)));
}

#[test]
fn a_deny_by_rule_beats_an_allow_for_the_run_and_asks_nobody() {
    let mut world = asking();
    world.sees(allowed(4, Scope::Run, Time(1_000)));
    world.sees(executed(CALL, 1, Report::Succeeded));
    assert_eq!(
        world.sees(planned(staged(SECOND), SECOND, Verdict::Deny)),
        [
            Fact::CallPlanned { call: SECOND, plan: staged(SECOND), verdict: Verdict::Deny },
            Fact::CallEnded { call: SECOND, end: CallEnd::Denied { source: DenySource::Policy } },
            Fact::ModelAsked { call: CallId(7), step: 1, attempt: 1 },
        ]
    );
}

#[test]
fn the_strictest_part_of_a_plan_decides() {
    let mut world = World::calling(&[CALL]);
    let Seen::Planned(mut ask) = planned(staged(CALL), CALL, Verdict::Allow) else {
        unreachable!()
    };
    ask.parts = vec![Verdict::Allow, Verdict::Ask];
    world.sees(Seen::Planned(ask));
    assert_eq!(world.due()[0].key(), Key::AskPerson(PermissionId(4)));
}
