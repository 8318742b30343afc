//! How the first process touches what is around it: its own two ends of the outside, and the start of a command.
//! A command gets nothing of the first process but what the frame names.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, set_dumpable_behavior};
use sandbox_init::{Frame, Stdin};

/// No process of the same user may trace this one, nor read its memory, environment or descriptors.
pub(crate) fn close_up() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Standard input without a buffer: what follows the frame may be a command's.
pub(crate) fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// The last words. A command may have made the descriptor, which it shared, non-blocking.
pub(crate) fn tell(to: impl AsFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => (),
            Err(Errno::AGAIN) => {
                let mut ready = [PollFd::new(&to, PollFlags::OUT)];
                if poll(&mut ready, None).is_err() {
                    return;
                }
            }
            // Nobody listens; the exit status has to do.
            Err(_) => return,
        }
    }
}

/// Starts a command in a process group of its own. The error is the operating system's reason why it does not run.
pub(crate) fn start(frame: &Frame, command: &sandbox_init::Command) -> Result<Pid, i32> {
    let spawned = (|| {
        let text = |bytes: &Vec<u8>| OsStr::from_bytes(bytes).to_owned();
        let stdin = stdin(&frame.stdin)?;
        let mut process = Command::new(text(&command.program));
        if let Some(name) = command.argv.first() {
            process.arg0(text(name));
        }
        process
            .args(command.argv.iter().skip(1).map(text))
            .env_clear()
            .envs(frame.env.iter().map(|(name, value)| (text(name), text(value))))
            .stdin(stdin)
            .process_group(0)
            .spawn()
    })();
    let failed = |error: io::Error| error.raw_os_error().unwrap_or(0);
    let child = spawned.map_err(failed)?;
    // Not waited for here: all ends are collected in one place.
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(0)
}

fn stdin(stdin: &Stdin) -> io::Result<Stdio> {
    match stdin {
        Stdin::Empty => Ok(Stdio::null()),
        Stdin::Rest => Ok(Stdio::inherit()),
        Stdin::Bytes(bytes) => {
            let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
            file.write_all(bytes)?;
            file.rewind()?;
            Ok(file.into())
        }
    }
}
