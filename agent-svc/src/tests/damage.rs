//! State that cannot be read any more: the session stands still and says so, and nothing of it is lost.

use proto::agent::v1 as wire;
use serde_json::json;
use transport::{Code, Fault};

use super::gateway::Person;
use super::mesh::Mesh;
use super::model::Turn;

/// A call runs when the process ends, and the next one finds this done to its database.
async fn restarted_after(statement: &'static str) -> (Mesh, Person, event::id::SessionId) {
    let mut mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([Turn::Call(vec![("check", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin_holding().await;
    reader.until("call.output").await;
    mesh.kill().await;
    mesh.damage(statement).await;
    mesh.boot(None).await;
    let alice = Person::operator(&mesh);
    (mesh, alice, session)
}

/// All that can still be had: the entries, then the reason.
async fn read(alice: &Person, session: event::id::SessionId) -> (u64, Fault) {
    let mut reader = alice.attach(session).await;
    let mut entries = 0;
    loop {
        match reader.message().await {
            Ok(Some(wire::subscribe_response::Message::Entry(_))) => entries += 1,
            Ok(other) => panic!("{other:?}"),
            Err(fault) => return (entries, fault),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_read_is_parked_and_says_so() {
    let damages = [
        "UPDATE record SET body = CAST('{\"v\":2,\"event\":{}}' AS BLOB) WHERE ordinal = 3",
        "UPDATE record SET body = CAST('{' AS BLOB) WHERE ordinal = 3",
        "DELETE FROM record WHERE ordinal = 3",
        "UPDATE message SET body = CAST('no message' AS BLOB)",
        "UPDATE session SET manifest = CAST('id: [' AS BLOB)",
        "DELETE FROM call",
    ];
    for damage in damages {
        let (mesh, alice, session) = restarted_after(damage).await;
        let expected = (Code::FailedPrecondition, "SESSION_DAMAGED");
        let (entries, fault) = read(&alice, session).await;
        assert_eq!((fault.code, fault.reason.as_str()), expected, "{damage}");
        let shown = alice.get(session).await.unwrap();
        let is_parked = matches!(shown.state, Some(wire::session::State::NeedsOperator(_)));
        assert!(is_parked, "{damage}: {shown:?}");
        assert_eq!(shown.through_seq, Some(entries - 1), "{damage}: every entry can be read");
        let refused = alice.cancel(session).await.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), expected, "{damage}");
        // Taken over once, by the start.
        let pool = mesh.connect().await;
        let epoch: i64 =
            sqlx::query_scalar("SELECT owner_epoch FROM session").fetch_one(&pool).await.unwrap();
        pool.close().await;
        assert_eq!((epoch, mesh.sandbox.runs()), (2, vec![1]), "{damage}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_session_goes_on_where_it_was_once_it_can_be_read() {
    let version =
        "UPDATE record SET body = CAST(replace(CAST(body AS TEXT), '\"v\":1', '\"v\":2') AS BLOB)";
    let (mut mesh, alice, session) = restarted_after(version).await;
    assert_eq!(read(&alice, session).await.1.reason, "SESSION_DAMAGED");
    mesh.kill().await;
    mesh.damage(
        "UPDATE record SET body = CAST(replace(CAST(body AS TEXT), '\"v\":2', '\"v\":1') AS BLOB)",
    )
    .await;
    mesh.sandbox.gate.send_replace(true);
    mesh.boot(None).await;
    let (_, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    assert_eq!(mesh.sandbox.runs(), [1]);
}
