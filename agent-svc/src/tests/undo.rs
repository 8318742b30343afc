//! A run in which a person takes an import back: one call that no model chose, asked about and recorded as any other.

use event::id::RunId;
use event::{ActorKind, Data, Event};
use proto::agent::v1 as wire;
use receipt::Scope;
use serde_json::json;
use transport::Code;

use super::attended::{Answered, after_restart, until_killed};
use super::gateway::{Choice, Claimed, Person, Reader, kinds};
use super::mesh::Mesh;
use super::model::Turn;

fn wish(run: RunId) -> wire::Undo {
    wire::Undo { run_id: run.to_string(), patch_digest: String::new() }
}

async fn begun(alice: &Person, run: RunId) -> (event::id::SessionId, Reader) {
    let session = alice.create().await;
    let reader = alice.attach(session).await;
    alice.undo(session, wish(run)).await.unwrap();
    (session, reader)
}

fn asked_of_models(mesh: &Mesh) -> usize {
    mesh.model.state.lock().unwrap().asked.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_neither_words_nor_an_import_of_a_run_begins_nothing() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let both = wire::PromptRequest {
        session_id: session.to_string(),
        content: "and more".to_owned(),
        undo: Some(wish(RunId::new())),
        ..Default::default()
    };
    let no_run = wire::PromptRequest {
        content: String::new(),
        undo: Some(wire::Undo { run_id: "r".to_owned(), ..wish(RunId::new()) }),
        ..both.clone()
    };
    let no_digest = wire::PromptRequest {
        undo: Some(wire::Undo { patch_digest: "sha1:00".to_owned(), ..wish(RunId::new()) }),
        ..no_run.clone()
    };
    for request in [both, no_run, no_digest] {
        let fault = alice.send(session, request).await.unwrap_err();
        assert_eq!((fault.code, fault.reason.as_str()), (Code::InvalidArgument, "REQUEST_INVALID"));
    }
    assert_eq!(alice.get(session).await.unwrap().run_id, None);
    alice.undo(session, wish(RunId::new())).await.unwrap();
    let again = alice.undo(session, wish(RunId::new())).await.unwrap_err();
    assert_eq!(again.reason, "SESSION_ALREADY_RUN");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_only_watch_or_belongs_elsewhere_takes_nothing_back() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let vera = Person::named(&mesh, "vera", receipt::Role::Viewer);
    let fault = vera.undo(session, wish(RunId::new())).await.unwrap_err();
    assert_eq!((fault.code, fault.reason.as_str()), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"));
    let stranger = Person { tenant: "other".to_owned(), ..alice.clone() };
    let fault = stranger.undo(session, wish(RunId::new())).await.unwrap_err();
    assert_eq!((fault.code, fault.reason.as_str()), (Code::NotFound, "SESSION_NOT_FOUND"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_denied_undo_is_executed() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_, mut reader) = begun(&alice, RunId::new()).await;
    let ask = reader.ask().await;
    assert_eq!(alice.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
    let (events, outcome) = reader.rest().await;
    assert_eq!(kinds(&events), ["permission.resolved", "tool.result", "agent.stopped"]);
    let code = events.iter().find_map(|data| match data {
        Data::ToolResult(result) => result.error.as_ref().map(|error| error.code.clone()),
        _ => None,
    });
    assert_eq!(code.as_deref(), Some("PERMISSION_DENIED"));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    assert_eq!((mesh.sandbox.runs(), asked_of_models(&mesh)), (Vec::new(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_is_canceled_while_it_is_asked_about_is_not_executed() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (session, mut reader) = begun(&alice, RunId::new()).await;
    reader.ask().await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (events, outcome) = reader.rest().await;
    assert_eq!(kinds(&events), ["permission.resolved", "tool.result", "agent.stopped"]);
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))), "{outcome:?}");
    assert_eq!((mesh.sandbox.runs(), asked_of_models(&mesh)), (Vec::new(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_is_one_call_of_the_person_who_wishes_it_and_asks_no_model() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let of = RunId::new();
    let session = alice.create().await;
    let mut reader = alice.attach(session).await;
    let digest = event::Digest::of(b"patch");
    let wish = wire::Undo { patch_digest: digest.to_string(), ..wish(of) };
    alice.undo(session, wish).await.unwrap();
    let started: Event = reader.until("agent.started").await;
    let actor = started.actor.unwrap();
    assert_eq!((actor.kind, actor.id.as_deref()), (ActorKind::Operator, Some("alice")));
    let call = reader.until("tool.call").await;
    assert_eq!(call.actor.as_ref().map(|actor| actor.kind), Some(ActorKind::Operator));
    let Data::ToolCall(call) = call.data else { panic!("{call:?}") };
    assert_eq!((&*call.tool, &call.input), ("undo_patch", &json!({ "run": of, "digest": digest })));
    let ask = reader.ask().await;
    assert_eq!((ask.plan.call, mesh.sandbox.runs()), (call.call_id, Vec::new()));
    alice.allow(&ask, Scope::Once).await;
    let (events, outcome) = reader.rest().await;
    let told: Vec<_> = kinds(&events)
        .into_iter()
        .filter(|kind| !["call.output", "sandbox.started", "sandbox.stopped"].contains(kind))
        .collect();
    assert_eq!(told, ["permission.resolved", "tool.result", "agent.stopped"]);
    let completed = wire::Completed { final_text: String::new() };
    assert_eq!(outcome.state, Some(wire::outcome::State::Completed(completed)));
    assert_eq!((outcome.steps, outcome.tool_calls), (0, 1));
    assert_eq!((mesh.sandbox.runs(), asked_of_models(&mesh)), (vec![1], 0));
    assert_eq!(mesh.sandbox.with(|state| (state.opened, state.closed)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_model_is_answered_but_with_unknown_tool_when_it_names_it() {
    let mesh = Mesh::start().await;
    let call = ("undo_patch", json!({ "run": RunId::new() }));
    mesh.model.script([Turn::Call(vec![call]), Turn::Say("no")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let result = reader.until("tool.result").await;
    let Data::ToolResult(result) = result.data else { panic!("{result:?}") };
    assert_eq!(result.error.map(|error| error.code).as_deref(), Some("TOOL_UNKNOWN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_any_record_an_undo_completes_and_is_executed_once() {
    for record in 1..=20 {
        let mut mesh = Mesh::start_dying(Some(record)).await;
        let alice = Person::operator(&mesh);
        let session = alice.create_holding().await;
        let mut answered = Answered::new();
        let begin = Box::pin(alice.undo(session, wish(RunId::new())));
        let outcome = until_killed(&mesh, &alice, session, begin, &mut answered).await;
        if outcome.is_some() {
            assert!(record > 6, "an undo is longer than {record} records");
            return;
        }
        mesh.restart().await;
        let point = format!("killed after record {record}");
        let outcome = after_restart(&mesh, session, &mut answered, &point).await;
        assert_eq!((outcome.steps, outcome.tool_calls, answered.len()), (0, 1, 1), "{point}");
        assert_eq!((mesh.sandbox.runs(), asked_of_models(&mesh)), (vec![1], 0), "{point}");
        assert_eq!(mesh.waiting().await, 0, "{point}: everything is in the ledger");
    }
    panic!("an undo has fewer records");
}
