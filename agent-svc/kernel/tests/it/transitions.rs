//! The transition table: every resting state against every input, as a snapshot and as a page of the docs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use kernel::{
    Answer, Budget, CallEnd, CallId, Choice, Effect, EffectClass, Fact, Finish, Halt, Metric,
    Millis, ModelEnd, No, Outcome, PermissionId, Ran, Reason, Rejected, Report, Resolution, Scope,
    Seen, Time, Verdict,
};

use crate::world::{
    ASK_TIMEOUT, GONE, World, allowed, answered_with_plan, executed, lost, plan, planned, prompt,
    refused, replied, said, subject,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernel-transitions.md");
const FIRST: CallId = CallId(0xc1);
const SECOND: CallId = CallId(0xc2);

const HEAD: &str = "\
# Kernel transitions

Every state in which a run rests, against every input. A run whose model asked for two tool calls, *first* and
*second*, is taken through its states; the input arrives in the state and leads to the events, which are recorded
together, and to what is outstanding then. An input that is refused changes nothing.

This page is written by the kernel's tests (`UPDATE_DOCS=1 cargo test -p kernel transition`) and fails them when it
is stale.
";

/// Each resting state, reached by accepted inputs alone.
fn states() -> Vec<(&'static str, World)> {
    let mut opening = World::new();
    opening.sees(Seen::Prompted(prompt()));
    let planning = World::calling(&[FIRST, SECOND]);
    let judged = |class, verdict| {
        let mut world = planning.clone();
        world.sees(planned(plan(FIRST, 1, class), FIRST, verdict));
        world
    };
    let executing = judged(EffectClass::Staged, Verdict::Allow);
    let mut stopping = executing.clone();
    stopping.sees(Seen::Canceled { by: subject() });
    let mut delegating = judged(EffectClass::Idempotent, Verdict::Allow);
    delegating.sees(Seen::Delegated { call: FIRST, attempt: 1 });
    let mut ending_child = delegating.clone();
    ending_child.sees(Seen::Canceled { by: subject() });
    let irreversible = judged(EffectClass::Irreversible, Verdict::Allow);
    let mut unknown = irreversible.clone();
    unknown.sees(executed(FIRST, 1, lost(Ran::Maybe)));
    let asking = judged(EffectClass::Staged, Verdict::Ask);
    let mut closing = asking.clone();
    closing.sees(Seen::Canceled { by: subject() });
    let mut over = closing.clone();
    over.sees(Seen::EnvironmentClosed);
    vec![
        ("New", World::new()),
        ("Opening", opening),
        ("Thinking", World::thinking(prompt())),
        ("Planning", planning.clone()),
        ("Asking", asking),
        ("Executing what can be done again", executing),
        ("Executing under an allow for the run", granted()),
        ("Executing what cannot be taken back", irreversible),
        ("Stopping", stopping),
        ("With a child at work", delegating),
        ("Ending a child", ending_child),
        ("Needing an operator", unknown),
        ("Closing", closing),
        ("Over", over),
    ]
}

/// *First* rests on what was allowed for the run when a call before it, of the same action, was asked about.
fn granted() -> World {
    let before = CallId(0xc0);
    let mut world = World::calling(&[before, FIRST, SECOND]);
    world.sees(planned(plan(before, 1, EffectClass::Staged), before, Verdict::Ask));
    world.sees(allowed(4, Scope::Run, Time(0)));
    world.sees(executed(before, 1, Report::Succeeded));
    world.sees(planned(plan(FIRST, 1, EffectClass::Staged), FIRST, Verdict::Ask));
    world
}

fn inputs() -> Vec<(&'static str, Seen)> {
    let staged = || plan(FIRST, 1, EffectClass::Staged);
    let deny = |no| Seen::Answered { permission: PermissionId(4), answer: Answer::Deny(no) };
    let operator = |choice| Seen::OperatorDecided { call: FIRST, by: subject(), choice };
    let reason = || Reason::of("SOME_REASON");
    vec![
        ("Prompted", Seen::Prompted(prompt())),
        ("EnvironmentOpened", Seen::EnvironmentOpened),
        ("EnvironmentFailed", Seen::EnvironmentFailed { reason: reason() }),
        ("ModelEnded Stop", said(2, 10, ModelEnd::Stop)),
        ("ModelEnded Calls", replied(2, 10, &[FIRST, SECOND])),
        ("ModelEnded Calls, none", replied(2, 10, &[])),
        ("ModelEnded Length", said(2, 10, ModelEnd::Length)),
        ("ModelEnded OverBudget", said(2, 0, ModelEnd::OverBudget)),
        ("ModelEnded Error", said(2, 10, ModelEnd::Error)),
        ("ModelEnded Failed", said(2, 10, ModelEnd::Failed(reason()))),
        ("ModelEnded Lost", said(2, 10, ModelEnd::Lost)),
        ("Planned Allow", planned(staged(), FIRST, Verdict::Allow)),
        ("Planned Allow, pure, with its result", answered_with_plan(FIRST, Finish::Succeeded)),
        ("Planned Ask", planned(staged(), FIRST, Verdict::Ask)),
        ("Planned Deny", planned(staged(), FIRST, Verdict::Deny)),
        ("PlanRefused", Seen::PlanRefused { call: FIRST, reason: reason() }),
        ("Answered Allow once", allowed(4, Scope::Once, Time(0))),
        ("Answered Allow for the run", allowed(4, Scope::Run, Time(0))),
        ("Answered Allow, claimed too late", allowed(4, Scope::Once, Time(u64::MAX))),
        ("Answered Deny by an operator", refused(4)),
        ("Answered Deny, malformed", deny(No::MalformedAnswer { by: subject() })),
        ("Answered Deny, nobody there", deny(No::MissingResolver)),
        ("Answered, another permission", refused(0xdead)),
        ("Executed Succeeded", executed(FIRST, 1, Report::Succeeded)),
        ("Executed Failed", executed(FIRST, 1, Report::Failed)),
        ("Executed Stopped", executed(FIRST, 1, Report::Stopped)),
        ("Executed Refused", executed(FIRST, 1, Report::Refused { reason: reason() })),
        ("Executed Unadmitted", executed(FIRST, 1, Report::Unadmitted { reason: reason() })),
        (
            "Executed Lost, did not run",
            executed(FIRST, 1, Report::Lost { ran: Ran::No, reason: GONE }),
        ),
        ("Executed Lost, may have run", executed(FIRST, 1, lost(Ran::Maybe))),
        ("Executed, another attempt", executed(FIRST, 9, Report::Succeeded)),
        ("Delegated", Seen::Delegated { call: FIRST, attempt: 1 }),
        ("ChildEnded Completed", child_ended(Outcome::Completed)),
        ("ChildEnded OverBudget", child_ended(Outcome::Halted(Halt::OverBudget(Metric::Steps)))),
        ("ChildEnded Canceled", child_ended(Outcome::Halted(Halt::Canceled { by: subject() }))),
        ("OperatorDecided MarkDone", operator(Choice::MarkDone)),
        ("OperatorDecided MarkFailed", operator(Choice::MarkFailed)),
        ("OperatorDecided RunAgain", operator(Choice::RunAgain)),
        ("OperatorDecided Abort", operator(Choice::Abort)),
        ("Revoked", Seen::Revoked { permission: PermissionId(4) }),
        ("Canceled", Seen::Canceled { by: subject() }),
        ("Disconnected", Seen::Disconnected),
        ("SessionEnded", Seen::SessionEnded),
        ("Failed", Seen::Failed { reason: reason() }),
        ("Tick, nothing expired", Seen::Tick),
        ("Tick, ask expired", Seen::Tick),
        ("Tick, wall time used up", Seen::Tick),
        ("EnvironmentClosed", Seen::EnvironmentClosed),
    ]
}

fn child_ended(outcome: Outcome) -> Seen {
    let used = Budget { steps: 1, tool_calls: 1, tokens: 1, wall_time: Millis(1) };
    Seen::ChildEnded { call: FIRST, used, outcome }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (name, world) in states() {
        write!(page, "\n## {name}\n\nOutstanding: {}.\n", outstanding(&world))
            .expect("a string takes it");
        let mut rows = String::new();
        let mut refusals: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (input, seen) in inputs() {
            let mut world = world.clone();
            world.later(match input {
                "Tick, ask expired" | "Answered Allow, claimed too late" => ASK_TIMEOUT.0,
                "Tick, wall time used up" => 10 * ASK_TIMEOUT.0,
                _ => 1,
            });
            match world.attempt(seen) {
                Ok(events) => {
                    let facts: Vec<String> = events.iter().map(|event| fact(&event.fact)).collect();
                    let facts = if facts.is_empty() { "none".to_owned() } else { facts.join(", ") };
                    writeln!(rows, "| {input} | {facts} | {} |", outstanding(&world))
                        .expect("a string takes it");
                }
                Err(rejected) => refusals.entry(refusal(&rejected)).or_default().push(input),
            }
        }
        if !rows.is_empty() {
            write!(page, "\n| input | events | outstanding then |\n|---|---|---|\n{rows}")
                .expect("a string takes it");
        }
        for (why, inputs) in refusals {
            write!(page, "\nRefused, `{why}`: {}.\n", gathered(&inputs))
                .expect("a string takes it");
        }
    }
    page
}

/// The inputs by name; a kind that is refused in all its forms by its first word alone.
fn gathered(refused: &[&str]) -> String {
    let kind = |input: &str| input.split([' ', ',']).next().unwrap_or(input).to_owned();
    let mut names: Vec<String> = Vec::new();
    for input in refused {
        let kind = kind(input);
        let whole = inputs()
            .iter()
            .filter(|(name, _)| name.starts_with(&kind))
            .all(|(name, _)| refused.contains(name));
        let name = if whole { kind } else { (*input).to_owned() };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names.join("; ")
}

fn outstanding(world: &World) -> String {
    let due: Vec<String> = world
        .run
        .due()
        .map(|effect| match effect {
            Effect::OpenEnvironment { .. } => "OpenEnvironment".to_owned(),
            Effect::AskModel { step, attempt, .. } => {
                format!("AskModel step {step} attempt {attempt}")
            }
            Effect::Plan { call, attempt: 1 } => format!("Plan {}", which(call)),
            Effect::Plan { call, attempt } => format!("Plan {} attempt {attempt}", which(call)),
            Effect::AskPerson { call, .. } => format!("AskPerson {}", which(call)),
            Effect::Execute(call) => format!("Execute {} attempt {}", which(call.id), call.attempt),
            Effect::RunChild { call, .. } => format!("RunChild {}", which(call)),
            Effect::StopChild { call, why } => format!("StopChild {} {}", which(call), halt(&why)),
            Effect::Stop { call, attempt } => format!("Stop {} attempt {attempt}", which(call)),
            Effect::AskOperator { call, .. } => format!("AskOperator {}", which(call)),
            Effect::Finish { outcome, .. } => format!("Finish {}", ending(&outcome)),
        })
        .collect();
    if due.is_empty() { "nothing".to_owned() } else { due.join(", ") }
}

fn which(call: CallId) -> &'static str {
    if call == FIRST { "first" } else { "second" }
}

fn fact(fact: &Fact) -> String {
    match fact {
        Fact::Started { .. } => "Started".to_owned(),
        Fact::EnvironmentOpened => "EnvironmentOpened".to_owned(),
        Fact::EnvironmentFailed { .. } => "EnvironmentFailed".to_owned(),
        Fact::ModelAsked { step, attempt, .. } => {
            format!("ModelAsked step {step} attempt {attempt}")
        }
        Fact::ModelEnded { end, .. } => format!("ModelEnded {}", model_end(end)),
        Fact::CallStarted { call } => format!("CallStarted {}", which(*call)),
        Fact::CallPlanned { call, verdict, .. } => {
            format!("CallPlanned {} {verdict:?}", which(*call))
        }
        Fact::PermissionRequested { call, .. } => format!("PermissionRequested {}", which(*call)),
        Fact::PermissionResolved { resolution: Resolution::Allowed { scope, .. }, .. } => {
            format!("PermissionResolved allowed {scope:?}")
        }
        Fact::PermissionResolved { resolution: Resolution::Denied { source, .. }, .. } => {
            format!("PermissionResolved denied {}", source.as_str())
        }
        Fact::GrantUsed { call, .. } => format!("GrantUsed {}", which(*call)),
        Fact::GrantRevoked { .. } => "GrantRevoked".to_owned(),
        Fact::GrantRefused { call, attempt, .. } => {
            format!("GrantRefused {} attempt {attempt}", which(*call))
        }
        Fact::CallRetried { call, attempt, .. } => {
            format!("CallRetried {} attempt {attempt}", which(*call))
        }
        Fact::OutcomeUnknown { call, attempt, .. } => {
            format!("OutcomeUnknown {} attempt {attempt}", which(*call))
        }
        Fact::OperatorDecided { call, choice, .. } => {
            format!("OperatorDecided {} {choice:?}", which(*call))
        }
        Fact::Delegated { call } => format!("Delegated {}", which(*call)),
        Fact::ChildEnded { call, outcome, .. } => {
            format!("ChildEnded {} {}", which(*call), ending(outcome))
        }
        Fact::CallEnded { call, end } => format!("CallEnded {} {}", which(*call), call_end(end)),
        Fact::BudgetWarned { metric, .. } => format!("BudgetWarned {}", metric.as_str()),
        Fact::Halted { why } => format!("Halted {}", halt(why)),
        Fact::Ended { outcome } => format!("Ended {}", ending(outcome)),
        Fact::EnvironmentClosed => "EnvironmentClosed".to_owned(),
    }
}

fn model_end(end: &ModelEnd) -> String {
    match end {
        ModelEnd::Calls(_) => "Calls".to_owned(),
        ModelEnd::Failed(reason) => format!("Failed {reason}"),
        ModelEnd::Stop
        | ModelEnd::Length
        | ModelEnd::OverBudget
        | ModelEnd::Error
        | ModelEnd::Lost => format!("{end:?}"),
    }
}

fn call_end(end: &CallEnd) -> String {
    match end {
        CallEnd::Denied { source } => format!("Denied {}", source.as_str()),
        CallEnd::Refused { reason } => format!("Refused {reason}"),
        CallEnd::Lost { reason } => format!("Lost {reason}"),
        CallEnd::MarkedDone { .. } => "MarkedDone".to_owned(),
        CallEnd::MarkedFailed { .. } => "MarkedFailed".to_owned(),
        CallEnd::Abandoned { .. } => "Abandoned".to_owned(),
        CallEnd::Skipped { .. } => "Skipped".to_owned(),
        CallEnd::Succeeded | CallEnd::Failed | CallEnd::Stopped | CallEnd::Unknown => {
            format!("{end:?}")
        }
    }
}

fn ending(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "Completed".to_owned(),
        Outcome::Halted(why) => halt(why),
    }
}

fn halt(why: &Halt) -> String {
    match why {
        Halt::Canceled { .. } => "Canceled".to_owned(),
        Halt::Disconnected | Halt::SessionEnded => format!("{why:?}"),
        Halt::OverBudget(metric) => format!("OverBudget {}", metric.as_str()),
        Halt::Failed(reason) => format!("Failed {reason}"),
    }
}

fn refusal(rejected: &Rejected) -> String {
    let text = format!("{rejected:?}");
    text.split([' ', '(']).next().unwrap_or(&text).to_owned()
}

#[test]
fn the_transition_table_is_the_one_in_the_docs() {
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &page).expect("the page can be written");
    }
    insta::assert_snapshot!(page);
    let printed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        printed == page,
        "docs/kernel-transitions.md is stale: UPDATE_DOCS=1 cargo test -p kernel transition"
    );
}
