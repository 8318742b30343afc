//! The methods: each judges what its connection allows, then hands the work to a task.
use acp::{
    AgentCapabilities, AttachParams, AttachTarget, CancelAnswer, CancelParams, ClientCapabilities,
    Code, Cursor, Decision, Failure, InitializeAnswer, InitializeParams, Malformed, NewParams,
    PatchUndoParams, PromptParams, RequestId, RespondAnswer, RespondParams, Seq,
};
use event::id::{RunId, SessionId};
use proto::agent::v1 as wire;
use receipt::Scope;
use tokio::sync::Mutex;
use tracing::warn;
use transport::Chain;

use super::job::Done;
use super::session::Session;
use super::{Connection, End, reply};
use crate::Desk;
use crate::approval::{self, Answer, Counted, Verdict};
use crate::authn::Person;
use crate::feed::{self, Opened};
use crate::grant::{self, Life, Terms};
use crate::peers::Key;
use crate::refusal::{Refusal, refused};

impl Connection {
    pub(super) async fn initialize(
        &mut self,
        id: RequestId,
        params: InitializeParams,
    ) -> Result<(), End> {
        let InitializeParams { protocol_version, client_name: _, client_version: _, capabilities } =
            params;
        let failure = if self.offer.is_some() {
            Some(Failure::new(Code::InvalidRequest, "initialize comes once"))
        } else if protocol_version.as_str() != acp::PROTOCOL_VERSION {
            Some(Failure::new(Code::ProtocolVersion, "only harness/acp/1 is spoken here"))
        } else {
            missing(capabilities).map(|missing| Failure::new(Code::InvalidParams, missing))
        };
        if let Some(failure) = failure {
            return self.refuse(&id, &failure).await;
        }
        self.offer = Some(capabilities);
        self.start(async move |desk, _| {
            let manifests = desk.manifests.clone();
            let models =
                tokio::task::spawn_blocking(move || manifests.models()).await.unwrap_or_default();
            let answer = introduction(capabilities.sessions, &models);
            Done::Reply(match answer {
                Ok(answer) => reply::success(&id, &answer),
                Err(_) => reply::failure(Some(&id), &reply::refused(&Refusal::Internal)),
            })
        });
        Ok(())
    }

    pub(super) fn open(&mut self, id: RequestId, params: NewParams) -> Result<(), Failure> {
        let NewParams { workspace, task_id, model, on_disconnect } = params;
        self.acts()?;
        self.has_room()?;
        let can_answer = self.can_answer();
        self.start(async move |desk, person| {
            let opened = async {
                let manifests = desk.manifests.clone();
                let reviewed =
                    tokio::task::spawn_blocking(move || manifests.load(task_id.as_ref())).await;
                let reviewed =
                    reviewed.map_err(|_| Refusal::Internal)?.map_err(Refusal::Manifest)?;
                let terms = Terms {
                    workspace: workspace.into_string(),
                    model: model.map(acp::ModelName::into_string),
                    on_disconnect: on_disconnect.map(|choice| match choice {
                        acp::OnDisconnect::Deny => receipt::OnDisconnect::Deny,
                        acp::OnDisconnect::Hold => receipt::OnDisconnect::Hold,
                    }),
                };
                let (session, life) = grant::open(&desk, &person, reviewed, terms).await?;
                let opened = feed::open(&desk, &person, session, None, can_answer).await?;
                Ok((session, life, Box::new(opened)))
            };
            Done::Opened(id, opened.await)
        });
        self.opening += 1;
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        id: RequestId,
        params: AttachParams,
        offer: ClientCapabilities,
    ) -> Result<(), Failure> {
        let AttachParams { target, after_seq } = params;
        debug_assert!(offer.sessions);
        if !self.person.may_watch() {
            return Err(reply::refused(&Refusal::Forbidden));
        }
        self.has_room()?;
        // What is no id at all is answered like an id of nothing.
        let key = match &target {
            AttachTarget::Session(id) => SessionId::parse(id.as_str()).map(Key::Session),
            AttachTarget::Run(id) => RunId::parse(id.as_str()).map(Key::Run),
        };
        let key = key.map_err(|_| reply::refused(&Refusal::SessionNotFound))?;
        let after = after_seq.and_then(Cursor::seq).map(Seq::get);
        let can_answer = self.can_answer();
        self.start(async move |desk, person| {
            Done::Attached(id, attach(&desk, &person, key, after, can_answer).await)
        });
        self.opening += 1;
        Ok(())
    }

    pub(super) fn prompt(&mut self, id: RequestId, params: PromptParams) -> Result<(), Failure> {
        let PromptParams { session_id, content, max_model_tokens, max_tool_calls } = params;
        let request = wire::PromptRequest {
            content: content.into_string(),
            max_model_tokens: max_model_tokens.map(acp::Positive::get),
            max_tool_calls: max_tool_calls.map(acp::Positive::get),
            ..wire::PromptRequest::default()
        };
        self.begin(id, session_id.as_str(), request)
    }

    /// Whether an import may be taken back is sandbox-svc's to say, as with any call.
    pub(super) fn undo(&mut self, id: RequestId, params: PatchUndoParams) -> Result<(), Failure> {
        let PatchUndoParams { session_id, run_id, digest } = params;
        let undo = wire::Undo {
            run_id: run_id.to_string(),
            patch_digest: digest.map(|digest| digest.to_string()).unwrap_or_default(),
        };
        let request = wire::PromptRequest { undo: Some(undo), ..wire::PromptRequest::default() };
        self.begin(id, session_id.as_str(), request)
    }

    fn begin(
        &mut self,
        id: RequestId,
        session: &str,
        request: wire::PromptRequest,
    ) -> Result<(), Failure> {
        self.acts()?;
        let (session, known) = self.known(session)?;
        if !known.begin() {
            return Err(reply::refused(&Refusal::SessionAlreadyRun));
        }
        let life = known.life.clone();
        let request = wire::PromptRequest { session_id: session.to_string(), ..request };
        self.start(async move |desk, person| {
            let prompted = async {
                grant::keep(&desk, &person, session, &life).await?;
                desk.agent
                    .prompt(&person, session, request)
                    .await
                    .map_err(|fault| refused("agent-svc", fault))
            };
            Done::Prompted(id, session, prompted.await)
        });
        Ok(())
    }

    pub(super) fn respond(
        &mut self,
        id: RequestId,
        params: RespondParams,
        offer: ClientCapabilities,
    ) -> Result<(), Failure> {
        let RespondParams {
            session_id,
            permission_id,
            decision,
            note,
            plan_digest,
            scope,
            approval,
        } = params;
        let verdict = match decision {
            Decision::Allow => Verdict::Allow(scope.map(|scope| match scope {
                acp::Scope::Once => Scope::Once,
                acp::Scope::Run => Scope::Run,
            })),
            Decision::Deny => Verdict::Deny,
        };
        let note = note.map(acp::Note::into_string).unwrap_or_default();
        let approval = approval.map(signed).transpose()?;
        let answer = Answer { verdict, displayed: plan_digest, note, approval };
        self.answers(offer)?;
        self.settle(id, session_id.as_str(), permission_id.as_str(), answer)
    }

    /// An answer that cannot be read must not leave its ask hanging: it denies, if there is such an ask.
    pub(super) async fn malformed(
        &mut self,
        id: RequestId,
        malformed: Malformed,
        offer: ClientCapabilities,
    ) -> Result<(), End> {
        let Malformed { session_id, permission_id, detail } = malformed;
        let answer = Answer {
            verdict: Verdict::Malformed(detail.clone()),
            displayed: None,
            note: String::new(),
            approval: None,
        };
        let settled = self
            .answers(offer)
            .and_then(|()| self.settle(id.clone(), &session_id, &permission_id, answer));
        match settled {
            Ok(()) => Ok(()),
            Err(failure) if failure.code == Code::Forbidden => self.refuse(&id, &failure).await,
            Err(_) => self.refuse(&id, &Failure::new(Code::InvalidParams, detail)).await,
        }
    }

    fn settle(
        &mut self,
        id: RequestId,
        session: &str,
        permission: &str,
        answer: Answer,
    ) -> Result<(), Failure> {
        let (session, known) = self.known(session)?;
        let ask = known
            .ask(permission)
            .ok_or_else(|| reply::refused(&Refusal::PermissionNotFound))?
            .clone();
        let life = known.life.clone();
        self.start(async move |desk, person| {
            let settled = async {
                grant::keep(&desk, &person, session, &life).await?;
                let requester = life.lock().await.requester.clone();
                approval::answer(&desk, &person, &requester, &ask, answer).await
            };
            Done::Reply(match settled.await {
                Ok(counted) => {
                    let counted = counted.map(|Counted { have, need }| acp::Counted { have, need });
                    reply::success(&id, &RespondAnswer { accepted: (), counted })
                }
                Err(refusal) => reply::failure(Some(&id), &reply::refused(&refusal)),
            })
        });
        Ok(())
    }

    pub(super) fn cancel(&mut self, id: RequestId, params: &CancelParams) -> Result<(), Failure> {
        self.acts()?;
        let (session, _) = self.known(params.session_id.as_str())?;
        self.start(async move |desk, person| {
            Done::Reply(match desk.agent.cancel(&person, session).await {
                Ok(canceled) => reply::success(&id, &CancelAnswer { canceled }),
                Err(fault) => {
                    reply::failure(Some(&id), &reply::refused(&refused("agent-svc", fault)))
                }
            })
        });
        Ok(())
    }

    pub(super) fn known(&mut self, id: &str) -> Result<(SessionId, &mut Session), Failure> {
        let id = SessionId::parse(id).ok();
        let known = id.and_then(|id| self.sessions.get_mut(&id).map(|session| (id, session)));
        known.ok_or_else(|| reply::refused(&Refusal::SessionNotFound))
    }

    pub(super) fn acts(&self) -> Result<(), Failure> {
        if self.person.may_act() { Ok(()) } else { Err(reply::refused(&Refusal::Forbidden)) }
    }

    fn answers(&self, offer: ClientCapabilities) -> Result<(), Failure> {
        self.acts()?;
        if offer.permissioning { Ok(()) } else { Err(reply::refused(&Refusal::OnlyWatches)) }
    }

    fn can_answer(&self) -> bool {
        self.person.may_act() && self.offer.is_some_and(|offer| offer.permissioning)
    }

    fn has_room(&self) -> Result<(), Failure> {
        match self.sessions.len() + self.opening < acp::MAX_SESSIONS {
            true => Ok(()),
            false => Err(Failure::new(
                Code::SessionLimit,
                "this connection has all the sessions it may have",
            )),
        }
    }
}

async fn attach(
    desk: &Desk,
    person: &Person,
    key: Key,
    after: Option<u64>,
    can_answer: bool,
) -> Result<(SessionId, Life, Box<Opened>), Refusal> {
    let found =
        desk.agent.session(person, key).await.map_err(|fault| refused("agent-svc", fault))?;
    let wire::Session { session_id, grant, .. } = found.session.ok_or(Refusal::Internal)?;
    let session = SessionId::parse(&session_id).map_err(|_| Refusal::Internal)?;
    let (_, grant) = grant::held(desk, person, session, grant)?;
    let life = Mutex::new(Life::from(&grant));
    if person.may_act()
        && let Err(refusal) = grant::keep(desk, person, session, &life).await
    {
        // Watching needs no valid grant, and acting will ask for one.
        warn!(%session, error = %Chain(&refusal), "attached without a valid grant");
    }
    let opened = feed::open(desk, person, session, after, can_answer).await?;
    Ok((session, life.into_inner(), Box::new(opened)))
}

/// Without our extension a client must stream and answer; with it, one that only watches may leave out the latter.
fn missing(offer: ClientCapabilities) -> Option<&'static str> {
    match offer {
        ClientCapabilities { streaming: false, .. } => Some("the client must offer streaming"),
        ClientCapabilities { permissioning: false, sessions: false, .. } => {
            Some("the client must offer permissioning")
        }
        ClientCapabilities { .. } => None,
    }
}

fn introduction(sessions: bool, models: &[String]) -> Result<InitializeAnswer, acp::Length> {
    let models =
        models.iter().take(acp::MAX_MODELS).map(acp::ModelName::new).collect::<Result<_, _>>()?;
    Ok(InitializeAnswer {
        protocol_version: acp::ProtocolVersion::new(acp::PROTOCOL_VERSION)?,
        agent_name: acp::ClientName::new(acp::AGENT_NAME)?,
        agent_version: Some(acp::Version::new(env!("CARGO_PKG_VERSION"))?),
        capabilities: AgentCapabilities { streaming: (), permissioning: (), sessions },
        models,
    })
}

/// Read, not verified: the executor knows the people's keys.
fn signed(approval: acp::Approval) -> Result<receipt::SignedApproval, Failure> {
    let acp::Approval { payload, signature, key_id } = approval;
    receipt::SignedApproval::from_text(payload.as_str(), signature.as_str(), key_id)
        .map_err(|error| Failure::new(Code::InvalidParams, format!("params: approval: {error}")))
}
