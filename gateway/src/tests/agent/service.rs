//! The methods of the fake, as far as the gateway calls them.
use std::collections::{BTreeMap, HashSet};

use event::Digest;
use event::id::{PermissionId, RunId, SessionId};
use proto::agent::v1 as wire;
use proto::agent::v1::agent_service_server::AgentService;
use proto::agent::v1::subscribe_response::Message;
use receipt::{Grant, Obo, Receipt, plan_digest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use transport::Code;

use super::{FakeAgent, FakeSession, Standing, State, failure, sealed};
use crate::peers::from_wire;

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
                assert_eq!(request.model, known.request.model);
                assert!(request.manifest.is_empty() || request.manifest == known.request.manifest);
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
            let counted = state.counted.get(&permission).map_or(&[][..], Vec::as_slice);
            if decision == wire::Decision::Allow
                && counted.iter().any(|receipt| receipt.subject == obo.subject)
            {
                let have = u32::try_from(counted.len()).expect("few");
                let counted = wire::Counted { have, need: state.needs };
                return Ok(wire::claim_permission_response::Result::AlreadyCounted(counted));
            }
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
            let (overtaken, needs) = (state.overtaken.take(), state.needs);
            let counted = state.counted.entry(permission).or_default();
            let ask = state
                .sessions
                .get_mut(&id)
                .expect("found")
                .asks
                .get_mut(&permission)
                .expect("claimed");
            assert!(matches!(&ask.standing, Standing::Claimed(by) if *by == obo.subject));
            use wire::resolve_permission_response::Result as Resolved;
            let result = match overtaken {
                Some((by, source)) => {
                    ask.standing = Standing::Denied(by.clone(), source);
                    let decision = wire::Decision::Deny.into();
                    let source = source.into();
                    Resolved::Lost(wire::Lost { decision, by, source, settled: true })
                }
                None if counted.len() + 1 < usize::try_from(needs).expect("few") => {
                    counted.push(receipt);
                    ask.standing = Standing::Open;
                    let have = u32::try_from(counted.len()).expect("few");
                    Resolved::Counted(wire::Counted { have, need: needs })
                }
                None => {
                    ask.standing = Standing::Allowed(obo.subject.clone(), Box::new(receipt));
                    Resolved::ThroughSeq(0)
                }
            };
            Ok(Response::new(wire::ResolvePermissionResponse { result: Some(result) }))
        })
    }

    async fn get_patch(
        &self,
        request: Request<wire::GetPatchRequest>,
    ) -> Result<Response<wire::GetPatchResponse>, Status> {
        let message = request.get_ref();
        let obo = self.admit(
            &request,
            "GetPatch",
            Some(&message.session_id),
            Some(message.permission_id.as_str()).filter(|id| !id.is_empty()),
        )?;
        let state = self.state();
        let id = find(&message.session_id, &state, &obo)?;
        if !message.permission_id.is_empty() {
            let permission = PermissionId::parse(&message.permission_id).expect("an id");
            let ask = state.sessions[&id].asks.get(&permission);
            let ask = ask.ok_or_else(|| failure(Code::NotFound, "PERMISSION_NOT_FOUND"))?;
            if !matches!(ask.standing, Standing::Open | Standing::Claimed(_)) {
                return Err(failure(Code::FailedPrecondition, "PERMISSION_RESOLVED"));
            }
        }
        let (text, page) = &state.patch;
        let begin = usize::try_from(message.offset).expect("small");
        let end = (begin + page).min(text.len());
        Ok(Response::new(wire::GetPatchResponse {
            patch_digest: Digest::of(text.as_bytes()).as_bytes().to_vec(),
            offset: message.offset,
            text: text[begin..end].to_owned(),
            next_offset: (end < text.len()).then_some(end as u64),
        }))
    }

    async fn list_grants(
        &self,
        request: Request<wire::ListGrantsRequest>,
    ) -> Result<Response<wire::ListGrantsResponse>, Status> {
        let obo = self.admit(&request, "ListGrants", Some(&request.get_ref().session_id), None)?;
        find(&request.get_ref().session_id, &self.state(), &obo)?;
        Ok(Response::new(wire::ListGrantsResponse { grants: self.state().grants.clone() }))
    }

    async fn revoke_grant(
        &self,
        request: Request<wire::RevokeGrantRequest>,
    ) -> Result<Response<wire::RevokeGrantResponse>, Status> {
        let obo = self.admit(&request, "RevokeGrant", Some(&request.get_ref().session_id), None)?;
        find(&request.get_ref().session_id, &self.state(), &obo)?;
        let receipt = request.into_inner().receipt_id;
        let recorded = self.0.audit.entries().len();
        let pending = self.change(|state| {
            state.grants.retain(|grant| grant.receipt_id != receipt);
            state.revoked.push((receipt, recorded));
            state.pending
        });
        Ok(Response::new(wire::RevokeGrantResponse { revoked: true, pending }))
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
