//! How a command ended, judged from what was seen: pure, so that every combination can be tested.

use sandbox_init::{End, Stop, Trailer, status};
use serde::{Deserialize, Serialize};

use crate::broker::Connections;

/// Why a command is stopped; stored before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    TimedOut,
    OutputLimit,
    Canceled,
}

impl StopReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::Canceled => "canceled",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::TimedOut, Self::OutputLimit, Self::Canceled]
            .into_iter()
            .find(|reason| reason.as_str() == text)
    }
}

/// How far a command came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// The first process told how each command ended.
    Told(Told),
    /// It ran, and only the container's own status is known.
    Ran { code: i32 },
    /// It never ran.
    NotStarted { cause: String },
    /// It was not to run: a fact about the call.
    Refused { reason: String, detail: String },
    /// Its container is gone without a status.
    Gone { may_have_run: bool },
}

/// The first process's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) stop: Stopped,
    /// Of the commands that were begun, in order.
    pub(crate) ends: Vec<CommandEnd>,
}

/// Whether the first process ended the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stopped {
    No,
    TimeLimit,
    Terminated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandEnd {
    pub(crate) how: How,
    pub(crate) duration_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Exited(u8),
    Signaled(u8),
    /// The operating system's reason why it did not run.
    ExecFailed(i32),
}

impl From<Trailer> for Told {
    fn from(trailer: Trailer) -> Self {
        let Trailer { stop, ends } = trailer;
        let stop = match stop {
            Stop::None => Stopped::No,
            Stop::TimeLimit => Stopped::TimeLimit,
            Stop::Terminated => Stopped::Terminated,
        };
        let ends = ends.into_iter().map(|sandbox_init::Ended { end, duration_ms }| {
            let how = match end {
                End::Exited(code) => How::Exited(code),
                End::Signaled(signal) => How::Signaled(signal),
                End::ExecFailed(errno) => How::ExecFailed(errno),
            };
            CommandEnd { how, duration_ms }
        });
        Self { stop, ends: ends.collect() }
    }
}

/// Everything that was seen of a command; stored before its container is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) way: Way,
    pub(crate) reason: Option<StopReason>,
    pub(crate) oom_seen: bool,
    pub(crate) output_incomplete: bool,
    pub(crate) stdout: Text,
    pub(crate) stderr: Text,
    pub(crate) duration_ms: u64,
    /// Of a command with a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<Connections>,
}

/// A stream as a model is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) bytes: u64,
    /// Of these, how many the text leaves out.
    #[serde(default)]
    pub(crate) left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Exited(i32),
    TimedOut,
    OutputLimit,
    OomKilled,
    Canceled,
    StartFailed(String),
    Refused { reason: String, detail: String },
    Lost { may_have_run: bool },
}

/// 128 + SIGKILL.
const KILLED: i32 = 137;
const ENOENT: i32 = 2;
const TIMED_OUT: i32 = status::TIMED_OUT as i32;
const NOT_CARRIED: i32 = status::NOT_CARRIED as i32;

impl Ended {
    /// Unless it is certain that nothing ran.
    pub(crate) fn may_have_run(&self) -> bool {
        match &self.way {
            Way::Told(_) | Way::Ran { .. } => true,
            Way::Gone { may_have_run } => *may_have_run,
            Way::NotStarted { .. } | Way::Refused { .. } => false,
        }
    }

    /// A stored reason decides; then what the first process ended; then a kill that the kernel counted; else the
    /// status is the command's own.
    pub(crate) fn outcome(&self) -> Outcome {
        match (&self.way, self.reason) {
            (Way::Gone { may_have_run }, _) => Outcome::Lost { may_have_run: *may_have_run },
            (Way::NotStarted { .. } | Way::Refused { .. }, Some(StopReason::Canceled)) => {
                Outcome::Canceled
            }
            (Way::Refused { reason, detail }, _) => {
                Outcome::Refused { reason: reason.clone(), detail: detail.clone() }
            }
            (Way::NotStarted { cause }, _) => Outcome::StartFailed(cause.clone()),
            (Way::Told(_) | Way::Ran { .. }, Some(StopReason::TimedOut)) => Outcome::TimedOut,
            (Way::Told(_) | Way::Ran { .. }, Some(StopReason::OutputLimit)) => Outcome::OutputLimit,
            (Way::Told(_) | Way::Ran { .. }, Some(StopReason::Canceled)) => Outcome::Canceled,
            (Way::Told(told), None) => self.told(told),
            (Way::Ran { code: TIMED_OUT }, None) => Outcome::TimedOut,
            (Way::Ran { code: NOT_CARRIED }, None) => Outcome::Lost { may_have_run: true },
            // An engine that comes back kills what ran without it: this is nobody's word for an end.
            (Way::Ran { code: KILLED }, None) if !self.oom_seen => {
                Outcome::Lost { may_have_run: true }
            }
            (Way::Ran { code }, None) => self.exited(*code),
        }
    }

    fn told(&self, told: &Told) -> Outcome {
        match (told.stop, told.ends.as_slice()) {
            (Stopped::TimeLimit, _) => Outcome::TimedOut,
            (_, [CommandEnd { how: How::ExecFailed(errno), .. }]) => {
                Outcome::StartFailed(exec_failed(*errno))
            }
            // Without a reason of ours, a command asked the first process for its own end.
            (_, [.., last]) => self.exited(last.how.code()),
            (_, []) => Outcome::Lost { may_have_run: false },
        }
    }

    fn exited(&self, code: i32) -> Outcome {
        if code == KILLED && self.oom_seen { Outcome::OomKilled } else { Outcome::Exited(code) }
    }
}

impl How {
    /// As a shell has it.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code.into(),
            Self::Signaled(signal) => 128 + i32::from(signal),
            Self::ExecFailed(ENOENT) => 127,
            Self::ExecFailed(_) => 126,
        }
    }
}

/// The operating system's words.
pub(crate) fn exec_failed(errno: i32) -> String {
    format!("the program cannot be run: {}", std::io::Error::from_raw_os_error(errno))
}

impl Outcome {
    /// For the model and the ledger.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::TimedOut => "timed_out",
            Self::OutputLimit => "output_limit",
            Self::OomKilled => "oom_killed",
            Self::Canceled => "canceled",
            Self::StartFailed(_) => "start_failed",
            Self::Refused { .. } => "refused",
            Self::Lost { .. } => "lost",
        }
    }

    pub(crate) fn call_status(&self) -> event::CallStatus {
        match self {
            Self::Exited(0) => event::CallStatus::Completed,
            Self::Exited(_) | Self::Refused { .. } => event::CallStatus::Failed,
            Self::TimedOut => event::CallStatus::TimedOut,
            Self::OutputLimit => event::CallStatus::OutputLimit,
            Self::OomKilled => event::CallStatus::OomKilled,
            Self::Canceled => event::CallStatus::Canceled,
            Self::StartFailed(_) => event::CallStatus::StartFailed,
            Self::Lost { .. } => event::CallStatus::Lost,
        }
    }

    pub(crate) fn sandbox_status(&self) -> event::SandboxStatus {
        match self {
            Self::Exited(0) => event::SandboxStatus::Completed,
            Self::Canceled => event::SandboxStatus::Canceled,
            Self::Exited(_)
            | Self::TimedOut
            | Self::OutputLimit
            | Self::OomKilled
            | Self::StartFailed(_)
            | Self::Refused { .. }
            | Self::Lost { .. } => event::SandboxStatus::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandEnd, Ended, How, Outcome, StopReason, Stopped, Text, Told, Way};

    fn ended(way: Way, reason: Option<StopReason>, oom_seen: bool) -> Outcome {
        let (stdout, stderr) = (Text::default(), Text::default());
        let connections = None;
        Ended {
            way,
            reason,
            oom_seen,
            output_incomplete: false,
            stdout,
            stderr,
            duration_ms: 0,
            connections,
        }
        .outcome()
    }

    #[test]
    fn every_outcome_has_its_evidence() {
        use StopReason::{Canceled, OutputLimit, TimedOut};
        let ran = |code| Way::Ran { code };
        let refused = || Way::Refused { reason: "R".into(), detail: "d".into() };
        let not_started = || Way::NotStarted { cause: "x".into() };
        let told =
            |stop, how| Way::Told(Told { stop, ends: vec![CommandEnd { how, duration_ms: 1 }] });
        let alone = |how| told(Stopped::No, how);
        let killed = || How::Signaled(9);
        let not_found = "the program cannot be run: No such file or directory (os error 2)";
        let cases = [
            (alone(How::Exited(3)), None, false, Outcome::Exited(3)),
            (alone(How::Exited(125)), None, false, Outcome::Exited(125)),
            (alone(How::Exited(0)), None, true, Outcome::Exited(0)),
            (alone(How::Signaled(15)), None, false, Outcome::Exited(143)),
            (alone(killed()), None, false, Outcome::Exited(137)),
            (alone(killed()), None, true, Outcome::OomKilled),
            (alone(How::ExecFailed(2)), None, false, Outcome::StartFailed(not_found.into())),
            (told(Stopped::TimeLimit, killed()), None, true, Outcome::TimedOut),
            (told(Stopped::Terminated, How::Signaled(15)), None, false, Outcome::Exited(143)),
            (told(Stopped::Terminated, How::Exited(0)), Some(Canceled), false, Outcome::Canceled),
            (alone(killed()), Some(OutputLimit), true, Outcome::OutputLimit),
            (ran(124), None, false, Outcome::TimedOut),
            (ran(123), None, false, Outcome::Lost { may_have_run: true }),
            (ran(0), None, false, Outcome::Exited(0)),
            (ran(0), None, true, Outcome::Exited(0)),
            (ran(1), None, true, Outcome::Exited(1)),
            (ran(137), None, false, Outcome::Lost { may_have_run: true }),
            (ran(137), None, true, Outcome::OomKilled),
            (ran(137), Some(TimedOut), true, Outcome::TimedOut),
            (ran(137), Some(OutputLimit), false, Outcome::OutputLimit),
            (ran(0), Some(Canceled), false, Outcome::Canceled),
            (not_started(), None, false, Outcome::StartFailed("x".into())),
            (not_started(), Some(Canceled), false, Outcome::Canceled),
            (refused(), Some(Canceled), false, Outcome::Canceled),
            (refused(), None, false, Outcome::Refused { reason: "R".into(), detail: "d".into() }),
            (
                Way::Gone { may_have_run: true },
                Some(TimedOut),
                false,
                Outcome::Lost { may_have_run: true },
            ),
        ];
        for (way, reason, oom_seen, outcome) in cases {
            assert_eq!(
                ended(way.clone(), reason, oom_seen),
                outcome,
                "{way:?} {reason:?} {oom_seen}"
            );
        }
    }
}
