//! audit-svc: this service's own streams, written in order and read back.

use event::Digest;
use event::id::SessionId;
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{AppendRequest, NewEntry, ReadStreamRequest, Redaction, Stored};
use tonic::Streaming;
use transport::{Fault, PeerChannel, deadline};

use super::{LONG, MAX_MESSAGE, SHORT};
use crate::store::Waiting;

#[derive(Debug, Clone)]
pub(crate) struct Audit(AuditServiceClient<PeerChannel>);

/// Whose stream it is, and on whose behalf and by which rules it is written.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) tenant: String,
    pub(crate) session: SessionId,
    pub(crate) on_behalf_of: String,
    pub(crate) policy_rev: Digest,
}

impl Audit {
    pub(super) fn new(channel: PeerChannel) -> Self {
        Self(AuditServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE))
    }

    /// Returns the sequence numbers that are acknowledged, as the ledger names them.
    pub(crate) async fn append(
        &self,
        stream: &Stream,
        batch: &[Waiting],
    ) -> Result<Vec<(String, u64)>, Fault> {
        let entries = batch.iter().map(|waiting| entry(stream, waiting)).collect();
        let request = deadline::request(AppendRequest { entries }, SHORT);
        let answer = self.0.clone().append(request).await?.into_inner();
        Ok(answer.acks.into_iter().map(|ack| (ack.session_id, ack.seq)).collect())
    }

    pub(crate) async fn read(
        &self,
        stream: &Stream,
        after_seq: Option<u64>,
    ) -> Result<Streaming<Stored>, Fault> {
        let request = ReadStreamRequest {
            tenant: stream.tenant.clone(),
            session_id: stream.session.to_string(),
            after_seq,
        };
        Ok(self.0.clone().read_stream(deadline::request(request, LONG)).await?.into_inner())
    }
}

fn entry(stream: &Stream, waiting: &Waiting) -> NewEntry {
    NewEntry {
        tenant: stream.tenant.clone(),
        session_id: stream.session.to_string(),
        seq: Some(waiting.seq),
        event: waiting.body.clone(),
        on_behalf_of: stream.on_behalf_of.clone(),
        policy_rev: stream.policy_rev.to_string(),
        redactor: waiting.redactor.clone(),
        redactions: waiting
            .redactions
            .iter()
            .map(|found| Redaction {
                path: found.path.clone(),
                rule: found.rule.clone(),
                n: found.n,
            })
            .collect(),
    }
}
