//! Deadlines that bind the whole call, on each side alone.

use std::time::{Duration, Instant};

use hyper::{body::Incoming, server::conn::http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use proto::audit::v1::{
    CheckpointRequest, ExportRequest, ProveRequest, ReadStreamRequest,
    audit_service_client::AuditServiceClient, audit_service_server::AuditServiceServer,
    prove_request::Key,
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;
use tonic::{body::Body, service::Routes, transport::Channel};
use tower::ServiceExt as _;
use transport::{Code, Fault, Service, deadline::request};

use crate::{
    ledger::Ledger,
    setup::{ANY_PORT, LIMIT, Setup, dial, raw_config, soon},
};

const SHORT: Duration = Duration::from_millis(300);

fn is_deadline(fault: &Fault) -> bool {
    fault.code == Code::DeadlineExceeded && fault.reason == "DEADLINE_EXCEEDED"
}

/// A client that says its deadline and then forgets it.
async fn forgetful(setup: &Setup) -> AuditServiceClient<Channel> {
    let issued = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let config = raw_config(setup.pki.services.cert_pem(), Some(&issued), b"h2");
    let addr = setup.services;
    let connector = tower::service_fn(move |_: http::Uri| {
        let config = config.clone();
        async move { dial(addr, config).await.map(TokioIo::new) }
    });
    let endpoint = Channel::builder(http::Uri::from_static("http://peer"));
    AuditServiceClient::new(endpoint.connect_with_connector(connector).await.unwrap())
}

#[tokio::test]
async fn the_server_ends_a_stream_at_its_deadline_and_drops_its_producer() {
    let setup = Setup::new().await;
    let mut client = forgetful(&setup).await;
    let started = Instant::now();
    let mut stream = client
        .read_stream(request(ReadStreamRequest::default(), SHORT))
        .await
        .unwrap()
        .into_inner();
    stream.message().await.unwrap().unwrap();
    let ended = tokio::time::timeout(LIMIT, stream.message()).await.expect("the stream ends");
    assert!(is_deadline(&Fault::from(ended.unwrap_err())));
    assert!(started.elapsed() >= SHORT);
    setup.ledger.idle().await;
}

#[tokio::test]
async fn a_producer_that_always_has_more_does_not_outlive_the_deadline() {
    let setup = Setup::new().await;
    let mut client = forgetful(&setup).await;
    let mut stream =
        client.export(request(ExportRequest::default(), SHORT)).await.unwrap().into_inner();
    let ended = async {
        loop {
            if let Err(status) = stream.message().await {
                return Fault::from(status);
            }
        }
    };
    assert!(is_deadline(&tokio::time::timeout(LIMIT, ended).await.expect("the stream ends")));
    setup.ledger.idle().await;
}

#[tokio::test]
async fn a_unary_call_ends_at_its_deadline_and_its_handler_is_dropped() {
    let setup = Setup::new().await;
    let waiting = ProveRequest { key: Some(Key::LogIndex(0)) };
    let status = setup.client(Service::AgentSvc).prove(request(waiting, SHORT)).await.unwrap_err();
    assert!(is_deadline(&Fault::from(status)));
    setup.ledger.idle().await;
}

#[tokio::test]
async fn the_client_ends_a_stream_of_a_server_that_does_not() {
    let setup = Setup::new().await;
    let ledger = Ledger::new(None);
    let tcp = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = tcp.local_addr().unwrap();
    let issued = setup.pki.service(Service::AuditSvc, "1").unwrap();
    let mut config = (*setup.pki.material(&issued).unwrap().public_server()).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
    let routes = Routes::new(AuditServiceServer::new(ledger.clone())).prepare();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let stream = acceptor.accept(tcp.accept().await.unwrap().0).await.unwrap();
        let service = TowerToHyperService::new(
            routes.map_request(|it: http::Request<Incoming>| it.map(Body::new)),
        );
        // The client hangs up when the test is over.
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .unwrap();
    });

    let agent = setup.pki.service(Service::AgentSvc, "0").unwrap();
    let channel = setup.channel_of(setup.pki.material(&agent).unwrap(), addr);
    let mut client = AuditServiceClient::new(channel);
    let mut stream = client
        .read_stream(request(ReadStreamRequest::default(), SHORT))
        .await
        .unwrap()
        .into_inner();
    stream.message().await.unwrap().unwrap();
    let ended = tokio::time::timeout(LIMIT, stream.message()).await.expect("the stream ends");
    assert!(is_deadline(&Fault::from(ended.unwrap_err())));
    ledger.idle().await;
}

#[tokio::test]
async fn an_onward_call_gets_no_more_time_than_is_left() {
    let below = Setup::new().await;
    let upstream = below.channel(Service::AgentSvc);
    let above = Setup::with(Ledger::new(Some(upstream)), |server| server).await;
    let granted = Duration::from_secs(5);
    let asked =
        above.client(Service::Gateway).checkpoint(request(CheckpointRequest {}, granted)).await;
    let left = Duration::from_millis(asked.unwrap().into_inner().size);
    assert!(left <= granted, "{left:?}");
    assert!(left > Duration::from_secs(1), "{left:?}");
}

#[tokio::test]
async fn a_deadline_that_cannot_be_read_is_refused_before_the_handler() {
    let setup = Setup::new().await;
    let mut request = tonic::Request::new(CheckpointRequest {});
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let mut client = forgetful(&setup).await;
    let fault = Fault::from(client.checkpoint(request).await.unwrap_err());
    assert_eq!((fault.code, fault.reason.as_str()), (Code::InvalidArgument, "DEADLINE_MALFORMED"));
    assert_eq!(setup.ledger.calls(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_stream() {
    let setup = Setup::new().await;
    let mut client = setup.client(Service::AgentSvc);
    let stream = client.read_stream(soon(ReadStreamRequest::default())).await.unwrap();
    setup.ledger.busy().await;
    drop(stream);
    setup.ledger.idle().await;
}
