//! How a command ended, judged from what was seen: pure, so that every combination can be tested.

use serde::{Deserialize, Serialize};

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
    /// It ran and ended with this status.
    Ran { code: i32 },
    /// It never ran.
    NotStarted { cause: String },
    /// It was not to run: a fact about the call.
    Refused { reason: String, detail: String },
    /// Its container is gone without a status.
    Gone { may_have_run: bool },
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
}

/// A stream as a model is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) bytes: u64,
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

impl Ended {
    /// Unless it is certain that nothing ran.
    pub(crate) fn may_have_run(&self) -> bool {
        match &self.way {
            Way::Ran { .. } => true,
            Way::Gone { may_have_run } => *may_have_run,
            Way::NotStarted { .. } | Way::Refused { .. } => false,
        }
    }

    /// A stored reason decides; then a kill that the kernel counted; else the status is the command's own.
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
            (Way::Ran { .. }, Some(StopReason::TimedOut)) => Outcome::TimedOut,
            (Way::Ran { .. }, Some(StopReason::OutputLimit)) => Outcome::OutputLimit,
            (Way::Ran { .. }, Some(StopReason::Canceled)) => Outcome::Canceled,
            (Way::Ran { code: KILLED }, None) if self.oom_seen => Outcome::OomKilled,
            (Way::Ran { code }, None) => Outcome::Exited(*code),
        }
    }
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
    use super::{Ended, Outcome, StopReason, Text, Way};

    fn ended(way: Way, reason: Option<StopReason>, oom_seen: bool) -> Outcome {
        let (stdout, stderr) = (Text::default(), Text::default());
        Ended { way, reason, oom_seen, output_incomplete: false, stdout, stderr, duration_ms: 0 }
            .outcome()
    }

    #[test]
    fn every_outcome_has_its_evidence() {
        use StopReason::{Canceled, OutputLimit, TimedOut};
        let ran = |code| Way::Ran { code };
        let refused = || Way::Refused { reason: "R".into(), detail: "d".into() };
        let not_started = || Way::NotStarted { cause: "x".into() };
        let cases = [
            (ran(0), None, false, Outcome::Exited(0)),
            (ran(0), None, true, Outcome::Exited(0)),
            (ran(1), None, true, Outcome::Exited(1)),
            (ran(137), None, false, Outcome::Exited(137)),
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
