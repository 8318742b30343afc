//! Killed and started again at every point: the run ends as it would have, and nothing happens twice.

use std::collections::BTreeSet;

use event::Data;
use proto::agent::v1 as wire;
use proto::common::v1 as common;
use proto::sandbox::v1::finished::Outcome;
use receipt::Scope;
use serde_json::json;

use super::attended::{Answered, after_restart, until_killed};
use super::gateway::{Choice, Claimed, Person, kinds};
use super::mesh::{Mesh, eventually};
use super::model::Turn;

fn script(mesh: &Mesh) {
    mesh.model.script([
        Turn::Call(vec![("list_files", json!({})), ("process.exec", json!({ "argv": ["true"] }))]),
        Turn::Call(vec![("import_patch", json!({}))]),
        Turn::Say("done"),
    ]);
}

async fn check(mesh: &Mesh, session: &str, point: &str) {
    let executions = mesh.sandbox.runs();
    assert_eq!(executions, [1, 1], "{point}: each effect happened once");
    let asked: Vec<u32> = mesh.model.state.lock().unwrap().asked.values().copied().collect();
    assert!(asked.iter().all(|times| *times == 1), "{point}: {asked:?}");
    assert_eq!(mesh.waiting().await, 0, "{point}: everything is in the ledger");
    let bodies = mesh.audit.bodies(session);
    let events: Vec<_> = bodies.iter().map(|body| event::open(body).unwrap()).collect();
    let ids: BTreeSet<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), events.len(), "{point}: no event twice");
    let data: Vec<Data> = events.into_iter().map(|event| event.data).collect();
    let count = |kind: &str| kinds(&data).iter().filter(|known| **known == kind).count();
    for (kind, expected) in [
        ("session.created", 1),
        ("agent.started", 1),
        ("tool.call", 3),
        ("tool.result", 3),
        ("permission.requested", 2),
        ("permission.resolved", 2),
        ("sandbox.started", 1),
        ("sandbox.stopped", 1),
        ("agent.stopped", 1),
    ] {
        assert_eq!(count(kind), expected, "{point}: {kind} in {:?}", kinds(&data));
    }
    assert_eq!(kinds(&data).last(), Some(&"agent.stopped"), "{point}: nothing follows the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_any_record_the_run_completes_and_nothing_happens_twice() {
    for record in 1..=40 {
        let mut mesh = Mesh::start_dying(Some(record)).await;
        script(&mesh);
        let alice = Person::operator(&mesh);
        let session = alice.create_holding().await;
        let mut answered = Answered::new();
        let begin = Box::pin(alice.prompt(session));
        let outcome = until_killed(&mesh, &alice, session, begin, &mut answered).await;
        if outcome.is_some() {
            assert!(record > 20, "the run is longer than {record} records");
            check(&mesh, &session.to_string(), "not killed").await;
            return;
        }
        mesh.restart().await;
        let point = format!("killed after record {record}");
        let outcome = after_restart(&mesh, session, &mut answered, &point).await;
        assert_eq!((outcome.steps, outcome.tool_calls, answered.len()), (3, 3, 2), "{point}");
        check(&mesh, &session.to_string(), &point).await;
    }
    panic!("a run has fewer records");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_went_on_alone_is_attached_to_and_told_once() {
    let mut mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([Turn::Call(vec![("check", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin_holding().await;
    reader.until("call.output").await;
    mesh.kill().await;
    mesh.sandbox.gate.send_replace(true);
    mesh.boot(None).await;
    let (events, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    let about: Vec<_> = kinds(&events)
        .into_iter()
        .filter(|kind| kind.starts_with("sandbox.") || *kind == "call.output")
        .collect();
    assert_eq!(about, ["sandbox.started", "call.output", "sandbox.stopped"]);
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
    assert_eq!((mesh.sandbox.runs(), mesh.sandbox.with(|state| state.asked) > 0), (vec![1], true));
    assert_eq!(mesh.sandbox.fences.epoch(session), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_turn_that_was_cut_off_is_visibly_asked_again() {
    // model-svc does not know what came of it, or has ended it because nobody waited.
    for turn in [Turn::Wait("in the end"), Turn::Abort("in the end")] {
        let mut mesh = Mesh::start().await;
        mesh.model.script([turn]);
        let alice = Person::operator(&mesh);
        let session = alice.create_holding().await;
        alice.prompt(session).await.unwrap();
        eventually("the model is asked", || !mesh.model.attempts().is_empty()).await;
        mesh.kill().await;
        mesh.model.once_left().await;
        mesh.model.gate.send_replace(true);
        mesh.boot(None).await;
        let (events, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
        let requests = kinds(&events).iter().filter(|kind| **kind == "model.request").count();
        let asked: Vec<u32> = mesh.model.state.lock().unwrap().asked.values().copied().collect();
        assert_eq!((requests, asked), (2, vec![1, 1]), "under another id, for everyone to see");
        assert_eq!((outcome.steps, mesh.model.attempts()), (1, vec![1, 2]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_a_kill_is_carried_out_after_it() {
    let mut mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([Turn::Call(vec![("check", json!({}))])]);
    let alice = Person::operator(&mesh);
    let session = alice.create_holding().await;
    alice.prompt(session).await.unwrap();
    mesh.sandbox.until_running().await;
    mesh.audit.set(super::audit::Mood::Down);
    alice.cancel(session).await.unwrap();
    mesh.restart().await;
    mesh.audit.set(super::audit::Mood::Up);
    let (events, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    assert_eq!(kinds(&events).last(), Some(&"agent.stopped"));
    assert_eq!(mesh.sandbox.runs(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_survives_a_restart() {
    let mut mesh = Mesh::start().await;
    mesh.model.script([Turn::Call(vec![("process.exec", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let session = alice.create_holding().await;
    alice.prompt(session).await.unwrap();
    alice.attach(session).await.ask().await;
    mesh.kill().await;
    mesh.clock.advance(std::time::Duration::from_secs(25 * 3600));
    mesh.boot(None).await;
    let mut reader = Person::operator(&mesh).attach(session).await;
    let Data::PermissionResolved(resolved) = reader.until("permission.resolved").await.data else {
        panic!()
    };
    assert_eq!(resolved.source, event::Source::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_not_resolved_before_a_kill_is_made_again_by_the_same_person() {
    let mut mesh = Mesh::start().await;
    mesh.model.script([Turn::Call(vec![("process.exec", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin_holding().await;
    let ask = reader.ask().await;
    assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Once)).await, Ok(Claimed::Won));
    mesh.restart().await;
    let alice = Person::operator(&mesh);
    alice.allow(&ask, Scope::Once).await;
    let (_, outcome) = alice.attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
    assert_eq!(mesh.sandbox.runs(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_one_attempt_is_not_that_of_the_next() {
    // Started, opened, asked, answered, begun, planned, and then: the second attempt is due.
    let mut mesh = Mesh::start_dying(Some(7)).await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([Turn::Call(vec![("check", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let session = alice.create_holding().await;
    alice.prompt(session).await.unwrap();
    alice.attach(session).await.until("sandbox.started").await;
    mesh.sandbox.finish(Outcome::Lost(common::Lost { may_have_run: true }));
    mesh.died().await;
    mesh.restart().await;
    let mut reader = Person::operator(&mesh).attach(session).await;
    reader.until("sandbox.started").await;
    let Data::SandboxStarted(again) = reader.until("sandbox.started").await.data else { panic!() };
    assert_eq!(again.attempt, 2);
    mesh.sandbox.gate.send_replace(true);
    let (_, outcome) = reader.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    assert_eq!(mesh.sandbox.runs(), [2]);
}
