//! A provider that misbehaves, over a real socket.
use std::net::TcpListener;

use proto::common::v1 as common;
use proto::model::v1 as model;
use transport::Validate as _;

use super::rig::{CANARY, MANIFEST, Rig, call_id, turn, user};
use super::upstream::{Does, response};

const JSON: (&str, &str) = ("content-type", "application/json");

fn failed(kind: &str) -> model::ModelError {
    model::ModelError { kind: kind.into(), ..model::ModelError::default() }
}

/// The provider answered, with this status.
fn answered(status: u32, kind: &str) -> model::ModelError {
    model::ModelError { status, ..failed(kind) }
}

/// What is the same for everyone: the estimate is judged apart.
fn kind(failed: &model::ModelError) -> (&str, bool, bool) {
    (&failed.kind, failed.retryable, failed.billed)
}

#[tokio::test]
async fn a_turn_is_one_request_in_the_providers_words() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    rig.upstream.fails(
        "200 OK",
        &[JSON, ("x-request-id", "req_1")],
        r#"{"choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"call_b","type":"function","function":{"name":"process_exec","arguments":"{\"argv\":[\"ls\"]}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}}"#,
    );
    let called = model::message::Message::Assistant(model::Assistant {
        text: "so".into(),
        calls: vec![model::ToolCall {
            provider_id: "call_a".into(),
            name: "process.exec".into(),
            arguments: br#"{"argv":["id"]}"#.to_vec(),
        }],
        opaque: vec![],
    });
    let reply = model::message::Message::Tool(model::ToolReply {
        provider_id: "call_a".into(),
        ok: true,
        content: "uid=0".into(),
    });
    let system = model::message::Message::System(model::Text { text: "be good".into() });
    let message = |message| model::Message { message: Some(message) };
    let request = model::CompleteRequest {
        messages: vec![message(system), user("do it"), message(called), message(reply)],
        tools: vec![common::Tool {
            name: "process.exec".into(),
            description: "Runs a command.".into(),
            input_schema: br#"{"type":"object"}"#.to_vec(),
        }],
        max_output_tokens: 99,
        ..turn(&by, "real", 7)
    };
    let answer = rig.answer(request).await;
    let expected = model::Answer {
        request_id: "req_1".into(),
        model: "real".into(),
        finish: model::Finish::ToolCalls.into(),
        calls: vec![model::ToolCall {
            provider_id: "call_b".into(),
            name: "process.exec".into(),
            arguments: br#"{"argv":["ls"]}"#.to_vec(),
        }],
        usage: Some(common::Usage { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 }),
        ..model::Answer::default()
    };
    assert_eq!(answer, expected);

    let seen = rig.upstream.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", seen[0].head);
    assert_eq!(seen[0].header("authorization"), Some(&*format!("Bearer {CANARY}")));
    assert_eq!(seen[0].header("accept-encoding"), Some("identity"));
    let function =
        |name: &str, arguments: &str| serde_json::json!({"name": name, "arguments": arguments});
    let expected = serde_json::json!({
        "model": "m-1",
        "stream": false,
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": "so", "tool_calls": [
                {"id": "call_a", "type": "function", "function": function("process_exec", r#"{"argv":["id"]}"#)},
            ]},
            {"role": "tool", "tool_call_id": "call_a", "content": "uid=0"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "process_exec",
            "description": "Runs a command.",
            "parameters": {"type": "object"},
        }}],
        "max_tokens": 99,
    });
    assert_eq!(seen[0].json(), expected);
}

#[tokio::test]
async fn a_redirect_is_refused_and_its_target_never_hears_of_it() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let location = format!("http://{}/v1/chat/completions", target.local_addr().unwrap());
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        rig.upstream.fails(status, &[("location", &location)], "");
        let refused = rig.failure(turn(&by, "real", 0)).await;
        let code = status[..3].parse().unwrap();
        assert_eq!(refused, answered(code, "MODEL_UNSUPPORTED_RESPONSE"), "{status}");
    }
    assert_eq!(rig.upstream.seen().len(), 4);
    let accepted = target.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(accepted, Err(std::io::ErrorKind::WouldBlock));
}

#[tokio::test]
async fn a_providers_words_about_an_error_never_come_out() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let body = format!(r#"{{"error":{{"message":"wrong key {CANARY}","code":"{CANARY}"}}}}"#);
    rig.upstream.fails("401 Unauthorized", &[JSON, ("x-request-id", "<b>bad</b>")], &body);
    let request = turn(&by, "real", 0);
    let refused = rig.failure(request.clone()).await;
    assert_eq!(refused, answered(401, "MODEL_AUTH_ERROR"));
    rig.audit.kinds(2).await;
    let shown = format!(
        "{refused:?} {:?} {:?}",
        rig.audit.entries(),
        rig.standing(&by, &call_id(&request)).await
    );
    assert!(!shown.contains("canary") && !shown.contains("wrong key"), "{shown}");
    for file in std::fs::read_dir(rig.dir.path().join("state")).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));
    }
}

#[tokio::test]
async fn a_limit_says_how_long_to_wait() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    rig.upstream.fails(
        "429 Too Many Requests",
        &[("retry-after", "7"), ("x-request-id", "r-9")],
        "",
    );
    let limited = rig.failure(turn(&by, "real", 0)).await;
    let expected = model::ModelError {
        retryable: true,
        retry_after_ms: 7_000,
        request_id: "r-9".into(),
        ..answered(429, "MODEL_RATE_LIMITED")
    };
    assert_eq!(limited, expected);
    rig.upstream.fails("503 Service Unavailable", &[], "<html>");
    let down = rig.failure(turn(&by, "real", 0)).await;
    let expected = model::ModelError { retryable: true, ..answered(503, "MODEL_HTTP_ERROR") };
    assert_eq!(down, expected);
}

#[tokio::test]
async fn an_answer_that_breaks_the_contract_is_refused_and_paid() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let choice = r#"{"message":{"content":"a"},"finish_reason":"stop"}"#;
    let call = r#"{"id":"a","function":{"name":"x","arguments":"{}"}}"#;
    let wrong = |body: String| response("200 OK", &[JSON], &body);
    let cases = [
        ("two choices", wrong(format!(r#"{{"choices":[{choice},{choice}]}}"#))),
        ("no choice", wrong(r#"{"choices":[]}"#.into())),
        (
            "duplicate ids",
            wrong(format!(
                r#"{{"choices":[{{"message":{{"tool_calls":[{call},{call}]}},"finish_reason":"tool_calls"}}]}}"#
            )),
        ),
        (
            "stop with calls",
            wrong(format!(
                r#"{{"choices":[{{"message":{{"tool_calls":[{call}]}},"finish_reason":"stop"}}]}}"#
            )),
        ),
        (
            "calls without a call",
            wrong(
                r#"{"choices":[{"message":{"content":"a"},"finish_reason":"tool_calls"}]}"#.into(),
            ),
        ),
        (
            "a wrong sum",
            wrong(format!(
                r#"{{"choices":[{choice}],"usage":{{"prompt_tokens":7,"completion_tokens":3,"total_tokens":9}}}}"#
            )),
        ),
        ("no JSON", wrong("{".into())),
        ("HTML", response("200 OK", &[("content-type", "text/html")], "<html>")),
    ];
    for (name, bytes) in cases {
        rig.upstream.does(Does::Sends(bytes));
        let refused = rig.failure(turn(&by, "real", 0)).await;
        assert_eq!(kind(&refused), ("MODEL_INVALID_RESPONSE", false, true), "{name}");
        assert!(refused.usage.is_some_and(|usage| usage.total_tokens > 0), "{name}");
    }
    let legacy = r#"{"choices":[{"message":{"function_call":{"name":"x","arguments":"{}"}},"finish_reason":"function_call"}]}"#;
    rig.upstream.answers(legacy);
    let refused = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&refused), ("MODEL_UNSUPPORTED_RESPONSE", false, true));
    let filtered = r#"{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#;
    rig.upstream.answers(filtered);
    let refused = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&refused), ("MODEL_CONTENT_FILTERED", false, true));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_it_is_announced_or_not() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let announced = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        9 << 20
    );
    rig.upstream.does(Does::Sends(announced.into_bytes()));
    let refused = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&refused), ("MODEL_INVALID_RESPONSE", false, true));

    let mut chunked =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..9 {
        chunked.extend_from_slice(format!("{:x}\r\n", 1 << 20).as_bytes());
        chunked.extend_from_slice(&vec![b' '; 1 << 20]);
        chunked.extend_from_slice(b"\r\n");
    }
    rig.upstream.does(Does::Sends(chunked));
    let refused = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&refused), ("MODEL_INVALID_RESPONSE", false, true));
}

#[tokio::test]
async fn a_provider_that_does_not_answer_or_breaks_off_costs_what_was_reserved() {
    let mut rig = Rig::stopped().await;
    rig.write("models.toml", &rig.models("timeout = \"300ms\""), 0o644);
    rig.start().await;
    let by = rig.session().await;
    rig.upstream.does(Does::Hangs);
    let late = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&late), ("MODEL_TIMEOUT", true, true));
    assert!(late.usage.unwrap().completion_tokens == 500);
    let cut = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    rig.upstream.does(Does::SendsAndCloses(cut.to_vec()));
    let broken = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(kind(&broken), ("MODEL_TRANSPORT_ERROR", true, true));
    assert_eq!(rig.upstream.seen().len(), 2);
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_costs_nothing() {
    let mut rig = Rig::stopped().await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let models = rig.models("").replace(&rig.upstream.addr.to_string(), &closed.to_string());
    rig.write("models.toml", &models, 0o644);
    rig.start().await;
    let by = rig.session().await;
    let unreached = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(unreached, model::ModelError { retryable: true, ..failed("MODEL_TRANSPORT_ERROR") });
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_never_doubles_a_request() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let body = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    rig.upstream.does(Does::SendsAndCloses(response("200 OK", &[JSON], body)));
    for calls in 1..=5 {
        rig.answer(turn(&by, "real", 0)).await;
        assert_eq!(rig.upstream.seen().len(), calls);
    }
}

#[tokio::test]
async fn a_request_over_the_limit_and_names_that_collide_are_not_sent() {
    let rig = Rig::new().await;
    let session = event::id::SessionId::new();
    let by = super::rig::owner(session, "a", 1);
    let manifest = MANIFEST.replace("budget: {max_model_tokens: 100000}\n", "");
    let grant =
        receipt::Grant { manifest: event::Digest::of(manifest.as_bytes()), ..rig.grant(session) };
    rig.fence_with(by.clone(), &grant, &manifest).await.unwrap();
    let large = model::CompleteRequest {
        messages: vec![user(&"a".repeat(5 << 20))],
        ..turn(&by, "real", 0)
    };
    assert_eq!(rig.failure(large).await, failed("MODEL_INVALID_REQUEST"));
    let tool = |name: &str| common::Tool {
        name: name.into(),
        description: String::new(),
        input_schema: b"{}".to_vec(),
    };
    let collide =
        model::CompleteRequest { tools: vec![tool("a.b"), tool("a_b")], ..turn(&by, "real", 0) };
    assert_eq!(rig.failure(collide).await, failed("MODEL_INVALID_REQUEST"));
    assert_eq!(rig.upstream.seen(), []);
}

#[tokio::test]
async fn a_key_file_that_others_can_read_stops_the_start() {
    let rig = Rig::stopped().await;
    rig.write("key", CANARY, 0o644);
    let context = rig.pki.context(transport::Service::ModelSvc).unwrap();
    let refused = crate::bind(rig.config(), context).await.unwrap_err();
    let told = transport::Chain(&refused).to_string();
    assert!(told.contains("others may read or write it; chmod it to 0600"), "{told}");
    let faults = rig.config().faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("chmod it to 0600") && !faults[0].contains("canary"), "{faults:?}");
}
