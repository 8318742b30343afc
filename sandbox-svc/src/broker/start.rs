//! The process of a broker: its socket in a directory of the run, its rights taken away, its work handed over, its
//! end. It lives no longer than the command, and no longer than this service.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use egress::Config;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;
use transport::{CancellationToken, TaskTracker};

use super::Brokers;
use super::heard::{Connections, Ears, Teller};

/// Who a broker makes itself where it may choose: nobody else's user, beside those of the containers.
const USER: u32 = 199_999;
const SOCKET: &str = "s";
const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(5);

/// A broker that takes connections.
pub(crate) struct Broker {
    child: Child,
    /// The broker ends when it is dropped.
    lifeline: UnixStream,
    heard: JoinHandle<Connections>,
    /// That an end of what is heard is no surprise.
    ending: CancellationToken,
    /// What the container gets.
    pub(crate) directory: PathBuf,
}

/// No broker, so no command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotBroker {
    #[error("the socket of the egress broker cannot be made")]
    Socket(#[source] io::Error),
    #[error("the egress broker cannot be started")]
    Program(#[source] io::Error),
    #[error("the egress broker did not get ready")]
    Silent,
}

impl Broker {
    /// In `directory`, which is made anew; `teller` passes each decision on.
    pub(crate) async fn start(
        brokers: &Brokers,
        directory: PathBuf,
        config: Config,
        teller: Teller,
        tracker: &TaskTracker,
    ) -> Result<Self, NotBroker> {
        let place = directory.clone();
        let listener = tokio::task::spawn_blocking(move || bind(&place)).await;
        let listener =
            listener.map_err(io::Error::other).and_then(|made| made).map_err(NotBroker::Socket)?;
        let (lifeline, theirs) = UnixStream::pair().map_err(NotBroker::Program)?;
        let mut child = command(&brokers.program, theirs).spawn().map_err(NotBroker::Program)?;
        let stdout = child.stdout.take().ok_or(NotBroker::Silent)?;
        let ours = lifeline.try_clone().map_err(NotBroker::Program)?;
        let give = move || egress::give(&ours, listener.as_fd(), &config);
        let given = tokio::task::spawn_blocking(give).await;
        given.map_err(io::Error::other).and_then(|given| given).map_err(NotBroker::Program)?;
        let mut ears = Ears::new(BufReader::new(stdout), teller);
        match timeout(START, ears.ready()).await {
            Ok(true) => (),
            Ok(false) | Err(_) => return Err(NotBroker::Silent),
        }
        let ending = CancellationToken::new();
        let heard = tracker.spawn(ears.listen(ending.clone()));
        Ok(Self { child, lifeline, heard, ending, directory })
    }

    /// Ends it, and tells what it did.
    pub(crate) async fn end(self) -> Connections {
        let Self { mut child, lifeline, mut heard, ending, directory } = self;
        ending.cancel();
        drop(lifeline);
        let told = match timeout(END, &mut heard).await {
            Ok(Ok(told)) => told,
            Ok(Err(_)) => Connections::lost(),
            Err(_) => {
                warn!("an egress broker does not end by itself");
                // Then there is nothing more to hear.
                if child.start_kill().is_ok() {
                    heard.await.unwrap_or_else(|_| Connections::lost())
                } else {
                    Connections::lost()
                }
            }
        };
        if timeout(END, child.wait()).await.is_err() {
            warn!("an egress broker is killed");
            drop(child);
        }
        let removed = tokio::task::spawn_blocking(move || remove(&directory)).await;
        if !matches!(removed, Ok(Ok(()))) {
            // It goes with the run's place.
            warn!("the socket of an egress broker is still there");
        }
        told
    }
}

fn command(program: &Path, stdin: UnixStream) -> Command {
    let mut command = Command::new(program);
    command
        .arg(USER.to_string())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(stdin)))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Bound through the directory's descriptor: a path of a socket has no room for a long one. Everybody who sees the
/// directory may connect, and only the command's container sees it. Blocks.
fn bind(directory: &Path) -> io::Result<UnixListener> {
    remove(directory)?;
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o711))?;
    let opened = std::fs::File::open(directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
    Ok(listener)
}

fn remove(directory: &Path) -> io::Result<()> {
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    };
    gone(std::fs::remove_file(directory.join(SOCKET)))?;
    gone(std::fs::remove_dir(directory))
}
