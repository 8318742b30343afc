//! Who is refused, and with which reason. Nothing here may start or settle anything.

use event::id::{PermissionId, SessionId};
use proto::agent::v1 as wire;
use receipt::{Audience, Obo, Role, Signed, Signer};
use tonic::Request;
use transport::{Code, Fault, Service};

use super::gateway::{Client, METHOD, Person, carrying, client};
use super::mesh::{MANIFEST, Mesh};

/// One request of each method about a session, with or without a context.
struct Call {
    method: &'static str,
    acts: bool,
    session: Option<SessionId>,
    permission: Option<PermissionId>,
}

fn calls(session: SessionId) -> Vec<Call> {
    let permission = Some(PermissionId::new());
    let about = |method, acts| Call { method, acts, session: Some(session), permission: None };
    vec![
        about("CreateSession", true),
        about("Prompt", true),
        about("Subscribe", false),
        Call { permission, ..about("ClaimPermission", true) },
        Call { permission, ..about("ResolvePermission", true) },
        Call { permission, ..about("GetPatch", false) },
        about("Cancel", true),
        about("GetSession", false),
        Call { session: None, ..about("ListSessions", false) },
    ]
}

async fn send(client: &Client, call: &Call, signed: Option<&Signed>) -> Result<(), Fault> {
    fn request<T>(message: T, signed: Option<&Signed>) -> Request<T> {
        match signed {
            Some(signed) => carrying(message, signed),
            None => Request::new(message),
        }
    }
    let mut client = client.clone();
    let session_id = call.session.map(|id| id.to_string()).unwrap_or_default();
    let permission_id = call.permission.map(|id| id.to_string()).unwrap_or_default();
    match call.method {
        "CreateSession" => {
            let message = wire::CreateSessionRequest {
                session_id,
                grant: Some(crate::peers::signed(&Signed {
                    payload: Vec::new(),
                    signature: Vec::new(),
                    chain: Vec::new(),
                })),
                manifest: MANIFEST.into(),
                model: String::new(),
                on_disconnect: wire::OnDisconnect::Deny.into(),
            };
            client.create_session(request(message, signed)).await?;
        }
        "Prompt" => {
            let content = "hello".to_owned();
            let message = wire::PromptRequest { session_id, content, ..Default::default() };
            client.prompt(request(message, signed)).await?;
        }
        "Subscribe" => {
            let message = wire::SubscribeRequest { session_id, after_seq: None, can_answer: false };
            client.subscribe(request(message, signed)).await?;
        }
        "ClaimPermission" => {
            let message = wire::ClaimPermissionRequest {
                session_id,
                permission_id,
                decision: wire::Decision::Deny.into(),
                scope: wire::Scope::Unspecified.into(),
                plan_digest: vec![0; 32],
                note: String::new(),
                source: wire::DenySource::Operator.into(),
            };
            client.claim_permission(request(message, signed)).await?;
        }
        "ResolvePermission" => {
            let receipt = Some(proto::common::v1::Signed::default());
            let message = wire::ResolvePermissionRequest { session_id, permission_id, receipt };
            client.resolve_permission(request(message, signed)).await?;
        }
        "GetPatch" => {
            let form = wire::PatchForm::Shown.into();
            let message =
                wire::GetPatchRequest { session_id, permission_id, form, ..Default::default() };
            client.get_patch(request(message, signed)).await?;
        }
        "Cancel" => {
            client.cancel(request(wire::CancelRequest { session_id }, signed)).await?;
        }
        "GetSession" => {
            let key = wire::get_session_request::Key::SessionId(session_id);
            let message = wire::GetSessionRequest { key: Some(key) };
            client.get_session(request(message, signed)).await?;
        }
        "ListSessions" => {
            client.list_sessions(request(wire::ListSessionsRequest::default(), signed)).await?;
        }
        other => panic!("{other}"),
    }
    Ok(())
}

fn reason(result: Result<(), Fault>) -> (Code, String) {
    let fault = result.unwrap_err();
    (fault.code, fault.reason)
}

fn context(person: &Person, call: &Call) -> Obo {
    person.obo(call.method, call.session, call.permission)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_needs_a_context_that_is_made_for_this_very_call() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let stranger = {
        let pki = transport::issue::DevPki::new("harness.test".parse().unwrap()).unwrap();
        let issued = pki.receipts("0").unwrap();
        Signer::from_pem(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap()
    };
    for call in calls(alice.create().await) {
        let right = context(&alice, &call);
        let sign = |obo: Obo| Some(alice.signer.sign(&obo).unwrap());
        let mut forged = alice.signer.sign(&right).unwrap();
        forged.signature[0] ^= 1;
        let past = Obo { iat: right.iat - 61, exp: right.exp - 61, ..right.clone() };
        let future = Obo { iat: right.iat + 120, exp: right.exp + 120, ..right.clone() };
        let elsewhere = "spiffe://harness.test/svc/gateway/1".to_owned();
        let other_method = if call.method == "Prompt" { "Cancel" } else { "Prompt" };
        let table = [
            (None, Code::Unauthenticated, "OBO_REQUIRED"),
            (Some(forged), Code::Unauthenticated, "OBO_SIGNATURE_INVALID"),
            (Some(stranger.sign(&right).unwrap()), Code::Unauthenticated, "OBO_SIGNER_UNTRUSTED"),
            (sign(past), Code::Unauthenticated, "OBO_EXPIRED"),
            (sign(future), Code::Unauthenticated, "OBO_NOT_YET_VALID"),
            (
                sign(Obo { issuer: elsewhere, ..right.clone() }),
                Code::PermissionDenied,
                "OBO_ISSUER_MISMATCH",
            ),
            (
                sign(Obo { audience: Audience::AuditSvc, ..right.clone() }),
                Code::PermissionDenied,
                "OBO_AUDIENCE_MISMATCH",
            ),
            (
                sign(Obo { method: format!("{METHOD}{other_method}"), ..right.clone() }),
                Code::PermissionDenied,
                "OBO_METHOD_MISMATCH",
            ),
            (
                sign(Obo { session: Some(SessionId::new()), ..right.clone() }),
                Code::PermissionDenied,
                "OBO_SESSION_MISMATCH",
            ),
            (
                sign(Obo { permission: Some(PermissionId::new()), ..right.clone() }),
                Code::PermissionDenied,
                "OBO_PERMISSION_MISMATCH",
            ),
            (
                sign(Obo { roles: vec![Role::Auditor], ..right.clone() }),
                Code::PermissionDenied,
                "ROLE_NOT_ALLOWED",
            ),
        ];
        for (signed, code, expected) in table {
            let refused = reason(send(&alice.client, &call, signed.as_ref()).await);
            assert_eq!(refused, (code, expected.to_owned()), "{}", call.method);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_used_once() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    let call = calls(session).into_iter().find(|call| call.method == "GetSession").unwrap();
    let signed = alice.signer.sign(&context(&alice, &call)).unwrap();
    assert_eq!(send(&alice.client, &call, Some(&signed)).await, Ok(()));
    let again = reason(send(&alice.client, &call, Some(&signed)).await);
    assert_eq!(again, (Code::PermissionDenied, "OBO_REPLAYED".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_and_does_nothing_else() {
    let mesh = Mesh::start().await;
    let session = Person::operator(&mesh).create().await;
    let viewer = Person::named(&mesh, "vera", Role::Viewer);
    for call in calls(session) {
        let signed = viewer.signer.sign(&context(&viewer, &call)).unwrap();
        let result = send(&viewer.client, &call, Some(&signed)).await;
        if call.acts {
            let refused = (Code::PermissionDenied, "ROLE_NOT_ALLOWED".to_owned());
            assert_eq!(reason(result), refused, "{}", call.method);
        } else if call.method == "GetPatch" {
            // Let in, and there is no such ask.
            let unknown = (Code::NotFound, "PERMISSION_NOT_FOUND".to_owned());
            assert_eq!(reason(result), unknown);
        } else {
            assert_eq!(result, Ok(()), "{}", call.method);
        }
    }
    let speaking = viewer.subscribe(session, None, true).await.map(|_| ());
    assert_eq!(reason(speaking), (Code::PermissionDenied, "ROLE_NOT_ALLOWED".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn anothers_session_and_no_session_are_the_same() {
    let mesh = Mesh::start().await;
    let session = Person::operator(&mesh).create().await;
    let stranger = Person { tenant: "other".to_owned(), ..Person::operator(&mesh) };
    let by_id = |call: &Call| !matches!(call.method, "CreateSession" | "ListSessions");
    for (foreign, absent) in
        calls(session).into_iter().zip(calls(SessionId::new())).filter(|(call, _)| by_id(call))
    {
        let mut answers = Vec::new();
        for call in [foreign, absent] {
            let signed = stranger.signer.sign(&context(&stranger, &call)).unwrap();
            let answer = send(&stranger.client, &call, Some(&signed)).await;
            assert_eq!(
                answer.as_ref().map_err(|fault| (fault.code, fault.reason.as_str())),
                Err((Code::NotFound, "SESSION_NOT_FOUND")),
                "{}",
                call.method
            );
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1]);
    }
    let obo = stranger.obo("ListSessions", None, None);
    let request = stranger.with(wire::ListSessionsRequest::default(), &obo);
    let listed = stranger.client.clone().list_sessions(request).await.unwrap().into_inner();
    assert_eq!(listed, wire::ListSessionsResponse::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_service_is_let_in() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    for service in [Service::AgentSvc, Service::SandboxSvc, Service::ModelSvc, Service::AuditSvc] {
        let client = client(&mesh, service);
        for call in calls(session) {
            let signed = alice.signer.sign(&context(&alice, &call)).unwrap();
            let fault = send(&client, &call, Some(&signed)).await.unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied, "{service} {}", call.method);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_malformed_is_refused_by_the_field() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    for (content, tokens) in
        [(String::new(), None), ("x".repeat(524_289), None), ("x".into(), Some(0))]
    {
        let message = wire::PromptRequest {
            session_id: session.to_string(),
            content,
            max_model_tokens: tokens,
            ..Default::default()
        };
        let request = alice.about(message, "Prompt", session);
        let fault = Fault::from(alice.client.clone().prompt(request).await.unwrap_err());
        assert_eq!((fault.code, fault.reason.as_str()), (Code::InvalidArgument, "REQUEST_INVALID"));
    }
    let message = wire::CancelRequest { session_id: session.to_string().to_uppercase() };
    let request = alice.about(message, "Cancel", session);
    let fault = Fault::from(alice.client.clone().cancel(request).await.unwrap_err());
    assert_eq!((fault.code, fault.reason.as_str()), (Code::InvalidArgument, "REQUEST_INVALID"));
    let late = alice.subscribe(session, Some(7), true).await.map(|_| ());
    assert_eq!(reason(late), (Code::InvalidArgument, "REQUEST_INVALID".to_owned()));
    assert_eq!(alice.get(session).await.unwrap().run_id, None);
}
