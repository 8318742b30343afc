//! An agent-svc that verifies as the real one does, and whose runs do what the test says.
mod make;
mod service;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use event::Data;
use event::id::{PermissionId, RunId, SessionId};
use proto::agent::v1 as wire;
use receipt::{Audience, Grant, OBO_KEY, Obo, Plan, Receipt, Role, Signed, Verifier};
use tokio::sync::watch;
use tonic::{Request, Status};
use transport::{Code, Peer, Public, TaskTracker, to_status};

use super::audit::FakeAudit;

pub(crate) use make::{import, plan, requested, sealed};

#[derive(Clone, Debug)]
pub(crate) struct FakeAgent(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    verifier: Verifier,
    tracker: TaskTracker,
    audit: FakeAudit,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sessions: BTreeMap<SessionId, FakeSession>,
    pub(crate) calls: Vec<(String, Obo)>,
    /// The next calls of a method fail so, one after the other.
    pub(crate) failures: Vec<(&'static str, Failure)>,
    /// Settles an ask like this after it was claimed and before its receipt comes.
    pub(crate) overtaken: Option<(String, wire::DenySource)>,
    /// So many receipts must come for each ask; what came so far of those that take more.
    pub(crate) needs: u32,
    pub(crate) counted: BTreeMap<PermissionId, Vec<Receipt>>,
    /// What stands, of whatever session; and what was taken back, with how many entries the ledger had then.
    pub(crate) grants: Vec<wire::RunGrant>,
    pub(crate) revoked: Vec<(String, usize)>,
    pub(crate) pending: bool,
    /// What an import would write, and how much of it is shown at a time.
    pub(crate) patch: (String, usize),
    /// Subscriptions that are open now, and whether each speaks for somebody who may answer.
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
    pub(crate) fn new(
        ca_pem: &str,
        trust_domain: &str,
        tracker: TaskTracker,
        audit: FakeAudit,
    ) -> Self {
        let verifier = Verifier::new(ca_pem.as_bytes(), trust_domain).expect("a CA");
        let shared = Shared {
            verifier,
            tracker,
            audit,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        };
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
        self.ask_for(session, plan(session, run))
    }

    /// Asks about an import of `text`, which is shown in pages of `page` bytes.
    pub(crate) fn ask_import(&self, session: SessionId, text: &str, page: usize) -> PermissionId {
        let run = self.state().sessions[&session].run.unwrap_or_else(RunId::new);
        self.change(|state| state.patch = (text.to_owned(), page));
        self.ask_for(session, import(session, run, text)).0
    }

    pub(crate) fn ask_for(&self, session: SessionId, plan: Plan) -> (PermissionId, Plan) {
        let permission = PermissionId::new();
        let bytes = sealed(requested(permission, &plan));
        let seq = self.push_bytes(session, bytes);
        let ask = FakeAsk { seq, plan: plan.clone(), standing: Standing::Open };
        self.change(|state| {
            state.sessions.get_mut(&session).expect("known").asks.insert(permission, ask)
        });
        (permission, plan)
    }

    /// The next claimed allow loses to this no before its receipt comes.
    pub(crate) fn overtake(&self, by: &str, source: wire::DenySource) {
        self.change(|state| state.overtaken = Some((by.to_owned(), source)));
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

/// The roles that a call was made with.
pub(crate) fn roles(state: &State, method: &str) -> Vec<Vec<Role>> {
    state
        .calls
        .iter()
        .filter(|(name, _)| name == method)
        .map(|(_, obo)| obo.roles.clone())
        .collect()
}
