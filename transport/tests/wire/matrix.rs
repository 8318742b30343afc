//! Every method against every kind of admitted peer, from the descriptor set; anything else was refused in the handshake.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use proto::audit::v1::audit_service_server::AuditServiceServer;
use tonic::body::Body;
use tower::ServiceExt as _;
use transport::{
    Context, Fault, Identity, Material, PeerChannel, Service,
    authz::{Caller, Table, methods},
    material::Pem,
    server::{Error, Server},
};

use crate::{
    ledger::{Ledger, ROWS, SERVICE, table},
    setup::{ANY_PORT, LIMIT, Setup, pki},
};

/// Calls `method` with an empty message; a reason, or nothing when the gate let it pass.
async fn refusal(channel: PeerChannel, method: &str) -> Option<String> {
    let mut request =
        Request::post(method).body(Body::new(Full::new(Bytes::from_static(&[0; 5])))).unwrap();
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, "application/grpc".parse().unwrap());
    headers.insert(header::TE, "trailers".parse().unwrap());
    headers.insert("grpc-timeout", "10S".parse().unwrap());
    let response = tokio::time::timeout(LIMIT, channel.oneshot(request)).await.unwrap().unwrap();
    let status = tonic::Status::from_header_map(response.headers())?;
    (status.code() != tonic::Code::Ok).then(|| Fault::from(status).reason)
}

#[tokio::test]
async fn every_method_admits_exactly_the_peers_of_its_row() {
    let setup = Setup::new().await;
    let auditor = setup.pki.auditor("eve").unwrap();
    let mut peers: Vec<_> = Service::ALL
        .into_iter()
        .map(|service| {
            (Identity::Service { service, instance: "0".to_owned() }, setup.channel(service))
        })
        .collect();
    let auditors = setup.channel_of(setup.pki.material(&auditor).unwrap(), setup.auditors);
    peers.push((Identity::Auditor { name: "eve".to_owned() }, auditors));

    let all = methods(proto::DESCRIPTORS, &[SERVICE]).unwrap();
    assert_eq!(all.len(), ROWS.len());
    for method in &all {
        let row = ROWS.iter().find(|row| row.method == method).expect("every method has a row");
        for (identity, channel) in &peers {
            let expected = match row.callers.iter().any(|caller| caller.is(identity)) {
                // An empty Prove is the handler's own failure.
                true if method.ends_with("/Prove") => Some("INTERNAL"),
                true => None,
                false => Some("METHOD_NOT_ALLOWED"),
            };
            assert_eq!(
                refusal(channel.clone(), method).await.as_deref(),
                expected,
                "{method} by {identity:?}"
            );
        }
    }
    let health = "/grpc.health.v1.Health/Check";
    for (identity, channel) in &peers {
        let expected = (!Caller::AnyService.is(identity)).then_some("METHOD_NOT_ALLOWED");
        assert_eq!(refusal(channel.clone(), health).await.as_deref(), expected, "{identity:?}");
    }
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_answered_like_one_that_is_not_allowed() {
    let setup = Setup::new().await;
    for method in
        ["/harness.audit.v1.AuditService/Erase", "/grpc.reflection.v1.ServerReflection/X", "/"]
    {
        let refused = refusal(setup.channel(Service::Gateway), method).await;
        assert_eq!(refused.as_deref(), Some("METHOD_NOT_ALLOWED"), "{method}");
    }
}

#[tokio::test]
async fn a_service_that_the_table_does_not_list_stops_the_start() {
    let pki = pki();
    let context = pki.context(Service::AuditSvc).unwrap();
    let ledger = || AuditServiceServer::new(Ledger::new(None));
    let unlisted = Server::new(&context, Table::new(&[], &[], &[]).unwrap())
        .add_service(ledger())
        .bind()
        .await;
    let (listed, added) = (Vec::<String>::new(), vec![SERVICE.to_owned()]);
    assert!(
        matches!(unlisted, Err(Error::Services { listed: l, added: a }) if l == listed && a == added)
    );
    let absent = Server::new(&context, table()).bind().await;
    assert!(
        matches!(absent, Err(Error::Services { listed: l, added: a }) if l == added && a == listed)
    );
}

#[tokio::test]
async fn a_listener_for_auditors_without_their_issuers_stops_the_start() {
    let pki = pki();
    let issued = pki.service(Service::AuditSvc, "0").unwrap();
    let pem = Pem {
        chain: issued.cert_pem.into_bytes(),
        key: issued.key_pem.into_bytes(),
        ca: pki.services.cert_pem().into(),
        auditors_ca: None,
        denylist: None,
    };
    let context = Context::for_test(Material::from_pem(pem, pki.domain.clone()).unwrap());
    let server =
        Server::new(&context, Table::new(&[], &[], &[]).unwrap()).auditors_listener(ANY_PORT);
    assert!(matches!(server.bind().await, Err(Error::NoIssuers { flag: "auditors-listen" })));
}
