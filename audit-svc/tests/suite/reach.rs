//! Who may look how far: auditors everywhere, the gateway only for a person, within that person's tenant and call.

use event::id::SessionId;
use proto::audit::v1::{
    CheckpointRequest, ExportRequest, NewEntry, ProveRequest, QueryRequest, prove_request::Key,
};
use receipt::{Audience, OBO_KEY, Obo, OboId, Role, Signer};
use time::OffsetDateTime;
use tonic::Request;
use tonic::metadata::MetadataValue;
use transport::{Fault, Service};

use crate::fixture::{Client, Ledger, TENANT, append, collect, entry, note};

const QUERY: &str = "/harness.audit.v1.AuditService/Query";
const PROVE: &str = "/harness.audit.v1.AuditService/Prove";
const EXPORT: &str = "/harness.audit.v1.AuditService/Export";
const CHECKPOINT: &str = "/harness.audit.v1.AuditService/Checkpoint";

fn obo(method: &str, session: Option<SessionId>) -> Obo {
    let iat = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
    Obo {
        issuer: "spiffe://harness.test/svc/gateway/0".to_owned(),
        audience: Audience::AuditSvc,
        tenant: TENANT.to_owned(),
        subject: "ann".to_owned(),
        roles: vec![Role::Operator],
        method: method.to_owned(),
        session,
        permission: None,
        id: OboId::new(),
        iat,
        exp: iat + 60,
    }
}

fn bearing<T>(ledger: &Ledger, obo: &Obo, message: T) -> Request<T> {
    let issued = ledger.pki.receipts("0").unwrap();
    let signer = Signer::from_pem(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap();
    let bytes = signer.sign(obo).unwrap().to_bytes().unwrap();
    let mut request = Request::new(message);
    request.metadata_mut().insert_bin(OBO_KEY, MetadataValue::from_bytes(&bytes));
    request
}

async fn refused(client: &Client, request: Request<QueryRequest>) -> String {
    Fault::from(client.clone().query(request).await.unwrap_err()).reason
}

#[tokio::test]
async fn the_gateway_reads_only_for_a_person() {
    let ledger = Ledger::start().await;
    let (session, gateway) = (SessionId::new(), ledger.client(Service::Gateway));
    append(&ledger.client(Service::AgentSvc), vec![entry(session, 0, &note("a"))]).await.unwrap();
    let of = |session: SessionId| QueryRequest {
        session_id: session.to_string(),
        ..QueryRequest::default()
    };
    let good = obo(QUERY, Some(session));
    let with = |obo: Obo| bearing(&ledger, &obo, of(session));

    let found =
        collect(gateway.clone().query(with(good.clone())).await.unwrap().into_inner()).await;
    assert_eq!(found.len(), 1);

    assert_eq!(refused(&gateway, Request::new(of(session))).await, "OBO_REQUIRED");
    let mut broken = Request::new(of(session));
    broken.metadata_mut().insert_bin(OBO_KEY, MetadataValue::from_bytes(b"{}"));
    assert_eq!(refused(&gateway, broken).await, "OBO_MALFORMED");
    for (spoiled, reason) in [
        (Obo { method: EXPORT.to_owned(), ..good.clone() }, "OBO_METHOD_MISMATCH"),
        (Obo { audience: Audience::AgentSvc, ..good.clone() }, "OBO_AUDIENCE_MISMATCH"),
        (
            Obo { issuer: "spiffe://harness.test/svc/gateway/1".to_owned(), ..good.clone() },
            "OBO_ISSUER_MISMATCH",
        ),
        (Obo { session: None, ..good.clone() }, "OBO_SESSION_MISMATCH"),
        (Obo { session: Some(SessionId::new()), ..good.clone() }, "OBO_SESSION_MISMATCH"),
        (Obo { roles: vec![Role::Viewer, Role::Admin], ..good.clone() }, "ROLE_NOT_ALLOWED"),
        (Obo { iat: good.iat - 100, exp: good.iat - 50, ..good.clone() }, "OBO_EXPIRED"),
        (Obo { iat: good.iat + 300, exp: good.iat + 350, ..good.clone() }, "OBO_NOT_YET_VALID"),
    ] {
        assert_eq!(refused(&gateway, with(spoiled)).await, reason);
    }
    let elsewhere = QueryRequest { tenant: "t-2".to_owned(), ..of(session) };
    assert_eq!(refused(&gateway, bearing(&ledger, &good, elsewhere)).await, "OBO_TENANT_MISMATCH");

    // A context of somebody else's installation.
    let other = Ledger::start().await;
    assert_eq!(
        refused(&gateway, bearing(&other, &good, of(session))).await,
        "OBO_SIGNER_UNTRUSTED"
    );
}

#[tokio::test]
async fn another_tenants_entries_do_not_exist_for_a_person() {
    let ledger = Ledger::start().await;
    let (own, foreign) = (SessionId::new(), SessionId::new());
    let (agent, gateway) = (ledger.client(Service::AgentSvc), ledger.client(Service::Gateway));
    let elsewhere = NewEntry { tenant: "t-2".to_owned(), ..entry(foreign, 0, &note("b")) };
    append(&agent, vec![entry(own, 0, &note("a")), elsewhere]).await.unwrap();

    let all = bearing(&ledger, &obo(QUERY, None), QueryRequest::default());
    let found = collect(gateway.clone().query(all).await.unwrap().into_inner()).await;
    assert_eq!(found.iter().map(|stored| stored.log_index).collect::<Vec<_>>(), [0]);
    let query = QueryRequest { session_id: foreign.to_string(), ..QueryRequest::default() };
    let query = bearing(&ledger, &obo(QUERY, Some(foreign)), query);
    assert_eq!(collect(gateway.clone().query(query).await.unwrap().into_inner()).await, []);

    let prove = |index| {
        bearing(&ledger, &obo(PROVE, None), ProveRequest { key: Some(Key::LogIndex(index)) })
    };
    assert_eq!(gateway.clone().prove(prove(0)).await.unwrap().into_inner().log_index, 0);
    let foreign = Fault::from(gateway.clone().prove(prove(1)).await.unwrap_err());
    let unknown = Fault::from(gateway.clone().prove(prove(99)).await.unwrap_err());
    assert_eq!(foreign, unknown);

    let export = |session: SessionId| {
        let request = ExportRequest { tenant: String::new(), session_id: session.to_string() };
        bearing(&ledger, &obo(EXPORT, Some(session)), request)
    };
    let chunks = collect(gateway.clone().export(export(own)).await.unwrap().into_inner()).await;
    let lines: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.chunk).collect();
    assert_eq!(ledger::verify_bundle(&lines).map(|summary| summary.entries), Ok(1));
    let nil = Fault::from(gateway.clone().export(export(SessionId::nil())).await.unwrap_err());
    assert_eq!(nil.reason, "REQUEST_MALFORMED");

    let checkpoint = bearing(&ledger, &obo(CHECKPOINT, None), CheckpointRequest {});
    assert_eq!(gateway.clone().checkpoint(checkpoint).await.unwrap().into_inner().size, 2);
    let bare = Fault::from(gateway.clone().checkpoint(CheckpointRequest {}).await.unwrap_err());
    assert_eq!(bare.reason, "OBO_REQUIRED");
}

#[tokio::test]
async fn auditors_read_and_never_write() {
    let ledger = Ledger::start().await;
    let mut auditor = ledger.auditor();
    assert!(append(&auditor, vec![entry(SessionId::new(), 0, &note("a"))]).await.is_err());
    assert_eq!(auditor.checkpoint(CheckpointRequest {}).await.unwrap().into_inner().size, 0);
    // The services' listener does not even shake hands with an auditor, nor agent-svc's certificate read what is not its own.
    let fault = Fault::from(
        ledger.client(Service::AgentSvc).checkpoint(CheckpointRequest {}).await.unwrap_err(),
    );
    assert_eq!(fault.code, transport::Code::PermissionDenied);
}
