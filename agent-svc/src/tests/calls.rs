//! Tool calls and model turns that do not go well: what is told, and that the run says why it ends.

use std::time::Duration;

use event::{Data, Effect as Decided, ToolResult};
use proto::agent::v1 as wire;
use proto::common::v1 as common;
use proto::model::v1 as model;
use proto::sandbox::v1 as sandbox;
use receipt::{Effect, EffectClass};
use serde_json::json;

use super::gateway::{Person, kinds};
use super::mesh::{MANIFEST, Mesh, eventually};
use super::model::{Turn, call};

/// Runs one call and returns its result with everything else.
async fn run(mesh: &Mesh, turn: Turn) -> (ToolResult, Vec<Data>, wire::Outcome) {
    mesh.model.script([turn, Turn::Say("done")]);
    let alice = Person::operator(mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let result = events.iter().find_map(|data| match data {
        Data::ToolResult(result) => Some(result.clone()),
        _ => None,
    });
    (result.expect("a result"), events, outcome)
}

fn code(result: &ToolResult) -> &str {
    result.error.as_ref().map_or("", |error| error.code.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pure_tool_is_answered_with_its_plan() {
    let mesh = Mesh::start().await;
    let (result, events, outcome) = run(&mesh, call("list_files", json!({}))).await;
    assert_eq!((result.ok, result.output), (true, Some(json!({"entries": ["app.txt"]}))));
    assert!(!kinds(&events).contains(&"permission.requested"));
    assert_eq!((mesh.sandbox.runs(), outcome.tool_calls), (Vec::new(), 1));
    let Some(model::message::Message::Tool(reply)) = mesh.model.shown().pop().unwrap().message
    else {
        panic!("the model hears the result")
    };
    assert_eq!((reply.ok, reply.content.as_str()), (true, r#"{"entries":["app.txt"]}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rules_no_asks_nobody() {
    let mesh = Mesh::start().await;
    let (result, events, outcome) = run(&mesh, call("forbidden", json!({}))).await;
    assert_eq!(code(&result), "PERMISSION_DENIED");
    let decided = events.iter().find_map(|data| match data {
        Data::PolicyDecision(decision) => Some((decision.effect, decision.rule_id.clone())),
        _ => None,
    });
    assert_eq!(decided, Some((Decided::Deny, Some("permissions.forbidden".to_owned()))));
    assert!(!kinds(&events).iter().any(|kind| kind.starts_with("permission.")));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executors_no_and_a_tool_that_nobody_has_are_failed_calls() {
    let mesh = Mesh::start().await;
    mesh.sandbox.with(|state| {
        state.shapes.get_mut("check").unwrap().refusal = Some("HOST_CHANGED");
    });
    assert_eq!(code(&run(&mesh, call("check", json!({}))).await.0), "HOST_CHANGED");
    assert_eq!(code(&run(&mesh, call("no_such_tool", json!({}))).await.0), "TOOL_UNKNOWN");
    assert_eq!(code(&run(&mesh, call("list_files", json!("text"))).await.0), "ARGUMENTS_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_must_be_about_this_call_and_fit_to_be_shown() {
    let mesh = Mesh::start().await;
    type Twist = fn(&mut receipt::Plan);
    let twists: [(Twist, &str); 5] = [
        (|plan| plan.session = event::id::SessionId::new(), "PLAN_INVALID"),
        (|plan| plan.run = event::id::RunId::new(), "PLAN_INVALID"),
        (|plan| plan.call = event::id::CallId::new(), "PLAN_INVALID"),
        (|plan| plan.manifest = event::Digest::of(b"another"), "PLAN_INVALID"),
        (
            |plan| {
                plan.argv = Some(vec![
                    "curl".into(),
                    "-H".into(),
                    "Authorization: Bearer abcdefghijklmnop".into(),
                ]);
            },
            "PLAN_HOLDS_SECRET",
        ),
    ];
    for (twist, expected) in twists {
        mesh.sandbox.with(|state| state.twist = twist);
        let (result, events, _) = run(&mesh, call("process.exec", json!({}))).await;
        assert_eq!(code(&result), expected);
        assert!(!kinds(&events).contains(&"permission.requested"));
    }
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_ends_the_run_with_its_reason() {
    let mesh = Mesh::start().await;
    let stray = model::Answer {
        finish: model::Finish::Stop.into(),
        calls: vec![model::ToolCall::default()],
        ..model::Answer::default()
    };
    let cut = model::Answer { finish: model::Finish::Length.into(), ..model::Answer::default() };
    let table = [
        (Turn::Fail("MODEL_TIMEOUT"), "MODEL_TIMEOUT"),
        (Turn::Raw(Box::new(stray)), "MODEL_INVALID_RESPONSE"),
        (Turn::Raw(Box::new(cut)), "MODEL_TRUNCATED"),
        (Turn::Call(Vec::new()), "MODEL_NO_CALLS"),
    ];
    for (turn, expected) in table {
        mesh.model.script([turn]);
        let alice = Person::operator(&mesh);
        let (_, mut reader) = alice.begin().await;
        let (events, outcome) = reader.rest().await;
        let Some(wire::outcome::State::Failed(failed)) = outcome.state else {
            panic!("{outcome:?}")
        };
        assert_eq!(failed.reason, expected);
        let Some(Data::AgentStopped(stopped)) = events.last() else { panic!("{events:?}") };
        assert_eq!(stopped.note.as_deref(), Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_provider_answered_is_told_with_the_failure() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Reply("MODEL_HTTP_ERROR", 503, "r-9")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let says = "the provider answered with HTTP status 503 (request r-9)";
    let told = events.iter().find_map(|data| match data {
        Data::Failure(failure) => Some((failure.code.as_str(), failure.message.as_str())),
        _ => None,
    });
    assert_eq!(told, Some(("MODEL_HTTP_ERROR", says)));
    let failed = wire::Failed { reason: "MODEL_HTTP_ERROR".to_owned(), note: says.to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::Failed(failed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_the_rest_of_the_budget_would_not_pay_for_ends_the_run_as_over_budget() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Fail("BUDGET_EXCEEDED")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let exceeded = wire::BudgetExceeded { metric: "tokens".to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::BudgetExceeded(exceeded)));
    assert_eq!(kinds(&events)[2..], ["model.request", "error", "agent.stopped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_ends_the_run() {
    let mesh = Mesh::start().await;
    // Within every bound, but each character is six in the event's bytes.
    let words = model::Answer {
        finish: model::Finish::Stop.into(),
        text: "\u{1}".repeat(300_000),
        ..model::Answer::default()
    };
    mesh.model.script([Turn::Raw(Box::new(words))]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let codes: Vec<_> = events
        .iter()
        .filter_map(|data| match data {
            Data::Failure(failure) => Some(failure.code.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["EVENT_REDACTION_FAILED"]);
    let Some(wire::outcome::State::Failed(failed)) = outcome.state else { panic!("{outcome:?}") };
    assert_eq!(failed.reason, "EVENT_REDACTION_FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_leaves_with_the_outcome() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Say("the key is sk-proj-4fK29ab8Xq71Lm30ZpT6, use it")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let told = format!("{events:?}{outcome:?}");
    assert!(!told.contains("4fK29ab8"), "{told}");
    let Some(wire::outcome::State::Completed(completed)) = outcome.state else { panic!() };
    assert!(completed.final_text.starts_with("the key is [REDACTED"), "{completed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_used_up_ends_the_run() {
    let mesh = Mesh::start().await;
    mesh.model.script(vec![call("list_files", json!({})); 9]);
    let alice = Person::operator(&mesh);
    let grant = alice.grant(event::id::SessionId::new());
    let manifest = format!("{MANIFEST}budget:\n  max_tool_calls: 2\n");
    let grant = receipt::Grant { manifest: event::Digest::of(manifest.as_bytes()), ..grant };
    // The played sandbox plans for the usual manifest.
    mesh.sandbox
        .with(|state| state.shapes.get_mut("list_files").unwrap().refusal = Some("REFUSED"));
    alice.create_with(&grant, &manifest).await.unwrap();
    alice.prompt(grant.session).await.unwrap();
    let (events, outcome) = alice.attach(grant.session).await.rest().await;
    let exceeded = wire::BudgetExceeded { metric: "tool_calls".to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::BudgetExceeded(exceeded)));
    assert_eq!(outcome.tool_calls, 2);
    assert!(kinds(&events).contains(&"budget.warning"));
    // The call that was one too many never began, and is told all the same.
    let calls = kinds(&events).iter().filter(|kind| **kind == "tool.call").count();
    let results = kinds(&events).iter().filter(|kind| **kind == "tool.result").count();
    assert_eq!((calls, results), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_is_attached_to_again_where_it_ended() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([call("check", json!({})), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.until("call.output").await;
    mesh.sandbox.cuts.send_modify(|cuts| *cuts += 1);
    eventually("it is asked what became of the call", || {
        mesh.sandbox.with(|state| state.asked) > 0
    })
    .await;
    mesh.sandbox.gate.send_replace(true);
    let (events, _) = reader.rest().await;
    assert_eq!(kinds(&events)[..2], ["sandbox.stopped", "tool.result"], "nothing is told twice");
    assert_eq!((mesh.sandbox.runs(), mesh.sandbox.fences.epoch(session)), (vec![1], Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_call_is_tried_again_only_where_that_is_harmless() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    let alice = Person::operator(&mesh);
    let lost = || sandbox::finished::Outcome::Lost(common::Lost { may_have_run: true });

    mesh.model.script([call("check", json!({})), Turn::Say("done")]);
    let (_, mut reader) = alice.begin().await;
    reader.until("sandbox.started").await;
    mesh.sandbox.finish(lost());
    // The second attempt begins anew, and the stream says so.
    reader.until("sandbox.started").await;
    mesh.sandbox.gate.send_replace(true);
    let (events, _) = reader.rest().await;
    assert!(kinds(&events).contains(&"tool.result"));
    assert_eq!(mesh.sandbox.runs(), [2]);

    mesh.sandbox.gate.send_replace(false);
    mesh.sandbox.with(|state| state.executions.clear());
    mesh.model.script([call("deploy", json!({})), Turn::Say("done")]);
    let (session, mut reader) = alice.begin().await;
    reader.until("sandbox.started").await;
    mesh.sandbox.finish(lost());
    let unknown = reader.until("tool.outcome_unknown").await;
    let Data::ToolOutcomeUnknown(unknown) = unknown.data else { panic!() };
    assert_eq!((unknown.attempt, unknown.may_have_run), (1, true));
    let state = alice.get(session).await.unwrap().state;
    assert!(matches!(state, Some(wire::session::State::NeedsOperator(_))));
    assert_eq!(mesh.sandbox.runs(), [1]);
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (events, _) = reader.rest().await;
    assert_eq!(kinds(&events), ["tool.result", "agent.stopped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_and_a_flood_are_told_in_bounds() {
    let mesh = Mesh::start().await;
    mesh.sandbox.with(|state| state.output = "line of output\n".repeat(60_000).into_bytes());
    let (result, events, _) = run(&mesh, call("check", json!({}))).await;
    assert!(result.ok);
    let shown: u64 = events
        .iter()
        .map(|data| match data {
            Data::CallOutput(output) => {
                assert_eq!(output.bytes, output.text.len() as u64);
                output.bytes
            }
            _ => 0,
        })
        .sum();
    assert!((200_000..300_000).contains(&shown), "{shown}");

    mesh.sandbox.gate.send_replace(false);
    mesh.sandbox.with(|state| {
        state.executions.clear();
        state.output.clear();
    });
    mesh.model.script([call("check", json!({})), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    reader.until("sandbox.started").await;
    mesh.sandbox.finish(sandbox::finished::Outcome::Exited(sandbox::Exited { code: 3 }));
    let Data::ToolResult(result) = reader.until("tool.result").await.data else { panic!() };
    assert_eq!((result.ok, code(&result)), (false, "EXIT_STATUS"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_is_asked_needs_its_person_whatever_the_model_says() {
    let mesh = Mesh::start().await;
    mesh.sandbox.with(|state| {
        let shape = state.shapes.get_mut("list_files").unwrap();
        (shape.effect, shape.class) = (Effect::Ask, EffectClass::Pure);
    });
    mesh.model.script([call("list_files", json!({})), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    alice.attach(session).await.ask().await;
    mesh.clock.advance(Duration::from_secs(60));
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}
