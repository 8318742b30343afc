//! Started containers that wait, each for one command: a run has at most one, over its own private copy, and it is
//! used once or not at all. It keeps count; what a claimed one runs, and the removal of any other, is not its.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event::id::RunId;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::cgroup::Cgroups;
use crate::engine::{ContainerId, Frames, Input, Spec};

/// One that waits for its frame.
pub(crate) struct Member {
    pub(crate) lease: Uuid,
    pub(crate) id: ContainerId,
    pub(crate) spec: Spec,
    /// The rules that it was made under.
    pub(crate) policy: String,
    pub(crate) frames: Frames,
    pub(crate) input: Input,
    pub(crate) cgroups: Cgroups,
    pub(crate) since: Instant,
}

#[derive(Default)]
struct Inner {
    idle: HashMap<RunId, Member>,
    making: HashSet<RunId>,
    /// Of members that are made, idle or removed now: nobody else's business.
    leases: HashSet<Uuid>,
    closed: bool,
}

pub(crate) struct Pool {
    /// How many may wait at once, of all runs.
    most: usize,
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

/// The right to make one member; given back when it is dropped.
pub(crate) struct Place {
    pool: Arc<Pool>,
    run: RunId,
    pub(crate) lease: Uuid,
}

/// A member's lease until its container is gone, or the call's that claimed it.
pub(crate) struct Leased {
    pool: Arc<Pool>,
    lease: Uuid,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.change(|inner| {
            inner.making.remove(&self.run);
            if inner.idle.get(&self.run).is_none_or(|member| member.lease != self.lease) {
                inner.leases.remove(&self.lease);
            }
        });
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.pool.change(|inner| {
            inner.leases.remove(&self.lease);
        });
    }
}

impl Pool {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub(crate) fn is_off(&self) -> bool {
        self.most == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.send_replace(());
        changed
    }

    /// Room for one more of this run, unless there is one already.
    pub(crate) fn place(self: &Arc<Self>, run: RunId) -> Option<Place> {
        self.change(|inner| {
            let full = inner.idle.len() + inner.making.len() >= self.most;
            if inner.closed || full || inner.idle.contains_key(&run) || !inner.making.insert(run) {
                return None;
            }
            let lease = Uuid::now_v7();
            inner.leases.insert(lease);
            Some(Place { pool: self.clone(), run, lease })
        })
    }

    /// A member waits from now on, unless the pool was closed meanwhile.
    pub(crate) fn fill(&self, place: &Place, member: Member) -> Result<(), Box<Member>> {
        self.change(|inner| {
            if inner.closed {
                return Err(Box::new(member));
            }
            inner.idle.insert(place.run, member);
            Ok(())
        })
    }

    /// The run's member, if it is what would be made now. Whoever has it runs one command in it or removes it.
    pub(crate) fn claim(self: &Arc<Self>, run: RunId, wanted: &Spec, policy: &str) -> Claim {
        self.change(|inner| match inner.idle.remove(&run) {
            None => Claim::None,
            Some(member) => {
                let leased = Leased { pool: self.clone(), lease: member.lease };
                let fits = member.policy == policy && member.spec.is_like(wanted);
                if fits { Claim::Fits(member, leased) } else { Claim::Stale(member, leased) }
            }
        })
    }

    /// Takes the run's member away, after any that is being made.
    pub(crate) async fn take(self: &Arc<Self>, run: RunId) -> Option<(Member, Leased)> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let mut inner = self.lock();
                if let Some(member) = inner.idle.remove(&run) {
                    let leased = Leased { pool: self.clone(), lease: member.lease };
                    return Some((member, leased));
                }
                if !inner.making.contains(&run) {
                    return None;
                }
            }
            changes.changed().await.ok()?;
        }
    }

    /// Members that have waited for longer than that.
    pub(crate) fn older(self: &Arc<Self>, than: Duration) -> Vec<(Member, Leased)> {
        self.change(|inner| {
            let old = |member: &Member| member.since.elapsed() >= than;
            let runs: Vec<_> = inner.idle.iter().filter(|(_, member)| old(member)).collect();
            let runs: Vec<_> = runs.into_iter().map(|(run, _)| *run).collect();
            let taken = runs.iter().filter_map(|run| inner.idle.remove(run));
            taken
                .map(|member| {
                    let lease = member.lease;
                    (member, Leased { pool: self.clone(), lease })
                })
                .collect()
        })
    }

    /// Nothing is made or waits any more.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<(Member, Leased)> {
        self.change(|inner| inner.closed = true);
        self.older(Duration::ZERO)
    }

    /// Whose containers are looked after here.
    pub(crate) fn leases(&self) -> HashSet<String> {
        self.lock().leases.iter().map(Uuid::to_string).collect()
    }

    /// Until one waits for the run.
    #[cfg(test)]
    pub(crate) async fn filled(&self, run: RunId) -> ContainerId {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(member) = self.lock().idle.get(&run) {
                return member.id.clone();
            }
            changes.changed().await.unwrap();
        }
    }
}

pub(crate) enum Claim {
    None,
    /// Made under other rules, or from something else.
    Stale(Member, Leased),
    Fits(Member, Leased),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use event::id::RunId;
    use futures::StreamExt as _;
    use tokio::time::Instant;

    use super::{Claim, Member, Place, Pool};
    use crate::engine::cgroup::Cgroups;
    use crate::engine::{ContainerId, ContainerName, Limits, Spec, User};

    fn spec(memory: u64) -> Spec {
        Spec {
            name: ContainerName::waiting(uuid::Uuid::now_v7()),
            image: event::Digest::of(b"image"),
            path: "/bin".to_owned(),
            user: User::of_slot(200_000),
            labels: BTreeMap::from([("harness.lease".to_owned(), "x".to_owned())]),
            binds: Vec::new(),
            limits: Limits { memory, pids: 8, cpus_milli: 500, file_bytes: 9, tmp_bytes: 7 },
        }
    }

    fn member(place: &Place) -> Member {
        Member {
            lease: place.lease,
            id: ContainerId::parse(&"a".repeat(64)).unwrap(),
            spec: spec(1),
            policy: "rules".to_owned(),
            frames: futures::stream::empty().boxed(),
            input: Box::pin(tokio::io::sink()),
            cgroups: Cgroups::default(),
            since: Instant::now(),
        }
    }

    #[test]
    fn one_is_claimed_once_and_only_for_what_it_was_made_for() {
        let (run, other) = (RunId::new(), RunId::new());
        for (whose, memory, policy, fits) in [
            (run, 1, "rules", "fits"),
            (run, 2, "rules", "stale"),
            (run, 1, "others", "stale"),
            (other, 1, "rules", "none"),
        ] {
            let pool = Pool::new(2);
            let place = pool.place(run).unwrap();
            assert!(pool.fill(&place, member(&place)).is_ok());
            drop(place);
            let claimed = pool.claim(whose, &spec(memory), policy);
            let name = match &claimed {
                Claim::None => "none",
                Claim::Stale(..) => "stale",
                Claim::Fits(..) => "fits",
            };
            assert_eq!(name, fits);
            assert_eq!(pool.leases().len(), 1, "nobody else's business until it is let go");
            drop(claimed);
            assert_eq!(pool.leases().len(), usize::from(fits == "none"));
            assert!(fits == "none" || matches!(pool.claim(run, &spec(1), "rules"), Claim::None));
        }
    }

    #[tokio::test]
    async fn no_more_wait_than_may_and_none_after_the_close() {
        let pool = Pool::new(2);
        let runs = [RunId::new(), RunId::new(), RunId::new()];
        let first = pool.place(runs[0]).unwrap();
        assert!(pool.place(runs[0]).is_none(), "one of a run at a time");
        let second = pool.place(runs[1]).unwrap();
        assert!(pool.place(runs[2]).is_none());
        drop(second);
        let third = pool.place(runs[2]).unwrap();
        assert!(pool.fill(&first, member(&first)).is_ok());
        drop(first);
        assert!(pool.place(runs[0]).is_none(), "one waits already");
        assert!(pool.older(Duration::from_secs(60)).is_empty());
        assert_eq!(pool.close().len(), 1);
        assert!(pool.fill(&third, member(&third)).is_err());
        drop(third);
        assert!(pool.place(runs[1]).is_none());
        assert!(pool.leases().is_empty());
        assert!(pool.take(runs[0]).await.is_none());
        assert!(Pool::new(0).place(runs[0]).is_none());
    }
}
