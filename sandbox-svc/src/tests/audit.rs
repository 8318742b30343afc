//! A ledger that checks what it is given, keeps it in memory, and can be away.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use event::{Event, Writer};
use futures::stream::BoxStream;
use proto::audit::v1 as wire;
use proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use transport::authz::{Caller, Row, Table};
use transport::server::Server;
use transport::{CancellationToken, Service};

const ANY: &[Caller] = &[Caller::AnyService];
const ROWS: &[Row] = &[
    Row { method: "/harness.audit.v1.AuditService/Append", callers: ANY },
    Row { method: "/harness.audit.v1.AuditService/ReadStream", callers: ANY },
    Row { method: "/harness.audit.v1.AuditService/Query", callers: ANY },
    Row { method: "/harness.audit.v1.AuditService/Prove", callers: ANY },
    Row { method: "/harness.audit.v1.AuditService/Checkpoint", callers: ANY },
    Row { method: "/harness.audit.v1.AuditService/Export", callers: ANY },
];

/// One acknowledged entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) session: String,
    pub(super) event: Event,
}

#[derive(Debug, Clone)]
pub(super) struct Ledger {
    entries: Arc<Mutex<Vec<Entry>>>,
    next: Arc<Mutex<HashMap<String, u64>>>,
    away: Arc<watch::Sender<bool>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Ledger {
    pub(super) async fn serve(
        context: &transport::Context,
        stop: CancellationToken,
    ) -> (Self, SocketAddr) {
        let ledger = Self {
            entries: Arc::default(),
            next: Arc::default(),
            away: Arc::new(watch::Sender::new(false)),
            changed: Arc::new(watch::Sender::new(0)),
        };
        let services = ["harness.audit.v1.AuditService"];
        let table = Table::new(ROWS, proto::DESCRIPTORS, &services).unwrap();
        let listening = Server::new(context, table)
            .add_service(AuditServiceServer::new(ledger.clone()))
            .services_listener("127.0.0.1:0".parse().unwrap())
            .bind()
            .await
            .unwrap();
        let addr = listening.addrs()[0].1;
        context.tracker.spawn(async move { listening.serve(stop).await });
        (ledger, addr)
    }

    /// From now on nobody gets an answer, or everybody again.
    pub(super) fn set_away(&self, away: bool) {
        self.away.send_replace(away);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }

    /// Types of a session's entries, in order, without refusals.
    pub(super) fn kinds(&self, session: &str) -> Vec<&'static str> {
        let entries = self.entries();
        let of = entries.iter().filter(|entry| entry.session == session);
        of.map(|entry| entry.event.data.kind()).filter(|kind| *kind != "call.refused").collect()
    }

    /// Reasons of a stream's refusals, in order.
    pub(super) fn refusals(&self, session: &str) -> Vec<String> {
        let entries = self.entries();
        let of = entries.iter().filter(|entry| entry.session == session);
        of.filter_map(|entry| match &entry.event.data {
            event::Data::CallRefused(refused) => Some(refused.reason.clone()),
            _ => None,
        })
        .collect()
    }

    /// Waits until the newest entries satisfy `wanted`.
    pub(super) async fn wait(&self, wanted: impl Fn(&[Entry]) -> bool) {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            while !wanted(&self.entries()) {
                changes.changed().await.unwrap();
            }
        };
        let limit = std::time::Duration::from_secs(20);
        if tokio::time::timeout(limit, waiting).await.is_err() {
            panic!("the ledger has {:#?}", self.entries());
        }
    }

    fn append_one(&self, entry: wire::NewEntry) -> Result<wire::Ack, Status> {
        let wire::NewEntry { tenant, session_id, seq, event, .. } = entry;
        assert!(!tenant.is_empty() || session_id.starts_with("00000000-0000"), "{session_id}");
        let event = event::admit(&event, Writer::SandboxSvc)
            .map_err(|refusal| Status::invalid_argument(refusal.to_string()))?;
        let seq = seq.expect("sandbox-svc numbers its own stream");
        let mut next = self.next.lock().unwrap();
        let next = next.entry(session_id.clone()).or_default();
        if seq < *next {
            return Ok(wire::Ack { session_id, seq, ..wire::Ack::default() });
        }
        assert_eq!(seq, *next, "the stream of {session_id} has a gap");
        *next += 1;
        self.entries.lock().unwrap().push(Entry { session: session_id.clone(), event });
        Ok(wire::Ack { session_id, seq, ..wire::Ack::default() })
    }
}

#[tonic::async_trait]
impl AuditService for Ledger {
    async fn append(
        &self,
        request: Request<wire::AppendRequest>,
    ) -> Result<Response<wire::AppendResponse>, Status> {
        if *self.away.borrow() {
            return Err(Status::unavailable("away"));
        }
        let entries = request.into_inner().entries;
        let acks =
            entries.into_iter().map(|entry| self.append_one(entry)).collect::<Result<_, _>>()?;
        self.changed.send_modify(|count| *count += 1);
        Ok(Response::new(wire::AppendResponse { acks }))
    }

    type ReadStreamStream = BoxStream<'static, Result<wire::Stored, Status>>;
    async fn read_stream(
        &self,
        _: Request<wire::ReadStreamRequest>,
    ) -> Result<Response<Self::ReadStreamStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    type QueryStream = BoxStream<'static, Result<wire::Stored, Status>>;
    async fn query(
        &self,
        _: Request<wire::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn prove(
        &self,
        _: Request<wire::ProveRequest>,
    ) -> Result<Response<wire::ProveResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn checkpoint(
        &self,
        _: Request<wire::CheckpointRequest>,
    ) -> Result<Response<wire::CheckpointResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }

    type ExportStream = BoxStream<'static, Result<wire::ExportResponse, Status>>;
    async fn export(
        &self,
        _: Request<wire::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("not played"))
    }
}

/// Who may act as the ledger.
pub(super) const IDENTITY: Service = Service::AuditSvc;
