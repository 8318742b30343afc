//! Asks and their answers in the catalogue.

use event::id::{CallId, PermissionId};
use event::{
    ActorKind, Decision, PermissionRequested, PermissionResolved, PolicyDecision, SealError, Source,
};
use kernel::{DenySource, Resolution, Time};
use receipt::{Effect, Plan, Scope};
use time::OffsetDateTime;

use super::{Draft, actor, operator};
use crate::bound;
use crate::clock::Millis;
use crate::permission::Ask;
use crate::session::content::{Content, Planned};
use crate::store::{Change, How, State};
use crate::work::Call;

/// Of an executor's words in an ask.
const MAX_WHY: usize = 512;

impl Draft<'_> {
    pub(super) fn call_planned(&mut self) -> Result<(), SealError> {
        let Content::Plan(planned) = self.scene.content else { return Ok(()) };
        let (plan_digest, call_id) = (planned.digest, planned.plan.call);
        for part in &planned.plan.parts {
            let decision = PolicyDecision {
                call_id,
                plan_digest,
                action: part.action.clone(),
                subject: part.subject.as_ref().map(ToString::to_string),
                effect: part.effect,
                reason: None,
                rule_id: Some(part.rule.clone()),
                layer: Some(part.layer),
                justification: part.justification.clone(),
                matching: part.matching.clone(),
                manifest_digest: Some(planned.plan.manifest),
                receipt_id: self.scene.standing.filter(|_| part.effect == Effect::Ask),
            };
            self.event(actor(ActorKind::Kernel), decision)?;
        }
        Ok(())
    }

    /// What the executor would not take is told to those who are asked again.
    pub(super) fn grant_refused(
        &mut self,
        call: CallId,
        permission: PermissionId,
        reason: &kernel::Reason,
    ) {
        let detail = match self.scene.content {
            Content::Detail(detail) if !detail.is_empty() => bound::ends(detail, MAX_WHY),
            _ => "the executor does not say why".to_owned(),
        };
        let why = format!("{detail}, {}", reason.as_str());
        self.change(Change::Retried(call));
        self.change(Change::Dropped { permission, call, why });
    }

    pub(super) fn permission_requested(
        &mut self,
        permission: PermissionId,
        call: CallId,
        expires_at: Time,
    ) -> Result<(), SealError> {
        let Content::Plan(planned) = self.scene.content else { return Ok(()) };
        let Planned { plan, bytes, shown, digest, action_digest, .. } = planned.as_ref();
        let asking = plan.parts.iter().find(|part| part.effect == Effect::Ask);
        let expires_at = Millis(i64::try_from(expires_at.0).unwrap_or(i64::MAX));
        let requested = PermissionRequested {
            permission_id: permission,
            session_id: self.scene.session.owner.session,
            call_id: Some(call),
            action: plan.action.clone(),
            subject: plan.subject.as_ref().map(ToString::to_string),
            scope: first_scope(plan),
            reason: why(asking.map(|part| part.rule.as_str()), self.call(call)),
            plan: shown.clone(),
            plan_digest: *digest,
            expires_at: moment(expires_at),
            child_run_id: self.scene.work.descent.map(|_| self.scene.work.id()),
            profile: self.scene.work.descent.map(|descent| descent.profile.to_string()),
        };
        let entry = self.event(actor(ActorKind::Kernel), requested)?;
        let ask = Ask {
            id: permission,
            run: self.scene.work.id(),
            call,
            plan: plan.clone(),
            bytes: bytes.clone(),
            plan_digest: *digest,
            action_digest: *action_digest,
            expires_at,
        };
        self.change(Change::Asked { ask: Box::new(ask), entry });
        self.change(Change::Entered(State::AwaitingPerson));
        Ok(())
    }

    pub(super) fn permission_resolved(
        &mut self,
        permission: PermissionId,
        resolution: &Resolution,
    ) -> Result<(), SealError> {
        let Some(ask) = self.scene.work.ask.as_ref().filter(|ask| ask.id == permission) else {
            return Ok(());
        };
        let plan = &ask.plan;
        let (decision, source, by) = match resolution {
            Resolution::Allowed { by, .. } => {
                (Decision::Allow, Source::Operator, Some(by.0.clone()))
            }
            Resolution::Denied { source, by } => {
                (Decision::Deny, deny_source(*source), by.as_ref().map(|by| by.0.clone()))
            }
        };
        let answered = match self.scene.content {
            Content::Standing { note } => Some(note.clone()),
            _ => None,
        };
        let resolved = PermissionResolved {
            permission_id: permission,
            session_id: self.scene.session.owner.session,
            call_id: Some(ask.call),
            action: plan.action.clone(),
            subject: plan.subject.as_ref().map(ToString::to_string),
            scope: match resolution {
                Resolution::Allowed { scope: kernel::Scope::Run, .. } => Scope::Run,
                Resolution::Allowed { scope: kernel::Scope::Once, .. } => Scope::Once,
                Resolution::Denied { .. } => first_scope(plan),
            },
            reason: None,
            decision,
            source,
            by: by.clone(),
            note: answered.clone().flatten(),
        };
        let who = match (source, &by) {
            (Source::Operator | Source::MalformedAnswer | Source::Cancel, Some(by)) => operator(by),
            _ => actor(ActorKind::Kernel),
        };
        let entry = self.event(who, resolved)?;
        let how = match answered {
            Some(_) => How::Answered,
            None => How::Denied { source, by },
        };
        self.change(Change::Answered { permission, entry, how });
        self.change(Change::Entered(State::Running));
        Ok(())
    }
}

/// The rule that asks, and why it asks again: no earlier answer names this ask, so not even a good one carries over.
fn why(rule: Option<&str>, call: Option<&Call>) -> Option<String> {
    let Some(uncounted) = call.and_then(|call| call.uncounted.as_deref()) else {
        return rule.map(ToOwned::to_owned);
    };
    let rule = rule.map(|rule| format!("{rule}; ")).unwrap_or_default();
    Some(format!(
        "{rule}asked again because an earlier allow did not count: {uncounted}; everybody has to answer anew, \
         also those whose allow was good"
    ))
}

fn moment(at: Millis) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn first_scope(plan: &Plan) -> Scope {
    plan.scopes.first().copied().unwrap_or(Scope::Once)
}

fn deny_source(source: DenySource) -> Source {
    match source {
        DenySource::Operator => Source::Operator,
        DenySource::Timeout => Source::Timeout,
        DenySource::Cancel => Source::Cancel,
        DenySource::Disconnect => Source::Disconnect,
        DenySource::MissingResolver => Source::MissingResolver,
        DenySource::MalformedAnswer => Source::MalformedAnswer,
        DenySource::SessionEnd => Source::SessionEnd,
        DenySource::Policy => Source::Policy,
        DenySource::System => Source::System,
    }
}
