//! The ledger's questions over the wire, page by page.
use std::time::Duration;

use event::id::SessionId;
use proto::audit::v1::{
    CheckpointRequest, CheckpointResponse, QueryRequest, Stored,
    audit_service_client::AuditServiceClient,
};
use transport::{Fault, PeerChannel, deadline};

use crate::error::{Exit, Explain};

/// For one page or one answer.
const LIMIT: Duration = Duration::from_secs(60);
/// The largest page that audit-svc serves.
pub(crate) const PAGE: usize = 1000;
/// A thousand of the largest events.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// An entry as it was fetched.
pub(crate) type Entry = Stored;

/// Which entries; what is absent does not narrow.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) tenant: Option<String>,
    pub(crate) session: Option<SessionId>,
    pub(crate) writer: Option<event::Writer>,
    pub(crate) kind: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    client: AuditServiceClient<PeerChannel>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the ledger does not answer {what}")]
    Fault { what: &'static str, source: Fault },
    #[error("an entry of the ledger is not JSON")]
    Event(#[source] serde_json::Error),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        Exit::Failed
    }

    fn advice(&self) -> String {
        match self {
            Self::Fault { source, .. } => match source.reason.as_str() {
                "PEER_UNREACHABLE" => "start it with 'harness up', or check the address",
                "PEER_NOT_TRUSTED" | "PEER_REFUSED_US" => {
                    "check the certificate, its CA and the trust domain"
                }
                _ => "see the log of audit-svc",
            },
            Self::Event(_) => "run 'harness audit verify'",
        }
        .to_owned()
    }
}

impl Ledger {
    pub(crate) fn new(channel: PeerChannel) -> Self {
        Self { client: AuditServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE) }
    }

    /// Up to `limit` entries after a place in the log, and never more than a page.
    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, Error> {
        let Filter { tenant, session, writer, kind } = filter;
        let request = QueryRequest {
            tenant: tenant.clone().unwrap_or_default(),
            session_id: session.map(|session| session.to_string()).unwrap_or_default(),
            writer: writer.map(|writer| writer.to_string()).unwrap_or_default(),
            r#type: kind.clone().unwrap_or_default(),
            after_log_index: after,
            limit: u32::try_from(limit.clamp(1, PAGE)).unwrap_or(1),
        };
        let fault = |status: tonic::Status| Error::Fault { what: "a query", source: status.into() };
        let answer =
            self.client.clone().query(deadline::request(request, LIMIT)).await.map_err(fault)?;
        let mut stream = answer.into_inner();
        let mut entries = Vec::new();
        while let Some(entry) = stream.message().await.map_err(fault)? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Every entry there is now.
    pub(crate) async fn all(&self, filter: &Filter) -> Result<Vec<Entry>, Error> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let page = self.page(filter, all.last().map(|entry| entry.log_index), PAGE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// The size and root that the ledger claims to have.
    pub(crate) async fn checkpoint(&self) -> Result<CheckpointResponse, Error> {
        let fault =
            |status: tonic::Status| Error::Fault { what: "for its head", source: status.into() };
        let request = deadline::request(CheckpointRequest {}, LIMIT);
        Ok(self.client.clone().checkpoint(request).await.map_err(fault)?.into_inner())
    }
}
