//! Errors on the wire: a code, a stable reason and perhaps a delay go out; causes stay home.

use std::{collections::HashMap, time::Duration};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderMap;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

use crate::Chain;

/// The domain of reasons that are about the connection and not about a service.
pub(crate) const DOMAIN: &str = "transport";

/// What a caller reads of every internal error.
const INTERNAL: &str = "internal error";

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

impl Code {
    /// The name in capitals, as in reasons.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

impl From<Code> for tonic::Code {
    fn from(code: Code) -> Self {
        match code {
            Code::InvalidArgument => Self::InvalidArgument,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::FailedPrecondition => Self::FailedPrecondition,
            Code::PermissionDenied => Self::PermissionDenied,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::ResourceExhausted => Self::ResourceExhausted,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::Unavailable => Self::Unavailable,
            Code::Internal => Self::Internal,
        }
    }
}

impl From<tonic::Code> for Code {
    /// Codes outside the vocabulary come from the library: each has its nearest here.
    fn from(code: tonic::Code) -> Self {
        match code {
            tonic::Code::InvalidArgument => Self::InvalidArgument,
            tonic::Code::NotFound => Self::NotFound,
            tonic::Code::AlreadyExists => Self::AlreadyExists,
            tonic::Code::FailedPrecondition | tonic::Code::Aborted => Self::FailedPrecondition,
            tonic::Code::PermissionDenied => Self::PermissionDenied,
            tonic::Code::Unauthenticated => Self::Unauthenticated,
            // The library's word for a message over the size limit.
            tonic::Code::ResourceExhausted | tonic::Code::OutOfRange => Self::ResourceExhausted,
            tonic::Code::DeadlineExceeded => Self::DeadlineExceeded,
            tonic::Code::Unavailable | tonic::Code::Cancelled => Self::Unavailable,
            tonic::Code::Internal
            | tonic::Code::Ok
            | tonic::Code::Unknown
            | tonic::Code::Unimplemented
            | tonic::Code::DataLoss => Self::Internal,
        }
    }
}

/// An error that a caller in another process may read.
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

/// Puts `error` on the wire: its code, reason, delay and own sentence, never its causes. An internal error is logged whole
/// here and leaves as "internal error".
pub fn to_status<E: Public>(error: &E) -> Status {
    let message = match error.code() {
        Code::Internal => {
            error!(error = %Chain(error), reason = error.reason(), "internal error");
            INTERNAL.to_owned()
        }
        _ => error.to_string(),
    };
    status(error.code(), error.reason(), E::DOMAIN, message, error.retry_after())
}

fn status(
    code: Code,
    reason: &str,
    domain: &str,
    message: String,
    retry_after: Option<Duration>,
) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, domain, HashMap::new());
    if retry_after.is_some() {
        details.set_retry_info(retry_after);
    }
    Status::with_error_details(code.into(), message, details)
}

/// What a caller learns from a failed call. Act on `reason`, never on `message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({reason})")]
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

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        let code = Code::from(status.code());
        let reason = status
            .get_details_error_info()
            .map_or_else(|| default_reason(&status), |info| info.reason);
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        Self { code, reason, message: status.message().to_owned(), retry_after }
    }
}

fn default_reason(status: &Status) -> String {
    match status.code() {
        tonic::Code::OutOfRange => TOO_LARGE.to_owned(),
        code => Code::from(code).as_str().to_owned(),
    }
}

const TOO_LARGE: &str = "MESSAGE_TOO_LARGE";

/// Gives every failure that leaves this process a reason, also those that the library made, and keeps the texts of internal
/// ones at home. Returns the code that leaves.
pub(crate) fn complete(headers: &mut HeaderMap) -> Option<tonic::Code> {
    let status = Status::from_header_map(headers)?;
    if status.code() == tonic::Code::Ok || status.get_details_error_info().is_some() {
        return Some(status.code());
    }
    let code = Code::from(status.code());
    let message = match code {
        Code::Internal => {
            error!(code = ?status.code(), error = status.message(), "internal error");
            INTERNAL
        }
        _ => status.message(),
    };
    let complete = self::status(code, &default_reason(&status), DOMAIN, message.to_owned(), None);
    if let Err(error) = complete.add_header(headers) {
        error!(error = %Chain(&error), "status does not fit into headers");
    }
    Some(complete.code())
}

/// Drops details that are no base64: the library would panic over them, and a peer must not be able to end our tasks.
pub(crate) fn sound(headers: &mut HeaderMap) {
    let broken = headers.get(DETAILS).is_some_and(|value| BASE64.decode(value.as_bytes()).is_err());
    if broken {
        headers.remove(DETAILS);
    }
}

const DETAILS: &str = "grpc-status-details-bin";

/// As the library reads them.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests;
