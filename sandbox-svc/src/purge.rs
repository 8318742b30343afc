//! `--purge`: ends every environment that a stopped service left, without serving anything. It touches
//! only what this state directory owns, and leaves calls that had not ended to the next start.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use transport::{Chain, StateDir};
use uuid::Uuid;

use crate::config::StagingKind;
use crate::engine::{Docker, Handle, Setup};
use crate::error::Error;
use crate::exec::{INSTANCE_LABEL, OWNER, OWNER_LABEL};
use crate::staging::Staging;
use crate::store::{EnvironmentState, Store};
use crate::tool::command;

/// How often, and how long apart, the engine is asked whether the containers are gone.
const LOOKS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(500);

/// Ends every environment of a service that does not run.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "harness-sandbox-svc", version)]
pub struct Purge {
    /// End every environment below the state directory, then exit
    #[arg(long, required = true)]
    pub purge: bool,

    /// The stopped service's state directory
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Unix socket of the container engine, if the service had one
    #[arg(long, value_name = "PATH")]
    pub engine_socket: Option<PathBuf>,
}

/// What was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Purged {
    pub containers: usize,
    pub environments: usize,
}

impl Purge {
    /// Whether the program was called for this.
    pub fn is_meant(mut args: impl Iterator<Item = std::ffi::OsString>) -> bool {
        args.any(|arg| arg == "--purge")
    }

    /// The whole life of such a process.
    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command answers its caller")]
    pub fn main(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("harness-sandbox-svc: {error}");
                return ExitCode::FAILURE;
            }
        };
        match runtime.block_on(self.run()) {
            Ok(Purged { containers, environments }) => {
                println!("ended {environments} environments and {containers} containers");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("harness-sandbox-svc: {}", Chain(&error));
                ExitCode::FAILURE
            }
        }
    }

    /// Containers first, so that nothing writes into a copy or holds its mount.
    pub async fn run(&self) -> Result<Purged, Error> {
        let path = std::fs::canonicalize(&self.state_dir)
            .map_err(Error::file("the state directory cannot be read:", &self.state_dir))?;
        let _lock = StateDir::own(&path)?;
        let store = Store::open(&path).await?;
        let unfinished = store.unfinished().await?;
        let servers = store.servers().await?;
        let containers = match &self.engine_socket {
            Some(socket) => end_containers(socket, store.instance().await?).await?,
            None if servers.is_empty()
                && !unfinished.iter().any(|row| command::is_one(&row.plan.tool)) =>
            {
                0
            }
            None => {
                let advice =
                    "a command had not ended; name --engine-socket so that its container is";
                return Err(Error::Start(advice.to_owned()));
            }
        };
        let environments = end_environments(&store, &path).await?;
        for row in &unfinished {
            if store.import(row.plan.call).await?.is_some() {
                let advice = "the environments are ended, but an import was interrupted: start the \
                              service once, so that it is finished or taken back";
                return Err(Error::Start(advice.to_owned()));
            }
        }
        Ok(Purged { containers, environments })
    }
}

async fn end_containers(socket: &Path, instance: Uuid) -> Result<usize, Error> {
    let failed = || Error::engine("the containers cannot be ended");
    let engine = Docker::connect(socket, Setup::default()).await.map_err(failed())?;
    let instance = instance.to_string();
    let labels = [(OWNER_LABEL, OWNER), (INSTANCE_LABEL, instance.as_str())];
    let mut ended = 0;
    for look in 0..LOOKS {
        let listed = engine.list(&labels).await.map_err(failed())?;
        if listed.is_empty() {
            return Ok(ended);
        }
        if look == 0 {
            ended = listed.len();
        }
        for container in &listed {
            engine.remove(Handle::Id(&container.id)).await.map_err(failed())?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::CleanupUncertain)
}

/// Each closure is written down once the copy is proven to be gone.
async fn end_environments(store: &Store, state_dir: &Path) -> Result<usize, Error> {
    let staging = Staging::found(StagingKind::Dirs, state_dir);
    let remains = || Error::file("a private copy cannot be removed below", state_dir);
    let rows = store.live_environments().await?;
    for row in &rows {
        let place = staging.place(row.run, row.staging);
        tokio::task::spawn_blocking(move || place.remove()).await?.map_err(remains())?;
        store.set_environment_state(row.run, EnvironmentState::Closed).await?;
    }
    let removed = tokio::task::spawn_blocking(move || {
        for place in staging.strangers(&[])? {
            place.remove()?;
        }
        Ok(())
    });
    removed.await?.map_err(remains())?;
    Ok(rows.len())
}
