//! An agent-svc that verifies as the real one does, and whose runs do what the test says.
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use event::id::{CallId, EventId, PermissionId, RunId, SessionId};
use event::{Actor, ActorKind, Data, Digest, Event, PermissionRequested};
use proto::agent::v1 as wire;
use proto::agent::v1::agent_service_server::AgentService;
use proto::agent::v1::subscribe_response::Message;
use receipt::{
    Audience, Effect, EffectClass, Executor, Grant, Network, OBO_KEY, Obo, Part, Plan, Receipt,
    Role, Scope, Signed, Verifier, Version, plan_digest,
};
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use transport::{Code, Peer, Public, TaskTracker, to_status};

use crate::peers::from_wire;

#[derive(Clone, Debug)]
pub(crate) struct FakeAgent(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    verifier: Verifier,
    tracker: TaskTracker,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sessions: BTreeMap<SessionId, FakeSession>,
    pub(crate) calls: Vec<(String, Obo)>,
    /// The next calls of a method fail so, one after the other.
    pub(crate) failures: Vec<(&'static str, Failure)>,
    /// Subscriptions that are open now, and how many may answer.
    pub(crate) subscribers: Vec<bool>,
    /// Ends every subscription without an outcome when it changes.
    cut: u64,
}

#[derive(Debug)]
pub(crate) struct FakeSession {
    pub(crate) grant: Grant,
    pub(crate) signed: proto::common::v1::Signed,
    pub(crate) request: wire::CreateSessionRequest,
    pub(crate) run: Option<RunId>,
    pub(crate) prompt: Option<wire::PromptRequest>,
    pub(crate) log: Vec<(u64, Vec<u8>)>,
    pub(crate) asks: BTreeMap<PermissionId, FakeAsk>,
    pub(crate) outcome: Option<wire::Outcome>,
}

#[derive(Debug)]
pub(crate) struct FakeAsk {
    seq: u64,
    pub(crate) plan: Plan,
    pub(crate) standing: Standing,
}

#[derive(Debug)]
pub(crate) enum Standing {
    Open,
    Claimed(String),
    Allowed(String, Box<Receipt>),
    Denied(String, wire::DenySource),
}

/// A failure as agent-svc would put it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason} happened")]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) reason: &'static str,
}

impl Public for Failure {
    const DOMAIN: &'static str = "agent-svc";
    fn code(&self) -> Code {
        self.code
    }
    fn reason(&self) -> &str {
        self.reason
    }
}

fn failure(code: Code, reason: &'static str) -> Status {
    to_status(&Failure { code, reason })
}

impl FakeAgent {
    pub(crate) fn new(ca_pem: &str, trust_domain: &str, tracker: TaskTracker) -> Self {
        let verifier = Verifier::new(ca_pem.as_bytes(), trust_domain).expect("a CA");
        let shared =
            Shared { verifier, tracker, state: Mutex::default(), changed: watch::Sender::new(()) };
        Self(Arc::new(shared))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("unpoisoned")
    }

    pub(crate) fn verifier(&self) -> &Verifier {
        &self.0.verifier
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn until<T>(&self, mut wanted: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.0.changed.subscribe();
        super::within(async {
            loop {
                if let Some(found) = wanted(&self.state()) {
                    return found;
                }
                changes.changed().await.expect("the sender lives");
            }
        })
        .await
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.0.changed.send_replace(());
        result
    }

    pub(crate) fn fail_next(&self, method: &'static str, code: Code, reason: &'static str) {
        self.change(|state| state.failures.push((method, Failure { code, reason })));
    }

    /// Appends an event to the session's log, and so to its subscriptions.
    pub(crate) fn push(&self, session: SessionId, data: impl Into<Data>) -> Vec<u8> {
        let bytes = sealed(data);
        self.push_bytes(session, bytes.clone());
        bytes
    }

    pub(crate) fn push_bytes(&self, session: SessionId, bytes: Vec<u8>) -> u64 {
        self.change(|state| {
            let log = &mut state.sessions.get_mut(&session).expect("known").log;
            log.push((log.len() as u64, bytes));
            log.len() as u64 - 1
        })
    }

    /// Asks about a command.
    pub(crate) fn ask(&self, session: SessionId) -> (PermissionId, Plan) {
        let run = self.state().sessions[&session].run.unwrap_or_else(RunId::new);
        let (permission, plan) = (PermissionId::new(), plan(session, run));
        let bytes = sealed(requested(permission, &plan));
        let seq = self.push_bytes(session, bytes);
        let ask = FakeAsk { seq, plan: plan.clone(), standing: Standing::Open };
        self.change(|state| {
            state.sessions.get_mut(&session).expect("known").asks.insert(permission, ask)
        });
        (permission, plan)
    }

    pub(crate) fn settle(&self, session: SessionId, permission: PermissionId, standing: Standing) {
        self.change(|state| {
            let asks = &mut state.sessions.get_mut(&session).expect("known").asks;
            asks.get_mut(&permission).expect("known").standing = standing;
        });
    }

    pub(crate) fn finish(&self, session: SessionId, state: wire::outcome::State) {
        let usage =
            proto::common::v1::Usage { prompt_tokens: 30, completion_tokens: 7, total_tokens: 37 };
        self.change(|all| {
            let session = all.sessions.get_mut(&session).expect("known");
            session.outcome = Some(wire::Outcome {
                run_id: session.run.expect("prompted").to_string(),
                usage: Some(usage),
                steps: 1,
                tool_calls: 0,
                state: Some(state),
            });
        });
    }

    pub(crate) fn complete(&self, session: SessionId, text: &str) {
        self.finish(
            session,
            wire::outcome::State::Completed(wire::Completed { final_text: text.to_owned() }),
        );
    }

    /// Every subscription is lost, as when the process is killed.
    pub(crate) fn cut(&self) {
        self.change(|state| state.cut += 1);
    }

    /// What the real one checks of every call.
    fn admit<T>(
        &self,
        request: &Request<T>,
        method: &'static str,
        session: Option<&str>,
        permission: Option<&str>,
    ) -> Result<Obo, Status> {
        let bytes = request
            .metadata()
            .get_bin(OBO_KEY)
            .ok_or_else(|| Status::unauthenticated("no context"))?;
        let bytes = bytes.to_bytes().map_err(|_| Status::unauthenticated("no bytes"))?;
        let signed = Signed::parse(&bytes).map_err(|_| Status::unauthenticated("malformed"))?;
        let obo = self.0.verifier.verify::<Obo>(&signed, crate::sign::now(), &|_| false);
        let obo = obo.map_err(|_| Status::unauthenticated("invalid"))?.into_inner();
        let peer = Peer::of(request)?;
        let path = format!("/harness.agent.v1.AgentService/{method}");
        let (about, permits) =
            (obo.session.map(|id| id.to_string()), obo.permission.map(|id| id.to_string()));
        let bound = *peer.uri == *obo.issuer
            && obo.audience == Audience::AgentSvc
            && obo.method == path
            && about.as_deref() == session
            && permits.as_deref() == permission;
        self.change(|state| {
            let replayed = state.calls.iter().any(|(_, seen)| seen.id == obo.id);
            if !bound || replayed {
                return Err(Status::permission_denied("context is for something else"));
            }
            state.calls.push((method.to_owned(), obo.clone()));
            match state.failures.iter().position(|(failing, _)| *failing == method) {
                Some(at) => Err(to_status(&state.failures.remove(at).1)),
                None => Ok(obo),
            }
        })
    }
}

fn find(text: &str, state: &State, obo: &Obo) -> Result<SessionId, Status> {
    let id =
        SessionId::parse(text).map_err(|_| failure(Code::InvalidArgument, "REQUEST_INVALID"))?;
    match state.sessions.get(&id) {
        Some(session) if session.grant.tenant == obo.tenant => Ok(id),
        Some(_) | None => Err(failure(Code::NotFound, "SESSION_NOT_FOUND")),
    }
}

#[tonic::async_trait]
impl AgentService for FakeAgent {
    async fn create_session(
        &self,
        request: Request<wire::CreateSessionRequest>,
    ) -> Result<Response<wire::CreateSessionResponse>, Status> {
        let obo =
            self.admit(&request, "CreateSession", Some(&request.get_ref().session_id), None)?;
        let request = request.into_inner();
        let signed = request
            .grant
            .clone()
            .ok_or_else(|| failure(Code::InvalidArgument, "REQUEST_INVALID"))?;
        let grant = self.0.verifier.verify::<Grant>(
            &from_wire(signed.clone()),
            crate::sign::now(),
            &|_| false,
        );
        let grant =
            grant.map_err(|_| failure(Code::FailedPrecondition, "GRANT_INVALID"))?.into_inner();
        assert_eq!(
            (grant.session.to_string(), &grant.tenant),
            (request.session_id.clone(), &obo.tenant)
        );
        self.change(|state| {
            if let Some(known) = state.sessions.get_mut(&grant.session) {
                let renewed = Grant { iat: known.grant.iat, exp: known.grant.exp, ..grant.clone() };
                assert_eq!(renewed, known.grant, "a renewal changes the times only");
                (known.grant, known.signed) = (grant, signed);
                return;
            }
            assert_eq!(Digest::of(&request.manifest), grant.manifest);
            let created = event::SessionCreated {
                session_id: grant.session,
                workspace: Some(grant.workspace.clone()),
            };
            let session = FakeSession {
                grant: grant.clone(),
                signed,
                request,
                run: None,
                prompt: None,
                log: vec![(0, sealed(created))],
                asks: BTreeMap::new(),
                outcome: None,
            };
            state.sessions.insert(grant.session, session);
        });
        Ok(Response::new(wire::CreateSessionResponse { through_seq: 0 }))
    }

    async fn prompt(
        &self,
        request: Request<wire::PromptRequest>,
    ) -> Result<Response<wire::PromptResponse>, Status> {
        let obo = self.admit(&request, "Prompt", Some(&request.get_ref().session_id), None)?;
        let request = request.into_inner();
        let run_id = self.change(|state| {
            let id = find(&request.session_id, state, &obo)?;
            let session = state.sessions.get_mut(&id).expect("found");
            if session.prompt.is_some() {
                return Err(failure(Code::FailedPrecondition, "SESSION_ALREADY_RUN"));
            }
            session.prompt = Some(request);
            Ok(session.run.insert(RunId::new()).to_string())
        })?;
        Ok(Response::new(wire::PromptResponse { run_id }))
    }

    type SubscribeStream = ReceiverStream<Result<wire::SubscribeResponse, Status>>;
    async fn subscribe(
        &self,
        request: Request<wire::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let obo = self.admit(&request, "Subscribe", Some(&request.get_ref().session_id), None)?;
        let wire::SubscribeRequest { session_id, after_seq, can_answer } = request.into_inner();
        let id = find(&session_id, &self.state(), &obo)?;
        let (sender, receiver) = mpsc::channel(4);
        let agent = self.clone();
        self.0.tracker.spawn(async move {
            agent.change(|state| state.subscribers.push(can_answer));
            agent.serve(id, after_seq, &sender).await;
            agent.change(|state| {
                let at =
                    state.subscribers.iter().position(|one| *one == can_answer).expect("counted");
                state.subscribers.remove(at);
            });
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn claim_permission(
        &self,
        request: Request<wire::ClaimPermissionRequest>,
    ) -> Result<Response<wire::ClaimPermissionResponse>, Status> {
        let message = request.get_ref();
        let obo = self.admit(
            &request,
            "ClaimPermission",
            Some(&message.session_id),
            Some(&message.permission_id),
        )?;
        let message = request.into_inner();
        let (decision, source) = (message.decision(), message.source());
        let result = self.change(|state| {
            let id = find(&message.session_id, state, &obo)?;
            let permission = PermissionId::parse(&message.permission_id).expect("an id");
            let asks = &mut state.sessions.get_mut(&id).expect("found").asks;
            let ask = asks
                .get_mut(&permission)
                .ok_or_else(|| failure(Code::NotFound, "PERMISSION_NOT_FOUND"))?;
            let digest = plan_digest(&ask.plan.to_bytes().expect("fits"));
            if message.plan_digest != digest.as_bytes() {
                return Err(failure(Code::FailedPrecondition, "PLAN_DIGEST_MISMATCH"));
            }
            let lost = |decision: wire::Decision, by: &str, source: wire::DenySource, settled| {
                use wire::claim_permission_response::Result as Claimed;
                let (decision, source) = (decision.into(), source.into());
                Ok(Claimed::Lost(wire::Lost { decision, by: by.to_owned(), source, settled }))
            };
            match &ask.standing {
                Standing::Open => {}
                Standing::Claimed(by)
                    if *by == obo.subject && decision == wire::Decision::Allow => {}
                Standing::Claimed(by) => {
                    return lost(wire::Decision::Allow, by, wire::DenySource::Unspecified, false);
                }
                Standing::Allowed(by, _) => {
                    return lost(wire::Decision::Allow, by, wire::DenySource::Unspecified, true);
                }
                Standing::Denied(by, source) => {
                    return lost(wire::Decision::Deny, by, *source, true);
                }
            }
            ask.standing = match decision {
                wire::Decision::Allow => Standing::Claimed(obo.subject.clone()),
                _ => Standing::Denied(obo.subject.clone(), source),
            };
            Ok(wire::claim_permission_response::Result::Won(wire::Won { lease_until_ms: 0 }))
        })?;
        Ok(Response::new(wire::ClaimPermissionResponse { result: Some(result) }))
    }

    async fn resolve_permission(
        &self,
        request: Request<wire::ResolvePermissionRequest>,
    ) -> Result<Response<wire::ResolvePermissionResponse>, Status> {
        let message = request.get_ref();
        let obo = self.admit(
            &request,
            "ResolvePermission",
            Some(&message.session_id),
            Some(&message.permission_id),
        )?;
        let wire::ResolvePermissionRequest { session_id, permission_id, receipt } =
            request.into_inner();
        let receipt = from_wire(receipt.expect("a receipt"));
        let receipt = self.0.verifier.verify::<Receipt>(&receipt, crate::sign::now(), &|_| false);
        let receipt =
            receipt.map_err(|_| failure(Code::PermissionDenied, "RECEIPT_INVALID"))?.into_inner();
        self.change(|state| {
            let id = find(&session_id, state, &obo)?;
            let permission = PermissionId::parse(&permission_id).expect("an id");
            let ask = state
                .sessions
                .get_mut(&id)
                .expect("found")
                .asks
                .get_mut(&permission)
                .expect("claimed");
            assert!(matches!(&ask.standing, Standing::Claimed(by) if *by == obo.subject));
            ask.standing = Standing::Allowed(obo.subject.clone(), Box::new(receipt));
            Ok(Response::new(wire::ResolvePermissionResponse { through_seq: 0 }))
        })
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        let obo = self.admit(&request, "Cancel", Some(&request.get_ref().session_id), None)?;
        let id = find(&request.get_ref().session_id, &self.state(), &obo)?;
        let canceled = self.state().sessions[&id].outcome.is_none();
        Ok(Response::new(wire::CancelResponse { canceled }))
    }

    async fn get_session(
        &self,
        request: Request<wire::GetSessionRequest>,
    ) -> Result<Response<wire::GetSessionResponse>, Status> {
        use wire::get_session_request::Key;
        let key = request.get_ref().key.clone().expect("a key");
        let session = match &key {
            Key::SessionId(id) => Some(id.as_str()),
            Key::RunId(_) => None,
        };
        let obo = self.admit(&request, "GetSession", session, None)?;
        let state = self.state();
        let found = state.sessions.values().find(|session| match &key {
            Key::SessionId(id) => session.grant.session.to_string() == *id,
            Key::RunId(id) => session.run.is_some_and(|run| run.to_string() == *id),
        });
        let found = found.filter(|session| session.grant.tenant == obo.tenant);
        let session = found.ok_or_else(|| failure(Code::NotFound, "SESSION_NOT_FOUND"))?;
        Ok(Response::new(wire::GetSessionResponse {
            session: Some(wire::Session {
                session_id: session.grant.session.to_string(),
                tenant: session.grant.tenant.clone(),
                grant: Some(session.signed.clone()),
                model: session.request.model.clone(),
                ..wire::Session::default()
            }),
        }))
    }

    async fn list_sessions(
        &self,
        _: Request<wire::ListSessionsRequest>,
    ) -> Result<Response<wire::ListSessionsResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
}

impl FakeAgent {
    async fn serve(
        &self,
        id: SessionId,
        after: Option<u64>,
        sender: &mpsc::Sender<Result<wire::SubscribeResponse, Status>>,
    ) {
        let mut changes = self.0.changed.subscribe();
        let (opening, cut) = {
            let state = self.state();
            let session = &state.sessions[&id];
            let open = session.asks.values().filter(|ask| matches!(ask.standing, Standing::Open));
            let requested = open
                .map(|ask| wire::Entry {
                    seq: ask.seq,
                    event: session.log[usize::try_from(ask.seq).expect("small")].1.clone(),
                })
                .collect();
            let through_seq = session.log.last().map(|(seq, _)| *seq);
            (Message::OpenAsks(wire::OpenAsks { through_seq, requested }), state.cut)
        };
        let mut next = after.map_or(0, |after| after + 1);
        let mut batch = vec![opening];
        let mut told = HashSet::new();
        loop {
            for message in batch.drain(..) {
                let last = matches!(message, Message::Outcome(_));
                if sender
                    .send(Ok(wire::SubscribeResponse { message: Some(message) }))
                    .await
                    .is_err()
                    || last
                {
                    return;
                }
            }
            {
                let state = self.state();
                let session = &state.sessions[&id];
                for (seq, event) in session.log.iter().filter(|(seq, _)| *seq >= next) {
                    assert!(told.insert(*seq));
                    batch.push(Message::Entry(wire::Entry { seq: *seq, event: event.clone() }));
                }
                next = session.log.len() as u64;
                batch.extend(session.outcome.clone().map(Message::Outcome));
                if state.cut != cut {
                    return;
                }
            }
            if batch.is_empty() {
                tokio::select! {
                    changed = changes.changed() => changed.expect("the sender lives"),
                    () = sender.closed() => return,
                }
            }
        }
    }
}

pub(crate) fn sealed(data: impl Into<Data>) -> Vec<u8> {
    let actor = Actor { kind: ActorKind::Agent, id: None };
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::now_utc(),
        actor: Some(actor),
        data: data.into(),
    };
    event::seal(&event).expect("an event").bytes
}

pub(crate) fn requested(permission_id: PermissionId, plan: &Plan) -> PermissionRequested {
    let bytes = plan.to_bytes().expect("fits");
    PermissionRequested {
        permission_id,
        session_id: plan.session,
        call_id: Some(plan.call),
        action: plan.action.clone(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        plan: serde_json::from_slice(&bytes).expect("JSON"),
        plan_digest: plan_digest(&bytes),
        expires_at: OffsetDateTime::now_utc(),
    }
}

pub(crate) fn plan(session: SessionId, run: RunId) -> Plan {
    let part = Part {
        action: "process.exec".to_owned(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        rule: "default".to_owned(),
    };
    Plan {
        v: Version::V1,
        session,
        run,
        call: CallId::new(),
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once, Scope::Run],
        manifest: Digest::of(b"manifest"),
        parts: vec![part],
        network: Network::None,
        argv: Some(vec!["cargo".to_owned(), "test".to_owned()]),
        cwd: None,
        env: None,
        image: None,
        limits: None,
        snapshot: None,
        workspace: None,
        patch: None,
    }
}

/// The roles that a call was made with.
pub(crate) fn roles(state: &State, method: &str) -> Vec<Vec<Role>> {
    state
        .calls
        .iter()
        .filter(|(name, _)| name == method)
        .map(|(_, obo)| obo.roles.clone())
        .collect()
}
