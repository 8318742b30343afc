//! Whether a session may start another run. A run knows nothing of its session.

use crate::id::RunId;

/// How many runs the session's dialect admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// One, ever.
    Single,
    /// Any number, one after another.
    Successive,
}

/// What the session has run so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    None,
    Live(RunId),
    Ended { last: RunId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    #[error("run {0} is still going on")]
    Busy(RunId),
    #[error("the session has had its one run, {0}")]
    AlreadyRun(RunId),
}

pub fn admit(allowance: Allowance, runs: Runs) -> Result<(), NotAdmitted> {
    match (allowance, runs) {
        (Allowance::Single, Runs::Live(run) | Runs::Ended { last: run }) => {
            Err(NotAdmitted::AlreadyRun(run))
        }
        (Allowance::Successive, Runs::Live(run)) => Err(NotAdmitted::Busy(run)),
        (Allowance::Single | Allowance::Successive, Runs::None)
        | (Allowance::Successive, Runs::Ended { .. }) => Ok(()),
    }
}
