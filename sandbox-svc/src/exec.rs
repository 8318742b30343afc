//! One command in one container, from its admission to the proof that nothing of it is left. Every step is
//! written down before it is taken, so that another process can go on from there.
//!
//! The clock of a command is this process's. A stop ends commands first; after a kill a container runs on
//! until the next start, or `--purge`, collects it. Nothing inside can carry the limit: the image's programs
//! are not ours, an own first process would share its user with the command, and limits of the kernel count
//! processor time of one process and not hours.

mod mounted;
mod settle;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event::id::CallId;
use tracing::{info, warn};
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{
    Bind, ContainerId, ContainerName, Created, Docker, EngineError, Handle, Image, Inspected,
    Limits, Spec, Status,
};
use crate::environment::Environment;
use crate::error::Error;
use crate::failpoint::Stopped;
use crate::import::ImportError;
use crate::ledger;
use crate::lifecycle::{Ended, StopReason, Text, Way};
use crate::live::Live;
use crate::mounts::Held;
use crate::planner::environment_variables;
use crate::sandbox::Sandbox;
use crate::session::{Session, now_ms};
use crate::store::{ExecutionRow, ExecutionState, StoreError};
use crate::tree::stamp::Changes;

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
        self.sandbox.store.note_creating(self.call()).await?;
        self.sandbox.failpoint.hit("exec-creating")?;
        let held = match self.hold(environment).await? {
            Ok(held) => held,
            Err(refusal) => return Ok((self.refused(refusal), Cgroups::default())),
        };
        self.sandbox.failpoint.hit("exec-held")?;
        let id = match self.create(environment, held.as_deref()).await? {
            Ok(id) => id,
            Err(cause) => return Ok((self.not_started(cause), Cgroups::default())),
        };
        self.sandbox.store.note_created(self.call(), id.as_str()).await?;
        self.sandbox.failpoint.hit("exec-created")?;
        // Before the start, so that not a byte is missed.
        let frames = match self.engine.attach(&id).await {
            Ok(frames) => frames,
            Err(error) => return Ok((self.not_started(cause_of(&error)), Cgroups::default())),
        };
        if let Some(held) = held {
            self.sandbox.failpoint.hit("exec-attached")?;
            if let Err(refusal) = self.still(held).await? {
                return Ok((self.refused(refusal), Cgroups::default()));
            }
        }
        let began = tokio::time::Instant::now();
        let failed = self.engine.start(&id).await.err();
        let seen = self.inspect_surely(Handle::Id(&id)).await?;
        match (failed, seen) {
            // An error answer is no result: what the container says, counts.
            (
                Some(error @ EngineError::Refused { .. }),
                None | Some(Inspected { status: Status::Created, .. }),
            ) => Ok((self.not_started(cause_of(&error)), Cgroups::default())),
            // No answer at all: it may start yet, before it is removed.
            (Some(_), Some(Inspected { status: Status::Created, .. })) | (_, None) => {
                Ok((self.gone(true), Cgroups::default()))
            }
            (None, Some(Inspected { status: Status::Created, .. })) => Ok((
                self.not_started("the engine did not start the container".to_owned()),
                Cgroups::default(),
            )),
            (_, Some(seen)) => {
                let cgroups = Cgroups::of(&id, seen.pid);
                self.note_started(&cgroups).await?;
                self.sandbox.failpoint.hit("exec-started")?;
                self.watch(&id, frames, cgroups, began, false).await
            }
        }
    }

    /// A cause instead of an id when the engine will not make the container.
    async fn create(
        &self,
        environment: &Environment,
        held: Option<&Held>,
    ) -> Result<Result<ContainerId, String>, Unsettled> {
        let image = match self.engine.image_by_id(self.plan.image).await {
            Ok(image) => image,
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        };
        let spec = self.spec(environment, &image, self.binds(environment, held));
        for _ in 0..2 {
            match self.engine.create(&spec).await {
                Ok(Created::Made(id)) => return Ok(Ok(id)),
                // A create of an earlier process whose answer was lost, or somebody else's.
                Ok(Created::NameTaken) => match self
                    .inspect_surely(Handle::Name(&spec.name))
                    .await?
                {
                    Some(seen) if self.is_ours(&seen) => self.remove(&seen.id).await?,
                    Some(_) => return Ok(Err("a container of that name is not ours".to_owned())),
                    None => (),
                },
                Err(EngineError::NotLockedDown(field)) => {
                    return Ok(Err(format!("the engine did not lock the container down: {field}")));
                }
                Err(error @ EngineError::Refused { .. }) => return Ok(Err(cause_of(&error))),
                Err(error) => {
                    // It may have been made all the same.
                    if let Some(seen) = self.inspect_surely(Handle::Name(&spec.name)).await?
                        && self.is_ours(&seen)
                    {
                        self.remove(&seen.id).await?;
                    }
                    return Ok(Err(cause_of(&error)));
                }
            }
        }
        Ok(Err("the container's name stays taken".to_owned()))
    }

    fn spec(&self, environment: &Environment, image: &Image, binds: Vec<Bind>) -> Spec {
        let receipt::Limits { memory, pids, cpus_milli, file_bytes, tmp_bytes, .. } = self.limits;
        let labels = [
            (OWNER_LABEL, OWNER.to_owned()),
            (INSTANCE_LABEL, self.sandbox.instance.to_string()),
            (LEASE_LABEL, self.row.lease.to_string()),
            ("harness.call", self.call().to_string()),
            ("harness.attempt", self.row.attempt.to_string()),
            ("harness.session", self.row.plan.session.to_string()),
            ("harness.epoch", self.session.epoch.to_string()),
            ("harness.policy", self.session.policy_rev()),
        ];
        Spec {
            name: self.name(),
            image: image.id,
            argv: self.plan.argv.clone().unwrap_or_default(),
            env: environment_variables(image, cpus_milli),
            user: environment.user,
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            binds,
            limits: Limits { memory, pids, cpus_milli, file_bytes, tmp_bytes },
        }
    }

    fn is_ours(&self, seen: &Inspected) -> bool {
        let label = |name: &str| seen.labels.get(name).map(String::as_str);
        label(OWNER_LABEL) == Some(OWNER)
            && label(INSTANCE_LABEL) == Some(&self.sandbox.instance.to_string())
            && label(LEASE_LABEL) == Some(&self.row.lease.to_string())
    }

    async fn note_started(&self, cgroups: &Cgroups) -> Result<(), Unsettled> {
        let started = event::SandboxStarted {
            run_id: self.row.plan.run,
            call_id: self.call(),
            attempt: self.row.attempt,
            container_name: self.name().to_string(),
            image: self.plan.image.map(|image| image.to_string()).unwrap_or_default(),
            network: event::SandboxNetwork::None,
            mounts: self.mounts_for_the_record(),
        };
        let data = event::Data::from(started);
        let bytes = data.to_bytes().map_err(event::SealError::Canonical)?;
        let record =
            ledger::record(self.session.id, &self.row.tenant, &self.session.policy_rev(), data)?;
        self.sandbox
            .store
            .note_started(self.call(), now_ms(), &cgroups.to_text(), &bytes, &record)
            .await?;
        info!(call = %self.call(), container = %self.name(), "container started");
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
        if seen.status == Status::Created {
            // Never started: what was made is of no use without its attach.
            self.remove(&id).await?;
            return self.begin(environment).await;
        }
        let mut cgroups = Cgroups::parse(&self.row.cgroups);
        cgroups.merge(Cgroups::of(&id, seen.pid));
        match &self.row.started_data {
            Some(data) => self.live.started(data.clone()),
            None => self.note_started(&cgroups).await?,
        }
        let ran_ms = self.row.started_ms.map_or(0, |at| now_ms().saturating_sub(at));
        let ran = Duration::from_millis(u64::try_from(ran_ms).unwrap_or(0));
        let began = tokio::time::Instant::now();
        let began = began.checked_sub(ran).unwrap_or(began);
        if seen.status == Status::Exited {
            let ended = self.ended(&seen, None, &cgroups, began, true).await?;
            return Ok((ended, cgroups));
        }
        warn!(call = %self.call(), "a running container is taken over");
        let frames = self.engine.attach(&id).await?;
        self.watch(&id, frames, cgroups, began, true).await
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
        }
    }
}

/// The engine's own words, short.
fn cause_of(error: &EngineError) -> String {
    Chain(error).to_string().chars().take(CAUSE_CHARACTERS).collect()
}
