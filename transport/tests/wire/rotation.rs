//! New certificates and new issuers without a restart.

use std::{sync::Arc, time::Duration};

use proto::audit::v1::{ReadStreamRequest, audit_service_client::AuditServiceClient};
use tokio_rustls::client::TlsStream;
use transport::{
    Material, PeerChannel, Service,
    issue::{DevPki, Issued},
    material::Reload,
};

use crate::{
    ledger::Ledger,
    setup::{LIMIT, Setup, append, dial, pki, raw_config, soon},
};

pub(crate) fn presented(stream: &TlsStream<tokio::net::TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

pub(crate) fn der(issued: &Issued) -> Vec<u8> {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap().to_vec()
}

fn agent(setup: &Setup) -> (Arc<Material>, AuditServiceClient<PeerChannel>) {
    setup.write("agent-svc", &setup.pki.service(Service::AgentSvc, "0").unwrap());
    let material = Material::open(&setup.dir("agent-svc"), setup.pki.domain.clone()).unwrap();
    let channel = setup.channel_of(material.clone(), setup.services);
    (material, AuditServiceClient::new(channel))
}

#[tokio::test]
async fn a_new_leaf_is_presented_to_the_next_connection_and_old_ones_go_on() {
    let setup = Setup::new().await;
    let mut old = setup.client(Service::AgentSvc);
    append(&mut old).await.unwrap();
    let next = setup.pki.service(Service::AuditSvc, "0").unwrap();
    setup.write("audit-svc", &next);
    assert_eq!(setup.context.material.reload().unwrap(), Reload::Changed);
    let client = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let stream =
        dial(setup.services, raw_config(setup.pki.services.cert_pem(), Some(&client), b"h2"))
            .await
            .unwrap();
    assert_eq!(presented(&stream), der(&next));
    append(&mut old).await.unwrap();
    append(&mut setup.client(Service::AgentSvc)).await.unwrap();
}

#[tokio::test]
async fn files_that_do_not_belong_together_change_nothing() {
    let setup = Setup::new().await;
    let next = setup.pki.service(Service::AuditSvc, "0").unwrap();
    std::fs::write(setup.dir("audit-svc").join("tls.crt"), &next.cert_pem).unwrap();
    setup.context.material.reload().unwrap_err();
    append(&mut setup.client(Service::AgentSvc)).await.unwrap();
    let client = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let stream =
        dial(setup.services, raw_config(setup.pki.services.cert_pem(), Some(&client), b"h2"))
            .await
            .unwrap();
    assert_ne!(presented(&stream), der(&next));
}

#[tokio::test]
async fn new_issuers_count_from_the_next_connection_on_and_old_ones_no_longer() {
    let setup = Setup::new().await;
    let (material, _) = agent(&setup);
    let next: DevPki = pki();
    next.write_tls_dir(&setup.dir("audit-svc"), &next.service(Service::AuditSvc, "0").unwrap())
        .unwrap();
    setup.context.material.reload().unwrap();

    let mut stale = AuditServiceClient::new(setup.channel_of(material.clone(), setup.services));
    assert_eq!(append(&mut stale).await.unwrap_err().reason, "PEER_NOT_TRUSTED");
    next.write_tls_dir(&setup.dir("agent-svc"), &next.service(Service::AgentSvc, "0").unwrap())
        .unwrap();
    material.reload().unwrap();
    append(&mut stale).await.unwrap();
}

#[tokio::test]
async fn a_connection_is_replaced_at_its_age_and_its_streams_finish() {
    let age = Duration::from_millis(200);
    let setup = Setup::with(Ledger::new(None), |server| server.connection_age(age)).await;
    let (material, mut client) = agent(&setup);
    let first = append(&mut client).await.unwrap().acks.remove(0).leaf_hash;
    let mut stream =
        client.read_stream(soon(ReadStreamRequest::default())).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();

    setup.write("agent-svc", &setup.pki.service(Service::AgentSvc, "0").unwrap());
    material.reload().unwrap();
    let replaced = async {
        while append(&mut client).await.expect("no call is lost").acks.remove(0).leaf_hash == first
        {
        }
    };
    tokio::time::timeout(LIMIT, replaced).await.expect("the new certificate reaches the server");

    setup.ledger.release.add_permits(1);
    let entry = tokio::time::timeout(LIMIT, stream.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(entry.seq, 1, "the stream of the old connection goes on");
}

#[tokio::test]
async fn no_session_is_resumed() {
    let setup = Setup::new().await;
    let client = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let config = raw_config(setup.pki.services.cert_pem(), Some(&client), b"h2");
    for _ in 0..2 {
        let mut stream = dial(setup.services, config.clone()).await.unwrap();
        // Tickets would arrive before the first byte of the protocol.
        tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}
