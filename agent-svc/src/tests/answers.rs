//! Answers: the first wins, whoever comes later learns who it was, and an allow needs its receipt.

use std::time::Duration;

use event::id::{CallId, PermissionId, RunId, SessionId};
use event::{Data, Decision, Digest, Executor, PermissionResolved, Source};
use proto::agent::v1 as wire;
use receipt::{Receipt, Role, Scope, Signer};
use serde_json::json;
use transport::{Code, Fault};

use super::gateway::{Ask, Choice, Claimed, Person, Reader, kinds};
use super::mesh::Mesh;
use super::model::Turn;

async fn asked(mesh: &Mesh, alice: &Person) -> (Reader, Ask) {
    mesh.model.one_call();
    let (_, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    (reader, ask)
}

async fn resolved(reader: &mut Reader) -> PermissionResolved {
    match reader.until("permission.resolved").await.data {
        Data::PermissionResolved(resolved) => resolved,
        other => panic!("{other:?}"),
    }
}

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> (Code, String) {
    let fault = result.unwrap_err();
    (fault.code, fault.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_once_exactly_one_wins_a_hundred_times() {
    let mesh = Mesh::start().await;
    mesh.model.one_call();
    let (alice, bob) = (Person::operator(&mesh), Person::named(&mesh, "bob", Role::Operator));
    for round in 0..100 {
        let (_, mut reader) = alice.begin().await;
        let ask = reader.ask().await;
        let (yes, no) = tokio::join!(
            alice.claim(&ask, Choice::Allow(Scope::Once)),
            bob.claim(&ask, Choice::Deny)
        );
        let (yes, no) = (yes.unwrap(), no.unwrap());
        let runs_before: u32 = mesh.sandbox.runs().iter().sum();
        match (&yes, &no) {
            (Claimed::Won, Claimed::Lost { decision, by, settled, .. }) => {
                assert_eq!(
                    (*decision, by.as_str(), *settled),
                    (wire::Decision::Allow, "alice", false)
                );
                alice.resolve(&ask, &alice.receipt(&ask, Scope::Once)).await.unwrap();
            }
            (Claimed::Lost { decision, by, source, settled }, Claimed::Won) => {
                assert_eq!(
                    (*decision, by.as_str(), *source, *settled),
                    (wire::Decision::Deny, "bob", wire::DenySource::Operator, true)
                );
                let lost = wire::Lost {
                    decision: wire::Decision::Deny.into(),
                    by: "bob".to_owned(),
                    source: wire::DenySource::Operator.into(),
                    settled: true,
                };
                assert_eq!(alice.resolve_late(&ask, Scope::Once).await, lost);
            }
            other => panic!("round {round}: {other:?}"),
        }
        let (rest, _) = reader.rest().await;
        let resolutions =
            kinds(&rest).iter().filter(|kind| **kind == "permission.resolved").count();
        assert_eq!(resolutions, 1, "round {round}");
        let runs = mesh.sandbox.runs().iter().sum::<u32>() - runs_before;
        assert_eq!(runs, u32::from(yes == Claimed::Won), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_allow_holds_for_its_lease_and_then_the_ask_is_open_again() {
    let mesh = Mesh::start().await;
    let (alice, bob) = (Person::operator(&mesh), Person::named(&mesh, "bob", Role::Operator));
    let (mut reader, ask) = asked(&mesh, &alice).await;
    let yes = Choice::Allow(Scope::Once);
    assert_eq!(alice.claim(&ask, yes).await, Ok(Claimed::Won));
    let held = Claimed::Lost {
        decision: wire::Decision::Allow,
        source: wire::DenySource::Unspecified,
        by: "alice".to_owned(),
        settled: false,
    };
    mesh.clock.advance(Duration::from_secs(29));
    for (person, choice) in [
        (&bob, yes),
        (&bob, Choice::Deny),
        (&alice, Choice::Deny),
        (&alice, Choice::Allow(Scope::Run)),
    ] {
        assert_eq!(person.claim(&ask, choice).await.as_ref(), Ok(&held));
    }
    // The same answer of the same person is the same lease, from now on.
    assert_eq!(alice.claim(&ask, yes).await, Ok(Claimed::Won));
    mesh.clock.advance(Duration::from_secs(31));
    let late = alice.resolve(&ask, &alice.receipt(&ask, Scope::Once)).await;
    assert_eq!(reason(late), (Code::FailedPrecondition, "PERMISSION_NOT_CLAIMED".to_owned()));
    assert_eq!(bob.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
    let told = resolved(&mut reader).await;
    assert_eq!(
        (told.decision, told.source, told.by.as_deref()),
        (Decision::Deny, Source::Operator, Some("bob"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_waits_for_a_claimed_allow_and_not_longer() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (mut reader, ask) = asked(&mesh, &alice).await;
    mesh.clock.advance(Duration::from_secs(110));
    let yes = Choice::Allow(Scope::Once);
    assert_eq!(alice.claim(&ask, yes).await, Ok(Claimed::Won));
    mesh.clock.advance(Duration::from_secs(15));
    // Past its time, inside of the lease: the receipt counts.
    alice.resolve(&ask, &alice.receipt(&ask, Scope::Once)).await.unwrap();
    assert_eq!(resolved(&mut reader).await.decision, Decision::Allow);

    let (mut reader, ask) = asked(&mesh, &alice).await;
    mesh.clock.advance(Duration::from_secs(110));
    assert_eq!(alice.claim(&ask, yes).await, Ok(Claimed::Won));
    mesh.clock.advance(Duration::from_secs(31));
    let told = resolved(&mut reader).await;
    assert_eq!((told.decision, told.source, told.by), (Decision::Deny, Source::Timeout, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_no_has_its_own_source() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    for (choice, source) in
        [(Choice::Deny, Source::Operator), (Choice::Malformed, Source::MalformedAnswer)]
    {
        let (mut reader, ask) = asked(&mesh, &alice).await;
        assert_eq!(alice.claim(&ask, choice).await, Ok(Claimed::Won));
        let told = resolved(&mut reader).await;
        assert_eq!((told.source, told.by.as_deref()), (source, Some("alice")));
        let (rest, outcome) = reader.rest().await;
        let Some(Data::ToolResult(result)) = rest.first() else { panic!("{rest:?}") };
        assert_eq!(result.error.as_ref().unwrap().code, "PERMISSION_DENIED");
        assert!(
            matches!(outcome.state, Some(wire::outcome::State::Completed(_))),
            "the run goes on"
        );
    }
    {
        let (mut reader, ask) = asked(&mesh, &alice).await;
        mesh.clock.advance(Duration::from_secs(121));
        let told = resolved(&mut reader).await;
        assert_eq!((told.source, told.by), (Source::Timeout, None));
        let late = alice.claim(&ask, Choice::Allow(Scope::Once)).await;
        let lost = Claimed::Lost {
            decision: wire::Decision::Deny,
            source: wire::DenySource::Timeout,
            by: String::new(),
            settled: true,
        };
        assert_eq!(late, Ok(lost), "expired is not unknown");
    }
    {
        let (mut reader, ask) = asked(&mesh, &alice).await;
        assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Once)).await, Ok(Claimed::Won));
        let bob = Person::named(&mesh, "bob", Role::Operator);
        assert_eq!(bob.cancel(ask.session).await, Ok(true), "cancel ends a claimed allow too");
        let told = resolved(&mut reader).await;
        assert_eq!((told.source, told.by.as_deref()), (Source::Cancel, Some("bob")));
        let lost = wire::Lost {
            decision: wire::Decision::Deny.into(),
            by: "bob".to_owned(),
            source: wire::DenySource::Cancel.into(),
            settled: true,
        };
        assert_eq!(alice.resolve_late(&ask, Scope::Once).await, lost, "told who ended it, and how");
        let (_, outcome) = reader.rest().await;
        assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    }
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_answer_learns_who_was_first() {
    let mesh = Mesh::start().await;
    let (alice, bob) = (Person::operator(&mesh), Person::named(&mesh, "bob", Role::Admin));
    let (mut reader, ask) = asked(&mesh, &alice).await;
    alice.allow(&ask, Scope::Once).await;
    resolved(&mut reader).await;
    let lost = Claimed::Lost {
        decision: wire::Decision::Allow,
        source: wire::DenySource::Unspecified,
        by: "alice".to_owned(),
        settled: true,
    };
    for person in [&alice, &bob] {
        for choice in [Choice::Allow(Scope::Once), Choice::Deny] {
            assert_eq!(person.claim(&ask, choice).await.as_ref(), Ok(&lost));
        }
    }
    reader.rest().await;
    assert_eq!(bob.claim(&ask, Choice::Deny).await, Ok(lost), "also after the run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_allows_exactly_what_was_asked() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (mut reader, ask) = asked(&mesh, &alice).await;
    let right = alice.receipt(&ask, Scope::Once);
    let unclaimed = alice.resolve(&ask, &right).await;
    assert_eq!(reason(unclaimed).1, "PERMISSION_NOT_CLAIMED");
    assert_eq!(alice.claim(&ask, Choice::Allow(Scope::Once)).await, Ok(Claimed::Won));

    let other = Digest::of(b"other");
    let wrong: [(Receipt, &str); 10] = [
        (Receipt { session: SessionId::new(), ..right.clone() }, "RECEIPT_SESSION_MISMATCH"),
        (Receipt { tenant: "other".into(), ..right.clone() }, "RECEIPT_TENANT_MISMATCH"),
        (
            Receipt { permission: PermissionId::new(), ..right.clone() },
            "RECEIPT_PERMISSION_MISMATCH",
        ),
        (Receipt { run: RunId::new(), ..right.clone() }, "RECEIPT_RUN_MISMATCH"),
        (Receipt { call: CallId::new(), ..right.clone() }, "RECEIPT_CALL_MISMATCH"),
        (Receipt { plan: other, ..right.clone() }, "RECEIPT_PLAN_MISMATCH"),
        (Receipt { action: other, ..right.clone() }, "RECEIPT_ACTION_MISMATCH"),
        (Receipt { audience: Executor::ModelSvc, ..right.clone() }, "RECEIPT_AUDIENCE_MISMATCH"),
        (Receipt { subject: "bob".into(), ..right.clone() }, "RECEIPT_SUBJECT_MISMATCH"),
        (Receipt { iat: right.iat - 50, exp: right.iat - 1, ..right.clone() }, "RECEIPT_EXPIRED"),
    ];
    for (receipt, expected) in wrong {
        let refused = alice.resolve(&ask, &receipt).await;
        assert_eq!(reason(refused), (Code::PermissionDenied, expected.to_owned()));
    }
    // A scope that was not claimed, and a signer who is no gateway of this installation.
    let wider = alice.receipt(&ask, Scope::Run);
    assert_eq!(reason(alice.resolve(&ask, &wider).await).1, "PERMISSION_NOT_CLAIMED");
    let elsewhere = transport::issue::DevPki::new("harness.test".parse().unwrap()).unwrap();
    let issued = elsewhere.receipts("0").unwrap();
    let stranger = Signer::from_pem(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap();
    let forged = alice.resolve_signed(&ask, &stranger.sign(&right).unwrap()).await;
    assert_eq!(reason(forged).1, "RECEIPT_SIGNER_UNTRUSTED");
    assert_eq!(mesh.sandbox.runs(), Vec::<u32>::new());

    alice.resolve(&ask, &right).await.unwrap();
    // Another receipt for the same answer comes too late to count, and is no error.
    let again = alice.receipt(&ask, Scope::Once);
    assert_eq!(alice.resolve(&ask, &again).await, Ok(reader_seq(&mut reader).await));
    reader.rest().await;
    let kept = mesh.sandbox.with(|state| {
        state.executions.values().flat_map(|known| known.receipts.clone()).collect::<Vec<_>>()
    });
    assert_eq!(kept, [alice.signer.sign(&right).unwrap()]);
}

async fn reader_seq(reader: &mut Reader) -> u64 {
    resolved(reader).await;
    reader.next - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_must_be_about_the_plan_and_a_scope_that_it_offers() {
    let mesh = Mesh::start().await;
    mesh.model.script([Turn::Call(vec![("import_patch", json!({}))]), Turn::Say("done")]);
    let alice = Person::operator(&mesh);
    let (session, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    let scope = alice.claim(&ask, Choice::Allow(Scope::Run)).await;
    assert_eq!(reason(scope), (Code::FailedPrecondition, "SCOPE_NOT_OFFERED".to_owned()));
    let other = Ask { plan_digest: Digest::of(b"another plan"), ..ask.clone() };
    let plan = alice.claim(&other, Choice::Deny).await;
    assert_eq!(reason(plan), (Code::FailedPrecondition, "PLAN_DIGEST_MISMATCH".to_owned()));
    let unknown = Ask { id: PermissionId::new(), ..ask.clone() };
    let unknown = alice.claim(&unknown, Choice::Deny).await;
    assert_eq!(reason(unknown), (Code::NotFound, "PERMISSION_NOT_FOUND".to_owned()));
    // A permission of another session of the same tenant is unknown there.
    let elsewhere = Ask { session: alice.create().await, ..ask.clone() };
    let elsewhere = alice.claim(&elsewhere, Choice::Deny).await;
    assert_eq!(reason(elsewhere), (Code::NotFound, "PERMISSION_NOT_FOUND".to_owned()));
    assert_eq!(alice.get(session).await.unwrap().open_permissions, [ask.id.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_for_the_run_covers_the_same_action_and_no_other() {
    let mesh = Mesh::start().await;
    let same = json!({ "argv": ["cargo", "test"] });
    mesh.model.script([
        Turn::Call(vec![("process.exec", same.clone())]),
        Turn::Call(vec![("process.exec", same), ("process.exec", json!({ "argv": ["rm"] }))]),
        Turn::Say("done"),
    ]);
    let alice = Person::operator(&mesh);
    let (_, mut reader) = alice.begin().await;
    let first = reader.ask().await;
    alice.allow(&first, Scope::Run).await;
    let second = reader.ask().await;
    assert_eq!(mesh.sandbox.runs(), [1, 1]);
    assert_ne!(second.plan.action_digest(), first.plan.action_digest());
    let receipts = mesh.sandbox.with(|state| {
        state.executions.values().map(|known| known.receipts.clone()).collect::<Vec<_>>()
    });
    assert_eq!(receipts[0], receipts[1], "the earlier receipt goes along");
    assert_eq!(alice.claim(&second, Choice::Deny).await, Ok(Claimed::Won));
    let (_, outcome) = reader.rest().await;
    assert_eq!(outcome.tool_calls, 3);
}
