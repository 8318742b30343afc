//! A container engine behind a local unix socket, through `bollard`: the one client of the engine. An error
//! answer is never a result here; callers look again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, KillContainerOptions,
    ListContainersOptions, RemoveContainerOptions, WaitContainerOptions,
};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncWrite;

use crate::engine::{
    self, ContainerId, ContainerName, Created, Dialect, EngineError, Frame, Handle, Image,
    ImageError, Inspected, Listed, Spec, Status, body,
};
use crate::image::ImageName;

const QUICK: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(60);
/// The client's own limit covers response headers only, in whole seconds; ours come first.
const CLIENT_LIMIT_SECS: u64 = 24 * 60 * 60;
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone)]
pub(crate) struct Docker {
    client: bollard::Docker,
    socket: PathBuf,
    dialect: Dialect,
    setup: Setup,
}

/// What the configuration says about containers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Where the engine can read a profile.
    pub(crate) profiles: PathBuf,
    /// Another runtime than the engine's usual one.
    pub(crate) runtime: Option<String>,
}

/// What the first process reads.
pub(crate) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// What a container writes, from the moment of the attach.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, EngineError>> + Send>>;

/// Bytes of an answer as they come.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<bytes::Bytes, EngineError>> + Send>>;

impl Docker {
    /// Connects to `socket` and settles the version of the API.
    pub(crate) async fn connect(socket: &Path, setup: Setup) -> Result<Self, EngineError> {
        let unreachable = |source| EngineError::Unreachable { socket: socket.to_owned(), source };
        let path = socket.to_string_lossy();
        let client = bollard::Docker::connect_with_unix(
            &path,
            CLIENT_LIMIT_SECS,
            bollard::API_DEFAULT_VERSION,
        )
        .map_err(unreachable)?;
        let client =
            limited("version", QUICK, client.negotiate_version()).await?.map_err(unreachable)?;
        let version = limited("version", QUICK, client.version()).await?.map_err(unreachable)?;
        let components = version.components.unwrap_or_default();
        let dialect = Dialect::of(components.iter().map(|component| component.name.as_str()));
        Ok(Self { client, socket: socket.to_owned(), dialect, setup })
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether it has the runtime of the configuration, if that names one.
    pub(crate) async fn has_runtime(&self) -> Result<bool, EngineError> {
        let Some(runtime) = &self.setup.runtime else { return Ok(true) };
        let info = limited("info", QUICK, self.client.info()).await?;
        let info = info.map_err(|source| failed("info", source))?;
        Ok(info.runtimes.is_some_and(|runtimes| runtimes.contains_key(runtime)))
    }

    /// Whether it answers.
    pub(crate) async fn ping(&self) -> Result<(), EngineError> {
        match limited("ping", QUICK, self.client.ping()).await? {
            Ok(_) => Ok(()),
            Err(source) => Err(EngineError::Unreachable { socket: self.socket.clone(), source }),
        }
    }

    pub(crate) async fn image(&self, name: &ImageName) -> Result<Image, ImageError> {
        self.inspect_image(name.as_str()).await
    }

    /// The image that a plan names; it may have been removed since.
    pub(crate) async fn image_by_id(&self, id: Option<event::Digest>) -> Result<Image, ImageError> {
        self.inspect_image(&id.ok_or(ImageError::Unknown)?.to_string()).await
    }

    async fn inspect_image(&self, name: &str) -> Result<Image, ImageError> {
        let answer = limited("image inspect", QUICK, self.client.inspect_image(name)).await?;
        let image = match answer {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(ImageError::Unknown);
            }
            answer => answer.map_err(|source| failed("image inspect", source))?,
        };
        let incomplete =
            |what| ImageError::Engine(EngineError::Incomplete { call: "image inspect", what });
        let id = image
            .id
            .as_deref()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| incomplete("an id"))?;
        let config = image.config.unwrap_or_default();
        let set = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
        if set(&config.volumes) {
            return Err(ImageError::Refused("Volumes"));
        }
        if set(&config.entrypoint) {
            return Err(ImageError::Refused("Entrypoint"));
        }
        if set(&config.on_build) {
            return Err(ImageError::Refused("OnBuild"));
        }
        if config.healthcheck.and_then(|check| check.test).is_some_and(|test| !test.is_empty()) {
            return Err(ImageError::Refused("Healthcheck"));
        }
        let mut path = USUAL_PATH.to_owned();
        for variable in config.env.unwrap_or_default() {
            match variable.split_once('=') {
                Some(("PATH", value)) => value.clone_into(&mut path),
                Some(_) | None => return Err(ImageError::Refused("an Env other than PATH")),
            }
        }
        Ok(Image { id, path })
    }

    /// The image as an archive of its layers, in pieces. Has no limit of its own: the caller has one.
    pub(crate) fn export_image(&self, id: event::Digest) -> Pieces {
        let pieces = self.client.export_image(&id.to_string());
        pieces.map_err(|source| failed("image export", source)).boxed()
    }

    /// Creates, then reads back: what is not locked down as planned is removed again and is an error.
    pub(crate) async fn create(&self, spec: &Spec) -> Result<Created, EngineError> {
        let mut sent = self.dialect.adapt(body::create_body(spec)?, &self.setup.profiles)?;
        if let (Some(host), Some(runtime)) = (&mut sent.host_config, &self.setup.runtime) {
            host.runtime = Some(runtime.clone());
        }
        let options = CreateContainerOptions {
            name: Some(spec.name.as_str().to_owned()),
            platform: String::new(),
        };
        let answer =
            limited("create", SLOW, self.client.create_container(Some(options), sent.clone()))
                .await?;
        let answer = match answer {
            Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                return Ok(Created::NameTaken);
            }
            Err(Error::DockerResponseServerError { status_code: 500, .. })
                if self.is_taken(&spec.name).await? =>
            {
                return Ok(Created::NameTaken);
            }
            answer => answer.map_err(|source| failed("create", source))?,
        };
        let id = ContainerId::parse(&answer.id)
            .map_err(|_| EngineError::Incomplete { call: "create", what: "a container id" })?;
        let checked = match answer.warnings.into_iter().next() {
            Some(warning) => Err(EngineError::NotLockedDown(warning)),
            None => self.read_back(&id, &sent).await,
        };
        match checked {
            Ok(()) => Ok(Created::Made(id)),
            Err(error) => {
                self.remove(Handle::Id(&id)).await?;
                Err(error)
            }
        }
    }

    /// Podman has one status for every failure.
    async fn is_taken(&self, name: &ContainerName) -> Result<bool, EngineError> {
        let asked = self.dialect == Dialect::Podman;
        Ok(asked && self.inspect_raw(Handle::Name(name)).await?.is_some())
    }

    async fn read_back(
        &self,
        id: &ContainerId,
        sent: &bollard::models::ContainerCreateBody,
    ) -> Result<(), EngineError> {
        match self.inspect_raw(Handle::Id(id)).await? {
            Some(made) => body::compare(self.dialect, sent, &made),
            None => Err(EngineError::NotLockedDown("the container is gone".to_owned())),
        }
    }

    /// Nothing when there is no such container.
    pub(crate) async fn inspect(
        &self,
        handle: Handle<'_>,
    ) -> Result<Option<Inspected>, EngineError> {
        self.inspect_raw(handle).await?.map(inspected).transpose()
    }

    async fn inspect_raw(
        &self,
        handle: Handle<'_>,
    ) -> Result<Option<ContainerInspectResponse>, EngineError> {
        let options = None::<InspectContainerOptions>;
        let call = self.client.inspect_container(handle.as_str(), options);
        match limited("inspect", QUICK, call).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(source) => Err(failed("inspect", source)),
        }
    }

    /// Before the start, so that not a byte is missed, with the way in for the frame.
    pub(crate) async fn attach(&self, id: &ContainerId) -> Result<(Frames, Input), EngineError> {
        self.attached(id, true).await
    }

    /// To one that has its frame.
    pub(crate) async fn listen(&self, id: &ContainerId) -> Result<Frames, EngineError> {
        Ok(self.attached(id, false).await?.0)
    }

    async fn attached(
        &self,
        id: &ContainerId,
        stdin: bool,
    ) -> Result<(Frames, Input), EngineError> {
        let options = AttachContainerOptions {
            stream: true,
            stdin,
            stdout: true,
            stderr: true,
            ..AttachContainerOptions::default()
        };
        let attached =
            limited("attach", QUICK, self.client.attach_container(id.as_str(), Some(options)))
                .await?
                .map_err(|source| failed("attach", source))?;
        let frames = attached
            .output
            .map_err(|source| failed("attach", source))
            .try_filter_map(|output| async {
                Ok(match output {
                    LogOutput::StdOut { message } => {
                        Some(Frame { stream: engine::Stream::Stdout, bytes: message })
                    }
                    LogOutput::StdErr { message } => {
                        Some(Frame { stream: engine::Stream::Stderr, bytes: message })
                    }
                    LogOutput::StdIn { .. } | LogOutput::Console { .. } => None,
                })
            })
            .boxed();
        Ok((frames, attached.input))
    }

    /// An error here means that the command did not start, unless the engine did not answer.
    pub(crate) async fn start(&self, id: &ContainerId) -> Result<(), EngineError> {
        match limited("start", SLOW, self.client.start_container(id.as_str(), None)).await? {
            // 304: started before.
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 304, .. }) => Ok(()),
            Err(source) => Err(failed("start", source)),
        }
    }

    /// Returns when the container has ended. Has no limit of its own: the caller's clock is the run's.
    pub(crate) async fn wait(&self, id: &ContainerId) -> Result<(), EngineError> {
        let mut answers =
            Box::pin(self.client.wait_container(id.as_str(), None::<WaitContainerOptions>));
        match answers.next().await {
            // A status above zero is this client's error; what the status was, an inspection says.
            Some(Ok(_)) | Some(Err(Error::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(Error::DockerResponseServerError { status_code: 404, .. })) => Ok(()),
            Some(Err(source)) => Err(failed("wait", source)),
            None => Err(EngineError::Incomplete { call: "wait", what: "a status" }),
        }
    }

    /// Gone or ended before counts as done.
    pub(crate) async fn kill(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.signal(id, "SIGKILL").await
    }

    /// Asks the first process to end everything with some courtesy.
    pub(crate) async fn terminate(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.signal(id, "SIGTERM").await
    }

    async fn signal(&self, id: &ContainerId, signal: &str) -> Result<(), EngineError> {
        let options = KillContainerOptions { signal: signal.to_owned() };
        match limited("kill", QUICK, self.client.kill_container(id.as_str(), Some(options))).await?
        {
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(source) if self.dialect == Dialect::Podman => {
                // One status for every failure: whether it runs, it says itself.
                match self.inspect(Handle::Id(id)).await? {
                    Some(Inspected { status: Status::Running, .. }) => Err(failed("kill", source)),
                    Some(_) | None => Ok(()),
                }
            }
            Err(source) => Err(failed("kill", source)),
        }
    }

    /// Whether everything in it stands still now; not where it has ended.
    pub(crate) async fn freeze(&self, id: &ContainerId) -> Result<bool, EngineError> {
        match limited("pause", QUICK, self.client.pause_container(id.as_str())).await? {
            Ok(()) => Ok(true),
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(false),
            Err(source) => Err(failed("pause", source)),
        }
    }

    /// Whether it goes on; not where it has ended, or did not stand still.
    pub(crate) async fn thaw(&self, id: &ContainerId) -> Result<bool, EngineError> {
        match limited("unpause", QUICK, self.client.unpause_container(id.as_str())).await? {
            Ok(()) => Ok(true),
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(false),
            Err(source) => Err(failed("unpause", source)),
        }
    }

    /// Asks for the removal; that it is gone, only an inspection proves.
    pub(crate) async fn remove(&self, handle: Handle<'_>) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        let call = self.client.remove_container(handle.as_str(), Some(options));
        match limited("remove", SLOW, call).await? {
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(source) => Err(failed("remove", source)),
        }
    }

    /// Containers in any state that carry all of these labels.
    pub(crate) async fn list(&self, labels: &[(&str, &str)]) -> Result<Vec<Listed>, EngineError> {
        let wanted = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), wanted)])),
            ..ListContainersOptions::default()
        };
        let answer = limited("list", QUICK, self.client.list_containers(Some(options)))
            .await?
            .map_err(|source| failed("list", source))?;
        let mut listed = Vec::new();
        for container in answer {
            let id = container.id.as_deref().map(ContainerId::parse);
            let Some(Ok(id)) = id else {
                return Err(EngineError::Incomplete { call: "list", what: "a container id" });
            };
            let has: BTreeMap<_, _> = container.labels.unwrap_or_default().into_iter().collect();
            // A filter that an engine ignores must not make a foreign container ours.
            if labels.iter().all(|(name, value)| has.get(*name).map(String::as_str) == Some(value))
            {
                listed.push(Listed { id, labels: has });
            }
        }
        Ok(listed)
    }
}

fn inspected(answer: ContainerInspectResponse) -> Result<Inspected, EngineError> {
    let incomplete = |what| EngineError::Incomplete { call: "inspect", what };
    let id = answer.id.as_deref().and_then(|id| ContainerId::parse(id).ok());
    let state = answer.state.ok_or_else(|| incomplete("a state"))?;
    let status = match state.status.ok_or_else(|| incomplete("a status"))? {
        ContainerStateStatusEnum::CREATED => Status::Created,
        ContainerStateStatusEnum::RUNNING
        | ContainerStateStatusEnum::PAUSED
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::STOPPING => Status::Running,
        ContainerStateStatusEnum::EXITED
        | ContainerStateStatusEnum::DEAD
        | ContainerStateStatusEnum::REMOVING => Status::Exited,
        ContainerStateStatusEnum::EMPTY => return Err(incomplete("a status")),
    };
    let labels = answer.config.and_then(|config| config.labels).unwrap_or_default();
    Ok(Inspected {
        id: id.ok_or_else(|| incomplete("a container id"))?,
        status,
        pid: state.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0),
        exit_code: state.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1),
        oom_killed: state.oom_killed.unwrap_or(false),
        labels: labels.into_iter().collect(),
    })
}

async fn limited<T>(
    call: &'static str,
    limit: Duration,
    answer: impl Future<Output = T>,
) -> Result<T, EngineError> {
    tokio::time::timeout(limit, answer).await.map_err(|_| EngineError::Silent { call, limit })
}

fn failed(call: &'static str, source: Error) -> EngineError {
    match source {
        Error::DockerResponseServerError { status_code, message } => {
            EngineError::Refused { call, status: status_code, message }
        }
        source => EngineError::Failed { call, source },
    }
}
