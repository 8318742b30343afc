//! Budgets: clamped, warned of once, and the end of a run when there is nothing left.

use kernel::{
    Budget, CallEnd, CallId, Effect, EffectClass, Fact, Finish, Halt, Limits, Metric, Millis,
    ModelEnd, Outcome, Prompt, Report, Seen, Time, Verdict,
};

use crate::world::{
    ASK_TIMEOUT, World, answered_with_plan, ceiling, executed, limited, plan, planned, prompt,
    replied, said, staged,
};

const CALLS: [CallId; 3] = [CallId(0xc1), CallId(0xc2), CallId(0xc3)];

fn over(metric: Metric) -> Halt {
    Halt::OverBudget(metric)
}

fn ended(metric: Metric) -> Fact {
    Fact::Ended { outcome: Outcome::Halted(over(metric)) }
}

fn halted(metric: Metric) -> Fact {
    Fact::Halted { why: over(metric) }
}

#[test]
fn of_each_limit_the_smallest_counts() {
    let mut world = World::new();
    let prompt = Prompt {
        manifest: Limits {
            steps: Some(20),
            tool_calls: Some(7),
            tokens: Some(900),
            wall_time: None,
        },
        requested: Limits {
            steps: None,
            tool_calls: Some(9),
            tokens: Some(800),
            wall_time: Some(Millis(5)),
        },
        ..prompt()
    };
    let budget =
        Budget { steps: ceiling().steps, tool_calls: 7, tokens: 800, wall_time: Millis(5) };
    assert_eq!(
        world.sees(Seen::Prompted(prompt)),
        [Fact::Started { budget, ask_timeout: ASK_TIMEOUT, calls: Vec::new() }]
    );
    assert_eq!(world.run.limits(), budget);
}

#[test]
fn the_model_may_write_no_more_than_what_is_left_of_the_tokens() {
    let mut world = World::calling(&CALLS[..1]);
    world.sees(answered_with_plan(CALLS[0], Finish::Succeeded));
    let left = ceiling().tokens - 10;
    assert_eq!(
        world.due(),
        [Effect::AskModel { call: CallId(4), step: 1, attempt: 1, max_output_tokens: left }]
    );
}

#[test]
fn half_of_a_budget_is_warned_of_once() {
    let mut world = World::thinking(limited(Limits { tokens: Some(100), ..Limits::default() }));
    assert_eq!(
        world.sees(replied(2, 50, &CALLS)),
        [
            Fact::ModelEnded { call: CallId(2), tokens: 50, end: ModelEnd::Calls(CALLS.to_vec()) },
            Fact::BudgetWarned { metric: Metric::Tokens, used: 50, limit: 100 },
            Fact::CallStarted { call: CALLS[0] },
        ]
    );
    for call in CALLS {
        world.sees(answered_with_plan(call, Finish::Succeeded));
    }
    assert_eq!(
        world.sees(said(6, 50, ModelEnd::Stop)),
        [
            Fact::ModelEnded { call: CallId(6), tokens: 50, end: ModelEnd::Stop },
            Fact::Ended { outcome: Outcome::Completed },
        ]
    );
}

#[test]
fn the_model_is_not_asked_for_one_step_too_many() {
    let mut world = World::thinking(limited(Limits { steps: Some(1), ..Limits::default() }));
    world.sees(replied(2, 10, &CALLS[..1]));
    assert_eq!(
        world.sees(answered_with_plan(CALLS[0], Finish::Succeeded))[2..],
        [halted(Metric::Steps), ended(Metric::Steps)]
    );
}

#[test]
fn calls_beyond_the_budget_are_skipped_and_end_the_run() {
    let mut world = World::thinking(limited(Limits { tool_calls: Some(1), ..Limits::default() }));
    world.sees(replied(2, 10, &CALLS));
    let why = over(Metric::ToolCalls);
    assert_eq!(
        world.sees(answered_with_plan(CALLS[0], Finish::Succeeded))[1..],
        [
            Fact::CallEnded { call: CALLS[0], end: CallEnd::Succeeded },
            halted(Metric::ToolCalls),
            Fact::CallEnded { call: CALLS[1], end: CallEnd::Skipped { why: why.clone() } },
            Fact::CallEnded { call: CALLS[2], end: CallEnd::Skipped { why } },
            ended(Metric::ToolCalls),
        ]
    );
    assert_eq!(world.run.used().tool_calls, 1);
}

#[test]
fn a_turn_that_cost_more_than_was_left_starts_no_call_and_is_no_success() {
    let tokens = Limits { tokens: Some(100), ..Limits::default() };
    let mut calls = World::thinking(limited(tokens));
    let why = over(Metric::Tokens);
    assert_eq!(
        calls.sees(replied(2, 101, &CALLS[..1]))[2..],
        [
            halted(Metric::Tokens),
            Fact::CallEnded { call: CALLS[0], end: CallEnd::Skipped { why } },
            ended(Metric::Tokens),
        ]
    );
    let mut last_word = World::thinking(limited(tokens));
    assert_eq!(
        last_word.sees(said(2, 101, ModelEnd::Stop))[2..],
        [halted(Metric::Tokens), ended(Metric::Tokens)]
    );
}

#[test]
fn an_answer_cut_off_by_the_runs_own_limit_is_a_budget_end() {
    let mut world = World::thinking(limited(Limits { tokens: Some(100), ..Limits::default() }));
    assert_eq!(world.sees(said(2, 100, ModelEnd::Length))[2..], [ended(Metric::Tokens)]);
}

#[test]
fn a_turn_that_what_is_left_would_not_pay_for_is_a_budget_end() {
    let mut world = World::thinking(limited(Limits { tokens: Some(100), ..Limits::default() }));
    assert_eq!(world.sees(said(2, 0, ModelEnd::OverBudget))[1..], [ended(Metric::Tokens)]);
}

#[test]
fn a_lost_model_call_is_paid_for() {
    let mut world = World::thinking(limited(Limits { tokens: Some(100), ..Limits::default() }));
    assert_eq!(
        world.sees(said(2, 100, ModelEnd::Lost))[2..],
        [halted(Metric::Tokens), ended(Metric::Tokens)]
    );
}

#[test]
fn wall_time_runs_out_when_the_deadline_says_so() {
    let mut world = World::calling(&CALLS[..1]);
    world.later(100).sees(planned(staged(CALLS[0]), CALLS[0], Verdict::Allow));
    let deadline = Time(1_000 + ceiling().wall_time.0);
    assert_eq!(world.run.deadline(), Some(deadline));
    world.now = Time(deadline.0 - 1);
    let half = Fact::BudgetWarned { metric: Metric::WallTime, used: 599_999, limit: 600_000 };
    assert_eq!(world.sees(Seen::Tick), [half]);
    assert_eq!(world.later(1).sees(Seen::Tick), [halted(Metric::WallTime)]);
    assert_eq!(world.due(), [Effect::Stop { call: CALLS[0], attempt: 1 }]);
    assert_eq!(
        world.sees(executed(CALLS[0], 1, Report::Stopped)),
        [Fact::CallEnded { call: CALLS[0], end: CallEnd::Stopped }, ended(Metric::WallTime)]
    );
}

#[test]
fn a_clock_that_is_set_back_gives_no_time_back() {
    let mut world = World::calling(&CALLS[..1]);
    world.later(500).sees(planned(staged(CALLS[0]), CALLS[0], Verdict::Allow));
    world.now = Time(0);
    world.sees(executed(CALLS[0], 1, Report::Succeeded));
    assert_eq!(world.run.used().wall_time, Millis(500));
}

/// A run whose only call is a child's to answer.
fn delegating(limits: Limits) -> World {
    let mut world = World::thinking(limited(limits));
    world.sees(replied(2, 10, &CALLS[..1]));
    let plan = plan(CALLS[0], 1, EffectClass::Idempotent);
    world.sees(planned(plan, CALLS[0], Verdict::Allow));
    world.sees(Seen::Delegated { call: CALLS[0], attempt: 1 });
    world
}

fn ended_child(used: Budget) -> Seen {
    Seen::ChildEnded { call: CALLS[0], used, outcome: Outcome::Completed }
}

#[test]
fn a_child_may_use_what_is_left_but_for_one_turn() {
    let world = delegating(Limits::default());
    let budget = Budget { steps: 6, tool_calls: 99, tokens: 9_990, ..ceiling() };
    assert_eq!(world.due(), [Effect::RunChild { call: CALLS[0], budget }]);
}

#[test]
fn what_a_child_used_counts_against_the_run_that_began_it() {
    let mut world = delegating(Limits::default());
    let used = Budget { steps: 2, tool_calls: 3, tokens: 40, wall_time: Millis(500) };
    world.later(7_000);
    world.sees(ended_child(used));
    let left = Budget { steps: 4, tool_calls: 96, tokens: 9_950, wall_time: Millis(599_500) };
    assert_eq!(world.run.left(), left);
}

#[test]
fn the_clock_of_a_run_stands_still_while_a_child_has_its_own() {
    let mut world = delegating(Limits::default());
    assert_eq!(world.run.deadline(), None);
    world.later(10 * ceiling().wall_time.0);
    assert_eq!(world.sees(Seen::Tick), []);
    world.sees(ended_child(Budget::default()));
    assert_eq!(world.run.left().wall_time, ceiling().wall_time);
}

#[test]
fn a_childs_turns_are_not_counted_among_those_of_the_run_that_began_it() {
    let mut world = delegating(Limits::default());
    let facts = world.sees(ended_child(Budget { steps: 3, ..Budget::default() }));
    let asked = Fact::ModelAsked { call: CallId(world.inputs), step: 1, attempt: 1 };
    assert_eq!(facts.last(), Some(&asked));
}

#[test]
fn a_child_that_used_up_everything_ends_the_run_that_began_it() {
    let mut world = delegating(Limits { tokens: Some(1_000), ..Limits::default() });
    let facts = world.sees(ended_child(Budget { tokens: 990, ..Budget::default() }));
    assert_eq!(
        facts[facts.len() - 2..],
        [halted(Metric::Tokens), ended(Metric::Tokens)],
        "{facts:?}"
    );
}
