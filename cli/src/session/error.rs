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

impl Error {
    /// Whether the gateway refuses because asks of this task may not wait for anybody; it has no code of its own for that.
    #[must_use]
    pub fn is_about_holding(&self) -> bool {
        self.says("asks are denied when the last client leaves")
    }

    /// Whether these words are among the gateway's, where it finds fault with what was sent.
    #[must_use]
    pub fn says(&self, words: &str) -> bool {
        matches!(self, Self::Refused { source, .. }
            if source.code == Code::InvalidParams && source.message().contains(words))
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
                Code::Forbidden => "have somebody do it whose role includes it",
                Code::Unavailable | Code::Busy => "try again in a moment",
                Code::PlanMismatch => "look at the plan again and answer anew",
                Code::Internal => "see the gateway's log",
                Code::SessionAlreadyRun | Code::SessionLimit => {
                    "use another session, or wait for one to end"
                }
                Code::PermissionNotFound | Code::PermissionResolved => {
                    "look at what waits now before you answer"
                }
                Code::Parse
                | Code::InvalidRequest
                | Code::MethodNotFound
                | Code::ProtocolVersion
                | Code::NotInitialized => "check that client and gateway are of one version",
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
