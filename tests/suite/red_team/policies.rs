//! What an administrator changes while somebody is asked: the answer was to another plan, and is worth nothing under any
//! combination of ceilings but the one that was shown.

use anyhow::Result;
use event::{Effect, Scope};
use receipt::Receipt;

use super::Ground;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_under_other_ceilings_is_an_answer_to_another_plan() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { admin, impostor, .. } = &ground;
    let first = ground.asked("echo ceiling").await?;
    let answer = ground.signed(&first, |_| ())?;
    let second = ground.asked("echo ceiling").await?;
    let standing = impostor.sign(&ground.receipt(&second, Scope::Run)?)?;

    admin.ceiling("permissions: {process.exec: ask}")?;
    assert_eq!(ground.run(&first, &[&answer]).await, "PLAN_STALE");
    assert_eq!(ground.run(&second, &[&standing]).await, "PLAN_STALE");
    let third = ground.asked("echo ceiling").await?;
    assert_eq!(ground.run(&third, &[&standing]).await, "RECEIPT_ACTION_MISMATCH");

    // Two files that together ask for the same are not the one file that did.
    admin.ceiling("")?;
    admin.tenant("default", "permissions: {process.exec: ask}")?;
    let fourth = ground.asked("echo ceiling").await?;
    assert_eq!(ground.run(&fourth, &[&standing]).await, "RECEIPT_ACTION_MISMATCH");
    let again = ground.signed(&third, |_| ())?;
    assert_eq!(ground.run(&third, &[&again]).await, "PLAN_STALE");

    // Somebody has to answer who did not have to before.
    admin.tenant("default", "permissions: {process.exec: ask}\napprovers: {not: requester}")?;
    let fifth = ground.asked("echo ceiling").await?;
    assert_eq!(ground.run(&fifth, &[&ground.signed(&fifth, |_| ())?]).await, "RECEIPT_REQUESTER");

    admin.tenant("default", "hard_deny: {process.exec: ['echo**']}")?;
    let late = ground.signed(&fifth, |it| it.subject = "bob".to_owned())?;
    assert_eq!(ground.run(&fifth, &[&late]).await, "POLICY_DENIED");
    let denied = ground.asked("echo ceiling").await?;
    assert_eq!(denied.plan.effect, Effect::Deny);
    let any = ground.signed(&denied, |it| it.subject = "bob".to_owned())?;
    assert_eq!(ground.run(&denied, &[&any]).await, "POLICY_DENIED");
    ground
        .recorded(&[
            "PLAN_STALE",
            "PLAN_STALE",
            "RECEIPT_ACTION_MISMATCH",
            "RECEIPT_ACTION_MISMATCH",
            "PLAN_STALE",
            "RECEIPT_REQUESTER",
            "POLICY_DENIED",
            "POLICY_DENIED",
        ])
        .await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_met_a_changed_world_is_used_up() -> Result<()> {
    let ground = Ground::prepare().await?;
    let asked = ground.asked("echo once more").await?;
    let receipt = ground.receipt(&asked, Scope::Once)?;
    let answer = ground.impostor.sign(&receipt)?;
    ground.admin.ceiling("permissions: {process.exec: ask}")?;
    assert_eq!(ground.run(&asked, &[&answer]).await, "PLAN_STALE");
    // The world changes back, and the plan would hold again.
    ground.admin.ceiling("")?;
    assert_eq!(ground.run(&asked, &[&answer]).await, "RECEIPT_CONSUMED");
    let renamed = Receipt { id: event::id::ReceiptId::new(), ..receipt };
    let renamed = ground.impostor.sign(&renamed)?;
    assert_eq!(ground.run(&asked, &[&renamed]).await, "RECEIPT_CONSUMED");
    ground.recorded(&["PLAN_STALE", "RECEIPT_CONSUMED", "RECEIPT_CONSUMED"]).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_that_breaks_or_vanishes_stays_in_force() -> Result<()> {
    let ground = Ground::prepare().await?;
    let deny = "permissions: {process.exec: {'sh -c **': deny, '**': ask}}";
    ground.admin.ceiling(deny)?;
    let asked = ground.asked("echo ceiling").await?;
    assert_eq!(asked.plan.effect, Effect::Deny);
    let mut wanted = Vec::new();
    for broken in ["permissions: {process.exec: perhaps}", "unknown: 1", "permissions: ["] {
        ground.admin.ceiling(broken)?;
        let asked = ground.asked("echo ceiling").await?;
        let told = ground.run(&asked, &[&ground.signed(&asked, |_| ())?]).await;
        assert_eq!(told, "POLICY_DENIED", "{broken}");
        wanted.push("POLICY_DENIED");
    }
    std::fs::remove_file(ground.admin.path("ceiling.yaml"))?;
    let asked = ground.asked("echo ceiling").await?;
    assert_eq!(ground.run(&asked, &[&ground.signed(&asked, |_| ())?]).await, "POLICY_DENIED");
    wanted.push("POLICY_DENIED");
    ground.recorded(&wanted).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}
