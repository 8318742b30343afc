//! What an import would write: shown page by page, to a client with our extension that was shown the ask.
use event::Digest;
use event::id::{PermissionId, RunId, SessionId};
use proto::agent::v1::{self as wire, DenySource};
use serde_json::{Value, json};
use transport::Code;

use super::agent::{Standing, State, roles};
use super::mesh::Mesh;
use super::wire::{Raw, code};

const TEXT: &str = "{\"op\":\"create\",\"path\":\"a\"}\n\n+\u{1b}[31mone\n";

async fn asked(mesh: &Mesh, sessions: bool) -> (Raw, SessionId, PermissionId) {
    let mut raw = Raw::open(mesh, "ada").await;
    raw.initialize(sessions).await;
    let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
    let permission = mesh.agent.ask_import(session, TEXT, 30);
    while raw.json().await["params"]["event"]["type"] != "permission.requested" {}
    (raw, session, permission)
}

fn read(session: SessionId, permission: PermissionId) -> Value {
    json!({ "sessionId": session, "permissionId": permission })
}

fn asked_of_agent(mesh: &Mesh) -> usize {
    roles(&mesh.agent.state(), "GetPatch").len()
}

#[tokio::test]
async fn a_client_without_sessions_has_no_such_method() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission) = asked(&mesh, false).await;
    let answer = raw.call(2, "patch/read", read(session, permission)).await;
    assert_eq!(code(&answer), (-32601, "ACP_METHOD_NOT_FOUND"));
    assert_eq!(asked_of_agent(&mesh), 0);
}

#[tokio::test]
async fn only_an_import_that_was_shown_on_this_connection_can_be_read() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission) = asked(&mesh, true).await;
    let mut wrong = read(session, permission);
    wrong["whole"] = json!(true);
    assert_eq!(code(&raw.call(2, "patch/read", wrong).await), (-32602, "ACP_INVALID_PARAMS"));
    let unknown = read(session, PermissionId::new());
    assert_eq!(
        code(&raw.call(3, "patch/read", unknown).await),
        (-32020, "ACP_PERMISSION_NOT_FOUND")
    );
    let (command, _) = mesh.agent.ask(session);
    while raw.json().await["params"]["event"]["type"] != "permission.requested" {}
    let answer = raw.call(4, "patch/read", read(session, command)).await;
    assert_eq!(code(&answer), (-32602, "ACP_INVALID_PARAMS"));

    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    let answer = bob.call(1, "patch/read", read(session, permission)).await;
    assert_eq!(code(&answer), (-32010, "ACP_SESSION_NOT_FOUND"));
    let mut eve = Raw::open(&mesh, "eve").await;
    eve.initialize(true).await;
    let answer = eve.call(1, "session/attach", json!({ "sessionId": session })).await;
    assert_eq!(code(&answer), (-32010, "ACP_SESSION_NOT_FOUND"));
    assert_eq!(asked_of_agent(&mesh), 0);
}

#[tokio::test]
async fn pages_are_passed_on_as_they_are() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission) = asked(&mesh, true).await;
    let answer = raw.call(2, "patch/read", read(session, permission)).await;
    let first = json!({
        "patchDigest": Digest::of(TEXT.as_bytes()), "format": "harness.patch-text.v1",
        "offset": 0, "text": &TEXT[..30], "nextOffset": 30,
    });
    assert_eq!(answer["result"], first);
    let mut params = read(session, permission);
    params["offset"] = json!(30);
    let answer = raw.call(3, "patch/read", params).await;
    let second = json!({
        "patchDigest": Digest::of(TEXT.as_bytes()), "format": "harness.patch-text.v1",
        "offset": 30, "text": &TEXT[30..],
    });
    assert_eq!(answer["result"], second);
}

#[tokio::test]
async fn the_client_reads_a_whole_patch_or_as_much_as_it_wants() {
    let mesh = Mesh::start().await;
    let (_raw, session, permission) = asked(&mesh, true).await;
    let (client, _events) = mesh.client("vera").await;
    client.call::<acp::Attach>(acp::AttachParams::session(session)).await.expect("attached");
    let whole = client.patch_text(session, permission, 1024).await.expect("a patch");
    let digest = Digest::of(TEXT.as_bytes());
    let expected = acp::client::PatchText { digest, text: TEXT.to_owned(), complete: true };
    assert_eq!(whole, expected);
    let part = client.patch_text(session, permission, 10).await.expect("a patch");
    let expected = acp::client::PatchText { digest, text: TEXT[..30].to_owned(), complete: false };
    assert_eq!(part, expected);
}

#[tokio::test]
async fn another_patch_than_the_plan_names_is_not_passed_on() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission) = asked(&mesh, true).await;
    mesh.agent.state().patch.0 = "+two\n".to_owned();
    let answer = raw.call(2, "patch/read", read(session, permission)).await;
    assert_eq!(code(&answer), (-32603, "ACP_INTERNAL_ERROR"));
    assert!(!answer.to_string().contains("two"), "{answer}");
}

#[tokio::test]
async fn what_agent_svc_refuses_is_said() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission) = asked(&mesh, true).await;
    mesh.agent.fail_next("GetPatch", Code::FailedPrecondition, "PATCH_UNKNOWN");
    let answer = raw.call(2, "patch/read", read(session, permission)).await;
    assert_eq!(code(&answer), (-32602, "ACP_INVALID_PARAMS"));
    assert!(
        answer["error"]["message"].as_str().is_some_and(|text| text.contains("PATCH_UNKNOWN")),
        "{answer}"
    );
    let denied = Standing::Denied("bob".to_owned(), DenySource::Operator);
    mesh.agent.settle(session, permission, denied);
    let answer = raw.call(3, "patch/read", read(session, permission)).await;
    assert_eq!(code(&answer), (-32021, "ACP_PERMISSION_RESOLVED"));
}

#[tokio::test]
async fn an_import_is_taken_back_in_a_session_of_ones_own_and_once() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
    let (run, digest) = (RunId::new(), Digest::of(b"patch"));
    let undo = json!({ "sessionId": session, "runId": run, "digest": digest });
    let mut eve = Raw::open(&mesh, "eve").await;
    eve.initialize(true).await;
    let answer = eve.call(1, "patch/undo", undo.clone()).await;
    assert_eq!(code(&answer), (-32010, "ACP_SESSION_NOT_FOUND"));
    assert_eq!(roles(&mesh.agent.state(), "Prompt").len(), 0);

    let first = json!({ "jsonrpc": "2.0", "id": 2, "method": "patch/undo", "params": undo });
    raw.text(&first.to_string()).await;
    // Its own answer comes with the end of the run.
    let again = raw.call(3, "patch/undo", undo).await;
    assert_eq!(code(&again), (-32011, "ACP_SESSION_ALREADY_RUN"));
    let prompted = |state: &State| state.sessions.get(&session)?.prompt.clone();
    let sent = mesh.agent.until(prompted).await;
    let wanted = wire::PromptRequest {
        session_id: session.to_string(),
        undo: Some(wire::Undo { run_id: run.to_string(), patch_digest: digest.to_string() }),
        ..wire::PromptRequest::default()
    };
    assert_eq!(sent, wanted);
    mesh.agent.complete(session, "");
    assert_eq!(raw.answer(2).await["result"]["status"], "completed");
}
