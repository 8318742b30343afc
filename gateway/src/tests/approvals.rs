//! What is signed for whom: only the plan that was shown, only for the winner, only after the ledger has it.
use event::id::{PermissionId, SessionId};
use event::{Data, Digest};
use proto::agent::v1::DenySource;
use receipt::{Executor, Plan, Receipt, Scope, Signed, plan_digest};
use serde_json::{Value, json};
use transport::Code;

use super::agent::{Standing, plan, requested, roles, sealed};
use super::mesh::Mesh;
use super::wire::{Got, Raw, code};
use crate::{Limits, sign};

/// A session with an ask that its client has been shown.
async fn asked(mesh: &Mesh) -> (Raw, SessionId, PermissionId, Plan) {
    let mut raw = Raw::open(mesh, "ada").await;
    raw.initialize(true).await;
    let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
    let (permission, plan) = mesh.agent.ask(session);
    while raw.json().await["params"]["event"]["type"] != "permission.requested" {}
    (raw, session, permission, plan)
}

fn respond(session: SessionId, permission: PermissionId, decision: &str) -> Value {
    json!({ "sessionId": session, "permissionId": permission, "decision": decision })
}

fn digest(plan: &Plan) -> Digest {
    plan_digest(&plan.to_bytes().expect("fits"))
}

fn standing(mesh: &Mesh, session: SessionId, permission: PermissionId) -> String {
    format!("{:?}", mesh.agent.state().sessions[&session].asks[&permission].standing)
}

fn resolved_by(message: &Value) -> &str {
    assert_eq!(code(message), (-32021, "ACP_PERMISSION_RESOLVED"));
    message["error"]["message"].as_str().expect("a message")
}

#[tokio::test]
async fn an_allow_is_a_receipt_over_the_plan_that_was_shown() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, plan) = asked(&mesh).await;
    let mut answer = respond(session, permission, "allow");
    (answer["planDigest"], answer["note"]) = (json!(digest(&plan)), json!("looks right"));
    assert_eq!(
        raw.call(2, "permission/respond", answer).await["result"],
        json!({ "accepted": true })
    );

    let state = mesh.agent.state();
    let Standing::Allowed(by, receipt) = &state.sessions[&session].asks[&permission].standing
    else {
        panic!()
    };
    assert_eq!(by, "ada");
    let expected = Receipt {
        id: receipt.id,
        tenant: "home".to_owned(),
        session,
        run: plan.run,
        call: plan.call,
        permission,
        plan: digest(&plan),
        action: plan.action_digest().expect("fits"),
        scope: Scope::Once,
        subject: "ada".to_owned(),
        roles: [receipt::Role::Operator].into(),
        approval: None,
        audience: Executor::SandboxSvc,
        iat: receipt.iat,
        exp: receipt.iat + 3600,
    };
    assert_eq!(**receipt, expected);

    // The ledger's copy is complete: it verifies from there, against the services CA alone.
    let entries = mesh.audit.entries();
    let Data::ReceiptSigned(recorded) = &entries.last().expect("two").1.data else {
        panic!("{entries:?}")
    };
    assert_eq!((recorded.receipt_id, recorded.plan_digest), (receipt.id, digest(&plan)));
    let mut members = recorded.receipt.as_object().expect("an object").clone();
    let signature =
        members.remove("signature").and_then(|hex| hex::decode(hex.as_str()?).ok()).expect("hex");
    let chain = members.remove("chain").expect("a chain");
    let chain =
        rustls_pki_types::pem::PemObject::pem_slice_iter(chain.as_str().expect("PEM").as_bytes())
            .map(|der: Result<rustls_pki_types::CertificateDer<'_>, _>| der.expect("PEM").to_vec())
            .collect();
    let payload = event::canon::to_bytes(&Value::Object(members)).expect("canonical");
    let signed = Signed { payload, signature, chain };
    let verified = mesh
        .agent
        .verifier()
        .verify::<Receipt>(&signed, sign::now(), &|_| false)
        .expect("verifies");
    assert_eq!(*verified, expected);
    assert_eq!(roles(&state, "ClaimPermission"), roles(&state, "ResolvePermission"));
}

#[tokio::test]
async fn an_allow_for_the_run_lives_as_long_as_the_grant() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    let mut answer = respond(session, permission, "allow");
    answer["scope"] = json!("run");
    assert_eq!(
        raw.call(2, "permission/respond", answer).await["result"],
        json!({ "accepted": true })
    );
    let state = mesh.agent.state();
    let found = &state.sessions[&session];
    let Standing::Allowed(_, receipt) = &found.asks[&permission].standing else { panic!() };
    assert_eq!((receipt.scope, receipt.exp), (Scope::Run, found.grant.exp));
}

#[tokio::test]
async fn a_denial_needs_no_receipt() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    assert_eq!(
        raw.call(2, "permission/respond", respond(session, permission, "deny")).await["result"],
        json!({ "accepted": true })
    );
    assert_eq!(standing(&mesh, session, permission), r#"Denied("ada", Operator)"#);
    assert_eq!(mesh.audit.kinds(), ["grant.issued"]);
}

#[tokio::test]
async fn the_digest_of_another_plan_is_refused_and_the_ask_stays_open() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, plan) = asked(&mesh).await;
    let mut answer = respond(session, permission, "allow");
    answer["planDigest"] = json!(Digest::of(b"another plan"));
    assert_eq!(
        code(&raw.call(2, "permission/respond", answer.clone()).await),
        (-32022, "ACP_PLAN_MISMATCH")
    );
    answer["planDigest"] = json!(digest(&plan));
    answer["scope"] = json!("run");
    assert_eq!(standing(&mesh, session, permission), "Open");
    assert_eq!(mesh.audit.kinds(), ["grant.issued"]);
    assert_eq!(
        raw.call(3, "permission/respond", answer).await["result"],
        json!({ "accepted": true })
    );
}

#[tokio::test]
async fn whoever_comes_second_is_told_who_was_first() {
    let mesh = Mesh::start().await;
    let (mut ada, session, permission, _) = asked(&mesh).await;
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    bob.call(1, "session/attach", json!({ "sessionId": session })).await;
    bob.call(2, "permission/respond", respond(session, permission, "allow")).await;
    let late = ada.call(2, "permission/respond", respond(session, permission, "deny")).await;
    assert_eq!(resolved_by(&late), "already resolved: allowed by bob");
    let twice = bob.call(3, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(resolved_by(&twice), "already resolved: allowed by bob");

    for (standing, says) in [
        (
            Standing::Claimed("bob".into()),
            "already resolved: bob has allowed it, and that is being recorded",
        ),
        (
            Standing::Denied("bob".into(), DenySource::Operator),
            "already resolved: denied by bob (operator)",
        ),
        (
            Standing::Denied(String::new(), DenySource::Timeout),
            "already resolved: denied (timeout)",
        ),
    ] {
        mesh.agent.settle(session, permission, standing);
        let answer = ada.call(4, "permission/respond", respond(session, permission, "allow")).await;
        assert_eq!(resolved_by(&answer), says);
    }
    let signed = mesh.audit.kinds().iter().filter(|kind| **kind == "receipt.signed").count();
    assert_eq!(signed, 1, "only for the winner");
}

#[tokio::test]
async fn the_same_request_id_for_another_ask_is_another_answer() {
    let mesh = Mesh::start().await;
    let (mut ada, session, first, _) = asked(&mesh).await;
    let (second, _) = mesh.agent.ask(session);
    while ada.json().await["params"]["event"]["type"] != "permission.requested" {}
    for permission in [first, second] {
        let answer = ada.call(7, "permission/respond", respond(session, permission, "allow")).await;
        assert_eq!(answer["result"], json!({ "accepted": true }));
        assert!(standing(&mesh, session, permission).starts_with(r#"Allowed("ada""#));
    }
    // Nor is the same answer once more another one, under whatever id: its own name is told.
    for id in [7, 8] {
        let twice = ada.call(id, "permission/respond", respond(session, first, "allow")).await;
        assert_eq!(resolved_by(&twice), "already resolved: allowed by ada");
    }
    let signed = mesh.audit.kinds().iter().filter(|kind| **kind == "receipt.signed").count();
    assert_eq!(signed, 2, "one for each ask");
}

#[tokio::test]
async fn an_allow_that_loses_after_its_claim_is_told_to_whom() {
    let mesh = Mesh::start().await;
    for (by, source, says) in [
        ("bob", DenySource::Cancel, "already resolved: denied by bob (cancel)"),
        ("", DenySource::SessionEnd, "already resolved: denied (session_end)"),
    ] {
        let (mut ada, session, permission, _) = asked(&mesh).await;
        mesh.agent.overtake(by, source);
        let allow = respond(session, permission, "allow");
        let late = ada.call(2, "permission/respond", allow).await;
        assert_eq!(resolved_by(&late), says);
    }
}

#[tokio::test]
async fn without_the_ledger_there_is_no_receipt_and_the_same_answer_may_be_given_again() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    mesh.audit.go_down(true);
    let answer = raw.call(2, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(code(&answer), (-32004, "ACP_UNAVAILABLE"));
    assert!(
        answer["error"]["message"].as_str().is_some_and(|message| message.contains("audit-svc")),
        "{answer}"
    );
    assert_eq!(standing(&mesh, session, permission), r#"Claimed("ada")"#);
    mesh.audit.go_down(false);
    let again = raw.call(3, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(again["result"], json!({ "accepted": true }));
    assert_eq!(mesh.audit.kinds(), ["grant.issued", "receipt.signed"]);
}

#[tokio::test]
async fn an_answer_is_carried_through_a_short_absence_of_agent_svc() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    mesh.agent.fail_next("ClaimPermission", Code::Unavailable, "STOPPING");
    mesh.agent.fail_next("ResolvePermission", Code::Unavailable, "SESSION_RECOVERING");
    let answer = raw.call(2, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(answer["result"], json!({ "accepted": true }));
}

#[tokio::test]
async fn an_answer_is_carried_through_although_the_client_hangs_up() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    let params = respond(session, permission, "allow");
    raw.text(
        &json!({ "jsonrpc": "2.0", "id": 2, "method": "permission/respond", "params": params })
            .to_string(),
    )
    .await;
    mesh.agent
        .until(|state| {
            state.calls.iter().any(|(method, _)| method == "ClaimPermission").then_some(())
        })
        .await;
    drop(raw);
    mesh.agent
        .until(|state| {
            matches!(state.sessions[&session].asks[&permission].standing, Standing::Allowed(..))
                .then_some(())
        })
        .await;
}

#[tokio::test]
async fn an_answer_that_took_too_long_may_be_given_again() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    mesh.agent.fail_next("ResolvePermission", Code::FailedPrecondition, "PERMISSION_NOT_CLAIMED");
    let answer = raw.call(2, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(code(&answer), (-32004, "ACP_UNAVAILABLE"));
    let again = raw.call(3, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(again["result"], json!({ "accepted": true }));
    let signed: Vec<_> = mesh
        .audit
        .entries()
        .into_iter()
        .filter_map(|(_, event)| match event.data {
            Data::ReceiptSigned(signed) => Some(signed.receipt_id),
            _ => None,
        })
        .collect();
    assert!(signed.len() == 2 && signed[0] != signed[1], "each signing has its own id: {signed:?}");
}

#[tokio::test]
async fn more_requests_than_may_wait_are_told_so() {
    let limits = Limits { patience: std::time::Duration::from_secs(3), ..Limits::default() };
    let mesh = Mesh::start_within(limits).await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    // Each answer waits for the ledger.
    mesh.audit.go_down(true);
    let all = u64::try_from(acp::MAX_PENDING).expect("small") + 2;
    for id in 0..all {
        let params = respond(session, permission, "allow");
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "permission/respond", "params": params });
        raw.text(&request.to_string()).await;
    }
    for id in all - 2..all {
        let answer = raw.json().await;
        assert_eq!((&answer["id"], code(&answer)), (&json!(id), (-32005, "ACP_BUSY")));
    }
    for _ in 0..all - 2 {
        assert_eq!(code(&raw.json().await), (-32004, "ACP_UNAVAILABLE"));
    }
    mesh.audit.go_down(false);
    let answer = raw.call(999, "permission/respond", respond(session, permission, "allow")).await;
    assert_eq!(answer["result"], json!({ "accepted": true }));
}

#[tokio::test]
async fn a_malformed_answer_denies_the_ask_it_names() {
    let mesh = Mesh::start().await;
    let (mut raw, session, permission, _) = asked(&mesh).await;
    let answer = raw.call(2, "permission/respond", respond(session, permission, "yes")).await;
    assert_eq!(code(&answer), (-32602, "ACP_INVALID_PARAMS"));
    assert!(
        answer["error"]["message"].as_str().is_some_and(|message| message.contains("was denied")),
        "{answer}"
    );
    assert_eq!(standing(&mesh, session, permission), r#"Denied("ada", MalformedAnswer)"#);
    // One that names no ask is only told so.
    let nobody = respond(session, PermissionId::new(), "yes");
    assert_eq!(
        code(&raw.call(3, "permission/respond", nobody).await),
        (-32602, "ACP_INVALID_PARAMS")
    );
    let claims =
        mesh.agent.state().calls.iter().filter(|(method, _)| method == "ClaimPermission").count();
    assert_eq!(claims, 1);
}

#[tokio::test]
async fn what_was_not_shown_on_this_connection_cannot_be_answered_on_it() {
    let mesh = Mesh::start().await;
    let (_ada, session, permission, plan) = asked(&mesh).await;
    let mut bob = Raw::open(&mesh, "bob").await;
    bob.initialize(true).await;
    assert_eq!(
        code(&bob.call(1, "permission/respond", respond(session, permission, "allow")).await),
        (-32010, "ACP_SESSION_NOT_FOUND")
    );
    // Past the ask by its cursor, bob still gets it in the list of what is open, and may answer it then.
    bob.call(2, "session/attach", json!({ "sessionId": session, "afterSeq": 1 })).await;
    let unknown = respond(session, PermissionId::new(), "allow");
    assert_eq!(
        code(&bob.call(3, "permission/respond", unknown).await),
        (-32020, "ACP_PERMISSION_NOT_FOUND")
    );
    let mut answer = respond(session, permission, "allow");
    answer["planDigest"] = json!(digest(&plan));
    assert_eq!(
        bob.call(4, "permission/respond", answer).await["result"],
        json!({ "accepted": true })
    );
}

#[tokio::test]
async fn an_ask_that_contradicts_itself_is_never_shown() {
    let mesh = Mesh::start().await;
    for wrong in 0..5 {
        let mut raw = Raw::open(&mesh, "ada").await;
        raw.initialize(true).await;
        let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
        let run = event::id::RunId::new();
        let permission = PermissionId::new();
        let good = plan(session, run);
        let event = match wrong {
            // Plan A beside the digest of plan B.
            0 => event::PermissionRequested {
                plan_digest: Digest::of(b"B"),
                ..requested(permission, &good)
            },
            // Another session's plan.
            1 => event::PermissionRequested {
                session_id: session,
                ..requested(permission, &plan(SessionId::new(), run))
            },
            // Another call's plan.
            2 => event::PermissionRequested {
                call_id: Some(event::id::CallId::new()),
                ..requested(permission, &good)
            },
            // A child's ask with its parent's plan.
            3 => event::PermissionRequested {
                child_run_id: Some(event::id::RunId::new()),
                profile: Some("explorer".to_owned()),
                ..requested(permission, &good)
            },
            _ => event::PermissionRequested {
                plan: json!({ "argv": ["ls"] }),
                ..requested(permission, &good)
            },
        };
        mesh.agent.push_bytes(session, sealed(event));
        loop {
            match raw.message().await {
                Got::Text(text) => assert!(!text.contains("permission.requested"), "{text}"),
                got => break assert_eq!(got, Got::Close(Some(1011)), "{wrong}"),
            }
        }
    }
}
