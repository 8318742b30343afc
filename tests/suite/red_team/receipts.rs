//! One receipt about anything but this very call, plan, session, run, tenant, time and executor admits nothing.

use anyhow::Result;
use event::id::{CallId, RunId, SessionId};
use event::{Digest, Executor, Scope};
use receipt::{Payload as _, Receipt, Role, Signed};
use serde_json::json;

use super::{Ground, TOOL, argv, ending};

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_ask_a_changed_request_and_a_plan_of_ones_own_run_nothing() -> Result<()> {
    let ground = Ground::prepare().await?;
    let impostor = &ground.impostor;
    let asked = ground.asked("echo approved").await?;
    let digest = asked.digest();
    let right = ground.signed(&asked, |_| ())?;
    assert_eq!(ground.run(&asked, &[]).await, "RECEIPT_REQUIRED");
    let own = Digest::of(b"a plan of my own");
    let same = argv("echo approved");
    for (call, tool, arguments, plan, wanted) in [
        (asked.call, TOOL, argv("echo something else"), digest, "PLAN_ARGUMENTS_CHANGED"),
        (
            asked.call,
            TOOL,
            json!({"argv": ["sh", "-c", "echo approved", ""]}),
            digest,
            "PLAN_ARGUMENTS_CHANGED",
        ),
        (
            asked.call,
            TOOL,
            json!({"argv": ["sh", "-c", "echo approved"], "timeoutSeconds": 1}),
            digest,
            "PLAN_ARGUMENTS_CHANGED",
        ),
        (asked.call, "import_patch", json!({}), digest, "PLAN_ARGUMENTS_CHANGED"),
        (asked.call, TOOL, same.clone(), own, "PLAN_UNKNOWN"),
        (CallId::new(), TOOL, same.clone(), digest, "PLAN_UNKNOWN"),
    ] {
        let outcome = impostor.execute(call, tool, &arguments, plan, Some(&right)).await;
        assert_eq!(ending(outcome), wanted, "{arguments}");
    }
    ground
        .recorded(&[
            "RECEIPT_REQUIRED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_ARGUMENTS_CHANGED",
            "PLAN_UNKNOWN",
            "PLAN_UNKNOWN",
        ])
        .await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");

    // The answer as it was given does run, once; the same call again finds its own result.
    assert_eq!(ground.run(&asked, &[&right]).await, "exited 0");
    assert_eq!(ground.run(&asked, &[&right]).await, "exited 0");
    assert_eq!(ground.effects().await?, 1);
    Ok(())
}

/// A receipt that is wrong in one thing, and the reason.
type Wrong = (&'static str, fn(&mut Receipt));

const WRONG: [Wrong; 11] = [
    ("RECEIPT_EXPIRED", |it| (it.iat, it.exp) = (it.iat - 200, it.iat - 100)),
    ("RECEIPT_NOT_YET_VALID", |it| (it.iat, it.exp) = (it.iat + 900, it.iat + 1800)),
    ("RECEIPT_AUDIENCE_MISMATCH", |it| it.audience = Executor::ModelSvc),
    ("RECEIPT_SESSION_MISMATCH", |it| it.session = SessionId::new()),
    ("RECEIPT_TENANT_MISMATCH", |it| it.tenant = "another".to_owned()),
    ("RECEIPT_CALL_MISMATCH", |it| it.call = CallId::new()),
    ("RECEIPT_PLAN_MISMATCH", |it| it.plan = Digest::of(b"another")),
    ("RECEIPT_ACTION_MISMATCH", |it| it.action = Digest::of(b"another")),
    ("RECEIPT_ACTION_MISMATCH", |it| {
        (it.scope, it.action) = (Scope::Run, Digest::of(b"another"));
    }),
    ("RECEIPT_RUN_MISMATCH", |it| it.run = RunId::new()),
    ("RECEIPT_RUN_MISMATCH", |it| (it.scope, it.run) = (Scope::Run, RunId::new())),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_is_wrong_in_one_thing_is_refused_for_that_thing() -> Result<()> {
    let ground = Ground::prepare().await?;
    let asked = ground.asked("echo approved").await?;
    let mut wanted = Vec::new();
    for (reason, change) in WRONG {
        let receipt = ground.signed(&asked, change)?;
        assert_eq!(ground.run(&asked, &[&receipt]).await, reason);
        wanted.push(reason);
    }
    ground.recorded(&wanted).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}

/// What somebody would widen who holds a right receipt and no key.
const WIDENED: [fn(&mut Receipt); 8] = [
    |it| it.scope = Scope::Run,
    |it| it.plan = Digest::of(b"another"),
    |it| it.action = Digest::of(b"another"),
    |it| it.roles = [Role::Operator, Role::Admin].into(),
    |it| it.subject = "somebody".to_owned(),
    |it| it.exp += 3_600,
    |it| it.run = RunId::new(),
    |it| it.tenant = "another".to_owned(),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_is_widened_after_it_was_signed_is_forged() -> Result<()> {
    let ground = Ground::prepare().await?;
    let asked = ground.asked("echo approved").await?;
    let receipt = ground.receipt(&asked, Scope::Once)?;
    let right = ground.impostor.sign(&receipt)?;
    let mut forged = Vec::new();
    for widen in WIDENED {
        let mut wider = receipt.clone();
        widen(&mut wider);
        forged.push(Signed { payload: wider.to_bytes()?, ..right.clone() });
    }
    let mut bent = right.clone();
    bent.signature[0] ^= 1;
    forged.push(bent);
    forged.push(Signed { signature: Vec::new(), ..right.clone() });
    // Other things that a gateway signs are no receipts.
    forged.push(ground.impostor.sign(&ground.impostor.grant())?);
    for signed in &forged {
        assert_eq!(ground.run(&asked, &[signed]).await, "RECEIPT_SIGNATURE_INVALID");
    }

    let text = |change: &dyn Fn(&mut serde_json::Value)| -> Result<Signed> {
        let mut value = serde_json::to_value(&receipt)?;
        change(&mut value);
        ground.impostor.hand.sign_bytes(Receipt::DOMAIN, event::canon::to_bytes(&value)?)
    };
    let spaced = [receipt.to_bytes()?, b" ".to_vec()].concat();
    let malformed = [
        text(&|it| it["exp"] = json!(receipt.iat + 13 * 3_600))?,
        text(&|it| it["exp"] = json!(receipt.iat))?,
        text(&|it| it["count"] = json!(2))?,
        text(&|it| it["scope"] = json!("always"))?,
        text(&|it| it["roles"] = json!(["owner"]))?,
        ground.impostor.hand.sign_bytes(Receipt::DOMAIN, spaced)?,
    ];
    for signed in &malformed {
        assert_eq!(ground.run(&asked, &[signed]).await, "RECEIPT_PAYLOAD_MALFORMED");
    }
    let wanted = [
        vec!["RECEIPT_SIGNATURE_INVALID"; forged.len()],
        vec!["RECEIPT_PAYLOAD_MALFORMED"; malformed.len()],
    ];
    ground.recorded(&wanted.concat()).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    Ok(())
}
