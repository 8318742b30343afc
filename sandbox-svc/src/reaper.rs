//! At the start and every half minute: calls without a proven end are tried again, copies whose grant ran
//! out long ago are closed, and what is ours and belongs to nothing that lives is removed. Nothing is ours by name; foreign containers are never touched.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use event::id::SessionId;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};
use transport::{CancellationToken, Chain, Readiness};

use crate::engine::{Docker, Handle};
use crate::error::Error;
use crate::exec::{INSTANCE_LABEL, LEASE_LABEL, OWNER, OWNER_LABEL, Unsettled};
use crate::sandbox::Sandbox;
use crate::server;
use crate::session::now_secs;
use crate::store::EnvironmentState;
use crate::warm::LONGEST_IDLE;

/// The readiness condition.
pub(crate) const CONDITION: &str = "engine";
const EVERY: Duration = Duration::from_secs(30);
/// How soon a call without a proven end is tried again.
const SOON: Duration = Duration::from_secs(2);
const AT_THE_END: Duration = Duration::from_millis(200);

impl Sandbox {
    pub(crate) async fn reconcile_forever(
        self: Arc<Self>,
        ready: Readiness,
        stop: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => (),
                () = self.unsettled.notified() => {
                    tokio::time::sleep(SOON).await;
                    self.told(self.retry_calls().await);
                    continue;
                }
                () = stop.cancelled() => return self.settle_before_the_end().await,
            }
            if let Some(engine) = &self.engine {
                ready.set(CONDITION, engine.ping().await.is_ok());
            }
            self.told(self.reconcile().await);
        }
    }

    /// Every call is canceled by then; each is tried again until its end is proven. The process bounds it.
    async fn settle_before_the_end(self: &Arc<Self>) {
        self.cool_all().await;
        self.end_all_servers().await;
        while !self.is_idle() {
            tokio::time::sleep(AT_THE_END).await;
            self.told(self.retry_calls().await);
        }
    }

    /// Whatever it was, it is tried again.
    fn told(&self, done: Result<(), Error>) {
        if let Err(error) = done {
            warn!(error = %Chain(&error), "leftovers could not be looked for");
        }
    }

    fn told_of(&self, done: Result<(), Unsettled>) {
        if let Err(error) = done {
            warn!(error = %Chain(&error), "a tool server is not proven to be gone");
        }
    }

    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<(), Error> {
        self.retry_calls().await?;
        self.cool_older(LONGEST_IDLE).await;
        self.told_of(self.end_idle_servers(server::LONGEST_IDLE).await);
        self.told_of(self.settle_servers(|_| true).await);
        if let Some(engine) = &self.engine {
            self.remove_stray_containers(engine).await?;
        }
        self.undo.sweep(&self.store, 0).await?;
        self.sweep_environments(now_secs()).await
    }

    /// Ends what was to be closed, and copies that only a renewed grant could open again when none came for
    /// long enough.
    pub(crate) async fn sweep_environments(self: &Arc<Self>, now: u64) -> Result<(), Error> {
        for row in self.store.live_environments().await? {
            let done = match row.state {
                EnvironmentState::Closing => self.remove_closing(row.run).await,
                EnvironmentState::Open if self.ran_out(row.session, now).await? => {
                    info!(run = %row.run, "the session's grant ran out long ago");
                    self.close(row.session, row.run).await
                }
                EnvironmentState::Open
                | EnvironmentState::Opening
                | EnvironmentState::Closed
                | EnvironmentState::Lost => Ok(()),
            };
            match done {
                Ok(()) | Err(Error::CleanupUncertain) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn ran_out(&self, session: SessionId, now: u64) -> Result<bool, Error> {
        let known = self.store.session(session).await?;
        let kept = self.keep_expired.as_secs();
        Ok(known.is_some_and(|known| known.grant.exp.saturating_add(kept) <= now))
    }

    /// Ours by owner and instance, and of no lease that lives: an answer of the engine was lost.
    async fn remove_stray_containers(&self, engine: &Docker) -> Result<(), Error> {
        let instance = self.instance.to_string();
        let labels = [(OWNER_LABEL, OWNER), (INSTANCE_LABEL, instance.as_str())];
        let listed =
            engine.list(&labels).await.map_err(Error::engine("containers cannot be listed"))?;
        // Read after the list: what is made in between is not on it. And in this order: one that waits now is a
        // call's only after that, or is on record already.
        let mut waiting = self.pool.leases();
        waiting.extend(self.servers.leases());
        let leases: HashSet<String> =
            self.store.unfinished().await?.iter().map(|row| row.lease.to_string()).collect();
        for container in listed {
            let lease = container.labels.get(LEASE_LABEL);
            if lease.is_some_and(|lease| waiting.contains(lease) || leases.contains(lease)) {
                continue;
            }
            info!(container = container.id.as_str(), "a stray container is removed");
            engine
                .remove(Handle::Id(&container.id))
                .await
                .map_err(Error::engine("a stray container cannot be removed"))?;
        }
        Ok(())
    }

    /// Directories of no environment: only before anything is served.
    pub(crate) async fn remove_stray_places(&self) -> Result<(), Error> {
        let known: Vec<_> =
            self.store.live_environments().await?.into_iter().map(|row| row.run).collect();
        let staging = self.staging.clone();
        let removed = tokio::task::spawn_blocking(move || {
            for place in staging.strangers(&known)? {
                place.remove()?;
            }
            Ok(())
        });
        removed.await?.map_err(Error::file("leftovers cannot be removed below", "environments"))
    }
}
