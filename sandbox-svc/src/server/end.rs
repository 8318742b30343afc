//! The end of a tool server, which is one only when the engine and the kernel know nothing of it any more: after a
//! failed call, at the close of its run, when nobody asked for long, at the stop of the service and after a kill.

use std::collections::HashSet;
use std::time::Duration;

use event::SandboxStatus;
use event::id::RunId;
use tracing::{info, warn};
use transport::Chain;
use uuid::Uuid;

use super::{Leased, Running};
use crate::engine::ContainerName;
use crate::engine::cgroup::Cgroups;
use crate::error::Error;
use crate::exec::{Traces, Unsettled};
use crate::ledger;
use crate::sandbox::Sandbox;
use crate::session::now_ms;
use crate::store::ServerRow;
use crate::tool::mcp;

pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(10 * 60);

impl Sandbox {
    /// Ends one that somebody has in hand. Until that is proven its row stays, and so does whoever waits for it.
    pub(super) async fn end_server(
        &self,
        running: Running,
        leased: Leased,
        status: SandboxStatus,
    ) -> Result<(), Unsettled> {
        let Running { client, .. } = running;
        // The container first: a server that stands still hears no goodbye.
        let settled = self.settle_server(leased.lease, status).await;
        client.close().await;
        settled
    }

    /// Of a run whose copy is about to go, and of its children.
    pub(crate) async fn end_servers(&self, run: RunId) -> Result<(), Unsettled> {
        for (running, leased) in self.servers.of(run) {
            self.end_server(running, leased, SandboxStatus::Completed).await?;
        }
        self.settle_servers(|row| row.run == run).await
    }

    /// Those that nobody has asked for long, but for a run where a person may be asked about a call right now: a yes
    /// that comes late is still a yes.
    pub(crate) async fn end_idle_servers(&self, than: Duration) -> Result<(), Unsettled> {
        for run in self.servers.idle(than) {
            if self.store.waits_for(run, mcp::Tool::Call.as_str()).await? {
                continue;
            }
            for (running, leased) in self.servers.older(run, than) {
                info!(container = running.id.as_str(), "nobody has asked a tool server for long");
                self.end_server(running, leased, SandboxStatus::Completed).await?;
            }
        }
        Ok(())
    }

    /// At the stop of the service; none starts any more. What does not end now, the next start ends.
    pub(crate) async fn end_all_servers(&self) {
        for (running, leased) in self.servers.close() {
            if let Err(error) = self.end_server(running, leased, SandboxStatus::Completed).await {
                warn!(error = %Chain(&error), "a tool server is left to the next start");
            }
        }
    }

    /// Whatever nobody has in hand: an earlier process's, or one whose end could not be proven.
    pub(crate) async fn settle_servers(
        &self,
        which: impl Fn(&ServerRow) -> bool,
    ) -> Result<(), Unsettled> {
        // In this order: a row without a lease in hand is nobody's.
        let rows = self.store.servers().await?;
        let held: HashSet<String> = self.servers.leases();
        for row in rows.iter().filter(|row| which(row) && !held.contains(&row.lease.to_string())) {
            self.settle_server(row.lease, SandboxStatus::Failed).await?;
        }
        Ok(())
    }

    /// Removes what is there of it, proves it, and writes that down.
    pub(super) async fn settle_server(
        &self,
        lease: Uuid,
        status: SandboxStatus,
    ) -> Result<(), Unsettled> {
        let Some(row) = self.store.server(lease).await? else { return Ok(()) };
        let missing =
            || Error::Start("a tool server is noted, but this host has no engine".to_owned());
        let engine = self.engine.as_ref().ok_or_else(missing)?;
        let cgroups = &Cgroups::parse(&row.cgroups);
        let traces = Traces { lease, container: row.container.as_deref(), cgroups };
        self.prove_gone(engine, &traces).await?;
        self.failpoint.hit("server-gone")?;
        let record = match row.started_ms {
            Some(started_ms) => Some(stopped(&row, started_ms, status)?),
            None => None,
        };
        self.store.remove_server(lease, record.as_ref()).await?;
        info!(%lease, "a tool server is removed");
        Ok(())
    }
}

fn stopped(
    row: &ServerRow,
    started_ms: i64,
    status: SandboxStatus,
) -> Result<crate::store::Record, Unsettled> {
    let stopped = event::SandboxStopped {
        run_id: row.run,
        call_id: row.call,
        attempt: row.attempt,
        container_name: ContainerName::server(row.lease).to_string(),
        status,
        exit_code: None,
        duration_ms: u64::try_from(now_ms().saturating_sub(started_ms)).ok(),
    };
    Ok(ledger::record(row.session, &row.tenant, &row.policy_rev, stopped)?)
}
