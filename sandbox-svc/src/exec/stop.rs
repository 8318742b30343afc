//! When a command is told to end, and how: a cancel asks first, everything else kills, and an engine that shows no
//! end for long is not waited for. It sends nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::lifecycle::StopReason;

/// Between asking and killing.
const COURTESY: Duration = Duration::from_secs(2);
const KILL_AGAIN: Duration = Duration::from_secs(3);
/// After the first kill.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Kill,
    GiveUp,
}

/// The stop of one command, once there is a reason for it.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) reason: Option<StopReason>,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Untouched,
    Asked { at: Instant },
    Killed { first: Instant, last: Instant },
}

impl Stopping {
    pub(super) fn new(reason: Option<StopReason>) -> Self {
        Self { reason, state: State::Untouched }
    }

    /// What is to be sent now, if anything.
    pub(super) fn next(&mut self, now: Instant) -> Option<Signal> {
        let reason = self.reason?;
        let (signal, state) = match self.state {
            State::Untouched if reason == StopReason::Canceled => {
                (Signal::Terminate, State::Asked { at: now })
            }
            State::Untouched => (Signal::Kill, State::Killed { first: now, last: now }),
            State::Asked { at } if now >= at + COURTESY => {
                (Signal::Kill, State::Killed { first: now, last: now })
            }
            State::Killed { first, .. } if now >= first + PATIENCE => (Signal::GiveUp, self.state),
            State::Killed { first, last } if now >= last + KILL_AGAIN => {
                (Signal::Kill, State::Killed { first, last: now })
            }
            State::Asked { .. } | State::Killed { .. } => return None,
        };
        self.state = state;
        Some(signal)
    }
}

/// A clock that also counts while the host sleeps.
pub(super) struct Clock {
    start: Duration,
    before: Duration,
}

impl Clock {
    pub(super) fn start(began: Instant) -> Self {
        Self { start: boot_time(), before: began.elapsed() }
    }

    pub(super) fn passed(&self) -> Duration {
        self.before + boot_time().saturating_sub(self.start)
    }
}

fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Signal, Stopping};
    use crate::lifecycle::StopReason;

    fn signals(reason: StopReason) -> Vec<(u64, Signal)> {
        let mut stopping = Stopping::new(Some(reason));
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        (0..40).filter_map(|second| Some((second, stopping.next(at(second))?))).collect()
    }

    #[test]
    fn a_cancel_asks_first_and_everything_else_kills() {
        use Signal::{GiveUp, Kill, Terminate};
        let canceled = signals(StopReason::Canceled);
        assert_eq!(canceled[..3], [(0, Terminate), (2, Kill), (5, Kill)]);
        assert_eq!(canceled.iter().find(|it| it.1 == GiveUp), Some(&(32, GiveUp)));
        let late = signals(StopReason::TimedOut);
        assert_eq!(late[..2], [(0, Kill), (3, Kill)]);
        assert!(late.iter().all(|it| it.1 != Terminate));
        assert_eq!(Stopping::new(None).next(Instant::now()), None);
    }
}
