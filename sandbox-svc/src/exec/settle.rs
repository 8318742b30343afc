//! A command's container after its end: left to end by itself for a moment, then removed and proven to be gone. What of
//! it is on record is looked up, and what became of the command is not judged.

use std::time::Duration;

use tracing::warn;
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{ContainerId, Dialect, EngineError, Handle};
use crate::error::Error;
use crate::exec::gone::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE, Traces};
use crate::exec::{Run, Unsettled};
use crate::lifecycle::{Ended, Way};
use crate::store::{ExecutionRow, StoreError};

/// How long a container whose first process has told its end is left to end by itself.
const LEAVE: Duration = Duration::from_millis(500);

impl Run<'_> {
    /// An engine that is to remove a container starts a program to kill it first. One that is about to end is gone
    /// sooner without; what has not ended then is killed all the same.
    pub(super) async fn leave(&self, ended: &Ended) -> Result<(), Unsettled> {
        // Podman looks for an end four times a second.
        if !matches!(ended.way, Way::Told(_)) || self.engine.dialect() == Dialect::Podman {
            return Ok(());
        }
        let id = self.noted().await?.container.map(|id| ContainerId::parse(&id)).transpose();
        let Some(id) = id.map_err(|_| StoreError::Malformed("container id"))? else {
            return Ok(());
        };
        if let Ok(Err(error)) = tokio::time::timeout(LEAVE, self.engine.wait(&id)).await {
            warn!(call = %self.call(), error = %Chain(&error), "the engine does not say that a container ended");
        }
        Ok(())
    }

    /// Until then the call has no end.
    pub(super) async fn settle(&self, cgroups: &Cgroups) -> Result<(), Unsettled> {
        let ExecutionRow { lease, container, .. } = self.noted().await?;
        let traces = Traces { lease, container: container.as_deref(), cgroups };
        self.sandbox.prove_gone(self.engine, &traces).await
    }

    /// As noted, which may be later than this process read the row: container and lease change with a claim.
    async fn noted(&self) -> Result<ExecutionRow, Unsettled> {
        let gone = || Error::Start("the row of a call is gone".to_owned());
        Ok(self.sandbox.store.execution(self.call()).await?.ok_or_else(gone)?)
    }

    /// Removes one container of ours and waits until the engine has forgotten it.
    pub(super) async fn remove(&self, id: &ContainerId) -> Result<(), Unsettled> {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.removed(id).await {
                Ok(true) => return Ok(()),
                Ok(false) => (),
                Err(error) => {
                    warn!(call = %self.call(), error = %Chain(&error), "a container is not removed yet");
                }
            }
            if tokio::time::Instant::now() >= until {
                return Err(Unsettled::Cleanup("the engine still knows the container"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn removed(&self, id: &ContainerId) -> Result<bool, EngineError> {
        self.engine.remove(Handle::Id(id)).await?;
        Ok(self.engine.inspect(Handle::Id(id)).await?.is_none())
    }
}
