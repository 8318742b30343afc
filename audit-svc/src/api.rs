//! The gRPC surface: messages are taken apart here, and what cannot be acted upon goes no further. The peer, never a message,
//! says who writes.

use std::pin::Pin;
use std::sync::Arc;

use event::Writer;
use event::id::{EventId, SessionId};
use futures::{Stream, StreamExt as _};
use metrics::counter;
use proto::audit::v1::audit_service_server::AuditService;
use proto::audit::v1::{
    self as wire, AppendRequest, AppendResponse, CheckpointRequest, CheckpointResponse,
    ExportRequest, ExportResponse, ProveRequest, ProveResponse, QueryRequest, ReadStreamRequest,
    prove_request::Key,
};
use tonic::{Request, Response, Status};
use tracing::{error, warn};
use transport::{Identity, Material, Peer, Public as _, Service};

use crate::batch::Ack;
use crate::callers::{CHECKPOINT, EXPORT, PROVE, QUERY};
use crate::config::Origin;
use crate::entry::Entry;
use crate::export;
use crate::reach::Reach;
use crate::refusal::Refused;
use crate::store::{Filter, Reader, Stored};
use crate::writer::{Appender, MAX_ENTRIES};

/// The largest page of a query.
const MAX_PAGE: u64 = 1000;

#[derive(Debug)]
pub(crate) struct Api {
    appender: Appender,
    reader: Reader,
    origin: Origin,
    material: Arc<Material>,
}

impl Api {
    pub(crate) fn new(
        appender: Appender,
        reader: Reader,
        origin: Origin,
        material: Arc<Material>,
    ) -> Self {
        Self { appender, reader, origin, material }
    }

    async fn store(
        &self,
        writer: Writer,
        entries: Vec<wire::NewEntry>,
    ) -> Result<Vec<Ack>, Refused> {
        if entries.len() > MAX_ENTRIES {
            return Err(Refused::TooMany { entries: MAX_ENTRIES });
        }
        let parse = |(at, entry)| Entry::parse(at, writer, self.origin.as_str(), entry);
        let entries = entries.into_iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.appender.append(entries).await
    }
}

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AuditService for Api {
    async fn append(
        &self,
        request: Request<AppendRequest>,
    ) -> Result<Response<AppendResponse>, Status> {
        let writer = writer(&request)?;
        let AppendRequest { entries } = request.into_inner();
        match self.store(writer, entries).await {
            Ok(acks) => Ok(Response::new(AppendResponse {
                acks: acks.into_iter().map(wire::Ack::from).collect(),
            })),
            Err(refused) => {
                report(writer, &refused);
                Err(refused.into())
            }
        }
    }

    type ReadStreamStream = Streaming<wire::Stored>;

    async fn read_stream(
        &self,
        request: Request<ReadStreamRequest>,
    ) -> Result<Response<Self::ReadStreamStream>, Status> {
        let writer = writer(&request)?;
        let ReadStreamRequest { tenant, session_id, after_seq } = request.into_inner();
        let session =
            session(&session_id)?.ok_or(Refused::Request { what: "session_id is missing" })?;
        let filter = Filter {
            tenant: Some(tenant),
            session: Some(session),
            writer: Some(writer),
            after_seq: after_seq.map(position).transpose()?,
            ..Filter::default()
        };
        Ok(Response::new(stored(self.reader.entries(filter, self.reader.head(), u64::MAX))))
    }

    type QueryStream = Streaming<wire::Stored>;

    async fn query(
        &self,
        request: Request<QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let reach = Reach::of(&request, &self.material, QUERY)?;
        let QueryRequest { tenant, session_id, writer, r#type, after_log_index, limit } =
            request.into_inner();
        let session = session(&session_id)?;
        reach.session(session)?;
        let writer = match writer.as_str() {
            "" => None,
            name => Some(
                name.parse()
                    .map_err(|_| Refused::Request { what: "writer is no service that writes" })?,
            ),
        };
        let filter = Filter {
            tenant: reach.tenant(tenant)?,
            session,
            writer,
            kind: Some(r#type).filter(|kind| !kind.is_empty()),
            after: after_log_index.map(position).transpose()?,
            after_seq: None,
        };
        let limit = if limit == 0 { MAX_PAGE } else { u64::from(limit).min(MAX_PAGE) };
        Ok(Response::new(stored(self.reader.entries(filter, self.reader.head(), limit))))
    }

    async fn prove(
        &self,
        request: Request<ProveRequest>,
    ) -> Result<Response<ProveResponse>, Status> {
        let reach = Reach::of(&request, &self.material, PROVE)?;
        let ProveRequest { key } = request.into_inner();
        let head = self.reader.head();
        let found =
            match key.ok_or(Refused::Request { what: "event_id or log_index is missing" })? {
                Key::EventId(id) => {
                    let id = EventId::parse(&id)
                        .map_err(|_| Refused::Request { what: "event_id is not a UUID" })?;
                    self.reader.by_event(id, head).await?
                }
                Key::LogIndex(index) => self.reader.by_index(position(index)?, head).await?,
            };
        let visible = found.filter(|stored| reach.includes(&stored.tenant, &stored.session));
        let Stored { log_index, envelope, salt, .. } = visible.ok_or(Refused::NotFound)?;
        let log_index = log_index.cast_unsigned();
        let path = self.reader.nodes().prove(log_index, &head).await?;
        Ok(Response::new(ProveResponse {
            envelope,
            salt,
            log_index,
            tree_size: head.size,
            path: path.iter().map(|hash| hash.as_bytes().to_vec()).collect(),
            root: head.root.as_bytes().to_vec(),
        }))
    }

    async fn checkpoint(
        &self,
        request: Request<CheckpointRequest>,
    ) -> Result<Response<CheckpointResponse>, Status> {
        Reach::of(&request, &self.material, CHECKPOINT)?;
        let CheckpointRequest {} = request.into_inner();
        let ledger::Head { size, root } = self.reader.head();
        Ok(Response::new(CheckpointResponse { size, root: root.as_bytes().to_vec() }))
    }

    type ExportStream = Streaming<ExportResponse>;

    async fn export(
        &self,
        request: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let reach = Reach::of(&request, &self.material, EXPORT)?;
        let ExportRequest { tenant, session_id } = request.into_inner();
        let session =
            session(&session_id)?.ok_or(Refused::Request { what: "session_id is missing" })?;
        reach.session(Some(session))?;
        let tenant = reach.tenant(tenant)?;
        // Streams about unproven sessions are shared by all tenants: a part of one has gaps and proves nothing.
        if session.is_nil() && tenant.is_some() {
            return Err(Refused::Request {
                what: "the nil session is exported for all tenants or not at all",
            }
            .into());
        }
        let filter = Filter { tenant, session: Some(session), ..Filter::default() };
        let lines = export::lines(&self.reader, self.origin.as_str(), filter);
        let chunk = |line: Result<String, Refused>| match line {
            Ok(line) => Ok(ExportResponse { chunk: line.into_bytes() }),
            Err(refused) => Err(refused.into()),
        };
        Ok(Response::new(lines.map(chunk).boxed()))
    }
}

/// The stream's owner is the peer.
fn writer<T>(request: &Request<T>) -> Result<Writer, Refused> {
    let peer = Peer::of(request).map_err(|_| Refused::NotAWriter)?;
    match peer.identity {
        Identity::Service { service: Service::Gateway, .. } => Ok(Writer::Gateway),
        Identity::Service { service: Service::AgentSvc, .. } => Ok(Writer::AgentSvc),
        Identity::Service { service: Service::SandboxSvc, .. } => Ok(Writer::SandboxSvc),
        Identity::Service { service: Service::ModelSvc, .. } => Ok(Writer::ModelSvc),
        Identity::Service { service: Service::AuditSvc, .. }
        | Identity::Client { .. }
        | Identity::Auditor { .. } => Err(Refused::NotAWriter),
    }
}

/// A conflict means that somebody has two histories: a person should look.
fn report(writer: Writer, refused: &Refused) {
    let reason = refused.reason();
    counter!("harness_audit_refused_total", "reason" => reason.to_owned()).increment(1);
    match refused {
        Refused::Sequence { .. } | Refused::Event { .. } => {
            error!(%writer, reason, detail = %refused, "conflicting entries");
        }
        _ => warn!(%writer, reason, detail = %refused, "entries refused"),
    }
}

fn session(text: &str) -> Result<Option<SessionId>, Refused> {
    if text.is_empty() {
        return Ok(None);
    }
    SessionId::parse(text)
        .map(Some)
        .map_err(|_| Refused::Request { what: "session_id is not a UUID" })
}

/// A place in the log or in a stream; the store counts with signed numbers.
fn position(number: u64) -> Result<u64, Refused> {
    if i64::try_from(number).is_ok() {
        Ok(number)
    } else {
        Err(Refused::Request { what: "a position is too large" })
    }
}

fn stored(
    entries: impl Stream<Item = Result<Stored, Refused>> + Send + 'static,
) -> Streaming<wire::Stored> {
    entries.map(|entry| entry.map(wire::Stored::from).map_err(Status::from)).boxed()
}

impl From<Ack> for wire::Ack {
    fn from(ack: Ack) -> Self {
        let Ack { log_index, session, seq, leaf } = ack;
        Self {
            log_index,
            session_id: session.to_string(),
            seq,
            leaf_hash: leaf.as_bytes().to_vec(),
        }
    }
}

impl From<Stored> for wire::Stored {
    fn from(stored: Stored) -> Self {
        let Stored { log_index, tenant, writer, session, seq, event, envelope, salt, leaf_hash } =
            stored;
        Self {
            log_index: log_index.cast_unsigned(),
            tenant,
            writer,
            session_id: session,
            seq: seq.cast_unsigned(),
            event,
            envelope,
            salt,
            leaf_hash,
        }
    }
}
