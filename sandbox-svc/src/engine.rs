//! Containers as this service knows them: one command, one container, locked down, never reused. No other
//! module speaks to an engine, and no call here waits without a limit.

mod body;
pub(crate) mod cgroup;
mod dialect;
mod docker;
pub(crate) mod init;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use event::MountMode;

use crate::tree::Meta;

pub(crate) use dialect::Dialect;
pub(crate) use docker::{Docker, Frames, Input, Setup};

/// Where a command finds the copy, and itself.
pub(crate) const WORKSPACE: &str = "/workspace";

/// An engine's id of a container: 64 hex digits, so that it can stand in a request path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerId(String);

/// The one name of a call's attempt: `sbx-<call>a<attempt>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a container id of 64 hex digits")]
pub(crate) struct BadId;

impl ContainerId {
    pub(crate) fn parse(text: &str) -> Result<Self, BadId> {
        let fits =
            text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if fits { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContainerName {
    pub(crate) fn of(call: event::id::CallId, attempt: u32) -> Self {
        Self(format!("sbx-{}a{attempt}", call.as_uuid().simple()))
    }

    /// Of one that waits for its command; which call it will be, nobody knows yet.
    pub(crate) fn waiting(lease: uuid::Uuid) -> Self {
        Self(format!("sbx-p{}", lease.simple()))
    }

    /// Of a tool server, which lives through several calls.
    pub(crate) fn server(lease: uuid::Uuid) -> Self {
        Self(format!("sbx-s{}", lease.simple()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a container is spoken of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handle<'a> {
    Id(&'a ContainerId),
    Name(&'a ContainerName),
}

impl Handle<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Id(id) => id.as_str(),
            Self::Name(name) => name.as_str(),
        }
    }
}

/// An image that may run: by id, inspected, with nothing in it that would act on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: event::Digest,
    /// The image's own search path, or the usual one.
    pub(crate) path: String,
}

/// Everything that one container is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) name: ContainerName,
    pub(crate) image: event::Digest,
    /// The image's search path: all of an environment that the first process gets.
    pub(crate) path: String,
    pub(crate) user: User,
    pub(crate) labels: BTreeMap<String, String>,
    /// The private copy, which becomes the working directory, and whatever is mounted beside or on it.
    pub(crate) binds: Vec<Bind>,
    pub(crate) limits: Limits,
}

impl Spec {
    /// Whether a container of the other is as good, but for whose it is: its name, and the labels that say so.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let nobodys =
            |spec: &Self| Self { name: self.name.clone(), labels: BTreeMap::new(), ..spec.clone() };
        nobodys(self) == nobodys(other)
    }
}

/// Whom a command runs as, by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Nobody on the host: a group of its own.
    pub(crate) fn of_slot(uid: u32) -> Self {
        Self { uid, gid: uid }
    }

    /// Whether the mode of a directory lets the user list it and open what is in it.
    pub(crate) fn may_enter(self, meta: &Meta) -> bool {
        let shift = match (meta.uid == self.uid, meta.gid == self.gid) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        meta.mode >> shift & 0o5 == 0o5
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// A directory or file of the host in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) mode: MountMode,
}

/// What the engine enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory: u64,
    pub(crate) pids: u64,
    pub(crate) cpus_milli: u64,
    pub(crate) file_bytes: u64,
    pub(crate) tmp_bytes: u64,
}

/// Where a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Running,
    Exited,
}

/// What the engine says of a container now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inspected {
    pub(crate) id: ContainerId,
    pub(crate) status: Status,
    /// The first process while it runs.
    pub(crate) pid: Option<i32>,
    pub(crate) exit_code: i32,
    pub(crate) oom_killed: bool,
    pub(crate) labels: BTreeMap<String, String>,
}

/// A container that carries our labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: ContainerId,
    pub(crate) labels: BTreeMap<String, String>,
}

/// What a command wrote, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) stream: Stream,
    pub(crate) bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What a create led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    Made(ContainerId),
    /// The name is taken; whose it is, its labels say.
    NameTaken,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("the engine cannot be reached at {}", .socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: bollard::errors::Error,
    },
    #[error("the engine did not answer {call} within {} s", .limit.as_secs())]
    Silent { call: &'static str, limit: Duration },
    #[error("the engine refused {call} with status {status}: {message}")]
    Refused { call: &'static str, status: u16, message: String },
    #[error("the engine failed at {call}")]
    Failed {
        call: &'static str,
        #[source]
        source: bollard::errors::Error,
    },
    #[error("the engine answered {call} without {what}")]
    Incomplete { call: &'static str, what: &'static str },
    #[error("the profile of containers cannot be kept at {}", .path.display())]
    Profile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It would have run with less than was planned.
    #[error("the engine did not lock the container down: {0}")]
    NotLockedDown(String),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("the engine has no such image")]
    Unknown,
    #[error("the image sets {0}, which would act beside the command")]
    Refused(&'static str),
    #[error(transparent)]
    Engine(#[from] EngineError),
}
