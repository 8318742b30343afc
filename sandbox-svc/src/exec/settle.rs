//! The proof that nothing of a command is left: the engine knows no such container, lists none with its
//! lease, and every recorded control group is gone. Until then the call has no end.

use std::time::Duration;

use tracing::warn;
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{ContainerId, Dialect, EngineError, Handle};
use crate::error::Error;
use crate::exec::{INSTANCE_LABEL, LEASE_LABEL, OWNER, OWNER_LABEL, Run, Unsettled};
use crate::lifecycle::{Ended, Way};
use crate::store::{ExecutionRow, StoreError};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

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

    pub(super) async fn settle(&self, cgroups: &Cgroups) -> Result<(), Unsettled> {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let missing = match self.remaining(cgroups).await {
                Ok(None) => return Ok(()),
                Ok(Some(what)) => what,
                Err(error @ (Unsettled::House(_) | Unsettled::Stopped(_))) => return Err(error),
                Err(error) => {
                    warn!(call = %self.call(), error = %Chain(&error), "the engine does not answer");
                    "the engine does not answer"
                }
            };
            if tokio::time::Instant::now() >= until {
                return Err(Unsettled::Cleanup(missing));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Removes what is ours, then looks; names what is still there.
    async fn remaining(&self, cgroups: &Cgroups) -> Result<Option<&'static str>, Unsettled> {
        let noted = self.noted().await?;
        let (instance, lease) = (self.sandbox.instance.to_string(), noted.lease.to_string());
        let labels = [
            (OWNER_LABEL, OWNER),
            (INSTANCE_LABEL, instance.as_str()),
            (LEASE_LABEL, lease.as_str()),
        ];
        let id = noted.container.map(|id| ContainerId::parse(&id)).transpose();
        let id = id.map_err(|_| StoreError::Malformed("container id"))?;
        if let Some(id) = &id {
            self.engine.remove(Handle::Id(id)).await?;
        }
        // One whose create was not answered is in the list only.
        let listed = self.engine.list(&labels).await?;
        for container in &listed {
            self.engine.remove(Handle::Id(&container.id)).await?;
        }
        if let Some(id) = &id
            && self.engine.inspect(Handle::Id(id)).await?.is_some()
        {
            return Ok(Some("the engine still knows the container"));
        }
        if !listed.is_empty() && !self.engine.list(&labels).await?.is_empty() {
            return Ok(Some("the engine still lists a container of the lease"));
        }
        if !cgroups.are_gone() {
            return Ok(Some("a control group of the container is still there"));
        }
        Ok(None)
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
