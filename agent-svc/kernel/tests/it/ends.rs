//! How runs end, and that an end is one.

use kernel::{
    CallEnd, CallId, Effect, EffectClass, Fact, Halt, ModelEnd, Outcome, Ran, Reason, Rejected,
    Report, Seen, Status, Verdict,
};

use crate::world::{
    GONE, RUN, World, executed, lost, plan, planned, prompt, said, staged, subject,
};

const CALL: CallId = CallId(0xc1);
const SECOND: CallId = CallId(0xc2);

fn canceled() -> Halt {
    Halt::Canceled { by: subject() }
}

fn ended(why: Halt) -> Fact {
    Fact::Ended { outcome: Outcome::Halted(why) }
}

#[test]
fn the_last_word_of_the_model_completes_the_run() {
    let mut world = World::thinking(prompt());
    assert_eq!(
        world.sees(said(2, 10, ModelEnd::Stop)),
        [
            Fact::ModelEnded { call: CallId(2), tokens: 10, end: ModelEnd::Stop },
            Fact::Ended { outcome: Outcome::Completed },
        ]
    );
    assert_eq!(world.due(), [Effect::Finish { run: RUN, outcome: Outcome::Completed }]);
    assert_eq!(world.run.status(), Status::Ending(&Outcome::Completed));
    assert_eq!(world.sees(Seen::EnvironmentClosed), [Fact::EnvironmentClosed]);
    assert_eq!(world.due(), []);
    assert_eq!(world.run.status(), Status::Over(&Outcome::Completed));
}

#[test]
fn a_failed_or_cut_off_model_call_fails_the_run_with_its_reason() {
    let timeout = Reason::of("MODEL_TIMEOUT");
    for (end, reason) in [
        (ModelEnd::Failed(timeout.clone()), timeout),
        (ModelEnd::Length, Reason::MODEL_TRUNCATED),
        (ModelEnd::Error, Reason::MODEL_ERROR),
    ] {
        let mut world = World::thinking(prompt());
        assert_eq!(world.sees(said(2, 10, end))[1..], [ended(Halt::Failed(reason))]);
    }
}

#[test]
fn a_lost_model_call_is_asked_again_twice_for_all_to_see() {
    let mut world = World::thinking(prompt());
    for attempt in [2, 3] {
        let asked = CallId(u128::from(attempt) + 1);
        assert_eq!(
            world.sees(said(u128::from(attempt), 10, ModelEnd::Lost))[1..],
            [Fact::ModelAsked { call: asked, step: 0, attempt }]
        );
    }
    let why = Halt::Failed(Reason::MODEL_LOST);
    assert_eq!(
        world.sees(said(4, 10, ModelEnd::Lost))[1..],
        [Fact::Halted { why: why.clone() }, ended(why)]
    );
    assert_eq!((world.run.used().steps, world.run.used().tokens), (1, 30));
}

#[test]
fn a_run_without_an_environment_fails() {
    let mut world = World::new();
    world.sees(Seen::Prompted(prompt()));
    let reason = Reason::of("SANDBOX_FULL");
    assert_eq!(
        world.sees(Seen::EnvironmentFailed { reason: reason.clone() }),
        [Fact::EnvironmentFailed { reason: reason.clone() }, ended(Halt::Failed(reason))]
    );
}

#[test]
fn canceled_while_the_model_thinks_the_run_ends_at_once() {
    let mut world = World::thinking(prompt());
    assert_eq!(
        world.sees(Seen::Canceled { by: subject() }),
        [Fact::Halted { why: canceled() }, ended(canceled())]
    );
}

#[test]
fn canceled_while_a_call_is_planned_every_call_of_the_turn_still_gets_its_end() {
    let mut world = World::calling(&[CALL, SECOND]);
    assert_eq!(
        world.sees(Seen::Canceled { by: subject() }),
        [
            Fact::Halted { why: canceled() },
            Fact::CallEnded { call: CALL, end: CallEnd::Abandoned { why: canceled() } },
            Fact::CallEnded { call: SECOND, end: CallEnd::Skipped { why: canceled() } },
            ended(canceled()),
        ]
    );
}

#[test]
fn canceled_while_a_call_executes_the_run_waits_for_what_really_happened() {
    let reports = [
        (Report::Stopped, CallEnd::Stopped),
        (Report::Succeeded, CallEnd::Succeeded),
        (Report::Failed, CallEnd::Failed),
        (lost(Ran::Maybe), CallEnd::Lost { reason: GONE }),
    ];
    for (report, end) in reports {
        let mut world = World::calling(&[CALL, SECOND]);
        world.sees(planned(staged(CALL), CALL, Verdict::Allow));
        assert_eq!(
            world.sees(Seen::Canceled { by: subject() }),
            [Fact::Halted { why: canceled() }]
        );
        assert_eq!(world.due(), [Effect::Stop { call: CALL, attempt: 1 }]);
        assert_eq!(world.run.status(), Status::Stopping { call: CALL });
        assert_eq!(world.sees(Seen::Canceled { by: subject() }), []);
        assert_eq!(
            world.sees(executed(CALL, 1, report)),
            [
                Fact::CallEnded { call: CALL, end },
                Fact::CallEnded { call: SECOND, end: CallEnd::Skipped { why: canceled() } },
                ended(canceled()),
            ]
        );
    }
}

#[test]
fn a_canceled_call_that_was_lost_and_cannot_be_taken_back_stays_unknown() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(plan(CALL, 1, EffectClass::Irreversible), CALL, Verdict::Allow));
    world.sees(Seen::Canceled { by: subject() });
    assert_eq!(
        world.sees(executed(CALL, 1, lost(Ran::Maybe))),
        [
            Fact::OutcomeUnknown { call: CALL, attempt: 1, reason: GONE },
            Fact::CallEnded { call: CALL, end: CallEnd::Unknown },
            ended(canceled()),
        ]
    );
}

#[test]
fn the_first_reason_to_end_stands() {
    let mut world = World::calling(&[CALL]);
    world.sees(planned(staged(CALL), CALL, Verdict::Allow));
    world.sees(Seen::Failed { reason: Reason::of("EVENT_REDACTION_FAILED") });
    world.sees(Seen::Canceled { by: subject() });
    world.sees(executed(CALL, 1, Report::Stopped));
    let failed = Outcome::Halted(Halt::Failed(Reason::of("EVENT_REDACTION_FAILED")));
    assert_eq!(world.run.status(), Status::Ending(&failed));
}

#[test]
fn before_its_prompt_a_run_takes_nothing_else_and_its_prompt_only_once() {
    let mut world = World::new();
    assert_eq!(world.refuses(Seen::Tick), Rejected::NotStarted);
    assert_eq!(world.refuses(Seen::Canceled { by: subject() }), Rejected::NotStarted);
    world.sees(Seen::Prompted(prompt()));
    assert_eq!(world.refuses(Seen::Prompted(prompt())), Rejected::AlreadyStarted);
}
