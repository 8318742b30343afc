//! Who said yes: different people of the right roles, none of them the requester, and their own signatures where a rule
//! asks for them. sandbox-svc counts by its own plan and the administrator's own list.

use anyhow::Result;
use e2e::Signatory;
use event::Scope;
use event::id::{PermissionId, ReceiptId, RunId};
use receipt::{Approval, Receipt, Role, Signed, SignedApproval};

use super::Ground;

/// Somebody's answer to the same ask.
fn of(receipt: &Receipt, subject: &str, role: Role) -> Receipt {
    let (subject, roles) = (subject.to_owned(), [role].into());
    Receipt {
        id: ReceiptId::new(),
        permission: PermissionId::new(),
        subject,
        roles,
        ..receipt.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_are_two_and_neither_is_the_requester() -> Result<()> {
    let ground = Ground::prepare().await?;
    let asked = ground.asked("echo two").await?;
    let requester = ground.receipt(&asked, Scope::Once)?;
    let sign = |receipt: &Receipt| ground.impostor.sign(receipt);
    let bob = sign(&of(&requester, "bob", Role::Operator))?;
    let bob_again = sign(&of(&requester, "bob", Role::Admin))?;
    let cy = of(&requester, "cy", Role::Admin);
    let mut forged = sign(&cy)?;
    forged.signature[0] ^= 1;
    let wrong = |change: &dyn Fn(&mut Receipt)| -> Result<Signed> {
        let mut receipt = cy.clone();
        change(&mut receipt);
        sign(&receipt)
    };
    let attempts: Vec<(&str, Vec<Signed>)> = vec![
        ("RECEIPT_REQUIRED", vec![]),
        ("RECEIPT_COUNT_SHORT", vec![bob.clone()]),
        ("RECEIPT_COUNT_SHORT", vec![bob.clone(), bob.clone()]),
        ("RECEIPT_COUNT_SHORT", vec![bob.clone(), bob_again]),
        ("RECEIPT_REQUESTER", vec![sign(&requester)?, bob.clone()]),
        ("RECEIPT_REQUESTER", vec![bob.clone(), sign(&of(&requester, "suite", Role::Admin))?]),
        (
            "RECEIPT_ROLE_MISMATCH",
            vec![bob.clone(), wrong(&|it| it.roles = [Role::Viewer].into())?],
        ),
        ("RECEIPT_ROLE_MISMATCH", vec![bob.clone(), wrong(&|it| it.roles = [].into())?]),
        (
            "RECEIPT_ROLE_MISMATCH",
            vec![bob.clone(), wrong(&|it| it.roles = [Role::Auditor].into())?],
        ),
        ("RECEIPT_SIGNATURE_INVALID", vec![bob.clone(), forged]),
        ("RECEIPT_RUN_MISMATCH", vec![bob.clone(), wrong(&|it| it.run = RunId::new())?]),
        (
            "RECEIPT_TENANT_MISMATCH",
            vec![bob.clone(), wrong(&|it| it.tenant = "another".to_owned())?],
        ),
    ];
    let mut wanted = Vec::new();
    for (reason, receipts) in &attempts {
        let receipts: Vec<&Signed> = receipts.iter().collect();
        assert_eq!(ground.run(&asked, &receipts).await, *reason);
        wanted.push(*reason);
    }
    ground.recorded(&wanted).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    assert_eq!(ground.run(&asked, &[&bob, &sign(&cy)?]).await, "exited 0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_the_persons_own_under_this_very_answer() -> Result<()> {
    let ground = Ground::prepare().await?;
    let asked = ground.asked("echo signed").await?;
    let plain = of(&ground.receipt(&asked, Scope::Once)?, "bob", Role::Admin);
    let [bob, eve] = [Signatory::new("bob")?, Signatory::new("eve")?];
    let unlisted = Signatory::new("bob")?;
    ground
        .admin
        .approvers(&[("bob", bob.public()?, "admin"), ("eve", eve.public()?, "operator")])?;
    let good = bob.approval(&plain);
    let signed = |by: &Signatory, change: &dyn Fn(&mut Approval)| -> Result<Receipt> {
        let mut approval = by.approval(&plain);
        change(&mut approval);
        by.signed(&plain, &approval)
    };
    let elsewhere = ground.asked("echo another").await?;
    let (other_plan, other_action) = (elsewhere.digest(), elsewhere.plan.action_digest()?);
    let attempts: Vec<(&str, Receipt)> = vec![
        ("APPROVAL_SIGNATURE_MISSING", plain.clone()),
        ("APPROVAL_SIGNATURE_INVALID", bent(&bob.signed(&plain, &good)?)?),
        ("APPROVAL_SIGNATURE_INVALID", under_another_key(&eve.signed(&plain, &good)?, &bob)?),
        ("APPROVAL_KEY_UNKNOWN", unlisted.signed(&plain, &good)?),
        (
            "APPROVAL_KEY_UNKNOWN",
            Receipt { subject: "bob".to_owned(), ..eve.signed(&plain, &good)? },
        ),
        (
            "APPROVAL_KEY_UNKNOWN",
            Receipt { subject: "eve".to_owned(), ..bob.signed(&plain, &good)? },
        ),
        ("RECEIPT_ROLE_MISMATCH", signed(&eve, &|_| ())?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.plan = other_plan)?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.action = other_action)?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.scope = Scope::Run)?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.run = RunId::new())?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.permission = PermissionId::new())?),
        ("APPROVAL_MISMATCH", signed(&bob, &|it| it.subject = "eve".to_owned())?),
        ("APPROVAL_EXPIRED", signed(&bob, &|it| (it.iat, it.exp) = (it.iat - 400, it.iat - 100))?),
        ("APPROVAL_EXPIRED", signed(&bob, &|it| (it.iat, it.exp) = (it.iat + 400, it.iat + 900))?),
        // What was signed for once stays for once, whatever the gateway says.
        ("APPROVAL_MISMATCH", Receipt { scope: Scope::Run, ..bob.signed(&plain, &good)? }),
    ];
    let mut wanted = Vec::new();
    for (reason, receipt) in &attempts {
        let told = ground.run(&asked, &[&ground.impostor.sign(receipt)?]).await;
        assert_eq!(told, *reason, "{receipt:?}");
        wanted.push(*reason);
    }
    ground.recorded(&wanted).await?;
    let right = ground.impostor.sign(&bob.signed(&plain, &good)?)?;
    ground.admin.approvers(&[("bob", bob.public()?, "operator")])?;
    assert_eq!(ground.run(&asked, &[&right]).await, "RECEIPT_ROLE_MISMATCH", "not an admin now");
    ground.admin.approvers(&[])?;
    assert_eq!(ground.run(&asked, &[&right]).await, "APPROVAL_KEY_UNKNOWN", "taken off the list");
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    ground.admin.approvers(&[("bob", bob.public()?, "admin")])?;
    assert_eq!(ground.run(&asked, &[&right]).await, "exited 0");
    Ok(())
}

/// The same with another first byte of the signature.
fn bent(receipt: &Receipt) -> Result<Receipt> {
    resigned(
        receipt,
        |signature| {
            let first = if signature.starts_with("00") { "01" } else { "00" };
            format!("{first}{}", &signature[2..])
        },
        None,
    )
}

/// The signature of one person, said to be another's.
fn under_another_key(receipt: &Receipt, by: &Signatory) -> Result<Receipt> {
    let named = by.public()?.id();
    Ok(Receipt { subject: by.subject.clone(), ..resigned(receipt, str::to_owned, Some(named))? })
}

fn resigned(
    receipt: &Receipt,
    signature: impl FnOnce(&str) -> String,
    key: Option<event::Digest>,
) -> Result<Receipt> {
    let Some(approval) = &receipt.approval else { anyhow::bail!("nobody signed") };
    let signature = signature(&approval.signature_text());
    let key = key.unwrap_or_else(|| approval.key_id());
    let approval = SignedApproval::from_text(&approval.payload_text(), &signature, key)?;
    Ok(Receipt { approval: Some(approval), ..receipt.clone() })
}
