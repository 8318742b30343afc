//! The start of a tool server: its container as a command's would be, with the copy and nothing else of the host, and
//! the greeting. Every step is written down before it is taken; what fails ends what was made.

use std::sync::Arc;
use std::time::Duration;

use event::MountMode;
use sandbox_init::{Nonce, Stdin};
use tokio::time::Instant;
use tracing::info;
use transport::Chain;
use uuid::Uuid;

use super::call::Ask;
use super::pump::{Errors, pump};
use super::{Leased, Running};
use crate::engine::cgroup::Cgroups;
use crate::engine::{
    Bind, ContainerId, ContainerName, Created, Frames, Handle, Image, Input, WORKSPACE,
};
use crate::error::Error;
use crate::exec::{Made, Unsettled, order};
use crate::failpoint::Stopped;
use crate::ledger;
use crate::mcp::{Client, Failure};
use crate::session::now_ms;
use crate::store::{ServerRow, StoreError};

/// The conversation is its clock: whatever the first process's own, it ends when that is gone.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);

/// Why there is no server.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The engine's doing, or the image's.
    Cause(String),
    /// The server's own.
    Failed(Failure, Arc<Errors>),
}

/// A fault of the house, or of the server.
pub(super) enum Stop {
    NotStarted(NotStarted),
    Unsettled(Unsettled),
}

impl From<Unsettled> for Stop {
    fn from(unsettled: Unsettled) -> Self {
        Self::Unsettled(unsettled)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Unsettled(error.into())
    }
}

impl From<Stopped> for Stop {
    fn from(stopped: Stopped) -> Self {
        Self::Unsettled(stopped.into())
    }
}

fn cause(error: &(dyn std::error::Error + 'static)) -> Stop {
    Stop::NotStarted(NotStarted::Cause(Chain(error).to_string()))
}

/// A container with its frame, and its streams.
struct Begun {
    id: ContainerId,
    cgroups: Cgroups,
    nonce: Nonce,
    frames: Frames,
    input: Input,
}

impl Ask<'_> {
    /// Greeted and listening; where it is not, nothing of it is left, or the call has no end.
    pub(super) async fn start(&self) -> Result<Result<(Running, Leased), NotStarted>, Unsettled> {
        let stopping = || Unsettled::House(Error::Stopping);
        let leased = self.sandbox.servers.lease().ok_or_else(stopping)?;
        match self.begin_and_greet(leased.lease).await {
            Ok(running) => {
                info!(call = %self.row.plan.call, "a tool server was started");
                Ok(Ok((running, leased)))
            }
            Err(Stop::NotStarted(why)) => {
                self.sandbox.settle_server(leased.lease, event::SandboxStatus::Failed).await?;
                Ok(Err(why))
            }
            Err(Stop::Unsettled(unsettled)) => Err(unsettled),
        }
    }

    async fn begin_and_greet(&self, lease: Uuid) -> Result<Running, Stop> {
        let image = self.engine.image_by_id(self.plan.image).await.map_err(|e| cause(&e))?;
        self.put_row(lease).await?;
        self.sandbox.failpoint.hit("server-noted")?;
        let Begun { id, cgroups, nonce, frames, input } = self.begin(lease, &image).await?;
        let errors = Arc::new(Errors::default());
        let reader = pump(frames, nonce, errors.clone(), &self.sandbox.tracker);
        let tracker = &self.sandbox.tracker;
        let greeted = Client::open(reader, input, self.talk(), &self.live.cancel, tracker).await;
        let client = greeted
            .map_err(|failure| Stop::NotStarted(NotStarted::Failed(failure, errors.clone())))?;
        self.sandbox.failpoint.hit("server-greeted")?;
        let (listed, since) = (Arc::default(), Instant::now());
        Ok(Running { id, client, errors, cgroups, listed, since })
    }

    async fn put_row(&self, lease: Uuid) -> Result<(), StoreError> {
        let row = ServerRow {
            lease,
            session: self.session.id,
            tenant: self.row.tenant.clone(),
            policy_rev: self.session.policy_rev(),
            run: self.environment.run,
            call: self.row.plan.call,
            attempt: self.row.attempt,
            container: None,
            cgroups: String::new(),
            started_ms: None,
        };
        self.sandbox.store.put_server(&row).await
    }

    async fn begin(&self, lease: Uuid, image: &Image) -> Result<Begun, Stop> {
        let ordered = order(self.plan, image, &self.limits, LIFE, Stdin::Rest);
        let ordered = ordered.map_err(Unsettled::House)?;
        let order = ordered.map_err(|cause| Stop::NotStarted(NotStarted::Cause(cause)))?;
        let id = self.create(lease, image).await?;
        self.sandbox.store.note_server_created(lease, id.as_str()).await?;
        self.sandbox.failpoint.hit("server-created")?;
        let (frames, mut input) = self.engine.attach(&id).await.map_err(|e| cause(&e))?;
        self.engine.start(&id).await.map_err(|e| cause(&e))?;
        let seen = self.engine.inspect(Handle::Id(&id)).await.map_err(|e| cause(&e))?;
        let cgroups = Cgroups::of(&id, seen.and_then(|seen| seen.pid));
        self.note_started(lease, &cgroups).await?;
        self.sandbox.failpoint.hit("server-started")?;
        order.begin(&mut input).await.map_err(|e| cause(&e))?;
        let nonce = order.nonce;
        Ok(Begun { id, cgroups, nonce, frames, input })
    }

    /// With the copy, and nothing of the host beside it.
    async fn create(&self, lease: Uuid, image: &Image) -> Result<ContainerId, Stop> {
        let (sandbox, session) = (self.sandbox, self.session);
        let made =
            Made { sandbox, session, environment: self.environment, image, limits: self.limits };
        let copy = Bind {
            source: self.environment.place.copy(),
            target: WORKSPACE.to_owned(),
            mode: MountMode::Rw,
        };
        let mut spec = made.spec(ContainerName::server(lease), lease, vec![copy]);
        spec.labels.insert("harness.call".to_owned(), self.row.plan.call.to_string());
        match self.engine.create(&spec).await.map_err(|e| cause(&e))? {
            Created::Made(id) => Ok(id),
            Created::NameTaken => {
                Err(Stop::NotStarted(NotStarted::Cause("its name is taken".to_owned())))
            }
        }
    }

    async fn note_started(&self, lease: Uuid, cgroups: &Cgroups) -> Result<(), Unsettled> {
        let copy = event::Mount { source: None, target: WORKSPACE.to_owned(), mode: MountMode::Rw };
        let started = event::SandboxStarted {
            run_id: self.row.plan.run,
            call_id: self.row.plan.call,
            attempt: self.row.attempt,
            container_name: ContainerName::server(lease).to_string(),
            image: self.plan.image.map(|image| image.to_string()).unwrap_or_default(),
            network: event::SandboxNetwork::None,
            mounts: vec![copy],
        };
        let rev = self.session.policy_rev();
        let record = ledger::record(self.session.id, &self.row.tenant, &rev, started)?;
        let store = &self.sandbox.store;
        Ok(store.note_server_started(lease, &cgroups.to_text(), now_ms(), &record).await?)
    }
}
