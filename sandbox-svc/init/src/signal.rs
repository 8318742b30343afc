//! What the first process minds: a child has ended, somebody outside wants an end, or whoever wrote its input is
//! gone. It only wakes the one loop; nothing happens inside a handler.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
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

    /// Waits for a signal, at most so long; says whether an end is wanted. With `input`, it is also when nobody is
    /// left who writes there, whatever may still be read.
    pub(crate) fn wait(&self, limit: Duration, input: Option<BorrowedFd<'_>>) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut ready = vec![
            PollFd::from_borrowed_fd(self.child.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.terminate.as_fd(), PollFlags::IN),
        ];
        // A hang-up is told without being asked for.
        ready.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::empty())));
        // Interrupted or not, all are looked at.
        let _interrupted = poll(&mut ready, limit.as_ref());
        let hung_up = ready.get(2).is_some_and(|input| input.revents().contains(PollFlags::HUP));
        drain(&self.child);
        drain(&self.terminate) || hung_up
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
