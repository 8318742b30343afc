//! The service behind its API: what it holds, and the lives of environments. Calls are in `calls`, their
//! execution in `exec` and `import_call`.

mod recover;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event::Digest;
use event::id::{CallId, RunId, SessionId};
use manifest::Mode;
use tokio::sync::{Notify, OwnedMutexGuard};
use tracing::{info, warn};
use transport::{CancellationToken, Chain, StateDir, TaskTracker};
use uuid::Uuid;

use crate::binding::Bindings;
use crate::broker::Brokers;
use crate::children::Children;
use crate::config::StagingKind;
use crate::engine::init::Installed;
use crate::engine::{Docker, User};
use crate::environment::{Copied, Environment, Source};
use crate::error::Error;
use crate::exec::Unsettled;
use crate::failpoint::Failpoint;
use crate::image::ImageName;
use crate::ledger::{self, Ledger};
use crate::limits::Ceilings;
use crate::live::Live;
use crate::mounts;
use crate::pool::Pool;
use crate::program::Images;
use crate::server::Servers;
use crate::session::{Owner, Session, Sessions};
use crate::staging::{Size, Staging, owner_of};
use crate::store::{Begun, EnvironmentState, NewEnvironment, Store, Waiting};
use crate::tree::carry::Carry;
use crate::tree::{Dir, NotCarried};
use crate::undo::UndoRecords;

/// How many files one event names.
const SHOWN_CARRIED: usize = 100;

pub(crate) struct Sandbox {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) sessions: Sessions,
    pub(crate) engine: Option<Docker>,
    pub(crate) brokers: Option<Brokers>,
    pub(crate) images: Images,
    pub(crate) staging: Staging,
    pub(crate) undo: UndoRecords,
    pub(crate) ceilings: Ceilings,
    pub(crate) tracker: TaskTracker,
    /// Cancelled when the process is asked to stop.
    pub(crate) stopping: CancellationToken,
    pub(crate) failpoint: Failpoint,
    /// How long a run's copy outlives its session's grant.
    pub(crate) keep_expired: Duration,
    /// Where the engine finds the first process of containers.
    pub(crate) init: Installed,
    /// Containers that wait for a command.
    pub(crate) pool: Arc<Pool>,
    pub(crate) servers: Arc<Servers>,
    /// Names this installation's containers.
    pub(crate) instance: Uuid,
    pub(crate) boot: String,
    /// The service's own directories, which no copy holds.
    pub(crate) own: Arc<[(u64, u64)]>,
    pub(crate) children: Children,
    /// What workspaces' copies hold although it is like a credential.
    pub(crate) carry: HashMap<String, Arc<Carry>>,
    /// Held as long as anything here runs: the state directory is ours.
    _lock: StateDir,
    environments: Mutex<HashMap<RunId, Arc<Environment>>>,
    /// One opening or closing of a run at a time.
    doors: Mutex<HashMap<RunId, Arc<tokio::sync::Mutex<()>>>>,
    calls: Mutex<HashMap<CallId, Arc<Live>>>,
    /// A call's end could not be proven.
    pub(crate) unsettled: Notify,
}

/// What `Sandbox::new` is given.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) sessions: Sessions,
    pub(crate) engine: Option<Docker>,
    pub(crate) brokers: Option<Brokers>,
    pub(crate) images: Images,
    pub(crate) staging: Staging,
    pub(crate) undo: UndoRecords,
    pub(crate) ceilings: Ceilings,
    pub(crate) tracker: TaskTracker,
    pub(crate) stopping: CancellationToken,
    pub(crate) failpoint: Failpoint,
    pub(crate) keep_expired: Duration,
    pub(crate) init: Installed,
    pub(crate) pool: Arc<Pool>,
    pub(crate) instance: Uuid,
    pub(crate) boot: String,
    pub(crate) own: Arc<[(u64, u64)]>,
    pub(crate) carry: HashMap<String, Arc<Carry>>,
    pub(crate) lock: StateDir,
}

/// What an opened environment is known by.
pub(crate) struct Opened {
    pub(crate) base: Digest,
    pub(crate) withheld: Vec<NotCarried>,
}

impl Sandbox {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            store,
            ledger,
            sessions,
            engine,
            brokers,
            images,
            staging,
            undo,
            ceilings,
            tracker,
            stopping,
            failpoint,
            keep_expired,
            init,
            pool,
            instance,
            boot,
            own,
            carry,
            lock,
        } = parts;
        Arc::new(Self {
            store,
            ledger,
            sessions,
            engine,
            brokers,
            images,
            staging,
            undo,
            ceilings,
            tracker,
            stopping,
            failpoint,
            keep_expired,
            init,
            pool,
            servers: Arc::default(),
            instance,
            boot,
            own,
            children: Children::default(),
            carry,
            _lock: lock,
            environments: Mutex::default(),
            doors: Mutex::default(),
            calls: Mutex::default(),
            unsettled: Notify::new(),
        })
    }

    fn environments(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Environment>>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Live>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn live(&self, call: CallId) -> Option<Arc<Live>> {
        self.calls().get(&call).cloned()
    }

    pub(crate) fn enlist(&self, call: CallId, live: Arc<Live>) {
        self.calls().insert(call, live);
    }

    pub(crate) fn dismiss(&self, call: CallId) {
        self.calls().remove(&call);
    }

    /// Whether nothing more will be told to the ledger.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls().is_empty() && self.servers.leases().is_empty()
    }

    /// Doors that nobody stands at are forgotten.
    async fn door(&self, run: RunId) -> OwnedMutexGuard<()> {
        let door = {
            let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
            doors.retain(|_, door| Arc::strong_count(door) > 1);
            doors.entry(run).or_default().clone()
        };
        door.lock_owned().await
    }

    /// The environment that the run works in, if it is open and this session's.
    pub(crate) fn environment(&self, session: SessionId, run: RunId) -> Option<Arc<Environment>> {
        let run = self.children.host_of(run);
        self.environments().get(&run).filter(|open| open.session == session).cloned()
    }

    pub(crate) fn replace_environment(&self, environment: Arc<Environment>) {
        self.environments().insert(environment.run, environment);
    }

    pub(crate) fn forget_environment(&self, run: RunId) {
        self.environments().remove(&run);
    }

    /// Makes the run's private copy; the same run gets the same copy.
    pub(crate) async fn open(
        self: &Arc<Self>,
        session: &Session,
        run: RunId,
    ) -> Result<Opened, Error> {
        if session.is_expired() {
            return Err(Error::GrantExpired);
        }
        if let Some(open) = self.copy_of_child(session.id, run).await? {
            return Ok(opened(&open));
        }
        let (sandbox, session) = (self.clone(), session.clone());
        // Goes on when the caller leaves: a half-made copy is nobody's.
        self.tracker.spawn(async move { sandbox.open_once(&session, run).await }).await?
    }

    async fn open_once(self: &Arc<Self>, session: &Session, run: RunId) -> Result<Opened, Error> {
        let _door = self.door(run).await;
        let new = NewEnvironment {
            run,
            session: session.id,
            staging: self.staging.kind(),
            boot: &self.boot,
        };
        match self.store.begin_environment(&new).await? {
            Begun::Known(row) if row.session != session.id => Err(Error::RunUnknown),
            Begun::Known(row) => match row.state {
                EnvironmentState::Open => match self.environment(session.id, run) {
                    Some(open) => Ok(opened(&open)),
                    None => Err(Error::EnvironmentLost(None)),
                },
                EnvironmentState::Lost => Err(Error::EnvironmentLost(row.lost)),
                EnvironmentState::Opening | EnvironmentState::Closing => Err(Error::RunBusy),
                EnvironmentState::Closed => Err(Error::EnvironmentUnknown),
            },
            Begun::New { slot } => match self.take(session, run, slot).await {
                Ok(open) => {
                    info!(%run, workspace = %open.workspace, "environment opened");
                    let answer = opened(&open);
                    self.environments().insert(run, open);
                    self.read_image(session);
                    self.warm(session, run);
                    Ok(answer)
                }
                Err(error) => {
                    self.take_back(run).await;
                    Err(error)
                }
            },
        }
    }

    /// Ahead of the first command, which would wait for it. What goes wrong here goes wrong there again, and is
    /// told there.
    fn read_image(&self, session: &Session) {
        let name = session.manifest.execution.image.as_deref().and_then(ImageName::parse);
        let (Some(engine), Some(name)) = (self.engine.clone(), name) else { return };
        let images = self.images.clone();
        self.tracker.spawn(async move {
            let Ok(image) = engine.image(&name).await else { return };
            if let Err(unread) = images.index(&engine, image.id).await {
                warn!(image = %image.id, error = %Chain(&unread), "the names of an image cannot be read");
            }
        });
    }

    async fn take(
        &self,
        session: &Session,
        run: RunId,
        slot: u32,
    ) -> Result<Arc<Environment>, Error> {
        let kind = self.staging.kind();
        let place = self.staging.place(run, kind);
        let host = self.sessions.workspace(session)?.clone();
        let user = user_of(session, &host, kind, slot)?;
        let (source, rulebook) = (self.source(session), self.sessions.rulebook(session)?);
        let size = Size { bytes: source.bounds.total_bytes, inodes: source.bounds.entries };
        let (at, from, of) = (place.clone(), host.clone(), source.clone());
        let taken = tokio::task::spawn_blocking(move || -> Result<_, Error> {
            let root =
                Dir::open(&from).map_err(Error::file("the workspace cannot be opened", &from))?;
            at.make(user.uid, size)
                .map_err(Error::file("the copy's place cannot be made", at.copy()))?;
            Ok(of.take(&rulebook, &root, &at, user.uid)?)
        });
        let Copied { taken, fresh, carried } = taken.await??;
        self.failpoint.hit("environment-taken").map_err(|_| Error::Stopping)?;
        self.record_carried(session, run, &carried).await?;
        let bindings = Bindings::of(self, session, &place).await?;
        let bindings = bindings.map_err(|binding| Error::EnvironmentLost(Some(binding)))?;
        self.store.open_environment(run, &taken, &bindings).await?;
        let workspace = session.grant.workspace.clone();
        Ok(Arc::new(Environment::new(
            run, session.id, workspace, host, place, user, source, taken, fresh,
        )))
    }

    /// What the host's configuration carries in spite of what it is like is told before anybody can read it.
    pub(crate) async fn record_carried(
        &self,
        session: &Session,
        run: RunId,
        carried: &[NotCarried],
    ) -> Result<(), Error> {
        if carried.is_empty() {
            return Ok(());
        }
        let file = |entry: &NotCarried| event::CarriedFile {
            path: entry.path.to_string(),
            reason: entry.reason.as_str().to_owned(),
        };
        let record = ledger::record(
            session.id,
            &session.grant.tenant,
            &session.policy_rev(),
            event::EnvironmentCarried {
                run_id: run,
                workspace: session.grant.workspace.clone(),
                total: carried.len() as u64,
                files: carried.iter().take(SHOWN_CARRIED).map(file).collect(),
            },
        )?;
        let waiting = self.store.record(&record).await?;
        Ok(self.ledger.acknowledged(waiting).await?)
    }

    fn source(&self, session: &Session) -> Source {
        Source {
            bounds: self.ceilings.bounds(&session.manifest.execution.limits),
            own: self.own.clone(),
            carry: self.carried_anyway(session),
        }
    }

    pub(crate) fn carried_anyway(&self, session: &Session) -> Arc<Carry> {
        self.carry.get(&session.grant.workspace).cloned().unwrap_or_default()
    }

    async fn take_back(&self, run: RunId) {
        let place = self.staging.place(run, self.staging.kind());
        let removed = tokio::task::spawn_blocking(move || place.remove()).await;
        match removed {
            Ok(Ok(())) => {
                if let Err(error) = self.store.forget_environment(run).await {
                    warn!(%run, error = %Chain(&error), "a copy that was not made is still noted");
                }
            }
            // The reconciler finds the row and tries again.
            Ok(Err(error)) => {
                warn!(%run, error = %Chain(&error), "a half-made copy is still there");
            }
            Err(error) => warn!(%run, error = %Chain(&error), "a half-made copy is still there"),
        }
    }

    /// Ends the run's calls, then removes its copy; done when that is proven.
    pub(crate) async fn close(
        self: &Arc<Self>,
        session: SessionId,
        run: RunId,
    ) -> Result<(), Error> {
        if let Some(child) = self.store.child(run).await? {
            return match child {
                child if child.session != session => Err(Error::RunUnknown),
                child if !child.open => Ok(()),
                _ => {
                    let sandbox = self.clone();
                    self.tracker
                        .spawn(async move { sandbox.close_child(session, run).await })
                        .await?
                }
            };
        }
        match self.store.environment(run).await? {
            None => return Ok(()),
            Some(row) if row.session != session => return Err(Error::RunUnknown),
            Some(row) if matches!(row.state, EnvironmentState::Closed | EnvironmentState::Lost) => {
                return Ok(());
            }
            Some(_) => (),
        }
        let sandbox = self.clone();
        self.tracker.spawn(async move { sandbox.close_once(session, run).await }).await?
    }

    async fn close_once(self: &Arc<Self>, session: SessionId, run: RunId) -> Result<(), Error> {
        let _door = self.door(run).await;
        if let Some(open) = self.environment(session, run) {
            let _admission = open.admission.lock().await;
            self.end_calls(run).await?;
            self.end_children(run).await?;
            self.environments().remove(&run);
        }
        self.cool(run).await;
        self.end_servers(run).await.map_err(|error| uncertain(run, error))?;
        self.store.set_environment_state(run, EnvironmentState::Closing).await?;
        self.remove_closing(run).await
    }

    pub(crate) async fn end_calls(&self, run: RunId) -> Result<(), Error> {
        for row in self.store.unfinished().await?.iter().filter(|row| row.plan.run == run) {
            if let Some(live) = self.live(row.plan.call) {
                live.cancel.cancel();
                live.ended().await?;
            }
        }
        Ok(())
    }

    /// The last part of closing, which the reconciler repeats until it succeeds.
    pub(crate) async fn remove_closing(&self, run: RunId) -> Result<(), Error> {
        let place = self.staging.place(run, self.staging.kind());
        let removed = tokio::task::spawn_blocking(move || place.remove()).await?;
        if let Err(error) = removed {
            warn!(%run, error = %Chain(&error), "an environment is not proven to be gone");
            return Err(Error::CleanupUncertain);
        }
        self.store.set_environment_state(run, EnvironmentState::Closed).await?;
        info!(%run, "environment closed");
        Ok(())
    }

    /// Records a refusal; what cannot be recorded is not answered either.
    pub(crate) async fn refuse(
        &self,
        proven: Option<&Session>,
        refused: event::CallRefused,
    ) -> Result<Waiting, Error> {
        let (session, tenant, rev) = match proven {
            Some(session) => (session.id, session.grant.tenant.clone(), session.policy_rev()),
            None => (SessionId::nil(), String::new(), String::new()),
        };
        let record = ledger::record(session, &tenant, &rev, refused)?;
        Ok(self.store.record(&record).await?)
    }

    pub(crate) async fn held(&self, owner: &Owner) -> Result<Session, Error> {
        self.sessions.held(owner).await
    }
}

/// Whose a copy is and whom its commands run as: nobody on the host, or the workspace's owner where they write there.
fn user_of(session: &Session, host: &Path, kind: StagingKind, slot: u32) -> Result<User, Error> {
    match session.manifest.execution.mode {
        Mode::Snapshot => Ok(User::of_slot(owner_of(kind, slot))),
        Mode::Mount => mounts::owner(host, kind),
    }
}

/// Nobody may remove a copy while something may still write there.
fn uncertain(run: RunId, error: Unsettled) -> Error {
    match error {
        Unsettled::House(error) => error,
        error => {
            warn!(%run, error = %Chain(&error), "a tool server is not proven to be gone");
            Error::CleanupUncertain
        }
    }
}

fn opened(environment: &Environment) -> Opened {
    let withheld = environment
        .before
        .iter()
        .map(|(path, reason)| NotCarried { path: path.clone(), reason: *reason })
        .collect();
    Opened { base: environment.first_digest, withheld }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("instance", &self.instance).finish_non_exhaustive()
    }
}
