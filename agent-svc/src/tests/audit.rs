//! A ledger that a test can take down, hold up, or make refuse.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use event::Writer;
use proto::audit::v1 as wire;
use proto::audit::v1::audit_service_server::AuditService;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub(crate) struct Audit {
    pub(crate) state: Arc<Mutex<State>>,
    /// What an append meets.
    pub(crate) mood: watch::Sender<Mood>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) streams: BTreeMap<String, Vec<Vec<u8>>>,
    pub(crate) appends: u32,
    pub(crate) reads: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Up,
    /// Every request fails at once.
    Down,
    /// An event of this type is refused for good.
    Refuses(&'static str),
    /// Stores, but the answer is lost.
    Mute,
}

impl Audit {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), mood: watch::Sender::new(Mood::Up) }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// The types of a session's entries, in order.
    pub(crate) fn kinds(&self, session: &str) -> Vec<&'static str> {
        let state = self.state.lock().unwrap();
        let bodies = state.streams.get(session).cloned().unwrap_or_default();
        bodies.iter().map(|body| event::open(body).unwrap().data.kind()).collect()
    }

    pub(crate) fn bodies(&self, session: &str) -> Vec<Vec<u8>> {
        self.state.lock().unwrap().streams.get(session).cloned().unwrap_or_default()
    }
}

fn unavailable() -> Status {
    Status::unavailable("down")
}

#[tonic::async_trait]
impl AuditService for Audit {
    async fn append(
        &self,
        request: Request<wire::AppendRequest>,
    ) -> Result<Response<wire::AppendResponse>, Status> {
        let mood = *self.mood.borrow();
        let mut state = self.state.lock().unwrap();
        state.appends += 1;
        if mood == Mood::Down {
            return Err(unavailable());
        }
        let entries = request.into_inner().entries;
        for entry in &entries {
            let event = event::admit(&entry.event, Writer::AgentSvc).unwrap();
            if mood == Mood::Refuses(event.data.kind()) {
                return Err(Status::invalid_argument("refused"));
            }
            assert_eq!(entry.redactor, event::redact::REVISION);
            assert_eq!((entry.tenant.as_str(), entry.on_behalf_of.as_str()), ("acme", "alice"));
            assert!(entry.policy_rev.starts_with("sha256:"));
        }
        let mut acks = Vec::new();
        for entry in entries {
            let stream = state.streams.entry(entry.session_id.clone()).or_default();
            let seq = entry.seq.unwrap();
            match stream.get(usize::try_from(seq).unwrap()) {
                Some(known) => {
                    assert_eq!(*known, entry.event, "entry {seq} came twice and differs");
                }
                None => {
                    assert_eq!(stream.len() as u64, seq, "entries come in order");
                    stream.push(entry.event);
                }
            }
            acks.push(wire::Ack { session_id: entry.session_id, seq, ..wire::Ack::default() });
        }
        if mood == Mood::Mute {
            return Err(unavailable());
        }
        Ok(Response::new(wire::AppendResponse { acks }))
    }

    type ReadStreamStream = ReceiverStream<Result<wire::Stored, Status>>;

    async fn read_stream(
        &self,
        request: Request<wire::ReadStreamRequest>,
    ) -> Result<Response<Self::ReadStreamStream>, Status> {
        if *self.mood.borrow() == Mood::Down {
            return Err(unavailable());
        }
        let wire::ReadStreamRequest { tenant, session_id, after_seq } = request.into_inner();
        self.state.lock().unwrap().reads += 1;
        let bodies = self.bodies(&session_id);
        let (sender, receiver) = tokio::sync::mpsc::channel(bodies.len() + 1);
        for (seq, event) in (0..).zip(bodies) {
            if after_seq.is_none_or(|after| seq > after) {
                let stored = wire::Stored {
                    tenant: tenant.clone(),
                    session_id: session_id.clone(),
                    seq,
                    event,
                    ..wire::Stored::default()
                };
                sender.send(Ok(stored)).await.unwrap();
            }
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type QueryStream = ReceiverStream<Result<wire::Stored, Status>>;

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

    type ExportStream = ReceiverStream<Result<wire::ExportResponse, Status>>;

    async fn export(
        &self,
        _: Request<wire::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("not played"))
    }
}
