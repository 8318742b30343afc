//! A run that somebody attends and says yes in, over a kill at any record and the restart that follows.

use std::collections::BTreeSet;

use event::Data;
use event::id::SessionId;
use proto::agent::v1 as wire;
use receipt::Scope;

use super::gateway::{Ask, Choice, Claimed, Person, Reader};
use super::mesh::Mesh;

/// The asks that were answered, each once.
pub(super) type Answered = BTreeSet<String>;

/// The outcome of what `begin` starts; nothing when the service died first.
pub(super) async fn until_killed(
    mesh: &Mesh,
    alice: &Person,
    session: SessionId,
    begin: impl Future,
    answered: &mut Answered,
) -> Option<wire::Outcome> {
    // Too large to lie in every caller's future.
    let attended = Box::pin(async {
        let reader = alice.attach(session).await;
        attend(alice, reader, answered).await
    });
    tokio::select! {
        outcome = async { tokio::join!(begin, attended).1 } => outcome,
        () = mesh.died() => None,
    }
}

/// The outcome after the restart, which is a completed run.
pub(super) async fn after_restart(
    mesh: &Mesh,
    session: SessionId,
    answered: &mut Answered,
    point: &str,
) -> wire::Outcome {
    let alice = Person::operator(mesh);
    let outcome = loop {
        let reader = alice.attach(session).await;
        if let Some(outcome) = attend(&alice, reader, answered).await {
            break outcome;
        }
    };
    let state = &outcome.state;
    assert!(matches!(state, Some(wire::outcome::State::Completed(_))), "{point}: {outcome:?}");
    outcome
}

/// Reads on, says yes to whatever is asked, and returns the outcome; nothing when the service is lost.
async fn attend(
    alice: &Person,
    mut reader: Reader,
    answered: &mut Answered,
) -> Option<wire::Outcome> {
    use wire::subscribe_response::Message;
    loop {
        match reader.message().await {
            Ok(Some(Message::Entry(entry))) => {
                let data = event::open(&entry.event).unwrap().data;
                let Data::PermissionRequested(requested) = data else { continue };
                let ask = Ask::read(&requested);
                answered.insert(ask.id.to_string());
                answer(alice, &ask).await;
            }
            Ok(Some(Message::Outcome(outcome))) => return Some(outcome),
            Ok(Some(Message::OpenAsks(_)) | None) | Err(_) => return None,
        }
    }
}

/// The service may be gone before, between and after; whoever is told so answers again later.
async fn answer(alice: &Person, ask: &Ask) {
    if alice.claim(ask, Choice::Allow(Scope::Once)).await == Ok(Claimed::Won) {
        drop(alice.resolve(ask, &alice.receipt(ask, Scope::Once)).await);
    }
}
