//! model-svc against agent-svc's own certificate: no turn without the gateway's grant, the present fence, a model that
//! the grant names and what the budget has left; and no remote tool at all.

use anyhow::Result;
use e2e::{Completed, Hand, Impostor, Rig, Spec, Turn, manifest};
use event::id::{CallId, PermissionId, ReceiptId, SessionId};
use event::{Digest, Executor, Scope};
use proto::model::v1 as model;
use receipt::{Grant, Payload as _, Receipt, Role, Signed};
use serde_json::json;
use transport::Fault;

use super::{effects, reason, refusals};

const WRITER: &str = "model-svc";

/// Three models; the task allows two, and the impostor's grants name one.
async fn start() -> Result<Rig> {
    let mut rules = manifest("turns");
    rules.models = ["scripted", "second"].map(str::to_owned).to_vec();
    // A turn of one message that says one thing costs 20.
    rules.budget = json!({"max_model_tokens": 50, "max_tool_calls": 5});
    let says = || vec![Turn::Say("said")];
    let mut spec = Spec::new(rules, says());
    spec.scripts.extend(["second", "third"].map(|name| (name.to_owned(), says())));
    Rig::start(spec).await
}

async fn fenced(rig: &Rig) -> Result<Impostor> {
    let impostor = Impostor::enter(rig, "turns")?;
    impostor.fence_models(&impostor.sign(&impostor.grant())?).await?;
    Ok(impostor)
}

fn ending(completed: Result<Completed, Fault>) -> String {
    match completed {
        Ok(Completed::Said(text)) => format!("said {text}"),
        Ok(Completed::Failed(kind)) | Err(Fault { reason: kind, .. }) => kind,
    }
}

async fn turn(impostor: &Impostor, name: &str) -> String {
    ending(impostor.complete(CallId::new(), name, |_| ()).await)
}

/// As the gateway would sign it for a remote tool.
fn receipt(impostor: &Impostor, call: CallId, plan: Digest) -> Receipt {
    let Grant { tenant, session, iat, exp, .. } = impostor.grant();
    Receipt {
        id: ReceiptId::new(),
        tenant,
        session,
        run: impostor.run,
        call,
        permission: PermissionId::new(),
        plan,
        action: plan,
        scope: Scope::Once,
        subject: "suite".to_owned(),
        roles: [Role::Operator].into(),
        approval: None,
        audience: Executor::ModelSvc,
        iat,
        exp,
    }
}

/// A grant that is wrong in one thing, and the reason.
type Wrong = (&'static str, fn(&mut Grant));

const WRONG: [Wrong; 7] = [
    ("GRANT_SESSION_MISMATCH", |it| it.session = SessionId::new()),
    ("MANIFEST_MISMATCH", |it| it.manifest = Digest::of(b"another")),
    ("MANIFEST_MISMATCH", |it| it.manifest_id = "another".to_owned()),
    ("MODEL_UNKNOWN", |it| it.models.push("absent".to_owned())),
    ("MODEL_NOT_ALLOWED", |it| it.models.push("third".to_owned())),
    ("GRANT_EXPIRED", |it| (it.iat, it.exp) = (it.iat - 200, it.iat - 100)),
    ("GRANT_NOT_YET_VALID", |it| (it.iat, it.exp) = (it.iat + 900, it.iat + 1_800)),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_but_the_gateways_own_opens_a_session() -> Result<()> {
    let rig = start().await?;
    let impostor = Impostor::enter(&rig, "turns")?;
    let mut wanted = Vec::new();
    for (reason_wanted, change) in WRONG {
        let mut grant = impostor.grant();
        change(&mut grant);
        assert_eq!(reason(impostor.fence_models(&impostor.sign(&grant)?).await), reason_wanted);
        wanted.push(reason_wanted);
    }
    for (who, hand) in Hand::untrusted(&rig)? {
        let told = reason(impostor.fence_models(&hand.sign(&impostor.grant())?).await);
        assert_eq!(told, "GRANT_SIGNER_UNTRUSTED", "{who}");
        wanted.push("GRANT_SIGNER_UNTRUSTED");
    }
    let right = impostor.sign(&impostor.grant())?;
    let mut wider = impostor.grant();
    wider.models.push("second".to_owned());
    for forged in [
        Signed { payload: wider.to_bytes()?, ..right.clone() },
        Signed { signature: vec![0; 64], ..right.clone() },
        // A receipt, though the same hand signs both: a grant has no audience, but a kind.
        impostor.sign(&receipt(&impostor, CallId::new(), Digest::of(b"plan")))?,
    ] {
        assert_eq!(reason(impostor.fence_models(&forged).await), "GRANT_SIGNATURE_INVALID");
        wanted.push("GRANT_SIGNATURE_INVALID");
    }
    let text = String::from_utf8(impostor.manifest.clone())?.replace("50", "5000000");
    let rewritten = Impostor { manifest: text.into_bytes(), ..impostor.clone() };
    assert_eq!(reason(rewritten.fence_models(&right).await), "MANIFEST_MISMATCH");
    assert_eq!(turn(&impostor, "scripted").await, "SESSION_UNKNOWN");
    wanted.extend(["MANIFEST_MISMATCH", "SESSION_UNKNOWN"]);
    refusals(&rig, WRITER, SessionId::nil(), &wanted).await?;
    assert_eq!(effects(&rig, WRITER, impostor.session).await?, 0, "no model was asked");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_widened_by_no_renewal_and_used_by_no_former_owner() -> Result<()> {
    let rig = start().await?;
    let impostor = fenced(&rig).await?;
    let mut wanted = Vec::new();
    let wider: [fn(&mut Grant); 3] = [
        |it| it.models.push("second".to_owned()),
        |it| it.subject = "somebody".to_owned(),
        |it| it.tenant = "another".to_owned(),
    ];
    for widen in wider {
        let mut grant = impostor.grant();
        widen(&mut grant);
        let told = reason(impostor.fence_models(&impostor.sign(&grant)?).await);
        assert_eq!(told, "GRANT_CONFLICT");
        wanted.push("GRANT_CONFLICT");
    }
    let successor = Impostor { epoch: 5, node: "successor".to_owned(), ..impostor.clone() };
    assert_eq!(turn(&successor, "scripted").await, "FENCE_STALE", "nobody fenced this epoch");
    wanted.push("FENCE_STALE");
    let grant = impostor.sign(&impostor.grant())?;
    successor.fence_models(&grant).await?;
    for stale in [
        impostor.clone(),
        Impostor { epoch: 4, ..successor.clone() },
        Impostor { epoch: 5, ..impostor.clone() },
    ] {
        let plan = Digest::of(b"plan");
        let told = [
            turn(&stale, "scripted").await,
            reason(stale.fence_models(&grant).await),
            fault(stale.plan_remote(CallId::new(), "search").await),
            fault(stale.execute_remote(CallId::new(), "search", plan, None).await),
        ];
        assert_eq!(told, ["FENCE_STALE"; 4], "{} {}", stale.node, stale.epoch);
        wanted.extend(["FENCE_STALE"; 4]);
    }
    refusals(&rig, WRITER, impostor.session, &wanted).await?;
    assert_eq!(effects(&rig, WRITER, impostor.session).await?, 0, "no model was asked");
    Ok(())
}

/// A refusal that is a fault of the caller.
fn fault(result: Result<String>) -> String {
    match result {
        Ok(reason) => format!("answered {reason}"),
        Err(error) => {
            error.downcast::<Fault>().map_or_else(|error| error.to_string(), |it| it.reason)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_for_a_model_of_the_grant_within_the_budget_and_once() -> Result<()> {
    let rig = start().await?;
    let (impostor, other) = (fenced(&rig).await?, fenced(&rig).await?);
    for name in ["second", "third", "absent", "Scripted", "../scripted"] {
        assert_eq!(turn(&impostor, name).await, "MODEL_UNKNOWN", "{name}");
    }
    let orphan = |request: &mut model::CompleteRequest| {
        let reply =
            model::ToolReply { provider_id: "x".to_owned(), ok: true, content: String::new() };
        request
            .messages
            .push(model::Message { message: Some(model::message::Message::Tool(reply)) });
    };
    let told = ending(impostor.complete(CallId::new(), "scripted", orphan).await);
    assert_eq!(told, "MODEL_INVALID_REQUEST");
    let late = |request: &mut model::CompleteRequest| {
        if let Some(call) = &mut request.call {
            call.start_before_ms = 1;
        }
    };
    assert_eq!(
        ending(impostor.complete(CallId::new(), "scripted", late).await),
        "START_DEADLINE_PASSED"
    );

    let call = CallId::new();
    assert_eq!(ending(impostor.complete(call, "scripted", |_| ()).await), "said said");
    // The same call is the same request, of the same session, and is not asked twice.
    assert_eq!(ending(impostor.complete(call, "scripted", |_| ()).await), "said said");
    let more = |request: &mut model::CompleteRequest| request.max_output_tokens = 9;
    assert_eq!(ending(impostor.complete(call, "scripted", more).await), "CALL_CONFLICT");
    assert_eq!(ending(other.complete(call, "scripted", |_| ()).await), "CALL_CONFLICT");

    assert_eq!(turn(&impostor, "scripted").await, "said said");
    // Neither a new run nor a new call has a budget of its own.
    assert_eq!(turn(&impostor, "scripted").await, "BUDGET_EXCEEDED");
    let elsewhere = Impostor { run: event::id::RunId::new(), ..impostor.clone() };
    assert_eq!(turn(&elsewhere, "scripted").await, "BUDGET_EXCEEDED");
    let mut wanted = vec!["MODEL_UNKNOWN"; 5];
    wanted.extend(["MODEL_INVALID_REQUEST", "CALL_CONFLICT", "BUDGET_EXCEEDED", "BUDGET_EXCEEDED"]);
    refusals(&rig, WRITER, impostor.session, &wanted).await?;
    refusals(&rig, WRITER, other.session, &["CALL_CONFLICT"]).await?;
    // The one that was too late is recorded as begun and as never asked.
    assert_eq!(effects(&rig, WRITER, impostor.session).await?, 3);
    assert_eq!(effects(&rig, WRITER, other.session).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_remote_tool_is_planned_or_carried_out_whatever_is_attached() -> Result<()> {
    let rig = start().await?;
    let impostor = fenced(&rig).await?;
    let (call, plan) = (CallId::new(), Digest::of(b"a plan of my own"));
    let right = receipt(&impostor, call, plan);
    let foreign = Receipt { audience: Executor::SandboxSvc, ..right.clone() };
    let (_, stranger) = Hand::untrusted(&rig)?.remove(2);
    assert_eq!(impostor.plan_remote(call, "search").await?, "TOOL_UNKNOWN");
    assert_eq!(impostor.plan_remote(call, "process.exec").await?, "TOOL_UNKNOWN");
    for signed in [
        None,
        Some(impostor.sign(&right)?),
        Some(impostor.sign(&foreign)?),
        Some(stranger.sign(&right)?),
    ] {
        let told = impostor.execute_remote(call, "search", plan, signed.as_ref()).await?;
        assert_eq!(told, "TOOL_UNKNOWN");
    }
    refusals(&rig, WRITER, impostor.session, &["TOOL_UNKNOWN"; 6]).await?;
    assert_eq!(effects(&rig, WRITER, impostor.session).await?, 0, "nothing ran");
    Ok(())
}
