//! Processes of an earlier mesh over the same directory: the kernel ends them with their starter, which may take a
//! moment and, in a window of a few instructions, may not happen at all. The next start makes sure.
use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use transport::Service;

use super::{Error, Layout};
use crate::file::{self, Access};

const LIMIT: Duration = Duration::from_secs(10);

/// Remembers what runs now.
pub(crate) fn note(layout: &Layout, pids: impl Iterator<Item = u32>) -> Result<(), Error> {
    let text: String = pids.map(|pid| format!("{pid}\n")).collect();
    Ok(file::write(&layout.pids(), text.as_bytes(), Access::PRIVATE)?)
}

/// Ends what an earlier start left, and waits until it is gone.
pub(crate) fn end(layout: &Layout) -> Result<(), Error> {
    let path = layout.pids();
    if !path.exists() {
        return Ok(());
    }
    let text = file::read_text(&path)?;
    let until = Instant::now() + LIMIT;
    for pid in text.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        while is_ours(layout, pid) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => {
                    return Err(Error::End {
                        service: "a process of an earlier start",
                        source: errno.into(),
                    });
                }
            }
            if Instant::now() > until {
                let source = std::io::ErrorKind::TimedOut.into();
                return Err(Error::End { service: "a process of an earlier start", source });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// A number may belong to another program by now; only one that was started with a configuration of ours is ours.
fn is_ours(layout: &Layout, pid: Pid) -> bool {
    let Ok(words) =
        fs::read(Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("cmdline"))
    else {
        return false;
    };
    Service::ALL.iter().any(|service| {
        let config = layout.config(*service);
        words.split(|byte| *byte == 0).any(|word| word == config.as_os_str().as_bytes())
    })
}
