//! Opening, prompting, canceling and attaching, and the grants behind them.
use std::time::Duration;

use event::id::SessionId;
use event::{Data, Digest};
use proto::agent::v1 as agent;
use receipt::OnDisconnect;
use serde_json::json;
use transport::Code;

use super::mesh::{MANIFEST, Mesh};
use super::wire::{Raw, code};
use crate::{Limits, sign};

fn id(text: &str) -> SessionId {
    SessionId::parse(text).expect("an id")
}

#[tokio::test]
async fn a_session_has_a_grant_that_was_in_the_ledger_first() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let params = json!({ "workspace": "demo", "taskId": "fix-tests", "model": "large", "onDisconnect": "hold" });
    let answer = raw.call(1, "session/new", params).await;
    let session = id(answer["result"]["sessionId"].as_str().expect("an id"));

    let state = mesh.agent.state();
    let found = &state.sessions[&session];
    let grant = &found.grant;
    assert_eq!(
        (
            grant.tenant.as_str(),
            grant.subject.as_str(),
            grant.manifest_id.as_str(),
            grant.workspace.as_str()
        ),
        ("home", "ada", "fix-tests", "demo")
    );
    assert_eq!(
        (grant.manifest, &grant.models),
        (Digest::of(MANIFEST.as_bytes()), &vec!["small".into(), "large".into()])
    );
    assert_eq!((grant.on_disconnect, grant.exp - grant.iat), (OnDisconnect::Hold, 12 * 3600));
    assert_eq!(
        (found.request.model.as_str(), found.request.on_disconnect()),
        ("large", agent::OnDisconnect::Hold)
    );
    assert_eq!(found.request.manifest, MANIFEST.as_bytes());

    let entries = mesh.audit.entries();
    let [(entry, event)] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((entry.tenant.as_str(), &entry.session_id), ("home", &session.to_string()));
    assert_eq!(
        (entry.on_behalf_of.as_str(), event.actor.as_ref().and_then(|actor| actor.id.as_deref())),
        ("ada", Some("ada"))
    );
    let Data::GrantIssued(issued) = &event.data else { panic!("{event:?}") };
    assert_eq!(
        (issued.session_id, issued.grant_digest),
        (session, Digest::of(&found.signed.payload))
    );
    assert_eq!(
        (issued.renewal_of, issued.expires_at.unix_timestamp().unsigned_abs()),
        (None, grant.exp)
    );
}

#[tokio::test]
async fn without_the_ledger_there_is_no_grant_and_no_session() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    mesh.audit.go_down(true);
    let answer = raw.call(1, "session/new", json!({ "workspace": "demo" })).await;
    assert_eq!(code(&answer), (-32004, "ACP_UNAVAILABLE"));
    assert!(
        answer["error"]["message"].as_str().is_some_and(|message| message.contains("audit-svc")),
        "{answer}"
    );
    assert!(mesh.agent.state().calls.is_empty(), "agent-svc never heard of it");
    mesh.audit.go_down(false);
    raw.new_session(2).await;
}

#[tokio::test]
async fn a_prompt_is_answered_when_the_run_is_over_and_there_is_only_one() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    let session = raw.new_session(1).await;
    let prompt = json!({ "sessionId": session, "content": "fix it", "maxModelTokens": 10, "maxToolCalls": 2 });
    raw.text(
        &json!({ "jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt })
            .to_string(),
    )
    .await;
    let sent = mesh.agent.until(|state| state.sessions[&id(&session)].prompt.clone()).await;
    assert_eq!(
        (sent.content.as_str(), sent.max_model_tokens, sent.max_tool_calls),
        ("fix it", Some(10), Some(2))
    );
    assert_eq!(
        code(&raw.call(2, "session/prompt", prompt.clone()).await),
        (-32011, "ACP_SESSION_ALREADY_RUN")
    );
    mesh.agent.complete(id(&session), "done é");
    let answer = loop {
        let message = raw.json().await;
        if message["id"] == "p" {
            break message;
        }
    };
    let usage = json!({ "promptTokens": 30, "completionTokens": 7, "totalTokens": 37 });
    let expected =
        json!({ "status": "completed", "events": [], "finalText": "done é", "usage": usage });
    assert_eq!(answer["result"], expected);
    assert_eq!(
        code(&raw.call(3, "session/prompt", prompt).await),
        (-32011, "ACP_SESSION_ALREADY_RUN")
    );
}

#[tokio::test]
async fn every_other_end_of_a_run_is_a_failed_one() {
    use agent::outcome::State;
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    for (at, state) in [
        State::Failed(agent::Failed { reason: "MODEL_TIMEOUT".into(), note: String::new() }),
        State::Canceled(agent::Canceled { note: String::new() }),
        State::BudgetExceeded(agent::BudgetExceeded { metric: "tokens".into() }),
    ]
    .into_iter()
    .enumerate()
    {
        let session = raw.new_session(at as u64).await;
        let request = json!({ "jsonrpc": "2.0", "id": 50, "method": "session/prompt", "params": { "sessionId": session, "content": "x" } });
        raw.text(&request.to_string()).await;
        mesh.agent.until(|state| state.sessions[&id(&session)].run).await;
        mesh.agent.finish(id(&session), state);
        let answer = raw.answer(50).await;
        assert_eq!(
            (&answer["result"]["status"], &answer["result"]["finalText"]),
            (&json!("failed"), &json!(""))
        );
    }
}

#[tokio::test]
async fn a_prompt_that_was_not_taken_may_be_sent_again() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    let session = raw.new_session(1).await;
    let params = json!({ "sessionId": session, "content": "x" });
    mesh.agent.fail_next("Prompt", Code::Unavailable, "STOPPING");
    assert_eq!(
        code(&raw.call(2, "session/prompt", params.clone()).await),
        (-32004, "ACP_UNAVAILABLE")
    );
    raw.text(
        &json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params })
            .to_string(),
    )
    .await;
    mesh.agent.until(|state| state.sessions[&id(&session)].run).await;
    mesh.agent.complete(id(&session), "");
    assert_eq!(raw.answer(3).await["result"]["status"], "completed");
}

#[tokio::test]
async fn cancel_tells_whether_there_was_something_to_cancel() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    let session = raw.new_session(1).await;
    let params = json!({ "sessionId": session });
    assert_eq!(
        raw.call(2, "session/cancel", params.clone()).await["result"],
        json!({ "canceled": true })
    );
    raw.text(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": { "sessionId": session, "content": "x" } }).to_string()).await;
    mesh.agent.until(|state| state.sessions[&id(&session)].run).await;
    mesh.agent.complete(id(&session), "");
    raw.answer(3).await;
    assert_eq!(raw.call(4, "session/cancel", params).await["result"], json!({ "canceled": false }));
}

#[tokio::test]
async fn a_session_that_nobody_prompts_is_canceled() {
    let limits = Limits {
        keepalive: Duration::from_millis(30),
        unprompted: Duration::from_millis(60),
        ..Limits::default()
    };
    let mesh = Mesh::start_within(limits).await;
    let (client, _events) = mesh.client("ada").await;
    let params = acp::NewParams {
        workspace: acp::Text::new("demo").expect("fits"),
        task_id: None,
        model: None,
        on_disconnect: None,
    };
    client.call::<acp::NewSession>(params).await.expect("opened");
    mesh.agent
        .until(|state| state.calls.iter().any(|(method, _)| method == "Cancel").then_some(()))
        .await;
}

#[tokio::test]
async fn attaching_by_session_or_run_brings_what_is_open_and_what_was_missed() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = ada.new_session(1).await;
    ada.text(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "sessionId": session, "content": "x" } }).to_string()).await;
    let run = mesh.agent.until(|state| state.sessions[&id(&session)].run).await;
    let (permission, _) = mesh.agent.ask(id(&session));
    drop(ada);

    for params in
        [json!({ "runId": run, "afterSeq": 0 }), json!({ "sessionId": session, "afterSeq": 0 })]
    {
        let mut bob = Raw::open(&mesh, "bob").await;
        bob.initialize(true).await;
        let answer = bob.call(1, "session/attach", params).await;
        let open = &answer["result"]["open"];
        assert_eq!((&answer["result"]["throughSeq"], &open[0]["seq"]), (&json!(1), &json!(1)));
        assert_eq!(open[0]["event"]["data"]["permissionId"], permission.to_string());
        let event = bob.json().await;
        assert_eq!(
            (&event["params"]["seq"], &event["params"]["event"]),
            (&json!(1), &open[0]["event"])
        );
        let again = bob.call(2, "session/attach", json!({ "sessionId": session })).await;
        assert_eq!(code(&again), (-32600, "ACP_INVALID_REQUEST"));
    }
}

#[tokio::test]
async fn one_who_only_watches_is_not_counted_on_for_answers() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    let capabilities = json!({ "streaming": true, "permissioning": false, "sessions": true });
    let hello = json!({ "protocolVersion": "harness/acp/1", "clientName": "raw", "capabilities": capabilities });
    assert_eq!(ada.call(0, "initialize", hello).await["result"]["capabilities"]["sessions"], true);
    let session = ada.new_session(1).await;
    mesh.agent.until(|state| (state.subscribers == [false]).then_some(())).await;
    let (permission, _) = mesh.agent.ask(id(&session));
    let answer = json!({ "sessionId": session, "permissionId": permission, "decision": "allow" });
    assert_eq!(code(&ada.call(2, "permission/respond", answer).await), (-32003, "ACP_FORBIDDEN"));
}

#[tokio::test]
async fn a_grant_past_half_its_life_is_renewed_with_new_times_only() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = id(&ada.new_session(1).await);
    let old = mesh.grow_old(session);
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    bob.call(1, "session/attach", json!({ "sessionId": session })).await;

    // That only the times differ is held by the fake peer.
    let renewed = mesh.agent.state().sessions[&session].grant.clone();
    assert!(renewed.iat >= sign::now() - 5, "{renewed:?}");
    let entries = mesh.audit.entries();
    let Data::GrantIssued(issued) = &entries.last().expect("two").1.data else {
        panic!("{entries:?}")
    };
    assert_eq!((entries.len(), issued.renewal_of), (2, Some(Digest::of(&old))));
    // A fresh one is left alone.
    let mut third = Raw::open(&mesh, "bob").await;
    third.initialize(true).await;
    third.call(1, "session/attach", json!({ "sessionId": session })).await;
    assert_eq!(mesh.audit.entries().len(), 2);
}

#[tokio::test]
async fn a_grant_is_renewed_although_its_manifest_has_moved_on() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = id(&ada.new_session(1).await);
    mesh.grow_old(session);
    let path = mesh.dir.path().join("manifests/fix-tests.yaml");
    std::fs::write(path, MANIFEST.replace("Fix them", "Break them")).expect("written");
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    bob.call(1, "session/attach", json!({ "sessionId": session })).await;
    let renewed = mesh.agent.state().sessions[&session].grant.clone();
    assert_eq!(
        (renewed.manifest, mesh.audit.entries().len()),
        (Digest::of(MANIFEST.as_bytes()), 2)
    );
}

#[tokio::test]
async fn an_expired_grant_that_cannot_be_renewed_stops_acting_and_says_so() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = id(&ada.new_session(1).await);
    mesh.grow(session, 13);
    mesh.audit.go_down(true);
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    bob.call(1, "session/attach", json!({ "sessionId": session })).await;
    let prompt = json!({ "sessionId": session, "content": "x" });
    assert_eq!(
        code(&bob.call(2, "session/prompt", prompt.clone()).await),
        (-32004, "ACP_UNAVAILABLE")
    );
    assert!(mesh.agent.state().sessions[&session].prompt.is_none());
    mesh.audit.go_down(false);
    bob.text(
        &json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": prompt })
            .to_string(),
    )
    .await;
    mesh.agent.until(|state| state.sessions[&session].run).await;
}

#[tokio::test]
async fn a_run_that_can_be_followed_no_longer_does_not_leave_its_prompt_waiting() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let session = id(&raw.new_session(1).await);
    raw.text(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "sessionId": session, "content": "x" } }).to_string()).await;
    mesh.agent.until(|state| state.sessions[&session].run).await;
    mesh.agent.fail_next("Subscribe", Code::NotFound, "SESSION_NOT_FOUND");
    mesh.agent.cut();
    assert_eq!(code(&raw.answer(2).await), (-32004, "ACP_UNAVAILABLE"));
}

#[tokio::test]
async fn a_viewer_renews_nothing_and_a_dead_ledger_does_not_stop_watching() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    let session = id(&ada.new_session(1).await);
    mesh.grow_old(session);
    mesh.audit.go_down(true);
    for name in ["vera", "bob"] {
        let mut raw = Raw::open(&mesh, name).await;
        raw.initialize(true).await;
        let answer = raw.call(1, "session/attach", json!({ "sessionId": session })).await;
        assert_eq!(answer["result"]["throughSeq"], 0, "{name}");
    }
    assert_eq!(mesh.audit.entries().len(), 1);
}

#[tokio::test]
async fn a_subscription_that_is_lost_is_taken_up_where_it_was() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let session = id(&raw.new_session(1).await);
    assert_eq!(raw.json().await["params"]["seq"], 0);
    raw.text(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "sessionId": session, "content": "x" } }).to_string()).await;
    mesh.agent.until(|state| state.sessions[&session].run).await;
    mesh.agent.fail_next("Subscribe", Code::Unavailable, "SESSION_RECOVERING");
    mesh.agent.cut();
    mesh.agent.until(|state| state.subscribers.is_empty().then_some(())).await;
    let created = event::SessionCreated { session_id: session, workspace: None };
    mesh.agent.push(session, created);
    mesh.agent.complete(session, "");
    assert_eq!(raw.json().await["params"]["seq"], 1);
    assert_eq!(raw.json().await["result"]["status"], "completed");
}

#[tokio::test]
async fn a_hung_up_client_is_unsubscribed() {
    let mesh = Mesh::start().await;
    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(false).await;
    raw.new_session(1).await;
    mesh.agent.until(|state| (state.subscribers == [true]).then_some(())).await;
    drop(raw);
    mesh.agent.until(|state| state.subscribers.is_empty().then_some(())).await;
}
