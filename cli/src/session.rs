//! One session over one connection, as a client that answers asks. It checks everything that it is sent and stops at
//! the first contradiction; it decides no ask itself.
use std::{collections::VecDeque, sync::Arc, time::Duration};

use acp::{
    Attach, AttachAnswer, AttachParams, Cancel, CancelParams, ClientCapabilities, Initialize,
    InitializeParams, Method, NewParams, NewSession, PatchFormat, PatchPage, PatchRead, PatchUndo,
    PatchUndoParams, Prompt, PromptAnswer, PromptParams, SessionEvent,
    client::{Client, Events},
};
use event::{
    AgentStatus, AgentStopped, Data, Decision, Digest, Event, Usage,
    id::{PermissionId, RunId, SessionId},
};
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

mod answer;
mod ask;
mod error;
#[cfg(test)]
pub(crate) mod samples;
mod sheet;
mod show;
mod transcript;

pub use answer::{Answered, Verdict};
pub use ask::{Ask, Child};
pub use error::Error;
pub use show::render;
pub use transcript::{Transcript, Violation};

/// Between the event that ends a run and the answer to its prompt, or the other way round.
const PAIR_LIMIT: Duration = Duration::from_secs(30);

/// What a session brings next.
#[derive(Debug)]
pub enum Step {
    /// `text` holds the event's bytes as they came; `old` ones were sent before this client attached.
    Event {
        event: Event,
        text: String,
        old: bool,
    },
    Ask(Ask),
    Ended(Ended),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub status: AgentStatus,
    pub steps: u32,
    pub tool_calls: u32,
    pub note: Option<String>,
    pub output: String,
}

/// What a client is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It answers asks.
    Answers,
    /// It only watches: an ask may find nobody who could answer.
    Watches,
}

/// What a new session is for.
#[derive(Debug, Clone)]
pub struct Beginning {
    pub session: NewParams,
    pub errand: Errand,
}

/// What the run of a new session does.
#[derive(Debug, Clone)]
pub enum Errand {
    Prompt {
        content: acp::Content,
        max_model_tokens: Option<acp::Positive>,
        max_tool_calls: Option<acp::Positive>,
    },
    /// Takes back what another run imported; the newest of it, where no digest says which.
    Undo { run: RunId, digest: Option<Digest> },
}

/// Answers when the run is over.
type Prompted = BoxFuture<'static, Result<PromptAnswer, Error>>;

impl Errand {
    fn begun(self, client: Arc<Client>, session: SessionId) -> Prompted {
        let session_id = session.into();
        match self {
            Self::Prompt { content, max_model_tokens, max_tool_calls } => {
                let params = PromptParams { session_id, content, max_model_tokens, max_tool_calls };
                Box::pin(async move { call::<Prompt>(&client, params).await })
            }
            Self::Undo { run: run_id, digest } => {
                let params = PatchUndoParams { session_id, run_id, digest };
                Box::pin(async move { call::<PatchUndo>(&client, params).await })
            }
        }
    }
}

pub struct Session {
    client: Arc<Client>,
    events: Events,
    transcript: Transcript,
    /// Events up to here were there before this client.
    old: Option<u64>,
    waiting: VecDeque<Ask>,
    /// Read already, to learn whose events they are.
    first: Option<SessionEvent>,
    prompt: Option<Prompted>,
    answer: Option<PromptAnswer>,
    stopped: Option<AgentStopped>,
    pair_until: Option<Instant>,
    usage: Usage,
    text: String,
    run: Option<RunId>,
    /// The child that the run waits for, as it calls itself.
    child: Option<String>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.transcript.session())
    }
}

impl Session {
    /// Makes a session and starts its run.
    pub async fn begin(
        connection: (Client, Events),
        beginning: Beginning,
        part: Part,
    ) -> Result<Self, Error> {
        let Beginning { session, errand } = beginning;
        let (client, events) = greet(connection, part).await?;
        let answer = call::<NewSession>(&client, session).await?;
        let session_id = answer.session_id;
        let prompt = errand.begun(Arc::clone(&client), session_id);
        let mut session = Self::new(client, events, Transcript::new(session_id, None), None);
        session.prompt = Some(prompt);
        Ok(session)
    }

    /// Joins the session of a run, with everything that it has said so far. What is still asked comes first.
    pub async fn attach(
        connection: (Client, Events),
        to: AttachParams,
        part: Part,
    ) -> Result<Self, Error> {
        let (client, mut events) = greet(connection, part).await?;
        let AttachAnswer { through_seq, open } =
            call::<Attach>(&client, to.after(acp::Cursor::NONE)).await?;
        let through = through_seq.seq().map(acp::Seq::get);
        let Some(through) = through else { return Err(Error::NothingYet) };
        let first = first_event(&client, &mut events).await?;
        let mut session = Self::new(
            client,
            events,
            Transcript::new(first.session_id, Some(through)),
            Some(through),
        );
        for ask in &open {
            let event = session.transcript.reopen(ask)?;
            session.waiting.extend(Ask::of(&event));
        }
        session.first = Some(first);
        Ok(session)
    }

    fn new(client: Arc<Client>, events: Events, transcript: Transcript, old: Option<u64>) -> Self {
        Self {
            client,
            events,
            transcript,
            old,
            waiting: VecDeque::new(),
            first: None,
            prompt: None,
            answer: None,
            stopped: None,
            pair_until: None,
            usage: Usage { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
            text: String::new(),
            run: None,
            child: None,
        }
    }

    #[must_use]
    pub fn id(&self) -> SessionId {
        self.transcript.session()
    }

    /// Known once the run has shown it.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What is still asked, without waiting.
    pub fn open_asks(&mut self) -> Vec<Ask> {
        self.waiting.drain(..).collect()
    }

    /// How an ask was settled, as far as the session's events have said it.
    #[must_use]
    pub fn resolution(&self, permission: PermissionId) -> Option<Decision> {
        self.transcript.resolution(permission)
    }

    /// Asks that came while another was looked at; they come again.
    pub fn put_back(&mut self, asks: Vec<Ask>) {
        self.waiting.extend(asks);
    }

    /// A page of what an ask would import: of the very patch that its plan names.
    pub async fn patch_page(
        &self,
        ask: &Ask,
        format: PatchFormat,
        offset: u64,
    ) -> Result<PatchPage, Error> {
        let page = self.client.patch_read(self.id(), ask.permission_id, format, offset).await;
        let page = page.map_err(|source| Error::call(PatchRead::NAME, source))?;
        match ask.patch() == Some(page.patch_digest) {
            true => Ok(page),
            false => Err(Violation::ForeignPatch(ask.permission_id).into()),
        }
    }

    /// A page of what the session's run would import now or has imported; of that digest, where one is given.
    pub async fn run_patch_page(
        &self,
        of: (Option<Digest>, Vec<acp::WorkspaceName>),
        format: PatchFormat,
        offset: u64,
    ) -> Result<PatchPage, Error> {
        let (digest, paths) = of;
        let page = self.client.run_patch_read(self.id(), digest, paths, format, offset).await;
        page.map_err(|source| Error::call(PatchRead::NAME, source))
    }

    /// Whether the run was over when this client came, as its events say.
    pub async fn was_over(&mut self) -> Result<bool, Error> {
        while self.stopped.is_none()
            && self.old.is_some_and(|through| self.transcript.due() <= through)
        {
            self.next().await?;
        }
        Ok(self.stopped.is_some())
    }

    /// The next thing that happens. Cancel safe.
    pub async fn next(&mut self) -> Result<Step, Error> {
        if let Some(sent) = self.first.take() {
            return self.told(&sent);
        }
        loop {
            while let Some(ask) = self.waiting.pop_front() {
                if self.transcript.is_open(ask.permission_id) {
                    return Ok(Step::Ask(ask));
                }
            }
            if let Some(ended) = self.ended()? {
                return Ok(Step::Ended(ended));
            }
            let until = self.pair_until.unwrap_or_else(|| Instant::now() + PAIR_LIMIT);
            tokio::select! {
                // An answer that is here counts, also when the connection has ended since.
                biased;
                answer = answered(&mut self.prompt), if self.prompt.is_some() => {
                    self.prompt = None;
                    self.answer = Some(answer?);
                    self.pair_until.get_or_insert_with(|| Instant::now() + PAIR_LIMIT);
                }
                sent = self.events.next() => match sent {
                    Some(sent) => return self.told(&sent),
                    None => return Err(self.lost().await),
                },
                () = sleep_until(until), if self.pair_until.is_some() => return Err(Error::HalfEnded),
            }
        }
    }

    /// Asks for the end of the run; whether there was one to end.
    pub async fn cancel(&self) -> Result<bool, Error> {
        let answer =
            call::<Cancel>(&self.client, CancelParams { session_id: self.id().into() }).await?;
        Ok(answer.canceled)
    }

    /// Says goodbye. A run that may go on without this client goes on.
    pub async fn leave(self) {
        let Self { client, prompt, .. } = self;
        drop(prompt);
        if let Some(client) = Arc::into_inner(client) {
            client.close().await;
        }
    }

    /// Checks an event and keeps what the end will be made of.
    fn told(&mut self, sent: &SessionEvent) -> Result<Step, Error> {
        let event = self.transcript.admit(sent)?;
        let old = self.old.is_some_and(|through| sent.seq.get() <= through);
        match &event.data {
            Data::PermissionRequested(_) => {
                let ask = Ask::of(&event);
                let own = ask.as_ref().filter(|ask| ask.child.is_none());
                self.run = own.and_then(|ask| ask.run_id).or(self.run);
                if !old {
                    self.waiting.extend(ask);
                }
            }
            Data::AgentStarted(started) if started.parent_run_id.is_some() => {
                self.child = Some(started.agent_id.clone());
            }
            Data::AgentStarted(started) => {
                self.run = RunId::parse(&started.agent_id).ok().or(self.run);
            }
            Data::ModelResponse(response) => {
                let Usage { prompt_tokens, completion_tokens, total_tokens } = response.usage;
                self.usage.prompt_tokens = self.usage.prompt_tokens.saturating_add(prompt_tokens);
                self.usage.completion_tokens =
                    self.usage.completion_tokens.saturating_add(completion_tokens);
                self.usage.total_tokens = self.usage.total_tokens.saturating_add(total_tokens);
                let who = event.actor.as_ref().and_then(|actor| actor.id.as_deref());
                if self.child.is_none() || self.child.as_deref() != who {
                    self.text = response.text.clone().unwrap_or_default();
                }
            }
            Data::AgentStopped(stopped) if stopped.parent_run_id.is_some() => self.child = None,
            Data::AgentStopped(stopped) => {
                self.stopped = Some(stopped.clone());
                self.pair_until.get_or_insert_with(|| Instant::now() + PAIR_LIMIT);
            }
            _ => {}
        }
        Ok(Step::Event { event, text: sent.event.get().to_owned(), old })
    }

    /// The end, once both of its signs are here. A client that attached has only one to wait for.
    fn ended(&self) -> Result<Option<Ended>, Error> {
        let Some(stopped) = &self.stopped else { return Ok(None) };
        if self.prompt.is_some() {
            return Ok(None);
        }
        if let Some(answer) = &self.answer {
            self.transcript.finish(answer.status)?;
        }
        let AgentStopped { status, steps, tool_calls, note, .. } = stopped.clone();
        let output = self
            .answer
            .as_ref()
            .map_or_else(|| self.text.clone(), |answer| answer.final_text.as_str().to_owned());
        Ok(Some(Ended { status, steps, tool_calls, note, output }))
    }

    async fn lost(&self) -> Error {
        Error::Lost { session: self.id(), source: self.client.closed().await }
    }
}

async fn answered(prompt: &mut Option<Prompted>) -> Result<PromptAnswer, Error> {
    match prompt {
        Some(prompt) => prompt.await,
        None => std::future::pending().await,
    }
}

async fn greet(
    (client, events): (Client, Events),
    part: Part,
) -> Result<(Arc<Client>, Events), Error> {
    let text = |text: &str| acp::Text::new(text).map_err(Error::Text);
    let params = InitializeParams {
        protocol_version: text(acp::PROTOCOL_VERSION)?,
        client_name: text("harness")?,
        client_version: Some(acp::Text::new(env!("CARGO_PKG_VERSION")).map_err(Error::Text)?),
        capabilities: ClientCapabilities {
            streaming: true,
            permissioning: part == Part::Answers,
            sessions: true,
        },
    };
    let client = Arc::new(client);
    let answer = call::<Initialize>(&client, params).await?;
    match answer.capabilities.sessions {
        true => Ok((client, events)),
        false => Err(Error::NoSessions),
    }
}

async fn call<M: Method>(client: &Client, params: M::Params) -> Result<M::Answer, Error> {
    client.call::<M>(params).await.map_err(|source| Error::call(M::NAME, source))
}

async fn first_event(client: &Client, events: &mut Events) -> Result<SessionEvent, Error> {
    match tokio::time::timeout(PAIR_LIMIT, events.next()).await {
        Ok(Some(event)) => Ok(event),
        Ok(None) => Err(Error::Gone(client.closed().await)),
        Err(_) => Err(Error::NothingYet),
    }
}
