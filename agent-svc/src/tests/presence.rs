//! Who is there, and what it means when nobody is.

use std::time::Duration;

use event::{AgentStatus, Data, Decision, Source};
use proto::agent::v1 as wire;
use receipt::Scope;

use super::gateway::{Choice, Claimed, Person};
use super::mesh::{Mesh, eventually};

fn resolution(events: &[Data]) -> (Decision, Source) {
    let mut found = events.iter().filter_map(|data| match data {
        Data::PermissionResolved(resolved) => Some((resolved.decision, resolved.source)),
        _ => None,
    });
    let only = found.next().expect("an answer");
    assert_eq!(found.next(), None, "one answer");
    only
}

fn status(events: &[Data]) -> AgentStatus {
    match events.last() {
        Some(Data::AgentStopped(stopped)) => stopped.status,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_everyone_has_left_the_ask_is_denied_and_the_run_canceled() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let (session, mut first) = alice.begin().await;
    let second = alice.attach(session).await;
    let watching = alice.subscribe(session, None, false).await.unwrap();
    first.ask().await;
    drop(first);
    mesh.clock.advance(Duration::from_secs(60));
    assert!(
        matches!(
            alice.get(session).await.unwrap().state,
            Some(wire::session::State::AwaitingPerson(_))
        ),
        "one is still there"
    );
    drop(second);
    // The service learns of it when the stream breaks; time passes for it only then.
    let mut watching = watching;
    eventually_gone(&mesh, &alice, session).await;
    let (events, outcome) = watching.rest().await;
    assert_eq!(resolution(&events), (Decision::Deny, Source::Disconnect));
    assert_eq!(status(&events), AgentStatus::Canceled);
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

/// Lets time pass until absence has been noticed.
async fn eventually_gone(mesh: &Mesh, alice: &Person, session: event::id::SessionId) {
    super::mesh::within("absence is noticed", async {
        loop {
            mesh.clock.advance(Duration::from_secs(1));
            let state = alice.get(session).await.unwrap().state;
            if matches!(state, Some(wire::session::State::Done(_))) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_within_the_grace_was_never_gone() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    let seen = reader.next - 1;
    drop(reader);
    mesh.clock.advance(Duration::from_secs(5));
    let mut reader = alice.subscribe(session, Some(seen), true).await.unwrap();
    mesh.clock.advance(Duration::from_secs(60));
    alice.allow(&ask, Scope::Once).await;
    let (events, outcome) = reader.rest().await;
    assert_eq!(resolution(&events), (Decision::Allow, Source::Operator));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_nobody_could_ever_answer_is_denied_at_once_and_the_run_goes_on() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    // Watching is not answering.
    let mut watching = alice.subscribe(session, None, false).await.unwrap();
    let ask = watching.ask().await;
    // No time passes for it.
    let (events, outcome) = watching.rest().await;
    assert_eq!(resolution(&events), (Decision::Deny, Source::MissingResolver));
    let late = alice.claim(&ask, Choice::Allow(Scope::Once)).await;
    assert!(matches!(late, Ok(Claimed::Lost { settled: true, .. })), "{late:?}");
    assert_eq!(status(&events), AgentStatus::Completed);
    assert_eq!(outcome.steps, 2);
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn absence_does_not_overtake_a_claimed_allow() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let mut watching = alice.subscribe(session, None, false).await.unwrap();
    let ask = reader.ask().await;
    assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Once)).await, Ok(Claimed::Won));
    drop(reader);
    // Twice the grace, and less than the claim holds.
    for _ in 0..20 {
        mesh.clock.advance(Duration::from_secs(1));
        let state = alice.get(session).await.unwrap().state;
        assert!(matches!(state, Some(wire::session::State::AwaitingPerson(_))), "{state:?}");
    }
    alice.resolve(&ask, &alice.receipt(&ask, Scope::Once)).await.unwrap();
    let (events, _) = watching.rest().await;
    assert_eq!(resolution(&events), (Decision::Allow, Source::Operator));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_hold_an_ask_waits_a_day_for_somebody() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create_holding().await;
    alice.prompt(session).await.unwrap();
    alice.attach(session).await.ask().await;
    mesh.clock.advance(Duration::from_secs(23 * 3600));
    // Asked again on attach, whatever the cursor: the same entry, no new event.
    let after = alice.get(session).await.unwrap().through_seq;
    let request = wire::SubscribeRequest {
        session_id: session.to_string(),
        after_seq: after,
        can_answer: true,
    };
    let request = alice.about(request, "Subscribe", session);
    let mut stream = alice.client.clone().subscribe(request).await.unwrap().into_inner();
    let Some(wire::subscribe_response::Message::OpenAsks(open)) =
        stream.message().await.unwrap().unwrap().message
    else {
        panic!("open asks come first")
    };
    assert_eq!((open.through_seq, open.requested.len()), (after, 1));
    let Data::PermissionRequested(requested) = event::open(&open.requested[0].event).unwrap().data
    else {
        panic!("the ask itself")
    };
    assert_eq!(
        mesh.audit.bodies(&session.to_string())[usize::try_from(open.requested[0].seq).unwrap()],
        open.requested[0].event
    );
    alice.allow(&super::gateway::Ask::read(&requested), Scope::Once).await;
    let (events, _) = alice.attach(session).await.rest().await;
    assert_eq!(resolution(&events), (Decision::Allow, Source::Operator));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_absence_counts_from_the_restart() {
    let mut mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    alice.attach(session).await.ask().await;
    mesh.restart().await;
    let alice = Person::operator(&mesh);
    mesh.clock.advance(Duration::from_secs(9));
    let state = alice.get(session).await.unwrap().state;
    assert!(matches!(state, Some(wire::session::State::AwaitingPerson(_))));
    eventually_gone(&mesh, &alice, session).await;
    let (events, _) = alice.subscribe(session, None, false).await.unwrap().rest().await;
    assert_eq!(resolution(&events), (Decision::Deny, Source::Disconnect));
    assert_eq!(status(&events), AgentStatus::Canceled);
    eventually("the environment is closed", || mesh.sandbox.with(|state| state.closed) == 1).await;
}
