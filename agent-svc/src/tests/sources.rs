//! Where a no comes from stays apart: a person, a rule, an executor that cannot plan, a run that cannot go on. And waiting
//! for a person is no no at all.

use std::time::Duration;

use event::{Data, Decision, Digest, PermissionResolved, Source, ToolResult};
use proto::agent::v1 as wire;
use receipt::{Grant, OnDisconnect, Plan, Scope};
use serde_json::json;
use transport::Code;

use super::gateway::{Person, kinds};
use super::mesh::{MANIFEST, Mesh};
use super::model::Turn;

fn resolved(events: &[Data]) -> Vec<PermissionResolved> {
    let resolved = |data: &Data| match data {
        Data::PermissionResolved(resolved) => Some(resolved.clone()),
        _ => None,
    };
    events.iter().filter_map(resolved).collect()
}

/// Code and words of the only result.
fn failure(events: &[Data]) -> (String, String) {
    let failed = events.iter().find_map(|data| match data {
        Data::ToolResult(ToolResult { error: Some(error), .. }) => Some(error.clone()),
        _ => None,
    });
    let failed = failed.expect("a failed call");
    (failed.code, failed.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_go_on_ends_its_ask_and_nobody_is_said_to_have_refused() {
    let mut mesh = Mesh::start().await;
    mesh.model.one_call();
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin_holding().await;
    reader.ask().await;
    mesh.kill().await;
    let refused = (Code::FailedPrecondition, "CEILING_UNUSABLE");
    mesh.sandbox.with(|state| state.refuses = Some(refused));
    mesh.boot(None).await;
    let (events, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    let [told] = &resolved(&events)[..] else { panic!("{events:?}") };
    assert_eq!((told.decision, told.source, &told.by), (Decision::Deny, Source::System, &None));
    let Some(wire::outcome::State::Failed(failed)) = outcome.state else { panic!("{outcome:?}") };
    assert_eq!(failed.reason, "CEILING_UNUSABLE");
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_no_of_a_rule_asks_nobody_and_reads_like_no_persons() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Call(vec![("forbidden", json!({}))]), Turn::Say("done")]);
    mesh.sandbox.with(|state| {
        state.twist = |plan| plan.parts[0].justification = Some("not this week".to_owned());
    });
    let (_, mut reader) = Person::operator(&mesh).begin().await;
    let (events, _) = reader.rest().await;
    assert!(!kinds(&events).iter().any(|kind| kind.starts_with("permission.")), "{events:?}");
    let why = "a rule denies it: the manifest's permissions.forbidden (not this week)";
    let expected = ("PERMISSION_DENIED".to_owned(), why.to_owned());
    assert_eq!(failure(&events), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_executor_cannot_plan_is_neither_asked_nor_denied_and_says_why() {
    let mesh = Mesh::start().await;
    let shape = |state: &mut super::sandbox::State| {
        let shape = state.shapes.get_mut("process.exec").unwrap();
        shape.refusal = Some("CEILING_UNUSABLE");
    };
    mesh.sandbox.with(shape);
    mesh.model.one_call();
    let (_, mut reader) = Person::operator(&mesh).begin().await;
    let (events, _) = reader.rest().await;
    let told = kinds(&events);
    let about_rules = |kind: &&str| kind.starts_with("permission.") || kind.starts_with("policy.");
    assert!(!told.iter().any(about_rules), "{events:?}");
    assert_eq!(failure(&events), ("CEILING_UNUSABLE".to_owned(), "played".to_owned()));
}

/// One minute of work.
const HURRIED: &str = "budget: {max_wall_time: 60s}\n";

#[tokio::test(flavor = "multi_thread")]
async fn half_an_hour_of_waiting_for_a_person_counts_against_no_other_limit() {
    for leaves in [false, true] {
        let mesh = Mesh::start().await;
        let manifest = format!("{MANIFEST}{HURRIED}");
        let reviewed = |plan: &mut Plan| {
            plan.manifest = Digest::of(format!("{MANIFEST}{HURRIED}").as_bytes());
        };
        mesh.sandbox.with(|state| state.twist = reviewed);
        mesh.model.one_call();
        let alice = Person::operator(&mesh);
        let grant = Grant {
            on_disconnect: OnDisconnect::Hold,
            manifest: Digest::of(manifest.as_bytes()),
            ..alice.grant(event::id::SessionId::new())
        };
        let session = grant.session;
        alice.create_with(&grant, &manifest).await.unwrap();
        alice.prompt(session).await.unwrap();
        let mut reader = alice.attach(session).await;
        let ask = reader.ask().await;
        if leaves {
            drop(reader);
            reader = alice.subscribe(session, Some(0), false).await.unwrap();
        }
        mesh.clock.advance(Duration::from_secs(30 * 60));
        let state = alice.get(session).await.unwrap().state;
        assert!(matches!(state, Some(wire::session::State::AwaitingPerson(_))), "{state:?}");
        alice.allow(&ask, Scope::Once).await;
        let (events, outcome) = reader.rest().await;
        let [told] = &resolved(&events)[..] else { panic!("{events:?}") };
        assert_eq!((told.decision, told.source), (Decision::Allow, Source::Operator));
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
        assert_eq!(mesh.sandbox.runs(), [1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_minutes_of_work_end_the_run() {
    let mesh = Mesh::start().await;
    let manifest = format!("{MANIFEST}{HURRIED}");
    let reviewed = |plan: &mut Plan| {
        plan.manifest = Digest::of(format!("{MANIFEST}{HURRIED}").as_bytes());
    };
    mesh.sandbox.with(|state| state.twist = reviewed);
    mesh.sandbox.gate.send_replace(false);
    mesh.model.script([Turn::Call(vec![("check", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let session = event::id::SessionId::new();
    let grant = Grant { manifest: Digest::of(manifest.as_bytes()), ..alice.grant(session) };
    alice.create_with(&grant, &manifest).await.unwrap();
    alice.prompt(session).await.unwrap();
    let mut reader = alice.attach(session).await;
    reader.until("sandbox.started").await;
    mesh.clock.advance(Duration::from_secs(61));
    let (_, outcome) = reader.rest().await;
    let exceeded = wire::BudgetExceeded { metric: "wall_time".to_owned() };
    assert_eq!(outcome.state, Some(wire::outcome::State::BudgetExceeded(exceeded)));
}
