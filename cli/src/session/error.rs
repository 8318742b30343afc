//! Why a conversation with a gateway broke off.
use acp::{
    Code, Length,
    client::{CallError, Closed},
};
use event::id::SessionId;

use super::Violation;
use crate::error::{Exit, Explain};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{method} was refused")]
    Refused { method: &'static str, source: acp::Failure },
    #[error("{method} has no answer")]
    Call { method: &'static str, source: CallError },
    #[error("the gateway breaks the protocol")]
    Violation(#[from] Violation),
    #[error("the connection ended while session {session} ran")]
    Lost { session: SessionId, source: Closed },
    #[error("the connection ended")]
    Gone(#[source] Closed),
    #[error("the run's end was told by half: the event and the answer do not both come")]
    HalfEnded,
    #[error("the session has no event yet")]
    NothingYet,
    #[error("the gateway does not keep sessions for clients that leave")]
    NoSessions,
    #[error("a text is too long for the wire")]
    Text(#[source] Length),
}

impl Error {
    pub(super) fn call(method: &'static str, source: CallError) -> Self {
        match source {
            CallError::Refused(source) => Self::Refused { method, source },
            CallError::Closed(closed) => Self::Gone(closed),
            source => Self::Call { method, source },
        }
    }
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused { source, .. } if is_input(source.code) => Exit::Usage,
            Self::Text(_) => Exit::Usage,
            Self::Refused { .. }
            | Self::Call { .. }
            | Self::Violation(_)
            | Self::Lost { .. }
            | Self::Gone(_)
            | Self::HalfEnded
            | Self::NothingYet
            | Self::NoSessions => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Refused { source, .. } => match source.code {
                Code::InvalidParams => "correct what was asked for",
                Code::SessionNotFound => "check the id; an auditor can list what there is",
                Code::Forbidden => "use a token with the role operator",
                Code::Unavailable | Code::Busy => "try again in a moment",
                Code::PlanMismatch => "look at the plan again and answer anew",
                _ => "check that client and gateway are of one version",
            },
            Self::Call { .. } | Self::HalfEnded => "see how the run stands with 'harness connect --attach RUN'",
            Self::Violation(_) => "do not approve anything over this connection; check the gateway",
            Self::Lost { .. } | Self::Gone(_) => {
                "see whether the gateway runs; a run that holds can be taken up with 'harness resume'"
            }
            Self::NothingYet => "try again in a moment",
            Self::NoSessions => "use a gateway of this version",
            Self::Text(_) => "shorten it",
        }
        .to_owned()
    }
}

/// What the caller named does not exist or does not fit.
fn is_input(code: Code) -> bool {
    matches!(code, Code::InvalidParams | Code::SessionNotFound)
}
