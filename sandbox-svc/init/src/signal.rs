//! The two signals that the first process minds: a child has ended, and somebody outside wants an end. It only
//! wakes the one loop; nothing happens inside a handler.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGTERM};
use signal_hook::low_level::pipe;

pub(crate) struct Signals {
    child: UnixStream,
    terminate: UnixStream,
}

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        let watched = |signal| {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            pipe::register(signal, write)?;
            Ok::<_, io::Error>(read)
        };
        Ok(Self { child: watched(SIGCHLD)?, terminate: watched(SIGTERM)? })
    }

    /// Waits for a signal, at most so long; says whether an end is wanted.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut ready =
            [PollFd::new(&self.child, PollFlags::IN), PollFd::new(&self.terminate, PollFlags::IN)];
        // Interrupted or not, both are looked at.
        let _interrupted = poll(&mut ready, limit.as_ref());
        drain(&self.child);
        drain(&self.terminate)
    }
}

/// Takes what is there; says whether anything was.
fn drain(mut from: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while matches!(from.read(&mut bytes), Ok(1..)) {
        any = true;
    }
    any
}
