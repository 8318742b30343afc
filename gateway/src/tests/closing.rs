//! How connections end: the code that really goes over the wire.
use std::time::Duration;

use serde_json::json;

use super::agent::sealed;
use super::mesh::Mesh;
use super::wire::{Got, Raw, frame};
use super::within;
use crate::{Limits, socket};
use event::id::SessionId;

#[tokio::test]
async fn each_broken_rule_has_its_close_code() {
    let mesh = Mesh::start().await;
    let with_length = |length: &[u8]| [&[0x81], length, &[0; 4]].concat();
    for (what, bytes, code) in [
        ("an unmasked frame", vec![0x81, 0x01, b'x'], 1002),
        ("a reserved bit", frame(0xC1, b"x"), 1002),
        ("a reserved opcode", frame(0x83, b"x"), 1002),
        ("a length that could be shorter", with_length(&[0xFE, 0, 1]), 1002),
        ("a message inside a message", [frame(0x01, b"x"), frame(0x81, b"y")].concat(), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a fragmented ping", frame(0x09, b"x"), 1002),
        ("a close code that does not exist", frame(0x88, &999_u16.to_be_bytes()), 1002),
        ("a binary message", frame(0x82, b"x"), 1003),
        ("text that is not UTF-8", frame(0x81, &[0xFF]), 1007),
        ("a frame over the limit", with_length(&[0xFF, 0, 0, 0, 0, 0, 0x10, 0, 1]), 1009),
    ] {
        let mut raw = Raw::open(&mesh, "ada").await;
        raw.send(&bytes).await;
        assert_eq!(raw.message().await, Got::Close(Some(code)), "{what}");
        assert_eq!(raw.message().await, Got::End, "{what}");
    }
}

#[tokio::test]
async fn a_message_over_the_limit_in_allowed_frames_closes_with_1009() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    let half = vec![b'x'; acp::MAX_MESSAGE / 2 + 1];
    raw.send(&frame(0x01, &half)).await;
    raw.send(&frame(0x80, &half)).await;
    assert_eq!(raw.message().await, Got::Close(Some(1009)));
}

#[tokio::test]
async fn what_is_begun_and_not_ended_closes_with_1002() {
    let socket =
        socket::Limits { incomplete: Duration::from_millis(50), ..socket::Limits::default() };
    let mesh = Mesh::start_within(Limits { socket, ..Limits::default() }).await;
    for bytes in [vec![0x81], frame(0x01, b"begun")] {
        let mut raw = Raw::open(&mesh, "ada").await;
        raw.send(&bytes).await;
        assert_eq!(raw.message().await, Got::Close(Some(1002)));
    }
}

#[tokio::test]
async fn a_peers_close_is_answered_with_its_code() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.send(&frame(0x88, &1000_u16.to_be_bytes())).await;
    assert_eq!(raw.message().await, Got::Close(Some(1000)));
    assert_eq!(raw.message().await, Got::End);
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.send(&frame(0x88, b"")).await;
    assert_eq!(raw.message().await, Got::Close(None));
}

#[tokio::test]
async fn pings_are_answered_with_their_payload() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.send(&frame(0x89, b"here?")).await;
    assert_eq!(raw.message().await, Got::Pong(b"here?".to_vec()));
}

#[tokio::test]
async fn a_client_that_gives_no_sign_of_life_is_given_up() {
    let limits = Limits { keepalive: Duration::from_millis(40), ..Limits::default() };
    let mesh = Mesh::start_within(limits).await;
    let mut raw = Raw::open(&mesh, "ada").await;
    // It reads pings and answers none.
    assert_eq!(raw.message().await, Got::End);
}

#[tokio::test]
async fn a_stopping_gateway_says_1001_and_lets_its_subscriptions_go() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    raw.new_session(1).await;
    mesh.agent.until(|state| (state.subscribers == [true]).then_some(())).await;
    mesh.shutdown.cancel();
    loop {
        match raw.message().await {
            Got::Text(_) => {}
            got => break assert_eq!(got, Got::Close(Some(1001))),
        }
    }
    drop(raw);
    mesh.agent.until(|state| state.subscribers.is_empty().then_some(())).await;
    mesh.tracker.close();
    within(mesh.tracker.wait()).await;
}

#[tokio::test]
async fn a_stopping_gateway_waits_neither_for_a_client_that_takes_nothing_nor_for_a_peer_that_is_away()
 {
    let parting = Duration::from_millis(300);
    let mesh = Mesh::start_within(Limits { parting, ..Limits::default() }).await;
    let mut stuck = Raw::open(&mesh, "ada").await;
    stuck.initialize(true).await;
    let session = SessionId::parse(&stuck.new_session(1).await).expect("an id");
    let text = "x".repeat(200_000);
    for index in 0..45 {
        mesh.agent.push(
            session,
            event::MessageDelta { request_id: "r".to_owned(), index, text: text.clone() },
        );
    }
    let mut waiting = Raw::open(&mesh, "bob").await;
    waiting.initialize(true).await;
    mesh.audit.go_down(true);
    let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "workspace": "demo" } });
    waiting.text(&new.to_string()).await;
    mesh.audit.until_refused().await;
    mesh.shutdown.cancel();
    mesh.tracker.close();
    // Well below the stall limit of the one and the patience of the other.
    let stopped = tokio::time::timeout(Duration::from_secs(5), mesh.tracker.wait()).await;
    assert!(stopped.is_ok(), "{} tasks are left", mesh.tracker.len());
}

#[tokio::test]
async fn events_that_are_not_what_the_ledger_holds_close_with_1011() {
    let mesh = Mesh::start().await;
    let created =
        |session: SessionId| event::SessionCreated { session_id: session, workspace: None };
    for wrong in 0..3 {
        let mut raw = Raw::open(&mesh, "ada").await;
        raw.initialize(false).await;
        let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
        let bytes = match wrong {
            0 => b"{}".to_vec(),
            // Another spelling of the same event.
            1 => [b" ", sealed(created(session)).as_slice()].concat(),
            // A member that readers may take either way.
            _ => String::from_utf8(sealed(created(session)))
                .expect("text")
                .replacen('{', "{\"v\":2,", 1)
                .into_bytes(),
        };
        mesh.agent.push_bytes(session, bytes);
        loop {
            match raw.message().await {
                Got::Text(text) => assert!(
                    text.contains("session.created") && text.contains("\"seq\":0"),
                    "{text}"
                ),
                got => break assert_eq!(got, Got::Close(Some(1011))),
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_takes_no_events_is_closed_with_1013_and_does_not_hold_up_the_rest() {
    let socket = socket::Limits {
        stall: Duration::from_millis(200),
        drain: Duration::from_secs(5),
        outbound: 65_536,
        ..socket::Limits::default()
    };
    let mesh = Mesh::start_within(Limits { socket, ..Limits::default() }).await;
    let mut slow = Raw::open(&mesh, "ada").await;
    slow.initialize(true).await;
    let session = SessionId::parse(&slow.new_session(1).await).expect("an id");
    let text = "x".repeat(200_000);
    for index in 0..45 {
        mesh.agent.push(
            session,
            event::MessageDelta { request_id: "r".to_owned(), index, text: text.clone() },
        );
    }
    // The other client of the same session gets all of it meanwhile, while the first reads nothing.
    let mut quick = Raw::open(&mesh, "bob").await;
    quick.initialize(true).await;
    quick.call(1, "session/attach", json!({ "sessionId": session, "afterSeq": 35 })).await;
    for seq in 36..=45 {
        assert_eq!(quick.json().await["params"]["seq"], seq);
    }
    // Its subscription is let go, and then it reads again.
    mesh.agent.until(|state| (state.subscribers.len() == 1).then_some(())).await;
    loop {
        match slow.message().await {
            Got::Text(_) => {}
            got => break assert_eq!(got, Got::Close(Some(1013))),
        }
    }
}
