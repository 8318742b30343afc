//! Budgets that bind before a request and settle after it.
use event::Digest;
use event::id::SessionId;
use futures::future::join_all;
use proto::common::v1 as common;
use proto::model::v1 as model;
use receipt::Grant;

use super::rig::{MANIFEST, Rig, owner, turn};

/// A session whose runs may cost so many tokens.
async fn session(rig: &Rig, tokens: u64) -> common::Owner {
    let session = SessionId::new();
    let by = owner(session, "a", 1);
    let manifest = MANIFEST.replace("100000", &tokens.to_string());
    let grant = Grant { manifest: Digest::of(manifest.as_bytes()), ..rig.grant(session) };
    rig.fence_with(by.clone(), &grant, &manifest).await.unwrap();
    by
}

/// Another call of the same run.
fn same_run(
    of: &model::CompleteRequest,
    request: model::CompleteRequest,
) -> model::CompleteRequest {
    let mut request = request;
    request.call.as_mut().unwrap().run_id = of.call.as_ref().unwrap().run_id.clone();
    request
}

#[tokio::test]
async fn a_session_stops_at_its_budget_whatever_run_it_names() {
    let rig = Rig::new().await;
    let by = session(&rig, 100).await;
    let first = turn(&by, "scripted", 0);
    rig.answer(first.clone()).await;
    rig.answer(same_run(&first, turn(&by, "scripted", 0))).await;
    let over = rig.failure(same_run(&first, turn(&by, "scripted", 0))).await;
    let expected =
        model::ModelError { kind: "BUDGET_EXCEEDED".into(), ..model::ModelError::default() };
    assert_eq!(over, expected, "37 of 100 are used twice");
    assert_eq!(rig.failure(turn(&by, "scripted", 0)).await, expected, "a run of its own making");
    let refused = (by.session_id, "BUDGET_EXCEEDED".to_owned());
    assert_eq!(rig.audit.refusals(2).await, [refused.clone(), refused]);
}

#[tokio::test]
async fn calls_at_the_same_time_never_hold_more_than_the_budget() {
    let rig = Rig::new().await;
    let by = session(&rig, 37 * 3 + 20).await;
    let first = turn(&by, "scripted", 0);
    let requests = (0..8).map(|_| rig.complete(same_run(&first, turn(&by, "scripted", 0))));
    let answers = join_all(requests).await;
    let (answered, refused): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .map(Result::unwrap)
        .partition(|message| matches!(message, model::complete_response::Message::Answer(_)));
    assert_eq!((answered.len(), refused.len()), (3, 5));
}

#[tokio::test]
async fn what_is_left_bounds_what_the_provider_is_asked_for() {
    let rig = Rig::new().await;
    let by = session(&rig, 200).await;
    rig.upstream.answers(
        r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#,
    );
    let request = turn(&by, "real", 0);
    rig.answer(request.clone()).await;
    let asked = rig.upstream.seen()[0].json()["max_tokens"].as_u64().unwrap();
    assert!((1..200).contains(&asked), "{asked} and the conversation fit into 200");
    // Settled at what it cost, so there is room again.
    rig.answer(same_run(&request, turn(&by, "real", 0))).await;
    let again = rig.upstream.seen()[1].json()["max_tokens"].as_u64().unwrap();
    assert_eq!(again, asked - 10);
}

#[tokio::test]
async fn a_conversation_that_alone_is_over_the_budget_is_never_sent() {
    let rig = Rig::new().await;
    let by = session(&rig, 50).await;
    assert_eq!(rig.failure(turn(&by, "real", 0)).await.kind, "BUDGET_EXCEEDED");
    assert_eq!(rig.upstream.seen(), []);
}
