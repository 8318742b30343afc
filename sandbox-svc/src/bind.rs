//! Wiring: opens what the service needs, goes on with what an earlier process left, then listens.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use proto::sandbox::v1::sandbox_service_server::SandboxServiceServer;
use receipt::Verifier;
use tracing::info;
use transport::authz::Table;
use transport::server::{Listening, Server};
use transport::{CancellationToken, Chain, Context, Service, StateDir};

use crate::api::{Api, CALLERS, SERVICE};
use crate::config::{Config, StagingKind};
use crate::engine::{self, Dialect, Docker, EngineError, Setup};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::limits::Ceilings;
use crate::policy::Policies;
use crate::pool::Pool;
use crate::program::Images;
use crate::sandbox::{Parts, Sandbox};
use crate::session::{Sessions, Trees};
use crate::staging::{Staging, boot_id};
use crate::store::Store;
use crate::tree::Dir;
use crate::undo::{Retention, UndoRecords};

/// Requests hold a manifest and a grant at most.
const REQUEST_BYTES: usize = 2 * 1024 * 1024;

/// The service with its address, not yet serving.
#[derive(Debug)]
pub struct Bound {
    listening: Listening,
    pub(crate) sandbox: Arc<Sandbox>,
    context: Context,
}

/// Opens everything that `config` names and takes the address.
pub async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    let lock = StateDir::own(&config.state_dir)?;
    let state_dir = fs::canonicalize(&config.state_dir)
        .map_err(Error::file("the state directory cannot be read:", &config.state_dir))?;
    let dependencies = config.dependencies().map_err(|faults| Error::Start(faults.join("; ")))?;
    let policies = Policies::open(&config).map_err(|faults| Error::Start(faults.join("; ")))?;
    let images = Images::open(&state_dir, context.tracker.clone(), context.shutdown.clone())
        .map_err(Error::file("the images' names cannot be kept below", &state_dir))?;
    let store = Store::open(&state_dir).await?;
    let engine = connect(&config, &state_dir).await?;
    // What waits there would need a /tmp of its own beside the run's.
    let warm = match engine.as_ref().map(Docker::dialect) {
        Some(Dialect::Podman) => 0,
        Some(Dialect::Docker) | None => config.warm_containers,
    };
    let staging = open_staging(config.staging, &state_dir)?;
    let retention = Retention { age: config.keep_undo, bytes: config.max_undo_bytes };
    let undo = UndoRecords::open(&state_dir, retention)
        .map_err(Error::file("what imports replace cannot be kept below", &state_dir))?;
    let verifier = verifier(&config)?;
    let own = own_directories(&[&state_dir, &config.transport.tls_dir])?;
    let channel = transport::channel::connect(&context, &config.audit_endpoint, Service::AuditSvc);
    let sandbox = Sandbox::new(Parts {
        ledger: Ledger::new(store.clone(), channel, context.ready.clone()),
        sessions: Sessions::new(
            store.clone(),
            verifier,
            context.material.clone(),
            Trees {
                workspaces: config.workspaces(),
                dependencies,
                staging: config.staging,
                own: own.clone(),
            },
            engine.clone(),
            config.brokers(),
            policies,
        ),
        pool: Pool::new(warm),
        instance: store.instance().await?,
        store,
        engine,
        brokers: config.brokers(),
        images,
        staging,
        undo,
        ceilings: Ceilings::of(&config),
        tracker: context.tracker.clone(),
        stopping: context.shutdown.clone(),
        failpoint: config.failpoint(),
        keep_expired: config.keep_expired,
        init: engine::init::install(&state_dir).map_err(Error::file(
            "the first process of containers cannot be kept below",
            &state_dir,
        ))?,
        boot: boot_id().map_err(Error::file("the boot id cannot be read from", "/proc"))?,
        own,
        carry: config.carry(),
        lock,
    });
    sandbox.recover_environments().await?;
    sandbox.remove_stray_places().await?;

    let table = Table::new(CALLERS, proto::DESCRIPTORS, &[SERVICE])?;
    let service =
        SandboxServiceServer::new(Api(sandbox.clone())).max_decoding_message_size(REQUEST_BYTES);
    let listening = Server::new(&context, table)
        .add_service(service)
        .services_listener(config.listen)
        .bind()
        .await?;
    // Their ends need the ledger, so they go on once nothing can stop the start any more.
    sandbox.recover_calls().await?;
    Ok(Bound { listening, sandbox, context })
}

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.listening.addrs()
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { listening, sandbox, context } = self;
        let (sender, ready) = (sandbox.clone(), context.ready.clone());
        let stop = shutdown.clone();
        context.tracker.spawn(async move {
            sender.ledger.run(stop, || !sender.is_idle()).await;
        });
        context.tracker.spawn(sandbox.reconcile_forever(ready, shutdown.clone()));
        Ok(listening.serve(shutdown).await?)
    }
}

/// What no copy, mount or dependency holds, by device and inode.
fn own_directories(directories: &[&Path]) -> Result<Arc<[(u64, u64)]>, Error> {
    let identity = |path: &&Path| {
        let meta = Dir::open(path).and_then(|dir| dir.meta());
        let meta = meta.map_err(Error::file("an own directory cannot be read:", *path))?;
        Ok::<_, Error>(meta.identity())
    };
    directories.iter().map(identity).collect()
}

async fn connect(config: &Config, state_dir: &Path) -> Result<Option<Docker>, Error> {
    let Some(socket) = &config.engine_socket else { return Ok(None) };
    let setup = Setup { profiles: state_dir.to_owned(), runtime: config.runtime.clone() };
    let connected = async {
        let engine = Docker::connect(socket, setup).await?;
        let has_runtime = engine.has_runtime().await?;
        Ok::<_, EngineError>((engine, has_runtime))
    };
    match connected.await {
        Ok((engine, true)) => Ok(Some(engine)),
        Ok((_, false)) => Err(Error::Start(format!(
            "the engine has no runtime {}; name one that 'docker info' lists, or leave --runtime out",
            config.runtime.as_deref().unwrap_or_default()
        ))),
        Err(error) => Err(Error::Start(format!(
            "{}; start the engine, let this user use its socket, or leave --engine-socket out",
            Chain(&error)
        ))),
    }
}

fn open_staging(kind: StagingKind, state_dir: &Path) -> Result<Staging, Error> {
    Staging::open(kind, state_dir).map_err(|error| {
        let advice = match kind {
            StagingKind::HostTmpfs => "it needs CAP_SYS_ADMIN; give it or use --staging dirs",
            StagingKind::Dirs => "let this user write there",
        };
        let (kind, dir) = (kind.as_str(), state_dir.display());
        Error::Start(format!("staging {kind} does not work below {dir} ({error}); {advice}"))
    })
}

fn verifier(config: &Config) -> Result<Verifier, Error> {
    let path = config.transport.tls_dir.join("ca.crt");
    let ca = fs::read(&path).map_err(Error::file("the issuers cannot be read from", &path))?;
    let verifier = Verifier::new(&ca, config.transport.trust_domain.as_str());
    let verifier = verifier.map_err(|error| {
        Error::Start(format!("{} names no usable issuers ({error})", path.display()))
    })?;
    info!("receipts are judged by the services' issuers");
    Ok(verifier)
}
