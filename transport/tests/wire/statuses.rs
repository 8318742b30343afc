//! Failures as a caller sees them.

use proto::audit::v1::{AppendRequest, NewEntry, ProveRequest, prove_request::Key};
use transport::{Code, Fault, Service};

use crate::setup::{Setup, append, soon};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn an_internal_cause_stays_home() {
    let setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    let failing = ProveRequest { key: Some(Key::EventId("x".to_owned())) };
    for (request, reason) in [(failing, "TREE_UNREADABLE"), (ProveRequest::default(), "INTERNAL")] {
        let status = client.prove(soon(request)).await.unwrap_err();
        assert!(!format!("{status:?}").contains("secret"), "{status:?}");
        assert_eq!(
            Fault::from(status),
            Fault {
                code: Code::Internal,
                reason: reason.to_owned(),
                message: "internal error".to_owned(),
                retry_after: None
            }
        );
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_with_its_reason_on_either_side() {
    let setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    let entry = |bytes: usize| NewEntry { event: vec![0; bytes], ..NewEntry::default() };
    let answer =
        client.append(soon(AppendRequest { entries: vec![entry(3 * MIB)] })).await.unwrap();
    assert_eq!(answer.into_inner().acks[0].log_index, (3 * MIB) as u64);
    let status =
        client.append(soon(AppendRequest { entries: vec![entry(5 * MIB)] })).await.unwrap_err();
    let fault = Fault::from(status);
    assert_eq!((fault.code, fault.reason.as_str()), (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"));

    let large = ProveRequest { key: Some(Key::LogIndex((5 * MIB) as u64)) };
    let fault = Fault::from(client.prove(soon(large)).await.unwrap_err());
    assert_eq!((fault.code, fault.reason.as_str()), (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"));
    append(&mut client).await.unwrap();
}

#[tokio::test]
async fn the_peer_comes_from_the_certificate() {
    let setup = Setup::new().await;
    for service in [Service::AgentSvc, Service::Gateway] {
        let ack = append(&mut setup.client(service)).await.unwrap().acks.remove(0);
        assert_eq!(ack.session_id, format!("spiffe://harness.test/svc/{service}/0"));
    }
}

#[tokio::test]
async fn an_auditor_reads_at_its_own_listener() {
    let setup = Setup::new().await;
    let mut stream = setup
        .auditor()
        .query(soon(proto::audit::v1::QueryRequest::default()))
        .await
        .unwrap()
        .into_inner();
    let mut seqs = Vec::new();
    while let Some(entry) = stream.message().await.unwrap() {
        seqs.push(entry.seq);
    }
    assert_eq!(seqs, [0, 1, 2]);
    let fault = append(&mut setup.auditor()).await.unwrap_err();
    assert_eq!((fault.code, fault.reason.as_str()), (Code::PermissionDenied, "METHOD_NOT_ALLOWED"));
}
