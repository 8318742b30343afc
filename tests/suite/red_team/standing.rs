//! What was allowed once or for a run stays that: it covers no other call, action, run or session, is not used twice, and
//! ends when it is taken back.

use anyhow::Result;
use e2e::Impostor;
use event::Scope;
use event::id::{PermissionId, RunId};
use receipt::Receipt;
use serde_json::json;

use super::{Ground, TOOL, argv, asked, effects, ending, reason, refusals, run};

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_for_once_is_used_once_and_one_for_the_run_covers_its_action_only() -> Result<()> {
    let ground = Ground::prepare().await?;
    let sign = |receipt: &Receipt| ground.impostor.sign(receipt);
    let first = ground.asked("echo again").await?;
    let once = ground.receipt(&first, Scope::Once)?;
    assert_eq!(ground.run(&first, &[&sign(&once)?]).await, "exited 0");

    let second = ground.asked("echo again").await?;
    assert_eq!(ground.run(&second, &[&sign(&once)?]).await, "RECEIPT_CALL_MISMATCH");
    // A second signature under the same answer is the same answer.
    let again = Receipt { permission: once.permission, ..ground.receipt(&second, Scope::Once)? };
    assert_eq!(ground.run(&second, &[&sign(&again)?]).await, "RECEIPT_CONSUMED");

    let standing = ground.receipt(&second, Scope::Run)?;
    let wide = sign(&standing)?;
    assert_eq!(ground.run(&second, &[&wide]).await, "exited 0");
    let third = ground.asked("echo again").await?;
    assert_eq!(ground.run(&third, &[&wide]).await, "exited 0");
    let other = ground.asked("echo again; echo more").await?;
    assert_eq!(ground.run(&other, &[&wide]).await, "RECEIPT_ACTION_MISMATCH");
    let denied = ground.asked("echo denied").await?;
    let any = sign(&ground.receipt(&denied, Scope::Once)?)?;
    assert_eq!(ground.run(&denied, &[&any]).await, "POLICY_DENIED");

    // Another run of the session, with a copy of its own.
    let elsewhere = Impostor { run: RunId::new(), ..ground.impostor.clone() };
    elsewhere.open().await?;
    let there = asked(&elsewhere, TOOL, argv("echo again")).await?;
    assert_eq!(run(&elsewhere, &there, &[&wide]).await, "RECEIPT_RUN_MISMATCH");
    assert_eq!(run(&ground.impostor, &there, &[&wide]).await, "PLAN_UNKNOWN");

    ground.impostor.revoke(ground.impostor.run, standing.id).await?;
    let fourth = ground.asked("echo again").await?;
    assert_eq!(ground.run(&fourth, &[&wide]).await, "RECEIPT_REVOKED");
    // Signed anew with another permission it is still the receipt that was taken back.
    let renewed = sign(&Receipt { permission: PermissionId::new(), ..standing })?;
    assert_eq!(ground.run(&fourth, &[&renewed]).await, "RECEIPT_REVOKED");
    ground
        .recorded(&[
            "RECEIPT_CALL_MISMATCH",
            "RECEIPT_CONSUMED",
            "RECEIPT_ACTION_MISMATCH",
            "POLICY_DENIED",
            "RECEIPT_RUN_MISMATCH",
            "PLAN_UNKNOWN",
            "RECEIPT_REVOKED",
            "RECEIPT_REVOKED",
        ])
        .await?;
    assert_eq!(ground.effects().await?, 3, "what was allowed, and nothing else");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_offers_once_takes_no_allow_for_the_run() -> Result<()> {
    let ground = Ground::prepare().await?;
    let change = ground.asked("echo mine > app.txt").await?;
    let allowed = ground.signed(&change, |_| ())?;
    assert_eq!(ground.run(&change, &[&allowed]).await, "exited 0");
    let import = asked(&ground.impostor, "import_patch", json!({})).await?;
    assert_eq!(import.plan.scopes, [Scope::Once]);
    let wide = ground.signed(&import, |it| it.scope = Scope::Run)?;
    assert_eq!(ground.run(&import, &[&wide]).await, "RECEIPT_SCOPE_MISMATCH");
    assert_eq!(ground.run(&import, &[&allowed]).await, "RECEIPT_CALL_MISMATCH");
    ground.recorded(&["RECEIPT_SCOPE_MISMATCH", "RECEIPT_CALL_MISMATCH"]).await?;
    assert_eq!(std::fs::read(ground.rig.workspace.join("app.txt"))?, b"broken\n");
    assert_eq!(ground.effects().await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_one_session_serves_another() -> Result<()> {
    let ground = Ground::prepare().await?;
    let mine = ground.asked("echo mine").await?;
    let receipt = ground.receipt(&mine, Scope::Run)?;
    let signed = ground.impostor.sign(&receipt)?;

    let other = Impostor::enter(&ground.rig, "red-team")?;
    other.fence().await?;
    other.open().await?;
    let theirs = asked(&other, TOOL, argv("echo mine")).await?;
    assert_eq!(run(&other, &theirs, &[&signed]).await, "RECEIPT_SESSION_MISMATCH");
    assert_eq!(run(&other, &mine, &[&signed]).await, "PLAN_UNKNOWN");
    // With the other session's run, which it does not have.
    let inside = Impostor { run: ground.impostor.run, ..other.clone() };
    assert_eq!(run(&inside, &mine, &[&signed]).await, "PLAN_UNKNOWN");
    assert_eq!(reason(inside.open().await), "RUN_UNKNOWN");
    let planned = inside.plan(event::id::CallId::new(), TOOL, &argv("echo mine")).await?;
    assert_eq!(planned, e2e::Asked::Refused("ENVIRONMENT_UNKNOWN".to_owned()));
    let taken = other.plan(mine.call, TOOL, &argv("echo yours")).await?;
    assert_eq!(taken, e2e::Asked::Refused("CALL_CONFLICT".to_owned()));
    let wanted = [
        "RECEIPT_SESSION_MISMATCH",
        "PLAN_UNKNOWN",
        "PLAN_UNKNOWN",
        "RUN_UNKNOWN",
        "ENVIRONMENT_UNKNOWN",
        "CALL_CONFLICT",
    ];
    refusals(&ground.rig, "sandbox-svc", other.session, &wanted).await?;
    // Nor does it take anything back or end anything there.
    assert_eq!(reason(inside.revoke(inside.run, receipt.id).await), "RUN_UNKNOWN");
    assert_eq!(reason(inside.close().await), "RUN_UNKNOWN");
    assert_eq!(effects(&ground.rig, "sandbox-svc", other.session).await?, 0, "nothing ran");

    let (tool, digest) = (mine.tool, mine.digest());
    let outcome =
        ground.impostor.execute(mine.call, tool, &mine.arguments, digest, Some(&signed)).await;
    assert_eq!(ending(outcome), "exited 0", "what was approved still runs");
    Ok(())
}
