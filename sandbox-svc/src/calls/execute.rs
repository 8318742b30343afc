//! Admission: every check that a call must pass, in the order of the contract, and then its one row.

use std::collections::BTreeSet;
use std::sync::Arc;

use event::id::{CallId, PermissionId, ReceiptId};
use event::{Differs, Stage};
use futures::StreamExt as _;
use futures::stream;
use proto::sandbox::v1::execute_response::Message;
use receipt::{Admission, Effect, EffectClass, Plan, Receipt, Scope, Signed};
use tracing::warn;

use super::known::{Found, may_have_run};
use super::{Order, Responses, Target, refused};
use crate::admit::{self, Known};
use crate::environment::Environment;
use crate::error::Error;
use crate::ledger;
use crate::live::{self, Live};
use crate::planner::{Planned, Stop};
use crate::refusal::{Reason, Refusal};
use crate::sandbox::Sandbox;
use crate::session::{Owner, Session, now_ms};
use crate::store::{Accepted, NewExecution, PlanRow, Record, Refused};
use crate::why;

impl Sandbox {
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
            if matches!(
                refusal.reason,
                Reason::PlanStale | Reason::HostChanged | Reason::EditStale | Reason::PathExists
            ) {
                sandbox.spend(&session, &order).await?;
            }
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
        let planned = match self.plan_again(session, &environment, order, &stored).await {
            Ok(planned) => planned,
            // What is lost may be the very reason why it cannot begin again.
            Err(Stop::Refused(refusal)) => return self.lost_before(call, refusal).await,
            Err(failed) => return Err(failed),
        };
        let counted = self.admitted(session, &planned, &order.receipts).await?.counted;
        if now_ms() >= start_before_ms {
            return Err(Reason::StartDeadlinePassed.into());
        }

        let permit = match planned.plan.effect_class {
            EffectClass::Pure => None,
            EffectClass::Idempotent | EffectClass::Staged | EffectClass::Irreversible => {
                Some(environment.occupy().ok_or(Reason::RunBusy)?)
            }
        };
        let permission = counted.first().map(|it| it.permission);
        let once: BTreeSet<PermissionId> =
            counted.iter().filter(|it| it.scope == Scope::Once).map(|it| it.permission).collect();
        let receipts: Vec<ReceiptId> = counted.iter().map(|it| it.receipt).collect();
        let record = self.started_record(session, order, &planned.plan, permission)?;
        let after_lost = self.lost_attempt(call, attempt).await?;
        let new = NewExecution {
            plan: &stored,
            tenant: &session.grant.tenant,
            attempt,
            start_before_ms,
            now_ms: now_ms(),
            once: &once,
            receipts: &receipts,
            after_lost,
            epoch: session.epoch,
        };
        match self.store.accept(&new, &record).await.map_err(Error::Store)? {
            Accepted::No(Refused::Revoked) => Err(Reason::NotAdmitted("RECEIPT_REVOKED").into()),
            Accepted::No(Refused::Consumed) => Err(Reason::ReceiptConsumed.into()),
            Accepted::No(Refused::Known) => Err(Reason::CallConflict.into()),
            Accepted::No(Refused::Fenced) => Err(Error::FenceStale.into()),
            Accepted::Yes => {
                self.failpoint.hit("call-accepted").map_err(|_| Error::Stopping)?;
                let live = Live::new(permit, &self.stopping);
                self.begin(call, live.clone(), Some(planned));
                Ok(Found::Live(live))
            }
        }
    }

    /// Worked out anew, and what was shown to people, or a refusal.
    async fn plan_again(
        &self,
        session: &Session,
        environment: &Arc<Environment>,
        order: &Order,
        stored: &PlanRow,
    ) -> Result<Planned, Stop> {
        let Target { run, call, .. } = order.target;
        let (tool, arguments) = (&order.tool, &order.arguments);
        let planned = self.make_plan(session, environment, (run, call), tool, arguments).await?;
        if planned.digest != stored.digest {
            return Err(stale(&planned, stored).into());
        }
        Ok(planned)
    }

    /// The end of an attempt that may have run is told again: that it cannot begin once more says nothing of it.
    async fn lost_before(&self, call: CallId, refusal: Refusal) -> Result<Found, Stop> {
        match self.store.execution(call).await.map_err(Error::Store)? {
            Some(row) if may_have_run(&row)? => {
                let reason = refusal.reason.as_str();
                warn!(%call, reason, "a call that was lost cannot begin again");
                Ok(Found::Finished(Box::new(row)))
            }
            Some(_) | None => Err(refusal.into()),
        }
    }

    async fn lost_attempt(&self, call: CallId, attempt: u32) -> Result<Option<u32>, Stop> {
        let row = self.store.execution(call).await.map_err(Error::Store)?;
        Ok(row.map(|row| row.attempt).filter(|lost| *lost < attempt))
    }

    /// What people allowed of it, where they are asked: this service counts by its own plan.
    async fn admitted(
        &self,
        session: &Session,
        planned: &Planned,
        receipts: &[Signed],
    ) -> Result<Admission, Stop> {
        let receipts: Vec<_> =
            receipts.iter().map(|signed| self.sessions.verify::<Receipt>(signed)).collect();
        let revoked = self.store.revoked(planned.plan.run).await.map_err(Error::Store)?;
        let known = Known { approvers: &self.sessions.approvers(), revoked: &revoked };
        Ok(admit::admit(planned, &session.grant, &receipts, &known)?)
    }

    /// An answer to a plan that turned out to be stale is used up: it was about a world that is gone.
    async fn spend(&self, session: &Session, order: &Order) -> Result<(), Error> {
        for signed in &order.receipts {
            let Ok(receipt) = self.sessions.verify::<Receipt>(signed) else { continue };
            let about_this = receipt.scope == Scope::Once
                && receipt.session == session.id
                && receipt.call == order.target.call
                && receipt.plan == order.plan_digest;
            if about_this {
                self.store.spend(receipt.permission).await?;
            }
        }
        Ok(())
    }

    fn started_record(
        &self,
        session: &Session,
        order: &Order,
        plan: &Plan,
        permission_id: Option<PermissionId>,
    ) -> Result<Record, Error> {
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
}

/// What is denied now is denied, whatever it was when somebody was asked.
fn stale(planned: &Planned, stored: &PlanRow) -> Refusal {
    if planned.plan.effect == Effect::Deny {
        return Refusal::new(Reason::NotAdmitted("POLICY_DENIED"), why::denied(&planned.plan));
    }
    let (expected, actual) = (Some(stored.digest), Some(planned.digest));
    let differs = Some(Box::new(Differs { path: None, expected, actual }));
    let detail = why::changed(&stored.bytes, &planned.plan);
    Refusal { differs, ..Refusal::new(Reason::PlanStale, detail) }
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
