//! The two services that the gateway calls. Every call to agent-svc carries a fresh context that is signed for that
//! call; every call has a deadline. Nothing here decides whether to call.
use std::sync::Arc;
use std::time::Duration;

use event::id::{PermissionId, ReceiptId, RunId, SessionId};
use proto::agent::v1 as wire;
use proto::agent::v1::agent_service_client::AgentServiceClient;
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{AppendRequest, AppendResponse, NewEntry};
use proto::common::v1::Signed as WireSigned;
use receipt::{Audience, OBO_KEY, Signed};
use tokio::time::{Instant, sleep};
use tonic::metadata::MetadataValue;
use tonic::{Request, Streaming};
use transport::{CancellationToken, Code, Fault, PeerChannel, deadline};

use crate::authn::Person;
use crate::sign::{About, Sign};

/// Reads and settlements.
const SHORT: Duration = Duration::from_secs(10);
/// What waits for the executors.
const LONG: Duration = Duration::from_secs(60);
/// A subscription; it is opened again where it ended.
const SUBSCRIPTION: Duration = Duration::from_hours(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Agent {
    client: AgentServiceClient<PeerChannel>,
    sign: Arc<Sign>,
    patience: Patience,
}

impl Agent {
    pub(crate) fn new(channel: PeerChannel, sign: Arc<Sign>, patience: Patience) -> Self {
        Self { client: AgentServiceClient::new(channel), sign, patience }
    }

    pub(crate) async fn create_session(
        &self,
        person: &Person,
        session: SessionId,
        request: &wire::CreateSessionRequest,
    ) -> Result<(), Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/CreateSession";
        self.patience
            .keep(|| async {
                let request =
                    self.request(person, METHOD, about(session), LONG, request.clone())?;
                self.client.clone().create_session(request).await?;
                Ok(())
            })
            .await
    }

    /// Not tried again: a second prompt is another one.
    pub(crate) async fn prompt(
        &self,
        person: &Person,
        session: SessionId,
        request: wire::PromptRequest,
    ) -> Result<(), Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/Prompt";
        let request = self.request(person, METHOD, about(session), LONG, request)?;
        self.client.clone().prompt(request).await?;
        Ok(())
    }

    pub(crate) async fn subscribe(
        &self,
        person: &Person,
        session: SessionId,
        after_seq: Option<u64>,
        can_answer: bool,
    ) -> Result<Streaming<wire::SubscribeResponse>, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/Subscribe";
        let message =
            wire::SubscribeRequest { session_id: session.to_string(), after_seq, can_answer };
        let request = self.request(person, METHOD, about(session), SUBSCRIPTION, message)?;
        Ok(self.client.clone().subscribe(request).await?.into_inner())
    }

    pub(crate) async fn claim(
        &self,
        person: &Person,
        session: SessionId,
        permission: PermissionId,
        request: &wire::ClaimPermissionRequest,
    ) -> Result<wire::ClaimPermissionResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/ClaimPermission";
        let about = About { session: Some(session), permission: Some(permission) };
        self.patience
            .keep(|| async {
                let request = self.request(person, METHOD, about, SHORT, request.clone())?;
                Ok(self.client.clone().claim_permission(request).await?.into_inner())
            })
            .await
    }

    pub(crate) async fn resolve(
        &self,
        person: &Person,
        session: SessionId,
        permission: PermissionId,
        receipt: &Signed,
    ) -> Result<wire::ResolvePermissionResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/ResolvePermission";
        let about = About { session: Some(session), permission: Some(permission) };
        self.patience
            .keep(|| async {
                let message = wire::ResolvePermissionRequest {
                    session_id: session.to_string(),
                    permission_id: permission.to_string(),
                    receipt: Some(to_wire(receipt.clone())),
                };
                let request = self.request(person, METHOD, about, SHORT, message)?;
                Ok(self.client.clone().resolve_permission(request).await?.into_inner())
            })
            .await
    }

    pub(crate) async fn patch(
        &self,
        person: &Person,
        session: SessionId,
        permission: Option<PermissionId>,
        request: wire::GetPatchRequest,
    ) -> Result<wire::GetPatchResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/GetPatch";
        let about = About { session: Some(session), permission };
        self.patience
            .keep(|| async {
                let message = wire::GetPatchRequest {
                    session_id: session.to_string(),
                    permission_id: permission.map(|id| id.to_string()).unwrap_or_default(),
                    ..request.clone()
                };
                let request = self.request(person, METHOD, about, LONG, message)?;
                Ok(self.client.clone().get_patch(request).await?.into_inner())
            })
            .await
    }

    pub(crate) async fn grants(
        &self,
        person: &Person,
        session: SessionId,
    ) -> Result<wire::ListGrantsResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/ListGrants";
        self.patience
            .keep(|| async {
                let message = wire::ListGrantsRequest { session_id: session.to_string() };
                let request = self.request(person, METHOD, about(session), SHORT, message)?;
                Ok(self.client.clone().list_grants(request).await?.into_inner())
            })
            .await
    }

    pub(crate) async fn revoke_grant(
        &self,
        person: &Person,
        session: SessionId,
        receipt: ReceiptId,
    ) -> Result<wire::RevokeGrantResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/RevokeGrant";
        self.patience
            .keep(|| async {
                let message = wire::RevokeGrantRequest {
                    session_id: session.to_string(),
                    receipt_id: receipt.to_string(),
                };
                let request = self.request(person, METHOD, about(session), LONG, message)?;
                Ok(self.client.clone().revoke_grant(request).await?.into_inner())
            })
            .await
    }

    pub(crate) async fn cancel(&self, person: &Person, session: SessionId) -> Result<bool, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/Cancel";
        self.patience
            .keep(|| async {
                let message = wire::CancelRequest { session_id: session.to_string() };
                let request = self.request(person, METHOD, about(session), SHORT, message)?;
                Ok(self.client.clone().cancel(request).await?.into_inner().canceled)
            })
            .await
    }

    pub(crate) async fn session(
        &self,
        person: &Person,
        key: Key,
    ) -> Result<wire::GetSessionResponse, Fault> {
        const METHOD: &str = "/harness.agent.v1.AgentService/GetSession";
        self.patience
            .keep(|| async {
                let (session, key) = match key {
                    Key::Session(id) => {
                        (Some(id), wire::get_session_request::Key::SessionId(id.to_string()))
                    }
                    Key::Run(id) => (None, wire::get_session_request::Key::RunId(id.to_string())),
                };
                let message = wire::GetSessionRequest { key: Some(key) };
                let request = self.request(
                    person,
                    METHOD,
                    About { session, permission: None },
                    SHORT,
                    message,
                )?;
                Ok(self.client.clone().get_session(request).await?.into_inner())
            })
            .await
    }

    fn request<T>(
        &self,
        person: &Person,
        method: &'static str,
        about: About,
        limit: Duration,
        message: T,
    ) -> Result<Request<T>, Fault> {
        let obo =
            self.sign.obo(person, Audience::AgentSvc, method, about).map_err(|error| Fault {
                code: Code::Internal,
                reason: "SIGNING_FAILED".to_owned(),
                message: error.to_string(),
                retry_after: None,
            })?;
        let mut request = deadline::request(message, limit);
        request.metadata_mut().insert_bin(OBO_KEY, MetadataValue::from_bytes(&obo));
        Ok(request)
    }
}

/// By what a session is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Session(SessionId),
    Run(RunId),
}

fn about(session: SessionId) -> About {
    About { session: Some(session), permission: None }
}

#[derive(Clone, Debug)]
pub(crate) struct Audit {
    client: AuditServiceClient<PeerChannel>,
    patience: Patience,
}

impl Audit {
    pub(crate) fn new(channel: PeerChannel, patience: Patience) -> Self {
        Self { client: AuditServiceClient::new(channel), patience }
    }

    /// The same entry may be appended again: audit-svc knows it by its event id.
    pub(crate) async fn append(&self, entry: NewEntry) -> Result<AppendResponse, Fault> {
        self.patience
            .keep(|| async {
                let message = AppendRequest { entries: vec![entry.clone()] };
                Ok(self
                    .client
                    .clone()
                    .append(deadline::request(message, SHORT))
                    .await?
                    .into_inner())
            })
            .await
    }
}

pub(crate) fn to_wire(signed: Signed) -> WireSigned {
    let Signed { payload, signature, chain } = signed;
    WireSigned { payload, signature, chain }
}

pub(crate) fn from_wire(signed: WireSigned) -> Signed {
    let WireSigned { payload, signature, chain } = signed;
    Signed { payload, signature, chain }
}

/// How long a call that may be repeated is tried again while its peer cannot be reached: as long as a person would wait,
/// and no longer than the process runs.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    pub(crate) shutdown: CancellationToken,
}

impl Patience {
    async fn keep<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let until = Instant::now() + self.limit;
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt().await {
                Err(fault) if fault.code == Code::Unavailable && Instant::now() + pause < until => {
                    if self.shutdown.run_until_cancelled(sleep(pause)).await.is_none() {
                        return Err(fault);
                    }
                }
                settled => return settled,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
