//! What this service does for a session: judge the fence, ask a model at most once per call, and say what became of it.
//! Transport ends before it, and providers begin behind it.

use std::sync::Arc;
use std::time::Duration;

use event::Stage;
use event::id::CallId;
use receipt::Signed;
use tokio::time::Instant;
use tracing::{error, info};
use transport::{Chain, Material, TaskTracker};

use crate::calls::{Attachment, Calls, Ended, Entered, Runner};
use crate::clock::Clock;
use crate::error::Error;
use crate::fence;
use crate::ledger::Ledger;
use crate::models::Models;
use crate::owner::{Owner, Terms};
use crate::provider::Provider;
use crate::record::{self, Refused, Stream, TOOL};
use crate::refusal::Refusal;
use crate::store::{Begun, Completion, Fenced, NoSession, Start, Store};
use crate::transcript;
use crate::turn::{Failure, Kind, Outcome, Turn, Usage};

/// How long an effect may wait for the ledger to know of it.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) material: Arc<Material>,
    pub(crate) models: Models,
    pub(crate) store: Arc<Store>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) clock: Clock,
    pub(crate) tracker: TaskTracker,
}

/// What a caller of Complete waits for.
pub(crate) enum Reply {
    Attached(Attachment),
    /// The call was not begun, and nothing is kept of it.
    NotBegun(Failure),
}

/// Where a call stands.
pub(crate) enum Standing {
    Unknown,
    Running,
    Done(Box<Outcome>),
    InDoubt,
}

impl Desk {
    /// Verifies grant and manifest, raises the fence or renews the grant.
    pub(crate) async fn fence(
        &self,
        owner: &Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Terms, Refusal> {
        let judged =
            fence::judge(&self.material, &self.models, (owner, grant, manifest), self.clock.now());
        let terms = match judged {
            Ok(terms) => terms,
            Err(refusal) => return Err(self.refuse_fence(owner, Stream::Unproven, refusal).await),
        };
        let refusal = match self.store.fence(owner, &terms).await? {
            Fenced::Raised => {
                info!(session = %owner.session, epoch = owner.epoch, "fence raised");
                return Ok(terms);
            }
            Fenced::Renewed => return Ok(terms),
            Fenced::Stale => Refusal::FenceStale,
            Fenced::OtherTerms => Refusal::GrantConflict,
        };
        let proven = Stream::Session(owner.session, &terms);
        Err(self.refuse_fence(owner, proven, refusal).await)
    }

    async fn refuse_fence(&self, owner: &Owner, stream: Stream<'_>, refusal: Refusal) -> Refusal {
        let refused = Refused {
            stage: Stage::Fence,
            call: None,
            claimed_session: &owner.session.to_string(),
            tool: None,
            plan: None,
            reason: transport::Public::reason(&refusal),
        };
        match self.record_refused(stream, refused, &refusal).await {
            Ok(()) => refusal,
            Err(failed) => failed,
        }
    }

    pub(crate) async fn list_models(&self, owner: &Owner) -> Result<Vec<String>, Refusal> {
        Ok(self.proven(owner, &About::nothing(Stage::Plan)).await?.models)
    }

    /// Begins a call, attaches to it, or finds what it came to.
    pub(crate) async fn complete(
        self: &Arc<Self>,
        owner: Owner,
        turn: Turn,
    ) -> Result<Reply, Refusal> {
        let terms = self.proven(&owner, &About::turn(&turn)).await?;
        if terms.grant_exp <= self.clock.unix_seconds() {
            return Err(self
                .refuse(&owner, Some(&terms), &About::turn(&turn), Refusal::GrantExpired)
                .await);
        }
        let granted = terms.models.contains(&turn.model) && self.models.get(&turn.model).is_some();
        let checked = match granted {
            true => transcript::check(&turn),
            false => Err(Failure::new(Kind::ModelUnknown)),
        };
        if let Err(failure) = checked {
            self.record_not_begun(&owner, &terms, &turn, &failure).await?;
            return Ok(Reply::NotBegun(failure));
        }
        match self.calls.enter(turn.call, turn.digest) {
            Entered::Joined(attachment) => Ok(Reply::Attached(attachment)),
            Entered::First(attachment, runner) => {
                self.tracker.spawn(Arc::clone(self).drive(runner, owner, turn, terms));
                Ok(Reply::Attached(attachment))
            }
            Entered::OtherRequest => {
                let failure = Failure::new(Kind::CallConflict);
                self.record_not_begun(&owner, &terms, &turn, &failure).await?;
                Ok(Reply::NotBegun(failure))
            }
        }
    }

    /// To the end, whoever waits: what was begun is settled and recorded.
    async fn drive(self: Arc<Self>, runner: Runner, owner: Owner, turn: Turn, terms: Terms) {
        let ended = match self.run(&runner, &owner, &turn, &terms).await {
            Ok(outcome) => Ok(Arc::new(outcome)),
            Err(refusal) => Err(Arc::new(refusal)),
        };
        runner.end(ended);
    }

    async fn run(
        &self,
        runner: &Runner,
        owner: &Owner,
        turn: &Turn,
        terms: &Terms,
    ) -> Result<Outcome, Refusal> {
        let Some(provider) = self.models.get(&turn.model) else { return Err(Refusal::Lost) };
        let stream = Stream::Session(owner.session, terms);
        let need = provider.need(turn);
        let start = Start {
            owner,
            run: turn.run,
            call: turn.call,
            attempt: turn.attempt,
            request: turn.digest,
            need,
            entry: &record::started(stream, turn, self.clock.now())?,
        };
        let not_begun = match self.store.begin(&start).await? {
            Begun::Now { output, entry } => {
                runner.running();
                let began = Instant::now();
                let reserved = Usage { prompt: need.input, completion: output, estimated: true };
                let asked = self.ask(runner, provider, turn, (reserved, entry)).await;
                let outcome = asked.map_or_else(Outcome::Failed, Outcome::Answered);
                self.settle(stream, turn, &outcome, began.elapsed()).await?;
                return Ok(outcome);
            }
            Begun::Before(Completion::Done(outcome)) => return Ok(*outcome),
            // Its process ended before its answer came; what it holds of the budget it keeps.
            Begun::Before(Completion::Requested | Completion::InDoubt) => {
                return Ok(Outcome::Failed(Failure::new(Kind::InDoubt)));
            }
            Begun::OtherRequest => Kind::CallConflict,
            Begun::OverBudget => Kind::BudgetExceeded,
            Begun::NoSession(why) => {
                return Err(self.refuse(owner, Some(terms), &About::turn(turn), why.into()).await);
            }
        };
        let failure = Failure::new(not_begun);
        self.record_not_begun(owner, terms, turn, &failure).await?;
        Ok(Outcome::Failed(failure))
    }

    /// The ledger first, then the one request.
    async fn ask(
        &self,
        runner: &Runner,
        provider: &Provider,
        turn: &Turn,
        (reserved, entry): (Usage, i64),
    ) -> Result<crate::turn::Answer, Failure> {
        let acknowledged = tokio::select! {
            acknowledged = self.ledger.acknowledged(entry, ACKNOWLEDGE) => acknowledged,
            () = runner.cancel().cancelled() => return Err(Failure::new(Kind::Aborted)),
        };
        if let Err(why) = acknowledged {
            error!(error = %Chain(&why), call = %turn.call, "model call not begun");
            return Err(Failure::new(Kind::AuditUnavailable));
        }
        if self.clock.unix_millis() >= turn.start_before_ms {
            return Err(Failure::new(Kind::StartTooLate));
        }
        tokio::select! {
            answer = provider.complete(turn, reserved.prompt, reserved.completion) => answer,
            () = runner.cancel().cancelled() => Err(Failure::new(Kind::Aborted).billed(reserved)),
        }
    }

    async fn settle(
        &self,
        stream: Stream<'_>,
        turn: &Turn,
        outcome: &Outcome,
        took: Duration,
    ) -> Result<(), Refusal> {
        let (kind, tokens) = match outcome {
            Outcome::Answered(answer) => ("answered", answer.usage.total()),
            Outcome::Failed(failure) => {
                (failure.kind.as_str(), failure.usage.map_or(0, Usage::total))
            }
        };
        info!(call = %turn.call, model = turn.model, outcome = kind, tokens, took_ms = took.as_millis(), "model call ended");
        metrics::counter!("harness_model_calls_total", "outcome" => kind).increment(1);
        metrics::histogram!("harness_model_call_seconds").record(took);
        let ids = (turn.call, turn.attempt);
        let entry = record::finished(stream, ids, Some(outcome), took, self.clock.now())?;
        self.store.finish(turn.call, tokens, outcome, &entry).await?;
        self.ledger.wake();
        Ok(())
    }

    pub(crate) async fn standing(&self, owner: &Owner, call: CallId) -> Result<Standing, Refusal> {
        self.proven(owner, &About { call: Some(call), ..About::nothing(Stage::Execute) }).await?;
        let found = self.store.completion(owner.session, call).await?;
        let found = match found {
            // A call is open from before its row is written until after it is settled.
            Some(Completion::Requested) if self.calls.is_open(call) => {
                return Ok(Standing::Running);
            }
            Some(Completion::Requested) => self.store.completion(owner.session, call).await?,
            other => other,
        };
        Ok(match found {
            None => Standing::Unknown,
            Some(Completion::Done(outcome)) => Standing::Done(outcome),
            Some(Completion::Requested | Completion::InDoubt) => Standing::InDoubt,
        })
    }

    /// No remote tool server can be configured, so no name is one of theirs.
    pub(crate) async fn refuse_tool(
        &self,
        owner: &Owner,
        about: &About<'_>,
    ) -> Result<&'static str, Refusal> {
        const UNKNOWN: &str = "TOOL_UNKNOWN";
        let terms = self.proven(owner, about).await?;
        let stream = Stream::Session(owner.session, &terms);
        let session = owner.session.to_string();
        let entry = record::refused(stream, about.refused(&session, UNKNOWN), self.clock.now())?;
        self.store.enqueue(&entry).await?;
        self.ledger.wake();
        Ok(UNKNOWN)
    }

    /// Every call that the last process left without an outcome: nobody knows, and the ledger is told so.
    pub(crate) async fn doubt_interrupted(&self) -> Result<(), Error> {
        for (interrupted, terms) in self.store.interrupted().await? {
            let stream = Stream::Session(interrupted.session, &terms);
            let ids = (interrupted.call, interrupted.attempt);
            let entry = record::finished(stream, ids, None, Duration::ZERO, self.clock.now())?;
            self.store.doubt(interrupted.call, &entry).await?;
        }
        self.ledger.wake();
        Ok(())
    }

    /// The session's terms when this owner is the present one.
    async fn proven(&self, owner: &Owner, about: &About<'_>) -> Result<Terms, Refusal> {
        match self.store.session(owner).await? {
            Ok(terms) => Ok(terms),
            Err((why, terms)) => Err(self.refuse(owner, terms.as_ref(), about, why.into()).await),
        }
    }

    async fn refuse(
        &self,
        owner: &Owner,
        terms: Option<&Terms>,
        about: &About<'_>,
        refusal: Refusal,
    ) -> Refusal {
        let stream = match terms {
            Some(terms) => Stream::Session(owner.session, terms),
            None => Stream::Unproven,
        };
        let session = owner.session.to_string();
        let refused = about.refused(&session, transport::Public::reason(&refusal));
        match self.record_refused(stream, refused, &refusal).await {
            Ok(()) => refusal,
            Err(failed) => failed,
        }
    }

    async fn record_refused(
        &self,
        stream: Stream<'_>,
        refused: Refused<'_>,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        if refusal.is_recorded() {
            let entry = record::refused(stream, refused, self.clock.now())?;
            self.store.enqueue(&entry).await?;
            self.ledger.wake();
        }
        Ok(())
    }

    async fn record_not_begun(
        &self,
        owner: &Owner,
        terms: &Terms,
        turn: &Turn,
        failure: &Failure,
    ) -> Result<(), Refusal> {
        let stream = Stream::Session(owner.session, terms);
        let session = owner.session.to_string();
        let refused = About::turn(turn).refused(&session, failure.kind.as_str());
        let entry = record::refused(stream, refused, self.clock.now())?;
        self.store.enqueue(&entry).await?;
        self.ledger.wake();
        Ok(())
    }
}

/// What a request is about, for the record of its refusal.
#[derive(Debug, Clone)]
pub(crate) struct About<'a> {
    pub(crate) stage: Stage,
    pub(crate) call: Option<CallId>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) plan: Option<event::Digest>,
}

impl<'a> About<'a> {
    fn nothing(stage: Stage) -> Self {
        Self { stage, call: None, tool: None, plan: None }
    }

    fn turn(turn: &Turn) -> Self {
        Self {
            stage: Stage::Execute,
            call: Some(turn.call),
            tool: Some(TOOL),
            plan: Some(turn.digest),
        }
    }

    fn refused(&self, claimed_session: &'a str, reason: &'a str) -> Refused<'a> {
        let Self { stage, call, tool, plan } = self.clone();
        Refused { stage, call, claimed_session, tool, plan, reason }
    }
}

impl From<NoSession> for Refusal {
    fn from(why: NoSession) -> Self {
        match why {
            NoSession::Unknown => Self::SessionUnknown,
            NoSession::Stale => Self::FenceStale,
        }
    }
}

/// Waits for the end of a call that was begun.
pub(crate) async fn ended(mut attachment: Attachment) -> Ended {
    attachment.outcome().await
}
