//! The task behind an admitted call: waits for the ledger, acts, proves the end, writes it down. The same
//! task goes on with a call that an earlier process left behind.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event::Digest;
use event::id::CallId;
use prost::Message as _;
use proto::sandbox::v1 as wire;
use receipt::{EffectClass, Plan};
use tracing::{error, info, warn};
use transport::Chain;

use crate::calls::answer_of;
use crate::edit_call::{Editing, Ended};
use crate::engine::Docker;
use crate::environment::Environment;
use crate::error::Error;
use crate::exec::{Run, Unsettled};
use crate::import_call::{Begin, Imported, Importing, Origin, advanced};
use crate::ledger;
use crate::live::Live;
use crate::planner::{self, Planned, Prepared, Stop};
use crate::refusal::Reason;
use crate::report::{Direct, Report, canceled, command_report, done, lost, not_done};
use crate::sandbox::Sandbox;
use crate::server::{Ask, Asked};
use crate::session::{Session, now_ms};
use crate::store::{Closing, ExecutionRow, ExecutionState, PlanRow, Record, StoreError, Waiting};
use crate::tool::{command, mcp};

/// A call that is being carried out.
struct Call<'a> {
    session: &'a Session,
    row: &'a ExecutionRow,
    plan: &'a Plan,
    live: &'a Live,
}

impl Sandbox {
    /// Starts the task of an admitted call.
    pub(crate) fn begin(self: &Arc<Self>, call: CallId, live: Arc<Live>, planned: Option<Planned>) {
        self.enlist(call, live.clone());
        let sandbox = self.clone();
        let task = async move { sandbox.perform(call, &live, planned).await };
        // It holds all that a run holds.
        self.tracker.spawn(Box::pin(task));
    }

    async fn perform(self: Arc<Self>, call: CallId, live: &Live, planned: Option<Planned>) {
        match Box::pin(self.carry_out(call, live, planned)).await {
            Ok(finished) => {
                live.finished(finished);
                self.dismiss(call);
                self.warm_again(call).await;
            }
            Err(Unsettled::Stopped(_)) => live.unsettled(),
            Err(unsettled) => {
                error!(%call, error = %Chain(&unsettled), "the end of a call is not proven");
                live.unsettled();
                self.unsettled.notify_one();
            }
        }
    }

    async fn carry_out(
        &self,
        call: CallId,
        live: &Live,
        planned: Option<Planned>,
    ) -> Result<wire::Finished, Unsettled> {
        let gone = || Error::Start("the row of a call is gone".to_owned());
        let row = self.store.execution(call).await?.ok_or_else(gone)?;
        let session = self.sessions.known(row.plan.session).await?;
        let plan = Plan::parse(&row.plan.bytes)
            .map_err(|_| Error::Store(StoreError::Malformed("plan")))?;
        let call = Call { session: &session, row: &row, plan: &plan, live };
        let unfinished = match call.plan.edit {
            Some(_) => self.unfinished_edit(&call).await?,
            None => self.unfinished_import(&call).await?,
        };
        let report = match unfinished {
            Some(report) => report,
            None => match self.gate(&call).await? {
                Some(closed) => closed,
                None => self.act(&call, planned).await?,
            },
        };
        self.close_call(&call, report).await
    }

    /// A workspace that a kill left half-written comes first, whatever became of the copy.
    async fn unfinished_import(&self, call: &Call<'_>) -> Result<Option<Report>, Unsettled> {
        let Some(journal) = self.store.import(call.row.plan.call).await? else { return Ok(None) };
        match self.importing(call)?.go_on(journal).await? {
            Imported::Untouched => Ok(None),
            ended => Ok(Some(self.import_report(call, ended))),
        }
    }

    /// A copy that a kill left half-edited; where the copy is gone there is nothing to mend.
    async fn unfinished_edit(&self, call: &Call<'_>) -> Result<Option<Report>, Unsettled> {
        let Some(journal) = self.store.import(call.row.plan.call).await? else { return Ok(None) };
        let Some(environment) = self.environment(call.row.plan.session, call.row.plan.run) else {
            return Ok(None);
        };
        Ok(edit_report(self.editing(call, &environment).go_on(journal).await?))
    }

    /// Nothing but a pure call begins before the ledger knows of it. A report closes the gate.
    async fn gate(&self, call: &Call<'_>) -> Result<Option<Report>, Unsettled> {
        let Call { row, plan, live, .. } = call;
        if plan.effect_class == EffectClass::Pure || row.state != ExecutionState::Accepted {
            return Ok(None);
        }
        let left = u64::try_from(row.start_before_ms.saturating_sub(now_ms())).unwrap_or(0);
        let place = Waiting { session: row.plan.session, seq: row.started_seq };
        tokio::select! {
            acknowledged = self.ledger.acknowledged(place) => acknowledged?,
            () = tokio::time::sleep(Duration::from_millis(left)) => {
                return Ok(Some(not_done(Reason::AuditUnavailable.into())));
            }
            () = live.cancel.cancelled() => return Ok(Some(canceled())),
        }
        self.failpoint.hit("call-acknowledged")?;
        if live.cancel.is_cancelled() {
            return Ok(Some(canceled()));
        }
        let late = now_ms() >= row.start_before_ms;
        Ok(late.then(|| not_done(Reason::StartDeadlinePassed.into())))
    }

    async fn act(&self, call: &Call<'_>, planned: Option<Planned>) -> Result<Report, Unsettled> {
        let Call { session, row, .. } = call;
        let environment = self.environment(row.plan.session, row.plan.run);
        if command::is_one(&row.plan.tool) && row.state != ExecutionState::Accepted {
            return self.command(call, environment.as_ref()).await;
        }
        if mcp::is_one(&row.plan.tool) && row.state != ExecutionState::Accepted {
            // Whatever an earlier process was told is not known any more.
            let run = self.children.host_of(row.plan.run);
            self.settle_servers(|server| server.run == run).await?;
            return Ok(lost(true));
        }
        // Without a copy nothing can have been done, nor be done now.
        let Some(environment) = environment else { return Ok(lost(false)) };
        // What an earlier process admitted is worked out again.
        let worked_out = match planned {
            Some(planned) => Ok(planned),
            None => {
                let PlanRow { run, call, tool, arguments, .. } = &row.plan;
                self.make_plan(session, &environment, (*run, *call), tool, arguments).await
            }
        };
        let planned = match worked_out {
            Ok(planned) if planned.digest == row.plan.digest => planned,
            Ok(_) => return Ok(not_done(Reason::PlanStale.into())),
            Err(Stop::Refused(refusal)) => return Ok(not_done(refusal)),
            Err(Stop::Failed(error)) => return Err(error.into()),
        };
        match &planned.prepared {
            Prepared::Read(_)
            | Prepared::Search(_)
            | Prepared::Status(_)
            | Prepared::Edit(planner::edit::Prepared::Propose { .. })
            | Prepared::Patch(planner::patch::Prepared::Inspect(_)) => {
                self.pure(&environment, planned).await
            }
            Prepared::Edit(planner::edit::Prepared::Edit(proposal)) => {
                let ended = self.editing(call, &environment).begin(proposal).await?;
                let failed = || not_done(Reason::EditFailed.into());
                Ok(edit_report(ended).unwrap_or_else(failed))
            }
            // Nobody admits what the rules deny.
            Prepared::Edit(planner::edit::Prepared::Denied) => {
                Ok(not_done(Reason::PlanStale.into()))
            }
            Prepared::Command(planner::command::Prepared::Exec) => {
                self.command(call, Some(&environment)).await
            }
            Prepared::Mcp(asked) => self.ask(call, &environment, asked).await,
            Prepared::Delegate(planner::delegate::Prepared(profile)) => {
                match self.attach_child(&environment, row.plan.call, *profile).await {
                    Ok(result) => Ok(done(result)),
                    Err(Stop::Refused(refusal)) => Ok(not_done(refusal)),
                    Err(Stop::Failed(error)) => Err(error.into()),
                }
            }
            Prepared::Patch(planner::patch::Prepared::Import(present)) => {
                let entries = present.patch.entries.clone();
                let begin = Begin { entries, from: Origin::Copy(environment) };
                let ended = self.importing(call)?.begin(begin).await?;
                Ok(self.import_report(call, ended))
            }
            Prepared::Patch(planner::patch::Prepared::Undo(record)) => {
                let entries = record.patch.reversed().entries;
                let begin = Begin { entries, from: Origin::Undo(record.clone()) };
                let ended = self.importing(call)?.begin(begin).await?;
                Ok(self.import_report(call, ended))
            }
        }
    }

    fn editing<'a>(&'a self, call: &Call<'a>, environment: &'a Arc<Environment>) -> Editing<'a> {
        Editing { sandbox: self, environment, row: call.row, plan: call.plan }
    }

    fn importing<'a>(&'a self, call: &Call<'a>) -> Result<Importing<'a>, Error> {
        Ok(Importing {
            sandbox: self,
            workspace: &call.session.grant.workspace,
            host: self.sessions.workspace(call.session)?,
            row: call.row,
            not_carried: call.plan.patch.as_ref().and_then(|patch| patch.not_carried.as_ref()),
        })
    }

    fn import_report(&self, call: &Call<'_>, imported: Imported) -> Report {
        match imported {
            Imported::Done { entries, result } => {
                let environment = self.environment(call.row.plan.session, call.row.plan.run);
                let base = environment.map(|open| advanced(&open.base(), &entries));
                Report { base, applied: true, ..done(result) }
            }
            Imported::Refused(refusal) => not_done(refusal),
            Imported::Untouched => not_done(Reason::ImportFailed.into()),
        }
    }

    async fn pure(
        &self,
        environment: &Arc<Environment>,
        planned: Planned,
    ) -> Result<Report, Unsettled> {
        match answer_of(environment, planned).await {
            Ok(result) => Ok(done(result)),
            Err(Stop::Refused(refusal)) => Ok(not_done(refusal)),
            Err(Stop::Failed(error)) => Err(error.into()),
        }
    }

    async fn command(
        &self,
        call: &Call<'_>,
        environment: Option<&Arc<Environment>>,
    ) -> Result<Report, Unsettled> {
        let Call { session, row, plan, live } = call;
        let (engine, limits) = self.bounded(plan)?;
        let run = Run {
            sandbox: self,
            engine,
            environment,
            row,
            plan,
            limits,
            live,
            session,
            held: OnceLock::new(),
            tmp: OnceLock::new(),
            changes: OnceLock::new(),
        };
        let ended = run.carry_out().await?;
        let retaken = match environment.filter(|_| run.writes_directly() && ended.may_have_run()) {
            Some(environment) => Some(self.retake(session, environment).await?),
            None => None,
        };
        let noted = self.store.execution(row.plan.call).await?;
        let started = noted.and_then(|row| row.started_data);
        let direct = retaken.as_ref().map(|copy| Direct {
            mounts: &plan.mounts,
            changes: run.changes.get(),
            copy,
        });
        Ok(command_report(&run, &ended, started.as_deref(), direct.as_ref())?)
    }

    async fn ask(
        &self,
        call: &Call<'_>,
        environment: &Arc<Environment>,
        asked: &Asked,
    ) -> Result<Report, Unsettled> {
        let Call { session, row, plan, live } = call;
        let (engine, limits) = self.bounded(plan)?;
        let ask = Ask { sandbox: self, engine, session, environment, row, plan, live, limits };
        Box::pin(ask.carry_out(asked)).await
    }

    /// What every call with a container needs.
    fn bounded(&self, plan: &Plan) -> Result<(&Docker, receipt::Limits), Error> {
        let missing =
            || Error::Start("a container is meant, but this host has no engine".to_owned());
        let unlimited = || Error::Store(StoreError::Malformed("plan"));
        let engine = self.engine.as_ref().ok_or_else(missing)?;
        Ok((engine, plan.limits.ok_or_else(unlimited)?))
    }

    /// Writes the end down, together with everything that follows from it.
    async fn close_call(
        &self,
        call: &Call<'_>,
        report: Report,
    ) -> Result<wire::Finished, Unsettled> {
        let Call { session, row, live, .. } = call;
        let Report { mut finished, status, stopped, base, applied, edited } = report;
        let (tenant, rev) = (&row.tenant, session.policy_rev());
        let mut records: Vec<Record> = Vec::new();
        if let Some(data) = stopped {
            finished.stopped_data = data.to_bytes().map_err(event::SealError::Canonical)?;
            records.push(ledger::record(session.id, tenant, &rev, data)?);
        }
        if finished.duration_ms == 0 {
            let spent = now_ms().saturating_sub(row.accepted_ms);
            finished.duration_ms = u64::try_from(spent).unwrap_or(0);
        }
        let result = &finished.result_json;
        let ended = event::CallFinished {
            call_id: row.plan.call,
            attempt: row.attempt,
            status,
            result_digest: (!result.is_empty()).then(|| Digest::of(result)),
            duration_ms: finished.duration_ms,
        };
        records.push(ledger::record(session.id, tenant, &rev, ended)?);
        let kept = live.with_spool(crate::spool::Spool::kept);
        let output: Vec<_> = kept
            .iter()
            .map(|chunk| (chunk.offset, chunk.stream.as_str(), chunk.bytes.as_ref()))
            .collect();
        let bytes = finished.encode_to_vec();
        let closing = Closing {
            call: row.plan.call,
            finished: &bytes,
            records: &records,
            output: &output,
            base: base.as_ref().map(|base| (self.children.host_of(row.plan.run), base)),
            applied,
            edited: edited.as_ref(),
        };
        self.failpoint.hit("call-closing")?;
        self.store.finish(&closing).await?;
        if let (Some(base), Some(environment)) =
            (base, self.environment(row.plan.session, row.plan.run))
        {
            environment.set_base(base);
        }
        info!(call = %row.plan.call, tool = %row.plan.tool, ?status, "call finished");
        Ok(finished)
    }

    /// Calls of an earlier process, each with its environment taken before anything else may have it.
    pub(crate) async fn recover_calls(self: &Arc<Self>) -> Result<(), Error> {
        for row in self.store.unfinished().await? {
            let environment = self.environment(row.plan.session, row.plan.run);
            let pure = Plan::parse(&row.plan.bytes)
                .is_ok_and(|plan| plan.effect_class == EffectClass::Pure);
            let permit = environment.filter(|_| !pure).and_then(|open| open.occupy());
            warn!(call = %row.plan.call, "a call of an earlier process goes on");
            self.begin(row.plan.call, Live::new(permit, &self.stopping), None);
        }
        Ok(())
    }

    /// Calls whose end could not be proven are tried again.
    pub(crate) async fn retry_calls(self: &Arc<Self>) -> Result<(), Error> {
        for row in self.store.unfinished().await? {
            if let Some(live) = self.live(row.plan.call)
                && live.try_again()
            {
                self.begin(row.plan.call, live, None);
            }
        }
        Ok(())
    }
}

/// Nothing, where the edit may begin anew.
fn edit_report(ended: Ended) -> Option<Report> {
    match ended {
        Ended::Done { result, edited } => Some(Report { edited: Some(edited), ..done(result) }),
        Ended::Refused(refusal) => Some(not_done(refusal)),
        Ended::Untouched => None,
    }
}
