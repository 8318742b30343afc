//! sandbox-svc against agent-svc's own certificate: whatever a taken-over agent-svc tries, it is refused with a reason
//! of its own, and each refusal is in sandbox-svc's stream.

use anyhow::{Context as _, Result};
use e2e::{Asked, Books, Impostor, Outcome, Rig, Spec, Turn, manifest, until};
use event::id::{CallId, SessionId};
use event::{Digest, Scope};
use harness::pki::Subject;
use receipt::{Payload as _, Receipt, Signed};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use transport::{Fault, Service};

const TOOL: &str = "process.exec";

fn argv(text: &str) -> Value {
    json!({"argv": ["sh", "-c", text]})
}

struct Ground {
    rig: Rig,
    impostor: Impostor,
}

impl Ground {
    async fn prepare() -> Result<Self> {
        let rig = Rig::start(Spec::new(manifest("red-team"), vec![Turn::Say("nothing")])).await?;
        let impostor = Impostor::enter(&rig, "red-team")?;
        impostor.fence().await?;
        impostor.open().await?;
        Ok(Self { rig, impostor })
    }

    /// The reasons of the refusals that sandbox-svc recorded about this session, once there are so many: a refusal
    /// is answered before the ledger has acknowledged it.
    async fn refusals(&self, count: usize) -> Result<Vec<String>> {
        let books = Books::open(&self.rig)?;
        let lines = until("the refusals", || async {
            let lines = books.stream("sandbox-svc", self.impostor.session).await.ok()?;
            let refused: Vec<_> =
                lines.into_iter().filter(|line| line.kind == "call.refused").collect();
            (refused.len() >= count).then_some(refused)
        })
        .await;
        lines
            .iter()
            .map(|line| Ok(line.data["reason"].as_str().context("a reason")?.to_owned()))
            .collect()
    }

    async fn effects(&self) -> Result<usize> {
        let lines = Books::open(&self.rig)?.stream("sandbox-svc", self.impostor.session).await?;
        Ok(lines.iter().filter(|line| line.kind == "call.started").count())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_without_the_very_answer_to_the_very_plan() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor } = &ground;
    let arguments = argv("echo approved");
    let call = CallId::new();
    let (plan, bytes) = impostor.planned(call, TOOL, &arguments).await?;
    let digest = receipt::plan_digest(&bytes);
    let good = impostor.receipt(&plan, &bytes, Scope::Once)?;
    let sign = |change: &dyn Fn(&mut Receipt)| -> Result<Signed> {
        let mut receipt = good.clone();
        change(&mut receipt);
        impostor.sign(&receipt)
    };

    let other = CallId::new();
    let (_, other_bytes) = impostor.planned(other, TOOL, &arguments).await?;
    let other_digest = receipt::plan_digest(&other_bytes);
    let mut forged = sign(&|_| ())?;
    forged.signature[0] ^= 1;
    let by_a_service = by_a_tls_certificate(rig, &good)?;

    let attempts: Vec<(&str, Option<Signed>, CallId, Value, Digest)> = vec![
        ("RECEIPT_REQUIRED", None, call, arguments.clone(), digest),
        ("PLAN_ARGUMENTS_CHANGED", Some(sign(&|_| ())?), call, argv("echo something else"), digest),
        (
            "PLAN_UNKNOWN",
            Some(sign(&|_| ())?),
            call,
            arguments.clone(),
            Digest::of(b"a plan of my own"),
        ),
        ("PLAN_UNKNOWN", Some(sign(&|_| ())?), CallId::new(), arguments.clone(), digest),
        ("RECEIPT_SIGNATURE_INVALID", Some(forged), call, arguments.clone(), digest),
        ("RECEIPT_SIGNER_UNTRUSTED", Some(by_a_service), call, arguments.clone(), digest),
        (
            "RECEIPT_EXPIRED",
            Some(sign(&|r| (r.iat, r.exp) = (r.iat - 200, r.iat - 100))?),
            call,
            arguments.clone(),
            digest,
        ),
        (
            "RECEIPT_NOT_YET_VALID",
            Some(sign(&|r| (r.iat, r.exp) = (r.iat + 900, r.iat + 1800))?),
            call,
            arguments.clone(),
            digest,
        ),
        (
            "RECEIPT_AUDIENCE_MISMATCH",
            Some(sign(&|r| r.audience = event::Executor::ModelSvc)?),
            call,
            arguments.clone(),
            digest,
        ),
        (
            "RECEIPT_SESSION_MISMATCH",
            Some(sign(&|r| r.session = SessionId::new())?),
            call,
            arguments.clone(),
            digest,
        ),
        (
            "RECEIPT_TENANT_MISMATCH",
            Some(sign(&|r| r.tenant = "another".to_owned())?),
            call,
            arguments.clone(),
            digest,
        ),
        ("RECEIPT_CALL_MISMATCH", Some(sign(&|_| ())?), other, arguments.clone(), other_digest),
        (
            "RECEIPT_PLAN_MISMATCH",
            Some(sign(&|r| r.plan = other_digest)?),
            call,
            arguments.clone(),
            digest,
        ),
    ];
    let mut wanted = Vec::new();
    for (reason, receipt, call, arguments, digest) in attempts {
        let outcome = impostor.execute(call, TOOL, &arguments, digest, receipt.as_ref()).await;
        assert_eq!(outcome, Ok(Outcome::Refused(reason.to_owned())));
        wanted.push(reason.to_owned());
    }
    assert_eq!(ground.refusals(wanted.len()).await?, wanted);
    assert_eq!(ground.effects().await?, 0, "nothing ran");

    // The answer as it was given does run, once; the same call again attaches to its own result.
    let right = sign(&|_| ())?;
    assert_eq!(
        impostor.execute(call, TOOL, &arguments, digest, Some(&right)).await,
        Ok(Outcome::Exited(0))
    );
    assert_eq!(
        impostor.execute(call, TOOL, &arguments, digest, Some(&right)).await,
        Ok(Outcome::Exited(0))
    );
    assert_eq!(ground.effects().await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_for_the_run_covers_this_action_and_no_other() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig: _, impostor } = &ground;
    let (first, second, third) = (CallId::new(), CallId::new(), CallId::new());
    let arguments = argv("echo again");
    let (plan, bytes) = impostor.planned(first, TOOL, &arguments).await?;
    let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, Scope::Run)?)?;
    let digest = receipt::plan_digest(&bytes);
    assert_eq!(
        impostor.execute(first, TOOL, &arguments, digest, Some(&receipt)).await,
        Ok(Outcome::Exited(0))
    );

    let (_, bytes) = impostor.planned(second, TOOL, &arguments).await?;
    let digest = receipt::plan_digest(&bytes);
    assert_eq!(
        impostor.execute(second, TOOL, &arguments, digest, Some(&receipt)).await,
        Ok(Outcome::Exited(0))
    );

    let wider = argv("echo something else");
    let (_, bytes) = impostor.planned(third, TOOL, &wider).await?;
    let digest = receipt::plan_digest(&bytes);
    let outcome = impostor.execute(third, TOOL, &wider, digest, Some(&receipt)).await;
    assert_eq!(outcome, Ok(Outcome::Refused("RECEIPT_ACTION_MISMATCH".to_owned())));
    assert_eq!(ground.refusals(1).await?, ["RECEIPT_ACTION_MISMATCH"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_fence_and_a_foreign_grant_end_at_the_door() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor } = &ground;

    let mut foreign = impostor.grant();
    foreign.session = SessionId::new();
    let reasons =
        [
            impostor.fence_with(&impostor.sign(&foreign)?).await,
            impostor
                .fence_with(&impostor.sign(&receipt::Grant {
                    manifest: Digest::of(b"another"),
                    ..impostor.grant()
                })?)
                .await,
            impostor
                .fence_with(&impostor.sign(&receipt::Grant {
                    workspace: "elsewhere".to_owned(),
                    ..impostor.grant()
                })?)
                .await,
            impostor
                .fence_with(&impostor.sign(&receipt::Grant {
                    iat: impostor.grant().iat - 200,
                    exp: impostor.grant().iat - 100,
                    ..impostor.grant()
                })?)
                .await,
        ];
    let reasons: Vec<String> = reasons.into_iter().map(reason).collect();
    assert_eq!(
        reasons,
        ["GRANT_SESSION_MISMATCH", "MANIFEST_MISMATCH", "WORKSPACE_UNKNOWN", "GRANT_EXPIRED"]
    );

    // Somebody took over: the fence rises, and what the old owner still holds is worth nothing.
    let call = CallId::new();
    let arguments = argv("echo late");
    let (plan, bytes) = impostor.planned(call, TOOL, &arguments).await?;
    let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, Scope::Once)?)?;
    let mut successor = Impostor::enter(rig, "red-team")?;
    (successor.session, successor.run, successor.epoch) =
        (impostor.session, impostor.run, impostor.epoch + 1);
    successor.fence().await?;
    let late = impostor
        .execute(call, TOOL, &arguments, receipt::plan_digest(&bytes), Some(&receipt))
        .await;
    assert_eq!(reason(late.map(|_| ())), "FENCE_STALE");
    assert_eq!(reason(impostor.fence().await), "FENCE_STALE");

    let unknown = Impostor::enter(rig, "red-team")?;
    assert_eq!(reason(unknown.open().await.map(|_| ())), "SESSION_UNKNOWN");
    assert_eq!(ground.effects().await?, 0);

    // What is not proven to be about a session stands in the stream of the nil session, with the session it claimed.
    let books = Books::open(rig)?;
    let recorded = until("the last refusal", || async {
        let all = books.all().await.ok()?;
        let refused =
            all.iter().filter(|line| line.writer == "sandbox-svc" && line.kind == "call.refused");
        let mut reasons: Vec<String> =
            refused.filter_map(|line| Some(line.data["reason"].as_str()?.to_owned())).collect();
        reasons.sort();
        reasons.dedup();
        reasons.contains(&"SESSION_UNKNOWN".to_owned()).then_some(reasons)
    })
    .await;
    let mut wanted = [
        "GRANT_SESSION_MISMATCH",
        "MANIFEST_MISMATCH",
        "WORKSPACE_UNKNOWN",
        "GRANT_EXPIRED",
        "FENCE_STALE",
        "SESSION_UNKNOWN",
    ];
    wanted.sort_unstable();
    assert_eq!(recorded, wanted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_action_stays_denied_whatever_is_signed() -> Result<()> {
    let rules = manifest("denied").rule(TOOL, json!({"sh -c 'echo denied'": "deny", "*": "ask"}));
    let rig = Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await?;
    let impostor = Impostor::enter(&rig, "denied")?;
    impostor.fence().await?;
    impostor.open().await?;
    let call = CallId::new();
    let arguments = argv("echo denied");
    let (plan, bytes) = impostor.planned(call, TOOL, &arguments).await?;
    assert_eq!(plan.effect, event::Effect::Deny);
    let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, Scope::Once)?)?;
    let outcome = impostor
        .execute(call, TOOL, &arguments, receipt::plan_digest(&bytes), Some(&receipt))
        .await;
    assert_eq!(outcome, Ok(Outcome::Refused("POLICY_DENIED".to_owned())));

    let program = impostor.plan(CallId::new(), TOOL, &json!({"argv": ["nc", "-l"]})).await?;
    assert_eq!(program, Asked::Refused("COMMAND_NOT_ALLOWED".to_owned()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_one_session_planned_is_no_other_sessions() -> Result<()> {
    let ground = Ground::prepare().await?;
    let Ground { rig, impostor } = &ground;
    let call = CallId::new();
    let arguments = argv("echo mine");
    let (plan, bytes) = impostor.planned(call, TOOL, &arguments).await?;
    let receipt = impostor.sign(&impostor.receipt(&plan, &bytes, Scope::Once)?)?;

    let other = Impostor::enter(rig, "red-team")?;
    other.fence().await?;
    other.open().await?;
    let taken = other.plan(call, TOOL, &argv("echo yours")).await?;
    assert_eq!(taken, Asked::Refused("CALL_CONFLICT".to_owned()));

    let digest = receipt::plan_digest(&bytes);
    let outcome = impostor.execute(call, TOOL, &arguments, digest, Some(&receipt)).await;
    assert_eq!(outcome, Ok(Outcome::Exited(0)), "what was approved still runs");
    Ok(())
}

fn reason(result: Result<(), Fault>) -> String {
    match result {
        Ok(()) => "accepted".to_owned(),
        Err(fault) => fault.reason,
    }
}

/// The same receipt, signed by a key whose certificate may open connections and nothing else.
fn by_a_tls_certificate(rig: &Rig, receipt: &Receipt) -> Result<Signed> {
    let store = rig.store()?;
    let subject = Subject::Service { service: Service::Gateway, instance: "suite".to_owned() };
    let files = store.issue(&subject, &harness::pki::Hosts::default(), 1)?;
    let file = |name: &str| files.iter().find(|file| file.name == name).context("an issued file");
    let key = rcgen::KeyPair::from_pem(std::str::from_utf8(&file("tls.key")?.bytes)?)?;
    let payload = receipt.to_bytes()?;
    let message = [Receipt::DOMAIN.as_bytes(), b"\0", &payload].concat();
    let signature = rcgen::SigningKey::sign(&key, &message)?;
    let chain = CertificateDer::pem_slice_iter(&file("tls.crt")?.bytes)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Signed { payload, signature, chain })
}
