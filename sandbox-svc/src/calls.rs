//! From a request about a call to its answer: planned, admitted once, carried out by a task of its own,
//! attached to by whoever asks again. The checks and their order are the contract with agent-svc.

use std::sync::Arc;
use std::time::Duration;

use event::id::{CallId, PermissionId, RunId};
use event::{Digest, Stage};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use prost::Message as _;
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::execute_response::Message;
use receipt::{Effect, EffectClass, Plan, Receipt, Scope, Signed};
use tracing::warn;

use crate::admit::{self, Proposed};
use crate::answer;
use crate::engine;
use crate::environment::Environment;
use crate::error::Error;
use crate::ledger;
use crate::live::{self, Live};
use crate::planner::{Planned, Planner, Stop};
use crate::refusal::{Reason, Refusal};
use crate::sandbox::Sandbox;
use crate::session::{Owner, Session, now_ms};
use crate::spool::Chunk;
use crate::store::{
    Accepted, ExecutionRow, ExecutionState, NewExecution, PlanRow, Refused, StoreError,
};
use crate::tool::Tool;

/// Which call, and until when it may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) start_before_ms: i64,
}

/// A request to carry out what was planned.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) target: Target,
    pub(crate) tool: String,
    pub(crate) arguments: Vec<u8>,
    pub(crate) plan_digest: Digest,
    pub(crate) receipt: Option<Signed>,
    pub(crate) after_output_offset: u64,
}

/// What planning led to.
pub(crate) enum Answer {
    Planned { plan: Vec<u8>, result: Option<Vec<u8>> },
    Refused(Refusal),
}

pub(crate) type Responses = BoxStream<'static, Result<wire::ExecuteResponse, Error>>;

/// Names and sizes in the record are the caller's, so they are cut.
const RECORDED_CHARACTERS: usize = 128;
const FIND_AGAIN: Duration = Duration::from_millis(10);
const FIND_TIMES: u32 = 20;

impl Sandbox {
    /// The session, or a refusal on record: the caller is not proven to own what it names.
    pub(crate) async fn held_for(&self, owner: &Owner, stage: Stage) -> Result<Session, Error> {
        let error = match self.held(owner).await {
            Ok(session) => return Ok(session),
            Err(error @ (Error::FenceStale | Error::SessionUnknown)) => error,
            Err(error) => return Err(error),
        };
        let refused = event::CallRefused {
            call_id: None,
            session_id: owner.session.to_string(),
            tool: None,
            stage,
            reason: transport::Public::reason(&error).to_owned(),
            plan_digest: None,
        };
        self.refuse(None, refused).await?;
        Err(error)
    }

    pub(crate) async fn plan(
        &self,
        owner: &Owner,
        target: Target,
        tool: &str,
        arguments: &[u8],
    ) -> Result<Answer, Error> {
        let session = self.held_for(owner, Stage::Plan).await?;
        match self.plan_call(&session, target, tool, arguments).await {
            Ok(answer) => Ok(answer),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(refusal)) => {
                self.record_refusal(&session, Stage::Plan, target.call, tool, None, &refusal)
                    .await?;
                Ok(Answer::Refused(refusal))
            }
        }
    }

    async fn plan_call(
        &self,
        session: &Session,
        target: Target,
        tool: &str,
        arguments: &[u8],
    ) -> Result<Answer, Stop> {
        if session.is_expired() {
            return Err(Reason::GrantExpired.into());
        }
        if let Some(row) = self.store.execution(target.call).await.map_err(Error::Store)? {
            // Admitted before: the plan is what was admitted.
            let same = row.plan.run == target.run
                && row.plan.session == session.id
                && row.plan.tool == tool
                && row.plan.arguments == arguments;
            return match same {
                true => Ok(Answer::Planned { plan: row.plan.bytes, result: None }),
                false => Err(Reason::CallConflict.into()),
            };
        }
        let environment = self.open_environment(session, target.run).await?;
        if environment.is_occupied() {
            return Err(Reason::RunBusy.into());
        }
        let planned = self.make_plan(session, &environment, target.call, tool, arguments).await?;
        let row = PlanRow {
            call: target.call,
            session: session.id,
            run: target.run,
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
            bytes: planned.bytes.clone(),
            digest: planned.digest,
        };
        self.store.put_plan(&row).await.map_err(Error::Store)?;
        let at_once =
            planned.plan.effect_class == EffectClass::Pure && planned.plan.effect == Effect::Allow;
        let result = match at_once {
            true => Some(answer_of(&environment, planned.clone()).await?),
            false => None,
        };
        Ok(Answer::Planned { plan: planned.bytes, result })
    }

    async fn open_environment(
        &self,
        session: &Session,
        run: RunId,
    ) -> Result<Arc<Environment>, Stop> {
        if let Some(open) = self.environment(session.id, run) {
            return Ok(open);
        }
        let row = self.store.environment(run).await.map_err(Error::Store)?;
        let lost = row.is_some_and(|row| {
            row.session == session.id && row.state == crate::store::EnvironmentState::Lost
        });
        Err(if lost { Reason::EnvironmentLost.into() } else { Reason::EnvironmentUnknown.into() })
    }

    pub(crate) async fn make_plan(
        &self,
        session: &Session,
        environment: &Arc<Environment>,
        call: CallId,
        tool: &str,
        arguments: &[u8],
    ) -> Result<Planned, Stop> {
        let tool = Tool::parse(tool, session.manifest.execution.backend)?;
        let arguments = tool.arguments(arguments)?;
        let engine = self.engine.as_ref();
        let planner = Planner { session, environment, engine, ceilings: &self.ceilings, call };
        planner.plan(tool, arguments).await
    }

    /// Carries the call out, or attaches to it. Refusals end the stream; they are no errors.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        owner: &Owner,
        order: Order,
    ) -> Result<Responses, Error> {
        let session = self.held_for(owner, Stage::Execute).await?;
        // Goes on when the caller leaves: a call that is admitted is carried out.
        let (sandbox, at) = (self.clone(), order.after_output_offset);
        let admission = self.tracker.spawn(async move {
            let admitted = sandbox.admit(&session, &order).await;
            let refusal = match admitted {
                Ok(found) => return Ok(found),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Refused(refusal)) => refusal,
            };
            let (call, digest) = (order.target.call, Some(order.plan_digest));
            let stage = Stage::Execute;
            sandbox.record_refusal(&session, stage, call, &order.tool, digest, &refusal).await?;
            Ok(Found::Over(refused(refusal)))
        });
        match admission.await?? {
            Found::Live(live) => Ok(live.watch(at).boxed()),
            Found::Over(finished) => {
                let end = live::message(Message::Finished(finished));
                Ok(stream::iter([Ok(end)]).boxed())
            }
            Found::Finished(row) => self.replay(&row, at).await,
        }
    }

    async fn admit(self: &Arc<Self>, session: &Session, order: &Order) -> Result<Found, Stop> {
        let Target { run, call, attempt, start_before_ms } = order.target;
        if session.is_expired() {
            return Err(Reason::GrantExpired.into());
        }
        if let Some(found) = self.known(session, order).await? {
            return Ok(found);
        }
        let stored = self.store.plan(call).await.map_err(Error::Store)?;
        let stored = stored
            .filter(|plan| plan.session == session.id && plan.run == run)
            .filter(|plan| plan.digest == order.plan_digest)
            .ok_or(Reason::PlanUnknown)?;
        if stored.tool != order.tool || stored.arguments != order.arguments {
            return Err(Reason::PlanArgumentsChanged.into());
        }

        let environment = self.open_environment(session, run).await?;
        let _admission = environment.admission.lock().await;
        // Somebody may have admitted it while this waited.
        if let Some(found) = self.known(session, order).await? {
            return Ok(found);
        }
        if environment.is_occupied() {
            return Err(Reason::RunBusy.into());
        }
        let planned =
            self.make_plan(session, &environment, call, &order.tool, &order.arguments).await?;
        if planned.digest != stored.digest {
            return Err(Reason::PlanStale.into());
        }
        let permission = self.permitted(session, &planned, order.receipt.as_ref())?;
        if now_ms() >= start_before_ms {
            return Err(Reason::StartDeadlinePassed.into());
        }

        let permit = match planned.plan.effect_class {
            EffectClass::Pure => None,
            EffectClass::Idempotent | EffectClass::Staged | EffectClass::Irreversible => {
                Some(environment.occupy().ok_or(Reason::RunBusy)?)
            }
        };
        let record =
            self.started_record(session, order, &planned.plan, permission.map(|it| it.0))?;
        let after_lost = self.lost_attempt(call, attempt).await?;
        let new = NewExecution {
            plan: &stored,
            tenant: &session.grant.tenant,
            attempt,
            start_before_ms,
            now_ms: now_ms(),
            once: permission.and_then(|(id, scope)| (scope == Scope::Once).then_some(id)),
            after_lost,
        };
        match self.store.accept(&new, &record).await.map_err(Error::Store)? {
            Accepted::No(Refused::Consumed) => Err(Reason::ReceiptConsumed.into()),
            Accepted::No(Refused::Known) => Err(Reason::CallConflict.into()),
            Accepted::Yes => {
                self.failpoint.hit("call-accepted").map_err(|_| Error::Stopping)?;
                let live = Live::new(permit);
                self.begin(call, live.clone(), Some(planned));
                Ok(Found::Live(live))
            }
        }
    }

    /// A call that was admitted, and its task while that runs. Between the two there is a moment on either
    /// side, which is waited for.
    async fn find(&self, call: CallId) -> Result<Option<(ExecutionRow, Option<Arc<Live>>)>, Error> {
        for _ in 1..FIND_TIMES {
            let live = self.live(call);
            let Some(row) = self.store.execution(call).await? else { return Ok(None) };
            if live.is_some() || row.state == ExecutionState::Finished {
                return Ok(Some((row, live)));
            }
            tokio::time::sleep(FIND_AGAIN).await;
        }
        Ok(self.store.execution(call).await?.map(|row| (row, None)))
    }

    /// A call that has been admitted before: the same request finds its own result, another is refused.
    async fn known(&self, session: &Session, order: &Order) -> Result<Option<Found>, Stop> {
        let Some((row, live)) = self.find(order.target.call).await? else { return Ok(None) };
        let same = row.plan.session == session.id
            && row.plan.run == order.target.run
            && row.plan.tool == order.tool
            && row.plan.arguments == order.arguments
            && row.plan.digest == order.plan_digest;
        if !same {
            return Err(Reason::CallConflict.into());
        }
        if row.state != ExecutionState::Finished {
            return match live {
                Some(live) => Ok(Some(Found::Live(live))),
                None => Err(Error::CleanupUncertain.into()),
            };
        }
        // Only an attempt that is lost makes room for the next.
        if order.target.attempt > row.attempt && is_lost(&row)? {
            return Ok(None);
        }
        Ok(Some(Found::Finished(Box::new(row))))
    }

    async fn lost_attempt(&self, call: CallId, attempt: u32) -> Result<Option<u32>, Stop> {
        let row = self.store.execution(call).await.map_err(Error::Store)?;
        Ok(row.map(|row| row.attempt).filter(|lost| *lost < attempt))
    }

    /// The permission that admits the plan, where one is needed.
    fn permitted(
        &self,
        session: &Session,
        planned: &Planned,
        signed: Option<&Signed>,
    ) -> Result<Option<(PermissionId, Scope)>, Stop> {
        let needed = admit::needs_receipt(planned.plan.effect, signed.is_some())?;
        let (true, Some(signed)) = (needed, signed) else { return Ok(None) };
        let receipt = self
            .sessions
            .verify::<Receipt>(signed)
            .map_err(|invalid| Refusal::new(Reason::Receipt(invalid.reason()), invalid))?;
        let action = planned
            .plan
            .action_digest()
            .map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
        let proposed = Proposed { plan: &planned.plan, digest: planned.digest, action };
        admit::check(&receipt, &proposed, &session.grant)?;
        Ok(Some((receipt.permission, receipt.scope)))
    }

    fn started_record(
        &self,
        session: &Session,
        order: &Order,
        plan: &Plan,
        permission_id: Option<PermissionId>,
    ) -> Result<crate::store::Record, Error> {
        let started = event::CallStarted {
            call_id: order.target.call,
            run_id: order.target.run,
            attempt: order.target.attempt,
            tool: order.tool.clone(),
            effect_class: plan.effect_class,
            plan_digest: order.plan_digest,
            permission_id,
            rules: rules(plan),
        };
        Ok(ledger::record(session.id, &session.grant.tenant, &session.policy_rev(), started)?)
    }

    /// What a finished call said, as far as it is kept.
    async fn replay(&self, row: &ExecutionRow, after: u64) -> Result<Responses, Error> {
        let mut messages = Vec::new();
        if let Some(data) = &row.started_data {
            messages.push(live::message(Message::Started(wire::Started { data: data.clone() })));
        }
        for (offset, stream, bytes) in self.store.output(row.plan.call).await? {
            let skip = usize::try_from(after.saturating_sub(offset)).unwrap_or(usize::MAX);
            if skip < bytes.len() {
                let stream = match stream.as_str() {
                    "stderr" => engine::Stream::Stderr,
                    _ => engine::Stream::Stdout,
                };
                let bytes = bytes::Bytes::from(bytes).slice(skip..);
                messages.push(live::output(&Chunk { offset: offset + skip as u64, stream, bytes }));
            }
        }
        messages.push(live::message(Message::Finished(finished(row)?)));
        Ok(stream::iter(messages.into_iter().map(Ok)).boxed())
    }

    /// Where a call stands: nothing, running, or its end.
    pub(crate) async fn look_up(
        &self,
        owner: &Owner,
        call: CallId,
    ) -> Result<Option<Option<wire::Finished>>, Error> {
        let session = self.held_for(owner, Stage::Fence).await?;
        let row = self.store.execution(call).await?;
        match row.filter(|row| row.plan.session == session.id) {
            None => Ok(None),
            Some(row) if row.state == ExecutionState::Finished => Ok(Some(Some(finished(&row)?))),
            Some(_) => Ok(Some(None)),
        }
    }

    /// Asks a call to end; says whether it was running.
    pub(crate) async fn cancel(&self, owner: &Owner, call: CallId) -> Result<bool, Error> {
        let session = self.held_for(owner, Stage::Fence).await?;
        match self.find(call).await?.filter(|(row, _)| row.plan.session == session.id) {
            Some((row, live)) if row.state != ExecutionState::Finished => {
                if let Some(live) = live {
                    live.cancel.cancel();
                }
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    async fn record_refusal(
        &self,
        session: &Session,
        stage: Stage,
        call: CallId,
        tool: &str,
        plan_digest: Option<Digest>,
        refusal: &Refusal,
    ) -> Result<(), Error> {
        warn!(%call, reason = refusal.reason.as_str(), "a call was refused");
        let refused = event::CallRefused {
            call_id: Some(call),
            session_id: session.id.to_string(),
            tool: Some(tool.chars().take(RECORDED_CHARACTERS).collect()),
            stage,
            reason: refusal.reason.as_str().to_owned(),
            plan_digest,
        };
        self.refuse(Some(session), refused).await?;
        Ok(())
    }
}

/// Where a request finds its call.
enum Found {
    Live(Arc<Live>),
    Finished(Box<ExecutionRow>),
    /// Refused: there is nothing behind it.
    Over(wire::Finished),
}

pub(crate) async fn answer_of(
    environment: &Arc<Environment>,
    planned: Planned,
) -> Result<Vec<u8>, Stop> {
    let environment = environment.clone();
    let answered =
        tokio::task::spawn_blocking(move || answer::answer(&environment, &planned.prepared));
    answered.await.map_err(Error::Task)?
}

/// Each rule once, in the order of the plan's parts.
fn rules(plan: &Plan) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for part in &plan.parts {
        if !rules.contains(&part.rule) {
            rules.push(part.rule.clone());
        }
    }
    rules
}

pub(crate) fn refused(refusal: Refusal) -> wire::Finished {
    let Refusal { reason, detail } = refusal;
    let refused = common::Refused { reason: reason.as_str().to_owned(), detail };
    wire::Finished {
        outcome: Some(wire::finished::Outcome::Refused(refused)),
        ..wire::Finished::default()
    }
}

fn finished(row: &ExecutionRow) -> Result<wire::Finished, Error> {
    let malformed = || Error::Store(StoreError::Malformed("end of a call"));
    let bytes = row.finished.as_deref().ok_or_else(malformed)?;
    wire::Finished::decode(bytes).map_err(|_| malformed())
}

fn is_lost(row: &ExecutionRow) -> Result<bool, Error> {
    let outcome = finished(row)?.outcome;
    Ok(matches!(outcome, Some(wire::finished::Outcome::Lost(_))))
}
