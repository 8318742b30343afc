//! Whole runs: which events they leave, in which order, and how they end.

use event::{Data, FinishReason, Usage};
use proto::agent::v1 as wire;
use proto::model::v1 as model;
use receipt::Scope;
use serde_json::json;

use super::gateway::{Person, kinds};
use super::mesh::Mesh;
use super::model::Turn;

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_needs_no_tool_leaves_five_events() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Say("all is well")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let run = alice.prompt(session).await.unwrap();
    let (events, outcome) = alice.attach(session).await.rest().await;
    let told: Vec<_> = kinds(&events).into_iter().filter(|kind| *kind != "message.delta").collect();
    assert_eq!(
        told,
        ["session.created", "agent.started", "model.request", "model.response", "agent.stopped"]
    );
    let response = events.iter().find_map(|data| match data {
        Data::ModelResponse(response) => Some(response.clone()),
        _ => None,
    });
    let response = response.unwrap();
    assert_eq!(
        (response.finish_reason, response.usage, response.text.as_deref()),
        (
            FinishReason::Stop,
            Usage { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
            Some("all is well")
        )
    );
    let completed = wire::Completed { final_text: "all is well".to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::Completed(completed)));
    assert_eq!((outcome.run_id, outcome.steps, outcome.tool_calls), (run, 1, 0));
    assert_eq!(mesh.sandbox.with(|state| (state.opened, state.closed)), (1, 1));
    assert_eq!(mesh.waiting().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_is_planned_asked_answered_run_and_told_in_order() {
    let mesh = Mesh::start().await;
    mesh.model.script([
        Turn::Call(vec![("process.exec", json!({ "argv": ["cargo", "test"] }))]),
        Turn::Say("fixed"),
    ]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new(), "nothing runs before the answer");
    let through = alice.allow(&ask, Scope::Once).await;
    let resolved = reader.until("permission.resolved").await;
    assert_eq!(reader.next - 1, through);
    assert_eq!(resolved.actor.unwrap().id.as_deref(), Some("alice"));
    let (rest, outcome) = reader.rest().await;
    assert_eq!(
        kinds(&rest),
        [
            "sandbox.started",
            "call.output",
            "sandbox.stopped",
            "tool.result",
            "model.request",
            "message.delta",
            "model.response",
            "agent.stopped"
        ]
    );
    let receipts: Vec<_> = mesh.sandbox.with(|state| {
        state.executions.values().map(|execution| !execution.receipts.is_empty()).collect()
    });
    assert_eq!((mesh.sandbox.runs(), receipts), (vec![1], vec![true]));
    assert_eq!((outcome.steps, outcome.tool_calls), (2, 1));
    let all = alice.attach(session).await.rest().await.0;
    assert_eq!(
        kinds(&all)[..7],
        [
            "session.created",
            "agent.started",
            "model.request",
            "model.response",
            "tool.call",
            "policy.decision",
            "permission.requested"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_copy_lacks_is_told_to_people_and_to_the_model_before_its_first_turn() {
    let mesh = Mesh::start().await;
    mesh.sandbox.with(|state| {
        let entry = |path: &[u8], reason: &str| proto::sandbox::v1::Withheld {
            path: path.to_vec(),
            reason: reason.to_owned(),
        };
        state.withheld = vec![entry(b".env", "secret_name"), entry(b"\xff", "linked")];
    });
    mesh.model.script([Turn::Say("all is well")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let told = reader.until("task.updated").await.data;
    let list =
        r#"[{"path":".env","reason":"secret_name"},{"path":{"b64":"/w=="},"reason":"linked"}]"#;
    let expected = event::TaskUpdated {
        task_id: "fix-it".to_owned(),
        phase: event::TaskPhase::Running,
        note: Some(format!("2 entries are not in the private copy: {list}")),
    };
    assert_eq!(told, Data::TaskUpdated(expected));
    match reader.next().await {
        Ok(event) => match event.data {
            Data::ModelRequest(request) => assert_eq!(request.message_count, 3),
            other => panic!("{other:?}"),
        },
        Err(ended) => panic!("{ended:?}"),
    }
    reader.rest().await;
    let Some(model::message::Message::User(model::Text { text })) = &mesh.model.shown()[2].message
    else {
        panic!("{:?}", mesh.model.shown())
    };
    assert!(text.ends_with(list), "{text}");
}
