//! Runs that are stopped or held up: by a person, by an executor that forgets, by a grant that has run out.

use std::time::Duration;

use event::{Data, SandboxStopped};
use proto::agent::v1 as wire;
use serde_json::json;

use super::gateway::{Person, Reader, kinds};
use super::mesh::{MANIFEST, Mesh, eventually};
use super::model::{Turn, call};

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_what_runs_and_waits_for_its_end() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([call("check", json!({}))]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.until("sandbox.started").await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (events, outcome) = reader.rest().await;
    let told: Vec<_> = kinds(&events).into_iter().filter(|kind| *kind != "call.output").collect();
    assert_eq!(told, ["sandbox.stopped", "tool.result", "agent.stopped"]);
    let stopped = events.iter().find_map(|data| match data {
        Data::SandboxStopped(SandboxStopped { status, .. }) => Some(*status),
        _ => None,
    });
    assert_eq!(stopped, Some(event::SandboxStatus::Canceled));
    let canceled = wire::Canceled { note: "canceled by alice".to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::Canceled(canceled)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_lost_sight_of_while_it_is_stopped_is_ended_by_a_later_owner() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.sandbox.with(|state| state.stubborn = true);
    mesh.model.script([call("check", json!({}))]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.until("sandbox.started").await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    mesh.sandbox.cuts.send_modify(|cuts| *cuts += 1);
    eventually("the fence is raised", || mesh.sandbox.fences.epoch(session) == Some(2)).await;
    mesh.sandbox.with(|state| state.stubborn = false);
    let (events, outcome) = reader.rest().await;
    assert_eq!(kinds(&events).last(), Some(&"agent.stopped"));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    assert_eq!(mesh.sandbox.runs(), [1], "it was not begun again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_executor_forgets_the_session_while_it_is_stopped_comes_to_an_end() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([call("check", json!({}))]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.until("call.output").await;
    // The driver is held up at writing the cancellation, and meanwhile the end of the call cannot be heard any more.
    let database = mesh.connect().await;
    let mut held = database.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("UPDATE run SET ordinal = ordinal").execute(&mut *held).await.unwrap();
    let forgotten = async {
        for _ in 0..20 {
            alice.get(session).await.unwrap();
        }
        mesh.sandbox.fences.forget();
        mesh.sandbox.cuts.send_modify(|cuts| *cuts += 1);
        for _ in 0..20 {
            alice.get(session).await.unwrap();
        }
        held.rollback().await.unwrap();
    };
    assert_eq!(tokio::join!(alice.cancel(session), forgotten).0, Ok(true));
    let (_, outcome) = reader.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))), "{outcome:?}");
    assert_eq!(mesh.sandbox.runs(), [1], "it was not begun again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_cannot_be_closed_is_tried_again_for_a_while() {
    let mut mesh = Mesh::start().await;
    for (fails, closed) in [(2, 1), (u32::MAX, 0)] {
        mesh.kill().await;
        mesh.spans.closing = Duration::from_millis(if closed == 1 { 30_000 } else { 300 });
        mesh.boot(None).await;
        mesh.sandbox.with(|state| (state.closed, state.close_fails) = (0, fails));
        let alice = Person::operator(&mesh);
        let (_, mut reader) = alice.begin().await;
        let (_, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
        assert_eq!(mesh.sandbox.with(|state| state.closed), closed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_drops_the_model_in_mid_answer() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Wait("never said")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    eventually("the model is asked", || !mesh.model.state.lock().unwrap().asked.is_empty()).await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (_, outcome) = reader.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_forgot_the_session_is_fenced_again() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Wait("on we go")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    mesh.model.fences.forget();
    alice.prompt(session).await.unwrap();
    eventually("the model is asked", || !mesh.model.state.lock().unwrap().asked.is_empty()).await;
    mesh.model.gate.send_replace(true);
    let (_, outcome) = alice.attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_executor_will_not_have_any_more_fails_with_its_reason() {
    let mut mesh = Mesh::start().await;
    mesh.model.script([Turn::Wait("never")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    eventually("the model is asked", || !mesh.model.state.lock().unwrap().asked.is_empty()).await;
    mesh.sandbox.with(|state| {
        state.refuses = Some((transport::Code::FailedPrecondition, "WORKSPACE_UNKNOWN"));
    });
    mesh.restart().await;
    let (_, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    let Some(wire::outcome::State::Failed(failed)) = outcome.state else { panic!("{outcome:?}") };
    assert_eq!(failed.reason, "WORKSPACE_UNKNOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_grant_a_run_waits_for_its_renewal() {
    let mut mesh = Mesh::start().await;
    mesh.model.script([Turn::Wait("renewed")]);
    let alice = Person::operator(&mesh);
    let grant = alice.grant(event::id::SessionId::new());
    alice.create_with(&grant, MANIFEST).await.unwrap();
    alice.prompt(grant.session).await.unwrap();
    eventually("the model is asked", || !mesh.model.state.lock().unwrap().asked.is_empty()).await;
    mesh.sandbox.with(|state| {
        state.refuses = Some((transport::Code::PermissionDenied, "GRANT_EXPIRED"));
    });
    mesh.restart().await;
    let alice = Person::operator(&mesh);
    let mut reader = alice.attach(grant.session).await;
    mesh.sandbox.with(|state| state.refuses = None);
    let renewed = receipt::Grant { iat: grant.iat + 1, exp: grant.exp + 60, ..grant.clone() };
    alice.create_with(&renewed, MANIFEST).await.unwrap();
    mesh.model.gate.send_replace(true);
    let (_, outcome) = reader.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_has_run_out_is_no_answer_to_a_call() {
    for running in [false, true] {
        let mesh = Mesh::start().await;
        mesh.sandbox.gate.send_replace(false);
        mesh.model.script([call("check", json!({})), Turn::Say("done")]);
        let alice = Person::operator(&mesh);
        let grant = alice.grant(event::id::SessionId::new());
        alice.create_with(&grant, MANIFEST).await.unwrap();
        mesh.sandbox.with(|state| state.expired = !running);
        alice.prompt(grant.session).await.unwrap();
        let mut reader = alice.attach(grant.session).await;
        if running {
            reader.until("call.output").await;
        }
        let expired = (transport::Code::PermissionDenied, "GRANT_EXPIRED");
        mesh.sandbox.with(|state| (state.expired, state.refuses) = (true, Some(expired)));
        mesh.sandbox.cuts.send_modify(|cuts| *cuts += 1);
        eventually("the session waits", || mesh.sandbox.with(|state| state.refused) > 0).await;
        mesh.sandbox.with(|state| (state.expired, state.refuses) = (false, None));
        let renewed = receipt::Grant { iat: grant.iat + 1, exp: grant.exp + 60, ..grant };
        alice.create_with(&renewed, MANIFEST).await.unwrap();
        mesh.sandbox.gate.send_replace(true);
        let result = reader.until("tool.result").await;
        let Data::ToolResult(result) = result.data else { panic!() };
        assert_eq!((result.ok, result.error), (true, None), "running: {running}");
        let (_, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
        assert_eq!(mesh.sandbox.runs(), [1]);
    }
}

/// A run that waits for its grant to be renewed, with its call running or still to be begun.
async fn waiting(mesh: &Mesh, running: bool) -> (Person, event::id::SessionId, Reader) {
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([call("check", json!({})), Turn::Say("done")]);
    let alice = Person::operator(mesh);
    let session = alice.create().await;
    mesh.sandbox.with(|state| state.expired = !running);
    alice.prompt(session).await.unwrap();
    let mut reader = alice.attach(session).await;
    if running {
        reader.until("call.output").await;
    }
    let expired = (transport::Code::PermissionDenied, "GRANT_EXPIRED");
    mesh.sandbox.with(|state| (state.expired, state.refuses) = (true, Some(expired)));
    mesh.sandbox.cuts.send_modify(|cuts| *cuts += 1);
    eventually("the session waits", || mesh.sandbox.with(|state| state.refused) > 0).await;
    (alice, session, reader)
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_a_run_that_waits_for_its_grant() {
    for running in [false, true] {
        let mesh = Mesh::start().await;
        let (alice, session, mut reader) = waiting(&mesh, running).await;
        assert_eq!(alice.cancel(session).await, Ok(true));
        let (events, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))), "{outcome:?}");
        assert_eq!(kinds(&events).contains(&"sandbox.stopped"), running, "what runs is stopped");
        assert_eq!(mesh.sandbox.runs(), vec![1; usize::from(running)]);
        assert_eq!(mesh.sandbox.with(|state| state.closed), 1, "the copy is closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_a_run_that_waits_for_its_grant_although_nobody_knows_its_owner() {
    for (running, restarted) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut mesh = Mesh::start().await;
        let (mut alice, session, mut reader) = waiting(&mesh, running).await;
        if restarted {
            let refused = mesh.sandbox.with(|state| state.refused);
            mesh.restart().await;
            alice = Person::operator(&mesh);
            reader = alice.attach(session).await;
            eventually("the session waits", || mesh.sandbox.with(|state| state.refused) > refused)
                .await;
        } else {
            mesh.sandbox.fences.forget();
        }
        assert_eq!(alice.cancel(session).await, Ok(true));
        let (_, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))), "{outcome:?}");
        assert_eq!(mesh.sandbox.runs(), vec![1; usize::from(running)], "nothing is begun");
    }
}
