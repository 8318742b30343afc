//! One command in one container, from its admission to the proof that nothing of it is left. Every step is
//! written down before it is taken, so that another process can go on from there.
//!
//! A command has two clocks: this process's, and, a little later, that of the container's own first process, which
//! is out of the command's reach. So a kill of this service leaves no command without one; what has run out
//! meanwhile is collected at the next start, or by `--purge`.

mod gone;
mod make;
mod mounted;
mod network;
mod order;
mod settle;
mod stop;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event::id::CallId;
use receipt::Network;
use sandbox_init::Nonce;
use tracing::{info, warn};
use transport::Chain;
use uuid::Uuid;

use crate::broker::Connections;
use crate::engine::cgroup::Cgroups;
use crate::engine::{
    ContainerId, ContainerName, Docker, EngineError, Frames, Handle, Image, Input, Inspected,
    Status,
};
use crate::environment::Environment;
use crate::error::Error;
use crate::exec::network::broker_bind;
use crate::exec::watch::Watched;
use crate::failpoint::Stopped;
use crate::import::ImportError;
use crate::ledger;
use crate::lifecycle::{Ended, StopReason, Text, Way};
use crate::live::Live;
use crate::mounts::Held;
use crate::pool::{Claim, Leased, Member};
use crate::sandbox::Sandbox;
use crate::session::{Session, now_ms};
use crate::store::{ExecutionRow, ExecutionState, Started, StoreError};
use crate::tree::stamp::Changes;

pub(crate) use gone::Traces;
pub(crate) use make::Made;
pub(crate) use order::{Order, order};

/// Labels of our containers; only ids and digests.
pub(crate) const OWNER_LABEL: &str = "harness.owner";
pub(crate) const OWNER: &str = "sandbox-svc";
pub(crate) const INSTANCE_LABEL: &str = "harness.instance";
pub(crate) const LEASE_LABEL: &str = "harness.lease";

const ASK_AGAIN: Duration = Duration::from_millis(500);
const ASK_TIMES: u32 = 10;
const CAUSE_CHARACTERS: usize = 300;

/// A call whose end is not known now. It stays as it is noted, and somebody tries again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsettled {
    #[error("the engine does not say what happened")]
    Engine(#[from] EngineError),
    #[error("the container is not proven to be gone: {0}")]
    Cleanup(&'static str),
    #[error("the import cannot go on now")]
    Import(#[source] ImportError),
    #[error(transparent)]
    House(#[from] Error),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<StoreError> for Unsettled {
    fn from(error: StoreError) -> Self {
        Self::House(error.into())
    }
}

impl From<event::SealError> for Unsettled {
    fn from(error: event::SealError) -> Self {
        Self::House(error.into())
    }
}

/// One attempt of one call.
pub(crate) struct Run<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) engine: &'a Docker,
    /// Missing when the copy is gone: then there is only something to clean up.
    pub(crate) environment: Option<&'a Arc<Environment>>,
    pub(crate) row: &'a ExecutionRow,
    pub(crate) plan: &'a receipt::Plan,
    pub(crate) limits: receipt::Limits,
    pub(crate) live: &'a Live,
    pub(crate) session: &'a Session,
    /// Trees of the host, from the moment that they are held.
    pub(crate) held: OnceLock<Arc<Held>>,
    /// The container's `/tmp` on this host, where the engine's own is not used.
    pub(crate) tmp: OnceLock<PathBuf>,
    /// What the command changed in them, when it has ended and they were held by this process.
    pub(crate) changes: OnceLock<Changes>,
}

impl Run<'_> {
    fn call(&self) -> CallId {
        self.row.plan.call
    }

    fn name(&self) -> ContainerName {
        ContainerName::of(self.call(), self.row.attempt)
    }

    /// From where the call stands to what was seen of its end; the container is gone when this returns.
    pub(crate) async fn carry_out(&self) -> Result<Ended, Unsettled> {
        self.forget_seen();
        let (ended, cgroups) = match self.row.state {
            ExecutionState::Ended | ExecutionState::Finished => {
                let malformed = || StoreError::Malformed("end of a command");
                let stored = self.row.ended.as_deref().ok_or_else(malformed)?;
                let ended = serde_json::from_slice(stored).map_err(|_| malformed())?;
                (ended, Cgroups::parse(&self.row.cgroups))
            }
            state => {
                let (ended, cgroups) = match (state, self.environment) {
                    (_, None) => (self.gone(true), Cgroups::parse(&self.row.cgroups)),
                    (ExecutionState::Created | ExecutionState::Started, Some(environment)) => {
                        self.find_again(environment).await?
                    }
                    (_, Some(environment)) => self.begin(environment).await?,
                };
                let bytes = serde_json::to_vec(&ended).map_err(|_| {
                    Unsettled::House(Error::Start(
                        "what was seen cannot be written down".to_owned(),
                    ))
                })?;
                self.sandbox.store.note_ended(self.call(), &bytes, &cgroups.to_text()).await?;
                (ended, cgroups)
            }
        };
        self.sandbox.failpoint.hit("exec-ended")?;
        self.leave(&ended).await?;
        self.settle(&cgroups).await?;
        self.let_go().await?;
        self.sandbox.failpoint.hit("exec-settled")?;
        self.forget_seen();
        Ok(ended)
    }

    fn forget_seen(&self) {
        if let Some(environment) = self.environment {
            environment.forget_seen();
        }
    }

    /// Nothing of this call has run yet.
    async fn begin(&self, environment: &Environment) -> Result<(Ended, Cgroups), Unsettled> {
        let not_started = |cause| Ok((self.not_started(cause), Cgroups::default()));
        if self.row.reason.is_some() {
            return not_started("it was stopped before it began".to_owned());
        }
        let (image, order) = match self.order().await? {
            Ok(order) => order,
            Err(cause) => return not_started(cause),
        };
        let broker = match self.broker(environment).await {
            Ok(broker) => broker,
            Err(cause) => return not_started(cause),
        };
        let egress = broker.as_ref().map(|broker| broker.directory.as_path());
        let ran = Box::pin(self.begin_with(environment, &image, &order, egress)).await;
        let connections = match broker {
            Some(broker) => Some(broker.end().await),
            None => None,
        };
        let (ended, cgroups) = ran?;
        Ok((Ended { connections, ..ended }, cgroups))
    }

    async fn begin_with(
        &self,
        environment: &Environment,
        image: &Image,
        order: &Order,
        egress: Option<&Path>,
    ) -> Result<(Ended, Cgroups), Unsettled> {
        // Trees of the host and a broker's socket are held for one call and are in no container that waits.
        if self.plan.mounts.is_empty() && egress.is_none() {
            let spec = self.spec(environment, image, self.binds(environment, None));
            let policy = self.session.policy_rev();
            match self.sandbox.pool.claim(environment.run, &spec, &policy) {
                Claim::None => (),
                Claim::Stale(member, leased) => self.sandbox.discard(member, leased).await,
                Claim::Fits(member, leased) => {
                    if let Some(ended) = self.begin_in(member, leased, order).await? {
                        return Ok(ended);
                    }
                }
            }
        }
        self.begin_anew(environment, image, order, egress).await
    }

    /// In a container that waits; nothing when it turns out to be of no use.
    async fn begin_in(
        &self,
        member: Member,
        leased: Leased,
        order: &Order,
    ) -> Result<Option<(Ended, Cgroups)>, Unsettled> {
        let seen = self.engine.inspect(Handle::Id(&member.id)).await;
        if !matches!(seen, Ok(Some(Inspected { status: Status::Running, .. }))) {
            self.sandbox.discard(member, leased).await;
            return Ok(None);
        }
        let Member { lease, id, spec, frames, input, cgroups, .. } = member;
        let claimed = Some((id.as_str(), lease));
        self.note_started(&spec.name, &cgroups, order.nonce, claimed).await?;
        // From here on it is the call's.
        drop(leased);
        self.sandbox.failpoint.hit("exec-claimed")?;
        match self.give(order, &id, frames, input, cgroups).await? {
            (Watched::Ended(ended), cgroups) => Ok(Some((ended, cgroups))),
            (Watched::NothingRan, _) => {
                self.remove(&id).await?;
                Ok(None)
            }
        }
    }

    /// In a container of its own making.
    async fn begin_anew(
        &self,
        environment: &Environment,
        image: &Image,
        order: &Order,
        egress: Option<&Path>,
    ) -> Result<(Ended, Cgroups), Unsettled> {
        self.sandbox.store.note_creating(self.call(), self.row.lease).await?;
        self.sandbox.failpoint.hit("exec-creating")?;
        let not_started = |cause| Ok((self.not_started(cause), Cgroups::default()));
        let held = match self.hold(environment).await? {
            Ok(held) => held,
            Err(refusal) => return Ok((self.refused(refusal), Cgroups::default())),
        };
        if let Err(cause) = self.make_tmp(environment).await? {
            return Ok((self.not_started(cause), Cgroups::default()));
        }
        self.sandbox.failpoint.hit("exec-held")?;
        let mut binds = self.binds(environment, held.as_deref());
        binds.extend(egress.map(broker_bind));
        let spec = self.spec(environment, image, binds);
        let id = match self.create(&spec).await? {
            Ok(id) => id,
            Err(cause) => return not_started(cause),
        };
        self.sandbox.store.note_created(self.call(), id.as_str()).await?;
        self.sandbox.failpoint.hit("exec-created")?;
        // Before the start, so that not a byte is missed.
        let (frames, input) = match self.engine.attach(&id).await {
            Ok(attached) => attached,
            Err(error) => return not_started(cause_of(&error)),
        };
        if let Some(held) = held {
            self.sandbox.failpoint.hit("exec-attached")?;
            if let Err(refusal) = self.still(held).await? {
                return Ok((self.refused(refusal), Cgroups::default()));
            }
        }
        let failed = self.engine.start(&id).await.err();
        let seen = self.inspect_surely(Handle::Id(&id)).await?;
        let seen = match (failed, seen) {
            // An error answer is no result: what the container says, counts.
            (
                Some(error @ EngineError::Refused { .. }),
                None | Some(Inspected { status: Status::Created, .. }),
            ) => return not_started(cause_of(&error)),
            // Without its frame it runs nothing, even if it starts yet.
            (Some(_), Some(Inspected { status: Status::Created, .. })) | (_, None) => {
                return not_started("the engine did not say that the container started".to_owned());
            }
            (None, Some(Inspected { status: Status::Created, .. })) => {
                return not_started("the engine did not start the container".to_owned());
            }
            (_, Some(seen)) => seen,
        };
        let cgroups = Cgroups::of(&id, seen.pid);
        self.note_started(&spec.name, &cgroups, order.nonce, None).await?;
        self.sandbox.failpoint.hit("exec-started")?;
        match self.give(order, &id, frames, input, cgroups).await? {
            (Watched::Ended(ended), cgroups) => Ok((ended, cgroups)),
            (Watched::NothingRan, cgroups) => {
                let cause = "the container's first process got no whole frame";
                Ok((self.not_started(cause.to_owned()), cgroups))
            }
        }
    }

    /// The frame, and then to the end of what it says.
    async fn give(
        &self,
        order: &Order,
        id: &ContainerId,
        frames: Frames,
        input: Input,
        cgroups: Cgroups,
    ) -> Result<(Watched, Cgroups), Unsettled> {
        let began = tokio::time::Instant::now();
        order.send(input).await.unwrap_or_else(|error| {
            // Whether it came through, the end says.
            warn!(call = %self.call(), %error, "a frame could not be sent whole");
        });
        self.sandbox.failpoint.hit("exec-ordered")?;
        self.watch(id, frames, order.nonce, cgroups, began, false).await
    }

    /// Before the container gets its frame, together with the claim of one that waited. The ledger and the caller
    /// are told of a call's first container only; another one is made when nothing ran in it.
    async fn note_started(
        &self,
        name: &ContainerName,
        cgroups: &Cgroups,
        nonce: Nonce,
        claimed: Option<(&str, Uuid)>,
    ) -> Result<(), Unsettled> {
        let (call, at_ms, text) = (self.call(), now_ms(), cgroups.to_text());
        let noted = |told| Started { call, at_ms, cgroups: &text, nonce, claimed, told };
        let before = self.sandbox.store.execution(call).await?.and_then(|row| row.started_data);
        if let Some(data) = before {
            self.sandbox.store.note_started(&noted(None)).await?;
            self.live.started(data);
            return Ok(());
        }
        let started = event::SandboxStarted {
            run_id: self.row.plan.run,
            call_id: call,
            attempt: self.row.attempt,
            container_name: name.to_string(),
            image: self.plan.image.map(|image| image.to_string()).unwrap_or_default(),
            network: match self.plan.network {
                Network::None => event::SandboxNetwork::None,
                Network::Broker { .. } => event::SandboxNetwork::Enabled,
            },
            mounts: self.mounts_for_the_record(),
        };
        let data = event::Data::from(started);
        let bytes = data.to_bytes().map_err(event::SealError::Canonical)?;
        let record =
            ledger::record(self.session.id, &self.row.tenant, &self.session.policy_rev(), data)?;
        self.sandbox.store.note_started(&noted(Some((&bytes, &record)))).await?;
        info!(%call, container = %name, "container started");
        self.live.started(bytes);
        Ok(())
    }

    /// An earlier process made the container: goes on with what has become of it.
    async fn find_again(&self, environment: &Environment) -> Result<(Ended, Cgroups), Unsettled> {
        let id = self.row.container.as_deref().and_then(|id| ContainerId::parse(id).ok());
        let seen = match &id {
            Some(id) => {
                self.inspect_surely(Handle::Id(id)).await?.filter(|seen| self.is_ours(seen))
            }
            None => None,
        };
        let (Some(id), Some(seen)) = (id, seen) else {
            return Ok((self.gone(true), Cgroups::parse(&self.row.cgroups)));
        };
        let (Some(nonce), ExecutionState::Started) = (self.row.nonce, self.row.state) else {
            // It never got a frame, and what was made is of no use without its attach.
            self.remove(&id).await?;
            return self.begin(environment).await;
        };
        let mut cgroups = Cgroups::parse(&self.row.cgroups);
        cgroups.merge(Cgroups::of(&id, seen.pid));
        if let Some(data) = &self.row.started_data {
            self.live.started(data.clone());
        }
        let ran_ms = self.row.started_ms.map_or(0, |at| now_ms().saturating_sub(at));
        let ran = Duration::from_millis(u64::try_from(ran_ms).unwrap_or(0));
        let began = tokio::time::Instant::now();
        let began = began.checked_sub(ran).unwrap_or(began);
        let (watched, cgroups) = if seen.status == Status::Running {
            warn!(call = %self.call(), "a running container is taken over");
            let frames = self.engine.listen(&id).await?;
            self.watch(&id, frames, nonce, cgroups, began, true).await?
        } else {
            (self.ended(Some(&seen), None, &cgroups, began).await?, cgroups)
        };
        match watched {
            Watched::Ended(ended) => {
                // Its broker ended with the process that started it.
                let networked = self.plan.network != Network::None;
                let connections = networked.then(Connections::lost);
                Ok((Ended { connections, ..ended }, cgroups))
            }
            // The frame was still to be sent, or on its way.
            Watched::NothingRan => {
                self.remove(&id).await?;
                self.begin(environment).await
            }
        }
    }

    /// Asks until the engine answers; a container that the engine does not know is gone.
    async fn inspect_surely(&self, handle: Handle<'_>) -> Result<Option<Inspected>, Unsettled> {
        for _ in 1..ASK_TIMES {
            match self.engine.inspect(handle).await {
                Ok(seen) => return Ok(seen),
                Err(error) => {
                    warn!(call = %self.call(), error = %Chain(&error), "the engine is asked again");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
        Ok(self.engine.inspect(handle).await?)
    }

    fn not_started(&self, cause: String) -> Ended {
        warn!(call = %self.call(), "a command was not started");
        self.seen_nothing(Way::NotStarted { cause })
    }

    fn gone(&self, may_have_run: bool) -> Ended {
        self.seen_nothing(Way::Gone { may_have_run })
    }

    fn seen_nothing(&self, way: Way) -> Ended {
        Ended {
            way,
            reason: self.row.reason.as_deref().and_then(StopReason::parse),
            oom_seen: false,
            output_incomplete: self.row.started_data.is_some(),
            stdout: Text::default(),
            stderr: Text::default(),
            duration_ms: 0,
            connections: None,
        }
    }
}

/// The engine's own words, short.
fn cause_of(error: &EngineError) -> String {
    Chain(error).to_string().chars().take(CAUSE_CHARACTERS).collect()
}
