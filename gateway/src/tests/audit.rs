//! A ledger that admits as audit-svc does and keeps entries in memory.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use event::{Event, Writer};
use proto::audit::v1 as wire;
use proto::audit::v1::audit_service_server::AuditService;
use tokio::sync::Notify;
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeAudit(Arc<State>);

#[derive(Debug, Default)]
struct State {
    down: AtomicBool,
    refused: Notify,
    entries: Mutex<Vec<(wire::NewEntry, Event)>>,
}

impl FakeAudit {
    pub(crate) fn go_down(&self, down: bool) {
        self.0.down.store(down, Ordering::SeqCst);
    }

    /// Waits until an append was refused.
    pub(crate) async fn until_refused(&self) {
        super::within(self.0.refused.notified()).await;
    }

    pub(crate) fn entries(&self) -> Vec<(wire::NewEntry, Event)> {
        self.0.entries.lock().expect("unpoisoned").clone()
    }

    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.entries().iter().map(|(_, event)| event.data.kind()).collect()
    }
}

type Nothing<T> = Empty<Result<T, Status>>;

#[tonic::async_trait]
impl AuditService for FakeAudit {
    async fn append(
        &self,
        request: Request<wire::AppendRequest>,
    ) -> Result<Response<wire::AppendResponse>, Status> {
        if self.0.down.load(Ordering::SeqCst) {
            self.0.refused.notify_one();
            return Err(Status::unavailable("down"));
        }
        let mut entries = self.0.entries.lock().expect("unpoisoned");
        let mut acks = Vec::new();
        for entry in request.into_inner().entries {
            let event = event::admit(&entry.event, Writer::Gateway)
                .map_err(|refusal| Status::failed_precondition(refusal.reason()))?;
            assert_eq!((entry.seq, entry.redactor.as_str()), (None, event::redact::REVISION));
            acks.push(wire::Ack {
                log_index: entries.len() as u64,
                session_id: entry.session_id.clone(),
                seq: entries.len() as u64,
                leaf_hash: Vec::new(),
            });
            entries.push((entry, event));
        }
        Ok(Response::new(wire::AppendResponse { acks }))
    }

    type ReadStreamStream = Nothing<wire::Stored>;
    async fn read_stream(
        &self,
        _: Request<wire::ReadStreamRequest>,
    ) -> Result<Response<Self::ReadStreamStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    type QueryStream = Nothing<wire::Stored>;
    async fn query(
        &self,
        _: Request<wire::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn prove(
        &self,
        _: Request<wire::ProveRequest>,
    ) -> Result<Response<wire::ProveResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn checkpoint(
        &self,
        _: Request<wire::CheckpointRequest>,
    ) -> Result<Response<wire::CheckpointResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    type ExportStream = Nothing<wire::ExportResponse>;
    async fn export(
        &self,
        _: Request<wire::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
}
