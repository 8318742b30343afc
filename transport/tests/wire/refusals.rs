//! Strangers, refused in the handshake: no handler runs, the counter and its label say why.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::io::AsyncReadExt as _;
use transport::{
    Fault, Service,
    issue::{DevPki, Eku, Issued, LeafSpec},
};

use crate::setup::{ANY_PORT, LIMIT, Setup, append, dial, metric, pki, raw_config};

/// Whether the server lets the connection live long enough to send its settings.
async fn admitted(
    setup: &Setup,
    addr: std::net::SocketAddr,
    issued: Option<&Issued>,
    protocol: &[u8],
) -> bool {
    let config = raw_config(setup.pki.services.cert_pem(), issued, protocol);
    let Ok(mut stream) = dial(addr, config).await else { return false };
    let mut first = [0; 1];
    let read = tokio::time::timeout(LIMIT, stream.read(&mut first))
        .await
        .expect("the server says something");
    matches!(read, Ok(1))
}

#[tokio::test]
async fn strangers_are_refused_in_the_handshake_and_counted_with_their_reason() {
    let setup = Setup::new().await;
    let (services, auditors) = (setup.services, setup.auditors);
    let pki = &setup.pki;
    let namesake = self::pki();
    let foreign = DevPki::new("other.test".parse().unwrap()).unwrap();
    let now = OffsetDateTime::now_utc();
    let spec = pki.leaf("svc/agent-svc/0");
    let two = vec![spec.uri_sans[0].clone(), "spiffe://harness.test/svc/gateway/0".to_owned()];
    let issue = |spec: LeafSpec| pki.services.issue(&spec).unwrap();
    let uri = |uri: &str| issue(LeafSpec { uri_sans: vec![uri.to_owned()], ..spec.clone() });
    let cases = [
        ("no_certificate", services, None),
        ("bad_signature", services, Some(namesake.service(Service::AgentSvc, "0").unwrap())),
        ("unknown_issuer", services, Some(foreign.services.issue(&spec).unwrap())),
        ("unknown_issuer", services, Some(pki.root.issue(&spec).unwrap())),
        ("other_trust_domain", services, Some(uri("spiffe://other.test/svc/agent-svc/0"))),
        ("no_uri", services, Some(issue(LeafSpec { uri_sans: Vec::new(), ..spec.clone() }))),
        ("many_uris", services, Some(issue(LeafSpec { uri_sans: two, ..spec.clone() }))),
        ("malformed_id", services, Some(uri("spiffe://harness.test/svc/agent-svc-evil/0"))),
        ("malformed_id", services, Some(uri("spiffe://harness.test/svc/agent-svc/0/"))),
        ("malformed_id", services, Some(uri("https://harness.test/svc/agent-svc/0"))),
        (
            "expired",
            services,
            Some(issue(LeafSpec { not_after: now - Duration::from_secs(60), ..spec.clone() })),
        ),
        (
            "not_valid_yet",
            services,
            Some(issue(LeafSpec { not_before: now + Duration::from_secs(60), ..spec.clone() })),
        ),
        ("issuer_as_leaf", services, Some(issue(LeafSpec { is_ca: true, ..spec.clone() }))),
        ("wrong_purpose", services, Some(pki.receipts("0").unwrap())),
        ("signing_only", services, Some(issue(pki.leaf("receipts/gateway/0")))),
        (
            "wrong_purpose",
            services,
            Some(issue(LeafSpec { ekus: vec![Eku::ServerAuth], ..spec.clone() })),
        ),
        ("role_not_admitted", services, Some(issue(pki.leaf("auditor/eve")))),
        ("role_not_admitted", services, Some(issue(pki.leaf("client/t/c")))),
        ("unknown_issuer", services, Some(pki.auditor("eve").unwrap())),
        ("unknown_issuer", services, Some(pki.client("t", "c").unwrap())),
        ("unknown_issuer", auditors, Some(pki.service(Service::Gateway, "0").unwrap())),
        (
            "role_not_admitted",
            auditors,
            Some(pki.auditors.issue(&pki.leaf("svc/gateway/0")).unwrap()),
        ),
    ];
    for (number, (reason, addr, issued)) in cases.into_iter().enumerate() {
        let listener = if addr == services { "listen" } else { "auditors-listen" };
        let series = format!(
            "harness_tls_handshake_failures_total{{listener=\"{listener}\",reason=\"{reason}\"}}"
        );
        let before = metric(&setup.get("/metrics").await.1, &series);
        assert!(!admitted(&setup, addr, issued.as_ref(), b"h2").await, "case {number}: {reason}");
        let counted = async {
            while metric(&setup.get("/metrics").await.1, &series) <= before {
                tokio::task::yield_now().await;
            }
        };
        let counted = tokio::time::timeout(LIMIT, counted).await;
        counted.unwrap_or_else(|_| panic!("case {number}: {series} did not grow"));
    }
    assert_eq!(setup.ledger.calls(), 0);

    let agent = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let auditor = setup.pki.auditor("eve").unwrap();
    assert!(
        admitted(&setup, services, Some(&agent), b"h2").await,
        "the right certificate is admitted"
    );
    assert!(
        admitted(&setup, auditors, Some(&auditor), b"h2").await,
        "the right auditor is admitted"
    );
}

#[tokio::test]
async fn another_protocol_or_none_is_refused() {
    let setup = Setup::new().await;
    let agent = setup.pki.service(Service::AgentSvc, "0").unwrap();
    assert!(!admitted(&setup, setup.services, Some(&agent), b"http/1.1").await);
    let mut config = raw_config(setup.pki.services.cert_pem(), Some(&agent), b"h2");
    config.alpn_protocols.clear();
    let mut stream = dial(setup.services, config).await.unwrap();
    let read = tokio::time::timeout(LIMIT, stream.read_u8()).await.expect("the server hangs up");
    read.unwrap_err();
}

#[tokio::test]
async fn a_refused_client_learns_that_its_certificate_was_refused() {
    let setup = Setup::new().await;
    let issued = setup.pki.auditor("eve").unwrap();
    let material = setup.pki.material(&issued).unwrap();
    let fault = setup.channel_of(material, setup.services).probe(LIMIT).await.unwrap_err();
    assert_eq!(fault.reason, "PEER_REFUSED_US", "{fault:?}");
}

#[tokio::test]
async fn a_client_refuses_a_server_that_is_not_the_expected_service() {
    let setup = Setup::new().await;
    let issued = setup.pki.service(Service::Gateway, "0").unwrap();
    let material = setup.pki.material(&issued).unwrap();
    let context = transport::Context::for_test(material);
    let channel =
        transport::channel::connect(&context, &setup.services.into(), Service::SandboxSvc);
    let fault = channel.probe(LIMIT).await.unwrap_err();
    assert_eq!(fault.reason, "PEER_NOT_TRUSTED", "{fault:?}");
    assert_eq!(setup.ledger.calls(), 0);
}

#[tokio::test]
async fn a_client_refuses_a_server_of_another_installation() {
    let setup = Setup::new().await;
    let foreign = pki();
    let material = foreign.material(&foreign.service(Service::Gateway, "0").unwrap()).unwrap();
    let fault = setup.channel_of(material, setup.services).probe(LIMIT).await.unwrap_err();
    assert_eq!(fault.reason, "PEER_NOT_TRUSTED", "{fault:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_unreachable_and_says_where() {
    let setup = Setup::new().await;
    let free = tokio::net::TcpListener::bind(ANY_PORT).await.unwrap().local_addr().unwrap();
    let issued = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let channel = setup.channel_of(setup.pki.material(&issued).unwrap(), free);
    let Fault { reason, message, .. } = channel.probe(LIMIT).await.unwrap_err();
    assert_eq!(reason, "PEER_UNREACHABLE");
    assert!(
        message.contains(&format!("audit-svc at {free}")) && message.contains("refused"),
        "{message}"
    );
}

#[tokio::test]
async fn a_silent_client_does_not_keep_its_handshake_open() {
    let setup = Setup::new().await;
    let mut silent = tokio::net::TcpStream::connect(setup.services).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(8), silent.read_u8()).await;
    closed.expect("closed within the handshake limit").unwrap_err();
    let series = "harness_tls_handshake_failures_total{listener=\"listen\",reason=\"timeout\"}";
    assert!(metric(&setup.get("/metrics").await.1, series) >= 1.0);
    append(&mut setup.client(Service::AgentSvc)).await.unwrap();
}
