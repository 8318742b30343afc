//! The proof that nothing of a lease is left: the engine knows no such container, lists none with the lease, and every
//! recorded control group is gone. What follows from that, for a command or a tool server, is not decided here.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;
use transport::Chain;
use uuid::Uuid;

use crate::engine::cgroup::Cgroups;
use crate::engine::{ContainerId, Docker, Handle};
use crate::exec::{INSTANCE_LABEL, LEASE_LABEL, OWNER, OWNER_LABEL, Unsettled};
use crate::sandbox::Sandbox;
use crate::store::StoreError;

pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What is on record of a lease's container.
pub(crate) struct Traces<'a> {
    pub(crate) lease: Uuid,
    pub(crate) container: Option<&'a str>,
    pub(crate) cgroups: &'a Cgroups,
}

impl Sandbox {
    /// Removes and looks until it is proven, or nobody can say it now.
    pub(crate) async fn prove_gone(
        &self,
        engine: &Docker,
        traces: &Traces<'_>,
    ) -> Result<(), Unsettled> {
        let until = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let missing = match self.remaining(engine, traces).await {
                Ok(None) => return Ok(()),
                Ok(Some(what)) => what,
                Err(error @ (Unsettled::House(_) | Unsettled::Stopped(_))) => return Err(error),
                Err(error) => {
                    let lease = traces.lease;
                    warn!(%lease, error = %Chain(&error), "the engine does not answer");
                    "the engine does not answer"
                }
            };
            if Instant::now() >= until {
                return Err(Unsettled::Cleanup(missing));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Removes what is ours, then looks; names what is still there.
    async fn remaining(
        &self,
        engine: &Docker,
        traces: &Traces<'_>,
    ) -> Result<Option<&'static str>, Unsettled> {
        let (instance, lease) = (self.instance.to_string(), traces.lease.to_string());
        let labels = [
            (OWNER_LABEL, OWNER),
            (INSTANCE_LABEL, instance.as_str()),
            (LEASE_LABEL, lease.as_str()),
        ];
        let id = traces.container.map(ContainerId::parse).transpose();
        let id = id.map_err(|_| StoreError::Malformed("container id"))?;
        if let Some(id) = &id {
            engine.remove(Handle::Id(id)).await?;
        }
        // One whose create was not answered is in the list only.
        let listed = engine.list(&labels).await?;
        for container in &listed {
            engine.remove(Handle::Id(&container.id)).await?;
        }
        if let Some(id) = &id
            && engine.inspect(Handle::Id(id)).await?.is_some()
        {
            return Ok(Some("the engine still knows the container"));
        }
        if !listed.is_empty() && !engine.list(&labels).await?.is_empty() {
            return Ok(Some("the engine still lists a container of the lease"));
        }
        if !traces.cgroups.are_gone() {
            return Ok(Some("a control group of the container is still there"));
        }
        Ok(None)
    }
}
