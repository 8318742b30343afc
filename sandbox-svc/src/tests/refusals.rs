//! Everything that must not be carried out, each with its own reason and on record: the service trusts
//! agent-svc with nothing but its own requests.

use event::id::{CallId, RunId, SessionId};
use receipt::{Executor, Receipt, Scope};
use serde_json::json;

use super::run::Run;
use super::world::{World, asking_manifest, manifest, open_manifest};
use crate::session::now_secs;

async fn recorded(run: &Run<'_>, reasons: &[&str]) {
    let ledger = &run.world.ledger;
    ledger.wait(|_| ledger.refusals(&run.stream_id()) == reasons).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skipping_the_ask_changing_the_command_and_inventing_a_plan_are_refused() {
    let world = World::new(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "echo ran > ran"]).await;
    let receipt = run.approve(&call);

    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let mut other = run.order(&call, Some(&receipt));
    other.arguments = json!({ "argv": ["sh", "-c", "echo evil > ran"] }).to_string().into_bytes();
    assert_eq!(run.send(other).await.unwrap().end(), "PLAN_ARGUMENTS_CHANGED");
    let mut other = run.order(&call, Some(&receipt));
    other.tool = "import_patch".to_owned();
    assert_eq!(run.send(other).await.unwrap().end(), "PLAN_ARGUMENTS_CHANGED");
    let mut invented = run.order(&call, Some(&receipt));
    invented.plan_digest = event::Digest::of(b"a plan of its own making").as_bytes().to_vec();
    assert_eq!(run.send(invented).await.unwrap().end(), "PLAN_UNKNOWN");
    let mut unplanned = run.order(&call, Some(&receipt));
    unplanned.call.as_mut().unwrap().call_id = CallId::new().to_string();
    assert_eq!(run.send(unplanned).await.unwrap().end(), "PLAN_UNKNOWN");
    assert!(!run.copy().join("ran").exists());
    assert_eq!(world.containers(), Vec::<String>::new());

    assert_eq!(run.execute(&call, Some(&receipt)).await.end(), "exited 0");
    recorded(
        &run,
        &[
            "RECEIPT_REQUIRED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_UNKNOWN",
            "PLAN_UNKNOWN",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_for_anything_else_admits_nothing() {
    let world = World::new(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let good = run.receipt(&call, Scope::Once);
    let wide = Receipt { scope: Scope::Run, ..good.clone() };
    let digest = event::Digest::of(b"x");
    let now = now_secs();
    let cases = [
        (Receipt { iat: now - 90, exp: now - 30, ..good.clone() }, "RECEIPT_EXPIRED"),
        (Receipt { iat: now + 600, exp: now + 900, ..good.clone() }, "RECEIPT_NOT_YET_VALID"),
        (Receipt { audience: Executor::ModelSvc, ..good.clone() }, "RECEIPT_AUDIENCE_MISMATCH"),
        (Receipt { session: SessionId::new(), ..good.clone() }, "RECEIPT_SESSION_MISMATCH"),
        (Receipt { tenant: "other".into(), ..good.clone() }, "RECEIPT_TENANT_MISMATCH"),
        (Receipt { call: CallId::new(), ..good.clone() }, "RECEIPT_CALL_MISMATCH"),
        (Receipt { plan: digest, ..good.clone() }, "RECEIPT_PLAN_MISMATCH"),
        (Receipt { action: digest, ..wide.clone() }, "RECEIPT_ACTION_MISMATCH"),
        (Receipt { run: RunId::new(), ..wide }, "RECEIPT_RUN_MISMATCH"),
        (Receipt { run: RunId::new(), ..good.clone() }, "RECEIPT_RUN_MISMATCH"),
    ];
    for (receipt, reason) in cases {
        assert_eq!(run.execute(&call, Some(&world.sign(&receipt))).await.end(), reason);
    }
    let mut forged = world.sign(&good);
    forged.signature[0] ^= 1;
    assert_eq!(run.execute(&call, Some(&forged)).await.end(), "RECEIPT_SIGNATURE_INVALID");
    let grant = world.sign(&world.grant(run.session, &asking_manifest()));
    assert_eq!(run.execute(&call, Some(&grant)).await.end(), "RECEIPT_SIGNATURE_INVALID");
    let stranger = transport::issue::DevPki::new("test.harness".parse().unwrap()).unwrap();
    let stranger = stranger.receipts("0").unwrap();
    let stranger =
        receipt::Signer::from_pem(stranger.cert_pem.as_bytes(), stranger.key_pem.as_bytes())
            .unwrap();
    let signed = stranger.sign(&good).unwrap();
    assert_eq!(run.execute(&call, Some(&signed)).await.end(), "RECEIPT_SIGNER_UNTRUSTED");
    assert_eq!(run.execute(&call, Some(&world.sign(&good))).await.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_receipts_one_that_does_not_count_takes_nothing_away() {
    let world = World::new(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let good = world.sign(&run.receipt(&call, Scope::Once));
    let bad = world.sign(&Receipt { run: RunId::new(), ..run.receipt(&call, Scope::Once) });
    let bytes = |signed: &[&receipt::Signed]| {
        signed.iter().map(|signed| signed.to_bytes().unwrap()).collect::<Vec<_>>()
    };
    let order = |receipts| {
        let order = run.order(&call, None);
        run.send(proto::sandbox::v1::ExecuteRequest { receipts, ..order })
    };
    let many = vec![&good; receipt::MAX_RECEIPTS + 1];
    for receipts in [bytes(&many), vec![b"{}".to_vec()], vec![Vec::new()]] {
        let fault = order(receipts).await.unwrap_err();
        assert_eq!(fault.reason, "REQUEST_INVALID");
    }
    assert_eq!(order(bytes(&[&bad, &bad])).await.unwrap().end(), "RECEIPT_RUN_MISMATCH");
    assert_eq!(order(bytes(&[&bad, &good, &bad])).await.unwrap().end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_holds_for_one_call_or_for_the_same_action_of_the_run() {
    let world = World::new(&[]).await;
    let run = world.run(&asking_manifest()).await;
    let (first, second) = (run.plan_exec(&["true"]).await, run.plan_exec(&["true"]).await);
    let receipt = run.receipt(&first, Scope::Once);
    assert_eq!(run.execute(&first, Some(&world.sign(&receipt))).await.end(), "exited 0");
    let moved = run.execute(&second, Some(&world.sign(&receipt))).await;
    assert_eq!(moved.end(), "RECEIPT_CALL_MISMATCH");
    // Even a second signature of the same permission is for the call that used it.
    let again = Receipt { permission: receipt.permission, ..run.receipt(&second, Scope::Once) };
    assert_eq!(run.execute(&second, Some(&world.sign(&again))).await.end(), "RECEIPT_CONSUMED");

    let wide = world.sign(&run.receipt(&second, Scope::Run));
    assert_eq!(run.execute(&second, Some(&wide)).await.end(), "exited 0");
    let third = run.plan_exec(&["true"]).await;
    assert_eq!(run.execute(&third, Some(&wide)).await.end(), "exited 0");
    let other = run.plan_exec(&["true", "x"]).await;
    assert_eq!(run.execute(&other, Some(&wide)).await.end(), "RECEIPT_ACTION_MISMATCH");
    let elsewhere = world.run(&asking_manifest()).await;
    let call = elsewhere.plan_exec(&["true"]).await;
    assert_eq!(elsewhere.execute(&call, Some(&wide)).await.end(), "RECEIPT_SESSION_MISMATCH");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_call_finds_its_result_only_by_the_same_request() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "echo x >> count"]).await;
    let told = run.execute(&call, None).await;
    assert_eq!(run.execute(&call, None).await.finished, told.finished);
    let mut other = run.order(&call, None);
    other.arguments = json!({ "argv": ["true"] }).to_string().into_bytes();
    assert_eq!(run.send(other).await.unwrap().end(), "CALL_CONFLICT");
    let theirs = world.run(&open_manifest()).await;
    assert_eq!(theirs.execute(&call, None).await.end(), "CALL_CONFLICT");
    // A higher attempt of a call that is not lost is the same call.
    let mut next = run.order(&call, None);
    next.call.as_mut().unwrap().attempt = 2;
    assert_eq!(run.send(next).await.unwrap().finished, told.finished);
    assert_eq!(std::fs::read_to_string(run.copy().join("count")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_no_longer_holds_is_stale() {
    let world = World::new(&[("a", "x")]).await;
    let run = world.run(&asking_manifest()).await;
    let (first, second) = (
        run.plan_exec(&["sh", "-c", "echo changed > a"]).await,
        run.plan_exec(&["cat", "a"]).await,
    );
    let receipt = run.approve(&second);
    assert_eq!(run.execute(&first, Some(&run.approve(&first))).await.end(), "exited 0");
    assert_eq!(run.execute(&second, Some(&receipt)).await.end(), "PLAN_STALE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_plan_is_refused_with_any_receipt() {
    let world = World::new(&[]).await;
    let run = world.run(&manifest("  process.exec: {'true': deny, '*': allow}\n")).await;
    let call = run.plan_exec(&["true"]).await;
    assert_eq!(call.plan.effect, receipt::Effect::Deny);
    assert_eq!(run.execute(&call, Some(&run.approve(&call))).await.end(), "POLICY_DENIED");
    recorded(&run, &["POLICY_DENIED"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_shown_or_is_too_large_to_show_is_not_planned() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let secret =
        json!({ "argv": ["sh", "-c", "curl -H 'Authorization: Bearer abcdefghijklmnop'"] });
    assert_eq!(run.try_plan("process.exec", &secret).await.unwrap_err(), "PLAN_HOLDS_SECRET");
    let script = "i=0; while [ $i -lt 1800 ]; do mkdir $i; i=$((i+1)); done";
    assert_eq!(run.sh(script).await.end(), "exited 0");
    for tool in ["import_patch", "inspect_patch"] {
        run.plan(tool, json!({})).await;
    }
    let refused = run.try_plan("nope", &json!({})).await;
    assert_eq!(refused.unwrap_err(), "TOOL_UNKNOWN");
    let refused = run.try_plan("process.exec", &json!({ "argv": "ls" })).await;
    assert_eq!(refused.unwrap_err(), "ARGUMENTS_INVALID");
    recorded(&run, &["PLAN_HOLDS_SECRET", "TOOL_UNKNOWN", "ARGUMENTS_INVALID"]).await;
}
