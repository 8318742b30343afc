//! What a handler asks of a session's run, in the driver's turn: a prompt, a cancel, a look at the answers.

use event::id::{CallId, RunId};
use kernel::session::{Allowance, NotAdmitted, Runs, admit};
use kernel::{Limits, Seen, Status};
use tokio::sync::oneshot;
use tracing::info;

use super::{Broken, Driver, Fence};
use crate::ids;
use crate::live::Command;
use crate::outcome::{Ending, Outcome, Usage};
use crate::refusal::Refusal;
use crate::session::content::Content;
use crate::store::State;
use crate::wish::Wish;
use crate::work::Work;

impl Driver {
    pub(super) async fn command(&mut self, command: Command) -> Result<(), Broken> {
        match command {
            Command::Prompt { wish, requested, reply } => self.prompt(wish, requested, reply).await,
            Command::Cancel { by, reply } => {
                let canceled = self.cancel(by).await?;
                told(reply.send(canceled));
                Ok(())
            }
            Command::Fold { reply } => {
                self.fold_answers().await?;
                told(reply.send(()));
                Ok(())
            }
            Command::Renewed => {
                match &self.fence {
                    Fence::Raising(errand) | Fence::Lapsed { errand, .. } => {
                        errand.abort();
                        self.fence = self.raise_fence();
                    }
                    Fence::Refused(_) if self.work.is_none() => self.fence = self.raise_fence(),
                    Fence::Up(_) | Fence::Refused(_) => (),
                }
                Ok(())
            }
        }
    }

    async fn prompt(
        &mut self,
        wish: Wish,
        requested: Limits,
        reply: oneshot::Sender<Result<RunId, Refusal>>,
    ) -> Result<(), Broken> {
        let runs = match &self.work {
            None if self.session.state == State::Created => Runs::None,
            // It ended before it had a run.
            None => {
                told(reply.send(Err(Refusal::SessionAlreadyRun)));
                return Ok(());
            }
            Some(work) => match work.run.status() {
                Status::Ending(_) | Status::Over(_) => Runs::Ended { last: work.run.id() },
                _ => Runs::Live(work.run.id()),
            },
        };
        match admit(Allowance::Single, runs) {
            Ok(()) => (),
            Err(NotAdmitted::Busy(_) | NotAdmitted::AlreadyRun(_)) => {
                told(reply.send(Err(Refusal::SessionAlreadyRun)));
                return Ok(());
            }
        }
        let id = RunId::new();
        let (content, calls) = self.begun_with(wish);
        self.work = Some(Work::new(id, None));
        self.waiting_since = self.runtime.clock.millis();
        self.step(Seen::Prompted(self.terms.prompt(requested, calls)), content).await?;
        info!(session = %self.session.owner.session, run = %id, "run started");
        told(reply.send(Ok(id)));
        match &self.fence {
            Fence::Up(_) | Fence::Raising(_) | Fence::Lapsed { .. } => Ok(()),
            Fence::Refused(reason) => {
                let reason = reason.clone();
                self.step(Seen::Failed { reason }, Content::Bare).await
            }
        }
    }

    fn begun_with(&self, wish: Wish) -> (Content, Vec<kernel::CallId>) {
        match wish {
            Wish::Prompt(content) => {
                (Content::Prompt { system: self.terms.system.clone(), content }, Vec::new())
            }
            Wish::Undo(undo) => {
                let (id, call) = (CallId::new(), Box::new(undo.call()));
                (Content::Given { by: undo.by, id, call }, vec![ids::of_call(id)])
            }
        }
    }

    async fn cancel(&mut self, by: String) -> Result<bool, Broken> {
        match &self.work {
            Some(work) => match work.run.status() {
                Status::Ending(_) | Status::Over(_) => Ok(false),
                _ => {
                    self.step(Seen::Canceled { by: kernel::Subject(by) }, Content::Bare).await?;
                    Ok(true)
                }
            },
            None if self.session.outcome.is_some() => Ok(false),
            None => {
                self.end_without_run(format!("canceled by {by}")).await?;
                Ok(true)
            }
        }
    }

    /// The session ends although nothing was ever asked of it.
    pub(super) async fn end_without_run(&mut self, note: String) -> Result<(), Broken> {
        let outcome = Outcome {
            run: None,
            ending: Ending::Canceled { note },
            usage: Usage::default(),
            steps: 0,
            tool_calls: 0,
        };
        self.close_unprompted(outcome).await
    }
}

/// A caller that has gone away does not want to be told.
fn told<T>(sent: Result<(), T>) {
    drop(sent);
}
