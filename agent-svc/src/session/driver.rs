//! One session's loop: decide, record, apply, perform what is due. It alone writes its session's run, and it performs
//! nothing before what led to it is acknowledged.

mod absence;
mod child;
mod command;
mod people;
mod perform;
mod step;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kernel::{Key, Reason, Seen};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;
use transport::{CancellationToken, Fault};

use super::content::Content;
use super::errand::Report;
use crate::clock::Millis;
use crate::feed::Flow;
use crate::live::{Command, Live};
use crate::peers::Offers;
use crate::permission::Standing;
use crate::runtime::Runtime;
use crate::store::{self, Session, State};
use crate::terms::Terms;
use crate::work::{Damaged, Work};

const REPORTS: usize = 32;

pub(super) struct Driver {
    runtime: Arc<Runtime>,
    live: Arc<Live>,
    session: Session,
    terms: Terms,
    /// Absent before the first prompt.
    work: Option<Work>,
    /// The run that the session's run has begun and waits for.
    child: Option<Work>,
    fence: Fence,
    /// The executors have taken this owner before.
    is_known: bool,
    /// No effect before this is acknowledged.
    gate: Option<u64>,
    /// Effects whose executor may know them from an earlier process.
    inherited: HashSet<Key>,
    running: HashMap<Key, AbortHandle>,
    /// Tells the execution under way that it is being stopped.
    stop: CancellationToken,
    errands: JoinSet<()>,
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
    /// When this driver began to wait for somebody who can answer.
    waiting_since: Millis,
    /// An expiry that waits for a claimed allow is looked at again then.
    lease_ends: Option<Millis>,
    ended_at: Option<Millis>,
    published: bool,
}

/// Whether the executors know this owner.
enum Fence {
    /// They are being told.
    Raising(AbortHandle),
    /// They are told as soon as the grant is renewed. Until then only what ends something is done, which needs no grant:
    /// by those who `know` this owner from before.
    Lapsed {
        errand: AbortHandle,
        know: bool,
    },
    Up(Offers),
    /// They will not have the session any more.
    Refused(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to do, not even to be acknowledged.
    Over,
    /// The process stops.
    Stopped,
}

/// Why a driver cannot go on; another one starts from what is recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the step could not be stored")]
    Store(#[source] store::Error),
    #[error("the record is damaged")]
    Damaged(#[source] Damaged),
    #[error("the record cannot be written")]
    Unwritable(#[source] kernel::record::Unwritable),
    #[error("the stored manifest is not one any more")]
    Manifest(#[source] manifest::Faults),
    #[error("an event of the step cannot be sealed")]
    Seal(#[source] event::SealError),
    #[error("an errand panicked")]
    Errand(#[source] tokio::task::JoinError),
    #[error("an executor has seen a later owner")]
    Stale,
    /// It might still be begun by a request of this owner; a later owner can be sure.
    #[error("a call was lost sight of while it was being stopped")]
    LostSight,
}

impl Broken {
    /// Whether the next driver would read the same and break the same way.
    pub(super) fn is_for_good(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Manifest(_) => true,
            Self::Store(cause) => cause.is_damage(),
            Self::Unwritable(_)
            | Self::Seal(_)
            | Self::Errand(_)
            | Self::Stale
            | Self::LostSight => false,
        }
    }
}

impl Driver {
    /// What the session is according to its record. Without `offers` the executors are fenced first.
    pub(super) async fn recover(
        runtime: Arc<Runtime>,
        live: Arc<Live>,
        session: Session,
        terms: Terms,
        offers: Option<Offers>,
    ) -> Result<Self, Broken> {
        let work = match session.run {
            Some(run) => {
                let journal = runtime.store.journal(run).await.map_err(Broken::Store)?;
                Some(Work::recover(run, journal).map_err(Broken::Damaged)?)
            }
            None => None,
        };
        let child = child::recover(&runtime, work.as_ref()).await?;
        let works = work.iter().chain(&child);
        let inherited = works.flat_map(|work| work.run.due()).map(|effect| effect.key()).collect();
        let now = runtime.clock.millis();
        let mut driver = Self {
            gate: session.last_seq,
            waiting_since: now,
            ended_at: session.outcome.is_some().then_some(now),
            work,
            child,
            inherited,
            session,
            terms,
            fence: Fence::Refused(Reason::of("NOT_FENCED")),
            is_known: offers.is_some(),
            running: HashMap::new(),
            stop: CancellationToken::new(),
            errands: JoinSet::new(),
            reports: mpsc::channel(REPORTS),
            lease_ends: None,
            published: false,
            runtime,
            live,
        };
        driver.fence = offers.map_or_else(|| driver.raise_fence(), Fence::Up);
        Ok(driver)
    }

    pub(super) async fn drive(
        mut self,
        inbox: &mut mpsc::Receiver<Command>,
    ) -> Result<End, Broken> {
        let mut presence = self.live.presence();
        let mut progress = self.live.feed.progress();
        let shutdown = self.runtime.shutdown.clone();
        let live = Arc::clone(&self.live);
        self.fold_answers().await?;
        loop {
            self.look_for_somebody().await?;
            self.tend_child().await?;
            self.perform()?;
            self.publish();
            if self.is_over() {
                return Ok(End::Over);
            }
            let (clock, wake) = (self.runtime.clock.clone(), self.wake_at());
            tokio::select! {
                () = shutdown.cancelled() => return Ok(End::Stopped),
                Some(command) = inbox.recv() => self.command(command).await?,
                Some(report) = self.reports.1.recv() => self.report(report).await?,
                () = live.answered.notified() => self.fold_answers().await?,
                Ok(()) = progress.changed() => self.look_at_ledger().await?,
                Ok(()) = presence.changed() => (),
                Some(Err(cause)) = self.errands.join_next() => {
                    if cause.is_panic() {
                        return Err(Broken::Errand(cause));
                    }
                }
                () = clock.until(wake) => self.on_time().await?,
            }
        }
    }

    /// The row decides what the answer to an ask is; here the run learns of it.
    async fn fold_answers(&mut self) -> Result<(), Broken> {
        self.forget_revoked().await?;
        let Some(ask) = self.front().and_then(|work| work.ask.as_ref()) else {
            return Ok(());
        };
        let (session, id, run) = (self.session.owner.session, ask.id, ask.run);
        self.tell_counted(id).await?;
        let found = self.runtime.store.permission(session, id).await.map_err(Broken::Store)?;
        let Some(permission) = found.filter(|permission| permission.resolved_seq.is_none()) else {
            return Ok(());
        };
        match step::answer(&permission) {
            Some((seen, content)) => match self.record(run, seen.clone(), &content).await {
                // The answer stands, whatever was noted with it.
                Err(Broken::Seal(_)) => {
                    self.record(run, seen, &Content::Standing { note: None }).await
                }
                other => other,
            },
            None => {
                self.lease_ends = match permission.standing {
                    Standing::Leased { until, .. } => Some(until),
                    _ => None,
                };
                Ok(())
            }
        }
    }

    async fn look_at_ledger(&mut self) -> Result<(), Broken> {
        let frozen = self.live.feed.progress().borrow().flow == Flow::Frozen;
        if frozen && self.work.is_some() {
            let reason = Reason::of("AUDIT_REFUSED");
            self.step(Seen::Failed { reason }, Content::Bare).await?;
        }
        Ok(())
    }

    async fn on_time(&mut self) -> Result<(), Broken> {
        let now = self.runtime.clock.millis();
        let unprompted = self.work.is_none() && self.session.outcome.is_none();
        if unprompted && now >= self.session.created_at.plus(self.runtime.spans.prompt) {
            return self.end_without_run("no prompt came in time".to_owned()).await;
        }
        let due = self.front().and_then(|work| work.run.deadline()).map(step::millis);
        if due.is_some_and(|due| due <= now) {
            // A claimed allow holds the expiry up, and an answer that is there already comes first.
            self.fold_answers().await?;
            if self.lease_ends.is_none_or(|ends| ends <= now) {
                self.lease_ends = None;
                if let Some(run) = self.front().map(Work::id) {
                    self.step_on(run, Seen::Tick, Content::Bare).await?;
                }
            }
        }
        Ok(())
    }

    /// When something is due that nobody will tell.
    fn wake_at(&self) -> Option<Millis> {
        let spans = &self.runtime.spans;
        let prompt = (self.work.is_none() && self.session.outcome.is_none())
            .then(|| self.session.created_at.plus(spans.prompt));
        let deadline = self.front().and_then(|work| work.run.deadline()).map(step::millis);
        let deadline = deadline.map(|at| self.lease_ends.map_or(at, |ends| ends.max(at)));
        let publish = self.ended_at.filter(|_| !self.published).map(|at| at.plus(spans.closing));
        let stop = self.lease_ends.filter(|_| self.must_stop_child());
        [prompt, deadline, publish, stop, self.absent_at()].into_iter().flatten().min()
    }

    /// Tells subscribers how it ended: once the environment is closed, or after a while without that.
    fn publish(&mut self) {
        let (Some(ended_at), Some(outcome)) = (self.ended_at, &self.session.outcome) else {
            return;
        };
        let late = self.runtime.clock.millis() >= ended_at.plus(self.runtime.spans.closing);
        if !self.published && (late || self.session.state == State::Done) {
            self.live.feed.end(self.session.last_seq, outcome.clone());
            self.published = true;
        }
    }

    fn is_over(&self) -> bool {
        let feed = self.live.feed.progress();
        let progress = feed.borrow();
        self.session.state == State::Done
            && (progress.through >= self.session.last_seq || progress.flow == Flow::Frozen)
    }

    async fn fence_refused(
        &mut self,
        executor: receipt::Executor,
        fault: Fault,
    ) -> Result<(), Broken> {
        error!(
            session = %self.session.owner.session,
            executor = executor.as_str(),
            reason = fault.reason,
            "session is refused"
        );
        let reason = super::errand::reason(&fault);
        self.fence = Fence::Refused(reason.clone());
        if self.work.is_some() {
            self.step(Seen::Failed { reason }, Content::Detail(fault.message)).await?;
        }
        Ok(())
    }
}
