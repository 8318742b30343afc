//! The client against a peer that breaks one rule at a time.
#![cfg(feature = "client")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use acp::client::{Bearer, CallError, Client, Closed, ConnectError, Events, Limits, Options};
use acp::{Cancel, CancelAnswer, CancelParams, Code, Id};
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

const SESSION: &str = "018f0000-0000-7000-8000-000000000000";

type Peer = WebSocketStream<TcpStream>;

async fn pair(limits: Limits) -> (Client, Events, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let accept = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        #[expect(clippy::result_large_err, reason = "the signature is the library's")]
        let checked = |request: &Request, response: Response| {
            assert_eq!(request.headers()["authorization"], "Bearer hns_x");
            assert_eq!(request.uri().to_string(), "/harness");
            Ok(response)
        };
        tokio_tungstenite::accept_hdr_async(stream, checked).await.expect("a handshake")
    };
    let (peer, client) =
        tokio::join!(accept, Client::connect(options(&format!("ws://{address}"), limits)));
    let (client, events) = client.expect("connects");
    (client, events, peer)
}

fn options(url: &str, limits: Limits) -> Options {
    let endpoint = url.parse().expect("an address");
    Options { endpoint, ca_pem: Vec::new(), bearer: Bearer::new("hns_x").expect("a token"), limits }
}

fn cancel() -> CancelParams {
    CancelParams { session_id: Id::new(SESSION).expect("fits") }
}

fn event(seq: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/event","params":{{"sessionId":"{SESSION}","seq":{seq},"event":{{ "n":1.0 }}}}}}"#
    )
}

/// What the peer sees next that is no keepalive.
async fn next(peer: &mut Peer) -> Option<Message> {
    loop {
        match peer.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(message)) => return Some(message),
            Some(Err(_)) | None => return None,
        }
    }
}

async fn close_code(peer: &mut Peer) -> Option<u16> {
    match next(peer).await {
        Some(Message::Close(frame)) => frame.map(|frame| frame.code.into()),
        other => panic!("{other:?}"),
    }
}

async fn after(message: Message) -> (Closed, Option<u16>) {
    let (client, _events, mut peer) = pair(Limits::default()).await;
    let send = async {
        peer.send(message).await.expect("sent");
        close_code(&mut peer).await
    };
    let (closed, code) = tokio::join!(client.closed(), send);
    (closed, code)
}

#[tokio::test]
async fn a_call_gets_its_own_answer_and_events_come_between_untouched() {
    let (client, mut events, mut peer) = pair(Limits::default()).await;
    let serve = async {
        let Some(Message::Text(request)) = next(&mut peer).await else { panic!("a request") };
        assert_eq!(
            request.as_str(),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"session/cancel","params":{{"sessionId":"{SESSION}"}}}}"#
            )
        );
        peer.send(Message::text(event(0))).await.expect("sent");
        peer.send(Message::text(r#"{"jsonrpc":"2.0","id":1,"result":{"canceled":false}}"#))
            .await
            .expect("sent");
        let Some(Message::Text(_)) = next(&mut peer).await else { panic!("a request") };
        let failure = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32010,"message":"no such session","data":{"code":"ACP_SESSION_NOT_FOUND"}}}"#;
        peer.send(Message::text(failure)).await.expect("sent");
    };
    let calls = async {
        assert_eq!(
            client.call::<Cancel>(cancel()).await.expect("answered"),
            CancelAnswer { canceled: false }
        );
        match client.call::<Cancel>(cancel()).await {
            Err(CallError::Refused(failure)) => {
                assert_eq!(
                    (failure.code, failure.message()),
                    (Code::SessionNotFound, "no such session")
                );
            }
            other => panic!("{other:?}"),
        }
        let event = events.next().await.expect("an event");
        assert_eq!(
            (event.session_id.to_string().as_str(), event.seq.get(), event.event.get()),
            (SESSION, 0, r#"{ "n":1.0 }"#)
        );
    };
    tokio::join!(serve, calls);

    let hang_up = async move { close_code(&mut peer).await };
    let (closed, code) = tokio::join!(client.close(), hang_up);
    assert_eq!(closed, Closed { code: 1000, reason: "done".to_owned(), by_peer: false });
    assert_eq!(code, Some(1000));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn messages_that_are_none_close_with_4002() {
    for text in [
        "{",
        "[]",
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"a","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"","data":{"code":"ACP_PARSE_ERROR"}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"","data":{"code":"ACP_PARSE_ERROR"}}}"#,
        r#"{"jsonrpc":"2.0","method":"session/other","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"session/event","params":{"sessionId":"s","seq":0,"event":{}}}"#,
    ] {
        let (closed, code) = after(Message::text(text)).await;
        assert_eq!((closed.code, closed.by_peer, code), (4002, false, Some(4002)), "{text}");
    }
}

#[tokio::test]
async fn binary_and_oversize_messages_close_with_their_own_codes() {
    let (closed, code) = after(Message::binary(vec![1])).await;
    assert_eq!((closed.code, code), (1003, Some(1003)));
    let (closed, code) = after(Message::text("x".repeat(acp::MAX_DELIVERY + 1))).await;
    assert_eq!((closed.code, code), (1009, Some(1009)));
}

#[tokio::test]
async fn an_answer_of_the_wrong_form_fails_its_call_only() {
    let (client, _events, mut peer) = pair(Limits::default()).await;
    let serve = async {
        next(&mut peer).await;
        peer.send(Message::text(r#"{"jsonrpc":"2.0","id":1,"result":{"canceled":1}}"#))
            .await
            .expect("sent");
        next(&mut peer).await;
        peer.send(Message::text(r#"{"jsonrpc":"2.0","id":2,"result":{"canceled":true}}"#))
            .await
            .expect("sent");
    };
    let (first, second, ()) = {
        let calls = async {
            let first = client.call::<Cancel>(cancel()).await;
            (first, client.call::<Cancel>(cancel()).await)
        };
        let ((first, second), ()) = tokio::join!(calls, serve);
        (first, second, ())
    };
    assert_eq!(first.expect_err("refused").symbol(), "ACP_INVALID_RESPONSE");
    assert_eq!(second.expect("answered"), CancelAnswer { canceled: true });
}

#[tokio::test]
async fn events_that_nobody_reads_close_with_4009() {
    let limits = Limits { unread: Duration::from_millis(50), ..Limits::default() };
    let (client, mut events, mut peer) = pair(limits).await;
    for seq in 0..=u64::try_from(acp::MAX_QUEUED).expect("small") {
        peer.send(Message::text(event(seq))).await.expect("sent");
    }
    let (closed, code) = tokio::join!(client.closed(), close_code(&mut peer));
    assert_eq!((closed.code, code), (4009, Some(4009)));
    let mut read = 0;
    while events.next().await.is_some() {
        read += 1;
    }
    assert_eq!(read, acp::MAX_QUEUED);
}

#[tokio::test]
async fn a_reader_that_is_only_slow_loses_nothing() {
    let (client, mut events, mut peer) = pair(Limits::default()).await;
    let count = 20 * u64::try_from(acp::MAX_QUEUED).expect("small");
    let send = async {
        for seq in 0..count {
            peer.send(Message::text(event(seq))).await.expect("sent");
        }
    };
    let read = async {
        for seq in 0..count {
            tokio::task::yield_now().await;
            assert_eq!(events.next().await.expect("an event").seq.get(), seq);
        }
    };
    tokio::join!(send, read);
    drop(client);
}

#[tokio::test]
async fn the_peers_close_code_is_told_to_waiting_calls() {
    let (client, _events, mut peer) = pair(Limits::default()).await;
    let serve = async {
        next(&mut peer).await;
        peer.close(Some(CloseFrame { code: 1001.into(), reason: "going away".into() }))
            .await
            .expect("sent");
    };
    let (answer, ()) = tokio::join!(client.call::<Cancel>(cancel()), serve);
    let expected = Closed { code: 1001, reason: "going away".to_owned(), by_peer: true };
    match answer {
        Err(CallError::Closed(closed)) => assert_eq!(closed, expected),
        other => panic!("{other:?}"),
    }
    let error = client.call::<Cancel>(cancel()).await.expect_err("closed");
    assert_eq!(error.symbol(), "ACP_TRANSPORT_CLOSED");
}

#[tokio::test]
async fn a_cut_connection_is_a_transport_error() {
    let (client, mut events, peer) = pair(Limits::default()).await;
    drop(peer);
    assert_eq!(client.closed().await.code, Closed::TRANSPORT);
    assert!(events.next().await.is_none());
    assert_eq!(
        client.call::<Cancel>(cancel()).await.expect_err("closed").symbol(),
        "ACP_TRANSPORT_ERROR"
    );
}

#[tokio::test]
async fn a_peer_that_says_nothing_any_more_is_given_up() {
    let limits = Limits { silence: Duration::from_millis(90), ..Limits::default() };
    // The peer is never polled, so it answers no ping.
    let (client, _events, _peer) = pair(limits).await;
    let closed = client.closed().await;
    assert_eq!((closed.code, closed.reason.as_str()), (Closed::TRANSPORT, "the gateway is silent"));
}

#[tokio::test]
async fn pings_are_answered_while_nothing_else_happens() {
    let (_client, _events, mut peer) = pair(Limits::default()).await;
    peer.send(Message::Ping(b"here?".to_vec().into())).await.expect("sent");
    loop {
        match peer.next().await {
            Some(Ok(Message::Pong(payload))) => return assert_eq!(payload.as_ref(), b"here?"),
            Some(Ok(Message::Ping(_))) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn no_more_calls_wait_than_the_dialect_allows() {
    let (client, _events, mut peer) = pair(Limits::default()).await;
    let mut waiting: Vec<_> =
        (0..acp::MAX_PENDING).map(|_| Box::pin(client.call::<Cancel>(cancel()))).collect();
    let all = futures::future::join_all(waiting.iter_mut());
    let requests = async {
        for _ in 0..acp::MAX_PENDING {
            next(&mut peer).await.expect("a request");
        }
    };
    tokio::select! {
        _ = all => panic!("nothing was answered"),
        () = requests => {}
    }
    match client.call::<Cancel>(cancel()).await {
        Err(CallError::TooManyPending) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_larger_than_a_message_is_not_sent() {
    let (client, _events, _peer) = pair(Limits::default()).await;
    // Each control character is written as six bytes.
    let content = acp::Content::new("\u{1}".repeat(acp::MAX_CONTENT / 2)).expect("fits");
    let params = acp::PromptParams {
        session_id: cancel().session_id,
        content,
        max_model_tokens: None,
        max_tool_calls: None,
    };
    match client.call::<acp::Prompt>(params).await {
        Err(CallError::TooLarge) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refused_token_is_told_apart_from_other_refusals() {
    for (status, expected) in [("401 Unauthorized", None), ("404 Not Found", Some(404))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("ws://{}", listener.local_addr().expect("an address"));
        let answer = async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a byte"));
            }
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(text.as_bytes()).await.expect("sent");
            stream
        };
        let (refused, _stream) =
            tokio::join!(Client::connect(options(&url, Limits::default())), answer);
        match (refused.map(|_| ()), expected) {
            (Err(ConnectError::Unauthenticated), None) => {}
            (Err(ConnectError::Rejected(status)), Some(expected)) => assert_eq!(status, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_or_does_not_answer_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}", listener.local_addr().expect("an address"));
    let limits = Limits { connect: Duration::from_millis(50), ..Limits::default() };
    let refused = Client::connect(options(&url, limits)).await.map(|_| ());
    assert!(matches!(refused, Err(ConnectError::Timeout)), "{refused:?}");
    drop(listener);
    let refused = Client::connect(options(&url, Limits::default())).await.map(|_| ());
    assert!(matches!(refused, Err(ConnectError::Reach(_))), "{refused:?}");
}

#[tokio::test]
async fn a_page_of_another_place_or_patch_is_no_answer() {
    let page = |id: u32, patch: &str, offset: u32, text: &str, rest: &str| {
        let digest = event::Digest::of(patch.as_bytes());
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"patchDigest":"{digest}","format":"harness.patch-text.v1","offset":{offset},"text":"{text}"{rest}}}}}"#
        )
    };
    let more = r#","nextOffset":1"#;
    for (answers, good) in [
        ([page(1, "p", 0, "a", more), page(2, "p", 1, "b", "")], true),
        ([page(1, "p", 0, "a", more), page(2, "p", 0, "a", more)], false),
        ([page(1, "p", 0, "a", more), page(2, "q", 1, "b", "")], false),
    ] {
        let (client, _events, mut peer) = pair(Limits::default()).await;
        let serve = async {
            for answer in answers {
                let Some(Message::Text(request)) = next(&mut peer).await else {
                    panic!("a request")
                };
                assert!(request.contains(r#""method":"patch/read""#), "{request}");
                peer.send(Message::text(answer)).await.expect("sent");
            }
        };
        let session = event::id::SessionId::new();
        let permission = event::id::PermissionId::new();
        let (read, ()) = tokio::join!(client.patch_text(session, permission, 10), serve);
        match read {
            Ok(read) => assert_eq!((read.text.as_str(), read.complete, good), ("ab", true, true)),
            Err(CallError::InvalidAnswer(_)) => assert!(!good),
            Err(other) => panic!("{other:?}"),
        }
    }
}
