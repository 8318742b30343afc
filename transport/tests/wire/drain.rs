//! The end of a server with requests still open.

use std::time::{Duration, Instant};

use proto::audit::v1::{ExportRequest, ProveRequest, ReadStreamRequest, prove_request::Key};
use tokio::task::JoinSet;
use transport::{Code, Fault, Service};

use crate::{
    ledger::{Ledger, READ_STREAM},
    setup::{LIMIT, Setup, append, dial, raw_config, soon},
};

async fn ended(setup: &mut Setup) -> Duration {
    let started = Instant::now();
    tokio::time::timeout(LIMIT, setup.server.join_next())
        .await
        .expect("the server ends")
        .unwrap()
        .unwrap();
    started.elapsed()
}

fn is_draining(fault: &Fault) -> bool {
    fault.code == Code::Unavailable && fault.reason == "DRAINING"
}

#[tokio::test]
async fn an_open_stream_is_ended_in_good_order_within_the_limit() {
    let mut setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    let mut stream =
        client.read_stream(soon(ReadStreamRequest::default())).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    setup.shutdown.cancel();
    let status =
        tokio::time::timeout(LIMIT, stream.message()).await.expect("the stream ends").unwrap_err();
    assert!(is_draining(&Fault::from(status)));
    assert!(ended(&mut setup).await < setup.context.drain_timeout);
    setup.ledger.idle().await;
}

#[tokio::test]
async fn a_stream_without_end_is_ended_at_once() {
    let mut setup =
        Setup::with(Ledger::new(None), |server| server.ends_at_shutdown(READ_STREAM)).await;
    let mut client = setup.client(Service::AgentSvc);
    let mut stream =
        client.read_stream(soon(ReadStreamRequest::default())).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let started = Instant::now();
    setup.shutdown.cancel();
    let status =
        tokio::time::timeout(LIMIT, stream.message()).await.expect("the stream ends").unwrap_err();
    assert!(is_draining(&Fault::from(status)));
    ended(&mut setup).await;
    assert!(started.elapsed() < setup.context.drain_timeout / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_request_that_is_being_served_gets_its_answer() {
    let mut setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    let mut calls = JoinSet::new();
    let waiting = ProveRequest { key: Some(Key::LogIndex(0)) };
    calls.spawn(async move { client.prove(soon(waiting)).await });
    setup.ledger.busy().await;
    setup.shutdown.cancel();
    setup.ledger.release.add_permits(1);
    calls.join_next().await.unwrap().unwrap().unwrap();
    ended(&mut setup).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_hold_up_the_end() {
    let mut setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    // Its window fills up, and then neither data nor trailers get through.
    let stream = client.export(soon(ExportRequest::default())).await.unwrap();
    setup.ledger.busy().await;
    setup.shutdown.cancel();
    let took = ended(&mut setup).await;
    assert!(took < setup.context.drain_timeout + Duration::from_secs(1), "{took:?}");
    setup.ledger.idle().await;
    drop(stream);
}

#[tokio::test]
async fn a_client_that_never_speaks_cannot_hold_up_the_end() {
    let mut setup = Setup::draining_for(Duration::from_secs(60)).await;
    let issued = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let config = raw_config(setup.pki.services.cert_pem(), Some(&issued), b"h2");
    let silent = dial(setup.services, config).await.unwrap();
    append(&mut setup.client(Service::AgentSvc)).await.unwrap();
    setup.shutdown.cancel();
    let took = ended(&mut setup).await;
    assert!(took < Duration::from_secs(5), "{took:?} of {:?}", setup.context.drain_timeout);
    drop(silent);
}

#[tokio::test]
async fn a_stopped_server_is_unreachable_for_the_same_channel() {
    let mut setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    append(&mut client).await.unwrap();
    setup.shutdown.cancel();
    ended(&mut setup).await;
    let fault = append(&mut client).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.reason.as_str()),
        (Code::Unavailable, "PEER_UNREACHABLE"),
        "{fault:?}"
    );
}
