//! A person at the gateway's WebSocket: opens a session, watches its events, answers asks. It sends nothing that the
//! dialect does not allow.

use std::collections::BTreeMap;

use acp::client::{Bearer, Client, Events, Limits, Options};
use acp::{
    Attach, AttachParams, Cancel, CancelParams, ClientCapabilities, ClientName, Content, Decision,
    Initialize, InitializeParams, NewParams, NewSession, OnDisconnect, Prompt, PromptAnswer,
    PromptParams, ProtocolVersion, Respond, RespondParams, TaskId, WorkspaceName,
};
use anyhow::{Context as _, Result, ensure};
use event::Digest;
use event::id::{PermissionId, RunId, SessionId};
use serde_json::Value;

use crate::{Cable, Rig, within};

/// One event as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub session: SessionId,
    pub seq: u64,
    pub kind: String,
    pub data: Value,
    pub bytes: Vec<u8>,
}

/// An open ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub session: SessionId,
    pub permission: PermissionId,
    pub plan: Value,
    pub digest: Digest,
}

/// The answer to a prompt, to be joined.
pub type Prompted = tokio::task::JoinHandle<Result<PromptAnswer, acp::client::CallError>>;

pub struct Person {
    client: std::sync::Arc<Client>,
    events: Events,
    prompts: Vec<tokio::task::AbortHandle>,
    /// Everything seen so far, by session.
    pub seen: BTreeMap<SessionId, Vec<Seen>>,
}

impl std::fmt::Debug for Person {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Person").finish_non_exhaustive()
    }
}

impl Seen {
    /// Whether the session's run ended; that of a child is not the end.
    pub fn is_the_end(&self) -> bool {
        self.kind == "agent.stopped" && self.data["parentRunId"].is_null()
    }
}

impl Person {
    /// Connects and offers sessions and permissioning.
    pub async fn arrive(rig: &Rig) -> Result<Self> {
        let all = ClientCapabilities { streaming: true, permissioning: true, sessions: true };
        Self::arrive_with(rig, rig.ready.token.reveal(), all).await
    }

    /// Connects as the holder of `token`, with the same offers.
    pub async fn arrive_as(rig: &Rig, token: &acp::token::Token) -> Result<Self> {
        let all = ClientCapabilities { streaming: true, permissioning: true, sessions: true };
        Self::arrive_with(rig, token.reveal(), all).await
    }

    /// Connects by a cable that can be cut, with the same offers.
    pub async fn arrive_by(rig: &Rig, cable: &Cable) -> Result<Self> {
        let all = ClientCapabilities { streaming: true, permissioning: true, sessions: true };
        Self::connect(rig, &cable.endpoint, rig.ready.token.reveal(), all).await
    }

    pub async fn arrive_with(
        rig: &Rig,
        token: &str,
        capabilities: ClientCapabilities,
    ) -> Result<Self> {
        Self::connect(rig, &rig.ready.gateway, token, capabilities).await
    }

    async fn connect(
        rig: &Rig,
        endpoint: &str,
        token: &str,
        capabilities: ClientCapabilities,
    ) -> Result<Self> {
        let options = Options {
            endpoint: endpoint.parse()?,
            ca_pem: std::fs::read(&rig.ready.ca)?,
            bearer: Bearer::new(token)?,
            limits: Limits::default(),
        };
        let (client, events) = Client::connect(options).await?;
        let params = InitializeParams {
            protocol_version: ProtocolVersion::new(acp::PROTOCOL_VERSION)?,
            client_name: ClientName::new("suite")?,
            client_version: None,
            capabilities,
        };
        client.call::<Initialize>(params).await?;
        Ok(Self { client: client.into(), events, prompts: Vec::new(), seen: BTreeMap::new() })
    }

    pub async fn open(&self, task: &str, on_disconnect: Option<OnDisconnect>) -> Result<SessionId> {
        let params = NewParams {
            workspace: WorkspaceName::new("demo")?,
            task_id: Some(TaskId::new(task)?),
            model: None,
            on_disconnect,
        };
        Ok(self.client.call::<NewSession>(params).await?.session_id)
    }

    /// Sends the prompt; the answer comes when the run has ended, so it is a task of its own.
    pub fn prompt(&mut self, session: SessionId) -> Result<Prompted> {
        let params = PromptParams {
            session_id: session.into(),
            content: Content::new("do what the script says")?,
            max_model_tokens: None,
            max_tool_calls: None,
        };
        let client = self.client.clone();
        #[expect(clippy::disallowed_methods, reason = "the person aborts it when it leaves")]
        let prompted = tokio::spawn(async move { client.call::<Prompt>(params).await });
        self.prompts.push(prompted.abort_handle());
        Ok(prompted)
    }

    pub async fn attach(&self, params: AttachParams) -> Result<acp::AttachAnswer> {
        Ok(self.client.call::<Attach>(params).await?)
    }

    pub async fn cancel(&self, session: SessionId) -> Result<bool> {
        Ok(self.client.call::<Cancel>(CancelParams { session_id: session.into() }).await?.canceled)
    }

    /// What an ask to import would write, all of it.
    pub async fn patch(&self, ask: &Ask) -> Result<acp::client::PatchText> {
        Ok(self.client.patch_text(ask.session, ask.permission, usize::MAX).await?)
    }

    /// Answers an ask; a refusal is the gateway's error.
    pub async fn answer(
        &self,
        ask: &Ask,
        decision: Decision,
    ) -> Result<(), acp::client::CallError> {
        self.respond(ask, decision, None).await
    }

    /// Allows this action for the rest of the run.
    pub async fn allow_for_the_run(&self, ask: &Ask) -> Result<(), acp::client::CallError> {
        self.respond(ask, Decision::Allow, Some(acp::Scope::Run)).await
    }

    async fn respond(
        &self,
        ask: &Ask,
        decision: Decision,
        scope: Option<acp::Scope>,
    ) -> Result<(), acp::client::CallError> {
        let params = RespondParams {
            session_id: ask.session.into(),
            permission_id: ask.permission.into(),
            decision,
            note: None,
            plan_digest: Some(ask.digest),
            scope,
            approval: None,
        };
        self.client.call::<Respond>(params).await.map(|_| ())
    }

    /// Any method, also one that a test makes up.
    pub async fn call<M: acp::Method>(
        &self,
        params: M::Params,
    ) -> Result<M::Answer, acp::client::CallError> {
        self.client.call::<M>(params).await
    }

    /// The next event of any session.
    pub async fn next(&mut self) -> Result<Seen> {
        let event =
            within("the next event", self.events.next()).await.context("the connection ended")?;
        let bytes = event.event.get().as_bytes().to_vec();
        let value: Value = serde_json::from_slice(&bytes)?;
        let seen = Seen {
            session: event.session_id,
            seq: event.seq.get(),
            kind: value["type"].as_str().context("an event has a type")?.to_owned(),
            data: value["data"].clone(),
            bytes,
        };
        self.seen.entry(seen.session).or_default().push(seen.clone());
        Ok(seen)
    }

    /// The next event of this kind; what comes before it is kept in `seen`.
    pub async fn next_of(&mut self, kind: &str) -> Result<Seen> {
        let waited = format!("an event {kind}");
        within(&waited, async {
            loop {
                let seen = self.next().await?;
                if seen.kind == kind {
                    return Ok(seen);
                }
                ensure!(!seen.is_the_end(), "the run ended before {kind}: {}", seen.data);
            }
        })
        .await
    }

    pub async fn next_ask(&mut self) -> Result<Ask> {
        Ask::read(&self.next_of("permission.requested").await?)
    }

    /// What has been seen of `session`, as type names.
    pub fn kinds(&self, session: SessionId) -> Vec<String> {
        self.seen.get(&session).into_iter().flatten().map(|seen| seen.kind.clone()).collect()
    }

    /// Leaves without a word.
    pub fn vanish(self) {}
}

impl Drop for Person {
    fn drop(&mut self) {
        // A prompt that still waits would keep the connection open.
        self.prompts.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Ask {
    pub fn read(seen: &Seen) -> Result<Self> {
        let text = |name: &str| {
            seen.data[name].as_str().with_context(|| format!("{name} in {}", seen.data))
        };
        let plan = seen.data["plan"].clone();
        let digest: Digest = text("planDigest")?.parse()?;
        let computed = receipt::plan_digest(&event::canon::to_bytes(&plan)?);
        ensure!(digest == computed, "the plan shown is not the plan named");
        Ok(Self {
            session: SessionId::parse(text("sessionId")?)?,
            permission: PermissionId::parse(text("permissionId")?)?,
            plan,
            digest,
        })
    }

    pub fn run(&self) -> Result<RunId> {
        Ok(RunId::parse(self.plan["run"].as_str().context("a plan names its run")?)?)
    }
}
