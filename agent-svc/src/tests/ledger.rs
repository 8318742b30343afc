//! The ledger comes first: what it has not acknowledged reaches nobody and moves nothing.

use std::time::Duration;

use event::Data;
use proto::agent::v1 as wire;
use receipt::Scope;
use serde_json::json;
use transport::{Code, Fault};

use super::audit::Mood;
use super::gateway::{Person, kinds};
use super::mesh::{Mesh, eventually, within};
use super::model::Turn;

/// Long enough for something to happen that must not.
async fn a_while(mesh: &Mesh) {
    let appends = mesh.audit.state.lock().unwrap().appends;
    eventually("the ledger is asked again", || {
        mesh.audit.state.lock().unwrap().appends >= appends + 3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_ledger_is_down_nothing_is_told_and_nothing_is_done() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let mut reader = alice.attach(session).await;
    reader.until("session.created").await;

    mesh.audit.set(Mood::Down);
    alice.prompt(session).await.unwrap();
    a_while(&mesh).await;
    assert_eq!((mesh.sandbox.with(|state| state.opened), mesh.waiting().await), (0, 1));
    assert_eq!(alice.get(session).await.unwrap().through_seq, Some(0));
    mesh.audit.set(Mood::Up);
    let ask = reader.ask().await;

    // The answer counts at once, its effect only when the ledger has it.
    mesh.audit.set(Mood::Down);
    alice.allow(&ask, Scope::Once).await;
    a_while(&mesh).await;
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
    mesh.audit.set(Mood::Up);
    let (events, _) = reader.rest().await;
    assert_eq!(kinds(&events)[0], "permission.resolved");
    assert_eq!((mesh.sandbox.runs(), mesh.waiting().await), (vec![1], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_acknowledgement_is_a_repeat_and_not_a_second_entry() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    mesh.audit.set(Mood::Mute);
    alice.prompt(session).await.unwrap();
    a_while(&mesh).await;
    assert_eq!(mesh.audit.kinds(&session.to_string()), ["session.created", "agent.started"]);
    assert_eq!(alice.get(session).await.unwrap().through_seq, Some(0));
    assert_eq!(mesh.waiting().await, 1, "a row stays until it is acknowledged");
    mesh.audit.set(Mood::Up);
    let mut reader = alice.attach(session).await;
    reader.ask().await;
    let stored = mesh.audit.kinds(&session.to_string());
    assert_eq!(stored.iter().filter(|kind| **kind == "agent.started").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_resumes_at_any_entry_without_gap_or_repeat() {
    let mut mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    alice.allow(&ask, Scope::Once).await;
    reader.rest().await;
    let bodies = mesh.audit.bodies(&session.to_string());
    let last = bodies.len() as u64 - 1;
    // From memory, from the ledger, and after a restart from the ledger alone.
    for restarted in [false, true] {
        if restarted {
            mesh.restart().await;
        }
        let alice = Person::operator(&mesh);
        for after in std::iter::once(None).chain((0..=last).map(Some)) {
            let mut reader = alice.subscribe(session, after, false).await.unwrap();
            let (events, _) = reader.rest().await;
            let from = after.map_or(0, |seq| usize::try_from(seq).unwrap() + 1);
            let expected: Vec<Data> =
                bodies[from..].iter().map(|body| event::open(body).unwrap().data).collect();
            assert_eq!(events, expected, "after {after:?}, restarted: {restarted}");
        }
    }
    assert!(mesh.audit.state.lock().unwrap().reads > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_that_are_sent_are_the_bytes_in_the_ledger() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let request = wire::SubscribeRequest {
        session_id: session.to_string(),
        after_seq: None,
        can_answer: false,
    };
    let request = alice.about(request, "Subscribe", session);
    let mut stream = alice.client.clone().subscribe(request).await.unwrap().into_inner();
    alice.cancel(session).await.unwrap();
    let mut sent = Vec::new();
    while let Some(response) = within("a message", stream.message()).await.unwrap() {
        if let Some(wire::subscribe_response::Message::Entry(entry)) = response.message {
            sent.push(entry.event);
        }
    }
    assert_eq!(sent, mesh.audit.bodies(&session.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_the_ledger_refuses_stops_the_session_and_is_never_sent() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    mesh.audit.set(Mood::Refuses("permission.requested"));
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.until("policy.decision").await;
    let end = reader.message().await.unwrap_err();
    assert_eq!((end.code, end.reason.as_str()), (Code::FailedPrecondition, "STREAM_FROZEN"));
    within("the session is over", async {
        loop {
            if let Some(wire::session::State::Done(outcome)) =
                alice.get(session).await.unwrap().state
            {
                let Some(wire::outcome::State::Failed(failed)) = outcome.state else { panic!() };
                assert_eq!(failed.reason, "AUDIT_REFUSED");
                return;
            }
        }
    })
    .await;
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_not_read_is_detached_and_holds_up_nobody() {
    let mut mesh = Mesh::start().await;
    mesh.kill().await;
    mesh.spans.stall = Duration::from_millis(200);
    mesh.boot(None).await;
    // More than connection and channel hold.
    mesh.sandbox.with(|state| state.output = vec![b'x'; 400_000]);
    let calls = vec![("check", json!({})); 25];
    mesh.model.script([Turn::Call(calls), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let mut slow = alice.subscribe(session, None, false).await.unwrap();
    alice.prompt(session).await.unwrap();
    let (_, outcome) = alice.attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    let mut last = None;
    let end: Fault = loop {
        match slow.message().await {
            Ok(Some(wire::subscribe_response::Message::Entry(entry))) => last = Some(entry.seq),
            Ok(other) => panic!("detached before {other:?}"),
            Err(fault) => break fault,
        }
    };
    assert_eq!((end.code, end.reason.as_str()), (Code::ResourceExhausted, "SUBSCRIBER_SLOW"));
    let (rest, _) = alice.subscribe(session, last, false).await.unwrap().rest().await;
    let all = mesh.audit.bodies(&session.to_string()).len() as u64;
    assert_eq!(last.unwrap() + 1 + rest.len() as u64, all);
}
