//! Allows for the run: what they cover, that they can be taken back, and that nothing widens them.

use event::id::{ReceiptId, SessionId};
use event::{Data, Effect, PolicyDecision};
use proto::agent::v1 as wire;
use receipt::{Receipt, Role, Scope};
use serde_json::{Value, json};

use super::gateway::{Ask, Choice, Claimed, Person, Reader, kinds};
use super::mesh::{Mesh, eventually};
use super::model::Turn;

fn same() -> (&'static str, Value) {
    ("process.exec", json!({ "argv": ["cargo", "test"] }))
}

/// A run whose first call is allowed for the run, and whose second waits while the model thinks.
struct Granted {
    alice: Person,
    session: SessionId,
    reader: Reader,
    first: Ask,
    receipt: Receipt,
}

/// The model goes on with `next` once the first call has ended.
async fn granted(mesh: &Mesh, next: Vec<(&'static str, Value)>) -> Granted {
    mesh.model.script([Turn::Call(vec![same()]), Turn::Call(next), Turn::Say("done")]);
    mesh.sandbox.gate.send_replace(false);
    let alice = Person::operator(mesh);
    let (session, mut reader) = alice.begin_holding().await;
    let first = reader.ask().await;
    let receipt = alice.receipt(&first, Scope::Run);
    assert_eq!(alice.claim(&first, Choice::Allow(Scope::Run)).await, Ok(Claimed::Won));
    alice.resolve(&first, &receipt).await.unwrap();
    mesh.sandbox.until_running().await;
    Granted { alice, session, reader, first, receipt }
}

fn decisions(events: &[Data]) -> Vec<PolicyDecision> {
    let decision = |data: &Data| match data {
        Data::PolicyDecision(decision) => Some(decision.clone()),
        _ => None,
    };
    events.iter().filter_map(decision).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_standing_allow_covers_says_which_and_asks_nobody() {
    let mesh = Mesh::start().await;
    let Granted { alice, session, mut reader, first, receipt } = granted(&mesh, vec![same()]).await;
    let listed = alice.grants(session).await;
    let [grant] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(
        *grant,
        wire::RunGrant {
            receipt_id: receipt.id.to_string(),
            run_id: first.plan.run.to_string(),
            action: "process.exec".to_owned(),
            subject: first.plan.subject.as_ref().map(ToString::to_string),
            by: "alice".to_owned(),
            at_ms: grant.at_ms,
            expires_at_ms: i64::try_from(receipt.exp).unwrap() * 1000,
            uses: 0,
        }
    );
    mesh.sandbox.gate.send_replace(true);
    let (rest, _) = reader.rest().await;
    assert!(!kinds(&rest).contains(&"permission.requested"), "{rest:?}");
    let part = &first.plan.parts[0];
    let told = decisions(&rest);
    assert_eq!(
        told,
        [PolicyDecision {
            call_id: told[0].call_id,
            plan_digest: told[0].plan_digest,
            action: part.action.clone(),
            subject: part.subject.as_ref().map(ToString::to_string),
            effect: Effect::Ask,
            reason: None,
            rule_id: Some(part.rule.clone()),
            layer: Some(part.layer),
            justification: None,
            matching: Vec::new(),
            manifest_digest: Some(first.plan.manifest),
            receipt_id: Some(receipt.id),
        }]
    );
    assert_eq!(mesh.sandbox.runs(), [1, 1]);
    assert_eq!(alice.grants(session).await, [], "it dies with the run");
    assert_eq!(alice.revoke(session, receipt.id).await, Ok((false, false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_is_asked_about_again_and_its_executor_knew_before_the_answer() {
    let mesh = Mesh::start().await;
    let Granted { alice, session, mut reader, first, receipt } = granted(&mesh, vec![same()]).await;
    let viewer = Person::named(&mesh, "victor", Role::Viewer);
    assert_eq!(viewer.grants(session).await.len(), 1, "who may watch may see it");
    let refused = viewer.revoke(session, receipt.id).await.unwrap_err();
    assert_eq!(refused.reason, "ROLE_NOT_ALLOWED");
    assert_eq!(alice.revoke(session, ReceiptId::new()).await, Ok((false, false)));
    let elsewhere = alice.create().await;
    assert_eq!(alice.revoke(elsewhere, receipt.id).await, Ok((false, false)));
    assert_eq!(alice.revoke(session, receipt.id).await, Ok((true, false)));
    assert_eq!(mesh.sandbox.with(|state| state.revoked.clone()), [receipt.id.to_string()]);
    assert_eq!(alice.grants(session).await, []);
    assert_eq!(alice.revoke(session, receipt.id).await, Ok((false, false)), "it stood no more");
    mesh.sandbox.gate.send_replace(true);
    let second = reader.ask().await;
    assert_eq!(second.plan.action_digest(), first.plan.action_digest());
    assert_eq!(alice.claim(&second, Choice::Deny).await, Ok(Claimed::Won));
    reader.rest().await;
    assert_eq!(mesh.sandbox.runs(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_the_executor_cannot_be_told_is_kept_and_told_later_also_after_a_restart()
{
    let mut mesh = Mesh::start().await;
    let Granted { alice, session, receipt, reader, .. } = granted(&mesh, vec![same()]).await;
    drop(reader);
    mesh.sandbox.with(|state| state.deaf = true);
    assert_eq!(alice.revoke(session, receipt.id).await, Ok((true, true)));
    assert_eq!(alice.grants(session).await, [], "here it stands no more");
    mesh.restart().await;
    let alice = Person::operator(&mesh);
    assert_eq!(mesh.sandbox.with(|state| state.revoked.clone()), Vec::<String>::new());
    mesh.sandbox.with(|state| state.deaf = false);
    eventually("the executor knows", || {
        mesh.sandbox.with(|state| state.revoked.contains(&receipt.id.to_string()))
    })
    .await;
    mesh.sandbox.gate.send_replace(true);
    let mut reader = alice.attach(session).await;
    reader.ask().await;
    reader.ask().await;
    assert_eq!(mesh.sandbox.runs(), [1], "the second call waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_allow_that_the_executor_does_not_take_leads_to_a_new_ask_not_to_a_failure() {
    for reason in ["RECEIPT_REVOKED", "RECEIPT_EXPIRED", "APPROVAL_KEY_UNKNOWN", "PLAN_STALE"] {
        let mesh = Mesh::start().await;
        let Granted { alice, session, mut reader, receipt, .. } =
            granted(&mesh, vec![same(), same()]).await;
        mesh.sandbox.with(|state| state.unadmitted = Some(reason));
        mesh.sandbox.gate.send_replace(true);
        let again = reader.ask().await;
        assert_eq!(alice.grants(session).await, [], "{reason}");
        let new = alice.receipt(&again, Scope::Run);
        assert_eq!(alice.claim(&again, Choice::Allow(Scope::Run)).await, Ok(Claimed::Won));
        alice.resolve(&again, &new).await.unwrap();
        let (rest, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{reason}");
        let failed = rest.iter().any(|data| matches!(data, Data::ToolResult(it) if !it.ok));
        assert!(!failed, "{reason}: {rest:?}");
        let standing: Vec<_> = decisions(&rest).into_iter().map(|it| it.receipt_id).collect();
        assert_eq!(standing, [Some(new.id)], "{reason}: the third call rests on the new one");
        assert_ne!(new.id, receipt.id);
        assert_eq!(mesh.sandbox.runs(), [1, 1, 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_allow_covers_neither_another_run_nor_what_a_rule_denies() {
    let mesh = Mesh::start().await;
    let Granted { alice, mut reader, .. } =
        granted(&mesh, vec![("forbidden", json!({ "argv": ["cargo", "test"] }))]).await;
    mesh.sandbox.gate.send_replace(true);
    let decision = |event: event::Event| match event.data {
        Data::PolicyDecision(decision) => decision,
        other => panic!("{other:?}"),
    };
    let denied = decision(reader.until("policy.decision").await);
    assert_eq!((denied.effect, denied.receipt_id), (Effect::Deny, None));
    reader.rest().await;
    // The same action in another run of the same person.
    mesh.model.script([Turn::Call(vec![same()]), Turn::Say("done")]);
    let (_, mut reader) = alice.begin_holding().await;
    let ask = reader.ask().await;
    assert_eq!(alice.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_allow_outlives_a_restart() {
    let mut mesh = Mesh::start().await;
    let Granted { session, receipt, reader, .. } = granted(&mesh, vec![same()]).await;
    drop(reader);
    mesh.restart().await;
    mesh.sandbox.gate.send_replace(true);
    let (events, outcome) = Person::operator(&mesh).attach(session).await.rest().await;
    assert!(matches!(outcome.state, Some(wire::outcome::State::Completed(_))), "{outcome:?}");
    let standing: Vec<_> = decisions(&events).into_iter().map(|it| it.receipt_id).collect();
    assert_eq!(standing, [None, Some(receipt.id)]);
    assert_eq!(mesh.sandbox.runs(), [1, 1]);
}
