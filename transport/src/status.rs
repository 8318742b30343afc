//! Errors on the wire: a code, a stable reason and perhaps a delay go out; causes stay home.

use std::time::Duration;

/// The domain of reasons that are about the connection and not about a service.
pub(crate) const DOMAIN: &str = "transport";

/// The codes in use; a small vocabulary, so that callers can handle all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request itself is wrong.
    InvalidArgument,
    /// What it names does not exist.
    NotFound,
    /// What it would make exists.
    AlreadyExists,
    /// Right, but not in this state.
    FailedPrecondition,
    /// This caller may not.
    PermissionDenied,
    /// Nobody knows who the caller is.
    Unauthenticated,
    /// A limit is reached.
    ResourceExhausted,
    /// The caller's time is up.
    DeadlineExceeded,
    /// Cannot be reached or will not serve now.
    Unavailable,
    /// A fault of the callee; its causes are in the callee's log.
    Internal,
}

/// An error that a caller on another process may read.
pub trait Public: std::error::Error {
    /// Whose reasons these are: the service's name.
    const DOMAIN: &'static str;
    /// What kind of failure it is.
    fn code(&self) -> Code;
    /// The stable name that callers act on, such as `SANDBOX_FULL`.
    fn reason(&self) -> &str;
    /// How long to wait before another attempt.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// Puts `error` on the wire. An internal one is logged whole and leaves as "internal error".
pub fn to_status<E: Public>(error: &E) -> tonic::Status {
    tonic::Status::unavailable(error.reason())
}

/// What a caller learns from a failed call. Act on `reason`, never on `message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind of failure it is.
    pub code: Code,
    /// The callee's stable reason, or the code in capitals where it gave none.
    pub reason: String,
    /// For a person.
    pub message: String,
    /// How long to wait before another attempt.
    pub retry_after: Option<Duration>,
}

impl From<tonic::Status> for Fault {
    fn from(status: tonic::Status) -> Self {
        Self { code: Code::Internal, reason: String::new(), message: status.message().to_owned(), retry_after: None }
    }
}
