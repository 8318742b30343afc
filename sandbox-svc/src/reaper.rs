//! At the start and every half minute: calls without a proven end are tried again, and what is ours and
//! belongs to nothing that lives is removed. Nothing is ours by name; foreign containers are never touched.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tracing::{info, warn};
use transport::{CancellationToken, Chain, Readiness};

use crate::engine::{Docker, Handle};
use crate::error::Error;
use crate::exec::{INSTANCE_LABEL, LEASE_LABEL, OWNER, OWNER_LABEL};
use crate::sandbox::Sandbox;
use crate::store::EnvironmentState;

/// The readiness condition.
pub(crate) const CONDITION: &str = "engine";
const EVERY: Duration = Duration::from_secs(30);
/// How soon a call without a proven end is tried again.
const SOON: Duration = Duration::from_secs(2);

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
                () = stop.cancelled() => return,
            }
            if let Some(engine) = &self.engine {
                ready.set(CONDITION, engine.ping().await.is_ok());
            }
            self.told(self.reconcile().await);
        }
    }

    /// Whatever it was, it is tried again.
    fn told(&self, done: Result<(), Error>) {
        if let Err(error) = done {
            warn!(error = %Chain(&error), "leftovers could not be looked for");
        }
    }

    pub(crate) async fn reconcile(self: &Arc<Self>) -> Result<(), Error> {
        self.retry_calls().await?;
        if let Some(engine) = &self.engine {
            self.remove_stray_containers(engine).await?;
        }
        for row in self.store.live_environments().await? {
            if row.state == EnvironmentState::Closing {
                match self.remove_closing(row.run).await {
                    Ok(()) | Err(Error::CleanupUncertain) => (),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Ours by owner and instance, and of no lease that lives: an answer of the engine was lost.
    async fn remove_stray_containers(&self, engine: &Docker) -> Result<(), Error> {
        let instance = self.instance.to_string();
        let labels = [(OWNER_LABEL, OWNER), (INSTANCE_LABEL, instance.as_str())];
        let listed =
            engine.list(&labels).await.map_err(Error::engine("containers cannot be listed"))?;
        // Read after the list: what is made in between is not on it.
        let leases: HashSet<String> =
            self.store.unfinished().await?.iter().map(|row| row.lease.to_string()).collect();
        for container in listed {
            let lease = container.labels.get(LEASE_LABEL);
            if lease.is_some_and(|lease| leases.contains(lease)) {
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
