//! A sandbox without containers: it plans by a table, counts what it runs, and remembers how each call ended.

mod made;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use event::id::{CallId, RunId, SessionId};
use event::{Data, Digest};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::sandbox_service_server::SandboxService;
use receipt::{Effect, EffectClass, Grant, Payload as _, Plan, Scope, Signed};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use transport::{Code, Public, TaskTracker, to_status};

use made::{finished, plan, started};

/// A peer's refusal with its reason.
#[derive(Debug, thiserror::Error)]
#[error("played")]
pub(crate) struct Says(pub(crate) Code, pub(crate) &'static str);

impl Public for Says {
    const DOMAIN: &'static str = "played";

    fn code(&self) -> Code {
        self.0
    }

    fn reason(&self) -> &str {
        self.1
    }
}

/// Who owns each session, as an executor remembers it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences(Arc<Mutex<BTreeMap<String, (u64, String)>>>);

impl Fences {
    pub(crate) fn raise(&self, owner: &common::Owner) -> Result<u64, Status> {
        let mut known = self.0.lock().unwrap();
        let seen = known.get(&owner.session_id);
        if seen.is_some_and(|(epoch, node)| {
            owner.epoch < *epoch || (owner.epoch == *epoch && owner.node != *node)
        }) {
            return Err(to_status(&Says(Code::FailedPrecondition, "FENCE_STALE")));
        }
        known.insert(owner.session_id.clone(), (owner.epoch, owner.node.clone()));
        Ok(owner.epoch)
    }

    pub(crate) fn check(&self, owner: &common::Owner) -> Result<(), Status> {
        match self.0.lock().unwrap().get(&owner.session_id) {
            Some((epoch, node)) if (*epoch, node) == (owner.epoch, &owner.node) => Ok(()),
            Some(_) => Err(to_status(&Says(Code::FailedPrecondition, "FENCE_STALE"))),
            None => Err(to_status(&Says(Code::NotFound, "SESSION_UNKNOWN"))),
        }
    }

    pub(crate) fn epoch(&self, session: SessionId) -> Option<u64> {
        self.0.lock().unwrap().get(&session.to_string()).map(|(epoch, _)| *epoch)
    }

    /// As after the loss of its database.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) fences: Fences,
    /// Executions go on only while this is open.
    pub(crate) gate: watch::Sender<bool>,
    /// Grows whenever all streams are to break off.
    pub(crate) cuts: watch::Sender<u32>,
    tasks: TaskTracker,
}

pub(crate) struct State {
    pub(crate) shapes: BTreeMap<&'static str, Shape>,
    pub(crate) executions: BTreeMap<String, Execution>,
    /// Refuses every fence for this reason.
    pub(crate) refuses: Option<(Code, &'static str)>,
    /// How often it did.
    pub(crate) refused: u32,
    /// Whoever plans or executes is told that the grant has run out.
    pub(crate) expired: bool,
    pub(crate) opened: u32,
    /// What every copy lacks.
    pub(crate) withheld: Vec<wire::Withheld>,
    pub(crate) closed: u32,
    /// So many requests to close an environment fail.
    pub(crate) close_fails: u32,
    pub(crate) asked: u32,
    /// Requests to stop are heard and not followed.
    pub(crate) stubborn: bool,
    /// What it makes of a plan before it answers.
    pub(crate) twist: fn(&mut Plan),
    pub(crate) output: Vec<u8>,
    /// What an import would write, under whatever digest it is asked for.
    pub(crate) patch: Vec<wire::get_patch_response::Part>,
    pub(crate) patch_refused: Option<(Code, &'static str)>,
    pub(crate) patches_asked: Vec<wire::GetPatchRequest>,
    /// Ids of receipts, as often as it was told.
    pub(crate) revoked: Vec<String>,
    /// It cannot be told.
    pub(crate) deaf: bool,
    /// The next execution that rests on a receipt is refused so.
    pub(crate) unadmitted: Option<&'static str>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// How a tool is planned.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) effect: Effect,
    pub(crate) class: EffectClass,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) refusal: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub(crate) struct Execution {
    /// How often its effect happened.
    pub(crate) runs: u32,
    pub(crate) attempt: u32,
    pub(crate) receipts: Vec<Signed>,
    progress: watch::Sender<Progress>,
    stop: watch::Sender<bool>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    started: Option<Vec<u8>>,
    output: Vec<u8>,
    finished: Option<wire::Finished>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let shape = |effect, class, scopes: &[Scope]| Shape {
            effect,
            class,
            scopes: scopes.to_vec(),
            refusal: None,
        };
        let shapes = BTreeMap::from([
            ("list_files", shape(Effect::Allow, EffectClass::Pure, &[Scope::Once])),
            ("process.exec", shape(Effect::Ask, EffectClass::Staged, &[Scope::Once, Scope::Run])),
            ("check", shape(Effect::Allow, EffectClass::Staged, &[Scope::Once])),
            ("forbidden", shape(Effect::Deny, EffectClass::Staged, &[Scope::Once])),
            ("deploy", shape(Effect::Allow, EffectClass::Irreversible, &[Scope::Once])),
            ("import_patch", shape(Effect::Ask, EffectClass::Idempotent, &[Scope::Once])),
            ("undo_patch", shape(Effect::Ask, EffectClass::Idempotent, &[Scope::Once])),
            ("delegate", shape(Effect::Allow, EffectClass::Idempotent, &[Scope::Once])),
        ]);
        let state = State {
            shapes,
            executions: BTreeMap::new(),
            refuses: None,
            refused: 0,
            expired: false,
            opened: 0,
            withheld: Vec::new(),
            closed: 0,
            close_fails: 0,
            asked: 0,
            stubborn: false,
            twist: |_| (),
            output: b"one line\n".to_vec(),
            patch: Vec::new(),
            patch_refused: None,
            patches_asked: Vec::new(),
            revoked: Vec::new(),
            deaf: false,
            unadmitted: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            fences: Fences::default(),
            gate: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    /// How often the effect of each call happened, calls that never began left out.
    pub(crate) fn runs(&self) -> Vec<u32> {
        self.with(|state| state.executions.values().map(|execution| execution.runs).collect())
    }

    pub(crate) async fn until_running(&self) {
        super::mesh::eventually("a call runs", || self.runs().iter().any(|runs| *runs > 0)).await;
    }

    /// The one execution there is ends like this.
    pub(crate) fn finish(&self, outcome: wire::finished::Outcome) {
        self.with(|state| {
            let execution = state.executions.values().next().unwrap();
            execution.progress.send_modify(|progress| {
                progress.finished =
                    Some(wire::Finished { outcome: Some(outcome), ..wire::Finished::default() });
            });
        });
    }

    fn run(&self, call: &common::Call, receipts: Vec<Signed>, is_container: bool) -> Execution {
        let (progress, _) = watch::channel(Progress::default());
        let (stop, mut stopped) = watch::channel(false);
        let ids = (RunId::parse(&call.run_id).unwrap(), CallId::parse(&call.call_id).unwrap());
        let output = self.with(|state| state.output.clone());
        let (attempt, tell, mut gate) = (call.attempt, progress.clone(), self.gate.subscribe());
        self.tasks.spawn(async move {
            if is_container {
                let started = Data::from(started(ids, attempt)).to_bytes().unwrap();
                tell.send_modify(|progress| progress.started = Some(started));
            }
            tell.send_modify(|progress| progress.output = output);
            let canceled = tokio::select! {
                _ = gate.wait_for(|open| *open) => false,
                _ = stopped.wait_for(|stop| *stop) => true,
            };
            tell.send_modify(|progress| {
                progress
                    .finished
                    .get_or_insert_with(|| finished(ids, attempt, canceled, is_container));
            });
        });
        Execution { runs: 1, attempt, receipts, progress, stop }
    }
}

#[tonic::async_trait]
impl SandboxService for Sandbox {
    async fn fence(
        &self,
        request: Request<wire::FenceRequest>,
    ) -> Result<Response<wire::FenceResponse>, Status> {
        if let Some((code, reason)) = self.with(|state| state.refuses) {
            self.with(|state| state.refused += 1);
            return Err(to_status(&Says(code, reason)));
        }
        let wire::FenceRequest { owner, grant, manifest } = request.into_inner();
        let granted = Grant::parse(&grant.unwrap().payload).unwrap();
        assert_eq!(Digest::of(&manifest), granted.manifest);
        let epoch = self.fences.raise(&owner.unwrap())?;
        let tools = self.with(|state| {
            // What a person alone may wish, no model is offered.
            let names = state.shapes.keys().filter(|name| **name != "undo_patch");
            names
                .map(|name| common::Tool {
                    name: (*name).to_owned(),
                    description: "played".to_owned(),
                    input_schema: b"{}".to_vec(),
                })
                .collect()
        });
        Ok(Response::new(wire::FenceResponse { epoch, tools }))
    }

    async fn open_environment(
        &self,
        request: Request<wire::OpenEnvironmentRequest>,
    ) -> Result<Response<wire::OpenEnvironmentResponse>, Status> {
        self.fences.check(&request.into_inner().owner.unwrap())?;
        let withheld = self.with(|state| {
            state.opened += 1;
            state.withheld.clone()
        });
        Ok(Response::new(wire::OpenEnvironmentResponse { withheld, ..Default::default() }))
    }

    async fn close_environment(
        &self,
        request: Request<wire::CloseEnvironmentRequest>,
    ) -> Result<Response<wire::CloseEnvironmentResponse>, Status> {
        self.fences.check(&request.into_inner().owner.unwrap())?;
        self.with(|state| match state.close_fails.checked_sub(1) {
            Some(left) => {
                state.close_fails = left;
                Err(to_status(&Says(Code::Internal, "INTERNAL")))
            }
            None => {
                state.closed += 1;
                Ok(Response::new(wire::CloseEnvironmentResponse {}))
            }
        })
    }

    async fn plan(
        &self,
        request: Request<wire::PlanRequest>,
    ) -> Result<Response<wire::PlanResponse>, Status> {
        let request = request.into_inner();
        self.fences.check(request.owner.as_ref().unwrap())?;
        let (shape, twist) =
            self.with(|state| (state.shapes[request.tool.as_str()].clone(), state.twist));
        let expired = self.with(|state| state.expired).then_some("GRANT_EXPIRED");
        let outcome = match expired.or(shape.refusal) {
            Some(reason) => wire::plan_response::Outcome::Refused(common::Refused {
                reason: reason.to_owned(),
                detail: "played".to_owned(),
            }),
            None => {
                let mut plan = plan(&request, &shape, super::mesh::digest());
                twist(&mut plan);
                let is_answer = (shape.effect, shape.class) == (Effect::Allow, EffectClass::Pure);
                let result = is_answer
                    .then(|| common::ToolResult { json: br#"{"entries":["app.txt"]}"#.to_vec() });
                wire::plan_response::Outcome::Planned(wire::Planned {
                    plan: plan.to_bytes().unwrap(),
                    result,
                })
            }
        };
        Ok(Response::new(wire::PlanResponse { outcome: Some(outcome) }))
    }

    type ExecuteStream = ReceiverStream<Result<wire::ExecuteResponse, Status>>;

    async fn execute(
        &self,
        request: Request<wire::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let request = request.into_inner();
        self.fences.check(request.owner.as_ref().unwrap())?;
        let refusal = self.with(|state| match request.receipts.is_empty() {
            _ if state.expired => Some("GRANT_EXPIRED"),
            true => None,
            false => state.unadmitted.take(),
        });
        if let Some(reason) = refusal {
            let detail = "bob: the key is not listed for this person (1 of 2)".into();
            let refused = common::Refused { reason: reason.into(), detail };
            let finished = wire::Finished {
                outcome: Some(wire::finished::Outcome::Refused(refused)),
                ..wire::Finished::default()
            };
            let (sender, receiver) = mpsc::channel(1);
            let message = Some(wire::execute_response::Message::Finished(finished));
            sender.try_send(Ok(wire::ExecuteResponse { message })).unwrap();
            return Ok(Response::new(ReceiverStream::new(receiver)));
        }
        let call = request.call.unwrap();
        let receipts = request.receipts.iter().map(|bytes| Signed::parse(bytes).unwrap()).collect();
        let is_container = !matches!(request.tool.as_str(), "import_patch" | "delegate");
        let known = self.with(|state| state.executions.get(&call.call_id).cloned());
        let execution = match known {
            Some(known) if known.attempt >= call.attempt => known,
            before => {
                let mut new = self.run(&call, receipts, is_container);
                new.runs += before.map_or(0, |before| before.runs);
                self.with(|state| state.executions.insert(call.call_id.clone(), new.clone()));
                new
            }
        };
        let (sender, receiver) = mpsc::channel(16);
        let mut progress = execution.progress.subscribe();
        let mut offset = usize::try_from(request.after_output_offset).unwrap();
        let mut cuts = self.cuts.subscribe();
        self.tasks.spawn(async move {
            let mut told = false;
            loop {
                let seen = progress.borrow_and_update().clone();
                let mut messages = Vec::new();
                if let Some(data) = seen.started.filter(|_| !told) {
                    told = true;
                    messages.push(wire::execute_response::Message::Started(wire::Started { data }));
                }
                if seen.output.len() > offset {
                    messages.push(wire::execute_response::Message::Output(wire::Output {
                        offset: u64::try_from(offset).unwrap(),
                        stream: wire::Stream::Stdout.into(),
                        bytes: seen.output[offset..].to_vec(),
                    }));
                    offset = seen.output.len();
                }
                let finished = seen.finished.is_some();
                messages.extend(seen.finished.map(wire::execute_response::Message::Finished));
                for message in messages {
                    let message = wire::ExecuteResponse { message: Some(message) };
                    if sender.send(Ok(message)).await.is_err() {
                        return;
                    }
                }
                if finished {
                    return;
                }
                tokio::select! {
                    changed = progress.changed() => changed.unwrap(),
                    _ = cuts.changed() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_execution(
        &self,
        request: Request<wire::GetExecutionRequest>,
    ) -> Result<Response<wire::GetExecutionResponse>, Status> {
        use wire::get_execution_response::State;
        let wire::GetExecutionRequest { owner, call_id } = request.into_inner();
        self.fences.check(&owner.unwrap())?;
        let state = self.with(|state| {
            state.asked += 1;
            match state.executions.get(&call_id).map(|known| known.progress.borrow().clone()) {
                None => State::NotFound(common::Empty {}),
                Some(Progress { finished: Some(finished), .. }) => State::Finished(finished),
                Some(Progress { finished: None, .. }) => State::Running(common::Empty {}),
            }
        });
        Ok(Response::new(wire::GetExecutionResponse { state: Some(state) }))
    }

    type GetPatchStream = ReceiverStream<Result<wire::GetPatchResponse, Status>>;

    async fn get_patch(
        &self,
        request: Request<wire::GetPatchRequest>,
    ) -> Result<Response<Self::GetPatchStream>, Status> {
        let request = request.into_inner();
        self.fences.check(request.owner.as_ref().unwrap())?;
        let (parts, refused, digest) = self.with(|state| {
            let digest = match request.patch_digest.as_str() {
                "" => Digest::of(b"newest").to_string(),
                digest => digest.to_owned(),
            };
            state.patches_asked.push(request);
            (state.patch.clone(), state.patch_refused, digest)
        });
        if let Some((code, reason)) = refused {
            return Err(to_status(&Says(code, reason)));
        }
        let (sender, receiver) = mpsc::channel(1);
        self.tasks.spawn(async move {
            for part in parts {
                let part =
                    wire::GetPatchResponse { part: Some(part), patch_digest: digest.clone() };
                if sender.send(Ok(part)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn revoke_receipt(
        &self,
        request: Request<wire::RevokeReceiptRequest>,
    ) -> Result<Response<wire::RevokeReceiptResponse>, Status> {
        let request = request.into_inner();
        self.fences.check(request.owner.as_ref().unwrap())?;
        self.with(|state| match state.deaf {
            true => Err(to_status(&Says(Code::Unavailable, "STOPPING"))),
            false => {
                state.revoked.push(request.receipt_id);
                Ok(Response::new(wire::RevokeReceiptResponse {}))
            }
        })
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        let wire::CancelRequest { owner, call_id } = request.into_inner();
        self.fences.check(&owner.unwrap())?;
        let was_running = self.with(|state| {
            let found = state.executions.get(&call_id);
            found.map(|execution| execution.stop.send_replace(!state.stubborn)).is_some()
        });
        Ok(Response::new(wire::CancelResponse { was_running }))
    }
}
