//! The life of a frame's commands: started in order, ended by themselves, by the clock or by a signal, and every
//! process of the container with them. What is told of an end is what the kernel said of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};
use sandbox_init::{Command, End, Ended, Frame, Stdin, Stop, Trailer};

use crate::signal::Signals;
use crate::spawn;

/// Between the signal to end and the end.
const COURTESY: Duration = Duration::from_secs(2);
/// How long killed processes are waited for; the kernel ends the rest with this one.
const LAST: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
const SIGKILL: u8 = 9;

/// Runs the frame. No process of the container but this one is there when it returns.
pub(crate) fn run(frame: &Frame, signals: &Signals) -> Trailer {
    let mut life = Life {
        signals,
        input: io::stdin(),
        clock: Instant::now().checked_add(frame.time_limit),
        stop: Stop::None,
        kill: None,
    };
    let mut ends = Vec::new();
    match std::env::set_current_dir(OsStr::from_bytes(&frame.cwd)) {
        Ok(()) => {
            for command in &frame.commands {
                let began = Instant::now();
                let end = life.run(frame, command);
                let spent = u64::try_from(began.elapsed().as_millis());
                ends.push(Ended { end, duration_ms: spent.unwrap_or(u64::MAX) });
                if end != End::Exited(0) || life.stop != Stop::None {
                    break;
                }
            }
        }
        Err(error) => {
            let end = End::ExecFailed(error.raw_os_error().unwrap_or(0));
            ends.push(Ended { end, duration_ms: 0 });
        }
    }
    life.end_all();
    Trailer { stop: life.stop, ends }
}

struct Life<'a> {
    signals: &'a Signals,
    input: io::Stdin,
    /// When the time is over; never, if that is further away than a clock can say.
    clock: Option<Instant>,
    stop: Stop,
    /// When courtesy ends.
    kill: Option<Instant>,
}

impl Life<'_> {
    fn run(&mut self, frame: &Frame, command: &Command) -> End {
        let pid = match spawn::start(frame, command) {
            Ok(pid) => pid,
            Err(errno) => return End::ExecFailed(errno),
        };
        loop {
            while let Some((ended, status)) = reap() {
                if ended == pid {
                    return end_of(status);
                }
            }
            self.look();
            let terminate = self.signals.wait(self.patience(), self.conversation(frame));
            if terminate && self.stop == Stop::None {
                self.stop = Stop::Terminated;
                self.kill = Instant::now().checked_add(COURTESY);
                to_all(Signal::TERM);
            }
        }
    }

    /// The input of a command that is spoken to while it runs: when whoever speaks is gone, so is its purpose.
    fn conversation(&self, frame: &Frame) -> Option<BorrowedFd<'_>> {
        let open = frame.stdin == Stdin::Rest && self.stop == Stop::None;
        open.then(|| self.input.as_fd())
    }

    /// Ends everything when it is time to.
    fn look(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.stop == Stop::None && due(self.clock) {
            self.stop = Stop::TimeLimit;
            self.kill = Some(now);
        }
        if due(self.kill) {
            to_all(Signal::KILL);
            self.kill = now.checked_add(LOOK);
        }
    }

    /// How long nothing is to be done unless a signal comes.
    fn patience(&self) -> Duration {
        let next = match self.stop {
            Stop::None => self.clock,
            Stop::TimeLimit | Stop::Terminated => self.kill,
        };
        let left = next.map(|at| at.saturating_duration_since(Instant::now()));
        left.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(1))
    }

    fn end_all(&self) {
        let until = Instant::now() + LAST;
        loop {
            to_all(Signal::KILL);
            while reap().is_some() {}
            if matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) || Instant::now() >= until {
                return;
            }
            self.signals.wait(LOOK, None);
        }
    }
}

/// One child that has ended, whoever's it was.
fn reap() -> Option<(Pid, WaitStatus)> {
    wait(WaitOptions::NOHANG).ok().flatten()
}

/// Every process of the container but this one: the group of the first process, negated, is what the system call
/// means by all.
fn to_all(signal: Signal) {
    // Nobody left is as good.
    let _nobody = kill_process_group(Pid::INIT, signal);
}

fn end_of(status: WaitStatus) -> End {
    let code = |number: i32| u8::try_from(number).ok();
    match (status.exit_status().and_then(code), status.terminating_signal().and_then(code)) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signaled(signal),
        // The kernel says no third thing of a process that has ended.
        (None, None) => End::Signaled(SIGKILL),
    }
}
