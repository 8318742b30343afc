//! Makes and removes the containers that wait for a command. One is started behind what answers a caller, never
//! before it, and one that cannot be made is no fault of anybody's: the command makes its own.

use std::sync::Arc;
use std::time::Duration;

use event::MountMode;
use event::id::{CallId, RunId};
use manifest::Mode;
use tokio::time::Instant;
use tracing::{info, warn};
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{Bind, ContainerName, Created, Docker, EngineError, Handle, WORKSPACE};
use crate::environment::Environment;
use crate::exec::Made;
use crate::failpoint::Stopped;
use crate::image::ImageName;
use crate::pool::{Leased, Member, Place};
use crate::sandbox::Sandbox;
use crate::session::Session;

pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(5 * 60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no container that waits.
#[derive(Debug, thiserror::Error)]
enum NotWarm {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the image is not what it was")]
    Image(#[from] crate::engine::ImageError),
    #[error("it did not come to run: {0}")]
    Odd(&'static str),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Sandbox {
    /// Has one made for the run's next command.
    pub(crate) fn warm(self: &Arc<Self>, session: &Session, run: RunId) {
        let Some(engine) = self.engine.clone() else { return };
        let execution = &session.manifest.execution;
        // What is held of the host for a command is in no container that waits, nor is the socket of a broker.
        let rulebook = self.sessions.rulebook(session);
        let networked = !rulebook.is_ok_and(|rulebook| matches!(rulebook.network(), Ok(None)));
        if networked || execution.mode == Mode::Mount || !execution.dependencies.is_empty() {
            return;
        }
        let Some(image) = execution.image.as_deref().and_then(ImageName::parse) else { return };
        let Some(place) = self.pool.place(run) else { return };
        // Whoever closes the run takes it out of the list first and then waits for this place.
        let Some(environment) = self.environment(session.id, run) else { return };
        let (sandbox, session) = (self.clone(), session.clone());
        self.tracker.spawn(Box::pin(async move {
            let making = Making { sandbox: &sandbox, engine: &engine, place: &place };
            match making.make(&session, &environment, &image).await {
                Ok(member) => {
                    let container = member.spec.name.clone();
                    match sandbox.pool.fill(&place, member) {
                        Ok(()) => info!(%run, %container, "a container waits for the next command"),
                        Err(_) => drop(making.give_up(container).await),
                    }
                }
                // As a kill would have it: what was made stays for the next start.
                Err(NotWarm::Stopped(_)) => (),
                Err(error) => {
                    warn!(%run, error = %Chain(&error), "no container waits for the next command");
                    let name = ContainerName::waiting(place.lease);
                    if let Err(error) = making.give_up(name).await {
                        warn!(%run, error = %Chain(&error), "a container is left to the reaper");
                    }
                }
            }
        }));
    }

    /// The same, behind a call that may have used one up.
    pub(crate) async fn warm_again(self: &Arc<Self>, call: CallId) {
        if self.pool.is_off() {
            return;
        }
        let Ok(Some(row)) = self.store.execution(call).await else { return };
        if let Ok(session) = self.sessions.known(row.plan.session).await {
            self.warm(&session, row.plan.run);
        }
    }

    /// Removes what waits for the run, whose copy is about to go.
    pub(crate) async fn cool(self: &Arc<Self>, run: RunId) {
        if let Some((member, leased)) = self.pool.take(run).await {
            self.discard(member, leased).await;
        }
    }

    /// Removes whatever has waited for so long.
    pub(crate) async fn cool_older(self: &Arc<Self>, than: Duration) {
        for (member, leased) in self.pool.older(than) {
            self.discard(member, leased).await;
        }
    }

    /// Removes all that waits; none is made any more.
    pub(crate) async fn cool_all(self: &Arc<Self>) {
        for (member, leased) in self.pool.close() {
            self.discard(member, leased).await;
        }
    }

    /// Until the engine has forgotten it, or the reaper has to go on.
    pub(crate) async fn discard(&self, member: Member, _leased: Leased) {
        let Some(engine) = &self.engine else { return };
        let Member { id, cgroups, frames, input, .. } = member;
        drop((frames, input));
        let until = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let gone = async {
                engine.remove(Handle::Id(&id)).await?;
                let known = engine.inspect(Handle::Id(&id)).await?.is_some();
                Ok::<_, EngineError>(!known && cgroups.are_gone())
            };
            match gone.await {
                Ok(true) => {
                    return info!(container = id.as_str(), "a container that waited is removed");
                }
                Ok(false) => (),
                Err(error) => {
                    warn!(container = id.as_str(), error = %Chain(&error), "a container is not removed yet");
                }
            }
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

struct Making<'a> {
    sandbox: &'a Sandbox,
    engine: &'a Docker,
    place: &'a Place,
}

impl Making<'_> {
    async fn make(
        &self,
        session: &Session,
        environment: &Environment,
        image: &ImageName,
    ) -> Result<Member, NotWarm> {
        let Self { sandbox, engine, place } = self;
        let image = engine.image(image).await?;
        let limits = sandbox.ceilings.lower(&session.manifest.execution.limits, None);
        let made = Made { sandbox, session, environment, image: &image, limits };
        let copy = Bind {
            source: environment.place.copy(),
            target: WORKSPACE.to_owned(),
            mode: MountMode::Rw,
        };
        let spec = made.spec(ContainerName::waiting(place.lease), place.lease, vec![copy]);
        let Created::Made(id) = engine.create(&spec).await? else {
            return Err(NotWarm::Odd("its name is taken"));
        };
        sandbox.failpoint.hit("warm-created")?;
        let (frames, input) = engine.attach(&id).await?;
        engine.start(&id).await?;
        let seen = engine.inspect(Handle::Id(&id)).await?;
        let pid = seen.and_then(|seen| seen.pid).ok_or(NotWarm::Odd("it has no process"))?;
        sandbox.failpoint.hit("warm-started")?;
        let cgroups = Cgroups::of(&id, Some(pid));
        let (policy, since) = (session.policy_rev(), Instant::now());
        Ok(Member { lease: place.lease, id, spec, policy, frames, input, cgroups, since })
    }

    /// By its name, which nobody else's container has: it holds the lease.
    async fn give_up(&self, name: ContainerName) -> Result<(), EngineError> {
        self.engine.remove(Handle::Name(&name)).await
    }
}
