//! Whose allows admit a plan: counted here, by this service's own plan and the administrator's own list.

use std::os::unix::fs::{PermissionsExt, symlink};

use event::id::{ReceiptId, RunId};
use receipt::{Approval, ApproverKey, Receipt, Role, Scope};
use serde_json::json;

use super::run::{Call, Run};
use super::world::{World, asking_manifest, manifest};

/// Somebody's receipt for the same ask.
fn from(receipt: &Receipt, subject: &str, role: Role) -> Receipt {
    let subject = subject.to_owned();
    Receipt { id: ReceiptId::new(), subject, roles: [role].into(), ..receipt.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_are_two_different_people_of_the_right_roles() {
    let world = World::governed(&[]).await;
    world.ceiling("permissions: {process.exec: ask}\napprovers: {roles: [operator, admin], not: requester, count: 2}");
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    assert_eq!(call.plan.approval[0].count, 2);
    // The session is ada's.
    let ada = run.receipt(&call, Scope::Once);
    let bob = from(&ada, "bob", Role::Operator);
    let again = from(&ada, "bob", Role::Admin);
    let viewer = from(&ada, "eve", Role::Viewer);
    let other = Receipt { run: RunId::new(), ..from(&ada, "cy", Role::Admin) };
    let cy = from(&ada, "cy", Role::Admin);
    for (receipts, reason) in [
        (vec![], "RECEIPT_REQUIRED"),
        (vec![&bob], "RECEIPT_COUNT_SHORT"),
        (vec![&bob, &bob, &again], "RECEIPT_COUNT_SHORT"),
        (vec![&bob, &ada], "RECEIPT_REQUESTER"),
        (vec![&bob, &viewer], "RECEIPT_ROLE_MISMATCH"),
        (vec![&bob, &other], "RECEIPT_RUN_MISMATCH"),
    ] {
        assert_eq!(run.execute_with(&call, &receipts).await.end(), reason);
    }
    let told = run.execute_with(&call, &[&bob, &viewer]).await;
    assert_eq!(
        told.detail(),
        "eve: a receipt does not count: the person has none of the roles that may allow this (1 of 2)"
    );
    let told = run.execute_with(&call, &[&bob]).await;
    assert_eq!(told.detail(), "not enough different people have allowed it (1 of 2)");
    // What does not count takes nothing away.
    assert_eq!(run.execute_with(&call, &[&ada, &bob, &viewer, &cy]).await.end(), "exited 0");
    let ledger = &world.ledger;
    ledger.wait(|_| ledger.refusals(&run.stream_id()).len() == 8).await;
    let started = ledger.entries().into_iter().find_map(|entry| match entry.event.data {
        event::Data::CallStarted(started) => Some(started),
        _ => None,
    });
    let started = started.unwrap();
    assert_eq!(started.permission_id, Some(bob.permission));
    assert!(started.rules.contains(&"permissions.process.exec".to_owned()), "{started:?}");
}

/// A person with a key of their own.
struct Person {
    subject: &'static str,
    key: ApproverKey,
}

impl Person {
    fn new(world: &World, subject: &'static str) -> Self {
        let pair = world.pki.receipts(subject).unwrap();
        Self { subject, key: ApproverKey::from_pem(pair.key_pem.as_bytes()).unwrap() }
    }

    fn listed(&self, roles: &'static str) -> (&str, receipt::PublicKey, &str) {
        (self.subject, self.key.public().unwrap(), roles)
    }

    fn approval(&self, receipt: &Receipt) -> Approval {
        let Receipt { plan, action, permission, session, run, call, scope, iat, .. } =
            receipt.clone();
        let (subject, exp) = (self.subject.to_owned(), iat + 300);
        Approval { plan, action, permission, session, run, call, scope, subject, iat, exp }
    }

    fn sign(&self, receipt: &Receipt, approval: &Approval) -> Receipt {
        let approval = Some(self.key.sign(approval).unwrap());
        Receipt { approval, ..from(receipt, self.subject, Role::Operator) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_counts_only_under_a_key_that_the_administrator_lists_for_that_person() {
    let world = World::governed(&[]).await;
    world.ceiling(
        "permissions: {process.exec: ask}\napprovers: {roles: [operator], signature: true}",
    );
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let (bob, eve) = (Person::new(&world, "bob"), Person::new(&world, "eve"));
    let plain = run.receipt(&call, Scope::Once);
    let good = bob.sign(&plain, &bob.approval(&plain));
    let refused = async |receipt: &Receipt| run.execute_with(&call, &[receipt]).await.end();

    assert_eq!(refused(&good).await, "APPROVAL_KEY_UNKNOWN", "nobody is listed");
    assert_eq!(
        run.execute_with(&call, &[&good]).await.detail(),
        "bob: a receipt does not count: the key is not listed for this person (0 of 1)"
    );
    world.approvers(&[bob.listed("viewer")]);
    assert_eq!(refused(&good).await, "RECEIPT_ROLE_MISMATCH", "not as what the gateway says");
    world.approvers(&[bob.listed("operator")]);
    assert_eq!(refused(&plain).await, "APPROVAL_SIGNATURE_MISSING");
    let theirs = Receipt { subject: "eve".to_owned(), ..good.clone() };
    assert_eq!(refused(&theirs).await, "APPROVAL_KEY_UNKNOWN", "the key is bob's");
    let stranger = Person { subject: "bob", key: eve.key };
    let forged = stranger.sign(&plain, &stranger.approval(&plain));
    assert_eq!(refused(&forged).await, "APPROVAL_KEY_UNKNOWN");
    let other = Approval { scope: Scope::Run, ..bob.approval(&plain) };
    assert_eq!(refused(&bob.sign(&plain, &other)).await, "APPROVAL_MISMATCH");
    let early = Approval { iat: plain.iat - 500, exp: plain.iat - 100, ..bob.approval(&plain) };
    assert_eq!(refused(&bob.sign(&plain, &early)).await, "APPROVAL_EXPIRED");
    let mut bent = good.clone();
    let signed = bent.approval.take().unwrap();
    let signature = signed.signature_text();
    let other = if signature.starts_with("00") { "01" } else { "00" };
    let signature = format!("{other}{}", &signature[2..]);
    let (payload, key) = (signed.payload_text(), signed.key_id());
    bent.approval = Some(receipt::SignedApproval::from_text(&payload, &signature, key).unwrap());
    assert_eq!(refused(&bent).await, "APPROVAL_SIGNATURE_INVALID");

    world.approvers(&[]);
    assert_eq!(refused(&good).await, "APPROVAL_KEY_UNKNOWN", "taken off the list");
    world.approvers(&[bob.listed("operator")]);
    assert_eq!(refused(&good).await, "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answers_did_not_count_is_carried_out_in_its_next_attempt_with_new_ones() {
    let world = World::governed(&[]).await;
    world.ceiling("permissions: {process.exec: ask}\napprovers: {count: 2}");
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let short = run.receipt(&call, Scope::Once);
    assert_eq!(run.execute_with(&call, &[&short]).await.end(), "RECEIPT_COUNT_SHORT");

    let mut target = run.target(call.id);
    target.attempt = 2;
    let request = proto::sandbox::v1::PlanRequest {
        owner: Some(run.owner.clone()),
        call: Some(target.clone()),
        tool: call.tool.clone(),
        arguments: call.arguments.clone(),
    };
    let request = transport::deadline::request(request, super::world::LIMIT);
    let planned = world.client.clone().plan(request).await.unwrap().into_inner();
    let Some(proto::sandbox::v1::plan_response::Outcome::Planned(planned)) = planned.outcome else {
        panic!("{planned:?}")
    };
    assert_eq!(planned.plan, call.bytes, "the same plan");
    let ada = run.receipt(&call, Scope::Once);
    let bob = from(&ada, "bob", Role::Operator);
    assert_ne!(ada.permission, short.permission);
    let receipts = [ada, bob].map(|it| world.sign(&it).to_bytes().unwrap()).into();
    let order = proto::sandbox::v1::ExecuteRequest {
        call: Some(target),
        receipts,
        ..run.order(&call, None)
    };
    assert_eq!(run.send(order).await.unwrap().end(), "exited 0");
}

async fn again(run: &Run<'_>) -> Call {
    run.plan_exec(&["true"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_receipt_admits_nothing_ever_again() {
    let mut world = World::new(&[]).await;
    let (session, owner, id, standing) = {
        let run = world.run(&asking_manifest()).await;
        let call = again(&run).await;
        let (standing, other) = (run.receipt(&call, Scope::Run), run.receipt(&call, Scope::Run));
        assert_eq!(run.execute_with(&call, &[&standing]).await.end(), "exited 0");
        let stranger = world.run(&asking_manifest()).await;
        let foreign = Run { run: run.run, ..stranger };
        assert_eq!(foreign.revoke(standing.id).await.unwrap_err().reason, "RUN_UNKNOWN");
        let stale = Run {
            owner: proto::common::v1::Owner { epoch: 9, ..run.owner.clone() },
            ..run.clone()
        };
        assert_eq!(stale.revoke(standing.id).await.unwrap_err().reason, "FENCE_STALE");
        assert_eq!(run.execute_with(&again(&run).await, &[&standing]).await.end(), "exited 0");

        run.revoke(standing.id).await.unwrap();
        run.revoke(standing.id).await.unwrap();
        assert_eq!(
            run.execute_with(&again(&run).await, &[&standing]).await.end(),
            "RECEIPT_REVOKED"
        );
        // Another person's answer to the same ask still stands.
        let both = run.execute_with(&again(&run).await, &[&standing, &other]).await;
        assert_eq!(both.end(), "exited 0");
        (run.session, run.owner.clone(), run.run, standing)
    };
    world.kill();
    world.start().await;
    let run = Run { world: &world, session, owner, run: id };
    assert_eq!(run.execute_with(&again(&run).await, &[&standing]).await.end(), "RECEIPT_REVOKED");

    let call = again(&run).await;
    let store = &world.sandbox().store;
    assert_eq!(store.revoked(id).await.unwrap(), [standing.id].into());
    run.close().await.unwrap();
    assert_eq!(store.revoked(id).await.unwrap(), [].into(), "it dies with its run");
    assert_eq!(run.execute_with(&call, &[&standing]).await.end(), "PLAN_UNKNOWN");
    run.revoke(standing.id).await.unwrap();
    assert_eq!(store.revoked(id).await.unwrap(), [].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_which_program_would_start() {
    let world = World::new(&[("tool", "#!/bin/sh\necho from the copy\n"), ("python3", "x")]).await;
    for name in ["tool", "python3"] {
        let path = world.workspace().join(name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    symlink("python3", world.workspace().join("mytool")).unwrap();
    let rules = "  process.exec: {'./*': allow, 'sh': allow, 'nope': ask}\n";
    let allowed = "[./tool, ./mytool, ./absent, /bin/sh, ";
    let run = world
        .run(&manifest(rules).replace("allow_commands: [", &format!("allow_commands: {allowed}")))
        .await;
    let program = async |argv: &[&str]| {
        let plan = run.plan_exec(argv).await.plan;
        (serde_json::to_value(plan.program).unwrap(), plan.effect, plan.parts[0].rule.clone())
    };
    let shell = json!({ "path": "/bin/sh", "resolved": "/bin/busybox" });
    let (shown, effect, _) = program(&["sh"]).await;
    assert_eq!((shown, effect), (shell.clone(), receipt::Effect::Allow));
    assert_eq!(program(&["/bin/sh"]).await.0, shell);
    let own =
        json!({ "path": "/workspace/./tool", "resolved": "/workspace/tool", "workspace": true });
    assert_eq!(program(&["./tool"]).await.0, own);
    assert_eq!(run.exec(&["./tool"]).await.text(), "from the copy\n");
    // A link to an interpreter is one.
    let (shown, effect, rule) = program(&["./mytool", "-c", "x"]).await;
    assert_eq!(shown["resolved"], json!("/workspace/python3"));
    assert_eq!((effect, rule.as_str()), (receipt::Effect::Ask, "interpreter"));

    for name in ["nope", "./absent"] {
        let refused = run.plan_or_refusal("process.exec", &json!({ "argv": [name] })).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason, "PROGRAM_NOT_FOUND");
        assert!(refused.detail.contains("PATH /bin"), "{}", refused.detail);
    }
    let images = world.dir.path().join("state/images");
    assert_eq!(std::fs::read_dir(images).unwrap().count(), 1, "read once and kept");
}
