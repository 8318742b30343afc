//! A ledger that judges entries like the real one and keeps them in memory.

use std::net::SocketAddr;
use std::pin::Pin;

use event::{Data, Event, Writer};
use futures::Stream;
use proto::audit::v1 as audit;
use proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use transport::authz::{Caller, Row, Table};
use transport::server::Server;
use transport::{Context, Peer};

use super::rig::within;

/// One entry that was taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) tenant: String,
    pub(super) session: String,
    pub(super) on_behalf_of: String,
    pub(super) policy_rev: String,
    pub(super) event: Event,
}

/// What the ledger does with an append.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mood {
    Takes,
    /// Takes, but the answer is lost.
    TakesAndForgetsToSay,
    Unavailable,
    /// Answers only when its mood has changed.
    Hangs,
    /// Refuses entries of this type for good.
    Refuses(&'static str),
}

#[derive(Debug, Clone)]
pub(super) struct FakeAudit {
    mood: watch::Sender<Mood>,
    taken: watch::Sender<Vec<Entry>>,
    appends: watch::Sender<usize>,
}

const CALLERS: [Row; 6] = {
    const MODEL: &[Caller] = &[Caller::Service(transport::Service::ModelSvc)];
    [
        Row { method: "/harness.audit.v1.AuditService/Append", callers: MODEL },
        Row { method: "/harness.audit.v1.AuditService/ReadStream", callers: MODEL },
        Row { method: "/harness.audit.v1.AuditService/Query", callers: MODEL },
        Row { method: "/harness.audit.v1.AuditService/Prove", callers: MODEL },
        Row { method: "/harness.audit.v1.AuditService/Checkpoint", callers: MODEL },
        Row { method: "/harness.audit.v1.AuditService/Export", callers: MODEL },
    ]
};

impl FakeAudit {
    pub(super) fn new() -> Self {
        Self {
            mood: watch::Sender::new(Mood::Takes),
            taken: watch::Sender::new(Vec::new()),
            appends: watch::Sender::new(0),
        }
    }

    pub(super) async fn serve(&self, context: &Context) -> SocketAddr {
        let table =
            Table::new(&CALLERS, proto::DESCRIPTORS, &["harness.audit.v1.AuditService"]).unwrap();
        let listening = Server::new(context, table)
            .add_service(AuditServiceServer::new(self.clone()))
            .services_listener("127.0.0.1:0".parse().unwrap())
            .bind()
            .await
            .unwrap();
        let addr = listening.addrs()[0].1;
        let shutdown = context.shutdown.clone();
        context.tracker.spawn(async move { listening.serve(shutdown).await.unwrap() });
        addr
    }

    pub(super) fn feels(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.taken.borrow().clone()
    }

    /// What was taken, once it fits.
    pub(super) async fn once(&self, fits: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let mut taken = self.taken.subscribe();
        within(taken.wait_for(|entries| fits(entries))).await.unwrap().clone()
    }

    /// The same for how often something was sent.
    pub(super) async fn once_appended(&self, times: usize) {
        within(self.appends.subscribe().wait_for(|count| *count >= times)).await.unwrap();
    }

    /// The types of what was taken, in order, once there are as many.
    pub(super) async fn kinds(&self, count: usize) -> Vec<&'static str> {
        let entries = self.once(|entries| entries.len() >= count).await;
        entries.iter().map(|entry| entry.event.data.kind()).collect()
    }

    /// The reasons of refusals in their streams, once there are as many.
    pub(super) async fn refusals(&self, count: usize) -> Vec<(String, String)> {
        let refused = |entry: &Entry| match &entry.event.data {
            Data::CallRefused(refused) => Some((entry.session.clone(), refused.reason.clone())),
            _ => None,
        };
        let entries =
            self.once(|entries| entries.iter().filter_map(refused).count() >= count).await;
        entries.iter().filter_map(refused).collect()
    }

    fn take(&self, entry: audit::NewEntry) -> Result<(), Status> {
        let audit::NewEntry {
            tenant,
            session_id,
            seq,
            event,
            on_behalf_of,
            policy_rev,
            redactor,
            redactions: _,
        } = entry;
        assert_eq!(seq, None, "the ledger numbers this stream");
        assert_eq!(redactor, event::redact::REVISION);
        let event = event::admit(&event, Writer::ModelSvc).unwrap();
        if let Mood::Refuses(kind) = *self.mood.borrow()
            && kind == event.data.kind()
        {
            return Err(Status::invalid_argument("no"));
        }
        let entry = Entry { tenant, session: session_id, on_behalf_of, policy_rev, event };
        self.taken.send_modify(|taken| {
            if taken.iter().all(|other| other.event.id != entry.event.id) {
                taken.push(entry);
            }
        });
        Ok(())
    }
}

type Never<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AuditService for FakeAudit {
    async fn append(
        &self,
        request: Request<audit::AppendRequest>,
    ) -> Result<Response<audit::AppendResponse>, Status> {
        Peer::of(&request).unwrap();
        let audit::AppendRequest { entries } = request.into_inner();
        self.appends.send_modify(|count| *count += 1);
        let mut mood = self.mood.subscribe();
        if mood.wait_for(|mood| *mood != Mood::Hangs).await.is_err() {
            return Err(Status::unavailable("gone"));
        }
        let mood = *self.mood.borrow();
        if mood == Mood::Unavailable {
            return Err(Status::unavailable("not now"));
        }
        // All of a request or none.
        if let Mood::Refuses(kind) = mood {
            let of_kind =
                |entry: &audit::NewEntry| event::open(&entry.event).unwrap().data.kind() == kind;
            if entries.iter().any(of_kind) {
                return Err(Status::invalid_argument("no"));
            }
        }
        let acks = entries.iter().map(|_| audit::Ack::default()).collect();
        for entry in entries {
            self.take(entry)?;
        }
        if mood == Mood::TakesAndForgetsToSay {
            self.mood.send_replace(Mood::Takes);
            return Err(Status::unavailable("the answer is lost"));
        }
        Ok(Response::new(audit::AppendResponse { acks }))
    }

    type ReadStreamStream = Never<audit::Stored>;

    async fn read_stream(
        &self,
        _: Request<audit::ReadStreamRequest>,
    ) -> Result<Response<Self::ReadStreamStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type QueryStream = Never<audit::Stored>;

    async fn query(
        &self,
        _: Request<audit::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn prove(
        &self,
        _: Request<audit::ProveRequest>,
    ) -> Result<Response<audit::ProveResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn checkpoint(
        &self,
        _: Request<audit::CheckpointRequest>,
    ) -> Result<Response<audit::CheckpointResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }

    type ExportStream = Never<audit::ExportResponse>;

    async fn export(
        &self,
        _: Request<audit::ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}
