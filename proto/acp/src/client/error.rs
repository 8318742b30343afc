//! How connecting, calling and staying connected can fail; each with the dialect's symbol where it has one.
use crate::rpc::Failure;

/// The connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the CA bundle is not usable")]
    Ca(#[source] rustls_pki_types::pem::Error),
    #[error("the CA bundle holds no certificate that can be trusted")]
    NoCa,
    #[error("the TLS settings are not usable")]
    Tls(#[source] rustls::Error),
    #[error("cannot reach the gateway")]
    Reach(#[source] std::io::Error),
    #[error("the gateway's certificate is not trusted, or it refused the connection")]
    Secure(#[source] std::io::Error),
    #[error("plain ws reached an address that is not this machine")]
    NotLoopback,
    #[error("the gateway does not take the token; it may be wrong, expired or revoked")]
    Unauthenticated,
    #[error("the gateway refused the connection with HTTP status {0}")]
    Rejected(u16),
    #[error("the gateway does not speak WebSocket here")]
    Handshake(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("the gateway did not answer in time")]
    Timeout,
}

/// A call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The gateway said no.
    #[error(transparent)]
    Refused(Failure),
    #[error("the gateway did not answer in time")]
    Timeout,
    #[error("the connection has ended")]
    Closed(#[source] Closed),
    #[error("the answer has not the form of its method")]
    InvalidAnswer(#[source] serde_json::Error),
    #[error("too many calls wait for an answer")]
    TooManyPending,
    #[error("the request is larger than one message may be")]
    TooLarge,
    #[error("the request cannot be written")]
    Encode(#[source] serde_json::Error),
}

impl CallError {
    #[must_use]
    pub fn symbol(&self) -> &'static str {
        match self {
            Self::Refused(failure) => failure.code.symbol(),
            Self::Timeout => "ACP_REQUEST_TIMEOUT",
            Self::Closed(closed) if closed.code == Closed::TRANSPORT => "ACP_TRANSPORT_ERROR",
            Self::Closed(_) => "ACP_TRANSPORT_CLOSED",
            Self::InvalidAnswer(_) => "ACP_INVALID_RESPONSE",
            Self::TooManyPending | Self::TooLarge | Self::Encode(_) => "ACP_INVALID_REQUEST",
        }
    }
}

/// How the connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closed with {code}: {reason}")]
pub struct Closed {
    pub code: u16,
    /// What the closing side gave as its reason; the peer's is text from outside.
    pub reason: String,
    pub by_peer: bool,
}

impl Closed {
    pub const NORMAL: u16 = 1000;
    pub const PROTOCOL: u16 = 1002;
    pub const BINARY: u16 = 1003;
    pub const NO_CODE: u16 = 1005;
    pub const BAD_TEXT: u16 = 1007;
    pub const TOO_LARGE: u16 = 1009;
    pub const BAD_MESSAGE: u16 = 4002;
    pub const UNREAD: u16 = 4009;
    pub const TRANSPORT: u16 = 4011;

    pub(super) fn ours(code: u16, reason: &str) -> Self {
        Self { code, reason: reason.to_owned(), by_peer: false }
    }

    pub(super) fn cut() -> Self {
        Self::ours(Self::TRANSPORT, "the connection was cut")
    }
}
