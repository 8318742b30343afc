//! Who admits a plan: each way not to has its own reason, and those that do are told.

use crate::people::{World, allow, approval, key, plan, signed, two};
use crate::pki::{NOW, grant};
use event::id::{CallId, ReceiptId, RunId, SessionId};
use event::{Digest, Effect, Executor, Scope};
use receipt::{Approval, Counted, Plan, Receipt, Requirement, Role, Shortfall, Why};

const OPERATOR: &[Role] = &[Role::Operator];

fn signing(count: u8) -> Requirement {
    Requirement { count, signature: true, ..Requirement::default() }
}

#[test]
fn a_denied_plan_is_admitted_by_nobody_and_an_allowed_one_needs_nobody() {
    let world = World::new();
    let mut denied = Plan { effect: Effect::Deny, ..plan(vec![]) };
    denied.parts[0].effect = Effect::Deny;
    let receipt = allow(&denied, "alice", OPERATOR, Scope::Run);
    assert_eq!(world.reason(&denied, &[receipt]), "POLICY_DENIED");
    let mut allowed = Plan { effect: Effect::Allow, ..plan(vec![]) };
    allowed.parts[0].effect = Effect::Allow;
    assert_eq!(world.admit(&allowed, &[]).map(|it| it.counted), Ok(vec![]));
}

#[test]
fn without_requirements_one_allow_is_enough_and_none_is_not() {
    let world = World::new();
    let plan = plan(vec![]);
    let missing = Shortfall { have: 0, need: 1, why: Why::NoReceipt, whose: None };
    assert_eq!(world.admit(&plan, &[]), Err(missing));
    // The requester's own, without a role: whoever asks for more says so in the manifest.
    let own = allow(&plan, "dev", &[], Scope::Once);
    let counted = Counted {
        subject: "dev".into(),
        receipt: own.id,
        permission: own.permission,
        scope: Scope::Once,
    };
    assert_eq!(world.admit(&plan, &[own]).map(|it| it.counted), Ok(vec![counted]));
}

#[test]
fn a_receipt_of_something_else_has_its_own_reason() {
    let world = World::new();
    let plan = plan(vec![]);
    let good = allow(&plan, "alice", OPERATOR, Scope::Once);
    let other = Digest::of(b"other");
    for (receipt, reason) in [
        (Receipt { audience: Executor::ModelSvc, ..good.clone() }, "RECEIPT_AUDIENCE_MISMATCH"),
        (Receipt { session: SessionId::new(), ..good.clone() }, "RECEIPT_SESSION_MISMATCH"),
        (Receipt { tenant: "other".into(), ..good.clone() }, "RECEIPT_TENANT_MISMATCH"),
        (Receipt { call: CallId::new(), ..good.clone() }, "RECEIPT_CALL_MISMATCH"),
        (Receipt { plan: other, ..good.clone() }, "RECEIPT_PLAN_MISMATCH"),
        (Receipt { action: other, ..good.clone() }, "RECEIPT_ACTION_MISMATCH"),
        (Receipt { action: other, scope: Scope::Run, ..good.clone() }, "RECEIPT_ACTION_MISMATCH"),
        (Receipt { run: RunId::new(), ..good.clone() }, "RECEIPT_RUN_MISMATCH"),
        (Receipt { iat: NOW - 10, exp: NOW, ..good.clone() }, "RECEIPT_EXPIRED"),
        (Receipt { iat: NOW + 61, ..good.clone() }, "RECEIPT_NOT_YET_VALID"),
    ] {
        assert_eq!(world.reason(&plan, std::slice::from_ref(&receipt)), reason, "{receipt:?}");
        assert_eq!(world.reason(&plan, &[receipt, good.clone()]), "", "it takes nothing away");
    }
    let once = Plan { scopes: vec![Scope::Once], ..plan };
    let wide = allow(&once, "alice", OPERATOR, Scope::Run);
    assert_eq!(world.reason(&once, &[wide]), "RECEIPT_SCOPE_MISMATCH");
}

#[test]
fn a_run_receipt_admits_the_same_action_later_until_it_is_revoked() {
    let mut world = World::new();
    let first = plan(vec![]);
    let receipt = allow(&first, "alice", OPERATOR, Scope::Run);
    let later = Plan { call: CallId::new(), ..first.clone() };
    assert_eq!(world.reason(&later, std::slice::from_ref(&receipt)), "");
    let elsewhere = Plan { argv: Some(vec!["rm".into()]), ..later.clone() };
    let receipts = std::slice::from_ref(&receipt);
    assert_eq!(world.reason(&elsewhere, receipts), "RECEIPT_ACTION_MISMATCH");
    world.revoked.insert(receipt.id);
    assert_eq!(world.reason(&later, receipts), "RECEIPT_REVOKED");
    assert_eq!(world.reason(&first, receipts), "RECEIPT_REVOKED");
    let again = Receipt { id: ReceiptId::new(), ..receipt };
    assert_eq!(world.reason(&later, &[again]), "");
}

#[test]
fn two_people_are_two_people_with_the_right_role() {
    let world = World::new();
    let plan = plan(vec![two(&["operator", "admin"])]);
    let by = |subject, roles: &[Role]| allow(&plan, subject, roles, Scope::Once);
    let (alice, bob) = (by("alice", OPERATOR), by("bob", &[Role::Viewer, Role::Admin]));
    let again = by("alice", OPERATOR);
    let (viewer, own) = (by("carol", &[Role::Viewer]), by("dev", OPERATOR));
    for (receipts, have, reason) in [
        (vec![], 0, "RECEIPT_REQUIRED"),
        (vec![alice.clone()], 1, "RECEIPT_COUNT_SHORT"),
        (vec![alice.clone(), alice.clone()], 1, "RECEIPT_COUNT_SHORT"),
        (vec![alice.clone(), again], 1, "RECEIPT_COUNT_SHORT"),
        (vec![alice.clone(), own], 1, "RECEIPT_REQUESTER"),
        (vec![alice.clone(), viewer], 1, "RECEIPT_ROLE_MISMATCH"),
    ] {
        let short = world.admit(&plan, &receipts).unwrap_err();
        assert_eq!((short.have, short.need, short.reason()), (have, 2, reason));
    }
    let counted = world.admit(&plan, &[alice, bob]).unwrap().counted;
    let who: Vec<_> = counted.iter().map(|it| it.subject.as_str()).collect();
    assert_eq!(who, ["alice", "bob"]);
}

#[test]
fn every_requirement_is_met_for_itself_and_the_most_lacking_is_told() {
    let world = World::new();
    let admin = Requirement { roles: ["admin".into()].into(), ..Requirement::default() };
    let plan = plan(vec![admin, two(&[])]);
    let alice = allow(&plan, "alice", OPERATOR, Scope::Once);
    let bob = allow(&plan, "bob", &[Role::Admin], Scope::Once);
    let carol = allow(&plan, "carol", OPERATOR, Scope::Once);
    let short = world.admit(&plan, &[alice.clone(), carol]).unwrap_err();
    assert_eq!((short.have, short.need, short.reason()), (0, 1, "RECEIPT_ROLE_MISMATCH"));
    let short = world.admit(&plan, std::slice::from_ref(&bob)).unwrap_err();
    assert_eq!((short.have, short.need, short.reason()), (1, 2, "RECEIPT_COUNT_SHORT"));
    assert_eq!(world.reason(&plan, &[bob, alice]), "");
}

#[test]
fn a_signature_is_asked_of_the_person_and_not_of_the_gateway() {
    let mut world = World::new();
    let (alice, stranger) = (key(), key());
    world.list("alice", alice.public().unwrap(), &["operator"]);
    let plan = plan(vec![signing(1)]);
    let bare = allow(&plan, "alice", OPERATOR, Scope::Once);
    let good = signed(bare.clone(), &alice);
    let resigned = |change: &dyn Fn(&mut Approval)| {
        let mut approval = approval(&bare);
        change(&mut approval);
        Receipt { approval: Some(alice.sign(&approval).unwrap()), ..bare.clone() }
    };
    // A gateway that lies: a true signature, lent to somebody else or to something else.
    let lent = Receipt { subject: "bob".into(), ..good.clone() };
    world.list("bob", alice.public().unwrap(), &["operator"]);
    let widened = Receipt { scope: Scope::Run, ..good.clone() };
    let forged = {
        let (text, id) = (good.approval.as_ref().unwrap(), alice.public().unwrap().id());
        let by = stranger.sign(&approval(&bare)).unwrap();
        let (payload, signature) = (text.payload_text(), by.signature_text());
        let approval = receipt::SignedApproval::from_text(&payload, &signature, id).unwrap();
        Receipt { approval: Some(approval), ..bare.clone() }
    };
    let other = Digest::of(b"other");
    for (name, receipt, reason) in [
        ("none", bare.clone(), "APPROVAL_SIGNATURE_MISSING"),
        ("unlisted", signed(bare.clone(), &stranger), "APPROVAL_KEY_UNKNOWN"),
        ("forged", forged, "APPROVAL_SIGNATURE_INVALID"),
        ("lent", lent, "APPROVAL_MISMATCH"),
        ("widened", widened, "APPROVAL_MISMATCH"),
        ("plan", resigned(&|it| it.plan = other), "APPROVAL_MISMATCH"),
        ("action", resigned(&|it| it.action = other), "APPROVAL_MISMATCH"),
        ("session", resigned(&|it| it.session = SessionId::new()), "APPROVAL_MISMATCH"),
        ("run", resigned(&|it| it.run = RunId::new()), "APPROVAL_MISMATCH"),
        ("call", resigned(&|it| it.call = CallId::new()), "APPROVAL_MISMATCH"),
        (
            "permission",
            resigned(&|it| it.permission = event::id::PermissionId::new()),
            "APPROVAL_MISMATCH",
        ),
        ("subject", resigned(&|it| it.subject = "bob".into()), "APPROVAL_MISMATCH"),
        ("late", resigned(&|it| (it.iat, it.exp) = (NOW - 60, NOW)), "APPROVAL_EXPIRED"),
        ("early", resigned(&|it| (it.iat, it.exp) = (NOW + 61, NOW + 100)), "APPROVAL_EXPIRED"),
    ] {
        assert_eq!(world.reason(&plan, &[receipt]), reason, "{name}");
    }
    assert_eq!(world.reason(&plan, &[good]), "");
    let skewed = resigned(&|it| (it.iat, it.exp) = (NOW + 60, NOW + 100));
    assert_eq!(world.reason(&plan, &[skewed]), "", "a person's clock may run a little ahead");
}

#[test]
fn a_gateway_cannot_give_a_listed_person_more_roles_than_the_list_does() {
    let mut world = World::new();
    let alice = key();
    world.list("alice", alice.public().unwrap(), &["viewer"]);
    let admin = Requirement { roles: ["admin".into()].into(), ..signing(1) };
    let plan = plan(vec![admin]);
    let receipt = signed(allow(&plan, "alice", &[Role::Admin], Scope::Once), &alice);
    let receipts = [receipt];
    assert_eq!(world.reason(&plan, &receipts), "RECEIPT_ROLE_MISMATCH");
    world.list("alice", alice.public().unwrap(), &["viewer", "admin"]);
    assert_eq!(world.reason(&plan, &receipts), "");
}

#[test]
fn a_signed_allow_for_the_run_outlives_the_hour_of_its_signature() {
    let mut world = World::new();
    let alice = key();
    world.list("alice", alice.public().unwrap(), &[]);
    let plan = plan(vec![signing(1)]);
    let long = |scope| {
        let receipt = allow(&plan, "alice", OPERATOR, scope);
        let receipt = Receipt { exp: NOW + 7_200, ..receipt };
        world.judged(&signed(receipt, &alice))
    };
    let later = Plan { call: CallId::new(), ..plan.clone() };
    assert!(world.admit_at(&later, &[long(Scope::Run)], NOW + 5_000).is_ok());
    let short = world.admit_at(&plan, &[long(Scope::Once)], NOW + 3_600).unwrap_err();
    assert_eq!(short.reason(), "APPROVAL_EXPIRED");
    assert_eq!(grant().subject, "dev");
}
