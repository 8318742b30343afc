//! One model call from its first mention to its end: checked, recorded, acknowledged, asked once, settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info};
use transport::Chain;

use super::{About, Desk};
use crate::calls::{Attachment, Entered, Runner};
use crate::error::Error;
use crate::owner::{Owner, Terms};
use crate::provider::Provider;
use crate::record::{self, Stream};
use crate::refusal::Refusal;
use crate::store::{Begun, Completion, Start};
use crate::transcript;
use crate::turn::{Answer, Failure, Kind, Outcome, Turn, Usage};

/// How long an effect may wait for the ledger to know of it.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);

/// What a caller of Complete waits for.
pub(crate) enum Reply {
    Attached(Attachment),
    /// The call was not begun, and nothing is kept of it.
    NotBegun(Failure),
}

impl Desk {
    /// Begins a call, attaches to it, or finds what it came to.
    pub(crate) async fn complete(
        self: &Arc<Self>,
        owner: Owner,
        turn: Turn,
    ) -> Result<Reply, Refusal> {
        let about = About::turn(&turn);
        let terms = self.proven(&owner, &about).await?;
        let stream = Stream::Session(owner.session, &terms);
        if terms.grant_exp <= self.clock.unix_seconds() {
            return Err(self.refuse(&owner, stream, &about, Refusal::GrantExpired).await);
        }
        let entered = match self.check(&terms, &turn) {
            Ok(()) => self.calls.enter(turn.call, turn.digest),
            Err(failure) => return self.not_begun(&owner, stream, &about, failure).await,
        };
        match entered {
            Entered::Joined(attachment) => Ok(Reply::Attached(attachment)),
            Entered::First(attachment, runner) => {
                self.tracker.spawn(Arc::clone(self).drive(runner, owner, turn, terms));
                Ok(Reply::Attached(attachment))
            }
            Entered::OtherRequest => {
                self.not_begun(&owner, stream, &about, Failure::new(Kind::CallConflict)).await
            }
        }
    }

    /// What needs no state: the model, and the form of the conversation.
    fn check(&self, terms: &Terms, turn: &Turn) -> Result<(), Failure> {
        if !terms.models.contains(&turn.model) || self.models.get(&turn.model).is_none() {
            return Err(Failure::new(Kind::ModelUnknown));
        }
        transcript::check(turn)
    }

    async fn not_begun(
        &self,
        owner: &Owner,
        stream: Stream<'_>,
        about: &About<'_>,
        failure: Failure,
    ) -> Result<Reply, Refusal> {
        self.record_refused(owner, stream, about, failure.kind.as_str()).await?;
        Ok(Reply::NotBegun(failure))
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
        let provider = self.models.get(&turn.model).ok_or(Refusal::Lost)?;
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
        let kind = match self.store.begin(&start).await? {
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
                return Err(self.refuse(owner, stream, &About::turn(turn), why.into()).await);
            }
        };
        self.record_refused(owner, stream, &About::turn(turn), kind.as_str()).await?;
        Ok(Outcome::Failed(Failure::new(kind)))
    }

    /// The ledger first, then the one request.
    async fn ask(
        &self,
        runner: &Runner,
        provider: &Provider,
        turn: &Turn,
        (reserved, entry): (Usage, i64),
    ) -> Result<Answer, Failure> {
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
        let (name, tokens) = match outcome {
            Outcome::Answered(answer) => ("answered", answer.usage.total()),
            Outcome::Failed(failure) => {
                (failure.kind.as_str(), failure.usage.map_or(0, Usage::total))
            }
        };
        info!(
            call = %turn.call,
            model = turn.model,
            outcome = name,
            tokens,
            took_ms = took.as_millis(),
            "model call ended"
        );
        metrics::counter!("harness_model_calls_total", "outcome" => name).increment(1);
        metrics::histogram!("harness_model_call_seconds").record(took);
        let ids = (turn.call, turn.attempt);
        let entry = record::finished(stream, ids, Some(outcome), took, self.clock.now())?;
        self.store.finish(turn.call, tokens, outcome, &entry).await?;
        self.ledger.wake();
        Ok(())
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
}
