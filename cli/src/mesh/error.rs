//! Why a mesh could not be made, started or ended.
use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

use transport::Service;

use crate::{
    error::{Exit, Explain},
    file, pki, token,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error(transparent)]
    Pki(#[from] pki::Error),
    #[error(transparent)]
    Token(#[from] token::Error),
    #[error("{} is not a state directory", .0.display())]
    NoMesh(PathBuf),
    #[error("{} is not a state directory, and it is not empty", .0.display())]
    ForeignDirectory(PathBuf),
    #[error("{} can be changed by others than root", .0.display())]
    OpenDirectory(PathBuf),
    #[error("{} is closed to the uids of the services", .0.display())]
    Unreachable(PathBuf),
    #[error("{} is used by another 'harness up'", .0.display())]
    InUse(PathBuf),
    #[error("{} is damaged", path.display())]
    Record { path: PathBuf, source: serde_json::Error },
    #[error("own uids were asked for, but this is not root")]
    NotRoot,
    #[error("a path must be UTF-8, and {} is not", .0.display())]
    NotText(PathBuf),
    #[error("{0}")]
    Argument(Argument),
    #[error("manifest {0}")]
    Manifest(String),
    #[error("models file {file}: {fault}")]
    Models { file: String, fault: String },
    #[error("ceiling {0}")]
    Ceiling(String),
    /// In sandbox-svc's words.
    #[error("{said}")]
    Closed { said: String, uid: Option<u32> },
    /// In a service's words.
    #[error("{0}")]
    Judged(String),
    /// Two at least; each is told by itself.
    #[error("{} things that were named can not be used", .0.len())]
    Several(Vec<Error>),
    #[error("no block of free ports between {first} and {last}")]
    NoPorts { first: u16, last: u16 },
    #[error("port {port}, which this state directory uses, is taken")]
    PortTaken { port: u16, source: io::Error },
    #[error("no container engine at {}", socket.display())]
    NoEngine { socket: PathBuf, source: io::Error },
    #[error("{0} is not beside this program in {dir}", dir = .1.display())]
    NoProgram(&'static str, PathBuf),
    #[error("can not start {service}")]
    Start { service: &'static str, source: io::Error },
    #[error("can not end {service}")]
    End { service: &'static str, source: io::Error },
    #[error("{service} ended with {how}{said}", how = describe(*.status))]
    Died { service: &'static str, status: ExitStatus, said: String, log: PathBuf },
    #[error("{service} is not ready after {} s{said}", limit.as_secs())]
    NotReady { service: &'static str, limit: Duration, said: String, log: PathBuf },
    #[error("not everything is ended: {0}")]
    NotEnded(String),
    #[error("{service} does not run", service = .0.as_str())]
    NotRunning(Service),
}

impl Error {
    /// One fault speaks for itself; of several, each is told.
    pub(super) fn all(mut faults: Vec<Self>) -> Result<(), Self> {
        match faults.len() {
            0 => Ok(()),
            1 => faults.pop().map_or(Ok(()), Err),
            _ => Err(Self::Several(faults)),
        }
    }
}

/// What is wrong with something that the caller named.
#[derive(Debug, thiserror::Error)]
pub enum Argument {
    #[error("'{0}' is not NAME=DIR")]
    NotNamed(String),
    #[error("name '{0}' has other characters than a-z, 0-9 and '-', or none")]
    Name(String),
    #[error("{0} '{1}' is given twice")]
    Twice(&'static str, String),
    #[error("{what} {} is not a directory, or has a comma in its path", dir.display())]
    NotDirectory { what: &'static str, dir: PathBuf },
    #[error("no model is given")]
    NoModel,
    #[error("no workspace is given")]
    NoWorkspace,
    #[error("{what} '{name}' and the state directory {} lie one within the other; the state holds keys and tokens", state.display())]
    Together { what: &'static str, name: String, state: PathBuf },
    #[error("{what} '{name}' is not named any more, and {held} held runs may need it")]
    Dropped { what: &'static str, name: String, held: usize },
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::Pki(error) => error.exit(),
            Self::Token(error) => error.exit(),
            Self::NoMesh(_)
            | Self::ForeignDirectory(_)
            | Self::OpenDirectory(_)
            | Self::Unreachable(_)
            | Self::NotRoot
            | Self::NotText(_)
            | Self::Argument(_)
            | Self::Manifest(_)
            | Self::Ceiling(_)
            | Self::Closed { .. }
            | Self::Models { .. }
            | Self::Judged(_)
            | Self::Several(_) => Exit::Usage,
            Self::InUse(_)
            | Self::Record { .. }
            | Self::NoPorts { .. }
            | Self::PortTaken { .. }
            | Self::NoEngine { .. }
            | Self::NoProgram(..)
            | Self::Start { .. }
            | Self::End { .. }
            | Self::Died { .. }
            | Self::NotReady { .. }
            | Self::NotEnded(_)
            | Self::NotRunning(_) => Exit::Failed,
        }
    }

    fn details(&self) -> Vec<String> {
        match self {
            Self::Several(faults) => {
                faults.iter().map(|fault| crate::error::Causes(fault).to_string()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::File(error) => return error.advice(),
            Self::Pki(error) => return error.advice(),
            Self::Token(error) => return error.advice(),
            Self::NoMesh(_) => "give --state the directory of a 'harness up'",
            Self::ForeignDirectory(_) => "give --state a new or an empty directory",
            Self::OpenDirectory(_) => "give --state a directory that root alone can write",
            Self::Unreachable(dir) => {
                return format!(
                    "give --state a place below / that others may pass, or 'chmod o+x {}'",
                    dir.display()
                );
            }
            Self::InUse(_) => "stop that one first, or give another --state",
            Self::Record { .. } => "restore it, or start with a new state directory",
            Self::NotRoot => "run as root, or leave the choice to 'harness up'",
            Self::NotText(_) => "rename it",
            Self::Argument(argument) => return argument.advice().to_owned(),
            Self::Closed { uid: Some(uid), .. } => {
                return format!(
                    "sandbox-svc reads it as uid {uid}: 'chmod o+r' the file and 'chmod o+x' the directories above it, \
                     or put it below /etc"
                );
            }
            Self::Closed { uid: None, .. } => "check the permissions of the file and the directories above it",
            Self::Manifest(_) | Self::Ceiling(_) | Self::Models { .. } | Self::Judged(_) => {
                "correct the file"
            }
            Self::Several(_) => "correct what is listed; nothing was written",
            Self::NoPorts { .. } => "stop some programs that listen on loopback",
            Self::PortTaken { port, .. } => {
                return format!("find who listens with 'ss -ltnp sport = :{port}' and stop it");
            }
            Self::NoEngine { .. } => "start Docker, or name its socket with --engine-socket",
            Self::NoProgram(..) => {
                "build the whole workspace with 'cargo build --workspace', or reinstall"
            }
            Self::Start { .. } => {
                "check that setpriv (package util-linux) is installed and the program is executable"
            }
            Self::End { .. } => "look at it with 'ps' and end it by hand",
            Self::Died { log, .. } | Self::NotReady { log, .. } => {
                return format!("see {}", log.display());
            }
            Self::NotEnded(_) => "see that the container engine answers, then try again",
            Self::NotRunning(_) => "start it first",
        }
        .to_owned()
    }
}

impl Argument {
    fn advice(&self) -> &'static str {
        match self {
            Self::NotNamed(_) => "write the name that manifests use, an equals sign and a path",
            Self::Name(_) => "choose a name such as 'demo' or 'my-project'",
            Self::Twice(..) => "give each name once",
            Self::NotDirectory { .. } => "check the path",
            Self::NoWorkspace => "give --workspace NAME=DIR",
            Self::NoModel => "give --script FILE, or --models FILE with a provider",
            Self::Together { .. } => {
                "give --state a directory outside every workspace and dependency"
            }
            Self::Dropped { .. } => {
                "name it as before, or answer the held runs first; 'harness runs cleanup' ends them"
            }
        }
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
