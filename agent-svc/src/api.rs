//! Where the wire ends: each call's context is admitted, its message parsed by destructuring, and its answer put back
//! into a message. What a call does is decided elsewhere.

mod parse;
mod show;

use std::sync::Arc;

use event::id::{RunId, SessionId};
use proto::agent::v1 as wire;
use proto::agent::v1::agent_service_server::AgentService;
use tonic::{Request, Response, Status};
use tracing::error;
use transport::authz::{Caller as Peer, Row};
use transport::{Chain, Code, Public as _, Service, to_status};

use crate::answer;
use crate::create;
use crate::grant;
use crate::obo::{About, Access, Caller};
use crate::patch;
use crate::refusal::Refusal;
use crate::run;
use crate::runtime::Runtime;
use crate::store::{Session, State};
use crate::subscribe;

pub(crate) use show::outcome;

const CREATE_SESSION: &str = "/harness.agent.v1.AgentService/CreateSession";
const PROMPT: &str = "/harness.agent.v1.AgentService/Prompt";
const SUBSCRIBE: &str = "/harness.agent.v1.AgentService/Subscribe";
const CLAIM_PERMISSION: &str = "/harness.agent.v1.AgentService/ClaimPermission";
const RESOLVE_PERMISSION: &str = "/harness.agent.v1.AgentService/ResolvePermission";
const GET_PATCH: &str = "/harness.agent.v1.AgentService/GetPatch";
const LIST_GRANTS: &str = "/harness.agent.v1.AgentService/ListGrants";
const REVOKE_GRANT: &str = "/harness.agent.v1.AgentService/RevokeGrant";
const CANCEL: &str = "/harness.agent.v1.AgentService/Cancel";
const GET_SESSION: &str = "/harness.agent.v1.AgentService/GetSession";
const LIST_SESSIONS: &str = "/harness.agent.v1.AgentService/ListSessions";

const GATEWAY: &[Peer] = &[Peer::Service(Service::Gateway)];

/// Who may call which method.
pub const CALLERS: &[Row] = &[
    Row { method: CREATE_SESSION, callers: GATEWAY },
    Row { method: PROMPT, callers: GATEWAY },
    Row { method: SUBSCRIBE, callers: GATEWAY },
    Row { method: CLAIM_PERMISSION, callers: GATEWAY },
    Row { method: RESOLVE_PERMISSION, callers: GATEWAY },
    Row { method: GET_PATCH, callers: GATEWAY },
    Row { method: LIST_GRANTS, callers: GATEWAY },
    Row { method: REVOKE_GRANT, callers: GATEWAY },
    Row { method: CANCEL, callers: GATEWAY },
    Row { method: GET_SESSION, callers: GATEWAY },
    Row { method: LIST_SESSIONS, callers: GATEWAY },
];

#[derive(Debug, Clone)]
pub(crate) struct Api(pub(crate) Arc<Runtime>);

impl Api {
    fn admit<T>(&self, request: &Request<T>, about: About) -> Result<Caller, Refusal> {
        Ok(self.0.gate.admit(request, about)?)
    }

    /// A session of the caller's tenant; another tenant's is no session at all.
    async fn session(&self, caller: &Caller, id: SessionId) -> Result<Session, Refusal> {
        self.0.store.session(&caller.tenant, id).await?.ok_or(Refusal::SessionNotFound)
    }

    async fn create(
        &self,
        request: Request<wire::CreateSessionRequest>,
    ) -> Result<wire::CreateSessionResponse, Refusal> {
        let session = parse::session(&request.get_ref().session_id)?;
        let caller = self.admit(&request, about(CREATE_SESSION, Access::Act, session))?;
        let wanted = parse::create(request.into_inner(), session)?;
        let runtime = Arc::clone(&self.0);
        let through = self.0.finish(async move { create::create(&runtime, &caller, wanted).await });
        Ok(wire::CreateSessionResponse { through_seq: through.await? })
    }

    async fn start(
        &self,
        request: Request<wire::PromptRequest>,
    ) -> Result<wire::PromptResponse, Refusal> {
        let session = parse::session(&request.get_ref().session_id)?;
        let caller = self.admit(&request, about(PROMPT, Access::Act, session))?;
        let (wish, limits) = parse::prompt(request.into_inner(), &caller.subject)?;
        let session = self.session(&caller, session).await?;
        let runtime = Arc::clone(&self.0);
        let run = self.0.finish(async move { run::prompt(&runtime, &session, wish, limits).await });
        Ok(wire::PromptResponse { run_id: run.await?.to_string() })
    }

    async fn attach(
        &self,
        request: Request<wire::SubscribeRequest>,
    ) -> Result<subscribe::Entries, Refusal> {
        let session = parse::session(&request.get_ref().session_id)?;
        // Who speaks for somebody who may answer must be allowed to.
        let access = if request.get_ref().can_answer { Access::Act } else { Access::Read };
        let caller = self.admit(&request, about(SUBSCRIBE, access, session))?;
        let wire::SubscribeRequest { session_id: _, after_seq, can_answer } = request.into_inner();
        let session = self.session(&caller, session).await?;
        subscribe::subscribe(&self.0, session, after_seq, can_answer).await
    }

    async fn claim(
        &self,
        request: Request<wire::ClaimPermissionRequest>,
    ) -> Result<wire::ClaimPermissionResponse, Refusal> {
        let wire::ClaimPermissionRequest { session_id, permission_id, .. } = request.get_ref();
        let (session, permission) =
            (parse::session(session_id)?, parse::permission(permission_id)?);
        let about =
            About { permission: Some(permission), ..about(CLAIM_PERMISSION, Access::Act, session) };
        let caller = self.admit(&request, about)?;
        let claim = parse::claim(request.into_inner(), permission)?;
        let session = self.session(&caller, session).await?;
        let runtime = Arc::clone(&self.0);
        let claimed =
            self.0.finish(async move { answer::claim(&runtime, &session, &caller, claim).await });
        Ok(show::claimed(claimed.await?))
    }

    async fn resolve(
        &self,
        request: Request<wire::ResolvePermissionRequest>,
    ) -> Result<wire::ResolvePermissionResponse, Refusal> {
        let wire::ResolvePermissionRequest { session_id, permission_id, .. } = request.get_ref();
        let (session, permission) =
            (parse::session(session_id)?, parse::permission(permission_id)?);
        let about = About {
            permission: Some(permission),
            ..about(RESOLVE_PERMISSION, Access::Act, session)
        };
        let caller = self.admit(&request, about)?;
        let receipt = parse::receipt(request.into_inner())?;
        let session = self.session(&caller, session).await?;
        let runtime = Arc::clone(&self.0);
        let settled = self.0.finish(async move {
            answer::resolve(&runtime, &session, &caller, permission, &receipt).await
        });
        Ok(show::settled(settled.await?))
    }

    async fn read_patch(
        &self,
        request: Request<wire::GetPatchRequest>,
    ) -> Result<wire::GetPatchResponse, Refusal> {
        let form = parse::form(request.get_ref().form())?;
        let wire::GetPatchRequest { session_id, offset, .. } = request.get_ref();
        let (session, offset) = (parse::session(session_id)?, *offset);
        let which = parse::which(request.get_ref())?;
        let permission = match &which {
            patch::Which::Asked(permission) => Some(*permission),
            patch::Which::OfRun { .. } => None,
        };
        let about = About { permission, ..about(GET_PATCH, Access::Read, session) };
        let caller = self.admit(&request, about)?;
        let session = self.session(&caller, session).await?;
        let patch::Page { digest, text, more } =
            patch::page(&self.0, &session, which, form, offset).await?;
        let end = offset.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        Ok(wire::GetPatchResponse {
            patch_digest: digest.as_bytes().to_vec(),
            offset,
            text,
            next_offset: more.then_some(end),
        })
    }

    async fn grants(
        &self,
        request: Request<wire::ListGrantsRequest>,
    ) -> Result<wire::ListGrantsResponse, Refusal> {
        let session = parse::session(&request.get_ref().session_id)?;
        let caller = self.admit(&request, about(LIST_GRANTS, Access::Read, session))?;
        let session = self.session(&caller, session).await?;
        let now = self.0.clock.millis();
        Ok(show::grants(self.0.store.grants(session.owner.session, now).await?))
    }

    async fn revoke(
        &self,
        request: Request<wire::RevokeGrantRequest>,
    ) -> Result<wire::RevokeGrantResponse, Refusal> {
        let wire::RevokeGrantRequest { session_id, receipt_id } = request.get_ref();
        let (session, receipt) = (parse::session(session_id)?, parse::receipt_id(receipt_id)?);
        let caller = self.admit(&request, about(REVOKE_GRANT, Access::Act, session))?;
        let session = self.session(&caller, session).await?;
        let runtime = Arc::clone(&self.0);
        let taken =
            self.0.finish(async move { grant::revoke(&runtime, &session, &caller, receipt).await });
        Ok(show::taken(taken.await?))
    }

    async fn stop(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<wire::CancelResponse, Refusal> {
        let session = parse::session(&request.get_ref().session_id)?;
        let caller = self.admit(&request, about(CANCEL, Access::Act, session))?;
        let session = self.session(&caller, session).await?;
        let runtime = Arc::clone(&self.0);
        let canceled =
            self.0.finish(async move { run::cancel(&runtime, &session, caller.subject).await });
        Ok(wire::CancelResponse { canceled: canceled.await? })
    }

    async fn get(
        &self,
        request: Request<wire::GetSessionRequest>,
    ) -> Result<wire::GetSessionResponse, Refusal> {
        let key = parse::key(request.get_ref())?;
        let session = match key {
            parse::Key::Session(id) => Some(id),
            parse::Key::Run(_) => None,
        };
        let caller = self.admit(
            &request,
            About { method: GET_SESSION, access: Access::Read, session, permission: None },
        )?;
        let session = match key {
            parse::Key::Session(id) => self.session(&caller, id).await?,
            parse::Key::Run(run) => self.session_of_run(&caller, run).await?,
        };
        Ok(wire::GetSessionResponse { session: Some(self.shown(session).await?) })
    }

    async fn session_of_run(&self, caller: &Caller, run: RunId) -> Result<Session, Refusal> {
        let found = self.0.store.session_of_run(&caller.tenant, run).await?;
        found.ok_or(Refusal::SessionNotFound)
    }

    async fn list(
        &self,
        request: Request<wire::ListSessionsRequest>,
    ) -> Result<wire::ListSessionsResponse, Refusal> {
        let about =
            About { method: LIST_SESSIONS, access: Access::Read, session: None, permission: None };
        let caller = self.admit(&request, about)?;
        let (size, before) = parse::page(&request.into_inner())?;
        let mut found = self.0.store.list_sessions(&caller.tenant, before, size + 1).await?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let more = found.len() > size;
        found.truncate(size);
        let last = found.last().map(|session| session.owner.session.to_string());
        let mut sessions = Vec::with_capacity(found.len());
        for session in found {
            sessions.push(self.shown(session).await?);
        }
        let next_page_token = last.filter(|_| more).unwrap_or_default();
        Ok(wire::ListSessionsResponse { sessions, next_page_token })
    }

    async fn shown(&self, mut session: Session) -> Result<wire::Session, Refusal> {
        let id = session.owner.session;
        if self.0.sessions.get(id).is_some_and(|live| live.feed.is_parked()) {
            session.state = State::NeedsOperator;
        }
        let open = self.0.store.open_asks(id, session.through_seq).await?;
        show::session(session, open.into_iter().map(|(_, permission, _)| permission))
    }
}

fn about(method: &'static str, access: Access, session: SessionId) -> About {
    About { method, access, session: Some(session), permission: None }
}

/// The one place where a refusal goes out.
fn answered<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|refusal| {
        if refusal.code() == Code::Internal {
            error!(error = %Chain(&refusal), "request failed");
        }
        to_status(&refusal)
    })
}

#[tonic::async_trait]
impl AgentService for Api {
    async fn create_session(
        &self,
        request: Request<wire::CreateSessionRequest>,
    ) -> Result<Response<wire::CreateSessionResponse>, Status> {
        answered(self.create(request).await)
    }

    async fn prompt(
        &self,
        request: Request<wire::PromptRequest>,
    ) -> Result<Response<wire::PromptResponse>, Status> {
        answered(self.start(request).await)
    }

    type SubscribeStream = subscribe::Entries;

    async fn subscribe(
        &self,
        request: Request<wire::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        answered(self.attach(request).await)
    }

    async fn claim_permission(
        &self,
        request: Request<wire::ClaimPermissionRequest>,
    ) -> Result<Response<wire::ClaimPermissionResponse>, Status> {
        answered(self.claim(request).await)
    }

    async fn resolve_permission(
        &self,
        request: Request<wire::ResolvePermissionRequest>,
    ) -> Result<Response<wire::ResolvePermissionResponse>, Status> {
        answered(self.resolve(request).await)
    }

    async fn get_patch(
        &self,
        request: Request<wire::GetPatchRequest>,
    ) -> Result<Response<wire::GetPatchResponse>, Status> {
        answered(self.read_patch(request).await)
    }

    async fn list_grants(
        &self,
        request: Request<wire::ListGrantsRequest>,
    ) -> Result<Response<wire::ListGrantsResponse>, Status> {
        answered(self.grants(request).await)
    }

    async fn revoke_grant(
        &self,
        request: Request<wire::RevokeGrantRequest>,
    ) -> Result<Response<wire::RevokeGrantResponse>, Status> {
        answered(self.revoke(request).await)
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        answered(self.stop(request).await)
    }

    async fn get_session(
        &self,
        request: Request<wire::GetSessionRequest>,
    ) -> Result<Response<wire::GetSessionResponse>, Status> {
        answered(self.get(request).await)
    }

    async fn list_sessions(
        &self,
        request: Request<wire::ListSessionsRequest>,
    ) -> Result<Response<wire::ListSessionsResponse>, Status> {
        answered(self.list(request).await)
    }
}
