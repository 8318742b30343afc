//! From a request about a call to its answer: planned, admitted once, carried out by a task of its own,
//! attached to by whoever asks again. The checks and their order are the contract with agent-svc.

mod execute;
mod known;

use std::sync::Arc;

use event::id::{CallId, RunId};
use event::{Digest, Stage};
use futures::stream::BoxStream;
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use receipt::{Effect, EffectClass, Signed};
use tracing::warn;

use crate::answer;
use crate::environment::Environment;
use crate::error::Error;
use crate::planner::{Planned, Planner, Stop};
use crate::refusal::{Reason, Refusal};
use crate::sandbox::Sandbox;
use crate::session::{Owner, Session};
use crate::store::{EnvironmentRow, EnvironmentState, PlanRow};
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
    /// One of each person who allowed it.
    pub(crate) receipts: Vec<Signed>,
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
            differs: None,
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
        let planned = self
            .make_plan(session, &environment, (target.run, target.call), tool, arguments)
            .await?;
        let row = PlanRow {
            call: target.call,
            session: session.id,
            run: target.run,
            tool: tool.to_owned(),
            arguments: arguments.to_vec(),
            bytes: planned.bytes.clone(),
            digest: planned.digest,
        };
        if !self.store.put_plan(&row).await.map_err(Error::Store)? {
            return Err(Reason::CallConflict.into());
        }
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
        let own = row.filter(|row| row.session == session.id);
        Err(match own {
            Some(EnvironmentRow { state: EnvironmentState::Lost, lost: Some(binding), .. }) => {
                let detail = format!("its {binding} is not what it was");
                Refusal::new(Reason::EnvironmentLost, detail).into()
            }
            Some(EnvironmentRow { state: EnvironmentState::Lost, .. }) => {
                Reason::EnvironmentLost.into()
            }
            Some(_) | None => Reason::EnvironmentUnknown.into(),
        })
    }

    pub(crate) async fn make_plan(
        &self,
        session: &Session,
        environment: &Arc<Environment>,
        (run, call): (RunId, CallId),
        tool: &str,
        arguments: &[u8],
    ) -> Result<Planned, Stop> {
        let tool = Tool::parse(tool, &session.manifest.execution)?;
        self.allowed_to(run, call, tool)?;
        let arguments = tool.arguments(arguments)?;
        let engine = self.engine.as_ref();
        let rulebook = &self
            .sessions
            .rulebook(session)
            .map_err(|unusable| Refusal::new(Reason::CeilingUnusable, unusable))?;
        let planner = Planner {
            session,
            rulebook,
            environment,
            store: &self.store,
            engine,
            images: &self.images,
            dependencies: self.sessions.dependencies(),
            ceilings: &self.ceilings,
            run,
            brokers: self.brokers.as_ref(),
            servers: &self.servers,
            call,
        };
        planner.plan(tool, arguments).await
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
            differs: refusal.differs.as_deref().cloned(),
        };
        self.refuse(Some(session), refused).await?;
        Ok(())
    }
}

pub(crate) async fn answer_of(
    environment: &Arc<Environment>,
    planned: Planned,
) -> Result<Vec<u8>, Stop> {
    let environment = environment.clone();
    let answered = tokio::task::spawn_blocking(move || answer::answer(&environment, &planned));
    answered.await.map_err(Error::Task)?
}

pub(crate) fn refused(refusal: Refusal) -> wire::Finished {
    let Refusal { reason, detail, differs: _ } = refusal;
    let refused = common::Refused { reason: reason.as_str().to_owned(), detail };
    wire::Finished {
        outcome: Some(wire::finished::Outcome::Refused(refused)),
        ..wire::Finished::default()
    }
}
