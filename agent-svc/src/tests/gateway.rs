//! The gateway's part: grants, contexts, claims and receipts, right ones and wrong ones.

use std::sync::Arc;

use event::id::{PermissionId, ReceiptId, SessionId};
use event::{Data, Digest, Event, PermissionRequested};
use proto::agent::v1 as wire;
use proto::agent::v1::agent_service_client::AgentServiceClient;
use proto::agent::v1::subscribe_response::Message;
use receipt::{
    Audience, Grant, OBO_KEY, Obo, OboId, OnDisconnect, Plan, Receipt, Role, Scope, Signed, Signer,
};
use tonic::metadata::MetadataValue;
use tonic::{Request, Streaming};
use transport::{Endpoint, Fault, PeerChannel, Service};

use super::mesh::{MANIFEST, Mesh, within};
use crate::clock::manual::Manual;
use crate::peers;

pub(crate) type Client = AgentServiceClient<PeerChannel>;

/// Somebody who uses the gateway.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) client: Client,
    pub(crate) signer: Arc<Signer>,
    pub(crate) clock: Manual,
    pub(crate) tenant: String,
    pub(crate) subject: String,
    pub(crate) roles: Vec<Role>,
}

pub(crate) const METHOD: &str = "/harness.agent.v1.AgentService/";

impl Person {
    pub(crate) fn operator(mesh: &Mesh) -> Self {
        Self::named(mesh, "alice", Role::Operator)
    }

    pub(crate) fn named(mesh: &Mesh, subject: &str, role: Role) -> Self {
        let issued = mesh.pki.receipts("0").unwrap();
        let signer =
            Signer::from_pem(issued.cert_pem.as_bytes(), issued.key_pem.as_bytes()).unwrap();
        Self {
            client: client(mesh, Service::Gateway),
            signer: Arc::new(signer),
            clock: mesh.clock.clone(),
            tenant: "acme".to_owned(),
            subject: subject.to_owned(),
            roles: vec![role],
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.clock().millis().unix_seconds()
    }

    pub(crate) fn obo(
        &self,
        method: &str,
        session: Option<SessionId>,
        permission: Option<PermissionId>,
    ) -> Obo {
        let iat = self.now();
        Obo {
            issuer: "spiffe://harness.test/svc/gateway/0".to_owned(),
            audience: Audience::AgentSvc,
            tenant: self.tenant.clone(),
            subject: self.subject.clone(),
            roles: self.roles.clone(),
            method: format!("{METHOD}{method}"),
            session,
            permission,
            id: OboId::new(),
            iat,
            exp: iat + 60,
        }
    }

    pub(crate) fn with<T>(&self, message: T, obo: &Obo) -> Request<T> {
        carrying(message, &self.signer.sign(obo).unwrap())
    }

    /// A request about a session, in order.
    pub(crate) fn about<T>(&self, message: T, method: &str, session: SessionId) -> Request<T> {
        self.with(message, &self.obo(method, Some(session), None))
    }

    pub(crate) fn grant(&self, session: SessionId) -> Grant {
        let iat = self.now();
        Grant {
            session,
            tenant: self.tenant.clone(),
            subject: self.subject.clone(),
            manifest_id: "fix-it".to_owned(),
            manifest: Digest::of(MANIFEST.as_bytes()),
            workspace: "demo".to_owned(),
            models: vec!["scripted".to_owned()],
            on_disconnect: OnDisconnect::Deny,
            iat,
            exp: iat + 3600,
        }
    }

    pub(crate) async fn create_with(&self, grant: &Grant, manifest: &str) -> Result<u64, Fault> {
        let request = wire::CreateSessionRequest {
            session_id: grant.session.to_string(),
            grant: Some(peers::signed(&self.signer.sign(grant).unwrap())),
            manifest: manifest.as_bytes().to_vec(),
            model: "scripted".to_owned(),
            on_disconnect: match grant.on_disconnect {
                OnDisconnect::Deny => wire::OnDisconnect::Deny,
                OnDisconnect::Hold => wire::OnDisconnect::Hold,
            }
            .into(),
        };
        let request = self.about(request, "CreateSession", grant.session);
        let answer = within("create", self.client.clone().create_session(request)).await?;
        Ok(answer.into_inner().through_seq)
    }

    pub(crate) async fn create(&self) -> SessionId {
        let session = SessionId::new();
        assert_eq!(self.create_with(&self.grant(session), MANIFEST).await, Ok(0));
        session
    }

    pub(crate) async fn create_holding(&self) -> SessionId {
        let grant = Grant { on_disconnect: OnDisconnect::Hold, ..self.grant(SessionId::new()) };
        assert_eq!(self.create_with(&grant, MANIFEST).await, Ok(0));
        grant.session
    }

    pub(crate) async fn prompt(&self, session: SessionId) -> Result<String, Fault> {
        let request = wire::PromptRequest {
            session_id: session.to_string(),
            content: "Please fix it".to_owned(),
            max_model_tokens: None,
            max_tool_calls: None,
            undo: None,
        };
        self.send(session, request).await
    }

    /// A run that is to take an import of another one back.
    pub(crate) async fn undo(&self, session: SessionId, undo: wire::Undo) -> Result<String, Fault> {
        let session_id = session.to_string();
        self.send(
            session,
            wire::PromptRequest { session_id, undo: Some(undo), ..Default::default() },
        )
        .await
    }

    pub(crate) async fn send(
        &self,
        session: SessionId,
        request: wire::PromptRequest,
    ) -> Result<String, Fault> {
        let request = self.about(request, "Prompt", session);
        Ok(within("prompt", self.client.clone().prompt(request)).await?.into_inner().run_id)
    }

    /// A new session with its run under way, read from its beginning.
    pub(crate) async fn begin(&self) -> (SessionId, Reader) {
        self.begin_in(self.create().await).await
    }

    /// The same, and nobody has to stay for it.
    pub(crate) async fn begin_holding(&self) -> (SessionId, Reader) {
        self.begin_in(self.create_holding().await).await
    }

    async fn begin_in(&self, session: SessionId) -> (SessionId, Reader) {
        // As the gateway does: whoever comes after an ask may be too late for it.
        let reader = self.attach(session).await;
        self.prompt(session).await.unwrap();
        (session, reader)
    }

    pub(crate) async fn subscribe(
        &self,
        session: SessionId,
        after_seq: Option<u64>,
        can_answer: bool,
    ) -> Result<Reader, Fault> {
        let request =
            wire::SubscribeRequest { session_id: session.to_string(), after_seq, can_answer };
        let request = self.about(request, "Subscribe", session);
        let stream = within("subscribe", self.client.clone().subscribe(request)).await?;
        let mut reader =
            Reader { stream: stream.into_inner(), next: after_seq.map_or(0, |seq| seq + 1) };
        match reader.message().await {
            Ok(Some(Message::OpenAsks(_))) => Ok(reader),
            Ok(other) => panic!("open asks come first: {other:?}"),
            Err(fault) => Err(fault),
        }
    }

    /// Attached as someone who can answer, from the beginning of the stream.
    pub(crate) async fn attach(&self, session: SessionId) -> Reader {
        self.subscribe(session, None, true).await.unwrap()
    }

    pub(crate) async fn claim(&self, ask: &Ask, choice: Choice) -> Result<Claimed, Fault> {
        let unspecified = (wire::Scope::Unspecified, wire::DenySource::Unspecified);
        let (decision, scope, source) = match choice {
            Choice::Allow(Scope::Once) => (wire::Decision::Allow, wire::Scope::Once, unspecified.1),
            Choice::Allow(Scope::Run) => (wire::Decision::Allow, wire::Scope::Run, unspecified.1),
            Choice::Deny => (wire::Decision::Deny, unspecified.0, wire::DenySource::Operator),
            Choice::Malformed => {
                (wire::Decision::Deny, unspecified.0, wire::DenySource::MalformedAnswer)
            }
        };
        let request = wire::ClaimPermissionRequest {
            session_id: ask.session.to_string(),
            permission_id: ask.id.to_string(),
            decision: decision.into(),
            scope: scope.into(),
            plan_digest: ask.plan_digest.as_bytes().to_vec(),
            note: String::new(),
            source: source.into(),
        };
        let obo = self.obo("ClaimPermission", Some(ask.session), Some(ask.id));
        let request = self.with(request, &obo);
        let answer = within("claim", self.client.clone().claim_permission(request)).await?;
        use wire::claim_permission_response::Result;
        Ok(match answer.into_inner().result.unwrap() {
            Result::Won(_) => Claimed::Won,
            Result::Lost(lost) => Claimed::Lost {
                decision: lost.decision(),
                source: lost.source(),
                by: lost.by,
                settled: lost.settled,
            },
            Result::AlreadyCounted(wire::Counted { have, need }) => Claimed::Counted { have, need },
        })
    }

    pub(crate) fn receipt(&self, ask: &Ask, scope: Scope) -> Receipt {
        let iat = self.now();
        Receipt {
            id: ReceiptId::new(),
            tenant: self.tenant.clone(),
            session: ask.session,
            run: ask.plan.run,
            call: ask.plan.call,
            permission: ask.id,
            plan: ask.plan_digest,
            action: ask.plan.action_digest().unwrap(),
            scope,
            subject: self.subject.clone(),
            roles: self.roles.iter().copied().collect(),
            approval: None,
            audience: ask.plan.executor,
            iat,
            exp: iat + 3600,
        }
    }

    pub(crate) async fn resolve(&self, ask: &Ask, receipt: &Receipt) -> Result<u64, Fault> {
        self.resolve_signed(ask, &self.signer.sign(receipt).unwrap()).await
    }

    /// A receipt that the ask still waits for.
    pub(crate) async fn resolve_signed(&self, ask: &Ask, receipt: &Signed) -> Result<u64, Fault> {
        match self.settle(ask, receipt).await? {
            wire::resolve_permission_response::Result::ThroughSeq(seq) => Ok(seq),
            other => panic!("{other:?}"),
        }
    }

    /// A receipt that is one of several.
    pub(crate) async fn count(&self, ask: &Ask, receipt: &Receipt) -> (u32, u32) {
        let receipt = self.signer.sign(receipt).unwrap();
        match self.settle(ask, &receipt).await.unwrap() {
            wire::resolve_permission_response::Result::Counted(counted) => {
                (counted.have, counted.need)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn grants(&self, session: SessionId) -> Vec<wire::RunGrant> {
        let request = wire::ListGrantsRequest { session_id: session.to_string() };
        let request = self.about(request, "ListGrants", session);
        let listed = within("grants", self.client.clone().list_grants(request)).await.unwrap();
        listed.into_inner().grants
    }

    /// Whether it was taken back, and whether its executor does not know yet.
    pub(crate) async fn revoke(
        &self,
        session: SessionId,
        receipt: ReceiptId,
    ) -> Result<(bool, bool), Fault> {
        let request = wire::RevokeGrantRequest {
            session_id: session.to_string(),
            receipt_id: receipt.to_string(),
        };
        let request = self.about(request, "RevokeGrant", session);
        let taken = within("revoke", self.client.clone().revoke_grant(request)).await?.into_inner();
        Ok((taken.revoked, taken.pending))
    }

    /// A receipt that comes too late.
    pub(crate) async fn resolve_late(&self, ask: &Ask, scope: Scope) -> wire::Lost {
        let receipt = self.signer.sign(&self.receipt(ask, scope)).unwrap();
        match self.settle(ask, &receipt).await.unwrap() {
            wire::resolve_permission_response::Result::Lost(lost) => lost,
            other => panic!("{other:?}"),
        }
    }

    async fn settle(
        &self,
        ask: &Ask,
        receipt: &Signed,
    ) -> Result<wire::resolve_permission_response::Result, Fault> {
        let request = wire::ResolvePermissionRequest {
            session_id: ask.session.to_string(),
            permission_id: ask.id.to_string(),
            receipt: Some(peers::signed(receipt)),
        };
        let obo = self.obo("ResolvePermission", Some(ask.session), Some(ask.id));
        let request = self.with(request, &obo);
        let answer = within("resolve", self.client.clone().resolve_permission(request)).await?;
        Ok(answer.into_inner().result.unwrap())
    }

    /// Claims and resolves, as the gateway does for a yes.
    pub(crate) async fn allow(&self, ask: &Ask, scope: Scope) -> u64 {
        assert_eq!(self.claim(ask, Choice::Allow(scope)).await, Ok(Claimed::Won));
        self.resolve(ask, &self.receipt(ask, scope)).await.unwrap()
    }

    pub(crate) async fn patch(
        &self,
        ask: &Ask,
        offset: u64,
    ) -> Result<wire::GetPatchResponse, Fault> {
        let request = wire::GetPatchRequest {
            session_id: ask.session.to_string(),
            permission_id: ask.id.to_string(),
            offset,
            form: wire::PatchForm::Shown.into(),
            ..Default::default()
        };
        let obo = self.obo("GetPatch", Some(ask.session), Some(ask.id));
        let answer =
            within("patch", self.client.clone().get_patch(self.with(request, &obo))).await?;
        Ok(answer.into_inner())
    }

    /// A patch of a session's run, without an ask.
    pub(crate) async fn patch_of_run(
        &self,
        session: SessionId,
        request: wire::GetPatchRequest,
    ) -> Result<wire::GetPatchResponse, Fault> {
        let request = wire::GetPatchRequest { session_id: session.to_string(), ..request };
        let request = self.about(request, "GetPatch", session);
        Ok(within("patch", self.client.clone().get_patch(request)).await?.into_inner())
    }

    pub(crate) async fn cancel(&self, session: SessionId) -> Result<bool, Fault> {
        let request = wire::CancelRequest { session_id: session.to_string() };
        let request = self.about(request, "Cancel", session);
        Ok(within("cancel", self.client.clone().cancel(request)).await?.into_inner().canceled)
    }

    pub(crate) async fn get(&self, session: SessionId) -> Result<wire::Session, Fault> {
        let key = wire::get_session_request::Key::SessionId(session.to_string());
        let request = wire::GetSessionRequest { key: Some(key) };
        let request = self.about(request, "GetSession", session);
        let answer = within("get", self.client.clone().get_session(request)).await?;
        Ok(answer.into_inner().session.unwrap())
    }
}

/// The service's address after a restart is another.
pub(crate) fn client(mesh: &Mesh, service: Service) -> Client {
    let context = mesh.context(service);
    let endpoint = Endpoint::from(mesh.addr);
    Client::new(transport::channel::connect(&context, &endpoint, Service::AgentSvc))
}

pub(crate) fn carrying<T>(message: T, signed: &Signed) -> Request<T> {
    let mut request = Request::new(message);
    let bytes = signed.to_bytes().unwrap();
    request.metadata_mut().insert_bin(OBO_KEY, MetadataValue::from_bytes(&bytes));
    request
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Allow(Scope),
    Deny,
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimed {
    Won,
    Lost { decision: wire::Decision, source: wire::DenySource, by: String, settled: bool },
    Counted { have: u32, need: u32 },
}

/// What a person is shown.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    pub(crate) id: PermissionId,
    pub(crate) plan: Plan,
    pub(crate) plan_digest: Digest,
}

impl Ask {
    pub(crate) fn read(requested: &PermissionRequested) -> Self {
        let bytes = event::canon::to_bytes(&requested.plan).unwrap();
        assert_eq!(receipt::plan_digest(&bytes), requested.plan_digest);
        Self {
            session: requested.session_id,
            id: requested.permission_id,
            plan: Plan::parse(&bytes).unwrap(),
            plan_digest: requested.plan_digest,
        }
    }
}

/// A subscription that checks order as it reads.
pub(crate) struct Reader {
    stream: Streaming<wire::SubscribeResponse>,
    pub(crate) next: u64,
}

impl Reader {
    pub(crate) async fn message(&mut self) -> Result<Option<Message>, Fault> {
        let next = within("the next message", self.stream.message()).await.map_err(Fault::from)?;
        Ok(next.and_then(|response| response.message))
    }

    /// The next event, or the outcome that ends the stream.
    pub(crate) async fn next(&mut self) -> Result<Event, wire::Outcome> {
        match self.message().await.unwrap() {
            Some(Message::Entry(entry)) => {
                assert_eq!(entry.seq, self.next, "entries come in order and once");
                self.next += 1;
                Ok(event::open(&entry.event).unwrap())
            }
            Some(Message::Outcome(outcome)) => {
                assert!(self.message().await.unwrap().is_none(), "the outcome comes last");
                Err(outcome)
            }
            other => panic!("neither entry nor outcome: {other:?}"),
        }
    }

    /// Reads up to the first event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|end| panic!("{kind} before {end:?}"));
            if event.data.kind() == kind {
                return event;
            }
        }
    }

    pub(crate) async fn ask(&mut self) -> Ask {
        match self.until("permission.requested").await.data {
            Data::PermissionRequested(requested) => Ask::read(&requested),
            other => panic!("{other:?}"),
        }
    }

    /// All that is left.
    pub(crate) async fn rest(&mut self) -> (Vec<Data>, wire::Outcome) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Ok(event) => events.push(event.data),
                Err(outcome) => return (events, outcome),
            }
        }
    }
}

pub(crate) fn kinds(events: &[Data]) -> Vec<&'static str> {
    events.iter().map(Data::kind).collect()
}
