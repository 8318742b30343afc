//! Grants and fences that are refused, each with its reason.
use event::id::SessionId;
use event::{Data, Digest, Stage};
use proto::model::v1 as model;
use receipt::Grant;
use transport::issue::{DevPki, Eku, Key, LeafSpec};
use transport::{Code, Fault, deadline};

use super::rig::{MANIFEST, Rig, owner, turn, wire, within};

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> (Code, String) {
    let Fault { code, reason, .. } = result.unwrap_err();
    (code, reason)
}

fn failed(reason: &str) -> (Code, String) {
    (Code::FailedPrecondition, reason.to_owned())
}

#[tokio::test]
async fn a_good_grant_registers_the_session_and_tells_its_models() {
    let rig = Rig::new().await;
    let session = SessionId::new();
    let answer = rig.fence_with(owner(session, "a", 1), &rig.grant(session), MANIFEST).await;
    let expected = model::FenceResponse {
        epoch: 1,
        tools: vec![],
        models: vec!["scripted".into(), "real".into()],
    };
    assert_eq!(answer, Ok(expected));
    let request = model::ListModelsRequest { owner: Some(owner(session, "a", 1)) };
    let listed = rig.client().list_models(deadline::request(request, super::rig::LIMIT)).await;
    assert_eq!(listed.unwrap().into_inner().models, ["scripted", "real"]);
    assert_eq!(rig.audit.entries(), []);
}

#[tokio::test]
async fn a_smaller_epoch_or_another_node_is_stale_everywhere() {
    let rig = Rig::new().await;
    let session = SessionId::new();
    let fence = |node: &'static str, epoch| {
        let rig = &rig;
        async move { rig.fence_with(owner(session, node, epoch), &rig.grant(session), MANIFEST).await }
    };
    fence("a", 2).await.unwrap();
    fence("a", 2).await.unwrap();
    assert_eq!(reason(fence("a", 1).await), failed("FENCE_STALE"));
    assert_eq!(reason(fence("b", 2).await), failed("FENCE_STALE"));
    fence("b", 3).await.unwrap();
    for stale in [owner(session, "a", 2), owner(session, "a", 3), owner(session, "b", 4)] {
        let refused = rig.complete(turn(&stale, "scripted", 0)).await;
        assert_eq!(reason(refused), failed("FENCE_STALE"), "{stale:?}");
    }
    let refusals = rig.audit.refusals(5).await;
    let expected = (session.to_string(), "FENCE_STALE".to_owned());
    assert_eq!(refusals, vec![expected; 5], "in the session's own stream");
}

#[tokio::test]
async fn every_wrong_grant_and_manifest_has_its_own_reason_and_is_recorded() {
    let rig = Rig::new().await;
    let session = SessionId::new();
    let by = || owner(session, "a", 1);
    let good = rig.grant(session);
    let denied = |reason: &str| (Code::PermissionDenied, reason.to_owned());
    let mut expected = Vec::new();
    let mut expect = |found: (Code, String), right: (Code, String)| {
        assert_eq!(found, right);
        expected.push((SessionId::nil().to_string(), right.1));
    };

    let mut forged = wire(rig.signer.sign(&good).unwrap());
    forged.signature[0] ^= 1;
    expect(
        reason(rig.fence_signed(by(), forged, MANIFEST).await),
        denied("GRANT_SIGNATURE_INVALID"),
    );
    let other = DevPki::new("example.test".parse().unwrap()).unwrap();
    let foreign = wire(signer(&other, |_| ()).sign(&good).unwrap());
    expect(
        reason(rig.fence_signed(by(), foreign, MANIFEST).await),
        denied("GRANT_SIGNER_UNTRUSTED"),
    );
    let expired = Grant { iat: rig.now() - 7_200, exp: rig.now() - 3_600, ..good.clone() };
    let old = signer(&rig.pki, |spec| spec.not_before -= time::Duration::days(1));
    let expired = wire(old.sign(&expired).unwrap());
    expect(reason(rig.fence_signed(by(), expired, MANIFEST).await), denied("GRANT_EXPIRED"));
    let early = Grant { iat: rig.now() + 600, exp: rig.now() + 3_600, ..good.clone() };
    expect(reason(rig.fence_with(by(), &early, MANIFEST).await), denied("GRANT_NOT_YET_VALID"));

    let of_another = rig.grant(SessionId::new());
    expect(
        reason(rig.fence_with(by(), &of_another, MANIFEST).await),
        denied("GRANT_SESSION_MISMATCH"),
    );
    let other = MANIFEST.replace("Demonstrate", "Destroy");
    expect(reason(rig.fence_with(by(), &good, &other).await), failed("MANIFEST_MISMATCH"));
    let with = |manifest: &str, change: &dyn Fn(&mut Grant)| {
        let mut grant = Grant { manifest: Digest::of(manifest.as_bytes()), ..good.clone() };
        change(&mut grant);
        (grant, manifest.to_owned())
    };
    for (case, right) in [
        (with("id: demo", &|_| ()), "MANIFEST_INVALID"),
        (with(MANIFEST, &|grant| grant.manifest_id = "other".into()), "MANIFEST_MISMATCH"),
        (with(MANIFEST, &|grant| grant.models = vec!["gpt".into()]), "MODEL_UNKNOWN"),
        (with(&MANIFEST.replace("real", "gpt"), &|_| ()), "MODEL_UNKNOWN"),
        (with(&MANIFEST.replace(", real", ""), &|_| ()), "MODEL_NOT_ALLOWED"),
    ] {
        let (grant, manifest) = case;
        expect(reason(rig.fence_with(by(), &grant, &manifest).await), failed(right));
    }
    let count = expected.len();
    assert_eq!(rig.audit.refusals(count).await, expected, "in the stream of what is not proven");
    for entry in rig.audit.entries() {
        let Data::CallRefused(refused) = entry.event.data else { panic!("no refusal") };
        assert_eq!((refused.stage, refused.session_id), (Stage::Fence, session.to_string()));
        assert_eq!((entry.tenant, entry.on_behalf_of), (String::new(), String::new()));
    }
    let unknown = rig.complete(turn(&by(), "scripted", 0)).await;
    assert_eq!(reason(unknown), (Code::NotFound, "SESSION_UNKNOWN".into()));
}

/// A receipt signer of this PKI, changed before it is issued.
fn signer(pki: &DevPki, change: impl FnOnce(&mut LeafSpec)) -> receipt::Signer {
    let mut spec = pki.leaf("receipts/gateway/1");
    spec.ekus = vec![Eku::Other(receipt::EKU_OID.to_vec())];
    spec.key = Key::Ed25519;
    change(&mut spec);
    let issued = pki.services.issue(&spec).unwrap();
    receipt::Signer::from_pem(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_renewed_grant_moves_only_its_time() {
    let rig = Rig::new().await;
    let session = SessionId::new();
    let by = || owner(session, "a", 1);
    rig.fence_with(by(), &rig.grant(session), MANIFEST).await.unwrap();
    let other = Grant { subject: "eve".into(), ..rig.grant(session) };
    assert_eq!(reason(rig.fence_with(by(), &other, MANIFEST).await), failed("GRANT_CONFLICT"));

    rig.advance(3_601);
    assert_eq!(reason(rig.complete(turn(&by(), "scripted", 0)).await), failed("GRANT_EXPIRED"));
    rig.fence_with(by(), &rig.grant(session), MANIFEST).await.unwrap();
    assert_eq!(rig.answer(turn(&by(), "scripted", 0)).await.text, "hello");
}

#[tokio::test]
async fn malformed_requests_are_refused_and_name_the_member() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let right = || turn(&by, "scripted", 0);
    let fault = |request| {
        let rig = &rig;
        async move { rig.complete(request).await.unwrap_err() }
    };
    for (member, request) in [
        ("owner", model::CompleteRequest { owner: None, ..right() }),
        ("call", model::CompleteRequest { call: None, ..right() }),
        ("model", model::CompleteRequest { model: String::new(), ..right() }),
        (
            "messages",
            model::CompleteRequest { messages: vec![model::Message::default()], ..right() },
        ),
    ] {
        let Fault { code, reason, message, .. } = fault(request).await;
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "REQUEST_INVALID"), "{member}");
        assert!(message.contains(&format!(": {member} must be")), "{message}");
    }
}

#[tokio::test]
async fn only_agent_svc_may_call() {
    let rig = Rig::new().await;
    for service in [transport::Service::Gateway, transport::Service::SandboxSvc] {
        let context = rig.pki.context(service).unwrap();
        let mut client = rig.client_of(&context);
        let request = model::ListModelsRequest { owner: None };
        let refused =
            within(client.list_models(deadline::request(request, super::rig::LIMIT))).await;
        assert_eq!(Fault::from(refused.unwrap_err()).code, Code::PermissionDenied, "{service}");
    }
}
