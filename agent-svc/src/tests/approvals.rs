//! Asks that take more than one person: who counts, who does not, and that a restart forgets nobody.

use std::collections::BTreeSet;
use std::time::Duration;

use event::{Data, Decision, PermissionCounted, PermissionResolved, Source};
use receipt::{Plan, Receipt, Requirement, Role, Scope};
use transport::Code;

use super::gateway::{Ask, Choice, Claimed, Person, Reader, kinds};
use super::mesh::Mesh;

const YES: Choice = Choice::Allow(Scope::Once);

fn two(plan: &mut Plan) {
    plan.approval = vec![Requirement { count: 2, ..Requirement::default() }];
}

fn another_admin(plan: &mut Plan) {
    let roles = BTreeSet::from(["admin".to_owned()]);
    plan.approval = vec![Requirement { roles, not_requester: true, ..Requirement::default() }];
}

fn own_signature(plan: &mut Plan) {
    plan.approval = vec![Requirement { signature: true, ..Requirement::default() }];
}

async fn asked(mesh: &Mesh, twist: fn(&mut Plan)) -> (Person, Person, Reader, Ask) {
    mesh.sandbox.with(|state| state.twist = twist);
    mesh.model.one_call();
    let (alice, bob) = (Person::operator(mesh), Person::named(mesh, "bob", Role::Operator));
    let (_, mut reader) = alice.begin_holding().await;
    let ask = reader.ask().await;
    (alice, bob, reader, ask)
}

async fn counted(reader: &mut Reader) -> PermissionCounted {
    match reader.until("permission.counted").await.data {
        Data::PermissionCounted(counted) => counted,
        other => panic!("{other:?}"),
    }
}

async fn resolved(reader: &mut Reader) -> PermissionResolved {
    match reader.until("permission.resolved").await.data {
        Data::PermissionResolved(resolved) => resolved,
        other => panic!("{other:?}"),
    }
}

fn by(ask: &Ask, by: &str, have: u32, need: u32) -> PermissionCounted {
    let (permission_id, session_id) = (ask.id, ask.session);
    PermissionCounted { permission_id, session_id, by: by.to_owned(), have, need }
}

fn kept(mesh: &Mesh) -> Vec<usize> {
    mesh.sandbox.with(|state| state.executions.values().map(|known| known.receipts.len()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_count_is_refused_and_the_ask_stays_open_to_those_who_can() {
    let mesh = Mesh::start().await;
    let (alice, bob, mut reader, ask) = asked(&mesh, another_admin).await;
    // The requester as an admin, and somebody else without the role.
    let requester = Person { roles: vec![Role::Admin], ..alice.clone() };
    for person in [&alice, &requester, &bob] {
        let refused = person.claim(&ask, YES).await.unwrap_err();
        let reason = (refused.code, refused.reason.as_str());
        assert_eq!(reason, (Code::PermissionDenied, "NOT_AN_APPROVER"), "{}", refused.message);
    }
    let carol = Person::named(&mesh, "carol", Role::Admin);
    assert_eq!(carol.claim(&ask, YES).await, Ok(Claimed::Won));
    // What the claim said is not believed: the receipt must count, too.
    let lesser = Receipt { roles: [Role::Operator].into(), ..carol.receipt(&ask, Scope::Once) };
    assert_eq!(carol.resolve(&ask, &lesser).await.unwrap_err().reason, "NOT_AN_APPROVER");
    carol.resolve(&ask, &carol.receipt(&ask, Scope::Once)).await.unwrap();
    assert_eq!(resolved(&mut reader).await.by.as_deref(), Some("carol"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_allow_may_still_say_no() {
    let mesh = Mesh::start().await;
    let (alice, _, mut reader, ask) = asked(&mesh, another_admin).await;
    assert_eq!(alice.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
    let told = resolved(&mut reader).await;
    assert_eq!((told.decision, told.source), (Decision::Deny, Source::Operator));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_without_the_signature_that_the_plan_asks_for_is_refused() {
    let mesh = Mesh::start().await;
    let (alice, _, _reader, ask) = asked(&mesh, own_signature).await;
    assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
    let bare = alice.resolve(&ask, &alice.receipt(&ask, Scope::Once)).await.unwrap_err();
    assert_eq!(
        (bare.code, bare.reason.as_str()),
        (Code::PermissionDenied, "APPROVAL_SIGNATURE_MISSING")
    );
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_settle_what_asks_for_two_and_both_receipts_go_along() {
    let mesh = Mesh::start().await;
    let (alice, bob, mut reader, ask) = asked(&mesh, two).await;
    assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
    assert_eq!(alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await, (1, 2));
    assert_eq!(counted(&mut reader).await, by(&ask, "alice", 1, 2));
    // The same person is not a second one, however often; others see the ask as it was.
    let already = Ok(Claimed::Counted { have: 1, need: 2 });
    assert_eq!(alice.claim(&ask, YES).await, already);
    assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Run)).await, already);
    assert_eq!(alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await, (1, 2));
    assert_eq!(alice.get(ask.session).await.unwrap().open_permissions, [ask.id.to_string()]);
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());

    bob.allow(&ask, Scope::Once).await;
    let told = resolved(&mut reader).await;
    assert_eq!((told.decision, told.by.as_deref()), (Decision::Allow, Some("bob")));
    let (rest, _) = reader.rest().await;
    assert!(!kinds(&rest).contains(&"permission.counted"), "the last one settles: {rest:?}");
    assert_eq!((mesh.sandbox.runs(), kept(&mesh)), (vec![1], vec![2]));
    let lost = bob.claim(&ask, YES).await;
    assert!(matches!(lost, Ok(Claimed::Lost { settled: true, .. })), "{lost:?}");
    // Whoever attaches later reads in the stream who had allowed it.
    let (all, _) = alice.attach(ask.session).await.rest().await;
    assert_eq!(kinds(&all).iter().filter(|kind| **kind == "permission.counted").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_no_settles_also_that_of_somebody_who_had_allowed_it() {
    for vetoed_by_the_first in [false, true] {
        let mesh = Mesh::start().await;
        let (alice, bob, mut reader, ask) = asked(&mesh, two).await;
        assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
        alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await;
        let no = if vetoed_by_the_first { &alice } else { &bob };
        assert_eq!(no.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
        let told = resolved(&mut reader).await;
        assert_eq!((told.decision, told.source), (Decision::Deny, Source::Operator));
        assert_eq!(told.by.as_deref(), Some(no.subject.as_str()));
        reader.rest().await;
        assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_answered_ask_ends_at_its_expiry_all_the_same() {
    let mesh = Mesh::start().await;
    let (alice, _, mut reader, ask) = asked(&mesh, two).await;
    assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
    alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await;
    mesh.clock.advance(Duration::from_secs(25 * 3600));
    let told = resolved(&mut reader).await;
    assert_eq!((told.decision, told.source), (Decision::Deny, Source::Timeout));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_two_answers_the_count_is_kept_and_told_once() {
    let mut mesh = Mesh::start().await;
    let (alice, _, _reader, ask) = asked(&mesh, two).await;
    assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
    assert_eq!(alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await, (1, 2));
    mesh.restart().await;
    let (alice, bob) = (Person::operator(&mesh), Person::named(&mesh, "bob", Role::Operator));
    let mut reader = alice.attach(ask.session).await;
    assert_eq!(counted(&mut reader).await, by(&ask, "alice", 1, 2));
    assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Counted { have: 1, need: 2 }));
    bob.allow(&ask, Scope::Once).await;
    let (rest, _) = reader.rest().await;
    assert_eq!(kinds(&rest)[0], "permission.resolved");
    assert_eq!((mesh.sandbox.runs(), kept(&mesh)), (vec![1], vec![2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_an_allow_for_the_run_only_where_all_who_are_needed_said_so() {
    for (second, grants) in [(Scope::Once, 0), (Scope::Run, 2)] {
        let mesh = Mesh::start().await;
        let (alice, bob, mut reader, ask) = asked(&mesh, two).await;
        assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Run)).await, Ok(Claimed::Won));
        let half = alice.receipt(&ask, Scope::Run);
        alice.count(&ask, &half).await;
        assert_eq!(alice.grants(ask.session).await, [], "half a yes stands for nothing");
        assert_eq!(alice.revoke(ask.session, half.id).await, Ok((false, false)));
        mesh.sandbox.gate.send_replace(false);
        bob.allow(&ask, second).await;
        assert_eq!(resolved(&mut reader).await.scope, second);
        let listed = alice.grants(ask.session).await;
        assert_eq!(listed.len(), grants, "{listed:?}");
        mesh.sandbox.gate.send_replace(true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_the_executor_does_not_count_lead_to_a_new_ask_that_says_why_also_after_a_restart()
 {
    for reason in ["APPROVAL_KEY_UNKNOWN", "RECEIPT_COUNT_SHORT"] {
        let mut mesh = Mesh::start().await;
        let (alice, bob, mut reader, ask) = asked(&mesh, two).await;
        mesh.sandbox.with(|state| state.unadmitted = Some(reason));
        assert_eq!(alice.claim(&ask, YES).await, Ok(Claimed::Won));
        alice.count(&ask, &alice.receipt(&ask, Scope::Once)).await;
        bob.allow(&ask, Scope::Once).await;
        let again = reader.until("permission.requested").await.data;
        let Data::PermissionRequested(again) = again else { panic!("{again:?}") };
        let rule = &ask.plan.parts[0].rule;
        assert_eq!(
            again.reason,
            Some(format!(
                "{rule}; asked again because an earlier allow did not count: \
                 bob: the key is not listed for this person (1 of 2), {reason}; \
                 everybody has to answer anew, also those whose allow was good"
            ))
        );
        let again = Ask::read(&again);
        assert_ne!(again.id, ask.id);
        mesh.restart().await;
        let (alice, bob) = (Person::operator(&mesh), Person::named(&mesh, "bob", Role::Operator));
        let mut reader = alice.attach(ask.session).await;
        // Nobody's earlier allow counts for it.
        assert_eq!(alice.claim(&again, YES).await, Ok(Claimed::Won));
        assert_eq!(alice.count(&again, &alice.receipt(&again, Scope::Once)).await, (1, 2));
        bob.allow(&again, Scope::Once).await;
        let (rest, _) = reader.rest().await;
        let failed = rest.iter().any(|data| matches!(data, Data::ToolResult(it) if !it.ok));
        assert!(!failed, "{rest:?}");
        assert_eq!(kept(&mesh), [2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_about_the_world_or_a_used_permission_is_not_asked_about_again() {
    for reason in ["PLAN_STALE", "HOST_CHANGED", "POLICY_DENIED", "RECEIPT_CONSUMED"] {
        let mesh = Mesh::start().await;
        let (alice, _, mut reader, ask) = asked(&mesh, |_| ()).await;
        mesh.sandbox.with(|state| state.unadmitted = Some(reason));
        alice.allow(&ask, Scope::Once).await;
        let (rest, _) = reader.rest().await;
        assert!(!kinds(&rest).contains(&"permission.requested"), "{reason}: {rest:?}");
        let failed = rest.iter().find_map(|data| match data {
            Data::ToolResult(it) => it.error.as_ref().map(|error| error.code.as_str()),
            _ => None,
        });
        assert_eq!(failed, Some(reason));
        assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
    }
}
