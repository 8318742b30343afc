//! Runs that a run begins: they ask where their parent asks, count where it counts, end when it ends, and survive what it
//! survives.

use event::{AgentStatus, AgentStopped, Data, PermissionRequested, ToolResult};
use proto::agent::v1 as wire;
use receipt::Scope;
use serde_json::{Value, json};

use super::attended::{Answered, after_restart, until_killed};
use super::gateway::{Ask, Person, kinds};
use super::mesh::Mesh;
use super::model::{Turn, call};

const TASK: &str = "look after the tests";

fn delegated() -> Turn {
    call("delegate", json!({ "profile": "implementer", "task": TASK }))
}

fn exec() -> Turn {
    call("process.exec", json!({ "argv": ["cargo", "test"] }))
}

fn script(mesh: &Mesh, child: impl Into<Vec<Turn>>) {
    mesh.model.script([delegated(), Turn::Say("done")]);
    mesh.model.child(TASK, child);
}

/// The only result of a call of `delegate`.
fn answer(events: &[Data]) -> ToolResult {
    let results = events.iter().filter_map(|data| match data {
        Data::ToolResult(result) if result.tool == "delegate" => Some(result.clone()),
        _ => None,
    });
    let [one] = results.collect::<Vec<_>>().try_into().expect("one answer");
    one
}

fn stops(events: &[Data]) -> Vec<AgentStopped> {
    let stops = events.iter().filter_map(|data| match data {
        Data::AgentStopped(stopped) => Some(stopped.clone()),
        _ => None,
    });
    stops.collect()
}

fn asked(data: Data) -> PermissionRequested {
    match data {
        Data::PermissionRequested(requested) => requested,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_asks_in_the_stream_of_its_parent_and_its_last_word_is_the_answer_to_the_call() {
    let mesh = Mesh::start().await;
    script(&mesh, [exec(), Turn::Say("all tests pass")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let mut reader = alice.attach(session).await;
    let parent = alice.prompt(session).await.unwrap();
    let requested = asked(reader.until("permission.requested").await.data);
    let ask = Ask::read(&requested);
    let child = ask.plan.run;
    assert_ne!(child.to_string(), parent);
    assert_eq!(
        (requested.child_run_id, requested.profile.as_deref()),
        (Some(child), Some("implementer"))
    );
    let state = alice.get(session).await.unwrap().state;
    assert!(matches!(state, Some(wire::session::State::AwaitingPerson(_))), "{state:?}");
    alice.allow(&ask, Scope::Once).await;
    let (events, outcome) = reader.rest().await;
    let ToolResult { ok, output, .. } = answer(&events);
    assert_eq!(
        (ok, output),
        (
            true,
            Some(json!({
                "childRunId": child.to_string(),
                "profile": "implementer",
                "steps": 2,
                "toolCalls": 1,
                "untrustedText": "all tests pass",
            }))
        )
    );
    let ended: Vec<_> = stops(&events)
        .into_iter()
        .map(|stop| (stop.agent_id, stop.parent_run_id.map(|run| run.to_string()), stop.status))
        .collect();
    assert_eq!(
        ended,
        [
            (child.to_string(), Some(parent.clone()), AgentStatus::Completed),
            (parent.clone(), None, AgentStatus::Completed),
        ]
    );
    let usage = outcome.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (40, 20), "both runs together");
    assert_eq!((outcome.run_id, outcome.steps, outcome.tool_calls), (parent, 4, 2));
    assert_eq!(mesh.sandbox.with(|state| (state.opened, state.closed)), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_shown_the_tools_of_its_profile_and_may_call_no_remote_one() {
    let mesh = Mesh::start().await;
    script(&mesh, [Turn::Say("seen")]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    reader.rest().await;
    let shown: Vec<Vec<String>> = {
        let state = mesh.model.state.lock().unwrap();
        let names = |tools: &[proto::common::v1::Tool]| {
            tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
        };
        state.requests.iter().map(|request| names(&request.tools)).collect()
    };
    assert_eq!(shown[1], ["list_files", "process.exec"]);
    assert_eq!(shown[0], shown[2]);
    assert!(shown[0].contains(&"delegate".to_owned()) && shown[0].contains(&"check".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_to_the_parent_for_its_run_is_asked_again_for_the_child() {
    let mesh = Mesh::start().await;
    mesh.model.script([exec(), exec(), delegated(), Turn::Say("done")]);
    mesh.model.child(TASK, [exec(), exec(), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let first = reader.ask().await;
    alice.allow(&first, Scope::Run).await;
    let second = reader.ask().await;
    assert_ne!(second.plan.run, first.plan.run);
    assert_eq!(
        second.plan.action_digest().unwrap(),
        first.plan.action_digest().unwrap(),
        "the same action"
    );
    alice.allow(&second, Scope::Run).await;
    let (events, outcome) = reader.rest().await;
    assert!(!kinds(&events).contains(&"permission.requested"), "each run was asked once");
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
    assert_eq!(alice.grants(session).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_means_a_no_to_the_child_and_not_the_end_of_its_parent() {
    let mesh = Mesh::start().await;
    script(&mesh, [exec(), Turn::Say("I may not")]);
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    let watching = alice.subscribe(session, None, false).await;
    let (events, outcome) = watching.unwrap().rest().await;
    let denied = events.iter().any(|data| {
        matches!(data, Data::PermissionResolved(resolved) if resolved.source == event::Source::MissingResolver)
    });
    assert!(denied, "{:?}", kinds(&events));
    assert_eq!(answer(&events).output.unwrap()["untrustedText"], "I may not");
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_has_a_budget_of_its_own_that_comes_out_of_its_parents() {
    let mesh = Mesh::start().await;
    script(&mesh, vec![call("list_files", json!({})); 9]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let (events, outcome) = reader.rest().await;
    let ToolResult { ok, error, .. } = answer(&events);
    assert_eq!((ok, error.unwrap().code.as_str()), (false, "CHILD_OVER_BUDGET"));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    // Of eight steps one delegated, and one is kept for the answer.
    assert_eq!((outcome.steps, outcome.tool_calls), (8, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_the_child_first_and_then_its_parent() {
    let mesh = Mesh::start().await;
    mesh.sandbox.gate.send_replace(true);
    script(&mesh, [exec()]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    reader.ask().await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (events, outcome) = reader.rest().await;
    let told: Vec<_> = kinds(&events);
    assert_eq!(
        told,
        ["permission.resolved", "tool.result", "agent.stopped", "tool.result", "agent.stopped"]
    );
    let statuses: Vec<_> = stops(&events).into_iter().map(|stop| stop.status).collect();
    assert_eq!(statuses, [AgentStatus::Canceled, AgentStatus::Canceled]);
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    assert_eq!(mesh.sandbox.with(|state| (state.opened, state.closed)), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_what_a_child_runs_and_waits_for_its_end() {
    let mesh = Mesh::start().await;
    script(&mesh, [exec()]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    mesh.sandbox.gate.send_replace(false);
    alice.allow(&ask, Scope::Once).await;
    reader.until("sandbox.started").await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    let (events, outcome) = reader.rest().await;
    let told: Vec<_> = kinds(&events).into_iter().filter(|kind| *kind != "call.output").collect();
    assert_eq!(
        told,
        ["sandbox.stopped", "tool.result", "agent.stopped", "tool.result", "agent.stopped"]
    );
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_everyone_has_left_child_and_parent_are_ended() {
    let mesh = Mesh::start().await;
    script(&mesh, [exec()]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let mut watching = alice.subscribe(session, None, false).await.unwrap();
    reader.ask().await;
    drop(reader);
    super::mesh::within("absence is noticed", async {
        loop {
            mesh.clock.advance(std::time::Duration::from_secs(1));
            let state = alice.get(session).await.unwrap().state;
            if matches!(state, Some(wire::session::State::Done(_))) {
                return;
            }
        }
    })
    .await;
    let (events, outcome) = watching.rest().await;
    let statuses: Vec<_> = stops(&events).into_iter().map(|stop| stop.status).collect();
    assert_eq!(statuses, [AgentStatus::Canceled, AgentStatus::Canceled]);
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
}

fn check(mesh: &Mesh, session: &str, point: &str) {
    assert_eq!(mesh.sandbox.runs(), [1, 1], "{point}: each effect happened once");
    let bodies = mesh.audit.bodies(session);
    let events: Vec<Data> = bodies.iter().map(|body| event::open(body).unwrap().data).collect();
    let count = |kind: &str| kinds(&events).iter().filter(|known| **known == kind).count();
    for (kind, expected) in [
        ("agent.started", 2),
        ("tool.call", 2),
        ("tool.result", 2),
        ("permission.requested", 1),
        ("permission.resolved", 1),
        ("sandbox.started", 1),
        ("agent.stopped", 2),
    ] {
        assert_eq!(count(kind), expected, "{point}: {kind} in {:?}", kinds(&events));
    }
    assert_eq!(answer(&events).output.unwrap()["untrustedText"], "all tests pass", "{point}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_any_record_parent_and_child_complete_and_nothing_happens_twice() {
    for record in 1..=60 {
        let mut mesh = Mesh::start_dying(Some(record)).await;
        script(&mesh, [exec(), Turn::Say("all tests pass")]);
        let alice = Person::operator(&mesh);
        let session = alice.create_holding().await;
        let mut answered = Answered::new();
        let begin = Box::pin(alice.prompt(session));
        let outcome = until_killed(&mesh, &alice, session, begin, &mut answered).await;
        if outcome.is_some() {
            assert!(record > 20, "two runs are longer than {record} records");
            return check(&mesh, &session.to_string(), "not killed");
        }
        mesh.restart().await;
        let point = format!("killed after record {record}");
        let outcome = after_restart(&mesh, session, &mut answered, &point).await;
        assert_eq!((outcome.steps, outcome.tool_calls, answered.len()), (4, 2, 1), "{point}");
        check(&mesh, &session.to_string(), &point);
    }
    panic!("two runs have fewer records");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_cannot_be_read_fails_the_call_and_begins_no_child() {
    let mesh = Mesh::start().await;
    for arguments in [json!({}), json!({ "profile": "root", "task": "x" }), Value::from("text")] {
        mesh.model.script([call("delegate", arguments), Turn::Say("done")]);
        let alice = Person::operator(&mesh);
        let (_, mut reader) = alice.begin().await;
        let (events, outcome) = reader.rest().await;
        assert!(!answer(&events).ok);
        assert_eq!(stops(&events).len(), 1, "no child");
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))));
    }
}
