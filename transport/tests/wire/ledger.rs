//! The handler behind every test: each method does one thing that a test wants to watch.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use proto::audit::v1::{
    Ack, AppendRequest, AppendResponse, CheckpointRequest, CheckpointResponse, ExportRequest,
    ExportResponse, ProveRequest, ProveResponse, QueryRequest, ReadStreamRequest, Stored,
    audit_service_client::AuditServiceClient, audit_service_server::AuditService,
    prove_request::Key,
};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};
use transport::{
    Code, Peer, PeerChannel, Public, Service,
    authz::{Caller, Row, Table},
    deadline::{self, Deadline},
    to_status,
};

pub(crate) const SERVICE: &str = "harness.audit.v1.AuditService";
pub(crate) const APPEND: &str = "/harness.audit.v1.AuditService/Append";
pub(crate) const READ_STREAM: &str = "/harness.audit.v1.AuditService/ReadStream";

const WRITERS: &[Caller] = &[Caller::Service(Service::Gateway), Caller::Service(Service::AgentSvc)];
const READERS: &[Caller] = &[Caller::Service(Service::Gateway), Caller::Auditor];

pub(crate) const ROWS: [Row; 6] = [
    Row { method: APPEND, callers: WRITERS },
    Row { method: READ_STREAM, callers: &[Caller::Service(Service::AgentSvc)] },
    Row { method: "/harness.audit.v1.AuditService/Query", callers: READERS },
    Row { method: "/harness.audit.v1.AuditService/Prove", callers: &[Caller::AnyService] },
    Row {
        method: "/harness.audit.v1.AuditService/Checkpoint",
        callers: &[Caller::AnyService, Caller::Auditor],
    },
    Row {
        method: "/harness.audit.v1.AuditService/Export",
        callers: &[Caller::AnyService, Caller::Auditor],
    },
];

pub(crate) fn table() -> Table {
    Table::new(&ROWS, proto::DESCRIPTORS, &[SERVICE]).unwrap()
}

/// What a test watches from outside.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// Calls that reached a handler.
    pub(crate) calls: Arc<AtomicU64>,
    /// Handlers and streams that are still alive.
    pub(crate) alive: watch::Sender<usize>,
    /// Each permit lets one entry out of `ReadStream` or one `Prove` answer.
    pub(crate) release: Arc<Semaphore>,
    /// Where `Checkpoint` asks further.
    pub(crate) upstream: Option<PeerChannel>,
}

impl Ledger {
    pub(crate) fn new(upstream: Option<PeerChannel>) -> Self {
        Self {
            calls: Arc::default(),
            alive: watch::Sender::new(0),
            release: Arc::new(Semaphore::new(0)),
            upstream,
        }
    }

    fn enter(&self) -> Alive {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.alive.send_modify(|count| *count += 1);
        Alive(self.alive.clone())
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until nothing of any call is left.
    pub(crate) async fn idle(&self) {
        let mut alive = self.alive.subscribe();
        let idle = alive.wait_for(|count| *count == 0);
        tokio::time::timeout(Duration::from_secs(10), idle).await.expect("handlers end").unwrap();
    }

    pub(crate) async fn busy(&self) {
        let mut alive = self.alive.subscribe();
        let busy = alive.wait_for(|count| *count > 0);
        tokio::time::timeout(Duration::from_secs(10), busy)
            .await
            .expect("a handler starts")
            .unwrap();
    }
}

struct Alive(watch::Sender<usize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

type Entries = Pin<Box<dyn Stream<Item = Result<Stored, Status>> + Send>>;

#[tonic::async_trait]
impl AuditService for Ledger {
    /// Says who the peer is and how long the entry was.
    async fn append(
        &self,
        request: Request<AppendRequest>,
    ) -> Result<Response<AppendResponse>, Status> {
        let _alive = self.enter();
        let peer = Peer::of(&request)?;
        let bytes = request.get_ref().entries.iter().map(|entry| entry.event.len() as u64).sum();
        let ack = Ack {
            session_id: peer.uri.to_string(),
            leaf_hash: peer.serial.as_bytes().to_vec(),
            log_index: bytes,
            ..Ack::default()
        };
        Ok(Response::new(AppendResponse { acks: vec![ack] }))
    }

    type ReadStreamStream = Entries;

    /// An entry at once, then one for each permit, for ever.
    async fn read_stream(
        &self,
        _: Request<ReadStreamRequest>,
    ) -> Result<Response<Entries>, Status> {
        let alive = self.enter();
        let release = self.release.clone();
        let later = stream::unfold((alive, release, 1), |(alive, release, seq)| async move {
            release.acquire().await.unwrap().forget();
            Some((Ok(Stored { seq, ..Stored::default() }), (alive, release, seq + 1)))
        });
        Ok(Response::new(Box::pin(stream::iter([Ok(Stored::default())]).chain(later))))
    }

    type QueryStream = Entries;

    async fn query(&self, _: Request<QueryRequest>) -> Result<Response<Entries>, Status> {
        let alive = self.enter();
        let entries = stream::iter((0..3).map(|seq| Ok(Stored { seq, ..Stored::default() })));
        Ok(Response::new(Box::pin(entries.inspect(move |_| {
            let _ = &alive;
        }))))
    }

    /// Fails inside, answers a large proof, or waits for a permit.
    async fn prove(
        &self,
        request: Request<ProveRequest>,
    ) -> Result<Response<ProveResponse>, Status> {
        let _alive = self.enter();
        match request.into_inner().key {
            Some(Key::EventId(_)) => {
                Err(to_status(&Broken(std::io::Error::other("row 17 of /var/lib/secret"))))
            }
            Some(Key::LogIndex(0)) => {
                self.release.acquire().await.unwrap().forget();
                Ok(Response::new(ProveResponse::default()))
            }
            Some(Key::LogIndex(size)) => {
                let envelope = vec![0; size.try_into().unwrap()];
                Ok(Response::new(ProveResponse { envelope, ..ProveResponse::default() }))
            }
            None => Err(Status::data_loss("a library's own words about /var/lib/secret")),
        }
    }

    /// Says what is left of the deadline in milliseconds, here or upstream, and which trace this belongs to.
    async fn checkpoint(
        &self,
        request: Request<CheckpointRequest>,
    ) -> Result<Response<CheckpointResponse>, Status> {
        let _alive = self.enter();
        if let Some(upstream) = self.upstream.clone() {
            let onward = deadline::request(CheckpointRequest {}, Duration::from_secs(3600));
            return AuditServiceClient::new(upstream).checkpoint(onward).await;
        }
        let left =
            Deadline::current().map_or(u64::MAX, |it| it.left().as_millis().try_into().unwrap());
        let trace =
            request.metadata().get("traceparent").map_or(Vec::new(), |it| it.as_bytes().to_vec());
        Ok(Response::new(CheckpointResponse { size: left, root: trace }))
    }

    type ExportStream = Pin<Box<dyn Stream<Item = Result<ExportResponse, Status>> + Send>>;

    /// Always has more, at once.
    async fn export(
        &self,
        _: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let alive = self.enter();
        let chunks = stream::repeat_with(move || {
            let _ = &alive;
            Ok(ExportResponse { chunk: vec![7; 1024] })
        });
        Ok(Response::new(Box::pin(chunks)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the tree")]
struct Broken(#[source] std::io::Error);

impl Public for Broken {
    const DOMAIN: &'static str = "audit-svc";

    fn code(&self) -> Code {
        Code::Internal
    }

    fn reason(&self) -> &str {
        "TREE_UNREADABLE"
    }
}
