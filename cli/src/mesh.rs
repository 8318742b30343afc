//! Five services as processes over one state directory: made, started, watched, killed and started again.
//! It restarts nothing by itself, and no process outlives it.
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use futures::future::{join_all, select_all};
use tokio::time::Instant;
use toml::Value;
pub use transport::Service;

mod account;
mod apart;
mod cleanup;
mod error;
mod judge;
mod known;
mod lacks;
mod layout;
mod leftover;
mod models;
mod notices;
mod policy;
mod ports;
mod prepare;
mod process;
mod programs;
mod provision;
mod ready;
mod record;
mod settings;
mod words;

pub use account::Isolation;
pub(crate) use cleanup::{cleanup, kept};
pub use error::{Argument, Error};
pub use known::{Known, Secret};
pub use layout::Layout;
pub(crate) use notices::Notices;
pub use policy::PolicyFiles;
pub(crate) use prepare::{Situation, free_ports, lacks_programs, named, origin, situation};
pub use programs::beside_this_program;

use crate::file;
use ports::Guard;
use prepare::Prepared;
use process::{Process, Spawner};
use record::Record;

/// Where services and their helpers are looked for; nothing else of the environment reaches them.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a service may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a service may take to end after SIGTERM; it drains for less.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What a mesh is made of. What is empty or `None` is kept from the last start of the same directory.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of the five programs.
    pub programs: PathBuf,
    pub engine: Option<PathBuf>,
    pub isolation: Option<Isolation>,
    pub workspaces: Vec<(String, PathBuf)>,
    /// Trees that commands may read, by the names that manifests use.
    pub dependencies: Vec<(String, PathBuf)>,
    /// The first is the default.
    pub manifests: Vec<PathBuf>,
    /// Models that play a script, by name.
    pub scripts: Vec<(String, PathBuf)>,
    pub models: Option<PathBuf>,
    /// The administrator's files above the manifests; each that is not named is kept.
    pub policy: PolicyFiles,
    /// Drop those of the last start instead.
    pub forget_policy: bool,
    /// Settings of single services, for one start.
    pub overrides: Vec<(Service, String, Value)>,
    /// Is told what is being waited for.
    pub progress: fn(&str),
}

/// The setting of sandbox-svc for how many containers may wait.
#[must_use]
pub fn warm_containers(count: u16) -> (Service, String, Value) {
    (Service::SandboxSvc, "warm-containers".to_owned(), Value::from(i64::from(count)))
}

impl Options {
    #[must_use]
    pub fn new(programs: impl Into<PathBuf>) -> Self {
        Self {
            programs: programs.into(),
            engine: None,
            isolation: None,
            workspaces: Vec::new(),
            dependencies: Vec::new(),
            manifests: Vec::new(),
            scripts: Vec::new(),
            models: None,
            policy: PolicyFiles::default(),
            forget_policy: false,
            overrides: Vec::new(),
            progress: |_| {},
        }
    }
}

/// Where a ready mesh is reached, and how.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// Without a path: clients append the dialect's.
    pub gateway: String,
    pub audit: String,
    pub ca: PathBuf,
    pub token: Secret,
    pub auditor_cert: PathBuf,
    pub auditor_key: PathBuf,
    pub processes: BTreeMap<&'static str, u32>,
    pub state: PathBuf,
}

/// A mesh over a state directory that nobody else uses while it lives. Dropping it ends its processes at once.
#[derive(Debug)]
pub struct Mesh {
    layout: Layout,
    record: Record,
    programs: PathBuf,
    progress: fn(&str),
    processes: BTreeMap<Service, Process>,
    /// Where in its log the last process of a service began.
    began: BTreeMap<Service, u64>,
    spawner: Spawner,
    _guard: Guard,
    _lock: File,
}

impl Mesh {
    /// How many processes it is.
    pub const SIZE: usize = Service::ALL.len();

    /// Makes the directory's content, or takes up what it holds. Nothing is started. Everything that the options
    /// name is checked before anything is written.
    pub fn create(dir: &Path, options: &Options) -> Result<Self, Error> {
        let Prepared { layout, record, programs, guard, lock } = prepare::prepare(dir, options)?;
        let spawner =
            Spawner::start().map_err(|source| Error::Start { service: "the mesh", source })?;
        let progress = options.progress;
        let processes = BTreeMap::new();
        Ok(Self {
            layout,
            record,
            programs,
            progress,
            processes,
            began: BTreeMap::new(),
            spawner,
            _guard: guard,
            _lock: lock,
        })
    }

    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.record.isolation
    }

    /// Starts what does not run and returns when all are ready. If one is not, none is left running.
    pub async fn start(&mut self) -> Result<Ready, Error> {
        let started = self.try_start().await;
        if started.is_err() {
            self.stop().await?;
        }
        started
    }

    /// Where it is reached now.
    pub fn ready(&self) -> Result<Ready, Error> {
        let known = Known::read(self.layout.root())?;
        Ok(Ready {
            gateway: known.gateway,
            audit: format!("https://{}", known.audit),
            ca: known.ca,
            token: Secret::read(&known.token_file)?,
            auditor_cert: self.layout.auditor().join("tls.crt"),
            auditor_key: self.layout.auditor().join("tls.key"),
            processes: self
                .processes
                .iter()
                .map(|(service, process)| (service.as_str(), process.id()))
                .collect(),
            state: self.layout.root().to_owned(),
        })
    }

    /// How many runs keep a private copy once all services have ended.
    pub fn held(&self) -> Result<usize, Error> {
        cleanup::held(&self.layout)
    }

    /// What the manifests on offer name and this mesh does not have, one line each.
    pub async fn lacks(&self) -> Result<Vec<String>, Error> {
        lacks::lacks(&self.layout, &self.record).await
    }

    /// What its services will log about changed files that they can not use.
    pub(crate) fn notices(&self) -> Notices {
        Notices::new(&self.layout, &self.began)
    }

    /// The process of `service`, while it runs.
    #[must_use]
    pub fn pid(&self, service: Service) -> Option<u32> {
        self.processes.get(&service).map(Process::id)
    }

    /// SIGKILL; returns when the process is gone.
    pub async fn kill9(&mut self, service: Service) -> Result<ExitStatus, Error> {
        let mut process = self.processes.remove(&service).ok_or(Error::NotRunning(service))?;
        process.kill().await.map_err(|source| Error::End { service: service.as_str(), source })
    }

    /// SIGKILL to all of them, at once.
    pub async fn kill9_all(&mut self) -> Result<(), Error> {
        let all = std::mem::take(&mut self.processes);
        let killed = all.into_iter().map(|(service, mut process)| async move {
            process.kill().await.map_err(|source| Error::End { service: service.as_str(), source })
        });
        join_all(killed).await.into_iter().try_for_each(|status| status.map(|_| ()))
    }

    /// Ends `service` if it runs and starts it again; returns when it is ready.
    pub async fn restart(&mut self, service: Service) -> Result<(), Error> {
        if let Some(mut process) = self.processes.remove(&service) {
            let ended = process.terminate(STOP_LIMIT).await;
            ended.map_err(|source| Error::End { service: service.as_str(), source })?;
        }
        self.spawn(service).await?;
        self.await_ready(service, Instant::now() + READY_LIMIT).await
    }

    /// Starts `service` without waiting for it: for one that is expected to end by itself.
    pub async fn spawn(&mut self, service: Service) -> Result<(), Error> {
        let failed = |source| Error::Start { service: service.as_str(), source };
        let program = programs::find(&self.programs, service)?;
        let mut command =
            account::command(self.record.isolation, service, &program, &self.record.engine)?;
        let log = log_file(&self.layout.log(service))?;
        self.began.insert(service, log.metadata().map_err(failed)?.len());
        let errors = log.try_clone().map_err(failed)?;
        command.arg("--config").arg(self.layout.config(service));
        if service == Service::SandboxSvc {
            let broker = programs::named(&self.programs, programs::EGRESS)?;
            command.arg("--egress-program").arg(broker);
        }
        command.env_clear().env("PATH", PATH);
        // Its own group: a terminal's Ctrl-C reaches the mesh, which ends the services in order.
        command
            .current_dir(self.layout.service(service))
            .stdin(std::process::Stdio::null())
            .process_group(0);
        command.stdout(log).stderr(errors);
        let process = self.spawner.spawn(command).await.map_err(failed)?;
        self.processes.insert(service, process);
        leftover::note(&self.layout, self.processes.values().map(Process::id))
    }

    /// Returns when a service that ran has ended by itself.
    pub async fn died(&mut self) -> Error {
        let mut services = Vec::new();
        let mut ends = Vec::new();
        for (service, process) in &mut self.processes {
            services.push(*service);
            ends.push(Box::pin(process.wait()));
        }
        if ends.is_empty() {
            return std::future::pending().await;
        }
        let (ended, index, _) = select_all(ends).await;
        let service = services[index];
        match ended {
            Ok(status) => {
                self.processes.remove(&service);
                self.died_with(service, status)
            }
            Err(source) => Error::End { service: service.as_str(), source },
        }
    }

    /// How `service` ended, waiting for it; `None` if it does not run.
    pub async fn wait(&mut self, service: Service) -> Result<Option<ExitStatus>, Error> {
        let Some(process) = self.processes.get_mut(&service) else { return Ok(None) };
        let status = process
            .wait()
            .await
            .map_err(|source| Error::End { service: service.as_str(), source })?;
        self.processes.remove(&service);
        Ok(Some(status))
    }

    /// Ends all: those first that others would miss least. SIGKILL follows where SIGTERM does not help in time.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        for wave in STOP_ORDER {
            let ending: Vec<_> = wave
                .iter()
                .filter_map(|service| Some((*service, self.processes.remove(service)?)))
                .collect();
            let ended = join_all(ending.into_iter().map(|(service, mut process)| async move {
                let ended = process.terminate(STOP_LIMIT).await;
                ended.map_err(|source| Error::End { service: service.as_str(), source })
            }));
            for end in ended.await {
                first = first.and_then(|()| end.map(drop));
            }
        }
        first
    }

    async fn try_start(&mut self) -> Result<Ready, Error> {
        for service in Service::ALL {
            if !self.processes.contains_key(&service) {
                self.spawn(service).await?;
            }
        }
        let until = Instant::now() + READY_LIMIT;
        for service in WAIT_ORDER {
            (self.progress)(&format!("waiting for {service}"));
            self.await_ready(service, until).await?;
        }
        self.ready()
    }

    async fn await_ready(&mut self, service: Service, until: Instant) -> Result<(), Error> {
        let admin = self.record.ports.admin(service);
        let waiting = ready::wait(admin, until);
        let outcome = {
            let ends = self.processes.iter_mut().map(|(service, process)| {
                Box::pin(async move { (*service, process.wait().await) })
            });
            tokio::select! {
                seen = waiting => Err(seen),
                ((service, status), ..) = select_all(ends) => Ok((service, status)),
            }
        };
        match outcome {
            Err(Ok(())) => Ok(()),
            Err(Err(seen)) => Err(Error::NotReady {
                service: service.as_str(),
                limit: READY_LIMIT,
                said: match seen {
                    ready::Seen::Nothing => " (it does not answer)".to_owned(),
                    ready::Seen::NotReady(text) => format!(" ({text})"),
                },
                log: self.layout.log(service),
            }),
            Ok((service, Ok(status))) => {
                self.processes.remove(&service);
                Err(self.died_with(service, status))
            }
            Ok((service, Err(source))) => Err(Error::End { service: service.as_str(), source }),
        }
    }

    fn died_with(&self, service: Service, status: ExitStatus) -> Error {
        let log = self.layout.log(service);
        let began = self.began.get(&service).copied().unwrap_or_default();
        // Whoever was killed did not say why.
        let said = status.code().and_then(|_| words::last(&log, began, service));
        let said = said.map(|line| format!(" ({line})")).unwrap_or_default();
        Error::Died { service: service.as_str(), status, said, log }
    }
}

/// Whom the others wait for comes first, so that the one who is named is the one to look at.
const WAIT_ORDER: [Service; 5] = [
    Service::AuditSvc,
    Service::ModelSvc,
    Service::SandboxSvc,
    Service::AgentSvc,
    Service::Gateway,
];
const STOP_ORDER: [&[Service]; 4] = [
    &[Service::Gateway],
    &[Service::AgentSvc],
    &[Service::SandboxSvc, Service::ModelSvc],
    &[Service::AuditSvc],
];

fn log_file(path: &Path) -> Result<File, file::Error> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(file::failed("open", path))
}

#[cfg(test)]
mod tests;
