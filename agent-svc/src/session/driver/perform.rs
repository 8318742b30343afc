//! Effects: started once each when everything before them is acknowledged, and dropped when they are due no longer.

use std::sync::Arc;

use event::id::RunId;
use kernel::{Effect, Key, Reason, Report as Executed, Seen};
use receipt::Executor;
use tracing::info;
use transport::CancellationToken;

use super::{Broken, Driver, Fence, child};
use crate::feed::Flow;
use crate::ids;
use crate::session::content::Content;
use crate::session::describe;
use crate::session::errand::{self, Errand, Report, execute, model, plan};
use crate::session::progress;
use crate::store::{Append, Change};
use crate::work::{Call, Damaged, Work};

impl Driver {
    /// Whether everything that was recorded is in the ledger.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.gate <= self.live.feed.through()
    }

    pub(super) fn perform(&mut self) -> Result<(), Broken> {
        let due: Vec<(RunId, Effect)> = self
            .works()
            .flat_map(|work| work.run.due().map(|effect| (work.id(), effect)))
            .collect();
        self.drop_undue(&due);
        for (run, effect) in due {
            let key = effect.key();
            if !self.running.contains_key(&key) && self.may(&effect) {
                self.start(run, key, effect)?;
            }
        }
        Ok(())
    }

    fn drop_undue(&mut self, due: &[(RunId, Effect)]) {
        // What is being stopped brings its own end.
        let wanted =
            |key: &Key| due.iter().any(|(_, effect)| effect.key() == *key || stops(effect, key));
        self.running.retain(|key, errand| {
            let keep = wanted(key);
            if !keep {
                errand.abort();
            }
            keep
        });
    }

    /// Ending what runs adds no effect, so it does not wait for the ledger.
    fn may(&self, effect: &Effect) -> bool {
        let frozen = self.live.feed.progress().borrow().flow == Flow::Frozen;
        match (effect, &self.fence) {
            (
                Effect::AskPerson { .. }
                | Effect::AskOperator { .. }
                | Effect::RunChild { .. }
                | Effect::StopChild { .. },
                _,
            )
            | (_, Fence::Raising(_)) => false,
            (Effect::Stop { .. }, _) => true,
            (Effect::Finish { .. }, _) => frozen || self.is_acknowledged(),
            (_, Fence::Up(_)) => !frozen && self.is_acknowledged(),
            (_, Fence::Lapsed { .. } | Fence::Refused(_)) => false,
        }
    }

    fn start(&mut self, run: RunId, key: Key, effect: Effect) -> Result<(), Broken> {
        let Some(work) = self.work_of(run) else { return Ok(()) };
        let errand = Errand {
            runtime: Arc::clone(&self.runtime),
            owner: self.session.owner,
            run,
            key,
            reports: self.reports.0.clone(),
        };
        let known = self.inherited.contains(&key);
        let handle = match effect {
            Effect::OpenEnvironment { .. } => self.errands.spawn(errand::open(errand)),
            Effect::AskModel { call, step, attempt, max_output_tokens } => {
                let Fence::Up(offers) = &self.fence else { return Ok(()) };
                let turn = crate::peers::Turn {
                    model: self.session.model.clone(),
                    step: u32::try_from(step).unwrap_or(u32::MAX),
                    attempt,
                    messages: work.messages.clone(),
                    tools: offers.tools_of(work.descent.map(|descent| descent.profile)),
                    max_output_tokens,
                };
                self.errands.spawn(model::ask(errand, ids::call(call), turn, known))
            }
            Effect::Plan { call, attempt } => {
                let entry = entry(work, call)?;
                let expected = plan::Expected {
                    session: self.session.owner.session,
                    manifest: self.session.policy_rev,
                };
                self.errands.spawn(plan::plan(errand, (ids::call(call), attempt), entry, expected))
            }
            Effect::Execute(call) => {
                let entry = entry(work, call.id)?;
                let delegates = delegates(work, &entry);
                self.stop = CancellationToken::new();
                let order = execute::Order::new(&call, entry, delegates, self.stop.clone());
                self.errands.spawn(execute::execute(errand, order, known))
            }
            Effect::Stop { call, attempt } => {
                let entry = entry(work, call)?;
                let heard = self.running.contains_key(&Key::Execute(call, attempt));
                match (self.reaches(), entry.executor, heard) {
                    (true, Some(Executor::SandboxSvc), true) => {
                        self.stop.cancel();
                        self.errands.spawn(execute::nudge(errand, ids::call(call)))
                    }
                    (true, Some(Executor::SandboxSvc), false) => {
                        let (call, delegates) = (ids::call(call), delegates(work, &entry));
                        self.errands.spawn(execute::wind_up(errand, call, attempt, delegates))
                    }
                    (_, executor, _) => {
                        // Nobody is there who could be asked to stop it.
                        let ran = match executor {
                            Some(_) => kernel::Ran::Maybe,
                            None => kernel::Ran::No,
                        };
                        let report = Executed::Lost { ran, reason: Reason::of("STOP_UNHEARD") };
                        let seen = Seen::Executed { call, attempt, report };
                        self.errands.spawn(errand.done(seen, Content::Bare))
                    }
                }
            }
            Effect::Finish { .. } if self.reaches() => self.errands.spawn(errand::close(errand)),
            Effect::Finish { .. } => {
                self.errands.spawn(errand.done(Seen::EnvironmentClosed, Content::Bare))
            }
            Effect::AskPerson { .. }
            | Effect::AskOperator { .. }
            | Effect::RunChild { .. }
            | Effect::StopChild { .. } => return Ok(()),
        };
        self.running.insert(key, handle);
        Ok(())
    }

    /// Whether the executors do for this owner what needs no grant.
    fn reaches(&self) -> bool {
        match &self.fence {
            Fence::Up(_) => true,
            Fence::Lapsed { know, .. } => *know,
            Fence::Raising(_) | Fence::Refused(_) => false,
        }
    }

    pub(super) fn raise_fence(&mut self) -> Fence {
        let errand = errand::fence(
            Arc::clone(&self.runtime),
            self.session.owner,
            self.session.outcome.is_some(),
            self.reports.0.clone(),
        );
        Fence::Raising(self.errands.spawn(errand))
    }

    pub(super) async fn report(&mut self, report: Report) -> Result<(), Broken> {
        match report {
            Report::Fenced(Ok(offers)) => {
                info!(session = %self.session.owner.session, "executors fenced");
                (self.fence, self.is_known) = (Fence::Up(offers), true);
                Ok(())
            }
            Report::Lapsed => {
                if let Fence::Raising(errand) = &self.fence {
                    self.fence = Fence::Lapsed { errand: errand.clone(), know: self.is_known };
                }
                Ok(())
            }
            Report::Fenced(Err((executor, fault))) => self.fence_refused(executor, fault).await,
            Report::Stale => Err(Broken::Stale),
            Report::LostSight => Err(Broken::LostSight),
            // Whoever was to hear its end is gone, and a request of this owner may still be on its way.
            Report::Unfenced(key) if self.is_being_stopped(&key) => Err(Broken::LostSight),
            Report::Unfenced(key) => {
                self.running.remove(&key);
                self.inherited.insert(key);
                match &mut self.fence {
                    Fence::Up(_) => self.fence = self.raise_fence(),
                    // Not even for an end, and without a grant they cannot be told again.
                    Fence::Lapsed { know, .. } => *know = false,
                    Fence::Raising(_) | Fence::Refused(_) => (),
                }
                Ok(())
            }
            Report::Done { run, key, seen, content } if self.running.remove(&key).is_some() => {
                self.inherited.remove(&key);
                self.step_on(run, seen, content).await
            }
            Report::Progress { run, key, progress } if self.running.contains_key(&key) => {
                self.progress(run, progress).await
            }
            // It was dropped while it was under way.
            Report::Done { .. } | Report::Progress { .. } => Ok(()),
        }
    }

    fn is_being_stopped(&self, key: &Key) -> bool {
        self.works().flat_map(|work| work.run.due()).any(|effect| stops(&effect, key))
    }

    /// Tells clients what happens while it happens; the kernel does not care.
    async fn progress(&mut self, run: RunId, progress: progress::Progress) -> Result<(), Broken> {
        let Some(work) = self.work_of(run) else { return Ok(()) };
        let at = self.runtime.clock.now();
        let Some(progress::Told { actor, data, change }) = progress.tell(work) else {
            return Ok(());
        };
        let entry = match describe::entry(at, actor, data) {
            Ok(entry) => entry,
            Err(_) => {
                let reason = Reason::of("EVENT_REDACTION_FAILED");
                return self.step_on(run, Seen::Failed { reason }, Content::Bare).await;
            }
        };
        let mut append = Append::new(at.into());
        append.entries = vec![entry];
        append.changes = change.into_iter().collect::<Vec<Change>>();
        self.commit(Some(run), append).await
    }
}

/// Whether the effect is to end what this key names.
fn stops(effect: &Effect, key: &Key) -> bool {
    match (effect, key) {
        (Effect::Stop { call, attempt }, Key::Execute(running, of)) => {
            (call, attempt) == (running, of)
        }
        _ => false,
    }
}

/// Whether the call is for a child. A child's own never is: it would be refused.
fn delegates(work: &Work, entry: &Call) -> bool {
    work.descent.is_none()
        && entry.executor == Some(Executor::SandboxSvc)
        && entry.tool == child::DELEGATE
}

fn entry(work: &Work, call: kernel::CallId) -> Result<Call, Broken> {
    let entry = work.calls.get(&ids::call(call)).cloned();
    entry.ok_or(Broken::Damaged(Damaged::CallMissing))
}
