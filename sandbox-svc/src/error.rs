//! What goes wrong besides a call: facts about the caller, about the house, and faults of our own. Each has
//! one code and one stable reason on the wire; causes stay here.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use transport::{Code, Public};

use crate::binding::Binding;
use crate::engine::EngineError;
use crate::tree::blobs::BlobError;
use crate::tree::scan::ScanError;

/// What a variant does not distinguish; for the log alone.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the service does not start, stops, or does not answer a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Request(&'static str),
    #[error("the fence of this session is held by another epoch or node")]
    FenceStale,
    #[error("no such session")]
    SessionUnknown,
    #[error("the grant is not acceptable: {detail}")]
    Grant { reason: &'static str, detail: String },
    #[error("the session cannot be served: {detail}")]
    Session { reason: &'static str, detail: String },
    #[error("the session's grant has expired")]
    GrantExpired,
    #[error("the run has no open environment")]
    EnvironmentUnknown,
    #[error("the run's private copy is gone{}", because(*.0))]
    EnvironmentLost(Option<Binding>),
    #[error("the run belongs to another session")]
    RunUnknown,
    #[error("the workspace cannot be copied: {0}")]
    WorkspaceTooLarge(String),
    #[error("the patch is another one now")]
    PatchUnknown,
    #[error("the patch has nothing of that name")]
    PatchPathUnknown,
    #[error("the run's private copy is closed, and no import of it is kept")]
    PatchGone,
    #[error("the end of the container is not proven yet")]
    CleanupUncertain,
    #[error("the environment is in use")]
    RunBusy,
    #[error("the service is stopping")]
    Stopping,
    #[error("{what}")]
    Engine {
        what: &'static str,
        #[source]
        source: Cause,
    },
    #[error("{what} {}", .path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    StateDir(#[from] transport::state_dir::Unusable),
    #[error("{0}")]
    Start(String),
    #[error("the database failed")]
    Store(#[from] crate::store::StoreError),
    #[error("an event cannot be recorded")]
    Seal(#[from] event::SealError),
    #[error("the copy of a workspace failed")]
    Scan(#[source] Cause),
    #[error("the kept bytes of a base failed")]
    Blob(#[source] Cause),
    #[error("a task of the service failed")]
    Task(#[from] tokio::task::JoinError),
    #[error("the method table does not fit")]
    Table(#[from] transport::authz::Mismatch),
    #[error("the server failed")]
    Server(#[from] transport::server::Error),
}

impl Error {
    /// What the engine could not do, with its own words as the cause.
    pub(crate) fn engine(what: &'static str) -> impl FnOnce(EngineError) -> Self {
        move |source| Self::Engine { what, source: Box::new(source) }
    }

    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

impl From<ScanError> for Error {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Depth(_)
            | ScanError::Entries(_)
            | ScanError::DirectoryEntries(_)
            | ScanError::Full(_)
            | ScanError::Bytes(_) => Self::WorkspaceTooLarge(error.to_string()),
            ScanError::Root | ScanError::Copy(_) | ScanError::Thread => Self::Scan(Box::new(error)),
        }
    }
}

impl From<BlobError> for Error {
    fn from(error: BlobError) -> Self {
        Self::Blob(Box::new(error))
    }
}

/// Which binding of a copy is not what it was, where that is known.
pub(crate) fn because(lost: Option<Binding>) -> String {
    lost.map(|binding| format!(": its {binding} is not what it was")).unwrap_or_default()
}

impl Public for Error {
    const DOMAIN: &'static str = "sandbox-svc";

    fn code(&self) -> Code {
        match self {
            Self::Request(_) => Code::InvalidArgument,
            Self::FenceStale
            | Self::Session { .. }
            | Self::GrantExpired
            | Self::EnvironmentLost(_)
            | Self::RunBusy
            | Self::WorkspaceTooLarge(_) => Code::FailedPrecondition,
            Self::SessionUnknown
            | Self::EnvironmentUnknown
            | Self::RunUnknown
            | Self::PatchUnknown
            | Self::PatchPathUnknown
            | Self::PatchGone => Code::NotFound,
            Self::Grant { .. } => Code::PermissionDenied,
            Self::CleanupUncertain | Self::Stopping | Self::Engine { .. } => Code::Unavailable,
            Self::File { .. }
            | Self::StateDir(_)
            | Self::Start(_)
            | Self::Store(_)
            | Self::Seal(_)
            | Self::Scan(_)
            | Self::Blob(_)
            | Self::Task(_)
            | Self::Table(_)
            | Self::Server(_) => Code::Internal,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Request(_) => "REQUEST_INVALID",
            Self::FenceStale => "FENCE_STALE",
            Self::SessionUnknown => "SESSION_UNKNOWN",
            Self::Grant { reason, .. } | Self::Session { reason, .. } => reason,
            Self::GrantExpired => "GRANT_EXPIRED",
            Self::EnvironmentUnknown => "ENVIRONMENT_UNKNOWN",
            Self::EnvironmentLost(_) => "ENVIRONMENT_LOST",
            Self::RunUnknown => "RUN_UNKNOWN",
            Self::WorkspaceTooLarge(_) => "WORKSPACE_TOO_LARGE",
            Self::PatchUnknown => "PATCH_UNKNOWN",
            Self::PatchPathUnknown => "PATCH_PATH_UNKNOWN",
            Self::PatchGone => "PATCH_GONE",
            Self::CleanupUncertain => "CLEANUP_UNCERTAIN",
            Self::RunBusy => "RUN_BUSY",
            Self::Stopping => "STOPPING",
            Self::Engine { .. } => "ENGINE_UNAVAILABLE",
            Self::File { .. }
            | Self::StateDir(_)
            | Self::Start(_)
            | Self::Store(_)
            | Self::Seal(_)
            | Self::Scan(_)
            | Self::Blob(_)
            | Self::Task(_)
            | Self::Table(_)
            | Self::Server(_) => "INTERNAL",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CleanupUncertain | Self::Engine { .. } => Some(Duration::from_secs(5)),
            Self::RunBusy | Self::Stopping => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
