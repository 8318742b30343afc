//! Who may use a session at all: the grant's holder under the highest fence, and nobody with an older claim or a grant of
//! their own making.

use anyhow::Result;
use e2e::{Impostor, Rig};
use event::id::{CallId, SessionId};
use event::{Digest, Scope};
use receipt::{Grant, Payload as _, Signed};

use super::{Ground, TOOL, argv, asked, ending, reason, refusals, run};

/// A grant that is wrong in one thing, and the reason.
type Wrong = (&'static str, fn(&mut Grant));

const WRONG: [Wrong; 5] = [
    ("GRANT_SESSION_MISMATCH", |it| it.session = SessionId::new()),
    ("MANIFEST_MISMATCH", |it| it.manifest = Digest::of(b"another")),
    ("WORKSPACE_UNKNOWN", |it| it.workspace = "elsewhere".to_owned()),
    ("GRANT_EXPIRED", |it| (it.iat, it.exp) = (it.iat - 200, it.iat - 100)),
    ("GRANT_NOT_YET_VALID", |it| (it.iat, it.exp) = (it.iat + 900, it.iat + 1_800)),
];

/// What a renewal would change besides its times.
const WIDER: [fn(&mut Grant); 4] = [
    |it| it.subject = "somebody".to_owned(),
    |it| it.tenant = "another".to_owned(),
    |it| it.models.push("larger".to_owned()),
    |it| it.on_disconnect = receipt::OnDisconnect::Deny,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_wrong_in_one_thing_opens_nothing() -> Result<()> {
    let ground = Ground::prepare().await?;
    let fresh = Impostor::enter(&ground.rig, "red-team")?;
    let mut wanted = Vec::new();
    for (reason_wanted, change) in WRONG {
        let mut grant = fresh.grant();
        change(&mut grant);
        assert_eq!(reason(fresh.fence_with(&fresh.sign(&grant)?).await), reason_wanted);
        wanted.push(reason_wanted);
    }
    let right = fresh.sign(&fresh.grant())?;
    let widened = Grant { tenant: "another".to_owned(), ..fresh.grant() }.to_bytes()?;
    let asked = ground.asked("echo approved").await?;
    for forged in [
        Signed { payload: widened, ..right.clone() },
        Signed { signature: vec![0; 64], ..right },
        // A receipt is no grant, though the same hand signs both.
        ground.impostor.sign(&ground.receipt(&asked, Scope::Run)?)?,
    ] {
        assert_eq!(reason(fresh.fence_with(&forged).await), "GRANT_SIGNATURE_INVALID");
        wanted.push("GRANT_SIGNATURE_INVALID");
    }
    let forever = Grant { exp: fresh.grant().iat + 13 * 3_600, ..fresh.grant() };
    let forever = event::canon::to_bytes(&serde_json::to_value(&forever)?)?;
    let forever = fresh.hand.sign_bytes(Grant::DOMAIN, forever)?;
    assert_eq!(reason(fresh.fence_with(&forever).await), "GRANT_PAYLOAD_MALFORMED");
    wanted.push("GRANT_PAYLOAD_MALFORMED");
    let rules = String::from_utf8(fresh.manifest.clone())?.replace("ask", "allow").into_bytes();
    let rewritten = Impostor { manifest: rules, ..fresh.clone() };
    let renamed = [fresh.manifest.as_slice(), b"\n"].concat();
    let renamed =
        Impostor { manifest: renamed, manifest_id: "another".to_owned(), ..fresh.clone() };
    assert_eq!(reason(renamed.fence().await), "MANIFEST_MISMATCH", "it says another id");
    wanted.push("MANIFEST_MISMATCH");
    // The ground's own session had it read before, under the name that it says.
    let misnamed = Impostor { manifest_id: "another".to_owned(), ..fresh.clone() };
    assert_eq!(reason(misnamed.fence().await), "MANIFEST_MISMATCH", "known by another id");
    wanted.push("MANIFEST_MISMATCH");
    let grant = fresh.sign(&fresh.grant())?;
    assert_eq!(reason(rewritten.fence_with(&grant).await), "MANIFEST_MISMATCH");
    wanted.push("MANIFEST_MISMATCH");
    assert_eq!(reason(fresh.open().await), "SESSION_UNKNOWN");
    wanted.push("SESSION_UNKNOWN");
    // What is not proven to be about a session stands in the stream of the nil session.
    refusals(&ground.rig, "sandbox-svc", SessionId::nil(), &wanted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_changes_times_and_nothing_else() -> Result<()> {
    let ground = Ground::prepare().await?;
    let impostor = &ground.impostor;
    for widen in WIDER {
        let mut grant = impostor.grant();
        widen(&mut grant);
        let told = reason(impostor.fence_with(&impostor.sign(&grant)?).await);
        assert_eq!(told, "GRANT_CHANGED");
    }
    impostor.fence().await?;
    let wanted = ["GRANT_CHANGED"; WIDER.len()];
    refusals(&ground.rig, "sandbox-svc", SessionId::nil(), &wanted).await
}

/// Everything that an owner can ask for, by an owner who is none.
async fn every_request(
    stale: &Impostor,
    planned: &super::Asked,
    signed: &Signed,
) -> Result<Vec<String>> {
    let arguments = argv("echo late");
    let plan = stale.plan(CallId::new(), TOOL, &arguments).await;
    let plan = plan.err().and_then(|error| error.downcast::<transport::Fault>().ok());
    Ok(vec![
        plan.map_or_else(|| "accepted".to_owned(), |fault| fault.reason),
        run(stale, planned, &[signed]).await,
        reason(stale.open().await),
        reason(stale.revoke(stale.run, event::id::ReceiptId::new()).await),
        reason(stale.close().await),
        reason(stale.fence().await),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_fence_is_served_nothing_and_does_not_get_it_back() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor, .. } = &ground;
    let planned = ground.asked("echo late").await?;
    let signed = ground.signed(&planned, |_| ())?;
    let successor = Impostor { epoch: 5, node: "successor".to_owned(), ..impostor.clone() };
    // An epoch that nobody fenced is nobody's.
    assert_eq!(run(&successor, &planned, &[&signed]).await, "FENCE_STALE");
    successor.fence().await?;
    let stale = [
        impostor.clone(),
        Impostor { epoch: 4, ..successor.clone() },
        Impostor { epoch: 5, ..impostor.clone() },
    ];
    for owner in &stale {
        let told = every_request(owner, &planned, &signed).await?;
        assert_eq!(told, ["FENCE_STALE"; 6], "{} {}", owner.node, owner.epoch);
    }
    let unproven = Impostor { epoch: 9, ..successor.clone() };
    assert_eq!(reason(unproven.open().await), "FENCE_STALE", "a fence is raised by a grant only");
    refusals(rig, "sandbox-svc", SessionId::nil(), &["FENCE_STALE"; 20]).await?;
    assert_eq!(ground.effects().await?, 0, "nothing ran");
    assert_eq!(
        run(&successor, &planned, &[&signed]).await,
        "exited 0",
        "the run is the successor's"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_grant_serves_nothing_and_its_receipts_neither() -> Result<()> {
    let ground = Ground::prepare().await?;
    let impostor = Impostor::enter(&ground.rig, "red-team")?;
    let grant = Grant { exp: impostor.grant().iat + 4, ..impostor.grant() };
    impostor.fence_with(&impostor.sign(&grant)?).await?;
    impostor.open().await?;
    let planned = asked(&impostor, TOOL, argv("echo late")).await?;
    let receipt = impostor.receipt(&planned.plan, &planned.bytes, Scope::Once)?;
    let signed = impostor.sign(&receipt)?;
    expired(&impostor).await;
    let arguments = argv("echo late");
    let outcome =
        impostor.execute(planned.call, TOOL, &arguments, planned.digest(), Some(&signed)).await;
    assert_eq!(ending(outcome), "GRANT_EXPIRED");
    assert_eq!(reason(impostor.open().await), "GRANT_EXPIRED");
    // The question that found out that it had expired is on record as well.
    let wanted = ["GRANT_EXPIRED"; 3];
    refusals(&ground.rig, "sandbox-svc", impostor.session, &wanted).await?;
    assert_eq!(super::effects(&ground.rig, "sandbox-svc", impostor.session).await?, 0);
    Ok(())
}

/// Until plans are refused.
async fn expired(impostor: &Impostor) {
    e2e::until("the grant's end", || async {
        let refused = e2e::Asked::Refused("GRANT_EXPIRED".to_owned());
        let planned = impostor.plan(CallId::new(), TOOL, &argv("echo late")).await;
        planned.ok().filter(|planned| *planned == refused)
    })
    .await;
}

/// Declarations that reach further than a task may are refused before the engine is asked: it would say that it has no
/// such image.
#[tokio::test(flavor = "multi_thread")]
async fn a_signed_manifest_is_compiled_all_the_same() -> Result<()> {
    let ground = Ground::prepare().await?;
    let mut wanted = Vec::new();
    for path in ["/", "/etc/**", "../x/**", "src/**,ro", "a\\nb", "", "a/../b"] {
        assert_eq!(
            reason(granted(&ground.rig, path, "snapshot")?.fence().await),
            "MANIFEST_INVALID",
            "{path}"
        );
        wanted.push("MANIFEST_INVALID");
    }
    for (path, mode, told) in [
        ("**", "mount", "MANIFEST_INVALID"),
        ("link/**", "mount", "WORKSPACE_OF_ROOT"),
        ("**", "snapshot", "IMAGE_UNKNOWN"),
    ] {
        assert_eq!(reason(granted(&ground.rig, path, mode)?.fence().await), told, "{path} {mode}");
        wanted.push(told);
    }
    refusals(&ground.rig, "sandbox-svc", SessionId::nil(), &wanted).await
}

/// A session whose manifest has this for its `allowed_paths`, signed for as it is.
fn granted(rig: &Rig, path: &str, mode: &str) -> Result<Impostor> {
    let impostor = Impostor::enter(rig, "red-team")?;
    let mut manifest: serde_json::Value = serde_json::from_slice(&impostor.manifest)?;
    manifest["allowed_paths"] = serde_json::json!([path]);
    manifest["execution"]["image"] = serde_json::json!("nobody/has-this:1");
    manifest["execution"]["mode"] = serde_json::json!(mode);
    Ok(Impostor { manifest: manifest.to_string().into_bytes(), ..impostor })
}
