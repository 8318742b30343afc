//! The methods. What takes time runs on the process's tracker, so that an answer which a person has given is carried
//! through although the client hangs up; its result comes back to the connection's owner.
use std::sync::Arc;

use acp::{
    AgentCapabilities, AttachAnswer, AttachParams, AttachTarget, CancelAnswer, CancelParams,
    ClientCapabilities, Code, Cursor, Decision, Failure, InitializeAnswer, InitializeParams,
    Malformed, NewAnswer, NewParams, OpenAsk, PromptParams, RawValue, RequestId, RespondAnswer,
    RespondParams, Seq,
};
use event::id::{RunId, SessionId};
use proto::agent::v1 as wire;
use receipt::Scope;
use tokio::sync::Mutex;
use tracing::{Instrument as _, info, warn};
use transport::Chain;

use super::session::Session;
use super::{Connection, End, reply};
use crate::Desk;
use crate::approval::{self, Answer, Verdict};
use crate::authn::Person;
use crate::feed::{self, Entry, Feed, Opened};
use crate::grant::{self, Life, Terms};
use crate::peers::Key;
use crate::refusal::{Refusal, refused};
use crate::socket::Farewell;

/// What a task brings back.
pub(super) enum Done {
    /// The text of an answer, and nothing to remember.
    Reply(String),
    Opened(RequestId, Result<(SessionId, Life, Box<Opened>), Refusal>),
    Attached(RequestId, Result<(SessionId, Life, Box<Opened>), Refusal>),
    Prompted(RequestId, SessionId, Result<(), Refusal>),
}

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
        self.acts()?;
        let (session, known) = self.known(session_id.as_str())?;
        if !known.begin() {
            return Err(reply::refused(&Refusal::SessionAlreadyRun));
        }
        let life = known.life.clone();
        let request = wire::PromptRequest {
            session_id: session.to_string(),
            content: content.into_string(),
            max_model_tokens: max_model_tokens.map(acp::Positive::get),
            max_tool_calls: max_tool_calls.map(acp::Positive::get),
        };
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
        let RespondParams { session_id, permission_id, decision, note, plan_digest, scope } =
            params;
        let verdict = match decision {
            Decision::Allow => Verdict::Allow(scope.map(|scope| match scope {
                acp::Scope::Once => Scope::Once,
                acp::Scope::Run => Scope::Run,
            })),
            Decision::Deny => Verdict::Deny,
        };
        let note = note.map(acp::Note::into_string).unwrap_or_default();
        let answer = Answer { verdict, displayed: plan_digest, note };
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
                approval::answer(&desk, &person, &ask, answer).await
            };
            Done::Reply(match settled.await {
                Ok(()) => reply::success(&id, &RespondAnswer { accepted: () }),
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

    pub(super) fn cancel_unprompted(&mut self, session: SessionId) {
        let (desk, person) = (self.desk.clone(), self.person.clone());
        let cancel = async move {
            match desk.agent.cancel(&person, session).await {
                Ok(_) => info!(%session, "a session that nobody prompted is canceled"),
                Err(fault) => {
                    warn!(%session, error = %Chain(&fault), "a session that nobody prompted is left");
                }
            }
        };
        self.desk.tracker.spawn(cancel.in_current_span());
    }

    pub(super) async fn done(&mut self, done: Done) -> Result<(), End> {
        match done {
            Done::Reply(text) => self.reply(text).await,
            Done::Opened(id, opened) => {
                self.opening -= 1;
                match opened {
                    Ok((session, life, opened)) => {
                        let text = reply::success(&id, &NewAnswer { session_id: session });
                        self.sessions.insert(session, Session::opened(Arc::new(Mutex::new(life))));
                        self.reply(text).await?;
                        self.follow(opened.feed);
                        Ok(())
                    }
                    Err(refusal) => self.refuse(&id, &reply::refused(&refusal)).await,
                }
            }
            Done::Attached(id, attached) => {
                self.opening -= 1;
                match attached {
                    Ok((session, ..)) if self.sessions.contains_key(&session) => {
                        let failure = Failure::new(
                            Code::InvalidRequest,
                            "the session is on this connection already",
                        );
                        self.refuse(&id, &failure).await
                    }
                    Ok((session, life, opened)) => self.attached(&id, session, life, *opened).await,
                    Err(refusal) => self.refuse(&id, &reply::refused(&refusal)).await,
                }
            }
            Done::Prompted(id, session, prompted) => {
                let Some(known) = self.sessions.get_mut(&session) else { return Ok(()) };
                match prompted {
                    Ok(()) => match known.started(id) {
                        Some((id, outcome)) => self.answer_prompt(&id, &outcome).await,
                        None => Ok(()),
                    },
                    Err(refusal) => {
                        known.not_started(matches!(refusal, Refusal::SessionAlreadyRun));
                        self.refuse(&id, &reply::refused(&refusal)).await
                    }
                }
            }
        }
    }

    pub(super) async fn answer_prompt(
        &mut self,
        id: &RequestId,
        outcome: &wire::Outcome,
    ) -> Result<(), End> {
        self.reply(reply::prompt(id, outcome)).await
    }

    /// Open asks are shown by the answer itself; everything else follows as events.
    async fn attached(
        &mut self,
        id: &RequestId,
        session: SessionId,
        life: Life,
        opened: Opened,
    ) -> Result<(), End> {
        let Opened { through, open, feed } = opened;
        let mut known = Session::attached(Arc::new(Mutex::new(life)));
        let mut asks = Vec::with_capacity(open.len());
        for Entry { seq, text, ask } in open {
            let (Ok(seq), Ok(event)) = (Seq::try_from(seq), RawValue::from_string(text)) else {
                return Err(End::Farewell(Farewell::INTERNAL));
            };
            asks.push(OpenAsk { seq, event });
            if let Some(ask) = ask {
                known.shown(ask);
            }
        }
        let through =
            through.and_then(|seq| Seq::try_from(seq).ok()).map_or(Cursor::NONE, Cursor::from);
        self.sessions.insert(session, known);
        self.reply(reply::success(id, &AttachAnswer { through_seq: through, open: asks })).await?;
        self.follow(feed);
        Ok(())
    }

    fn follow(&self, feed: Feed) {
        self.desk.tracker.spawn(feed.run(self.desk.clone(), self.fed.clone()).in_current_span());
    }

    /// Runs a job to its end, whether or not the client stays to hear of it.
    fn start<F>(&self, job: impl FnOnce(Arc<Desk>, Arc<Person>) -> F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let (job, done) = (job(self.desk.clone(), self.person.clone()), self.done.clone());
        // A connection that has ended takes no results.
        let report = async move { drop(done.send(job.await).await) };
        self.desk.tracker.spawn(report.in_current_span());
    }

    fn known(&mut self, id: &str) -> Result<(SessionId, &mut Session), Failure> {
        let id = SessionId::parse(id).ok();
        let known = id.and_then(|id| self.sessions.get_mut(&id).map(|session| (id, session)));
        known.ok_or_else(|| reply::refused(&Refusal::SessionNotFound))
    }

    fn acts(&self) -> Result<(), Failure> {
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
