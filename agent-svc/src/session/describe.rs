//! What kernel facts mean in the catalogue and in the database. It words decisions and never makes one.

mod call;
mod permission;

use event::id::{CallId, EventId, ReceiptId};
use event::{
    Actor, ActorKind, AgentStarted, AgentStatus, AgentStopped, BudgetMetric, BudgetWarning, Data,
    Event, Executor, Failure, FinishReason, ModelRequest, ModelResponse, SealError, TaskPhase,
    TaskUpdated,
};
use kernel::{Fact, Halt, Metric, ModelEnd};
use proto::model::v1::Message;
use time::OffsetDateTime;

use super::content::{Answer, Content};
use crate::outcome::{Ending, Outcome, Usage};
use crate::peers::Offers;
use crate::store::{Append, Change, Entry, Session, State};
use crate::work::{Call, Descent, Work};
use crate::{ids, transcript};

/// Everything about a step but what it decided.
pub(crate) struct Scene<'a> {
    pub(crate) session: &'a Session,
    /// As it was before the step.
    pub(crate) work: &'a Work,
    pub(crate) offers: Option<&'a Offers>,
    pub(crate) content: &'a Content,
    /// What stands for an allow for the run that the step uses.
    pub(crate) standing: Option<ReceiptId>,
    pub(crate) at: OffsetDateTime,
}

/// `after` is the run after all of `facts`.
pub(crate) fn describe(
    scene: &Scene<'_>,
    facts: &[kernel::Event],
    after: &kernel::Run,
) -> Result<Append, SealError> {
    let mut draft = Draft { scene, after, append: Append::new(scene.at.into()) };
    // An end whose beginning the stream does not tell would say nothing.
    if let Content::Result(result) = scene.content
        && let Some(stopped) = &result.stopped
        && scene
            .work
            .calls
            .get(&stopped.call_id)
            .is_some_and(|call| call.announced == stopped.attempt)
    {
        draft.event(service(Executor::SandboxSvc), stopped.clone())?;
    }
    for event in facts {
        draft.fact(&event.fact)?;
    }
    Ok(draft.append)
}

/// An event that no kernel fact stands behind.
pub(crate) fn entry(at: OffsetDateTime, actor: Actor, data: Data) -> Result<Entry, SealError> {
    let id = EventId::new();
    let sealed = event::seal(&Event { id, at, actor: Some(actor), data })?;
    Ok(Entry { id, sealed })
}

pub(crate) fn actor(kind: ActorKind) -> Actor {
    Actor { kind, id: None }
}

pub(crate) fn operator(subject: &str) -> Actor {
    Actor { kind: ActorKind::Operator, id: Some(subject.to_owned()) }
}

pub(crate) fn service(executor: Executor) -> Actor {
    Actor { kind: ActorKind::Service, id: Some(executor.as_str().to_owned()) }
}

struct Draft<'a> {
    scene: &'a Scene<'a>,
    after: &'a kernel::Run,
    append: Append,
}

impl Draft<'_> {
    /// Adds an event and returns its index.
    fn event(&mut self, actor: Actor, data: impl Into<Data>) -> Result<usize, SealError> {
        self.append.entries.push(entry(self.scene.at, actor, data.into())?);
        Ok(self.append.entries.len() - 1)
    }

    fn change(&mut self, change: Change) {
        self.append.changes.push(change);
    }

    fn agent_id(&self) -> String {
        self.scene.work.id().to_string()
    }

    fn agent(&self) -> Actor {
        Actor { kind: ActorKind::Agent, id: Some(self.agent_id()) }
    }

    /// The call, also when it came up in this very step.
    fn call(&self, id: CallId) -> Option<&Call> {
        let new = self.append.changes.iter().find_map(|change| match change {
            Change::Called { id: new, call } if *new == id => Some(call),
            _ => None,
        });
        new.or_else(|| self.scene.work.calls.get(&id))
    }

    fn message_count(&self) -> usize {
        let new = self.append.changes.iter().filter(|change| matches!(change, Change::Said(_)));
        self.scene.work.messages.len() + new.count()
    }

    fn fact(&mut self, fact: &Fact) -> Result<(), SealError> {
        match fact {
            Fact::Started { .. } => self.started(),
            Fact::EnvironmentFailed { reason } => {
                self.failure("environment", reason.as_str(), false)
            }
            Fact::ModelAsked { call, .. } => self.model_asked(ids::call(*call)),
            Fact::ModelEnded { call, end, .. } => self.model_ended(ids::call(*call), end),
            Fact::CallStarted { call } => self.call_started(ids::call(*call)),
            Fact::CallPlanned { .. } => self.call_planned(),
            Fact::PermissionRequested { permission, call, expires_at } => self
                .permission_requested(ids::permission(*permission), ids::call(*call), *expires_at),
            Fact::PermissionResolved { permission, resolution } => {
                self.permission_resolved(ids::permission(*permission), resolution)
            }
            Fact::CallRetried { call, .. } => {
                self.change(Change::Retried(ids::call(*call)));
                Ok(())
            }
            Fact::OutcomeUnknown { call, attempt, reason } => {
                self.outcome_unknown(ids::call(*call), *attempt, reason)
            }
            Fact::OperatorDecided { .. } => {
                self.change(Change::Entered(State::Running));
                Ok(())
            }
            Fact::Delegated { .. } => Ok(()),
            Fact::ChildEnded { .. } => {
                if let Content::Child { usage, .. } = self.scene.content {
                    self.change(Change::Spent(*usage));
                }
                Ok(())
            }
            Fact::CallEnded { call, end } => self.call_ended(ids::call(*call), end),
            Fact::BudgetWarned { metric, used, limit } => {
                self.budget_warned(*metric, *used, *limit)
            }
            Fact::Halted { why: Halt::Failed(reason) } => {
                self.failure("run", reason.as_str(), false)
            }
            Fact::Ended { outcome } => self.ended(outcome),
            Fact::EnvironmentClosed => {
                if self.scene.work.descent.is_none() {
                    self.change(Change::Entered(State::Done));
                }
                Ok(())
            }
            Fact::EnvironmentOpened => self.environment_opened(),
            Fact::GrantUsed { permission, .. } => {
                self.change(Change::Used(ids::permission(*permission)));
                Ok(())
            }
            Fact::GrantRefused { call, permission, reason, .. } => {
                self.grant_refused(ids::call(*call), ids::permission(*permission), reason);
                Ok(())
            }
            Fact::GrantRevoked { .. } | Fact::Halted { .. } => Ok(()),
        }
    }

    fn started(&mut self) -> Result<(), SealError> {
        let descent = self.scene.work.descent;
        let began = Change::Began { run: self.scene.work.id(), descent };
        let who = match self.scene.content {
            Content::Prompt { system, content } => {
                self.change(began);
                self.change(Change::Said(system.clone()));
                self.change(Change::Said(transcript::user(content.clone())));
                actor(ActorKind::Kernel)
            }
            Content::Given { by, id, call } => {
                self.change(began);
                self.change(Change::Called { id: *id, call: call.as_ref().clone() });
                operator(by)
            }
            _ => return Ok(()),
        };
        self.change(Change::Entered(State::Running));
        let started = AgentStarted {
            agent_id: self.agent_id(),
            session_id: self.scene.session.owner.session,
            parent_run_id: descent.map(|descent| descent.parent),
            profile: descent.map(|descent| descent.profile.to_string()),
            task_id: Some(self.scene.session.manifest_id.clone()),
            model: self.scene.session.model.clone(),
        };
        self.event(who, started)?;
        Ok(())
    }

    /// What the copy lacks is told to whoever reads along, and to the model before its first turn.
    fn environment_opened(&mut self) -> Result<(), SealError> {
        let Content::Copied(withheld) = self.scene.content else { return Ok(()) };
        self.change(Change::Said(transcript::user(withheld.context())));
        if self.scene.work.descent.is_some() {
            return Ok(());
        }
        let updated = TaskUpdated {
            task_id: self.scene.session.manifest_id.clone(),
            phase: TaskPhase::Running,
            note: Some(withheld.note()),
        };
        self.event(actor(ActorKind::Kernel), updated)?;
        Ok(())
    }

    fn model_asked(&mut self, call: CallId) -> Result<(), SealError> {
        let request = ModelRequest {
            request_id: call.to_string(),
            model: self.scene.session.model.clone(),
            message_count: u32::try_from(self.message_count()).unwrap_or(u32::MAX),
        };
        self.event(actor(ActorKind::Kernel), request)?;
        Ok(())
    }

    fn model_ended(&mut self, call: CallId, end: &ModelEnd) -> Result<(), SealError> {
        match self.scene.content {
            Content::Answer(answer) => self.answered(call, answer)?,
            Content::NoAnswer { usage, .. } => self.change(Change::Spent(*usage)),
            _ => (),
        }
        let retryable = matches!(self.scene.content, Content::NoAnswer { retryable: true, .. });
        match end {
            ModelEnd::Stop | ModelEnd::Calls(_) | ModelEnd::Length | ModelEnd::Error => Ok(()),
            ModelEnd::OverBudget => self.failure("model", "BUDGET_EXCEEDED", false),
            ModelEnd::Failed(reason) => self.failure("model", reason.as_str(), retryable),
            ModelEnd::Lost => self.failure("model", kernel::Reason::MODEL_LOST.as_str(), true),
        }
    }

    fn answered(&mut self, call: CallId, answer: &Answer) -> Result<(), SealError> {
        let Answer { model, finish, text, calls, opaque, usage } = answer;
        self.change(Change::Spent(*usage));
        self.change(Change::Said(assistant(text, calls, opaque)));
        if *finish == FinishReason::ToolCalls {
            for (id, proposed) in calls {
                let call = Call {
                    provider_id: proposed.provider_id.clone(),
                    tool: proposed.name.clone(),
                    arguments: proposed.arguments.clone(),
                    executor: self.executor(&proposed.name),
                    announced: 0,
                    output: crate::work::Output::default(),
                    uncounted: None,
                };
                self.change(Change::Called { id: *id, call });
            }
        }
        let response = ModelResponse {
            request_id: call.to_string(),
            model: model.clone(),
            finish_reason: *finish,
            usage: total(*usage),
            text: (!text.is_empty()).then(|| text.clone()),
        };
        self.event(self.agent(), response)?;
        Ok(())
    }

    /// Who executes this tool. What a child may not do at sandbox-svc is refused there; no remote tool is a child's.
    fn executor(&self, tool: &str) -> Option<Executor> {
        let executor = self.scene.offers.and_then(|offers| offers.executor(tool));
        executor.filter(|executor| {
            self.scene.work.descent.is_none() || *executor == Executor::SandboxSvc
        })
    }

    fn failure(&mut self, stage: &str, code: &str, retryable: bool) -> Result<(), SealError> {
        let failure = Failure {
            task_id: None,
            session_id: Some(self.scene.session.owner.session),
            run_id: Some(self.scene.work.id()),
            stage: Some(stage.to_owned()),
            code: code.to_owned(),
            message: match self.scene.content {
                Content::Detail(detail) => detail.clone(),
                Content::NoAnswer { reply: Some(reply), .. } => reply.to_string(),
                _ => format!("the {stage} failed"),
            },
            retryable: Some(retryable),
        };
        self.event(actor(ActorKind::Kernel), failure)?;
        Ok(())
    }

    fn budget_warned(&mut self, metric: Metric, used: u64, limit: u64) -> Result<(), SealError> {
        // The event does not say whose budget it is: it is that of the session's run, which a child's use counts against.
        if self.scene.work.descent.is_some() {
            return Ok(());
        }
        let metric = match metric {
            Metric::Steps => BudgetMetric::Steps,
            Metric::ToolCalls => BudgetMetric::ToolCalls,
            Metric::Tokens => BudgetMetric::Tokens,
            // The catalogue has no name for it.
            Metric::WallTime => return Ok(()),
        };
        let pct = used.saturating_mul(100) / limit.max(1);
        let warning = BudgetWarning {
            task_id: Some(self.scene.session.manifest_id.clone()),
            metric,
            used,
            limit,
            pct: u32::try_from(pct).unwrap_or(u32::MAX),
        };
        self.event(actor(ActorKind::Kernel), warning)?;
        Ok(())
    }

    fn ended(&mut self, outcome: &kernel::Outcome) -> Result<(), SealError> {
        let used = self.after.used();
        let outcome = Outcome {
            run: Some(self.scene.work.id()),
            ending: self.ending(outcome),
            usage: self.usage(),
            steps: u32::try_from(used.steps).unwrap_or(u32::MAX),
            tool_calls: u32::try_from(used.tool_calls).unwrap_or(u32::MAX),
        };
        let stopped = stopped(self.agent_id(), &outcome);
        if let Some(Descent { parent, .. }) = self.scene.work.descent {
            let stopped = AgentStopped { parent_run_id: Some(parent), ..stopped };
            self.event(actor(ActorKind::Kernel), stopped)?;
            self.change(Change::Over);
            return Ok(());
        }
        self.event(actor(ActorKind::Kernel), stopped)?;
        self.change(Change::Entered(State::Closing));
        self.change(Change::Ended(outcome));
        Ok(())
    }

    /// It does not pass the catalogue's gate, so its words are redacted here.
    fn ending(&self, outcome: &kernel::Outcome) -> Ending {
        let canceled = |note: String| Ending::Canceled { note };
        match outcome {
            kernel::Outcome::Completed => {
                let word = self.append.changes.iter().rev().find_map(|change| match change {
                    Change::Said(message) => transcript::last_word(std::slice::from_ref(message)),
                    _ => None,
                });
                let word = word.or_else(|| transcript::last_word(&self.scene.work.messages));
                Ending::Completed { final_text: event::redact::text(word.unwrap_or_default()) }
            }
            kernel::Outcome::Halted(Halt::Canceled { by }) => canceled(format!("canceled by {by}")),
            kernel::Outcome::Halted(Halt::Disconnected) => {
                canceled("the last client left".to_owned())
            }
            kernel::Outcome::Halted(Halt::SessionEnded) => canceled("the session ended".to_owned()),
            kernel::Outcome::Halted(Halt::OverBudget(metric)) => {
                Ending::BudgetExceeded { metric: metric.as_str().to_owned() }
            }
            kernel::Outcome::Halted(Halt::Failed(reason)) => Ending::Failed {
                reason: reason.as_str().to_owned(),
                note: match self.scene.content {
                    Content::Detail(detail) => event::redact::text(detail),
                    Content::NoAnswer { reply: Some(reply), .. } => {
                        event::redact::text(&reply.to_string())
                    }
                    _ => String::new(),
                },
            },
        }
    }

    /// What the run has used, this step included.
    fn usage(&self) -> Usage {
        let mut usage = self.scene.work.usage;
        for change in &self.append.changes {
            if let Change::Spent(spent) = change {
                usage.prompt_tokens = usage.prompt_tokens.saturating_add(spent.prompt_tokens);
                usage.completion_tokens =
                    usage.completion_tokens.saturating_add(spent.completion_tokens);
            }
        }
        usage
    }
}

pub(crate) fn stopped(agent_id: String, outcome: &Outcome) -> AgentStopped {
    let (status, note) = match &outcome.ending {
        Ending::Completed { .. } => (AgentStatus::Completed, None),
        Ending::Failed { reason, .. } => (AgentStatus::Failed, Some(reason.clone())),
        Ending::Canceled { note } => (AgentStatus::Canceled, Some(note.clone())),
        Ending::BudgetExceeded { metric } => (AgentStatus::BudgetExceeded, Some(metric.clone())),
    };
    AgentStopped {
        agent_id,
        parent_run_id: None,
        status,
        steps: outcome.steps,
        tool_calls: outcome.tool_calls,
        note,
    }
}

fn assistant(text: &str, calls: &[(CallId, proto::model::v1::ToolCall)], opaque: &[u8]) -> Message {
    let calls = calls.iter().map(|(_, call)| call.clone()).collect();
    transcript::assistant(text.to_owned(), calls, opaque.to_vec())
}

fn total(usage: Usage) -> event::Usage {
    let Usage { prompt_tokens, completion_tokens } = usage;
    let total_tokens = prompt_tokens.saturating_add(completion_tokens);
    event::Usage { prompt_tokens, completion_tokens, total_tokens }
}
