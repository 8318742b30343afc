//! Asks that take somebody in particular, or several: who is refused before anything is claimed, and what is signed of those
//! who are not.
use event::id::{PermissionId, RunId, SessionId};
use event::{Data, Digest};
use receipt::{Approval, ApproverKey, Plan, Receipt, Requirement, Role, Scope, plan_digest};
use serde_json::{Value, json};

use super::agent::{Standing, plan};
use super::mesh::Mesh;
use super::wire::{Raw, code};
use crate::sign;

/// A session of ada's whose plan asks for this.
async fn asked(mesh: &Mesh, requirement: Requirement) -> (Raw, SessionId, PermissionId, Plan) {
    let mut raw = Raw::open(mesh, "ada").await;
    raw.initialize(true).await;
    let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
    let asks = Plan { approval: vec![requirement], ..plan(session, RunId::new()) };
    let (permission, plan) = mesh.agent.ask_for(session, asks);
    while raw.json().await["params"]["event"]["type"] != "permission.requested" {}
    (raw, session, permission, plan)
}

async fn attached(mesh: &Mesh, name: &str, session: SessionId) -> Raw {
    let mut raw = Raw::open(mesh, name).await;
    raw.initialize(true).await;
    raw.call(1, "session/attach", json!({ "sessionId": session })).await;
    raw
}

fn allow(session: SessionId, permission: PermissionId) -> Value {
    json!({ "sessionId": session, "permissionId": permission, "decision": "allow" })
}

fn roles(names: &[&str]) -> Requirement {
    let roles = names.iter().map(|name| (*name).to_owned()).collect();
    Requirement { roles, ..Requirement::default() }
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().expect("a message")
}

fn claims(mesh: &Mesh) -> usize {
    mesh.agent.state().calls.iter().filter(|(method, _)| method == "ClaimPermission").count()
}

#[tokio::test]
async fn whoever_lacks_the_role_is_told_which_and_nothing_is_claimed() {
    let mesh = Mesh::start().await;
    let (mut ada, session, permission, _) = asked(&mesh, roles(&["admin"])).await;
    let refused = ada.call(2, "permission/respond", allow(session, permission)).await;
    assert_eq!(code(&refused), (-32003, "ACP_FORBIDDEN"));
    assert_eq!(
        message(&refused),
        "this needs an allow by admin, and you are operator (NOT_AN_APPROVER); the ask stays open"
    );
    assert_eq!((claims(&mesh), mesh.audit.kinds()), (0, vec!["grant.issued"]));
    let mut anna = attached(&mesh, "anna", session).await;
    let answer = anna.call(2, "permission/respond", allow(session, permission)).await;
    assert_eq!(answer["result"], json!({ "accepted": true }));
    let state = mesh.agent.state();
    let Standing::Allowed(by, receipt) = &state.sessions[&session].asks[&permission].standing
    else {
        panic!()
    };
    assert_eq!((by.as_str(), &receipt.roles), ("anna", &[Role::Admin].into()));
}

#[tokio::test]
async fn the_requester_is_told_that_somebody_else_must_allow_it_and_may_still_say_no() {
    let mesh = Mesh::start().await;
    let somebody_else = Requirement { not_requester: true, ..Requirement::default() };
    let (mut ada, session, permission, _) = asked(&mesh, somebody_else).await;
    // On another connection, too: whose session it is is in its grant.
    let mut again = attached(&mesh, "ada", session).await;
    for raw in [&mut ada, &mut again] {
        let refused = raw.call(2, "permission/respond", allow(session, permission)).await;
        assert_eq!(code(&refused), (-32003, "ACP_FORBIDDEN"));
        assert!(message(&refused).starts_with("you opened this session yourself;"), "{refused}");
    }
    assert_eq!(claims(&mesh), 0);
    let mut no = allow(session, permission);
    no["decision"] = json!("deny");
    let answer = ada.call(3, "permission/respond", no).await;
    assert_eq!(answer["result"], json!({ "accepted": true }));
}

#[tokio::test]
async fn what_agent_svc_says_of_a_person_is_passed_on() {
    let mesh = Mesh::start().await;
    let (mut ada, session, permission, _) =
        asked(&mesh, Requirement { count: 2, ..Requirement::default() }).await;
    let failing = [("NOT_AN_APPROVER", -32003), ("APPROVAL_SIGNATURE_MISSING", -32602)];
    for (reason, expected) in failing {
        mesh.agent.fail_next("ClaimPermission", transport::Code::PermissionDenied, reason);
        let refused = ada.call(2, "permission/respond", allow(session, permission)).await;
        assert_eq!(code(&refused).0, expected);
        assert!(message(&refused).contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn an_allow_that_is_not_enough_is_counted_and_the_same_person_is_told_so_again() {
    let mesh = Mesh::start().await;
    mesh.agent.state().needs = 2;
    let two = Requirement { count: 2, ..Requirement::default() };
    let (mut ada, session, permission, _) = asked(&mesh, two).await;
    let counted = json!({ "accepted": true, "counted": { "have": 1, "need": 2 } });
    let answer = ada.call(2, "permission/respond", allow(session, permission)).await;
    assert_eq!(answer["result"], counted);
    let again = ada.call(3, "permission/respond", allow(session, permission)).await;
    assert_eq!(code(&again), (-32003, "ACP_FORBIDDEN"));
    assert_eq!(
        message(&again),
        "your allow counts already, 1 of 2; somebody else has to allow this, too"
    );
    assert_eq!(mesh.audit.kinds(), ["grant.issued", "receipt.signed"], "signed once");
    let mut bob = attached(&mesh, "bob", session).await;
    let answer = bob.call(2, "permission/respond", allow(session, permission)).await;
    assert_eq!(answer["result"], json!({ "accepted": true }));
    assert_eq!(mesh.audit.kinds(), ["grant.issued", "receipt.signed", "receipt.signed"]);
}

fn key(mesh: &Mesh) -> ApproverKey {
    ApproverKey::from_pem(mesh.pki.receipts("0").expect("issued").key_pem.as_bytes())
        .expect("a key")
}

fn approval(permission: PermissionId, plan: &Plan) -> Approval {
    Approval {
        plan: plan_digest(&plan.to_bytes().expect("fits")),
        action: plan.action_digest().expect("fits"),
        permission,
        session: plan.session,
        run: plan.run,
        call: plan.call,
        scope: Scope::Once,
        subject: "ada".to_owned(),
        iat: sign::now(),
        exp: sign::now() + 600,
    }
}

fn signed_answer(
    key: &ApproverKey,
    session: SessionId,
    asked: PermissionId,
    it: &Approval,
) -> Value {
    let signed = key.sign(it).expect("signs");
    let mut answer = allow(session, asked);
    answer["approval"] = json!({
        "payload": signed.payload_text(),
        "signature": signed.signature_text(),
        "keyId": signed.key_id(),
    });
    answer
}

#[tokio::test]
async fn a_signature_that_is_asked_for_must_be_there_and_be_under_this_very_answer() {
    let mesh = Mesh::start().await;
    let own = Requirement { signature: true, ..Requirement::default() };
    let (mut ada, session, permission, plan) = asked(&mesh, own).await;
    let bare = ada.call(2, "permission/respond", allow(session, permission)).await;
    assert_eq!(code(&bare), (-32602, "ACP_INVALID_PARAMS"));
    assert!(message(&bare).contains("APPROVAL_SIGNATURE_MISSING"), "{bare}");

    let (key, right) = (key(&mesh), approval(permission, &plan));
    let other = Digest::of(b"other");
    let old = Approval { iat: right.iat - 600, exp: right.iat - 1, ..right.clone() };
    let early = Approval { iat: right.iat + 300, exp: right.iat + 600, ..right.clone() };
    for (wrong, reason) in [
        (Approval { plan: other, ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { action: other, ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { permission: PermissionId::new(), ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { session: SessionId::new(), ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { run: RunId::new(), ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { call: event::id::CallId::new(), ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { scope: Scope::Run, ..right.clone() }, "APPROVAL_MISMATCH"),
        (Approval { subject: "bob".to_owned(), ..right.clone() }, "APPROVAL_MISMATCH"),
        (old, "APPROVAL_EXPIRED"),
        (early, "APPROVAL_EXPIRED"),
    ] {
        let answer = signed_answer(&key, session, permission, &wrong);
        let refused = ada.call(3, "permission/respond", answer).await;
        assert!(message(&refused).contains(reason), "{wrong:?}: {refused}");
    }
    assert_eq!((claims(&mesh), mesh.audit.kinds()), (0, vec!["grant.issued"]));

    let answer = signed_answer(&key, session, permission, &right);
    let accepted = ada.call(4, "permission/respond", answer).await;
    assert_eq!(accepted["result"], json!({ "accepted": true }));
    let state = mesh.agent.state();
    let Standing::Allowed(_, receipt) = &state.sessions[&session].asks[&permission].standing else {
        panic!()
    };
    let Receipt { approval, .. } = receipt.as_ref();
    assert_eq!(*approval, Some(key.sign(&right).expect("signs")), "passed on as it came");
    let entries = mesh.audit.entries();
    let Data::ReceiptSigned(recorded) = &entries.last().expect("two").1.data else { panic!() };
    assert_eq!(recorded.receipt["approval"]["key_id"], json!(key.public().expect("a key").id()));
}
