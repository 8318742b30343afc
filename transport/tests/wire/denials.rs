//! The deny list on connections that are already open.

use proto::audit::v1::{ReadStreamRequest, Stored};
use transport::{Code, Fault, Service, material::Reload};

use crate::setup::{LIMIT, Setup, append, soon};

fn denied() -> Fault {
    Fault {
        code: Code::PermissionDenied,
        reason: "PEER_DENIED".to_owned(),
        message: "this peer is on the deny list".to_owned(),
        retry_after: None,
    }
}

fn deny(setup: &Setup, entries: &str) {
    std::fs::write(setup.dir("audit-svc").join("denylist"), entries).unwrap();
    assert_eq!(setup.context.material.reload().unwrap(), Reload::Changed);
}

#[tokio::test]
async fn a_ban_bites_the_next_request_and_every_open_stream_of_a_live_connection() {
    let setup = Setup::new().await;
    let (mut agent, mut gateway) =
        (setup.client(Service::AgentSvc), setup.client(Service::Gateway));
    append(&mut agent).await.unwrap();
    append(&mut gateway).await.unwrap();
    let mut stream =
        agent.read_stream(soon(ReadStreamRequest::default())).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap(), Some(Stored::default()));

    deny(&setup, "spiffe://harness.test/svc/agent-svc/0\n");
    let ended = tokio::time::timeout(LIMIT, stream.message()).await.expect("the stream ends");
    assert_eq!(Fault::from(ended.unwrap_err()), denied());
    assert_eq!(append(&mut agent).await.unwrap_err(), denied());
    append(&mut gateway).await.unwrap();
    setup.ledger.idle().await;

    deny(&setup, "");
    append(&mut agent).await.unwrap();
}

#[tokio::test]
async fn a_serial_number_bans_one_certificate_and_not_its_successor() {
    let setup = Setup::new().await;
    let mut agent = setup.client(Service::AgentSvc);
    let ack = append(&mut agent).await.unwrap().acks.remove(0);
    deny(&setup, &String::from_utf8(ack.leaf_hash).unwrap().to_uppercase());
    assert_eq!(append(&mut agent).await.unwrap_err(), denied());
    let mut successor = setup.client(Service::AgentSvc);
    assert_eq!(append(&mut successor).await.unwrap().acks[0].session_id, ack.session_id);
}

#[tokio::test]
async fn a_client_uses_no_connection_to_a_denied_server() {
    let setup = Setup::new().await;
    setup.write("agent-svc", &setup.pki.service(Service::AgentSvc, "0").unwrap());
    let dir = setup.dir("agent-svc");
    let material = transport::Material::open(&dir, setup.pki.domain.clone()).unwrap();
    let channel = setup.channel_of(material.clone(), setup.services);
    let mut agent = proto::audit::v1::audit_service_client::AuditServiceClient::new(channel);
    append(&mut agent).await.unwrap();
    let calls = setup.ledger.calls();

    std::fs::write(dir.join("denylist"), "spiffe://harness.test/svc/audit-svc/0").unwrap();
    material.reload().unwrap();
    for _ in 0..3 {
        let fault = append(&mut agent).await.unwrap_err();
        assert_eq!(
            (fault.code, fault.reason.as_str()),
            (Code::Unavailable, "PEER_NOT_TRUSTED"),
            "{fault:?}"
        );
    }
    assert_eq!(setup.ledger.calls(), calls);
}
