//! Reads the ledger with an auditor's certificate, as an auditor would. It never writes.

use anyhow::{Context as _, Result};
use event::id::SessionId;
use futures::TryStreamExt as _;
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{QueryRequest, Stored};
use serde_json::Value;
use transport::{Material, PeerChannel, Service};

use crate::Rig;

/// One entry, decoded for asking questions about it.
#[derive(Clone, PartialEq)]
pub struct Line {
    pub writer: String,
    pub session: String,
    pub seq: u64,
    pub kind: String,
    pub data: Value,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Books {
    client: AuditServiceClient<PeerChannel>,
}

impl Books {
    pub fn open(rig: &Rig) -> Result<Self> {
        let known = harness::mesh::Known::read(rig.mesh.layout().root())?;
        let material = Material::open(&known.auditor, known.trust_domain.clone())?;
        let context = transport::Context::for_test(material);
        let channel = transport::channel::connect(&context, &known.audit.into(), Service::AuditSvc);
        Ok(Self { client: AuditServiceClient::new(channel) })
    }

    /// Everything, in the order of the log.
    pub async fn all(&self) -> Result<Vec<Line>> {
        self.query(QueryRequest::default()).await
    }

    /// Everything about one session, from every writer.
    pub async fn session(&self, session: SessionId) -> Result<Vec<Line>> {
        self.query(QueryRequest { session_id: session.to_string(), ..QueryRequest::default() })
            .await
    }

    /// One writer's entries about one session.
    pub async fn stream(&self, writer: &str, session: SessionId) -> Result<Vec<Line>> {
        let lines = self.session(session).await?;
        Ok(lines.into_iter().filter(|line| line.writer == writer).collect())
    }

    async fn query(&self, mut request: QueryRequest) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        loop {
            let call = transport::deadline::request(request.clone(), crate::PATIENCE);
            let page: Vec<Stored> =
                self.client.clone().query(call).await?.into_inner().try_collect().await?;
            let Some(last) = page.last() else { return Ok(lines) };
            request.after_log_index = Some(last.log_index);
            for stored in page {
                lines.push(Line::read(stored)?);
            }
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { writer, session: _, seq, kind, data, bytes: _ } = self;
        write!(out, "{writer}#{seq} {kind} {data}")
    }
}

impl Line {
    fn read(stored: Stored) -> Result<Self> {
        let value: Value = serde_json::from_slice(&stored.event)?;
        Ok(Self {
            writer: stored.writer,
            session: stored.session_id,
            seq: stored.seq,
            kind: value["type"].as_str().context("an event has a type")?.to_owned(),
            data: value["data"].clone(),
            bytes: stored.event,
        })
    }
}
