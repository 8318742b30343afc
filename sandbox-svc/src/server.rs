//! Tool servers of runs: at most one process of each name per run, in a container of its own, which stands still
//! between calls. It keeps count of them; who may start or call one is decided elsewhere.

mod call;
mod end;
mod pump;
mod start;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event::id::RunId;
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::ContainerId;
use crate::engine::cgroup::Cgroups;
use crate::mcp::{Client, Definition};
use pump::Errors;

pub(crate) use call::{Ask, Asked, Called};
pub(crate) use end::LONGEST_IDLE;

/// A run and the manifest's name of a server.
type Key = (RunId, String);

/// A server that was greeted and stands still.
pub(crate) struct Running {
    pub(crate) id: ContainerId,
    client: Client,
    errors: Arc<Errors>,
    cgroups: Cgroups,
    /// As it listed them last, by name.
    listed: Arc<[Definition]>,
    since: Instant,
}

#[derive(Default)]
struct Inner {
    still: HashMap<Key, (Running, Uuid)>,
    /// Of servers that start, stand still, are asked or end now: nobody else's business.
    leases: HashSet<Uuid>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct Servers(Mutex<Inner>);

/// A server's lease while somebody has it in hand.
pub(crate) struct Leased {
    servers: Arc<Servers>,
    pub(crate) lease: Uuid,
    kept: bool,
}

impl Drop for Leased {
    fn drop(&mut self) {
        if !self.kept {
            self.servers.lock().leases.remove(&self.lease);
        }
    }
}

impl Servers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease of a server to be started; none once the service stops.
    fn lease(self: &Arc<Self>) -> Option<Leased> {
        let mut inner = self.lock();
        let lease = Uuid::now_v7();
        let open = !inner.closed && inner.leases.insert(lease);
        open.then(|| Leased { servers: self.clone(), lease, kept: false })
    }

    /// What it listed last; nothing where no such server stands still.
    pub(crate) fn listed(&self, run: RunId, name: &str) -> Option<Arc<[Definition]>> {
        let inner = self.lock();
        Some(inner.still.get(&(run, name.to_owned()))?.0.listed.clone())
    }

    fn take(self: &Arc<Self>, run: RunId, name: &str) -> Option<(Running, Leased)> {
        let taken = self.lock().still.remove(&(run, name.to_owned()));
        taken.map(|(running, lease)| (running, self.leased(lease)))
    }

    fn leased(self: &Arc<Self>, lease: Uuid) -> Leased {
        Leased { servers: self.clone(), lease, kept: false }
    }

    /// Unless the service stops: then whoever has it ends it.
    fn put_back(
        &self,
        key: Key,
        mut running: Running,
        mut leased: Leased,
    ) -> Result<(), Box<(Running, Leased)>> {
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            return Err(Box::new((running, leased)));
        }
        running.since = Instant::now();
        leased.kept = true;
        inner.still.insert(key, (running, leased.lease));
        Ok(())
    }

    /// Takes those away that the run has.
    fn of(self: &Arc<Self>, run: RunId) -> Vec<(Running, Leased)> {
        self.taken(|(of, _), _| *of == run)
    }

    /// Runs with servers that nobody has asked for so long.
    fn idle(&self, than: Duration) -> HashSet<RunId> {
        let inner = self.lock();
        let idle = inner.still.iter().filter(|(_, (running, _))| running.since.elapsed() >= than);
        idle.map(|((run, _), _)| *run).collect()
    }

    /// Takes those of the run away that nobody has asked for so long.
    fn older(self: &Arc<Self>, run: RunId, than: Duration) -> Vec<(Running, Leased)> {
        self.taken(|(of, _), running| *of == run && running.since.elapsed() >= than)
    }

    /// Takes all away; none starts any more.
    fn close(self: &Arc<Self>) -> Vec<(Running, Leased)> {
        self.lock().closed = true;
        self.taken(|_, _| true)
    }

    fn taken(self: &Arc<Self>, which: impl Fn(&Key, &Running) -> bool) -> Vec<(Running, Leased)> {
        let mut inner = self.lock();
        let meant = inner.still.extract_if(|key, (running, _)| which(key, running));
        let meant: Vec<_> = meant.map(|(_, taken)| taken).collect();
        drop(inner);
        meant.into_iter().map(|(running, lease)| (running, self.leased(lease))).collect()
    }

    /// Whose containers are looked after here.
    pub(crate) fn leases(&self) -> HashSet<String> {
        self.lock().leases.iter().map(Uuid::to_string).collect()
    }
}
