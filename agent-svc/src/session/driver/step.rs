//! One input's way: decided, worded, stored in one transaction, applied.

use kernel::{Answer, Fresh, Input, No, Reason, Scope, Seen, Subject, Time, record};
use tracing::{debug, error};
use transport::Chain;
use uuid::Uuid;

use event::id::RunId;
use event::{Data, Source};

use super::{Broken, Driver, Fence};
use crate::clock::Millis;
use crate::outcome::Outcome;
use crate::permission::{Permission, Standing};
use crate::session::content::Content;
use crate::session::describe::{self, Scene};
use crate::store::{self, Append, Change, State};
use crate::work::Work;

impl Driver {
    /// Records what follows from an input. What cannot be recorded ends the run and is withheld.
    pub(super) async fn step(&mut self, seen: Seen, content: Content) -> Result<(), Broken> {
        match self.work.as_ref().map(Work::id) {
            Some(run) => self.step_on(run, seen, content).await,
            None => Ok(()),
        }
    }

    /// The same for a run that may be a child.
    pub(super) async fn step_on(
        &mut self,
        run: RunId,
        seen: Seen,
        content: Content,
    ) -> Result<(), Broken> {
        match self.record(run, seen.clone(), &content).await {
            Err(Broken::Store(store::Error::Overtaken)) => {
                self.fold_answers().await?;
                match self.record(run, seen, &content).await {
                    // Somebody has claimed the ask: neither time nor absence ends it now.
                    Err(Broken::Store(store::Error::Overtaken)) => Ok(()),
                    other => other,
                }
            }
            Err(Broken::Seal(cause)) => {
                let session = self.session.owner.session;
                error!(%session, error = %Chain(&cause), "event cannot be recorded");
                let reason = Reason::of("EVENT_REDACTION_FAILED");
                self.record(run, Seen::Failed { reason }, &Content::Bare).await?;
                self.record(run, seen, &Content::Withheld).await
            }
            other => other,
        }
    }

    /// The same without a second try.
    pub(super) async fn record(
        &mut self,
        run: RunId,
        seen: Seen,
        content: &Content,
    ) -> Result<(), Broken> {
        let Some(work) = self.work_of(run) else { return Ok(()) };
        let at = self.runtime.clock.now();
        let input = Input { at: time(at.into()), fresh: Fresh(Uuid::now_v7().as_u128()), seen };
        let events = match work.run.decide(input) {
            Ok(events) if events.is_empty() => return Ok(()),
            Ok(events) => events,
            Err(rejected) => {
                debug!(session = %self.session.owner.session, error = %rejected, "input changes nothing");
                return Ok(());
            }
        };
        let after = events.iter().cloned().fold(work.run.clone(), kernel::Run::apply);
        let offers = match &self.fence {
            Fence::Up(offers) => Some(offers),
            Fence::Raising(_) | Fence::Lapsed { .. } | Fence::Refused(_) => None,
        };
        let standing = self.standing(&events).await?;
        let scene = Scene { session: &self.session, work, offers, content, standing, at };
        let mut append = describe::describe(&scene, &events, &after).map_err(Broken::Seal)?;
        append.records = events
            .iter()
            .map(record::encode)
            .collect::<Result<_, _>>()
            .map_err(Broken::Unwritable)?;
        self.commit(Some(run), append).await?;
        if let Some(work) = self.work_of_mut(run) {
            work.run = after;
        }
        self.gate = self.session.last_seq;
        Ok(())
    }

    /// Stores a step, then takes it in.
    pub(super) async fn commit(
        &mut self,
        run: Option<RunId>,
        append: Append,
    ) -> Result<(), Broken> {
        let store = &self.runtime.store;
        let first = store.append(self.session.owner, run, &append).await.map_err(Broken::Store)?;
        self.runtime.records.committed(append.records.len());
        let Append { at, changes, records: _, entries } = append;
        if !entries.is_empty() {
            let next = first + u64::try_from(entries.len()).unwrap_or(u64::MAX);
            self.session.last_seq = next.checked_sub(1);
            self.live.outgoing.notify_one();
        }
        for change in changes {
            match &change {
                Change::Began { run, descent: None } => self.session.run = Some(*run),
                Change::Entered(state) => self.session.state = *state,
                Change::Ended(outcome) => {
                    self.session.outcome = Some(outcome.clone());
                    self.ended_at = Some(at);
                }
                Change::Asked { .. } | Change::Answered { .. } => self.lease_ends = None,
                _ => (),
            }
            if let Some(work) = run.and_then(|run| self.work_of_mut(run)) {
                work.follow(change);
            }
        }
        Ok(())
    }

    pub(super) async fn close_unprompted(&mut self, outcome: Outcome) -> Result<(), Broken> {
        let at = self.runtime.clock.now();
        let stopped = describe::stopped(self.session.owner.session.to_string(), &outcome);
        let actor = describe::actor(event::ActorKind::Kernel);
        let mut append = Append::new(at.into());
        append.entries =
            vec![describe::entry(at, actor, Data::AgentStopped(stopped)).map_err(Broken::Seal)?];
        append.changes = vec![Change::Entered(State::Done), Change::Ended(outcome)];
        self.commit(None, append).await
    }
}

/// What a settled ask means to its run; nothing while it is open.
pub(super) fn answer(permission: &Permission) -> Option<(Seen, Content)> {
    let id = crate::ids::of_permission(permission.ask.id);
    let answered = |answer, note: &Option<String>| {
        Some((Seen::Answered { permission: id, answer }, Content::Standing { note: note.clone() }))
    };
    let named = |by: &Option<String>| Subject(by.clone().unwrap_or_default());
    match &permission.standing {
        Standing::Open | Standing::Leased { .. } => None,
        Standing::Allowed { by, scope, note, claimed_at, .. } => {
            let scope = match scope {
                receipt::Scope::Once => Scope::Once,
                receipt::Scope::Run => Scope::Run,
            };
            answered(
                Answer::Allow { by: Subject(by.clone()), scope, claimed_at: time(*claimed_at) },
                note,
            )
        }
        Standing::Denied { source, by, note } => match source {
            Source::Operator => answered(Answer::Deny(No::Operator { by: named(by) }), note),
            Source::MalformedAnswer => {
                answered(Answer::Deny(No::MalformedAnswer { by: named(by) }), note)
            }
            Source::MissingResolver => answered(Answer::Deny(No::MissingResolver), note),
            Source::Timeout => Some((Seen::Tick, Content::Standing { note: note.clone() })),
            // The run writes these itself, together with what follows from them.
            Source::Cancel
            | Source::Disconnect
            | Source::SessionEnd
            | Source::Policy
            | Source::System => answered(Answer::Deny(No::System), note),
        },
    }
}

pub(super) fn time(at: Millis) -> Time {
    Time(u64::try_from(at.0).unwrap_or(0))
}

pub(super) fn millis(at: Time) -> Millis {
    Millis(i64::try_from(at.0).unwrap_or(i64::MAX))
}
