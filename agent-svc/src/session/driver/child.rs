//! The run that the session's run has begun: started when that wants it, ended with it, and its end told. A child decides
//! and acts by the same rules; nothing that was allowed to its parent is allowed to it.

use event::ToolError;
use event::id::{CallId, RunId};
use kernel::{Budget, Effect, Halt, Reason, Seen, Status};
use manifest::Profile;
use serde::Deserialize;
use serde_json::json;

use super::{Broken, Driver, Fence};
use crate::feed::Flow;
use crate::outcome::Usage;
use crate::runtime::Runtime;
use crate::session::content::{Content, Outcome};
use crate::work::{Damaged, Descent, Work};
use crate::{bound, ids, transcript};

/// The tool whose calls are for children.
pub(super) const DELEGATE: &str = "delegate";
/// Of a child's last words, what its parent is told.
const MAX_WORDS: usize = 64 * 1024;

/// What a call of the tool holds; sandbox-svc has accepted it before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delegation {
    profile: Profile,
    task: String,
}

/// A child bears the id of the call that it answers, so that there is one for each and no other.
fn child_of(call: kernel::CallId) -> RunId {
    let call: CallId = ids::call(call);
    RunId::from(*call.as_uuid())
}

/// The child for which its parent waits, if it was begun.
pub(super) async fn recover(
    runtime: &Runtime,
    parent: Option<&Work>,
) -> Result<Option<Work>, Broken> {
    let Some(Effect::RunChild { call, .. } | Effect::StopChild { call, .. }) =
        parent.and_then(|parent| parent.run.due().next())
    else {
        return Ok(None);
    };
    let run = child_of(call);
    if !runtime.store.has_run(run).await.map_err(Broken::Store)? {
        return Ok(None);
    }
    let journal = runtime.store.journal(run).await.map_err(Broken::Store)?;
    Work::recover(run, journal).map(Some).map_err(Broken::Damaged)
}

impl Driver {
    /// The session's run and the child that it waits for.
    pub(super) fn works(&self) -> impl Iterator<Item = &Work> {
        self.work.iter().chain(&self.child)
    }

    pub(super) fn work_of(&self, run: RunId) -> Option<&Work> {
        self.works().find(|work| work.id() == run)
    }

    pub(super) fn work_of_mut(&mut self, run: RunId) -> Option<&mut Work> {
        self.work.iter_mut().chain(&mut self.child).find(|work| work.id() == run)
    }

    /// Whose turn it is: a child's, while there is one.
    pub(super) fn front(&self) -> Option<&Work> {
        self.child.as_ref().or(self.work.as_ref())
    }

    pub(super) fn must_stop_child(&self) -> bool {
        matches!(self.wanted(), Some(Effect::StopChild { .. }))
    }

    fn wanted(&self) -> Option<Effect> {
        self.work.as_ref().and_then(|work| work.run.due().next())
    }

    /// Does what the session's run wants of its child now.
    pub(super) async fn tend_child(&mut self) -> Result<(), Broken> {
        let over = self.child.as_ref().is_some_and(|it| matches!(it.run.status(), Status::Over(_)));
        match self.wanted() {
            Some(Effect::RunChild { call, .. } | Effect::StopChild { call, .. }) if over => {
                self.child_ended(call).await
            }
            Some(Effect::RunChild { call, budget }) if self.child.is_none() => {
                let frozen = self.live.feed.progress().borrow().flow == Flow::Frozen;
                match &self.fence {
                    Fence::Up(_) if !frozen && self.is_acknowledged() => {
                        self.begin_child(call, budget).await
                    }
                    _ => Ok(()),
                }
            }
            Some(Effect::StopChild { call, why }) => self.stop_child(call, why).await,
            _ => Ok(()),
        }
    }

    async fn begin_child(&mut self, call: kernel::CallId, budget: Budget) -> Result<(), Broken> {
        let Some(work) = &self.work else { return Ok(()) };
        let entry =
            work.calls.get(&ids::call(call)).ok_or(Broken::Damaged(Damaged::CallMissing))?;
        let Ok(Delegation { profile, task }) = serde_json::from_slice(&entry.arguments) else {
            let why = Halt::Failed(Reason::of("ARGUMENTS_INVALID"));
            return self.never_begun(call, why).await;
        };
        let (run, descent) = (child_of(call), Descent { parent: work.id(), profile });
        let system = transcript::child(&self.terms.system, profile);
        let prompt = self.terms.child_prompt(budget);
        self.child = Some(Work::new(run, Some(descent)));
        let content = Content::Prompt { system, content: task };
        self.step_on(run, Seen::Prompted(prompt), content).await
    }

    async fn stop_child(&mut self, call: kernel::CallId, why: Halt) -> Result<(), Broken> {
        let Some(child) = &self.child else { return self.never_begun(call, why).await };
        match child.run.status() {
            Status::Stopping { .. } | Status::Ending(_) | Status::Over(_) => Ok(()),
            Status::New
            | Status::Running
            | Status::AwaitingPerson { .. }
            | Status::NeedsOperator { .. } => {
                let seen = match why {
                    Halt::Canceled { by } => Seen::Canceled { by },
                    Halt::Disconnected => Seen::Disconnected,
                    Halt::SessionEnded => Seen::SessionEnded,
                    Halt::Failed(reason) => Seen::Failed { reason },
                    Halt::OverBudget(_) => Seen::Failed { reason: Reason::of("PARENT_ENDED") },
                };
                self.step_on(child.id(), seen, Content::Bare).await
            }
        }
    }

    async fn never_begun(&mut self, call: kernel::CallId, why: Halt) -> Result<(), Broken> {
        let outcome = kernel::Outcome::Halted(why);
        let result = Outcome { error: error(&outcome), ..Outcome::default() };
        let content = Content::Child { usage: Usage::default(), result: Box::new(result) };
        let seen = Seen::ChildEnded { call, used: Budget::default(), outcome };
        self.step(seen, content).await
    }

    async fn child_ended(&mut self, call: kernel::CallId) -> Result<(), Broken> {
        let Some(child) = self.child.take() else { return Ok(()) };
        let Status::Over(outcome) = child.run.status() else { return Ok(()) };
        let (used, outcome) = (child.run.used(), outcome.clone());
        let result =
            Outcome { output: Some(words(&child)), error: error(&outcome), ..Outcome::default() };
        let content = Content::Child { usage: child.usage, result: Box::new(result) };
        self.step(Seen::ChildEnded { call, used, outcome }, content).await
    }
}

/// What its parent is told: a model's words, and marked as that.
fn words(child: &Work) -> serde_json::Value {
    let text = transcript::last_word(&child.messages).unwrap_or_default();
    let used = child.run.used();
    json!({
        "childRunId": child.id().to_string(),
        "profile": child.descent.map(|descent| descent.profile.as_str()),
        "steps": used.steps,
        "toolCalls": used.tool_calls,
        "untrustedText": bound::ends(text, MAX_WORDS),
    })
}

fn error(outcome: &kernel::Outcome) -> Option<ToolError> {
    let error = |code: &str, message: String| Some(ToolError { code: code.to_owned(), message });
    match outcome {
        kernel::Outcome::Completed => None,
        kernel::Outcome::Halted(Halt::OverBudget(metric)) => {
            error("CHILD_OVER_BUDGET", format!("the child used up its {}", metric.as_str()))
        }
        kernel::Outcome::Halted(Halt::Failed(reason)) => {
            error("CHILD_FAILED", format!("the child failed: {reason}"))
        }
        kernel::Outcome::Halted(
            Halt::Canceled { .. } | Halt::Disconnected | Halt::SessionEnded,
        ) => error("CANCELED", "the child was ended along with the run".to_owned()),
    }
}
