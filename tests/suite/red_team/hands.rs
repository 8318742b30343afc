//! Whoever is not a gateway of this mesh signs neither grants nor receipts, however good the signature is; a gateway that
//! is on the deny list is none any more.

use anyhow::Result;
use e2e::{Hand, until};
use event::Scope;
use event::id::SessionId;
use transport::Service;

use super::{Ground, reason, refusals};

#[tokio::test(flavor = "multi_thread")]
async fn only_a_gateways_own_receipt_key_signs_receipts_and_grants() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor, .. } = &ground;
    let asked = ground.asked("echo approved").await?;
    let receipt = ground.receipt(&asked, Scope::Once)?;
    let hands = Hand::untrusted(rig)?;
    let (mut on_receipts, mut on_grants) = (Vec::new(), Vec::new());
    for (who, hand) in &hands {
        let told = ground.run(&asked, &[&hand.sign(&receipt)?]).await;
        assert_eq!(told, "RECEIPT_SIGNER_UNTRUSTED", "{who}");
        on_receipts.push("RECEIPT_SIGNER_UNTRUSTED");
        let told = reason(impostor.fence_with(&hand.sign(&impostor.grant())?).await);
        assert_eq!(told, "GRANT_SIGNER_UNTRUSTED", "{who}");
        on_grants.push("GRANT_SIGNER_UNTRUSTED");
    }
    // A gateway's certificate is no secret; it comes with each receipt.
    let (_, stranger) = &hands[2];
    let borrowed = stranger.with_the_certificate_of(&impostor.hand);
    let told = ground.run(&asked, &[&borrowed.sign(&receipt)?]).await;
    assert_eq!(told, "RECEIPT_SIGNATURE_INVALID");
    on_receipts.push("RECEIPT_SIGNATURE_INVALID");
    let told = reason(impostor.fence_with(&borrowed.sign(&impostor.grant())?).await);
    assert_eq!(told, "GRANT_SIGNATURE_INVALID");
    on_grants.push("GRANT_SIGNATURE_INVALID");

    ground.recorded(&on_receipts).await?;
    refusals(rig, "sandbox-svc", SessionId::nil(), &on_grants).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_gateway_signed_before_it_was_banned_holds_no_longer() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor, .. } = &ground;
    let asked = ground.asked("echo approved").await?;
    let banned = Hand::gateway(rig, "banned")?;
    let receipt = banned.sign(&ground.receipt(&asked, Scope::Once)?)?;
    let grant = banned.sign(&impostor.grant())?;
    let name = format!("spiffe://{}/receipts/gateway/banned\n", rig.store()?.domain());
    std::fs::write(rig.mesh.layout().tls(Service::SandboxSvc).join("denylist"), name)?;
    until("the ban", || async {
        (reason(impostor.fence_with(&grant).await) == "GRANT_SIGNER_DENIED").then_some(())
    })
    .await;
    assert_eq!(ground.run(&asked, &[&receipt]).await, "RECEIPT_SIGNER_DENIED");
    ground.recorded(&["RECEIPT_SIGNER_DENIED"]).await?;
    refusals(rig, "sandbox-svc", SessionId::nil(), &["GRANT_SIGNER_DENIED"]).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    // Another gateway's still holds.
    let other = ground.signed(&asked, |_| ())?;
    assert_eq!(ground.run(&asked, &[&other]).await, "exited 0");
    Ok(())
}
