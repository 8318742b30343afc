//! The dialect's rules, coded exactly.
use serde_json::{Value, json};

use super::mesh::Mesh;
use super::wire::{Raw, code};

const NEW: &str = "session/new";

fn hello(capabilities: &Value) -> Value {
    json!({ "protocolVersion": "harness/acp/1", "clientName": "raw", "capabilities": capabilities })
}

#[tokio::test]
async fn nothing_comes_before_initialize_and_it_comes_once() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    for (method, params) in [
        (NEW, json!({ "workspace": "demo" })),
        ("nonsense", json!({})),
        ("permission/respond", json!(7)),
    ] {
        assert_eq!(code(&raw.call(1, method, params).await), (-32002, "ACP_NOT_INITIALIZED"));
    }
    let all = json!({ "streaming": true, "permissioning": true });
    let mut other = hello(&all);
    other["protocolVersion"] = json!("harness/acp/2");
    assert_eq!(code(&raw.call(2, "initialize", other).await), (-32001, "ACP_PROTOCOL_VERSION"));
    for missing in [
        json!({}),
        json!({ "streaming": true }),
        json!({ "permissioning": true }),
        json!({ "permissioning": true, "sessions": true }),
    ] {
        assert_eq!(
            code(&raw.call(3, "initialize", hello(&missing)).await),
            (-32602, "ACP_INVALID_PARAMS"),
            "{missing}"
        );
    }
    let answer = raw.call(4, "initialize", hello(&all)).await;
    let expected = json!({
        "protocolVersion": "harness/acp/1",
        "agentName": "harness",
        "agentVersion": env!("CARGO_PKG_VERSION"),
        "capabilities": { "streaming": true, "permissioning": true, "sessions": false },
        "models": ["large", "small"],
    });
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 4, "result": expected }));
    assert_eq!(
        code(&raw.call(5, "initialize", hello(&all)).await),
        (-32600, "ACP_INVALID_REQUEST")
    );
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_the_connection_goes_on() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    for (text, id, number, symbol) in [
        ("{", Value::Null, -32700, "ACP_PARSE_ERROR"),
        ("[]", Value::Null, -32600, "ACP_INVALID_REQUEST"),
        (r#"{"jsonrpc":"2.0","method":"session/new"}"#, Value::Null, -32600, "ACP_INVALID_REQUEST"),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"session/new","more":1}"#,
            json!("a"),
            -32600,
            "ACP_INVALID_REQUEST",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"b","method":"session/restore","params":{}}"#,
            json!("b"),
            -32601,
            "ACP_METHOD_NOT_FOUND",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"c","method":"session/attach","params":{"sessionId":"x"}}"#,
            json!("c"),
            -32601,
            "ACP_METHOD_NOT_FOUND",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"d","method":"session/new"}"#,
            json!("d"),
            -32602,
            "ACP_INVALID_PARAMS",
        ),
        (
            r#"{"jsonrpc":"2.0","id":"e","method":"session/new","params":{"workspace":"w","onDisconnect":"hold"}}"#,
            json!("e"),
            -32602,
            "ACP_INVALID_PARAMS",
        ),
    ] {
        raw.text(text).await;
        let answer = raw.json().await;
        assert_eq!((&answer["id"], code(&answer)), (&id, (number, symbol)), "{text}");
    }
    raw.new_session(9).await;
}

#[tokio::test]
async fn a_viewer_neither_opens_nor_prompts_nor_cancels() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = ada.new_session(1).await;
    let mut vera = Raw::open(&mesh, "vera").await;
    vera.initialize(true).await;
    let forbidden = (-32003, "ACP_FORBIDDEN");
    assert_eq!(code(&vera.call(1, NEW, json!({ "workspace": "demo" })).await), forbidden);
    let attached = vera.call(2, "session/attach", json!({ "sessionId": session })).await;
    assert_eq!(attached["result"], json!({ "throughSeq": 0, "open": [] }));
    for (method, params) in [
        ("session/prompt", json!({ "sessionId": session, "content": "x" })),
        ("session/cancel", json!({ "sessionId": session })),
        ("patch/undo", json!({ "sessionId": session, "runId": event::id::RunId::new() })),
        (
            "permission/respond",
            json!({ "sessionId": session, "permissionId": "p", "decision": "allow" }),
        ),
        (
            "permission/respond",
            json!({ "sessionId": session, "permissionId": "p", "decision": "whatever" }),
        ),
    ] {
        assert_eq!(code(&vera.call(3, method, params).await), forbidden, "{method}");
    }
    // She is counted as somebody who cannot answer.
    mesh.agent.until(|state| (state.subscribers == [true, false]).then_some(())).await;
}

#[tokio::test]
async fn sessions_that_are_foreign_unknown_or_no_ids_are_answered_alike() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = ada.new_session(1).await;
    let mut eve = Raw::open(&mesh, "eve").await;
    eve.initialize(true).await;
    let nobody = "018f0000-0000-7000-8000-000000000000";
    for method in ["session/prompt", "session/cancel", "permission/respond", "session/attach"] {
        let mut answers = Vec::new();
        for id in [session.as_str(), nobody, "no id"] {
            let mut params = json!({ "sessionId": id });
            match method {
                "session/prompt" => params["content"] = json!("x"),
                "permission/respond" => {
                    (params["permissionId"], params["decision"]) = (json!(nobody), json!("allow"));
                }
                _ => {}
            }
            answers.push(eve.call(2, method, params).await);
        }
        assert_eq!(code(&answers[0]), (-32010, "ACP_SESSION_NOT_FOUND"), "{method}");
        assert_eq!((&answers[0], &answers[0]), (&answers[1], &answers[2]), "{method}");
    }
    // A session of the own tenant must be attached to before it is used.
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    let answer = bob.call(3, "session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(code(&answer), (-32010, "ACP_SESSION_NOT_FOUND"));
}

#[tokio::test]
async fn a_connection_has_room_for_32_sessions() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let mut first = String::new();
    for id in 0..32 {
        first = raw.new_session(id).await;
    }
    let full = (-32012, "ACP_SESSION_LIMIT");
    assert_eq!(code(&raw.call(90, NEW, json!({ "workspace": "demo" })).await), full);
    assert_eq!(code(&raw.call(91, "session/attach", json!({ "sessionId": first })).await), full);
}

#[tokio::test]
async fn what_a_client_asks_of_a_session_must_be_on_offer() {
    let mesh = Mesh::start().await;
    let deny = super::mesh::MANIFEST.replace("fix-tests", "strict")
        + "interaction: {on_disconnect: deny}\n";
    std::fs::write(mesh.dir.path().join("manifests/strict.yaml"), deny).expect("written");
    std::fs::write(mesh.dir.path().join("manifests/broken.yaml"), "id: [").expect("written");
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    for (params, says) in [
        (json!({ "workspace": "demo", "taskId": "unknown" }), "there is no task unknown"),
        (json!({ "workspace": "demo", "taskId": "broken" }), "broken.yaml:1:"),
        (json!({ "workspace": "demo", "model": "huge" }), "does not allow this model"),
        (
            json!({ "workspace": "demo", "taskId": "strict", "onDisconnect": "hold" }),
            "asks are denied",
        ),
        (json!({ "workspace": "demo", "taskId": "../strict" }), "params"),
        (json!({ "workspace": "sk-proj-0123456789abcdefghij" }), "looks like a secret"),
    ] {
        let answer = raw.call(1, NEW, params).await;
        assert_eq!(code(&answer), (-32602, "ACP_INVALID_PARAMS"));
        assert!(
            answer["error"]["message"].as_str().is_some_and(|message| message.contains(says)),
            "{answer}"
        );
    }
    assert_eq!(mesh.audit.kinds(), [""; 0], "nothing is signed for what is refused");
    mesh.agent.fail_next("CreateSession", transport::Code::FailedPrecondition, "WORKSPACE_UNKNOWN");
    let answer = raw.call(2, NEW, json!({ "workspace": "demo" })).await;
    assert_eq!(code(&answer), (-32602, "ACP_INVALID_PARAMS"));
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("WORKSPACE_UNKNOWN")),
        "{answer}"
    );
}

#[tokio::test]
async fn an_internal_error_says_nothing_more() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    mesh.agent.fail_next("CreateSession", transport::Code::Internal, "STATE_UNAVAILABLE");
    let answer = raw.call(1, NEW, json!({ "workspace": "demo" })).await;
    let expected = json!({ "code": -32603, "message": "internal error", "data": { "code": "ACP_INTERNAL_ERROR" } });
    assert_eq!(answer["error"], expected);
}
