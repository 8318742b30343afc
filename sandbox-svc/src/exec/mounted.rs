//! Trees of the host around one command: held before its container is made, compared once more before it starts,
//! let go when it is gone. A tree that changed in between is a refusal, and nothing runs.

use std::sync::Arc;

use event::MountMode;

use tracing::warn;

use crate::engine::{Bind, Dialect, WORKSPACE};
use crate::environment::Environment;
use crate::error::Error;
use crate::exec::{Run, Unsettled};
use crate::lifecycle::{Ended, Way};
use crate::mounts::{self, Held};
use crate::refusal::{Reason, Refusal};

/// As in an engine's own.
const TMP_INODES: u64 = 4096;

type Checked<T> = Result<Result<T, Refusal>, Unsettled>;

impl Run<'_> {
    /// Nothing where the plan has nothing mounted.
    pub(super) async fn hold(&self, environment: &Environment) -> Checked<Option<Arc<Held>>> {
        if self.plan.mounts.is_empty() {
            return Ok(Ok(None));
        }
        let manifest = &self.session.manifest;
        let dependencies = self.sandbox.sessions.dependencies();
        let wanted = match mounts::wanted(manifest, &environment.host, dependencies) {
            Ok(wanted) => wanted,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let planned = self.plan.snapshot.as_ref().and_then(|snapshot| snapshot.mounted);
        let shown = wanted.iter().map(|wanted| &wanted.shown);
        let (Some(planned), true) = (planned, shown.eq(&self.plan.mounts)) else {
            return Ok(Err(Reason::MountChanged.into()));
        };
        let place = environment.place.mounts();
        let hold = move || {
            // What an earlier process held for this call is of no use without its stamps.
            mounts::release(&place)
                .map_err(Error::file("a held tree is still mounted at", &place))?;
            Ok::<_, Error>(mounts::hold(wanted, planned, &place))
        };
        let held = tokio::task::spawn_blocking(hold).await.map_err(Error::Task)??;
        Ok(held.map(|held| Some(self.held.get_or_init(|| Arc::new(held)).clone())))
    }

    /// Whether what is held still is what was planned, now that only the start is left.
    pub(super) async fn still(&self, held: Arc<Held>) -> Checked<()> {
        Ok(tokio::task::spawn_blocking(move || held.check()).await.map_err(Error::Task)?)
    }

    /// The copy, then everything beside and on it.
    pub(super) fn binds(&self, environment: &Environment, held: Option<&Held>) -> Vec<Bind> {
        let copy = Bind {
            source: environment.place.copy(),
            target: WORKSPACE.to_owned(),
            mode: self.mode_of_the_copy(),
        };
        let tmp = self.tmp.get().map(|source| Bind {
            source: source.clone(),
            target: "/tmp".to_owned(),
            mode: MountMode::Rw,
        });
        let held = held.into_iter().flat_map(Held::binds);
        [copy].into_iter().chain(tmp).chain(held).collect()
    }

    /// Podman's own `/tmp` takes no limit on entries, so it gets one of the run's; a cause where that cannot be.
    pub(super) async fn make_tmp(
        &self,
        environment: &Environment,
    ) -> Result<Result<(), String>, Unsettled> {
        if self.engine.dialect() == Dialect::Docker {
            return Ok(Ok(()));
        }
        let (place, bytes) = (environment.place.clone(), self.limits.tmp_bytes);
        let make = move || {
            place.remove_tmp()?;
            place.make_tmp(bytes, TMP_INODES)
        };
        match tokio::task::spawn_blocking(make).await.map_err(Error::Task)? {
            Ok(tmp) => {
                self.tmp.get_or_init(|| tmp);
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(format!("no /tmp with limits can be mounted for it: {error}"))),
        }
    }

    /// Where parts of the real workspace lie on it, nothing is written to the copy that nobody would import.
    fn mode_of_the_copy(&self) -> MountMode {
        if self.writes_directly() { MountMode::Ro } else { MountMode::Rw }
    }

    /// Whether the command may write the workspace itself.
    pub(crate) fn writes_directly(&self) -> bool {
        self.plan.mounts.iter().any(|mount| mount.mode == MountMode::Rw)
    }

    pub(super) fn mounts_for_the_record(&self) -> Vec<event::Mount> {
        let copy = event::Mount {
            source: None,
            target: self.plan.cwd.clone().unwrap_or_default(),
            mode: self.mode_of_the_copy(),
        };
        let mounts = self.plan.mounts.iter().map(|mount| event::Mount {
            source: Some(mount.source.clone()),
            target: mount.target.clone(),
            mode: mount.mode,
        });
        [copy].into_iter().chain(mounts).collect()
    }

    pub(super) fn refused(&self, refusal: Refusal) -> Ended {
        let Refusal { reason, detail, differs: _ } = refusal;
        self.seen_nothing(Way::Refused { reason: reason.as_str().to_owned(), detail })
    }

    /// The container is gone, and with it the last that used them: what it changed is looked at, then they go.
    pub(super) async fn let_go(&self) -> Result<(), Unsettled> {
        let Some(environment) = self.environment else { return Ok(()) };
        if self.plan.mounts.is_empty() && self.engine.dialect() == Dialect::Docker {
            return Ok(());
        }
        if let (Some(held), None) = (self.held.get().cloned(), self.changes.get()) {
            let looked = tokio::task::spawn_blocking(move || held.changes());
            match looked.await.map_err(Error::Task)? {
                Ok(changes) => {
                    self.changes.get_or_init(|| changes);
                }
                Err(unfit) => {
                    warn!(call = %self.call(), %unfit, "what a command changed cannot be told");
                }
            }
        }
        let place = environment.place.clone();
        let released = tokio::task::spawn_blocking(move || {
            place.remove_tmp()?;
            mounts::release(&place.mounts())
        });
        match released.await.map_err(Error::Task)? {
            Ok(()) => Ok(()),
            Err(_) => Err(Unsettled::Cleanup("a tree of the host is still held")),
        }
    }
}
